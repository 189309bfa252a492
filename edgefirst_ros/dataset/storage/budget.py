# SPDX-License-Identifier: Apache-2.0
"""Limits on the sum of rows, values and unpacked bytes of an input, checked before memory is allocated."""

from __future__ import annotations

import sys
from pathlib import Path

from edgefirst_ros.errors import DatasetError, TooLargeError
from edgefirst_ros.limits import Limits

RATIO = 16
"""A file may unpack to so many times its size in any case, whatever the limits."""
BYTES_PER_ROW = 2
"""The rows of a file that may be there whatever the limits: those of a real table take more bytes than this, packed."""
BYTES_PER_VALUE = 8
"""Bytes that a value counts for at least: nulls take none in a file, but do in memory."""
SETTABLE = "raise the setting {0}"
IMPORT_RATIO = 100
"""Bytes that may come out of each byte of an import, whatever the limits."""


class Budget:
    """Remaining allowance of a file, or of all files of an import, shared by all its parts."""

    def __init__(self, path: Path, unpacked: int, because: str, rows: int = sys.maxsize) -> None:
        self._path, self._because, self._rows = path, because, rows
        self.unpacked = unpacked
        """Bytes that may come out of the whole."""
        self._spent_rows = self._spent_bytes = self._spent_values = 0

    @classmethod
    def of_file(cls, path: Path, size: int, limits: Limits) -> Budget:
        """Return the budget of a table or ZIP of `size` bytes."""
        rows = max(limits.table_rows, size // BYTES_PER_ROW)
        return cls(path, max(limits.unpacked_bytes, RATIO * size), SETTABLE.format("limits.unpacked_bytes"), rows)

    @classmethod
    def of_import(cls, source: Path, size: int, limits: Limits) -> Budget:
        """Return the budget of a store of another system; `size`: bytes of all its files."""
        most, because = IMPORT_RATIO * size, f"{IMPORT_RATIO} times the {size} bytes that are read"
        if most < limits.unpacked_bytes:
            most, because = limits.unpacked_bytes, SETTABLE.format("limits.unpacked_bytes")
        return cls(source, most, because)

    def take(self, *, rows: int = 0, values: int = 0, unpacked: int = 0) -> None:
        """Count rows, values in all columns and bytes. Raises TooLargeError where they become too many."""
        if min(rows, values, unpacked) < 0:
            raise DatasetError(f"{self._path}: a size below 0 is stated in it: it is broken")
        self._spent_rows += rows
        self._spent_values += values
        self._spent_bytes += unpacked
        if self._spent_rows > self._rows:
            because = SETTABLE.format("limits.table_rows")
            raise TooLargeError(
                f"{self._path}: has {self._spent_rows} rows or more, more than {self._rows} ({because})"
            )
        spent = max(self._spent_bytes, BYTES_PER_VALUE * self._spent_values)
        if spent > self.unpacked:
            raise TooLargeError(
                f"{self._path}: unpacks to {spent} bytes or more, more than {self.unpacked} ({self._because})"
            )
