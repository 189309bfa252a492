# SPDX-License-Identifier: Apache-2.0
"""Messages of a synthetic recording as CDR bytes, written by the vendor's own codec."""

from __future__ import annotations

import numpy as np
import zstandard
from edgefirst.schemas import builtin_interfaces, edgefirst_msgs, foxglove_msgs, geometry_msgs, sensor_msgs, std_msgs
from numpy.typing import NDArray

from edgefirst_ros import streams
from edgefirst_ros.messages import KNOWN_TOPICS
from edgefirst_ros.synthetic.picture import make_class_picture, make_outline, make_silhouette
from edgefirst_ros.synthetic.ranging import Radar
from edgefirst_ros.synthetic.recipe import SECOND, Recipe
from edgefirst_ros.synthetic.scene import LABELS, LIDAR, RADAR, Scene, Thing, Transform
from edgefirst_ros.synthetic.video import Unit

LAYOUT = (6, 1, 5, 2)
"""Sequence, range, rx, doppler, as the device sends it."""
POINT_TYPES = {"f4": 7, "u1": 2}
"""sensor_msgs/PointField datatypes of numpy types."""
UNKNOWN = [-1.0] + [0.0] * 8
"""Covariance of the device's IMU: not known."""


def find_schema(name: str, codec: str) -> str:
    """Message type of a topic of the recipe."""
    if name == "camera":
        if codec in ("h264", "h265"):
            return streams.VIDEO
        return streams.COMPRESSED_IMAGE if codec in ("jpeg", "png") else streams.IMAGE
    return KNOWN_TOPICS[name][0]


def make_camera(recipe: Recipe, unit: Unit, header: int) -> bytes:
    """Picture or access unit under its header stamp in ns, as all below."""
    if recipe.codec in ("h264", "h265"):
        return foxglove_msgs.CompressedVideo(_make_time(header), "camera_optical", unit.data, recipe.codec).to_bytes()
    head = _make_header(header, "camera_optical")
    if recipe.codec in ("jpeg", "png"):
        return sensor_msgs.CompressedImage(head, recipe.codec, unit.data).to_bytes()
    width, height = recipe.size
    return sensor_msgs.Image(head, height, width, recipe.codec, 0, unit.step, unit.data).to_bytes()


def make_camera_info(recipe: Recipe, scene: Scene, header: int) -> bytes:
    """Pinhole without distortion (plumb_bob with zeros)."""
    fx, fy, cx, cy = scene.intrinsics
    width, height = recipe.size
    return sensor_msgs.CameraInfo(
        _make_header(header, "camera_optical"), height, width, "plumb_bob", [0.0] * 5,
        [fx, 0, cx, 0, fy, cy, 0, 0, 1], [1.0, 0, 0, 0, 1, 0, 0, 0, 1], [fx, 0, cx, 0, 0, fy, cy, 0, 0, 0, 1, 0],
    ).to_bytes()  # fmt: skip


def make_radar_cube(radar: Radar, stamp: int, header: int) -> bytes:
    """Return the cube measured at `stamp`; its own clock counts microseconds from a moment of its own."""
    return edgefirst_msgs.RadarCube(
        _make_header(header, "radar"), stamp // 1000 % 10**12, bytes(LAYOUT),
        np.array(radar.shape, np.uint16).tobytes(), np.array(radar.scales, np.float32).tobytes(),
        radar.cube(stamp).tobytes(), is_complex=True,
    ).to_bytes()  # fmt: skip


def make_radar_info(header: int) -> bytes:
    """Settings of the radar."""
    return edgefirst_msgs.RadarInfo(
        _make_header(header, "radar"), "high", "short", "off", "medium", cube=True
    ).to_bytes()


def make_cloud(points: NDArray[np.void], frame_id: str, header: int) -> bytes:
    """Return a structured array as an unorganised cloud with the array's own layout."""
    fields = [
        sensor_msgs.PointField(name, place[1], POINT_TYPES[place[0].str[1:]], 1)
        for name, place in (points.dtype.fields or {}).items()
    ]
    step = points.dtype.itemsize
    return sensor_msgs.PointCloud2(
        _make_header(header, frame_id), 1, len(points), fields, False, step, step * len(points), points.tobytes()
    ).to_bytes()


def fix(scene: Scene, stamp: int, header: int) -> bytes:
    """Position at `stamp`, 1.5 m a horizontal axis and 3 m vertical."""
    covariance = [2.25, 0, 0, 0, 2.25, 0, 0, 0, 9.0]
    return sensor_msgs.NavSatFix(
        _make_header(header, "gps"), sensor_msgs.NavSatStatus(0, 1), *scene.position(stamp), covariance, 2
    ).to_bytes()


def make_imu(scene: Scene, stamp: int, header: int) -> bytes:
    """Attitude of the vehicle, turn rate and acceleration of its curve."""
    motion = scene.motion(stamp)
    return sensor_msgs.Imu(
        _make_header(header, "imu"), geometry_msgs.Quaternion(*scene.orientation(stamp)), UNKNOWN,
        geometry_msgs.Vector3(0.0, 0.0, motion.turn), UNKNOWN,
        geometry_msgs.Vector3(motion.acceleration, motion.speed * motion.turn, 9.81), UNKNOWN,
    ).to_bytes()  # fmt: skip


def make_transform(value: Transform, header: int) -> bytes:
    """Return one static transform."""
    moved, turned = geometry_msgs.Vector3(*value.translation), geometry_msgs.Quaternion(*value.rotation)
    way = geometry_msgs.Transform(moved, turned)
    return geometry_msgs.TransformStamped(_make_header(header, value.parent), value.child, way).to_bytes()


def make_model_info(recipe: Recipe, header: int) -> bytes:
    """Return the model's labels."""
    width, height = recipe.size
    columns = len(make_silhouette()[0])
    return edgefirst_msgs.ModelInfo(
        _make_header(header, ""), [1, height, width, 3], None, [1, recipe.objects, columns], None, list(LABELS),
        "detection", "tflite", "synthetic", input_dtype=edgefirst_msgs.ModelInfo.DTYPE_U8,
        output_dtype=edgefirst_msgs.ModelInfo.DTYPE_F32,
    ).to_bytes()  # fmt: skip


def make_model(scene: Scene, stamp: int, header: int) -> bytes:
    """Boxes of all objects in view, nearest last, each with its mask over the box; 2, 9, 1 and 3 ms of timing."""
    boxes = _make_boxes(scene, stamp)
    shown = [thing for thing in scene.things(stamp) if thing.box2d is not None]
    masks = [_make_instance(scene, thing) for thing in shown]
    load, inference, output, decode = (builtin_interfaces.Duration(0, ms * 1_000_000) for ms in (2, 9, 1, 3))
    head = _make_header(header, "camera_optical")
    return edgefirst_msgs.Model(head, load, inference, output, decode, boxes, masks).to_bytes()


def make_detect(scene: Scene, stamp: int, header: int) -> bytes:
    """Return the same boxes in the older form; timing of 2, 9 and 4 ms."""
    load, inference, decode = (_make_time(ms * 1_000_000) for ms in (2, 9, 4))
    head = _make_header(header, "camera_optical")
    return edgefirst_msgs.Detect(head, load, inference, decode, _make_boxes(scene, stamp)).to_bytes()


def make_boxes3d(scene: Scene, stamp: int, header: int) -> bytes:
    """Boxes in space as fusion sends them: in the lidar's optical axes, numbers for labels and tracks, score 1.

    It has only width and height of the extents; its times are stamps.
    """
    boxes = []
    for number, thing in enumerate(scene.things(stamp)):
        (x, y, z), _, _ = thing.measure_from(LIDAR)
        _, width, height = thing.size
        track = str(number + 1), 0, _make_time(header)
        boxes.append(
            edgefirst_msgs.Box(-y, -z, width, height, str(thing.label_index), 1.0, x, 0.0, *track)  # x: how far ahead
        )
    return edgefirst_msgs.Detect(
        _make_header(header, "lidar"), _make_time(header), _make_time(0), _make_time(header), boxes
    ).to_bytes()


def make_class_mask(scene: Scene, stamp: int, encoding: str = "") -> bytes:
    """Class index per cell of an eighth of the picture, or per pixel; this message has no header."""
    classes = _make_coarse_classes(scene, stamp)
    if scene.recipe.full_masks:
        classes = make_class_picture(scene.things(stamp), *scene.recipe.size)
    data = classes.tobytes()
    if encoding == "zstd":
        data = zstandard.ZstdCompressor().compress(data)
    height, width = classes.shape
    return edgefirst_msgs.Mask(height, width, 1, encoding, data, boxed=False).to_bytes()


def _make_instance(scene: Scene, thing: Thing) -> edgefirst_msgs.MaskBox:
    mask = make_silhouette()
    if scene.recipe.full_masks:
        mask = np.where(make_outline(thing, *scene.recipe.size), np.uint8(255), np.uint8(0))
    height, width = mask.shape
    return edgefirst_msgs.MaskBox(height, width, 1, "", mask.tobytes(), boxed=True)


def _make_coarse_classes(scene: Scene, stamp: int) -> NDArray[np.uint8]:
    """Return the class of each cell of eight by eight pixels."""
    width, height = (length // 8 for length in scene.recipe.size)
    classes = np.zeros((height, width), dtype=np.uint8)
    x, y = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
    shape = make_silhouette()
    for thing in scene.things(stamp):
        if thing.box2d is None:
            continue
        cx, cy, w, h = thing.box2d
        across = np.floor(((x - cx) / w + 0.5) * shape.shape[1]).astype(int)
        down = np.floor(((y - cy) / h + 0.5) * shape.shape[0]).astype(int)
        inside = np.ix_((down >= 0) & (down < shape.shape[0]), (across >= 0) & (across < shape.shape[1]))
        covered = shape[down[inside[0]], across[inside[1]]] > 0
        classes[inside] = np.where(covered, thing.label_index, classes[inside])
    return classes


def _make_boxes(scene: Scene, stamp: int) -> list[edgefirst_msgs.Box]:
    return [_make_box(scene, thing, thing.box2d, stamp) for thing in scene.things(stamp) if thing.box2d is not None]


def _make_box(scene: Scene, thing: Thing, box: tuple[float, float, float, float], stamp: int) -> edgefirst_msgs.Box:
    _, distance, speed = thing.measure_from(RADAR)
    recipe = scene.recipe
    seen = (stamp - recipe.start) * recipe.rate("camera") // SECOND + 1 if thing.track else 0
    created = _make_time(recipe.clock(recipe.start) if thing.track else 0)
    score = 0.95 - 0.02 * (thing.number % 20)
    return edgefirst_msgs.Box(*box, thing.label, score, distance, speed, thing.track, int(seen), created)


def _make_time(nanoseconds: int) -> builtin_interfaces.Time:
    return builtin_interfaces.Time(*divmod(nanoseconds, SECOND))


def _make_header(nanoseconds: int, frame_id: str) -> std_msgs.Header:
    return std_msgs.Header(_make_time(nanoseconds), frame_id)
