# SPDX-License-Identifier: Apache-2.0
"""Motion of the vehicle, measured from the content of one sensor: how far it turned, how fast it drives.

A motion is a running total by stamp: the angle turned, or the way driven. So a slow sensor can be compared with a fast
one over the same time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.sensors.cloud import find_speed_field, read_points
from edgefirst_ros.sensors.navigation import DEGREE, Fix, find_angles, fix_of, is_reachable
from edgefirst_ros.sensors.picture import AREA, Picture, PictureEncoder

Floats = NDArray[np.float64]
TURN, SPEED = "turn", "speed"
LONGEST, FARTHEST_STEP = 2_000_000_000, 1e6
"""ns between two messages up to which a rate is followed, and the step from which a value is not usable."""
ACROSS, BAND = 256, (0.35, 0.5)
"""Pixels across of the pictures that are compared, and part of their height: above the road, below slanting roofs."""
BLOCK, SMOOTH, ROUNDS = 60, 0.16, 8
"""Pixels across of a block, cycles a pixel up to which blocks are compared, rounds in which outliers lose weight."""
BLOCKS = np.linspace(0, ACROSS - BLOCK, 12).astype(np.int64)
BINS, NEAREST, FARTHEST, BELOW = 720, 1.0, 60.0, 1.0
"""Directions of a scan, m between which its points count, m below the lidar down to which they are not the ground."""
GATES, LONGEST_SIDE, FEWEST = (2.0, 2.0, 1.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.1), 2.0, 20
"""m from a surface within which points are matched, by round; longest side of a surface, m; fewest points."""
ALIKE, ROLLING = 1.0, 1.0
"""m/s within which speeds of standing things are one, and below which positions do not show a course."""


class Motion:
    """Running totals of a motion that one sensor measured: one value or, about several axes, more; in any unit."""

    def __init__(self) -> None:
        self.stamps = array("q")
        """ns."""
        self._totals = array("d")
        self._last: Floats | None = None

    @property
    def totals(self) -> Floats:
        """Totals at the stamps, (N, values)."""
        return np.array(self._totals).reshape(len(self.stamps), -1)

    def add(self, stamp: int, step: Floats) -> None:
        """Add the motion since the stamp before; of the first it does not count."""
        usable = bool(self.stamps) and bool((np.abs(step) < FARTHEST_STEP).all())
        before = self._totals[-len(step) :] if self.stamps else np.zeros(len(step))
        self._totals.extend(before + step if usable else before)
        self.stamps.append(stamp)

    def add_rate(self, stamp: int, rate: Floats) -> None:
        """Add a rate, per s."""
        past = stamp - self.stamps[-1] if self.stamps else 0
        before = rate if self._last is None else self._last
        self.add(stamp, (before + rate) / 2 * (past / 1e9 if 0 < past <= LONGEST else 0.0))
        self._last = rate


class SensorMotion(ABC):
    """Motion of the vehicle by one sensor."""

    measures: tuple[str, ...] = (TURN,)

    def __init__(self) -> None:
        self.motions = {what: Motion() for what in self.measures}

    @abstractmethod
    def add(self, stamp: int, content: Any) -> None:
        """Add a decoded message, or a picture, with its stamp in ns; one without a usable value does not count."""


class SmallPictures(PictureEncoder):
    """Makes small luma pictures of frames, for `PictureMotion`; `Picture.frame` has them."""

    def __init__(self) -> None:
        super().__init__("png", 1)

    def alters(self, width: int, height: int) -> bool:
        return True

    def picture(self, frame: Any) -> Picture:
        """Return the luma of an av.VideoFrame, (H, W), as the frame of a picture."""
        size = ACROSS, min(max(8, round(frame.height * ACROSS / frame.width)), 4 * ACROSS)
        small = self._own_reformatter().reformat(frame, *size, format="gray", interpolation=AREA).planes[0]
        luma = np.frombuffer(small, np.uint8).reshape(size[1], small.line_size)[:, :ACROSS]
        return Picture("", size, (frame.width, frame.height), luma.copy())


class PictureMotion(SensorMotion):
    """Turning of a camera: how far its pictures move, pixels right and down, where the vehicle drives to.

    Blocks of two pictures are compared by phase correlation. When driving, objects move outwards, the more the further
    from the middle: a curve to each side separates that from turning, which moves all blocks alike.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: NDArray[np.complex128] | None = None

    def add(self, stamp: int, content: NDArray[np.uint8]) -> None:
        """Add a small picture, (H, `ACROSS`)."""
        top, bottom = (int(part * len(content)) for part in BAND)
        band = np.log1p(content[top:bottom].astype(np.float64))
        blocks = np.lib.stride_tricks.sliding_window_view(band, BLOCK, axis=1)[:, BLOCKS].transpose(1, 0, 2)
        window = np.hanning(bottom - top + 2)[1:-1, None] * np.hanning(BLOCK + 2)[1:-1]
        now = np.fft.rfft2((blocks - blocks.mean(axis=(1, 2), keepdims=True)) * window)
        step = np.zeros(2)
        if self._before is not None and self._before.shape == now.shape:
            right, down = _measure_shifts(self._before, now, bottom - top).T
            step[:] = _fit_middle(right), np.median(down)
        self.motions[TURN].add(stamp, step)
        self._before = now


def _measure_shifts(before: NDArray[np.complex128], after: NDArray[np.complex128], height: int) -> Floats:
    """Return how far each block moved right and down, (blocks, 2), pixels, by phase correlation of their spectra."""
    product = after * before.conj()
    down, across = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(BLOCK)
    smooth = np.exp(-(down**2 + across**2) / (2 * SMOOTH**2))
    found = np.fft.irfft2(product * smooth / np.maximum(np.abs(product), 1e-12), (height, BLOCK))
    each = np.arange(len(found))
    peak = np.stack(np.unravel_index(found.reshape(len(found), -1).argmax(axis=1), found.shape[1:]), axis=1)
    shifts = []
    for axis, length in ((1, BLOCK), (0, height)):
        line = found[each, :, peak[:, 1]] if axis == 0 else found[each, peak[:, 0]]
        low, best, high = (line[each, (peak[:, axis] + n) % length] for n in (-1, 0, 1))
        place = peak[:, axis] + (low - high) / np.minimum(2 * (low - 2 * best + high), -1e-12)
        shifts.append(np.where(place > length / 2, place - length, place))
    return np.stack(shifts, axis=1)


def _fit_middle(right: Floats) -> float:
    """Return the motion in the middle of the picture, by a curve to each side; blocks that differ count less."""
    middle = 2 * (BLOCKS + BLOCK / 2) / ACROSS - 1
    sides = np.minimum(middle, 0), np.maximum(middle, 0), middle * np.abs(middle)
    lines = np.stack([np.ones(len(middle)), *sides], axis=1)
    weight = np.ones(len(middle))
    for _ in range(ROUNDS):
        fit = np.linalg.lstsq(lines * weight[:, None], right * weight, rcond=None)[0]
        weight = 1 / np.sqrt(np.maximum(np.abs(right - lines @ fit), 0.1))
    return float(fit[0])


class ScanMotion(SensorMotion):
    """Turning of a lidar about its vertical axis, rad: its scans are matched, point to line, by their directions."""

    def __init__(self) -> None:
        super().__init__()
        self._before: _Outline | None = None
        self._step = np.zeros(3)  # m forward, m to the left, rad

    def add(self, stamp: int, content: Any) -> None:
        """Add a cloud. Raises MessageError if its data are broken."""
        columns = _read_columns(content, "x", "y", "z")
        if columns is None:
            return
        x, y, z = columns
        reach = np.hypot(x, y)
        seen = (reach > NEAREST) & (reach < FARTHEST) & (z > -BELOW)
        nearest_first = np.argsort(reach[seen])
        here = np.stack([x[seen], y[seen]], axis=1)[nearest_first]
        _, first = np.unique((_measure_angles(here) / math.tau * BINS).astype(np.int64), return_index=True)
        if len(first) < FEWEST:
            return
        outline = _Outline.of(here[first])
        if self._before is not None:
            self._step = _match(self._before, outline.points, self._step)
        self._before = outline
        self.motions[TURN].add(stamp, self._step[2:].copy())


def _read_columns(message: Any, *names: str) -> list[Floats] | None:
    """Return fields of the points of a cloud; None if one is missing. Raises MessageError if its data are broken."""
    points = read_points(message)
    there = set(names) <= set(points.dtype.names or ())
    return [np.atleast_2d(points[name].T)[0].astype(np.float64) for name in names] if there else None


class _Outline(NamedTuple):
    """Nearest points around a lidar."""

    angles: Floats  # rad, rising
    points: Floats  # (N, 2), m
    normals: Floats  # of the surface at each, (N, 2); NaN where its neighbours are far

    @classmethod
    def of(cls, points: Floats) -> _Outline:
        """Return the outline of points in any order."""
        points = points[np.argsort(_measure_angles(points))]
        along = np.roll(points, -1, axis=0) - np.roll(points, 1, axis=0)
        length = np.linalg.norm(along, axis=1, keepdims=True)
        along[(length > LONGEST_SIDE)[:, 0]] = np.nan
        return cls(
            _measure_angles(points), points, np.stack([-along[:, 1], along[:, 0]], axis=1) / np.maximum(length, 1e-6)
        )

    def off(self, moved: Floats) -> tuple[Floats, Floats]:
        """Return how far points are from the surface in their direction, m, and its normals, (N, 2)."""
        angle = _measure_angles(moved)
        after = np.searchsorted(self.angles, angle) % len(self.angles)
        nearer = np.abs(self.angles[after] - angle) > np.abs(self.angles[after - 1] - angle)
        place = np.where(nearer, after - 1, after)
        off: Floats = ((moved - self.points[place]) * self.normals[place]).sum(axis=1)
        return off, self.normals[place]


def _measure_angles(points: Floats) -> Floats:
    return np.asarray(np.arctan2(points[:, 1], points[:, 0]) % math.tau, float)


def _match(before: _Outline, points: Floats, expected: Floats) -> Floats:
    """Return the motion from one scan to the points of the next that fits most points; zeros if too few fit."""
    best, most = np.zeros(3), FEWEST
    for start, gates in ((expected, GATES[4:]), (expected, GATES[2:]), (expected, GATES), (np.zeros(3), GATES)):
        step = start
        for gate in gates:
            cosine, sine = math.cos(step[2]), math.sin(step[2])
            moved = points @ np.array([[cosine, sine], [-sine, cosine]]) + step[:2]
            off, normals = before.off(moved)
            used = np.abs(off) < gate  # False for NaN
            (nx, ny), (mx, my) = normals[used].T, (moved[used] - step[:2]).T
            lines = np.stack([nx, ny, ny * mx - nx * my], axis=1)
            # A little resistance, where a long wall shows no motion along it.
            step = step - np.linalg.solve(lines.T @ lines + np.diag([1.0, 1.0, 1e-6]), lines.T @ off[used])
        if used.sum() > most:
            best, most = step, used.sum()
        if most > len(points) / 2:
            break
    return best


class DopplerMotion(SensorMotion):
    """Speed of the vehicle, by the radial speeds of standing things: the speed that most targets agree on."""

    measures = (SPEED,)

    def add(self, stamp: int, content: Any) -> None:
        """Add a cloud. Raises MessageError if its data are broken."""
        name = find_speed_field(field.name for field in content.fields)
        columns = _read_columns(content, "x", "y", "z", name) if name is not None else None
        if columns is None:
            return
        x, y, z, away = columns
        rays = np.stack([x, y], axis=1) / np.sqrt(x**2 + y**2 + z**2)[:, None]
        ahead = (rays[:, 0] > 0.5) & (np.abs(away) < FARTHEST_STEP)
        rays, away = rays[ahead], away[ahead]
        if not len(away):
            return
        by_speed = np.argsort(-away / rays[:, 0])
        speeds = (-away / rays[:, 0])[by_speed]
        ends = np.searchsorted(speeds, speeds + ALIKE, "right")
        first = int((ends - np.arange(len(speeds))).argmax())
        alike = by_speed[first : ends[first]]
        # A sensor before the axle moves sideways in a turn; a little resistance where all are in one direction.
        solved = np.linalg.solve(rays[alike].T @ rays[alike] + np.diag([0.0, 0.1]), rays[alike].T @ -away[alike])
        self.motions[SPEED].add_rate(stamp, solved[:1].astype(np.float64))


class GyroMotion(SensorMotion):
    """Turning of an IMU about its three axes, rad."""

    def add(self, stamp: int, content: Any) -> None:
        turn = content.angular_velocity
        if all(map(math.isfinite, (turn.x, turn.y, turn.z))):
            self.motions[TURN].add_rate(stamp, np.array([turn.x, turn.y, turn.z]))


class PlaceMotion(SensorMotion):
    """Way driven in m and course in rad, by places."""

    measures = (SPEED, TURN)

    def __init__(self) -> None:
        super().__init__()
        self._fix: Fix | None = None
        self._before: tuple[int, Sequence[float]] | None = None
        self._course: float | None = None

    def add(self, stamp: int, content: Any) -> None:
        """Add a NavSatFix; one that the fix before cannot reach does not count."""
        fix, before = fix_of(content, stamp), self._fix
        if fix is None or (before is not None and stamp > before.stamp and not is_reachable(before, fix)):
            return
        self._fix, old = fix, before or fix
        east = ((fix.longitude - old.longitude + 180) % 360 - 180) * math.cos(math.radians(fix.latitude))
        x, y = self._before[1] if self._before is not None else (0.0, 0.0)
        self._add(stamp, (x + DEGREE * east, y + DEGREE * (fix.latitude - old.latitude)), None)

    def add_pose(self, stamp: int, place: Sequence[float], turn: tuple[float, float, float, float]) -> None:
        """Add a pose: m, unit quaternion x, y, z, w."""
        self._add(stamp, place, math.radians(find_angles(turn)[0]))

    def _add(self, stamp: int, place: Sequence[float], course: float | None) -> None:
        """Add a place, with the heading there; without one its course is that of the step, in its middle."""
        then, old = self._before or (stamp, place)
        self._before, way, past = (stamp, place), math.dist(place, old), stamp - then
        self.motions[SPEED].add(stamp, np.array([way]))
        if course is None:
            stamp -= past // 2
            if past > 0 and way * 1e9 > ROLLING * past:
                course = math.atan2(place[1] - old[1], place[0] - old[0])
        turned = 0.0 if course is None or self._course is None else math.remainder(course - self._course, math.tau)
        self._course = self._course if course is None else course
        self.motions[TURN].add(stamp, np.array([turned]))
