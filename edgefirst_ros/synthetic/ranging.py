# SPDX-License-Identifier: Apache-2.0
"""Radar and lidar of the scene: the cube with its peaks, targets, clusters, and points on the boxes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.synthetic.recipe import Recipe
from edgefirst_ros.synthetic.scene import LIDAR, RADAR, Scene

MAX_RANGE = 51.2
"""Largest range of the cube, m."""
SPEED_SPAN = 32.0
"""Span of the cube's doppler axis, m/s; zero is in the middle."""
PEAK, SIGMA = 12_000.0, 60.0
"""Amplitude of a target in the cube and standard deviation of its noise."""
BEAMS = np.tan(np.radians(np.linspace(-60, 60, 17)))
"""Directions in which the radar sees houses: m to the left a m ahead."""
SHIFTS = 4099
"""Values by which the noise of one cube may begin later than that of another."""
FARTHEST = 80.0
"""Largest range of the lidar on houses, m."""
GROUND, WALL = 10, 60
"""Reflectivity of the ground and of houses; an object has 100 + its number (modulo 100)."""

TARGET = np.dtype([(name, "<f4") for name in ("x", "y", "z", "speed", "power", "rcs")])
CLUSTER = np.dtype([*TARGET.descr, ("cluster_id", "<f4")])
POINT = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("reflect", "u1")])
"""Packed, 13 bytes, as on the device."""


class Radar:
    """The radar of a recipe; its measurements depend on only the time."""

    def __init__(self, recipe: Recipe, scene: Scene) -> None:
        self._scene = scene
        self.shape = recipe.cube_shape
        self._noise: NDArray[np.int16] | None = None
        self._seed = recipe.seed

    @property
    def scales(self) -> tuple[float, float, float, float]:
        """Per dimension of the cube: m a range bin, m/s a doppler bin, 1 elsewhere."""
        _, ranges, _, doppler = self.shape
        return 1.0, MAX_RANGE / ranges, 1.0, SPEED_SPAN / (doppler // 2)

    def bins(self, time: int) -> list[tuple[int, int, float]]:
        """(range bin, complex doppler bin, sine of the azimuth) of each object in reach of the cube."""
        _, ranges, _, doppler = self.shape
        _, per_range, _, per_doppler = self.scales
        found = []
        for thing in self._scene.things(time):
            (_, y, _), distance, speed = thing.measure_from(RADAR)
            at, row = round(distance / per_range), doppler // 4 + round(speed / per_doppler)
            if at < ranges and 0 <= row < doppler // 2:
                found.append((at, row, y / distance))
        return found

    def cube(self, time: int) -> NDArray[np.int16]:
        """[sequence, range, rx, doppler x 2] int16, (real, imaginary) adjacent.

        A target turns its phase by pi sin(azimuth) from receiver to receiver; later sequences are weaker.
        """
        size = math.prod(self.shape)
        if self._noise is None:
            rng = np.random.default_rng([self._seed, 2])
            drawn = rng.standard_normal(size + SHIFTS, dtype=np.float32) * SIGMA
            self._noise = np.rint(drawn).astype(np.int16)
        shift = time // 1_000_000 % SHIFTS
        cube = self._noise[shift : shift + size].reshape(self.shape).copy()
        sequences, _, receivers, _ = self.shape
        for at, row, sine in self.bins(time):
            phases = math.pi * sine * np.arange(receivers)
            for sequence in range(sequences):
                height = PEAK / (sequence + 1)
                cube[sequence, at, :, 2 * row] = np.rint(height * np.cos(phases))
                cube[sequence, at, :, 2 * row + 1] = np.rint(height * np.sin(phases))
        return cube

    def targets(self, time: int) -> NDArray[np.void]:
        """One `TARGET` per object, in the radar's frame: its centre, radial speed in m/s, power in dB, rcs in dBsm.

        In a street also one for each of `BEAMS` that hits a house and no object.
        """
        return np.array([*self._rows(time), *self._houses(time)], dtype=TARGET)

    def _houses(self, time: int) -> list[tuple[float, ...]]:
        street = self._scene.street
        if street is None:
            return []
        ahead, _ = street.cast(self._scene.seconds(time), RADAR, BEAMS)
        speeds = self._scene.measure_still_speed(time, RADAR, BEAMS)
        for thing in self._scene.things(time):
            (x, y, _), *_ = thing.measure_from(RADAR)
            ahead[(ahead > x) & (np.abs(BEAMS * x - y) < thing.size[1] / 2)] = math.inf
        hits = zip(ahead.tolist(), BEAMS.tolist(), speeds.tolist(), strict=True)
        return [(x, x * left, 0.0, speed, 40.0, 5.0) for x, left, speed in hits if x < MAX_RANGE]

    def clusters(self, time: int) -> NDArray[np.void]:
        """As targets, with the number of the object from 1 as `cluster_id`: `CLUSTER`."""
        numbers = [thing.number for thing in self._scene.things(time)]
        rows = [(*row, number + 1) for row, number in zip(self._rows(time), numbers, strict=True)]
        return np.array(rows, dtype=CLUSTER)

    def _rows(self, time: int) -> list[tuple[float, ...]]:
        rows: list[tuple[float, ...]] = []
        for thing in self._scene.things(time):
            place, distance, speed = thing.measure_from(RADAR)
            rows.append((*place, speed, 90 - 40 * math.log10(distance), 10.0 if thing.label == "car" else -3.0))
        return rows


class Lidar:
    """The lidar of a recipe: half of the points on the faces of the objects towards it, half on the ground."""

    def __init__(self, recipe: Recipe, scene: Scene) -> None:
        self._scene = scene
        rng = np.random.default_rng([recipe.seed, 3])
        self._spread = rng.random((recipe.lidar_points, 2), dtype=np.float32)

    def points(self, time: int) -> NDArray[np.void]:
        """`POINT`s in the lidar's frame, m."""
        spread = self._spread
        points = np.empty(len(spread), dtype=POINT)
        angle, distance = (spread[:, 0] - 0.5) * math.pi, 3 + 47 * spread[:, 1] ** 2
        points["x"], points["y"] = distance * np.cos(angle), distance * np.sin(angle)
        points["z"], points["reflect"] = -LIDAR[2], GROUND
        if self._scene.street is not None:
            ahead, houses = self._scene.street.cast(self._scene.seconds(time), LIDAR, np.tan(angle.astype(np.float64)))
            hit = ahead < np.where(spread[:, 1] < 0.5, points["x"], FARTHEST)  # half of the beams point up
            points["x"], points["y"] = np.where(hit, (ahead, ahead * np.tan(angle)), (points["x"], points["y"]))
            points["z"] += np.where(hit, houses[:, 4] * spread[:, 1], 0)
            points["reflect"][hit] = WALL
        things = [thing for thing in self._scene.things(time) if thing.centre[0] - thing.size[0] / 2 > LIDAR[0]]
        share = len(spread) // (2 * len(things)) if things else 0
        for place, thing in enumerate(things):
            part = slice(place * share, (place + 1) * share)
            (x, y, z), _, _ = thing.measure_from(LIDAR)
            points["x"][part] = x - thing.size[0] / 2
            points["y"][part] = y + (spread[part, 0] - 0.5) * thing.size[1]
            points["z"][part] = z + (spread[part, 1] - 0.5) * thing.size[2]
            points["reflect"][part] = 100 + thing.number % 100
        return points
