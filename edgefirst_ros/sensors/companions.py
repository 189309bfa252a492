# SPDX-License-Identifier: Apache-2.0
"""What the message of a companion sensor becomes: whether it can be stored, and the bytes of its member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from edgefirst_ros.config import DEFAULT_LIMITS, Limits, Settings
from edgefirst_ros.sensors.cloud import check_cloud, encode_cloud
from edgefirst_ros.sensors.cube import check_cube, encode_cube
from edgefirst_ros.sensors.depth import check_depth, check_reflect, encode_depth, encode_reflect

CHECKS: dict[str, Callable[[Any, Limits], None]] = {
    "radar.cube": check_cube,
    "radar.targets": check_cloud,
    "radar.clusters": check_cloud,
    "lidar.points": check_cloud,
    "lidar.depth": check_depth,
    "lidar.reflect": check_reflect,
}


def storable(sensor: str, content: Any, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise MessageError when a companion's message cannot be stored."""
    CHECKS[sensor](content, limits)


def encode(sensor: str, content: Any, stamp: int, settings: Settings) -> Sequence[Any]:
    """Return the member of a message that can be stored, as buffers to be written one after the other.

    `stamp`: its time in ns, offset included.
    """
    if sensor == "radar.cube":
        return [encode_cube(content, stamp)]
    if sensor == "lidar.depth":
        return [encode_depth(content)]
    if sensor == "lidar.reflect":
        return [encode_reflect(content)]
    documented = sensor == "radar.targets" and settings.radar_fields == "documented"
    return encode_cloud(content, settings.pcd, ("noise",) if documented else ())
