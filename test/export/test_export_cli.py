# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros export` and `import` as a user meets them: what they print, exit codes, and never a traceback."""

import json
import os

import numpy as np
import pytest
from warm_command import run_warm

from edgefirst_ros import convert
from edgefirst_ros.export.l5kit.zarr2 import RecordArray

SMALL = {"seconds": 1.5, "fps": 10.0, "size": (128, 64), "codec": "jpeg", "model_every": 1}
SMALL["topics"] = frozenset({"camera", "camera/info", "gps", "imu", "tf_static", "fusion/boxes3d", "model/info"})


@pytest.fixture(scope="module")
def dataset(recording, tmp_path_factory):
    return convert(recording(**SMALL), tmp_path_factory.mktemp("cli"), name="drive").paths.container


@pytest.fixture
def run(warm, tmp_path):
    def call(*arguments):
        done = run_warm(warm, arguments, tmp_path)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return call


def classes(folder):
    reader = RecordArray(folder / "scenes.zarr" / "agents")
    return {int(n) for n in np.argmax(reader.read(0, len(reader))["label_probabilities"], axis=1)}


def test_export_and_import_say_where_everything_went(run, dataset, tmp_path):
    done = run("export", dataset, "--to", "l5kit", "-o", "there")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("l5kit: written to there\n")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "agents.centroid" in lines["box3d"]
    assert "lost: height above ground" in lines["box3d"]
    assert lines["camera.jpeg"].split()[1:] == ["15", "has", "no", "place", "there"]
    back = run("import", "there", "--from", "l5kit", "-o", "back")
    assert (back.returncode, back.stderr) == (0, "")
    assert back.stdout.startswith("l5kit: imported to back/there.arrow\n")
    assert {path.name for path in (tmp_path / "back").iterdir()} == {"there.arrow", "export-report.json"}


def test_json_is_the_report(run, dataset, tmp_path):
    for arguments, out in (
        (("export", dataset, "--to", "l5kit", "-o", "there"), "there"),
        (("import", "there", "--from", "l5kit", "-o", "back"), "back"),
    ):
        facts = json.loads(run(*arguments, "--json").stdout)
        assert (facts.pop("out"), facts.pop("exit_code")) == (os.fspath(tmp_path / out), 0)
        assert facts == json.loads((tmp_path / out / "export-report.json").read_text())


def test_label_maps_from_the_line_and_from_files(run, dataset, tmp_path):
    (tmp_path / "map.json").write_text('{"car": "BUS", "person": "ANIMAL"}')
    maps = ["--label-map", "map.json", "--label-map", "car=TRUCK"]
    assert run("export", dataset, "--to", "l5kit", "-o", "there", *maps).returncode == 0
    assert classes(tmp_path / "there") == {7, 15}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--to", "kitti"], 2, "--to: expected one of coco, yolo, ncore, l5kit, roverd"),
        (["--to", "l5kit", "--label-map", "car=CART"], 2, "not a class of L5Kit"),
        (["--to", "l5kit", "--label-map", "missing.json"], 2, "missing.json: neither LABEL=CLASS"),
        (["--to", "l5kit", "--label-map", "list.json"], 2, "must be a JSON object"),
        (
            ["--to", "roverd", "--label-map", "car=CAR"],
            2,
            "unknown option 'labels' (--label-map) for roverd",
        ),
        (
            ["--to", "coco", "--keyframe-rate", "3"],
            2,
            "unknown option 'keyframe_rate' (--keyframe-rate) for coco",
        ),
        (["--to", "nuscenes", "--label-map", "car="], 2, "--label-map: expected LABEL=CLASS, got 'car='"),
        (["--to", "nuscenes", "--label-map", "=car"], 2, "--label-map: expected LABEL=CLASS, got '=car'"),
        (["--to", "l5kit", "--label-map", "car=cat"], 2, "--label-map): 'cat' for 'car' is not a class of L5Kit"),
        (["--to", "roverd", "--store", "itar"], 2, "unknown option 'store' (--store) for roverd; it is one of ncore"),
        ([], 2, "--to"),
        (["--to", "l5kit", "-o", "taken"], 1, "exists already"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_goes_wrong(run, dataset, tmp_path, arguments, code, says):
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "taken").mkdir()
    before = sorted(tmp_path.iterdir())
    done = run("export", dataset, "-o", "out", *arguments)
    assert done.returncode == code
    assert says in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["missing", "--from", "l5kit"], 1, "missing: no such file"),
        (["empty", "--from", "l5kit"], 1, "not a folder with scenes.zarr"),
        (["empty", "--from", "kitti"], 2, "--from: expected one of ncore, l5kit, roverd, got 'kitti'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_imported(run, tmp_path, arguments, code, says):
    (tmp_path / "empty").mkdir()
    done = run("import", *arguments, "-o", "out")
    assert done.returncode == code
    assert says in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_dataset_without_poses_is_refused(run, recording, tmp_path):
    blind = {**SMALL, "topics": SMALL["topics"] - {"gps"}}
    path = convert(recording(**blind), tmp_path / "blind").paths.container
    done = run("export", path, "--to", "l5kit", "-o", "out")
    assert done.returncode == 1
    assert all(way in done.stderr for way in ("pose_topic", "/tf", "GPS and IMU"))
    assert not (tmp_path / "out").exists()
