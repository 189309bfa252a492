# SPDX-License-Identifier: Apache-2.0
"""Options that are settings, made from the model: name, help and default of an option are those of its setting.

The model is imported when the verb runs or is asked for help, not for the list of verbs.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand

from edgefirst_ros.cli.output import say, table
from edgefirst_ros.errors import UsageError, counted

if TYPE_CHECKING:
    from edgefirst_ros.config import Settings
    from edgefirst_ros.dataset.grouping import GroupRule
    from edgefirst_ros.dataset.regroup import GroupCounts
    from edgefirst_ros.limits import Limits


class Option(NamedTuple):
    """Command line option of a setting."""

    metavar: str | None = None
    """None: the choices of the setting."""
    name: str | None = None
    """None: the name of the setting."""
    repeated: bool = False
    """True if it may be given several times."""


OPTIONS: Mapping[str, Option] = {
    "start": Option("T"),
    "end": Option("T"),
    "rate": Option("HZ"),
    "keyframes": Option(),
    "jpeg_quality": Option("Q"),
    "max_width": Option("W"),
    "layout": Option(),
    "schema_version": Option(name="--schema"),
    "sensors": Option("camera,..."),
    "require": Option("radar.cube,..."),
    "tolerance": Option("S"),
    "time_base": Option(),
    "split": Option("train=0.8,val=0.2"),
    "group": Option("NAME=GLOB", repeated=True),
    "stable": Option(),
    "reference_topic": Option("T", repeated=True),
    "radar_fields": Option(),
    "jobs": Option("N"),
}
"""The settings with an option of their own; every other one is given by --set NAME=VALUE."""
SET = typer.Option("--set", metavar="NAME=VALUE", help="Any setting, such as streams.radar.cube.tolerance=0.05.")
LIMITS = ("limits.table_rows", "limits.unpacked_bytes")
SET_LIMITS = typer.Option("--set", metavar="NAME=VALUE", help=f"{' or '.join(LIMITS)}, of tables and ZIPs.")
SET_GROUPING = typer.Option(
    "--set", metavar="NAME=VALUE", help=f"split_block or split_gap, s; {' or '.join(LIMITS)}, of tables and ZIPs."
)
CHOSEN, SETTABLE, UNUSED = "edgefirst_ros.settings", "edgefirst_ros.settable", "edgefirst_ros.unused"


class SettingsCommand(TyperCommand):
    """A verb that has the options of the settings besides its own, before `--set`."""

    options: ClassVar[Sequence[str]] = tuple(OPTIONS)
    """Settings with an option of their own."""
    settable: ClassVar[Collection[str] | None] = None
    """Settings that the verb uses; None: all."""
    unused: ClassVar[Collection[str]] = ()
    """Settings, out of all, that the verb does not use."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the verb and those of the settings."""
        own = super().get_params(ctx)
        place = [parameter.name for parameter in own].index("assignments")
        return [*own[:place], *(one for one in _parameters() if one.name in self.options), *own[place:]]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as click does; for an unknown option that is a setting, raise UsageError with its `--set` form."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            given = str(getattr(error, "option_name", ""))
            name = given.lstrip("-").replace("-", "_")
            if type(error).__name__ == "NoSuchOption" and (setting := _setting(name, self.settable)):
                raise UsageError(f"no option {given}, but a setting has that name: --set {setting}=...") from None
            raise

    def invoke(self, ctx: Any) -> Any:
        """Call the verb without the options of settings, which it gets by `texts_of`."""
        ctx.meta[CHOSEN] = {name: ctx.params.pop(name) for name in self.options}
        ctx.meta[SETTABLE], ctx.meta[UNUSED] = self.settable, self.unused
        return super().invoke(ctx)


class FleetCommand(SettingsCommand):
    """A verb that converts many recordings, each by itself, in one thread and to a ZIP: these settings are fixed."""

    options = tuple(name for name in OPTIONS if name not in ("jobs", "layout", "stable"))


class GroupCommand(SettingsCommand):
    """A verb that assigns samples to groups."""

    options = ("split", "group", "stable")
    settable = (*options, "split_block", "split_gap", *LIMITS)


class ReadingCommand(SettingsCommand):
    """A verb that reads datasets."""

    options = ()
    settable = LIMITS


class LookingCommand(SettingsCommand):
    """A verb that shows recordings as a conversion would see them, and writes no dataset."""

    options = ("start", "end", "rate", "keyframes", "sensors", "require", "tolerance", "time_base", "reference_topic")
    unused = (
        *("jpeg_quality", "camera_format", "pcd", "layout", "schema_version", "radar_fields", "lidar_images"),
        *("split", "split_block", "split_gap", "stable", "group", "polygons", "jobs"),
    )


def limits_of(context: typer.Context, assignments: Sequence[str] | None) -> Limits:
    """Return the limits given by --set, else the defaults. Raises UsageError."""
    from edgefirst_ros.config.load import load

    return load(None, texts=texts_of(context, assignments or ())).limits


def looking_settings(context: typer.Context, config: Path | None, assignments: Sequence[str] | None) -> Settings:
    """Return the settings by which recordings become samples, from a file and options. Raises UsageError."""
    from edgefirst_ros.config.load import load
    from edgefirst_ros.sensors.picture_hook import prepare_hook

    settings = load(config, texts=texts_of(context, assignments or ()))
    prepare_hook(settings.picture_hook, config)
    return settings


def texts_of(context: typer.Context, assignments: Sequence[str]) -> dict[str, str]:
    """Return the settings that were given by options and by --set, as text by full name.

    Raises UsageError where one is no NAME=VALUE, or has an option beside it.
    """
    chosen: Mapping[str, str | bool | Sequence[str] | None] = context.meta[CHOSEN]
    texts = {
        name: "true" if value is True else value if isinstance(value, str) else ",".join(value)
        for name, value in chosen.items()
        if value or value == ""
    }
    own = dict(texts)
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set: expected NAME=VALUE, got {assignment!r}")
        if context.meta[SETTABLE] is not None and name not in context.meta[SETTABLE]:
            raise UsageError(f"--set: expected one of {', '.join(context.meta[SETTABLE])}, got {name!r}")
        if name in context.meta[UNUSED]:
            raise UsageError(f"--set {name}: says how a dataset is written, and none is written here")
        if name in own:
            raise UsageError(f"{flag_of(name)} and --set {name} exclude each other: give one of them")
        texts[name] = text
    return texts


def flag_of(name: str) -> str:
    """Return the option of a setting."""
    return OPTIONS[name].name or f"--{name.replace('_', '-')}"


def _setting(name: str, settable: Collection[str] | None) -> str | None:
    """Return the setting of a name; of a nested one, its first."""
    from edgefirst_ros.config import Settings
    from edgefirst_ros.config.load import setting_fields

    known = [one for one in setting_fields(Settings) if settable is None or one in settable]
    return name if name in known else next((one for one in known if one.startswith(f"{name}.")), None)


@cache
def _parameters() -> Sequence[Any]:
    """Return OPTIONS as parameters of click, made by typer from a function with a parameter for each."""
    from edgefirst_ros.config import Settings
    from edgefirst_ros.config.load import setting_fields

    fields = setting_fields(Settings)
    made = []
    for name, option in OPTIONS.items():
        field = fields[name]
        default = field.schema.get("default")
        shown = "" if default in (None, False, [], {}) else f" (default: {default})"
        metavar = option.metavar or "|".join(field.schema.get("enum", ())) or None
        switch = field.type is bool
        given = typer.Option(flag_of(name), metavar=metavar, help=f"{field.schema['description']}{shown}.")
        kind = Annotated[bool if switch else list[str] | None if option.repeated else str | None, given]  # type: ignore[valid-type]
        made.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False if switch else None, annotation=kind)
        )

    def options(**values: object) -> None:
        """Stand for the verb."""

    options.__annotations__ = {parameter.name: parameter.annotation for parameter in made}
    vars(options)["__signature__"] = inspect.Signature(made)
    app = typer.Typer(add_completion=False)
    app.command()(options)
    return typer.main.get_command(app).params


def rule_of(context: typer.Context, assignments: Sequence[str] | None) -> GroupRule | None:
    """Return the group rule given by options and --set, or None without any. Raises UsageError."""
    from edgefirst_ros.config.load import load
    from edgefirst_ros.dataset.grouping import GroupRule

    return GroupRule.of(load(None, texts=texts_of(context, assignments or ())))


def print_groups(counts: GroupCounts) -> None:
    """Print a table of the groups: samples, sensors and labels of each."""
    rows = [
        (f"{kind.what} {kind.name}".rstrip(), *(str(tally.get(kind, 0)) for tally in counts.groups.values()))
        for kind in counts.kinds
    ]
    table(("group", *counts.groups), rows)
    if counts.without:
        say(f"without a group: {counted(counts.without, 'sample')}")
