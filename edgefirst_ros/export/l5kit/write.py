# SPDX-License-Identifier: Apache-2.0
"""Writes a dataset as L5Kit has it: scenes.zarr, and meta.json with the place of its world on the earth.

Source: L5Kit 1.5.0, l5kit/data/zarr_dataset.py and labels.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.names import find_host
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.errors import UsageError
from edgefirst_ros.export.drive import (
    Boxes,
    Drive,
    count_values,
    describe_sources,
    list_drives,
    read_boxes,
    select_posed,
)
from edgefirst_ros.export.l5kit.zarr2 import Records, Writer, write_group
from edgefirst_ros.export.output import NO_HOME, LossReport
from edgefirst_ros.sensors.transforms import Floats

PREFIX = "PERCEPTION_LABEL_"
LABELS = (
    *(
        PREFIX + name
        for name in (
            "NOT_SET", "UNKNOWN", "DONTCARE", "CAR", "VAN", "TRAM", "BUS", "TRUCK", "EMERGENCY_VEHICLE",
            "OTHER_VEHICLE", "BICYCLE", "MOTORCYCLE", "CYCLIST", "MOTORCYCLIST", "PEDESTRIAN", "ANIMAL",
        )
    ),
    "AVRESEARCH_LABEL_DONTCARE",
)  # fmt: skip
"""In the order of `label_probabilities`."""
FORMAT_VERSION = 2
STORE, PLACE = "scenes.zarr", "meta.json"
"""The arrays, and the place of the world on the earth."""
SCENE = np.dtype([("frame_index_interval", "<i8", (2,)), ("host", "<U16"), ("start_time", "<i8"), ("end_time", "<i8")])
FRAME = np.dtype(
    [
        ("timestamp", "<i8"),
        ("agent_index_interval", "<i8", (2,)),
        ("traffic_light_faces_index_interval", "<i8", (2,)),
        ("ego_translation", "<f8", (3,)),
        ("ego_rotation", "<f8", (3, 3)),
    ]
)
AGENT = np.dtype(
    [
        ("centroid", "<f8", (2,)),
        ("extent", "<f4", (3,)),
        ("yaw", "<f4"),
        ("velocity", "<f4", (2,)),
        ("track_id", "<u8"),
        ("label_probabilities", "<f4", (len(LABELS),)),
    ]
)
LIGHT = np.dtype([("face_id", "<U16"), ("traffic_light_id", "<U16"), ("traffic_light_face_status", "<f4", (3,))])
ARRAYS = {
    "scenes": (SCENE, 10_000),
    "frames": (FRAME, 10_000),
    "agents": (AGENT, 20_000),
    "traffic_light_faces": (LIGHT, 10_000),
}
"""Type of a record, and records of a chunk, by array."""

UNKNOWN = LABELS.index(PREFIX + "UNKNOWN")
NOTHING = frozenset((*range(3), len(LABELS) - 1))
"""Labels that do not show the kind of an object."""

USUAL = {
    "person": "PEDESTRIAN", "people": "PEDESTRIAN", "human": "PEDESTRIAN",
    "vehicle": "OTHER_VEHICLE", "tractor": "OTHER_VEHICLE", "trailer": "OTHER_VEHICLE",
    "construction vehicle": "OTHER_VEHICLE", "train": "TRAM", "lorry": "TRUCK", "pickup": "TRUCK",
    "ambulance": "EMERGENCY_VEHICLE",
    "bike": "BICYCLE", "motorbike": "MOTORCYCLE", "rider": "CYCLIST", "biker": "MOTORCYCLIST",
    **dict.fromkeys(
        ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "deer"), "ANIMAL"
    ),
}  # fmt: skip
"""Classes by labels that are not their names."""
LONGEST_GAP = 1.0
"""s between two sightings; over longer gaps no velocity is estimated."""


def map_labels(labels: Mapping[str, str]) -> dict[str, int]:
    """Return the number of the class by label in lower case: classes' own names, usual labels, `labels` over them.

    A class is named with or without its prefix. Raises UsageError for one that L5Kit does not have.
    """
    names = {label.removeprefix(PREFIX): number for number, label in enumerate(LABELS)}
    found = {name.lower().replace("_", sign): number for name, number in names.items() for sign in "_ -"}
    found |= {label: names[name] for label, name in USUAL.items()}
    for label, name in labels.items():
        short = name.upper().removeprefix(PREFIX)
        if short not in names:
            raise UsageError(
                f"label map (--label-map): {name!r} for {label!r} is not a class of L5Kit; known: {', '.join(names)}"
            )
        found[label.casefold()] = names[short]
    return found


def name_of(number: int) -> str:
    """Return the label of a class, such as emergency_vehicle."""
    return LABELS[number].removeprefix(PREFIX).lower()


@dataclass
class _Export:
    world: Floats | None
    """(4, 4) to ECEF: ENU at the first place of the first sequence, for all of them; None if sequences have poses."""
    classes: Mapping[str, int]
    """Number of the class by label in lower case."""
    writers: dict[str, Writer]
    tally: Counter[str] = field(default_factory=Counter)
    """Scenes, samples without a pose, boxes that are not finite, agents that were not seen twice."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Labels without a class."""


def export(
    dataset: Dataset, out: Path, report: LossReport, progress: Progress, labels: Mapping[str, str] | None = None
) -> None:
    """Write a dataset into the empty folder `out`; `labels`: classes of L5Kit by label, over the usual ones.

    Raises DatasetError without stamps or poses, UsageError for a class that L5Kit does not have, StorageError.
    """
    classes = map_labels(labels or {})
    found = select_posed(list_drives(dataset), report)
    write_group(out / STORE, {"format_version": FORMAT_VERSION, "labels": list(LABELS)})
    writers = {name: Writer(out / STORE / name, *form) for name, form in ARRAYS.items()}
    world = None if any(drive.has_poses for drive in found) else found[0].world_to_ecef
    made = _Export(world, classes, writers)
    every = read_boxes([(drive, np.flatnonzero(drive.located)) for drive in found])
    for drive, boxes in zip(found, every, strict=True):
        progress("scenes", made.tally["scenes"], len(found))
        _write_scene(made, drive, boxes)
    for writer in writers.values():
        writer.close()
    place: dict[str, Any] = {drive.name: drive.place_of_world for drive in found}
    if made.world is not None:
        place = {"world_to_ecef": made.world.tolist()}
    (out / PLACE).write_text(json.dumps(place) + "\n", encoding="utf-8")
    _report_losses(report, dataset, made, describe_sources(found))
    progress("scenes", len(found), len(found))


def _write_scene(made: _Export, drive: Drive, boxes: Boxes) -> None:
    kept = np.flatnonzero(drive.located)
    made.tally["unplaced"] += len(drive) - len(kept)
    stamps, rig = drive.stamps[kept], drive.rig_to_world[kept] if made.world is None else drive.rig_in(made.world)[kept]
    made.tally["broken"] += boxes.broken
    scene, frames = np.zeros(1, SCENE), np.zeros(len(kept), FRAME)
    frames["timestamp"] = stamps
    bounds = made.writers["agents"].length + np.searchsorted(boxes.frame, np.arange(len(kept) + 1))
    frames["agent_index_interval"] = np.stack([bounds[:-1], bounds[1:]], -1)
    frames["ego_translation"], frames["ego_rotation"] = rig[:, :3, 3], rig[:, :3, :3]
    first = made.writers["frames"].length
    scene["frame_index_interval"] = first, first + len(kept)
    scene["host"], scene["start_time"], scene["end_time"] = find_host(drive.name)[:16], stamps[0], stamps[-1]
    for agents in _make_agents(boxes, rig, stamps, made):
        made.writers["agents"].append(agents)
    made.writers["frames"].append(frames)
    made.writers["scenes"].append(scene)
    made.tally["scenes"] += 1


# ---- agents --------------------------------------------------------------------------------------
def _make_agents(boxes: Boxes, rig: Floats, stamps: NDArray[np.int64], made: _Export) -> Iterator[Records]:
    """Yield the agents of a scene, a chunk at a time; `rig`: (F, 4, 4) to the world, `stamps`: (F,) ns, by frame."""
    axes, times = rig[boxes.frame], stamps[boxes.frame]
    places = np.einsum("nij,nj->ni", axes[:, :2, :3], boxes.box[:, :3]) + axes[:, :2, 3]
    known: dict[str, int] = {}
    tracks = np.array([known.setdefault(name, len(known) + 1) for name in boxes.tracks], np.uint64)
    velocity, still = _estimate_velocity(tracks, times, places)
    made.tally["still"] += still
    for start in range(0, len(tracks), ARRAYS["agents"][1]):
        part = slice(start, start + ARRAYS["agents"][1])
        agents: Records = np.zeros(len(tracks[part]), AGENT)
        agents["centroid"] = places[part]
        agents["extent"] = boxes.box[part, 3:]  # along the heading, across it, upwards
        agents["yaw"] = np.arctan2(axes[part, 1, 0], axes[part, 0, 0])
        agents["velocity"], agents["track_id"] = velocity[part], tracks[part]
        agents["label_probabilities"] = _weigh_classes(boxes.labels[part], boxes.score[part], made)
        yield agents


def _estimate_velocity(
    tracks: NDArray[np.uint64], times: NDArray[np.int64], places: Floats
) -> tuple[NDArray[np.float32], int]:
    """Return (M, 2) m/s in the world, and the number of agents without any.

    From the sighting before to the one after, at an end of the track from or to the agent itself.
    """
    order = np.lexsort((times, tracks))
    found = np.zeros((len(tracks), 2), np.float32)
    track, time, place = tracks[order], times[order], places[order]
    linked = (track[1:] == track[:-1]) & (np.diff(time) <= LONGEST_GAP * 1e9)
    here = np.arange(len(track))
    before = here - np.concatenate([[False], linked])
    after = here + np.concatenate([linked, [False]])
    seconds = (time[after] - time[before]) / 1e9
    moved = place[after] - place[before]
    found[order] = np.divide(moved, seconds[:, None], out=np.zeros_like(moved), where=seconds[:, None] > 0)
    return found, int((seconds == 0).sum())


def _weigh_classes(labels: list[str | None], score: NDArray[np.float32], made: _Export) -> NDArray[np.float32]:
    """Return (M, 17): the score at the label's class, the rest at UNKNOWN."""
    found = np.zeros((len(labels), len(LABELS)), np.float32)
    numbers = np.array([made.classes.get((label or "").casefold(), UNKNOWN) for label in labels], int)
    made.unknown.update(label or "" for label, n in zip(labels, numbers, strict=True) if n == UNKNOWN)
    found[:, UNKNOWN] = 1 - score
    found[np.arange(len(labels)), numbers] = np.where(numbers == UNKNOWN, 1, score)
    return found


# ---- losses --------------------------------------------------------------------------------------
def _report_losses(report: LossReport, dataset: Dataset, made: _Export, source: str) -> None:
    """Fill the loss report. Columns without values are not in the dataset, and not in the report."""
    agents, values = made.writers["agents"].length, count_values(dataset)
    report.add("sequences", "scenes", "name but 16 characters of the host", made.tally["scenes"])
    report.add("samples", "frames.timestamp", "number", made.writers["frames"].length)
    report.count("samples without a pose", "", "dropped", made.tally["unplaced"])
    report.add(f"poses ({source})", f"frames.ego_translation, ego_rotation; {PLACE}")
    homes = dict.fromkeys(("name", "frame", "timestamp", "location", "pose"), ("frames, scenes", ""))
    if "box3d" in dataset.annotation_columns:
        others = "of rows without box3d" if values["name"] > values["box3d"] else ""
        broken = f"; {made.tally['broken']} that are not finite" if made.tally["broken"] else ""
        dropped = values["box3d"] - made.tally["broken"] - agents
        broken += f"; {dropped} of samples that are dropped" if dropped else ""
        homes["box3d"] = "agents.centroid, extent, yaw", f"height above ground, roll and pitch{broken}"
        homes["object_id"] = "agents.track_id", "the id: tracks are numbered"
        homes["label"] = "agents.label_probabilities", "; ".join(filter(None, (others, _list_unknown(made.unknown))))
        homes["box3d_score"] = "agents.label_probabilities", "of those that are UNKNOWN" if made.unknown else ""
        still = f"0 of {made.tally['still']} agents that were seen once" if made.tally["still"] else ""
        report.add("(estimated)", "agents.velocity", still, agents)
    for name, number in values.items():
        report.add(name, *homes.get(name, ("", NO_HOME)), number)
    kinds = Counter(kind for sample in dataset.samples() for kind in dataset.members(sample.key))
    for kind, number in sorted(kinds.items()):
        report.add(kind, "", NO_HOME, number)
    for key, what in (("camera_info", "camera intrinsics"), ("static_transforms", "places of the sensors")):
        if any(getattr(dataset.calibration(sequence), key) for sequence in dataset.sequences):
            report.add(what, "", NO_HOME)
    report.add("stamps of the sensors, keyframes, counts", "", NO_HOME)


def _list_unknown(unknown: Counter[str]) -> str:
    if not unknown:
        return ""
    listed = ", ".join(f"{label or '(none)'} ({number})" for label, number in unknown.most_common(8))
    return f"without a class, so UNKNOWN: {listed}"
