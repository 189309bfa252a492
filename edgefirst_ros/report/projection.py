# SPDX-License-Identifier: Apache-2.0
"""Points of a sensor as pixels of the picture, by the static transforms and the CameraInfo of their sequence.

Frames: a sensor's is x forward, y left, z up; the camera's is optical, x right, y down, z forward, in m. The centre of
the first pixel is (0, 0), as in OpenCV. Source: REP 103; REP 105.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefirst_ros.dataset.schema import SequenceCalibration
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.sensors.calibration import IDENTITY, MISSING, find_frame, judge
from edgefirst_ros.sensors.lens import Lens
from edgefirst_ros.sensors.transforms import OPTICAL, Floats, chain_frames, make_pose
from edgefirst_ros.streams import CAMERA, find_key

if TYPE_CHECKING:
    from edgefirst_ros.dataset.sample import Sample

NEAREST = 1e-3
"""m; points nearer to the plane of the camera's eye are not projected."""
TO_OPTICAL = make_pose(OPTICAL.T, np.zeros(3))
"""From x forward, y left, z up to x right, y down, z forward."""


class Projected(NamedTuple):
    """Points in the picture."""

    pixels: Floats
    """(N, 2) x, y; NaN where a point is not in front of the camera."""
    mask: NDArray[np.bool_]
    """(N,) whether a point is to be seen: in front of the camera, within the picture and what its lens shows."""


class NotProjectableError(DatasetError):
    """A calibration by which a sensor cannot be projected; the message says why, and how to change that."""


@dataclass(frozen=True)
class Projector:
    """The way from one sensor's frame into the picture."""

    sensor_to_camera: Floats
    """(4, 4), to the optical frame, m."""
    k: Floats
    """(3, 3), pixels."""
    lens: Lens
    size: tuple[int, int]
    """Width and height that CameraInfo states, pixels; 0 where it does not."""

    def rays(self, points: ArrayLike) -> Floats:
        """(N, 3) places in the camera's optical frame of points in the sensor's, m."""
        with np.errstate(invalid="ignore"):
            return stack_xyz(points) @ self.sensor_to_camera[:3, :3].T + self.sensor_to_camera[:3, 3]

    def project(self, points: ArrayLike) -> Projected:
        """Pixels of points (N, 3) of the sensor, or of a structured cloud with x, y and z; m."""
        rays = self.rays(points)
        pixels = np.full((len(rays), 2), np.nan)
        front = np.isfinite(rays).all(1) & (rays[:, 2] > NEAREST)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            bent = np.column_stack([self.lens.bend(rays[front]), np.ones(front.sum())])
            pixels[front] = (bent @ self.k.T)[:, :2]
            angle = np.arctan2(np.hypot(rays[:, 0], rays[:, 1]), rays[:, 2])
            mask = front & np.isfinite(pixels).all(1) & (angle <= self.lens.widest) & (pixels >= -0.5).all(1)
            for axis, length in enumerate(self.size):
                mask &= (pixels[:, axis] < length - 0.5) | (length == 0)
        return Projected(pixels, mask)


def project(
    points: ArrayLike,
    sensor: str,
    calibration: SequenceCalibration | Sample,
    *,
    camera: str = "camera",
    assume_forward: bool = False,
) -> Projected:
    """Project points of a sensor into the picture of a camera.

    Args:
        points: (N, 3) in m in the sensor's frame, or a structured cloud with x, y and z.
        sensor: "lidar", "radar", or the frame_id of the sensor.
        calibration: Calibration of the sequence: `sample.calibration`; or the sample.
        camera: The camera, such as `camera.left` of several.
        assume_forward: Accept a placeholder calibration, with the camera along the sensor's x axis.

    Returns:
        Pixels (N, 2), x right and y down, NaN for points not in front of the camera; and a mask (N,) of the points
        in the picture.

    Raises:
        NotProjectableError: The calibration is missing or a placeholder, or the distortion model is unknown.
        UsageError: `points` have another shape.
    """
    if not isinstance(calibration, SequenceCalibration):
        if not isinstance(own := getattr(calibration, "calibration", None), SequenceCalibration):
            raise UsageError(f"expected project(points, sensor, sample), got {type(calibration).__name__} as the third")
        calibration = own
    return make_projector(sensor, calibration, camera=camera, assume_forward=assume_forward).project(points)


def make_projector(
    sensor: str, calibration: SequenceCalibration, *, camera: str = "camera", assume_forward: bool = False
) -> Projector:
    """Return the way from a sensor into the picture of a camera.

    `assume_forward`: treat a chain of transforms without rotation as a camera that looks along the sensor's x. Raises
    NotProjectableError where the calibration is a placeholder (without the assumption) or missing, and for an unknown
    distortion model, named.
    """
    info, frame = calibration.info_of(camera), find_frame(find_key(sensor) or sensor, calibration.sensor_frames)
    word = judge(info, calibration.static_transforms, {frame})
    if word == MISSING:
        raise NotProjectableError(f"{sensor}: the calibration is missing: {_find_missing(info, frame, camera)}")
    if word == IDENTITY and not assume_forward:
        raise NotProjectableError(
            f"{sensor}: the transforms from {frame!r} to {info['frame_id']!r} do not rotate: a placeholder; "
            "--assume-forward assumes a camera that looks along the sensor's x"
        )
    try:
        k = np.array(info["k"], float).reshape(3, 3)
        lens = Lens(info.get("distortion_model") or "", info.get("d") or ())
        size = int(info.get("width") or 0), int(info.get("height") or 0)
        poses = chain_frames(calibration.static_transforms, info["frame_id"])
    except (DatasetError, KeyError, TypeError, ValueError) as error:
        raise NotProjectableError(f"{sensor}: {error}") from error
    if not np.isfinite(k).all() or frame not in poses:
        raise NotProjectableError(f"{sensor}: the calibration is missing: {_find_missing(info, frame, camera)}")
    way = TO_OPTICAL @ poses[frame] if word == IDENTITY else poses[frame]
    return Projector(way, k, lens, size)


def stack_xyz(points: ArrayLike) -> Floats:
    """(N, 3) of points, which may be a structured cloud with x, y and z of any shape. Raises UsageError."""
    given = np.asarray(points)
    if given.dtype.names is not None:
        return np.column_stack([given[axis].ravel().astype(float) for axis in ("x", "y", "z")])
    if given.size and given.shape[-1:] != (3,):
        raise UsageError(f"expected points (N, 3), or a cloud with x, y and z; got the shape {given.shape}")
    return given.astype(float).reshape(-1, 3)


def _find_missing(info: Any, frame: str, camera: str) -> str:
    if not isinstance(info, Mapping) or not info.get("k"):
        return "camera_info is missing" if camera == CAMERA.key else f"camera_info of {camera} is missing"
    if judge(info, (), ()) == MISSING:
        return "camera_info has no focal length"
    return f"no chain of transforms joins {frame!r} to the camera's frame {info.get('frame_id')!r}"
