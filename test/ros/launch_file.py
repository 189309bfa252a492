# SPDX-License-Identifier: Apache-2.0
"""Reads the launch files of this package and starts their nodes as `ros2 launch` does.

ROS 2's launch is on no package index, so its own engine is not exercised here: this reader resolves the very YAML
files, refuses every key, type and substitution it does not know, and builds the command line that launch_ros builds
(its source: launch_ros/actions/node.py and utilities/evaluate_parameters.py). Where the command `ros2` exists,
test_launch.py runs the real one as well.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "launch"
PACKAGE = "edgefirst_ros"
KEYS = {
    "arg": {"name", "default", "description"},
    "set_env": {"name", "value"},
    "node": {"pkg", "exec", "args", "name", "namespace", "output", "param", "respawn", "respawn_delay"},
}
"""Action -> the keys it may have."""
KINDS = {"param": list, "respawn_delay": float}
"""Keys whose values are no texts: launch compares a delay with 0.0, and refuses one in quotes."""
SUBSTITUTION = re.compile(r"\$\(([a-z-]+) ([^()$ ]+)\)")


class LaunchError(Exception):
    """Something that launch would refuse, or that this reader does not know."""


@dataclass(frozen=True)
class LaunchedNode:
    """A node to be started: its whole command line, and the environment variables set for it."""

    command: list[str]
    environment: dict[str, str]
    respawn: bool = False


@dataclass(frozen=True)
class Argument:
    name: str
    default: str | None
    description: str


def arguments_of(name: str) -> dict[str, Argument]:
    """The arguments of launch/NAME, as `ros2 launch --show-args` lists them."""
    return {a["name"]: Argument(a["name"], a.get("default"), a["description"]) for a in _actions(name, "arg")}


def resolve(name: str, folder: Path, **given: str) -> LaunchedNode:
    """The node of launch/NAME with arguments as on the command line of `ros2 launch`; parameters go to `folder`."""
    known = arguments_of(name)
    if unknown := set(given) - set(known):
        raise LaunchError(f"{name}: no argument {sorted(unknown)}")
    values: dict[str, str] = {}
    for argument in known.values():
        if argument.name not in given and argument.default is None:
            raise LaunchError(f"{name}: the argument {argument.name} must be given")
        values[argument.name] = given.get(argument.name) or _substitute(str(argument.default), values)
    environment = {a["name"]: _substitute(a["value"], values) for a in _actions(name, "set_env")}
    (node,) = _actions(name, "node")
    command = [
        *_executable(node["pkg"], node["exec"]),
        *(_substitute(part, values) for part in _parts(node["args"])),
        "--ros-args",
    ]
    command += ["-r", f"__node:={_substitute(node['name'], values)}"]
    command += ["-r", f"__ns:={_absolute(_substitute(node['namespace'], values))}"]
    for file in _parameter_files(node["param"], values, folder):
        command += ["--params-file", str(file)]
    respawn = _typed(_substitute(node.get("respawn", "false"), values))
    if type(respawn) is not bool or node.get("respawn_delay", 0.0) < 0:
        raise LaunchError(f"{name}: respawn must be true or false")
    return LaunchedNode(command, environment, respawn)


def _actions(name: str, kind: str) -> list[dict[str, Any]]:
    content = yaml.safe_load((LAUNCH / name).read_text())
    if set(content) != {"launch"}:
        raise LaunchError(f"{name}: must have `launch` and nothing else")
    found = []
    for action in content["launch"]:
        ((key, body),) = action.items()
        if key not in KEYS or set(body) - KEYS[key]:
            raise LaunchError(f"{name}: unknown: {key} {sorted(set(body) - KEYS.get(key, set()))}")
        if not all(isinstance(value, KINDS.get(k, str)) for k, value in body.items()):
            raise LaunchError(f"{name}: launch wants texts here, and a number for a delay: {body}")
        if key == kind:
            found.append(body)
    return found


def _substitute(text: str, values: Mapping[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        kind, what = match.groups()
        if kind == "var" and what in values:
            return values[what]
        if kind == "find-pkg-share" and what == PACKAGE:
            return str(ROOT)  # config and launch lie in it as they do in share/edgefirst_ros
        raise LaunchError(f"cannot resolve {match[0]}")

    if text.count("$") != len(SUBSTITUTION.findall(text)):
        raise LaunchError(f"cannot resolve {text!r}")
    return SUBSTITUTION.sub(one, text)


def _parts(text: str) -> list[str]:
    """The arguments of a command: split at blanks that are written out, never within what is put in for a variable."""
    return re.findall(r"(?:\$\([^()]*\)|\S)+", text)


def _absolute(namespace: str) -> str:
    return namespace if namespace.startswith("/") else f"/{namespace}"


def _executable(package: str, name: str) -> list[str]:
    """lib/PACKAGE/NAME of a colcon workspace, else the script pip made, else the module both of them call."""
    if package != PACKAGE or f'"{name} = {PACKAGE}.cli:main"' not in (ROOT / "setup.py").read_text():
        raise LaunchError(f"no executable {name} in {package}")
    places = [Path(sys.prefix) / "lib" / package / name, Path(sys.prefix) / "bin" / name]
    found = next((str(place) for place in places if place.is_file()), None)
    return [found] if found else [sys.executable, "-m", f"{PACKAGE}.cli"]


def _parameter_files(params: list[dict[str, str]], values: Mapping[str, str], folder: Path) -> list[Path]:
    """Files in the order in which launch_ros gives them: those named come before what is written out."""
    files, single = [], {}
    for param in params:
        if set(param) == {"from"}:
            files.append(Path(_substitute(param["from"], values)))
        elif set(param) == {"name", "value"}:
            single[param["name"]] = _typed(_substitute(param["value"], values))
        else:
            raise LaunchError(f"a param must have `from`, or `name` and `value`: {param}")
    if single:
        files.append(folder / "launch_params.yaml")
        files[-1].write_text(yaml.safe_dump({"/**": {"ros__parameters": single}}))
    return files


def _typed(text: str) -> Any:
    """A value by the rules of YAML, as evaluate_parameter_dict takes it."""
    value = yaml.safe_load(text)
    kinds = {type(item) for item in (value if isinstance(value, list) else [value])}
    if len(kinds) != 1 or not kinds <= {bool, int, float, str}:
        raise LaunchError(f"{text!r} is no value of a parameter, and no list of one kind of values")
    return value


def ros2() -> str | None:
    """The command `ros2`, where there is one with `launch`."""
    return shutil.which("ros2")
