# SPDX-License-Identifier: Apache-2.0
"""Ways to spoil a good dataset before it is written, and the rules that its validation then names."""

import io
import json
import struct
import zlib
from functools import partial
from pathlib import Path

import handmade_dataset as made
import pyarrow as pa
from handmade_dataset import SEQUENCE, name_of
from PIL import Image

from edgefirst_ros.dataset.validate import validate

CAMERA, CUBE, RADAR, LIDAR = (name_of(3, kind) for kind in ("camera.jpeg", "radar.png", "radar.pcd", "lidar.pcd"))


def found(path: Path) -> set[str]:
    return set(validate(path, strict=True).counts)


def cases(spoilt):
    """Code, spoiler and rules found, of each case."""
    return [(code, *case) for code, several in spoilt.items() for case in several]


def plant(folder, spoil) -> set[str]:
    """What is found in a good dataset that was spoilt."""
    parts = made.good()
    spoil(parts)
    return found(made.write(folder, parts))


def rename(old, new):
    def spoil(parts):
        parts.members = {new if name == old else name: data for name, data in parts.members.items()}
        parts.times[new] = parts.times[old]

    return spoil


def member(name, data):
    def spoil(parts):
        parts.members[name] = data() if callable(data) else data

    return spoil


def cell(table, name, value, row=0):
    def spoil(parts):
        getattr(parts, table)[row][name] = value

    return spoil


column, frames_column = partial(cell, "annotations"), partial(cell, "frames")


def column_type(name, kind):
    def spoil(parts):
        index = parts.annotation_schema.get_field_index(name)
        parts.annotation_schema = parts.annotation_schema.set(index, pa.field(name, kind))

    return spoil


def said(of, name, value):
    def spoil(parts):
        getattr(parts, of)[name] = value

    return spoil


metadata, frames_metadata = partial(said, "annotation_metadata"), partial(said, "frames_metadata")


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


def other_height(png: bytes) -> bytes:
    """A PNG of which only the header, with a right CRC, says one more line than there is."""
    width, height = struct.unpack_from(">II", png, 16)
    head = b"IHDR" + struct.pack(">II", width, height + 1) + png[24:29]
    return png[:12] + head + struct.pack(">I", zlib.crc32(head)) + png[33:]


def flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
