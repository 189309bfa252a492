# SPDX-License-Identifier: Apache-2.0
"""The directory of a plain ZIP as columns: in a fraction of the time and memory that an object a member takes.

Source: APPNOTE.TXT 6.3.10, sections 4.3.12 (central directory), 4.3.14 to 4.3.16 (ends), 4.5.3 (ZIP64).
"""

from __future__ import annotations

import itertools
import re
import struct
import zipfile
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset.storage.zipformat import (
    CENTRAL_MARK,
    DEFLATE_LIMIT,
    DEFLATED,
    END,
    END64,
    END64_MARK,
    END_BYTES,
    END_MARK,
    EXTRA64,
    LARGEST_INFLATED,
    LIMIT16,
    LIMIT32,
    LOCAL,
    LOCATOR64,
    LOCATOR64_MARK,
    STORED,
    UTF8,
    date_time,
)

LATEST = 45
"""Version needed for ZIP64; archives that need a later one are not plain."""
_CENTRAL = np.dtype(
    [
        ("mark", "S4"), ("made", "<u2"), ("needed", "<u2"), ("flags", "<u2"), ("method", "<u2"), ("time", "<u2"),
        ("date", "<u2"), ("crc", "<u4"), ("packed", "<u4"), ("size", "<u4"), ("named", "<u2"), ("extended", "<u2"),
        ("commented", "<u2"), ("disk", "<u2"), ("internal", "<u2"), ("external", "<u4"), ("start", "<u4"),
    ]
)  # fmt: skip


class Directory(NamedTuple):
    """Members of a plain ZIP in stored order."""

    names: list[str]
    starts: NDArray[np.int64]
    """Offsets of the local headers."""
    packed: NDArray[np.int64]
    """Bytes as stored."""
    sizes: NDArray[np.int64]
    """Bytes when unpacked."""
    records: NDArray[np.void]
    """The records, with flags, method, time, date and crc."""
    start: int
    """Offset of the directory."""

    def entry(self, number: int) -> zipfile.ZipInfo:
        """Return a member as `zipfile` describes it, but for what says nothing of its data."""
        record = self.records[number]
        entry = zipfile.ZipInfo(self.names[number])
        entry.date_time = date_time(int(record["time"]), int(record["date"]))
        entry.flag_bits, entry.compress_type, entry.CRC = (int(record[key]) for key in ("flags", "method", "crc"))
        entry.header_offset, entry.compress_size = int(self.starts[number]), int(self.packed[number])
        entry.file_size = int(self.sizes[number])
        return entry


def read_directory(file: IO[bytes]) -> Directory | None:
    """Return the directory of a plain ZIP; None for any other, which `zipfile` may still read.

    Plain: as this package writes them. Nothing lies before the first member, between directory and end or behind it;
    no comments, no folders, nothing encrypted; names are ASCII, or marked as UTF-8; sizes are possible, and members
    overlap neither each other nor the directory.
    """
    found = find_directory(file)
    if found is None:
        return None
    count, start, size = found
    file.seek(start)
    data = file.read(size)
    if not 0 < count * _CENTRAL.itemsize <= len(data) == size:
        return None
    marks = itertools.islice(re.finditer(re.escape(CENTRAL_MARK), data), count + 1)
    places = np.array([mark.start() for mark in marks], np.int64)
    if len(places) != count or int(places[-1]) + _CENTRAL.itemsize > size:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), _CENTRAL.itemsize)
    records = windows[places].view(_CENTRAL)[:, 0]
    named, extended = records["named"].astype(np.int64), records["extended"].astype(np.int64)
    begins = places + _CENTRAL.itemsize
    chained = places[0] == 0 and (begins + named + extended == np.append(places[1:], size)).all()
    known = np.isin(records["flags"], (0, UTF8)) & np.isin(records["method"], (STORED, DEFLATED))
    plain = known & (records["needed"] <= LATEST) & (records["commented"] == 0) & (records["disk"] == 0) & (named > 0)
    if not chained or not plain.all():
        return None
    names = _names(data, begins, named, records["flags"])
    wide = _wide(data, records, begins + named, extended)
    if names is None or wide is None:
        return None
    sizes, packed, starts = wide
    if not all(((column >= 0) & (column <= start)).all() for column in (packed, starts)):
        return None
    most = np.where(records["method"] == DEFLATED, np.minimum(LARGEST_INFLATED, packed * DEFLATE_LIMIT), packed)
    stops = starts + LOCAL.size + named + packed
    order = np.argsort(starts, kind="stable")
    apart = (starts[order] >= np.append(0, stops[order][:-1])).all() and stops[order[-1]] <= start
    if not apart or not ((sizes >= 0) & (sizes <= most)).all():
        return None
    return Directory(names, starts, packed, sizes, records, start)


def find_directory(file: IO[bytes]) -> tuple[int, int, int] | None:
    """Return number of members, offset and size of the directory of a ZIP that ends plainly; None for any other."""
    length = file.seek(0, 2)
    file.seek(max(0, length - END_BYTES))
    tail = file.read()
    if len(tail) < END.size:
        return None
    mark, disk, first, here, count, size, start, comment = END.unpack(tail[-END.size :])
    place = length - END.size
    if mark != END_MARK or disk or first or here != count or comment:
        return None
    if count == LIMIT16 or LIMIT32 in (size, start) or tail[-END.size - LOCATOR64.size :].startswith(LOCATOR64_MARK):
        if len(tail) < END_BYTES:
            return None
        place = length - END_BYTES
        mark, own, _, _, disk, first, here, count, size, start = END64.unpack(tail[: END64.size])
        located = LOCATOR64.unpack(tail[END64.size : -END.size])
        if mark != END64_MARK or own != END64.size - 12 or disk or first or here != count:
            return None
        if located != (LOCATOR64_MARK, 0, place, 1):
            return None
    return (count, start, size) if start + size == place else None


def _names(
    data: bytes, begins: NDArray[np.int64], named: NDArray[np.int64], flags: NDArray[np.uint16]
) -> list[str] | None:
    """Return the names; None where one is no text of its kind, holds a NUL, or is a folder's."""
    text = data.decode("latin-1")
    names = [text[begin:end] for begin, end in zip(begins.tolist(), (begins + named).tolist(), strict=True)]
    for number in np.flatnonzero(flags):
        try:
            names[number] = names[number].encode("latin-1").decode()
        except UnicodeDecodeError:
            return None
    told = all(name.isascii() or flag for name, flag in zip(names, flags.tolist(), strict=True))
    joined = "\n".join((*names, ""))
    return names if told and "\0" not in joined and "/\n" not in joined else None


def _wide(
    data: bytes, records: NDArray[np.void], places: NDArray[np.int64], extended: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Return sizes, packed sizes and starts, those of ZIP64 from the extra fields; None where these hold more."""
    columns = [records[key].astype(np.int64) for key in ("size", "packed", "start")]
    over = np.array([column == LIMIT32 for column in columns])
    number = over.sum(axis=0)
    if (extended != np.where(number > 0, 4 + 8 * number, 0)).any():
        return None
    for row in np.flatnonzero(number):
        place, fields = int(places[row]), int(number[row])
        if struct.unpack_from("<2H", data, place) != (EXTRA64, 8 * fields):
            return None
        values = struct.unpack_from(f"<{fields}q", data, place + 4)
        for column, value in zip(np.flatnonzero(over[:, row]), values, strict=True):
            columns[column][row] = value
    return columns[0], columns[1], columns[2]
