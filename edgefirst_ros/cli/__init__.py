# SPDX-License-Identifier: Apache-2.0
"""The command `edgefirst-ros`: one verb a file. Libraries are imported when a verb runs, so that help comes at once."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from edgefirst_ros import __version__
from edgefirst_ros.cli import (
    capture,
    convert,
    demo,
    export,
    info,
    merge,
    migrate,
    play,
    recover,
    replay,
    restore,
    validate,
)
from edgefirst_ros.cli.ros import NODE
from edgefirst_ros.cli.text import plain, say
from edgefirst_ros.errors import EdgeFirstError

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts threads otherwise that nothing here needs

app = typer.Typer(
    name="edgefirst-ros",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("convert")(convert.convert)
app.command("info")(info.info)
app.command("migrate")(migrate.migrate)
app.command("recover")(recover.recover)
app.command("merge")(merge.merge)
app.command("validate")(validate.validate)
app.command("export")(export.export)
app.command("import")(restore.restore)
app.command("demo")(demo.demo)
app.command("capture", context_settings=NODE)(capture.capture)
app.command("replay", context_settings=NODE)(replay.replay)
app.command("play", context_settings=NODE)(play.play)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"edgefirst-ros {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Turn drives recorded with the Maivin into EdgeFirst datasets."""


def main() -> None:
    """Run the command; exit codes: 0 all there, 1 error, 2 wrong usage, 3 finished with loss (dataset.md 8)."""
    try:
        app()
    except EdgeFirstError as error:
        print(plain(f"edgefirst-ros: {error}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:  # a disk or a folder that refuses is no fault of the program
        print(plain(f"edgefirst-ros: the system refuses: {error}"), file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
