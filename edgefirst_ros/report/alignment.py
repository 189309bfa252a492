# SPDX-License-Identifier: Apache-2.0
"""Whether radar and lidar agree with the camera: targets in the boxes of the model, points in the picture."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgefirst_ros.dataset.verdict import THRESHOLDS, Check
from edgefirst_ros.errors import DatasetError, EdgeFirstError, counted
from edgefirst_ros.report.labels import boxes_of
from edgefirst_ros.report.look import Unreadable, evenly
from edgefirst_ros.report.projection import NotProjectableError, Projector, projector
from edgefirst_ros.report.subject import Subject

SAMPLES, CLOUDS = 120, 20
"""Most samples looked at for boxes, and for points."""
FEWEST = 20
"""Boxes from which on their share says something."""
MARGIN = 0.15
"""Fraction of its size by which a box is widened on each side: a target is a point somewhere on an object."""
LEAST = 0.002
"""Share of a cloud in the picture under which it counts as not in it."""


@dataclass
class Alignment:
    """Counts of boxes with targets, and of clouds in the picture, of one sequence or in sum."""

    boxes: int = 0
    """Boxes in samples that also have radar targets."""
    met: int = 0
    """Boxes with a target inside."""
    clouds: int = 0
    empty: int = 0
    """Clouds with next to no point in the picture."""
    shares: list[float] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Sensor -> why it is not projected."""
    parts: dict[str, Alignment] = field(default_factory=dict)
    """{sequence: its own}, of several."""

    def add(self, name: str, part: Alignment) -> None:
        """Add the counts of a sequence."""
        self.parts[name] = part
        self.boxes, self.met = self.boxes + part.boxes, self.met + part.met
        self.clouds, self.empty = self.clouds + part.clouds, self.empty + part.empty
        self.shares += part.shares

    @property
    def facts(self) -> dict[str, Any]:
        """Numbers of it."""
        return {
            "boxes": self.boxes,
            "boxes_with_target": self.met,
            "clouds": self.clouds,
            "points_in_picture": round(float(np.mean(self.shares)), 4) if self.shares else None,
            "not_projected": self.refused,
        }

    @property
    def checks(self) -> list[Check]:
        """Return the checks of the verdict, by sequence."""
        if len(self.parts) > 1:
            return [replace(one, sequence=name) for name, part in self.parts.items() for one in part.checks]
        threshold, found = THRESHOLDS["alignment"], []
        if self.boxes >= FEWEST:
            missed = 1 - self.met / self.boxes
            text = f"{self.met} of {self.boxes} boxes have a target in them"
            found.append(Check("alignment", threshold.level(missed), text, "radar"))
        if self.clouds:
            share = float(np.mean(self.shares))
            text = f"{share:.1%} of the points of {counted(self.clouds, 'cloud')} are in the picture"
            found.append(Check("alignment", threshold.level(self.empty / self.clouds), text, "lidar"))
        return found


def alignment(subject: Subject, unreadable: Unreadable) -> Alignment:
    """Project what the sensors say into the picture and compare it with the boxes."""
    found, ways = Alignment(), projectors(subject)
    found.refused = {sensor: way for (_, sensor), way in ways.items() if isinstance(way, str)}
    annotated = subject.dataset.annotation_rows[1]
    parts = {name: Alignment() for name in subject.by_sequence}
    both = [place for place in subject.places if "radar.pcd" in place.sample.inputs and place.sample.key in annotated]
    for place in evenly(both, SAMPLES):
        way, part = ways.get((place.sample.name, "radar")), parts[place.sample.name]
        if isinstance(way, Projector):
            boxes = boxes_of(place.sample.annotations, subject.metadata)
            if len(boxes):
                try:
                    seen = way.project(place.sample.radar())
                except (EdgeFirstError, ValueError) as error:
                    unreadable.add("radar points", DatasetError(str(error)))
                    continue
                inside = seen.pixels[seen.mask] / way.size if all(way.size) else np.zeros((0, 2))
                near = np.abs(inside[None] - boxes[:, None, :2]) <= (0.5 + MARGIN) * boxes[:, None, 2:]
                part.boxes += len(boxes)
                part.met += int(np.any(np.all(near, 2), 1).sum())
    for place in subject.with_input("lidar.pcd", CLOUDS):
        way, part = ways.get((place.sample.name, "lidar")), parts[place.sample.name]
        if isinstance(way, Projector):
            try:
                mask = way.project(place.sample.lidar()).mask
            except (EdgeFirstError, ValueError) as error:
                unreadable.add("lidar points", DatasetError(str(error)))
                continue
            if len(mask):
                part.clouds += 1
                part.shares.append(float(mask.mean()))
                part.empty += part.shares[-1] < LEAST
    for name, part in parts.items():
        found.add(name, part)
    return found


def projectors(subject: Subject) -> dict[tuple[str, str], Projector | str]:
    """Return by sequence and sensor (`radar`, `lidar`) the way into the picture, or why there is none."""
    found: dict[tuple[str, str], Projector | str] = {}
    seen = {name for place in subject.places[:1000] for name in place.sample.inputs}
    sensors = [sensor for sensor in ("radar", "lidar") if f"{sensor}.pcd" in seen]
    for name, calibration in subject.calibrations.items():
        for sensor in sensors:
            try:
                found[name, sensor] = projector(sensor, calibration, assume_forward=subject.assume_forward)
            except NotProjectableError as error:
                found[name, sensor] = str(error)
    return found
