# SPDX-License-Identifier: Apache-2.0
"""Loads settings from a YAML file, options and ROS parameters, and explains the fault with them."""

from __future__ import annotations

import difflib
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from edgefirst_ros.config import SENSORS, LiveSettings, Settings
from edgefirst_ros.config.values import TAGS
from edgefirst_ros.errors import UsageError
from edgefirst_ros.streams import RIG_KEYS, is_key

AnyModel = TypeVar("AnyModel", bound=BaseModel)
Value = bool | int | float | str | list[str]
MOST_FAULTS = 20
"""Most faults that are explained; of further ones the number is given."""
NESTED = ("streams", "limits")
"""Nested settings: options override single ones of those in a file."""
NAMED = re.compile(r"`(\w+)`")
"""A setting in a message."""
UNIT = re.compile(r", (s|Hz|pixels|bytes|values|points|bytes per second)(?=[;,]|$)")
"""The unit of a number, in its description."""
TYPES: Mapping[str, tuple[type, str]] = {
    "boolean": (bool, "true or false"), "integer": (int, "a whole number"), "number": (float, "a number"),
    "string": (str, "text"), "array": (list, "a list of texts such as [A, B]"), "object": (str, "a map"),
}  # fmt: skip
"""JSON schema type -> Python type of the ROS parameter, and its name in messages."""


# ---- single settings ---------------------------------------------------------------------------
@dataclass(frozen=True)
class SettingField:
    """One leaf setting: `path` in its model, and its JSON `schema`."""

    path: tuple[str, ...]
    schema: Mapping[str, Any]
    optional: bool
    """True if it may be unset (None)."""

    @property
    def name(self) -> str:
        """Its name on the command line and as a ROS parameter, such as streams.radar.cube.tolerance."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """Its option on the command line, or its form of --set."""
        if self.schema["option"] is None:
            return f"--set {self.name}"
        return self.schema["flag"] or f"--{self.name.replace('_', '-')}"

    @property
    def type(self) -> type:
        """Type of a ROS parameter: bool, int, float, str or list."""
        return TYPES[self.schema["type"]][0]

    @property
    def unset(self) -> Value | None:
        """Value that means None in a ROS parameter: "", or 0 if it must be positive, or -1; None if required."""
        if not self.optional:
            return None
        if self.type is str:
            return ""
        positive = self.schema.get("exclusiveMinimum", -1) >= 0 or self.schema.get("minimum", -1) > 0
        return self.type(0 if positive else -1)  # type: ignore[no-any-return]

    @property
    def default(self) -> Value:
        """Default of the ROS parameter."""
        value = self.schema.get("default")
        if self.type is list:
            return list(value or [""])
        if value is None:
            return "" if self.unset is None else self.unset
        return self.type(value)  # type: ignore[no-any-return]

    @property
    def expected(self) -> str:
        """Accepted values, in words."""
        if "enum" in self.schema:
            return f"one of {', '.join(self.schema['enum'])}"
        low, high = self.schema.get("minimum"), self.schema.get("maximum")
        bounds = [f"above {self.schema['exclusiveMinimum']:.15g}"] if "exclusiveMinimum" in self.schema else []
        bounds += [f"at least {low:.15g}"] if low is not None else []
        bounds += [f"at most {high:.15g}"] if high is not None else []
        if bounds and (unit := UNIT.search(self.schema["description"])):
            bounds[-1] += f" {unit[1]}"
        bounds += [f"at least {self.schema['minLength']} character"] if "minLength" in self.schema else []
        kind = TYPES[self.schema["type"]][1]
        such = "such as" if kind == "text" else "or text such as"
        bounds += [f"{such} {example}" for example in self.schema.get("examples", ())]
        return f"{kind} {', '.join(bounds)}".strip()


@cache
def list_setting_fields(*models: type[BaseModel]) -> Mapping[str, SettingField]:
    """Return {name: leaf setting} of the models; those of `streams` once for each companion sensor."""
    return {field.name: field for model in models for field in _list_fields(model.model_json_schema())}


def _list_fields(whole: Mapping[str, Any]) -> Iterator[SettingField]:
    for name, schema in whole["properties"].items():
        inner = schema.get("additionalProperties", schema)
        nested = whole["$defs"][inner["$ref"].rpartition("/")[2]]["properties"] if "$ref" in inner else {}
        if inner is schema and nested:
            outer = {tag: schema[tag] for tag in TAGS if tag in schema}
            yield from (_find_field((name, key), {**outer, **value}) for key, value in nested.items())
        elif nested:  # settings of every sensor
            for sensor in SENSORS:
                yield from (_find_field((name, sensor, key), value) for key, value in nested.items())
        else:
            yield _find_field((name,), schema)


def _find_field(path: tuple[str, ...], schema: dict[str, Any]) -> SettingField:
    choices = schema.get("anyOf", [])
    for choice in choices:
        if choice["type"] != "null":
            schema = {**schema, **choice}
    return SettingField(path, schema, bool(choices))


PAGE = "; the page Settings of the documentation lists them"
OTHER_NAMES = {
    **dict.fromkeys(("fps", "hz", "frame_rate"), "rate"),
    **dict.fromkeys(("topic", "camera"), "reference_topic"),
    **dict.fromkeys(("from", "begin", "since"), "start"),
    "width": "max_width",
    "quality": "jpeg_quality",
}
"""Names of settings that users try, and what they mean."""


def suggest_nearest(name: str, known: Iterable[str], otherwise: str = PAGE) -> str:
    """Return `; did you mean '...'?` with the nearest known name; without one, where all are listed."""
    names = list(known)
    meant, key = OTHER_NAMES.get(name), name.removeprefix("rig.")
    if meant is None and "rig" in names and (key != name or key in RIG_KEYS or is_key(key)):
        return f"; write it as a line of a rig: rig: {{{key}: /TOPIC}}"
    if inner := next((one for one in names if one.startswith(f"{name}.")), None):
        return f"; set one that begins so, such as {inner}"
    near = [meant] if meant in names else difflib.get_close_matches(name, names, 1, 0.65)
    return f"; did you mean {near[0]!r}?" if near else otherwise


def put(values: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    """Set a value in nested maps, creating missing ones.

    Raises UsageError where something on the way is not a map.
    """
    for key in path[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise UsageError(f"{'.'.join(path)}: expected `key: value` lines under {key}, got {_shorten(values)}")
    values[path[-1]] = value


def read_texts(texts: Mapping[str, str], *models: type[BaseModel]) -> dict[str, Any]:
    """Return nested settings of the models given as text by name: a list has commas, empty text unsets.

    Raises UsageError for an unknown one.
    """
    fields, values = list_setting_fields(*models), dict[str, Any]()
    for name, text in texts.items():
        field = fields.get(name)
        if field is None:
            raise UsageError(f"--set: unknown setting {_shorten(name)}{suggest_nearest(name, fields)}")
        listed = [part for part in map(str.strip, text.split(",")) if part]
        put(values, field.path, None if field.optional and not text else listed if field.type is list else text)
    return values


# ---- files -------------------------------------------------------------------------------------
def load(
    path: str | os.PathLike[str] | None,
    *,
    texts: Mapping[str, str] | None = None,
    note: Callable[[str], None] | None = None,
    **options: Any,
) -> Settings:
    """Return settings from a YAML file, on top those of `texts`, on top `options` that are not None.

    The file is plain or in the form of ROS parameters. It may be that of a capture: settings of only a capture are
    ignored, and `note` is called with a line that names it. `texts` are settings by full name, such as
    `{"limits.cloud_points": "99"}`: a list is text with commas, empty text unsets what may be unset.
    Raises UsageError that names the key, the found and the expected value and, for an unknown key, the nearest one.
    """
    values = read_values(Path(path)) if path else {}
    ignored = [key for key in values if key in LiveSettings.model_fields]
    if ignored and note is not None:
        note(f"{path}: only for a capture, ignored here: {', '.join(ignored)}")
    values = {key: value for key, value in values.items() if key not in ignored}
    given = read_texts(texts or {}, Settings) | {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        values[key] = _merge_maps(values.get(key), value) if key in NESTED else value
    try:
        return Settings(**values)
    except ValidationError as error:
        fields = list_setting_fields(Settings, LiveSettings)
        raise UsageError(explain(error, str(path or ""), fields, options=given, typed=texts or ())) from None


def load_model(
    model: type[AnyModel], texts: Mapping[str, str], values: Mapping[str, Any] | None = None, source: str = ""
) -> AnyModel:
    """Return a model of the `values` in a file, on top those of `texts`.

    Raises UsageError that names the wrong one, and its flag or `source`.
    """
    given = read_texts(texts, model)
    try:
        return model(**{**(values or {}), **given})
    except ValidationError as error:
        raise UsageError(explain(error, source, list_setting_fields(model), options=given, typed=given)) from None


def _merge_maps(below: object, above: object) -> object:
    """Return nested maps with those of `above` on top; `above` where one of them is not a map."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {key: _merge_maps(below.get(key), value) for key, value in above.items()}


def read_values(path: Path) -> dict[str, Any]:
    """Return the content of a settings file by key, not validated; a rig may be a file beside it.

    Raises UsageError if it cannot be read.
    """
    from edgefirst_ros.config.yaml_file import read_yaml  # PyYAML takes as long to load as ten pictures to convert

    content, of_ros = read_yaml(path), False
    for _ in range(2):  # /**: ros__parameters: {...}
        if not isinstance(content, dict) or len(content) != 1:
            break
        key, inner = next(iter(content.items()))
        if key != "ros__parameters" and not (
            isinstance(inner, dict) and ("ros__parameters" in inner or str(key).startswith("/"))
        ):
            break
        content, of_ros = inner, of_ros or key == "ros__parameters"
    content = {} if content is None else content
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise UsageError(f"{path}: settings must be `key: value` lines")
    values = from_ros(content, Settings) if of_ros else content
    rig = values.get("rig")
    if isinstance(rig, str) and not os.path.isfile(rig) and os.path.isfile(path.parent / rig):
        values = {**values, "rig": str(path.parent / rig)}
    return values


def from_ros(content: Mapping[str, Any], *models: type[BaseModel]) -> dict[str, Any]:
    """Return settings of the models from ROS parameters: names split at every dot, unset values resolved."""
    fields, values = list_setting_fields(*models), dict[str, Any]()
    parents = {".".join(field.path[:-1]): field.path[:-1] for field in fields.values()}

    def walk(prefix: str, part: Mapping[str, Any]) -> None:
        for key, value in part.items():
            name = f"{prefix}{key}"
            field = fields.get(name)
            if field is not None:
                if value == field.default and type(value) is field.type:
                    continue
                texts = [text for text in value if text != ""] if isinstance(value, list) else value
                unset = field.unset is not None and type(value) is not bool and value == field.unset
                put(values, field.path, None if unset else texts)
            elif isinstance(value, dict) and any(known.startswith(f"{name}.") for known in fields):
                walk(f"{name}.", value)
            else:
                above = prefix.rstrip(".")
                put(values, parents.get(name, (*parents.get(above, filter(None, above.split("."))), key)), value)

    walk("", content)
    return values


# ---- messages ----------------------------------------------------------------------------------
def explain(
    error: ValidationError,
    source: str,
    fields: Mapping[str, SettingField],
    *,
    options: Iterable[str] = (),
    typed: Iterable[str] = (),
) -> str:
    """Return the fault with settings, a line for each.

    Args:
        error: The faults.
        source: Where the settings come from, empty without a file.
        fields: The known settings.
        options: Keys that do not come from `source`.
        typed: Names of the settings that were given on the command line; the fault names their flag.
    """
    lines, faults = [], error.errors()
    for fault in faults[:MOST_FAULTS]:
        path = tuple(map(str, fault["loc"]))
        path = (path[0], *path[2:]) if path[:2] == ("rig", "sensors") else path
        key = ".".join(path)
        flag = next((fields[name].flag for name in typed if name in fields and f"{name}.".startswith(f"{key}.")), key)
        place = f"{source}: " if source and not (path and path[0] in options) else ""
        if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            known = {field.path[-1 if path[1:] else 0] for field in fields.values() if not path[1:] or field.path[1:]}
            lines.append(f"{place}unknown setting {_shorten(key)}{suggest_nearest(path[-1], sorted(known))}")
        elif fault["type"] == "value_error":
            at = f"{flag[:80]}: " if key else ""
            lines.append(f"{place}{at}{_name_as_typed(fault['msg'].removeprefix('Value error, '), fields, typed)}")
        else:
            lines.append(
                f"{place}{flag[:80]}: expected {_describe_expected(fault, fields)}, got {_shorten(fault['input'])}"
            )
    if faults[MOST_FAULTS:]:
        lines.append(f"{f'{source}: ' if source else ''}and {len(faults) - MOST_FAULTS} more")
    return "\n".join(lines)


def _name_as_typed(text: str, fields: Mapping[str, SettingField], typed: Iterable[str]) -> str:
    """Return a message with its settings, which are in backticks, as flags if one of them was typed, else as names."""
    flags = not {*typed}.isdisjoint(NAMED.findall(text))
    return NAMED.sub(lambda found: fields[found[1]].flag if flags else found[1], text)


EXPECTED = {
    "string_too_short": "text that is not empty",
    "tuple_type": "a list",
    "missing": "one more value",
    "too_long": "at most {max_length} values",
}
"""Expected value by the type of a fault, where its message has no words for it."""


def _describe_expected(fault: ErrorDetails, fields: Mapping[str, SettingField]) -> str:
    """Return the expected value at a fault; for a list item, the expected list."""
    path = tuple(map(str, fault["loc"]))
    whole = fields.get(path[0])
    field = fields.get(".".join(path)) or (whole if whole is not None and whole.type is list else None)
    if field is not None:
        return field.expected
    if any(name.startswith(f"{'.'.join(path)}.") for name in fields):
        return "`key: value` lines"
    if fault["type"] in EXPECTED:
        return EXPECTED[fault["type"]].format(**fault.get("ctx", {}))
    text = fault["msg"].removeprefix("Input should be ").partition(", unable")[0]
    return text[:1].lower() + text[1:]


def _shorten(value: object) -> str:
    """Return a short text of a value of any size and depth: a few lines of YAML can expand to billions of values."""
    if isinstance(value, bool):
        return str(value).lower()
    shown = reprlib.Repr()
    shown.maxlevel, shown.maxstring, shown.maxother = 2, 80, 80
    return shown.repr(value)
