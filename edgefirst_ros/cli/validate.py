# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros validate`."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.options import DATASET, read_limits
from edgefirst_ros.cli.output import OtherResult, Result, describe_other, explain_paths
from edgefirst_ros.errors import DatasetError, Text, escape_text


def validate(
    context: typer.Context,
    datasets: Annotated[list[Path], DATASET],
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    repair: Annotated[bool, typer.Option("--fix", help="First repair the annotations where possible.")] = False,
) -> Result:
    """Check datasets against the format.

    Structure, names, headers, pictures, tables, and their consistency with each other.

    Exit codes: 0 without errors (with --strict also without warnings), 1 otherwise, 2 wrong usage. With --fix
    they describe the repaired dataset.
    """
    from edgefirst_ros.dataset.objects.places import FETCH, on_disk, refuse_buckets
    from edgefirst_ros.dataset.validate import validate as run
    from edgefirst_ros.dataset.validate.fix import Repairs, fix
    from edgefirst_ros.dataset.validate.report import Report

    limits, done = read_limits(context), list[tuple[Path, Report, Repairs | None]]()
    if repair:
        refuse_buckets("validate --fix", datasets, FETCH)
    with on_disk(datasets) as paths:
        for path in paths if repair else [one for given in paths for one in _list_datasets(given)]:
            with explain_paths(path):
                fixed = fix(path, limits=limits) if repair else None
            report = run(path, strict=strict, limits=limits)
            report.dataset = paths.restore(report.dataset)
            done.append((path, report, fixed))
            if not report.ok and (hint := describe_other(path)):
                print(escape_text(paths.restore(hint)), file=sys.stderr)

    def text() -> Text:
        for path, report, fixed in done:
            if len(done) > 1:
                yield f"{path.name}:"
            if fixed is not None:
                for (rule, what), number in sorted(fixed.changed.items()):
                    yield f"{rule} fixed: {number} x {what}"
                yield f"the table as it was: {fixed.kept}" if fixed.kept else "the dataset needs no fix"
            yield from report.to_text().split("\n")

    plain = [report.plain() | ({} if fixed is None else {"fix": fixed.plain()}) for _, report, fixed in done]
    code = 0 if all(report.ok for _, report, _ in done) else 1
    return OtherResult(lambda: plain[0] if len(plain) == 1 else plain, text, code)


def _list_datasets(path: Path) -> list[Path]:
    """Return the datasets of a folder that holds some; any other path is one, whatever it is."""
    from edgefirst_ros.dataset.objects.places import list_dataset_places

    with suppress(DatasetError):
        return list_dataset_places(path)
    return [path]
