# SPDX-License-Identifier: Apache-2.0
"""All settings as one model: YAML files, ROS parameters and command line flags all become this."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from edgefirst_ros import streams
from edgefirst_ros.streams import Sensor

SECOND = 1_000_000_000
SENSORS = tuple(sensor.key for sensor in streams.with_column())
"""Companion sensors that can be required and have settings of their own."""
MODEL = "model"
"""What `require` and `prefer` call a result of the model, also one without boxes."""


def _no_switch(value: Any) -> Any:
    """Refuse true and false: Python takes `yes` for 1, and so would a rate, or the share of a group."""
    if isinstance(value, bool):
        raise PydanticCustomError("no_switch", "Input should be a number")
    return value


def _pairs(text: str, expected: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a map as ROS parameters and the command line have it: train=0.8,val=0.2."""
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"expected {expected}, got {part!r}")
        yield key.strip(), value.strip()


Share = Annotated[float, BeforeValidator(_no_switch)]
Seconds = Annotated[float, Field(ge=0.0, le=60.0, allow_inf_nan=False)]
Names = TypeVar("Names", bound=Iterable[str])


def _known(names: Names, known: Sequence[str]) -> Names:
    for name in names:
        if name not in known:
            raise ValueError(f"unknown sensor {name!r}; known: {', '.join(known)}")
    return names


class Model(BaseModel):
    """Base of the settings: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _switches_are_no_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        return value if cls.model_fields[str(info.field_name)].annotation is bool else _no_switch(value)


class StreamSettings(Model):
    """How the messages of one companion sensor join the frames."""

    tolerance: Seconds | None = Field(
        None, description="Furthest a message may lie from its frame, s; the common tolerance if unset"
    )
    offset: float = Field(0.0, ge=-60.0, le=60.0, allow_inf_nan=False, description="Added to the sensor's stamps, s")
    reuse: bool = Field(
        True, description="Whether one message may serve several frames; if not, the frame nearest to it gets it"
    )


class Limits(Model):
    """What is refused before memory is taken for it; anything larger is counted or said to be damage."""

    chunk_bytes: int = Field(
        1 << 28,
        ge=1 << 20,
        le=1 << 31,
        description="Largest chunk of a recording, unpacked, or message outside of one, bytes",
    )
    picture_pixels: int = Field(1 << 25, ge=1, le=1 << 28, description="Largest picture, pixels")
    cube_values: int = Field(1 << 24, ge=1, le=1 << 30, description="Largest radar cube, values")
    cloud_points: int = Field(1 << 22, ge=1, le=1 << 30, description="Largest point cloud, points")
    table_rows: int = Field(
        1 << 19,
        ge=1,
        le=1 << 40,
        description="Most rows of a table of a dataset; one for every two bytes of its file are read in any case",
    )
    unpacked_bytes: int = Field(
        1 << 28,
        ge=1 << 20,
        le=1 << 40,
        description="Most bytes that a table or all members of a ZIP unpack to; 16 times the file are read in any case",
    )


DEFAULT_LIMITS = Limits()


class Settings(Model):
    """Every setting of a conversion or capture, with its default."""

    reference_topic: str | None = Field(None, description="Topic whose messages are the samples; the camera if unset")
    gps_topic: str | None = Field(None, description="Topic of the position; needed only where several could be meant")
    imu_topic: str | None = Field(None, description="Topic of the attitude; needed only where several could be meant")
    model_topic: str | None = Field(
        None, description="Topic of the model's results; model/output if unset, else model/boxes2d"
    )
    time_base: Literal["auto", "publish", "header", "log"] = Field("auto", description="Which stamps count")

    rate: float | None = Field(
        None,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="Samples a second, the first of each 1/rate; all frames if unset",
    )
    keyframes: bool = Field(False, description="Only keyframes become samples")
    prefer: Literal["model"] | None = Field(
        None, description="model: of each 1/rate the first frame that the model looked at, before the first frame"
    )
    require: tuple[str, ...] = Field(
        (), description="Sensors a sample must have, or it is dropped; model: the model looked at it"
    )

    tolerance: Seconds = Field(0.1, description="Furthest a companion may lie from its frame, s")
    streams: dict[str, StreamSettings] = Field(default_factory=dict, description="Settings of single companion sensors")
    lookahead: Annotated[float, Field(gt=0, le=10.0)] = Field(
        1.0, description="How late a message may come after others with its stamp, s"
    )
    max_gap: Seconds = Field(
        2.0, description="Furthest two fixes or two IMU messages may lie apart to interpolate between them, s"
    )
    heading_from_imu: bool = Field(
        False, description="The IMU's yaw is a true heading (counter-clockwise from east): write GPSImgDirection"
    )

    radar_points: Literal["targets", "clusters"] = Field("targets", description="What radar.pcd is made from")
    radar_fields: Literal["message", "documented"] = Field(
        "message", description="`documented` adds the field `noise` as NaN"
    )
    pcd: Literal["binary", "binary_compressed", "ascii"] = Field("binary", description="Form of the PCD data")
    lidar_images: bool = Field(False, description="Write lidar.png and lidar.jpeg where those topics exist")
    decoder: Literal["software", "auto", "v4l2m2m"] = Field(
        "software",
        description="What decodes video; auto: the V4L2 M2M hardware decoder where there is one",
    )
    camera_format: Literal["jpeg", "png"] = Field("jpeg", description="Form of decoded pictures")
    jpeg_quality: int = Field(90, ge=1, le=100, description="Quality of JPEG pictures made here")

    min_score: float = Field(0.0, ge=0, le=1, description="Lowest score of a box that becomes an annotation")
    label_map: dict[str, str] = Field(
        default_factory=dict,
        description="Other names for labels, such as car: vehicle; an empty one drops them",
        examples=["car=vehicle,tree="],
    )
    masks: bool = Field(True, description="Write the masks of the model")
    polygons: bool = Field(False, description="Write the outlines of instance masks as polygons")
    degradation: bool = Field(False, description="Estimate from each picture how degraded it is")

    schema_version: Literal["2025.10", "2026.04", "2026.10"] = Field(
        "2026.04", description="Version of the annotation schema"
    )
    layout: Literal["zip", "directory"] = Field("zip", description="One ZIP, or the same members as files")
    split: dict[str, Share] = Field(
        default_factory=dict,
        description="Groups and their shares, such as train: 0.8, val: 0.2",
        examples=["train=0.8,val=0.2"],
    )
    split_block: float = Field(10.0, gt=0, le=86400, description="Length of a block of time that stays in one group, s")
    split_gap: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="Samples nearer than this to a block of another group have no group, s",
    )
    stable: bool = Field(
        False, description="A sequence's group by split depends on its name alone, and stays when others are added"
    )
    group: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Groups of sequences by name, such as test: night*; these take no part in split",
        examples=["test=night*"],
    )
    jobs: int = Field(
        0,
        ge=0,
        le=256,
        exclude=True,  # not part of the stored configuration: any number of threads gives the same dataset
        description="Threads that decode, and that encode; 0: one per processor",
    )
    limits: Limits = Field(default_factory=Limits, description="Largest things that are read")

    @field_validator("schema_version", mode="before")
    @classmethod
    def _unquoted(cls, value: Any) -> Any:
        """YAML takes 2026.10 for a number."""
        return f"{value:.2f}" if isinstance(value, float) and round(value, 2) == value else value

    @field_validator("require")
    @classmethod
    def _known_sensors(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _known(value, (*SENSORS, MODEL))

    @field_validator("streams")
    @classmethod
    def _known_streams(cls, value: dict[str, StreamSettings]) -> dict[str, StreamSettings]:
        return _known(value, SENSORS)

    @field_validator("split", mode="before")
    @classmethod
    def _shares_of_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        shares: dict[str, float] = {}
        for group, share in _pairs(value, "GROUP=SHARE such as train=0.8"):
            try:
                shares[group] = float(share)
            except ValueError:
                raise ValueError(f"expected a share such as {group}=0.8, got {share!r}") from None
        return shares

    @field_validator("label_map", mode="before")
    @classmethod
    def _names_of_text(cls, value: Any) -> Any:
        return dict(_pairs(value, "LABEL=NAME such as car=vehicle")) if isinstance(value, str) else value

    @field_validator("group", mode="before")
    @classmethod
    def _globs_of_text(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {group: [glob] if isinstance(glob, str) else glob for group, glob in value.items()}
        if not isinstance(value, str):
            return value
        found: dict[str, list[str]] = {}
        for group, glob in _pairs(value, "GROUP=GLOB such as test=night*"):
            found.setdefault(group, []).append(glob)
        return found

    @field_validator("split", "group")
    @classmethod
    def _group_names(cls, value: dict[str, Any]) -> dict[str, Any]:
        for group in value:
            if not re.fullmatch(r"[\w.-]{1,64}", group):
                raise ValueError(f"expected a group name of letters, digits, dots and dashes, got {group!r}")
        return value

    @field_validator("split")
    @classmethod
    def _shares(cls, value: dict[str, float]) -> dict[str, float]:
        for group, share in value.items():
            if not 0 < share <= 1:
                raise ValueError(f"expected a share above 0, at most 1, for {group}, got {share}")
        if value and abs(sum(value.values()) - 1) > 1e-6:
            raise ValueError(f"expected shares that add up to 1, got {sum(value.values()):g}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        if self.keyframes and self.rate is not None:
            raise ValueError("rate and keyframes exclude each other: set one of them")
        if 2 * self.split_gap >= self.split_block:
            raise ValueError(
                f"split_gap is {self.split_gap:g} and split_block {self.split_block:g}: no sample would have a group, "
                "make the gap less than half of the block"
            )
        if self.stable and not self.split:
            raise ValueError("stable needs split: it says how the sequences are shared out")
        if self.prefer is not None and self.rate is None:
            raise ValueError("prefer chooses a frame of each 1/rate: set rate too, or require: [model]")
        for key in set(self.require) - {MODEL}:
            name, value = streams.of_key(key).setting or ("", None)
            if name and getattr(self, name) != value:
                raise ValueError(f"{key} is required but {name} is {getattr(self, name)}: set {name} to {value}")
        return self

    @property
    def companions(self) -> tuple[Sensor, ...]:
        """The companion sensors in use."""
        return tuple(s for s in streams.companions() if not s.setting or getattr(self, s.setting[0]) == s.setting[1])

    @property
    def exact_rate(self) -> Fraction | None:
        """`rate` as the decimal number the user wrote."""
        return Fraction(str(self.rate)) if self.rate is not None else None

    def stream(self, sensor: str) -> tuple[int, int, bool]:
        """(tolerance in ns, offset in ns, reuse) of a companion sensor."""
        own = self.streams.get(sensor, StreamSettings())
        tolerance = self.tolerance if own.tolerance is None else own.tolerance
        return nanoseconds(tolerance), nanoseconds(own.offset), own.reuse


Place = Annotated[str, Field(min_length=1), AfterValidator(os.path.expanduser)]
"""A path, in which ~ is the user's folder: in files of parameters no shell replaces it."""


class LiveSettings(Model):
    """What a capture needs besides `Settings`."""

    out: Place = Field("datasets", description="Folder for the datasets")
    host: str | None = Field(
        None, description="First part of the names of sequences; the name of this machine if unset"
    )
    sequence: str | None = Field(None, description="Name of the first dataset; host and start in UTC if unset")
    autostart: bool = Field(True, description="Begin to record when the node starts, not when it is told to")
    pretrigger: Seconds = Field(0.0, description="How long before its start a dataset begins, s")
    pretrigger_bytes: int = Field(
        1 << 29, ge=1 << 20, description="Memory that may take, bytes; where it is not enough a dataset begins later"
    )
    max_bytes: int = Field(0, ge=0, description="Size at which a new dataset begins, bytes; 0: never")
    max_seconds: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="Length at which a new dataset begins, s; 0: never"
    )
    fsync: bool = Field(True, description="Make the disk keep what was written, so that a power cut cannot lose it")
    flush_interval: float = Field(
        1.0, gt=0, le=60.0, allow_inf_nan=False, description="Longest time until what was written is kept, s"
    )
    min_free_bytes: int = Field(
        500_000_000, ge=0, description="Free space on the disk at which the capture stops, bytes"
    )
    depth: int = Field(100, ge=1, le=10_000, description="Messages a topic may have waiting")


class ReplaySettings(Model):
    """What a conversion as a node needs besides `Settings`."""

    recordings: tuple[Place, ...] = Field((), description="MCAP files; each becomes a sequence")
    out: Place = Field("datasets", description="Folder for the dataset")
    name: str | None = Field(None, description="Name of the dataset; that of the recording if unset")
    overwrite: bool = Field(False, description="Replace a dataset that is there")


def nanoseconds(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(Fraction(str(seconds)) * SECOND)
