# SPDX-License-Identifier: Apache-2.0
"""The command line as a user meets it: what it prints, its exit codes, and never a traceback."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

import edgefirst_ros
from edgefirst_ros.config import Settings
from edgefirst_ros.errors import UsageError

SMALL = {"seconds": 2, "size": (160, 96), "cube_shape": (1, 16, 2, 16), "lidar_points": 100}


def test_help_names_every_verb(run):
    done = run("--help")
    assert done.returncode == 0
    for verb in ("convert", "info", "merge", "validate", "demo"):
        assert verb in done.stdout
        assert run(verb, "--help").returncode == 0


def test_convert_prints_what_became_of_every_topic(run, recording, tmp_path):
    path = recording(**SMALL)
    done = run("convert", path, "-o", "out")
    assert done.returncode == 0, done.stderr
    assert "60 samples" in done.stdout
    for topic in ("/camera/h264", "/radar/cube", "/lidar/points", "/gps", "/imu", "/model/output", "/tf_static"):
        assert topic in done.stdout
    for word in ("p50", "p95", "max", "time base: header; calibration: given", "times real time"):
        assert word in done.stdout
    assert re.search(r"^reading \d+\.\d s, converting \d+\.\d s, completing \d+\.\d s$", done.stdout, re.M)
    assert sorted(p.suffixes[-1] for p in (tmp_path / "out").iterdir()) == [".arrow", ".arrow", ".zip"]


def test_convert_and_info_list_the_sensors_that_samples_have(run, recording):
    done = run("convert", recording(**SMALL, topics=["camera", "lidar/points", "gps"]), "-o", "out")
    converted, info = done.stdout, run("info", "out").stdout
    assert "\nno sample has: attitude, model, radar.cube, radar.targets\n" in converted
    for said in (converted, info):
        assert re.search(r"^lidar\.points +60 ", said, re.M)
        assert not re.search(r"^(model|radar\S+|attitude) +\d", said, re.M)


def test_convert_json(run, recording):
    done = run("convert", recording(**SMALL), "-o", "out", "--json", "--rate", "5")
    facts = json.loads(done.stdout)
    assert facts["samples"] == 10
    assert facts["exit_code"] == 0
    assert facts["counts"]["/camera/h264"] == {"dropped": {"not sampled": 50}, "seen": 60, "written": 10}
    assert set(facts["skew_ms"]["radar.cube"]) == {"p50", "p95", "max"}
    assert list(facts["seconds_by_step"]) == ["reading", "converting", "completing"]
    assert sum(facts["seconds_by_step"].values()) == pytest.approx(facts["seconds"])
    assert done.stderr == ""


def test_loss_is_said_and_gives_exit_code_3(run, recording):
    done = run("convert", recording(**SMALL, drop_video={20, 21}, sequence_gaps=True), "-o", "out")
    assert done.returncode == 3
    assert "after a loss" in done.stdout
    assert "finished with loss" in done.stdout


def test_every_option_reaches_the_dataset(run, recording, tmp_path):
    (tmp_path / "settings.yaml").write_text("jpeg_quality: 50\nradar_fields: documented\n")
    options = [
        "--name",
        "drives",
        "--config",
        "settings.yaml",
        "--rate",
        "3",
        "--jpeg-quality",
        "70",
        "--layout",
        "directory",
    ]
    options += [
        "--schema",
        "2026.10",
        "--require",
        "radar.cube,lidar.points",
        "--tolerance",
        "0.08",
        "--time-base",
        "log",
    ]
    options += [
        "--split",
        "train=0.5,val=0.5",
        "--reference-topic",
        "/camera/h264",
        "--jobs",
        "1",
        "--radar-fields",
        "message",
    ]
    done = run("convert", recording(**SMALL), "-o", "out", *options)
    assert done.returncode == 0, done.stderr
    facts = json.loads(run("info", "out/drives", "--json").stdout)["metadata"]
    chosen = facts["configuration"] if "configuration" in facts else facts["frames"]["configuration"]
    expected = {"rate": 3.0, "jpeg_quality": 70, "layout": "directory", "schema_version": "2026.10", "tolerance": 0.08}
    expected |= {"time_base": "log", "split": {"train": 0.5, "val": 0.5}, "radar_fields": "message"}
    assert "jobs" not in chosen  # any number of threads gives the same dataset
    expected |= {"require": ["radar.cube", "lidar.points"], "reference_topic": "/camera/h264"}
    assert {key: chosen[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--tolerance", "-1"], "tolerance"),
        (["--tolerance", "soon"], "tolerance"),
        (["--rate", "0"], "rate"),
        (["--rate", "nan"], "rate"),
        (["--jpeg-quality", "101"], "--jpeg-quality: expected"),
        (["--layout", "tar"], "layout"),
        (["--schema", "1999.01"], "--schema: expected"),
        (["--require", "smell"], "smell"),
        (["--time-base", "sundial"], "--time-base: expected"),
        (["--split", "train"], "GROUP=SHARE"),
        (["--split", "train=0.5"], "add up to"),
        (["--reference-topic", "/nothing"], "/nothing"),
        (["--config", "missing.yaml"], "missing.yaml"),
        (["--nonsense"], "nonsense"),
        (["--name", "../up"], "../up"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_gives_exit_code_2(run, recording, tmp_path, arguments, says):
    done = run("convert", recording(**SMALL), "-o", "out", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "out").exists()


def test_unknown_settings_are_refused_with_the_nearest(run, recording, tmp_path):
    (tmp_path / "settings.yaml").write_text("jpeg_qualty: 80\n")
    done = run("convert", recording(**SMALL), "-o", "out", "--config", "settings.yaml")
    assert done.returncode == 2
    assert "jpeg_qualty" in done.stderr
    assert "did you mean 'jpeg_quality'?" in done.stderr


def recorded(settings, chosen):
    """All settings as the metadata have them, where some that are unset may be missing."""
    dumped = settings.model_dump(mode="json")
    return {name: value for name, value in dumped.items() if name in chosen or value is not None}


MAIVIN = Path(__file__).resolve().parents[2] / "config" / "maivin.yaml"


def test_the_file_of_a_capture_serves_a_conversion(run, recording):
    path = recording(**SMALL)
    done = run("convert", path, "-o", "out", "--config", MAIVIN)
    assert done.returncode == 0, done.stderr
    assert f"note: {MAIVIN}: only for a capture, ignored here: out, host, sequence, autostart" in done.stdout
    facts = json.loads(run("info", f"out/{path.stem}", "--json").stdout)["metadata"]
    chosen = facts["configuration"] if "configuration" in facts else facts["frames"]["configuration"]
    assert chosen == recorded(Settings(keyframes=True), chosen)


def test_the_same_from_python(recording, tmp_path):
    path = recording(**SMALL)
    outcome = edgefirst_ros.convert(path, tmp_path / "out", config=MAIVIN, jpeg_quality=80)
    assert "only for a capture, ignored here: out, host" in outcome.notes[0]
    chosen = edgefirst_ros.Dataset(outcome.paths.container).metadata["configuration"]
    assert chosen == recorded(Settings(keyframes=True, jpeg_quality=80), chosen)
    again = edgefirst_ros.convert(path, tmp_path / "out", config=MAIVIN, jpeg_quality=80, resume=True)
    assert again.notes[0] == outcome.notes[0]
    with pytest.raises(UsageError, match="cannot be combined: config"):
        edgefirst_ros.convert(path, tmp_path / "out", config=MAIVIN, settings=Settings())


def test_what_cannot_be_used_gives_exit_code_1(run, tmp_path):
    (tmp_path / "text.mcap").write_text("hello")
    for name in ("text.mcap", "missing.mcap"):
        done = run("convert", name, "-o", "out")
        assert done.returncode == 1
        assert name in done.stderr
    assert run("validate", "nowhere").returncode == 1
    assert run("info", "nowhere").returncode == 1


def test_existing_output_is_kept(run, recording):
    assert run("convert", recording(**SMALL), "-o", "out").returncode == 0
    done = run("convert", recording(**SMALL), "-o", "out")
    assert done.returncode == 1
    assert "--overwrite" in done.stderr
    assert run("convert", recording(**SMALL), "-o", "out", "--overwrite").returncode == 0


def test_info_of_a_recording(run, recording):
    path = recording(**SMALL)
    done = run("info", path)
    assert done.returncode == 0
    assert "/camera/h264" in done.stdout
    assert "time base header" in done.stdout
    facts = json.loads(run("info", path, "--json").stdout)
    camera = next(t for t in facts["topics"] if t["topic"] == "/camera/h264")
    assert camera["messages"] == 60
    assert camera["hz"] == pytest.approx(30, rel=0.02)
    assert facts["reference"] == "/camera/h264"


def test_info_of_a_recording_that_cannot_be_converted(run, recording):
    done = run("info", recording(seconds=1, topics={"gps"}))
    assert done.returncode == 0
    assert "no camera topic" in done.stdout


def test_validate(run, recording, tmp_path):
    run("convert", recording(**SMALL), "-o", "out", "--name", "set")
    assert run("validate", "out/set.zip", "--strict").returncode == 0
    for form in ("out/set", "out/set.arrow"):
        assert json.loads(run("validate", form, "--json").stdout)["ok"] is True
    archive = tmp_path / "out" / "set.zip"
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    assert run("validate", "out/set").returncode == 1


def test_merge(run, recording, tmp_path):
    path = recording(**SMALL)
    run("convert", path, "-o", "out", "--name", "one")
    run("convert", path, "-o", "out", "--name", "two")
    done = run("merge", "out/one", "out/two.zip", "-o", "out", "--name", "both")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--rename" in done.stderr
    done = run("merge", "out/one", "out/two.zip", "-o", "out", "--name", "both", "--rename")
    assert done.returncode == 0
    assert f"{path.stem} is now {path.stem}-2" in done.stdout
    assert run("validate", "out/both", "--strict").returncode == 0
    done = run("merge", "out/one", "-o", "out", "--name", "both")
    assert done.returncode == 1
    assert "--overwrite" in done.stderr
    merged = json.loads(
        run("merge", "out/both", "-o", "out", "--name", "both", "--overwrite", "--layout", "directory", "--json").stdout
    )
    assert (merged["exit_code"], merged["loss"], merged["notes"]) == (0, False, [])
    assert merged["dataset"] == str(tmp_path / "out" / "both")
    assert run("merge", "out/none", "-o", "out").returncode == 1
    assert run("merge", "out/one", "-o", "out", "--layout", "tar").returncode == 2


def test_demo(run, tmp_path):
    done = run("demo", "-o", "here", "--seconds", "2")
    assert done.returncode == 0, done.stderr
    assert "60 samples" in done.stdout
    assert "0 errors, 0 warnings" in done.stdout
    assert done.stdout.count("/camera/h264") == 1  # one table of topics
    assert done.stdout.splitlines()[-1].startswith("to see it: edgefirst-ros report here/maivin-demo_")
    assert len(list((tmp_path / "here").iterdir())) == 4


def on_a_terminal(command, **environment):
    """Exit code and what a command prints to standard error, which is a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=slave, env=os.environ | {"TERM": "xterm"} | environment
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    return process.wait(), shown


def test_progress_on_a_terminal(command, recording, tmp_path):
    path = recording(**SMALL | {"seconds": 10})
    code, shown = on_a_terminal([*command, "convert", path, "-o", tmp_path / "out"])
    assert code == 0
    assert b"converting" in shown
    assert b"%" in shown


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_errors_on_a_terminal_are_red_and_break_no_path(command, tmp_path, environment):
    path = tmp_path / "a rather long name of a folder" / "and of one in it" / "drive.mcap"
    code, shown = on_a_terminal([*command, "info", path], **environment)
    assert code == 1
    begin = b"edgefirst-ros:" if environment else b"\x1b[1;31medgefirst-ros:\x1b[0m"
    assert begin + b" " in shown
    assert str(path).encode() in shown
