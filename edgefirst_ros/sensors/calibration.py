# SPDX-License-Identifier: Apache-2.0
"""Static data of a recording: camera intrinsics, static transforms, labels of the model."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefirst_ros.counts import CANNOT_BE_STORED
from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.transforms import BASE, OPTICAL_NAMES, chain_frames
from edgefirst_ros.streams import CAMERA, CAMERA_INFO, TF_MESSAGE, TRANSFORM, find_by_key

if TYPE_CHECKING:
    from edgefirst_ros.messages import FrameTransform

GIVEN, IDENTITY, MISSING = "given", "identity", "missing"
WORDS = (GIVEN, IDENTITY, MISSING)
"""Quality of a calibration, from best to worst."""
RECTIFIED = re.compile(r"(?<![a-z])rect(?![a-z])")
"""A word in the names of topics with pictures that image_proc, or the camera, has rectified: `image_rect_color`."""
MODELS = {**dict.fromkeys(("radtan", "pinhole", "brown conrady"), "plumb_bob"), "kannala_brandt": "equidistant"}
"""Name of a distortion model, in small letters -> that of ROS, which has the same coefficients."""
ROUNDING = 1e-4
"""m, and parts of a quaternion, by which a transform may differ from the first and is the same."""
STRAIGHT = 2e-6
"""Largest turn that counts as none, rad."""

MOST_CAMERAS, MOST_TRANSFORMS, MOST_COEFFICIENTS, MOST_LABELS = 256, 4096, 64, 65_536
"""Most cameras and transforms of a vehicle, coefficients of a distortion, labels of a model; they become metadata."""
LONGEST_NAME = 4096
"""Characters of a frame_id, a distortion model, a label."""


@dataclass(slots=True)
class _First:
    """The first of several messages, and the `log_time` in ns of the first one that differs."""

    value: dict[str, Any]
    changed: int | None = None

    def add(self, value: Mapping[str, Any], log_time: int) -> None:
        if self.changed is None and value != self.value and repr(value) != repr(self.value):  # NaN
            self.changed = log_time


@dataclass(slots=True)
class PictureFacts:
    """Facts that decide which CameraInfo belongs to the pictures of a camera."""

    topic: str
    own: str | None
    """Topic of camera/info that is named for it, or has the prefix of the pictures' topic."""
    among: Container[str] | None = None
    """Topics of camera/info that may be its own; None: all."""
    frame_id: str | None = None
    size: tuple[int, int] | None = None
    """Width and height, pixels."""


def read_frame_id(content: Any) -> str | None:
    """Return the frame_id of a decoded message, of tiles of the first one, without a leading slash; else None."""
    first = content[0] if isinstance(content, list) else content
    found = getattr(first, "frame_id", "") or getattr(getattr(first, "header", None), "frame_id", "")
    return found.removeprefix("/") or None


class Calibration:
    """Collects messages of camera/info, tf_static and model/info; the first of each counts.

    Owns: one thread calls `add`; another one may set the size of pictures, and any may read in the meantime.
    """

    def __init__(
        self, cameras: Mapping[str, PictureFacts] = MappingProxyType({}), base_frame: str | None = None
    ) -> None:
        """`cameras`: facts by camera (`camera`, `camera.left`); `base_frame`: the vehicle's, if not base_link.

        Without a camera of the frames, the first CameraInfo that is not another camera's counts.
        """
        self.cameras = dict(cameras)
        self._base_frame = base_frame
        self.sensor_frames: dict[str, str] = {}
        """{sensor: frame_id of its first message}, but for frames named as on the device: `lidar` of `lidar.points`."""
        self._framed: set[str] = set()
        self.labels: list[str] | None = None
        self._infos: dict[tuple[str, str], _First] = {}
        self._transforms: dict[tuple[str, str], _First] = {}

    def record_frame(self, sensor: str, content: Any) -> None:
        """Note the frame of a sensor from its first message."""
        if sensor not in self._framed:
            self._framed.add(sensor)
            frame = read_frame_id(content) or ""
            if frame != find_frame(sensor, {}) and 0 < len(frame) <= LONGEST_NAME:
                self.sensor_frames[sensor] = frame

    @property
    def camera_info(self) -> dict[str, Any] | None:
        """The CameraInfo of the camera of the frames, as `info_of`."""
        return self.info_of(CAMERA.key)

    def info_of(self, camera: str) -> dict[str, Any] | None:
        """Return the CameraInfo of a camera; None without one.

        frame_id, width, height, distortion_model, d, k, r, p as in sensor_msgs/CameraInfo; an empty frame_id becomes
        that of the pictures. For rectified pictures k is that of p, without distortion.
        """
        key = self._key(camera)
        value = None if key is None else self._infos[key].value
        pictures = self.cameras.get(camera)
        if value is not None and pictures is not None and not value["frame_id"]:
            value = {**value, "frame_id": pictures.frame_id or ""}
        if value is None or not self._is_rectified(camera, value):
            return value
        return {**value, "d": [0.0] * len(value["d"]), "k": [x for n, x in enumerate(value["p"]) if n % 4 < 3]}

    def _is_rectified(self, camera: str, info: Mapping[str, Any]) -> bool:
        """True if the distortion of a CameraInfo is taken out of the pictures, as their topic's name says."""
        pictures = self.cameras.get(camera)
        return bool(pictures and RECTIFIED.search(pictures.topic) and any(info["d"]) and info["p"][0] > 0)

    @property
    def lacking_size(self) -> list[str]:
        """Cameras whose CameraInfo could be found by the size of their pictures."""
        return [key for key, of in self.cameras.items() if self._infos and of.size is None and self._key(key) is None]

    def _key(self, camera: str) -> tuple[str, str] | None:
        """Topic and frame_id of the CameraInfo of a camera.

        That of the own topic; else of the only topic with the frame_id of its pictures; else of the only one with
        their size.
        """
        pictures, keys = self.cameras.get(camera), list(self._infos)
        if pictures is None:
            others = {of.own for of in self.cameras.values()}
            return next((key for key in keys if key[0] not in others), None) if camera == CAMERA.key else None
        keys = [key for key in keys if pictures.among is None or key[0] in pictures.among]
        same = [key for key in keys if key[1] and key[1] == pictures.frame_id]
        own = [key for key in same if key[0] == pictures.own] or [key for key in keys if key[0] == pictures.own]
        if own or len(same) == 1:
            return (own or same)[0]
        fits = [key for key in same or keys if _read_size(self._infos[key].value) == pictures.size]
        return fits[0] if len(fits) == 1 else None

    @property
    def static_transforms(self) -> list[dict[str, Any]]:
        """[{"parent", "child", "translation": [x, y, z] m, "rotation": [x, y, z, w]}], rotation as sent.

        The vehicle's frame of another name has an identity transform to base_link.
        """
        return [*(self._transforms[key].value for key in sorted(self._transforms)), *self._vehicle()[0]]

    def _vehicle(self) -> tuple[list[dict[str, Any]], str]:
        """Return the transform from a vehicle's frame of another name to base_link, or why it is not used."""
        named, frames = self._base_frame, {frame for key in list(self._transforms) for frame in key}
        if named in (None, BASE):
            return [], ""
        if BASE in frames or named not in frames:
            why = f"the transforms have a frame {BASE}" if BASE in frames else "no static transform has this frame"
            return [], f"rig: base_frame: {named} is not used: {why}"
        still = {"translation": [0.0, 0.0, 0.0], "rotation": [0.0, 0.0, 0.0, 1.0]}
        return [{"parent": named, "child": BASE, **still}], ""

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of the pictures, pixels, as CameraInfo states them."""
        info = self.camera_info
        return _read_size(info) if info is not None else None

    def focal_35mm(self, camera: str = CAMERA.key) -> int | None:
        """Return the focal length of a camera in mm of a 36 mm wide picture: round(36 fx / width)."""
        info = self.info_of(camera)
        if info is None or not info["width"]:
            return None
        focal = 36 * info["k"][0] / info["width"]
        return round(focal) if math.isfinite(focal) and 0.5 <= focal <= 65535 else None

    @property
    def notes(self) -> list[str]:
        """Notes to the user: a missing CameraInfo, one of another size, and changes with their times."""
        found = []
        for camera in self.cameras or (CAMERA.key,):
            key, pictures = self._key(camera), self.cameras.get(camera)
            may_be = {of for of, _ in self._infos if pictures is None or pictures.among is None or of in pictures.among}
            if key is not None:
                size = _read_size(self._infos[key].value)
                if size is not None and pictures is not None and pictures.size not in (None, size):
                    of, its = (" x ".join(map(str, one or ())) for one in (size, pictures.size))
                    found.append(f"camera/info: {key[0]} is for pictures of {of}, those of {pictures.topic} have {its}")
                if self._is_rectified(camera, self._infos[key].value):
                    topic = self.cameras[camera].topic
                    found.append(f"camera/info: {key[0]}: p counts, without distortion: {topic} is rectified")
                if self._infos[key].changed is not None:
                    found.append(_describe_change("camera/info", self._infos[key]))
            elif pictures is not None and not may_be and len(self.cameras) > 1:
                found.append(f"camera/info: none belongs to {pictures.topic}")
            elif pictures is not None and may_be:
                found.append(
                    f"camera/info: {', '.join(sorted(may_be))} is not used for {pictures.topic}: expected one topic "
                    f"with the frame_id {pictures.frame_id!r} or the size of its pictures"
                )
        found += filter(None, [self._vehicle()[1]])
        for parent, child in sorted(self._transforms):
            if self._transforms[parent, child].changed is not None:
                name = f"tf_static from {parent} to {child}"
                found.append(_describe_change(name, self._transforms[parent, child]))
        return found

    def add(self, schema: str, content: Any, log_time: int = 0, topic: str = "") -> None:
        """Add a decoded message; `log_time` in ns. Raises MessageError for more content than any vehicle has."""
        if schema == CAMERA_INFO:
            _check("coefficients of distortion", len(content.d), MOST_COEFFICIENTS)
            _check("characters of a name", max(map(len, (content.frame_id, content.distortion_model))))
            frame = read_frame_id(content) or ""
            model = MODELS.get(content.distortion_model.lower(), content.distortion_model)
            info = {"frame_id": frame, "width": content.width, "height": content.height, "distortion_model": model}
            info |= {key: [float(v) for v in getattr(content, key)] for key in ("d", "k", "r", "p")}
            part = content.roi
            widest, highest = content.width - part.x_offset, content.height - part.y_offset
            if 0 < part.width <= widest and 0 < part.height <= highest and info["k"][0]:
                info |= {"width": part.width, "height": part.height}
                for values, line in ((info["k"], 3), (info["p"], 4)):  # those of the whole
                    values[2], values[line + 2] = values[2] - part.x_offset, values[line + 2] - part.y_offset
            key = topic, frame
            if key not in self._infos:
                _check("camera infos", len(self._infos) + 1, MOST_CAMERAS)
            self._infos.setdefault(key, _First(info)).add(info, log_time)
        elif schema == "edgefirst_msgs/msg/ModelInfo":
            if not self.labels:  # as long as a model is loaded, its info has none
                labels = list(content.labels)
                _check("labels", len(labels), MOST_LABELS)
                _check("characters of a name", max(map(len, labels), default=0))
                self.labels = labels
        elif schema in (TRANSFORM, TF_MESSAGE):
            from edgefirst_ros.messages import list_transforms  # opening a dataset needs no messages

            for transform in list_transforms(schema, content):
                self._transform(transform, log_time)

    def merge(self, other: Calibration) -> None:
        """Add the unknown parts from another calibration."""
        self.labels = self.labels or other.labels
        for mine, theirs in ((self._infos, other._infos), (self._transforms, other._transforms)):
            mine.update({key: replace(first) for key, first in theirs.items() if key not in mine})

    @property
    def moving(self) -> dict[str, str]:
        """{child: parent} of the transforms that have changed."""
        return {child: parent for (parent, child), first in self._transforms.items() if first.changed is not None}

    def constant(self) -> Calibration:
        """Return a calibration with the transforms that have not changed."""
        found = Calibration()
        found._transforms = {key: replace(first) for key, first in self._transforms.items() if first.changed is None}
        return found

    def _transform(self, given: FrameTransform, log_time: int) -> None:
        _check("characters of a name", max(len(given.frame_id), len(given.child_frame_id)))
        key = given.frame_id, given.child_frame_id
        if key not in self._transforms:
            _check("static transforms", len(self._transforms) + 1, MOST_TRANSFORMS)
        place, turn = list(given.translation), list(given.rotation)
        found = {"parent": given.frame_id, "child": given.child_frame_id, "translation": place, "rotation": turn}
        first = self._transforms.setdefault(key, _First(found))
        if found != first.value and not _alike(found, first.value):
            first.add(found, log_time)


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two transforms differ only by rounding; q and -q are one rotation."""
    moved = np.abs(np.subtract(one["translation"], other["translation"])).max()
    turned = (np.abs(np.add(one["rotation"], np.multiply(sign, other["rotation"]))).max() for sign in (-1, 1))
    return bool(moved < ROUNDING and min(turned) < ROUNDING)


def _read_size(info: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the width and height of a CameraInfo, pixels; None if it does not state them."""
    return (info["width"], info["height"]) if info["width"] and info["height"] else None


def format_utc(stamp: int) -> str:
    """Return a time in ns since the epoch as text of ISO 8601, to the millisecond."""
    seconds, rest = divmod(stamp, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03}Z"


def _describe_change(what: str, first: _First) -> str:
    when = format_utc(first.changed or 0)
    return f"{what} changes at {when} (log_time {first.changed}): the first one counts"


def _check(what: str, number: int, most: int = LONGEST_NAME) -> None:
    if number > most:
        raise MessageError(CANNOT_BE_STORED, f"{number} {what}, up to {most} count")


def find_frame(sensor: str, named: Mapping[str, str]) -> str:
    """Return the frame that a sensor measures in: that of `named`, else as the device names it, `radar`."""
    return named.get(sensor) or sensor.partition(".")[0]


def find_frames(sensors: Iterable[str], named: Mapping[str, str]) -> set[str]:
    """Return the frames that companion sensors (`radar.cube`) measure in, see `find_frame`."""
    return {find_frame(key, named) for key in sensors if find_by_key(key).topics and find_by_key(key).form != "camera"}


def judge(info: Any, transforms: Any, frames: Collection[str]) -> str:
    """Return the worst word that holds of a camera and the frames of its companion sensors.

    `missing` without usable intrinsics, or a frame that no chain of transforms joins to that of the camera; `identity`
    where such a chain has no rotation: a camera's axes are not those of a vehicle, so it is a placeholder, unless the
    sensor's frame is optical too, as that of a depth camera; else `given`.
    """
    try:
        focal, camera = float(info["k"][0]), info["frame_id"]
        if not (math.isfinite(focal) and focal > 0):
            return MISSING
        ways = chain_frames(transforms or (), camera) if frames else {}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return MISSING
    if not ways.keys() >= set(frames):
        return MISSING
    others = (frame for frame in frames if frame != camera and not frame.lower().endswith(OPTICAL_NAMES))
    return IDENTITY if any(np.abs(ways[frame][:3, :3] - np.eye(3)).max() < STRAIGHT for frame in others) else GIVEN
