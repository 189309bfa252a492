# SPDX-License-Identifier: Apache-2.0
"""Reports: one page a dataset or recording, and a table over several. Nothing is written before all can be."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.names import check_path, find
from edgefirst_ros.errors import EdgeFirstError, UsageError, need
from edgefirst_ros.progress import Progress, quiet
from edgefirst_ros.report.facts import quick
from edgefirst_ros.report.page import page, table
from edgefirst_ros.report.places import beside_table, refuse, write
from edgefirst_ros.report.tables import check_container, tables_of
from edgefirst_ros.report.wanted import Wanted, refuse_settings, wanted_of

if TYPE_CHECKING:
    from edgefirst_ros.report.subject import Subject

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

    @property
    def exit_code(self) -> int:
        """0 when all could be read, 3 when something of a folder could not."""
        return 3 if any("error" in one for one in self.facts) else 0


@dataclass(frozen=True)
class _Pages:
    """Writer of pages, with their common options."""

    samples: int
    assume_forward: bool
    settings: Settings

    def write(self, one: Wanted, place: Path, title: str, back: str | None, tell: Progress) -> dict[str, Any]:
        """Write a page; returns its facts."""
        from edgefirst_ros.report.gather import gather

        with self._opened(one, tell, members=True) as subject:
            found = gather(subject, self.samples)
            write(place, page(found, title, assumed=self.assume_forward, back=back))
            return found.facts

    def row(self, one: Wanted) -> dict[str, Any]:
        """Return what the table alone says of one."""
        if one.recording is None:
            with one.files() as path:
                paths = find(path)
                if one.fetch is None:
                    check_container(paths)
                told = tables_of(paths, one.name, one.path, self.settings.limits)
                if told is not None:
                    return quick(told)
        with self._opened(one, quiet, members=False) as subject:
            return quick(subject)

    @contextmanager
    def _opened(self, one: Wanted, tell: Progress, *, members: bool) -> Iterator[Subject]:
        """Open a dataset, or make the samples of a recording that a page needs."""
        if one.recording is not None:
            from edgefirst_ros.report.recording import preview

            with preview(one.recording, self.settings, members=members, progress=tell) as subject:
                subject.assume_forward = self.assume_forward
                yield subject
            return
        from edgefirst_ros.dataset import Dataset
        from edgefirst_ros.report.subject import Subject

        with one.files() as path:
            dataset = Dataset(path, limits=self.settings.limits)
            yield Subject(one.name, one.path, dataset, assume_forward=self.assume_forward)


def report(
    paths: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    *,
    samples: int = SAMPLES,
    title: str | None = None,
    overwrite: bool = False,
    assume_forward: bool = False,
    table_only: bool = False,
    join: bool = False,
    settings: Settings | None = None,
    progress: Progress = quiet,
) -> Reported:
    """Write the pages of datasets and recordings, and for several or a folder the table over them.

    `out`: the page, or the table beside which the pages go; by default NAME.html beside the dataset, or report.html in
    the folder. `samples`: how many are shown. `table_only`: no pages. `join`: all are parts of one recording.
    `settings`: how recordings become samples, as of a conversion, and the limits of datasets.
    Raises DatasetError or RecordingError for what is neither, or an output that exists; then nothing was written.
    """
    need("report", "report", "jinja2", "plotly")
    settings = settings or Settings()
    wanted, several = wanted_of([Path(path) for path in paths], join=join)
    refuse_settings(wanted, settings)
    if several and out is None:
        if len(paths) > 1:
            raise UsageError("several PATHs: -o X.html says where the table over them goes; the pages lie beside it")
        out = Path(paths[0]) / TABLE
    if several and out is not None:
        return report_all(
            wanted,
            Path(out),
            samples=samples,
            title=title,
            overwrite=overwrite,
            assume_forward=assume_forward,
            table_only=table_only,
            settings=settings,
            progress=progress,
        )
    if table_only:
        raise UsageError("--table-only: there is one PATH only; give several, or a folder")
    place = Path(out) if out is not None else wanted[0].page
    check_path(place)
    refuse(place, overwrite=overwrite)
    pages = _Pages(_checked(samples), assume_forward, settings)
    return Reported([place], None, [pages.write(wanted[0], place, title or wanted[0].name, None, progress)])


def report_all(
    wanted: Sequence[Wanted],
    main: Path,
    *,
    samples: int = SAMPLES,
    title: str | None = None,
    overwrite: bool = False,
    assume_forward: bool = False,
    table_only: bool = False,
    settings: Settings | None = None,
    progress: Progress = quiet,
) -> Reported:
    """Write the table over several to `main`, and the pages beside it; as `report`."""
    need("report", "report", "jinja2", "plotly")
    check_path(main)
    places = [] if table_only else beside_table(main, [one.name for one in wanted])
    for place in (main, *places):
        refuse(place, overwrite=overwrite)
    pages = _Pages(_checked(samples), assume_forward, settings or Settings())
    found: list[dict[str, Any]] = []
    for number, one in enumerate(wanted):
        progress("reporting", number, len(wanted))
        try:
            if table_only:
                found.append(pages.row(one))
            else:
                facts = pages.write(one, places[number], one.name, main.name, quiet)
                found.append({**facts, "page": places[number].name})
        except EdgeFirstError as error:
            found.append({"name": one.name, "path": str(one.path), "error": str(error).partition("\n")[0]})
    write(main, table(found, title or "Drives"))
    return Reported([main.parent / one["page"] for one in found if "page" in one], main, found)


def _checked(samples: int) -> int:
    if samples < 0:
        raise UsageError(f"--samples: expected a number from 0 on, got {samples}")
    return samples
