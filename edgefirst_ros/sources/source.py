# SPDX-License-Identifier: Apache-2.0
"""Interface of all message sources: a file, several joined files, or a running system."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from edgefirst_ros.messages import Message
from edgefirst_ros.sources.definitions import Channel


class Source(Protocol):
    """A source of CDR messages with topics and types."""

    @property
    def topics(self) -> Mapping[str, str]:
        """Topics with CDR messages -> type, as far as known so far; a topic keeps its first type."""

    @property
    def notes(self) -> Sequence[str]:
        """Notes to the user: what is damaged, lost or not used, and why."""

    def iter_messages(
        self, topics: Collection[str] | None = None, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        """Yield messages in recorded order, or as they come; of a large source only a part is held in memory.

        `topics`: names, or a mapping {topic: type} that takes messages of these types only; None: every topic.
        `start` and `end`: log times in ns, from `start` to before `end`; None: no limit.
        Raises RecordingError where the source cannot be read.
        """


class Damage(NamedTuple):
    """A part of a recording that could not be read; `loss` is False where nothing can have been in it."""

    offset: int
    what: str
    loss: bool = True

    def __str__(self) -> str:
        return f"at byte {self.offset}: {self.what}"

    @property
    def plain(self) -> dict[str, Any]:
        """Entry of `damage` in the dataset's metadata `sources`: {"offset", "what"}, and "loss" where it is none."""
        plain: dict[str, Any] = {"offset": self.offset, "what": self.what}
        return plain if self.loss else {**plain, "loss": False}


class RecordedFile(NamedTuple):
    """One file of a recording."""

    path: Path
    size: int
    """Size in bytes."""
    sha256: str | None
    """Hex digits, if `walk()` was asked for it."""
    damage: Sequence[Damage]

    @property
    def plain(self) -> dict[str, Any]:
        """Entry of the dataset's metadata `sources`: {"file", "size", "sha256"}, and "damage" if there is any."""
        plain: dict[str, Any] = {"file": self.path.name, "size": self.size, "sha256": self.sha256}
        if self.damage:
            plain["damage"] = [damage.plain for damage in self.damage]
        return plain


class Recording(Source, Protocol):
    """A source that has an end, can be read again, and may be damaged."""

    path: Path
    """Path of its first file."""

    @property
    def files(self) -> Sequence[RecordedFile]:
        """The files it is made of, in order, as `walk()` found them."""

    @property
    def size(self) -> int:
        """Bytes of the recording, known once `walk()` has begun."""

    @property
    def position(self) -> int:
        """Bytes that `walk()` has done."""

    @property
    def channels(self) -> Mapping[int, Channel]:
        """Channels by id, as `walk()` found them; other encodings too."""

    @property
    def damage(self) -> Sequence[Damage]:
        """What `walk()` could not read, in all files."""

    @property
    def repeated(self) -> Mapping[str, int]:
        """{topic: messages that two of its files have}, as `walk()` found them; they are yielded once."""

    def walk(self) -> Iterator[Message]:
        """Read everything once and yield every CDR message in the order in which it is stored.

        Raises RecordingError where the recording cannot be read.
        """


def type_wanted(topics: Collection[str] | None, topic: str, schema: str) -> bool:
    """True if messages of a topic and type are wanted; `topics` as in `Source.iter_messages`."""
    if topics is None:
        return True
    return topics.get(topic) == schema if isinstance(topics, Mapping) else topic in topics


def in_span(log_time: int, start: int | None, end: int | None) -> bool:
    """True if a log time lies in the span from `start` to before `end`, ns; None: no limit."""
    return (start is None or log_time >= start) and (end is None or log_time < end)
