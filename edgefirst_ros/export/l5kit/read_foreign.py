# SPDX-License-Identifier: Apache-2.0
"""Reads agents of L5Kit as annotations: boxes in space, without any sensor's data.

An agent has no height above the ground, so its box is on the ground plane of the vehicle. An agent that is turned
against the vehicle by more than 10 degrees becomes the hull around it: box3d cannot be turned.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.names import make_safe
from edgefirst_ros.dataset.tables.rowlog import ANNOTATION_ROWS, RowRules, Rows
from edgefirst_ros.dataset.tables.write import seal_annotations
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.importing import refuse_links
from edgefirst_ros.export.l5kit.write import AGENT, FRAME, LABELS, NOTHING, SCENE, STORE, name_of
from edgefirst_ros.export.l5kit.zarr2 import RecordArray, Records
from edgefirst_ros.export.output import NO_HOME, LossReport
from edgefirst_ros.limits import Budget, Limits
from edgefirst_ros.sensors.transforms import BASE, HULL, Floats, invert_poses, make_pose

Row = dict[str, object]
MOST = {"frames": 1 << 20, "agents": 1 << 16}
"""Frames of a scene (9 h at 30 Hz) and agents of a frame that are read; more are rejected."""
ROW = 1 << 10
"""Bytes that a frame or an agent counts for: twice its memory while it becomes a row, to limit the time as well."""


@dataclass
class _Read:
    arrays: Mapping[str, RecordArray]
    budget: Budget
    tally: Counter[str] = field(default_factory=Counter)
    ends: dict[str, int] = field(default_factory=dict)
    """{array: end of its last interval}."""
    names: set[str] = field(default_factory=set)


def restore(source: Path, out: Path, limits: Limits, report: LossReport, progress: Progress) -> None:
    """Write the annotations in `source` to NAME.arrow in the folder `out`, boxes in m in the axes of base_link.

    `source`: NAME.zarr, or a folder with scenes.zarr. Raises DatasetError where it is not what L5Kit writes, UsageError
    where a library that unpacks it is missing.
    """
    store = source if (source / ".zgroup").is_file() else source / STORE
    if not (store / ".zgroup").is_file():
        raise DatasetError(f"{source}: is not a folder with {STORE}, nor such a store itself")
    budget = Budget.of_import(store, refuse_links(store.resolve() if store == source else store), limits)
    kinds = {"scenes": SCENE, "frames": FRAME, "agents": AGENT}
    read = _Read({name: _open(store / name, kind) for name, kind in kinds.items()}, budget)
    scenes = read.arrays["scenes"]
    name = make_safe(source.resolve().name.removesuffix(".zarr"))
    rules, found = RowRules(ANNOTATION_ROWS), Rows(ANNOTATION_ROWS, out)
    budget.spend(unpacked=len(scenes) * ROW)
    for number, scene in enumerate(scenes.each()):
        progress("scenes", number, len(scenes))
        for row in _make_rows(scene, read, number):
            rules.check(row)
            found.append(row)
    seal_annotations(found.batches, out / f"{name}.arrow", stated={"box3d_frame": BASE})
    _report_losses(report, read)


def _open(path: Path, kind: np.dtype[np.void]) -> RecordArray:
    reader = RecordArray(path)
    if reader.dtype != kind:
        raise DatasetError(f"{path}: has records of {reader.dtype}, must have {kind}")
    return reader


def _make_rows(scene: np.void, read: _Read, number: int) -> Iterator[Row]:
    start = datetime.fromtimestamp(int(scene["start_time"]) // 10**9, timezone.utc)  # int64: years 1677 to 2262
    name = make_safe(f"{str(scene['host']) or 'l5kit'}_{start:%Y_%m_%d_%H_%M_%S}")
    name = name if name not in read.names else f"{name}_{number}"
    read.names.add(name)
    frames = _read_interval(read, "frames", scene["frame_index_interval"])
    if len(frames) > 1 and (np.diff(frames["timestamp"]) <= 0).any():
        raise DatasetError(f"{read.arrays['frames'].path}: the frames of {name!r} do not follow each other in time")
    poses = make_pose(frames["ego_rotation"], frames["ego_translation"])
    for n, (frame, rig) in enumerate(zip(frames, poses, strict=True)):
        common: Row = {"name": name, "frame": n, "timestamp": int(frame["timestamp"])}
        agents = _read_interval(read, "agents", frame["agent_index_interval"])
        boxes = _convert_boxes(agents, rig)
        sound = np.isfinite(boxes).all(1)
        read.tally.update({"broken": int((~sound).sum()), "rows": int(sound.sum())})
        if not sound.any():
            yield common
        for agent, box in zip(agents[sound], boxes[sound], strict=True):
            yield common | {"box3d": box.tolist()} | _describe(name, agent)


def _read_interval(read: _Read, name: str, interval: Iterable[int]) -> Records:
    """Return the records of a scene or frame. Each belongs to one only, so that no more are written than exist."""
    (start, stop), end = map(int, interval), read.ends.get(name, 0)
    if stop > start:
        if start < end or stop - start > MOST[name]:
            raise DatasetError(
                f"{read.arrays[name].path}: {start} to {stop} were requested in one; they must begin at {end} or "
                f"later, and be up to {MOST[name]}"
            )
        read.ends[name] = stop
        read.budget.spend(unpacked=(stop - start) * ROW)
    return read.arrays[name].read(start, stop)


def _convert_boxes(agents: Records, rig: Floats) -> Floats:
    """Return (M, 6) box3d of the agents of a frame; `rig` (4, 4): vehicle to world, m."""
    length, width, height = agents["extent"].astype(float).T
    up, back = rig[:3, 2], invert_poses(rig)
    with np.errstate(all="ignore"):  # values that are not finite are counted later
        centres = np.zeros((len(agents), 3))
        centres[:, :2] = agents["centroid"]
        centres[:, 2] = rig[2, 3] + (height / 2 - (centres[:, :2] - rig[:2, 3]) @ up[:2]) / up[2]
        turned = agents["yaw"].astype(float) - np.arctan2(rig[1, 0], rig[0, 0])
        along, across = np.abs(np.cos(turned)), np.abs(np.sin(turned))
        parallel = np.maximum(along, across) >= HULL
        along, across = (np.where(parallel, np.rint(share), share) for share in (along, across))
        around = length * along + width * across, length * across + width * along, height
        return np.column_stack([centres @ back[:3, :3].T + back[:3, 3], *around])


def _describe(scene: str, agent: np.void) -> Row:
    shares = agent["label_probabilities"]
    best = max((n for n in range(len(LABELS)) if n not in NOTHING), key=lambda n: float(shares[n]))
    row: Row = {"object_id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{scene}/{int(agent['track_id'])}"))}
    if shares[best] > 0:
        row |= {"label": name_of(best), "box3d_score": min(float(shares[best]), 1.0)}
    return row


def _report_losses(report: LossReport, read: _Read) -> None:
    report.add("scenes", "name", "named after host and start", len(read.arrays["scenes"]))
    report.add("frames.timestamp", "frame, timestamp", "frames are counted", len(read.arrays["frames"]))
    report.add("frames.ego_translation, ego_rotation", "", "has no place without samples")
    lost = "boxes are on the vehicle's ground plane; those turned by over 10 degrees become the hull around them"
    report.add("agents.centroid, extent, yaw", "box3d", lost, read.tally["rows"])
    report.count("agents that are not finite", "", "dropped", read.tally["broken"])
    report.add("agents.velocity", "", NO_HOME)
    report.add("agents.track_id", "object_id", "made of scene and track")
    report.add("agents.label_probabilities", "label, box3d_score", "all but the most probable class")
    report.add("traffic_light_faces", "", NO_HOME)
