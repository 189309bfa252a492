# SPDX-License-Identifier: Apache-2.0
"""What is said once and holds for the whole recording: camera intrinsics, static transforms, the model's labels."""

from __future__ import annotations

import math
from typing import Any

from edgefirst_ros.counts import CANNOT_BE_STORED
from edgefirst_ros.errors import MessageError
from edgefirst_ros.streams import TF_MESSAGE, TRANSFORM

MOST_TRANSFORMS, MOST_COEFFICIENTS, MOST_LABELS = 4096, 64, 65_536
"""Of a vehicle, of a camera's distortion, of a model; they go into the metadata of the dataset."""
LONGEST_NAME = 4096
"""Characters of a frame_id, a distortion model, a label."""


class Calibration:
    """Takes messages of camera/info, tf_static and model/info; the first of each thing counts."""

    def __init__(self) -> None:
        self.camera_info: dict[str, Any] | None = None
        """frame_id, width, height, distortion_model, d, k, r, p as in sensor_msgs/CameraInfo."""
        self.labels: list[str] | None = None
        self._transforms: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def static_transforms(self) -> list[dict[str, Any]]:
        """[{"parent", "child", "translation": [x, y, z] m, "rotation": [x, y, z, w]}], rotation as sent."""
        return [self._transforms[key] for key in sorted(self._transforms)]

    @property
    def focal_35mm(self) -> int | None:
        """Focal length in mm of a 36 mm wide picture: round(36 fx / width)."""
        if self.camera_info is None or not self.camera_info["width"]:
            return None
        focal = 36 * self.camera_info["k"][0] / self.camera_info["width"]
        return round(focal) if math.isfinite(focal) and 0.5 <= focal <= 65535 else None

    def take(self, schema: str, content: Any) -> None:
        """Take a decoded message. Raises MessageError where it says more than any vehicle has."""
        if schema == "sensor_msgs/msg/CameraInfo":
            if self.camera_info is None:
                _check("coefficients of distortion", len(content.d), MOST_COEFFICIENTS)
                _check("characters of a name", max(map(len, (content.frame_id, content.distortion_model))))
                self.camera_info = {
                    "frame_id": content.frame_id,
                    "width": content.width,
                    "height": content.height,
                    "distortion_model": content.distortion_model,
                    **{key: [float(v) for v in getattr(content, key)] for key in ("d", "k", "r", "p")},
                }
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
        """Take over what is not known yet."""
        self.camera_info = self.camera_info or other.camera_info
        self.labels = self.labels if self.labels is not None else other.labels
        self._transforms = {**other._transforms, **self._transforms}

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
