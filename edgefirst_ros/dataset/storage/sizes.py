# SPDX-License-Identifier: Apache-2.0
"""Sizes of the members of a dataset, counted one after the other: memory does not grow with their number."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from edgefirst_ros.dataset.storage.access import open_container
from edgefirst_ros.dataset.storage.directory import find_directory
from edgefirst_ros.dataset.storage.opening import open_file
from edgefirst_ros.dataset.storage.zipformat import CENTRAL, CENTRAL_MARK, EXTRA64, LIMIT32


def count_members(root: Path, wanted: Callable[[str], bool]) -> tuple[int, int]:
    """Return how many members under `DatasetPaths.members` are wanted, by their names, and their bytes unpacked.

    Of a ZIP as this package writes them one record of the directory is held at a time, of others and of folders all.
    Raises DatasetError.
    """
    if not root.is_dir():
        try:
            return _count(_records(root), wanted)
        except (ValueError, struct.error):  # another program has written it since
            pass
    container = open_container(root)
    return _count(((name, container.size(name)) for name in container.names), wanted)


def _count(sizes: Iterable[tuple[str, int]], wanted: Callable[[str], bool]) -> tuple[int, int]:
    members = total = 0
    for name, size in sizes:
        if wanted(name):
            members, total = members + 1, total + size
    return members, total


def _records(path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and unpacked size of the members. Raises ValueError or struct.error for a ZIP of another form."""
    with os.fdopen(open_file(path), "rb") as file:
        found = find_directory(file)
        if found is None:
            raise ValueError("no plain end")
        count, start, _ = found
        file.seek(start)
        for _ in range(count):
            mark, *_, size, named, extended, commented, _, _, _, _ = CENTRAL.unpack(file.read(CENTRAL.size))
            name, extra = file.read(named).decode(), file.read(extended)
            if mark != CENTRAL_MARK or commented:
                raise ValueError("no plain record")
            if size == LIMIT32:
                kind, _, size = struct.unpack_from("<2HQ", extra)
                if kind != EXTRA64:
                    raise ValueError("no size")
            yield name, size
