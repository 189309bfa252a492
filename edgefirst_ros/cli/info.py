# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros info`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefirst_ros.cli.instead import explained, is_recording
from edgefirst_ros.cli.options import SET_LIMITS, limits_of
from edgefirst_ros.cli.text import repeated, say, table
from edgefirst_ros.errors import counted

if TYPE_CHECKING:
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.dataset.summary import DatasetSummary
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
    from edgefirst_ros.dataset.objects.places import fetched, locate
    from edgefirst_ros.sources.inputs import is_rosbag2

    limits = limits_of(context, assignments)
    found = []
    for place in locate([path]):
        there = place.in_place  # of a dataset in a bucket directory and tables are enough
        with nullcontext([there]) if there is not None else fetched([place]) as (one,):
            plain = not place.objects or there is None
            if plain and (one.suffix == ".mcap" or is_recording(one) or is_rosbag2(one)):
                facts = recording_facts(one, quiet=as_json)
                found.append(facts) if as_json else print_recording(facts)
            else:
                with explained(one):
                    if as_json:
                        found.append(dataset_facts(one, limits))
                    else:
                        print_dataset(one, limits)
    if as_json:
        say(json.dumps(found[0] if len(found) == 1 else found, indent=1))


# ---- datasets ----------------------------------------------------------------------------------
def dataset_facts(path: Path, limits: Limits | None = None) -> dict[str, Any]:
    """Return sequences, samples by sensor, annotations by label, and the metadata, ready for JSON."""
    dataset, summary = _open(path, limits)
    places = [s.position for s in dataset.samples() if s.position is not None]
    each, whole = summary.sequences, summary.whole
    return {
        "dataset": str(path),
        "samples": whole.samples,
        "sequences": {one.name: one.samples for one in each},
        "start": {one.name: one.start for one in each if one.start is not None},
        "duration_s": {one.name: one.timeline.duration for one in each if one.start is not None},
        "place": _place([(place.latitude, place.longitude) for place in places]),
        "inputs": dict(whole.sensors),
        "repeats": repeats_in(dataset),
        "calibration": {one.name: one.calibration for one in each},
        "groups": dict(whole.groups),
        "labels": dict(whole.labels),
        "by_sequence": summary.plain(),
        "columns": dataset.annotation_columns,
        "metadata": dataset.metadata,
    }


def _open(path: Path, limits: Limits | None = None) -> tuple[Dataset, DatasetSummary]:
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.dataset.summary import summarize_dataset
    from edgefirst_ros.limits import DEFAULT_LIMITS

    dataset = Dataset(path, limits=limits or DEFAULT_LIMITS)
    return dataset, summarize_dataset(dataset)


def _place(places: Sequence[tuple[float, float]]) -> dict[str, list[float]] | None:
    """Return least and greatest latitude and longitude of the samples, degrees; None without positions."""
    if not places:
        return None
    latitudes, longitudes = zip(*places, strict=True)
    return {"latitude": [min(latitudes), max(latitudes)], "longitude": [min(longitudes), max(longitudes)]}


def repeats_in(dataset: Dataset) -> dict[str, int]:
    """Return how many members repeat the message of the sample before, and their bytes."""
    sizes = [dataset.container.size(s.member(kind)) for s in dataset.samples() for kind in s.repeats]
    return {"members": len(sizes), "bytes": sum(sizes)}


def print_dataset(path: Path, limits: Limits | None = None) -> None:
    """Print sequences, messages, sensors, groups and labels of a dataset: by sequence, then in sum."""
    dataset, summary = _open(path, limits)
    whole = summary.whole
    say(f"{path}: {counted(whole.samples, 'sample')} in {counted(len(summary.sequences), 'sequence')}")
    say("")
    table(*summary.sequence_table())
    places = [s.position for s in dataset.samples() if s.position is not None]
    if (place := _place([(one.latitude, one.longitude) for one in places])) is not None:
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
