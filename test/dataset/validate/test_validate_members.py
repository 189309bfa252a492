# SPDX-License-Identifier: Apache-2.0
"""Every rule about members, the table of frames and what they agree in finds the defect planted for it alone."""

import io
import json
import math

import handmade_dataset as made
import pytest
from handmade_dataset import SEQUENCE, name_of, stamp_of
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from spoilers import (
    CAMERA,
    CUBE,
    LIDAR,
    RADAR,
    both,
    cases,
    column,
    counts,
    cut,
    cut_exif,
    drop_frames_column,
    flip,
    frames_column,
    frames_column_type,
    frames_metadata,
    gray,
    large_jpeg,
    member,
    no_annotations,
    no_frames,
    other_case,
    other_height,
    plant,
    rename,
)


def described(**texts: str) -> bytes:
    """The picture of a cube with other texts."""
    info, out = PngInfo(), io.BytesIO()
    for key, text in texts.items():
        info.add_text(key, text)
    Image.open(io.BytesIO(made.cube_png(3))).save(out, "PNG", pnginfo=info)
    return out.getvalue()


SPOILT = {
    "STR002": [(lambda p: (p.members.clear(), no_annotations(p), no_frames(p)), {"STR002", "STR004", "STR005"})],
    "STR004": [(no_annotations, {"STR004"})],
    "STR005": [(no_frames, {"STR005"})],
    "STR008": [(member(LIDAR, b""), {"STR008"}), (member(CUBE, b""), {"STR008"})],
    "NAM001": [(member("README.txt", b"x"), {"NAM001"})],
    "NAM002": [
        (member(f"{SEQUENCE}/../x", b"x"), {"NAM001", "NAM002"}),
        (member("/etc/x", b"x"), {"NAM001", "NAM002"}),
        (member("C:x", b"x"), {"NAM001", "NAM002"}),
        (member("a\\x", b"x"), {"NAM001", "NAM002"}),
        (member("a\x1b[2Jb", b"x"), {"NAM001", "NAM002"}),
    ],
    "NAM003": [
        (member(name_of(7, "camera.png"), lambda: gray("RGB")), {"NAM003", "IMG002", "IMG003"}),
        (
            both(
                member(f"{SEQUENCE}/{SEQUENCE}_7.lidar.pcd", made.cloud(7)),
                lambda p: p.times.update({f"{SEQUENCE}/{SEQUENCE}_7.lidar.pcd": stamp_of(7)}),
            ),
            {"NAM003", "NAM004"},
        ),
    ],
    "NAM004": [
        (rename(name_of(7, "lidar.pcd"), f"{SEQUENCE}/{SEQUENCE}_7.lidar.pcd"), {"NAM004"}),
        (rename(name_of(7, "lidar.pcd"), f"{SEQUENCE}/{SEQUENCE}_0007.lidar.pcd"), {"NAM004"}),
    ],
    "NAM005": [(other_case, {"NAM005", "IMG003", "REF005", "REF006", "CAL001"})],
    "HDR007": [(lambda p: p.times.update({RADAR: stamp_of(3) + 2_000_000_000}), {"HDR007"})],
    "IMG001": [
        (member(CAMERA, cut(made.jpeg(3), -2)), {"IMG001"}),
        (member(CAMERA, b"no picture"), {"IMG001"}),
        (member(name_of(3, "depth.png"), flip(gray("I;16"), 20)), {"IMG001"}),
        (member(name_of(3, "lidar.png"), lambda: other_height(gray("I;16"))), {"IMG001"}),
    ],
    "IMG002": [
        (member(CAMERA, large_jpeg), {"IMG002"}),
        (frames_column("size", (33, 24)), {"IMG002", "REF007"}),
    ],
    "IMG003": [
        (member(CAMERA, made.jpeg(3, comment=False)), {"IMG003"}),
        (member(CAMERA, lambda: cut_exif(made.jpeg(3))), {"IMG003"}),
    ],
    "IMG004": [(member(CAMERA, made.jpeg(3, exif_frame=4)), {"IMG004"})],
    "IMG005": [(member(CAMERA, made.jpeg(3, stamp=stamp_of(3) + 1)), {"IMG005"})],
    "IMG006": [
        (member(CAMERA, made.jpeg(3, place=(45.5, 73.6))), {"IMG006"}),
        (member(name_of(7, "camera.jpeg"), made.jpeg(7, place=(1.0, 2.0))), {"IMG006"}),
    ],
    "CUB001": [
        (member(CUBE, gray("L")), {"CUB001"}),
        (member(CUBE, flip(made.cube_png(3), -20)), {"CUB001"}),
        (member(CUBE, cut(made.cube_png(3), -12)), {"CUB001"}),
    ],
    "CUB002": [
        (member(CUBE, made.cube_png(3, shape=[2, 5, 2, 4])), {"CUB002"}),
        (member(CUBE, made.cube_png(3, shape=[5, 2, 2, 6], layout=[6, 1, 5, 9])), {"CUB002"}),
        (member(CUBE, made.cube_png(3, layout=[6, 2, 5, 1])), {"CUB002"}),
        (member(CUBE, made.cube_png(3, is_complex=None)), {"CUB002"}),
        (member(CUBE, made.cube_png(3, layout=[6, 1, 5])), {"CUB002"}),
        (member(CUBE, made.cube_png(3, shape=[2, 5, 4, 3])), {"CUB002"}),
        (member(CUBE, lambda: described(**{"edgefirst:layout": "[6, 1, 5, 2"})), {"CUB002"}),
        (member(CUBE, lambda: described(**{"edgefirst:scales": "[1.0]"})), {"CUB002", "CUB003"}),
    ],
    "CUB003": [(member(CUBE, made.cube_png(3, timestamp=stamp_of(3))), {"CUB003"})],
    "PCD001": [
        (member(RADAR, cut(made.cloud(3), -1)), {"PCD001"}),
        (member(RADAR, made.cloud(3).replace(b"POINTS 3", b"POINTS 4")), {"PCD001"}),
        (member(RADAR, b"VERSION 0.7\n"), {"PCD001"}),
    ],
    "PCD002": [(member(RADAR, made.cloud(3, fields="x y speed reflect")), {"PCD002"})],
    "FRM001": [(drop_frames_column, {"FRM001"}), (frames_column_type, {"FRM001"})],
    "FRM002": [
        (frames_metadata("sources", "{"), {"FRM002"}),
        (frames_metadata("sequences", "{"), {"FRM002"}),
        (lambda p: p.frames_metadata.pop("software"), {"FRM002"}),
    ],
    "CAL001": [
        (frames_metadata("camera_info", "null"), {"CAL001"}),
        (frames_metadata("static_transforms", "[]"), {"CAL001"}),
        (
            frames_metadata(
                "static_transforms", json.dumps([{**t, "rotation": [0, 0, 0, 1]} for t in made.TRANSFORMS])
            ),
            {"CAL001"},
        ),
        (frames_metadata("sequences", "7"), {"CAL001", "FRM006"}),
        (frames_metadata("sequences", "{}"), {"CAL001"}),
    ],
    "FRM003": [
        (
            both(frames_column("timestamp", None), *(frames_column(f"{base}_skew", None) for base in made.COMPANIONS)),
            {"FRM003", "REF004", "IMG005"},
        )
    ],
    "FRM004": [
        (frames_column("orientation", (0.0, 0.0, 0.0, 0.9)), {"FRM004"}),
        (frames_column("orientation", (math.nan, 0.0, 0.0, 1.0)), {"FRM004"}),
        (
            both(
                frames_column("latitude", 91.0),
                column("location", (91, -73.6), 0),
                column("location", (91, -73.6), 1),
                column("location", (91, -73.6), 2),
                member(CAMERA, made.jpeg(3, place=(91, -73.6))),
            ),
            {"FRM004", "TAB022"},
        ),
        (
            both(
                frames_column("longitude", 180.5),
                column("location", (45.5, 180.5), 0),
                column("location", (45.5, 180.5), 1),
                column("location", (45.5, 180.5), 2),
                member(CAMERA, made.jpeg(3, place=(45.5, 180.5))),
            ),
            {"FRM004", "TAB022"},
        ),
    ],
    "FRM005": [
        (frames_column("radar_targets_skew", 5), {"FRM005"}),
        (frames_column("radar_cube_skew", None), {"FRM005"}),
        (frames_column("radar_cube_skew", 0, 2), {"FRM005"}),
    ],
    "FRM006": [
        (frames_metadata("time_base", '{"sequences": [1]}'), {"FRM006"}),
        (frames_metadata("sources", "7"), {"FRM006"}),
    ],
    "REF001": [(lambda p: p.annotations.append({"name": SEQUENCE, "frame": 9, "group": "val"}), {"REF001"})],
    "REF002": [(lambda p: p.annotations.pop(), {"REF002"})],
    "REF003": [
        (lambda p: p.frames.append(p.frames[-1]), {"REF003"}),
        (lambda p: p.frames.pop(), {"REF003"}),
        (lambda p: p.frames.append(p.frames[-1] | {"frame": 9}), {"REF003"}),
    ],
    "REF004": [(column("timestamp", stamp_of(4) + 1, 3), {"REF004"})],
    "REF005": [
        (lambda p: p.members.pop(LIDAR), {"REF005"}),
        (both(frames_column("radar_cube_timestamp", None), frames_column("radar_cube_skew", None)), {"REF005"}),
    ],
    "REF006": [
        (counts(seen=9), {"REF006"}),
        (counts(written=4), {"REF006"}),
        (counts(seen=7), {"REF006"}),
        (counts(dropped={"x": -5}), {"REF006"}),
        (counts(seen="8"), {"REF006"}),
        (frames_metadata("counts", "[]"), {"REF006"}),
    ],
    "REF007": [(column("size", (24, 32), 3), {"REF007"})],
    "REF008": [(column("location", (-73.6, 45.5), 3), {"REF008"}), (column("location", (1.0, 2.0), 4), {"REF008"})],
}


@pytest.mark.parametrize(("code", "spoil", "expected"), cases(SPOILT))
def test_planted_defect(tmp_path, code, spoil, expected):
    assert code in expected
    assert plant(tmp_path, spoil) == expected


def test_boxes_and_masks_that_were_left_out_are_no_messages(tmp_path):
    assert plant(tmp_path, counts(dropped={"x": 5, "score outside 0..1": 90, "mask cannot be read": 7})) == set()
