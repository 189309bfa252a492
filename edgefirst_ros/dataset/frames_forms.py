# SPDX-License-Identifier: Apache-2.0
"""The form of the metadata of a frames table, as a model.

Apart from what reads them: pydantic takes long to load, and few who open a dataset ask for its metadata.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Numbers = list[float | None]
"""Numbers, null for one that is not finite."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True, defer_build=True)


class SourceForm(_Form):
    """One recording."""

    file: str | None = None
    size: Count | None = None
    sha256: str | None = None
    damage: list[dict[str, Any]] | None = None


class LeftOut(_Form):
    """One recording that could not be converted."""

    file: str
    size: Count | None
    why: str


class UnusedTopic(_Form):
    """One topic that could be used and has no role."""

    topic: str
    type: str
    count: Count | None = None
    use: str


class TimeBaseForm(_Form):
    """Which stamps are used as time, and for which topics others."""

    base: str | None = None
    topics: dict[str, Any] | None = None


class TimeBases(TimeBaseForm):
    """Time base of the first sequence, and of all by sequence."""

    sequences: dict[str, TimeBaseForm | None] | None = None


class CameraInfo(_Form):
    """Camera intrinsics as in sensor_msgs/CameraInfo, pixels."""

    frame_id: str | None = None
    width: Count | None = None
    height: Count | None = None
    distortion_model: str | None = None
    d: Numbers | None = None
    k: Annotated[Numbers, Field(min_length=9, max_length=9)] | None = None
    r: Annotated[Numbers, Field(min_length=9, max_length=9)] | None = None
    p: Annotated[Numbers, Field(min_length=12, max_length=12)] | None = None


class TransformForm(_Form):
    """Rigid transform: translation in m, rotation as quaternion x, y, z, w."""

    parent: str
    child: str
    translation: Annotated[Numbers, Field(min_length=3, max_length=3)]
    rotation: Annotated[Numbers, Field(min_length=4, max_length=4)]


Transforms = Annotated[list[TransformForm], Field(max_length=4096)]


class TopicCounts(_Form):
    """Messages of a topic: seen, written, dropped by reason."""

    seen: Count
    written: Count
    dropped: dict[str, Count]


class PoseSourceForm(_Form):
    """Topic of the poses, its type, and the frame whose poses they are; None where the messages do not say."""

    topic: str | None = None
    type: str | None = None
    child: str | None = None


class _Facts(_Form):
    camera_info: CameraInfo | None = None
    camera_infos: dict[str, CameraInfo | None] | None = None
    static_transforms: Transforms | None = None
    pose_frame: str | None = None
    pose_source: PoseSourceForm | None = None
    counts: dict[str, TopicCounts] | None = None
    unused_topics: list[UnusedTopic] | None = None
    missing: list[str] | None = None


class OfSequence(_Facts):
    """Metadata of one sequence."""

    sources: list[Count] | None = None
    calibration: str | None = None
    sensor_frames: dict[str, str] | None = None
    time_base: TimeBaseForm | None = None


class FramesMetadata(_Facts):
    """All metadata of a frames table; None for absent keys."""

    sources: list[SourceForm] | None = None
    configuration: dict[str, Any] | list[Any] | None = None
    software: dict[str, Any] | None = None
    time_base: TimeBases | None = None
    sequences: dict[str, OfSequence] | None = None
    merged: list[dict[str, Any]] | None = None
    left_out: list[LeftOut] | None = None
