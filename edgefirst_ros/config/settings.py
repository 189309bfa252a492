# SPDX-License-Identifier: Apache-2.0
"""All settings as one model: YAML files, ROS parameters and command line flags all become this."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from edgefirst_ros import streams
from edgefirst_ros.config import values
from edgefirst_ros.config.rig import Rig, RigSensor, RigText, StreamSettings
from edgefirst_ros.config.values import CAPTURE, CONVERT, FLEET, GROUP, PLAY, SHOW, WRITING, Model, Seconds, define
from edgefirst_ros.errors import sort_nearest
from edgefirst_ros.limits import Limits
from edgefirst_ros.streams import Sensor

FOREVER = 1 << 62
"""ns, later than any stamp."""
HARDLY = 2.0
"""Tolerance in s above which milliseconds were probably meant."""
SENSORS = tuple(sensor.key for sensor in streams.SENSORS if sensor.column is not None)
"""Companion sensors that can be required and have settings of their own."""
PARTS = tuple(sensor.key for sensor in streams.SENSORS if sensor.topics)
MODEL = "model"
"""Name of a model result, with or without boxes, in `require` and `prefer`."""
SHARES = "train=0.8,val=0.2"


UNSET_STREAM, UNSET_SENSOR, UNSET_RIG = StreamSettings(), RigSensor(), Rig()
write_setting = partial(define, verbs=WRITING)
group_setting = partial(define, verbs=(*WRITING, GROUP))
play_setting = partial(define, verbs=(PLAY,))


class Settings(Model):
    """Every setting of a conversion or capture, with its default."""

    rig: RigText = define(
        None, "Topics of the sensors of another vehicle: a map, or a YAML file with it",
        examples=["{camera: /image_raw}"], option="FILE",
    )  # fmt: skip
    reference_topic: values.Topics | None = define(
        None, "Topic whose messages become samples; the camera if unset; repeat it for a sequence of each topic",
        option="T", repeated=True,
    )  # fmt: skip
    gps_topic: str | None = define(None, "Topic of the position; needed only where several are possible")
    imu_topic: str | None = define(None, "Topic of the attitude; needed only where several are possible")
    model_topic: str | None = define(None, "Topic of the model's results; model/output if unset, else model/boxes2d")
    lidar_topic: str | None = define(None, "Topic of lidar.points; the only cloud that is not a radar's if unset")
    radar_topic: str | None = define(None, "Topic of radar.targets; the only cloud of a radar if unset")
    cube_topic: str | None = define(None, "Topic of radar.cube; the only one of its type if unset")
    pose_topic: str | None = define(None, "Topic of the vehicle's pose; the only one of its types if unset")
    strict_topics: bool = define(
        False, "Reject a recording that has usable topics without a use, except those in `unused` of the rig",
        verbs=(CONVERT, FLEET), option="", exclude=True,  # the dataset is the same
    )  # fmt: skip
    time_base: Literal["auto", "publish", "header", "log"] = define(
        "auto", "Stamps that are used: header, publish_time or log_time of the messages", option=""
    )

    start: values.Moment | None = define(
        None, "Start of the samples: s from the first frame, or UTC", examples=["2.5", "2026-01-15T12:00:05Z"],
        verbs=(CONVERT, FLEET, SHOW), option="T",
    )  # fmt: skip
    end: values.Moment | None = define(
        None, "End of the samples: s from the first frame, or UTC", examples=["10", "2026-01-15T12:00:10.5Z"],
        verbs=(CONVERT, FLEET, SHOW), option="T",
    )  # fmt: skip
    rate: float | None = define(
        None, "Rate of samples, Hz; the first frame of each interval, all frames if unset", gt=0, le=1e6, option="HZ",
        changes=True,
    )  # fmt: skip
    keyframes: bool = define(
        False, "Only keyframes of the video become samples; rate overrides it", option="", changes=True
    )
    prefer: Literal["model"] | None = define(
        None, "model: with rate, take the first frame that the model processed, if an interval has one"
    )
    require: tuple[str, ...] = define(
        (), "Drop samples without these sensors; model: without a result of the model", option="radar.cube,...",
        changes=True,
    )  # fmt: skip

    sensors: tuple[str, ...] = define((), "Sensors to read; all if empty", option="camera,...")
    tolerance: Seconds = define(0.1, "Largest time difference of a sensor's message to the frame, s", option="S")
    no_reuse: bool = define(
        False, "Use a sensor's message only for the nearest frame, not for all near ones", option=""
    )
    streams: dict[str, StreamSettings] = define(dict, "Settings of single sensors")
    lookahead: Annotated[float, Field(gt=0, le=10.0)] = define(
        1.0, "Time to wait for late messages, beyond the usual delay of their topic, s"
    )
    max_gap: Seconds = define(2.0, "Longest time between two fixes or two IMU messages to interpolate between them, s")
    heading_from_imu: bool = define(
        False, "The IMU's yaw is a true heading (counter-clockwise from east): write GPSImgDirection"
    )

    radar_points: Literal["targets", "clusters"] = define("targets", "Source of radar.pcd")
    radar_fields: Literal["message", "documented"] = write_setting(
        "message", "Fields of radar.pcd; documented: add the field noise (NaN)", option=""
    )
    pcd: Literal["binary", "binary_compressed", "ascii"] = write_setting("binary", "Data encoding of PCD files")
    lidar_images: bool = write_setting(False, "Write lidar.png and lidar.jpeg where those topics exist")
    decoder: Literal["software", "auto", "v4l2m2m"] = define(
        "software", "Video decoder; auto: the V4L2 M2M hardware decoder where it exists"
    )
    camera_format: Literal["jpeg", "png"] = write_setting("jpeg", "File format of decoded pictures")
    jpeg_quality: int = write_setting(
        90, "Quality of JPEG pictures that are encoded", ge=1, le=100, option="Q", changes=True
    )
    max_width: int | None = define(None, "Scale wider pictures down to this width, pixels", ge=16, le=65535, option="W")
    picture_hook: str | None = define(
        None, "Function that changes each picture before it is encoded: module:function",
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", examples=["privacy:blur"],
    )  # fmt: skip

    min_score: float = define(0.0, "Lowest score of a box that becomes an annotation", ge=0, le=1)
    label_map: Annotated[dict[str, str], BeforeValidator(values.parse_names)] = define(
        dict, "New names of labels, such as car=vehicle; an empty name drops a label", examples=["car=vehicle,tree="]
    )
    masks: bool = define(True, "Write the masks of the model")
    polygons: bool = write_setting(False, "Write the outlines of instance masks as polygons")
    degradation: bool = define(False, "Grade the degradation of each picture")

    schema_version: Literal["2025.10", "2026.04", "2026.10"] = write_setting(
        "2026.04", "Version of the annotation schema", option="", flag="--schema"
    )
    layout: Literal["zip", "directory"] = define(
        "zip", "One ZIP, or the same members as files", verbs=(CONVERT, CAPTURE), option=""
    )
    split: Annotated[dict[str, values.Share], BeforeValidator(values.parse_shares)] = group_setting(
        dict, "Share of each group, such as train=0.8,val=0.2", examples=[SHARES], option=SHARES
    )
    split_block: float = group_setting(10.0, "Length of a block of time that stays in one group, s", gt=0, le=86400)
    split_gap: float = group_setting(
        0.0, "Samples nearer than this to a block of another group have no group, s", ge=0, le=3600
    )
    stable: bool = define(
        False,
        "Assign groups by the names of sequences, so that they stay when you add others",
        verbs=(CONVERT, CAPTURE, GROUP),
        option="",
    )
    group: Annotated[dict[str, tuple[str, ...]], BeforeValidator(values.parse_globs)] = group_setting(
        dict, "Group of sequences by name, such as test=night*; split assigns only the others",
        examples=["test=night*"], option="NAME=GLOB", repeated=True,
    )  # fmt: skip
    jobs: int = define(
        0, "Number of threads that decode and encode; 0: one per processor", verbs=(CONVERT, CAPTURE), option="N",
        ge=0, le=256, exclude=True,  # not part of the stored configuration: any number writes the same dataset
    )  # fmt: skip
    limits: Annotated[Limits, BeforeValidator(values.no_switches)] = define(
        Limits, "Limits on the size of data that is read"
    )

    @field_validator("schema_version", mode="before")
    @classmethod
    def _read_version(cls, value: Any) -> Any:
        """Return the version as text: YAML reads 2026.10 as a number."""
        return f"{value:.2f}" if isinstance(value, float) and round(value, 2) == value else value

    @field_validator("require", "sensors", "streams")
    @classmethod
    def _known_names(cls, value: Any, info: ValidationInfo) -> Any:
        rig, usual = info.data.get("rig"), {"require": (*SENSORS, MODEL), "sensors": PARTS}
        instances = [sensor.key for sensor in rig.instances] if isinstance(rig, Rig) else []
        known, found = (*usual.get(str(info.field_name), SENSORS), *instances), []
        for name in value:
            key = name if name in known else streams.find_key(name)
            if key is None or key not in known:
                raise ValueError(f"unknown sensor {name!r}; known: {sort_nearest(str(name), known)}")
            found.append(key)
        names = tuple(dict.fromkeys(found))
        return dict(zip(names, value.values(), strict=True)) if isinstance(value, dict) else names

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
        least, total = min(value.values(), default=1), sum(value.values())
        if value and (least <= 0 or abs(total - 1) > 1e-6):
            right = {group: share / total for group, share in value.items()} if least > 0 and len(value) > 1 else {}
            shares = ",".join(f"{group}={share:.3g}" for group, share in (right or {"train": 0.8, "val": 0.2}).items())
            found = ", ".join(f"{share:g}" for share in value.values())
            raise ValueError(f"expected shares above 0 that add up to 1, got {found}; set all at once: {shares}")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        if 2 * self.split_gap >= self.split_block:
            raise ValueError(
                f"`split_gap` is {self.split_gap:g} and `split_block` {self.split_block:g}: no sample would have a "
                "group, make the gap less than half of the block"
            )
        if self.stable and not self.split:
            raise ValueError("`stable` needs `split`, the shares of the groups")
        if self.prefer is not None and self.rate is None:
            raise ValueError("`prefer` chooses a frame of each 1/rate: set `rate` too, or `require` model")
        first, (begin, end) = self.start or 0.0, self.span_of(0)
        if type(first) is type(self.end) and (begin >= end or not end):
            raise ValueError(f"`start` is {first} and `end` {self.end}: no sample is between them")
        if self.keyframes_only and not self.takes_pictures:
            raise ValueError("`keyframes` needs camera among the `sensors`")
        for key in (*self.require, *self.sensors, *self.own_rig.sensors):
            if key in streams.ROLES:
                continue
            name, value = streams.find_by_key(key).setting or ("", None)
            if name and getattr(self, name) != value:
                wanted = f"set {name} to {value} (--set {name}={value})"
                raise ValueError(f"{key} is requested but {name} is {getattr(self, name)}: {wanted}")
            if self.sensors and key in self.require and key not in self.sensors:
                raise ValueError(f"{key} is required and not among the sensors: {', '.join(self.sensors)}")
        self._check_rig()
        return self

    def _check_rig(self) -> None:
        """Raise ValueError where the rig and another setting say different things of a sensor."""
        own = {key for key, sensor in self.own_rig.sensors.items() if sensor.topic is not None or sensor.tf}
        for name, key in {"reference_topic": streams.CAMERA.key, **self._short_forms}.items():
            if getattr(self, name) is not None and key in own:
                raise ValueError(f"`{name}` and {key} of the rig cannot be combined")
        if twice := sorted(self.streams.keys() & self.own_rig.sensors.keys()):
            raise ValueError(f"streams.{twice[0]} and {twice[0]} of the rig cannot be combined")

    @property
    def own_rig(self) -> Rig:
        """The rig; one without sensors if it is unset."""
        return self.rig or UNSET_RIG

    @property
    def _short_forms(self) -> dict[str, str]:
        """{setting that names a topic: key of a rig for which it is the short form}."""
        radar = f"radar.{self.radar_points}"
        own = {f"{role}_topic": role for role in ("gps", "imu", "model", "pose")}
        return {"lidar_topic": "lidar.points", "radar_topic": radar, "cube_topic": "radar.cube", **own}

    def sensor(self, key: str) -> RigSensor:
        """Return the entry of a sensor in the rig or a short form of it.

        Args:
            key: Its key, such as `lidar.points.rear`.

        Returns:
            The entry; one without values for an absent sensor.
        """
        own, giver = self.own_rig.sensors.get(key, UNSET_SENSOR), self.giver(key)
        return own if giver == "rig" else own.model_copy(update={"topic": getattr(self, giver)})

    def giver(self, key: str) -> str:
        """Return the setting that names the topic of a sensor.

        Args:
            key: Its key, such as `lidar.points`.

        Returns:
            The short form, such as `lidar_topic`, if it is set; else `rig`.
        """
        short = (name for name, of in self._short_forms.items() if of == key and isinstance(getattr(self, name), str))
        return next(short, "rig")

    @property
    def given_topics(self) -> tuple[str, ...]:
        """Names and globs of topics in the rig or a short form of it."""
        keys = {*self._short_forms.values(), *self.own_rig.sensors}
        sensors = [self.sensor(key) for key in sorted(keys)]
        return tuple(name for of in sensors for name in (of.topic, of.info, of.masks) if name is not None)

    def is_left_alone(self, topic: str) -> bool:
        """Return whether the rig lists a topic under `unused`.

        Args:
            topic: Its name.

        Returns:
            True if it does.
        """
        names = topic, topic.removeprefix("/")
        return any(fnmatchcase(name, glob) for name in names for glob in self.own_rig.unused)

    def span_of(self, first: int) -> tuple[int, int]:
        """Return the time span of the samples.

        Args:
            first: First stamp of the reference topic, ns since the epoch.

        Returns:
            Begin, inclusive, and end, exclusive, ns since the epoch.
        """
        utc, ends = values.parse_utc, ((self.start, -FOREVER), (self.end, FOREVER))
        begin, end = (
            forever if at is None else utc(at) if isinstance(at, str) else first + values.to_ns(at)
            for at, forever in ends
        )
        return begin, end

    @property
    def references(self) -> tuple[str | None, ...]:
        """The topics whose messages are the samples, each of a sequence of its own; None: the camera."""
        return self.reference_topic if isinstance(self.reference_topic, tuple) else (self.reference_topic,)

    @property
    def doubts(self) -> list[str]:
        """Warnings about values that are allowed but probably not meant."""
        own = {f"streams.{key}.tolerance": value.tolerance for key, value in self.streams.items()}
        own |= {f"rig.{key}.tolerance": value.tolerance for key, value in self.own_rig.sensors.items()}
        replaced = [f"rate is {self.rate:g}: it replaces keyframes"] if self.keyframes and self.rate else []
        return replaced + [
            f"{name} is {value:g} s: companions that far from a frame join it; {value:g} ms would be {value / 1000:g}"
            for name, value in {"tolerance": self.tolerance, **own}.items()
            if value is not None and value > HARDLY
        ]

    @property
    def keyframes_only(self) -> bool:
        """True if only keyframes become samples: `keyframes` is set, and `rate` does not replace it."""
        return self.keyframes and self.rate is None

    @property
    def takes_pictures(self) -> bool:
        """True if samples may have camera pictures."""
        return not self.sensors or streams.CAMERA.key in self.sensors

    @property
    def companions(self) -> tuple[Sensor, ...]:
        """The companion sensors in use, in the order of their members."""
        found = [*streams.list_companions(), *self.own_rig.instances]
        chosen = (s for s in found if not s.setting or getattr(self, s.setting[0]) == s.setting[1])
        used = (sensor for sensor in chosen if not self.sensors or sensor.key in self.sensors)
        return tuple(sorted(used, key=lambda sensor: sensor.order))

    @property
    def exact_rate(self) -> Fraction | None:
        """`rate` in Hz, exactly as the decimal number the user wrote."""
        return Fraction(str(self.rate)) if self.rate is not None else None

    def stream(self, sensor: str) -> tuple[int, int, bool]:
        """Return how messages of a companion sensor are aligned.

        Args:
            sensor: Its key, such as `lidar.points`.

        Returns:
            Tolerance in ns, offset in ns, and True if samples reuse a message.
        """
        own: StreamSettings = self.own_rig.sensors.get(sensor) or self.streams.get(sensor, UNSET_STREAM)
        tolerance = self.tolerance if own.tolerance is None else own.tolerance
        return values.to_ns(tolerance), values.to_ns(own.offset), own.reuse and not self.no_reuse


def check_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return regular expressions without empty ones; raises ValueError for a wrong one."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"expected names or regular expressions, got {pattern!r}: {error}") from None
    return tuple(filter(None, patterns))


class LiveSettings(Model):
    """Settings of a capture, also `Settings`."""

    out: values.Place = define("datasets", "Folder for the datasets")
    host: str | None = define(None, "First part of the names of sequences; the name of this machine if unset")
    sequence: str | None = define(None, "Name of the first dataset; host and start in UTC if unset")
    autostart: bool = define(True, "Start recording when the node starts, instead of on command")
    pretrigger: Seconds = define(0.0, "Time before the start command with which a dataset begins, s")
    pretrigger_bytes: int = define(
        1 << 29, "Memory for the pre-trigger, bytes; with too little a dataset begins later", ge=1 << 20
    )
    max_bytes: int = define(0, "Size at which a new dataset begins, bytes; 0: never", ge=0, changes=True)
    max_seconds: float = define(0.0, "Length at which a new dataset begins, s; 0: never", ge=0, changes=True)
    fsync: bool = define(True, "Sync every commit to the disk, so that a power cut cannot lose it")
    flush_interval: float = define(1.0, "Longest time between commits, s", gt=0, le=60.0)
    min_free_bytes: int = define(
        500_000_000, "Free space on the disk at which the capture stops, bytes", ge=0, changes=True
    )
    stale_after: float = define(5.0, "Time without a sample after which the capture is stale, s", gt=0, le=3600)
    topics: Annotated[tuple[str, ...], AfterValidator(check_patterns)] = define(
        (), "Topics that may be used, by names or regular expressions; all if empty"
    )
    qos_profile_overrides_path: str | None = define(
        None, "YAML file with the QoS of single subscriptions, in the form of rosbag2; for ROS 2 only"
    )
    depth: int = define(100, "Queue depth: messages that may wait per topic", ge=1, le=10_000)
    report: bool = define(False, "Write an HTML report beside each finished dataset")
    upload: str | None = define(None, "Where finished datasets are sent, such as s3://drives/car7; nowhere if unset")
    keep: bool = define(
        True, "Keep a dataset once it is uploaded; if not, it is removed after its checksums were compared"
    )
    upload_rate: int = define(0, "Largest upload rate, bytes per second; 0: unlimited", ge=0)


class ReplaySettings(Model):
    """Settings of a conversion as a ROS node, also `Settings`."""

    recordings: tuple[values.Place, ...] = define(
        (), "Recordings (.mcap, .db3, .bag, rosbag2 folders), or folders of these; each becomes a sequence"
    )
    join: bool = define(False, "All files are parts of one recording")
    out: values.Place = define("datasets", "Folder for the dataset")
    name: str | None = define(None, "Name of the dataset; that of the recording if unset")
    overwrite: bool = define(False, "Replace an existing dataset")


class PlayerSettings(Model):
    """Settings of a player."""

    recording: values.Place | None = play_setting(
        None, "Recording (.mcap, .db3, .bag, rosbag2 folder) or dataset to play"
    )
    rate: float = play_setting(1.0, "Seconds of the recording played in a second", option="R", ge=0.01, le=100.0)
    loop: bool = play_setting(False, "Begin again at the end, at once and without end", option="")
    clock: bool = play_setting(
        False, "Publish the time of the recording on /clock, 100 times a second; ROS 2 only", option=""
    )
    start: float = play_setting(0.0, "Time at the beginning of the recording to skip, s", option="S", ge=0, le=1e6)
    duration: float | None = play_setting(
        None, "Length of the part to play, s; to the end if unset", option="S", gt=0, le=1e6
    )
    topics: tuple[str, ...] = play_setting(
        (), "Topics to play, by their whole names or the ends of them; all if empty", option="A,B"
    )
    wait_for_subscribers: int = play_setting(
        1, "Topics that must have a subscriber before the first message; 0: do not wait", option="N", ge=0, le=1000
    )
    wait_timeout: float = play_setting(10.0, "Longest time to wait for subscribers, s", option="S", ge=0, le=3600)
