# SPDX-License-Identifier: Apache-2.0
"""Settings from a YAML file and flags, and in words what is wrong with them."""

from __future__ import annotations

import difflib
import reprlib
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from edgefirst_ros.config import Limits, Model, Settings, Stream
from edgefirst_ros.errors import UsageError

LONGEST_CONFIGURATION = 1 << 20
"""Bytes of a file."""


def load(path: Path | None, **flags: Any) -> Settings:
    """Settings from a YAML file (plain, or in the form of ROS parameters), flags that are not None on top.

    Raises UsageError that names the key, what was found and, for an unknown key, the nearest known one.
    """
    values = _read(path) if path else {}
    values.update({key: value for key, value in flags.items() if value is not None})
    try:
        return Settings(**values)
    except ValidationError as error:
        raise UsageError(explain(error, str(path) if path else "options")) from None


class _Loader(yaml.SafeLoader):
    """Refuses a key that comes twice, of which the library would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"{key.value!r} comes twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_CONFIGURATION + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    if len(data) > LONGEST_CONFIGURATION:
        raise UsageError(f"{path}: over {LONGEST_CONFIGURATION} bytes is no configuration file")
    try:
        content = yaml.load(data.decode(), _Loader)  # noqa: S506  it is a safe one
    except Exception as error:  # noqa: BLE001  on a value that does not fit its tag the library raises anything
        raise UsageError(f"{path}: cannot be read as YAML: {error}") from None
    for _ in range(2):  # /**: ros__parameters: {...}
        if not isinstance(content, dict) or len(content) != 1:
            break
        key, inner = next(iter(content.items()))
        if key != "ros__parameters" and not (
            isinstance(inner, dict) and ("ros__parameters" in inner or str(key).startswith("/"))
        ):
            break
        content = inner
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UsageError(f"{path}: settings must be `key: value` lines")
    return content


def explain(error: ValidationError, source: str) -> str:
    """What is wrong with settings, a line for each; `source` is where they come from."""
    lines = []
    for fault in error.errors():
        key = ".".join(map(str, fault["loc"])) or "settings"
        if fault["type"] == "extra_forbidden":
            part = str(fault["loc"][0]) if len(fault["loc"]) > 1 else ""
            models: dict[str, type[Model]] = {"streams": Stream, "limits": Limits}
            fields = models.get(part, Settings).model_fields
            near = difflib.get_close_matches(str(fault["loc"][-1]), fields, 1, 0.4)
            lines.append(f"{source}: unknown setting {_short(key)}" + (f"; did you mean {near[0]!r}?" if near else ""))
        else:
            text = fault["msg"].removeprefix("Value error, ").replace("valid tuple", "list")
            found = "" if fault["type"] == "value_error" else f" (found {_short(fault['input'])})"
            lines.append(f"{source}: {key[:80]}: {text}{found}")
    return "\n".join(lines)


def _short(value: object) -> str:
    """A value of any size and depth: a few lines of YAML can stand for billions of them."""
    shown = reprlib.Repr()
    shown.maxlevel, shown.maxstring, shown.maxother = 2, 80, 80
    return shown.repr(value)
