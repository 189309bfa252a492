# SPDX-License-Identifier: Apache-2.0
"""Every rule finds the defect planted for it, and nothing else is said about it."""

import io
import json
import math
import random
import shutil
import struct
import tracemalloc
import zipfile
from pathlib import Path

import handmade_dataset as made
import polars as pl
import pyarrow as pa
import pytest
from handmade_dataset import SEQUENCE, name_of, stamp_of
from PIL import Image

from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.validate import RULES, validate
from edgefirst_ros.dataset.writer import DatasetWriter, Sample
from edgefirst_ros.errors import DatasetError

CAMERA, CUBE, RADAR, LIDAR = (name_of(3, kind) for kind in ("camera.jpeg", "radar.png", "radar.pcd", "lidar.pcd"))


def found(path: Path) -> set[str]:
    return set(validate(path, strict=True).counts)


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_good_dataset_gives_no_finding(tmp_path, layout):
    report = validate(made.write(tmp_path, made.good(), layout), strict=True)
    assert report.findings == []
    assert report.ok
    assert report.checked == {"samples": 3, "members": 9, "annotations": 5, "frames": 3}


def test_rules_have_different_codes_in_order():
    codes = [rule.id for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert all(rule.description and rule.severity in ("error", "warning") for rule in RULES)
    for group in {code[:3] for code in codes}:
        of_group = [code for code in codes if code.startswith(group)]
        assert of_group == [f"{group}{n:03d}" for n in range(1, len(of_group) + 1)]


# ---- spoilt before writing -------------------------------------------------------------------
def rename(old, new):
    def spoil(parts):
        parts.members = {new if name == old else name: data for name, data in parts.members.items()}
        parts.times[new] = parts.times[old]

    return spoil


def member(name, data):
    def spoil(parts):
        parts.members[name] = data() if callable(data) else data

    return spoil


def column(name, value, row=0):
    def spoil(parts):
        parts.annotations[row][name] = value

    return spoil


def column_type(name, kind):
    def spoil(parts):
        index = parts.annotation_schema.get_field_index(name)
        parts.annotation_schema = parts.annotation_schema.set(index, pa.field(name, kind))

    return spoil


def frames_column(name, value, row=0):
    def spoil(parts):
        parts.frames[row][name] = value

    return spoil


def metadata(name, value):
    def spoil(parts):
        parts.annotation_metadata[name] = value

    return spoil


def frames_metadata(name, value):
    def spoil(parts):
        parts.frames_metadata[name] = value

    return spoil


def counts(**camera):
    return frames_metadata(
        "counts", json.dumps({"/camera/h264": {"seen": 8, "written": 3, "dropped": {"x": 5}} | camera})
    )


def both(*spoilers):
    def spoil(parts):
        for one in spoilers:
            one(parts)

    return spoil


def further(name, kind, value, start=0):
    """A column that the good dataset has not, with one value in the rows from `start` on."""

    def spoil(parts):
        parts.annotation_schema = parts.annotation_schema.append(pa.field(name, kind))
        for row in parts.annotations[start:]:
            row[name] = value

    return spoil


def all_rows(name, value):
    def spoil(parts):
        for row in parts.annotations[:3]:
            row[name] = value

    return spoil


def all_boxes(value):
    return all_rows("box2d", value)


def pixels(layout):
    return both(metadata("box2d_format", layout), metadata("box2d_normalized", "false"))


def second_sequence(parts):
    """Frame 3 once more, in another sequence; of its three objects one is named by something else than chance."""
    name = SEQUENCE.replace("host", "other")
    parts.members[f"{name}/{name}_003.camera.jpeg"] = made.jpeg(3, comment=False)
    row = {c: v for c, v in parts.frames[0].items() if not c.startswith(made.COMPANIONS)} | {"name": name}
    parts.frames.append(row)
    parts.annotations[0]["object_id"] = "c0ffee00-0000-5000-8000-000000000000"
    parts.annotations += [row | {"name": name} for row in parts.annotations[:2]]


def no_annotations(parts):
    parts.annotations = []


def no_frames(parts):
    parts.frames = []


def drop_frames_column(parts):
    parts.frames_schema = parts.frames_schema.remove(parts.frames_schema.get_field_index("segment"))


def frames_column_type(parts):
    index = parts.frames_schema.get_field_index("segment")
    parts.frames_schema = parts.frames_schema.set(index, pa.field("segment", pa.int64()))


def other_case(parts):
    parts.members[f"{SEQUENCE.upper()}/{SEQUENCE.upper()}_001.camera.jpeg"] = made.jpeg(3, exif_frame=1, comment=False)
    parts.annotations.append({"name": SEQUENCE.upper(), "frame": 1, "group": "train"})
    parts.frames.append(parts.frames[0] | {"name": SEQUENCE.upper(), "frame": 1})


def cut(data: bytes, keep: int) -> bytes:
    return data[:keep]


def large_jpeg() -> bytes:
    picture = Image.open(io.BytesIO(made.jpeg(3)))
    out = io.BytesIO()
    picture.resize((64, 48)).save(out, "JPEG", exif=picture.getexif())
    return out.getvalue()


def cut_exif(data: bytes) -> bytes:
    """A count of entries that reach over the end of the EXIF."""
    at = data.index(b"Exif\0\0") + 6
    return data[: at + 8] + b"\xff\xff" + data[at + 10 :]


def gray(mode: str) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (12, 10)).save(out, "PNG")
    return out.getvalue()


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


SPOILT = {
    "STR002": [(lambda p: (p.members.clear(), no_annotations(p), no_frames(p)), {"STR002", "STR004", "STR005"})],
    "STR004": [(no_annotations, {"STR004"})],
    "STR005": [(no_frames, {"STR005"})],
    "STR008": [(member(LIDAR, b""), {"STR008"})],
    "NAM001": [(member("README.txt", b"x"), {"NAM001"})],
    "NAM002": [
        (member(f"{SEQUENCE}/../x", b"x"), {"NAM001", "NAM002"}),
        (member("/etc/x", b"x"), {"NAM001", "NAM002"}),
        (member("C:x", b"x"), {"NAM001", "NAM002"}),
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
    "NAM005": [(other_case, {"NAM005", "IMG003", "REF005", "REF006"})],
    "HDR007": [(lambda p: p.times.update({RADAR: stamp_of(3) + 2_000_000_000}), {"HDR007"})],
    "IMG001": [
        (member(CAMERA, cut(made.jpeg(3), -2)), {"IMG001"}),
        (member(CAMERA, b"no picture"), {"IMG001"}),
        (member(name_of(3, "depth.png"), flip(gray("I;16"), 20)), {"IMG001"}),
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
    ],
    "CUB003": [(member(CUBE, made.cube_png(3, timestamp=stamp_of(3))), {"CUB003"})],
    "PCD001": [
        (member(RADAR, cut(made.cloud(3), -1)), {"PCD001"}),
        (member(RADAR, made.cloud(3).replace(b"POINTS 3", b"POINTS 4")), {"PCD001"}),
        (member(RADAR, b"VERSION 0.7\n"), {"PCD001"}),
    ],
    "PCD002": [(member(RADAR, made.cloud(3, fields="x y speed reflect")), {"PCD002"})],
    "TAB001": [
        (lambda p: p.annotation_metadata.pop("schema_version"), {"TAB001", "TAB002"}),
        (
            both(column_type("box2d", pa.list_(pa.float32(), 6)), *(column("box2d", (0.5,) * 6, n) for n in range(3))),
            {"TAB001"},
        ),
    ],
    "TAB002": [
        (column_type("label", pa.string()), {"TAB002"}),
        (column_type("frame", pa.int64()), {"TAB002"}),
        (column_type("box2d", pa.list_(pa.float64())), {"TAB002"}),
        (
            both(
                lambda p: setattr(p, "annotation_schema", p.annotation_schema.append(pa.field("ignore", pa.bool_()))),
                column("ignore", True),
            ),
            {"TAB002"},
        ),
    ],
    "TAB003": [(column("name", None), {"TAB003", "REF001"})],
    "TAB004": [(metadata("schema_version", "2031.01"), {"TAB004"})],
    "TAB005": [
        (metadata("box2d_format", "yxyx"), {"TAB005"}),
        (metadata("category_metadata", "[]"), {"TAB005"}),
        (metadata("category_metadata", '{"car": 3}'), {"TAB005"}),
        (metadata("category_metadata", '{"car": {"id": "3"}}'), {"TAB005"}),
        (metadata("category_metadata", '{"car": {"id": 3, "synonyms": "auto"}}'), {"TAB005"}),
        (metadata("labels", "person, car"), {"TAB005"}),
    ],
    "TAB006": [(lambda p: [row.update(group=None) for row in p.annotations], {"TAB006"})],
    "TAB007": [
        (column("polygon", [[0.0, 0.0, 1.0, 0.0, 1.0]]), {"TAB007"}),
        (column("polygon", [[0.0, 0.0, 1.0, 0.0]]), {"TAB007"}),
        (column("polygon", [[0.0, 0.0, 1.0, 0.0, math.inf, 1.0]]), {"TAB007"}),
    ],
    "TAB008": [(column("box2d_score", 1.5), {"TAB008"}), (column("box2d_score", math.nan), {"TAB008"})],
    "TAB009": [
        (column("box2d", (math.nan, 0, 0, 0)), {"TAB009"}),
        (column("box2d", (None, 0, 0, 0)), {"TAB009"}),
        (both(column_type("box2d", pa.list_(pa.float32())), column("box2d", (1, 2, 3))), {"TAB002", "TAB009"}),
    ],
    "TAB010": [(column("timing", {"load": -1, "preprocess": None, "inference": 2, "decode": 3}), {"TAB010"})],
    "TAB011": [(column("group", "val"), {"TAB011"})],
    "TAB012": [
        (both(column("label_index", 2), metadata("labels", '["person", "car", "car"]')), {"TAB012"}),
        (both(column("label", "bus", 2), metadata("labels", '["person", "bus"]')), {"TAB012", "TAB017"}),
    ],
    "TAB013": [
        (column("mask", made.mask_png()[:-3]), {"TAB013"}),
        (column("mask", b""), {"TAB013"}),
        (column("mask", made.mask_png("RGB")), {"TAB013", "TAB014"}),
    ],
    "TAB014": [
        (column("mask", made.mask_png("L")), {"TAB014"}),
        (metadata("mask_interpretation", "logits"), {"TAB014"}),
    ],
    "TAB015": [(lambda p: p.annotations.append(p.annotations[-1]), {"TAB015"})],
    "TAB016": [(lambda p: [p.annotations[n].update(group=None) for n in (3,)], {"TAB016"})],
    "TAB017": [(metadata("labels", '["car", "person"]'), {"TAB017"})],
    "TAB018": [(column("object_id", "car 7"), {"TAB018"})],
    "TAB019": [(column("polygon", [[0.0, 0.0, 1.001, 0.0, 1.0, 1.0]]), {"TAB019"})],
    "TAB020": [
        (column("box2d", (0.5, 0.5, -0.25, 0.125)), {"TAB020"}),
        (column("box2d", (16.0, 0.5, 0.25, 0.125)), {"TAB020"}),
        (both(all_boxes((8.0, 6.0, 4.0, 12.0)), pixels("xyxy")), {"TAB020"}),
        (both(all_boxes((30.0, 6.0, 5.0, 2.0)), pixels("ltwh")), {"TAB020"}),
        (further("box3d", pa.list_(pa.float32(), 6), (1.0, 2.0, 3.0, 4.0, -5.0, 6.0)), {"TAB020"}),
    ],
    "TAB021": [
        (further("category_frequency", made.CATEGORY, "x"), {"TAB021"}),
        (further("degradation", pa.large_string(), "bad"), {"TAB021"}),
    ],
    "TAB022": [
        (all_rows("size", (0, 24)), {"TAB022", "REF007"}),
        (all_rows("location", (91.0, 0.0)), {"TAB022", "REF008"}),
        (further("pose", pa.list_(pa.float32(), 3), (0.0, math.nan, 0.0)), {"TAB022"}),
    ],
    "TAB023": [
        (further("neg_label_indices", pa.large_list(pa.uint32()), [2], 3), {"TAB023"}),
        (further("not_exhaustive_label_indices", pa.large_list(pa.uint32()), [1, 2]), {"TAB023"}),
    ],
    "TAB024": [(further("neg_label_indices", pa.large_list(pa.uint32()), [0]), {"TAB024"})],
    "TAB025": [(second_sequence, {"TAB025", "IMG003", "REF006"})],
    "FRM001": [(drop_frames_column, {"FRM001"}), (frames_column_type, {"FRM001"})],
    "FRM002": [
        (frames_metadata("sources", "{"), {"FRM002"}),
        (lambda p: p.frames_metadata.pop("software"), {"FRM002"}),
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
    ],
    "FRM005": [
        (frames_column("radar_targets_skew", 5), {"FRM005"}),
        (frames_column("radar_cube_skew", None), {"FRM005"}),
        (frames_column("radar_cube_skew", 0, 2), {"FRM005"}),
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


@pytest.mark.parametrize(
    ("code", "spoil", "expected"),
    [pytest.param(code, *case, id=f"{code}-{n}") for code, cases in SPOILT.items() for n, case in enumerate(cases)],
)
def test_planted_defect(tmp_path, code, spoil, expected):
    parts = made.good()
    spoil(parts)
    assert code in expected
    assert found(made.write(tmp_path, parts)) == expected


@pytest.mark.parametrize(
    "spoil",
    [
        both(all_boxes((8.0, 6.0, 32.0, 24.0)), pixels("xyxy")),
        both(all_boxes((24.0, 12.0, 16.0, 12.0)), pixels("ltwh")),
        all_boxes((1.0, 0.0, 0.0, 2.0)),
        further("box3d", pa.list_(pa.float32(), 6), (-70.0, 2.0, 3.0, 4.0, 0.0, 6.0)),
        column("polygon", [[-0.00005, 0.0, 1.00005, 0.0, 1.0, 1.0]]),
        further("degradation", pa.large_string(), "none"),
        all_rows("box2d_score", 1.0),
        further("neg_label_indices", pa.large_list(pa.uint32()), [1], 3),
        both(
            further("not_exhaustive_label_indices", pa.large_list(pa.uint32()), [90]),
            metadata("category_metadata", '{"bus": {"id": 90, "synset": null, "synonyms": ["coach"]}}'),
        ),
    ],
)
def test_values_at_the_limits_are_good(tmp_path, spoil):
    parts = made.good()
    spoil(parts)
    assert found(made.write(tmp_path, parts)) == set()


def test_boxes_and_masks_that_were_left_out_are_no_messages(tmp_path):
    parts = made.good()
    counts(dropped={"x": 5, "score outside 0..1": 90, "mask cannot be read": 7})(parts)
    assert found(made.write(tmp_path, parts)) == set()


# ---- spoilt as written -----------------------------------------------------------------------
def patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def entry(path: Path, name: str) -> zipfile.ZipInfo:
    with zipfile.ZipFile(path) as archive:
        return archive.getinfo(name)


def wrong_byte(path: Path) -> None:
    info = entry(path, LIDAR)
    patch(path, info.header_offset + 30 + len(LIDAR) + info.file_size - 1, b"\xff")


def arrow_stream(path: Path) -> None:
    table = pl.read_ipc(path.with_name("data.arrow").read_bytes())
    table.write_ipc_stream(path.with_name("data.arrow"))


def cut_arrow(path: Path) -> None:
    arrow = path.with_name("data.arrow")
    arrow.write_bytes(arrow.read_bytes()[:-100])


def local_crc(path: Path) -> None:
    patch(path, entry(path, RADAR).header_offset + 14, b"\0\0\0\0")


def local_name(path: Path) -> None:
    patch(path, entry(path, RADAR).header_offset + 30, b"X")


def rewrite(path: Path, change) -> None:
    """The archive once more with zipfile, each entry as `change` writes it."""
    with zipfile.ZipFile(path) as old:
        parts = [(info, old.read(info)) for info in old.infolist()]
    with zipfile.ZipFile(path, "w") as new:
        change(new, [(zipfile.ZipInfo(info.filename, info.date_time), data) for info, data in parts])


def deflate(new: zipfile.ZipFile, parts) -> None:
    for info, data in parts:
        new.writestr(info, data, zipfile.ZIP_DEFLATED)


class Pipe(io.RawIOBase):
    """A file that cannot seek: zipfile then writes data descriptors."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        return self.file.write(data)

    def close(self) -> None:
        self.file.close()
        super().close()


def descriptors(path: Path) -> None:
    with zipfile.ZipFile(path) as old:
        parts = [(zipfile.ZipInfo(info.filename, info.date_time), old.read(info)) for info in old.infolist()]
    with Pipe(path) as pipe, zipfile.ZipFile(pipe, "w") as new:
        for info, data in parts:
            new.writestr(info, data)


def overlap(path: Path) -> None:
    """The last entry of the directory points into the one before it, which holds a whole copy of it."""

    def change(new, parts):
        inner = io.BytesIO()
        with zipfile.ZipFile(inner, "w") as other:
            other.writestr(zipfile.ZipInfo("z.txt"), b"z")
        copy = inner.getvalue()[: 30 + 5 + 1]
        for info, data in parts:
            new.writestr(info, data)
        new.writestr(zipfile.ZipInfo("y.txt"), copy)
        new.writestr(zipfile.ZipInfo("z.txt"), b"z")

    rewrite(path, change)
    start = entry(path, "y.txt").header_offset + 35
    data = path.read_bytes()
    at = data.rindex(b"PK\x01\x02")
    patch(path, at + 42, struct.pack("<I", start))


def prefix(path: Path) -> None:
    path.write_bytes(b"#!/bin/sh\n" + path.read_bytes())


def comment(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"hello"


def removed(path: Path) -> None:
    """A member deleted from the directory alone; its bytes stay."""
    data = path.read_bytes()
    at = data.rindex(b"PK\x01\x02")
    end = data.rindex(b"PK\x05\x06")
    count, size = struct.unpack_from("<H", data, end + 10)[0] - 1, at - struct.unpack_from("<I", data, end + 16)[0]
    tail = struct.pack(
        "<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, size, struct.unpack_from("<I", data, end + 16)[0], 0
    )
    path.write_bytes(data[:at] + tail)


def latin(path: Path) -> None:
    """A name with a byte above 127 and no UTF-8 flag, in both headers."""
    data = path.read_bytes()
    assert data.count(b"READMEx") == 2
    path.write_bytes(data.replace(b"READMEx", b"README\x81"))


def twice(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(zipfile.ZipInfo(LIDAR, made.dos_time(stamp_of(3))), made.cloud(3, 3, 2))


def leftover(path: Path) -> None:
    path.with_name("data.zip.partial").write_bytes(b"")


WRITTEN = [
    ("STR003", arrow_stream, {"STR003"}),
    ("STR003", cut_arrow, {"STR003"}),
    ("STR006", leftover, {"STR006"}),
    ("STR007", wrong_byte, {"STR007"}),
    ("NAM003", twice, {"NAM003"}),
    ("HDR001", local_crc, {"HDR001"}),
    ("HDR001", local_name, {"HDR001"}),
    ("HDR002", lambda path: rewrite(path, deflate), {"HDR002"}),
    ("HDR003", descriptors, {"HDR003"}),
    ("HDR004", overlap, {"HDR004", "HDR005", "NAM001"}),
    ("HDR005", prefix, {"HDR005"}),
    ("HDR005", comment, {"HDR005"}),
    ("HDR005", removed, {"HDR005", "REF005"}),
    ("HDR006", latin, {"HDR006", "NAM001"}),
]


@pytest.mark.parametrize(("code", "spoil", "expected"), WRITTEN, ids=[f"{w[0]}-{n}" for n, w in enumerate(WRITTEN)])
def test_planted_defect_in_the_files(tmp_path, code, spoil, expected):
    parts = made.good()
    if spoil is latin:
        parts.members["READMEx"] = b"x"
    path = made.write(tmp_path, parts)
    spoil(path)
    assert code in expected
    assert found(path) == expected


@pytest.mark.parametrize("spoil", ["absent", "no zip", "empty", "tables only"])
def test_what_cannot_be_opened_is_one_finding(tmp_path, spoil):
    path = made.write(tmp_path, made.good())
    if spoil in ("absent", "tables only"):
        path.unlink()
    if spoil == "absent":
        shutil.rmtree(tmp_path)
    if spoil == "no zip":
        path.write_bytes(b"PK\x03\x04 and then nothing")
    if spoil == "empty":
        path.write_bytes(b"")
    report = validate(path)
    assert [finding.rule for finding in report.findings] == ["STR001"]
    assert not report.ok


def test_every_rule_has_a_planted_defect():
    planted = set(SPOILT) | {code for code, *_ in WRITTEN} | {"STR001"}
    assert {rule.id for rule in RULES} == planted


def test_random_damage_is_reported_and_never_raises(tmp_path):
    """Bytes changed anywhere in the three files."""
    path = made.write(tmp_path, made.good())
    originals = {file: file.read_bytes() for file in tmp_path.iterdir()}
    choose = random.Random(7)
    for _ in range(150):
        for file, data in originals.items():
            spoilt = bytearray(data)
            for _ in range(choose.choice((1, 4))):
                spoilt[choose.randrange(len(spoilt))] = choose.randrange(256)
            file.write_bytes(spoilt[: choose.choice((len(spoilt), len(spoilt), choose.randrange(len(spoilt))))])
        report = validate(path)
        assert json.loads(report.to_json())["errors"] == report.errors


def test_datasets_of_other_tools_have_no_errors(tmp_path):
    """No frames table, no EXIF, deflated, unpadded numbers, the types that polars and the vendor write."""
    plain = io.BytesIO()
    Image.new("RGB", made.SIZE).save(plain, "JPEG")
    with zipfile.ZipFile(tmp_path / "data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{SEQUENCE}/", b"")
        for frame in (1, 22):
            archive.writestr(f"{SEQUENCE}/{SEQUENCE}_{frame}.camera.jpeg", plain.getvalue())
    pl.DataFrame(
        {"name": [SEQUENCE], "frame": [22], "label": ["person"], "box2d": [[0.5, 0.5, 0.1, 0.1]]},
        schema={"name": pl.Categorical, "frame": pl.UInt64, "label": pl.Enum(["person"]), "box2d": pl.List(pl.Float64)},
    ).write_ipc(tmp_path / "data.arrow")
    report = validate(tmp_path / "data")
    assert report.errors == 0
    assert report.ok
    assert set(report.counts) == {"STR005", "NAM004", "HDR002", "TAB002"}
    assert not validate(tmp_path / "data", strict=True).ok


def test_report_caps_the_printout_but_counts_all(tmp_path):
    parts = made.good()
    for number in range(130):
        parts.members[f"extra{number}\x1b.txt"] = b"x"
    report = validate(made.write(tmp_path, parts))
    assert report.counts["NAM001"] == 130
    lines = report.to_text().splitlines()
    assert len([line for line in lines if line.startswith("NAM001 warning: ")]) == 5
    assert "NAM001 +125 more" in lines
    assert "\x1b" not in report.to_text()
    data = json.loads(report.to_json())
    assert (data["ok"], data["errors"], data["warnings"]) == (False, 130, 130)
    assert data["findings"][0] == {
        "rule": "NAM001",
        "severity": "warning",
        "place": "extra0\x1b.txt",
        "message": "is not SEQUENCE/SEQUENCE_FRAME.KIND",
    }


@pytest.mark.parametrize("layout", ["zip", "directory"])
@pytest.mark.parametrize("version", ["2025.10", "2026.04", "2026.10"])
def test_what_the_writer_writes_gives_no_finding(tmp_path, layout, version):
    with DatasetWriter(tmp_path, "data", layout=layout, schema=version) as writer:
        for row in made.good().frames:
            frame = row["frame"]
            members = [
                (name.partition(".")[2], [data])
                for name, data in made.good().members.items()
                if name_of(frame, "") in name
            ]
            rows = [row for row in made.good().annotations if row["frame"] == frame]
            common = {key: rows[0][key] for key in ("size", "location", "group")}
            boxes = [{k: v for k, v in box.items() if k not in common} for box in rows if box.get("label")]
            frame_row = {k: v for k, v in row.items() if k not in ("name", "frame", "timestamp")}
            writer.write(Sample(SEQUENCE, frame, stamp_of(frame), members, frame_row, boxes, common))
        texts = made.good().frames_metadata
        paths = writer.finish({key: json.loads(value) for key, value in texts.items()}, ["person", "car"])
    report = validate(paths.container, strict=True)
    assert report.findings == []
    assert report.checked == {"samples": 3, "members": 9, "annotations": 5, "frames": 3}


def test_memory_does_not_grow_with_the_members(tmp_path):
    def peak(count: int) -> int:
        parts = made.good()
        for number in range(count):
            parts.members[f"many/many_{number:03d}.lidar.pcd"] = made.cloud(1, 16, 16) + bytes(500_000)
        path = made.write(tmp_path / str(count), parts)
        tracemalloc.start()
        validate(path)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    few, many = peak(10), peak(40)
    assert many < few + 500_000  # one member; 30 more are 15 MB


ODD = [
    pa.array(["x"] * 5),
    pa.array([["x", None]] * 5),
    pa.array([{"load": "x", "other": 1}] * 5),
    pa.array([1.5, math.nan, math.inf, -1.0, None]),
    pa.array([-1, 0, 2**40, None, 5]),
    pa.array([None] * 5),
    pa.array([True, None, False, True, True]),
    pa.array([b"\xff", b"", None, b"", b""]),
    pa.array([0] * 5, pa.timestamp("ns", "UTC")),
    pa.array([[[1.0, None], None]] * 5),
    pa.array(["x"] * 5).dictionary_encode(),
    pa.array([1] * 5).dictionary_encode(),
    pa.array([[("k", 1)]] * 5, pa.map_(pa.string(), pa.int64())),
]


@pytest.mark.parametrize("table", ["data.arrow", "data.frames.arrow"])
@pytest.mark.parametrize("odd", ODD, ids=[str(values.type) for values in ODD])
def test_columns_of_any_type_are_reported_and_never_raise(tmp_path, table, odd):
    path = made.write(tmp_path, made.good())
    with pa.ipc.open_file((tmp_path / table).read_bytes()) as file:
        whole = file.read_all()
    for number, field in enumerate(whole.schema):
        spoilt = whole.set_column(number, field.name, odd[: whole.num_rows])
        with pa.OSFile(str(tmp_path / table), "wb") as sink, pa.ipc.new_file(sink, spoilt.schema) as writer:
            writer.write_table(spoilt)
        fits = odd.type == field.type or (
            field.name == "group" and str(odd.type).startswith("dictionary<values=string")
        )
        assert validate(path, strict=True).findings or fits
        try:
            for sample in Dataset(path).samples():
                assert sample.annotations.height >= 0
        except DatasetError as error:
            assert table in str(error)  # noqa: PT017
