# SPDX-License-Identifier: Apache-2.0
"""Codecs of companion sensors: check of a message, encoding as a member, decoding of a member.

Depth and reflectivity images of older lidar services are here too: mono16 in mm to 16-bit PNG, mono8 to JPEG.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edgefirst_ros.config import Settings
from edgefirst_ros.counts import CANNOT_BE_STORED, UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.cloud import check_cloud, decode_cloud, encode_cloud
from edgefirst_ros.sensors.cube import check_cube, decode_cube, encode_cube_parts
from edgefirst_ros.sensors.jpeg import check_jpeg
from edgefirst_ros.sensors.picture import LARGEST_SIDE, check_size
from edgefirst_ros.sensors.png import decode_gray, encode_gray, is_filled
from edgefirst_ros.streams import find_by_key

DEPTH, REFLECT = "mono16", "mono8"
"""Encodings of the images."""


def decode_depth(png: bytes) -> npt.NDArray[np.uint16]:
    """Return (height, width) uint16, mm, of a 16-bit grayscale PNG; raises MessageError for any other."""
    values = decode_gray(png)
    if values is None or values.dtype != np.uint16 or not is_filled(png):
        raise MessageError(UNDECODABLE, "not a readable 16-bit grayscale PNG")
    return values


def decode_reflect(jpeg: bytes) -> npt.NDArray[np.uint8]:
    """Return (height, width) uint8 of a grayscale JPEG; raises MessageError where it cannot be read."""
    import simplejpeg

    check_jpeg(jpeg)
    try:
        pixels: npt.NDArray[np.uint8] = simplejpeg.decode_jpeg(jpeg, colorspace="GRAY")
    except ValueError as error:
        raise MessageError(UNDECODABLE, f"not a readable JPEG: {error}") from error
    return pixels[..., 0]


def _check_image(encoding: str, message: Any, limits: Limits) -> None:
    check_size(message.width, message.height, limits)
    _read_pixels(message, encoding)


def _encode_reflect(message: Any, *_: Any) -> Sequence[Any]:
    import simplejpeg

    pixels = _read_pixels(message, REFLECT)[..., np.newaxis]
    return [bytes(simplejpeg.encode_jpeg(pixels, quality=95, colorspace="GRAY", colorsubsampling="GRAY"))]


def _read_pixels(message: Any, encoding: str) -> npt.NDArray[Any]:
    """(height, width) uint16 or uint8 of an Image."""
    size = 2 if encoding == DEPTH else 1
    width, height, step = message.width, message.height, message.step
    if message.encoding != encoding or not 0 < width <= LARGEST_SIDE or not 0 < height <= LARGEST_SIDE:
        raise MessageError(CANNOT_BE_STORED, f"{width} x {height} image of {message.encoding!r}; expected {encoding}")
    if step < width * size or len(message.data) < step * height:
        raise MessageError(CANNOT_BE_STORED, f"{len(message.data)} bytes for {height} lines of {step}")
    lines = np.frombuffer(message.data.view(), np.uint8)[: step * height].reshape(height, step)[:, : width * size]
    kind = np.dtype((">" if message.is_bigendian else "<") + f"u{size}")
    return np.ascontiguousarray(np.ascontiguousarray(lines).view(kind).astype(kind.newbyteorder("=")))


def _encode_targets(message: Any, _: int, settings: Settings) -> Sequence[Any]:
    return encode_cloud(message, settings.pcd, ("noise",) if settings.radar_fields == "documented" else ())


class Codec(NamedTuple):
    """Encoder and decoder of a sensor's members."""

    check: Callable[[Any, Limits], None]
    """Raises MessageError when a message cannot be stored."""
    encode: Callable[[Any, int, Settings], Sequence[Any]]
    """Returns the member of a message with a stamp in ns, as buffers to be written one after the other."""
    decode: Callable[[bytes], Any]
    """Returns the content of a member; raises EdgeFirstError if it cannot be read."""


_CLOUD = Codec(check_cloud, lambda message, _, settings: encode_cloud(message, settings.pcd), decode_cloud)
_DEPTH = Codec(
    partial(_check_image, DEPTH),
    lambda message, *_: [encode_gray(_read_pixels(message, DEPTH), smooth=True)],
    decode_depth,
)
CODECS: dict[str, Codec] = {
    "radar.cube": Codec(check_cube, lambda message, stamp, _: encode_cube_parts(message, stamp), decode_cube),
    "radar.targets": _CLOUD._replace(encode=_encode_targets),
    "radar.clusters": _CLOUD,
    "lidar.points": _CLOUD,
    "lidar.depth": _DEPTH,
    "lidar.reflect": Codec(partial(_check_image, REFLECT), _encode_reflect, decode_reflect),
    "depth": _DEPTH,
}
"""Key of a sensor in `streams.SENSORS` -> its codec, also of its other instances."""


def check_storable(sensor: str, content: Any, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise MessageError when a companion's message cannot be stored."""
    CODECS[find_by_key(sensor).base].check(content, limits)


def encode(sensor: str, content: Any, stamp: int, settings: Settings) -> Sequence[Any]:
    """Return the member of a message that can be stored, as buffers to be written one after the other.

    `stamp`: its time in ns, offset included.
    """
    return CODECS[find_by_key(sensor).base].encode(content, stamp, settings)


def decode(sensor: str, data: bytes) -> Any:
    """Return the content of a member: a Cube, a cloud (N,) structured, or a picture (height, width) uint8 or uint16.

    Raises EdgeFirstError where it cannot be read.
    """
    return CODECS[find_by_key(sensor).base].decode(data)
