# SPDX-License-Identifier: Apache-2.0
"""The largest things that are read, budgets of files and imports, and how many threads work at once.

A plain dataclass: datasets are read without pydantic, which takes as long to load as everything else that they need.
Where limits are among the settings, pydantic reads the rules of each from its metadata.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from edgefirst_ros.errors import DatasetError, TooLargeError


def _limit(default: int, description: str, *, ge: int, le: int) -> Any:
    return dataclasses.field(default=default, metadata={"description": description, "ge": ge, "le": le})


@dataclass(frozen=True)
class Limits:
    """Sizes above which data are rejected before memory is allocated; larger data are counted or reported as damage.

    Raises ValueError for a limit that is out of range, or no whole number.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    chunk_bytes: int = _limit(
        1 << 28, "Largest chunk of a recording, unpacked, or message outside of one, bytes", ge=1 << 20, le=1 << 31
    )
    picture_pixels: int = _limit(1 << 25, "Largest picture, pixels", ge=1, le=1 << 28)
    cube_values: int = _limit(1 << 24, "Largest radar cube, values", ge=1, le=1 << 30)
    cloud_points: int = _limit(1 << 22, "Largest point cloud, points", ge=1, le=1 << 30)
    table_rows: int = _limit(
        1 << 19,
        "Most rows of a table of a dataset; one for every two bytes of its file are read in any case",
        ge=1,
        le=1 << 40,
    )
    unpacked_bytes: int = _limit(
        1 << 28,
        "Most bytes that a table or all members of a ZIP unpack to; 16 times the file are read in any case",
        ge=1 << 20,
        le=1 << 40,
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, least, most = getattr(self, field.name), field.metadata["ge"], field.metadata["le"]
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{field.name}: expected a whole number from {least} to {most}, got {value!r}")


DEFAULT_LIMITS = Limits()


# ---- processors --------------------------------------------------------------------------------
def count_workers(jobs: int) -> int:
    """Return the number of threads that decode, and that encode; `jobs` 0: the number of processors."""
    return jobs or count_processors()


def count_processors(root: Path = Path("/")) -> int:
    """Return the number of threads that can run at once, at least 1.

    As many as the process has processors by its affinity, or fewer by the CPU quota of its control groups (v1 and v2,
    its own and those above), rounded up: a container has all processors of the machine, and a share of their time.
    `root` is the folder that has proc/ and sys/. Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "cpu.max";
    Documentation/scheduler/sched-bwc.rst.
    """
    quotas = [-(-quota // period) for quota, period in _find_quotas(root)]
    return max(1, min([len(os.sched_getaffinity(0)), *quotas]))


def _find_quotas(root: Path) -> Iterator[tuple[int, int]]:
    """Quota and period, both in us, of each control group of this process that has them."""
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        group = PurePosixPath(path.lstrip("/"))  # in a container it may be that of the host: only "." exists then
        for mount in (controllers, "cpu") if controllers else ("", "unified"):
            for folder in (group, *group.parents):
                match " ".join(_read_text(root / "sys/fs/cgroup" / mount / folder / name) for name in names).split():
                    case [quota, period] if quota.isdecimal() and period.isdecimal() and int(period):
                        yield int(quota), int(period)  # no quota: "max", -1


def _read_text(path: Path) -> str:
    """Content of a small file; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt."""
KEPT = 64 << 20
"""Free memory that stays for reuse, bytes."""
LARGEST_KEPT = 32 << 20
"""Largest buffer that kept memory serves, bytes."""


def keep_buffers() -> None:
    """Let all threads share two arenas that keep freed memory; call it before threads start.

    Cubes and clouds pass from thread to thread. glibc keeps an arena for each, which never returns its memory: 405 MB
    instead of 343 MB with the load of benchmark/live.py. And it returns a large buffer to the system as soon as it is
    free: with these a conversion of all topics takes a sixth of the page faults.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        tune = ctypes.CDLL(None).mallopt
        tune(M_ARENA_MAX, 2)
        tune(M_TRIM_THRESHOLD, KEPT)
        tune(M_MMAP_THRESHOLD, LARGEST_KEPT)


RATIO = 16
"""A file may always unpack to so many times its size, even beyond the limits."""
BYTES_PER_ROW = 2
"""A file may always have a row per so many bytes, even beyond the limits: packed rows of real tables take more."""
BYTES_PER_VALUE = 8
"""Least bytes that a value counts for: nulls take 0 bytes in a file, but not in memory."""
SETTABLE = "raise the setting {0}"
IMPORT_RATIO = 100
"""Each byte of an import may always unpack to so many, even beyond the limits."""


class Budget:
    """Remaining allowance of a file, or of all files of an import, shared by all its parts."""

    def __init__(self, path: Path, unpacked: int, because: str, rows: int = sys.maxsize) -> None:
        self._path, self._because, self._rows = path, because, rows
        self.unpacked = unpacked
        """Bytes that may come out of the whole."""
        self._spent_rows = self._spent_bytes = self._spent_values = 0

    @classmethod
    def of_file(cls, path: Path, size: int, limits: Limits) -> Budget:
        """Return the budget of a table or ZIP of `size` bytes."""
        rows = max(limits.table_rows, size // BYTES_PER_ROW)
        return cls(path, max(limits.unpacked_bytes, RATIO * size), SETTABLE.format("limits.unpacked_bytes"), rows)

    @classmethod
    def of_import(cls, source: Path, size: int, limits: Limits) -> Budget:
        """Return the budget of a store of another system; `size`: bytes of all its files."""
        most, because = IMPORT_RATIO * size, f"{IMPORT_RATIO} times the {size} bytes that are read"
        if most < limits.unpacked_bytes:
            most, because = limits.unpacked_bytes, SETTABLE.format("limits.unpacked_bytes")
        return cls(source, most, because)

    def spend(self, *, rows: int = 0, values: int = 0, unpacked: int = 0) -> None:
        """Count rows, values in all columns and bytes. Raises TooLargeError where they become too many."""
        if min(rows, values, unpacked) < 0:
            raise DatasetError(f"{self._path}: a size below 0 is stated in it: it is broken")
        self._spent_rows += rows
        self._spent_values += values
        self._spent_bytes += unpacked
        if self._spent_rows > self._rows:
            because = SETTABLE.format("limits.table_rows")
            raise TooLargeError(
                f"{self._path}: has {self._spent_rows} rows or more, more than {self._rows} ({because})"
            )
        spent = max(self._spent_bytes, BYTES_PER_VALUE * self._spent_values)
        if spent > self.unpacked:
            raise TooLargeError(
                f"{self._path}: unpacks to {spent} bytes or more, more than {self.unpacked} ({self._because})"
            )
