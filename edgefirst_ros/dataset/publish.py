# SPDX-License-Identifier: Apache-2.0
"""The last step of a dataset: its files, complete under partial names, get their final ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.storage.lock import reporting
from edgefirst_ros.dataset.storage.syncing import sync_folder
from edgefirst_ros.dataset.tables.journal import remade_path
from edgefirst_ros.errors import DatasetError


def place(paths: DatasetPaths) -> None:
    """Rename everything into place, and remove what was needed only on the way; StorageError where that fails.

    The container goes last: while it has its partial name the dataset is unfinished, and nothing of it is lost. Done
    again after it was interrupted, it completes what is left to do.
    """
    with reporting(paths.container, "put in place"):
        if paths.layout == "zip":
            _place_files(paths)
        else:
            _place_folder(paths)
        sync_folder(paths.out)


def _place_files(paths: DatasetPaths) -> None:
    for partial, final in ((paths.arrow_partial, paths.arrow), (paths.frames_partial, paths.frames)):
        if partial.exists():
            os.replace(partial, final)
    sync_folder(paths.out)
    os.replace(paths.members_partial, paths.container)
    sync_folder(paths.out)
    _remove(paths.arrow_journal, paths.frames_journal, paths.row_log, paths.reserve)


def _place_folder(paths: DatasetPaths) -> None:
    building = paths.folder_partial
    for partial, final in ((paths.arrow_partial, paths.arrow), (paths.frames_partial, paths.frames)):
        if partial.exists():
            os.replace(partial, building / final.name)
    _remove(paths.arrow_journal, paths.frames_journal, paths.row_log, paths.reserve)
    sync_folder(building)
    # A folder cannot replace one that is not empty: the old one steps aside, whole, and goes last.
    old = os.path.lexists(paths.folder)
    if old:
        remove_tree(paths.aside)
        os.rename(paths.folder, paths.aside)
    os.rename(building, paths.folder)
    if os.path.lexists(paths.aside):
        sync_folder(paths.out)
        remove_tree(paths.aside)


def remove_unfinished(paths: DatasetPaths) -> None:
    """Remove everything of an unfinished dataset; StorageError where that fails."""
    with reporting(paths.container, "remove what is partial"):
        if paths.layout == "directory":
            remove_tree(paths.folder_partial)
        else:
            journals = paths.arrow_journal, paths.frames_journal
            tables = paths.arrow_partial, paths.frames_partial
            remade = map(remade_path, journals)
            _remove(*journals, *remade, *tables, paths.row_log, paths.reserve, paths.members_partial)


def refuse_existing(paths: DatasetPaths, *, overwrite: bool) -> None:
    """Raise DatasetError where a finished dataset is in the way, or what is there cannot be replaced by one.

    Raises StorageError where the disk does not tell.
    """
    finals = [paths.container] if paths.layout == "directory" else [paths.container, paths.arrow, paths.frames]
    for path in finals:
        if not os.path.lexists(path):
            continue
        if not overwrite:
            raise DatasetError(f"{path} exists; use --overwrite to replace it")
        if os.path.isdir(path) and paths.layout == "zip":
            raise DatasetError(f"{path} is a folder and cannot be replaced by a file; remove it")
    if paths.layout == "directory" and os.path.lexists(paths.container):
        _refuse_foreign_folder(paths)


def _refuse_foreign_folder(paths: DatasetPaths) -> None:
    if os.path.islink(paths.folder) or not os.path.isdir(paths.folder):
        raise DatasetError(f"{paths.folder} is no folder of a dataset; remove it")
    own = {paths.members.name, paths.arrow.name, paths.frames.name}
    with reporting(paths.folder, "list"):
        foreign = set(os.listdir(paths.folder)) - own
    if foreign:
        raise DatasetError(f"{paths.folder} holds more than a dataset ({min(foreign)!r}) and is not replaced")


def _remove(*files: Path) -> None:
    """Remove files; one that cannot be removed does not keep the others."""
    refused: OSError | None = None
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it, or a link to one; nothing where there is none."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
