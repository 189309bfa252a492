# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros info`."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefirst_ros.cli.instead import explained, is_recording
from edgefirst_ros.cli.options import SET_LIMITS, limits_of
from edgefirst_ros.cli.progress import progress
from edgefirst_ros.cli.text import counted, say, table
from edgefirst_ros.errors import EdgeFirstError

if TYPE_CHECKING:
    import polars as pl

    from edgefirst_ros.config import Limits
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.messages import Message

SECOND = 1_000_000_000


def info(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", readable=False, help="REC.mcap, or OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow."),
    ],
    assignments: Annotated[list[str] | None, SET_LIMITS] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say what is in a recording or a dataset.

    Of a recording: topics with rates, gaps and clocks, damage, and what samples would be made of. Of a dataset: samples
    by sequence, sensor and group, annotations by label.

    Exit codes: 0 read, 1 it cannot be read, 2 wrong usage.
    """
    limits = limits_of(context, assignments)
    if path.suffix == ".mcap" or is_recording(path):
        facts = recording_facts(path, quiet=as_json)
        say(json.dumps(facts, indent=1)) if as_json else _print_recording(facts)
    else:
        with explained(path):
            facts = dataset_facts(path, limits)
        say(json.dumps(facts, indent=1)) if as_json else _print_dataset(facts)


# ---- recordings --------------------------------------------------------------------------------
@dataclass(slots=True)
class _Rate:
    """When the messages of a topic came."""

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
    """Topics with type, number, rate and longest gap, the clocks, and what is damaged."""
    from edgefirst_ros.config import Settings
    from edgefirst_ros.pipeline.first_pass import walk
    from edgefirst_ros.sensors.calibration import frames_of, judge

    rates: dict[str, _Rate] = {}

    def observe(message: Message) -> None:
        rates.setdefault(message.topic, _Rate()).note(message.log_time)

    settings = Settings()
    with progress(quiet=quiet) as report:
        walked = walk(path, settings, lambda done, of: report(f"reading {path.name}", done, of), observe)
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
        "damage": [{"offset": d.offset, "what": d.what, "loss": d.loss} for d in walked.recording.damage],
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
            "notes": [*found.roles.notes, *found.calibration.notes],
        }
    return facts


def _print_recording(facts: dict[str, Any]) -> None:
    when = "no messages in CDR" if any(topic["messages"] for topic in facts["topics"]) else "no messages"
    if facts["start"] is not None:
        begin = datetime.fromtimestamp(facts["start"] / SECOND, UTC)
        when = f"{facts['duration_s']:.1f} s from {begin:%Y-%m-%d %H:%M:%S} UTC"
    say(f"{facts['recording']}: {facts['bytes'] / 1e6:.1f} MB, {when}")
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
    for damage in facts["damage"]:
        say(f"damage at byte {damage['offset']}: {damage['what']}")
    for topic in facts["topics"]:
        if topic["undecodable"]:
            say(f"{topic['topic']}: {topic['undecodable']} messages cannot be decoded")


# ---- datasets ----------------------------------------------------------------------------------
def dataset_facts(path: Path, limits: Limits | None = None) -> dict[str, Any]:
    """Sequences, samples by sensor, annotations by label, and the metadata."""
    from edgefirst_ros.config import DEFAULT_LIMITS
    from edgefirst_ros.dataset import Dataset

    dataset = Dataset(path, limits=limits or DEFAULT_LIMITS)
    inputs: Counter[str] = Counter()
    samples: Counter[str] = Counter()
    for sample in dataset.samples():
        samples[sample.name] += 1
        inputs.update(sample.inputs)
    rows = dataset.annotations
    labels: dict[str, int] = {}
    if rows.height:
        labels = dict(sorted(rows["label"].drop_nulls().cast(str).value_counts().iter_rows()))
    return {
        "dataset": str(path),
        "samples": sum(samples.values()),
        "sequences": dict(sorted(samples.items())),
        "inputs": dict(sorted(inputs.items())),
        "repeats": repeats_in(dataset),
        "calibration": {sequence: dataset.calibration(sequence).calibration for sequence in sorted(samples)},
        "groups": samples_by_group(rows),
        "labels": labels,
        "columns": dataset.annotation_columns,
        "metadata": dataset.metadata,
    }


def samples_by_group(rows: pl.DataFrame) -> dict[str, int]:
    """Number of samples by group, of the rows of annotations; samples without a group are not counted."""
    if "group" not in rows.columns:
        return {}
    grouped = rows.select("name", "frame", "group").drop_nulls("group").unique()
    return dict(sorted(grouped["group"].cast(str).value_counts().iter_rows()))


def repeats_in(dataset: Dataset) -> dict[str, int]:
    """Number of members that repeat a message of the sample before, and their bytes."""
    sizes = [dataset.container.size(s.member(kind)) for s in dataset.samples() for kind in s.repeats]
    return {"members": len(sizes), "bytes": sum(sizes)}


def repeated(repeats: dict[str, int]) -> str:
    """Say how many members repeat a message of the sample before, and how many bytes that is."""
    return f"{counted(repeats['members'], 'member')} repeat the sample before: {repeats['bytes'] / 1e6:.1f} MB"


def print_dataset(path: Path) -> None:
    """Say what is in a dataset."""
    _print_dataset(dataset_facts(path))


def _print_dataset(facts: dict[str, Any]) -> None:
    say(f"{facts['dataset']}: {counted(facts['samples'], 'sample')} in {counted(len(facts['sequences']), 'sequence')}")
    say("")
    rows = [(name, str(n), facts["calibration"][name]) for name, n in facts["sequences"].items()]
    table(("sequence", "samples", "calibration"), rows)
    say("")
    table(("sensor", "samples"), [(name, str(n)) for name, n in facts["inputs"].items()])
    if facts["repeats"]["members"]:
        say("")
        say(repeated(facts["repeats"]))
    for what, number in (("group", "samples"), ("label", "annotations")):
        if facts[f"{what}s"]:
            say("")
            table((what, number), [(name, str(n)) for name, n in facts[f"{what}s"].items()])
    say("")
    say(f"annotation columns: {', '.join(facts['columns'])}")
