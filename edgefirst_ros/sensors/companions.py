# SPDX-License-Identifier: Apache-2.0
"""Codecs of companion sensors: check of a message, encoding as a member, decoding of a member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from edgefirst_ros.config import Settings
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.cloud import check_cloud, decode_cloud, encode_cloud
from edgefirst_ros.sensors.cube import check_cube, decode_cube, encode_cube
from edgefirst_ros.sensors.depth import (
    check_depth,
    check_reflect,
    decode_depth,
    decode_reflect,
    encode_depth,
    encode_reflect,
)


class Codec(NamedTuple):
    """Encoder and decoder of a sensor's members."""

    check: Callable[[Any, Limits], None]
    """Raises MessageError when a message cannot be stored."""
    encode: Callable[[Any, int, Settings], Sequence[Any]]
    """Returns the member of a message with a stamp in ns, as buffers to be written one after the other."""
    decode: Callable[[bytes], Any]
    """Returns what a member holds; raises EdgeFirstError where it cannot be read."""


def _cube(message: Any, stamp: int, _: Settings) -> Sequence[Any]:
    return [encode_cube(message, stamp)]


def _targets(message: Any, _: int, settings: Settings) -> Sequence[Any]:
    return encode_cloud(message, settings.pcd, ("noise",) if settings.radar_fields == "documented" else ())


def _points(message: Any, _: int, settings: Settings) -> Sequence[Any]:
    return encode_cloud(message, settings.pcd)


def _depth(message: Any, _: int, __: Settings) -> Sequence[Any]:
    return [encode_depth(message)]


def _reflect(message: Any, _: int, __: Settings) -> Sequence[Any]:
    return [encode_reflect(message)]


CODECS: dict[str, Codec] = {
    "radar.cube": Codec(check_cube, _cube, decode_cube),
    "radar.targets": Codec(check_cloud, _targets, decode_cloud),
    "radar.clusters": Codec(check_cloud, _points, decode_cloud),
    "lidar.points": Codec(check_cloud, _points, decode_cloud),
    "lidar.depth": Codec(check_depth, _depth, decode_depth),
    "lidar.reflect": Codec(check_reflect, _reflect, decode_reflect),
    "depth": Codec(check_depth, _depth, decode_depth),
}
"""Key of a sensor in `streams.SENSORS` -> its codec."""


def storable(sensor: str, content: Any, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise MessageError when a companion's message cannot be stored."""
    CODECS[sensor].check(content, limits)


def encode(sensor: str, content: Any, stamp: int, settings: Settings) -> Sequence[Any]:
    """Return the member of a message that can be stored, as buffers to be written one after the other.

    `stamp`: its time in ns, offset included.
    """
    return CODECS[sensor].encode(content, stamp, settings)


def decode(sensor: str, data: bytes) -> Any:
    """Return what a member holds: a Cube, a cloud (N,) structured, or a picture (height, width) uint8 or uint16.

    Raises EdgeFirstError where it cannot be read.
    """
    return CODECS[sensor].decode(data)
