# SPDX-License-Identifier: Apache-2.0
"""Boxes in space of a scene as agents: in the world, with tracks, velocities and classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.drive import Drive
from edgefirst_ros.export.geodesy import Floats
from edgefirst_ros.export.l5kit.form import AGENT, ARRAYS
from edgefirst_ros.export.l5kit.labels import LABELS, UNKNOWN
from edgefirst_ros.export.l5kit.zarr2 import Records

LONGEST_GAP = 1.0
"""s between two sightings; over longer gaps no velocity is taken."""
Track = tuple[int, int, str | None, str | None, int]
"""Scene, track_id, object_id, label, number of its class."""


@dataclass
class AgentCounts:
    """Counts collected over all scenes."""

    classes: Mapping[str, int]
    tracks: list[Track] = field(default_factory=list)
    broken: int = 0
    """Boxes that are not finite."""
    still: int = 0
    """Agents that were seen once, or not again for long."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Labels without a class."""

    def class_of(self, label: str | None) -> int:
        """Position in LABELS."""
        return self.classes.get((label or "").casefold(), UNKNOWN)


@dataclass
class Boxes:
    """The boxes of a scene, (M, ...), in the order of its frames."""

    frame: NDArray[np.intp]
    """Index of the scene's frame."""
    box: Floats
    """(M, 6), as in the dataset."""
    score: NDArray[np.float32]
    labels: list[str | None]
    objects: list[str | None]


def boxes_of(drive: Drive, kept: list[int], tally: AgentCounts) -> Boxes:
    """Return the rows with a box in space of the samples `kept`. Raises DatasetError for boxes of another form."""
    table, places = drive.dataset.annotation_rows
    if "box3d" not in drive.dataset.annotation_columns:
        return Boxes(np.zeros(0, np.intp), np.zeros((0, 6)), np.zeros(0, np.float32), [], [])
    spans = [places.get(drive.samples[n].key, (0, 0)) for n in kept]
    rows = np.concatenate([np.arange(start, start + count) for start, count in spans])
    frame = np.repeat(np.arange(len(kept)), [count for _, count in spans])
    there = table["box3d"].is_not_null().to_numpy()[rows]
    part, frame = table[rows[there]], frame[there]
    box = np.array(part["box3d"].to_list(), float)
    if len(box) and box.shape[1:] != (6,):
        raise DatasetError(f"{drive.dataset.paths.arrow}: box3d must have 6 numbers")
    box = box.reshape(-1, 6)
    sound = np.isfinite(box).all(1)
    tally.broken += int((~sound).sum())
    part = part.filter(sound)
    score = part["box3d_score"].fill_null(1.0).to_numpy().astype(np.float32)
    labels, objects = (part[name].cast(str).to_list() for name in ("label", "object_id"))
    return Boxes(frame[sound], box[sound], score, labels, objects)


def agents_of(
    boxes: Boxes, axes: Floats, measured: NDArray[np.int64], stamps: NDArray[np.int64], scene: int, tally: AgentCounts
) -> Iterator[Records]:
    """Agents of a scene, a chunk at a time.

    `axes`: (F, 4, 4) those of the boxes to the world when they were measured, by frame; `measured` and `stamps`: (F,)
    ns, when that was, and the time of the frame, to which the boxes are brought by their velocity.
    """
    turned, seen = axes[boxes.frame], measured[boxes.frame]
    centres = np.einsum("nij,nj->ni", turned[:, :3, :3], boxes.box[:, :3]) + turned[:, :3, 3]
    tracks = _numbered(boxes, scene, tally)
    velocity, still = _velocity(tracks, seen, centres[:, :2])
    velocity = velocity.astype(np.float32).astype(float)  # as it is stored
    tally.still += still
    places = centres[:, :2] + velocity * ((stamps[boxes.frame] - seen) / 1e9)[:, None]
    for start in range(0, len(tracks), ARRAYS["agents"][1]):
        part = slice(start, start + ARRAYS["agents"][1])
        agents: Records = np.zeros(len(tracks[part]), AGENT)
        agents["centroid"] = places[part]
        agents["extent"] = boxes.box[part][:, [5, 3, 4]]  # along the heading, across it, upwards
        agents["yaw"] = np.arctan2(turned[part, 1, 2], turned[part, 0, 2])  # of the axis that points forward
        agents["velocity"], agents["track_id"] = velocity[part], tracks[part]
        agents["label_probabilities"] = _probabilities(boxes.labels[part], boxes.score[part], tally)
        yield agents


def _numbered(boxes: Boxes, scene: int, tally: AgentCounts) -> NDArray[np.uint64]:
    """(M,) numbers of the tracks, from 1 in each scene; one without an id, or twice in a frame, is one of its own."""
    known: dict[tuple[str, int], int] = {}
    seen: Counter[tuple[str, int]] = Counter()
    found = np.zeros(len(boxes.frame), np.uint64)
    count = 0
    for n, (thing, frame, label) in enumerate(zip(boxes.objects, boxes.frame.tolist(), boxes.labels, strict=True)):
        key = (thing, seen[thing, frame]) if thing is not None else None
        if key is not None:
            seen[key[0], frame] += 1
        number = known.get(key) if key is not None else None
        if number is None:
            number = count = count + 1
            tally.tracks.append((scene, number, thing, label, tally.class_of(label)))
            if key is not None:
                known[key] = number
        found[n] = number
    return found


def _velocity(tracks: NDArray[np.uint64], times: NDArray[np.int64], places: Floats) -> tuple[Floats, int]:
    """(M, 2) m/s in the world, and the number of those without any.

    From the sighting before to the one after, at an end of the track from or to the agent itself. What several frames
    have of one time is one sighting.
    """
    order = np.lexsort((times, tracks))
    found = np.zeros((len(tracks), 2))
    track, time = tracks[order], times[order]
    new = np.concatenate([[True], (np.diff(track) != 0) | (np.diff(time) != 0)])
    track, time, place = track[new], time[new], places[order][new]
    linked = (track[1:] == track[:-1]) & (np.diff(time) <= LONGEST_GAP * 1e9)
    here = np.arange(len(track))
    before = here - np.concatenate([[False], linked])
    after = here + np.concatenate([linked, [False]])
    seconds = (time[after] - time[before]) / 1e9
    moved = place[after] - place[before]
    speeds = np.divide(moved, seconds[:, None], out=np.zeros_like(moved), where=seconds[:, None] > 0)
    sighting = np.cumsum(new) - 1
    found[order] = speeds[sighting]
    return found, int((seconds[sighting] == 0).sum())


def _probabilities(labels: list[str | None], score: NDArray[np.float32], tally: AgentCounts) -> NDArray[np.float32]:
    """(M, 17): the score at the label's class, the rest at UNKNOWN."""
    found = np.zeros((len(labels), len(LABELS)), np.float32)
    numbers = np.array([tally.class_of(label) for label in labels], int)
    tally.unknown.update(label or "" for label, n in zip(labels, numbers, strict=True) if n == UNKNOWN)
    found[:, UNKNOWN] = 1 - score
    found[np.arange(len(labels)), numbers] = np.where(numbers == UNKNOWN, 1, score)
    return found
