# SPDX-License-Identifier: Apache-2.0
"""Points as pixels: by OpenCV, and by the scene that all sensors of a synthetic drive see."""

import cv2
import numpy as np
import pytest

from edgefirst_ros.dataset.schema import SequenceCalibration
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.report.projection import NotProjectableError, make_projector, project
from edgefirst_ros.sensors.lens import Straightener
from edgefirst_ros.sensors.transforms import chain_frames
from edgefirst_ros.synthetic import START, Recipe, Truth
from edgefirst_ros.synthetic.picture import Painter
from edgefirst_ros.synthetic.ranging import Lidar, Radar
from edgefirst_ros.synthetic.scene import CAMERA, LIDAR, TRANSFORMS, Scene

K = np.array([[512.3, 0, 321.7], [0, 498.1, 178.2], [0, 0, 1]])
LENSES = {
    "plumb_bob": [-0.31, 0.11, 0.0012, -0.0007, -0.018],
    "rational_polynomial": [0.41, -0.13, 0.0009, 0.0004, 0.007, 0.72, -0.09, 0.021],
    "equidistant": [-0.021, 0.0083, -0.0041, 0.0006],
    "fisheye": [0.013, -0.0051, 0.0018, -0.0003],
    "none": [],
    "": [0.0, 0.0],
}
TURN = np.array([0.13, -0.42, 0.27, 0.86]) / np.linalg.norm([0.13, -0.42, 0.27, 0.86])


def plain(transform):
    return {
        "parent": transform.parent,
        "child": transform.child,
        "translation": list(transform.translation),
        "rotation": list(transform.rotation),
    }


def calibration(model="plumb_bob", d=(0.0,) * 5, k=K, size=(640, 360), transforms=None, frame="camera_optical"):
    info = {
        "frame_id": frame,
        "width": size[0],
        "height": size[1],
        "distortion_model": model,
        "d": list(d),
        "k": np.ravel(k).tolist(),
        "r": np.eye(3).ravel().tolist(),
        "p": np.eye(3, 4).ravel().tolist(),
    }
    return SequenceCalibration(info, transforms or [plain(one) for one in TRANSFORMS], "given")


def opencv(rays, model, d, k=K):
    """Pixels of points in the optical frame."""
    still = np.zeros(3)
    if model in ("equidistant", "fisheye"):
        return cv2.fisheye.projectPoints(rays.reshape(-1, 1, 3), still, still, k, np.array(d))[0].reshape(-1, 2)
    return cv2.projectPoints(rays, still, still, k, np.array(d) if any(d) else None)[0].reshape(-1, 2)


@pytest.mark.parametrize("model", LENSES)
def test_opencv_projects_to_the_same_pixels(model):
    rng = np.random.default_rng(7)
    depth = rng.uniform(2, 60, 3000)
    # In the lidar's frame, up to 40 degrees aside, and seen by a camera that is turned and shifted against it.
    points = np.column_stack([depth, depth * rng.uniform(-0.8, 0.8, 3000), depth * rng.uniform(-0.5, 0.5, 3000)])
    tilt = (-0.47, 0.53, -0.49, 0.51)
    mounting = [
        {"parent": "base_link", "child": "camera_optical", "translation": [1.6, -0.2, 1.4], "rotation": list(tilt)},
        {"parent": "base_link", "child": "rack", "translation": [0.3, 0.1, 1.1], "rotation": [0.02, -0.01, 0.1, 0.99]},
        {"parent": "rack", "child": "lidar", "translation": [0.5, 0.4, 0.6], "rotation": [-0.01, 0.03, -0.2, 0.98]},
    ]
    given = calibration(model, LENSES[model], transforms=mounting)
    found = project(points, "lidar.pcd", given)
    # The chain by hand, with OpenCV's own rotation of the quaternion's axis and angle.
    world = points
    for step in (mounting[2], mounting[1]):
        turn = cv2.Rodrigues(axis_angle(step["rotation"]))[0]
        world = world @ turn.T + step["translation"]
    rays = (world - mounting[0]["translation"]) @ cv2.Rodrigues(axis_angle(tilt))[0]
    expected = opencv(rays, model, LENSES[model])
    front = rays[:, 2] > 0.01
    error = np.abs(found.pixels - expected)[front]
    print(f"{model or 'no name'}: largest difference to OpenCV {error.max():.2e} px over {front.sum()} points")
    assert error.max() < 1e-6
    inside = front & ((expected >= -0.5) & (expected < np.array([640, 360]) - 0.5)).all(1)
    assert inside.sum() > 500
    assert set(np.flatnonzero(found.mask)) <= set(np.flatnonzero(inside))
    assert found.mask.sum() > 0.9 * inside.sum()
    assert np.isnan(found.pixels[rays[:, 2] <= 0]).all()


def axis_angle(quaternion):
    x, y, z, w = np.array(quaternion) / np.linalg.norm(quaternion)
    sine = np.linalg.norm([x, y, z])
    return np.array([x, y, z]) / max(sine, 1e-12) * 2 * np.arctan2(sine, w)


def test_rays_that_fold_back_are_not_to_be_seen():
    given = calibration("plumb_bob", (-0.35, 0.0, 0, 0, 0), size=(2000, 360))
    edge = np.sqrt(1 / (3 * 0.35))  # where d(r - 0.35 r^3)/dr is 0, by hand
    points = np.array([[10, 0, 0], [10, -9.9 * edge, 0], [10, -10.1 * edge, 0], [10, -10 / np.sqrt(0.35), 0]])
    points = points + np.array(CAMERA) - np.array(LIDAR)
    found = project(points, "lidar", given)
    assert found.pixels[3, 0] == pytest.approx(K[0, 2])  # the distortion would put it back into the middle
    assert found.mask.tolist() == [True, True, False, False]


def test_straightened_pictures_are_black_where_rays_fold_back():
    """r - 0.3 r^3 is largest at r = 1 / sqrt(0.9), which are 21.08 pixels of a focal length of 20."""
    info = {"k": [20, 0, 50, 0, 20, 50, 0, 0, 1], "distortion_model": "plumb_bob", "d": [-0.3, 0, 0, 0, 0]}
    found = Straightener(info).straighten(np.full((101, 101, 3), 200, np.uint8))[..., 0]
    y, x = np.mgrid[:101, :101]
    away = np.hypot(x - 50, y - 50)
    assert set(found[away < 20.9].tolist()) == {200}
    assert set(found[away > 21.2].tolist()) == {0}


# ---- the scene ---------------------------------------------------------------------------------
def scene(**options):
    recipe = Recipe(seconds=2, size=(640, 360), **options)
    scene = Scene(recipe)
    return Truth(None, recipe, scene, Painter(recipe, scene), Radar(recipe, scene), Lidar(recipe, scene), {})


def corners(thing):
    """(8, 3) corners of an object in base_link."""
    signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
    return np.array(thing.centre) + signs * np.array(thing.size) / 2


def moved(points, placed):
    """Points of base_link in the frame of a sensor placed by a transform."""
    turn = cv2.Rodrigues(axis_angle(placed["rotation"]))[0]
    return (points - placed["translation"]) @ turn


@pytest.mark.parametrize(
    ("lens", "mounting"),
    [("none", "as built"), *((lens, "turned and shifted") for lens in LENSES if lens)],
)
def test_targets_and_returns_of_an_object_lie_inside_its_box(lens, mounting):
    truth = scene(objects=5, lidar_points=4000)
    transforms = [plain(one) for one in TRANSFORMS]
    if mounting != "as built":
        for entry, turn, shift in zip(
            transforms[1:], (TURN, TURN[::-1]), ([2.4, 0.3, 0.5], [0.2, -0.6, 2.1]), strict=True
        ):
            entry["rotation"], entry["translation"] = turn.tolist(), shift
    fx, fy, cx, cy = truth.scene.intrinsics
    k = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    d = [0.3 * value for value in LENSES[lens]]
    given = calibration(lens, d, k, transforms=transforms)
    worst, looked = {"radar": -np.inf, "lidar": -np.inf}, {"radar": 0, "lidar": 0}
    for time in range(START, START + 2_000_000_000, 250_000_000):
        sensed = {"radar": truth.radar.targets(time), "lidar": truth.lidar.points(time)}
        for thing in truth.boxes(time):
            # The box that the object's corners span in the picture, by OpenCV.
            rays = moved(corners(thing), transforms[0])
            outline = opencv(rays, lens, d, k)
            low, high = outline.min(0), outline.max(0)
            for number, sensor in enumerate(("radar", "lidar"), 1):
                built = np.column_stack([sensed[sensor][axis].astype(float) for axis in "xyz"])
                at = built + (TRANSFORMS[number].translation)
                own = np.abs(at - thing.centre) <= np.array(thing.size) / 2 + 1e-4
                if sensor == "lidar":
                    own &= (sensed[sensor]["reflect"] == 100 + thing.number)[:, None]
                own = own.all(1)
                looked[sensor] += own.sum()
                pixels = project(moved(at, transforms[number])[own], sensor, given).pixels
                outside = np.maximum(low - pixels, pixels - high).max(initial=-np.inf)
                worst[sensor] = max(worst[sensor], outside)
    print(
        f"{lens}, {mounting}: furthest out of its box {worst['radar']:.4f} px (radar), {worst['lidar']:.4f} px (lidar)"
    )
    assert looked["radar"] >= 20
    assert looked["lidar"] > 5000
    assert worst["radar"] < 0  # the middle of an object
    assert worst["lidar"] < 0.5  # its faces; straight edges bend outwards a little


def test_the_truth_is_that_of_the_drawn_boxes():
    """The centre of what the radar sees of an object projects to where the picture's box is drawn."""
    truth = scene(objects=3)
    fx, fy, cx, cy = truth.scene.intrinsics
    given = calibration("plumb_bob", [0.0] * 5, [[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    worst = 0.0
    for time in range(START, START + 2_000_000_000, 125_000_000):
        found = project(truth.radar.targets(time), "radar.pcd", given)
        for thing, pixel in zip(truth.scene.things(time), found.pixels, strict=True):
            if thing.box2d is not None:
                x, y, w, h = np.array(thing.box2d) * [640, 360, 640, 360]
                worst = max(worst, abs(pixel[0] - x) / w, abs(pixel[1] - y) / h)
    print(f"radar targets lie up to {worst:.3f} of a box's size from its middle")
    assert worst < 0.5


# ---- what cannot be projected ------------------------------------------------------------------
def placeholder():
    still = [{"parent": "base_link", "child": child, "translation": [0, 0, 0], "rotation": [0, 0, 0, 1]}
             for child in ("camera_optical", "radar", "lidar")]  # fmt: skip
    return calibration(transforms=still)


def test_nothing_is_projected_by_a_placeholder_unless_it_is_asked_for():
    with pytest.raises(NotProjectableError, match=r"'lidar' to 'camera_optical' do not rotate.*--assume-forward"):
        project(np.zeros((1, 3)), "lidar", placeholder())
    ahead = project([[10, 0, 0], [10, 1, 0.5], [-10, 0, 0]], "lidar", placeholder(), assume_forward=True)
    assert ahead.pixels[0] == pytest.approx(K[:2, 2])  # along the optical axis
    assert ahead.pixels[1] == pytest.approx([K[0, 2] - K[0, 0] / 10, K[1, 2] - K[1, 1] / 20])  # left and up
    assert ahead.mask.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"distortion_model": "ladybug"}, "unknown distortion model 'ladybug'; known: plumb_bob"),
        ({"distortion_model": "</script>"}, "unknown distortion model '</script>'"),
        ({"d": [0.1] * 6}, "at most 5 coefficients are known, got 6"),
        ({"d": [None]}, "not finite"),
        ({"distortion_model": "", "d": [0.1]}, "at most 0 coefficients"),
        ({"k": [0.0] * 9}, "no focal length"),
        ({"k": [1, 0, None, 0, 1, 0, 0, 0, 1]}, "missing"),
        ({"k": None}, "camera_info is missing"),
        ({"frame_id": "elsewhere"}, "no chain of transforms joins 'lidar' to the camera's frame 'elsewhere'"),
    ],
)
def test_what_is_wrong_with_a_calibration_is_named(change, said):
    good = calibration()
    given = SequenceCalibration({**good.camera_info, **change}, good.static_transforms, "given")
    with pytest.raises(NotProjectableError, match=said.replace("(", r"\(")) as raised:
        make_projector("lidar", given)
    assert isinstance(raised.value, DatasetError)


def test_a_dataset_without_calibration_says_so():
    with pytest.raises(NotProjectableError, match="camera_info is missing"):
        project(np.zeros((0, 3)), "radar", SequenceCalibration(None, [], "missing"))


def test_points_that_are_none_are_not_to_be_seen():
    points = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [10, 0, 0], [1e-9, 0, 0]])
    found = project(points, "lidar", calibration())
    assert found.mask.tolist() == [False, False, True, False]
    assert project(np.zeros((0, 3)), "lidar", calibration()).pixels.shape == (0, 2)
    for shape in ((6, 4), (4, 2)):  # with intensities, or without heights: no number of them is points
        with pytest.raises(UsageError, match=rf"expected points \(N, 3\), .* got the shape \({shape[0]}, {shape[1]}\)"):
            project(np.zeros(shape), "lidar", calibration())


def test_chains_go_up_and_down_and_round_no_circle():
    way = [
        {"parent": "a", "child": "b", "translation": [1, 0, 0], "rotation": [0, 0, 0, 1]},
        {"parent": "b", "child": "c", "translation": [0, 2, 0], "rotation": [0, 0, 0, 1]},
        {"parent": "c", "child": "a", "translation": [0, 0, 9], "rotation": [0, 0, 0, 1]},
        {"parent": "d", "child": "e", "translation": [0, 0, 3], "rotation": [0, 0, 0, 1]},
        {"parent": "a", "child": "f", "translation": [0, 0, 3], "rotation": [0, 0, 0, 0]},
    ]
    found = chain_frames(way, "b")
    assert set(found) == {"a", "b", "c"}
    assert found["a"][:3, 3].tolist() == [-1, 0, 0]
    assert found["c"][:3, 3].tolist() == [0, 2, 0]
