# SPDX-License-Identifier: Apache-2.0
"""The formulas of the scene against derivatives, distances on the sphere, and a projection with plain matrices."""

import math

import numpy as np
import pytest

from edgefirst_ros.synthetic import START, Recipe
from edgefirst_ros.synthetic.picture import Painter
from edgefirst_ros.synthetic.scene import COLOURS, SPEED, TRANSFORMS, Scene

SECOND = 10**9
TIMES = [START + int(s * SECOND) for s in (0, 0.7, 3.3, 61.2)]


def rotation(x, y, z, w):
    """Matrix of a quaternion (Hamilton)."""
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


@pytest.mark.parametrize("time", TIMES)
def test_the_track_goes_where_the_vehicle_heads(time):
    scene = Scene(Recipe())
    lat1, lon1, _ = scene.position(time - SECOND // 20)
    lat2, lon2, _ = scene.position(time + SECOND // 20)
    north = math.radians(lat2 - lat1) * 6_378_137
    east = math.radians(lon2 - lon1) * 6_378_137 * math.cos(math.radians(lat1))
    assert math.hypot(east, north) * 10 == pytest.approx(SPEED, rel=0.001)
    forward = rotation(*scene.orientation(time)) @ [1, 0, 0]
    assert math.remainder(math.atan2(north, east) - math.atan2(forward[1], forward[0]), math.tau) == pytest.approx(
        0, abs=1e-3
    )
    assert np.linalg.norm(scene.orientation(time)) == pytest.approx(1)


def test_the_track_starts_where_the_recipe_says_and_crosses_the_antimeridian():
    scene = Scene(Recipe(position=(-17.0, 179.9999, 5.0), heading=0.0))
    assert scene.position(START) == pytest.approx((-17.0, 179.9999, 5.0), abs=1e-9)
    longitudes = [scene.position(START + s * SECOND)[1] for s in range(4)]
    assert longitudes[0] > 179.99
    assert longitudes[-1] < -179.99


@pytest.mark.parametrize("time", TIMES)
def test_velocity_is_the_derivative_of_place_and_of_distance(time):
    scene = Scene(Recipe(objects=6))
    step = SECOND // 1000
    before, now, after = ({thing.number: thing for thing in scene.things(t)} for t in (time - step, time, time + step))
    assert len(now) == 6
    for number, thing in now.items():
        moved = np.subtract(after[number].centre, before[number].centre) / 0.002
        assert np.allclose(moved, thing.velocity, atol=1e-4)
        place = (2.2, 0.0, 0.6)
        _, _, speed = thing.seen_from(place)
        distances = [math.dist(t[number].centre, place) for t in (before, after)]
        assert speed == pytest.approx((distances[1] - distances[0]) / 0.002, abs=1e-4)


@pytest.mark.parametrize("time", TIMES)
def test_boxes_are_the_corners_through_the_camera(time):
    """All eight corners through tf and the pinhole, with matrices."""
    scene = Scene(Recipe(size=(1280, 720), objects=6))
    camera = next(t for t in TRANSFORMS if t.child == "camera_optical")
    fx, fy, cx, cy = scene.intrinsics
    seen = 0
    for thing in scene.things(time):
        signs = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]) / 2
        corners = np.array(thing.centre) + signs * thing.size
        optical = (corners - camera.translation) @ rotation(*camera.rotation)
        u, v = fx * optical[:, 0] / optical[:, 2] + cx, fy * optical[:, 1] / optical[:, 2] + cy
        left, right = np.clip([u.min(), u.max()], 0, 1280)
        top, bottom = np.clip([v.min(), v.max()], 0, 720)
        if thing.box2d is None:
            assert right - left < 5 or bottom - top < 5
            continue
        x, y, w, h = thing.box2d
        got = [(x - w / 2) * 1280, (x + w / 2) * 1280, (y - h / 2) * 720, (y + h / 2) * 720]
        assert got == pytest.approx([left, right, top, bottom], abs=0.51)
        seen += 1
    assert seen >= 3


def test_what_is_nearer_than_a_metre_has_no_box():
    """A cube of a metre before the camera, which is 1.6 m ahead of base_link and 1.4 m above it."""
    scene = Scene(Recipe(size=(640, 360)))
    fx, fy, cx, cy = scene.intrinsics
    assert scene.project((1.6 + 0.99 + 0.5, 0.0, 1.4), (1.0, 1.0, 1.0)) is None
    x, y, width, height = scene.project((1.6 + 4.0 + 0.5, 0.0, 1.4), (1.0, 1.0, 1.0))
    assert (x * 640, y * 360) == pytest.approx((cx, cy), abs=0.51)
    assert (width * 640, height * 360) == pytest.approx((fx / 4, fy / 4), abs=1.01)
    assert scene.project((1.6 + 1.01 + 0.5, 0.0, 1.4), (1.0, 1.0, 1.0)) is not None


def test_pictures_show_the_boxes_in_their_colours():
    recipe = Recipe(objects=1)
    scene = Scene(recipe)
    painter = Painter(recipe, scene)
    for index in (0, 20, 90):
        thing = scene.things(recipe.stamp("camera", index))[0]
        painted = (painter.picture(index) == COLOURS[thing.label]).all(axis=2)
        rows, columns = np.nonzero(painted)
        x, y, w, h = thing.box2d
        assert (columns.min(), columns.max() + 1) == pytest.approx(((x - w / 2) * 640, (x + w / 2) * 640))
        assert (rows.min(), rows.max() + 1) == pytest.approx(((y - h / 2) * 360, (y + h / 2) * 360))
        assert 0.6 < painted.sum() / (w * 640 * h * 360) < 0.8  # half, and 0.4 of the other half


def test_noise_has_the_deviation_asked_for_and_does_not_stand_still():
    quiet, loud = (Recipe(noise=noise, objects=0) for noise in (0.0, 5.0))
    plain = Painter(quiet, Scene(quiet)).picture(3).astype(int)
    painter = Painter(loud, Scene(loud))
    first, second = (painter.picture(index).astype(int)[:300] for index in (3, 4))
    assert (first - plain[:300]).std() == pytest.approx(5, rel=0.02)
    assert np.corrcoef((first - plain[:300]).ravel(), (second - plain[:300]).ravel())[0, 1] < 0.05
