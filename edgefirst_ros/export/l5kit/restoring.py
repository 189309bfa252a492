# SPDX-License-Identifier: Apache-2.0
"""Agents of L5Kit as annotations: boxes in space, without any sensor's data.

An agent has no height above the ground, so its box stands on the ground plane of the vehicle; and it may be turned,
which box3d cannot be, so its box is the one around it. Boxes that were exported from a dataset come back as they were,
as far as the objects stand on that plane.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from edgefirst_ros.dataset.names import MAX_FRAME, safe_name
from edgefirst_ros.dataset.storage.budget import Budget
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.rowlog import ANNOTATION_ROWS, RowRules, Rows
from edgefirst_ros.dataset.tables.seal import seal_annotations
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.drive import OPTICAL
from edgefirst_ros.export.geodesy import Floats, between, inverse, pose
from edgefirst_ros.export.l5kit.form import AGENT, FRAME, SCENE, SIDE, STORE, TRACKS
from edgefirst_ros.export.l5kit.labels import LABELS, NOTHING, name_of
from edgefirst_ros.export.l5kit.zarr2 import Reader, Records
from edgefirst_ros.export.limits import clean_text, read_json
from edgefirst_ros.export.links import refuse_links
from edgefirst_ros.export.report import Report
from edgefirst_ros.limits import Limits
from edgefirst_ros.progress import Progress

Row = dict[str, object]
MOST = {"frames": 1 << 20, "agents": 1 << 16}
"""Frames of a scene (9 h at 30 Hz) and agents of a frame that are read; more are refused."""
ROW = 1 << 10
"""Bytes that a frame or an agent counts for: twice what it takes while it becomes a row, for the time that takes."""
MOST_TRACKS = 1 << 22
"""Rows of the table of tracks."""


@dataclass
class _Scene:
    """Facts of a scene that the rows of its agents need."""

    name: str
    frames: list[int] | None
    """Numbers of its frames; None: they are counted."""
    axes: Floats
    """(4, 4) those of the boxes to the vehicle."""
    measured: list[int] | None
    """Stamp of the boxes of each frame, ns; None: that of the frame."""
    tracks: Mapping[int, tuple[str | None, str | None, int]]
    """object_id, label and class by track_id."""


@dataclass
class _AgentsRead:
    budget: Budget
    rows: int = 0
    broken: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    """{array: end of its last interval}."""


def restore(source: Path, out: Path, limits: Limits, report: Report, progress: Progress) -> None:
    """Write the annotations in `source` (NAME.zarr, or a folder with scenes.zarr) to NAME.arrow in the folder `out`.

    Boxes are in metres in optical axes (x right, y down, z forward) of the sensor they came from, else of base_link.
    Raises DatasetError where `source` is not what L5Kit writes, UsageError where a library is missing that unpacks it.
    """
    store = source if (source / ".zgroup").is_file() else source / STORE
    if not (store / ".zgroup").is_file():
        raise DatasetError(f"{source}: is not a folder with {STORE}, nor such a store itself")
    budget = Budget.of_import(store, refuse_links(store.resolve() if store == source else store), limits)
    arrays = {name: _opened(store / name, kind) for name, kind in (("scenes", SCENE), ("frames", FRAME))}
    arrays["agents"] = _opened(store / "agents", AGENT)
    side = _side(store, len(arrays["scenes"]), limits)
    name = safe_name(str(side.get("dataset") or source.resolve().name.removesuffix(".zarr")))
    rules, found = RowRules(ANNOTATION_ROWS), Rows(ANNOTATION_ROWS, out)
    tally = _AgentsRead(budget)
    budget.take(unpacked=len(arrays["scenes"]) * ROW)
    scenes = zip(_scenes(arrays["scenes"], side), arrays["scenes"].each(), strict=True)
    for number, (scene, record) in enumerate(scenes):
        progress("scenes", number, len(arrays["scenes"]))
        for row in _rows(scene, record, arrays, tally, scored=bool(side.get("scored", True))):
            rules.check(row)
            found.append(row)
    seal_annotations(found.batches, out / f"{name}.arrow")
    _report(report, arrays, tally, known=bool(side))


def _opened(path: Path, kind: np.dtype[np.void]) -> Reader:
    reader = Reader(path)
    if reader.dtype != kind:
        raise DatasetError(f"{path}: has records of {reader.dtype}, must have {kind}")
    return reader


def _side(store: Path, scenes: int, limits: Limits) -> dict[str, Any]:
    """Return the side data that an export left beside the store; empty for a foreign store."""
    path = store.parent / SIDE
    if store.name != STORE or not path.is_file():
        return {}
    refuse_links(path)
    side = read_json(path)
    try:
        found = len(side["scenes"])
        for scene in side["scenes"]:
            whole = [*scene["frames"], *scene.get("measured", ())]
            axes = np.array(scene.get("axes", np.eye(4)), float)
            if axes.shape != (4, 4) or not all(type(n) is int and 0 <= n < 1 << 63 for n in whole):
                raise ValueError(f"frames, times or axes of {scene['name']!r}")
            if not all(n <= MAX_FRAME for n in scene["frames"]):
                raise ValueError(f"numbers of frames of {scene['name']!r}")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DatasetError(f"{path}: is not what an export leaves there: {error!r}") from error
    if found != scenes:
        raise DatasetError(f"{path}: lists {found} scenes, {store} has {scenes}; remove it if it belongs to another")
    refuse_links(path.with_name(TRACKS))
    side["tracks"] = _tracks(path.with_name(TRACKS), limits)
    return dict(side)


def _tracks(path: Path, limits: Limits) -> dict[int, dict[int, tuple[str | None, str | None, int]]]:
    import polars as pl

    found: dict[int, dict[int, tuple[str | None, str | None, int]]] = {}
    file = TableFile(path, limits)
    if file.rows > MOST_TRACKS:
        raise DatasetError(f"{path}: has {file.rows} tracks, up to {MOST_TRACKS} are read")
    try:
        table = file.frame().select("scene", "track_id", "object_id", "label", "class")
    except pl.exceptions.PolarsError as error:
        raise DatasetError(f"{path}: is not what an export leaves there: {error}") from error
    kinds = dict(table.schema)
    numbers = all(kinds[name].is_integer() for name in ("scene", "track_id", "class"))
    if not numbers or any(kinds[name] != pl.String for name in ("object_id", "label")):
        raise DatasetError(f"{path}: is not what an export leaves there: columns of {kinds}")
    for scene, track, *rest in table.iter_rows():
        found.setdefault(scene, {})[track] = (rest[0], rest[1], rest[2])
    return found


def _scenes(records: Reader, side: Mapping[str, Any]) -> Iterator[_Scene]:
    taken: set[str] = set()
    axes = pose(OPTICAL, np.zeros(3))
    for number, record in enumerate(records.each()):
        if side:
            known = side["scenes"][number]
            tracks = side["tracks"].get(number, {})
            found = np.array(known.get("axes", axes), float), known.get("measured"), tracks
            yield _Scene(clean_text(str(known["name"])), known["frames"], *found)
            continue
        name = _name(record)
        name = name if name not in taken else f"{name}_{number}"
        taken.add(name)
        yield _Scene(name, None, axes, None, {})


def _name(record: np.void) -> str:
    """HOST_YYYY_MM_DD_HH_MM_SS."""
    host = str(record["host"]) or "l5kit"
    start = datetime.fromtimestamp(int(record["start_time"]) // 10**9, timezone.utc)  # int64: years 1677 to 2262
    return safe_name(f"{host}_{start:%Y_%m_%d_%H_%M_%S}")


def _rows(
    scene: _Scene, record: np.void, arrays: Mapping[str, Reader], tally: _AgentsRead, *, scored: bool
) -> Iterator[Row]:
    frames = _interval(arrays, "frames", record["frame_index_interval"], tally)
    for known in (scene.frames, scene.measured):
        if known is not None and len(known) != len(frames):
            raise DatasetError(f"{SIDE}: has {len(known)} frames of {scene.name!r}, its scene has {len(frames)}")
    stamps = frames["timestamp"]
    measured = stamps if scene.measured is None else np.array(scene.measured, np.int64)
    if len(stamps) > 1 and (np.diff(stamps) <= 0).any():
        raise DatasetError(f"{arrays['frames'].path}: the frames of {scene.name!r} do not follow each other in time")
    ground = between(pose(frames["ego_rotation"], frames["ego_translation"]), stamps, measured)
    axes = ground @ scene.axes
    for n, frame in enumerate(frames):
        common: Row = {"name": scene.name, "frame": n if scene.frames is None else scene.frames[n]}
        common["timestamp"] = int(frame["timestamp"])
        agents = _interval(arrays, "agents", frame["agent_index_interval"], tally)
        boxes = _boxes(agents, int(measured[n] - stamps[n]) / 1e9, ground[n], axes[n])
        sound = np.isfinite(boxes).all(1)
        tally.broken += int((~sound).sum())
        if not sound.any():
            yield common
        for agent, box in zip(agents[sound], boxes[sound], strict=True):
            tally.rows += 1
            yield common | {"box3d": box.tolist()} | _told(scene, agent, scored=scored)


def _interval(arrays: Mapping[str, Reader], name: str, interval: Iterable[int], tally: _AgentsRead) -> Records:
    """Return the records of a scene or frame. Each belongs to one alone, so that no more comes out than there is."""
    (start, stop), end = map(int, interval), tally.ends.get(name, 0)
    if stop > start:
        if start < end or stop - start > MOST[name]:
            raise DatasetError(
                f"{arrays[name].path}: {start} to {stop} are asked for in one; they must begin at {end} or later, and "
                f"be up to {MOST[name]}"
            )
        tally.ends[name] = stop
        tally.budget.take(unpacked=(stop - start) * ROW)
    return arrays[name].read(start, stop)


def _boxes(agents: Records, later: float, ground: Floats, axes: Floats) -> Floats:
    """(M, 6) box3d of agents, measured `later` s than the frame, with the vehicle and the boxes' axes as poses then."""
    length, width, height = agents["extent"].astype(float).T
    up, forward = ground[:3, 2], axes[:3, 2]
    with np.errstate(all="ignore"):  # whatever is not finite is counted later
        centres = np.zeros((len(agents), 3))
        centres[:, :2] = agents["centroid"] + later * agents["velocity"].astype(float)
        away = centres[:, :2] - ground[:2, 3]
        centres[:, 2] = ground[2, 3] + (height / 2 - away @ up[:2]) / up[2]
        back = inverse(axes)
        turned = agents["yaw"].astype(float) - np.arctan2(forward[1], forward[0])
        along, across = np.abs(np.cos(turned)), np.abs(np.sin(turned))
        around = length * across + width * along, height, length * along + width * across
        return np.column_stack([centres @ back[:3, :3].T + back[:3, 3], *around])


def _told(scene: _Scene, agent: np.void, *, scored: bool) -> Row:
    """object_id, label and score of an agent."""
    track, shares = int(agent["track_id"]), agent["label_probabilities"]
    best = max((n for n in range(len(LABELS)) if n not in NOTHING), key=lambda n: float(shares[n]))
    found = best if shares[best] > 0 else None
    thing, label, number = scene.tracks.get(track, ("", None, None))
    if number is None or (found is None) != (number in NOTHING) or found not in (None, number):
        label = None if found is None else name_of(found)
    row: Row = {"label": label}
    row["object_id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{scene.name}/{track}")) if thing == "" else thing
    if scored and found is not None:
        row["box3d_score"] = min(float(shares[found]), 1.0)
    return row


def _report(report: Report, arrays: Mapping[str, Reader], tally: _AgentsRead, *, known: bool) -> None:
    side = "" if known else "named after host and start"
    report.add("scenes", "name", side, len(arrays["scenes"]))
    report.add("frames.timestamp", "frame, timestamp", "" if known else "frames are counted", len(arrays["frames"]))
    report.add("frames.ego_translation, ego_rotation", "", "no home without samples")
    lost = "boxes stand on the vehicle's ground plane; around turned ones lies a box that is not"
    report.add("agents.centroid, extent, yaw", "box3d", lost, tally.rows)
    if tally.broken:
        report.add("agents that are not finite", "", "left out", tally.broken)
    report.add("agents.velocity", "", "no home")
    report.add("agents.track_id", "object_id", "" if known else "made of scene and track")
    report.add("agents.label_probabilities", "label, box3d_score", "all but the most probable class")
    report.add("traffic_light_faces", "", "no home")
