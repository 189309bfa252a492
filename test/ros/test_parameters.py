# SPDX-License-Identifier: Apache-2.0
"""Settings as ROS parameters: names, types, ranges and defaults are the models', and wrong values are named."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")

from rcl_interfaces.msg import ParameterType  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from rclpy.qos import DurabilityPolicy, HistoryPolicy, ReliabilityPolicy  # noqa: E402
from rclpy.signals import SignalHandlerOptions  # noqa: E402

from edgefirst_ros.config import LiveSettings, ReplaySettings, Settings, StreamSettings  # noqa: E402
from edgefirst_ros.errors import UsageError  # noqa: E402
from edgefirst_ros.limits import Limits  # noqa: E402
from edgefirst_ros.nodes import replay  # noqa: E402
from edgefirst_ros.nodes.parameters import check, convert_numbers, declare, read  # noqa: E402
from edgefirst_ros.sources.ros import read_overrides  # noqa: E402

MAIVIN = Path(__file__).resolve().parents[2] / "config" / "maivin.yaml"
CHOSEN = {"keyframes": True}
"""What the file has for the device in place of the default (docs/how-to/capture-on-device.md)."""
MODELS = (ReplaySettings, Settings)


@pytest.fixture
def node(ros_domain: int) -> Iterator[Callable[..., Any]]:
    """Function that makes a node of ROS arguments: `node("rate:=5.0")`, or of a file with parameters."""
    made: list[Any] = []

    def make(*given: str | Path) -> Any:
        arguments = ["--ros-args"]
        for one in given:
            arguments += ["--params-file", str(one)] if isinstance(one, Path) else ["-p", one]
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
        made.append(rclpy.create_node("settings"))
        return made[0]

    yield make
    for one in made:
        one.destroy_node()
    rclpy.try_shutdown()


def test_nothing_given_is_the_defaults(node: Callable[..., Any]) -> None:
    it = node()
    declare(it, *MODELS)
    assert read(it, Settings) == Settings()
    assert read(it, ReplaySettings) == ReplaySettings()


def test_the_file_of_the_capture_has_every_parameter_at_its_default(node: Callable[..., Any]) -> None:
    it = node()
    own = set(it.get_parameters_by_prefix(""))
    declare(it, LiveSettings, Settings)
    declared = {name: one.value for name, one in it.get_parameters_by_prefix("").items() if name not in own}
    content = yaml.safe_load(MAIVIN.read_text())["/**"]["ros__parameters"]
    listed = flat(content)
    assert listed == declared | CHOSEN
    assert {name: type(value) for name, value in listed.items()} == {n: type(v) for n, v in declared.items()}
    top = set(content)
    assert top == set(LiveSettings.model_fields) | set(Settings.model_fields)
    assert all("#" in line for line in MAIVIN.read_text().splitlines() if re.match(r"    \w", line))


def test_the_file_of_the_capture_loads(node: Callable[..., Any]) -> None:
    it = node(MAIVIN)
    declare(it, LiveSettings, Settings)
    assert read(it, Settings) == Settings(**CHOSEN)
    assert read(it, LiveSettings) == LiveSettings()


def test_values_reach_the_model(node: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text("""
/settings:
  ros__parameters:
    rate: 5
    require: [radar.cube, lidar.points]
    split: train=0.75,val=0.25
    lookahead: 0.5
    heading_from_imu: true
    layout: directory
    streams:
      radar:
        cube: {tolerance: 0.0, offset: -0.0125}
      lidar: {points: {reuse: false}}
    limits: {cloud_points: 99}
""")
    it = node(file, "recordings:=['a.mcap', '~/b.mcap']", "jobs:=3")
    declare(it, *MODELS)
    assert read(it, Settings) == Settings(
        rate=5.0,
        require=("radar.cube", "lidar.points"),
        split={"train": 0.75, "val": 0.25},
        lookahead=0.5,
        heading_from_imu=True,
        layout="directory",
        jobs=3,
        streams={
            "radar.cube": StreamSettings(tolerance=0.0, offset=-0.0125),
            "lidar.points": StreamSettings(reuse=False),
        },
        limits=Limits(cloud_points=99),
    )
    assert read(it, ReplaySettings).recordings == ("a.mcap", f"{Path.home()}/b.mcap")


def test_the_file_of_a_capture_serves_a_replay(node: Callable[..., Any]) -> None:
    it = node(MAIVIN, "recordings:=['a.mcap']")
    ignored = declare(it, *MODELS, ignored=LiveSettings)
    assert set(ignored) == set(LiveSettings.model_fields) - set(ReplaySettings.model_fields)
    assert read(it, Settings) == Settings(**CHOSEN)
    assert read(it, ReplaySettings) == ReplaySettings(recordings=("a.mcap",))


@pytest.mark.parametrize("empty", ["require:=[]", "require:=['']"])
def test_an_empty_list_is_none(node: Callable[..., Any], empty: str) -> None:
    it = node(empty)
    declare(it, *MODELS)
    assert read(it, Settings).require == ()


@pytest.mark.parametrize("given", ["rate:=0.0", "gps_topic:=''", "split:=''", "streams.radar.cube.tolerance:=-1.0"])
def test_unset_is_the_default(node: Callable[..., Any], given: str) -> None:
    it = node(given)
    declare(it, *MODELS)
    assert read(it, Settings) == Settings()


BAD = [
    ("rate:=-1.0", "rate", "-1.0"),
    ("rate:=.inf", "rate", "inf"),
    ("rate:=fast", "rate", "'fast'"),
    ("keyframes:=1", "keyframes", "true or false"),
    ("keyframes:=yes please", "keyframes", "true or false"),
    ("tolerance:=-0.1", "tolerance", "at least 0"),
    ("tolerance:=60.5", "tolerance", "at most 60"),
    ("tolerance:=.nan", "tolerance", "nan"),
    ("lookahead:=0.0", "lookahead", "above 0"),
    ("time_base:=sundial", "time_base", "publish"),
    ("require:=[radar.cubes]", "require", "radar.cubes"),
    ("require:=radar.cube", "require", "a list of texts"),
    ("require:=[1, 2]", "require", "a list of texts"),
    ("streams.radar.cube.tolerance:=-0.5", "streams.radar.cube.tolerance", "-0.5"),
    ("streams.radar.cube.offset:=61.0", "streams.radar.cube.offset", "at most 60"),
    ("streams.radar.cube.reuse:=2", "streams.radar.cube.reuse", "true or false"),
    ("streams.sonar.tolerance:=0.1", "streams.sonar.tolerance", "unknown"),
    ("jpeg_quality:=101", "jpeg_quality", "at most 100"),
    ("jpeg_quality:=90.5", "jpeg_quality", "a whole number"),
    ("schema_version:=2026.10", "schema_version", "2026.10"),
    ("schema_version:='2024.01'", "schema_version", "'2024.01'"),
    ("split:=train", "split", "GROUP=SHARE"),
    ("split:=train=0.5", "split", "add up to 1, got 0.5"),
    ("group:=night*", "group", "GROUP=GLOB"),
    ("jobs:=257", "jobs", "at most 256"),
    ("overwrite:='on'", "overwrite", "true or false"),
    ("out:=''", "out", "at least 1 character"),
    ("jpeg_qualty:=80", "jpeg_qualty", "'jpeg_quality'"),
    ("pretriger:=1.0", "pretriger", "unknown"),
]


@pytest.mark.parametrize(("given", "name", "says"), BAD, ids=[given for given, _, _ in BAD])
def test_a_bad_parameter_is_named(ros_domain: int, given: str, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=f"^/replay: (unknown parameter )?'?{re.escape(name)}") as caught:
        run_replay("-p", given)
    assert caught.value.exit_code == 2
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-p", "nonsense"], "nonsense"),
        (["--params-file", "/nowhere.yaml"], "/nowhere.yaml"),
        (["--", "drive.mcap"], "drive.mcap"),
    ],
    ids=["form", "file", "not of ROS"],
)
def test_bad_arguments_are_told(ros_domain: int, arguments: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run_replay(*arguments)


def test_parameters_have_descriptions_and_ranges(node: Callable[..., Any]) -> None:
    it = node()
    declare(it, *MODELS)
    names = [*Settings.model_fields, *ReplaySettings.model_fields]
    names.remove("streams")
    names.remove("limits")
    described = {name: it.describe_parameter(name) for name in names}
    for name, descriptor in described.items():
        model = Settings if name in Settings.model_fields else ReplaySettings
        assert descriptor.description == model.model_fields[name].description
        assert descriptor.additional_constraints
        assert not descriptor.dynamic_typing
    assert floats(described["tolerance"]) == (0.0, 60.0)
    assert floats(described["rate"]) == (0.0, 1e6)
    assert described["rate"].additional_constraints.endswith("unset: 0.0")
    (whole,) = described["jpeg_quality"].integer_range
    assert (whole.from_value, whole.to_value) == (1, 100)
    assert described["time_base"].additional_constraints == "one of auto, publish, header, log"
    assert described["require"].type == ParameterType.PARAMETER_STRING_ARRAY
    own = it.describe_parameter("streams.lidar.points.tolerance")
    assert own.description == f"lidar.points: {StreamSettings.model_fields['tolerance'].description}"
    assert floats(own) == (-1.0, 60.0)
    assert own.additional_constraints.endswith("unset: -1.0")
    limit = it.describe_parameter("limits.picture_pixels")
    assert limit.description == f"limits: {Limits.__dataclass_fields__['picture_pixels'].metadata['description']}"
    (whole,) = limit.integer_range
    assert (whole.from_value, whole.to_value) == (1, 2**28)


def test_only_what_may_change_changes(node: Callable[..., Any]) -> None:
    it = node("rate:=5.0")
    declare(it, *MODELS)
    convert_numbers(it, MODELS)
    it.add_on_set_parameters_callback(lambda given: check(it, given, MODELS))

    def change(**values: Any) -> str:
        given = [Parameter(name.replace("__", "."), value=value) for name, value in values.items()]
        result = it.set_parameters_atomically(given)
        assert result.successful == (not result.reason)
        return str(result.reason)

    assert change(rate=2.5, use_sim_time=False) == ""
    assert change(rate=2) == ""  # a whole number where a number is meant
    assert read(it, Settings) == Settings(rate=2.0)
    assert "time_base cannot change" in change(time_base="log")
    assert change(time_base="auto") == ""  # no change
    assert change(keyframes=True) == ""
    assert not read(it, Settings).keyframes_only
    assert change(rate=0.0) == ""
    assert "streams.radar.cube.tolerance cannot change" in change(streams__radar__cube__tolerance=-0.5)
    assert "out of range" in change(jpeg_quality=101)
    assert read(it, Settings) == Settings(keyframes=True)


def test_qos_of_single_topics_is_read_from_a_file_of_rosbag2(tmp_path: Path) -> None:
    path = tmp_path / "qos.yaml"
    path.write_text(
        "/gps: {reliability: best_effort, depth: 5}\nimu: {durability: transient_local, history: keep_last}\n"
    )
    assert read_overrides(str(path)) == {
        "/gps": {"reliability": ReliabilityPolicy.BEST_EFFORT, "depth": 5},
        "/imu": {"durability": DurabilityPolicy.TRANSIENT_LOCAL, "history": HistoryPolicy.KEEP_LAST},
    }
    assert read_overrides(None) == {}
    path.write_text("/gps: {depth: 10000}\n/imu: {depth: 1}")
    assert read_overrides(str(path)) == {"/gps": {"depth": 10000}, "/imu": {"depth": 1}}
    for text, says in (
        ("/gps: {depth: many}", "/gps: depth: expected a whole number from 1 to 10000, got 'many'"),
        ("/gps: {depth: 10001}", "from 1 to 10000, got 10001"),
        ("/gps: {depth: 0}", "from 1 to 10000, got 0"),
        ("/gps: {reliability: perhaps}", "/gps: reliability: expected one of .*best_effort.*, got 'perhaps'"),
        ("/gps: {colour: red}", "/gps: colour: expected depth, history, reliability, durability"),
        ("[gps]", "expected topics with their QoS"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=says):
            read_overrides(str(path))


def floats(descriptor: Any) -> tuple[float, float]:
    (limits,) = descriptor.floating_point_range
    return limits.from_value, limits.to_value


def flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Parameters of a YAML file by their full names, as ROS reads it."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def run_replay(*arguments: str) -> int:
    """The node in this process; it takes the signals, which pytest gets back."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    try:
        return replay.main(["--ros-args", *arguments])
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
