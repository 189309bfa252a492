# SPDX-License-Identifier: Apache-2.0
"""Limits of imports: names that are safe on every system, sizes of files."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from pathlib import Path
from typing import Any

from edgefirst_ros.dataset.storage.opening import open_file
from edgefirst_ros.errors import DatasetError

TEXT = 1 << 25
"""Bytes of the largest file of JSON that is read: its values take up to 20 times as much memory."""
LONGEST_PART, LONGEST_NAME, DEEPEST_NAME = 255, 4096, 64
"""Bytes of a part of a member's name, bytes of the whole, and parts."""
_DRIVE = re.compile(r"[A-Za-z]:")


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


def read_file(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file. Raises DatasetError, also where they are more than `most`."""
    try:
        with open(open_file(path), "rb") as file:
            if os.fstat(file.fileno()).st_size > most:
                raise DatasetError(f"{path}: has more than {most} bytes")
            return file.read(most)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error


def read_json(path: Path) -> Any:
    """Return the value in a file of JSON. Raises DatasetError."""
    try:
        return json.loads(read_file(path, TEXT))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: cannot be read as JSON: {error}") from error
