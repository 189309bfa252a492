# SPDX-License-Identifier: Apache-2.0
"""What was given in place of a dataset, and what to give."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgefirst_ros.errors import DatasetError

MAGIC = b"\x89MCAP"
MOST = 5
"""So many datasets of a folder are named."""


@contextmanager
def explained(*paths: Path) -> Iterator[None]:
    """Let a DatasetError from inside also say what `paths` are if they are no datasets."""
    try:
        yield
    except DatasetError as error:
        hints = "".join(f"\n{hint}" for hint in map(instead, paths) if hint)
        if not hints:
            raise
        raise type(error)(f"{error}{hints}") from error


def instead(path: Path) -> str:
    """What a path is that names no dataset, with what to do; empty where there is nothing to be said."""
    if is_recording(path):
        return f"{path} is a recording; make a dataset of it: edgefirst-ros convert {path} -o OUT"
    found = _datasets(path)
    if not found:
        return ""
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return f"{path} is a folder with datasets in it; give one of them: {', '.join(map(str, found[:MOST]))}{more}"


def is_recording(path: Path) -> bool:
    """Whether it is a file that begins as MCAP does; one that cannot be read is none."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(len(MAGIC)) == MAGIC
    return False


def _datasets(folder: Path) -> list[Path]:
    """The datasets in a folder that is none itself."""
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
