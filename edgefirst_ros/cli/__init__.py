# SPDX-License-Identifier: Apache-2.0
"""The command `edgefirst-ros`: one verb a file. Libraries are imported when a verb runs, so that help comes at once."""

from __future__ import annotations

import os
import sys

import typer

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
from edgefirst_ros.errors import EdgeFirstError

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts threads otherwise that nothing here needs

app = typer.Typer(
    name="edgefirst-ros",
    help="Turn drives recorded with the Maivin into EdgeFirst datasets.",
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


def main() -> None:
    """Run the command; exit codes: 0 all there, 1 error, 2 wrong usage, 3 finished with loss (dataset.md 8)."""
    try:
        app()
    except EdgeFirstError as error:
        print(f"edgefirst-ros: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
