# SPDX-License-Identifier: Apache-2.0
"""The conversion as a node, in a process of its own: same bytes as `convert`, progress, exit codes, signals."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus  # noqa: E402
from rcl_interfaces.srv import DescribeParameters, ListParameters, SetParameters  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from waiting import LONG  # noqa: E402

from edgefirst_ros import convert  # noqa: E402
from edgefirst_ros.config import ReplaySettings, Settings  # noqa: E402

NODE = ("-m", "edgefirst_ros", "replay", "--ros-args")
SMALL = {"seconds": 2, "size": (160, 96), "cube_shape": (2, 16, 4, 32), "lidar_points": 100}
MUCH = {"seconds": 30, "size": (160, 96), "cube_shape": (2, 16, 4, 32), "lidar_points": 100}
COMMITTED = re.compile(rb'"commit": ?\{"samples": ?[1-9]')
"""In a journal: a commit of samples, which stay after a signal."""
HEARD = """
import os, sys, time, rclpy
from edgefirst_ros.cli import main
from edgefirst_ros.nodes import replay

convert = replay.convert

def when_heard(*arguments, **options):
    looking = rclpy.create_node("looking")
    while not looking.count_subscribers("/diagnostics"):
        time.sleep(0.01)
    looking.destroy_node()
    tell, out = options["progress"], arguments[1]

    def progress(what, done, of):
        tell(what, done, of)
        if "PACED" in os.environ and what.startswith("converting") and done > of // 4 and os.path.exists(out):
            time.sleep(0.02)

    return convert(*arguments, **options | {"progress": progress})

replay.convert = when_heard
sys.argv.insert(1, "replay")
main()
"""
"""The node, whose conversion begins when somebody listens: now and then DDS takes 3 s to discover who does.

With the variable PACED three quarters of it take most of a minute, unless the folder that it writes to is removed.
"""


class Listener:
    """Everything that comes on /diagnostics, until something is seen."""

    def __init__(self) -> None:
        self.node = rclpy.create_node("listener")
        self.seen: list[Any] = []
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._take, 100)

    def _take(self, message: Any) -> None:
        self.seen += [status for status in message.status if status.name.endswith("/replay: conversion")]

    @property
    def converting(self) -> list[Any]:
        return [status for status in self.seen if "converting" in status.message]

    @property
    def step(self) -> str | None:
        return values(self.seen[-1])["step"] if self.seen else None

    def until(self, enough: Callable[[], bool], timeout: float = LONG) -> None:
        deadline = time.monotonic() + timeout
        while not enough():
            assert time.monotonic() < deadline, f"seen: {[status.message for status in self.seen]}"
            rclpy.spin_once(self.node, timeout_sec=0.1)

    def call(self, kind: Any, service: str, request: Any) -> Any:
        client = self.node.create_client(kind, service)
        assert client.wait_for_service(LONG)
        answer = client.call_async(request)
        self.until(answer.done)
        return answer.result()


@pytest.fixture
def listener(ros_domain: int) -> Iterator[Listener]:
    rclpy.init()
    it = Listener()
    yield it
    it.node.destroy_node()
    rclpy.shutdown()


def values(status: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in status.values}


def recordings(*paths: Path) -> tuple[str, ...]:
    return "-p", f"recordings:=[{', '.join(repr(str(path)) for path in paths)}]"


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_dataset_is_that_of_convert(recording: Any, start: Callable[..., Any], tmp_path: Path) -> None:
    """With parameters of a file and of the command line, byte for byte; metadata of the settings included."""
    path = recording(**SMALL)
    file = tmp_path / "replay.yaml"
    file.write_text(
        "/**:\n  ros__parameters:\n    rate: 10.0\n    split: train=0.5,val=0.5\n    split_block: 0.5\n"
        "    streams: {radar: {cube: {tolerance: 0.02}}}\n"
    )
    arguments = ("--params-file", file, *recordings(path), "-p", f"out:={tmp_path / 'node'}", "-p", "name:=same")
    node = start(*NODE, *arguments, "-p", "require:=[radar.cube]")
    assert node.wait() == 0, node.log
    outcome = convert(
        path, tmp_path / "direct", name="same", rate=10.0, split={"train": 0.5, "val": 0.5}, split_block=0.5,
        streams={"radar.cube": {"tolerance": 0.02}}, require=("radar.cube",),
    )  # fmt: skip
    assert outcome.samples > 5
    assert files(tmp_path / "node") == files(tmp_path / "direct")
    assert {Path(name).suffix for name in files(tmp_path / "node")} == {".zip", ".arrow"}
    assert f"{outcome.samples} samples in {tmp_path / 'node' / 'same.zip'}" in node.log


def test_progress_and_parameters_are_seen_and_signals_stop(
    recording: Any, start: Callable[..., Any], listener: Listener, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    node = start("-c", HEARD, "--ros-args", *recordings(recording(**MUCH)), "-p", f"out:={out}", PACED="1")
    listener.until(lambda: len({values(status)["percent"] for status in listener.converting}) >= 2)
    assert {status.level for status in listener.converting} == {DiagnosticStatus.OK}
    first, then = values(listener.converting[0]), values(listener.converting[-1])
    assert 0.0 <= float(first["percent"]) < float(then["percent"]) < 100.0
    assert float(then["percent_per_s"]) > 0
    assert float(then["eta_s"]) > 0
    assert then["recording"] == "1 of 1"

    names = listener.call(ListParameters, "/replay/list_parameters", ListParameters.Request()).result.names
    fields = {*Settings.model_fields, *ReplaySettings.model_fields} - {"streams", "limits"}
    assert fields | {"streams.lidar.points.reuse", "limits.picture_pixels"} <= set(names)
    request = DescribeParameters.Request(names=["jpeg_quality"])
    (described,) = listener.call(DescribeParameters, "/replay/describe_parameters", request).descriptors
    assert described.description == Settings.model_fields["jpeg_quality"].description
    assert (described.integer_range[0].from_value, described.integer_range[0].to_value) == (1, 100)
    change = SetParameters.Request(parameters=[Parameter("jpeg_quality", value=50).to_parameter_msg()])
    (answer,) = listener.call(SetParameters, "/replay/set_parameters", change).results
    assert not answer.successful
    assert "jpeg_quality cannot change" in answer.reason

    listener.until(lambda: any(COMMITTED.search(data) for name, data in files(out).items() if name.endswith("journal")))
    assert node.stop(signal.SIGTERM) == 128 + signal.SIGTERM, node.log
    listener.until(lambda: listener.step == "stopped")
    assert listener.seen[-1].level == DiagnosticStatus.WARN
    assert "Traceback" not in node.log
    assert files(out)
    assert all(name.endswith((".partial", ".journal", ".lock")) for name in files(out)), list(files(out))


def test_loss_is_exit_code_3_and_a_warning(
    recording: Any, start: Callable[..., Any], listener: Listener, tmp_path: Path
) -> None:
    whole = recording(**MUCH)
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 3 // 4])
    node = start("-c", HEARD, "--ros-args", *recordings(cut), "-p", f"out:={tmp_path / 'out'}")
    listener.until(lambda: listener.step == "finished")
    assert node.wait() == 3, node.log
    last = listener.seen[-1]
    assert last.level == DiagnosticStatus.WARN
    assert last.message.startswith("finished with loss")
    assert "cut.mcap: at byte" in values(last)["note 1"]
    assert (tmp_path / "out" / "cut.zip").is_file()


def test_a_failure_is_exit_code_1_and_an_error(
    recording: Any, start: Callable[..., Any], listener: Listener, tmp_path: Path
) -> None:
    """Somebody removes the folder while the node writes to it."""
    out = tmp_path / "out"
    node = start("-c", HEARD, "--ros-args", *recordings(recording(**MUCH)), "-p", f"out:={out}", PACED="1")
    listener.until(lambda: "converting" in str(listener.step))
    shutil.rmtree(out)
    listener.until(lambda: listener.step == "failed")
    assert node.wait() == 1, node.log
    assert listener.seen[-1].level == DiagnosticStatus.ERROR
    assert str(out) in listener.seen[-1].message
    assert str(out) in node.log
    assert "Traceback" not in node.log


def test_wrong_usage_is_told_and_an_exit_code(start: Callable[..., Any], ros_domain: int, tmp_path: Path) -> None:
    """More of it: test_parameters.py.

    The nodes start at once and end at once, hence none is to discover another: where peers come and leave while a node
    makes its services or is destroyed, Fast DDS 3.2 now and then locks up or crashes.
    """
    wrong: dict[str, tuple[int, tuple[str, ...]]] = {
        "nothing.mcap": (1, recordings(tmp_path / "nothing.mcap")),
        "/replay: jpeg_quality: expected a whole number at least 1, at most 100, got 0": (
            2,
            ("-p", "jpeg_quality:=0"),
        ),
        "no recording is given": (2, ()),
        "../x": (2, ("-p", "recordings:=[a.mcap]", "-p", "name:=../x")),
    }
    nodes = {
        says: (code, start(*NODE, *arguments, "-p", f"out:={tmp_path / 'out'}", ROS_AUTOMATIC_DISCOVERY_RANGE="OFF"))
        for says, (code, arguments) in wrong.items()
    }
    for says, (code, node) in nodes.items():
        assert node.wait() == code, node.log
        assert says in node.log
        assert "Traceback" not in node.log
    assert not (tmp_path / "out").exists()
