# SPDX-License-Identifier: Apache-2.0
"""Table of sensors: topics and types, members and columns in a dataset, and other names of each.

Everything else that lists sensors is derived from it. A new sensor is one record here, one codec file in
`sensors/` named in `sensors.companions`, and a paragraph in docs/reference/dataset-format.md. A rig may have further
instances of a sensor, such as `lidar.points.rear`: their records are made of the sensor's own by name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, count
from typing import Literal, NamedTuple

VIDEO = "foxglove_msgs/msg/CompressedVideo"
COMPRESSED_IMAGE = "sensor_msgs/msg/CompressedImage"
IMAGE = "sensor_msgs/msg/Image"
FFMPEG = "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"
CAMERA_INFO = "sensor_msgs/msg/CameraInfo"
TILED = "edgefirst_ros/msg/TiledVideo"
"""Four messages of video with one stamp, as `messages.join_tiles` joins them; never published."""
CUBES = "edgefirst_ros/msg/Cubes"
"""Boxes in space with a pose of their own, as Foxglove's SceneUpdate has them; no other program publishes it."""
TILES = ("tl", "tr", "bl", "br")
"""Tiles of a picture, as the ends of their topics: top left, top right, bottom left, bottom right."""
CLOUD = "sensor_msgs/msg/PointCloud2"
CUBE = "edgefirst_msgs/msg/RadarCube"
FIX = "sensor_msgs/msg/NavSatFix"
IMU = "sensor_msgs/msg/Imu"
POSE_STAMPED = "geometry_msgs/msg/PoseStamped"
ODOMETRY = "nav_msgs/msg/Odometry"
POSE_COVARIANCE = "geometry_msgs/msg/PoseWithCovarianceStamped"
DETECT = "edgefirst_msgs/msg/Detect"
MASK = "edgefirst_msgs/msg/Mask"
MODEL = "edgefirst_msgs/msg/Model"
TRANSFORM = "geometry_msgs/msg/TransformStamped"
TF_MESSAGE = "tf2_msgs/msg/TFMessage"

RECORDINGS = (".mcap", ".db3", ".bag")
"""Ends of the names of recordings."""

Form = Literal["camera", "picture", "cube", "cloud"]
"""Content of a member: camera picture of a sample, another picture, radar cube as PNG, point cloud as PCD."""


class Topic(NamedTuple):
    """A topic of the device: its name without slash, `rt/` and host, and the types it may have."""

    name: str
    types: tuple[str, ...]
    aligned: bool = False
    """True if its messages are aligned with the frames by time."""
    static: bool = False
    """True if its content is static, such as camera/info and tf_static."""


class Sensor(NamedTuple):
    """A sensor whose messages become members of samples."""

    key: str
    """Its name in settings, counts and reports: `radar.cube`."""
    topics: tuple[Topic, ...]
    """Topics, the preferred one first; empty for sensors that only other tools write."""
    kinds: tuple[str, ...]
    """Kinds (suffixes) of its members, the usual one first: `radar.png`."""
    former: str
    """An earlier name of it, which is accepted too: `radar.pcd`."""
    form: Form
    column: str | None = None
    """Prefix of its columns in the frames table: `radar_cube`; None without columns."""
    alias: str | None = None
    """A short name, which is accepted too: `radar`."""
    setting: tuple[str, object] | None = None
    """Name and value of the setting that selects it; None: it is always used."""
    default: bool = True
    """True if it is used by default."""
    instance: str | None = None
    """Name of a further one in a rig: `rear` of `lidar.points.rear`; None for the first."""

    @property
    def base(self) -> str:
        """Key of the first instance: `lidar.points` of `lidar.points.rear`."""
        return self.key.removesuffix(f".{self.instance}") if self.instance is not None else self.key

    @property
    def order(self) -> tuple[int, str]:
        """Place among the members of a sample: that of the first instance, then by name."""
        return list(_BY_KEY).index(self.base), self.instance or ""

    @property
    def kind(self) -> str:
        """The usual kind of its members."""
        return self.kinds[0]

    @property
    def types(self) -> tuple[str, ...]:
        """Types that its topics may have."""
        return tuple(dict.fromkeys(schema for topic in self.topics for schema in topic.types))

    @property
    def size_column(self) -> str:
        """Column of the frames table with the size of its pictures."""
        return "size" if self.column is None else f"{self.column}_size"

    @property
    def topic(self) -> Topic:
        """The preferred topic. Raises IndexError without any."""
        return self.topics[0]


def _make(name: str, schema: str) -> tuple[Topic, ...]:
    return (Topic(name, (schema,), aligned=True),)


CAMERA = Sensor(
    "camera",
    (
        Topic("camera/h265", (VIDEO, FFMPEG, COMPRESSED_IMAGE)),
        Topic("camera/h264", (VIDEO, FFMPEG, COMPRESSED_IMAGE)),
        Topic("camera/h264/tl", (TILED,)),
        Topic("camera/jpeg", (COMPRESSED_IMAGE,)),
        Topic("camera/image", (IMAGE,)),
    ),
    ("camera.jpeg", "camera.png"),
    "camera",
    "camera",
    alias="image",
)

# fmt: off
SENSORS: tuple[Sensor, ...] = (
    CAMERA,
    Sensor("radar.cube", _make("radar/cube", CUBE), ("radar.png",), "radar.cube", "cube", "radar_cube",
           alias="cube"),
    Sensor("radar.targets", _make("radar/targets", CLOUD), ("radar.pcd",), "radar.pcd", "cloud", "radar_targets",
           alias="radar", setting=("radar_points", "targets")),
    Sensor("radar.clusters", _make("radar/clusters", CLOUD), ("radar.pcd",), "radar.pcd", "cloud", "radar_clusters",
           alias="radar", setting=("radar_points", "clusters"), default=False),
    Sensor("lidar.points", _make("lidar/points", CLOUD), ("lidar.pcd",), "lidar.pcd", "cloud", "lidar_points",
           alias="lidar"),
    Sensor("lidar.depth", _make("lidar/depth", IMAGE), ("lidar.png",), "lidar.depth", "picture",
           setting=("lidar_images", True), default=False),
    Sensor("lidar.reflect", _make("lidar/reflect", IMAGE), ("lidar.jpeg",), "lidar.reflectivity", "picture",
           setting=("lidar_images", True), default=False),
    Sensor("depth", (), ("depth.png",), "depth", "picture"),
)
"""All sensors, in the order of their members in a sample."""

_BY_KEY = {sensor.key: sensor for sensor in SENSORS}
_BY_COLUMN = {sensor.column: sensor for sensor in SENSORS if sensor.column is not None}
_BY_KIND = {kind: sensor for sensor in reversed(SENSORS) for kind in sensor.kinds}

ROLES: dict[str, tuple[str, ...]] = {
    "gps": (FIX,),
    "imu": (IMU,),
    "pose": (ODOMETRY, POSE_STAMPED, POSE_COVARIANCE),
    "model": (MODEL, DETECT),
    "boxes3d": (DETECT, CUBES),
}
"""Roles of topics without members, and the types they may have."""
RIG_KEYS = (*(sensor.key for sensor in SENSORS if sensor.topics), *ROLES)

OTHERS: tuple[Topic, ...] = (
    Topic("camera/info", (CAMERA_INFO,), static=True),
    Topic("radar/info", ("edgefirst_msgs/msg/RadarInfo",)),
    Topic("lidar/clusters", (CLOUD,)),
    Topic("gps", (FIX,), aligned=True),
    Topic("imu", (IMU,), aligned=True),
    Topic("model/output", (MODEL,)),
    Topic("model/boxes2d", (DETECT,)),
    Topic("model/mask", (MASK,)),
    Topic("model/mask_compressed", (MASK,)),
    Topic("model/info", ("edgefirst_msgs/msg/ModelInfo",), static=True),
    Topic("fusion/boxes3d", (DETECT, CUBES), aligned=True),
    Topic("tf_static", (TRANSFORM, TF_MESSAGE), static=True),
    Topic("tf", (TRANSFORM, TF_MESSAGE)),
)
# fmt: on

CAMERA_TYPES = CAMERA.types
"""Types a camera may have; where no topic has a known name, the first type present is used."""


def list_topics() -> tuple[Topic, ...]:
    """Return all topics of the device."""
    return (*(topic for sensor in SENSORS for topic in sensor.topics), *OTHERS)


def list_companions() -> tuple[Sensor, ...]:
    """Return the sensors whose messages join the samples of a reference topic."""
    return tuple(sensor for sensor in SENSORS if sensor.topics and sensor.form != "camera")


LONGEST = 32
"""Characters of the name of an instance."""
INSTANCE = f"[a-z0-9_]{{1,{LONGEST}}}"
"""Names of instances."""
KNOWN = 4096
"""Names whose records are remembered; names in a foreign file have no other bound."""
_SEVERAL = {sensor.column or sensor.key: sensor for sensor in SENSORS if sensor.column or sensor is CAMERA}
"""Sensors of which a rig may have further instances, by the beginning of their columns."""
_KEY = re.compile(rf"(?P<base>{'|'.join(re.escape(s.key) for s in _SEVERAL.values())})\.(?P<instance>{INSTANCE})")
_COLUMN = re.compile(rf"(?P<base>{'|'.join(_SEVERAL)})_(?P<instance>{INSTANCE})")
_KIND = re.compile(rf"(?P<stem>[a-z]+)-(?P<instance>{INSTANCE})(?P<ending>\.[a-z]+)")

_STEM = re.compile(rf"(?P<stem>[a-z]+)-(?P<instance>{INSTANCE})")
"""Beginning of a kind, without its ending: `camera-left`."""


def _make_instance(sensor: Sensor, name: str) -> Sensor:
    return sensor._replace(
        key=f"{sensor.key}.{name}",
        kinds=tuple(kind.replace(".", f"-{name}.", 1) for kind in sensor.kinds),
        former=f"{sensor.key}.{name}",
        column=f"{sensor.column or sensor.key}_{name}",
        alias=None,
        instance=name,
    )


def is_key(key: str) -> bool:
    """True for the key of a sensor, or of an instance of one of which a rig may have several."""
    return key in _BY_KEY or _KEY.fullmatch(key) is not None


def make_free_key(key: str, names: Sequence[str], taken: set[str], first: int = 2) -> str:
    """Return the key of a further instance, and add it to `taken`.

    It has the first of its `names` that is free, else the last with a number from `first` on.
    """
    named = (f"{key}.{name[-LONGEST:]}" for name in names)
    numbered = (f"{key}.{names[-1][len(end) - LONGEST :]}{end}" for end in (f"_{n}" for n in count(first)))
    found = next(one for one in chain(named, numbered) if one not in taken)
    taken.add(found)
    return found


@functools.lru_cache(KNOWN)
def find_by_key(key: str) -> Sensor:
    """Return the sensor of a key (`radar.cube`, `lidar.points.rear`); raises KeyError for an unknown one."""
    match = _KEY.fullmatch(key)
    if key in _BY_KEY or match is None:
        return _BY_KEY[key]
    return _make_instance(_BY_KEY[match["base"]], match["instance"])


@functools.lru_cache(KNOWN)
def find_by_column(column: str) -> Sensor:
    """Return the sensor of columns of the frames table (`radar_cube`); raises KeyError for an unknown one."""
    match = _COLUMN.fullmatch(column)
    if column in _BY_COLUMN or match is None:
        return _BY_COLUMN[column]
    return _make_instance(_SEVERAL[match["base"]], match["instance"])


@functools.lru_cache(KNOWN)
def find_by_kind(kind: str) -> Sensor:
    """Return the first sensor that has members of a kind (`radar.pcd`); raises KeyError for an unknown one."""
    match = _KIND.fullmatch(kind)
    if match is None:
        return _BY_KIND[kind]
    sensor = _BY_KIND[match["stem"] + match["ending"]]
    if sensor not in _SEVERAL.values():
        raise KeyError(kind)
    return _make_instance(sensor, match["instance"])


def find_by_columns(names: Iterable[str]) -> tuple[Sensor, ...]:
    """Return the sensors that have a stamp or a skew among the columns of a frames table, in the order of members."""
    found = set()
    for name in names:
        base, _, what = name.rpartition("_")
        if what in ("timestamp", "skew") and (base in _BY_COLUMN or _COLUMN.fullmatch(base)):
            found.add(find_by_column(base))
    return tuple(sorted(found, key=lambda sensor: sensor.order))


def is_radar(name: str) -> bool:
    """True if a key, kind or column is of a radar, whose clouds have speeds and few points; others are of a lidar."""
    return name.startswith("radar")


def stamp_columns(there: Collection[str]) -> dict[str, str]:
    """Return {sensor: its stamp column}, of the columns `there` of a frames table."""
    columns = {sensor.key: f"{sensor.column}_timestamp" for sensor in find_by_columns(there)}
    return {name: column for name, column in columns.items() if column in there}


@functools.lru_cache(KNOWN)
def list_keys(name: str) -> tuple[str, ...]:
    """Return the keys of sensors with a name: a key, a topic, a member, a column, an earlier or a short name."""
    if name in _BY_KEY:
        return (name,)
    plain = name.lower().removeprefix("/").removeprefix("rt/")
    dotted = plain.replace("/", ".").replace("_", ".")
    found = []
    for sensor in SENSORS:
        others = {sensor.former, sensor.alias, sensor.column, *sensor.kinds, *(topic.name for topic in sensor.topics)}
        if plain in others or dotted == sensor.key:
            found.append(sensor.key)
    if not found and (match := _KIND.fullmatch(plain) or _STEM.fullmatch(plain)):
        ending = match.groupdict().get("ending", "")
        named = (f"{key}.{match['instance']}" for key in list_keys(match["stem"] + ending))
        found = [key for key in named if is_key(key)]
    elif not found and (match := _KEY.fullmatch(plain) or _COLUMN.fullmatch(plain)):
        found = [f"{key}.{match['instance']}" for key in list_keys(match["base"])]
    return tuple(found)


def find_key(name: str) -> str | None:
    """Return the key of a sensor by any of its names, the first of several, or `model`; None for an unknown name."""
    found = list_keys(name)
    return found[0] if found else "model" if name.lower().strip("/").removeprefix("rt/").startswith("model") else None


def find_form(kind: str) -> Form | None:
    """Return the content of members of a kind; None for an unknown one."""
    try:
        return find_by_kind(kind).form
    except KeyError:
        return None


def list_kinds(*forms: Form) -> tuple[str, ...]:
    """Return the kinds of members of first instances, those of some forms or all."""
    wanted = (sensor for sensor in SENSORS if not forms or sensor.form in forms)
    return tuple(dict.fromkeys(kind for sensor in wanted for kind in sensor.kinds))
