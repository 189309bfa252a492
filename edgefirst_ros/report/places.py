# SPDX-License-Identifier: Apache-2.0
"""Paths of pages: beside their subject or their table, never overwriting unasked, written as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from edgefirst_ros.dataset.publish import refuse_irreplaceable
from edgefirst_ros.errors import DatasetError


def beside_table(table: Path, names: Sequence[str]) -> list[Path]:
    """Return a page for each name, of a URI its last part, beside the table; equal names get numbers."""
    taken = {table.name.casefold()}
    found = []
    for plain in (name.rpartition("/")[2] for name in names):
        name, number = f"{plain}.html", 2
        while name.casefold() in taken:
            name, number = f"{plain}-{number}.html", number + 1
        taken.add(name.casefold())
        found.append(table.parent / name)
    return found


def refuse(place: Path, *, overwrite: bool) -> None:
    """Raise DatasetError where a page cannot be put."""
    if os.path.lexists(place):
        if not overwrite:
            raise DatasetError(f"{place}: exists already; --overwrite replaces it, -o names another place")
        if not os.path.isfile(place) or os.path.islink(place):
            raise DatasetError(f"{place}: is not a regular file; -o names another place")
        refuse_irreplaceable(place)
    folder = next(one for one in place.absolute().parents if os.path.lexists(one))
    if not os.path.isdir(folder):
        raise DatasetError(f"{folder}: is not a folder; -o names another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DatasetError(f"{folder}: cannot be written to: Permission denied; -o names another place")


def write(place: Path, content: bytes) -> None:
    """Put a page in its place, whole or not at all; raises DatasetError."""
    partial = place.with_name(f".{place.name[:150]}.{os.getpid()}.partial")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            file.write(content)
        partial.replace(place)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise DatasetError(f"{place}: cannot be written: {error.strerror or error}") from error
