# SPDX-License-Identifier: Apache-2.0
"""A function of the user's that changes pictures before they are encoded, to make faces and plates unreadable.

It is code: its name comes from a command line, a keyword or a settings file, never from a dataset or a recording.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import HOOK
from edgefirst_ros.errors import LONGEST, MessageError, UsageError, sort_nearest

DIGITS = 16
"""Hex digits of the hash that replaces a version."""


class PictureHook:
    """The function `name` (module:function) and its `version`.

    Owns: it is immutable; any thread may call it, and the function is called by one at a time.
    """

    def __init__(self, name: str, function: Callable[[NDArray[np.uint8]], Any], version: str) -> None:
        self.name = name
        self.version = version
        self._function = function
        self._lock = threading.Lock()

    def __call__(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a picture, (height, width, 3) uint8 RGB, as the function changes it.

        Raises MessageError(HOOK) where it raises, or returns another shape or type.
        """
        shape = picture.shape
        try:
            with self._lock:
                found = self._function(picture)
        except (Exception, SystemExit) as error:  # noqa: BLE001  any error of a user's code
            text = " ".join(f"{type(error).__name__}: {error}".split())
            raise MessageError(HOOK, f"{self.name} raised {text[:LONGEST]}") from None
        if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype != np.uint8:
            is_array = isinstance(found, np.ndarray)
            got = f"{found.shape} {found.dtype}" if is_array else type(found).__name__
            raise MessageError(HOOK, f"{self.name} returned {got}; expected {shape} uint8")
        return np.ascontiguousarray(found)


def prepare_hook(name: str, settings_file: Path | None) -> None:
    """Import the module of a hook, from PYTHONPATH or from beside the settings file.

    Raises UsageError as `load_hook`.
    """
    folder = str(settings_file.resolve().parent) if settings_file is not None else None
    with ExitStack() as stack:
        if folder is not None and folder not in sys.path:
            sys.path.append(folder)
            stack.callback(sys.path.remove, folder)
            importlib.invalidate_caches()
        load_hook(name)


@cache
def load_hook(name: str) -> PictureHook:
    """Return the hook of a name, module:function. Raises UsageError if it is missing, or with its error."""
    place, _, wanted = name.partition(":")
    try:
        module = importlib.import_module(place)
    except (Exception, SystemExit) as error:  # noqa: BLE001  any error of a user's code
        if isinstance(error, ModuleNotFoundError) and error.name in (place, place.partition(".")[0]):
            where = "on PYTHONPATH or beside the settings file"
            raise UsageError(f"picture_hook {name}: no module {error.name} {where}") from None
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"picture_hook {name}: importing {place} raised {text[:LONGEST]}") from None
    function = getattr(module, wanted, None)
    if not callable(function):
        there = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        known = sort_nearest(wanted, there)
        raise UsageError(f"picture_hook {name}: {place} has no function {wanted}; known: {known}")
    return PictureHook(name, function, _find_version(module))


def _find_version(module: ModuleType) -> str:
    """Return the `__version__` of the module, else a hash of its source."""
    said = getattr(module, "__version__", None)
    if isinstance(said, str) and said:
        return said
    file = getattr(module, "__file__", None)
    try:
        data = Path(file).read_bytes() if file else b""
    except OSError:
        data = b""
    return f"sha256:{hashlib.sha256(data).hexdigest()[:DIGITS]}" if data else f"python {sys.version.split()[0]}"
