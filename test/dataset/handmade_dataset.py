# SPDX-License-Identifier: Apache-2.0
"""A small dataset made with zipfile, pyarrow, Pillow and struct alone: nothing here comes from the code under test."""

import io
import json
import struct
import zipfile
from dataclasses import dataclass, field
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image, PngImagePlugin

SEQUENCE = "host_2026_01_02_03_04_05"
START = 1_767_323_045_123_456_789  # 2026-01-02 03:04:05 UTC and a bit
STEP = 33_333_333
FRAMES = (3, 4, 7)
SIZE = (32, 24)
POSITIONS = {3: (45.5, -73.6, 31.5), 4: (45.500001, -73.600002, None)}
F32, CATEGORY = pa.float32(), pa.dictionary(pa.uint32(), pa.large_string())

ANNOTATIONS = pa.schema(
    [
        ("name", pa.large_string()),
        ("frame", pa.uint32()),
        ("object_id", pa.large_string()),
        ("label", CATEGORY),
        ("label_index", pa.uint64()),
        ("group", CATEGORY),
        ("polygon", pa.large_list(pa.large_list(F32))),
        ("mask", pa.large_binary()),
        ("box2d", pa.list_(F32, 4)),
        ("box2d_score", F32),
        ("size", pa.list_(pa.uint32(), 2)),
        ("location", pa.list_(F32, 2)),
        ("timing", pa.struct([(key, pa.int64()) for key in ("load", "preprocess", "inference", "decode")])),
        ("timestamp", pa.int64()),
    ]
)
COMPANIONS = ("radar_cube", "radar_targets", "lidar_points")
FRAME_COLUMNS = pa.schema(
    [
        ("name", pa.large_string()),
        ("frame", pa.uint32()),
        ("timestamp", pa.int64()),
        ("latitude", pa.float64()),
        ("longitude", pa.float64()),
        ("altitude", pa.float64()),
        ("orientation", pa.list_(pa.float64(), 4)),
        ("size", pa.list_(pa.uint32(), 2)),
        *[(f"{base}_{what}", pa.int64()) for base in COMPANIONS for what in ("timestamp", "skew")],
        ("keyframe", pa.bool_()),
        ("segment", pa.uint32()),
    ]
)


@dataclass
class Parts:
    """What a dataset is made of, to be spoilt before it is written."""

    members: dict[str, bytes] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    annotations: list[dict] = field(default_factory=list)
    annotation_schema: pa.Schema = ANNOTATIONS
    annotation_metadata: dict[str, str] = field(default_factory=dict)
    frames: list[dict] = field(default_factory=list)
    frames_schema: pa.Schema = FRAME_COLUMNS
    frames_metadata: dict[str, str] = field(default_factory=dict)


CAMERA_INFO = {
    "frame_id": "camera_optical",
    "width": 32,
    "height": 24,
    "distortion_model": "plumb_bob",
    "d": [0.0] * 5,
    "k": [30.0, 0, 16, 0, 30, 12, 0, 0, 1],
    "r": [1.0, 0, 0, 0, 1, 0, 0, 0, 1],
    "p": [30.0, 0, 16, 0, 0, 30, 12, 0, 0, 0, 1, 0],
}
TRANSFORMS = [
    {"parent": "base_link", "child": "camera_optical", "translation": [1, 0, 1], "rotation": [-0.5, 0.5, -0.5, 0.5]},
    {"parent": "base_link", "child": "radar", "translation": [2, 0, 0.5], "rotation": [0.0, 0.0, 0.0, 1.0]},
    {"parent": "base_link", "child": "lidar", "translation": [0, 0, 2], "rotation": [0.0, 0.0, 0.0, 1.0]},
]


def name_of(frame: int, kind: str) -> str:
    return f"{SEQUENCE}/{SEQUENCE}_{frame:03d}.{kind}"


def stamp_of(frame: int) -> int:
    return START + frame * STEP


def pixels(frame: int) -> np.ndarray:
    y, x = np.mgrid[: SIZE[1], : SIZE[0]]
    return np.stack([x * 8 % 256, y * 10 % 256, np.full_like(x, frame * 20)], -1).astype(np.uint8)


def degrees(angle: float) -> tuple:
    seconds = Fraction(round(abs(angle) * 3600 * 10**6), 10**6)
    return (int(seconds // 3600), int(seconds % 3600 // 60), seconds % 60)


def jpeg(
    frame: int, *, exif_frame: int | None = None, stamp: int | None = None, place: tuple | None = None, comment=True
) -> bytes:
    exif = Image.Exif()
    text = {"sequence": SEQUENCE, "frame": exif_frame or frame, "timestamp_ns": stamp or stamp_of(frame)}
    if comment:
        exif.get_ifd(0x8769)[0x9286] = b"ASCII\0\0\0" + json.dumps(text).encode()
    place = place or POSITIONS.get(frame)
    if place:
        latitude, longitude = place[:2]
        gps = exif.get_ifd(0x8825)
        gps[1], gps[2] = "N" if latitude >= 0 else "S", degrees(latitude)
        gps[3], gps[4] = "E" if longitude >= 0 else "W", degrees(longitude)
    out = io.BytesIO()
    Image.fromarray(pixels(frame)).save(out, "JPEG", quality=95, exif=exif)
    return out.getvalue()


def cube_values(frame: int) -> np.ndarray:
    """(sequence 2, range 5, rx 2, doppler 3, re/im) as the device sends it: doppler doubled."""
    return np.random.default_rng(frame).integers(-32768, 32768, (2, 5, 2, 6)).astype(np.int16)


def cube_png(frame: int, **other: object) -> bytes:
    said = {
        "layout": [6, 1, 5, 2],
        "shape": [2, 5, 2, 6],
        "scales": [1.0, 0.5, 1.0, 0.25],
        "is_complex": True,
        "timestamp": stamp_of(frame) + 1000,
    } | other
    info = PngImagePlugin.PngInfo()
    for key, value in said.items():
        info.add_text(f"edgefirst:{key}", json.dumps(value))
    grid = (cube_values(frame).astype(np.int32) + 32768).astype(np.uint16).reshape(10, 12)
    out = io.BytesIO()
    Image.fromarray(grid).save(out, "PNG", pnginfo=info)
    return out.getvalue()


def cloud(frame: int, width: int = 3, height: int = 1, fields: str = "x y z reflect") -> bytes:
    head = (
        f"# .PCD v0.7\nVERSION 0.7\nFIELDS {fields}\nSIZE 4 4 4 1\nTYPE F F F U\nCOUNT 1 1 1 1\nWIDTH {width}\n"
        f"HEIGHT {height}\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {width * height}\nDATA binary\n"
    )
    return head.encode() + b"".join(struct.pack("<fffB", frame, n, 0.5, n) for n in range(width * height))


def mask_png(mode: str = "1") -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels(3)[..., 0] > 100).convert(mode).save(out, "PNG")
    return out.getvalue()


def good() -> Parts:
    parts = Parts()
    for frame in FRAMES:
        stamp, place = stamp_of(frame), POSITIONS.get(frame)
        parts.members[name_of(frame, "camera.jpeg")] = jpeg(frame)
        if frame != 7:
            parts.members[name_of(frame, "radar.png")] = cube_png(frame)
        if frame == 3:
            parts.members[name_of(frame, "radar.pcd")] = cloud(frame)
        parts.members[name_of(frame, "lidar.pcd")] = cloud(frame, 3, 2)
        companions = {"radar_cube": 1000, "radar_targets": -5 if frame == 3 else None, "lidar_points": 0}
        if frame == 7:
            companions["radar_cube"] = None
        row = {"name": SEQUENCE, "frame": frame, "timestamp": stamp, "size": SIZE, "keyframe": frame == 3, "segment": 0}
        if place:
            row |= dict(zip(("latitude", "longitude", "altitude"), place, strict=True))
            row["orientation"] = (0.0, 0.6, 0.0, 0.8)
        for base, skew in companions.items():
            row |= {f"{base}_timestamp": None if skew is None else stamp + skew, f"{base}_skew": skew}
        parts.frames.append(row)
        common = {"name": SEQUENCE, "frame": frame, "timestamp": stamp, "size": SIZE, "group": "train"}
        common["location"] = place[:2] if place else None
        boxes = [("car", 1), ("person", 0), ("car", 1)] if frame == 3 else []
        for number, (label, index) in enumerate(boxes):
            parts.annotations.append(
                common
                | {
                    "object_id": f"00000000-0000-4000-8000-00000000000{number}",
                    "label": label,
                    "label_index": index,
                    "box2d": (0.5, 0.5, 0.25, 0.125),
                    "box2d_score": 0.75,
                    "mask": mask_png(),
                    "polygon": [[0.0, 0.0, 1.0, 0.0, 1.0, 1.0]] if number == 0 else None,
                    "timing": {"load": 1, "preprocess": None, "inference": 2, "decode": 3},
                }
            )
        if not boxes:
            parts.annotations.append(common)
    parts.times = {name: stamp_of(int(name.split(".")[-3][-3:])) for name in parts.members}
    parts.annotation_metadata = {
        "schema_version": "2026.04",
        "box2d_format": "cxcywh",
        "box2d_normalized": "true",
        "mask_interpretation": "binary",
        "labels": '["person", "car"]',
    }
    parts.frames_metadata = {
        "sources": [{"file": "a.mcap", "size": 1, "sha256": "00"}],
        "configuration": {"tolerance": 0.1},
        "software": {"name": "edgefirst_ros", "version": "0"},
        "time_base": {"base": "header", "topics": {}},
        "camera_info": CAMERA_INFO,
        "static_transforms": TRANSFORMS,
        "counts": {
            "/camera/h264": {"seen": 8, "written": 3, "dropped": {"not sampled": 5}},
            "/radar/cube": {"seen": 9, "written": 2, "dropped": {}},
        },
    }
    parts.frames_metadata = {key: json.dumps(value) for key, value in parts.frames_metadata.items()}
    return parts


def dos_time(stamp: int) -> tuple:
    return datetime.fromtimestamp(stamp // 2_000_000_000 * 2, timezone.utc).timetuple()[:6]


def write_table(path: Path, rows: list[dict], schema: pa.Schema, metadata: dict[str, str]) -> None:
    columns = [pa.array([row.get(f.name) for row in rows], f.type, from_pandas=False) for f in schema]
    table = pa.Table.from_arrays(columns, schema=schema.with_metadata(metadata or None))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def write(folder: Path, parts: Parts, layout: str = "zip") -> Path:
    """OUT/NAME: NAME.zip or NAME/NAME/, and the tables that have rows."""
    base = folder if layout == "zip" else folder / "data"
    base.mkdir(exist_ok=True, parents=True)
    if layout == "zip":
        with zipfile.ZipFile(folder / "data.zip", "w") as archive:
            for name, data in parts.members.items():
                archive.writestr(zipfile.ZipInfo(name, dos_time(parts.times.get(name, START))), data)
    else:
        for name, data in parts.members.items():
            path = base / "data" / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(data)
    if parts.annotations:
        write_table(base / "data.arrow", parts.annotations, parts.annotation_schema, parts.annotation_metadata)
    if parts.frames:
        write_table(base / "data.frames.arrow", parts.frames, parts.frames_schema, parts.frames_metadata)
    return folder / ("data.zip" if layout == "zip" else "data")
