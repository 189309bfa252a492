# SPDX-License-Identifier: Apache-2.0
"""CUB and PCD: radar cubes and point clouds."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from typing import Any

from edgefirst_ros import streams
from edgefirst_ros.dataset.validate.report import rule
from edgefirst_ros.dataset.validate.subject import Subject
from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.sensors.cloud import decode_cloud
from edgefirst_ros.sensors.cube import ORDER, RANGE, SEQUENCE
from edgefirst_ros.sensors.picture_file import png_chunks

PREFIX = b"edgefirst:"
CUBES, CLOUDS = streams.kinds("cube"), streams.kinds("cloud")
AXES = {"x", "y", "z"}


@rule("CUB001", "error", "radar cubes are whole 16-bit grayscale PNG files")
def cube_form(subject: Subject) -> Iterator[tuple[str, str]]:
    """Chunks, their CRC and the header; the values themselves are not decoded."""
    view = subject.view
    if view is None or view.kind not in CUBES or not view.data:
        return
    texts: dict[str, str] = {}
    try:
        for kind, body in png_chunks(view.data):
            if kind == b"IHDR":
                width, height, depth, colour = struct.unpack_from(">IIBB", body)
            elif kind == b"tEXt" and body[: len(PREFIX)] == PREFIX:
                keyword, _, value = bytes(body[len(PREFIX) :]).partition(b"\0")
                texts[keyword.decode("latin-1")] = value.decode("latin-1")
    except (EdgeFirstError, ValueError, struct.error) as error:
        yield view.name, str(error)
        return
    if (depth, colour) != (16, 0):
        yield view.name, f"has {depth} bits and colour type {colour}, expected 16 bits grayscale (0)"
    view.notes |= {"size": (width, height), "texts": texts}


@rule("CUB002", "error", "the description in a cube is JSON and fits its picture")
def cube_description(subject: Subject) -> Iterator[tuple[str, str]]:
    """The description is ours: a cube of another tool has none."""
    view = subject.view
    texts = view.notes.get("texts") if view else None
    if view is None or not texts:
        return
    try:
        view.notes["description"] = stated = {key: json.loads(value) for key, value in texts.items()}
        fault = _cube_fault(stated, *view.notes["size"])
    except (ValueError, RecursionError) as error:
        fault = f"is no JSON: {error}"
    if fault:
        yield view.name, f"description {fault}"


@rule("CUB003", "error", "a cube has the stamp that the frames table has")
def cube_stamp(subject: Subject) -> Iterator[tuple[str, str]]:
    """Nanoseconds, exactly."""
    view = subject.view
    stated = view.notes.get("description") if view else None
    column = streams.of_kind(view.kind).column if view and view.kind else None
    wanted = view.row.companions.get(column or "") if view and view.row else None
    if view and stated and wanted is not None and stated.get("timestamp") != wanted:
        yield view.name, f"says {stated.get('timestamp')} ns, the frames table {wanted}"


@rule("PCD001", "error", "point clouds are whole PCD files")
def cloud_form(subject: Subject) -> Iterator[tuple[str, str]]:
    """The header and as many bytes as it says."""
    view = subject.view
    if view is None or view.kind not in CLOUDS or not view.data:
        return
    try:
        view.notes["fields"] = decode_cloud(view.data).dtype.names
    except EdgeFirstError as error:
        yield view.name, str(error)


@rule("PCD002", "warning", "point clouds have x, y and z")
def cloud_axes(subject: Subject) -> Iterator[tuple[str, str]]:
    """Points without a place are of little use."""
    view = subject.view
    fields = view.notes.get("fields") if view else None
    if view and fields and not set(fields) >= AXES:
        yield view.name, f"has fields {', '.join(fields)}"


MEMBER_RULES = (cube_form, cube_description, cube_stamp, cloud_form, cloud_axes)


def _cube_fault(stated: dict[str, Any], width: int, height: int) -> str:
    """Why a description does not fit a picture; empty when it does."""
    missing = {"layout", "shape", "scales", "is_complex", "timestamp"} - set(stated)
    if missing:
        return f"lacks {', '.join(sorted(missing))}"
    layout, shape, scales = stated["layout"], stated["shape"], stated["scales"]
    numbers = isinstance(layout, list) and isinstance(shape, list) and isinstance(scales, list)
    if not numbers or not all(type(n) is int and n > 0 for n in (*layout, *shape)) or len(layout) != len(shape):
        return f"has layout {layout} and shape {shape}"
    if not set(layout) <= set(ORDER) or len(set(layout)) != len(layout):
        return f"has layout {layout}"
    if type(stated["is_complex"]) is not bool or type(stated["timestamp"]) is not int:
        return f"has is_complex {stated['is_complex']!r} and timestamp {stated['timestamp']!r}"
    if stated["is_complex"] and shape[-1] % 2:
        return f"has shape {shape}, the last dimension of a complex cube is even"
    cells = dict(zip(layout, [*shape[:-1], shape[-1] // 2 if stated["is_complex"] else shape[-1]], strict=True))
    lines = cells.get(SEQUENCE, 1) * cells.get(RANGE, 1)
    if lines != height or math.prod(shape) != width * height:
        return f"gives {math.prod(shape)} values on {lines} lines, the picture is {width} x {height}"
    return ""
