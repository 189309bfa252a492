# SPDX-License-Identifier: Apache-2.0
"""Counts of messages seen, written and dropped, by topic and reason, so that every loss is reported."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefirst_ros.errors import MessageError

# ---- of pictures
UNDECODABLE = "undecodable"
DAMAGED = "damaged"
NO_PICTURE = "no picture in the message"
NO_OUTPUT = "the decoder gave no picture"
BEFORE_KEYFRAME = "before the first keyframe"
AFTER_LOSS = "after a loss, before the next keyframe"
# ---- of messages
CANNOT_BE_STORED = "cannot be stored"
NOT_SAMPLED = "not sampled"
CUT = "before start or after end"
PAUSED = "came during a pause"
HOOK = "picture_hook failed"
MISSING_TILE = "a tile is missing"
OVERLOAD = "left out under load"
ON_THE_WAY = "lost on the way"
BY_STAMPS = "lost on the way, by stamps"
"""Estimated loss of messages without sequence numbers: gaps of stamps against the usual interval of their topic."""
OTHER_TYPE = "of another type than the topic's first message"
NOT_NEAREST = "nearest to no sample"
OUTSIDE = "outside tolerance"
LATE = "came after its frames were written"
NO_SAMPLE = "belongs to no sample"
NO_MODEL = "sent before the model was loaded"
RECORDED_TWICE = "recorded twice"
"""A message that two files of one recording have counts once."""
EMPTY = "has no member"
INTERRUPTED = "not reached before the interruption"
DISK = "refused by the disk"
NO_FIX = "no valid fix"
NO_ATTITUDE = "no attitude"
NO_POSE = "no valid pose"
OTHER_FRAMES = "between other frames than the pose"
OWN_FRAME = "pose in the vehicle's own frame"
# ---- of the boxes and masks of a message
NOT_FINITE = "box is not finite"
NOT_PLACED = "box in the fixed frame, and the pose is unknown"
BAD_SCORE = "score outside 0..1"
LOW_SCORE = "score below min_score"
DROPPED_LABEL = "label dropped by label_map"
BAD_MASK = "mask cannot be read"
SEMANTIC = "semantic mask"
MASK_NO_PICTURE = "mask without a picture"
MASK_REASONS = frozenset({BAD_MASK, SEMANTIC, MASK_NO_PICTURE})
PART_REASONS = MASK_REASONS | {NOT_FINITE, NOT_PLACED, BAD_SCORE, LOW_SCORE, DROPPED_LABEL}
"""Reasons that count boxes and masks instead of messages."""


def lacks(sensor: str) -> str:
    """Return the reason for a frame without a sensor that `require` names."""
    return f"lacks {sensor}"


def name_encoding(encoding: str) -> str:
    """Return the reason for messages that are not in CDR."""
    return f"unknown encoding ({encoding or 'none'})"


LOSS = frozenset(
    {
        *(UNDECODABLE, CANNOT_BE_STORED, AFTER_LOSS, DAMAGED, NO_OUTPUT),
        *(MISSING_TILE, OVERLOAD, ON_THE_WAY, BY_STAMPS, OTHER_TYPE, INTERRUPTED, DISK, HOOK),
    }
)
"""Reasons that make a conversion finish with loss; the others are only counted."""
NO_LOSS = frozenset(
    {
        *(BEFORE_KEYFRAME, NO_PICTURE, NOT_SAMPLED, CUT, NOT_NEAREST, OUTSIDE, LATE, NO_FIX, NO_ATTITUDE, NO_SAMPLE),
        *(EMPTY, NO_MODEL, RECORDED_TWICE, NO_POSE, OTHER_FRAMES, OWN_FRAME, PAUSED),
    }
)


@dataclass(slots=True)
class TopicCount:
    """One topic: messages seen and written, and those dropped by reason."""

    seen: int = 0
    written: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


class Counts:
    """The counts of a dataset, by topic.

    Owns: any thread may call `see`, `write`, `drop` and `plain` at any time; the rest is for only one thread, once the
    others have ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.topics: defaultdict[str, TopicCount] = defaultdict(TopicCount)
        self.examples: dict[tuple[str, str], str] = {}
        """(topic, reason) -> the stated fault of the first message dropped for it."""

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Counts:
        """Return counts from their `plain` form."""
        counts = cls()
        for topic, count in plain.items():
            counts.topics[topic] = TopicCount(count["seen"], count["written"], Counter(count["dropped"]))
        return counts

    def __getitem__(self, topic: str) -> TopicCount:
        return self.topics[topic]

    def see(self, topic: str, number: int = 1) -> None:
        with self._lock:
            self[topic].seen += number

    def write(self, topic: str, number: int = 1) -> None:
        """Count messages that reach the dataset."""
        with self._lock:
            self[topic].written += number

    def drop(self, topic: str, reason: str, number: int = 1, why: MessageError | None = None) -> None:
        """Count messages that do not reach the dataset; the `why` of the first one stays."""
        with self._lock:
            if why is not None and str(why) != reason:
                self.examples.setdefault((topic, reason), str(why))
            if number:
                self[topic].dropped[reason] += number

    def add(self, other: Counts) -> None:
        """Add the counts of another recording."""
        for topic, count in other.topics.items():
            mine = self[topic]
            mine.seen += count.seen
            mine.written += count.written
            mine.dropped.update(count.dropped)
        self.examples = {**other.examples, **self.examples}

    @property
    def lost(self) -> dict[str, Counter[str]]:
        """{topic: {reason: number}} of lost messages; empty without loss."""
        found = {
            topic: Counter({reason: n for reason, n in count.dropped.items() if reason in LOSS})
            for topic, count in self.topics.items()
        }
        return {topic: reasons for topic, reasons in found.items() if reasons}

    def plain(self) -> dict[str, Any]:
        """Return {topic: {"seen", "written", "dropped": {reason: n}}}, sorted by topic and reason."""
        with self._lock:
            return {
                topic: {"seen": c.seen, "written": c.written, "dropped": dict(sorted(c.dropped.items()))}
                for topic, c in sorted(self.topics.items())
            }


Progress = Callable[[str, int, int], None]
"""Called with the name of the step, how much of it is done, and of how much; an exception it raises ends the work."""
UNITS: Mapping[str, str] = {
    "reading": "B",
    "uploading": "B",
    "converting": "messages",
    "looking": "messages",
    "checking": "messages",
    "merging": "samples",
    "exporting": "samples",
    "importing": "samples",
    "logging": "samples",
    "restoring": "members",
    "pictures": "pictures",
    "samples": "samples",
    "scenes": "scenes",
    "reporting": "reports",
    "datasets": "datasets",
}
"""First word of a step -> unit of its count."""


def ignore_progress(what: str, done: int, of: int) -> None:
    """Ignore progress."""
