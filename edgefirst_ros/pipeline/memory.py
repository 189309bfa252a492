# SPDX-License-Identifier: Apache-2.0
"""Settings of glibc's malloc for a program that moves large buffers between threads."""

from __future__ import annotations

import contextlib
import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt."""
KEPT = 64 << 20
"""Free memory that is kept for reuse, bytes."""
LARGEST_KEPT = 32 << 20
"""Largest buffer that is taken from kept memory, bytes."""


def keep_buffers() -> None:
    """Let all threads share two arenas of memory that keep what is free, before there are threads.

    Cubes and clouds pass from thread to thread. glibc keeps an arena for each, which never gives back what it once
    held: 405 MB instead of 343 MB with the load of benchmark/live.py. And it returns a large buffer to the system as
    soon as it is free: with these a conversion of all topics takes a sixth of the page faults.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        tune = ctypes.CDLL(None).mallopt
        tune(M_ARENA_MAX, 2)
        tune(M_TRIM_THRESHOLD, KEPT)
        tune(M_MMAP_THRESHOLD, LARGEST_KEPT)
