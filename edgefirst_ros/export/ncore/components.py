# SPDX-License-Identifier: Apache-2.0
"""Camera models, clouds and camera labels, as NCore has them and as the dataset has them.

NCore counts the centre of the first pixel as (0.5, 0.5), ROS and OpenCV as (0, 0).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset.names import make_safe
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.drive import find_scale, is_class_mask
from edgefirst_ros.export.ncore.library import load_library
from edgefirst_ros.sensors.cloud import find_speed_field, make_pcd_header
from edgefirst_ros.sensors.png import decode_gray, encode_gray

PIXEL = 0.5
FISHEYE = ("equidistant", "fisheye")
PINHOLE = ("", "plumb_bob", "rational_polynomial", "thin_prism")
ORDER = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6", "s1", "s2", "s3", "s4")
"""Coefficients of OpenCV in their order."""
RADAR_NAMES = {"speed": "radial_velocity_m_s", "rcs": "rcs_dBsm", "snr": "snr_dB"}
"""Fields of radar points -> the names that NVIDIA's own converters use (velocity: positive away)."""
INTENSITY = ("reflect", "reflectivity", "intensity")
"""Fields with the strength of the reflected light."""
AXES = ("x", "y", "z")
Row = Mapping[str, Any]
MILLIMETRE = 0.001
"""Scale of a 16-bit depth picture, m."""
HALF = {"binary": 0, "confidence": 0.5, "sigmoid": 0.5, "logits": 0.5}
"""{mask_interpretation: fraction of the largest value above which a pixel belongs to an instance}."""
MOST_INSTANCES = 65535
"""Of one picture: their numbers are 16 bits, and 0 marks no instance."""
KEPT = ("label", "label_index", "group", "object_id", "box2d", "box2d_score", "iscrowd", "ignore")
"""Columns that are written into the metadata of a camera frame."""


def make_camera_model(info: Mapping[str, Any], size: tuple[int, int]) -> Any:
    """NCore's model of a camera whose pictures have `size` (width, height).

    Where camera_info is of another size, with the same proportions, it is scaled. The shutter, missing there, is
    written as global: start and end of a picture are its one stamp. Raises DatasetError for intrinsics that cannot be
    of this camera, and for a distortion that NCore does not have.
    """
    lib = load_library()
    scale = find_scale((info.get("width") or size[0], info.get("height") or size[1]), size)
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
        radial_coeffs=_pick_values(named, "k", 6),
        tangential_coeffs=_pick_values(named, "p", 2),
        thin_prism_coeffs=_pick_values(named, "s", 4),
    )


def _pick_values(named: Mapping[str, float], letter: str, count: int) -> Any:
    return np.array([named[f"{letter}{n + 1}"] for n in range(count)], np.float32)


def make_camera_info(model: Any, frame_id: str) -> dict[str, Any] | None:
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


@dataclass(frozen=True)
class Rays:
    """Points of one cloud that have a direction."""

    direction: NDArray[np.float32]
    """(N, 3), length 1."""
    distance: NDArray[np.float32]
    """(1, N) m."""
    intensity: NDArray[np.float32]
    """(1, N) of the full range of an integer field; 0 where the scale is unknown."""
    further: dict[str, NDArray[Any]]
    """(N, ...) other fields by their names in NCore."""
    left: int
    """Points without a direction: at the origin, or not finite."""


def make_rays(points: NDArray[np.void], names: Mapping[str, str]) -> Rays | None:
    """Return the rays of a structured array of points; None where it has no x, y and z.

    `names` are fields that have other names in NCore. direction * distance in float32 is within one step of the
    float32 coordinates.
    """
    fields = points.dtype.names or ()
    points = points.reshape(-1)
    if not set(AXES) <= set(fields) or any(points[axis].ndim > 1 for axis in AXES):
        return None
    # By columns, which is three times as fast as by points.
    columns = [points[axis].astype(np.float64) for axis in AXES]
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.sqrt(sum(column**2 for column in columns)).astype(np.float32)
    kept = np.isfinite(distance) & (distance > np.finfo(np.float32).tiny)
    left = int(len(kept) - np.count_nonzero(kept))
    if left:
        columns, distance, points = [column[kept] for column in columns], distance[kept], points[kept]
    direction = np.empty((3, len(points)), np.float32)
    for axis, column in zip(direction, columns, strict=True):
        axis[:] = column / distance  # by the rounded distance, so that the product has one rounding less
    intensity = np.zeros((1, len(points)), np.float32)
    field = next((name for name in INTENSITY if name in fields and points[name].ndim == 1), None)
    if field is not None and points[field].dtype.kind == "u":
        intensity[0] = points[field] / np.float32(np.iinfo(points[field].dtype).max)
    further: dict[str, NDArray[Any]] = {}
    for name in fields:
        if name not in AXES:
            further.setdefault(names.get(name, make_safe(name)), np.ascontiguousarray(points[name]))
    return Rays(direction.T, distance[None], intensity, further, left)


def name_radar_fields(fields: Iterable[str]) -> dict[str, str]:
    """Return the names in NCore of the fields of a radar's points, by their own."""
    own = {name.lower(): name for name in fields}
    speed = find_speed_field(own.values())
    own |= {"speed": speed} if speed is not None else {}
    return {own[old]: new for old, new in RADAR_NAMES.items() if old in own}


def make_cloud(xyz: NDArray[Any], further: Mapping[str, NDArray[Any]]) -> bytes:
    """A PCD file of points (N, 3) and further values (N,) by name, binary; fields of other lengths are dropped."""
    columns = {axis: xyz[:, n].astype("<f4") for n, axis in enumerate(AXES)}
    for name, values in further.items():
        kind = values.dtype.kind in "iuf" and values.dtype.itemsize in (
            (4, 8) if values.dtype.kind == "f" else (1, 2, 4)
        )
        if values.shape == (len(xyz),) and kind and name not in columns and not set(name) & set(" #\t"):
            columns[name] = values.astype(values.dtype.newbyteorder("<"))
    table = np.empty(len(xyz), [(name, values.dtype) for name, values in columns.items()])
    for name, values in columns.items():
        table[name] = values
    return make_pcd_header(table.dtype, len(table), 1) + table.tobytes()


@dataclass(slots=True)
class Marks:
    """Labels of one picture, as they are stored."""

    instances: bytes | None = None
    """A 16-bit PNG: which instance a pixel belongs to, of those that were `told`."""
    told: list[dict[str, Any]] = field(default_factory=list)
    classes: bytes | None = None
    """An 8-bit PNG: the class of each pixel."""
    misplaced: int = 0
    """Masks that are not pictures of this size."""


def mark(rows: Sequence[Row], size: tuple[int, int], level: float) -> Marks:
    """Return masks and polygons of a sample whose picture has `size` (width, height).

    `level`: part of the largest value above which a pixel belongs to an instance.
    """
    marks = Marks()
    values: NDArray[np.uint16] | None = None
    for row in rows:
        mask, rings = row.get("mask"), row.get("polygon")
        if isinstance(mask, bytes):
            pixels = decode_gray(mask)
            if pixels is None or pixels.shape != size[::-1] or (is_class_mask(row) and pixels.dtype != np.uint8):
                marks.misplaced += 1
                continue
            if is_class_mask(row):
                marks.classes = mask
                continue
            # Integers above a limit are those above its integer part.
            least = 0 if pixels.dtype == np.bool_ else level * np.iinfo(pixels.dtype).max
            shape = pixels > pixels.dtype.type(least)
        elif rings:
            shape = fill_rings(rings, size)
        else:
            continue
        number = len(marks.told) + 1
        if number > MOST_INSTANCES:
            marks.misplaced += 1
            continue
        if values is None:
            values = np.zeros((size[1], size[0]), np.uint16)
        np.copyto(values, number, where=shape)
        marks.told.append({"value": number} | {name: row[name] for name in KEPT[:4] if row.get(name) is not None})
    marks.instances = encode_gray(values) if values is not None else None
    return marks


def read_depth(png: bytes) -> NDArray[np.float32] | None:
    """(height, width) m of a depth picture, 16-bit grayscale in mm; None of another one."""
    values = decode_gray(png)
    return None if values is None or values.dtype != np.uint16 else (values * MILLIMETRE).astype(np.float32)


def fill_rings(rings: Sequence[Sequence[float]], size: tuple[int, int]) -> NDArray[np.bool_]:
    """(height, width): the pixels of `size` (width, height) whose centres are in rings of normalised x, y.

    A ring within another is a hole.
    """
    width, height = size
    crossed = np.zeros((height, width + 1), np.bool_)
    for ring in rings:
        places = np.asarray(ring, float).reshape(-1, 2) * size - 0.5  # so that centres are whole numbers
        for (x0, y0), (x1, y1) in zip(places, np.roll(places, -1, axis=0), strict=True):
            low, high = (int(np.clip(np.ceil(y), 0, height)) for y in sorted((y0, y1)))
            if low < high:
                lines = np.arange(low, high)
                columns = np.ceil(x0 + (lines - y0) * (x1 - x0) / (y1 - y0))
                crossed[lines, np.clip(columns, 0, width).astype(np.intp)] ^= True
    return np.logical_xor.accumulate(crossed[:, :width], axis=1)


def select_columns(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the columns of annotation rows that are written into the metadata of a camera frame, as JSON."""
    found = []
    for row in rows:
        kept = {name: row[name] for name in KEPT if row.get(name) is not None}
        kept = {name: list(value) if name == "box2d" else value for name, value in kept.items()}
        if not any(isinstance(v, float) and not math.isfinite(v) for v in (*kept.values(), *kept.get("box2d", ()))):
            found.append(kept)
    return [row for row in found if row.keys() - {"group"}]
