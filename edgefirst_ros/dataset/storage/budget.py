# SPDX-License-Identifier: Apache-2.0
"""What one file of a dataset may unpack to in all: rows, values, bytes; counted before memory is taken for them."""

from __future__ import annotations

from pathlib import Path

from edgefirst_ros.config import Limits
from edgefirst_ros.errors import DatasetError

RATIO = 16
"""A file may unpack to so many times its bytes, whatever the limits: what is there is not made of nothing."""
BYTES_PER_ROW = 2
"""The rows of a file that may be there whatever the limits: those of a real table take more bytes than this, packed."""
BYTES_PER_VALUE = 8
"""What a value counts for at least: nulls take no bytes in a file, but they do where they are used."""


class Budget:
    """The limits of a file of `size` bytes, and how much of them is spent."""

    def __init__(self, path: Path, size: int, limits: Limits) -> None:
        self._path = path
        self._rows = max(limits.table_rows, size // BYTES_PER_ROW)
        self.unpacked = max(limits.unpacked_bytes, RATIO * size)
        """Bytes that the whole file may unpack to."""
        self._spent_rows = self._spent_bytes = self._spent_values = 0

    def take(self, *, rows: int = 0, values: int = 0, unpacked: int = 0) -> None:
        """Count rows, values in all columns and bytes. Raises DatasetError where they become too many."""
        if min(rows, values, unpacked) < 0:
            raise DatasetError(f"{self._path}: a size below 0 is stated in it: it is broken")
        self._spent_rows += rows
        self._spent_values += values
        self._spent_bytes += unpacked
        if self._spent_rows > self._rows:
            raise DatasetError(
                f"{self._path}: has {self._spent_rows} rows or more, more than {self._rows} (limits.table_rows)"
            )
        spent = max(self._spent_bytes, BYTES_PER_VALUE * self._spent_values)
        if spent > self.unpacked:
            raise DatasetError(
                f"{self._path}: unpacks to {spent} bytes or more, more than {self.unpacked} (limits.unpacked_bytes)"
            )
