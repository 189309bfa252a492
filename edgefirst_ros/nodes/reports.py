# SPDX-License-Identifier: Apache-2.0
"""HTML reports of the finished datasets of a capture, made beside it at the lowest priority."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

NICE = 19
"""Niceness of the process that makes a report."""


class Reports:
    """Makes an HTML report of each dataset once, one after the other, each in a process of its own.

    Owns: the executor's thread calls everything here; the thread of the pool only runs the processes.
    """

    def __init__(self, warn: Callable[[str], object]) -> None:
        self._warn = warn
        self._pool = ThreadPoolExecutor(1, "report")
        self._begun: set[str] = set()
        self._running: list[Future[str]] = []

    def look(self, finished: Sequence[str]) -> None:
        """Start with the datasets that are new, and log what went wrong with the reports that are done."""
        for path in finished:
            if path not in self._begun:
                self._begun.add(path)
                self._running.append(self._pool.submit(_make, path))
        for done in [one for one in self._running if one.done()]:
            self._running.remove(done)
            if text := done.result():
                self._warn(text)

    def close(self) -> None:
        """Wait until all reports are done."""
        self._pool.shutdown()
        self.look(())


def _make(path: str) -> str:
    """Make the report of a dataset; returns what went wrong, or an empty text."""
    command = [sys.executable, "-m", "edgefirst_ros", "report", path, "--overwrite"]
    try:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as making:
            os.setpriority(os.PRIO_PROCESS, making.pid, NICE)
            told = making.communicate()[1].decode(errors="replace").strip()
    except OSError as error:
        return f"{path}: no report: {error}"
    return "" if making.returncode == 0 else f"{path}: no report: {told or making.returncode}"
