# SPDX-License-Identifier: Apache-2.0
"""The turn of a lidar between two scans of walls that are known exactly."""

import math

import numpy as np
import pytest
from edgefirst.schemas import sensor_msgs

from edgefirst_ros.sensors.motion import TURN, ScanMotion
from edgefirst_ros.synthetic.messages import make_cloud

RAYS = 720
PLACES = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4")])


def draw_teeth(number, inner, outer):
    """Return the corners of a wall of teeth around the origin, (2 * number, 2), m."""
    step = np.arange(2 * number)
    reach = np.where(step % 2, outer, inner) + np.random.default_rng(0).uniform(-0.5, 0.5, 2 * number)
    return reach[:, None] * np.stack([np.cos(math.pi * step / number), np.sin(math.pi * step / number)], axis=1)


def scan(corners, x, y, yaw):
    """Return the cloud that a lidar at a pose measures: each ray up to the nearest wall, by Cramer's rule."""
    angle = (np.arange(RAYS) + 0.5) / RAYS * math.tau
    ray = np.stack([np.cos(angle + yaw), np.sin(angle + yaw)], axis=1)[:, None]
    first = corners - [x, y]
    side = np.roll(first, -1, axis=0) - first
    det = ray[..., 1] * side[:, 0] - ray[..., 0] * side[:, 1]
    reach = (first[:, 1] * side[:, 0] - first[:, 0] * side[:, 1]) / det
    along = (ray[..., 0] * first[:, 1] - ray[..., 1] * first[:, 0]) / det
    reach = np.where((reach > 0) & (along >= 0) & (along <= 1), reach, np.inf).min(axis=1)
    points = np.zeros(RAYS, PLACES)
    points["x"], points["y"] = reach * np.cos(angle), reach * np.sin(angle)
    return sensor_msgs.PointCloud2.from_cdr(make_cloud(points, "lidar", 0))


@pytest.mark.parametrize("teeth", [(40, 10, 14), (60, 10, 12)])
def test_a_point_is_compared_with_the_nearest_direction_of_the_scan_before(teeth):
    """Corners are a few directions apart, so a neighbour of the nearest one is often on another side of a tooth."""
    corners, motion = draw_teeth(*teeth), ScanMotion()
    motion.add(0, scan(corners, 0, 0, 0))
    motion.add(10**8, scan(corners, 0.3, 0, 0.02))
    assert motion.motions[TURN].totals[:, 0].tolist() == [0, pytest.approx(0.02, abs=1e-4)]
