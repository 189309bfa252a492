# SPDX-License-Identifier: Apache-2.0
"""The distortion of a camera: where a lens shows a ray, and pictures without the distortion.

Rays are in the optical frame, x right, y down, z forward; the centre of the first pixel is (0, 0), as in OpenCV.
Source: sensor_msgs/CameraInfo; OpenCV, "Camera Calibration and 3D Reconstruction".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.sensors.transforms import Floats

MODELS = {"plumb_bob": 5, "rational_polynomial": 8, "equidistant": 4, "fisheye": 4, "none": 0, "": 0}
"""Model -> most coefficients it has; fewer represent zeros. Without a name all must be zero."""
STEPS = 4096
"""Angles at which it is looked whether a ray further out still lands further out."""
WIDEST = np.radians(89.9)
"""From the axis, of models that divide by the depth."""


class Lens:
    """The distortion of one camera; raises DatasetError for an unknown model or coefficients that do not fit it."""

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
        angles = np.linspace(0, WIDEST, STEPS)
        with np.errstate(divide="ignore", invalid="ignore"):
            folds = np.flatnonzero(~(np.diff(self._radius(angles)) > 0))
        self.widest = float(angles[folds[0]]) if len(folds) else float(WIDEST)
        """Angle from the axis, rad, up to which a ray further out lands further out: beyond it pictures fold back."""

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


class Straightener:
    """Takes the distortion out of the pictures of one camera; its intrinsics stay.

    Raises DatasetError for an unknown distortion model.
    """

    def __init__(self, info: Mapping[str, Any]) -> None:
        """`info`: camera_info, with k (9) in pixels."""
        self._k = np.array(info["k"], float).reshape(3, 3)
        self._lens = Lens(info.get("distortion_model") or "", info.get("d") or ())
        self._table = lru_cache(1)(self._make_table)

    def _make_table(self, width: int, height: int) -> tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.bool_]]:
        """Return for every pixel the pixel up and left of its place in the picture, the way from there, and if seen."""
        y, x = np.mgrid[:height, :width].reshape(2, -1)
        rays = np.column_stack([x, y, np.ones(len(x))]) @ np.linalg.inv(self._k).T
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            bent = np.column_stack([self._lens.bend(rays), np.ones(len(rays))]) @ self._k.T
        last = np.array([width - 1, height - 1])
        seen = np.arctan2(np.hypot(*rays[:, :2].T), rays[:, 2]) <= self._lens.widest
        seen &= np.isfinite(bent).all(1) & (bent[:, :2] >= 0).all(1) & (bent[:, :2] <= last).all(1)
        place = np.where(seen[:, None], bent[:, :2], 0)
        corner = np.minimum(place.astype(np.intp), last - 1)
        return corner[:, 1] * width + corner[:, 0], (place - corner).astype(np.float32), seen

    def straighten(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return a picture (height, width, 3) of the same size, black outside the camera's view."""
        height, width = picture.shape[:2]
        if min(height, width) < 2:
            return picture
        corner, (right, down), seen = (of.T for of in self._table(width, height))
        found, flat = np.zeros((len(corner), 3), np.float32), picture.reshape(-1, 3)
        shares = (1 - right) * (1 - down), right * (1 - down), (1 - right) * down, right * down
        for step, share in zip((0, 1, width, width + 1), shares, strict=True):
            found += flat[corner + step] * (share * seen)[:, None]
        return (found + 0.5).astype(np.uint8).reshape(picture.shape)
