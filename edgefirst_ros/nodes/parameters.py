# SPDX-License-Identifier: Apache-2.0
"""ROS parameters made from the models of the settings: name, type, description, range and default come from there.

A field becomes a parameter of its name; `streams` becomes one for each sensor and field, such as
`streams.radar.cube.tolerance`. ROS has no "unset": "" stands for it, or 0.0 where a number must be positive and -1.0
elsewhere, and the description says so. An empty list is [""], shares are text such as train=0.8,val=0.2.
"""

from __future__ import annotations

import difflib
import reprlib
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.exceptions import InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter

from edgefirst_ros.config import SENSORS
from edgefirst_ros.config_file import explain
from edgefirst_ros.errors import UsageError

AnyModel = TypeVar("AnyModel", bound=BaseModel)
Value = bool | int | float | str | list[str]

KINDS: Mapping[str, tuple[type, str]] = {
    "boolean": (bool, "true or false"),
    "integer": (int, "a whole number"),
    "number": (float, "a number"),
    "string": (str, "text (in quotes)"),
    "array": (list, 'a list of texts; none: [""]'),
    "object": (str, "text such as train=0.8,val=0.2"),
}
"""Of a type of JSON schema: the Python type of the parameter, and what it is called."""
ROS_OWN = "qos_overrides."
"""Begin of names that nodes declare for their publishers and subscriptions."""


@dataclass(frozen=True)
class _Field:
    """One parameter: `path` leads to its place in the model, `schema` is its JSON schema."""

    path: tuple[str, ...]
    schema: Mapping[str, Any]
    optional: bool

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def type(self) -> type:
        return KINDS[self.schema["type"]][0]

    @property
    def unset(self) -> Value | None:
        """What stands for None; None where a value is needed."""
        if not self.optional:
            return None
        if self.type is str:
            return ""
        positive = self.schema.get("exclusiveMinimum", -1) >= 0 or self.schema.get("minimum", -1) > 0
        return self.type(0 if positive else -1)  # type: ignore[no-any-return]

    @property
    def default(self) -> Value:
        value = self.schema.get("default")
        if self.type is list:
            return list(value or [""])
        if value is None:
            return "" if self.unset is None else self.unset
        return self.type(value)  # type: ignore[no-any-return]

    @property
    def expected(self) -> str:
        """What is allowed, in words."""
        if "enum" in self.schema:
            return ", ".join(self.schema["enum"])
        low, high = self.schema.get("minimum"), self.schema.get("maximum")
        bounds = [f"above {self.schema['exclusiveMinimum']:.15g}"] if "exclusiveMinimum" in self.schema else []
        bounds += [f"at least {low:.15g}"] if low is not None else []
        bounds += [f"at most {high:.15g}"] if high is not None else []
        text = " ".join([KINDS[self.schema["type"]][1], ", ".join(bounds)]).strip()
        return text if self.unset is None else f"{text}; unset: {self.unset!r}"

    def descriptor(self) -> ParameterDescriptor:
        low, high = self.schema.get("minimum", self.schema.get("exclusiveMinimum")), self.schema.get("maximum")
        described = ParameterDescriptor(description=self.schema["description"], additional_constraints=self.expected)
        if len(self.path) > 1:
            described.description = f"{self.path[-2]}: {described.description}"
        if self.unset not in (None, ""):
            low = self.unset if low is None else min(low, self.unset)
        if low is None and high is None:
            return described
        if self.type is int:
            most = (1 << 63) - 1
            ends = {"from_value": -most if low is None else int(low), "to_value": most if high is None else int(high)}
            described.integer_range = [IntegerRange(**ends)]
        elif self.type is float:
            largest = sys.float_info.max
            limits = {"from_value": -largest if low is None else low, "to_value": largest if high is None else high}
            described.floating_point_range = [FloatingPointRange(**{k: float(v) for k, v in limits.items()})]
        return described


def _fields(*models: type[BaseModel]) -> Iterator[_Field]:
    for model in models:
        whole = model.model_json_schema()
        for name, schema in whole["properties"].items():
            inner = schema.get("additionalProperties", schema)
            nested = whole["$defs"][inner["$ref"].rpartition("/")[2]]["properties"] if "$ref" in inner else {}
            if inner is schema and nested:
                yield from (_field((name, key), value) for key, value in nested.items())
            elif nested:  # settings of every sensor
                for sensor in SENSORS:
                    yield from (_field((name, sensor, key), value) for key, value in nested.items())
            else:
                yield _field((name,), schema)


def _field(path: tuple[str, ...], schema: dict[str, Any]) -> _Field:
    choices = schema.get("anyOf", [])
    for choice in choices:
        if choice["type"] != "null":
            schema = {**schema, **choice}
    return _Field(path, schema, bool(choices))


def declare(node: Node, *models: type[BaseModel]) -> None:
    """Declare a parameter for each field of the models, with the value given by YAML file or command line.

    To be called once for a node, with all its models. Raises UsageError for a parameter that no model has (and names
    the nearest one), of the wrong type or outside its range.
    """
    given: Mapping[str, Parameter[Any]] = node._parameter_overrides  # rclpy tells unused ones nowhere else
    fields = {field.name: field for field in _fields(*models)}
    for name in given:
        if name not in fields and not node.has_parameter(name) and not name.startswith(ROS_OWN):
            near = difflib.get_close_matches(name, fields, 1, 0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{_place(node)}: unknown parameter {name[:80]!r}{hint}")
    for name, field in fields.items():
        value = field.default
        if name in given and given[name].type_ != Parameter.Type.NOT_SET:  # which is what ROS makes of []
            value = given[name].value
            if field.type is float and type(value) is int:
                value = float(value)
        texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
        if type(value) is not field.type or (field.type is list and not texts):
            raise _wrong(node, field, value)
        try:
            node.declare_parameter(name, value, field.descriptor(), ignore_override=True)
        except InvalidParameterValueException:
            raise _wrong(node, field, value) from None


def read(node: Node, model: type[AnyModel], changes: Mapping[str, Any] | None = None) -> AnyModel:
    """The model with the values of the node's parameters, those of `changes` before them.

    Raises UsageError that names the parameter, what was found and what is expected.
    """
    values: dict[str, Any] = {}
    for field in _fields(model):
        value = node.get_parameter(field.name).value
        if changes and field.name in changes:
            value = changes[field.name]
        if value == field.default:
            continue
        inner = values
        for key in field.path[:-1]:
            inner = inner.setdefault(key, {})
        unset = field.unset is not None and value == field.unset
        inner[field.path[-1]] = None if unset else [v for v in value if v] if isinstance(value, list) else value
    try:
        return model(**values)
    except ValidationError as error:
        raise UsageError(explain(error, _place(node))) from None


def check(
    node: Node, parameters: Sequence[Parameter[Any]], models: Sequence[type[BaseModel]], changeable: Container[str]
) -> SetParametersResult:
    """Answer of a node to a change at run time, for `add_on_set_parameters_callback` (after `declare`).

    Only the fields named by `changeable` may change, to values that the models accept with all the others.
    """
    fields = {field.name: field for field in _fields(*models)}
    changes: dict[str, Any] = {}
    for parameter in parameters:
        name = parameter.name
        if name not in fields or parameter.value == node.get_parameter(name).value:
            continue
        if fields[name].path[0] not in changeable:
            reason = f"{name} cannot change while the node runs: set it before the start"
            return SetParametersResult(successful=False, reason=reason)
        changes[name] = parameter.value
    try:
        for model in models:
            read(node, model, changes)
    except UsageError as error:
        return SetParametersResult(successful=False, reason=str(error))
    return SetParametersResult(successful=True)


def _place(node: Node) -> str:
    return str(node.get_fully_qualified_name())


def _wrong(node: Node, field: _Field, value: object) -> UsageError:
    return UsageError(f"{_place(node)}: {field.name}: found {reprlib.repr(value)}, expected {field.expected}")
