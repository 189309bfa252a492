# SPDX-License-Identifier: Apache-2.0
"""Static data of a recording: camera intrinsics, static transforms, labels of the model."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from edgefirst_ros.counts import CANNOT_BE_STORED
from edgefirst_ros.errors import MessageError
from edgefirst_ros.streams import CAMERA_INFO, TF_MESSAGE, TRANSFORM, of_key

GIVEN, IDENTITY, MISSING = "given", "identity", "missing"
WORDS = (GIVEN, IDENTITY, MISSING)
"""Quality of a calibration, from best to worst."""
STRAIGHT = 1e-6
"""Largest vector part of a unit quaternion that still turns nothing: 2e-6 rad."""

MOST_TRANSFORMS, MOST_COEFFICIENTS, MOST_LABELS = 4096, 64, 65_536
"""Most transforms of a vehicle, coefficients of a distortion, labels of a model; they become metadata."""
LONGEST_NAME = 4096
"""Characters of a frame_id, a distortion model, a label."""


class Calibration:
    """Collects messages of camera/info, tf_static and model/info; the first of each counts."""

    def __init__(self) -> None:
        self.changed: int | None = None
        """`log_time` in ns of the first CameraInfo that differs from the one that is kept; None: none does."""
        self.camera_info: dict[str, Any] | None = None
        """frame_id, width, height, distortion_model, d, k, r, p as in sensor_msgs/CameraInfo."""
        self.labels: list[str] | None = None
        self._transforms: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def static_transforms(self) -> list[dict[str, Any]]:
        """[{"parent", "child", "translation": [x, y, z] m, "rotation": [x, y, z, w]}], rotation as sent."""
        return [self._transforms[key] for key in sorted(self._transforms)]

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of the pictures, pixels, as CameraInfo states them."""
        info = self.camera_info
        return (info["width"], info["height"]) if info and info["width"] and info["height"] else None

    @property
    def focal_35mm(self) -> int | None:
        """Focal length in mm of a 36 mm wide picture: round(36 fx / width)."""
        if self.camera_info is None or not self.camera_info["width"]:
            return None
        focal = 36 * self.camera_info["k"][0] / self.camera_info["width"]
        return round(focal) if math.isfinite(focal) and 0.5 <= focal <= 65535 else None

    @property
    def notes(self) -> list[str]:
        """Notes to the user: changes of the intrinsics within the recording, and when."""
        if self.changed is None:
            return []
        seconds, rest = divmod(self.changed, 1_000_000_000)
        when = f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03}Z"
        return [f"camera/info changes at {when} (log_time {self.changed}): the first one is kept"]

    def take(self, schema: str, content: Any, log_time: int = 0) -> None:
        """Add a decoded message; `log_time` in ns. Raises MessageError for more content than any vehicle has."""
        if schema == CAMERA_INFO:
            _check("coefficients of distortion", len(content.d), MOST_COEFFICIENTS)
            _check("characters of a name", max(map(len, (content.frame_id, content.distortion_model))))
            info = {
                "frame_id": content.frame_id,
                "width": content.width,
                "height": content.height,
                "distortion_model": content.distortion_model,
                **{key: [float(v) for v in getattr(content, key)] for key in ("d", "k", "r", "p")},
            }
            if self.camera_info is None:
                self.camera_info = info
            elif self.changed is None and info != self.camera_info and repr(info) != repr(self.camera_info):  # NaN
                self.changed = log_time
        elif schema == "edgefirst_msgs/msg/ModelInfo":
            if self.labels is None:
                labels = list(content.labels)
                _check("labels", len(labels), MOST_LABELS)
                _check("characters of a name", max(map(len, labels), default=0))
                self.labels = labels
        elif schema == TRANSFORM:
            self._transform(content, content.frame_id)
        elif schema == TF_MESSAGE:
            for transform in content.transforms:
                self._transform(transform, transform.header.frame_id)

    def merge(self, other: Calibration) -> None:
        """Add what is not known yet from another calibration."""
        if self.camera_info is None:
            self.camera_info, self.changed = other.camera_info, other.changed
        self.labels = self.labels if self.labels is not None else other.labels
        self._transforms = {**other._transforms, **self._transforms}

    def take_info(self, other: Calibration) -> None:
        """Replace the intrinsics, and the note of their changes, by those of another calibration."""
        self.camera_info, self.changed = other.camera_info, other.changed

    def _transform(self, message: Any, parent: str) -> None:
        moved, turned = message.transform.translation, message.transform.rotation
        child = str(message.child_frame_id)
        _check("characters of a name", max(len(parent), len(child)))
        if (str(parent), child) not in self._transforms:
            _check("static transforms", len(self._transforms) + 1, MOST_TRANSFORMS)
        self._transforms.setdefault(
            (str(parent), child),
            {
                "parent": str(parent),
                "child": child,
                "translation": [float(moved.x), float(moved.y), float(moved.z)],
                "rotation": [float(turned.x), float(turned.y), float(turned.z), float(turned.w)],
            },
        )


def _check(what: str, number: int, most: int = LONGEST_NAME) -> None:
    if number > most:
        raise MessageError(CANNOT_BE_STORED, f"{number} {what}, up to {most} are taken")


def frames_of(sensors: Iterable[str]) -> set[str]:
    """Return the frames that companion sensors (`radar.cube`) measure in, as the device names them: `radar`."""
    return {sensor.partition(".")[0] for sensor in sensors if of_key(sensor).topics and of_key(sensor).form != "camera"}


def judge(info: Any, transforms: Any, frames: Collection[str]) -> str:
    """Return the worst word that holds of a camera and the frames of its companion sensors.

    `missing` without usable intrinsics, or a frame that no chain of transforms joins to that of the camera; `identity`
    where such a chain turns nothing: a camera's axes are not those of a vehicle, so it is a placeholder; else `given`.
    """
    try:
        focal, camera = float(info["k"][0]), info["frame_id"]
        if not (math.isfinite(focal) and focal > 0):
            return MISSING
        turns = _turns(transforms or (), camera) if frames else {}
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return MISSING
    words = [MISSING if frame not in turns else _word(turns[frame]) for frame in frames]
    return max(words, key=WORDS.index, default=GIVEN)


Turn = tuple[float, float, float, float]


def _word(turn: Turn) -> str:
    return IDENTITY if math.hypot(*turn[:3]) < STRAIGHT else GIVEN


def _turns(transforms: Iterable[Mapping[str, Any]], start: str) -> dict[str, Turn]:
    """Rotations, as unit quaternions x, y, z, w, of all frames that a chain joins to `start`."""
    steps: dict[str, list[tuple[str, Turn]]] = {}
    for entry in transforms:
        x, y, z, w = map(float, entry["rotation"])
        length = math.hypot(x, y, z, w)
        if not (math.isfinite(length) and length > 0):
            continue  # a quaternion that nobody filled joins nothing
        turn = (x / length, y / length, z / length, w / length)
        steps.setdefault(entry["parent"], []).append((entry["child"], turn))
        steps.setdefault(entry["child"], []).append((entry["parent"], (-turn[0], -turn[1], -turn[2], turn[3])))
    found: dict[str, Turn] = {start: (0.0, 0.0, 0.0, 1.0)}
    waiting = [start]
    while waiting:
        frame = waiting.pop()
        for other, turn in steps.get(frame, ()):
            if other not in found:
                found[other] = _product(found[frame], turn)
                waiting.append(other)
    return found


def _product(a: Turn, b: Turn) -> Turn:
    """Return the rotation `b`, then `a`."""
    (ax, ay, az, aw), (bx, by, bz, bw) = a, b
    return (
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )
