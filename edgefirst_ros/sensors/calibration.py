# SPDX-License-Identifier: Apache-2.0
"""What is said once and holds for the whole recording: camera intrinsics, static transforms, the model's labels."""

from __future__ import annotations

import math
from typing import Any

from edgefirst_ros.streams import TF_MESSAGE, TRANSFORM


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
        """Take a decoded message."""
        if schema == "sensor_msgs/msg/CameraInfo":
            if self.camera_info is None:
                self.camera_info = {
                    "frame_id": content.frame_id,
                    "width": content.width,
                    "height": content.height,
                    "distortion_model": content.distortion_model,
                    **{key: [float(v) for v in getattr(content, key)] for key in ("d", "k", "r", "p")},
                }
        elif schema == "edgefirst_msgs/msg/ModelInfo":
            if self.labels is None:
                self.labels = list(content.labels)
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
        self._transforms.setdefault(
            (str(parent), child),
            {
                "parent": str(parent),
                "child": child,
                "translation": [float(moved.x), float(moved.y), float(moved.z)],
                "rotation": [float(turned.x), float(turned.y), float(turned.z), float(turned.w)],
            },
        )
