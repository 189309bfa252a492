# SPDX-License-Identifier: Apache-2.0
"""Reads members for a report: a bounded number of pictures, cubes and clouds, however long a drive is."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from PIL import Image

from edgefirst_ros.dataset.pictures import MAX_PIXELS, MAX_SCANNED, START_OF_SCAN
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.dataset.verdict import DARK, GLARING, THRESHOLDS, Check
from edgefirst_ros.errors import DatasetError, EdgeFirstError, counted, text_of
from edgefirst_ros.report.projection import xyz
from edgefirst_ros.report.series import spread
from edgefirst_ros.report.subject import Floats, Place, Subject
from edgefirst_ros.sensors.cube import Cube

PICTURES, CUBES, CLOUDS, TARGETS = 60, 48, 40, 400
"""Most members of each kind that are read."""
SEQUENCES = 4
"""Most sequences whose cubes are shown."""
SMALL = 160
"""Pixels across of the pictures whose brightness is taken."""
LONGEST_RANGE = 250.0
"""m; what a lidar says to be further off is not counted."""


@dataclass
class Unreadable:
    """Members that could not be read, by what was wrong; the first of each kind is kept."""

    notes: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, error: EdgeFirstError) -> None:
        """Take note of one."""
        self.notes.setdefault(what, str(error))


@dataclass
class Exposure:
    """Brightness of pictures."""

    seconds: Floats
    luma: Floats
    """Mean of each picture, 0 to 255."""
    names: Sequence[str] = ()
    """Sequence of each picture; without them all are of one."""

    @property
    def facts(self) -> dict[str, Any]:
        """Numbers of it."""
        if not len(self.luma):
            return {"looked_at": 0}
        return {
            "looked_at": len(self.luma),
            "mean_luma": round(float(self.luma.mean()), 1),
            "dark": int((self.luma < DARK).sum()),
            "glaring": int((self.luma > GLARING).sum()),
        }

    @property
    def checks(self) -> list[Check]:
        """Return the checks of the verdict, by sequence."""
        threshold, found = THRESHOLDS["exposure"], []
        several = len(set(self.names)) > 1
        for name in dict.fromkeys(self.names or [""] * len(self.luma)):
            luma = self.luma[[one == name for one in self.names]] if several else self.luma
            shares = {"dark": float((luma < DARK).mean()), "glaring": float((luma > GLARING).mean())}
            own = [
                Check("exposure", level, f"{share:.0%} of {counted(len(luma), 'picture')} looked at are {what}")
                for what, share in shares.items()
                if (level := threshold.level(share))
            ]
            own = own or [Check("exposure", threshold.level(0), f"mean luma {luma.mean():.0f} of 255")]
            found += [replace(one, sequence=name) for one in own] if several else own
        return found


def exposure(subject: Subject, unreadable: Unreadable) -> Exposure:
    """Look at how bright pictures are, in small."""
    seconds, luma, names = [], [], []
    for place in subject.with_input("camera", PICTURES):
        try:
            luma.append(_mean_luma(place.sample))
        except EdgeFirstError as error:
            unreadable.add("picture", error)
            continue
        seconds.append(place.seconds)
        names.append(place.sample.name)
    return Exposure(np.array(seconds), np.array(luma), names)


def _mean_luma(sample: Sample) -> float:
    """Mean luma, 0 to 255, of a JPEG or PNG; raises DatasetError."""
    data, place = sample.read("camera"), f"{sample.dataset.container.path}: {sample.member('camera')!r}"
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as picture:
            pixels = picture.width * picture.height
            if pixels > MAX_PIXELS or data.count(START_OF_SCAN) * pixels > MAX_SCANNED:
                raise DatasetError(f"{place}: {picture.width} x {picture.height} pixels are too many")
            picture.draft("L", (SMALL, SMALL))
            return float(np.asarray(picture.convert("L"), np.float32).mean())
    except DatasetError:
        raise
    except Exception as error:  # whatever the library raises on bad bytes
        raise DatasetError(f"{place}: not a readable picture: {text_of(error)}") from error


@dataclass
class CubeLook:
    """Cubes of one sequence that follow each other."""

    sequence: str
    seconds: Floats
    """Time of each cube, s of drive."""
    by_range: Floats
    """(range, cube) largest magnitude, dB."""
    by_speed: Floats
    """(range, doppler) largest magnitude of the loudest cube, dB."""
    metres: float | None
    """A range bin."""
    speed: float | None
    """A doppler bin, m/s."""
    whole: bool
    """True if all cubes are shown."""


@dataclass
class RadarLook:
    """Cubes by sequence, and targets over the whole drive."""

    cubes: Sequence[CubeLook]
    targets: Floats
    """(N, 3) s of drive, range in m, speed in m/s (NaN where it is not said)."""
    clouds: int
    """Messages with targets that were looked at."""


def radar(subject: Subject, unreadable: Unreadable) -> RadarLook:
    """Look at the radar."""
    by_sequence: dict[str, list[Place]] = {}
    for place in subject.places:
        if "radar.cube" in place.sample.inputs and "radar.cube" not in place.sample.repeats:
            by_sequence.setdefault(place.sample.name, []).append(place)
    most = CUBES // max(1, min(len(by_sequence), SEQUENCES))
    looks = [_look_at_cubes(subject, *one, most, unreadable) for one in [*by_sequence.items()][:SEQUENCES]]
    targets, clouds = _targets(subject.with_input("radar.pcd", TARGETS), unreadable)
    return RadarLook([one for one in looks if one is not None], targets, clouds)


def _look_at_cubes(
    subject: Subject, name: str, places: list[Place], most: int, unreadable: Unreadable
) -> CubeLook | None:
    """Read up to `most` cubes from the middle of a sequence; None where none can be read."""
    middle = max(0, (len(places) - most) // 2)
    columns: list[Any] = []
    seconds, loudest, kept = [], -1.0, cast("Cube | None", None)
    for place in places[middle : middle + most]:
        try:
            cube = place.sample.cube()
        except EdgeFirstError as error:
            unreadable.add("radar cube", error)
            continue
        column = _loudest(cube.values.reshape(*cube.values.shape[:2], -1), (0, 2))
        if columns and len(column) != len(columns[0]):
            unreadable.add("radar cube", DatasetError(f"{len(column)} range bins, those before have {len(columns[0])}"))
            continue
        columns.append(column)
        seconds.append(place.seconds)
        if column.mean() > loudest:
            loudest, kept = float(column.mean()), cube
    if kept is None:
        return None
    return CubeLook(
        name,
        np.array(seconds),
        decibels(np.array(columns).T),
        decibels(_loudest(kept.values.reshape(*kept.values.shape[:4], -1), (0, 2, 4))),
        kept.metres_per_range_bin,
        kept.speed_per_doppler_bin,
        len(columns) >= _cubes(subject, name, len(places)),
    )


def _loudest(values: Any, axes: tuple[int, ...]) -> Floats:
    """Largest magnitude over some axes; of 16 bits, so that no copy of a cube is made."""
    high, low = values.max(axis=axes).astype(np.int32), values.min(axis=axes).astype(np.int32)
    found: Floats = np.maximum(high, -low).astype(float)
    return found


def _cubes(subject: Subject, name: str, there: int) -> int:
    """Return the number of cubes of a sequence; of a recording only some are `there`."""
    own = subject.timeline.drives.get(name)
    return sum(map(len, own.messages("radar.cube"))) if own and "radar.cube" in own.companions else there


def decibels(values: Any) -> Floats:
    """20 log10, of at least 1."""
    found: Floats = 20 * np.log10(np.maximum(np.asarray(values, float), 1.0))
    return found


def _targets(places: Iterable[Place], unreadable: Unreadable) -> tuple[Floats, int]:
    rows, clouds = [np.zeros((0, 3))], 0
    for place in places:
        try:
            points = place.sample.radar().ravel()
            away = np.linalg.norm(xyz(points), axis=1)
        except (EdgeFirstError, ValueError) as error:
            unreadable.add("radar points", DatasetError(str(error)))
            continue
        clouds += 1
        rows.append(np.column_stack([np.full(len(away), place.seconds), away, speeds(points)]))
    found = np.concatenate(rows)
    return found[np.isfinite(found[:, 1])], clouds


def speeds(points: Any) -> Floats:
    """Radial speed of radar points in m/s; NaN where it is not said."""
    names = points.dtype.names or ()
    name = next((one for one in ("speed", "doppler", "velocity", "vx") if one in names), None)
    return np.full(len(points), math.nan) if name is None else points[name].astype(float)


def lidar(subject: Subject, unreadable: Unreadable) -> dict[str, tuple[Floats, int]]:
    """Return by sequence the ranges of lidar points in m, and of how many clouds they are."""
    found: dict[str, list[Floats]] = {}
    for place in subject.with_input("lidar.pcd", CLOUDS):
        try:
            away = np.linalg.norm(xyz(place.sample.lidar()), axis=1)
        except (EdgeFirstError, ValueError) as error:
            unreadable.add("lidar points", DatasetError(str(error)))
            continue
        found.setdefault(place.sample.name, []).append(away[np.isfinite(away) & (away <= LONGEST_RANGE)])
    return {name: (np.concatenate(parts), len(parts)) for name, parts in found.items()}


def evenly(places: list[Place], most: int) -> list[Place]:
    """Up to `most` of some samples."""
    return [places[n] for n in spread(len(places), most)]
