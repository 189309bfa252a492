# SPDX-License-Identifier: Apache-2.0
"""What `info` says a recording would give, and what a dataset has."""

import json
import re
import subprocess
from dataclasses import replace

import pytest
from bags import bag, messages, together, write

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.info import DatasetInfo, collect_recording_facts, format_recording
from edgefirst_ros.cli.output import show
from edgefirst_ros.synthetic import START

SMALL = {"seconds": 1, "size": (192, 96), "fps": 10.0, "gop": 5, "cube_shape": (1, 8, 2, 8), "lidar_points": 20}


@pytest.mark.parametrize(
    ("codec", "said"),
    [("h264", "h264"), ("h265", "h265"), ("jpeg", "jpeg"), ("rgb8", "rgb8")],
)
def test_size_codec_and_labels(recording, capsys, codec, said):
    facts = collect_recording_facts(recording(codec=codec, start_in_gop=2 if codec.startswith("h") else 0, **SMALL))
    (camera,) = facts["cameras"]
    assert (camera["width"], camera["height"]) == (192, 96)
    assert said in camera["codec"]
    assert facts["labels"] == ["background", "car", "person", "truck"][: len(facts["labels"])]
    show(format_recording(facts))
    out = capsys.readouterr().out
    assert f"camera {facts['reference']}: {camera['codec']}, 192 x 96" in out
    assert f"the model knows {len(facts['labels'])} labels: {', '.join(facts['labels'])}" in out


def test_several_cameras_are_told_how_to_convert(recording, tmp_path, capsys):
    streams = []
    for name, codec in (("front", "h264"), ("rear", "h265")):
        found = messages(recording(codec=codec, **{**SMALL, "topics": {"camera"}}))
        for _, channel, _ in found:
            channel.topic = f"/{name}/camera/h264" if codec == "h264" else f"/{name}/camera/h265"
        streams.append(found)
    facts = collect_recording_facts(bag(tmp_path / "both", together(*streams), [9]))
    show(format_recording(facts))
    out = capsys.readouterr().out
    assert "convert with --reference-topic /front/camera/h264 --reference-topic /rear/camera/h265 for a sequence" in out
    assert "camera /rear/camera/h265: h265, 192 x 96" in out
    for _, channel, _ in streams[1]:
        channel.topic = "/rear/camera/h265"
    show(format_recording(collect_recording_facts(bag(tmp_path / "one", together(streams[0], streams[1][1:4]), [9]))))
    assert "several cameras" not in capsys.readouterr().out  # the second one has no picture that can be decoded


@pytest.mark.parametrize(("frame", "word"), [(b"lidar", "given"), (b"aft_l", "missing")])
def test_the_calibration_is_judged_by_the_frames_of_the_sensors(recording, tmp_path, frame, word):
    topics = {"camera", "camera/info", "lidar/points", "tf_static"}
    found = [
        (s, c, replace(m, data=m.data.replace(b"\6\0\0\0lidar", b"\6\0\0\0" + frame)) if "points" in c.topic else m)
        for s, c, m in messages(recording(**{**SMALL, "topics": topics}))
    ]
    path = write(tmp_path / "drive.mcap", found)
    dataset = Dataset(convert(path, tmp_path / "out").paths.container)
    assert collect_recording_facts(path)["calibration"] == dataset.calibration("drive").calibration == word


def test_a_camera_without_a_picture_is_said(recording, tmp_path, capsys):
    found = messages(recording(**{**SMALL, "topics": {"camera"}}))
    path = write(tmp_path / "late.mcap", found[1:4])
    facts = collect_recording_facts(path)
    assert facts["cameras"] == [{"topic": "/camera/h264", "codec": "h264", "width": None, "height": None}]
    show(format_recording(facts))
    said = capsys.readouterr().out
    assert "camera /camera/h264: h264, no camera picture that can be decoded" in said
    assert f"late.mcap: {path.stat().st_size / 1e3:.1f} kB, " in said


def test_how_long_and_where_a_dataset_is(recording, tmp_path, command):
    import subprocess

    outcome = convert(recording(**SMALL), tmp_path)
    facts = DatasetInfo(outcome.paths.container).plain()
    (name,) = facts["sequences"]
    assert facts["start"] == {name: START}
    assert facts["duration_s"] == {name: 0.9}
    assert facts["place"]["latitude"][0] == pytest.approx(45.5, abs=1e-3)
    assert facts["place"]["longitude"][1] == pytest.approx(-73.6, abs=1e-3)
    text = subprocess.run(
        [*command, "info", outcome.paths.container], capture_output=True, text=True, check=True
    ).stdout
    assert re.search("2026-01-15T12:00:00Z +0.9 +given", text)
    assert "place: latitude 45.5" in text
    said = subprocess.run([*command, "info", outcome.paths.container, "--json"], capture_output=True, check=True).stdout
    assert json.loads(said)["duration_s"] == {name: 0.9}


def test_several_paths_are_shown_one_after_the_other(recording, command, tmp_path):
    made = convert(recording(**SMALL), tmp_path, group={"val": "*"}).paths.container
    done = subprocess.run([*command, "info", recording(**SMALL), made, "--json"], capture_output=True, check=True)
    first, second = json.loads(done.stdout)
    assert first["labels"][:2] == ["background", "car"]
    assert second["groups"] == {"val": second["samples"]}


def test_those_before_a_broken_one_are_shown(recording, command, tmp_path):
    (tmp_path / "broken.mcap").write_bytes(bytes(100))
    done = subprocess.run(
        [*command, "info", recording(**SMALL), tmp_path / "broken.mcap"], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout.count(b"the model knows")) == (1, 1)
    assert b"broken.mcap: not an MCAP recording" in done.stderr


def test_the_hook_of_a_settings_file_is_not_needed(recording, command, tmp_path):
    (tmp_path / "private.yaml").write_text("picture_hook: not_installed_here:blur\n")
    subprocess.run([*command, "info", recording(**SMALL), "--config", tmp_path / "private.yaml"], check=True)


def test_a_time_check_prints_offsets_and_their_lines_of_a_recording_but_not_of_a_dataset(recording, command, tmp_path):
    """A rig gives the only IMU its role; its stamps are off by 0.08 s, of which the rig mends 0.05."""
    drive = {"seconds": 8, "seed": 1, "scene": "street", "topics": {"imu", "lidar/points"}, "lidar_points": 2000}
    path = recording(**drive, clock_offset={"imu": -80_000_000})
    config = tmp_path / "rig.yaml"
    config.write_text("reference_topic: /lidar/points\nrig: {imu: {topic: /imu, offset: 0.05}}\n")
    told = [*command, "info", path, "--check-time", "--config", config]
    text = subprocess.run(told, capture_output=True, text=True, check=True).stdout
    assert re.search(r"lidar.points, imu +turn +\+0\.0(3|29|31)\d* +0\.00\d +1\.00 +\d\.\d\n", text), text
    assert re.search(r"camera, imu +turn +- +- +- +0\.0  unknown: the recording has no camera\n", text)
    assert re.search(r"imu +- +-  too short: 8 s; 10 s are needed\n", text)
    head = "lines for a rig, if the stamps of lidar.points are right (not applied):\n  imu: {offset: "
    assert 0.077 < float(text.partition(head)[2].partition("}")[0]) < 0.083
    plain = json.loads(subprocess.run([*told, "--json"], capture_output=True, check=True).stdout)["time_check"]
    assert set(plain) == {"pairs", "drift", "offsets"}
    assert plain["offsets"]["lidar.points"]["imu"] == pytest.approx(0.08, abs=0.003)
    made = convert(recording(**SMALL), tmp_path / "made").paths.container
    refused = subprocess.run([*command, "info", made, "--check-time"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "is a dataset; expected its recording" in refused.stderr


@pytest.mark.parametrize("good", [1, 2])
def test_recordings_that_were_not_converted_are_an_unknown_loss(recording, tmp_path, capsys, good):
    bad = tmp_path / "bad.mcap"
    bad.write_text("no recording")
    paths = [recording(**{**SMALL, "topics": {"camera"}, "host": f"host{n}"}) for n in range(good)]
    outcome = convert([*paths, bad], tmp_path / "out", name="d")
    show(DatasetInfo(outcome.paths.container).text())
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[3 : 4 + good]]
    assert [(row[0], row[-2]) for row in rows] == [*((path.stem, "0") for path in paths), ("all", "unknown")]
    assert sum(line.startswith("note: bad.mcap: not converted: not an MCAP recording") for line in lines) == 1


def test_a_cut_recording_is_named_in_the_dataset_that_was_made_of_it(recording, tmp_path, capsys):
    whole = recording(**{**SMALL, "topics": {"camera"}})
    path = tmp_path / "drive.mcap"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    (damage,) = collect_recording_facts(path)["damage"]
    show(DatasetInfo(convert(path, tmp_path / "out").paths.container).text())
    out = capsys.readouterr().out
    assert out.splitlines()[3].split()[-2:] == ["unknown", "amber"]
    assert f"note: drive.mcap: at byte {damage['offset']}: {damage['what']}\n" in out
