# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros info`."""

from __future__ import annotations

import os
import shlex
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefirst_ros.cli.options import CHECK_TIME, CONFIG, load_settings, wants_json
from edgefirst_ros.cli.output import OtherResult, Result, explain_paths, show_progress
from edgefirst_ros.errors import EdgeFirstError, Text, UsageError, format_size, join_names, pluralize
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from edgefirst_ros.config import Settings
    from edgefirst_ros.dataset.objects.places import Place
    from edgefirst_ros.messages import Message

SECOND = 1_000_000_000


def info(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            readable=False,
            help="Recordings and datasets: REC.mcap, a rosbag2 folder, OUT/NAME.zip, OUT/NAME, or folders of them.",
        ),
    ],
    check_time: Annotated[bool, CHECK_TIME] = False,
    config: Annotated[Path | None, CONFIG] = None,
) -> Result:
    """Show the content of a recording or a dataset.

    For a recording: its topics with rates, gaps and clocks, damage, and the data that a conversion would use: cameras
    with codec and picture size, labels of the model, calibration. For a dataset: samples by sequence, sensor and
    group, length, place, annotations by label.

    Exit codes: 0 read, 1 cannot be read, 2 wrong usage.
    """
    from edgefirst_ros.dataset.objects.places import fetch_places, locate
    from edgefirst_ros.sources.inputs import is_recording
    from edgefirst_ros.streams import RECORDINGS

    settings, as_json = load_settings(context, config), wants_json(context)

    def read() -> Iterator[Any]:
        for place in _expand_folders(locate(paths)):
            there = place.in_place  # of a dataset in a bucket directory and tables are enough
            with nullcontext([there]) if there is not None else fetch_places([place]) as (one,):
                plain = not place.objects or there is None
                if plain and (one.suffix in RECORDINGS or is_recording(one)):
                    facts = collect_recording_facts(one, settings, check_time=check_time, quiet=as_json)
                    facts["recording"] = place.uri if place.objects else str(one)
                    found: Any = facts if as_json else format_recording(facts, rigged=settings.rig is not None)
                elif check_time:
                    raise UsageError(
                        f"--check-time: {one} is a dataset; expected its recording, which has all messages"
                    )
                else:
                    with explain_paths(one, recordings=True):
                        dataset = DatasetInfo(one, settings.limits)
                        found = dataset.plain() if as_json else [*dataset.text()]
            yield found

    def text() -> Text:  # each as soon as it is read: the next one may be broken
        for number, one in enumerate(read()):
            yield from [""] if number else []
            yield from one

    def plain() -> Any:
        first, *more = read()
        return [first, *more] if more else first

    return OtherResult(plain, text)


def _expand_folders(places: Iterable[Place]) -> Iterator[Place]:
    """Yield places, in place of a folder with recordings those, and the folder too if it also holds datasets."""
    from edgefirst_ros.dataset.names import is_folder_dataset
    from edgefirst_ros.dataset.objects.places import Place, list_files_below
    from edgefirst_ros.dataset.reader import is_several
    from edgefirst_ros.sources.inputs import is_recording

    for place in places:
        inside = list[Path]()
        if os.path.isdir(place.path) and not is_recording(place.path) and is_several(place.path):
            inside = list_files_below(place.path, lambda one: is_folder_dataset(one) or is_recording(one))
        recordings = [one for one in inside if is_recording(one)]
        if not recordings or any(one.suffix == ".zip" or is_folder_dataset(one) for one in inside):
            yield place
        yield from (Place(str(one), one) for one in recordings)


# ---- datasets ----------------------------------------------------------------------------------
class DatasetInfo:
    """Sequences, samples by sensor, annotations by label, and the metadata of a dataset."""

    def __init__(self, path: Path, limits: Limits = DEFAULT_LIMITS) -> None:
        from edgefirst_ros.dataset import Dataset
        from edgefirst_ros.dataset.summary import summarize_dataset

        self._path = path
        self._dataset = Dataset(path, limits=limits)
        self._summary = summarize_dataset(self._dataset)
        sizes = [
            part.container.size(s.member(kind))
            for part in self._dataset.parts
            for s in part.samples()
            for kind in s.repeats
        ]
        self._repeats = len(sizes), sum(sizes)
        places = [s.position for s in self._dataset.samples() if s.position is not None]
        ends = [[min(values), max(values)] for values in zip(*(place[:2] for place in places), strict=True)]
        self._place = dict(zip(("latitude", "longitude"), ends, strict=True)) if places else None
        """Least and greatest latitude and longitude of the samples, degrees."""

    def plain(self) -> dict[str, Any]:
        """Return the content, ready for JSON."""
        dataset, each, whole = self._dataset, self._summary.sequences, self._summary.whole
        return {
            "dataset": str(self._path),
            "samples": whole.samples,
            "sequences": {one.name: one.samples for one in each},
            "start": {one.name: one.start for one in each if one.start is not None},
            "duration_s": {one.name: one.timeline.duration for one in each if one.start is not None},
            "place": self._place,
            "inputs": dict(whole.sensors),
            "repeats": dict(zip(("members", "bytes"), self._repeats, strict=True)),
            "calibration": {one.name: one.calibration for one in each},
            "groups": dict(whole.groups),
            "labels": dict(whole.labels),
            "by_sequence": self._summary.plain(),
            "columns": dataset.annotation_columns,
            "metadata": dataset.metadata,
        }

    def text(self) -> Text:
        """Return sequences, messages, sensors, groups and labels: by sequence, then in sum."""
        from edgefirst_ros.dataset.query import describe_repeats
        from edgefirst_ros.dataset.schema import LACKING, SEQUENCES, UNUSED

        summary, whole = self._summary, self._summary.whole
        yield f"{self._path}: {pluralize(whole.samples, 'sample')} in {pluralize(len(summary.sequences), 'sequence')}"
        yield ""
        yield summary.sequence_table()
        if self._place is not None:
            (south, north), (west, east) = self._place.values()
            yield f"place: latitude {south:.5f} to {north:.5f}, longitude {west:.5f} to {east:.5f}"
        if whole.counts:
            yield ""
            yield from summary.topic_table()
        yield ""
        yield from summary.sensor_table()
        if self._repeats[0]:
            yield ""
            yield describe_repeats(*self._repeats)
        for what, number, found in (("group", "samples", whole.groups), ("label", "annotations", whole.labels)):
            if found:
                yield ""
                yield summary.count_table(what, number)
        yield ""
        yield f"annotation columns: {', '.join(self._dataset.annotation_columns)}"
        for one in summary.whole.checks:
            if one.key == "loss" and one.place and one.place not in (whole.counts or {}):
                yield f"note: {one.where}: {one.found}"
        stated = self._dataset.metadata.get(SEQUENCES) if summary.is_several else None
        for name, facts in (stated or {"": self._dataset.metadata}).items():
            drive = f"{name}: " if name else ""
            configuration = facts.get("configuration") or self._dataset.metadata.get("configuration") or {}
            for key in facts.get(LACKING) or ():
                yield f"note: {drive}the rig names a topic for {key} that is not in the recording"
            for of in facts.get(UNUSED) or ():
                yield _describe_unused(of, drive, rigged="rig" in configuration)


def _describe_unused(of: Mapping[str, Any], drive: str = "", *, rigged: bool) -> str:
    from edgefirst_ros.sources.topics import describe_option

    number = "" if of["count"] is None else f" ({pluralize(of['count'], 'message')})"
    return f"note: {drive}{of['topic']} is not used{number}; to use it: {describe_option(of['use'], rigged=rigged)}"


MOST_LABELS = 80


def collect_recording_facts(
    path: Path, settings: Settings | None = None, *, check_time: bool = False, quiet: bool = True
) -> dict[str, Any]:
    """Return topics with type, number, rate and longest gap, the clocks, and damage, ready for JSON.

    With `check_time` also the offsets between its sensors.
    """
    import numpy as np

    from edgefirst_ros.config import Settings
    from edgefirst_ros.messages import find_known_name
    from edgefirst_ros.pipeline.first_pass import CameraFacts, walk
    from edgefirst_ros.sensors.calibration import find_frames, judge
    from edgefirst_ros.sources.inputs import list_recordings
    from edgefirst_ros.streams import CAMERA, CAMERA_TYPES

    logged: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
    """Times at which the messages of each topic were recorded, ns."""
    cameras: dict[str, CameraFacts] = {}
    settings = settings or Settings()
    names = (None, *(topic.name for topic in CAMERA.topics))

    def observe(message: Message) -> None:
        topic, schema = message.topic, message.schema
        logged[topic].append(message.log_time)
        if schema in CAMERA_TYPES and find_known_name(topic, schema) in names:
            if topic not in cameras:
                cameras[topic] = CameraFacts(topic, schema, settings.limits)
            cameras[topic].offer(message)

    ((first, *more),) = (given.files for given in list_recordings([path]))
    with show_progress(quiet=quiet) as report:
        walked = walk(first, settings, lambda done, of: report(f"reading {path.name}", done, of), observe, more=more)
    topics = []
    for channel in walked.recording.channels.values():
        log_times = np.frombuffer(logged[channel.topic], np.int64) if channel.topic in logged else np.zeros(0, np.int64)
        length = int(log_times[-1] - log_times[0]) if len(log_times) else 0
        times = walked.times.get(channel.topic)
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
                "hz": round((len(log_times) - 1) * SECOND / length, 3) if length > 0 else 0.0,
                "longest_gap_s": int(np.diff(log_times).max(initial=0)) / SECOND,
                "stamp_minus_log_time_s": clocks,
                "undecodable": walked.unreadable.get(channel.topic, 0),
            }
        )
    facts: dict[str, Any] = {
        "recording": str(path),
        "bytes": walked.recording.size,
        "start": walked.first,
        "duration_s": (walked.last - (walked.first or 0)) / SECOND,
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
        known, companions = found.calibration, found.roles.companions
        named = {key: walked.frame_ids[t] for key, t in companions.items() if t in walked.frame_ids}
        facts |= {
            "reference": found.roles.reference,
            "time_base": {"base": found.base.base, "topics": found.base.replaced},
            "segments": found.segments,
            "calibration": judge(known.camera_info, known.static_transforms, find_frames(companions, named)),
            "labels": known.labels,
            "notes": [*found.roles.notes, *known.notes],
            "unused_topics": found.sequence("").unused,
        }
        if check_time:
            from edgefirst_ros.pipeline import time_check

            with show_progress(quiet=quiet) as report:
                facts["time_check"] = time_check.check_time(found, settings, report).plain()
    return facts


def format_recording(facts: dict[str, Any], *, rigged: bool = False) -> Text:
    """Return the content of a recording, and the results of a conversion, `rigged` or not, for people."""
    from edgefirst_ros.sources.topics import find_namespace

    when = "no messages in CDR" if any(topic["messages"] for topic in facts["topics"]) else "no messages"
    if facts["start"] is not None:
        begin = datetime.fromtimestamp(facts["start"] / SECOND, timezone.utc)
        when = f"{facts['duration_s']:.1f} s from {begin:%Y-%m-%d %H:%M:%S} UTC"
    yield f"{facts['recording']}: {format_size(facts['bytes'])}, {when}"
    for damage in facts["damage"]:
        yield f"{damage['file']}: damage at byte {damage['offset']}: {damage['what']}"
    yield ""
    rows = []
    for topic in facts["topics"]:
        clocks = topic["stamp_minus_log_time_s"]
        told = [
            "-" if key not in clocks else "none" if clocks[key] is None else f"{clocks[key]:+.3f}"
            for key in ("header", "publish")
        ]
        name = topic["topic"] if topic["encoding"] == "cdr" else f"{topic['topic']} ({topic['encoding']})"
        numbers = str(topic["messages"]), f"{topic['hz']:.1f}", f"{topic['longest_gap_s']:.3f}"
        rows.append((name, *numbers, *told, topic["type"]))
    yield ("topic", "messages", "Hz", "longest gap, s", "header - log, s", "publish - log, s", "type"), rows
    yield ""
    for camera in facts["cameras"]:
        size = f"{camera['width']} x {camera['height']}" if camera["width"] else "no camera picture that can be decoded"
        yield f"camera {camera['topic']}: {camera['codec'] or 'unknown codec'}, {size}"
    left = {of["topic"] for of in facts.get("unused_topics", facts["cameras"])}
    types = {of["topic"]: of["type"] for of in facts["topics"]}
    shown = [camera["topic"] for camera in facts["cameras"] if camera["width"]]
    if len({find_namespace(topic, types[topic]) for topic in shown}) > 1 and left & set(shown):
        options = " ".join(f"--reference-topic {shlex.quote(topic)}" for topic in shown)
        yield (
            f"several cameras: convert with {options} for a sequence of each, with one of them, or with a rig for "
            "samples with all of them (edgefirst-ros rig drafts one)"
        )
    if facts.get("labels"):
        labels = join_names(facts["labels"], MOST_LABELS)
        yield f"the model knows {pluralize(len(facts['labels']), 'label')}: {labels}"
    if "reference" in facts:
        yield (
            f"samples would be made of {facts['reference']}; time base {facts['time_base']['base']}, "
            f"{pluralize(facts['segments'], 'segment')}; calibration {facts['calibration']}"
        )
        for topic, what in facts["time_base"]["topics"].items():
            yield f"note: {topic}: {what}"
        yield from (f"note: {note}" for note in facts["notes"])
        yield from (_describe_unused(of, rigged=rigged) for of in facts["unused_topics"])
    else:
        yield f"it cannot be converted as it is: {facts['convertible']}"
    for topic in facts["topics"]:
        if topic["undecodable"]:
            yield f"{topic['topic']}: cannot be decoded: {pluralize(topic['undecodable'], 'message')}"
    if "time_check" in facts:
        yield from format_time_check(facts["time_check"])


def format_time_check(check: dict[str, Any]) -> Text:
    """Return offsets between sensors, drifts of their clocks, and lines for a rig."""
    rows = []
    for pair in check["pairs"]:
        found = pair["seconds"], pair["uncertainty"], pair["confidence"]
        known = ("-",) * 3 if pair["why"] else map(format, found, ("+.3f", ".3f", ".2f"))
        note = f"unknown: {pair['why']}" if pair["why"] else "" if pair["certain"] else "too uncertain for a rig"
        rows.append((f"{pair['first']}, {pair['second']}", pair["motion"], *known, f"{pair['compared']:.1f}", note))
    yield ""
    yield ("sensors", "by", "offset, s", "+-, s", "confidence", "compared, s", "note"), rows
    yield ""
    drifts = [
        (key, *(("-", "-") if of["why"] else (f"{of['ppm']:+.1f}", f"{of['uncertainty']:.1f}")), of["why"])
        for key, of in check["drift"].items()
    ]
    yield ("clock", "drift, ppm", "+-, ppm", "note"), drifts
    for reference, offsets in check["offsets"].items():
        yield ""
        yield f"lines for a rig, if the stamps of {reference} are right (not applied):"
        for key, value in offsets.items():
            yield f"  {key}: {{offset: {value}}}"
