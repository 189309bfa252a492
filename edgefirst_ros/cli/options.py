# SPDX-License-Identifier: Apache-2.0
"""Options that are settings, made from the model: name, help and default of an option are those of its setting.

The model is imported when the verb runs or prints its help, not for the list of verbs.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from edgefirst_ros.cli.output import Report, Result, say, show, show_progress
from edgefirst_ros.errors import UsageError, sort_nearest

if TYPE_CHECKING:
    from edgefirst_ros.config import Settings
    from edgefirst_ros.config.load import SettingField
    from edgefirst_ros.dataset.grouping import GroupRule
    from edgefirst_ros.limits import Limits


DATASET = typer.Argument(metavar="DATASET", readable=False, help="OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow.")
CONFIG = typer.Option(readable=False, help="YAML file with settings; options override it.")
JOIN = typer.Option("--join", help="All files are parts of one recording, in this order.")
CHECK_TIME = typer.Option(
    "--check-time", help="Estimate offsets between the sensors of a recording from their content."
)
LIMITS = ("limits.table_rows", "limits.unpacked_bytes")
"""Settings of every verb that reads datasets."""
READ = "read"
"""Verbs that read datasets: of the settings they use the limits only."""
SET = {
    READ: f"{' or '.join(LIMITS)}, of tables and ZIPs.",
    "play": "A setting of the player by its name, such as wait_timeout=5.",
    "group": f"split_block or split_gap, s; {' or '.join(LIMITS)}, of tables and ZIPs.",
}
"""Help of `--set`, where it does not take any setting."""
INSTEAD = {
    **dict.fromkeys(("--to", "--until", "--stop", "--duration"), ("--end", "--out")),
    **dict.fromkeys(("-o", "--out", "--output"), ("--out", "--save")),
    **dict.fromkeys(("-f", "--force", "-y", "--yes"), ("--overwrite",)),
    **dict.fromkeys(("-j", "--jobs", "--threads"), ("--workers",)),
    **dict.fromkeys(("--train", "--val", "--test"), ("--split",)),
    **dict.fromkeys(("--dir", "--directory", "--folder"), ("--layout",)),
    "--browser": ("--web",),
    "--continue": ("--resume",),
    "--format": ("--to",),
}
"""Options that users try, and those that they may mean; `OTHER_NAMES` has those of settings."""
CHOSEN, USES = "edgefirst_ros.chosen", "edgefirst_ros.uses"


class Command(TyperCommand):
    """A verb, which returns its result: it is printed as text or JSON, and its exit code is that of the command.

    It has the options of the settings that it uses, `--set`, and `--json` if it has a result; its `--zenoh` needs no
    address.
    """

    uses: ClassVar[str] = ""
    """Tag of the settings that the verb uses (`setting`), or `READ`; empty: without settings."""
    has_result: ClassVar[bool] = False

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the verb and those of the settings."""
        *own, shown_help = super().get_params(ctx)
        for one in own:
            if one.param_type_name == "argument":  # typer would add its type, `<list[Path]>`, to its name
                vars(one)["display_type_rich"] = lambda ctx: ""
        return [*own, *_make_parameters(self.uses, self.has_result), shown_help]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as click does, with `peer` for a missing address of `--zenoh`.

        For an unknown option that is a setting, raise UsageError with its `--set` form; also for an empty argument.
        """
        if any(not one or (one.startswith("-") and one.endswith("=")) for one in args) and "--ros-args" not in args:
            self._refuse_empty(ctx, args)
        if "--zenoh" in args:
            from edgefirst_ros.sources.zenoh_session import PEER, is_endpoint

            place = args.index("--zenoh") + 1
            if not (args[place:] and is_endpoint(args[place])):
                args = [*args[:place], PEER, *args[place:]]
        try:
            return super().parse_args(ctx, [*args])
        except Exception as error:
            given = str(getattr(error, "option_name", ""))
            unknown = type(error).__name__ == "NoSuchOption"
            options = {option for one in self.get_params(ctx) for option in one.opts}
            if unknown and (names := [one for one in args if one.startswith(given) and os.path.exists(one)]):
                raise UsageError(f"no option {given}; a file begins with a dash: write ./{names[0]}") from None
            if meant := [option for option in INSTEAD.get(given, ()) if unknown and option in options]:
                raise UsageError(f"no option {given}; use {' or '.join(meant)}") from None
            if unknown and given in ("-o", "--out") and (verb := ctx.info_name) in ("label", "recover", "split"):
                raise UsageError(f"no option {given}; {verb} changes the dataset itself, so copy it first") from None
            if self.uses and unknown:
                from edgefirst_ros.config.load import OTHER_NAMES

                name, known = given.lstrip("-").replace("-", "_"), list_settings(self.uses)
                name = OTHER_NAMES.get(name, name)
                setting = name if name in known else next((one for one in known if one.startswith(f"{name}.")), None)
                if setting:
                    has_option = known[setting].schema["option"] is not None
                    right = known[setting].flag if has_option else f"the setting: --set {setting}=..."
                    raise UsageError(f"no option {given}; use {right}") from None
            if near := sorted(options) if unknown else []:
                from difflib import get_close_matches

                names = get_close_matches(given.lstrip("-"), [one.lstrip("-") for one in near], 3, 0.7)
                found = [one for one in near if one.lstrip("-") in names]
                cast("Any", error).possibilities = found or [one for one in near if one.startswith(f"{given}-")]
            if (low := getattr(getattr(error, "param", None), "min", None)) is not None:
                option, (wrong, *_) = cast("Any", error).param, cast("Any", error.__cause__).errors()
                what = "a whole number" if wrong["type"].startswith("int") else "a number"
                most = "" if option.max is None else f", at most {option.max}"
                message = f"{option.opts[-1]}: expected {what} at least {low}{most}, got {wrong['input']!r}"
                raise UsageError(message) from None
            if type(error).__name__ == "MissingParameter":
                missing = cast("Any", error).param
                several = "|" in (missing.metavar or "")
                message = f"Expected one of {missing.metavar.replace('|', ', ')}" if several else missing.help
                cast("Any", error).message = message
            raise

    def _refuse_empty(self, ctx: Any, args: list[str]) -> None:
        """Raise UsageError for an empty argument: as a path it would be this folder. Launch files pass empty ones."""
        settings = {
            one.name for one in _make_parameters(self.uses, self.has_result)
        }  # `get_texts` says what each expects
        options = [one for one in self.get_params(ctx) if one.param_type_name == "option" and not one.is_flag]
        names = {option: one.name for one in options for option in one.opts}
        for before, text in zip(["", *args], args, strict=False):
            option = text[:-1] if text.endswith("=") else "" if text else before
            if names.get(option) not in settings and (not text or option in names):
                what = option if option in names else "an argument"
                raise UsageError(f"{what}: expected a value, got ''; a variable of the shell may not be set")

    def invoke(self, ctx: Any) -> Any:
        """Call the verb without the options of settings, which it gets by `get_texts`; print its result, and exit."""
        names = [one.name for one in _make_parameters(self.uses, self.has_result)]
        ctx.meta[CHOSEN], ctx.meta[USES] = {name: ctx.params.pop(name) for name in names}, self.uses
        done: Result | None = super().invoke(ctx)
        if done is not None:
            say(json.dumps(done.plain(), indent=1)) if wants_json(ctx) else show(done.text())
            raise typer.Exit(done.exit_code)


def get_options(context: typer.Context, *others: str) -> dict[str, Any]:
    """Return the options of a verb but `others`, by name: the function that it calls has parameters of these names."""
    return {name: value for name, value in context.params.items() if name not in others}


def wants_json(context: typer.Context) -> bool:
    """True if a verb's result is to be printed as JSON."""
    return bool(context.meta[CHOSEN].get("as_json"))


def report_progress(context: typer.Context) -> AbstractContextManager[Report]:
    """Return a function that prints progress, as `show_progress` does; with JSON it prints no progress."""
    return show_progress(quiet=wants_json(context))


class Group(TyperGroup):
    """A verb with verbs of its own, each listed with its whole first line."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb of the arguments. Raises UsageError for an unknown one."""
        if args[0] not in self.commands:
            known = sort_nearest(args[0], self.commands)
            raise UsageError(f"no command {ctx.info_name} {args[0]}; known: {known}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of verbs."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, (one.help or "").partition("\n")[0]) for name, one in self.commands.items()])


def command_of(uses: str, function: Any) -> type[Command]:
    """Return the class of a verb that uses the settings with a tag."""
    return type("Command", (Command,), {"uses": uses, "has_result": function.__annotations__["return"] == "Result"})


@cache
def list_settings(uses: str) -> Mapping[str, SettingField]:
    """Return the settings with a tag, by name; also the limits of datasets, and of a capture what only it has."""
    from edgefirst_ros.config import LiveSettings, PlayerSettings, Settings
    from edgefirst_ros.config.load import list_setting_fields
    from edgefirst_ros.config.values import CAPTURE, PLAY

    models = {CAPTURE: (Settings, LiveSettings), PLAY: (PlayerSettings,)}.get(uses, (Settings,))
    fields = list_setting_fields(*models)
    return {name: field for name, field in fields.items() if uses in field.schema["verbs"] or name in LIMITS}


def read_limits(context: typer.Context) -> Limits:
    """Return the limits given by --set, else the defaults. Raises UsageError."""
    return load_settings(context).limits


def load_settings(
    context: typer.Context, config: Path | None = None, note: Callable[[str], None] = lambda text: None
) -> Settings:
    """Return the settings by which recordings become samples, from a file and options. Raises UsageError."""
    from edgefirst_ros.config.load import load

    settings = load(config, texts=get_texts(context), note=note)
    if settings.picture_hook is not None and "picture_hook" in list_settings(context.meta[USES]):
        from edgefirst_ros.sensors.picture_hook import prepare_hook

        prepare_hook(settings.picture_hook, config)
    return settings


EITHER = ("rate", "keyframes")
"""Settings of which a command line has one; a `rate` on it overrides the `keyframes` of a file."""


def get_texts(context: typer.Context) -> dict[str, str]:
    """Return the settings that were given by options and by --set, as text by full name.

    Raises UsageError if one is not NAME=VALUE, is not used by the verb, or has an option too; or an option is empty.
    """
    from edgefirst_ros.config import LiveSettings, Settings
    from edgefirst_ros.config.load import list_setting_fields
    from edgefirst_ros.config.values import GROUP

    chosen: Mapping[str, Any] = context.meta[CHOSEN]
    used = list_settings(context.meta[USES])
    texts = {
        name: "true" if value is True else value if isinstance(value, str) else ",".join(value)
        for name, value in chosen.items()
        if name in used and (value or value == "")
    }
    for name in (name for name, text in texts.items() if not text):  # such as a variable of the shell that is not set
        raise UsageError(f"{used[name].flag}: expected {used[name].expected}, got ''; --set {name}= unsets it")
    own = dict(texts)
    for assignment in chosen["assignments"] or ():
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set: expected NAME=VALUE, got {assignment!r}")
        if name not in used and context.meta[USES] in (READ, GROUP):
            raise UsageError(f"--set: expected one of {', '.join(used)}, got {name!r}")
        if name not in used and name in list_setting_fields(Settings, LiveSettings):
            raise UsageError(f"--set {name}: {context.command_path.partition(' ')[2]} does not use this setting")
        if name in own:
            raise UsageError(f"{used[name].flag} and --set {name} cannot be combined")
        texts[name] = text
    if texts.get("rate") and texts.get("keyframes", "").lower() in ("true", "yes", "on", "1"):
        raise UsageError(
            f"{' and '.join(used[n].flag if n in own else f'--set {n}' for n in EITHER)} cannot be combined"
        )
    return texts


@cache
def _make_parameters(uses: str, has_result: bool) -> Sequence[Any]:
    """Return the options of settings as parameters of click, made by typer from a function with as many parameters."""
    made = []

    def add(name: str, kind: Any, default: object) -> None:
        made.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))

    for name, field in list_settings(uses).items() if uses else ():
        if field.schema["option"] is None:
            continue
        default = field.schema.get("default")
        shown = "" if default in (None, False, [], {}) else f" (default: {default})"
        metavar = field.schema["option"] or "|".join(field.schema.get("enum", ())) or None
        switch = field.type is bool
        given = typer.Option(field.flag, metavar=metavar, help=f"{field.schema['description']}{shown}.")
        several = list[str] | None if field.schema["repeated"] else str | None
        kind = Annotated[bool if switch else several, given]  # type: ignore[valid-type]
        add(name, kind, False if switch else None)
    if uses:
        told = SET.get(uses, "Any setting, such as streams.radar.cube.tolerance=0.05.")
        given = typer.Option("--set", metavar="NAME=VALUE", help=told)
        add("assignments", Annotated[list[str] | None, given], None)
    if has_result:
        add("as_json", Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")], False)

    def options(**values: object) -> None:
        """Placeholder for the verb."""

    options.__annotations__ = {parameter.name: parameter.annotation for parameter in made}
    vars(options)["__signature__"] = inspect.Signature(made)
    app = typer.Typer(add_completion=False)
    app.command()(options)
    return typer.main.get_command(app).params


def read_group_rule(context: typer.Context) -> GroupRule | None:
    """Return the group rule given by options and --set, or None without any. Raises UsageError."""
    from edgefirst_ros.dataset.grouping import GroupRule

    return GroupRule.of(load_settings(context))
