# SPDX-License-Identifier: Apache-2.0
"""Every rule about the files themselves finds the defect planted in their bytes, and nothing else is said about it."""

import io
import os
import struct
import zipfile
from pathlib import Path

import handmade_dataset as made
import polars as pl
import pytest
from handmade_dataset import stamp_of
from spoilers import LIDAR, RADAR, found

from edgefirst_ros.dataset.validate import validate


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
    assert os.fspath(tmp_path) not in "".join(one.message for one in validate(path).findings), "the place is named once"


@pytest.mark.parametrize("wrong", ["", "size", "packed size"])
def test_sizes_of_64_bits_stand_behind_the_local_header(tmp_path, wrong):
    """As zipfile writes them for what may become large."""
    path = made.write(tmp_path, made.good())

    def large(new, parts):
        for info, data in parts:
            with new.open(info, "w", force_zip64=True) as member:
                member.write(data)

    rewrite(path, large)
    local = entry(path, LIDAR)
    patch(path, local.header_offset + 18, b"\xff" * 8)  # which zipfile leaves out before Python 3.11.4
    data = path.read_bytes()
    extra = local.header_offset + 30 + len(LIDAR)
    assert data[extra : extra + 20] == struct.pack("<2H2Q", 1, 16, local.file_size, local.file_size)
    assert struct.unpack_from("<2I", data, local.header_offset + 18) == (0xFFFFFFFF,) * 2
    if wrong:
        patch(path, extra + (4 if wrong == "size" else 12), struct.pack("<Q", 1 << 40))
    findings = [(one.place, one.message) for one in validate(path, strict=True).findings if one.rule == "HDR001"]
    told = f"{wrong} is {1 << 40} in the local header, {local.file_size} in the directory"
    assert findings == ([(LIDAR, told)] if wrong else [])
