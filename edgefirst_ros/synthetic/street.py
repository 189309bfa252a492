# SPDX-License-Identifier: Apache-2.0
"""A street that all sensors see: a way that turns and accelerates, and houses along it, as formulas of time.

Road frame: x along the street, y to the left of its middle, z up, m.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SPEED = 10.0
"""Mean speed along the street, m/s."""
SWINGS = (2.0, 1.2), (0.5, 0.35)
"""m/s by which the speeds along and across the street swing, each slowly and faster."""
RATES = ((0.5, 0.9), (1.2, 1.8)), ((1.5, 2.2), (3.0, 4.2))
"""rad/s between which these swings are."""
LOT, BEFORE, AFTER = 9.0, 2, 9
"""m of street for each house, and the lots that are seen, back and ahead."""

Floats = NDArray[np.float64]


class VehicleMotion(NamedTuple):
    """Motion of the vehicle since the start."""

    along: float
    """m from the start, along its first heading in the plain scene, and along the street."""
    across: float
    """m to the left."""
    yaw: float
    """rad, counter-clockwise from the street."""
    speed: float
    """m/s."""
    turn: float
    """rad/s."""
    acceleration: float
    """m/s^2, forward."""


class Street:
    """The street of a seed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 4])
        self._rates = np.array([[rng.uniform(*between) for between in axis] for axis in RATES])
        self._phases = rng.uniform(0, math.tau, (2, 2))
        self._middle = float((np.array(SWINGS[1]) / self._rates[1] * np.sin(self._phases[1])).sum())
        """m to the left of the middle of the street at the start."""
        self._seed = seed
        self.house = functools.lru_cache(256)(self._build)

    def motion(self, seconds: float) -> VehicleMotion:
        """Return the motion at a time after the start."""
        swing, angles = np.array(SWINGS), self._rates * seconds + self._phases
        faster, left = (swing * np.cos(angles)).sum(axis=1).tolist()
        ax, ay = (-swing * self._rates * np.sin(angles)).sum(axis=1).tolist()
        ahead, across = (swing / self._rates * (np.sin(angles) - np.sin(self._phases))).sum(axis=1).tolist()
        vx, vy = SPEED + faster, left
        speed = math.hypot(vx, vy)
        turn, acceleration = (vx * ay - vy * ax) / speed**2, (vx * ax + vy * ay) / speed
        return VehicleMotion(SPEED * seconds + ahead, across, math.atan2(vy, vx), speed, turn, acceleration)

    def _build(self, lot: int, side: int) -> tuple[float, ...]:
        """Return a house: from and to along the street, from and to across it, m; height, m; shade, 0 to 1."""
        rng = np.random.default_rng([self._seed, 5, lot + 10**6, side + 1])
        width, near, deep, height, shade, place = rng.random(6)
        begin, front = LOT * (lot + 0.3 * place), 11 + 4 * near
        across = sorted((side * front, side * (front + 4 + 4 * deep)))
        return begin, begin + LOT * (0.35 + 0.35 * width), *across, 3 + 6 * height, shade

    def view(self, seconds: float, place: tuple[float, ...]) -> tuple[float, float, float, float]:
        """Return where a sensor at a place in base_link is, m along and across, and cosine and sine of its yaw."""
        motion = self.motion(seconds)
        cosine, sine = math.cos(motion.yaw), math.sin(motion.yaw)
        x = motion.along + place[0] * cosine - place[1] * sine
        y = motion.across + self._middle + place[0] * sine + place[1] * cosine
        return x, y, cosine, sine

    def cast(self, seconds: float, place: tuple[float, ...], left: Floats) -> tuple[Floats, Floats]:
        """Return how far ahead rays from a sensor hit houses, and the houses.

        Args:
            seconds: After the start.
            place: Place of the sensor in base_link, m.
            left: Slope of each ray: m to the left for each m ahead, in base_link.

        Returns:
            m ahead, infinite without a house; (rays, 6) the houses as `house` has them.
        """
        x, y, cosine, sine = self.view(seconds, place)
        lot = math.floor(x / LOT)
        houses = np.array([self.house(n, side) for n in range(lot - BEFORE, lot + AFTER) for side in (-1, 1)])
        along, across = cosine - left * sine, sine + left * cosine
        enter, leave = np.zeros((len(left), len(houses))), np.full((len(left), len(houses)), math.inf)
        for axis, (start, step) in enumerate(((x, along), (y, across))):
            near, far = ((houses[:, 2 * axis + end] - start) / step[:, None] for end in (0, 1))
            np.maximum(enter, np.minimum(near, far), out=enter)
            np.minimum(leave, np.maximum(near, far), out=leave)
        enter[(enter <= 0) | (enter >= leave)] = math.inf
        first = enter.argmin(axis=1)
        return enter[np.arange(len(left)), first], houses[first]
