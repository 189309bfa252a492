# SPDX-License-Identifier: Apache-2.0
"""Explains what a path is that was given instead of a dataset, and what to give."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgefirst_ros.errors import DatasetError

MAGIC = b"\x89MCAP"
MOST = 5
"""Datasets of a folder that are named."""


@contextmanager
def explained(*paths: Path) -> Iterator[None]:
    """Add to a DatasetError from inside what `paths` are, where they are not datasets."""
    try:
        yield
    except DatasetError as error:
        hints = "".join(f"\n{hint}" for hint in map(instead, paths) if hint)
        if not hints:
            raise
        raise type(error)(f"{error}{hints}") from error


def instead(path: Path) -> str:
    """Return in words what a path is that is not a dataset, and what to do; empty if nothing can be said."""
    if is_recording(path):
        return f"{path} is a recording; make a dataset of it: edgefirst-ros convert {path} -o OUT"
    found = _datasets(path)
    if not found:
        return ""
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return f"{path} is a folder with datasets in it; give one of them: {', '.join(map(str, found[:MOST]))}{more}"


def is_recording(path: Path) -> bool:
    """True if the file begins with the MCAP magic; False if it cannot be read."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(len(MAGIC)) == MAGIC
    return False


def _datasets(folder: Path) -> list[Path]:
    """Return the datasets in a folder that is not a dataset itself."""
    from edgefirst_ros.dataset.names import locate

    if not os.path.isdir(folder):
        return []
    with suppress(DatasetError):
        locate(folder)
        return []
    try:
        places = sorted(folder.iterdir())
    except OSError:
        return []
    return [place for place in places if place.suffix == ".zip" or os.path.isdir(place / place.name)]
