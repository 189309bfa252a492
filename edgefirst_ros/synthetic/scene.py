# SPDX-License-Identifier: Apache-2.0
"""The scene all sensors of a synthetic recording see: moving boxes around a vehicle on a curve, as formulas of time.

Frames: `base_link` is x forward, y left, z up, on the ground; `camera_optical` x right, y down, z forward.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.synthetic.recipe import SECOND, Recipe
from edgefirst_ros.synthetic.street import Street, VehicleMotion

LABELS = ("background", "car", "person")
COLOURS = {"car": (60, 90, 200), "person": (205, 95, 60)}
SIZES = {"car": (4.4, 1.8, 1.5), "person": (0.6, 0.6, 1.75)}
"""Length, width, height in m."""
SPEED, RADIUS = 10.0, 200.0
"""Speed of the vehicle, m/s, and radius of its curve, m."""
METRES_PER_DEGREE = math.pi / 180 * 6_378_137.0
CAMERA, RADAR, LIDAR = (1.6, 0.0, 1.4), (2.2, 0.0, 0.6), (1.0, 0.0, 1.8)
"""Places of the sensors in base_link, m."""


@dataclass(frozen=True)
class Transform:
    """A static transform: translation in m, rotation as quaternion x, y, z, w."""

    parent: str
    child: str
    translation: tuple[float, float, float]
    rotation: tuple[float, float, float, float]


TRANSFORMS = (
    Transform("base_link", "camera_optical", CAMERA, (-0.5, 0.5, -0.5, 0.5)),
    Transform("base_link", "radar", RADAR, (0.0, 0.0, 0.0, 1.0)),
    Transform("base_link", "lidar", LIDAR, (0.0, 0.0, 0.0, 1.0)),
)


@dataclass(frozen=True)
class Thing:
    """One object at one time, in base_link: centre in m, velocity relative to the vehicle in m/s, size in m."""

    number: int
    label: str
    track: str
    centre: tuple[float, float, float]
    velocity: tuple[float, float, float]
    size: tuple[float, float, float]
    box2d: tuple[float, float, float, float] | None
    """Centre x, y, width, height in the picture, normalised, as drawn; None outside it."""

    @property
    def label_index(self) -> int:
        """Position in `LABELS`."""
        return LABELS.index(self.label)

    def measure_from(self, place: tuple[float, float, float]) -> tuple[tuple[float, float, float], float, float]:
        """From a sensor at `place`: centre relative to it (m), distance (m), radial speed (m/s, away is positive)."""
        x, y, z = (a - b for a, b in zip(self.centre, place, strict=True))
        distance = math.sqrt(x * x + y * y + z * z)
        along, left, up = self.velocity
        radial = (x * along + y * left + z * up) / distance
        return (x, y, z), distance, radial


class Scene:
    """The scene of a recipe; all times are true ns since the epoch."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        rng = np.random.default_rng(recipe.seed)
        self._paths = [_Path(number, rng) for number in range(recipe.objects)]
        self.street = Street(recipe.seed) if recipe.scene == "street" else None
        """None in the plain scene."""

    @property
    def intrinsics(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy of the pinhole camera in pixels."""
        width, height = self.recipe.size
        return 0.8 * width, 0.8 * width, width / 2, height / 2

    def yaw(self, time: int) -> float:
        """Return the heading of the vehicle, rad, counter-clockwise from east, not wrapped."""
        return self.recipe.heading + self.motion(time).yaw

    def motion(self, time: int) -> VehicleMotion:
        """Return the motion since the start: m along the first heading and to its left, and how fast it changes."""
        if self.street is not None:
            return self.street.motion(self.seconds(time))
        yaw = self.seconds(time) * SPEED / RADIUS
        return VehicleMotion(RADIUS * math.sin(yaw), RADIUS * (1 - math.cos(yaw)), yaw, SPEED, SPEED / RADIUS, 0.0)

    def measure_still_speed(
        self, time: int, place: tuple[float, float, float], left: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the radial speed (m/s, away is positive) of standing things seen from a sensor at `place`.

        `left`: m to the left of each, a m ahead of the sensor and at its height.
        """
        motion = self.motion(time)
        along, across = motion.speed - motion.turn * place[1], motion.turn * place[0]
        speed: NDArray[np.float64] = -(along + left * across) / np.hypot(1.0, left)
        return speed

    def position(self, time: int) -> tuple[float, float, float]:
        """Latitude and longitude (-180 up to, not including, 180) in degrees, altitude in m."""
        latitude, longitude, altitude = self.recipe.position
        before, now, motion = self.recipe.heading, self.yaw(time), self.motion(time)
        if self.street is None:
            east = RADIUS * (math.sin(now) - math.sin(before))
            north = RADIUS * (math.cos(before) - math.cos(now))
        else:
            east = motion.along * math.cos(before) - motion.across * math.sin(before)
            north = motion.along * math.sin(before) + motion.across * math.cos(before)
        longitude += east / (METRES_PER_DEGREE * math.cos(math.radians(latitude)))
        climb = 2.0 * math.sin(self.seconds(time) / 20)
        return latitude + north / METRES_PER_DEGREE, (longitude + 180) % 360 - 180, altitude + climb

    def orientation(self, time: int) -> tuple[float, float, float, float]:
        """Quaternion x, y, z, w of the vehicle (from roll 2 degrees and pitch 1 degree of sway, and the yaw)."""
        seconds = self.seconds(time)
        roll, pitch = math.radians(2 * math.sin(seconds)), math.radians(math.sin(0.7 * seconds))
        (sr, cr), (sp, cp), (sy, cy) = (
            (math.sin(a / 2), math.cos(a / 2)) for a in (roll, pitch, math.remainder(self.yaw(time), math.tau))
        )
        return (
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
            cr * cp * cy + sr * sp * sy,
        )

    def things(self, time: int) -> list[Thing]:
        """Every object, nearest last (as painted)."""
        found = [path.at(self.seconds(time), self) for path in self._paths]
        return sorted(found, key=lambda thing: -thing.centre[0])

    def project(
        self, centre: tuple[float, float, float], size: tuple[float, float, float]
    ) -> tuple[float, float, float, float] | None:
        """Bounding box (centre x, y, width, height, normalised) of a box in base_link, cut to whole pixels in view."""
        width, height = self.recipe.size
        fx, fy, cx, cy = self.intrinsics
        near = centre[0] - size[0] / 2 - CAMERA[0]
        if near < 1.0:
            return None
        far = near + size[0]
        rights = [-(centre[1] + side * size[1] / 2 - CAMERA[1]) / depth for side in (-1, 1) for depth in (near, far)]
        downs = [-(centre[2] + side * size[2] / 2 - CAMERA[2]) / depth for side in (-1, 1) for depth in (near, far)]
        left, right = (min(max(round(fx * u + cx), 0), width) for u in (min(rights), max(rights)))
        top, bottom = (min(max(round(fy * v + cy), 0), height) for v in (min(downs), max(downs)))
        if right - left < 4 or bottom - top < 4:
            return None
        return (left + right) / 2 / width, (top + bottom) / 2 / height, (right - left) / width, (bottom - top) / height

    def seconds(self, time: int) -> float:
        """Return the time after the start, s."""
        return (time - self.recipe.start) / SECOND


class _Path:
    """The way of one object: it swings about a mean place, cars along the road, people across it."""

    def __init__(self, number: int, rng: np.random.Generator) -> None:
        self.number = number
        self.label = LABELS[1 + number % 2]
        self.uuid = str(uuid.UUID(bytes=rng.bytes(16), version=4))
        self.mean = (16.0 + 4.0 * (number % 5) + rng.uniform(-1, 1), (-3.5, 3.0, 6.5, -7.0)[number % 4])
        self.swing = (5.0, 0.3) if self.label == "car" else (0.5, 1.5)
        self.rate = rng.uniform(0.4, 0.9)
        self.phase = rng.uniform(0, math.tau)

    def at(self, seconds: float, scene: Scene) -> Thing:
        """Return the object at a time after the start."""
        angle = self.rate * seconds + self.phase
        size = SIZES[self.label]
        x, y = (mean + swing * math.sin(angle) for mean, swing in zip(self.mean, self.swing, strict=True))
        vx, vy = (swing * self.rate * math.cos(angle) for swing in self.swing)
        centre = (x, y, size[2] / 2)
        tracks = self.uuid, str(self.number), ""
        return Thing(
            self.number, self.label, tracks[self.number % 3], centre, (vx, vy, 0.0), size, scene.project(centre, size)
        )
