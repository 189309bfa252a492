# SPDX-License-Identifier: Apache-2.0
"""Common parts of live verbs: ROS 2 nodes (`edgefirst-ros VERB --ros-args ...`) and the device's bus (`--zenoh`)."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from edgefirst_ros.errors import EdgeFirstError, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

NODE = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context settings of such a verb: unknown options are ROS arguments."""
ROS_ARGUMENTS = typer.Argument(
    metavar="--ros-args ...", help="ROS arguments: `-p NAME:=VALUE`, `--params-file FILE`, `-r FROM:=TO`."
)
REC_ARGUMENTS = typer.Argument(
    metavar="REC [--ros-args ...]", help="Recording; for ROS 2, `--ros-args` with the arguments of a node may follow."
)
ZENOH = typer.Option("--zenoh", metavar="[ENDPOINT|peer]", help="Zenoh router or peer, such as tcp/127.0.0.1:7447.")
ADDRESS = "an address is such as tcp/127.0.0.1:7447"
NAMESPACE = typer.Option("--namespace", metavar="NS", help="Prefix of the capture's own keys, such as the host.")


def split_ros_arguments(
    verb: str, arguments: Sequence[str], expected: str, most: int | None
) -> tuple[list[str], list[str]]:
    """Return the arguments before --ros-args, file:// as paths, and the others.

    Raises UsageError for an unknown option before it, more than `most` arguments, or one in a bucket.
    """
    from edgefirst_ros.dataset.objects.location import Location
    from edgefirst_ros.dataset.objects.places import refuse_buckets

    plain = list(itertools.takewhile(lambda one: one != "--ros-args", arguments))
    wrong = [one for one in plain if one.startswith("-")] or (plain[most:] if most is not None else [])
    if wrong:
        more = "; for other settings use --set NAME=VALUE" if wrong[0].startswith("-") else ""
        raise UsageError(f"expected {expected}, got {wrong[0]!r}{more}; arguments of a ROS 2 node follow --ros-args")
    refuse_buckets(verb, plain, "fetch the file, and name the copy", does="read from")
    paths = [str(Location.of(one)) if one.startswith("file:") else one for one in plain]
    return paths, list(arguments[len(plain) :])


def as_parameters(texts: Mapping[str, str], *models: type[BaseModel]) -> list[str]:
    """Return settings of the models, text by name, as ROS arguments: `-p NAME:=VALUE` of each.

    Empty text unsets settings that may be unset; for other types, except text, it counts as not given.
    """
    from edgefirst_ros.config.load import list_setting_fields

    fields = list_setting_fields(*models)
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


def run_node(name: str, arguments: list[str]) -> NoReturn:
    """Run `edgefirst_ros.nodes.NAME` with ROS arguments until it ends; its exit code becomes that of the command.

    Raises EdgeFirstError as `load_node` does.
    """
    raise typer.Exit(load_node(name).main(arguments))


def load_node(name: str) -> Any:
    """Return the module `edgefirst_ros.nodes.NAME`; raises EdgeFirstError that says what to install without ROS 2."""
    try:
        importlib.import_module("rclpy")
        return importlib.import_module(f"edgefirst_ros.nodes.{name}")
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise EdgeFirstError(
            f"this command needs ROS 2, and Python {version} at {sys.executable} has no ROS 2: {error}.\n"
            "Install ROS 2 (Ubuntu 24.04: apt install ros-kilted-ros-base ros-kilted-diagnostic-msgs; "
            "ros-jazzy-... for Jazzy)\n"
            "and source it: source /opt/ros/kilted/setup.bash. capture, control and play with --zenoh need no ROS."
        ) from None
