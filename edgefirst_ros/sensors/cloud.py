# SPDX-License-Identifier: Apache-2.0
"""Point clouds: any PointCloud2 as PCD 0.7, values bit-exact, and back.

Source: PCD file format 0.7 (Point Cloud Library).
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import CANNOT_BE_STORED
from edgefirst_ros.errors import DatasetError, MessageError, need
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from edgefirst.schemas.sensor_msgs import PointCloud2

Form = Literal["binary", "binary_compressed", "ascii"]
DATATYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}
"""numpy kinds of PointField.datatype."""
KINDS = {"I": "i", "U": "u", "F": "f"}
KEYS = ("VERSION", "FIELDS", "SIZE", "TYPE", "COUNT", "WIDTH", "HEIGHT", "VIEWPOINT", "POINTS", "DATA")
"""Header lines of a PCD file in their order."""
FIELD_NAME = re.compile(r"[^\s#\x00-\x20\x7f-\x9f][^\s\x00-\x20\x7f-\x9f]*")
"""Valid names in the FIELDS line: no space, no control character, no comment."""
DIGITS = 10
"""Most digits of a width, a height or a number of points."""
HEADER_LIMIT = 65536
"""Bytes in which the header of a PCD file must end."""
PIECE = 1 << 14
"""Points that are made into text at a time."""
SPEEDS = (
    *("speed", "radial_speed", "radial_velocity", "radar_relative_radial_velocity"),
    *("doppler", "v_doppler_mps", "range_rate", "vrad", "v_r", "velocity", "v"),
)
"""Fields with the speed of a radar's target along the ray, m/s, away is positive, in small letters."""
MOST_SHARED = 4
"""Fields may overlap, but not take more than so many times the bytes of the points."""
LZF_LIMIT = 88
"""LZF makes at most 264 bytes of three; a file that claims more is rejected before anything is allocated."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: str
    offset: int
    count: int

    @property
    def size(self) -> int:
        return int(self.kind[1]) * self.count


def check_cloud(message: PointCloud2, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise MessageError(CANNOT_BE_STORED) for a cloud that contradicts its description.

    Unknown datatypes, names that a PCD header cannot hold, data shorter than announced, more than `limits.cloud_points`
    points, no fields; where it has points, fields that exceed them.
    """
    _read_fields(message)
    points, most = message.width * message.height, limits.cloud_points
    if points > most:
        raise MessageError(CANNOT_BE_STORED, f"cloud of {points} points, more than {most} (limits.cloud_points)")


def encode_cloud(
    message: PointCloud2, data: Form = "binary", extra_nan: tuple[str, ...] = ()
) -> list[bytes | memoryview]:
    """Return the PCD file of a cloud as buffers to be written one after the other.

    Fields are the message's in offset order, without padding, little-endian; `extra_nan` names float32 fields to add as
    NaN where the message has no such field. A packed little-endian message is not copied: its buffer is the second one.
    Raises MessageError as check_cloud does, for any size.
    """
    fields = _read_fields(message)
    extra = [_Field(name, "f4", 0, 1) for name in extra_nan if all(field.name != name for field in fields)]
    points = message.width * message.height
    body = message.data.view()
    step = sum(field.size for field in fields)
    ends = itertools.accumulate((field.size for field in fields), initial=0)
    in_line = [*ends] == [*(field.offset for field in fields), message.point_step]
    packed = in_line and (message.height <= 1 or message.row_step == message.width * step)
    header = _make_header([*fields, *extra], message.width, message.height, data)
    if data == "binary" and packed and not extra and not message.is_bigendian:
        return [header, body[: points * step]]
    table = _fill_table(message, fields, extra)
    for field in extra:
        table[field.name] = np.nan
    if data == "ascii":
        return [header, _format_points(table)]
    return [header, _compress_columns(table) if data == "binary_compressed" else table.view(np.uint8).data]


def find_speed_field(names: Iterable[str]) -> str | None:
    """Return the field of a radar's points that has the speed along the ray; None without one."""
    known = {name.lower(): name for name in names}
    return next((known[name] for name in SPEEDS if name in known), None)


def read_points(message: PointCloud2) -> NDArray[Any]:
    """Return the points of a message, as `decode_cloud` of its PCD file. Raises MessageError as check_cloud does."""
    return _fill_table(message, _read_fields(message))


def make_pcd_header(record: np.dtype[Any], width: int, height: int) -> bytes:
    """Return the header of a binary PCD file of points of a structured type without padding, viewed from the origin."""
    columns = [(name, record[name].base, record[name]) for name in record.names or ()]
    fields = [_Field(name, base.str[1:], 0, whole.itemsize // base.itemsize) for name, base, whole in columns]
    return _make_header(fields, width, height, "binary")


def _make_header(fields: Sequence[_Field], width: int, height: int, data: Form) -> bytes:
    columns = [(field.name, field.kind[1], field.kind[0].upper(), str(field.count)) for field in fields]
    described = map(" ".join, zip(*columns, strict=True)) if columns else [""] * 4
    values = "0.7", *described, width, height, "0 0 0 1 0 0 0", width * height, data
    return "".join(f"{key} {value}\n" for key, value in zip(KEYS, values, strict=True)).encode()


def decode_cloud(pcd: bytes) -> NDArray[Any]:
    """Return the points of a PCD file: structured, little-endian, shape (points,); a field of COUNT n > 1 has n values.

    Raises DatasetError when header or data are broken.
    """
    return decode_grid(pcd).reshape(-1)


def decode_grid(pcd: bytes, *, writable: bool = True) -> NDArray[Any]:
    """Return the points with shape (height, width); (1, points) if they are unorganised. Raises DatasetError.

    `writable`: False where they are only read, which saves a copy.
    """
    try:
        last = pcd.find(b"\nDATA ", 0, HEADER_LIMIT)
        end = pcd.find(b"\n", last + 1, HEADER_LIMIT) + 1 if last >= 0 else 0
        start, record, width, height, form = _read_header(pcd[: end or HEADER_LIMIT])
        points = width * height
        body = memoryview(pcd)[start:]
        if form == "ascii":
            table = _from_text(bytes(body), record, points)
        elif form == "binary_compressed":
            table = _decompress_columns(body, record, points)
        elif form != "binary":
            raise ValueError(f"data form {form!r}")
        elif len(body) < points * record.itemsize:
            raise ValueError(f"{len(body)} bytes for {points} points of {record.itemsize}")
        else:
            table = np.frombuffer(body, record, points)
            table = table.copy() if writable else table  # the bytes of a file cannot be written to
        return table.reshape(height, width)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, struct.error) as error:
        raise DatasetError(f"PCD cannot be read: {error}") from error


def _read_fields(message: PointCloud2) -> Sequence[_Field]:
    fields = _check_fields(tuple((one.offset, one.name, one.datatype, one.count) for one in message.fields))
    width, height, step = message.width, message.height, message.point_step
    if not width or not height:
        return fields
    for described in fields:
        if described.offset + described.size > step:
            where = f"field {described.name!r} at {described.offset}"
            raise MessageError(CANNOT_BE_STORED, f"{where} leaves the point of {step} bytes")
    if sum(described.size for described in fields) > MOST_SHARED * step:
        raise MessageError(CANNOT_BE_STORED, f"{len(fields)} fields share a point of {step} bytes")
    if height > 1 and message.row_step < width * step:
        raise MessageError(CANNOT_BE_STORED, f"rows of {message.row_step} bytes for {width} points of {step}")
    needed = (height - 1) * message.row_step + width * step
    if len(message.data) < needed:
        raise MessageError(CANNOT_BE_STORED, f"{len(message.data)} bytes for {width} x {height} points of {step}")
    return fields


@functools.lru_cache(16)
def _check_fields(described: tuple[tuple[int, str, int, int], ...]) -> tuple[_Field, ...]:
    """The checked fields of (offset, name, datatype, count) in offset order: the same for all clouds of a topic."""
    fields: list[_Field] = []
    for offset, name, datatype, count in sorted(described, key=operator.itemgetter(0)):
        if datatype not in DATATYPES:
            raise MessageError(CANNOT_BE_STORED, f"field {name!r} has the unknown datatype {datatype}")
        if not FIELD_NAME.fullmatch(name) or any(name == other.name for other in fields):
            raise MessageError(CANNOT_BE_STORED, f"field name {name!r} does not fit into a PCD header")
        fields.append(_Field(name, DATATYPES[datatype], offset, max(1, count)))
    if not fields:
        raise MessageError(CANNOT_BE_STORED, "a cloud without fields")
    return tuple(fields)


def _fill_table(message: PointCloud2, fields: Sequence[_Field], extra: Sequence[_Field] = ()) -> NDArray[Any]:
    """Return a packed table of all points with the fields, of any steps and byte order, and those of `extra` unset."""
    table = np.empty(message.width * message.height, _record([*fields, *extra]))
    order = ">" if message.is_bigendian else "<"
    shape, data = (message.height, message.width), message.data.view()
    for field in fields if len(table) else ():
        size = int(field.kind[1])
        # As unsigned integers, so that no NaN is touched on the way.
        raw: NDArray[Any] = np.ndarray(
            (*shape, field.count), f"{order}u{size}", data, field.offset, (message.row_step, message.point_step, size)
        )
        column = table[field.name].reshape(*shape, field.count)
        column.view(f"<u{size}")[...] = raw
    return table


def _record(fields: Sequence[_Field]) -> np.dtype[Any]:
    return np.dtype([(f.name, "<" + f.kind) if f.count == 1 else (f.name, "<" + f.kind, (f.count,)) for f in fields])


def _format_points(table: NDArray[Any]) -> bytes:
    """Return one line per point; floats in the shortest form that reads back as the same value."""
    found = []
    for first in range(0, len(table), PIECE):  # a number as an object takes ten times its bytes
        words = []
        for name in table.dtype.names or ():
            # str of a numpy float is the shortest form of its own width; of the item it would be that of a double.
            words += [list(map(str, values)) for values in _read_numbers(table[first : first + PIECE][name])]
        found.append("".join(" ".join(line) + "\n" for line in zip(*words, strict=True)).encode())
    return b"".join(found)


def _read_numbers(column: NDArray[Any]) -> Iterable[NDArray[Any]]:
    """Return the values of a field, of a COUNT above 1 one after the other."""
    return column.T if column.ndim > 1 else [column]


def _from_text(body: bytes, record: np.dtype[Any], points: int) -> NDArray[Any]:
    words = body.split()
    per_point = sum(record[name].itemsize // record[name].base.itemsize for name in record.names or ())
    if len(words) != points * per_point:
        raise ValueError(f"{len(words)} values for {points} points of {per_point}")
    table, first = np.empty(points, record), 0
    for name in record.names or ():
        kind, column = record[name].base, table[name]
        for values in _read_numbers(column):
            numbers = words[first::per_point]
            first += 1
            values[...] = np.array(numbers if kind.kind == "f" else list(map(int, numbers)), kind)
    return table


def check_form(data: Form) -> None:
    """Raise EdgeFirstError if the extra that writes PCD files of this form is not installed."""
    if data == "binary_compressed":
        need("PCD in the form binary_compressed", "lzf", "lzf")


def _load_lzf() -> Any:
    check_form("binary_compressed")
    return import_module("lzf")


def _compress_columns(table: NDArray[Any]) -> bytes:
    """Sizes and LZF data: the columns one after the other, as PCL writes them."""
    lzf = _load_lzf()
    plain = b"".join(table[name].tobytes() for name in table.dtype.names or ())
    # The codec returns None if compression saves no bytes; then literal runs of at most 32 are written.
    packed = (lzf.compress(plain) if plain else b"") or b"".join(
        bytes((len(plain[n : n + 32]) - 1,)) + plain[n : n + 32] for n in range(0, len(plain), 32)
    )
    return struct.pack("<II", len(packed), len(plain)) + packed


def _decompress_columns(body: memoryview, record: np.dtype[Any], points: int) -> NDArray[Any]:
    packed, size = struct.unpack_from("<II", body)
    if size != points * record.itemsize or packed > len(body) - 8 or size > LZF_LIMIT * packed:
        raise ValueError(f"{packed} bytes that unpack to {size} for {points} points of {record.itemsize}")
    plain = _load_lzf().decompress(bytes(body[8 : 8 + packed]), size) if size else b""
    if plain is None or len(plain) != size:
        raise ValueError("LZF data are broken")
    table, first = np.empty(points, record), 0
    for name in record.names or ():
        width = record[name].itemsize * points
        column = np.frombuffer(plain[first : first + width], record[name].base)
        table[name].view(f"<u{column.itemsize}")[...] = column.view(f"<u{column.itemsize}").reshape(table[name].shape)
        first += width
    return table


@functools.lru_cache(256)
def _read_header(head: bytes) -> tuple[int, np.dtype[Any], int, int, str]:
    """Return where the data begin, record, width, height and form of data: many clouds have the same header."""
    header: dict[str, list[str]] = {}
    start = 0
    while "DATA" not in header:
        end = head.find(b"\n", start, HEADER_LIMIT)
        if end < 0:
            raise ValueError("no DATA line")
        line = head[start:end].decode()
        words = line.split()
        if words and not words[0].startswith("#"):
            if line[0].isspace() or words[0] in header:  # readers differ in which line counts
                raise ValueError(f"{words[0][:16]!r} is {'indented' if line[0].isspace() else 'there twice'}")
            header[words[0]] = words[1:]
        start = end + 1
    record = _record_of(header)
    width, height, points = (_parse_number(header, key) for key in ("WIDTH", "HEIGHT", "POINTS"))
    if points != width * height:
        raise ValueError(f"{points} points for {width} x {height}")
    return start, record, width, height, header["DATA"][0]


def _parse_number(header: dict[str, list[str]], key: str) -> int:
    """Return a number of the header, of plain digits: others are read by some and not by others."""
    (word,) = header[key]
    if not (word.isascii() and word.isdigit() and len(word) <= DIGITS):
        raise ValueError(f"{key} is {word[:DIGITS]!r}, expected up to {DIGITS} digits")
    return int(word)


def _record_of(header: dict[str, list[str]]) -> np.dtype[Any]:
    names, sizes, letters = header["FIELDS"], header["SIZE"], header["TYPE"]
    counts = header.get("COUNT", ["1"] * len(names))
    fields = []
    for name, size, letter, count in zip(names, sizes, letters, counts, strict=True):
        number = int(count)
        if size not in ("1", "2", "4", "8") or (letter == "F" and size in ("1", "2")) or not 1 <= number < HEADER_LIMIT:
            raise ValueError(f"field {name!r} has size {size}, type {letter} and count {count}")
        fields.append(_Field(name, KINDS[letter] + size, 0, number))
    return _record(fields)
