# SPDX-License-Identifier: Apache-2.0
"""SHA-256 of a recording, computed while it is read: it identifies the recording whatever its name."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING

from edgefirst_ros.errors import RecordingError
from edgefirst_ros.sources.container import open_recording

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK = 1 << 20
_WAITING = 16
"""Most blocks that are read and not yet hashed."""
_LONG = 1 << 16
"""Bytes of a read that are hashed as they are returned; shorter ones are read again, many at once."""


class HashedFile(io.BufferedReader):
    """A recording whose bytes are hashed while it is read, so that little is read for the hash alone.

    Owns: the digest is the hashing thread's alone; all else belongs to the thread that reads.
    """

    def __init__(self, raw: io.FileIO) -> None:
        super().__init__(raw, _LONG)
        self._digest = hashlib.sha256()
        self._hashed = 0
        """Bytes that were handed to the thread."""
        self._blocks: Queue[Buffer] = Queue(_WAITING)
        self._thread = threading.Thread(target=self._work, name="hash", daemon=True)
        self._thread.start()

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as a file does; a long read is hashed without a copy, as far as it is not hashed yet."""
        data = super().read(size)
        if len(data) >= _LONG and self._hashed < (end := self.tell()):
            self._reach(end - len(data))
            self._take(memoryview(data)[self._hashed - end + len(data) :])
        return data

    def walked(self, end: int) -> None:
        """Note that the reader has passed `end`: what was read in short pieces is hashed, once it is a block.

        Raises OSError where it cannot be read again.
        """
        if end - self._hashed >= _BLOCK:
            self._reach(end)

    def sha256(self) -> str:
        """Return the hash of the whole file, as hex digits; waits for the thread."""
        self._reach(os.fstat(self.fileno()).st_size)
        self._end()
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file and end the thread; closing twice does nothing."""
        if not self.closed:
            self._end()
        super().close()

    def _reach(self, end: int) -> None:
        """Hash the bytes before `end` that were not read in one piece."""
        while self._hashed < end and (block := os.pread(self.fileno(), min(_BLOCK, end - self._hashed), self._hashed)):
            self._take(memoryview(block))

    def _take(self, data: memoryview) -> None:
        for at in range(0, len(data), _BLOCK):
            block = data[at : at + _BLOCK]  # a view keeps all of its data, so of much data there are copies
            self._blocks.put(block if len(data) <= _WAITING * _BLOCK else bytes(block))
        self._hashed += len(data)

    def _end(self) -> None:
        if self._thread.is_alive():
            self._blocks.put(b"")
            self._thread.join()

    def _work(self) -> None:
        while block := self._blocks.get():
            self._digest.update(block)


def sha256(path: Path) -> str:
    """Return the hash of a recording that is not walked, as hex digits. Raises RecordingError."""
    with open_recording(path) as file:
        try:
            digest = hashlib.sha256()
            while block := file.read(_BLOCK):
                digest.update(block)
            return digest.hexdigest()
        except OSError as error:
            raise RecordingError(f"{path}: cannot be read: {error}") from error
