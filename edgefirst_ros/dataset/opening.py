# SPDX-License-Identifier: Apache-2.0
"""The first step of a dataset: what is in the way is refused or replaced, its container is created and locked."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.publish import refuse_existing, remove_unfinished
from edgefirst_ros.dataset.storage.archive import ArchiveWriter, Container
from edgefirst_ros.dataset.storage.folder import DirectoryWriter
from edgefirst_ros.dataset.storage.lock import claim_folder, reopen_file, reopen_folder, reporting
from edgefirst_ros.errors import DatasetError, StorageError


def open_container(paths: DatasetPaths, *, overwrite: bool) -> tuple[Container, int]:
    """Create the container of a new dataset; returns it, and a descriptor that holds the lock until it is closed.

    Raises DatasetError when a finished or unfinished dataset is in the way and not `overwrite`, or a living writer is
    at work on it, and StorageError.
    """
    with reporting(paths.out, "write"):
        _make_folder(paths.out)
        refuse_existing(paths, overwrite=overwrite)
        if paths.unfinished and not overwrite:
            _refuse_unfinished(paths)
    if paths.layout == "zip":
        archive = ArchiveWriter(paths.members_partial)
        return archive, archive.hold()
    with reporting(paths.folder_partial, "create"):
        held = claim_folder(paths.folder_partial)
    try:
        return DirectoryWriter(paths.members_partial), held
    except DatasetError:
        remove_if_possible(paths)
        os.close(held)
        raise


def remove_if_possible(paths: DatasetPaths) -> None:
    """Remove what was begun, as far as the disk lets it go."""
    with suppress(StorageError):
        remove_unfinished(paths)


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise DatasetError(f"{out} is a file; the output must be a folder")
    out.mkdir(parents=True, exist_ok=True)


def _refuse_unfinished(paths: DatasetPaths) -> None:
    """Raise DatasetError, for the right reason."""
    partial_path = paths.members_partial if paths.layout == "zip" else paths.folder_partial
    os.close(reopen_file(partial_path) if paths.layout == "zip" else reopen_folder(partial_path))
    raise DatasetError(
        f"{partial_path}: an unfinished dataset is in the way; complete it with edgefirst-ros recover, "
        "or use --overwrite to replace it"
    )
