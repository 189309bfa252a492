# SPDX-License-Identifier: Apache-2.0
"""Pages about the finished datasets of a capture, made beside it at the lowest priority."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

NICE = 19
"""What the process that makes a page leaves to all others."""


class Reports:
    """Makes a page of each dataset once, one after the other, each in a process of its own.

    Owns: the executor's thread calls everything here; the thread of the pool only runs the processes.
    """

    def __init__(self, warn: Callable[[str], object]) -> None:
        self._warn = warn
        self._pool = ThreadPoolExecutor(1, "report")
        self._begun: set[str] = set()
        self._running: list[Future[str]] = []

    def look(self, finished: Sequence[str]) -> None:
        """Begin with the datasets that are new, and say what went wrong with those that are through."""
        for path in finished:
            if path not in self._begun:
                self._begun.add(path)
                self._running.append(self._pool.submit(_make, path))
        for done in [one for one in self._running if one.done()]:
            self._running.remove(done)
            if text := done.result():
                self._warn(text)

    def close(self) -> None:
        """Wait for all."""
        self._pool.shutdown()
        self.look(())


def _make(path: str) -> str:
    """Make the page of a dataset; returns what went wrong."""
    command = [sys.executable, "-m", "edgefirst_ros", "report", path, "--overwrite"]
    try:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as making:
            os.setpriority(os.PRIO_PROCESS, making.pid, NICE)
            told = making.communicate()[1].decode(errors="replace").strip()
    except OSError as error:
        return f"{path}: no report: {error}"
    return "" if making.returncode == 0 else f"{path}: no report: {told or making.returncode}"
