# SPDX-License-Identifier: Apache-2.0
"""The verbs of `edgefirst-ros fleet`."""

from __future__ import annotations

import typer

from edgefirst_ros.cli.fleet import convert, export, merge, report, status, validate
from edgefirst_ros.cli.options import FleetCommand, GroupCommand

app = typer.Typer(
    name="fleet",
    help="Convert many recordings, to folders or buckets.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("convert", cls=FleetCommand)(convert.convert)
app.command("status")(status.status)
app.command("validate")(validate.validate)
app.command("merge", cls=GroupCommand)(merge.merge)
app.command("export")(export.export)
app.command("report")(report.report)
