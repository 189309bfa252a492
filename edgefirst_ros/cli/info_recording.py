# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros info` of a recording."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefirst_ros.cli.progress import progress
from edgefirst_ros.cli.text import one_line, say, table
from edgefirst_ros.errors import EdgeFirstError, counted

if TYPE_CHECKING:
    from edgefirst_ros.messages import Message

SECOND = 1_000_000_000
MOST_LABELS = 80
"""Labels that are listed."""


@dataclass(slots=True)
class _Rate:
    """Times at which the messages of a topic were recorded."""

    count: int = 0
    first: int = 0
    last: int = 0
    gap: int = 0

    def note(self, log_time: int) -> None:
        if self.count:
            self.gap = max(self.gap, log_time - self.last)
        else:
            self.first = log_time
        self.last = log_time
        self.count += 1

    @property
    def hertz(self) -> float:
        return (self.count - 1) * SECOND / (self.last - self.first) if self.last > self.first else 0.0


def recording_facts(path: Path, *, quiet: bool = True) -> dict[str, Any]:
    """Return topics with type, number, rate and longest gap, the clocks, and damage, ready for JSON."""
    from edgefirst_ros.config import Settings
    from edgefirst_ros.messages import known_name
    from edgefirst_ros.pipeline.first_pass import CameraFacts, walk
    from edgefirst_ros.sensors.calibration import frames_of, judge
    from edgefirst_ros.sources.inputs import recordings_of
    from edgefirst_ros.streams import CAMERA, CAMERA_TYPES

    rates: defaultdict[str, _Rate] = defaultdict(_Rate)
    cameras: dict[str, CameraFacts] = {}
    settings = Settings()
    names = (None, *(topic.name for topic in CAMERA.topics))

    def observe(message: Message) -> None:
        topic, schema = message.topic, message.schema
        rates[topic].note(message.log_time)
        if schema in CAMERA_TYPES and known_name(topic, schema) in names:
            if topic not in cameras:
                cameras[topic] = CameraFacts(topic, schema, settings.limits)
            cameras[topic].offer(message)

    ((first, *more),) = (given.files for given in recordings_of([path]))
    with progress(quiet=quiet) as report:
        walked = walk(first, settings, lambda done, of: report(f"reading {path.name}", done, of), observe, more=more)
    topics = []
    for channel in walked.recording.channels.values():
        rate = rates.get(channel.topic, _Rate())
        times = walked.walk.times.get(channel.topic)
        clocks = {}
        for kind in ("header", "publish"):
            stamps = getattr(times, kind) if times else None
            if stamps is not None and stamps.distances:
                clocks[kind] = stamps.median() / SECOND if stamps.tell_time else None
        topics.append(
            {
                "topic": channel.topic,
                "type": channel.schema,
                "encoding": channel.encoding,
                "messages": channel.seen,
                "hz": round(rate.hertz, 3),
                "longest_gap_s": rate.gap / SECOND,
                "stamp_minus_log_time_s": clocks,
                "undecodable": walked.walk.unreadable.get(channel.topic, 0),
            }
        )
    facts: dict[str, Any] = {
        "recording": str(path),
        "bytes": walked.recording.size,
        "start": walked.walk.first,
        "duration_s": (walked.walk.last - (walked.walk.first or 0)) / SECOND,
        "topics": sorted(topics, key=lambda topic: str(topic["topic"])),
        "cameras": [cameras[topic].plain() for topic in sorted(cameras)],
        "damage": [
            {"file": file.path.name, "offset": d.offset, "what": d.what, "loss": d.loss}
            for file in walked.recording.files
            for d in file.damage
        ],
    }
    try:
        found = walked.conclude(settings)
    except EdgeFirstError as error:
        facts["convertible"] = str(error)
    else:
        facts |= {
            "reference": found.roles.reference,
            "time_base": {"base": found.base.base, "topics": found.base.replaced},
            "segments": found.segments,
            "calibration": judge(
                found.calibration.camera_info, found.calibration.static_transforms, frames_of(found.roles.companions)
            ),
            "labels": found.calibration.labels,
            "notes": [*found.roles.notes, *found.calibration.notes],
        }
    return facts


def print_recording(facts: dict[str, Any]) -> None:
    """Print what is in a recording, and what a conversion would give."""
    when = "no messages in CDR" if any(topic["messages"] for topic in facts["topics"]) else "no messages"
    if facts["start"] is not None:
        begin = datetime.fromtimestamp(facts["start"] / SECOND, timezone.utc)
        when = f"{facts['duration_s']:.1f} s from {begin:%Y-%m-%d %H:%M:%S} UTC"
    say(f"{facts['recording']}: {facts['bytes'] / 1e6:.1f} MB, {when}")
    for damage in facts["damage"]:
        say(f"{damage['file']}: damage at byte {damage['offset']}: {damage['what']}")
    say("")
    rows = []
    for topic in facts["topics"]:
        clocks = topic["stamp_minus_log_time_s"]
        told = [
            "-" if key not in clocks else "none" if clocks[key] is None else f"{clocks[key]:+.3f}"
            for key in ("header", "publish")
        ]
        name = topic["topic"] if topic["encoding"] == "cdr" else f"{topic['topic']} ({topic['encoding']})"
        rows.append(
            (name, str(topic["messages"]), f"{topic['hz']:.1f}", f"{topic['longest_gap_s']:.3f}", *told, topic["type"])
        )
    table(("topic", "messages", "Hz", "longest gap, s", "header - log, s", "publish - log, s", "type"), rows)
    say("")
    for camera in facts["cameras"]:
        size = f"{camera['width']} x {camera['height']}" if camera["width"] else "no picture that can be decoded"
        say(f"camera {camera['topic']}: {camera['codec'] or 'unknown codec'}, {size}")
    if len(facts["cameras"]) > 1:
        options = " ".join(f"--reference-topic {camera['topic']}" for camera in facts["cameras"])
        say(f"several cameras: convert with {options} for a sequence of each, or with one of them")
    if facts.get("labels"):
        say(f"the model knows {counted(len(facts['labels']), 'label')}: {_listed(facts['labels'])}")
    if "reference" in facts:
        say(
            f"samples would be made of {facts['reference']}; time base {facts['time_base']['base']}, "
            f"{counted(facts['segments'], 'segment')}; calibration {facts['calibration']}"
        )
        for topic, what in facts["time_base"]["topics"].items():
            say(f"note: {topic}: {what}")
        for note in facts["notes"]:
            say(f"note: {note}")
    else:
        say(f"it cannot be converted as it is: {facts['convertible']}")
    for topic in facts["topics"]:
        if topic["undecodable"]:
            say(f"{topic['topic']}: cannot be decoded: {counted(topic['undecodable'], 'message')}")


def _listed(labels: list[str]) -> str:
    more = f" and {len(labels) - MOST_LABELS} more" if len(labels) > MOST_LABELS else ""
    return one_line(", ".join(labels[:MOST_LABELS])) + more
