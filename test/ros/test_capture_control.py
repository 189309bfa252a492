# SPDX-License-Identifier: Apache-2.0
"""The capture node as it is told what to do: services, lifecycle, signals, parameters; and what it tells."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from capturing import NODE, SMALL, Bench, Player, adds_up, frames, members  # noqa: E402
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402
from lifecycle_msgs.msg import Transition  # noqa: E402
from lifecycle_msgs.srv import ChangeState  # noqa: E402
from rcl_interfaces.srv import SetParameters  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402

from edgefirst_ros import convert  # noqa: E402

CAMERA = "/camera/h264"
FEW = {"topics": ["camera", "radar/targets", "gps", "imu"], **SMALL}
ALONE = {"topics": ["camera"], **SMALL}
GOP = 15

Start = Callable[..., Any]


def values(status: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in status.values}


def parts(node: Any) -> list[str]:
    """Names of the finished datasets, by the time of their first frame."""
    names = [path.name.removesuffix(".frames.arrow") for path in node.out.glob("*.frames.arrow")]
    return sorted(names, key=lambda name: frames(node.out / f"{name}.frames.arrow")["timestamp"][0])


def rows(node: Any, *names: str) -> list[dict[str, Any]]:
    """The rows of the frames of these datasets one after the other, without what tells the dataset."""
    found = [row for name in names for row in frames(node / f"{name}.frames.arrow").to_dicts()]
    return [{key: value for key, value in row.items() if key not in ("name", "frame")} for row in found]


def assert_parts_are_the_whole(node: Any, names: list[str], whole: Path, name: str) -> None:
    """Every frame is there once, with the companions and the position that it has in the unsplit conversion."""
    assert rows(node.out, *names) == rows(whole, name)
    clouds = [data for part in names for member, data in members(node.out / f"{part}.zip").items() if "pcd" in member]
    assert clouds == [data for member, data in members(whole / f"{name}.zip").items() if "pcd" in member]
    for part in names:
        frame = frames(node.out / f"{part}.frames.arrow")
        assert frame["frame"].to_list() == list(range(frame.height))
        assert frame["keyframe"][0]


def test_split_loses_no_frame(capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    path = recording(seconds=4, **FEW)
    player = Player(bench, path)
    node = capture(sequence=path.stem)
    player.ready()
    refused = node.trigger("split")
    assert not refused.success
    assert "nothing is being recorded" in refused.message
    player.play(end=1.7)
    assert node.trigger("split").success
    player.play(begin=1.7)
    node.has_received(player.sent)
    node.finish()
    convert(path, tmp_path / "offline")
    names = parts(node)
    assert len(names) == 2
    assert_parts_are_the_whole(node, names, tmp_path / "offline", path.stem)
    written = [node.counts(name)[CAMERA] for name in names]
    assert all(adds_up(count) and not count["dropped"] for count in written)
    assert sum(count["written"] for count in written) == 120


@pytest.mark.parametrize("limit", [{"max_seconds": 0.9}, {"max_bytes": 100_000}])
def test_datasets_are_split_by_themselves(
    limit: dict[str, Any], capture: Start, bench: Bench, recording: Any, tmp_path: Path
) -> None:
    path = recording(seconds=5, **FEW)
    player = Player(bench, path)
    node = capture(**limit)
    player.ready()
    player.play()
    node.has_received(player.sent)
    node.finish()
    names = parts(node)
    assert len(names) >= 3
    convert(path, tmp_path / "offline")
    assert_parts_are_the_whole(node, names, tmp_path / "offline", path.stem)


def test_pretrigger(capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    """The dataset begins with a keyframe at least that long before the start, with companions and position."""
    path = recording(seconds=5, **FEW)
    player = Player(bench, path)
    node = capture(autostart=False, pretrigger=1.2, sequence="triggered")
    with pytest.raises(AssertionError):
        node.until(lambda facts: facts["active"], 0.5)
    change(bench, Transition.TRANSITION_CONFIGURE)
    change(bench, Transition.TRANSITION_ACTIVATE)
    player.ready()
    player.play(end=3.4)
    node.has_received(player.sent)
    assert not node.status()["recording"]
    before = player.sent[CAMERA]
    assert node.trigger("start").success
    assert node.status()["recording"]
    player.play(begin=3.4)
    node.has_received(player.sent)
    assert json.loads(node.trigger("stop").message)["datasets"] == [str(node.out / "triggered.zip")]
    convert(path, tmp_path / "offline")
    got, whole = rows(node.out, "triggered"), rows(tmp_path / "offline", path.stem)
    first = len(whole) - len(got)
    assert first % GOP == 0
    assert 36 <= before - first <= 36 + GOP + 6  # pictures of 1.2 s, up to a group more, and the time until the call
    assert got == [{**row, "segment": 0} for row in whole[first:]]
    assert got[0]["latitude"] is not None
    assert got[0]["radar_targets_timestamp"] is not None
    assert node.counts("triggered")[CAMERA]["dropped"] == {}
    node.finish()


def test_start_and_stop_again(capture: Start, bench: Bench, recording: Any) -> None:
    """Without autostart ~/start is enough; every start is a dataset, with the host and the second in its name."""
    player = Player(bench, recording(seconds=4, **ALONE))
    node = capture(autostart=False, host="wagon", jpeg_quality=95)
    assert node.trigger("start").success
    player.ready()
    player.play(end=1.9)
    before = player.sent[CAMERA]
    facts = node.has_received(player.sent)
    assert facts["recording"]
    assert facts["sequence"].startswith("wagon_2")
    assert facts["counts"][CAMERA]["seen"] == player.sent[CAMERA]
    assert facts["time_base"] == {"base": "header", "topics": {}}
    assert {"samples", "bytes", "backlog", "queue", "flush_age_s", "finished", "failure"} <= facts.keys()

    assert set_parameter(bench, "jpeg_quality", 20).successful
    assert set_parameter(bench, "rate", 10.0).successful
    refused = set_parameter(bench, "layout", "directory")
    assert not refused.successful
    assert "layout cannot change" in refused.reason
    refused = set_parameter(bench, "jpeg_quality", 0)
    assert not refused.successful
    (one,) = json.loads(node.trigger("stop").message)["datasets"]
    assert not node.status()["recording"]
    player.play(begin=1.9, end=2.3)  # nobody wants these
    assert node.trigger("start").success
    player.play(begin=2.3)
    node.has_received(player.sent)
    assert len(json.loads(node.trigger("stop").message)["datasets"]) == 2
    node.finish()
    first, second = parts(node)
    assert one == str(node.out / f"{first}.zip")
    assert frames(node.out / f"{first}.frames.arrow").height == before
    assert node.counts(second)[CAMERA]["dropped"].keys() == {"not sampled"}
    sizes = [min(map(len, members(node.out / f"{name}.zip").values())) for name in (first, second)]
    assert sizes[1] < 0.7 * sizes[0]  # of jpeg_quality


def change(bench: Bench, transition: int) -> None:
    request = ChangeState.Request(transition=Transition(id=transition))
    assert bench.call(ChangeState, "/capture/change_state", request).success


def set_parameter(bench: Bench, name: str, value: Any) -> Any:
    request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
    (answer,) = bench.call(SetParameters, "/capture/set_parameters", request).results
    return answer


def test_lifecycle(capture: Start, bench: Bench, recording: Any) -> None:
    """Deactivated it completes the dataset and hears nothing; activated again it begins another; shut down it ends."""
    player = Player(bench, recording(seconds=3, **ALONE))
    node = capture()
    player.ready()
    player.play(end=1.48)
    node.has_received(player.sent)
    change(bench, Transition.TRANSITION_DEACTIVATE)
    facts = node.status()
    assert not facts["active"]
    assert len(facts["finished"]) == 1
    assert player._publishers[CAMERA].get_subscription_count() == 0
    change(bench, Transition.TRANSITION_CLEANUP)
    change(bench, Transition.TRANSITION_CONFIGURE)
    change(bench, Transition.TRANSITION_ACTIVATE)
    player.ready()
    player.play(begin=1.48)
    node.has_received({CAMERA: 90 - 45})
    change(bench, Transition.TRANSITION_ACTIVE_SHUTDOWN)
    assert node.process.wait(5.0) == 0, node.process.log
    assert [frames(node.out / f"{name}.frames.arrow").height for name in parts(node)] == [45, 45]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_while_it_records(how: signal.Signals, capture: Start, start: Start, recording: Any) -> None:
    path = recording(seconds=60, **{**ALONE, "size": (128, 64)})
    node = capture(sequence="ended")
    player = start("-m", "edgefirst_ros.cli", "play", "--ros-args", "-p", f"recording:={path}")
    node.until(lambda facts: facts.get("topics", {}).get(CAMERA, {}).get("received", 0) > 40)
    node.finish(how)
    assert player.process.poll() is None
    count = node.counts("ended")[CAMERA]
    assert adds_up(count)
    assert count["written"] == len(members(node.out / "ended.zip")) > 40
    assert not list(node.out.glob("*.partial")) + list(node.out.glob("*.journal"))


def test_less_than_a_second_is_a_dataset_too(capture: Start, bench: Bench, recording: Any) -> None:
    """Shorter than what the clock is chosen by."""
    player = Player(bench, recording(seconds=3, **ALONE))
    node = capture(sequence="short")
    player.ready()
    player.play(end=0.4)
    node.has_received(player.sent)
    node.finish()
    assert node.counts("short")[CAMERA] == {"seen": player.sent[CAMERA], "written": player.sent[CAMERA], "dropped": {}}


def test_diagnostics(capture: Start, bench: Bench, recording: Any) -> None:
    player = Player(bench, recording(seconds=5, **FEW))
    node = capture(sequence="told")
    player.ready()
    player.play()
    node.has_received(player.sent)
    came = [array.header.stamp.sec + array.header.stamp.nanosec / 1e9 for array in bench.diagnostics]
    steps = [b - a for a, b in itertools.pairwise(came)]
    assert 0.9 < sum(steps) / len(steps) < 1.1
    whole = values(bench.statuses("capture: dataset")[-1])
    assert whole["dataset"] == "told"
    assert int(whole["samples"]) > 30
    assert 0 <= float(whole["age of the last flush, s"]) < 2.5
    assert abs(int(whole["disk left, bytes"]) - shutil.disk_usage(node.out).free) < 1 << 30
    assert whole["clock"] == "header"
    assert whole["decoder"] == "software"
    assert 0 < json.loads(whole["worst skew, ms"])["radar_targets_skew"] <= 100
    for topic, rate in ((CAMERA, 30), ("/radar/targets", 18), ("/imu", 50)):
        told = bench.statuses(f"capture: {topic}")[-2:-1][0]
        assert abs(float(values(told)["expected rate, Hz"]) - rate) < 0.2 * rate
        assert 0 < float(values(told)["longest gap, s"]) < 1
        assert {"rate, Hz", "queue", "dropped", "lost"} <= values(told).keys()
        assert told.level == DiagnosticStatus.OK, told.message
    assert bench.statuses("capture: dataset")[-1].level == DiagnosticStatus.OK
    node.finish()


def test_overload_thins_samples_and_counts_them(capture: Start, bench: Bench, recording: Any) -> None:
    """PNG of large pictures by one thread, at four times the pace: no message is lost, and none in silence."""
    path = recording(seconds=16, noise=2.0, gop=15, topics=["camera"], size=(1920, 1080))
    player = Player(bench, path)
    node = capture(sequence="much", camera_format="png", jobs=1)
    player.ready()
    began = time.monotonic()
    player.play(rate=4.0)
    facts = node.has_received(player.sent)
    memory = int(Path(f"/proc/{node.process.process.pid}/status").read_text().split("VmHWM:")[1].split()[0])
    assert facts["topics"][CAMERA]["lost"] == 0
    facts = node.until(lambda facts: facts["counts"][CAMERA]["dropped"])
    assert time.monotonic() - began < 20
    node.finish(code=3)
    count = node.counts("much")[CAMERA]
    assert adds_up(count)
    assert count["seen"] == player.sent[CAMERA] == 480
    assert count["dropped"].keys() == {"left out under load"}
    assert count["written"] == len(members(node.out / "much.zip")) > 10
    assert memory < 900_000, f"{memory} kB"
    troubled = [s for s in bench.statuses(f"capture: {CAMERA}") if "left out under load" in s.message]
    assert not troubled or troubled[-1].level == DiagnosticStatus.WARN


def test_a_full_disk_ends_the_dataset_cleanly(capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    """Nothing is begun with too little space, which the exit code says; where it gets too little, all is complete."""
    player = Player(bench, recording(seconds=3, **ALONE))
    node = capture(min_free_bytes=1 << 60, sequence="full")
    player.ready()
    player.play(end=1.6)
    facts = node.until(lambda facts: facts["failure"])
    assert "bytes are free" in facts["failure"]
    answer = node.trigger("start")
    assert not answer.success
    assert "bytes are free" in answer.message
    deadline = time.monotonic() + 5
    while not any(s.level == DiagnosticStatus.ERROR for s in bench.statuses("capture: dataset")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert set_parameter(bench, "min_free_bytes", 0).successful
    assert node.trigger("start").success
    player.play(begin=1.6)
    node.has_received(player.sent)
    assert node.status()["recording"]
    node.finish(code=3)
    assert len(parts(node)) == 1

    nothing = capture(min_free_bytes=1 << 60, out=tmp_path / "nothing")
    again = Player(bench, recording(seconds=3, **ALONE))
    again.ready()
    again.play(end=1.6)
    nothing.until(lambda facts: facts["failure"])
    nothing.finish(code=1)
    assert not list(nothing.out.glob("*"))


def test_parameters_of_a_file(capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    path = recording(seconds=2, **FEW)
    file = tmp_path / "capture.yaml"
    file.write_text(
        "/**:\n  ros__parameters:\n    rate: 5.0\n    layout: directory\n    require: [radar.targets]\n"
        "    streams: {radar: {targets: {tolerance: 0.02}}}\n"
    )
    player = Player(bench, path)
    node = capture(ros=("--params-file", str(file)), sequence=path.stem)
    player.ready()
    player.play()
    node.has_received(player.sent)
    node.finish()
    settings = {"rate": 5.0, "layout": "directory", "require": ("radar.targets",)}
    convert(path, tmp_path / "offline", streams={"radar.targets": {"tolerance": 0.02}}, **settings)
    live, offline = (
        {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file() and "frames" not in p.name}
        for folder in (node.out, tmp_path / "offline")
    )
    assert live == offline
    assert len(live) > 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-p", "jpeg_quality:=0"), "jpeg_quality: found 0, expected a whole number at least 1, at most 100"),
        (("-p", "pretriger:=1.0"), "unknown parameter 'pretriger'; did you mean 'pretrigger'?"),
        (("-p", "rate:=2.0", "-p", "keyframes:=true"), "rate and keyframes exclude each other"),
        (("-p", "require:=[sonar]"), "require"),
        (("-p", "nonsense"), "ROS arguments"),
    ],
    ids=["range", "unknown", "both", "sensor", "form"],
)
def test_wrong_parameters_are_refused(arguments: tuple[str, ...], says: str, start: Start, ros_domain: int) -> None:
    node = start(*NODE, *arguments)
    assert node.wait(20.0) == 2, node.log
    assert says in node.log
    assert "Traceback" not in node.log


def test_without_ros_the_command_says_what_to_install(command: list[str], tmp_path: Path) -> None:
    blind = "import sys; sys.modules['rclpy'] = None; from edgefirst_ros.cli import main; main()"
    done = subprocess.run([command[0], "-c", blind, "capture"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "ros-jazzy" in done.stderr
    assert "has no ROS 2" in done.stderr
    assert "Traceback" not in done.stderr
