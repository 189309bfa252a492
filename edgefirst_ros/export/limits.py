# SPDX-License-Identifier: Apache-2.0
"""What an import takes from others: regular files, names that are harmless everywhere, and no more than so much."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import unicodedata
from pathlib import Path
from typing import Any, BinaryIO

from edgefirst_ros.errors import DatasetError

FACTOR, FREE = 100, 1 << 26
"""Bytes that may come out of each byte that is read; so many bytes always may."""
TEXT = 1 << 25
"""Bytes of the largest file of JSON that is read: its values take up to 20 times as much memory."""
LONGEST_PART, LONGEST_NAME, DEEPEST_NAME = 255, 4096, 64
"""Bytes of a part of a member's name, bytes of the whole, and parts."""
_DRIVE = re.compile(r"[A-Za-z]:")


class Budget:
    """What may still come out of an import, unpacked or written: one for all that it reads."""

    def __init__(self, source: Path, read: int) -> None:
        """`read`: bytes of all files of the source."""
        self._source, self._read, self._left = source, read, max(FREE, FACTOR * read)

    def take(self, size: int) -> None:
        """Count `size` bytes. Raises DatasetError where they are too many."""
        self._left -= size
        if self._left < 0:
            raise DatasetError(
                f"{self._source}: over {max(FREE, FACTOR * self._read)} bytes would come out of {self._read}, which no "
                f"drive has: up to {FACTOR} times as many are taken"
            )


def check_member_name(name: str) -> str:
    """Return the name of a member that an import writes as it is. Raises ValueError where that could do harm.

    It must stay in its folder on every system: no `..`, backslash, drive letter or control character, and be Unicode.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in name or _DRIVE.match(name):
        raise ValueError(f"name {name[:80]!r} leads elsewhere, or nowhere")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in name):
        raise ValueError(f"name {name[:80]!r} has control characters, or is no Unicode")
    longest = max(len(part.encode()) for part in parts)
    if longest > LONGEST_PART or len(name.encode()) > LONGEST_NAME or len(parts) > DEEPEST_NAME:
        raise ValueError(f"name {name[:80]!r} has {len(name)} characters in {len(parts)} parts, too many")
    return name


def clean_text(text: str) -> str:
    """Return text of others that is stored as a value, with a question mark for each half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; a link is none. Raises OSError."""
    # What is imported may come from anybody: a link would take other files of this machine along, a device has no end.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is no regular file")
    return os.fdopen(fd, "rb")


def read_file(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file. Raises OSError, also where they are more than `most`."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"has more than {most} bytes")
        return file.read(most)


def read_json(path: Path) -> Any:
    """Return the value in a file of JSON. Raises DatasetError."""
    try:
        return json.loads(read_file(path, TEXT))
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: cannot be read as JSON: {error}") from error
