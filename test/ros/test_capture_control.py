# SPDX-License-Identifier: Apache-2.0
"""The capture node as it is told what to do: services, lifecycle, signals, parameters; and what it tells."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from capturing import ALONE, CAMERA, FEW, PATIENT, Bench, Player, adds_up, frames, members  # noqa: E402
from lifecycle_msgs.msg import Transition  # noqa: E402
from lifecycle_msgs.srv import ChangeState  # noqa: E402

from edgefirst_ros import convert  # noqa: E402

Start = Callable[..., Any]


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


def named(name: str) -> dict[str, Any]:
    """For one of several nodes that hear the same messages."""
    return {"name": f"/{name}", "ros": ("-r", f"__node:={name}")}


def test_splits_lose_no_frame(capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    """One that is asked for, and those of datasets that are split by themselves."""
    limits: dict[str, dict[str, Any]] = {
        "asked": PATIENT,
        "time": {"max_seconds": 0.6, **PATIENT},
        "size": {"max_bytes": 10_000, "lookahead": 2.0},  # a dataset has a size only once its first frames are written
    }
    nodes = {name: capture(**named(name), out=tmp_path / name, **limit) for name, limit in limits.items()}
    path = recording(seconds=3.5, **FEW)
    player = Player(bench, path)
    player.ready(subscribers=len(nodes))
    asked = nodes["asked"]
    refused = asked.trigger("split")
    assert not refused.success
    assert "no dataset is being recorded" in refused.message
    player.play(end=1.7)
    asked.until(lambda facts: facts["recording"])
    assert asked.trigger("split").success
    nodes["size"].until(lambda facts: facts["counts"].get(CAMERA, {"written": 0})["written"] > 20)  # now it has a size
    player.play(begin=1.7)
    convert(path, tmp_path / "offline", **PATIENT)
    for name, node in nodes.items():
        node.has_received(player.sent)
        node.finish()
        names = parts(node)
        assert len(names) == 2 if name == "asked" else len(names) >= {"time": 3, "size": 2}[name], name
        assert_parts_are_the_whole(node, names, tmp_path / "offline", path.stem)
        written = [node.counts(part)[CAMERA] for part in names]
        assert all(adds_up(count) and not count["dropped"] for count in written)
        assert sum(count["written"] for count in written) == 105


def change(bench: Bench, transition: int) -> None:
    assert bench.call(ChangeState, "/capture/change_state", asked(transition)).success


def asked(transition: int) -> Any:
    return ChangeState.Request(transition=Transition(id=transition))


def test_lifecycle(capture: Start, bench: Bench, recording: Any) -> None:
    """Deactivated it completes the dataset and hears nothing; activated again it begins another; shut down it ends."""
    player = Player(bench, recording(seconds=3, **ALONE), volatile=True)
    node = capture()
    player.ready()
    player.play(end=1.48)
    node.has_received(player.sent)
    change(bench, Transition.TRANSITION_DEACTIVATE)
    facts = node.status()
    assert not facts["active"]
    assert len(facts["finished"]) == 1
    player.alone()
    change(bench, Transition.TRANSITION_CLEANUP)
    change(bench, Transition.TRANSITION_CONFIGURE)
    change(bench, Transition.TRANSITION_ACTIVATE)
    player.ready()
    player.play(begin=1.48)
    node.has_received({CAMERA: 90 - 45})
    with bench.asking(ChangeState, "/capture/change_state", asked(Transition.TRANSITION_ACTIVE_SHUTDOWN)):
        assert node.process.wait() == 0, node.process.log  # it may be gone before its answer is here
    assert [frames(node.out / f"{name}.frames.arrow").height for name in parts(node)] == [45, 45]


def test_signals_end_it_while_it_records(capture: Start, start: Start, recording: Any, tmp_path: Path) -> None:
    signals = {how.name.lower(): how for how in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    nodes = {name: capture(**named(name), out=tmp_path / name, sequence="ended") for name in signals}
    path = recording(seconds=30, **{**ALONE, "size": (128, 64)})
    player = start("-m", "edgefirst_ros", "play", "--ros-args", "-p", f"recording:={path}")
    for name, node in nodes.items():
        node.until(lambda facts: facts.get("topics", {}).get(CAMERA, {}).get("received", 0) > 60)
        node.finish(signals[name])
        count = node.counts("ended")[CAMERA]
        assert adds_up(count)
        assert count["written"] == len(members(node.out / "ended.zip")) > 40, name
        assert not list(node.out.glob("*.partial")) + list(node.out.glob("*.journal")), name
    assert player.process.poll() is None


def test_less_than_a_second_is_a_dataset_too(capture: Start, bench: Bench, recording: Any) -> None:
    """Shorter than what the clock is chosen by."""
    player = Player(bench, recording(seconds=3, **ALONE))
    node = capture(sequence="short")
    player.ready()
    player.play(end=0.4)
    node.has_received(player.sent)
    node.finish()
    assert node.counts("short")[CAMERA] == {"seen": player.sent[CAMERA], "written": player.sent[CAMERA], "dropped": {}}


def test_parameters_of_a_file(capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    path = recording(seconds=2, **FEW)
    file = tmp_path / "capture.yaml"
    file.write_text(
        "/**:\n  ros__parameters:\n    rate: 5.0\n    lookahead: 3.0\n    layout: directory\n"
        "    require: [radar.targets]\n    streams: {radar: {targets: {tolerance: 0.02}}}\n"
    )
    player = Player(bench, path)
    node = capture(ros=("--params-file", str(file)), sequence=path.stem)
    player.ready()
    player.play()
    node.has_received(player.sent)
    node.finish()
    settings = {"rate": 5.0, "layout": "directory", "require": ("radar.targets",), **PATIENT}
    convert(path, tmp_path / "offline", streams={"radar.targets": {"tolerance": 0.02}}, **settings)
    live, offline = (
        {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file() and "frames" not in p.name}
        for folder in (node.out, tmp_path / "offline")
    )
    assert live == offline
    assert len(live) > 5


def test_without_ros_the_command_says_what_to_install(command: list[str], tmp_path: Path) -> None:
    blind = "import sys; sys.modules['rclpy'] = None; from edgefirst_ros.cli import main; main()"
    done = subprocess.run([command[0], "-c", blind, "capture"], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 1
    assert "ros-kilted-ros-base" in done.stderr
    assert "has no ROS 2" in done.stderr
    assert "Traceback" not in done.stderr
