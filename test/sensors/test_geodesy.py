# SPDX-License-Identifier: Apache-2.0
"""Places and turns against published values and other libraries."""

import math

import numpy as np
import pytest

from edgefirst_ros.sensors.transforms import (
    convert_to_ecef,
    convert_to_geodetic,
    interpolate_poses,
    invert_poses,
    make_pose,
    make_rotation,
    make_world_to_ecef,
)

PLACES = [(45.5, -73.6, 30.0), (-33.9, 151.2, -12.0), (89.9999, 17.0, 4000.0), (0.0, -179.9999, 8848.0)]
LEIDEN = (53 + 48 / 60 + 33.820 / 3600, 2 + 7 / 60 + 46.380 / 3600, 73.0), (3771793.968, 140253.342, 5124304.349)
"""EPSG guidance note 7-2, the example of method 9602 (geographic to geocentric, WGS 84)."""


def test_published_place():
    place, metres = LEIDEN
    assert convert_to_ecef(*place) == pytest.approx(metres, abs=1e-3)
    assert convert_to_geodetic(metres)[:2] == pytest.approx(place[:2], abs=1e-8)
    assert convert_to_geodetic(metres)[2] == pytest.approx(place[2], abs=1e-3)


def test_axes_of_the_ellipsoid():
    """Both are in the definition of WGS-84."""
    assert convert_to_ecef(0, 0, 0) == pytest.approx((6378137.0, 0, 0), abs=1e-6)
    assert convert_to_ecef(90, 0, 0) == pytest.approx((0, 0, 6356752.314245), abs=1e-5)
    assert convert_to_ecef([0, 90], [90, 0], [1, 1]).shape == (2, 3)


@pytest.mark.parametrize("place", PLACES)
def test_places_are_those_of_another_library(place):
    pymap3d = pytest.importorskip("pymap3d")
    assert convert_to_ecef(*place) == pytest.approx(pymap3d.geodetic2ecef(*place), abs=1e-6)
    assert convert_to_geodetic(convert_to_ecef(*place)) == pytest.approx(place, abs=1e-8)
    near = (place[0] - 0.001, place[1] + 0.0001, place[2] + 5)
    there = invert_poses(make_world_to_ecef(*place)) @ [*convert_to_ecef(*near), 1]
    assert there[:3] == pytest.approx(pymap3d.geodetic2enu(*near, *place), abs=1e-6)


def test_the_world_is_east_north_up():
    east, north, up = make_world_to_ecef(0, 0, 0)[:3, :3].T  # where Africa's west meets the equator: y is east, z north
    assert east == pytest.approx((0, 1, 0))
    assert north == pytest.approx((0, 0, 1))
    assert up == pytest.approx((1, 0, 0))


def test_several_worlds_are_those_of_each_place():
    assert np.array_equal(make_world_to_ecef(*np.transpose(PLACES)), [make_world_to_ecef(*place) for place in PLACES])


def test_quaternions():
    quarter = math.sqrt(0.5)
    assert make_rotation([0, 0, quarter, quarter]) @ [1, 0, 0] == pytest.approx((0, 1, 0))  # about z: x to y
    assert make_rotation([quarter, 0, 0, quarter]) @ [0, 1, 0] == pytest.approx((0, 0, 1))
    assert make_rotation([0, 5, 0, 5]) @ [0, 0, 1] == pytest.approx((1, 0, 0))  # of any length
    assert make_rotation([[0, 0, 0, 1]] * 3) == pytest.approx(np.tile(np.eye(3), (3, 1, 1)))


def test_quaternions_are_those_of_another_library():
    transforms3d = pytest.importorskip("transforms3d")
    for x, y, z, w in np.random.default_rng(1).normal(size=(20, 4)):
        assert make_rotation([x, y, z, w]) == pytest.approx(transforms3d.quaternions.quat2mat([w, x, y, z]))


def test_inverse_leads_back():
    poses = make_pose(make_rotation([[0.1, 0.2, 0.3, 0.9], [0, 0, 1, 0]]), [[1, 2, 3], [4, 5, 6]])
    assert invert_poses(poses) @ poses == pytest.approx(np.tile(np.eye(4), (2, 1, 1)), abs=1e-12)
    assert invert_poses(make_pose(np.eye(3), (1, 2, 3)))[:3, 3] == pytest.approx((-1, -2, -3))


def turned(degrees, x=0.0):
    half = math.radians(degrees) / 2
    return make_pose(make_rotation([0, 0, math.sin(half), math.cos(half)]), [x, 0, 0])


def test_poses_between_others():
    poses = np.stack([turned(0), turned(90, 9.0), turned(90, 9.0), turned(60, 0.0)])
    stamps = np.array([0, 1, 2, 3]) * 10**9
    times = np.array([0, 1 / 3, 1, 1.5, 2.5, 3, 3.5, -0.5]) * 1e9
    found = interpolate_poses(poses, stamps, times.astype(np.int64))
    ways = [(0, 0), (30, 3), (90, 9), (90, 9), (75, 4.5), (60, 0), (45, -4.5), (-45, -4.5)]
    assert found == pytest.approx(np.stack([turned(*way) for way in ways]), abs=1e-6)


def test_nothing_is_put_between_poses_far_apart():
    poses, stamps = np.stack([turned(0), turned(90, 9.0)]), np.array([0, 3 * 10**9])
    found = interpolate_poses(poses, stamps, np.array([10**9, 2 * 10**9]))
    assert found == pytest.approx(poses)
    assert interpolate_poses(poses[:1], stamps[:1], np.array([5, 7])) == pytest.approx(poses[[0, 0]])


def test_half_a_turn_is_no_division_by_zero():
    found = interpolate_poses(np.stack([turned(0), turned(180)]), np.array([0, 2]), np.array([0, 2]))
    assert np.isfinite(found).all()
    assert found[0] == pytest.approx(np.eye(4))
