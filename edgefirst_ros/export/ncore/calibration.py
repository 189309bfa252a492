# SPDX-License-Identifier: Apache-2.0
"""Camera intrinsics: those of sensor_msgs/CameraInfo as NCore's camera models, and back.

NCore counts the centre of the first pixel as (0.5, 0.5), ROS and OpenCV as (0, 0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.ncore.library import library

PIXEL = 0.5
FISHEYE = ("equidistant", "fisheye")
PINHOLE = ("", "plumb_bob", "rational_polynomial", "thin_prism")
ORDER = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6", "s1", "s2", "s3", "s4")
"""Coefficients of OpenCV in their order."""


def camera_model(info: Mapping[str, Any], size: tuple[int, int]) -> Any:
    """NCore's model of a camera whose pictures have `size` (width, height).

    Where camera_info is of another size, with the same proportions, it is scaled. The shutter, which it does not
    tell, is given as global: start and end of a picture are its one stamp. Raises DatasetError for intrinsics that
    cannot be of this camera, and for a distortion that NCore does not have.
    """
    lib = library()
    said = (info.get("width") or size[0], info.get("height") or size[1])
    scale = np.array(size, float) / said
    if abs(scale[0] / scale[1] - 1) > 0.01:
        raise DatasetError(f"camera_info is of {said[0]} x {said[1]} pixels, the pictures have {size[0]} x {size[1]}")
    k, d = (np.array(info[name], float).tolist() for name in ("k", "d"))  # None is NaN
    with np.errstate(over="ignore", under="ignore"):
        single = np.array([*k, *d, *(np.array([k[0], k[4]]) * scale)], np.float32)
    if not np.isfinite(single).all() or min(single[[0, 4, -2, -1]]) <= 0:  # as NCore keeps them
        raise DatasetError(f"camera_info: k {k} and d {d} are not the intrinsics of a camera")
    common = {
        "resolution": np.array(size, np.uint64),
        "shutter_type": lib.ShutterType.GLOBAL,
        "principal_point": ((np.array([k[2], k[5]]) + PIXEL) * scale).astype(np.float32),
        "focal_length": (np.array([k[0], k[4]]) * scale).astype(np.float32),
        "external_distortion_parameters": None,
    }
    model = info.get("distortion_model") or ""
    if model in FISHEYE and not any(d[4:]):
        radial = np.array([*d, 0, 0, 0, 0][:4], np.float32)
        fisheye = lib.OpenCVFisheyeCameraModelParameters
        widest = fisheye.compute_max_angle(
            common["resolution"], common["focal_length"], common["principal_point"], radial
        )
        return fisheye(**common, radial_coeffs=radial, max_angle=float(widest))
    if (model not in PINHOLE and any(d)) or any(d[len(ORDER) :]):
        raise DatasetError(f"camera_info: distortion {model!r} with {len(d)} coefficients has no model in NCore")
    named = dict.fromkeys(ORDER, 0.0) | dict(zip(ORDER, d, strict=False))
    return lib.OpenCVPinholeCameraModelParameters(
        **common,
        radial_coeffs=_picked(named, "k", 6),
        tangential_coeffs=_picked(named, "p", 2),
        thin_prism_coeffs=_picked(named, "s", 4),
    )


def _picked(named: Mapping[str, float], letter: str, count: int) -> Any:
    return np.array([named[f"{letter}{n + 1}"] for n in range(count)], np.float32)


def camera_info(model: Any, frame_id: str) -> dict[str, Any] | None:
    """camera_info of one of NCore's models; None for those that ROS does not have (f-theta, windshields)."""
    kind = model.type()
    if kind not in ("opencv-pinhole", "opencv-fisheye", "ideal-pinhole") or model.external_distortion_parameters:
        return None
    fx, fy = map(float, model.focal_length)
    cx, cy = (float(v) - PIXEL for v in model.principal_point)
    if kind == "opencv-fisheye":
        name, d = "equidistant", list(map(float, model.radial_coeffs))
    elif kind == "ideal-pinhole":
        name, d = "plumb_bob", [0.0] * 5
    else:
        k, p, s = (list(map(float, v)) for v in (model.radial_coeffs, model.tangential_coeffs, model.thin_prism_coeffs))
        d = [*k[:2], *p, *k[2:], *s]
        length, name = (12, "thin_prism") if any(s) else (8, "rational_polynomial") if any(k[3:]) else (5, "plumb_bob")
        d = d[:length]
    return {
        "frame_id": frame_id,
        "width": int(model.resolution[0]),
        "height": int(model.resolution[1]),
        "distortion_model": name,
        "d": d,
        "k": [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0],
        "r": [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        "p": [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
    }
