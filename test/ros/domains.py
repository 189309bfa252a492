# SPDX-License-Identifier: Apache-2.0
"""ROS domains for tests: each test with nodes in other processes has one that nobody else on this machine is in."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from operator import itemgetter
from pathlib import Path
from typing import IO

import pytest

PROFILE = Path(__file__).resolve().parents[2] / "config" / "fastdds.xml"
DOMAINS = range(1, 102)
"""From 102 on the ports of a domain may be taken by any program."""
RESTS = 25.0
"""s after which a domain has forgotten who was in it: those who were killed are gone only after the lease of 20 s."""


def take_domain() -> tuple[int, IO[str]]:
    """A domain that nobody on this machine has or had a moment ago, and the open file that keeps it."""
    resting = []
    for n in range(len(DOMAINS)):
        domain = DOMAINS[(os.getpid() + n) % len(DOMAINS)]
        path = Path(tempfile.gettempdir()) / f"edgefirst-ros-test-domain-{domain}"
        try:
            lock = path.open("a")
        except PermissionError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        known = os.fstat(lock.fileno())
        if known.st_size and time.time() - known.st_mtime < RESTS:
            resting.append((known.st_mtime, domain, lock))
            continue
        resting.append((-1.0, domain, lock))
        break
    if not resting:
        pytest.fail("all ROS domains of this machine are in use")
    _, domain, lock = min(resting, key=itemgetter(0))
    for _, _, other in resting:
        if other is not lock:
            other.close()
    touch(lock)
    return domain, lock


def touch(lock: IO[str]) -> None:
    """Write down that there was somebody in the domain just now."""
    lock.truncate(0)
    lock.write("used")
    lock.flush()


def remove_leftovers() -> None:
    """Remove the shared memory of nodes that were killed: megabytes each, which stay until the machine starts again."""
    for lock in Path("/dev/shm").glob("fastdds_[0-9a-f]*_el"):
        with contextlib.suppress(OSError), lock.open() as file:  # one that is held, or another user's
            if time.time() - os.fstat(file.fileno()).st_mtime > RESTS:  # a new one is not held yet
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                lock.with_name(lock.name.removesuffix("_el")).unlink(missing_ok=True)
                lock.unlink()


class Domains:
    """The domain of the tests that run now, and another one after each that may have left somebody in it."""

    def __init__(self) -> None:
        self._lock: IO[str] | None = None
        self._current = 0

    def enter(self, environment: pytest.MonkeyPatch) -> int:
        """Put the domain into this process's environment; its nodes see this machine only."""
        if self._lock is None:
            self._current, self._lock = take_domain()
        ours = {
            "ROS_DOMAIN_ID": str(self._current),
            "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
            "FASTDDS_DEFAULT_PROFILES_FILE": str(PROFILE),
            "FASTRTPS_DEFAULT_PROFILES_FILE": str(PROFILE),
        }
        for name, value in ours.items():
            environment.setenv(name, value)
        return self._current

    def leave(self) -> None:
        if self._lock is not None:
            touch(self._lock)
            self._lock.close()
            self._lock = None
