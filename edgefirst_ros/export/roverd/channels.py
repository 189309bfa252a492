# SPDX-License-Identifier: Apache-2.0
"""Channels of roverd, written and read: `raw` (entries of one size), `lzmaf` (an .xz each), clouds, cubes, MJPEG video.

Source: roverd, "data interface", Channel; The .xz File Format 1.2.0.
"""

from __future__ import annotations

import lzma
import math
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from zlib_ng import zlib_ng

from edgefirst_ros.dataset.names import make_safe
from edgefirst_ros.dataset.storage.lock import WriteBehind, open_file, view_bytes, write_at
from edgefirst_ros.dataset.storage.zip_read import Container
from edgefirst_ros.dataset.tables.write import encode_json
from edgefirst_ros.errors import DatasetError, EdgeFirstError, StorageError
from edgefirst_ros.export.importing import read_json
from edgefirst_ros.sensors.cloud import FIELD_NAME, make_pcd_header
from edgefirst_ros.sensors.cube import Cube, encode_cube

STAMPS = "ts"
META = "meta.json"
EXTRINSICS = "extrinsics.json"
INDEX = "_i"
"""Suffix of the file with the offsets of an `lzmaf` channel."""
KINDS = frozenset({"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"})
LARGEST = 1 << 28
"""Bytes of the largest entry that is read."""
MOST = 1 << 23
"""Stamps of a sensor that are read: 11 h at 200 Hz."""
MEMORY = 1 << 28
"""Bytes that unpacking may take; the highest level of xz takes 65 MiB."""
SPARSE = 1 << 16
"""Padding from this many bytes on remains as a hole."""
PLAIN = 1 << 16
"""Bytes of an LZMA2 chunk that is not compressed."""
_MAGIC, _CRC32, _END = b"\xfd7zXZ\0", b"\0\1", b"YZ"
_BLOCK = b"\x02\x00\x21\x01\x00\0\0\0"
"""A block header without its CRC: 12 bytes, one filter, LZMA2 with the smallest dictionary."""
PLACE = ("x", "y", "z")
XYZ, LENGTH, HEIGHT = "xyz", "length", "height"
OWN = frozenset({XYZ, LENGTH, HEIGHT, STAMPS, META, EXTRINSICS})
HEAD = 4096
"""Bytes in which a header of a PCD file usually ends."""
_POINTS = re.compile(rb"^POINTS (\d{1,9})$", re.MULTILINE)
TEXTS = {
    STAMPS: "Timestamp, in seconds since the epoch.",
    XYZ: "Points in the sensor's frame, in metres; zero from `length` on.",
    LENGTH: "Number of points.",
    HEIGHT: "Lines of an organised cloud of length / height columns; 1 of any other.",
}
RATE_LIMIT = 10_000
"""Largest denominator of a picture rate."""


class RawWriter:
    """A `raw` channel while it is written: entries of `shape`, little-endian."""

    def __init__(self, path: Path, kind: str, shape: Sequence[int]) -> None:
        self.described = {"format": "raw", "type": kind, "shape": list(shape)}
        self._dtype = np.dtype(f"<{kind}")
        self._size = self._dtype.itemsize * math.prod(shape)
        self._count = 0
        self._file = path.open("xb", buffering=1 << 20)
        self._behind = WriteBehind(self._file.fileno())

    def append(self, values: ArrayLike) -> None:
        """Add an entry; a shorter one is filled with zeros."""
        data = np.ascontiguousarray(values, self._dtype)
        self._file.write(data.view(np.uint8).data if data.size else b"")
        missing = self._size - data.nbytes
        if missing >= SPARSE:
            self._file.seek(missing, os.SEEK_CUR)
        else:
            self._file.write(bytes(missing))
        self._count += 1
        self._behind.advance(self._count * self._size)

    def close(self) -> None:
        """Complete the file."""
        if not self._file.closed:
            self._file.truncate(self._count * self._size)
            self._file.close()


class FramesWriter:
    """An `lzmaf` channel while it is written."""

    def __init__(self, path: Path, kind: str, shape: Sequence[int]) -> None:
        self.described = {"format": "lzmaf", "type": kind, "shape": list(shape)}
        self._offset = 0
        self._file = path.open("xb", buffering=0)
        self._behind = WriteBehind(self._file.fileno())
        self._index = path.with_name(path.name + INDEX).open("xb")
        self._index.write(bytes(8))

    def append(self, packed: Sequence[bytes | memoryview]) -> None:
        """Add an entry: an .xz as buffers."""
        self._offset = write_at(self._file.fileno(), view_bytes(packed)[0], self._offset)
        self._behind.advance(self._offset)
        self._index.write(struct.pack("<Q", self._offset))

    def close(self) -> None:
        """Complete the files."""
        self._file.close()
        self._index.close()


def pack_stored(data: NDArray[Any]) -> list[bytes | memoryview]:
    """Return an .xz of contiguous `data` as buffers, not compressed.

    LZMA packs some 12 MB/s a processor at its quickest and gains less than half of a radar cube; a disk takes hundreds.
    """
    view = data.reshape(-1).view(np.uint8).data
    parts: list[bytes | memoryview] = [_MAGIC + _CRC32 + _checksum(_CRC32), _BLOCK + _checksum(_BLOCK)]
    size = len(_BLOCK) + 4
    for start in range(0, len(view), PLAIN):
        chunk = view[start : start + PLAIN]
        parts += (struct.pack(">BH", 2 if start else 1, len(chunk) - 1), chunk)
        size += 3 + len(chunk)
    size += 1
    index = b"\0\1" + _encode_number(size + 4) + _encode_number(len(view))
    index += bytes(-len(index) % 4)
    footer = struct.pack("<I", len(index) // 4) + _CRC32  # of index and its CRC, in fours less one
    parts += (b"\0" + bytes(-size % 4), _checksum(view), index, _checksum(index), _checksum(footer) + footer + _END)
    return parts


def _checksum(data: bytes | memoryview) -> bytes:
    return struct.pack("<I", zlib_ng.crc32(data))


def _encode_number(value: int) -> bytes:
    """Return a multibyte integer of .xz."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def write_stamps(
    folder: Path, stamps: Iterable[int], channels: Mapping[str, Any], texts: Mapping[str, str]
) -> list[str]:
    """Write the stamps of a sensor's entries, ns, and describe its channels; returns their names."""
    written = RawWriter(folder / STAMPS, "f8", ())
    for stamp in stamps:
        written.append(stamp / 1e9)
    written.close()
    known = {**TEXTS, **texts}
    described = {
        name: {**channel.described, "desc": known.get(name, f"Field {name!r} of the points.")}
        for name, channel in {STAMPS: written, **channels}.items()
    }
    write_json(folder / META, described)
    return list(described)


def write_json(path: Path, value: object) -> None:
    """A new file of JSON; numbers that are not finite become null."""
    with path.open("x", encoding="utf-8") as file:
        file.write(encode_json(value) + "\n")


class ChannelReader:
    """The channels of a sensor's folder, entries by number. Raises DatasetError where they are not as described."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        found = read_json(folder / META)
        try:
            self.channels: dict[str, tuple[str, np.dtype[Any], tuple[int, ...]]] = {
                name: (channel["format"], _find_dtype(channel["type"]), _parse_shape(channel["shape"]))
                for name, channel in found.items()
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DatasetError(f"{folder / META}: is not a description of channels: {error!r}") from error

    def describe_channel(self, name: str) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
        """(format, type, shape) of a required channel."""
        if name not in self.channels or Path(name).name != name:
            raise DatasetError(f"{self.folder}: has no channel {name!r}")
        return self.channels[name]

    def raw(self, name: str) -> NDArray[Any]:
        """Return all whole entries of a `raw` channel, (N, *shape), mapped."""
        form, dtype, shape = self.describe_channel(name)
        path = self.folder / name
        if form != "raw":
            raise DatasetError(f"{path}: has the format {form!r}, expected 'raw'")
        size = dtype.itemsize * math.prod(shape)
        if size > LARGEST:
            raise DatasetError(f"{path}: has entries of {size} bytes, up to {LARGEST} are read")
        try:
            with open(open_file(path), "rb") as file:
                count = os.fstat(file.fileno()).st_size // size
                return np.memmap(file, dtype, "r", 0, (count, *shape)) if count else np.empty((0, *shape), dtype)
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: cannot be read: {error}") from error

    def count(self, name: str) -> int:
        """Whole entries of a `raw` or `lzmaf` channel."""
        if self.describe_channel(name)[0] == "raw":
            return len(self.raw(name))
        try:
            return max(0, (self.folder / (name + INDEX)).stat().st_size // 8 - 1)
        except OSError as error:
            raise DatasetError(f"{self.folder / name}{INDEX}: cannot be read: {error}") from error

    def stamps(self) -> NDArray[np.int64]:
        """(N,) ns since the epoch. Raises DatasetError where they are not times."""
        seconds = self.raw(STAMPS)
        if len(seconds) > MOST:
            raise DatasetError(f"{self.folder / STAMPS}: has {len(seconds)} stamps, up to {MOST} are read")
        if seconds.ndim != 1 or not np.isfinite(seconds).all() or (np.abs(seconds) > 2**33).any():
            raise DatasetError(f"{self.folder / STAMPS}: these are not seconds since the epoch")
        return np.rint(seconds.astype(np.float64) * 1e9).astype(np.int64)

    def frame(self, name: str, number: int) -> NDArray[Any]:
        """Return one entry of an `lzmaf` channel, of the channel's shape."""
        form, dtype, shape = self.describe_channel(name)
        path = self.folder / name
        size = dtype.itemsize * math.prod(shape)
        if form != "lzmaf" or size > LARGEST:
            raise DatasetError(f"{path}: format {form!r} with entries of {size} bytes, expected 'lzmaf'")
        try:
            with open(open_file(path.with_name(name + INDEX)), "rb") as index, open(open_file(path), "rb") as file:
                index.seek(8 * number)
                begin, end = struct.unpack("<2Q", index.read(16))
                if not begin < end <= min(os.fstat(file.fileno()).st_size, begin + 2 * LARGEST):
                    raise DatasetError(
                        f"{path}: entry {number}: expected its bytes inside the file, found them from {begin} to {end}"
                    )
                file.seek(begin)
                data = lzma.LZMADecompressor(lzma.FORMAT_XZ, MEMORY).decompress(file.read(end - begin), size + 1)
        except (OSError, ValueError, OverflowError, struct.error, lzma.LZMAError) as error:
            raise DatasetError(f"{path}: entry {number} cannot be read: {error}") from error
        if len(data) != size:
            raise DatasetError(f"{path}: entry {number} does not have {size} bytes")
        return np.frombuffer(data, dtype).reshape(shape)


def _find_dtype(kind: str) -> np.dtype[Any]:
    if kind.removeprefix("<") not in KINDS:
        raise ValueError(f"type {kind!r}")
    return np.dtype(f"<{kind.removeprefix('<')}")


def _parse_shape(shape: Sequence[int]) -> tuple[int, ...]:
    if not all(type(side) is int and side > 0 for side in shape):
        raise ValueError(f"shape {shape!r}")
    return tuple(shape)


def has_channels(record: np.dtype[Any]) -> bool:
    """True if points of this kind fit into channels: x, y and z as float32, names that can be those of files."""
    names = record.names or ()
    if not set(PLACE) <= set(names) or any(record[axis] != np.dtype("<f4") for axis in PLACE):
        return False
    others = [name for name in names if name not in PLACE]
    taken = {name + INDEX for name in names} | OWN
    return all(make_safe(name) == name and name not in taken for name in others) and len(
        {name.casefold() for name in others}
    ) == len(others)


def count_most_points(container: Container, names: Iterable[str]) -> int:
    """Return the most points of any of these PCD files, at least 1, from only their headers."""
    most = 1
    for name in names:
        size = container.size(name)
        head = container.head(name, min(size, HEAD))
        found = _POINTS.search(head)
        if found and int(found[1]) <= size:
            most = max(most, int(found[1]))
    return most


def open_cloud_channels(folder: Path, record: np.dtype[Any], most: int) -> dict[str, RawWriter]:
    """Create the channels of clouds of one kind, of up to `most` points."""
    forms: dict[str, tuple[str, Sequence[int]]] = {XYZ: ("f4", (most, 3)), LENGTH: ("i4", ()), HEIGHT: ("i4", ())}
    for name in (name for name in record.names or () if name not in PLACE):
        forms[name] = record[name].base.str[1:], (most, *record[name].shape)
    return {name: RawWriter(folder / name, *form) for name, form in forms.items()}


def split_channels(cloud: NDArray[Any]) -> dict[str, Any]:
    """Return the values of each channel of a cloud (height, width), structured."""
    points = cloud.reshape(-1)
    xyz = np.empty((len(points), 3), "<u4")  # as integers, so that no NaN is touched on the way
    for number, axis in enumerate(PLACE):
        xyz[:, number] = points[axis].view("<u4")
    others = {name: np.ascontiguousarray(points[name]) for name in points.dtype.names or () if name not in PLACE}
    return {XYZ: xyz.view("<f4"), LENGTH: len(points), HEIGHT: len(cloud) or 1, **others}


class CloudReader:
    """PCD files of clouds from channels: x, y, z, then the other fields as described."""

    def __init__(self, reader: ChannelReader) -> None:
        self._xyz, self._length = reader.raw(XYZ), reader.raw(LENGTH)
        if self._xyz.ndim != 3 or self._xyz.shape[2] != 3 or self._xyz.dtype != np.dtype("<f4"):
            raise DatasetError(f"{reader.folder / XYZ}: has entries of {self._xyz.shape[1:]}, expected (points, 3) f4")
        most = self._xyz.shape[1]
        self._height = reader.raw(HEIGHT) if HEIGHT in reader.channels else None
        plain = (name for name, (form, *_) in reader.channels.items() if form == "raw" and name not in OWN)
        fields = {name: reader.raw(name) for name in plain if FIELD_NAME.fullmatch(name) and make_safe(name) == name}
        self._others = {name: values for name, values in fields.items() if values.ndim > 1 and values.shape[1] == most}
        kinds: dict[str, Any] = dict.fromkeys(PLACE, ("<f4", ()))
        kinds |= {name: (values.dtype, values.shape[2:]) for name, values in self._others.items()}
        self._record = np.dtype([(name, *kind) for name, kind in kinds.items()])
        if self._record.itemsize * most > LARGEST:  # files can be sparse
            raise DatasetError(f"{reader.folder}: clouds of up to {most} points are more than {LARGEST} bytes each")
        self._folder = reader.folder

    def __getitem__(self, number: int) -> bytes:
        try:
            length = int(self._length[number])
            height = 1 if self._height is None else int(self._height[number])
            if not 0 <= length <= self._xyz.shape[1] or height < 1 or length % height:
                raise DatasetError(f"{self._folder}: entry {number} has {length} points in {height} lines")
            points = np.empty(length, self._record)
            for axis, name in enumerate(PLACE):
                points[name].view("<u4")[...] = self._xyz[number, :length, axis].view("<u4")
            for name, values in self._others.items():
                points[name] = values[number, :length]
        except (IndexError, TypeError, ValueError, OverflowError) as error:
            raise DatasetError(f"{self._folder}: entry {number} cannot be read: {error}") from error
        return make_pcd_header(points.dtype, length // height, height) + points.tobytes()


# ---- cubes ---------------------------------------------------------------------------------------
CUBE, RADAR = "cube", "radar.json"
AXES = ["sequence", "rx", "range", "doppler", "real and imaginary"]


def turn_cube(values: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return (sequence, rx, range, ...), contiguous, from (sequence, range, rx, ...); or the other way round."""
    return np.ascontiguousarray(values.swapaxes(1, 2))


def describe_cube(cube: Cube) -> dict[str, Any]:
    """Return the content of radar.json; resolutions in m and m/s, null where unknown."""
    return {
        "range_resolution": cube.metres_per_range_bin,
        "doppler_resolution": cube.speed_per_doppler_bin,
        "axes": AXES[: cube.values.ndim],
        "layout": list(cube.layout),
        "shape": list(cube.message_shape),
        "scales": [scale if math.isfinite(scale) else None for scale in cube.scales],
        "is_complex": cube.is_complex,
    }


def write_cube(values: NDArray[np.int16], said: Mapping[str, Any], timestamp: int) -> bytes:
    """Return the picture of a cube from its channel and radar.json. Raises DatasetError where they do not agree."""
    try:
        scales = tuple(math.nan if scale is None else float(scale) for scale in said["scales"])
        axes = tuple(said["layout"]), tuple(said["shape"]), scales
        cube = Cube(turn_cube(values), *axes, said["is_complex"], timestamp)
        message = SimpleNamespace(
            layout=np.array(cube.layout, np.uint8),
            shape=np.array(cube.message_shape, "<u2"),
            scales=np.array(cube.scales, "<f4"),
            cube=cube.raw(),
            is_complex=cube.is_complex,
        )
        return encode_cube(message, timestamp)  # type: ignore[arg-type]  # it has all required attributes
    except (LookupError, TypeError, ValueError, OverflowError, EdgeFirstError) as error:
        raise DatasetError(f"a cube does not fit {RADAR}: {error!r}") from error


class VideoWriter:
    """A video while it is written; `rate` in pictures a second is for players, the stamps are in a channel."""

    def __init__(self, path: Path, size: tuple[int, int], rate: float) -> None:
        import av

        self.described = {"format": "mjpg", "type": "u1", "shape": [*reversed(size), 3]}
        self._path = path
        self._count = 0
        self._step = 1 / Fraction(min(max(rate, 0.1), 1000)).limit_denominator(RATE_LIMIT)
        self._packet = av.Packet
        self._errors = av.FFmpegError
        self._file = av.open(str(path), "w", format="avi")  # made with the first picture
        # Pictures are not encoded here, but the muxer requires an encoder.
        self._stream = self._file.add_stream("mjpeg", 1 / self._step, options={"strict": "unofficial"})
        self._stream.width, self._stream.height = size
        self._stream.pix_fmt = "yuvj420p"

    def append(self, jpeg: bytes) -> None:
        """Add a picture."""
        packet = self._packet(jpeg)
        packet.stream = self._stream
        packet.time_base = self._step
        packet.pts = packet.dts = self._count
        packet.is_keyframe = True
        self._count += 1
        try:
            self._file.mux(packet)
        except self._errors as error:
            raise StorageError(f"{self._path}: cannot write: {error}") from error

    def close(self) -> None:
        """Complete the file; a second call has no effect."""
        try:
            self._file.close()
        except self._errors as error:
            raise StorageError(f"{self._path}: cannot write: {error}") from error


def decode_pictures(path: Path) -> Iterator[bytes]:
    """The pictures of a video in their order, as they are in it. Raises DatasetError where they cannot be read."""
    import av

    try:
        with open(open_file(path), "rb") as opened, av.open(opened, "r", format="avi") as file:
            if not file.streams.video or file.streams.video[0].codec_context.name != "mjpeg":
                raise DatasetError(f"{path}: holds no MJPEG video")
            for packet in file.demux(video=0):
                if packet.size:
                    yield bytes(packet)
    except (OSError, av.FFmpegError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
