# SPDX-License-Identifier: Apache-2.0
"""Loss report of NCore: where each sensor and column of a dataset went."""

from __future__ import annotations

from collections import Counter

from edgefirst_ros import streams
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.errors import counted
from edgefirst_ros.export.ncore.library import CUBE
from edgefirst_ros.export.ncore.preparing import COMPANIONS
from edgefirst_ros.export.report import Report

ANNOTATIONS = {
    "name": ("sequence_id", ""),
    "frame": ("cameras/camera: metadata of the frame", ""),
    "timestamp": ("cameras/camera: metadata of the frame, ns", ""),
    "label": ("class_id of cuboids; metadata of frames and instances", ""),
    "label_index": ("metadata of frames and instances", ""),
    "object_id": ("track_id of cuboids; metadata of frames and instances", ""),
    "group": ("metadata of frames and instances", ""),
    "box2d": ("cameras/camera: metadata of the frame", "NCore has no boxes in the picture"),
    "box2d_score": ("cameras/camera: metadata of the frame", "NCore has no boxes in the picture"),
    "box3d": ("cuboids/default", "the turn of a box is not in the dataset: 0 in the axes of the vehicle"),
    "box3d_score": ("cuboids/default: generic data score", ""),
    "mask": ("camera_labels segmentation.instance, segmentation.semantic", "where instances overlap, the last is seen"),
    "polygon": ("camera_labels segmentation.instance", "filled; where instances overlap, the last is seen"),
    "iscrowd": ("cameras/camera: metadata of the frame", ""),
    "ignore": ("cameras/camera: metadata of the frame", ""),
    "size": ("intrinsics/default: resolution", ""),
    "location": ("poses/default, from the frames table, which is finer", ""),
    "pose": ("poses/default, from the frames table, which is finer", ""),
}
"""Column of the annotations -> where it goes and what of it is lost."""
FRAMES = {
    "timestamp": ("stamps of frames, µs; ns in the metadata of the frame", ""),
    "latitude": ("poses/default: rig to world to world_global (ECEF), and generic data", ""),
    "longitude": ("poses/default: rig to world to world_global (ECEF), and generic data", ""),
    "altitude": ("poses/default: rig to world to world_global (ECEF), and generic data", "interpolated where unknown"),
    "orientation": ("poses/default: rig to world, and generic data", ""),
    "size": ("intrinsics/default: resolution", ""),
    "radar_cube_timestamp": (f"{CUBE}: stamps of frames, µs; ns among its attributes", ""),
    "radar_targets_timestamp": ("radars/radar: stamps of frames, µs; ns in the metadata of the frame", ""),
    "radar_clusters_timestamp": ("radars/radar: stamps of frames, µs; ns in the metadata of the frame", ""),
    "lidar_points_timestamp": ("lidars/lidar: stamps of frames, µs; ns in the metadata of the frame", ""),
}
"""Column of the frames table -> the same."""


def losses(dataset: Dataset, report: Report, tally: Counter[str]) -> None:
    """Add the lines of an NCore export to its report."""
    _sensors(report, tally)
    calibrations = [dataset.calibration(sequence) for sequence in dataset.sequences]
    if any(isinstance(known.camera_info, dict) for known in calibrations):
        report.add(
            "camera_info",
            "intrinsics/default",
            "float32; the shutter is not known, it is given as global; r, p and a skew have no home",
        )
    if any(known.static_transforms for known in calibrations):
        report.add("static_transforms", "poses/default, of each sensor to rig", "those of other frames have no home")
    for name in dataset.annotation_columns:
        where, lost = ANNOTATIONS.get(name, ("", "has no home in NCore"))
        report.add(f"annotations: {name}", where, lost)
    for name in dataset.frames.columns if dataset.frames is not None else ():
        if name not in ("name", "frame"):
            where, lost = FRAMES.get(name, ("", "has no home in NCore"))
            report.add(f"frames: {name}", where, lost)


def _sensors(report: Report, tally: Counter[str]) -> None:
    report.add("samples", "frames of the sensors", number=tally["samples"])
    if tally["samples without a pose"]:
        report.add(
            "samples before the first and after the last position",
            "",
            "NCore needs poses to both ends: they are not in the sensors",
            tally["samples without a pose"],
        )
    if tally["samples without a pose between others"]:
        report.add(
            "samples without a position between others",
            "cameras/camera",
            "readers interpolate their poses over the gap",
            tally["samples without a pose between others"],
        )
    if tally["camera"]:
        cut = tally["bytes of NUL"]
        said = f"{cut} NUL bytes after the pictures are cut off" if cut else ""
        report.add("camera", "cameras/camera", said, tally["camera"])
    for kind, where in COMPANIONS.items():
        _companion(report, tally, kind, where)
    for kind in streams.kinds("picture", "cube", "cloud"):
        if kind not in COMPANIONS and tally[kind]:
            report.add(kind, "", "has no home in NCore", tally[kind])
    for what, where, lost in (
        ("depth", "camera_labels depth.z", "taken to be mm along z"),
        ("depth without a place", "", "no 16-bit grayscale"),
        ("instances", "camera_labels segmentation.instance", ""),
        ("masks of classes", "camera_labels segmentation.semantic", ""),
        (
            "masks without a place",
            "",
            "of another size than the picture, no grayscale PNG, or more than 65,535",
        ),
        ("boxes", "cuboids/default", ""),
        ("boxes outside", "", "before the first or after the last position"),
        ("boxes not finite", "", "not finite"),
    ):
        if tally[what]:
            report.add(what, where, lost, tally[what])


def _companion(report: Report, tally: Counter[str], kind: str, where: str) -> None:
    if tally[kind]:
        left = tally[f"{kind} points left"]
        said = f"{counted(left, 'point')} at the origin or not finite" if left else ""
        report.add(kind, where, said, tally[kind])
    mark = f"{kind} field "
    for name in sorted(key.removeprefix(mark) for key in tally if key.startswith(mark)):
        report.add(f"{kind}: {name}", f"{where}: generic data of the frame", "", tally[mark + name])
    for what, why in (
        ("outside", "measured before the first or after the last position, or not later than the one before"),
        ("without a place", "has no x, y and z"),
    ):
        if tally[f"{kind} {what}"]:
            report.add(f"{kind} {what}", "", why, tally[f"{kind} {what}"])
