# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.progress import progress
from edgefirst_ros.cli.text import say


def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the recording and the dataset.")] = Path("demo"),
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="Length of the drive, s.")] = 10.0,
) -> None:
    """Write a synthetic Maivin recording, convert it and check the dataset.

    Exit codes: as those of convert; 1 as well when the check finds something.
    """
    from edgefirst_ros.cli.convert import _print
    from edgefirst_ros.cli.info import print_dataset
    from edgefirst_ros.conversion import convert
    from edgefirst_ros.dataset.validate import validate
    from edgefirst_ros.errors import DatasetError
    from edgefirst_ros.synthetic import START, Recipe, recording_name, write_recording

    recipe = Recipe(seconds=seconds)
    recording = out / recording_name(recipe.host, START)
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_recording(recording, recipe)
    except OSError as error:
        raise DatasetError(f"{recording}: cannot be written: {error}") from error
    say(f"recording: {recording}")
    say("")
    with progress(quiet=False) as report:
        outcome = convert(recording, out, overwrite=True, progress=report)
    _print(outcome)
    say("")
    print_dataset(outcome.paths.container)
    say("")
    checked = validate(outcome.paths.container)
    say(checked.to_text())
    raise typer.Exit(outcome.exit_code if checked.ok else 1)
