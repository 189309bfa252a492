# SPDX-License-Identifier: Apache-2.0
"""The launch files: what they say is right, and the nodes they start run and end as they should."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")

import launch_file  # noqa: E402
from launch_file import LAUNCH, ROOT, LaunchError, arguments_of, resolve  # noqa: E402
from rclpy.parameter_client import AsyncParameterClient  # noqa: E402
from rclpy.qos import QoSProfile  # noqa: E402
from sensor_msgs.msg import Imu  # noqa: E402
from waiting import spin_until, wait_printed  # noqa: E402

from edgefirst_ros.config import PlayerSettings  # noqa: E402
from edgefirst_ros.config.load import list_setting_fields  # noqa: E402

PLAY = "play.launch.yaml"
FILES = sorted(path.name for path in LAUNCH.glob("*.launch.*"))
IMU = {"seconds": 1, "topics": ("imu",)}


@pytest.fixture
def node(ros_domain: int) -> Iterator[Any]:
    rclpy.init()
    made = rclpy.create_node("listener")
    yield made
    made.destroy_node()
    rclpy.shutdown()


@pytest.fixture
def launch(start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Function that starts the node of a launch file: `launch("play.launch.yaml", recording="drive.mcap")`."""
    monkeypatch.chdir(tmp_path)  # where a capture makes its folder

    def begin(name: str, **arguments: str) -> Any:
        launched = resolve(name, tmp_path, **arguments)
        command = launched.command
        python = command[1:] if command[0] == sys.executable else command
        return start(*python, **launched.environment, PYTHONPATH=str(ROOT))

    return begin


def test_every_file_is_there() -> None:
    assert FILES == ["capture.launch.yaml", "play.launch.yaml", "replay.launch.yaml"]


@pytest.mark.parametrize("name", FILES)
def test_every_argument_is_described_and_used(name: str) -> None:
    text = (LAUNCH / name).read_text()
    for argument in arguments_of(name).values():
        assert len(argument.description) > 10
        assert f"$(var {argument.name})" in text
    assert {"namespace"} <= set(arguments_of(name))


@pytest.mark.parametrize("name", FILES)
def test_the_profile_of_fast_dds_is_set(name: str, tmp_path: Path) -> None:
    needed = {key: "x" for key, argument in arguments_of(name).items() if argument.default is None}
    environment = resolve(name, tmp_path, **needed).environment
    assert set(environment) == {"FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"}
    assert {Path(value) for value in environment.values()} == {ROOT / "config" / "fastdds.xml"}
    assert (ROOT / "config" / "fastdds.xml").is_file()


def test_play_has_the_parameters_of_the_player_with_their_defaults(tmp_path: Path) -> None:
    command = resolve(PLAY, tmp_path, recording="drive.mcap").command
    file = Path(command[command.index("--params-file") + 1])
    given = yaml.safe_load(file.read_text())["/**"]["ros__parameters"]
    assert given == {field.name: field.default for field in list_setting_fields(PlayerSettings).values()} | {
        "recording": "drive.mcap"
    }


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("launch: [{node: {pkg: edgefirst_ros, exec: edgefirst-ros, emulate_tty: 'true'}}]", "emulate_tty"),
        ("launch: [{group: {scoped: 'true'}}]", "group"),
        ("launch: [{arg: {name: rate, default: 1.0}}]", "texts"),
        ("launch: [{node: {respawn_delay: '2.0'}}]", "a number for a delay"),
        ("{launch: [], version: '1'}", "nothing else"),
    ],
)
def test_the_reader_refuses_what_it_does_not_know(
    content: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_file, "LAUNCH", tmp_path)
    (tmp_path / "x.launch.yaml").write_text(content)
    with pytest.raises(LaunchError, match=found):
        resolve("x.launch.yaml", tmp_path)


def test_the_reader_refuses_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="recording must be given"):
        resolve(PLAY, tmp_path)
    with pytest.raises(LaunchError, match="no argument"):
        resolve(PLAY, tmp_path, recording="x", speed="2.0")
    with pytest.raises(LaunchError, match="no value"):
        resolve(PLAY, tmp_path, recording="x", topics="[]")


def test_play_plays_in_its_namespace(node: Any, launch: Callable[..., Any], recording: Callable[..., Path]) -> None:
    got: list[bytes] = []
    node.create_subscription(Imu, "/car1/imu", got.append, QoSProfile(depth=100), raw=True)
    player = launch(PLAY, recording=str(recording(**IMU)), rate="4.0", namespace="car1", topics="['imu']")
    spin_until(node, lambda: f"played to the end: {len(got)} messages" in player.log)
    assert player.stop() == 0, player.log
    assert len(got) > 20


def test_play_ends_on_the_signal_of_launch(launch: Callable[..., Any], recording: Callable[..., Path]) -> None:
    player = launch(PLAY, recording=str(recording(**IMU)), loop="true", wait_for_subscribers="0")
    wait_printed(player, "playing")
    assert player.stop(signal.SIGINT) == 0, player.log


def test_capture_waits_for_a_camera_and_ends_on_the_signal_of_launch(launch: Callable[..., Any]) -> None:
    process = launch("capture.launch.yaml", namespace="/car")
    wait_printed(process, "waiting: no camera topic")
    assert "[car.capture]" in process.log
    assert process.stop(signal.SIGINT) == 1, "nothing was recorded"


def test_capture_is_started_again_unless_asked_not_to(tmp_path: Path) -> None:
    assert resolve("capture.launch.yaml", tmp_path).respawn
    assert not resolve("capture.launch.yaml", tmp_path, respawn="false").respawn


@pytest.mark.parametrize(("given", "found"), [({}, "datasets"), ({"out": "a b"}, "a b")])
def test_capture_goes_where_it_is_told_before_what_parameters_say(
    node: Any, launch: Callable[..., Any], given: dict[str, str], found: str
) -> None:
    more = {"use_sim_time": "true", "autostart": "false"} if given else {}
    process = launch("capture.launch.yaml", **given, **more)
    client = AsyncParameterClient(node, "/capture")
    assert client.wait_for_services(60), process.log
    answer = client.get_parameters(["out", "use_sim_time", "autostart"])
    spin_until(node, answer.done)
    out, simulated, autostart = answer.result().values
    assert (out.string_value, simulated.bool_value, autostart.bool_value) == (found, bool(more), not more)
    assert process.stop(signal.SIGINT) == (0 if more else 1), process.log


def test_replay_converts(launch: Callable[..., Any], recording: Callable[..., Path], tmp_path: Path) -> None:
    path = recording(seconds=1, size=(320, 180))
    process = launch("replay.launch.yaml", recordings=f"['{path}']", out=str(tmp_path / "out"), rate="10.0")
    assert process.wait() == 0, process.log
    assert (tmp_path / "out" / f"{path.stem}.zip").is_file()


@pytest.mark.skipif(launch_file.ros2() is None, reason="no `ros2` here")
def test_ros2_launch_plays(recording: Callable[..., Path]) -> None:
    command = [str(launch_file.ros2()), "launch", "edgefirst_ros", PLAY]
    done = subprocess.run(
        [*command, f"recording:={recording(**IMU)}", "rate:=10.0", "wait_for_subscribers:=0"],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "played to the end" in done.stdout + done.stderr


# ---- the end ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("verb", ["capture", "play", "replay", "control"])
def test_a_node_that_ends_leaves_no_shared_memory(
    verb: str, recording: Callable[..., Path], tmp_path: Path, start: Callable[..., Any], ros_domain: int
) -> None:
    """Fast DDS has a segment of megabytes a process in /dev/shm, which stays until the next start of the machine."""
    drive, out = recording(seconds=2), tmp_path / "out"
    arguments = {
        "capture": ("-o", out),
        "play": (drive, "--rate", "0.1"),
        "replay": (drive, "-o", out, "--rate", "0.1"),
        "control": ("watch",),
    }[verb]
    run = start(Path(sys.executable).with_name("edgefirst-ros"), verb, *arguments)
    segments: set[str] = set()
    while not segments and run.process.poll() is None:
        time.sleep(0.05)
        mapped = re.findall(r"/dev/shm/fastdds_[0-9a-f]+", Path(f"/proc/{run.process.pid}/maps").read_text())
        segments = {path for path in mapped if os.path.exists(path)}
    while verb == "control" and "no capture answers" not in run.log:  # an import may swallow an interrupt
        time.sleep(0.05)
    run.stop()
    assert segments
    assert [path for path in segments if os.path.exists(path)] == []
