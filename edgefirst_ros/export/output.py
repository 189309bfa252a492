# SPDX-License-Identifier: Apache-2.0
"""Shared by all exports: a folder that appears whole, samples prepared ahead of the writer, the loss report."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Any, TypeVar, cast

from edgefirst_ros.dataset.storage.lock import claim, report_errors, sync_disk, sync_folder
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export import file_writer
from edgefirst_ros.limits import count_processors

FEW = 100
"""Most files of an output that are synced one by one."""
NO_HOME = "has no place there"
"""Text in reports for data that the other system cannot hold."""
T = TypeVar("T")
R = TypeVar("R")
MOST = 8
"""Most threads; more than the writer can follow only take memory."""


@contextmanager
def stage_folder(out: Path) -> Iterator[Path]:
    """Make a new folder beside `out` to write into, which is renamed to `out` at the end, or removed on failure.

    Raises UsageError for a path that is not UTF-8 or is that of a file, DatasetError where `out` exists or another
    export to it is under way, StorageError where a file cannot be read or written. The folder of a killed export is
    replaced: only exports use that name.
    """
    from edgefirst_ros.dataset.names import check_folder

    check_folder(out)
    if os.path.lexists(out):
        raise DatasetError(f"{out}: exists already; it must be a new folder, name another one")
    if os.path.lexists(out.parent) and not out.parent.is_dir():
        raise DatasetError(f"{out}: cannot be made, {out.parent} is not a folder; name another one")
    partial = out.with_name(f".{out.name}.edgefirst-export")
    with report_errors(partial, "create"):
        out.parent.mkdir(parents=True, exist_ok=True)
        lock = claim(partial, folder=True)
    made = partial
    try:
        yield partial
        with report_errors(partial, "write"):
            _sync(partial, lock)
            os.rename(partial, out)
            made = out
            sync_folder(out.parent)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        with report_errors(Path(os.fsdecode(error.filename or out)), "be read or written"):
            raise
    finally:
        os.close(lock)


@contextmanager
def write_files() -> Iterator[Callable[[str, bytes], None]]:
    """Yield a function that writes a new file: a process of its own does it while the caller makes the next one.

    Raises OSError of a file that cannot be written at a later one, or at the end.
    """
    command = [sys.executable, "-I", "-S", file_writer.__file__]
    with Popen(command, 1 << 18, stdin=PIPE, stdout=PIPE, start_new_session=True) as child:  # not reached by Ctrl-C
        pipe = cast("IO[bytes]", child.stdin)
        with suppress(OSError, AttributeError):  # a user may have only so much of them; other systems
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)

        def write(path: str, data: bytes) -> None:
            name = os.fsencode(path)
            pipe.write(file_writer.HEAD.pack(len(name), len(data)) + name)
            pipe.write(data)

        try:
            yield write
        finally:
            said = child.communicate()[0]
            if said or child.returncode:
                number, path = (said or b"%d " % errno.ECHILD).split(b" ", 1)
                raise OSError(int(number), os.strerror(int(number)), path or None)


def refuse_inside(out: Path, source: Path) -> None:
    """Raise UsageError where `out` would are in the folder that is read."""
    folder, place = os.path.realpath(source), os.path.realpath(out)
    if os.path.isdir(folder) and place != folder and os.path.commonpath([folder, place]) == folder:
        raise UsageError(f"{out} is in {source}, which is read; name a folder outside of it")


def _sync(folder: Path, opened: int) -> None:
    found = itertools.chain.from_iterable(files for _, _, files in os.walk(folder))
    if next(itertools.islice(found, FEW, None), None) is not None:  # not all of them are counted
        sync_disk(opened)
        return
    for place, _, files in os.walk(folder):
        for name in files:
            if os.path.islink(os.path.join(place, name)):
                continue  # its target is not ours
            fd = os.open(os.path.join(place, name), os.O_RDONLY | os.O_NOFOLLOW)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_folder(Path(place))


@dataclass(frozen=True, slots=True)
class Line:
    """One column or sensor: where it was written (empty: nowhere), and what of it is lost (empty: no loss)."""

    what: str
    where: str
    lost: str = ""
    number: int | None = None
    """Number of its values or members, if they can be counted."""


@dataclass(slots=True)
class LossReport:
    """The loss report of an export or import: `lines` in the order in which they were added."""

    system: str
    lines: list[Line] = field(default_factory=list)

    def add(self, what: str, where: str, lost: str = "", number: int | None = None) -> None:
        """Add a line."""
        self.lines.append(Line(what, where, lost, number))

    def count(self, what: str, where: str, lost: str, number: int) -> None:
        """Add a line with a number, unless that is 0."""
        if number:
            self.add(what, where, lost, number)

    def plain(self) -> dict[str, Any]:
        """Return the report, ready for JSON."""
        return {
            "system": self.system,
            "lines": [
                {"what": line.what, "where": line.where, "lost": line.lost}
                | ({"number": line.number} if line.number is not None else {})
                for line in self.lines
            ],
        }

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        text = json.dumps(self.plain(), indent=1, ensure_ascii=False) + "\n"
        path.write_bytes(text.encode("utf-8", "backslashreplace"))  # half a surrogate pair: JSON's own escape


def make_ahead(items: Iterable[T], make: Callable[[T], R], *, quick: bool = False) -> Generator[tuple[T, R]]:
    """Yield each item with the result of `make`, in order; items are consumed in the caller's thread.

    Twice as many items as threads wait at most. Close it when it is not used to its end: then no thread remains.
    Raises what `make` raises, in its turn. `quick`: `make` runs in the caller's thread too, as for files of some
    kilobytes on a disk: threads that ask the system in turns wait for each other longer than for the disk.
    """
    if quick:
        yield from ((item, make(item)) for item in items)
        return
    threads, waiting = min(MOST, count_processors()), deque[tuple[T, Future[R]]]()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append((item, pool.submit(make, item)))
                if len(waiting) > 2 * threads:
                    first, made = waiting.popleft()
                    yield first, made.result()
            while waiting:
                first, made = waiting.popleft()
                yield first, made.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
