# SPDX-License-Identifier: Apache-2.0
"""Sizes of the members of a dataset of this package, one after the other: memory does not grow with their number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from edgefirst_ros.dataset.storage.directory import find_directory
from edgefirst_ros.dataset.storage.opening import open_file
from edgefirst_ros.dataset.storage.zipformat import CENTRAL, LIMIT32
from edgefirst_ros.errors import DatasetError


def member_sizes(root: Path) -> Iterator[tuple[str, int]]:
    """Yield name and size, bytes when unpacked, of the members under `DatasetPaths.members`, in stored order.

    Raises DatasetError for a ZIP that this package did not write.
    """
    if not root.is_dir():
        yield from _in_zip(root)
        return
    with os.scandir(root) as sequences:
        for sequence in sequences:
            with os.scandir(sequence.path) as files:
                for file in files:
                    yield f"{sequence.name}/{file.name}", file.stat(follow_symlinks=False).st_size


def _in_zip(path: Path) -> Iterator[tuple[str, int]]:
    with os.fdopen(open_file(path), "rb") as file:
        found = find_directory(file)
        if found is None:
            raise DatasetError(f"{path}: is no ZIP as this package writes them")
        count, start, _ = found
        file.seek(start)
        for _ in range(count):
            *_, size, named, extended, _, _, _, _, _ = CENTRAL.unpack(file.read(CENTRAL.size))
            name, extra = file.read(named).decode(), file.read(extended)
            yield name, int.from_bytes(extra[4:12], "little") if size == LIMIT32 else size
