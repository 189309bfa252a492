# SPDX-License-Identifier: Apache-2.0
"""Arrays of records as Zarr keeps them in folders, of one dimension, without its library.

The library's third version can neither read nor write records with fields that are arrays, and those who have the
second one cannot have the third. Source: Zarr storage specification, version 2.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset.storage.lock import report_errors
from edgefirst_ros.errors import DatasetError, EdgeFirstError, describe_extra
from edgefirst_ros.export.importing import read_file, read_json

Records = NDArray[np.void]
LEVEL = 1
MAX_CHUNK = 1 << 28
"""Bytes; larger chunks are rejected."""
CODECS = (None, "blosc", "zlib", "gzip")
"""Codecs that are supported: L5Kit's and ours. Some of the others call functions that the chunk names."""
WINDOW = zlib.MAX_WBITS | 32
"""Either header, zlib's or gzip's."""


def write_group(path: Path, attributes: dict[str, Any]) -> None:
    """Make a folder that holds arrays. Raises StorageError."""
    with report_errors(path, "write"):
        path.mkdir()
        _put(path / ".zgroup", {"zarr_format": 2})
        _put(path / ".zattrs", attributes)


class Writer:
    """An array that grows at its end; only its last chunk is in memory. Raises StorageError."""

    def __init__(self, path: Path, dtype: np.dtype[np.void], chunk: int) -> None:
        """`chunk`: records of a chunk."""
        self.path = path
        self.length = 0
        self._dtype = dtype
        self._waiting = np.zeros(chunk, dtype)
        with report_errors(path, "write"):
            path.mkdir()

    def append(self, records: Records) -> None:
        """Add records (N,) of the array's type."""
        done = 0
        while done < len(records):
            start = self.length % len(self._waiting)
            part = records[done : done + len(self._waiting) - start]
            self._waiting[start : start + len(part)] = part
            self.length += len(part)
            done += len(part)
            if self.length % len(self._waiting) == 0:
                self._save(self.length // len(self._waiting) - 1)

    def close(self) -> None:
        """Write the last chunk, and the metadata of the array."""
        left = self.length % len(self._waiting)
        if left:
            self._waiting[left:] = np.zeros(1, self._dtype)  # a chunk is always whole
            self._save(self.length // len(self._waiting))
        with report_errors(self.path, "write"):
            _put(
                self.path / ".zarray",
                {
                    "zarr_format": 2,
                    "shape": [self.length],
                    "chunks": [len(self._waiting)],
                    "dtype": self._dtype.descr,
                    "compressor": {"id": "zlib", "level": LEVEL},
                    "fill_value": None,
                    "order": "C",
                    "filters": None,
                },
            )

    def _save(self, number: int) -> None:
        with report_errors(self.path, "write"):
            (self.path / str(number)).write_bytes(zlib.compress(self._waiting.tobytes(), LEVEL))


class RecordArray:
    """An array of records. Raises DatasetError where it violates the specification."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found = read_json(path / ".zarray")
        try:
            (length,), (chunk,) = found["shape"], found["chunks"]
            self.dtype = np.dtype([(name, kind, *map(tuple, rest)) for name, kind, *rest in found["dtype"]])
            plain = (found["zarr_format"], found["order"], found.get("filters") or None) == (2, "C", None)
            self._codec = (found["compressor"] or {"id": None})["id"]
        except (KeyError, TypeError, ValueError, OverflowError, SyntaxError) as error:
            raise DatasetError(f"{path}: is not an array of records: {error!r}") from error
        size = chunk * self.dtype.itemsize if isinstance(chunk, int) else 0
        counted = isinstance(length, int) and length <= sys.maxsize
        if not plain or self.dtype.hasobject or not counted or not 0 < size <= MAX_CHUNK:
            raise DatasetError(f"{path}: is not a plain array of records with chunks up to {MAX_CHUNK} bytes")
        if self._codec not in CODECS:
            raise DatasetError(f"{path}: is packed with {self._codec!r}; what is read is {CODECS}")
        self._length, self._chunk = max(0, int(length)), int(chunk)
        self._at: tuple[int, Records] = (-1, np.zeros(0, self.dtype))

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, stop: int) -> Records:
        """Records `start` up to, not including, `stop`. Raises DatasetError where the array ends before."""
        if not 0 <= start <= stop <= len(self):
            raise DatasetError(f"{self.path}: has {len(self)} records; {start} to {stop} were requested")
        if start == stop:
            return np.zeros(0, self.dtype)
        chunks = range(start // self._chunk, (stop - 1) // self._chunk + 1)
        parts = [self._load(n)[max(0, start - n * self._chunk) : stop - n * self._chunk] for n in chunks]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def each(self) -> Iterator[np.void]:
        """Yield all records, chunk by chunk."""
        for start in range(0, len(self), self._chunk):
            yield from self.read(start, min(start + self._chunk, len(self)))

    def _load(self, number: int) -> Records:
        if self._at[0] != number:
            path = self.path / str(number)
            size = self._chunk * self.dtype.itemsize
            try:
                data = self._unpack_chunk(read_file(path, 2 * size + 1024), size)
            except EdgeFirstError:
                raise
            except Exception as error:  # any error of a codec on bad bytes
                raise DatasetError(f"{path}: cannot be unpacked: {error}") from error
            if len(data) != size:
                raise DatasetError(f"{path}: has {len(data)} bytes unpacked, must have {size}")
            self._at = number, np.frombuffer(data, self.dtype)
        return self._at[1]

    def _unpack_chunk(self, data: bytes, size: int) -> bytes:
        if self._codec is None:
            return data
        if self._codec in ("zlib", "gzip"):
            return zlib.decompressobj(WINDOW).decompress(data, size + 1)
        try:
            import numcodecs  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError as error:
            raise EdgeFirstError(
                describe_extra(f"{self.path} is packed with {self._codec}, which", "l5kit", error)
            ) from error
        # The codec unpacks, and reads, as many bytes as bytes 4 to 8 and 12 to 16 state.
        if [int.from_bytes(data[at : at + 4], "little") for at in (4, 12)] != [size, len(data)]:
            raise DatasetError(f"{self.path}: a chunk says that it has another size than it has, or than the array")
        return bytes(numcodecs.Blosc().decode(data))


def _put(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
