# SPDX-License-Identifier: Apache-2.0
"""Number of threads for decoding and encoding: the processors that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def workers(jobs: int) -> int:
    """Return the number of threads that decode, and that encode; `jobs` 0: as many as there are processors."""
    return jobs or processors()


def processors(root: Path = Path("/")) -> int:
    """Return the number of threads that can run at once, at least 1.

    As many as the process has processors by its affinity, or fewer by the CPU quota of its control groups (v1 and v2,
    its own and those above), rounded up: a container has all processors of the machine, and a share of their time.
    `root` is the folder that has proc/ and sys/. Source: Linux, Documentation/admin-guide/cgroup-v2.rst, "cpu.max";
    Documentation/scheduler/sched-bwc.rst.
    """
    quotas = [-(-quota // period) for quota, period in _cpu_quotas(root)]
    return max(1, min([len(os.sched_getaffinity(0)), *quotas]))


def _cpu_quotas(root: Path) -> Iterator[tuple[int, int]]:
    """Quota and period, both in us, of each control group of this process that has them."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        group = PurePosixPath(path.lstrip("/"))  # in a container it may be that of the host: only "." is there then
        for mount in (controllers, "cpu") if controllers else ("", "unified"):
            for folder in (group, *group.parents):
                match " ".join(_text(root / "sys/fs/cgroup" / mount / folder / name) for name in names).split():
                    case [quota, period] if quota.isdecimal() and period.isdecimal() and int(period):
                        yield int(quota), int(period)  # no quota: "max", -1


def _text(path: Path) -> str:
    """Content of a small file; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
