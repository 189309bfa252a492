# SPDX-License-Identifier: Apache-2.0
"""Common parts of live verbs: ROS 2 nodes (`edgefirst-ros VERB --ros-args ...`) and the device's bus (`--zenoh`)."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NoReturn

import typer

from edgefirst_ros.errors import EdgeFirstError, UsageError

NODE = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context settings of such a verb: unknown options are ROS arguments."""
ROS_ARGUMENTS = typer.Argument(
    metavar="--ros-args ...", help="ROS arguments: `-p NAME:=VALUE`, `--params-file FILE`, `-r FROM:=TO`."
)
REC_ARGUMENTS = typer.Argument(
    metavar="REC [--ros-args ...]", help="Recording; for ROS 2, `--ros-args` with the arguments of a node may follow."
)
ZENOH = typer.Option("--zenoh", metavar="[ENDPOINT|peer]", help="Zenoh router or peer, such as tcp/127.0.0.1:7447.")
NAMESPACE = typer.Option("--namespace", metavar="NS", help="Prefix of the capture's own keys, such as the host.")


def as_ros_arguments(
    arguments: Sequence[str],
    given: Callable[[list[str]], Mapping[str, str | list[str]]],
    lists: Container[str] = (),
) -> list[str]:
    """Return plain arguments as ROS arguments: those before --ros-args become parameters after it.

    --NAME VALUE is the parameter NAME, --NAME without a value true; `lists`: parameters that may be given with commas.
    `given` makes parameters of positional ones. Raises UsageError.
    """
    at = arguments.index("--ros-args") if "--ros-args" in arguments else len(arguments)
    plain, rest, positional, found = list(arguments[:at]), list(arguments[at:]), list[str](), dict[str, str]()
    while plain:
        one = plain.pop(0)
        if not one.startswith("-") or one == "-":
            positional.append(one)
            continue
        name, equals, value = one.partition("=")
        known = name.removeprefix("--").replace("-", "_")
        if not name.startswith("--"):
            raise UsageError(f"unknown option {name}; expected REC, --NAME VALUE, or parameters after --ros-args")
        if not equals:
            value = plain.pop(0) if plain and not plain[0].startswith("--") else "true"
        made: str | list[str] = value.split(",") if known in lists and not value.startswith("[") else value
        found[known] = value if made is value else json.dumps(made, ensure_ascii=False)
    if positional:
        found = {key: json.dumps(value, ensure_ascii=False) for key, value in given(positional).items()} | found
    if not found:
        return rest
    parameters = [part for name, value in found.items() for part in ("-p", f"{name}:={value}")]
    return ["--ros-args", *parameters, *rest[1:]]


def as_parameters(texts: Mapping[str, str]) -> list[str]:
    """Return settings, text by name, as ROS arguments: `-p NAME:=VALUE` of each.

    Empty text unsets settings that may be unset; for other types, except text, it counts as not given.
    """
    from edgefirst_ros.config import LiveSettings, ReplaySettings, Settings
    from edgefirst_ros.config.load import setting_fields

    fields = setting_fields(Settings, LiveSettings, ReplaySettings)
    found: list[str] = []
    for name, text in texts.items():
        field = fields.get(name)
        kind, unset = (str, None) if field is None else (field.type, field.unset)
        value = json.dumps(text, ensure_ascii=False) if kind is str else text
        if kind is list and not text.startswith("["):
            value = json.dumps([part for part in text.split(",") if part] or [""])
        if not value and unset is not None:
            value = str(unset)
        found += ["-p", f"{name}:={value}"] if value else []
    return ["--ros-args", *found] if found else []


def run_node(name: str, arguments: list[str] | None = None) -> NoReturn:
    """Run `edgefirst_ros.nodes.NAME` until it ends; its exit code becomes that of the command.

    `arguments` are those after the verb, by default all of them. Raises EdgeFirstError as `load_node` does.
    """
    raise typer.Exit(load_node(name).main(sys.argv[2:] if arguments is None else arguments))


def load_node(name: str) -> Any:
    """Return the module `edgefirst_ros.nodes.NAME`; raises EdgeFirstError that says what to install without ROS 2."""
    try:
        importlib.import_module("rclpy")
        return importlib.import_module(f"edgefirst_ros.nodes.{name}")
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise EdgeFirstError(
            f"this command is a ROS 2 node, and Python {version} at {sys.executable} has no ROS 2: {error}.\n"
            "Install ROS 2 (Ubuntu 24.04: apt install ros-jazzy-ros-base ros-jazzy-diagnostic-msgs; "
            "ros-kilted-... for Kilted)\n"
            "and source it: source /opt/ros/jazzy/setup.bash. The other commands need no ROS, neither do capture, "
            "control and play with --zenoh."
        ) from None
