# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros recover`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefirst_ros.cli.options import AS_JSON, SET_LIMITS, limits_of
from edgefirst_ros.cli.output import explained, finish, say, say_notes, show_path, table

if TYPE_CHECKING:
    from edgefirst_ros.dataset.recovery.recover import Recovery


def recover(
    context: typer.Context,
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", readable=False, help="OUT/NAME, or any of its files.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report the data that would stay and be lost.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the checksums of all members of a ZIP.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished dataset of that name.")] = False,
    assignments: Annotated[list[str] | None, SET_LIMITS] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Complete a dataset whose writing was interrupted.

    For example by a power cut, a kill, or a disk that was full or removed.
    Keeps every whole member; makes the directory of the ZIP and both tables from the journals and the members.

    Exit codes: 0 complete, 1 no sample recovered, 2 wrong usage, 3 data was lost (the report lists it).
    """
    from edgefirst_ros.dataset.objects.places import FETCH, one_on_disk, refuse_buckets
    from edgefirst_ros.dataset.recovery.recover import recover as run

    limits = limits_of(context, assignments)
    refuse_buckets("recover", [dataset], FETCH)
    with explained(dataset), one_on_disk(dataset) as found:
        report = run(found, verify=verify, dry_run=dry_run, overwrite=overwrite, limits=limits)
    finish(report, _print, as_json=as_json)


def _print(report: Recovery) -> None:
    if report.complete:
        say(f"{show_path(report.paths.container)} is complete")
        say_notes(report.notes)
        return
    say(f"{show_path(report.paths.container)}{' (dry run: no file changes)' if report.dry_run else ''}")
    rows = [
        ("samples kept", str(report.samples)),
        ("members kept", str(report.members)),
        ("bytes skipped, damaged or cut", str(report.lost_bytes)),
        ("rows of frames rebuilt", str(report.rows_rebuilt)),
        ("of these with a stamp rounded to 2 s", str(report.unstamped)),
        ("samples whose annotations may be lost", str(report.annotations_lost)),
        (f"samples lost: in the {report.told_by} only", str(report.rows_dropped)),
        (f"members lost: in the {report.told_by} only", str(report.members_missing)),
    ]
    table(("what", "number"), rows)
    for lost in report.lost:
        say(f"lost: {lost.name or 'no member'} at byte {lost.start}: {lost.why}")
    if report.lost_stretches > len(report.lost):
        say(f"lost: {report.lost_stretches - len(report.lost)} more places")
    say_notes(report.notes)
