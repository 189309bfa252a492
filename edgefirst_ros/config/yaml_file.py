# SPDX-License-Identifier: Apache-2.0
"""YAML files of users and recorders, read with limits: no code, no pipes, no aliases that expand without end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from edgefirst_ros.errors import UsageError

LONGEST_CONFIGURATION = 1 << 17
"""Largest settings file, bytes."""
LARGEST_CONFIGURATION = 10_000
"""Most values in a file, with every alias and merge key counted by its expansion."""
WHOLE_NUMBER, LONGEST_NUMBER = "tag:yaml.org,2002:int", 40
"""Tag of a whole number, and the most characters it may have."""


def read_yaml(path: Path, longest: int = LONGEST_CONFIGURATION) -> Any:
    """Return the value in a YAML file of at most `longest` bytes. Raises UsageError."""
    try:
        with open_regular(path) as file:
            data = file.read(longest + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > longest:
        raise UsageError(f"{path}: more than {longest} bytes are not a configuration file")
    return read_text(data, str(path))


def read_text(data: bytes | str, place: str) -> Any:
    """Return the value in text of YAML; `place` says in messages where it is from. Raises UsageError."""
    try:
        return yaml.load(data.decode() if isinstance(data, bytes) else data, _Loader)  # noqa: S506  it is a safe one
    except Exception as error:  # noqa: BLE001  on a value that does not fit its tag the library raises anything
        raise UsageError(f"{place}: cannot be read as YAML: {error}") from None


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading: a pipe or a device may never end. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("is not a regular file")
    return os.fdopen(fd, "rb")


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys, of which the library would take the last, and aliases that expand without end."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _count_values(node, {}) > LARGEST_CONFIGURATION:
            raise yaml.YAMLError(f"over {LARGEST_CONFIGURATION} values are not a configuration")
        return node

    def construct_scalar(self, node: Any) -> Any:
        if node.tag == WHOLE_NUMBER and len(node.value) > LONGEST_NUMBER:
            raise _make_error(node, f"a number of {len(node.value)} characters")
        if any("\ud800" <= character <= "\udfff" for character in node.value):
            raise _make_error(node, "half a surrogate pair")
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _make_error(key, f"{key.value!r} comes twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)  # as text: to the nanosecond


def _make_error(node: yaml.Node, what: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(problem=what, problem_mark=node.start_mark)


def _count_values(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node represents, with those that aliases repeat; `known`: of nodes by their id.

    Raises YAMLError for one that holds itself.
    """
    if id(node) not in known:
        known[id(node)] = 0  # until it is counted
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = (part for item in inner for part in (item if isinstance(item, tuple) else (item,)))
        known[id(node)] = 1 + sum(_count_values(part, known) for part in parts)
    if not known[id(node)]:
        raise yaml.YAMLError("an alias is inside of the value that it names")
    return known[id(node)]
