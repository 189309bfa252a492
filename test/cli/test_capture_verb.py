# SPDX-License-Identifier: Apache-2.0
"""`capture` hands its options to the node or to the device's bus, which stand-ins take here."""

import json

import pytest
import typer

from edgefirst_ros.cli import capture as module
from edgefirst_ros.errors import UsageError


@pytest.fixture
def node(monkeypatch):
    """Arguments of the ROS 2 nodes that were run."""
    runs = []

    def run(name, arguments):
        runs.append((name, arguments))
        raise typer.Exit(3)

    monkeypatch.setattr(module, "run_node", run)
    return runs


@pytest.fixture
def bus(monkeypatch):
    """Endpoints, settings and namespaces of the sessions that were begun."""
    zenoh_capture = pytest.importorskip("edgefirst_ros.nodes.zenoh")
    runs = []

    def run(endpoint, settings, live, namespace):
        runs.append((endpoint, settings, live, namespace))
        return 3

    monkeypatch.setattr(zenoh_capture, "capture", run)
    return runs


def test_a_node_gets_ros_arguments_and_the_folder_as_a_parameter_behind_them(call, node):
    done = call("capture", "--out", 'my "drives"', "--ros-args", "-p", "rate:=1.0")
    assert done.exit_code == 3  # that of the node
    assert node == [("capture", ["--ros-args", "-p", "rate:=1.0", "--ros-args", "-p", 'out:="my \\"drives\\""'])]
    assert json.loads(node[0][1][-1].removeprefix("out:=")) == 'my "drives"'


def test_options_of_settings_are_parameters_of_a_node(call, node):
    call("capture", "--rate", "5", "--no-reuse", "--require", "radar.cube,lidar.points", "--set", "max_bytes=9")
    values = ["max_bytes:=9", "rate:=5", "no_reuse:=true", 'require:=["radar.cube", "lidar.points"]']
    ((name, arguments),) = node
    assert (name, arguments[0], sorted(arguments[2::2])) == ("capture", "--ros-args", sorted(values))


def test_empty_text_unsets_or_gives_nothing(call, node):
    call("capture", "--set", "autostart=", "--set", "rate=", "--set", "max_width=", "--set", "host=")
    assert node == [("capture", ["--ros-args", "-p", "rate:=0.0", "-p", "max_width:=0", "-p", 'host:=""'])]


def test_settings_of_recordings_are_refused(call, node, bus):
    for more in ([], ["--zenoh", "peer"]):
        said = str(call("capture", *more, "--set", "start=2").exception)
        assert said == "--set start: capture does not use this setting"
        assert "got '--start'" in str(call("capture", *more, "--start", "2").exception)
    assert (node, bus) == ([], [])


@pytest.mark.parametrize("option", [["--config", "x.yaml"], ["--namespace", "host"]])
def test_options_of_the_bus_are_refused_without_it(call, node, option):
    error = call("capture", *option).exception
    assert isinstance(error, UsageError)
    assert str(error).startswith(f"{option[0]} needs --zenoh")
    assert node == []


def test_the_bus_without_an_address_is_that_of_this_machine(call, bus, tmp_path):
    done = call("capture", "--zenoh", "-o", tmp_path / "out", "--rate", "2", "--set", "depth=7", "--namespace", "host")
    assert done.exit_code == 3, done.output
    ((endpoint, settings, live, namespace),) = bus
    assert (endpoint, settings.rate, namespace) == ("peer", 2.0, "host")
    assert (str(live.out), live.depth) == (f"{tmp_path}/out", 7)
    call("capture", "-o", tmp_path / "out", "--zenoh")
    call("capture", "--zenoh", "tcp/127.0.0.1:7447", "-o", tmp_path / "out")
    assert [run[0] for run in bus[1:]] == ["peer", "tcp/127.0.0.1:7447"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "rate"], "--set: expected NAME=VALUE, got 'rate'"),
        (
            ["127.0.0.1:7447"],
            (
                "expected options, got '127.0.0.1:7447': with --zenoh use --config and --set; an address is such as "
                "tcp/127.0.0.1:7447"
            ),
        ),
    ],
)
def test_what_is_no_setting_is_refused(call, bus, arguments, said):
    error = call("capture", "--zenoh", "peer", *arguments).exception
    assert isinstance(error, UsageError)
    assert str(error) == said
    assert bus == []
