# SPDX-License-Identifier: Apache-2.0
"""Turns Foxglove's protobuf messages into ROS messages of the same content, in CDR.

Source: foxglove-sdk, schemas/proto/foxglove.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from edgefirst.schemas import builtin_interfaces, foxglove_msgs, geometry_msgs, nav_msgs, sensor_msgs, std_msgs

from edgefirst_ros import streams
from edgefirst_ros.errors import RecordingError, need
from edgefirst_ros.messages import Cubes, SpaceBox
from edgefirst_ros.sensors.calibration import MODELS
from edgefirst_ros.sensors.transforms import make_rotation
from edgefirst_ros.sources.source import Convert, Note

PROTOBUF = "protobuf"
DATATYPES = (0, 2, 1, 4, 3, 6, 5, 7, 8)
"""PointField.datatype of each PackedElementField.NumericType."""
FLOATS = {7: "<f4", 8: "<f8"}
"""numpy kinds of the datatypes that a turned coordinate may have."""
GPS = 1
"""NavSatStatus.service."""


def open_converter(name: str, descriptors: bytes, note: Note) -> tuple[str, Convert] | None:
    """Return the type of the ROS messages for a protobuf type, and what makes them; None for a type without one.

    Args:
        name: Name of the type, `foxglove.CompressedVideo`.
        descriptors: Serialized FileDescriptorSet of the recording.
        note: Called with a note to the user.

    Raises:
        EdgeFirstError: The extra is not installed.
        RecordingError: The descriptors do not describe the type.
    """
    if name not in CONVERTERS:
        return None
    need(f"a recording with {name} in protobuf", PROTOBUF, "mcap_protobuf")
    from mcap.records import Schema
    from mcap_protobuf.decoder import DecoderFactory

    schema, make = CONVERTERS[name]
    try:
        parse: Any = DecoderFactory().decoder_for(PROTOBUF, Schema(1, descriptors, PROTOBUF, name))
    except Exception as error:  # any error of protobuf on invalid descriptors
        raise RecordingError(f"{name}: its protobuf descriptors cannot be read: {error}") from error

    def convert(data: bytes) -> bytes:
        try:
            made = make(parse(data), note)
            return bytes(made if isinstance(made, bytes) else made.to_bytes())
        except Exception:  # noqa: BLE001  any error of protobuf or the codec on bad bytes
            return b""

    return schema, convert


# ---- CDR -----------------------------------------------------------------------------------------
def _stamp(message: Any) -> tuple[int, int]:
    return message.timestamp.seconds, message.timestamp.nanos


def _convert_time(message: Any) -> Any:
    return builtin_interfaces.Time(*_stamp(message))


def _convert_header(message: Any) -> Any:
    return std_msgs.Header(_convert_time(message), message.frame_id)


def _convert_video(message: Any, note: Note) -> Any:
    return foxglove_msgs.CompressedVideo(_convert_time(message), message.frame_id, message.data, message.format)


def _convert_compressed(message: Any, note: Note) -> Any:
    return sensor_msgs.CompressedImage(_convert_header(message), message.format, message.data)


def _convert_raw(message: Any, note: Note) -> Any:
    size, step = (message.height, message.width), message.step
    return sensor_msgs.Image(_convert_header(message), *size, message.encoding, 0, step, message.data)


def _convert_cloud(message: Any, note: Note) -> Any:
    fields = [sensor_msgs.PointField(f.name, f.offset, DATATYPES[f.type], 1) for f in message.fields]
    step, data = message.point_stride, message.data
    turn, moved = message.pose.orientation, message.pose.position
    lies = (turn.x, turn.y, turn.z), (moved.x, moved.y, moved.z)
    if message.HasField("pose") and lies != ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)):
        data = _turn_points(message, step)
        note(f"points of the frame {message.frame_id} are moved by the pose in their messages")
    width = len(data) // step if step else 0
    return sensor_msgs.PointCloud2(_convert_header(message), 1, width, fields, False, step, step * width, data, True)


def _turn_points(message: Any, step: int) -> bytes:
    """Return the points of a cloud with x, y, z in the axes of its frame."""
    turn, moved = message.pose.orientation, message.pose.position
    axes = make_rotation([turn.x, turn.y, turn.z, turn.w])
    places = {f.name: (FLOATS[DATATYPES[f.type]], f.offset) for f in message.fields if f.name in ("x", "y", "z")}
    kind = np.dtype(
        {"names": [*places], "formats": [k for k, _ in places.values()], "offsets": [o for _, o in places.values()],
         "itemsize": step}
    )  # fmt: skip
    points = np.frombuffer(bytearray(message.data), kind)
    found = np.stack([points[axis].astype(float) for axis in "xyz"], axis=1) @ axes.T
    for number, (axis, by) in enumerate((("x", moved.x), ("y", moved.y), ("z", moved.z))):
        points[axis] = found[:, number] + by
    return points.tobytes()


def _fix(message: Any, note: Note) -> Any:
    covariance = list(message.position_covariance) or [0.0] * 9
    return sensor_msgs.NavSatFix(
        _convert_header(message), sensor_msgs.NavSatStatus(0, GPS),
        message.latitude, message.longitude, message.altitude, covariance, message.position_covariance_type,
    )  # fmt: skip


def _convert_calibration(message: Any, note: Note) -> Any:
    k, r, p = (list(values) or [0.0] * size for values, size in ((message.K, 9), (message.R, 9), (message.P, 12)))
    size = message.height, message.width
    model = MODELS.get(message.distortion_model, message.distortion_model)
    return sensor_msgs.CameraInfo(_convert_header(message), *size, model, list(message.D), k, r, p)


def _convert_pose(message: Any, note: Note) -> Any:
    return geometry_msgs.PoseStamped(_convert_header(message), _place(message))


def _place(message: Any) -> Any:
    place, turn = message.pose.position, message.pose.orientation
    point = geometry_msgs.Point(place.x, place.y, place.z)
    return geometry_msgs.Pose(point, geometry_msgs.Quaternion(turn.x, turn.y, turn.z, turn.w))


def _convert_odometry(message: Any, note: Note) -> Any:
    pose = geometry_msgs.PoseWithCovariance(_place(message), [0.0] * 36)
    return nav_msgs.Odometry(_convert_header(message), message.body_frame_id, pose)


def _convert_cubes(message: Any, note: Note) -> bytes:
    boxes: list[SpaceBox] = []
    stamp = 0, 0
    for entity in message.entities:
        if not entity.cubes:
            continue
        stamp = stamp if boxes else _stamp(entity)
        named = {pair.key: pair.value for pair in reversed(entity.metadata)}
        label = named.get("label") or named.get("category", "")
        for number, cube in enumerate(entity.cubes):
            at, turn, size = cube.pose.position, cube.pose.orientation, cube.size
            track = entity.id and f"{entity.id}/{number}"
            place, orientation = (at.x, at.y, at.z), (turn.x, turn.y, turn.z, turn.w)
            frame, sides = entity.frame_id.removeprefix("/"), (size.x, size.y, size.z)
            boxes.append(SpaceBox(frame, place, orientation, sides, label, track))
    return Cubes(boxes).to_cdr(*stamp)


def _convert_transforms(messages: Any) -> bytes:
    parts: list[tuple[str, Any]] = [("I", len(messages))]
    for one in messages:
        moved, turn = one.translation, one.rotation
        parts += [("i", one.timestamp.seconds), ("I", one.timestamp.nanos)]
        parts += [("s", one.parent_frame_id), ("s", one.child_frame_id)]
        parts += [("d", value) for value in (moved.x, moved.y, moved.z, turn.x, turn.y, turn.z, turn.w)]
    return write_cdr(parts)


def write_cdr(parts: list[tuple[str, Any]]) -> bytes:
    """Return a little-endian message of numbers (letters of `struct`) and texts (`s`)."""
    data = bytearray(b"\0\1\0\0")
    for letter, value in parts:
        text = f"{value}\0".encode() if letter == "s" else b""
        form = "I" if letter == "s" else letter
        data += bytes(-(len(data) - 4) % struct.calcsize(f"={form}"))
        data += struct.pack(f"<{form}", len(text) if letter == "s" else value) + text
    return bytes(data)


CONVERTERS: dict[str, tuple[str, Callable[[Any, Note], Any]]] = {
    "foxglove.CompressedVideo": (streams.VIDEO, _convert_video),
    "foxglove.CompressedImage": (streams.COMPRESSED_IMAGE, _convert_compressed),
    "foxglove.RawImage": (streams.IMAGE, _convert_raw),
    "foxglove.PointCloud": (streams.CLOUD, _convert_cloud),
    "foxglove.LocationFix": (streams.FIX, _fix),
    "foxglove.CameraCalibration": (streams.CAMERA_INFO, _convert_calibration),
    "foxglove.PoseInFrame": (streams.POSE_STAMPED, _convert_pose),
    "foxglove.Odometry": (streams.ODOMETRY, _convert_odometry),
    "foxglove.SceneUpdate": (streams.CUBES, _convert_cubes),
    "foxglove.FrameTransform": (streams.TF_MESSAGE, lambda message, note: _convert_transforms([message])),
    "foxglove.FrameTransforms": (streams.TF_MESSAGE, lambda message, note: _convert_transforms(message.transforms)),
}
"""Protobuf type -> type of the ROS message, and the function that makes it, or its bytes."""
