# SPDX-License-Identifier: Apache-2.0
"""Lens distortion models of sensor_msgs/CameraInfo, with the coefficients of OpenCV.

Source: sensor_msgs/distortion_models.hpp; OpenCV, "Camera Calibration and 3D Reconstruction" and "Fisheye camera
model".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.errors import DatasetError

Floats = NDArray[np.float64]
MODELS = {"plumb_bob": 5, "rational_polynomial": 8, "equidistant": 4, "fisheye": 4, "none": 0, "": 0}
"""Model -> most coefficients it has; fewer stand for zeros. Without a name nothing may be bent."""
STEPS = 4096
"""Angles at which it is looked whether a ray further out still lands further out."""
WIDEST = np.radians(89.9)
"""From the axis, of models that divide by the depth."""


class Lens:
    """The distortion of one camera; raises DatasetError for an unknown model or numbers that fit none."""

    def __init__(self, model: str, coefficients: Sequence[float | None]) -> None:
        if model not in MODELS:
            known = ", ".join(name for name in MODELS if name)
            raise DatasetError(f"unknown distortion model {model!r}; known: {known}")
        d = np.array([np.nan if value is None else value for value in coefficients], float)
        most = MODELS[model]
        if not np.isfinite(d).all():
            raise DatasetError(f"distortion model {model!r}: the coefficients are not finite")
        if d[most:].any():
            raise DatasetError(f"distortion model {model!r}: at most {most} coefficients are known, got {len(d)}")
        self._fisheye = model in ("equidistant", "fisheye")
        self._d = np.zeros(8)
        self._d[: min(most, len(d))] = d[:most]
        self.widest = self._monotonic()
        """Angle from the axis, rad, up to which a ray further out lands further out: behind it pictures fold back."""

    def bend(self, rays: Floats) -> Floats:
        """(N, 2) places in the plane at depth 1, of rays (N, 3) in the optical frame with z above 0."""
        x, y = rays[:, 0] / rays[:, 2], rays[:, 1] / rays[:, 2]
        if self._fisheye:
            r = np.hypot(x, y)
            bent = self._radius(np.arctan(r))
            scale = np.divide(bent, r, out=np.ones_like(r), where=r > 0)
            return np.column_stack([x * scale, y * scale])
        squared = x * x + y * y
        radial = self._radial(squared)
        p1, p2 = self._d[2], self._d[3]
        return np.column_stack(
            [
                x * radial + 2 * p1 * x * y + p2 * (squared + 2 * x * x),
                y * radial + p1 * (squared + 2 * y * y) + 2 * p2 * x * y,
            ]
        )

    def _radial(self, squared: Floats) -> Floats:
        k1, k2, _, _, k3, k4, k5, k6 = self._d
        upper = 1 + squared * (k1 + squared * (k2 + squared * k3))
        return upper / (1 + squared * (k4 + squared * (k5 + squared * k6)))

    def _radius(self, angle: Floats) -> Floats:
        """Distance from the middle at depth 1 of rays by their angle from the axis."""
        bent: Floats
        if self._fisheye:
            squared = angle * angle
            k1, k2, k3, k4 = self._d[:4]
            bent = angle * (1 + squared * (k1 + squared * (k2 + squared * (k3 + squared * k4))))
        else:
            r = np.tan(angle)
            bent = r * self._radial(r * r)
        return bent

    def _monotonic(self) -> float:
        angles = np.linspace(0, WIDEST, STEPS)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.diff(self._radius(angles))
        folds = np.flatnonzero(~(steps > 0))
        return float(angles[folds[0]]) if len(folds) else float(WIDEST)
