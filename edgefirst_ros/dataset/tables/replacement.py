# SPDX-License-Identifier: Apache-2.0
"""Atomic replacement of a table of a finished dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from edgefirst_ros.dataset.storage.lock import claim_file, give_back, reporting
from edgefirst_ros.dataset.storage.syncing import sync_folder
from edgefirst_ros.errors import DatasetError

if TYPE_CHECKING:
    from typing_extensions import Self


class Replacement:
    """A file that replaces a table; without `put_in_place` it is removed.

    Claimed before the old table is read, it keeps two programs from changing one table at a time. Raises InUseError
    where another one is at it, and StorageError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.new.partial")
        with reporting(path, "rewrite it"):
            self._fd = claim_file(self._partial)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._partial.unlink(missing_ok=True)
        give_back(self._fd)

    @contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """Give the file to write to; at the end it is synced to disk. Raises DatasetError if Arrow refuses."""
        with reporting(self._path, "rewrite it"), open(self._fd, "wb", buffering=1 << 20, closefd=False) as file:
            try:
                yield file
            except pa.ArrowException as error:
                raise DatasetError(f"{self._path}: cannot be rewritten: {error}") from error
            file.flush()
            os.fsync(self._fd)

    def put_in_place(self) -> None:
        """Replace the table."""
        with reporting(self._path, "rewrite it"):
            os.replace(self._partial, self._path)
            sync_folder(self._path.parent)
