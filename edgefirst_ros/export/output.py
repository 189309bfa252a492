# SPDX-License-Identifier: Apache-2.0
"""An output folder that is there whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefirst_ros.dataset.claim import claim_folder, reporting
from edgefirst_ros.dataset.placing import sync_folder
from edgefirst_ros.errors import DatasetError

FEW = 100
"""Files of an output that are synced one by one."""


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A new folder beside `out` to write into, which becomes `out` at the end; removed where that fails.

    Raises DatasetError where `out` exists or another export to it is under way, StorageError where it cannot be
    written. What a killed export left is replaced: no other program gives its folders that name.
    """
    if os.path.lexists(out):
        raise DatasetError(f"{out}: exists already; an export goes into a folder of its own, name another one")
    partial = out.with_name(f".{out.name}.edgefirst-export")
    with reporting(partial, "create"):
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = claim_folder(partial)
    try:
        yield partial
        with reporting(partial, "write"):
            _sync(partial)
            os.rename(partial, out)
            sync_folder(out.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def _sync(folder: Path) -> None:
    if sum(len(files) for _, _, files in os.walk(folder)) > FEW:  # one call for all is cheaper than one for each
        os.sync()
        return
    for place, _, files in os.walk(folder):
        for name in files:
            fd = os.open(os.path.join(place, name), os.O_RDONLY | os.O_NOFOLLOW)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_folder(Path(place))
