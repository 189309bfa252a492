# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros validate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.options import AS_JSON, DATASET, SET_LIMITS, limits_of
from edgefirst_ros.cli.output import explained, instead, say
from edgefirst_ros.errors import printable


def validate(
    context: typer.Context,
    dataset: Annotated[Path, DATASET],
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    repair: Annotated[bool, typer.Option("--fix", help="First repair the annotations where possible.")] = False,
    assignments: Annotated[list[str] | None, SET_LIMITS] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Check a dataset against the format.

    Structure, names, headers, pictures, tables, and their consistency with each other.

    Exit codes: 0 without errors (with --strict also without warnings), 1 otherwise, 2 wrong usage. With --fix
    they describe the repaired dataset.
    """
    from edgefirst_ros.dataset.objects.places import FETCH, on_disk, refuse_buckets
    from edgefirst_ros.dataset.validate import validate as run
    from edgefirst_ros.dataset.validate.fix import fix

    limits = limits_of(context, assignments)
    if repair:
        refuse_buckets("validate --fix", [dataset], FETCH)
    found, good = [], True
    with on_disk([dataset]) as paths:
        for path in paths:
            with explained(path):
                done = fix(path, limits=limits) if repair else None
            report = run(path, strict=strict, limits=limits)
            good = good and report.ok
            if as_json:
                found.append(report.plain() | ({} if done is None else {"fix": done.plain()}))
                continue
            if len(paths) > 1:
                say(f"{path.name}:")
            if done is not None:
                for (rule, what), number in sorted(done.changed.items()):
                    say(f"{rule} fixed: {number} x {what}")
                say(f"the table as it was: {done.kept}" if done.kept else "the dataset needs no fix")
            say(report.to_text())
            if not report.ok and (hint := instead(path)):
                print(printable(hint), file=sys.stderr)
    if as_json:
        say(json.dumps(found[0] if len(found) == 1 else found, indent=2))
    raise typer.Exit(0 if good else 1)
