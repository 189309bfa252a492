# SPDX-License-Identifier: Apache-2.0
"""Log of the rows since the last commit, one JSON line per sample, so that a kill loses none of them.

An Arrow batch for each sample would cost 25 times as much as a line. Masks, which are no text, are in base64.
"""

from __future__ import annotations

import base64
import io
import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zlib_ng import zlib_ng

from edgefirst_ros.dataset.storage.lock import create_anew, give_back, reporting, write_at

_LARGEST = 1 << 26
"""Most bytes read of a log: far more than a flush interval writes."""

_LARGEST_MASKS = 1 << 16
"""Bytes of masks of a sample that go into the log."""


class Logged(NamedTuple):
    """A sample's rows, and how many rows of frames and of annotations were before them."""

    samples: int
    rows: int
    frame: dict[str, Any]
    annotations: list[dict[str, Any]]


class RowLog:
    """Appends rows until they are committed; each line is written by one call."""

    def __init__(self, path: Path, *, kept: bool = True) -> None:
        """Create `path` anew, replacing what a dead writer left; not `kept`: there is no log."""
        self.path = path
        self._bytes = 0
        self._fd = create_anew(path) if kept else -1

    def append(
        self, samples: int, rows: int, frame: Mapping[str, Any], annotations: Sequence[Mapping[str, Any]]
    ) -> None:
        """Add a sample's rows. Raises StorageError."""
        if self._fd < 0:
            return
        text = json.dumps([samples, rows, frame, list(annotations)], default=_plain).encode()
        line = b"%08x %b\n" % (zlib_ng.crc32(text), text)
        with reporting(self.path, "write"):
            self._bytes = write_at(self._fd, [memoryview(line)], self._bytes)

    def clear(self) -> None:
        """Remove all rows: the journals have them. Raises StorageError."""
        if self._bytes:
            with reporting(self.path, "truncate"):
                os.ftruncate(self._fd, 0)
            self._bytes = 0

    def close(self) -> None:
        """Close, keeping the file; closing twice does nothing."""
        if self._fd >= 0:
            give_back(self._fd)
            self._fd = -1


def is_large(annotations: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the rows of a sample are better written as an Arrow batch: with large masks."""
    return sum(len(row.get("mask") or b"") for row in annotations) > _LARGEST_MASKS


def read_log(path: Path) -> list[Logged]:
    """Return the whole lines of a log, up to the first that is cut or damaged; none without a log."""
    found: list[Logged] = []
    if not is_plain_file(path):
        return found
    with reporting(path, "read"), path.open("rb") as file:
        data = file.read(_LARGEST)
    for line in io.BytesIO(data):  # one after the other: there may be as many as bytes
        checksum, _, text = line.removesuffix(b"\n").partition(b" ")
        try:
            if int(checksum, 16) != zlib_ng.crc32(text):
                break
            samples, rows, frame, annotations = json.loads(text)
            found.append(Logged(int(samples), int(rows), dict(frame), [_with_mask(dict(row)) for row in annotations]))
        except (ValueError, TypeError, RecursionError):
            break
    return found


def is_plain_file(path: Path) -> bool:
    """True for an existing regular file, not a link, pipe or device; raises StorageError if the disk does not tell."""
    with reporting(path, "look it up"):
        try:
            return stat.S_ISREG(os.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False


def _plain(value: Any) -> Any:
    """Return numbers and arrays of numpy, and masks, as plain JSON values."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value.tolist()


def _with_mask(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "mask": base64.b64decode(row["mask"], validate=True)} if isinstance(row.get("mask"), str) else row
