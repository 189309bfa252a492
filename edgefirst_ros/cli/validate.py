# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.text import say


def validate(
    dataset: Annotated[Path, typer.Argument(help="OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow.")],
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check a dataset against the format: structure, names, headers, pictures, tables, cross references.

    Exit codes: 0 no errors (with --strict no warnings either), 1 otherwise, 2 wrong usage.
    """
    from edgefirst_ros.dataset.validate import validate as run

    report = run(dataset, strict=strict)
    say(report.to_json() if as_json else report.to_text())
    raise typer.Exit(0 if report.ok else 1)
