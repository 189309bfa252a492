# SPDX-License-Identifier: Apache-2.0
"""Progress on standard error: a bar with rate and time left on a terminal, a line every few seconds otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from edgefirst_ros.cli.text import one_line
from edgefirst_ros.progress import UNITS

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


def describe_rate(what: str, done: int, seconds: float) -> str:
    """Return the rate of a step with its unit, such as `83.2 MB/s` or `2,312 messages/s`; empty before it has one."""
    unit = UNITS.get(what.partition(" ")[0], "")
    if not (done and seconds > 0 and unit):
        return ""
    rate = done / seconds
    if unit == "B":
        return f"{rate / 1e6:,.1f} MB/s"
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.1f} {unit}/s"


def describe_time(seconds: float) -> str:
    """Return a time as `0:12` or `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _lines() -> Report:
    last = {"time": time.monotonic()}
    began: dict[str, float] = {}

    def report(what: str, done: int, of: int) -> None:
        now = time.monotonic()
        since = now - began.setdefault(what, now)
        if now - last["time"] >= LINE_EVERY:
            last["time"] = now
            parts = [f"{what}: {100 * done // max(of, 1)} %", describe_rate(what, done, since)]
            if done and since:
                parts.append(f"{describe_time(since * max(of - done, 0) / done)} left")
            with suppress(OSError):  # the reader may be gone; the work goes on
                print(one_line(", ".join(filter(None, parts))), file=sys.stderr, flush=True)

    return report


@contextmanager
def _bar() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    name = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    columns = (
        TextColumn("{task.description}", table_column=name),
        BarColumn(bar_width=16),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]}", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bar:
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
            bar.update(tasks[what], completed=done, total=of, rate=describe_rate(what, done, now - began[what]))

        yield report
