# SPDX-License-Identifier: Apache-2.0
"""The verbs of the command."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple, cast

import typer
import typer.main
from typer.core import TyperGroup

from edgefirst_ros import __version__
from edgefirst_ros.cli.live import NODE
from edgefirst_ros.cli.options import READ, command_of
from edgefirst_ros.cli.output import say
from edgefirst_ros.errors import TRACEBACK, UsageError


class Verb(NamedTuple):
    """Module that holds the function of a verb, and the settings that the verb uses."""

    module: str
    """Module in `edgefirst_ros.cli`."""
    help: str
    """First line of its help: the list of all verbs does not load them."""
    uses: str = ""
    """Tag of the settings that it uses, as `Command.uses`."""
    context: dict[str, Any] | None = None
    function: str = ""
    """Its function there; that with the name of the module if empty."""


VERBS: Mapping[str, Verb] = {
    "convert": Verb("convert", "Convert recordings to an EdgeFirst dataset.", "convert"),
    "info": Verb("info", "Show the content of a recording or a dataset.", READ),
    "rig": Verb("rig", "Draft a rig from recordings: which topic each sensor has."),
    "migrate": Verb("migrate", "Convert annotations to another schema version or file format.", READ),
    "recover": Verb("recover", "Complete a dataset whose writing was interrupted.", READ),
    "merge": Verb("merge", "Merge datasets into one.", "group"),
    "split": Verb("merge", "Assign the samples of datasets to new groups.", "group", function="split"),
    "validate": Verb("validate", "Check datasets against the format.", READ),
    "report": Verb("report", "Write an HTML report that shows whether a drive is good.", "show"),
    "view": Verb("view", "Show a dataset or a recording in the rerun viewer.", "show"),
    "export": Verb("export", "Write a dataset in the format of another system.", READ),
    "import": Verb("export", "Make a dataset from the format of another system.", READ, function="restore"),
    "label": Verb("label", "Import labels of other tools into the annotations of a dataset.", READ),
    "fleet": Verb("fleet", "Convert many recordings, to folders or buckets.", function="app"),
    "demo": Verb("demo", "Make a recording, convert it, check the dataset."),
    "capture": Verb("capture", "Record datasets from live topics.", "capture", NODE),
    "control": Verb("control", "Control a capture, over ROS 2, or with --zenoh over Zenoh.", context=NODE),
    "replay": Verb("replay", "Convert recordings as a ROS 2 node.", "convert", NODE),
    "play": Verb("play", "Publish a recording or a dataset at its own pace.", "play", NODE),
    "version": Verb("app", "Print the version.", function="version"),
}


class _Commands(Mapping[str, Any]):
    """The commands, each made when it is first asked for: a verb need not load the others."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


@cache
def _command(name: str) -> Any:
    verb = VERBS[name]
    found = getattr(import_module(f"edgefirst_ros.cli.{verb.module}"), verb.function or verb.module)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command(name, cls=command_of(verb.uses, found), context_settings=verb.context)(found)
    return typer.main.get_command(single)


INSTEAD = {
    **dict.fromkeys(("ls", "list", "show", "inspect", "stats"), "info"),
    "check": "validate",
    "fix": "validate --fix",
    "restore": "import",
    "open": "view",
    "record": "capture",
    "upload": "convert --upload",
}
"""Verbs that users try, and what they mean."""


class Verbs(TyperGroup):
    """The command `edgefirst-ros`; each verb is loaded when it is first called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", _Commands())

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb of the arguments; `help VERB` is `VERB --help`. Raises UsageError for one of INSTEAD."""
        if args[0] == "help":
            args = [*args[1:2], "--help"]
            if len(args) == 1:
                say(ctx.get_help())
                raise typer.Exit
        if args[0] in INSTEAD:
            raise UsageError(f"no command {args[0]}; use edgefirst-ros {INSTEAD[args[0]]}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


app = typer.Typer(
    name="edgefirst-ros",
    cls=Verbs,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


def version() -> None:
    """Print the version."""
    say(f"edgefirst-ros {__version__}")


@app.callback()
def options(
    show_version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", hidden=True)] = False,
) -> None:
    """Turn drives of Maivin cameras and other vehicles into EdgeFirst datasets."""
    if traceback:
        os.environ[TRACEBACK] = "1"
