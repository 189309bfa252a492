# SPDX-License-Identifier: Apache-2.0
"""What is read at offsets, as a file that can be sought: for those who read files."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Source(Protocol):
    """What has a size and gives bytes at an offset."""

    file_size: int
    """Bytes."""

    def pread(self, size: int, offset: int) -> bytes:
        """Return `size` bytes from `offset` on."""


class ByteStream(io.RawIOBase):
    """A source as a file; raises what its `pread` raises."""

    def __init__(self, source: Source) -> None:
        self._source, self._at = source, 0

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to an offset; OSError for one before the start."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.file_size}[whence]
        if base + offset < 0:
            raise OSError("a place before its start")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the offset."""
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        """Read as many bytes as there are, at most those that `buffer` holds."""
        view = memoryview(buffer).cast("B")
        data = self._fetch(max(0, min(len(view), self._source.file_size - self._at)), self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _fetch(self, size: int, offset: int) -> bytes:
        return self._source.pread(size, offset) if size else b""
