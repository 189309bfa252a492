# SPDX-License-Identifier: Apache-2.0
"""The formulas of the scene against derivatives, distances on the sphere, and a projection with plain matrices."""

import math

import numpy as np
import pytest

from edgefirst_ros.synthetic import START, Recipe
from edgefirst_ros.synthetic.picture import HOUSES, Painter, find_pixels, make_outline
from edgefirst_ros.synthetic.ranging import WALL, Lidar, Radar
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


@pytest.mark.parametrize("kind", ["plain", "street"])
@pytest.mark.parametrize("time", TIMES)
def test_the_track_goes_where_the_vehicle_heads(time, kind):
    scene = Scene(Recipe(scene=kind))
    lat1, lon1, _ = scene.position(time - SECOND // 20)
    lat2, lon2, _ = scene.position(time + SECOND // 20)
    north = math.radians(lat2 - lat1) * 6_378_137
    east = math.radians(lon2 - lon1) * 6_378_137 * math.cos(math.radians(lat1))
    speed = SPEED if kind == "plain" else scene.motion(time).speed
    assert math.hypot(east, north) * 10 == pytest.approx(speed, rel=0.001)
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
        _, _, speed = thing.measure_from(place)
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


STREET = Recipe(scene="street", objects=0)


@pytest.mark.parametrize("time", TIMES)
def test_turn_rate_and_acceleration_are_derivatives(time):
    scene = Scene(STREET)
    before, after = (scene.motion(time + step) for step in (-SECOND // 1000, SECOND // 1000))
    now = scene.motion(time)
    assert now.turn == pytest.approx((after.yaw - before.yaw) / 0.002, abs=1e-4)
    assert now.acceleration == pytest.approx((after.speed - before.speed) / 0.002, abs=1e-3)


def test_a_street_turns_and_accelerates_and_every_seed_has_its_own():
    for seed in range(4):
        motions = [Scene(Recipe(scene="street", seed=seed)).motion(START + n * SECOND // 10) for n in range(100)]
        assert np.std([one.turn for one in motions]) > 0.05
        assert np.std([one.speed for one in motions]) > 1
    assert Scene(Recipe(scene="street", seed=1)).motion(START) != Scene(STREET).motion(START)


def house_seen(scene, time, place, left):
    """Place in the street of the wall that a ray hits, by `motion` and `cast` alone: it does not move."""
    ahead, houses = scene.street.cast(scene.seconds(time), place, np.array([left]))
    x, y, cosine, sine = scene.street.view(scene.seconds(time), place)
    return ahead[0], x + ahead[0] * (cosine - left * sine), y + ahead[0] * (sine + left * cosine), houses[0]


@pytest.mark.parametrize("left", [-1.0, -0.4, 0.5, 1.2])
def test_houses_stand_and_their_radial_speed_is_the_derivative_of_their_distance(left):
    scene, place, time = Scene(STREET), (2.2, 0.0, 0.6), START + 4 * SECOND
    ahead, along, across, house = house_seen(scene, time, place, left)
    assert house[0] - 1e-6 <= along <= house[1] + 1e-6
    assert house[2] - 1e-6 <= across <= house[3] + 1e-6
    assert min(abs(along - house[0]), abs(along - house[1]), abs(across - house[2]), abs(across - house[3])) < 1e-6
    distances = []
    for step in (-SECOND // 1000, SECOND // 1000):
        x, y, *_ = scene.street.view(scene.seconds(time + step), place)
        distances.append(math.hypot(along - x, across - y))
    (speed,) = scene.measure_still_speed(time, place, np.array([left]))
    assert speed == pytest.approx((distances[1] - distances[0]) / 0.002, abs=1e-3)
    assert ahead > 0


def test_lidar_and_pictures_show_the_same_houses_and_the_radar_too():
    scene, time = Scene(STREET), STREET.stamp("camera", 60)
    points = Lidar(STREET, scene).points(time)
    walls = points[points["reflect"] == WALL]
    picture, colours = Painter(STREET, scene).picture(60), {tuple(colour) for colour in HOUSES.tolist()}
    fx, fy, cx, cy = scene.intrinsics
    seen = []
    for x, y, z, _ in walls.tolist():  # the lidar is 0.6 m before the camera's place, and 0.4 m above it
        depth, height = x - 0.6, z + 1.8
        u, v = (cx - fx * y / depth, cy - fy * (z + 0.4) / depth) if depth > 2 else (-1, -1)
        if 0 <= u < 640 and 0 <= v < 330 and height > 0.2:
            seen.append(tuple(picture[int(v), int(u)].tolist()) in colours)
    assert len(seen) > 300
    assert np.mean(seen) > 0.95  # the others are at an edge, or behind a house that the camera sees before
    targets = Radar(STREET, scene).targets(time)
    assert len(targets) > 10
    for x, y, speed in zip(targets["x"], targets["y"], targets["speed"], strict=True):
        ahead, *_ = house_seen(scene, time, (2.2, 0.0, 0.6), y / x)
        assert ahead == pytest.approx(x, rel=1e-4)
        assert speed < 0  # all are ahead, and come


def test_objects_of_a_street_are_painted_where_the_truth_has_them():
    street = Recipe(scene="street", objects=1)
    scene = Scene(street)
    (thing,) = scene.things(street.stamp("camera", 20))
    left, top, right, bottom = find_pixels(thing, 640, 360)
    truth = np.zeros((360, 640), dtype=bool)
    truth[top:bottom, left:right] = make_outline(thing, 640, 360)
    empty = Painter(STREET, Scene(STREET)).picture(20)
    assert ((Painter(street, scene).picture(20) != empty).any(axis=2) <= truth).all()
    plain = Recipe(objects=1)
    painted = (Painter(plain, Scene(plain)).picture(20) == COLOURS[thing.label]).all(axis=2)
    assert (painted == truth).all()  # the same object in the scene of one colour
