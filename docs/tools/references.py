# SPDX-License-Identifier: Apache-2.0
"""Writes the generated parts of docs/reference: commands, settings, validation rules. `make references` runs it.

python docs/tools/references.py [--check]      --check: write nothing, exit code 1 if a page is out of date
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import typer
import typer.main
from pydantic import TypeAdapter

from edgefirst_ros.cli.app import app
from edgefirst_ros.config import LiveSettings, ReplaySettings, Settings, StreamSettings
from edgefirst_ros.config.load import list_setting_fields
from edgefirst_ros.dataset.validate import RULES
from edgefirst_ros.limits import Limits

PAGES = Path(__file__).resolve().parents[1] / "reference"
REGION = re.compile(r"(<!-- generated: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def default_of(field: Any) -> str:
    """Return the default of a setting as JSON."""
    value = field.get_default(call_default_factory=True, validated_data={})
    return json.dumps(value, default=lambda model: TypeAdapter(type(model)).dump_python(model, exclude_defaults=True))


def settings_of(model: Any) -> str:
    """Return the table of a model of settings."""
    rows = ((f"`{name}`", f"`{default_of(field)}`", field.description) for name, field in model.model_fields.items())
    return table(("setting", "default", "meaning"), rows)


def conversion() -> str:
    """Return the table of the settings of a conversion, with their options."""
    known = list_setting_fields(Settings)
    rows = []
    for name, field in Settings.model_fields.items():
        has_option = name in known and known[name].schema["option"] is not None
        option = f"`{known[name].flag}`" if has_option else ""
        rows.append((f"`{name}`", option, f"`{default_of(field)}`", field.description))
    return table(("setting", "option", "default", "meaning"), rows)


def limits() -> str:
    """Return the table of limits."""
    fields = dataclasses.fields(Limits)
    rows = ((f"`{one.name}`", f"`{json.dumps(one.default)}`", one.metadata["description"]) for one in fields)
    return table(("limit", "default", "meaning"), rows)


def commands(group: Any = None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, command) of every verb; those of a group of verbs as `fleet convert`."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def command_line() -> str:
    """Return a section for each verb: help, arguments and options."""
    sections = []
    for name, command in commands():
        parameters = [one for one in command.get_params(typer.Context(command)) if not getattr(one, "hidden", False)]
        rows = []
        for one in parameters:
            if one.param_type_name == "argument":
                shown = one.metavar or one.name.upper()
                rows.append((f"`{shown}`", "required" if one.required else "", one.help or ""))
            elif "--help" not in one.opts:
                flags = ", ".join(f"`{flag}`" for flag in one.opts)
                form = f" `{one.metavar}`" if one.metavar and not getattr(one, "is_flag", False) else ""
                rows.append((flags + form, "required" if one.required else "", one.help or ""))
        text = re.sub(r"[\b]\n?", "", command.help or "").strip()
        sections.append(f"## edgefirst-ros {name}\n\n{text}\n\n" + table(("option", "", "meaning"), rows))
    return "\n".join(sections)


def rules() -> str:
    """Return the table of the rules of `validate`."""
    return table(("rule", "severity", "what must hold"), ([rule.id, rule.severity, rule.description] for rule in RULES))


REGIONS: dict[str, Callable[[], str]] = {
    "commands": command_line,
    "settings of a conversion": conversion,
    "settings of a sensor": lambda: settings_of(StreamSettings),
    "limits": limits,
    "settings of a capture": lambda: settings_of(LiveSettings),
    "settings of a replay": lambda: settings_of(ReplaySettings),
    "validation rules": rules,
}


def renew(text: str) -> str:
    """Return a page with its generated regions made again."""
    return REGION.sub(lambda found: f"{found[1]}\n{REGIONS[found[2]]().strip()}\n\n{found[3]}", text)


def main() -> int:
    """Write the pages, or only compare them."""
    stale = [path for path in sorted(PAGES.glob("*.md")) if renew(path.read_text("utf-8")) != path.read_text("utf-8")]
    for path in stale:
        if "--check" in sys.argv:
            sys.stderr.write(f"{path.relative_to(PAGES.parents[1])} is out of date: make references\n")
        else:
            path.write_text(renew(path.read_text("utf-8")), "utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
