# SPDX-License-Identifier: Apache-2.0
"""Creates the partial files of a dataset, and renames them to their final names when it is complete."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.storage.folder import DirectoryWriter
from edgefirst_ros.dataset.storage.lock import claim, reopen_path, report_errors, sync_folder
from edgefirst_ros.dataset.storage.zip_write import ArchiveWriter, MemberWriter
from edgefirst_ros.errors import DatasetError, StorageError


def place(paths: DatasetPaths) -> None:
    """Rename all files to their final names, and remove temporary ones; raises StorageError if that fails.

    The container is last: while it has its partial name the dataset is unfinished and can be recovered. Repeated after
    an interruption, it completes the remaining steps.
    """
    with report_errors(paths.container, "put in place"):
        if paths.layout == "zip":
            _place_files(paths)
        else:
            _place_folder(paths)


def _place_files(paths: DatasetPaths) -> None:
    if os.path.lexists(paths.container):  # its tables would be replaced before it
        sync_folder(paths.out)  # without the names of the new tables, the old ones would pass for them
        os.unlink(paths.container)
        sync_folder(paths.out)
    _place_tables(paths, paths.out)
    os.replace(paths.members_partial, paths.container)
    sync_folder(paths.out)
    _remove(*paths.temporary)


def _place_folder(paths: DatasetPaths) -> None:
    building = paths.folder_partial
    _place_tables(paths, building)
    _remove(*paths.temporary)
    sync_folder(building)
    if os.path.lexists(paths.folder):  # a folder cannot replace one that is not empty: it is moved aside as a whole
        remove_tree(paths.aside)
        os.rename(paths.folder, paths.aside)
    os.rename(building, paths.folder)
    sync_folder(paths.out)
    remove_tree(paths.aside)


def _place_tables(paths: DatasetPaths, folder: Path) -> None:
    for partial, final in ((paths.arrow_partial, paths.arrow), (paths.frames_partial, paths.frames)):
        if partial.exists():
            os.replace(partial, folder / final.name)
    sync_folder(folder)


def remove_unfinished(paths: DatasetPaths) -> None:
    """Remove everything of an unfinished dataset; StorageError where that fails."""
    with report_errors(paths.container, "remove the partial files"):
        if paths.layout == "directory":
            remove_tree(paths.folder_partial)
        else:
            _remove(*paths.temporary, paths.members_partial)


def refuse_existing(paths: DatasetPaths, *, overwrite: bool) -> None:
    """Raise DatasetError where a finished dataset is in the way, or the existing files cannot be replaced by one.

    Raises StorageError where the disk does not report it.
    """
    finals = [paths.container] if paths.layout == "directory" else [paths.container, paths.arrow, paths.frames]
    for path in finals:
        if not os.path.lexists(path):
            continue
        if not overwrite:
            beside = f", and {paths.members_partial} beside it is unfinished" if paths.unfinished else ""
            both = "both; a finished one is as good for --resume without unfinished files beside it"
            raise DatasetError(f"{path} exists{beside}; use --overwrite to replace {both if beside else 'it'}")
        if os.path.isdir(path) and paths.layout == "zip":
            raise DatasetError(f"{path} is a folder and cannot be replaced by a file; remove it")
        with report_errors(path, "look it up"):
            refuse_irreplaceable(path)
    if paths.layout == "directory" and os.path.lexists(paths.container):
        _refuse_foreign_folder(paths)


def _refuse_foreign_folder(paths: DatasetPaths) -> None:
    if os.path.islink(paths.folder) or not os.path.isdir(paths.folder):
        raise DatasetError(f"{paths.folder} is not a folder of a dataset; remove it")
    own = {paths.members.name, paths.arrow.name, paths.frames.name}
    with report_errors(paths.folder, "list"):
        foreign = set(os.listdir(paths.folder)) - own
    if foreign:
        raise DatasetError(
            f"{paths.folder} has other files than those of a dataset ({min(foreign)!r}) and is not replaced"
        )


def refuse_irreplaceable(path: Path) -> None:
    """Raise DatasetError where the system would refuse to replace `path` in the end, because it is another user's."""
    parent, status, user = os.stat(path.parent), os.lstat(path), os.geteuid()
    if parent.st_mode & stat.S_ISVTX and user not in (0, parent.st_uid, status.st_uid):
        raise DatasetError(
            f"{path}: belongs to another user (uid {status.st_uid}), and in {path.parent} you may replace only "
            "your own files; name another folder"
        )
    if os.path.isdir(path) and not os.path.islink(path):
        _refuse_irremovable(path, 2)


def _refuse_irremovable(folder: Path, levels: int) -> None:
    """Raise DatasetError where a folder, or one of those in it down to so many levels, cannot be emptied."""
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise DatasetError(f"{folder}: you may not remove its files, so it cannot be replaced; name another folder")
    if levels:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    _refuse_irremovable(Path(entry), levels - 1)


def _remove(*files: Path) -> None:
    """Remove files, in order; one that cannot be removed does not keep the others."""
    with ExitStack() as removals:
        for file in reversed(files):
            removals.callback(file.unlink, missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a folder with its content, or a file, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:  # also a pipe, where rmtree would wait for a writer
        path.unlink(missing_ok=True)


def refuse_writer(paths: DatasetPaths) -> None:
    """Raise InUseError where a living writer is at work on an unfinished dataset, DatasetError and OSError."""
    os.close(reopen_path(paths.container_partial, folder=paths.layout == "directory"))


def create_members(paths: DatasetPaths, *, overwrite: bool) -> tuple[MemberWriter, int]:
    """Create the container of a new dataset; returns what writes its members, and a descriptor that holds its lock.

    Raises DatasetError when a finished or unfinished dataset is in the way and not `overwrite`, or a living writer is
    at work on it, and StorageError.
    """
    with report_errors(paths.out, "write"):
        _make_folder(paths.out)
        refuse_existing(paths, overwrite=overwrite)
        if paths.unfinished and not overwrite:
            refuse_writer(paths)
            raise DatasetError(
                f"{paths.container_partial}: an unfinished dataset is in the way; complete it with edgefirst-ros "
                "recover, or use --overwrite to replace it"
            )
    if paths.layout == "zip":
        archive = ArchiveWriter(paths.members_partial)
        return archive, archive.hold()
    with report_errors(paths.folder_partial, "create"):
        held = claim(paths.folder_partial, folder=True)
    try:
        return DirectoryWriter(paths.members_partial), held
    except DatasetError:
        remove_if_possible(paths)
        os.close(held)
        raise


def sync_names(paths: DatasetPaths) -> None:
    """Sync the names of the partial files to disk: until then a power cut could lose committed rows and members."""
    with report_errors(paths.out, "sync it"):
        if paths.layout == "directory":
            sync_folder(paths.folder_partial)
        sync_folder(paths.out)


def remove_if_possible(paths: DatasetPaths) -> None:
    """Remove unfinished files, as far as the disk allows it."""
    with suppress(StorageError):
        remove_unfinished(paths)


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise DatasetError(f"{out} is a file; the output must be a folder")
    missing = [out, *out.parents]
    made = missing[: next(number for number, folder in enumerate(missing) if folder.exists())]
    out.mkdir(parents=True, exist_ok=True)
    for folder in made:
        sync_folder(folder.parent)
