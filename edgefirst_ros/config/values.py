# SPDX-License-Identifier: Apache-2.0
"""Types of setting values: numbers, text of the command line, times."""

from __future__ import annotations

import functools
import os
import re
import reprlib
from collections.abc import Iterator
from datetime import datetime, timezone
from fractions import Fraction
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

SECOND = 1_000_000_000


def no_switch(value: Any) -> Any:
    """Refuse true and false: Python takes `yes` for 1, and so would a rate, or the share of a group."""
    if isinstance(value, bool):
        raise PydanticCustomError("no_switch", "Input should be a number")
    return value


def no_switches(values: Any) -> Any:
    """Make text of true and false in a map of numbers, so that they are rejected as any text is."""
    if not isinstance(values, dict):
        return values
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}


CONVERT, FLEET, CAPTURE, SHOW, GROUP, PLAY = "convert", "fleet", "capture", "show", "group", "play"
"""Verbs by their use of settings: convert and replay; fleet convert; capture; report, view; merge, split; play."""
WRITING = (CONVERT, FLEET, CAPTURE)
"""Verbs that write samples."""
SAMPLING = (*WRITING, SHOW)
"""Verbs that make samples of messages."""
TAGS = ("verbs", "option", "flag", "repeated", "changes")
"""Tags of a setting in its JSON schema; a nested one without them has those of the outer one."""


def define(
    default: Any,
    description: str,
    *,
    verbs: tuple[str, ...] = SAMPLING,
    option: str | None = None,
    flag: str | None = None,
    repeated: bool = False,
    changes: bool = False,
    **rules: Any,
) -> Any:
    """Return a field of a model, whose JSON schema has the `TAGS`.

    Args:
        default: Its default; a type is called for each instance.
        description: Help of its option, description of its ROS parameter.
        verbs: Verbs that use it.
        option: Placeholder of its command line option, "" for its choices; None: only `--set` sets it.
        flag: That option, unless it has the name of the setting.
        repeated: True if the option may be given several times.
        changes: True if its ROS parameter may change while a capture runs; the next dataset has the new value.
        rules: Further arguments of a field of pydantic.
    """
    tags: dict[str, Any] = dict(zip(TAGS, (list(verbs), option, flag, repeated, changes), strict=True))
    rules |= {"default_factory" if isinstance(default, type) else "default": default}
    return Field(description=description, json_schema_extra=tags, **rules)


def _parse_moment(value: Any) -> Any:
    """Return seconds as a number, or a UTC time as text, from any accepted form."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
    try:
        value = float(value)
    except (TypeError, ValueError):
        parse_utc(value)
    else:
        if not 0 <= value <= 1e9:
            raise ValueError(f"expected seconds from the first frame on, at least 0, got {value:g}")
    return value


def parse_topics(value: Any) -> Any:
    """Return one topic, or several given as a list or as comma-separated text, each once."""
    if isinstance(value, str) and "," in value:
        value = [topic for topic in map(str.strip, value.split(",")) if topic]
    if isinstance(value, list | tuple) and value:
        if len(set(map(str, value))) < len(value):
            raise ValueError(f"expected each topic once, got {reprlib.repr(list(value))}")
        return value[0] if len(value) == 1 else value
    return value


def _split_pairs(text: str, expected: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a map written as on the command line and in ROS parameters: train=0.8,val=0.2."""
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"expected {expected}, got {part!r}")
        yield key.strip(), value.strip()


Share = Annotated[float, BeforeValidator(no_switch)]
Seconds = Annotated[float, Field(ge=0.0, le=60.0)]
Moment = Annotated[float | str, BeforeValidator(_parse_moment)]
"""Seconds from the first stamp of the reference topic, or a UTC time (`parse_utc`)."""
Topics = Annotated[tuple[str, ...] | str, BeforeValidator(parse_topics)]
"""One topic, or at least two."""
Place = Annotated[str, Field(min_length=1), AfterValidator(os.path.expanduser)]
"""A path, in which ~ is the user's folder: in files of parameters no shell replaces it."""


class Model(BaseModel):
    """Base of the settings: frozen, and unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, defer_build=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _switches_are_no_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        return value if cls.model_fields[str(info.field_name)].annotation is bool else no_switch(value)


def parse_shares(value: Any) -> Any:
    """Read train=0.8,val=0.2; anything but text remains to the model."""
    if not isinstance(value, str):
        return value
    shares: dict[str, float] = {}
    for group, share in _split_pairs(value, "GROUP=SHARE such as train=0.8"):
        try:
            shares[group] = float(share)
        except ValueError:
            raise ValueError(f"expected a share such as {group}=0.8, got {share!r}") from None
    return shares


def parse_names(value: Any) -> Any:
    """Read car=vehicle,tree= as `parse_shares` does."""
    return dict(_split_pairs(value, "LABEL=NAME such as car=vehicle")) if isinstance(value, str) else value


def parse_globs(value: Any) -> Any:
    """Read test=night*,test=rain* as `parse_shares` does; a single pattern in a map becomes a list of one."""
    if isinstance(value, dict):
        return {group: [glob] if isinstance(glob, str) else glob for group, glob in value.items()}
    if not isinstance(value, str):
        return value
    found: dict[str, list[str]] = {}
    for group, glob in _split_pairs(value, "GROUP=GLOB such as test=night*"):
        found.setdefault(group, []).append(glob)
    return found


@functools.lru_cache(maxsize=256)  # called for settings with every frame
def to_ns(seconds: float) -> int:
    """Return seconds as whole nanoseconds, without the error of a float."""
    return round(Fraction(str(seconds)) * SECOND)


def parse_utc(text: Any) -> int:
    """Return ns since the epoch of a UTC time in ISO 8601 with Z; raises ValueError for anything else."""
    form = r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:(?<=:\d\d)\.(\d{1,9}))?Z"
    found = re.fullmatch(form, text, re.ASCII) if isinstance(text, str) else None
    try:
        if found is None:
            raise ValueError(text)
        whole = datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00")
    except ValueError:
        expected = "seconds, or a UTC time such as 2026-01-15T12:00:05Z"
        raise ValueError(f"expected {expected}, got {reprlib.repr(text)}") from None
    return int(whole.timestamp()) * SECOND + int((found[3] or "").ljust(9, "0"))
