# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros validate`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefirst_ros.cli.options import AS_JSON, DATASET, SET_LIMITS, limits_of
from edgefirst_ros.cli.output import explained, instead, say
from edgefirst_ros.errors import printable

if TYPE_CHECKING:
    from edgefirst_ros.dataset.validate.fix import Repairs


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
                found.append(_with_fix(report.to_json(), done))
                continue
            if len(paths) > 1:
                say(f"{path.name}:")
            _print(done)
            say(report.to_text())
            if not report.ok and (hint := instead(path)):
                print(printable(hint), file=sys.stderr)
    if as_json:
        say(found[0] if len(found) == 1 else f"[{', '.join(found)}]")
    raise typer.Exit(0 if good else 1)


def _with_fix(report: str, done: Repairs | None) -> str:
    if done is None:
        return report
    changes = [{"rule": rule, "what": what, "number": number} for (rule, what), number in _listed(done)]
    said = {"kept": str(done.kept) if done.kept else None, "changed": changes}
    return json.dumps(json.loads(report) | {"fix": said}, indent=2)


def _print(done: Repairs | None) -> None:
    if done is None:
        return
    for (rule, what), number in _listed(done):
        say(f"{rule} fixed: {number} x {what}")
    say(f"the table as it was: {done.kept}" if done.kept else "nothing to fix")


def _listed(done: Repairs) -> list[tuple[tuple[str, str], Any]]:
    return sorted(done.changed.items())
