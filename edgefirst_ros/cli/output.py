# SPDX-License-Identifier: Apache-2.0
"""Text for people: lines and tables on standard output, progress on standard error, hints on wrong paths."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from edgefirst_ros.counts import UNITS
from edgefirst_ros.errors import DatasetError, EdgeFirstError, Text, escape_line, escape_text, join_names
from edgefirst_ros.streams import RECORDINGS


def say(text: str) -> None:
    """Print a line.

    Raises EdgeFirstError if standard output cannot be written.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(escape_text(text).encode(encoding, "replace").decode(encoding), flush=True)
    except OSError as error:
        with open(os.devnull, "wb") as nowhere:  # for buffered text
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise EdgeFirstError(f"standard output: cannot write: {error.strerror}; finished files stay") from error


class Result(Protocol):
    """Outcome of a verb."""

    @property
    def exit_code(self) -> int:
        """0 without a loss, 3 after one."""

    def plain(self) -> Any:
        """Return the outcome, ready for JSON."""

    def text(self) -> Text:
        """Return the outcome for people."""


class OtherResult(NamedTuple):
    """Result of a verb that no other result describes."""

    plain: Callable[[], Any]
    text: Callable[[], Text]
    exit_code: int = 0


def show(text: Text) -> None:
    """Print lines and tables."""
    for one in text:
        for line in [escape_line(one)] if isinstance(one, str) else format_table(*one):
            say(line)


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first and the last column left-aligned, the others right-aligned.

    On a terminal that is too narrow for it, each row becomes a paragraph.
    """
    cleaned = [[escape_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cleaned, strict=True)]
    if sys.stdout.isatty() and sum(widths) + 2 * len(head) - 2 > (columns := shutil.get_terminal_size().columns):
        found = []
        for name, *cells in cleaned[1:]:
            told = zip(head[1:], cells, strict=True)
            said = "; ".join(f"{what}: {cell}" if what else cell for what, cell in told if cell)
            found += [name, *textwrap.wrap(said, columns, initial_indent="  ", subsequent_indent="  ")]
        return found
    numbers = [all(row[n].replace(".", "").replace(",", "").isdigit() for row in rows) for n in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if n and (n < len(row) - 1 or numbers[n]) else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cleaned
    ]


EVERY = 0.1
LINE_EVERY = 10.0

Report = Callable[[str, int, int], None]


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Report]:
    """Return a function that prints progress: it is called with the step, how much is done, and of how much."""
    if quiet:
        yield lambda what, done, of: None
        return
    terminal, began = sys.stderr.isatty(), dict[str, float]()
    last = 0.0 if terminal else time.monotonic()

    def report(what: str, done: int, of: int) -> None:
        nonlocal last
        now = time.monotonic()
        since = now - began.setdefault(what, now)
        if now - last >= (EVERY if terminal else LINE_EVERY):
            last = now
            show_step(what, done, of, since)

    with _open_bar() if terminal else nullcontext(_print_step) as show_step:
        yield report


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


def _print_step(what: str, done: int, of: int, since: float) -> None:
    parts = [f"{what}: {100 * done // max(of, 1)} %", describe_rate(what, done, since)]
    if done and since:
        parts.append(f"{describe_time(since * max(of - done, 0) / done)} left")
    with suppress(OSError):  # the reader may be gone; the work continues
        print(escape_line(", ".join(filter(None, parts))), file=sys.stderr, flush=True)


@contextmanager
def _open_bar() -> Iterator[Callable[[str, int, int, float], None]]:
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

        def show_step(what: str, done: int, of: int, since: float) -> None:
            if what not in tasks:
                for task in tasks.values():
                    bar.update(task, visible=False)
                tasks[what] = bar.add_task(escape_line(what).replace("[", "\\["), rate="")
            bar.update(tasks[what], completed=done, total=of, rate=describe_rate(what, done, since))

        yield show_step


MOST = 5


@contextmanager
def explain_paths(*paths: Path, recordings: bool = False) -> Iterator[None]:
    """Add to a DatasetError from inside what `paths` are, where they are not datasets.

    `recordings`: the verb reads recordings too.
    """
    try:
        yield
    except DatasetError as error:
        places = [place for path in paths for place in (os.path.abspath(path), os.fspath(path))]
        below = any(f"{place}/" in str(error) for place in places)  # the folder was the right one
        meant = [one for one in paths if len(paths) == 1 or str(error).startswith((f"{one}:", os.path.abspath(one)))]
        known = (describe_other(path, recordings=recordings) for path in meant)
        hints = "" if below else "".join(f"\n{hint}" for hint in known if hint)
        if recordings and any(what in str(error) for what in ("no such file", "no dataset here")):
            hints += f"\nit reads recordings too: {', '.join(f'*{one}' for one in RECORDINGS)} and rosbag2 folders"
        if not hints:
            raise
        raise type(error)(f"{error}{hints}") from error


def describe_other(path: Path, *, recordings: bool = False) -> str:
    """Describe a path that is not a dataset, and what to do; empty for an unknown kind, or a recording that is read."""
    from edgefirst_ros.sources.inputs import is_recording

    if is_recording(path):
        return "" if recordings else f"{path} is a recording; make a dataset of it: edgefirst-ros convert {path} -o OUT"
    found = join_names(_list_datasets(path), MOST)
    return f"{path} is a folder with datasets in it; name one of them: {found}" if found else ""


def _list_datasets(folder: Path) -> list[Path]:
    from edgefirst_ros.dataset.names import is_folder_dataset, locate

    if not os.path.isdir(folder) or folder.name.endswith(".partial"):
        return []
    with suppress(DatasetError):
        locate(folder)
        return []
    try:
        places = sorted(folder.iterdir())
    except OSError:
        return []
    return [place for place in places if place.suffix == ".zip" or is_folder_dataset(place)]
