# SPDX-License-Identifier: Apache-2.0
"""State of a dataset: finished, unfinished, or cut."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

from edgefirst_ros.dataset.names import DatasetPaths, Layout, refuse_unreadable
from edgefirst_ros.dataset.publish import remove_tree
from edgefirst_ros.dataset.storage.lock import is_plain_file, reporting
from edgefirst_ros.dataset.storage.zip_read import Archive
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.errors import DatasetError, TooLargeError
from edgefirst_ros.limits import Limits

_LAYOUTS: tuple[Layout, ...] = get_args(Layout)
_SUFFIXES = (
    ".zip.partial", ".partial", ".rows.journal", ".frames.arrow.journal", ".arrow.journal", ".frames.arrow", ".arrow",
    ".zip",
)  # fmt: skip


def unfinished(out: Path) -> list[DatasetPaths]:
    """Return the unfinished datasets in a folder; a writer may be at work on them. Raises StorageError."""
    if not os.path.isdir(out):
        return []
    with reporting(out, "search it for unfinished datasets"):
        names = sorted(os.listdir(out))
    found = []
    for name in names:
        if name.endswith(".zip.partial"):
            found.append(DatasetPaths(out, name.removesuffix(".zip.partial"), "zip"))
        elif name.endswith(".partial") and not name.endswith(".replaced.partial") and os.path.isdir(out / name):
            found.append(DatasetPaths(out, name.removesuffix(".partial"), "directory"))
    return [paths for paths in found if paths.unfinished]


def locate_any(path: str | os.PathLike[str]) -> DatasetPaths:
    """Return the dataset that a user names by any of its files, finished or not. Raises DatasetError."""
    text = os.fspath(path)
    if "\0" in text:
        raise DatasetError(f"{text!r} is not a valid path")
    given = Path(os.path.abspath(text))
    stems = [given.name, *(given.name.removesuffix(suffix) for suffix in _SUFFIXES if given.name.endswith(suffix))]
    outs = [given.parent, *([given.parent.parent] if given.parent.name.removesuffix(".partial") in stems else [])]
    candidates = [DatasetPaths(out, stem, layout) for out in outs for stem in stems if stem for layout in _LAYOUTS]
    for paths in candidates:
        # NAME.zip.partial of a ZIP must not pass for the folder of a dataset that is named NAME.zip.
        if paths.unfinished and (paths.layout == "zip" or os.path.isdir(paths.folder_partial)):
            return paths
    for paths in candidates:
        if os.path.isfile(paths.container) if paths.layout == "zip" else os.path.isdir(paths.members):
            return paths
    refuse_unreadable(given)
    raise DatasetError(f"{text}: no dataset here; looked for {', '.join(str(c.members_partial) for c in candidates)}")


def is_cut(paths: DatasetPaths, limits: Limits) -> bool:
    """True if a finished dataset lost the end of its ZIP or of a table. Raises TooLargeError."""
    if paths.layout == "directory":
        return False
    try:
        Archive(paths.container, limits)
    except TooLargeError:
        raise
    except DatasetError:
        return True
    return any(os.path.isfile(table) and not _is_table(table, limits) for table in (paths.arrow, paths.frames))


def has_tables(paths: DatasetPaths, limits: Limits) -> bool:
    """Return True if both tables of an unfinished dataset are complete. Raises TooLargeError."""
    if paths.layout == "zip":
        tables = (paths.arrow_partial, paths.arrow), (paths.frames_partial, paths.frames)
        begun = not os.path.lexists(paths.container)  # else the final tables are those of another dataset
        return all(
            _is_table(final if begun and not os.path.exists(partial) else partial, limits) for partial, final in tables
        )
    building = paths.folder_partial
    return _is_table(building / paths.arrow.name, limits) and _is_table(building / paths.frames.name, limits)


def _is_table(path: Path, limits: Limits) -> bool:
    try:
        return is_plain_file(path) and bool(TableFile(path, limits).schema)
    except TooLargeError:
        raise
    except DatasetError:
        return False


def tidy(paths: DatasetPaths) -> None:
    """Remove temporary files beside a finished dataset."""
    with reporting(paths.container, "remove what is left beside it"):
        if paths.layout == "directory":
            remove_tree(paths.aside)
            return
        for path in paths.temporary:
            if os.path.lexists(path):  # a medium that cannot be written refuses to remove what is not there, too
                path.unlink()
