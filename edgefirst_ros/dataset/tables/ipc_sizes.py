# SPDX-License-Identifier: Apache-2.0
"""Unpacked sizes that the batches of an Arrow IPC file state, checked before any is unpacked.

Source: Apache Arrow, format/File.fbs, Message.fbs ("Footer", "RecordBatch", "BodyCompression"); FlatBuffers internals.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from edgefirst_ros.errors import TooLargeError
from edgefirst_ros.limits import Budget

_TAIL = struct.Struct("<i6s")
_BLOCK = struct.Struct("<qi4xq")
_PAIR = struct.Struct("<2q")
_MARK = struct.Struct("<4si")
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
_CONTINUED = b"\xff\xff\xff\xff"
_OLD_COMPRESSION = b"ARROW:experimental_compression"


def count_batches(fd: int, size: int, budget: Budget) -> None:
    """Take what all batches state from `budget`: rows, values, bytes once unpacked.

    Raises ValueError where the file is cut or its parts lie outside of it, DatasetError where it is too much.
    """
    length, _ = _TAIL.unpack(_pread(fd, _TAIL.size, size - _TAIL.size, size))
    footer = _Table.root(_pread(fd, length, size - _TAIL.size - length, size))
    for field in (2, 3):
        for offset, head, _ in footer.structs(field, _BLOCK):
            budget.take(unpacked=head)  # it is read, also where many blocks are one and the same
            _count(fd, size, offset, _pread(fd, head, offset, size), budget)


def count_stream(fd: int, size: int, budget: Budget) -> int:
    """Return where the last message of an Arrow IPC stream ends that is whole, with those before it within `budget`."""
    place = schemas = 0
    while True:
        try:
            mark, length = _MARK.unpack(_pread(fd, _MARK.size, place, size))
            head = _pread(fd, _MARK.size + length, place, size) if mark == _CONTINUED and length > 0 else b""
            message = _Table.root(head[_MARK.size :])
            end = place + len(head) + _not_negative(message.scalar(3, "<q"))
            if end > size:
                return place
            if message.scalar(1, "<B") == _SCHEMA and not schemas:
                schemas += 1
            else:
                _count(fd, size, place, head, budget)
        except (ValueError, struct.error, TooLargeError):
            return place
        place = end


def count_message(fd: int, size: int, offset: int, budget: Budget) -> None:
    """Take what the record batch at `offset` of a file of `size` bytes states from `budget`.

    Raises ValueError where it is cut or broken, DatasetError where it is too much.
    """
    try:
        mark, length = _MARK.unpack(_pread(fd, _MARK.size, offset, size))
        if mark != _CONTINUED:
            raise ValueError("no message begins here")
        _count(fd, size, offset, _pread(fd, _MARK.size + length, offset, size), budget)
    except struct.error as error:
        raise ValueError(str(error)) from error


def _count(fd: int, size: int, offset: int, head: bytes, budget: Budget) -> None:
    message = _Table.root(head[8 if head.startswith(_CONTINUED) else 4 :])
    if _OLD_COMPRESSION in head:
        raise ValueError("is packed in a way that was given up before Arrow 1.0")
    kind, batch = message.scalar(1, "<B"), message.table(2)
    if kind == _DICTIONARY and batch is not None:
        batch = batch.table(1)
    elif kind != _RECORDS:
        raise ValueError(f"a message of kind {kind} stands for a batch")
    if batch is None:
        return
    values = sum(_not_negative(length) for length, _ in batch.structs(1, _PAIR))
    rows = _not_negative(batch.scalar(0, "<q"))
    packed, unpacked = batch.table(3) is not None, 0
    for place, length in batch.structs(2, _PAIR):
        stated = -1
        if packed and length:
            stated = struct.unpack("<q", _pread(fd, 8, offset + len(head) + place, size))[0]
        unpacked += _not_negative(length if stated == -1 else stated)
    budget.take(rows=rows if kind == _RECORDS else 0, values=max(values, rows), unpacked=unpacked)


def _not_negative(number: int) -> int:
    if number < 0:
        raise ValueError(f"a length of {number} is stated in it")
    return number


def _pread(fd: int, length: int, offset: int, size: int) -> bytes:
    data = os.pread(fd, length, offset) if length >= 0 and offset >= 0 and offset + length <= size else b""
    if len(data) != length:
        raise ValueError(f"{length} bytes at {offset} lie outside of the {size} that it has")
    return data


class _Table:
    """A table of a FlatBuffer; struct.error, a ValueError here, where it leaves the buffer."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._slots = place - self._at(place, "<i")
        self._end = self._slots + self._at(self._slots, "<H")

    @classmethod
    def root(cls, data: bytes) -> _Table:
        """Return the table that a buffer begins with the place of."""
        if len(data) < 4:
            raise ValueError("a part of it is empty")
        return cls(data, struct.unpack_from("<I", data)[0])

    def scalar(self, field: int, form: str) -> int:
        """Return a number; 0 where it is left out."""
        place = self._field(field)
        return self._at(place, form) if place else 0

    def table(self, field: int) -> _Table | None:
        """Return a table; None where it is left out."""
        place = self._field(field)
        return _Table(self._data, place + self._at(place, "<I")) if place else None

    def structs(self, field: int, form: struct.Struct) -> Iterator[tuple[int, ...]]:
        """Yield the structs of a vector."""
        place = self._field(field)
        if not place:
            return iter(())
        start = place + self._at(place, "<I")
        end = start + 4 + self._at(start, "<I") * form.size
        if end > len(self._data):
            raise ValueError("a list in it reaches over its end")
        return form.iter_unpack(memoryview(self._data)[start + 4 : end])

    def _field(self, field: int) -> int:
        slot = self._slots + 4 + 2 * field
        offset = self._at(slot, "<H") if slot < self._end else 0
        return self._place + offset if offset else 0

    def _at(self, place: int, form: str) -> int:
        if not 0 <= place <= len(self._data) - struct.calcsize(form):
            raise ValueError("a place in it lies outside of it")
        return int(struct.unpack_from(form, self._data, place)[0])
