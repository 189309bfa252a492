# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros info`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefirst_ros.cli.instead import explained, is_recording
from edgefirst_ros.cli.options import SET_LIMITS, limits_of
from edgefirst_ros.cli.text import repeated, say, table
from edgefirst_ros.errors import counted

if TYPE_CHECKING:
    import polars as pl

    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.limits import Limits

SECOND = 1_000_000_000


def info(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            readable=False,
            help="REC.mcap, a rosbag2 folder, or OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow.",
        ),
    ],
    assignments: Annotated[list[str] | None, SET_LIMITS] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show what is in a recording or a dataset.

    Of a recording: topics with rates, gaps and clocks, damage, and what a conversion would give: cameras with codec
    and picture size, labels of the model, calibration. Of a dataset: samples by sequence, sensor and group, length and
    place, annotations by label.

    Exit codes: 0 read, 1 cannot be read, 2 wrong usage.
    """
    from edgefirst_ros.cli.info_recording import print_recording, recording_facts
    from edgefirst_ros.sources.inputs import is_rosbag2

    limits = limits_of(context, assignments)
    if path.suffix == ".mcap" or is_recording(path) or is_rosbag2(path):
        facts = recording_facts(path, quiet=as_json)
        say(json.dumps(facts, indent=1)) if as_json else print_recording(facts)
    else:
        with explained(path):
            facts = dataset_facts(path, limits)
        say(json.dumps(facts, indent=1)) if as_json else _print_dataset(facts)


# ---- datasets ----------------------------------------------------------------------------------
def dataset_facts(path: Path, limits: Limits | None = None) -> dict[str, Any]:
    """Return sequences, samples by sensor, annotations by label, and the metadata, ready for JSON."""
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.limits import DEFAULT_LIMITS

    dataset = Dataset(path, limits=limits or DEFAULT_LIMITS)
    inputs: Counter[str] = Counter()
    samples: Counter[str] = Counter()
    stamps: dict[str, list[int]] = {}
    places: list[tuple[float, float]] = []
    for sample in dataset.samples():
        samples[sample.name] += 1
        inputs.update(sample.inputs)
        if sample.timestamp is not None:
            stamps.setdefault(sample.name, []).append(sample.timestamp)
        if sample.position is not None:
            places.append((sample.position.latitude, sample.position.longitude))
    rows = dataset.annotations
    labels: dict[str, int] = {}
    if rows.height:
        labels = dict(sorted(rows["label"].drop_nulls().cast(str).value_counts().iter_rows()))
    return {
        "dataset": str(path),
        "samples": sum(samples.values()),
        "sequences": dict(sorted(samples.items())),
        "start": {name: min(stamps[name]) for name in sorted(stamps)},
        "duration_s": {name: (max(stamps[name]) - min(stamps[name])) / SECOND for name in sorted(stamps)},
        "place": _place(places),
        "inputs": dict(sorted(inputs.items())),
        "repeats": repeats_in(dataset),
        "calibration": {sequence: dataset.calibration(sequence).calibration for sequence in sorted(samples)},
        "groups": samples_by_group(rows),
        "labels": labels,
        "columns": dataset.annotation_columns,
        "metadata": dataset.metadata,
    }


def _place(places: Sequence[tuple[float, float]]) -> dict[str, list[float]] | None:
    """Return least and greatest latitude and longitude of the samples, degrees; None without positions."""
    if not places:
        return None
    latitudes, longitudes = zip(*places, strict=True)
    return {"latitude": [min(latitudes), max(latitudes)], "longitude": [min(longitudes), max(longitudes)]}


def samples_by_group(rows: pl.DataFrame) -> dict[str, int]:
    """Return the number of samples of each group, from the annotation rows; samples without a group are not counted."""
    grouped = rows.select("name", "frame", "group").drop_nulls("group").unique()
    return dict(sorted(grouped["group"].cast(str).value_counts().iter_rows()))


def repeats_in(dataset: Dataset) -> dict[str, int]:
    """Return how many members repeat the message of the sample before, and their bytes."""
    sizes = [dataset.container.size(s.member(kind)) for s in dataset.samples() for kind in s.repeats]
    return {"members": len(sizes), "bytes": sum(sizes)}


def print_dataset(path: Path) -> None:
    """Say what is in a dataset."""
    _print_dataset(dataset_facts(path))


def _print_dataset(facts: dict[str, Any]) -> None:
    say(f"{facts['dataset']}: {counted(facts['samples'], 'sample')} in {counted(len(facts['sequences']), 'sequence')}")
    say("")
    rows = []
    for name, number in facts["sequences"].items():
        begin, length = facts["start"].get(name), facts["duration_s"].get(name)
        when = "-" if begin is None else f"{datetime.fromtimestamp(begin // SECOND, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        rows.append((name, str(number), when, "-" if length is None else f"{length:.1f}", facts["calibration"][name]))
    table(("sequence", "samples", "from", "s", "calibration"), rows)
    if facts["place"] is not None:
        (south, north), (west, east) = facts["place"]["latitude"], facts["place"]["longitude"]
        say(f"place: latitude {south:.5f} to {north:.5f}, longitude {west:.5f} to {east:.5f}")
    say("")
    table(("sensor", "samples"), [(name, str(n)) for name, n in facts["inputs"].items()])
    repeats = facts["repeats"]
    if repeats["members"]:
        say("")
        say(repeated(repeats["members"], repeats["bytes"]))
    for what, number in (("group", "samples"), ("label", "annotations")):
        if facts[f"{what}s"]:
            say("")
            table((what, number), [(name, str(n)) for name, n in facts[f"{what}s"].items()])
    say("")
    say(f"annotation columns: {', '.join(facts['columns'])}")
