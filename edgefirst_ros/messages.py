# SPDX-License-Identifier: Apache-2.0
"""Messages of any source: topic, stamps and CDR bytes; decoded by type, in either byte order."""

from __future__ import annotations

import functools
import importlib
import json
import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros import streams
from edgefirst_ros.counts import MISSING_TILE, UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.streams import (
    CUBES,
    FFMPEG,
    MASK,
    ODOMETRY,
    POSE_COVARIANCE,
    POSE_STAMPED,
    TF_MESSAGE,
    TILED,
    TILES,
    VIDEO,
)

KNOWN_TOPICS: dict[str, tuple[str, ...]] = {topic.name: topic.types for topic in streams.list_topics()}
"""Topics of the device, without slash, `rt/` or host name, and the types they may have."""

FORMER = {f"detect/{part}": f"model/{part}" for part in ("boxes2d", "info", "mask", "mask_compressed")}
"""Names of topics until October 2024 -> those of today."""

ABORTING = frozenset({"foxglove_msgs/msg/ImageAnnotations"})
"""Types whose lengths the vendor's codec believes: a false one ends the process (edgefirst-schemas 4.1)."""

LONGEST_DEFINITION = 1 << 20
"""Bytes of the text of a type; a longer one is not read."""
SHORT_TYPE = re.compile(r"^(\w+)/(\w+)$")


class Message(NamedTuple):
    """One message: topic, type, stamps in ns, and CDR bytes with the 4-byte encapsulation header.

    `log_time` is when it was recorded (live: received); `definition` is the text of its type where the
    recording carries one.
    """

    topic: str
    schema: str
    log_time: int
    publish_time: int
    sequence: int
    data: bytes
    definition: bytes = b""
    file: int = 0
    """Number of its file in the recording; sequence numbers of different files are not compared."""


def expand_type(name: str) -> str:
    """Return the long form of a type's name: `pkg/Type` and `pkg/msg/Type` are the same type."""
    return SHORT_TYPE.sub(r"\1/msg/\2", name)


def find_known_name(topic: str, schema: str) -> str | None:
    """Return the device's name for a topic (`camera/h264`), or None where name and type do not fit.

    A leading slash, a leading `rt/` and one unknown first segment (the host) are stripped; of a TFMessage all are.
    """
    name = topic.removeprefix("/").removeprefix("rt/").removeprefix("/")
    if name not in KNOWN_TOPICS and name not in FORMER:
        name = name.rpartition("/")[2] if schema == TF_MESSAGE else name.partition("/")[2]
    name = FORMER.get(name, name)
    return name if schema in KNOWN_TOPICS.get(name, ()) else None


_STAMPS = struct.Struct(">iI"), struct.Struct("<iI")
_WITHOUT_HEADER = frozenset({MASK, TF_MESSAGE})


def read_header_stamp(message: Message) -> int | None:
    """Return the stamp in ns at the head of a message (std_msgs/Header, or CompressedVideo's own), or None."""
    return None if message.schema in _WITHOUT_HEADER else _stamp_at(message.data, _HEAD)


def read_first_stamp(message: Message) -> int | None:
    """Return the stamp in ns at the head of a message, of transforms that of the first one, or None."""
    return _stamp_at(message.data, _HEAD + 4) if message.schema == TF_MESSAGE else read_header_stamp(message)


def _stamp_at(data: bytes, at: int) -> int | None:
    if len(data) < at + 8:
        return None
    seconds, nanoseconds = _STAMPS[data[1] & 1].unpack_from(data, at)
    stamp: int = seconds * 1_000_000_000 + nanoseconds
    return stamp


class _Whole(bytes):
    """Bytes that raise IndexError for a slice beyond their end: mcap-ros2-support would loop for ever."""

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and key.stop > len(self):
            raise IndexError(f"{key.stop} bytes are announced, but {len(self)} are there")
        return super().__getitem__(key)


class FfmpegPacket(NamedTuple):
    """A message of ffmpeg_image_transport: an access unit of video. Source: FFMPEGPacket.msg."""

    frame_id: str
    encoding: str
    """Codec or name of the encoder, and further forms after `;`."""
    data: memoryview

    @classmethod
    def from_cdr(cls, data: bytes) -> FfmpegPacket:
        """Read a little-endian message; raises ValueError when it ends early."""
        _, _, frame_id, _, _, encoding, *_, unit = _Fields(data).read(CDR_FIELDS[FFMPEG])
        return cls(frame_id, encoding, memoryview(unit))


class FrameTransform(NamedTuple):
    """A transform from `child_frame_id` into `frame_id`, both without a leading slash, as tf2 has them."""

    stamp: int
    """ns."""
    frame_id: str
    child_frame_id: str
    translation: tuple[float, float, float]
    """m."""
    rotation: tuple[float, float, float, float]
    """Quaternion x, y, z, w."""


class Transforms(NamedTuple):
    """A message of type TF_MESSAGE. Source: tf2_msgs/TFMessage.msg; the vendor's codec does not have it."""

    transforms: list[FrameTransform]

    @classmethod
    def from_cdr(cls, data: bytes) -> Transforms:
        """Read a little-endian message; raises ValueError when it ends early."""
        (found,) = _Fields(data).read(CDR_FIELDS[TF_MESSAGE])
        return cls(
            [
                _make_transform(seconds * 1_000_000_000 + nanoseconds, parent, child, (x, y, z), (qx, qy, qz, qw))
                for seconds, nanoseconds, parent, child, x, y, z, qx, qy, qz, qw in found
            ]
        )


def list_transforms(schema: str, content: Any) -> list[FrameTransform]:
    """Return the transforms of a decoded message of type TRANSFORM or TF_MESSAGE."""
    if schema == TF_MESSAGE:
        return list(content.transforms)
    moved, turned = content.transform.translation, content.transform.rotation
    stamp = content.stamp.sec * 1_000_000_000 + content.stamp.nanosec
    place, turn = (moved.x, moved.y, moved.z), (turned.x, turned.y, turned.z, turned.w)
    return [_make_transform(stamp, content.frame_id, content.child_frame_id, place, turn)]


def _make_transform(stamp: int, parent: str, child: str, *way: Any) -> FrameTransform:
    return FrameTransform(stamp, parent.removeprefix("/"), child.removeprefix("/"), *way)


class SpaceBox(NamedTuple):
    """A box in space."""

    frame_id: str
    """Without a leading slash."""
    position: tuple[float, float, float]
    """Of its center, m."""
    orientation: tuple[float, float, float, float]
    """x, y, z, w."""
    size: tuple[float, float, float]
    """m, along its own x, y, z."""
    label: str
    """Empty without one."""
    track: str
    """Name of the subject in all messages; empty without one."""


class Cubes(NamedTuple):
    """A message of type CUBES."""

    boxes: list[SpaceBox]

    @classmethod
    def from_cdr(cls, data: bytes) -> Cubes:
        """Read a message as `to_cdr` makes it."""
        return cls([SpaceBox(*one) for one in json.loads(data[_HEAD + 8 :])])

    def to_cdr(self, seconds: int, nanoseconds: int) -> bytes:
        """Return the message with a stamp at its head, where those of ROS have it."""
        return b"\0\1\0\0" + struct.pack("<iI", seconds, nanoseconds) + json.dumps(self.boxes).encode()


OWN = {FFMPEG: FfmpegPacket, TF_MESSAGE: Transforms, CUBES: Cubes}
"""Classes of the types in use that the vendor's codec does not have; their texts in recordings may be wrong."""


@functools.cache
def _find_codec(schema: str) -> Any:
    """Return the class that reads a type: the vendor codec's, or our own; None if only its text describes it."""
    if schema in OWN:
        return OWN[schema]
    package, _, name = schema.partition("/msg/")
    if schema in ABORTING:
        return None
    try:
        return getattr(importlib.import_module("edgefirst.schemas"), package).__dict__.get(name)
    except (AttributeError, ModuleNotFoundError):
        return None


@functools.cache
def _make_decoder(schema: str, definition: bytes) -> Any:
    """Return a decoder of mcap-ros2-support for a type missing from the vendor's codec, made from its text, or None."""
    if not definition.strip() or len(definition) > LONGEST_DEFINITION:
        return None
    from mcap.records import Schema
    from mcap_ros2.decoder import DecoderFactory

    record = Schema(id=1, name=schema, encoding="ros2msg", data=definition)
    try:
        return DecoderFactory().decoder_for("cdr", record)
    except Exception:  # noqa: BLE001  any error on invalid text; None is cached: no retry for every message
        return None


def join_tiles(stamp: int, tiles: Sequence[bytes | None]) -> bytes:
    """Return four messages of video with one stamp, ns, as one of type TILED; None for one that is missing."""
    parts = [b"\0\1\0\0", struct.pack("<iI", *divmod(stamp, 1_000_000_000))]
    for tile in tiles:
        parts += [struct.pack("<i", -1 if tile is None else len(tile)), tile or b""]
    return b"".join(parts)


def _decode_tiles(message: Message) -> list[Any]:
    """Return the decoded messages of all tiles of one; raises MessageError where one is missing or undecodable."""
    found, at = [], _HEAD + 8
    for name in TILES:
        (size,) = struct.unpack_from("<i", message.data, at)
        if size < 0:
            raise MessageError(MISSING_TILE, f"{message.topic}: {name}")
        at += 4 + size
        found.append(decode(message._replace(schema=VIDEO, data=message.data[at - size : at])))
    return found


def decode(message: Message) -> Any:
    """Return the message as an object with the fields of its type; bulk fields are views into `message.data`.

    A message of type TILED returns the four messages of its tiles.

    Raises MessageError(UNDECODABLE) when it ends early or is not such a message.
    """
    if message.schema == TILED:
        return _decode_tiles(message)
    codec = _find_codec(message.schema)
    try:
        if codec is not None:
            data = message.data + NOT_BOXED if message.schema == MASK else message.data
            return codec.from_cdr(make_little_endian(message.schema, data) if data.startswith(BIG_ENDIAN) else data)
        decoder = _make_decoder(message.schema, message.definition)
        if decoder is None:
            raise ValueError("no decoder for this type, and its text does not define one")
        return decoder(_Whole(message.data))
    except Exception as error:  # any error of a foreign codec on bad bytes: the message is not usable
        raise MessageError(UNDECODABLE, f"{message.topic}: {message.schema}: {error}") from error


# ---- fields, and the other byte order: OMG CORBA 3.3 part 2, "CDR Transfer Syntax"; DDSI-RTPS 2.3, 10.2
NOT_BOXED = b"\0"
"""`boxed` of masks from before 2025.03, which end without it; of others it is a byte too much, and ignored."""
BIG_ENDIAN = b"\0\0"
"""The first bytes of a message whose numbers begin with their highest byte."""
_HEAD = 4
"""Bytes before the first field; places of numbers count from after them."""
_KINDS = {"B": "u1", "H": "<u2", "i": "<i4", "I": "<u4", "Q": "<u8", "f": "<f4", "d": "<f8"}

# A form is a run of fields: a letter of _KINDS, s for text, or the form of the items of a sequence, in a tuple.
_TIME = (*"iI",)
_HEADER = (*_TIME, "s")
_BOX = (*"ffffsfffs", "I", *_TIME)
_MASK = (*"IIIs", ("B",), "B")
_TRANSFORM = (*_HEADER, "s", *"d" * 7)
CDR_FIELDS: dict[str, tuple[Any, ...]] = {
    "foxglove_msgs/msg/CompressedVideo": (*_TIME, "s", ("B",), "s"),
    "sensor_msgs/msg/CompressedImage": (*_HEADER, "s", ("B",)),
    "sensor_msgs/msg/Image": (*_HEADER, *"IIsBI", ("B",)),
    FFMPEG: (*_HEADER, *"IIsQBB", ("B",)),
    "sensor_msgs/msg/CameraInfo": (*_HEADER, *"IIs", ("d",), *"d" * 30, *"IIIIIIB"),
    "sensor_msgs/msg/PointCloud2": (*_HEADER, *"II", (*"sIBI",), *"BII", ("B",), "B"),
    "sensor_msgs/msg/NavSatFix": (*_HEADER, *"BH", *"d" * 12, "B"),
    "sensor_msgs/msg/Imu": (*_HEADER, *"d" * 37),
    "geometry_msgs/msg/TransformStamped": _TRANSFORM,
    TF_MESSAGE: (_TRANSFORM,),
    POSE_STAMPED: (*_HEADER, *"d" * 7),
    POSE_COVARIANCE: (*_HEADER, *"d" * 43),
    ODOMETRY: (*_HEADER, "s", *"d" * 85),
    "edgefirst_msgs/msg/RadarCube": (*_HEADER, "Q", ("B",), ("H",), ("f",), ("H",), "B"),
    "edgefirst_msgs/msg/RadarInfo": (*_HEADER, *"ssssB"),
    "edgefirst_msgs/msg/Detect": (*_HEADER, *_TIME * 3, _BOX),
    "edgefirst_msgs/msg/Model": (*_HEADER, *_TIME * 4, _BOX, _MASK),
    "edgefirst_msgs/msg/Mask": _MASK,
    "edgefirst_msgs/msg/ModelInfo": (*_HEADER, ("I",), "B", ("I",), "B", ("s",), *"sss"),
}
"""The fields of each type the codec reads, up to the last one that is not a byte."""


def make_little_endian(schema: str, data: bytes) -> bytes:
    """Return the message with the lowest byte of its numbers first.

    Raises ValueError when it ends early, has a text without an end, or its type is not known.
    """
    if schema not in CDR_FIELDS:
        raise ValueError("big-endian, and its type is not known")
    swapped = bytearray(data)
    swapped[1] = 1
    _Fields(swapped, swap=True).read(CDR_FIELDS[schema])
    return bytes(swapped)


class _Fields:
    """Reads the fields of a message one after the other, and with `swap` turns the bytes of each before."""

    def __init__(self, data: bytes | bytearray, *, swap: bool = False) -> None:
        self._data = data
        self._swap = swap
        self._at = _HEAD

    def read(self, form: tuple[Any, ...]) -> list[Any]:
        """Return the values of the next fields, of a sequence in an array or a list.

        Raises ValueError when the message ends early, or has a text without an end.
        """
        found: list[Any] = []
        for part in form:
            if part == "s":
                found.append(self._text())
            elif not isinstance(part, tuple):
                found.append(self._numbers(part, 1)[0].item())
            elif len(part) == 1 and part[0] in _KINDS:
                found.append(self._numbers(part[0], self._count()))
            else:  # ends with the data: every item takes some
                found.append([self.read(part) for _ in range(self._count())])
        return found

    def _count(self) -> int:
        return int(self._numbers("I", 1)[0])

    def _text(self) -> str:
        size = self._count()
        if not size:
            raise ValueError(f"a text without an end at {self._at}")  # as in data of only zeros
        return bytes(self._numbers("B", size)[:-1]).decode("utf-8", "replace")

    def _numbers(self, letter: str, count: int) -> NDArray[Any]:
        kind = np.dtype(_KINDS[letter])
        begin = self._at + (-(self._at - _HEAD) % kind.itemsize if count else 0)
        self._at = begin + kind.itemsize * count
        if self._at > len(self._data):
            raise ValueError(f"{self._at} bytes are announced, but {len(self._data)} are there")
        numbers: NDArray[Any] = np.frombuffer(self._data, kind, count, begin)
        return numbers.byteswap(inplace=True) if self._swap else numbers
