# SPDX-License-Identifier: Apache-2.0
"""Channels of roverd: `raw` (entries of one size, one after the other) and `lzmaf` (an .xz each, offsets beside them).

Source: roverd, "data interface", Channel; The .xz File Format 1.2.0.
"""

from __future__ import annotations

import lzma
import math
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from zlib_ng import zlib_ng

from edgefirst_ros.dataset.storage.atomic import WriteBehind
from edgefirst_ros.dataset.storage.lock import byte_views, open_file, write_at
from edgefirst_ros.dataset.tables.write import json_text
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.importing import read_json

STAMPS = "ts"
META = "meta.json"
EXTRINSICS = "extrinsics.json"
INDEX = "_i"
"""Suffix of the file with the offsets of an `lzmaf` channel."""
KINDS = frozenset({"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"})
LARGEST = 1 << 28
"""Bytes of the largest entry that is read."""
MOST = 1 << 23
"""Stamps of a sensor that are read: 11 h at 200 Hz."""
MEMORY = 1 << 28
"""Bytes that unpacking may take; the highest level of xz takes 65 MiB."""
SPARSE = 1 << 16
"""Padding from this many bytes on is left as a hole."""
PLAIN = 1 << 16
"""Bytes of an LZMA2 chunk that is not compressed."""
_MAGIC, _CRC32, _END = b"\xfd7zXZ\0", b"\0\1", b"YZ"
_BLOCK = b"\x02\x00\x21\x01\x00\0\0\0"
"""A block header without its CRC: 12 bytes, one filter, LZMA2 with the smallest dictionary."""


class RawWriter:
    """A `raw` channel while it is written: entries of `shape`, little-endian."""

    def __init__(self, path: Path, kind: str, shape: Sequence[int]) -> None:
        self.described = {"format": "raw", "type": kind, "shape": list(shape)}
        self._dtype = np.dtype(f"<{kind}")
        self._size = self._dtype.itemsize * math.prod(shape)
        self._count = 0
        self._file = path.open("xb", buffering=1 << 20)
        self._behind = WriteBehind(self._file.fileno())

    def append(self, values: ArrayLike) -> None:
        """Add an entry; what it lacks at its end is zero."""
        data = np.ascontiguousarray(values, self._dtype)
        self._file.write(data.view(np.uint8).data if data.size else b"")
        missing = self._size - data.nbytes
        if missing >= SPARSE:
            self._file.seek(missing, os.SEEK_CUR)
        else:
            self._file.write(bytes(missing))
        self._count += 1
        self._behind.reached(self._count * self._size)

    def close(self) -> None:
        """Complete the file."""
        if not self._file.closed:
            self._file.truncate(self._count * self._size)
            self._file.close()


class FramesWriter:
    """An `lzmaf` channel while it is written."""

    def __init__(self, path: Path, kind: str, shape: Sequence[int]) -> None:
        self.described = {"format": "lzmaf", "type": kind, "shape": list(shape)}
        self._offset = 0
        self._file = path.open("xb", buffering=0)
        self._behind = WriteBehind(self._file.fileno())
        self._index = path.with_name(path.name + INDEX).open("xb")
        self._index.write(bytes(8))

    def append(self, packed: Sequence[bytes | memoryview]) -> None:
        """Add an entry: an .xz as buffers."""
        self._offset = write_at(self._file.fileno(), byte_views(packed)[0], self._offset)
        self._behind.reached(self._offset)
        self._index.write(struct.pack("<Q", self._offset))

    def close(self) -> None:
        """Complete the files."""
        self._file.close()
        self._index.close()


def stored(data: NDArray[Any]) -> list[bytes | memoryview]:
    """Return an .xz of contiguous `data` as buffers, not compressed.

    LZMA packs some 12 MB/s a processor at its quickest and gains less than half of a radar cube; a disk takes hundreds.
    """
    view = data.reshape(-1).view(np.uint8).data
    parts: list[bytes | memoryview] = [_MAGIC + _CRC32 + _crc(_CRC32), _BLOCK + _crc(_BLOCK)]
    size = len(_BLOCK) + 4
    for start in range(0, len(view), PLAIN):
        chunk = view[start : start + PLAIN]
        parts += (struct.pack(">BH", 2 if start else 1, len(chunk) - 1), chunk)
        size += 3 + len(chunk)
    size += 1
    index = _padded(b"\0\1" + _number(size + 4) + _number(len(view)))
    footer = struct.pack("<I", len(index) // 4) + _CRC32  # of index and its CRC, in fours less one
    parts += (b"\0" + bytes(-size % 4), _crc(view), index, _crc(index), _crc(footer) + footer + _END)
    return parts


def _crc(data: bytes | memoryview) -> bytes:
    return struct.pack("<I", zlib_ng.crc32(data))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _number(value: int) -> bytes:
    """Return a multibyte integer of .xz."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def write_meta(folder: Path, channels: Mapping[str, Mapping[str, Any]], texts: Mapping[str, str]) -> None:
    """Describe the channels of a sensor."""
    described = {name: {**channel, "desc": texts[name]} for name, channel in channels.items()}
    write_json(folder / META, described)


def write_json(path: Path, value: object) -> None:
    """A new file of JSON; numbers that are not finite become null."""
    with path.open("x", encoding="utf-8") as file:
        file.write(json_text(value) + "\n")


class Reader:
    """The channels of a sensor's folder, entries by number. Raises DatasetError where they are not as described."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = read_json(folder / META)
        try:
            self.channels: dict[str, tuple[str, np.dtype[Any], tuple[int, ...]]] = {
                name: (channel["format"], _dtype(channel["type"]), _shape(channel["shape"]))
                for name, channel in found.items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DatasetError(f"{folder / META}: is not a description of channels: {error!r}") from error

    def described(self, name: str) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
        """(format, type, shape) of a channel that is to be there."""
        if name not in self.channels or Path(name).name != name:
            raise DatasetError(f"{self.folder}: has no channel {name!r}")
        return self.channels[name]

    def raw(self, name: str) -> NDArray[Any]:
        """Return all whole entries of a `raw` channel, (N, *shape), mapped."""
        form, dtype, shape = self.described(name)
        path = self.folder / name
        if form != "raw":
            raise DatasetError(f"{path}: has the format {form!r}, expected 'raw'")
        size = dtype.itemsize * math.prod(shape)
        if size > LARGEST:
            raise DatasetError(f"{path}: has entries of {size} bytes, up to {LARGEST} are read")
        try:
            with open(open_file(path), "rb") as file:
                count = os.fstat(file.fileno()).st_size // size
                return np.memmap(file, dtype, "r", 0, (count, *shape)) if count else np.empty((0, *shape), dtype)
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: cannot be read: {error}") from error

    def count(self, name: str) -> int:
        """Whole entries of a `raw` or `lzmaf` channel."""
        if self.described(name)[0] == "raw":
            return len(self.raw(name))
        try:
            return max(0, (self.folder / (name + INDEX)).stat().st_size // 8 - 1)
        except OSError as error:
            raise DatasetError(f"{self.folder / name}{INDEX}: cannot be read: {error}") from error

    def stamps(self) -> NDArray[np.int64]:
        """(N,) ns since the epoch. Raises DatasetError where they are no times."""
        seconds = self.raw(STAMPS)
        if len(seconds) > MOST:
            raise DatasetError(f"{self.folder / STAMPS}: has {len(seconds)} stamps, up to {MOST} are read")
        if seconds.ndim != 1 or not np.isfinite(seconds).all() or (np.abs(seconds) > 2**33).any():
            raise DatasetError(f"{self.folder / STAMPS}: these are not seconds since the epoch")
        return np.rint(seconds.astype(np.float64) * 1e9).astype(np.int64)

    def frame(self, name: str, number: int) -> NDArray[Any]:
        """Return one entry of an `lzmaf` channel, of the channel's shape."""
        form, dtype, shape = self.described(name)
        path = self.folder / name
        size = dtype.itemsize * math.prod(shape)
        if form != "lzmaf" or size > LARGEST:
            raise DatasetError(f"{path}: format {form!r} with entries of {size} bytes, expected 'lzmaf'")
        try:
            with open(open_file(path.with_name(name + INDEX)), "rb") as index, open(open_file(path), "rb") as file:
                index.seek(8 * number)
                begin, end = struct.unpack("<2Q", index.read(16))
                if not begin < end <= min(os.fstat(file.fileno()).st_size, begin + 2 * LARGEST):
                    raise DatasetError(f"{path}: entry {number} is said to reach from {begin} to {end}")
                file.seek(begin)
                data = lzma.LZMADecompressor(lzma.FORMAT_XZ, MEMORY).decompress(file.read(end - begin), size + 1)
        except (OSError, ValueError, OverflowError, struct.error, lzma.LZMAError) as error:
            raise DatasetError(f"{path}: entry {number} cannot be read: {error}") from error
        if len(data) != size:
            raise DatasetError(f"{path}: entry {number} does not have {size} bytes")
        return np.frombuffer(data, dtype).reshape(shape)


def _dtype(kind: str) -> np.dtype[Any]:
    if kind.removeprefix("<") not in KINDS:
        raise ValueError(f"type {kind!r}")
    return np.dtype(f"<{kind.removeprefix('<')}")


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    if not all(type(side) is int and side > 0 for side in shape):
        raise ValueError(f"shape {shape!r}")
    return tuple(shape)
