# SPDX-License-Identifier: Apache-2.0
"""NCore V4: where its own camera models, which need torch, put points; OpenCV says where these belong."""

import numpy as np
import pytest
from calibrated import calibrated

from edgefirst_ros import Dataset, convert
from edgefirst_ros.export import export
from edgefirst_ros.export.drive import Drive

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
pymap3d = pytest.importorskip("pymap3d", reason="pymap3d is not installed")
import torch  # noqa: E402
from ncore.data.v4 import SequenceComponentGroupsReader, SequenceLoaderV4  # noqa: E402
from ncore.sensors import camera_model_from_parameters  # noqa: E402
from scipy.spatial.transform import Rotation  # noqa: E402

from edgefirst_ros.export.ncore import components  # noqa: E402

RECIPE = {"seconds": 1.5, "fps": 10.0, "size": (640, 360), "codec": "jpeg", "lidar_points": 500}
RECIPE["topics"] = frozenset({"camera", "camera/info", "gps", "imu", "lidar/points", "tf_static"})
PIXEL = 0.01
FOCAL, CENTRE = (500.0, 520.0), (310.25, 190.5)
LENSES = {
    "plumb_bob": [-0.05, 0.01, 0.002, -0.003, 0.004],
    "rational_polynomial": [0.02, -0.01, 0.001, 0.002, 0.003, 0.01, 0.002, -0.001],
    "equidistant": [0.03, -0.01, 0.004, -0.001],
}


def tilted(roll, pitch, yaw, rest=(0, 0, 0, 1)):
    """x, y, z, w; degrees."""
    turn = Rotation.from_euler("ZYX", [yaw, pitch, roll], degrees=True) * Rotation.from_quat(rest)
    return turn.as_quat().tolist()


TRANSFORMS = [
    {"parent": "base_link", "child": "mast", "translation": [0.5, 0.1, 1.0], "rotation": tilted(2, -3, 5)},
    {
        "parent": "mast",
        "child": "camera_optical",
        "translation": [1.0, 0.3, 0.4],
        "rotation": tilted(-4, 6, 7, (-0.5, 0.5, -0.5, 0.5)),
    },
    {"parent": "base_link", "child": "lidar", "translation": [1.0, -0.2, 1.8], "rotation": tilted(3, 1, -8)},
]


@pytest.fixture(scope="module")
def path(recording, tmp_path_factory):
    return convert(recording(**RECIPE), tmp_path_factory.mktemp("drive"), name="drive").paths.container


def opened(path, out, lens="plumb_bob"):
    """The dataset with a lens and sensors that stand askew, and the official loader of its export."""
    dataset = Dataset(path)
    (fx, fy), (cx, cy) = FOCAL, CENTRE
    info = dataset.metadata["camera_info"]
    info |= {"distortion_model": lens, "d": LENSES[lens], "k": [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]}
    calibrated(dataset, camera_info=info, static_transforms=TRANSFORMS)
    export(dataset, "ncore", out)
    (summary,) = out.glob("*/*.json")
    return dataset, SequenceLoaderV4(SequenceComponentGroupsReader([summary]))


# ---- by hand -----------------------------------------------------------------------------------------
def matrix(turn, place):
    found = np.eye(4)
    found[:3, :3], found[:3, 3] = turn.as_matrix(), place
    return found


def places():
    """Sensor to vehicle, (4, 4), of camera and lidar."""
    mast, camera, lidar = (matrix(Rotation.from_quat(t["rotation"]), t["translation"]) for t in TRANSFORMS)
    return mast @ camera, lidar


def moved(points, pose):
    return points @ pose[:3, :3].T + pose[:3, 3]


def by_opencv(points, lens):
    """(N, 2) of points (N, 3) in the camera's axes. NCore's pixels begin where those of OpenCV are -0.5."""
    (fx, fy), (cx, cy) = FOCAL, CENTRE
    k, still, d = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]]), np.zeros(3), np.array(LENSES[lens])
    project = cv2.fisheye.projectPoints if lens == "equidistant" else cv2.projectPoints
    given = points[:, None] if lens == "equidistant" else points
    return project(given, still, still, k, d)[0].reshape(-1, 2) + 0.5


def by_ncore(loader, points, pose):
    """Numbers and pixels of the points that it sees."""
    model = camera_model_from_parameters(loader.get_camera_sensor("camera").model_parameters, "cpu", torch.float64)
    found = model.world_points_to_image_points_static_pose(
        np.asarray(points, float), np.asarray(pose, float), return_valid_indices=True
    )
    return found.valid_indices.reshape(-1).numpy(), found.image_points.numpy()


def differences(there, pixels, said):
    assert len(there) > 20
    return np.abs(pixels - said[there]).max()


def off_points(dataset, loader, lens):
    """Lidar points in the picture, by the places of the sensors."""
    camera, lidar = places()
    sensor = loader.get_lidar_sensor("lidar")
    samples = {sample.row["lidar_points_timestamp"] // 1000: sample for sample in dataset.samples()}
    worst = 0.0
    for n, stamp in enumerate(sensor.frames_timestamps_us[:, 1]):
        cloud = samples[int(stamp)].lidar()
        points = moved(np.stack([cloud[axis] for axis in "xyz"], -1).astype(float), np.linalg.inv(camera) @ lidar)
        pose = loader.pose_graph.evaluate_poses("lidar", "camera", np.array([stamp]))[0]
        rays = sensor.get_frame_point_cloud(n, motion_compensation=False, with_start_points=False).xyz_m_end
        worst = max(worst, differences(*by_ncore(loader, rays, pose), by_opencv(points, lens)))
    return worst


def off_landmarks(dataset, loader, lens):
    """Places on the earth in the picture, by the fixes and attitudes of the pictures."""
    camera, _ = places()
    located = [s.row for s in dataset.samples() if s.row["latitude"] is not None and s.row["orientation"] is not None]
    first = located[0]
    origin = first["latitude"], first["longitude"], first["altitude"]
    ahead = Rotation.from_quat(first["orientation"]).apply(np.random.default_rng(0).uniform(-1, 1, (500, 3)) * 6)
    world = ahead + Rotation.from_quat(first["orientation"]).apply([35, 0, 2])
    earth = np.stack(pymap3d.enu2ecef(*world.T, *origin), -1)
    worst = 0.0
    for row in located:
        seen = np.stack(pymap3d.ecef2enu(*earth.T, row["latitude"], row["longitude"], row["altitude"]), -1)
        vehicle = Rotation.from_quat(row["orientation"]).inv().apply(seen)
        said = by_opencv(moved(vehicle, np.linalg.inv(camera)), lens)
        stamp = np.array([row["timestamp"] // 1000], np.uint64)
        pose = loader.pose_graph.evaluate_poses("world_global", "camera", stamp)[0]
        worst = max(worst, differences(*by_ncore(loader, earth, pose), said))
    return worst


@pytest.mark.parametrize("lens", LENSES)
def test_points_are_where_opencv_puts_them(path, tmp_path, lens):
    dataset, loader = opened(path, tmp_path / "out", lens)
    assert off_points(dataset, loader, lens) < PIXEL
    assert off_landmarks(dataset, loader, lens) < PIXEL


# ---- defects -----------------------------------------------------------------------------------------
def inverted(monkeypatch):
    place = Drive.place
    monkeypatch.setattr(Drive, "place", lambda drive, sensor: np.linalg.inv(place(drive, sensor)))


def transposed(monkeypatch):
    place = Drive.place

    def other(drive, sensor):
        found = place(drive, sensor).copy()
        found[:3, :3] = found[:3, :3].T
        return found

    monkeypatch.setattr(Drive, "place", other)


def transposed_way(monkeypatch):
    def way(drive):
        found = drive.rig_in(drive.world_to_ecef)
        found[:, :3, :3] = np.swapaxes(found[:, :3, :3], 1, 2)
        return found

    monkeypatch.setattr(Drive, "rig_to_world", property(way))


def integer_centre(monkeypatch):
    monkeypatch.setattr(components, "PIXEL", 0.0)


def swapped_coefficients(monkeypatch):
    order = list(components.ORDER)
    order[2], order[3] = order[3], order[2]
    monkeypatch.setattr(components, "ORDER", tuple(order))


@pytest.mark.parametrize(
    ("defect", "check"),
    [
        (inverted, off_points),
        (inverted, off_landmarks),
        (transposed, off_points),
        (transposed, off_landmarks),
        (transposed_way, off_landmarks),
        (integer_centre, off_points),
        (swapped_coefficients, off_points),
    ],
)
def test_defects_are_seen(path, tmp_path, monkeypatch, defect, check):
    defect(monkeypatch)
    dataset, loader = opened(path, tmp_path / "out")
    try:
        off = check(dataset, loader, "plumb_bob")
    except AssertionError:  # next to nothing is in the picture
        return
    assert off > 10 * PIXEL
