# SPDX-License-Identifier: Apache-2.0
"""The verbs of the command."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from edgefirst_ros import __version__
from edgefirst_ros.cli import (
    capture,
    control,
    convert,
    demo,
    export,
    info,
    label,
    merge,
    migrate,
    play,
    recover,
    replay,
    report,
    restore,
    split,
    validate,
    view,
)
from edgefirst_ros.cli.fleet.app import app as fleet
from edgefirst_ros.cli.options import GroupCommand, LookingCommand, ReadingCommand, SettingsCommand
from edgefirst_ros.cli.ros import NODE
from edgefirst_ros.cli.text import say
from edgefirst_ros.cli.zenoh import ZenohCommand
from edgefirst_ros.errors import TRACEBACK

app = typer.Typer(
    name="edgefirst-ros",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("convert", cls=SettingsCommand)(convert.convert)
app.command("info", cls=ReadingCommand)(info.info)
app.command("migrate", cls=ReadingCommand)(migrate.migrate)
app.command("recover", cls=ReadingCommand)(recover.recover)
app.command("merge", cls=GroupCommand)(merge.merge)
app.command("split", cls=GroupCommand)(split.split)
app.command("validate", cls=ReadingCommand)(validate.validate)
app.command("report", cls=LookingCommand)(report.report)
app.command("view", cls=LookingCommand)(view.view)
app.command("export", cls=ReadingCommand)(export.export)
app.command("import", cls=ReadingCommand)(restore.restore)
app.command("label", cls=ReadingCommand)(label.label)
app.add_typer(fleet)
app.command("demo")(demo.demo)
app.command("capture", cls=ZenohCommand, context_settings=NODE)(capture.capture)
app.command("control", cls=ZenohCommand)(control.control)
app.command("replay", context_settings=NODE)(replay.replay)
app.command("play", cls=ZenohCommand, context_settings=NODE)(play.play)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"edgefirst-ros {__version__}")
        raise typer.Exit


def _traceback(wanted: bool) -> None:
    if wanted:
        os.environ[TRACEBACK] = "1"


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", callback=_traceback, is_eager=True, hidden=True)] = False,
) -> None:
    """Turn drives recorded with the Maivin into EdgeFirst datasets."""
