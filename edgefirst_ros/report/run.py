# SPDX-License-Identifier: Apache-2.0
"""Reports: resolves paths, and writes a page a dataset or recording, and a table over several.

All pages are made before the first is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, cast

from edgefirst_ros.config import Settings
from edgefirst_ros.config.load import list_setting_fields
from edgefirst_ros.counts import Progress, ignore_progress
from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.names import check_path, find_unfinished_below, hint_recover, is_folder_dataset, locate
from edgefirst_ros.dataset.objects.location import ObjectPath
from edgefirst_ros.dataset.objects.places import Place, fetch_places, is_fleet, list_files_below, refuse_buckets
from edgefirst_ros.dataset.objects.places import locate as places_of
from edgefirst_ros.dataset.publish import refuse_irreplaceable
from edgefirst_ros.errors import DatasetError, EdgeFirstError, Text, UsageError, need, pluralize
from edgefirst_ros.report.facts import collect_quick, collect_quick_of, gather
from edgefirst_ros.report.page import render_page, render_table
from edgefirst_ros.report.subject import ReportSubject, check_container, read_summary
from edgefirst_ros.sources.inputs import RecordingInput, is_recording, is_rosbag2, list_recordings
from edgefirst_ros.streams import RECORDINGS

SAMPLES = 12
"""Samples that a page shows."""
TABLE = "report.html"
"""Name of the table in a folder, unless one is given."""


@dataclass
class Reported:
    """Outcome: pages and table that were written."""

    pages: list[Path]
    table: Path | None
    facts: list[dict[str, Any]]
    """Facts of each page, in order; with `error` for what could not be read."""
    note: str = ""
    """Last line for people."""

    @property
    def exit_code(self) -> int:
        """0 when all could be read, 3 when something of a folder could not."""
        return 3 if any("error" in one for one in self.facts) else 0

    def plain(self) -> dict[str, Any]:
        """Return the facts of one page; of several `reports`, a list of them."""
        if self.table is None:
            return {**self.facts[0], "page": str(self.pages[0]), "exit_code": self.exit_code}
        return {"table": str(self.table), "reports": self.facts, "exit_code": self.exit_code}

    def text(self) -> Text:
        """Return the written files, and the faults by dataset."""
        if self.table is None:
            (facts,) = self.facts
            yield f"{self.pages[0]}: {facts['verdict']['level']}, {pluralize(facts['samples'], 'sample')}"
            bad = [one for one in facts["verdict"]["checks"] if one["level"] != "green"]
            if bad:
                yield ""
                rows = [(one["level"], one["check"], one["where"], one["found"]) for one in bad]
                yield ("verdict", "what", "where", "found"), rows
            return
        yield f"{self.table}: {pluralize(len(self.facts), 'row')}, {pluralize(len(self.pages), 'page')} beside it"
        yield from (
            f"{one['path']}: {one['error'].removeprefix(one['path'] + ': ')}" for one in self.facts if "error" in one
        )
        yield from [self.note] if self.note else []


@dataclass(frozen=True)
class Pages:
    """Writer of pages, with their common options."""

    samples: int = SAMPLES
    assume_forward: bool = False
    check_time: bool = False
    settings: Settings = field(default_factory=Settings)
    overwrite: bool = False
    named: Callable[[str], str] = str
    """Names the object in a text instead of its copy."""

    def path_of(self, one: Wanted) -> str:
        """Return the path that the user gave, not that of a copy."""
        return self.named(str(one.path))

    def write(self, one: Wanted, place: Path, title: str, back: str | None, tell: Progress) -> dict[str, Any]:
        """Write a page; returns its facts."""
        with self._open_subject(one, tell, members=True) as subject:
            found = gather(subject, self.samples)
            write(place, render_page(found, title, assumed=self.assume_forward, back=back))
            return found.facts

    def write_all(
        self,
        wanted: Sequence[Wanted],
        main: Path,
        *,
        title: str | None = None,
        table_only: bool = False,
        progress: Progress = ignore_progress,
    ) -> Reported:
        """Write the table over several to `main`, and the pages beside it."""
        need("report", "report", "jinja2", "plotly")
        check_page(main)
        places = [] if table_only else name_pages(main, [one.name for one in wanted])
        for place in (main, *places):
            refuse(place, overwrite=self.overwrite)
        found: list[dict[str, Any]] = []
        for number, one in enumerate(wanted):
            progress("reporting", number, len(wanted))
            try:
                if table_only:
                    found.append(self.row(one))
                else:
                    facts = self.write(one, places[number], one.name, main.name, ignore_progress)
                    found.append({**facts, "page": places[number].name})
            except EdgeFirstError as error:
                said = self.named(str(error)).partition("\n")[0]
                found.append({"name": one.name, "path": self.path_of(one), "error": said})
        write(main, render_table(found, title or "Drives"))
        return Reported([main.parent / one["page"] for one in found if "page" in one], main, found)

    def row(self, one: Wanted) -> dict[str, Any]:
        """Return what only the table says of one."""
        if one.recording is None:
            with one.files() as path:
                paths = locate(path)
                if one.fetch is None:
                    check_container(paths)
                found = read_summary(paths, self.settings.limits)
                if found is not None:
                    return collect_quick(found, one.name, self.path_of(one))
        with self._open_subject(one, ignore_progress, members=False) as subject:
            return collect_quick_of(subject)

    @contextmanager
    def _open_subject(self, one: Wanted, tell: Progress, *, members: bool) -> Iterator[ReportSubject]:
        """Open a dataset, or make the samples of a recording that a page needs."""
        if one.recording is not None:
            from edgefirst_ros.report.recording import open_preview

            with open_preview(
                one.recording, self.settings, members=members, timed=members and self.check_time, progress=tell
            ) as subject:
                subject.assume_forward, subject.path = self.assume_forward, self.path_of(one)
                yield subject
            return
        with one.files() as path:
            dataset = Dataset(path, limits=self.settings.limits)
            yield ReportSubject(one.name, self.path_of(one), dataset, assume_forward=self.assume_forward)


def report(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    *,
    samples: int = SAMPLES,
    title: str | None = None,
    overwrite: bool = False,
    assume_forward: bool = False,
    check_time: bool = False,
    table_only: bool = False,
    join: bool = False,
    settings: Settings | None = None,
    progress: Progress = ignore_progress,
) -> Reported:
    """Write an HTML report of each dataset or recording, and a table over several.

    Args:
        paths: Datasets, recordings, folders, globs or s3://BUCKET/NAME.zip; one or several. A folder of a
            fleet also names the recordings that failed: red rows of the table.
        out: The page, or for several the table; default: NAME.html beside the dataset, or report.html in the folder.
        samples: Number of samples that a page shows.
        title: Title of the page.
        overwrite: Replace an existing page.
        assume_forward: Project points by a placeholder calibration, with the camera along the sensor's x axis.
        check_time: Estimate offsets between the sensors of recordings from their content.
        table_only: Write only the table.
        join: Treat all files as parts of one recording.
        settings: Settings by which recordings become samples, and the limits of datasets.
        progress: Is called with (step, done, total).

    Returns:
        The pages, the table, the facts of each page, and the exit code.

    Raises:
        EdgeFirstError: The extra `report` is not installed.
        DatasetError: A path is neither a dataset nor a recording, or the output exists. No page is written.
        RecordingError: A recording cannot be read.
    """
    need("report", "report", "jinja2", "plotly")
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    settings = settings or Settings()
    if samples < 0:
        raise UsageError(f"--samples: expected a number from 0 on, got {samples}")
    if out is None:
        refuse_buckets("report", given, "-o X.html says where the report is written")
    else:
        refuse_buckets("report", [out], "write the report to a folder")
        check_page(Path(out))
    places, failed = _resolve(given)
    with fetch_places(places) as found:
        wanted, several = list_wanted(found, join=join)
        refuse_settings(wanted, settings, check_time=check_time)
        wanted, several = wanted + [make_missing_row(*one) for one in failed], several or bool(failed)
        if several and out is None:
            if len(given) > 1 or not os.path.isdir(given[0]):
                raise UsageError("several PATHs: -o X.html names the table over them; the pages are beside it")
            out = Path(given[0]) / TABLE
        pages = Pages(samples, assume_forward, check_time, settings, overwrite, found.restore)
        if several and out is not None:
            return pages.write_all(wanted, Path(out), title=title, table_only=table_only, progress=progress)
        if table_only:
            raise UsageError("--table-only: needs several PATHs, or a folder")
        place = Path(out) if out is not None else wanted[0].page
        refuse(place, overwrite=overwrite)
        return Reported([place], None, [pages.write(wanted[0], place, title or wanted[0].name, None, progress)])


def _resolve(given: Sequence[str | os.PathLike[str]]) -> tuple[list[Place], list[tuple[str, str]]]:
    """Return the places of paths, and the URI and cause of each recording that a fleet among them has no dataset of."""
    places, failed = list[Place](), list[tuple[str, str]]()
    for path in given:
        lost = []
        if is_fleet(path):
            from edgefirst_ros.fleet.datasets import list_failed  # conversions too, which no other report needs
            from edgefirst_ros.fleet.state import Layout

            lost = list_failed(Layout.of(os.fspath(path)), None)
        try:
            places += places_of([path])
        except UsageError:
            if not lost:
                raise
        failed += lost
    return places, failed


@dataclass(frozen=True)
class Wanted:
    """One thing to be processed."""

    path: Path
    name: str
    recording: RecordingInput | None = None
    """Its files; None: it is a dataset."""
    fetch: Callable[[], AbstractContextManager[Path]] | None = None
    """Provides a dataset as local files while it is processed; None: it is at `path`."""
    why: str = ""
    """Why there is no dataset to be processed, such as `is unfinished: ...`."""

    def files(self) -> AbstractContextManager[Path]:
        """Yield the path of a dataset while it is processed."""
        return nullcontext(self.path) if self.fetch is None else self.fetch()

    @property
    def page(self) -> Path:
        """NAME.html beside it."""
        if self.recording is not None:
            return Path(os.path.abspath(self.path)).parent / f"{self.name}.html"
        return locate(self.path).out / f"{self.name}.html"


def list_wanted(paths: Sequence[Path], *, join: bool = False) -> tuple[list[Wanted], bool]:
    """Return all datasets and recordings that paths name, and whether these can be several.

    `join`: all are parts of one recording. Raises DatasetError for other paths, RecordingError for a recording that is
    broken from outside.
    """
    if join:
        (joined,) = list_recordings(paths, join=True)
        return [Wanted(joined.path, joined.name, joined)], False
    found: list[Wanted] = []
    several = len(paths) > 1
    for path in paths:
        if is_recording(path):
            found += _list_recordings(path)
        elif not os.path.isdir(path) or os.path.exists(_list_members(path)):
            try:
                found.append(Wanted(path, locate(path).name))
            except DatasetError as error:
                if not os.path.lexists(path):
                    raise
                raise DatasetError(f"{path}: not a recording, and {str(error).removeprefix(f'{path}: ')}") from error
        else:
            inside = sorted(_list_inside(path), key=lambda one: str(one.path))
            if not inside:
                hint = hint_recover(str(path))
                raise DatasetError(f"{path}: not a dataset or recording, and the folder contains neither{hint}")
            found += inside
            found += [make_missing_row(*one) for one in find_unfinished_below(path)]
            several = True
    return found, several


def make_missing_row(uri: str, why: str) -> Wanted:
    """Return a red row: a recording of a fleet without a dataset, with the cause."""

    def refuse() -> NoReturn:
        raise DatasetError(why.removeprefix(f"{uri}: "))  # the row has the URI in any case

    return Wanted(cast("Path", ObjectPath(uri)), uri, fetch=refuse, why=why)


def refuse_settings(wanted: Sequence[Wanted], settings: Settings, *, check_time: bool = False) -> None:
    """Raise UsageError for settings of a conversion, or the check of times, without a recording."""
    if not wanted or any(one.recording is not None for one in wanted):
        return
    usual, fields = Settings(), list_setting_fields(Settings)
    names = [name for name in Settings.model_fields if getattr(settings, name) != getattr(usual, name)]
    flags = [fields[name].flag if name in fields else f"--set {name}" for name in names if name != "limits"]
    if check_time:
        flags = ["--check-time", *flags]
    if flags:
        raise UsageError(f"{flags[0]} is for recordings; {wanted[0].path} is a dataset, which shows all its samples")


def _list_recordings(path: Path) -> list[Wanted]:
    return [Wanted(one.path, one.name, one) for one in list_recordings([path])]


def _list_members(path: Path) -> str:
    with suppress(DatasetError):
        return str(locate(path).members)
    return ""


def _list_inside(folder: Path) -> Iterator[Wanted]:
    """Datasets and recordings in a folder, and in those below it that are neither."""
    for path in list_files_below(folder, lambda one: is_folder_dataset(one) or is_rosbag2(one)):
        if is_folder_dataset(path):
            yield Wanted(path, path.name)
        elif path.suffix == ".zip":
            yield Wanted(path, path.stem)
        elif path.suffix in RECORDINGS or os.path.isdir(path):
            yield from _list_recordings(path)


def name_pages(table: Path, names: Sequence[str]) -> list[Path]:
    """Return a page for each name, of a URI its last part, beside the table; equal names get numbers."""
    taken = {table.name.casefold()}
    found = []
    for plain in (name.rpartition("/")[2] for name in names):
        name, number = f"{plain}.html", 2
        while name.casefold() in taken:
            name, number = f"{plain}-{number}.html", number + 1
        taken.add(name.casefold())
        found.append(table.parent / name)
    return found


def check_page(place: Path) -> None:
    """Raise UsageError for a name that is not one of a page."""
    check_path(place)
    if place.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{place}: expected X.html, the name of the page")


def refuse(place: Path, *, overwrite: bool) -> None:
    """Raise UsageError or DatasetError where a page cannot be put."""
    check_path(place)
    if os.path.lexists(place):
        if not overwrite:
            raise DatasetError(f"{place}: exists already; --overwrite replaces it, -o names another place")
        if not os.path.isfile(place) or os.path.islink(place):
            raise DatasetError(f"{place}: is not a regular file; -o names another place")
        refuse_data(place)
        refuse_irreplaceable(place)
    folder = next(one for one in place.absolute().parents if os.path.lexists(one))
    if not os.path.isdir(folder):
        raise DatasetError(f"{folder}: is not a folder; -o names another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DatasetError(f"{folder}: cannot be written to: Permission denied; -o names another place")


def refuse_data(place: str | os.PathLike[str]) -> None:
    """Raise DatasetError for an output with the name of a dataset or recording, which --overwrite would destroy."""
    if os.fspath(place).endswith((".zip", ".arrow", *RECORDINGS)):
        raise DatasetError(f"{place}: has the name of a dataset or recording, and is not replaced; name another place")


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
