# SPDX-License-Identifier: Apache-2.0
"""ROS parameters made from the models of the settings: name, type, description, range and default come from there.

A field becomes a parameter of its name; `streams` becomes one for each sensor and field, such as
`streams.radar.cube.tolerance`. ROS has no "unset": "" represents it, or 0.0 where a number must be positive and -1.0
elsewhere, and the description says so. An empty list is [""], shares are text such as train=0.8,val=0.2.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import reprlib
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from pydantic import BaseModel, ValidationError
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.exceptions import InvalidParameterValueException, NameValidationException
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args

from edgefirst_ros.config.load import PAGE, SettingField, explain, from_ros, list_setting_fields, suggest_nearest
from edgefirst_ros.errors import EdgeFirstError, UsageError, escape_text
from edgefirst_ros.pipeline.health import Status

AnyModel = TypeVar("AnyModel", bound=BaseModel)
AnyNode = TypeVar("AnyNode", bound=Node)
EXTRA = {"string": " (in quotes)", "array": '; none: [""]'}
"""Notation of some JSON schema types in ROS parameters."""
FEW = 12
"""Parameters that a message lists; of more a page has the list, which lacks those of the player."""
RANGES: Mapping[type, Any] = {
    int: ("integer_range", IntegerRange, (1 << 63) - 1),
    float: ("floating_point_range", FloatingPointRange, sys.float_info.max),
}
"""Type of a parameter -> field of its descriptor, class of the range there, largest value."""
ROS_OWN = "qos_overrides."
"""Prefix of parameters that nodes declare for the QoS of their publishers and subscriptions."""


def _describe_expected(field: SettingField) -> str:
    """Describe the values that a field accepts, with the ROS notation of maps, texts and unset values."""
    extra = "" if "enum" in field.schema else EXTRA.get(field.schema["type"], "")
    text = field.expected.replace("a map or ", "") + extra
    return text if field.unset is None else f"{text}; unset: {field.unset!r}"


def _describe_field(field: SettingField) -> ParameterDescriptor:
    described = ParameterDescriptor(
        description=field.schema["description"], additional_constraints=_describe_expected(field)
    )
    if len(field.path) > 1:
        described.description = f"{field.path[-2]}: {described.description}"
    low, high = field.schema.get("minimum", field.schema.get("exclusiveMinimum")), field.schema.get("maximum")
    if field.unset not in (None, ""):
        low = field.unset if low is None else min(low, field.unset)
    if field.type in RANGES and (low, high) != (None, None):
        attribute, kind, most = RANGES[field.type]
        ends = -most if low is None else low, most if high is None else high
        made = kind(from_value=field.type(ends[0]), to_value=field.type(ends[1]))
        setattr(described, attribute, [made])
    return described


@contextlib.contextmanager
def run_node_of(arguments: Sequence[str], make: Callable[[], AnyNode]) -> Iterator[AnyNode]:
    """Start ROS 2 with ROS arguments, and yield the node that `make` makes; at the end, shut down.

    Raises UsageError for wrong arguments.
    """
    atexit.unregister(gc.collect)  # once is enough, however many nodes there were
    atexit.register(gc.collect)  # a node that is not freed leaves the shared memory of Fast DDS behind
    try:
        try:
            rclpy.init(args=list(arguments), signal_handler_options=SignalHandlerOptions.NO)
            if strange := remove_ros_args(list(arguments)):
                raise UsageError(f"unknown argument {strange[0]!r}; parameters are given by --ros-args -p NAME:=VALUE")
            node = make()
        except (RuntimeError, ValueError, NameValidationException) as error:
            raise UsageError(f"ROS arguments: {error}") from None
        yield node
        node.destroy_node()
    except EdgeFirstError:
        rclpy.try_shutdown()
        raise
    rclpy.try_shutdown()  # not after another error, whose traceback holds parts of the node: they would crash


class Diagnostics:
    """Publishes statuses of a node on /diagnostics."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._hardware = socket.gethostname()

    def publish(self, *statuses: Status) -> None:
        """Publish a message with some statuses."""
        array = DiagnosticArray()
        array.header.stamp = self._node.get_clock().now().to_msg()
        for one in statuses:
            values = [
                KeyValue(key=escape_text(key), value=escape_text(str(value))) for key, value in one.values.items()
            ]
            status = DiagnosticStatus(level=bytes([one.level]), name=one.name, message=escape_text(one.message))
            status.hardware_id, status.values = self._hardware, values
            array.status.append(status)
        self.publisher.publish(array)


def declare(node: Node, *models: type[BaseModel], ignored: type[BaseModel] | None = None) -> list[str]:
    """Declare a parameter for each field of the models, with the value given by YAML file or command line.

    To be called once for a node, with all its models. Parameters of the model `ignored`, which a file may have for
    another node, are not declared; returns the names of those that are given. Raises UsageError for a parameter that
    no model has (and names the nearest one), of the wrong type or outside its range.
    """
    given: Mapping[str, Parameter[Any]] = node._parameter_overrides  # only here does rclpy show unused ones
    fields, foreign = list_setting_fields(*models), list_setting_fields(ignored) if ignored else {}
    unknown = [n for n in given if n not in fields and not node.has_parameter(n) and not n.startswith(ROS_OWN)]
    for name in unknown:
        if name not in foreign:
            page = PAGE if len(fields) > FEW else f"; expected {', '.join(fields)}"
            raise UsageError(f"{_place(node)}: unknown parameter {name[:80]!r}{suggest_nearest(name, fields, page)}")
    for name, field in fields.items():
        value = field.default
        if name in given and given[name].type_ != Parameter.Type.NOT_SET:  # which is what ROS makes of []
            value = given[name].value
            if field.type is float and type(value) is int:
                value = float(value)
        texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
        if type(value) is not field.type or (field.type is list and not texts):
            raise _describe_wrong(node, field, value)
        try:
            node.declare_parameter(name, value, _describe_field(field), ignore_override=True)
        except InvalidParameterValueException:
            raise _describe_wrong(node, field, value) from None
    return unknown


def read(node: Node, model: type[AnyModel], changes: Mapping[str, Any] | None = None) -> AnyModel:
    """Return the model with the values of the node's parameters; `changes` override them.

    Raises UsageError that names the parameter, its value and the expected one.
    """
    values = {name: node.get_parameter(name).value for name in list_setting_fields(model)}
    values |= {name: value for name, value in (changes or {}).items() if name in values}
    try:
        return model(**from_ros(values, model))
    except ValidationError as error:
        raise UsageError(explain(error, _place(node), list_setting_fields(model))) from None


def check(
    node: Node, parameters: Sequence[Parameter[Any]], models: Sequence[type[BaseModel]], *, running: bool = True
) -> SetParametersResult:
    """Accept or refuse a change at run time, for `add_on_set_parameters_callback` (after `declare`).

    Only settings that are tagged so may change, to values that the models accept with all the others; with `running`
    False all changes are rejected.
    """
    fields = list_setting_fields(*models)
    changes: dict[str, Any] = {}
    for parameter in parameters:
        name = parameter.name
        if name not in fields or parameter.value == node.get_parameter(name).value:
            continue
        if not (running and fields[name].schema.get("changes")):
            reason = f"{name} cannot change while the node runs: set it before the start"
            return SetParametersResult(successful=False, reason=reason)
        changes[name] = parameter.value
    try:
        for model in models:
            read(node, model, changes)
    except UsageError as error:
        return SetParametersResult(successful=False, reason=str(error))
    return SetParametersResult(successful=True)


def convert_numbers(node: Node, models: Sequence[type[BaseModel]]) -> None:
    """Let whole numbers be set where numbers are intended: `ros2 param set NODE rate 2`.

    ROS 2 Humble has no callback for this; there 2.0 is needed.
    """
    floats = {name for name, field in list_setting_fields(*models).items() if field.type is float}

    def convert(parameters: list[Parameter[Any]]) -> list[Parameter[Any]]:
        return [
            Parameter(p.name, value=float(p.value)) if type(p.value) is int and p.name in floats else p
            for p in parameters
        ]

    if hasattr(node, "add_pre_set_parameters_callback"):
        node.add_pre_set_parameters_callback(convert)


def _place(node: Node) -> str:
    return str(node.get_fully_qualified_name())


def _describe_wrong(node: Node, field: SettingField, value: object) -> UsageError:
    return UsageError(f"{_place(node)}: {field.name}: expected {_describe_expected(field)}, got {reprlib.repr(value)}")
