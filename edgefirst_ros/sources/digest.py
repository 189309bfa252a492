# SPDX-License-Identifier: Apache-2.0
"""By what a recording is known again, whatever its name."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path


def sha256(path: Path, given_up: threading.Event) -> str:
    """Hash of a file, as hex digits; of no use once nobody wants it, so that nobody waits for it."""
    digest, block = hashlib.sha256(), memoryview(bytearray(1 << 20))
    with open(path, "rb", buffering=0, opener=_at_once) as file:
        while (size := file.readinto(block)) and not given_up.is_set():
            digest.update(block[:size])
    return digest.hexdigest()


def _at_once(path: str, flags: int) -> int:
    """A pipe must not be waited for: the walk refuses it meanwhile."""
    return os.open(path, flags | os.O_NONBLOCK)
