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

from edgefirst_ros.sensors.cloud import decode_cloud, encode_cloud
from edgefirst_ros.sensors.navigation import Fix, fix_of, reachable, yaw_pitch_roll
from edgefirst_ros.sensors.picture import AREA, Picture, PictureEncoder

Floats = NDArray[np.float64]
TURN, SPEED = "turn", "speed"
LONGEST = 2_000_000_000
"""ns between two messages above which a motion is not followed from one to the other."""
ACROSS = 256
"""Pixels across of the pictures that are compared."""
BAND = (0.3, 0.6)
"""Part of the height of a picture that is compared: neither sky nor road."""
BLOCK = 52
BLOCKS = np.linspace(0, ACROSS - BLOCK, 12).astype(np.int64)
"""Pixels across of the blocks, and where they begin."""
SMOOTH, ROUNDS = 0.125, 4
"""Cycles a pixel up to which blocks are compared, and rounds in which outliers lose their weight."""
BINS = 720
"""Directions of a scan, all round."""
NEAREST, FARTHEST = 1.0, 60.0
"""m; nearer points are of the vehicle, and further ones are as far as none."""
LONGEST_SIDE = 2.0
"""m between neighbours of a point above which they are not on one surface."""
GATES = (2.0, 2.0, 1.0, 1.0, 0.5, 0.3, 0.2, 0.1, 0.1)
"""m from a surface within which points are matched, in each round."""
FEWEST = 20
"""Points of a match."""
BELOW = 1.0
"""m below the lidar above which points are not of the ground."""
ALIKE = 1.0
"""m/s within which speeds of standing things are one."""
ROLLING = 1.0
"""m/s below which positions do not show where the vehicle heads."""


class Motion:
    """Running totals of a motion that one sensor measured."""

    def __init__(self) -> None:
        self.stamps = array("q")
        """ns."""
        self.totals: list[Floats] = []
        """Totals at the stamps, one value or, about several axes, more; in any unit."""
        self._last: Floats | None = None

    def add(self, stamp: int, step: Floats) -> None:
        """Add the motion since the stamp before; of the first it does not count."""
        self.totals.append(self.totals[-1] + step if self.totals else np.zeros_like(step))
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
    """`turn`, `speed`."""

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
        size = ACROSS, max(8, round(frame.height * ACROSS / frame.width))
        small = self._own_reformatter().reformat(frame, *size, format="gray", interpolation=AREA).planes[0]
        luma = np.frombuffer(small, np.uint8).reshape(size[1], small.line_size)[:, :ACROSS]
        return Picture("", size, (frame.width, frame.height), luma.copy())


class PictureMotion(SensorMotion):
    """Turning of a camera: how far its pictures move, pixels right and down, where the vehicle drives to.

    Blocks of two pictures are compared by phase correlation. What drives by moves outwards, the more the further from
    the middle: a line to each side separates that from turning, which moves all blocks alike.
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
            right, down = _shifts(self._before, now, bottom - top).T
            step[:] = _fit_middle(right), np.median(down)
        self.motions[TURN].add(stamp, step)
        self._before = now


def _shifts(before: NDArray[np.complex128], after: NDArray[np.complex128], height: int) -> Floats:
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
    """Return the motion in the middle of the picture, by a line to each side; blocks that differ count less."""
    middle = BLOCKS + (BLOCK - ACROSS) / 2
    lines = np.stack([np.ones(len(middle)), np.minimum(middle, 0), np.maximum(middle, 0)], axis=1)
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
        self._step = np.zeros(3)
        """The last motion: m forward, m to the left, rad."""

    def add(self, stamp: int, content: Any) -> None:
        """Add a cloud. Raises MessageError if its data are broken."""
        columns = _columns(content, "x", "y", "z")
        if columns is None:
            return
        x, y, z = columns
        reach = np.hypot(x, y)
        with np.errstate(invalid="ignore"):
            seen = (reach > NEAREST) & (reach < FARTHEST) & (z > -BELOW)
        nearest_first = np.argsort(reach[seen])
        here = np.stack([x[seen], y[seen]], axis=1)[nearest_first]
        _, first = np.unique((_angles(here) / math.tau * BINS).astype(np.int64), return_index=True)
        if len(first) < FEWEST:
            return
        outline = _Outline.of(here[first])
        if self._before is not None:
            self._step = _match(self._before, outline.points, self._step)
        self._before = outline
        self.motions[TURN].add(stamp, self._step[2:].copy())


def _columns(message: Any, *names: str) -> list[Floats] | None:
    """Return fields of the points of a cloud; None if it lacks one. Raises MessageError if its data are broken."""
    points = decode_cloud(b"".join(encode_cloud(message)))
    there = set(names) <= set(points.dtype.names or ())
    return [points[name].astype(np.float64).reshape(len(points), -1)[:, 0] for name in names] if there else None


class _Outline(NamedTuple):
    """Nearest points around a lidar."""

    angles: Floats
    """rad, rising."""
    points: Floats
    """(N, 2), m."""
    normals: Floats
    """(N, 2) of the surface at each; NaN where its neighbours are far."""

    @classmethod
    def of(cls, points: Floats) -> _Outline:
        """Return the outline of points in any order."""
        points = points[np.argsort(_angles(points))]
        along = np.roll(points, -1, axis=0) - np.roll(points, 1, axis=0)
        length = np.linalg.norm(along, axis=1, keepdims=True)
        along[(length > LONGEST_SIDE)[:, 0]] = np.nan
        return cls(_angles(points), points, np.stack([-along[:, 1], along[:, 0]], axis=1) / np.maximum(length, 1e-6))

    def off(self, moved: Floats) -> tuple[Floats, Floats]:
        """Return how far points are from the surface in their direction, m, and its normals, (N, 2)."""
        angle = _angles(moved)
        after = np.searchsorted(self.angles, angle) % len(self.angles)
        nearer = np.abs(self.angles[after] - angle) > np.abs(self.angles[after - 1] - angle)
        place = np.where(nearer, after - 1, after)
        off: Floats = ((moved - self.points[place]) * self.normals[place]).sum(axis=1)
        return off, self.normals[place]


def _angles(points: Floats) -> Floats:
    angles: Floats = np.arctan2(points[:, 1], points[:, 0]) % math.tau
    return angles


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
        columns = _columns(content, "x", "y", "z", "speed") or _columns(content, "x", "y", "z", "doppler")
        if columns is None:
            return
        x, y, z, away = columns
        with np.errstate(invalid="ignore", divide="ignore"):
            rays = np.stack([x, y], axis=1) / np.sqrt(x**2 + y**2 + z**2)[:, None]
            ahead = (rays[:, 0] > 0.5) & np.isfinite(away)
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
        """Add an IMU message."""
        turn = content.angular_velocity
        rate = np.array([turn.x, turn.y, turn.z])
        if np.isfinite(rate).all():
            self.motions[TURN].add_rate(stamp, rate)


class PlaceMotion(SensorMotion):
    """Way driven in m and course in rad, from places and, if there are some, headings."""

    measures = (SPEED, TURN)

    def __init__(self) -> None:
        super().__init__()
        self._fix: Fix | None = None
        self._place: Sequence[float] | None = None
        self._course: float | None = None

    def add(self, stamp: int, content: Any) -> None:
        """Add a NavSatFix; one that the fix before cannot reach does not count."""
        fix, before, east, north = fix_of(content, stamp), self._fix, 0.0, 0.0
        if fix is None or (before is not None and stamp > before.stamp and not reachable(before, fix)):
            return
        if before is not None:
            degree = math.radians(1) * 6_378_137.0
            north = degree * (fix.latitude - before.latitude)
            east = degree * ((fix.longitude - before.longitude + 180) % 360 - 180)
            east *= math.cos(math.radians(fix.latitude))
        self._fix = fix
        way = math.hypot(east, north)
        self.motions[SPEED].add(stamp, np.array([way]))
        past = 0 if before is None else stamp - before.stamp
        rolls = past > 0 and way * 1e9 > ROLLING * past
        # The course of a step is that of its middle.
        self._add_course(stamp - past // 2, math.atan2(north, east) if rolls else None)

    def add_pose(self, stamp: int, place: Sequence[float], turn: tuple[float, float, float, float]) -> None:
        """Add a pose: m, unit quaternion x, y, z, w."""
        way = math.dist(place, self._place) if self._place is not None else 0.0
        self.motions[SPEED].add(stamp, np.array([way]))
        self._place = place
        self._add_course(stamp, math.radians(yaw_pitch_roll(turn)[0]))

    def _add_course(self, stamp: int, course: float | None) -> None:
        before, self._course = self._course, self._course if course is None else course
        turned = 0.0 if course is None or before is None else math.remainder(course - before, math.tau)
        self.motions[TURN].add(stamp, np.array([turned]))
