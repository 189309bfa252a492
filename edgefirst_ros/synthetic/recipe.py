# SPDX-License-Identifier: Apache-2.0
"""Recipe of a synthetic recording: every parameter, its default, and the times that follow from them."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import PurePath

from edgefirst_ros.errors import UsageError

SECOND = 1_000_000_000
START = 1_768_478_400 * SECOND
"""2026-01-15T12:00:00Z in ns."""

CAMERA_TOPIC = {
    "h264": "camera/h264",
    "h265": "camera/h265",
    "jpeg": "camera/jpeg",
    "png": "camera/jpeg",
    **dict.fromkeys(("rgb8", "bgr8", "mono8", "yuv422", "nv12"), "camera/image"),
}
"""Topic of the camera by codec, without prefix; raw pictures have their encoding as codec."""

RATES = {
    "radar/cube": 18.0, "radar/targets": 18.0, "radar/clusters": 18.0, "radar/info": 1.0, "lidar/points": 10.0,
    "gps": 10.0, "imu": 50.0, "model/info": 1.0, "fusion/boxes3d": 10.0, "tf_static": 3.0,
}  # fmt: skip
"""Messages a second (tf_static: each transform once); camera, camera/info and model topics follow the pictures."""
PHASES = {
    "radar/cube": 7, "radar/targets": 7, "radar/clusters": 7, "lidar/points": 13, "fusion/boxes3d": 13, "gps": 3,
    "imu": 1,
}  # fmt: skip
"""First message of a topic, ms after the start: companions shall not fall on the frames by themselves.

Fusion has the stamps of the lidar points it is made from."""
LATENCIES = {
    "camera": 45.0, "camera/info": 2.0, "radar/cube": 30.0, "radar/targets": 20.0, "radar/clusters": 25.0,
    "lidar/points": 50.0, "gps": 60.0, "imu": 5.0, "model/output": 90.0, "model/boxes2d": 90.0, "model/mask": 95.0,
    "model/mask_compressed": 98.0, "fusion/boxes3d": 120.0,
}  # fmt: skip
"""Milliseconds from measuring to recording; others take 1."""
MODEL_TOPICS = frozenset({"model/output", "model/boxes2d", "model/mask", "model/mask_compressed"})
TOPICS = frozenset({"camera", "camera/info", *RATES, *MODEL_TOPICS})
"""Every topic, by its name in a recipe; `camera` represents the codec's own topic."""
OLDER = frozenset({"model/boxes2d", "model/mask", "model/mask_compressed"})
"""Topics of the older generation of devices instead of `model/output`."""
DEFAULT_TOPICS = TOPICS - {"radar/clusters", "fusion/boxes3d", *OLDER}
EVERY = frozenset({"*"})
"""All topics, where a fault expects names."""


@dataclass(frozen=True)
class Recipe:
    """A synthetic recording. Topics are named as in `TOPICS`; lengths of time are in s unless a name says otherwise.

    Indices of video messages count in decode order from the first picture encoded, those of other topics in time.
    Raises UsageError for values that make no recording.
    """

    seconds: float = 5.0
    seed: int = 0
    start: int = START
    host: str = "maivin-demo"
    topics: Collection[str] = DEFAULT_TOPICS
    rates: Mapping[str, float] = field(default_factory=dict)
    objects: int = 4
    scene: str = "plain"
    """`plain`: one long curve at one speed; `street`: a drive that turns and accelerates between houses."""

    # camera
    codec: str = "h264"
    size: tuple[int, int] = (640, 360)
    fps: float = 30.0
    gop: int = 30
    b_frames: int = 0
    open_gop: bool = False
    quantiser: int = 24
    bitrate: int | None = None
    """bit/s; None: the fixed quantiser."""
    noise: float = 0.0
    """Standard deviation of the camera's noise, in steps of 8 bits."""
    matrix: str = "bt709"
    full_range: bool = False
    parameter_sets_once: bool = False
    leading_packet: bool = False
    """The first video message holds the parameter sets and no picture (and no other has them)."""
    start_in_gop: int = 0
    """Number of messages at the begin of the video that are not recorded."""

    # other sensors
    cube_shape: tuple[int, int, int, int] = (2, 128, 4, 128)
    """[sequence, range, rx, doppler]; the last counts real and imaginary parts. The device: (2, 200, 4, 512)."""
    lidar_points: int = 4000
    position: tuple[float, float, float] = (45.5, -73.6, 30.0)
    """Latitude and longitude in degrees, altitude in m, at the start."""
    heading: float = 0.6
    """Yaw at the start in rad, counter-clockwise from east."""
    model_every: int = 3
    """Model results for each n-th frame."""
    full_masks: bool = False
    """Masks with a cell for every pixel that they cover, instead of coarse ones."""

    # clocks
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    jitter_ms: float = 3.0
    publish: str = "stamp"
    """`stamp` (time of measuring) or `log` (time of recording, as older recorders)."""
    header_zero: Collection[str] = ()
    all_equal: Collection[str] = ()
    clock_offset: Mapping[str, int] = field(default_factory=dict)
    """ns by which a topic's header stamps are off."""
    clock_steps: Sequence[tuple[float, int]] = ()
    """(s after the start, ns): the device's clock is set then; all three stamps follow."""

    # losses
    drop_video: Collection[int] = ()
    drop: Mapping[str, Collection[int]] = field(default_factory=dict)
    sequence_gaps: bool = True
    """Sequence numbers count dropped messages too; otherwise they do not show the loss."""
    truncate: Mapping[str, Collection[int]] = field(default_factory=dict)
    """Messages cut to half their bytes."""

    # file
    prefix: str = "/"
    rename: Mapping[str, str] = field(default_factory=dict)
    """Whole names for topics, without the prefix put before."""
    compression: str = ""
    chunk_size: int = 1 << 20
    foreign_channel: bool = False
    """A JSON channel /clock_step, one message a second."""
    without_end: bool = False
    """The file ends after its last chunk."""
    cut: int | None = None
    """Bytes kept of the file; negative: taken off its end."""

    def __post_init__(self) -> None:
        width, height = self.size
        named = {
            *self.topics, *self.latency_ms, *self.header_zero, *self.all_equal,
            *self.clock_offset, *self.drop, *self.truncate, *self.rename,
        } - EVERY  # fmt: skip
        sequences, ranges, receivers, doppler = self.cube_shape
        rules = {
            f"seconds and fps must be positive: {self.seconds}, {self.fps}": self.seconds > 0 and self.fps > 0,
            f"unknown codec {self.codec!r}; known: {', '.join(CAMERA_TOPIC)}": self.codec in CAMERA_TOPIC,
            f"size must be even and at least 128x64: {width}x{height}":
                width >= 128 and height >= 64 and width % 2 == height % 2 == 0,
            f"unknown topics: {', '.join(sorted(named - TOPICS))}": named <= TOPICS,
            f"rates of unknown topics, or not positive: {dict(self.rates)}":
                self.rates.keys() <= RATES.keys() and all(rate > 0 for rate in self.rates.values()),
            f"cube shape must be positive, its last even: {self.cube_shape}":
                min(sequences, ranges, receivers, doppler) > 0 and doppler % 2 == 0,
            f"noise must be 0 to 10: {self.noise}": 0 <= self.noise <= 10,
            f"gop and model_every must be positive, b_frames 0 to 8: {self.gop}, {self.model_every}, {self.b_frames}":
                self.gop > 0 and self.model_every > 0 and 0 <= self.b_frames <= 8,
            f"scene must be plain or street: {self.scene!r}": self.scene in ("plain", "street"),
            f"matrix must be bt601 or bt709: {self.matrix!r}": self.matrix in ("bt601", "bt709"),
            f"publish must be stamp or log: {self.publish!r}": self.publish in ("stamp", "log"),
            f"compression must be '', lz4 or zstd: {self.compression!r}": self.compression in ("", "lz4", "zstd"),
        }  # fmt: skip
        for message, kept in rules.items():
            if not kept:
                raise UsageError(f"recipe: {message}")

    @property
    def duration(self) -> int:
        """Length in ns."""
        return round(self.seconds * SECOND)

    @property
    def frames(self) -> int:
        """Pictures the camera takes."""
        return max(1, round(self.seconds * self.fps))

    def topic(self, name: str) -> str:
        """Name of a topic in the recording."""
        if name in self.rename:
            return self.rename[name]
        return self.prefix + (CAMERA_TOPIC[self.codec] if name == "camera" else name)

    def rate(self, name: str) -> Fraction:
        """Messages a second."""
        if name in ("camera", "camera/info") or name in MODEL_TOPICS:
            per_frame = self.model_every if name in MODEL_TOPICS else 1
            return Fraction(self.fps).limit_denominator(1001) / per_frame
        return Fraction(self.rates.get(name, RATES[name])).limit_denominator(1000)

    def stamp(self, name: str, index: int) -> int:
        """True time in ns at which message `index` of a topic was measured (video: by presentation order)."""
        rate = self.rate(name)
        return self.start + PHASES.get(name, 0) * 1_000_000 + index * SECOND * rate.denominator // rate.numerator

    def receive_time(self, name: str, index: int, stamp: int) -> int:
        """True time in ns at which a message reaches the recorder."""
        chance = zlib.crc32(f"{self.seed}/{name}/{index}".encode()) / (1 << 32)
        latency = self.latency_ms.get(name, LATENCIES.get(name, 1.0))
        return stamp + round((latency + self.jitter_ms * chance) * 1e6)

    def clock(self, time: int) -> int:
        """Return the time of the device's clock at a true time, both in ns."""
        return time + sum(step for at, step in self.clock_steps if time >= self.start + round(at * SECOND))

    def header(self, name: str, stamp: int) -> int:
        """Header stamp in ns that a message measured at the true time `stamp` carries, faults and all."""
        named = {name, *EVERY}
        if not named.isdisjoint(self.header_zero):
            return 0
        shown = self.clock(stamp if named.isdisjoint(self.all_equal) else self.start)
        return shown + self.clock_offset.get(name, 0)

    def list_dropped(self, name: str) -> Collection[int]:
        """Indices of a topic's messages that are not recorded."""
        return self.drop_video if name == "camera" else self.drop.get(name, ())


def make_recording_name(host: str, start: int) -> str:
    """File name `host_YYYY_MM_DD_HH_MM_SS.mcap` for a start in ns since the epoch, UTC."""
    return f"{PurePath(host).name}_{datetime.fromtimestamp(start // SECOND, timezone.utc):%Y_%m_%d_%H_%M_%S}.mcap"
