# SPDX-License-Identifier: Apache-2.0
"""A dataset as L5Kit has it: scenes.zarr and meta.json, and beside them what L5Kit has no fields for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefirst_ros.dataset.names import host_of
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.export.drive import Drive, drives
from edgefirst_ros.export.geodesy import Floats, between
from edgefirst_ros.export.l5kit.agents import AgentCounts, Track, agents_of, boxes_of
from edgefirst_ros.export.l5kit.form import ARRAYS, FORMAT_VERSION, FRAME, PLACE, SCENE, SIDE, STORE, TRACKS
from edgefirst_ros.export.l5kit.labels import LABELS, official
from edgefirst_ros.export.l5kit.zarr2 import Writer, write_group
from edgefirst_ros.export.report import Report
from edgefirst_ros.progress import Progress

if TYPE_CHECKING:
    import polars as pl

NO_HOME = "no home"


@dataclass
class _Export:
    world: Floats
    """(4, 4) to ECEF: ENU at the first place of the first sequence, for all of them."""
    writers: dict[str, Writer]
    tally: AgentCounts
    scenes: list[dict[str, Any]] = field(default_factory=list)
    """Side data of each scene."""
    unplaced: int = 0
    """Samples without a pose."""


def export(
    dataset: Dataset,
    out: Path,
    report: Report,
    progress: Progress,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Write a dataset into the empty folder `out`. `labels`: classes of L5Kit by label, over the usual ones.

    Raises DatasetError where stamps, positions, attitudes or the place of the boxes are not known, UsageError for a
    class that L5Kit does not have, StorageError.
    """
    classes = official(labels or {})
    found = drives(dataset)
    write_group(out / STORE, {"format_version": FORMAT_VERSION, "labels": list(LABELS)})
    writers = {name: Writer(out / STORE / name, *form) for name, form in ARRAYS.items()}
    made = _Export(found[0].world_to_ecef, writers, AgentCounts(classes))
    for number, drive in enumerate(found):
        progress("scenes", number, len(found))
        _scene(made, drive)
    for writer in writers.values():
        writer.close()
    _json(out / PLACE, {"world_to_ecef": made.world.tolist()})
    scored = "box3d_score" in dataset.annotation_columns
    _json(out / SIDE, {"dataset": dataset.paths.name, "scored": scored, "scenes": made.scenes})
    _table(made.tally.tracks).write_ipc(out / TRACKS)
    _report(report, dataset, made)
    progress("scenes", len(found), len(found))


def _scene(made: _Export, drive: Drive) -> None:
    kept = np.flatnonzero(drive.located)
    made.unplaced += len(drive) - len(kept)
    stamps, rig = drive.stamps[kept], drive.rig_in(made.world)[kept]
    boxes = boxes_of(drive, kept.tolist(), made.tally)
    scene, frames = np.zeros(1, SCENE), np.zeros(len(kept), FRAME)
    frames["timestamp"] = stamps
    bounds = made.writers["agents"].length + np.searchsorted(boxes.frame, np.arange(len(kept) + 1))
    frames["agent_index_interval"] = np.stack([bounds[:-1], bounds[1:]], -1)
    frames["ego_translation"], frames["ego_rotation"] = rig[:, :3, 3], rig[:, :3, :3]
    first = made.writers["frames"].length
    scene["frame_index_interval"] = first, first + len(kept)
    scene["host"], scene["start_time"], scene["end_time"] = host_of(drive.name)[:16], stamps[0], stamps[-1]
    side = {"name": drive.name, "frames": [drive.samples[n].frame for n in kept.tolist()]}
    if len(boxes.frame):
        measured = drive.box_stamps[kept]
        axes = between(rig, stamps, measured) @ drive.boxes
        for agents in agents_of(boxes, axes, measured, stamps, len(made.scenes), made.tally):
            made.writers["agents"].append(agents)
        side |= {"axes": drive.boxes.tolist(), "measured": measured.tolist()}
    made.writers["frames"].append(frames)
    made.writers["scenes"].append(scene)
    made.scenes.append(side)


def _table(rows: list[Track]) -> pl.DataFrame:
    import polars as pl

    kinds = {"scene": pl.UInt32, "track_id": pl.UInt64, "object_id": pl.String, "label": pl.String, "class": pl.UInt8}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n", encoding="utf-8")


def _report(report: Report, dataset: Dataset, made: _Export) -> None:
    """Fill the loss report. Columns without values are not in the dataset, and not in the report."""
    agents, table, tally = made.writers["agents"].length, dataset.annotations, made.tally
    report.add("sequences", "scenes", f"name but 16 characters of the host; kept in {SIDE}", len(made.scenes))
    report.add("samples", "frames.timestamp", f"number; kept in {SIDE}", made.writers["frames"].length)
    if made.unplaced:
        report.add("samples without position or attitude", "", "left out", made.unplaced)
    report.add("positions, attitudes", f"frames.ego_translation, ego_rotation; {PLACE}")
    homes = dict.fromkeys(("name", "frame", "timestamp", "location", "pose"), ("frames, scenes", ""))
    if "box3d" in dataset.annotation_columns:
        others = "of rows without box3d" if table["box3d"].null_count() else ""
        broken = f"; {tally.broken} that are not finite" if tally.broken else ""
        left = table.height - table["box3d"].null_count() - tally.broken - agents
        broken += f"; {left} of samples that are left out" if left else ""
        homes["box3d"] = "agents.centroid, extent, yaw", f"height above ground, roll and pitch{broken}"
        homes["object_id"] = "agents.track_id", f"the id; kept in {TRACKS}"
        homes["label"] = "agents.label_probabilities", "; ".join(filter(None, (others, _lost_labels(tally.unknown))))
        homes["box3d_score"] = "agents.label_probabilities", "of those that are UNKNOWN" if tally.unknown else ""
        still = f"0 of {tally.still} agents that were seen once" if tally.still else ""
        report.add("(estimated)", "agents.velocity", still, agents)
    for name in dataset.annotation_columns:
        report.add(name, *homes.get(name, ("", NO_HOME)), table.height - table[name].null_count())
    kinds = Counter(kind for sample in dataset.samples() for kind in dataset.members(sample.key))
    for kind, number in sorted(kinds.items()):
        report.add(kind, "", NO_HOME, number)
    for key, what in (("camera_info", "camera intrinsics"), ("static_transforms", "places of the sensors")):
        if any(getattr(dataset.calibration(sequence), key) for sequence in dataset.sequences):
            report.add(what, "", NO_HOME)
    report.add("stamps of the sensors, keyframes, counts", "", NO_HOME)


def _lost_labels(unknown: Counter[str]) -> str:
    if not unknown:
        return ""
    listed = ", ".join(f"{label or '(none)'} ({number})" for label, number in unknown.most_common(8))
    return f"without a class, so UNKNOWN: {listed}"
