# SPDX-License-Identifier: Apache-2.0
"""Of a dataset of several drives each goes out with its own calibration, as the systems' own readers have it."""

import json

import numpy as np
import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.export import export

DRIVE = {"seconds": 1.0, "fps": 10.0, "codec": "jpeg", "lidar_points": 20, "position": (45.5, -73.6, 30.0)}
DRIVE["topics"] = frozenset({"camera", "camera/info", "lidar/points", "gps", "imu", "tf_static"})
SIZES = {"first": (160, 96), "second": (128, 64)}


@pytest.fixture(scope="module")
def path(recording, tmp_path_factory):
    drives = [recording(**DRIVE, host=host, size=size) for host, size in SIZES.items()]
    return convert(drives, tmp_path_factory.mktemp("drives"), name="two").paths.container


def of_roverd(dataset, out):
    """Focal length and width by drive, of the files that roverd's traces have."""
    export(dataset, "roverd", out)
    found = {}
    for file in out.rglob("intrinsics.json"):
        info = json.loads(file.read_text())
        found[file.parent.parent.name.partition("_")[0]] = (info["width"], info["k"][0])
    return found


def of_ncore(dataset, out):
    """The same by NCore's own reader."""
    v4 = pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
    export(dataset, "ncore", out)
    found = {}
    for summary in out.glob("*/*.json"):
        loader = v4.SequenceLoaderV4(v4.SequenceComponentGroupsReader([summary]))
        model = loader.get_camera_sensor("camera").model_parameters
        found[summary.parent.name.partition("_")[0]] = (int(model.resolution[0]), float(model.focal_length[0]))
    return found


@pytest.mark.parametrize("read", [of_roverd, of_ncore])
def test_each_drive_goes_out_with_its_own(path, tmp_path, read):
    truth = {s.name.partition("_")[0]: s.calibration.camera_info for s in Dataset(path).samples()}
    expected = {host: (info["width"], info["k"][0]) for host, info in truth.items()}
    assert {host: width for host, (width, _) in expected.items()} == {host: size[0] for host, size in SIZES.items()}
    assert len({focal for _, focal in expected.values()}) == 2
    assert read(Dataset(path), tmp_path / "out") == {
        k: (w, pytest.approx(f, rel=1e-6)) for k, (w, f) in expected.items()
    }


def test_a_planted_swap_is_refused_or_seen(path, tmp_path):
    """Calibration of the one in the place of the other: NCore refuses intrinsics of another form of picture."""
    swapped = Dataset(path)
    (a, first), (b, second) = swapped.metadata["sequences"].items()
    swapped.metadata |= {"sequences": {a: {**first, "camera_info": second["camera_info"]}, b: second}}
    wrong = of_roverd(swapped, tmp_path / "roverd")
    assert wrong["first"] == wrong["second"]
    pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
    with pytest.raises(Exception, match=r"camera_info is of 128 x 64 pixels, the pictures have 160 x 96"):
        of_ncore(swapped, tmp_path / "ncore")


def test_transforms_are_of_each_drive(path):
    from edgefirst_ros.export.drive import drives

    dataset = Dataset(path)
    name, facts = next(iter(dataset.metadata["sequences"].items()))
    moved = [{**entry, "translation": [9.0, 9.0, 9.0]} for entry in facts["static_transforms"]]
    sequences = {**dataset.metadata["sequences"], name: {**facts, "static_transforms": moved}}
    dataset.metadata |= {"sequences": sequences}
    first, second = drives(dataset)
    assert first.place("lidar")[:3, 3] == pytest.approx(9.0)
    assert not np.allclose(second.place("lidar")[:3, 3], 9.0)
