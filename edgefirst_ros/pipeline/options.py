# SPDX-License-Identifier: Apache-2.0
"""The settings as keyword arguments, with the types that editors and type checkers show; a test compares the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from edgefirst_ros.config import StreamSettings
from edgefirst_ros.limits import Limits


class Options(TypedDict, total=False):
    """The fields of `Settings` by keyword; what each is for is said there."""

    reference_topic: Sequence[str] | str | None
    gps_topic: str | None
    imu_topic: str | None
    model_topic: str | None
    time_base: Literal["auto", "publish", "header", "log"]
    start: float | str | None
    end: float | str | None
    rate: float | None
    keyframes: bool
    prefer: Literal["model"] | None
    require: Sequence[str]
    sensors: Sequence[str]
    tolerance: float
    streams: Mapping[str, StreamSettings | Mapping[str, object]]
    lookahead: float
    max_gap: float
    heading_from_imu: bool
    radar_points: Literal["targets", "clusters"]
    radar_fields: Literal["message", "documented"]
    pcd: Literal["binary", "binary_compressed", "ascii"]
    lidar_images: bool
    decoder: Literal["software", "auto", "v4l2m2m"]
    camera_format: Literal["jpeg", "png"]
    jpeg_quality: int
    max_width: int | None
    picture_hook: str | None
    min_score: float
    label_map: Mapping[str, str]
    masks: bool
    polygons: bool
    degradation: bool
    schema_version: Literal["2025.10", "2026.04", "2026.10"]
    layout: Literal["zip", "directory"]
    split: Mapping[str, float]
    split_block: float
    split_gap: float
    stable: bool
    group: Mapping[str, Sequence[str]]
    jobs: int
    limits: Limits | Mapping[str, object]
