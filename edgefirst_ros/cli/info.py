# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros info`."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefirst_ros.cli.options import AS_JSON, CONFIG, SET_LIMITS, texts_of
from edgefirst_ros.cli.output import explained, is_recording, one_line, progress, repeated, say, say_notes, table
from edgefirst_ros.errors import EdgeFirstError, UsageError, counted, listed
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from edgefirst_ros.config import Settings
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.dataset.summary import DatasetSummary
    from edgefirst_ros.messages import Message


SECOND = 1_000_000_000


def info(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            readable=False,
            help="Recordings and datasets: REC.mcap, a rosbag2 folder, OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow.",
        ),
    ],
    check_time: Annotated[
        bool,
        typer.Option("--check-time", help="Estimate offsets between the sensors of a recording from their content."),
    ] = False,
    config: Annotated[Path | None, CONFIG] = None,
    assignments: Annotated[list[str] | None, SET_LIMITS] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Show the content of a recording or a dataset.

    Of a recording: topics with rates, gaps and clocks, damage, and the results of a conversion: cameras with codec
    and picture size, labels of the model, calibration. Of a dataset: samples by sequence, sensor and group, length and
    place, annotations by label.

    Exit codes: 0 read, 1 cannot be read, 2 wrong usage.
    """
    from edgefirst_ros.config.load import load
    from edgefirst_ros.dataset.objects.places import fetched, locate
    from edgefirst_ros.sources.inputs import is_rosbag2
    from edgefirst_ros.streams import RECORDINGS

    settings = load(config, texts=texts_of(context, assignments or ()))
    limits, found = settings.limits, []
    for number, place in enumerate(locate(paths)):
        if number and not as_json:
            say("")
        there = place.in_place  # of a dataset in a bucket directory and tables are enough
        with nullcontext([there]) if there is not None else fetched([place]) as (one,):
            plain = not place.objects or there is None
            if plain and (one.suffix in RECORDINGS or is_recording(one) or is_rosbag2(one)):
                facts = recording_facts(one, settings, check_time=check_time, quiet=as_json)
                found.append(facts) if as_json else print_recording(facts)
            elif check_time:
                raise UsageError(f"--check-time: {one} is a dataset; expected its recording, which has all messages")
            else:
                with explained(one):
                    if as_json:
                        found.append(dataset_facts(one, limits))
                    else:
                        print_dataset(one, limits)
    if as_json:
        say(json.dumps(found[0] if len(found) == 1 else found, indent=1))


# ---- datasets ----------------------------------------------------------------------------------
def dataset_facts(path: Path, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Return sequences, samples by sensor, annotations by label, and the metadata, ready for JSON."""
    dataset, summary = _open(path, limits)
    each, whole = summary.sequences, summary.whole
    return {
        "dataset": str(path),
        "samples": whole.samples,
        "sequences": {one.name: one.samples for one in each},
        "start": {one.name: one.start for one in each if one.start is not None},
        "duration_s": {one.name: one.timeline.duration for one in each if one.start is not None},
        "place": _place(dataset),
        "inputs": dict(whole.sensors),
        "repeats": repeats_in(dataset),
        "calibration": {one.name: one.calibration for one in each},
        "groups": dict(whole.groups),
        "labels": dict(whole.labels),
        "by_sequence": summary.plain(),
        "columns": dataset.annotation_columns,
        "metadata": dataset.metadata,
    }


def _open(path: Path, limits: Limits) -> tuple[Dataset, DatasetSummary]:
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.dataset.summary import summarize_dataset

    dataset = Dataset(path, limits=limits)
    return dataset, summarize_dataset(dataset)


def _place(dataset: Dataset) -> dict[str, list[float]] | None:
    """Return least and greatest latitude and longitude of the samples, degrees; None without positions."""
    places = [s.position for s in dataset.samples() if s.position is not None]
    if not places:
        return None
    latitudes, longitudes = zip(*((one.latitude, one.longitude) for one in places), strict=True)
    return {"latitude": [min(latitudes), max(latitudes)], "longitude": [min(longitudes), max(longitudes)]}


def repeats_in(dataset: Dataset) -> dict[str, int]:
    """Return how many members repeat the message of the sample before, and their bytes."""
    sizes = [
        part.container.size(s.member(kind)) for part in dataset.parts for s in part.samples() for kind in s.repeats
    ]
    return {"members": len(sizes), "bytes": sum(sizes)}


def print_dataset(path: Path, limits: Limits = DEFAULT_LIMITS) -> None:
    """Print sequences, messages, sensors, groups and labels of a dataset: by sequence, then in sum."""
    dataset, summary = _open(path, limits)
    whole = summary.whole
    say(f"{path}: {counted(whole.samples, 'sample')} in {counted(len(summary.sequences), 'sequence')}")
    say("")
    table(*summary.sequence_table())
    if (place := _place(dataset)) is not None:
        (south, north), (west, east) = place["latitude"], place["longitude"]
        say(f"place: latitude {south:.5f} to {north:.5f}, longitude {west:.5f} to {east:.5f}")
    if whole.counts:
        say("")
        table(*summary.topic_table())
    say("")
    table(*summary.sensor_table())
    repeats = repeats_in(dataset)
    if repeats["members"]:
        say("")
        say(repeated(repeats["members"], repeats["bytes"]))
    for what, number, found in (("group", "samples", whole.groups), ("label", "annotations", whole.labels)):
        if found:
            say("")
            table(*summary.count_table(what, number))
    say("")
    say(f"annotation columns: {', '.join(dataset.annotation_columns)}")


MOST_LABELS = 80


@dataclass(slots=True)
class _TopicRate:
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


def recording_facts(
    path: Path, settings: Settings | None = None, *, check_time: bool = False, quiet: bool = True
) -> dict[str, Any]:
    """Return topics with type, number, rate and longest gap, the clocks, and damage, ready for JSON.

    With `check_time` also the offsets between its sensors.
    """
    from edgefirst_ros.config import Settings
    from edgefirst_ros.messages import known_name
    from edgefirst_ros.pipeline.first_pass import CameraFacts, walk
    from edgefirst_ros.sensors.calibration import frames_of, judge
    from edgefirst_ros.sources.inputs import recordings_of
    from edgefirst_ros.streams import CAMERA, CAMERA_TYPES

    rates: defaultdict[str, _TopicRate] = defaultdict(_TopicRate)
    cameras: dict[str, CameraFacts] = {}
    settings = settings or Settings()
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
        rate = rates.get(channel.topic, _TopicRate())
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
                found.calibration.camera_info,
                found.calibration.static_transforms,
                frames_of(found.roles.companions, found.calibration.sensor_frames),
            ),
            "labels": found.calibration.labels,
            "notes": [*found.roles.notes, *found.calibration.notes],
            "unused_topics": found.sequence("").unused,
        }
        if check_time:
            from edgefirst_ros.pipeline import time_check

            with progress(quiet=quiet) as report:
                facts["time_check"] = time_check.check_time(found, settings, report).plain()
    return facts


def print_recording(facts: dict[str, Any]) -> None:
    """Print the content of a recording, and the results of a conversion."""
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
        labels = one_line(listed(facts["labels"], MOST_LABELS))
        say(f"the model knows {counted(len(facts['labels']), 'label')}: {labels}")
    if "reference" in facts:
        say(
            f"samples would be made of {facts['reference']}; time base {facts['time_base']['base']}, "
            f"{counted(facts['segments'], 'segment')}; calibration {facts['calibration']}"
        )
        for topic, what in facts["time_base"]["topics"].items():
            say(f"note: {topic}: {what}")
        say_notes(facts["notes"])
        for of in facts["unused_topics"]:
            from edgefirst_ros.sources.topics import option_of

            number = counted(of["count"], "message")
            say(f"note: {of['topic']} is not used ({number}); to use it: {option_of(of['use'])}")
    else:
        say(f"it cannot be converted as it is: {facts['convertible']}")
    for topic in facts["topics"]:
        if topic["undecodable"]:
            say(f"{topic['topic']}: cannot be decoded: {counted(topic['undecodable'], 'message')}")
    if "time_check" in facts:
        print_time(facts["time_check"])


def print_time(check: dict[str, Any]) -> None:
    """Print offsets between sensors, drifts of their clocks, and lines for a rig."""
    rows = []
    for pair in check["pairs"]:
        found = pair["seconds"], pair["uncertainty"], pair["confidence"]
        known = ("-",) * 3 if pair["why"] else map(format, found, ("+.3f", ".3f", ".2f"))
        note = f"unknown: {pair['why']}" if pair["why"] else "" if pair["certain"] else "too uncertain for a rig"
        rows.append((f"{pair['first']}, {pair['second']}", pair["motion"], *known, f"{pair['compared']:.1f}", note))
    say("")
    table(("sensors", "by", "offset, s", "+-, s", "confidence", "compared, s", "note"), rows)
    say("")
    drifts = [
        (key, *(("-", "-") if of["why"] else (f"{of['ppm']:+.1f}", f"{of['uncertainty']:.1f}")), of["why"])
        for key, of in check["drift"].items()
    ]
    table(("clock", "drift, ppm", "+-, ppm", "note"), drifts)
    for reference, offsets in check["offsets"].items():
        say("")
        say(f"lines for a rig, if the stamps of {reference} are right (not applied):")
        for key, value in offsets.items():
            say(f"  {key}: {{offset: {value}}}")
