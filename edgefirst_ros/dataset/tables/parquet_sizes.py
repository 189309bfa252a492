# SPDX-License-Identifier: Apache-2.0
"""Unpacked sizes that the pages of a Parquet file state, checked before any is unpacked.

Source: apache/parquet-format, parquet.thrift ("PageHeader"); Thrift compact protocol.
"""

from __future__ import annotations

import os
from typing import Any

from edgefirst_ros.limits import Budget

HEAD, LARGEST_HEAD = 1 << 12, 1 << 24
"""Bytes read for the header of a page at first, and at most (the reader's own limit)."""
PER_PAGE = 1 << 10
"""Bytes that a page counts for at least: to look at it takes time, however small it is."""
DEEPEST = 8
_DICTIONARY_PAGE, _DELTA_BYTES = 2, 7
_TEXTS = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


def count_pages(fd: int, metadata: Any, budget: Budget) -> int:
    """Take what all pages state from `budget`; returns the bytes of the longest value that a row may repeat.

    Pages of text state each value once where rows repeat it: of such a column no more is known than that no value is
    longer than its page. Raises ValueError where a page cannot be read, DatasetError where it is too much.
    """
    longest = 0
    for group in range(metadata.num_row_groups):
        budget.take(rows=metadata.row_group(group).num_rows)
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            values, repeated = _count_column(fd, column, budget)
            if column.physical_type in _TEXTS and repeated:
                if metadata.schema.column(number).max_repetition_level:
                    budget.take(unpacked=values * repeated)  # all of them may lie in one row
                longest = max(longest, repeated)
    return longest


def _count_column(fd: int, column: Any, budget: Budget) -> tuple[int, int]:
    """(values, bytes of the largest page whose values may be repeated)."""
    place = int(column.data_page_offset)
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < place:
        place = int(column.dictionary_page_offset)
    end = place + int(column.total_compressed_size)
    total = repeated = 0
    while place < end:
        page, size = _header(fd, place)
        unpacked, packed = _number(page, 2), _number(page, 3)
        data = page.get(5) or page.get(8) or {}
        if not isinstance(data, dict):
            raise ValueError(f"the page at {place} is described by a number")
        values = _number(data, 1)
        budget.take(unpacked=max(unpacked, PER_PAGE), values=values)
        encoding = data.get(4 if 8 in page else 2)
        if page.get(1) == _DICTIONARY_PAGE or encoding == _DELTA_BYTES:
            repeated = max(repeated, unpacked)
        total += values
        if packed < 0:
            raise ValueError(f"a page of {packed} bytes at {place}")
        place += size + packed
    return total, repeated


def _number(found: dict[int, Any], field: int) -> int:
    """Return the number of a field, 0 where it is not there. Raises ValueError where it is none."""
    value = found.get(field, 0)
    if not isinstance(value, int):
        raise ValueError(f"field {field} of a page is not a number")
    return value


def _header(fd: int, place: int) -> tuple[dict[int, Any], int]:
    """Return the header of a page, and how many bytes it takes."""
    length = HEAD
    while True:
        data = os.pread(fd, length, place)
        reader = _Compact(data)
        try:
            return reader.struct(DEEPEST), reader.place
        except IndexError:
            if len(data) < length or length >= LARGEST_HEAD:
                raise ValueError(f"the header of the page at {place} cannot be read") from None
            length *= 8


class _Compact:
    """Thrift's compact protocol, as far as headers of pages need it; IndexError where the data end early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Return the numbers and structs of a struct by field; texts and lists are passed over."""
        if not depth:
            raise ValueError("the header of a page is nested too deeply")
        found: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._signed()
            found[field] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            self._skip(8)
        elif kind == 8:
            self._skip(self._unsigned())
        elif kind == 12:
            return self.struct(depth - 1)
        else:
            raise ValueError(f"the header of a page holds a value of kind {kind}")
        return None

    def _byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _skip(self, length: int) -> None:
        if self.place + length > len(self._data):
            raise IndexError
        self.place += length

    def _unsigned(self) -> int:
        value = shift = 0
        while shift < 64:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("a number of more than 64 bits in the header of a page")

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
