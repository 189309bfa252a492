# SPDX-License-Identifier: Apache-2.0
"""Progress of a fleet on standard error: one line that lives on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from edgefirst_ros.cli.progress import EVERY, LINE_EVERY, describe_time
from edgefirst_ros.cli.text import size_of

if TYPE_CHECKING:
    from edgefirst_ros.fleet.converting import FleetProgress


@contextmanager
def live(*, quiet: bool) -> Iterator[Callable[[FleetProgress], None]]:
    """Return a function that prints the progress of a run; it may be called at any rate."""
    terminal = sys.stderr.isatty() and not quiet
    told = {"at": time.monotonic(), "width": 0.0}

    def report(tally: FleetProgress) -> None:
        now = time.monotonic()
        if quiet or now - told["at"] < (EVERY if terminal else LINE_EVERY):
            return
        told["at"] = now
        line = describe(tally)
        with suppress(OSError):  # nobody may read it any more; the work goes on
            if terminal:
                print(f"\r{line.ljust(int(told['width']))}", end="", file=sys.stderr, flush=True)
                told["width"] = len(line)
            else:
                print(line, file=sys.stderr, flush=True)

    try:
        yield report
    finally:
        if width := int(told["width"]):
            with suppress(OSError):
                print(f"\r{' ' * width}\r", end="", file=sys.stderr, flush=True)


def describe(tally: FleetProgress) -> str:
    """Return the progress of a run as one line: done, running, failed, rate, bytes, time left."""
    done = tally.before + tally.now
    parts = [f"{done} of {tally.total} done", f"{tally.running} running", f"{tally.failed} failed"]
    if tally.waiting:
        parts.append(f"{tally.waiting} waiting for storage")
    if not tally.workers:
        parts.append("no worker is there")
    if tally.now and tally.seconds:
        rate = tally.now / tally.seconds
        parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min")
        parts.append(size_of(tally.bytes))
        parts.append(f"{describe_time((tally.total - done) / rate)} left")
    return ", ".join(parts)
