# SPDX-License-Identifier: Apache-2.0
"""An output folder that appears as a whole or not at all."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefirst_ros.dataset.names import check_path
from edgefirst_ros.dataset.storage.atomic import sync_disk, sync_folder
from edgefirst_ros.dataset.storage.lock import claim_folder, reporting
from edgefirst_ros.errors import DatasetError, UsageError

FEW = 100
"""Most files of an output that are synced one by one."""


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Give a new folder beside `out` to write into, which is renamed to `out` at the end, or removed on failure.

    Raises UsageError for a path that is no UTF-8, DatasetError where `out` exists or another export to it is under way,
    StorageError where a file cannot be read or written. What a killed export left is replaced: no other program gives
    its folders that name.
    """
    check_path(out)
    if os.path.lexists(out):
        raise DatasetError(f"{out}: exists already; it must be a new folder, name another one")
    if os.path.lexists(out.parent) and not out.parent.is_dir():
        raise DatasetError(f"{out}: cannot be made, {out.parent} is not a folder; name another one")
    partial = out.with_name(f".{out.name}.edgefirst-export")
    with reporting(partial, "create"):
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = claim_folder(partial)
    made = partial
    try:
        yield partial
        with reporting(partial, "write"):
            _sync(partial, lock)
            os.rename(partial, out)
            made = out
            sync_folder(out.parent)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        with reporting(Path(os.fsdecode(error.filename or out)), "be read or written"):
            raise
    finally:
        os.close(lock)


def refuse_inside(out: Path, source: Path) -> None:
    """Raise UsageError where `out` would lie in the folder that is read."""
    folder, place = os.path.realpath(source), os.path.realpath(out)
    if os.path.isdir(folder) and place != folder and os.path.commonpath([folder, place]) == folder:
        raise UsageError(f"{out} lies in {source}, which is read; name a folder outside of it")


def _sync(folder: Path, opened: int) -> None:
    found = itertools.chain.from_iterable(files for _, _, files in os.walk(folder))
    if next(itertools.islice(found, FEW, None), None) is not None:  # not all of them are counted
        sync_disk(opened)
        return
    for place, _, files in os.walk(folder):
        for name in files:
            if os.path.islink(os.path.join(place, name)):
                continue  # what it leads to is not ours
            fd = os.open(os.path.join(place, name), os.O_RDONLY | os.O_NOFOLLOW)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_folder(Path(place))
