# SPDX-License-Identifier: Apache-2.0
"""Progress on standard error: a bar with rate and time left on a terminal, a line every few seconds otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from edgefirst_ros.cli.text import one_line

EVERY = 0.1
LINE_EVERY = 10.0

Report = Callable[[str, int, int], None]


@contextmanager
def progress(*, quiet: bool) -> Iterator[Report]:
    """Return a function that prints progress: it is called with the step, how much is done, and of how much."""
    if quiet:
        yield lambda what, done, of: None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _lines()


def _lines() -> Report:
    last = {"time": time.monotonic()}

    def report(what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if now - last["time"] >= LINE_EVERY:
            last["time"] = now
            with suppress(OSError):  # nobody may read it any more; the work goes on
                print(one_line(f"{what}: {100 * done // max(of, 1)} %"), file=sys.stderr, flush=True)

    return report


@contextmanager
def _bar() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}
        began: dict[str, float] = {}
        shown = {"time": 0.0}

        def report(what: str, done: int, of: int) -> None:
            now = time.monotonic()
            if now - shown["time"] < EVERY:
                return
            shown["time"] = now
            if what not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[what], began[what] = bar.add_task(one_line(what).replace("[", "\\["), rate=""), now
            share = done / max(of, 1) / max(now - began[what], 1e-3)
            rate = f"{done / max(now - began[what], 1e-3):,.0f}/s" if share else ""
            bar.update(tasks[what], completed=done, total=of, rate=rate)

        yield report
