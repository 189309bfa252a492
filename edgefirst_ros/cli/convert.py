# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros convert`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefirst_ros.cli.options import CONFIG, JOIN, get_options, load_settings, report_progress
from edgefirst_ros.cli.output import Report, Result
from edgefirst_ros.errors import EdgeFirstError, ObjectStoreError, UsageError, need

if TYPE_CHECKING:
    from edgefirst_ros.dataset.objects.location import Location
    from edgefirst_ros.dataset.objects.places import Place
    from edgefirst_ros.pipeline.conversion import Outcome


def convert(
    context: typer.Context,
    out: Annotated[Path, typer.Option("-o", "--out", readable=False, help="Folder for the dataset.")],
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="REC",
            readable=False,
            help="Recordings (.mcap, .db3, .bag, rosbag2 folders), or folders of these; each is a sequence.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the dataset; default: the recording's, of several the folder's.")
    ] = None,
    config: Annotated[Path | None, CONFIG] = None,
    join: Annotated[bool, JOIN] = False,
    sequence: Annotated[
        list[str] | None,
        typer.Option("--sequence", metavar="NAME=FILE", help="Convert FILE with NAME as the name of its sequence."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset.")] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Also succeed if the dataset is finished; an unfinished one is continued anyway."
        ),
    ] = False,
    with_report: Annotated[
        bool, typer.Option("--report", help="Write an HTML report beside the dataset, as edgefirst-ros report does.")
    ] = False,
    upload: Annotated[
        str | None,
        typer.Option(metavar="s3://...", help="Folder or s3://BUCKET/PREFIX to which the dataset is then copied."),
    ] = None,
) -> Result:
    """Convert recordings to an EdgeFirst dataset.

    Writes OUT/NAME.zip, OUT/NAME.arrow and OUT/NAME.frames.arrow.

    Exit codes: 0 complete, 1 no dataset written (with --upload: not sent), 2 wrong usage, 3 finished with loss (the
    summary lists it).
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # its own takes 5 ms and 4 MB to start
    from edgefirst_ros.dataset.objects.location import Location
    from edgefirst_ros.dataset.objects.places import fetch_places, locate, refuse_buckets
    from edgefirst_ros.limits import keep_buffers
    from edgefirst_ros.pipeline.conversion import convert as run

    keep_buffers()
    refuse_buckets("convert", [out], "write to a folder, and add --upload")
    if with_report:
        need("--report", "report", "jinja2", "plotly")
    notes: list[str] = []
    named = dict(_split_camera_name(text) for text in sequence or ())
    if len(named) < len(sequence or ()):
        raise UsageError("--sequence: the same name is given twice")
    settings = load_settings(context, config, notes.append)
    target = None if upload is None else Location.of(upload)
    if target is not None and settings.layout != "zip":
        raise UsageError("--upload: only a dataset that is one ZIP can be uploaded; remove --layout")
    try:
        places = locate(recordings or [])
        at = {name: _place_of(f"--sequence {name}={file}", file, places) for name, file in named.items()}
        with fetch_places(places) as found, report_progress(context) as report:
            sequences = {name: file if (n := at[name]) is None else found[n] for name, file in named.items()}
            options = get_options(context, "recordings", "out", "config", "sequence", "with_report", "upload")
            outcome = run(found, out, **options, settings=settings, sequences=sequences, progress=report)
            if target is not None and outcome.refused is None:
                _upload(outcome, target, overwrite, report)
    except KeyboardInterrupt:
        print(
            "interrupted: the same command continues from here, edgefirst-ros recover completes the samples so far",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    outcome.notes[:0] = notes
    if with_report and outcome.refused is None:
        outcome.notes.append(_report(outcome, overwrite=overwrite))
    return outcome


def _place_of(flag: str, file: str, places: list[Place]) -> int | None:
    """Return the number of the place of an object among `places`, adding a missing one; None for a path."""
    from edgefirst_ros.dataset.objects.location import is_remote
    from edgefirst_ros.dataset.objects.places import locate

    if not is_remote(file):
        return None
    found = locate([file])
    if len(found) != 1:
        raise UsageError(f"{flag}: matches {len(found)} recordings; name one of them")
    uris = [place.uri for place in places]
    if found[0].uri not in uris:
        places += found
    return [place.uri for place in places].index(found[0].uri)


def _split_camera_name(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise UsageError(f"--sequence: expected NAME=FILE, got {text!r}")
    return name, file


def _report(outcome: Outcome, *, overwrite: bool) -> str:
    """Write the report of a dataset, and print where it is or why it failed: the dataset is complete in any case."""
    from edgefirst_ros.report.run import report

    try:
        return f"report: {report([outcome.paths.container], overwrite=overwrite).pages[0]}"
    except EdgeFirstError as error:
        return f"no report: {error}"


def _upload(outcome: Outcome, target: Location, overwrite: bool, report: Report) -> None:
    """Copy the dataset and compare checksums. Raises ObjectStoreError that says how to continue."""
    from edgefirst_ros.dataset.objects.store import upload_dataset

    try:
        done = upload_dataset(outcome.paths, target, overwrite=overwrite, progress=report)
    except ObjectStoreError as error:
        raise ObjectStoreError(
            f"{error}\nthe dataset is whole in {outcome.paths.container}; the same command with --resume uploads it"
        ) from None
    outcome.notes.append(f"uploaded to {target / done[-1].key.rpartition('/')[2]}")
