# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros demo`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.output import say, show, show_progress


def demo(
    out: Annotated[
        Path, typer.Option("-o", "--out", readable=False, help="Folder for the recording and the dataset.")
    ] = Path("demo"),
    seconds: Annotated[float, typer.Option(metavar="S", min=1, max=3600, help="Length of the drive, s.")] = 10.0,
) -> None:
    """Make a recording, convert it, check the dataset.

    The recording is a synthetic drive with all sensors. An earlier demo in the folder is replaced.

    Exit codes: those of convert, and 1 if the check finds an error.
    """
    from edgefirst_ros.dataset.names import check_folder
    from edgefirst_ros.dataset.validate import validate
    from edgefirst_ros.errors import DatasetError
    from edgefirst_ros.pipeline.conversion import convert
    from edgefirst_ros.synthetic import START, Recipe, make_recording_name, write_recording

    check_folder(out)
    recipe = Recipe(seconds=seconds, scene="street")
    recording = out / make_recording_name(recipe.host, START)
    partial = out / f"{recording.name}.{os.getpid()}.partial"  # two demos may share a folder
    try:
        out.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)  # the folder may be open to all, and hold anything under that name
        write_recording(partial, recipe)
        partial.replace(recording)
    except OSError as error:
        raise DatasetError(f"{recording}: cannot be written: {error.strerror}; name another folder with -o") from error
    finally:
        with suppress(OSError):
            partial.unlink()
    say(f"recording: {recording}")
    say("")
    with show_progress(quiet=False) as report:
        outcome = convert(recording, out, overwrite=True, progress=report)
    dataset = out / outcome.paths.container.name
    checked = validate(dataset)
    show([*outcome.text(), "", *checked.to_text().splitlines(), f"to see it: edgefirst-ros report {dataset}"])
    raise typer.Exit(outcome.exit_code if checked.ok else 1)
