# SPDX-License-Identifier: Apache-2.0
"""Reports: one page a dataset or recording, and a table over several. Nothing is written before all can be."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefirst_ros.config import DEFAULT_LIMITS, Limits
from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.names import check_path, find, locate
from edgefirst_ros.errors import DatasetError, EdgeFirstError, UsageError
from edgefirst_ros.progress import Progress, quiet
from edgefirst_ros.report.extras import need
from edgefirst_ros.report.facts import quick
from edgefirst_ros.report.gather import SAMPLES, gather
from edgefirst_ros.report.page import page, table
from edgefirst_ros.report.recording import preview
from edgefirst_ros.report.subject import Subject

MAGIC = b"\x89MCAP"
TABLE = "report.html"
"""Name of the table in a folder, unless one is given."""
EXTRA = ("report", ("jinja2", "plotly"))


@dataclass(frozen=True)
class Wanted:
    """One thing to report on."""

    path: Path
    name: str
    recording: bool


@dataclass
class Reported:
    """What was written."""

    pages: list[Path]
    table: Path | None
    facts: list[dict[str, Any]]
    """Of each page, in order; with `error` of what could not be read."""

    @property
    def exit_code(self) -> int:
        """0 when all could be read, 3 when something of a folder could not."""
        return 3 if any("error" in one for one in self.facts) else 0


def report(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    *,
    samples: int = SAMPLES,
    title: str | None = None,
    overwrite: bool = False,
    assume_forward: bool = False,
    table_only: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    progress: Progress = quiet,
) -> Reported:
    """Write the pages of datasets and recordings, and for several or a folder the table over them.

    `out`: the page, or the table beside which the pages go; by default NAME.html beside the dataset, or report.html in
    the folder. `samples`: how many are shown. `table_only`: no pages. `limits`: as for `Dataset`.
    Raises DatasetError or RecordingError for what is neither, or an output that exists; then nothing was written.
    """
    need(*EXTRA)
    if samples < 0:
        raise UsageError(f"--samples: expected a number from 0 on, got {samples}")
    wanted, several = _wanted([Path(path) for path in paths])
    if several and out is None:
        if len(paths) > 1:
            raise UsageError("several PATHs: -o X.html says where the table over them goes; the pages lie beside it")
        out = Path(paths[0]) / TABLE
    if out is not None:
        check_path(out)
    if not several:
        if table_only:
            raise UsageError("--table-only: there is one PATH only; give several, or a folder")
        place = Path(out) if out is not None else beside(wanted[0])
        refuse(place, overwrite=overwrite)
        written, facts = _page(wanted[0], place, samples, title, None, assume_forward, limits, progress)
        return Reported([written], None, [facts])
    main = Path(str(out))
    places = [] if table_only else _places(main, wanted)
    for place in (main, *places):
        refuse(place, overwrite=overwrite)
    found, pages = [], []
    for number, one in enumerate(wanted):
        progress("reporting", number, len(wanted))
        try:
            if table_only:
                with opened(one, assume_forward, limits, only_tables=True) as subject:
                    found.append(quick(subject))
            else:
                written, facts = _page(one, places[number], samples, None, main.name, assume_forward, limits, quiet)
                found.append({**facts, "page": written.name})
                pages.append(written)
        except EdgeFirstError as error:
            found.append({"name": one.name, "path": str(one.path), "error": str(error).partition("\n")[0]})
    write(main, table(found, title or "Drives"))
    return Reported(pages, main, found)


def _page(
    one: Wanted,
    place: Path,
    samples: int,
    title: str | None,
    back: str | None,
    assume_forward: bool,
    limits: Limits,
    tell: Progress,
) -> tuple[Path, dict[str, Any]]:
    with opened(one, assume_forward, limits, progress=tell) as subject:
        found = gather(subject, samples)
        write(place, page(found, title or one.name, assumed=assume_forward, back=back))
        return place, found.facts


@contextmanager
def opened(
    one: Wanted, assume_forward: bool, limits: Limits, *, only_tables: bool = False, progress: Progress = quiet
) -> Iterator[Subject]:
    """Open a dataset, or make the samples of a recording that a page needs."""
    if one.recording:
        with preview(one.path, members=not only_tables, progress=progress) as subject:
            subject.assume_forward = assume_forward
            yield subject
    else:
        yield Subject(one.name, one.path, Dataset(one.path, limits=limits), assume_forward=assume_forward)


# ---- what is meant -----------------------------------------------------------------------------
def _wanted(paths: Sequence[Path]) -> tuple[list[Wanted], bool]:
    """All datasets and recordings that paths name, and whether a table is asked for."""
    if not paths:
        raise UsageError("no PATH is given")
    found: list[Wanted] = []
    several = len(paths) > 1
    for path in paths:
        if is_recording(path):
            found.append(Wanted(path, path.stem, recording=True))
        elif not os.path.isdir(path) or _is_dataset(path):
            try:
                found.append(Wanted(path, find(path).name, recording=False))
            except DatasetError as error:
                what = "neither a dataset nor a recording" if os.path.lexists(path) else "not there"
                raise DatasetError(f"{path}: {what}: {error}") from error
        else:
            inside = sorted(_inside(path), key=lambda one: str(one.path))
            if not inside:
                raise DatasetError(f"{path}: neither a dataset nor a recording, and a folder with none of them in it")
            found += inside
            several = True
    return found, several


def _is_dataset(path: Path) -> bool:
    with suppress(DatasetError):
        return os.path.isdir(locate(path).members) or os.path.isfile(locate(path).members)
    return False


def _inside(folder: Path) -> Iterator[Wanted]:
    """Datasets and recordings in a folder, and in those below it that are no datasets."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be listed: {error.strerror}") from error
    for name in names:
        path = folder / name
        if os.path.islink(path) or name.endswith(".partial"):
            continue
        if os.path.isdir(path):
            if os.path.isdir(path / name):
                yield Wanted(path, name, recording=False)
            else:
                yield from _inside(path)
        elif path.suffix == ".zip":
            yield Wanted(path, path.stem, recording=False)
        elif path.suffix == ".mcap":
            yield Wanted(path, path.stem, recording=True)


def is_recording(path: Path) -> bool:
    """Whether it is a file that begins as MCAP does, or says so by its name; what cannot be read is none."""
    with suppress(OSError):
        if os.path.isfile(path):
            with path.open("rb") as file:
                return path.suffix == ".mcap" or file.read(len(MAGIC)) == MAGIC
    return False


# ---- where it goes -----------------------------------------------------------------------------
def beside(one: Wanted) -> Path:
    """NAME.html beside a dataset or recording."""
    if one.recording:
        return one.path.with_suffix(".html")
    return find(one.path).out / f"{one.name}.html"


def _places(main: Path, wanted: Sequence[Wanted]) -> list[Path]:
    """A page for each beside the table; equal names are told apart."""
    taken = {main.name.casefold()}
    found = []
    for one in wanted:
        name, number = f"{one.name}.html", 2
        while name.casefold() in taken:
            name, number = f"{one.name}-{number}.html", number + 1
        taken.add(name.casefold())
        found.append(main.parent / name)
    return found


def refuse(place: Path, *, overwrite: bool) -> None:
    """Raise DatasetError where a page cannot be put."""
    if os.path.lexists(place):
        if not overwrite:
            raise DatasetError(f"{place}: exists already; --overwrite replaces it, -o names another place")
        if not os.path.isfile(place) or os.path.islink(place):
            raise DatasetError(f"{place}: is no regular file; -o names another place")
    if os.path.lexists(place.parent) and not os.path.isdir(place.parent):
        raise DatasetError(f"{place.parent}: is no folder; -o names another place")


def write(place: Path, content: bytes) -> None:
    """Put a page in its place, whole or not at all; raises DatasetError."""
    partial = place.with_name(f".{place.name[:150]}.{os.getpid()}.partial")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            file.write(content)
        partial.replace(place)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise DatasetError(f"{place}: cannot be written: {error.strerror or error}") from error
