# SPDX-License-Identifier: Apache-2.0
"""The directory of a plain ZIP, read as columns, against `zipfile`; what is not plain is left to that."""

import io
import struct
import zipfile

import numpy as np
import pytest

from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.storage.zip_read import (
    DEFLATED,
    UTF8,
    Archive,
    Entry,
    make_central_record,
    make_end_records,
    read_directory,
)
from edgefirst_ros.errors import DatasetError

FACTS = ("filename", "header_offset", "compress_size", "file_size", "CRC", "compress_type", "flag_bits", "date_time")
MEMBERS = {"a/a_1.camera.jpeg": b"jpeg", "a/a_1.lidar.pcd": b"point " * 30, "ü/ü_2.png": b"", "b/b_1.png": b"x"}
MAX = 0xFFFFFFFF


def made(members=MEMBERS, *, comment=b"", mode=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 15, 12, 0, 2))
            archive.writestr(entry, data, mode if name.endswith(".pcd") else zipfile.ZIP_STORED)
        archive.comment = comment
    return file.getvalue()


def facts(entries):
    return [tuple(getattr(entry, name) for name in FACTS) for entry in entries]


def listed(file):
    """What zipfile reads, and where the directory begins."""
    with zipfile.ZipFile(file) as archive:
        return facts(archive.infolist()), archive.start_dir


def read(file):
    found = read_directory(file)
    return found and (facts(found.entries()), found.start)


def sparse(path, entries):
    """A file with a directory of entries, whose data are holes."""
    with path.open("wb") as file:
        file.seek(max(entry.end for entry in entries))
        start = file.tell()
        for entry in entries:
            file.write(make_central_record(entry))
        file.write(make_end_records(len(entries), start, file.tell() - start))
    return path


def entry(name, start, size, packed=None, method=0):
    data = start + 30 + len(name)
    return Entry(name, start, data, size if packed is None else packed, size, 7, 24, 23599, method)


def test_a_conversion_is_plain(recording, tmp_path):
    from edgefirst_ros import convert

    path = convert(recording(seconds=1), tmp_path).paths.container
    with path.open("rb") as file:
        assert read(file) == listed(file)
    archive = Archive(path)
    assert archive.starts == [entry.header_offset for entry in archive.entries]
    assert {name: archive.read(name) for name in archive.names} == {
        name: zipfile.ZipFile(path).read(name) for name in archive.names
    }
    assert Dataset(path)[0].image() is not None


def test_names_of_any_script_and_packed_members():
    file = io.BytesIO(made())
    assert read(file) == listed(file)
    assert {flags for *_, flags, _ in read(file)[0]} == {0, UTF8}
    assert {kind for *_, kind, _, _ in read(file)[0]} == {0, DEFLATED}


@pytest.mark.parametrize("case", ["many", "large", "far"])
def test_zip64(case, tmp_path):
    names = [f"s/s_{number:06}.camera.jpeg".encode() for number in range(70_000 if case == "many" else 4)]
    size, start, entries = 10 if case == "many" else 2 << 30, 5 << 30 if case == "far" else 0, []
    for name in names:
        entries.append(entry(name, start, size + (3 << 30) * (case == "large")))
        start = entries[-1].end
    path = sparse(tmp_path / "sparse.zip", entries)
    with path.open("rb") as file:
        found = read(file)
        assert found == listed(file)
        assert len(found[0]) == len(names)


def overlapping():
    """Two entries of the same data, which is how small files unpack to much."""
    data = made({"a/a_1.png": b"x" * 100})
    start = data.index(b"PK\x01\x02")
    record = make_central_record(Entry(b"a/a_2.png", 0, 39, 100, 100, 7, 0, 33))
    directory = data[start : data.index(b"PK\x05\x06")] + record
    return data[:start] + directory + make_end_records(2, start, len(directory))


def with_flags(bits):
    data = bytearray(made({"a/a_1.png": b"x"}))
    place = data.index(b"PK\x01\x02")
    data[place + 8 : place + 10] = struct.pack("<H", bits)
    return bytes(data)


ODD = {
    "nothing in it": made({}),
    "a comment": made(comment=b"here"),
    "bytes before it": b"#!/bin/sh\n" + made(),
    "bytes behind it": made() + b"more",
    "a folder": made({"a/": b"", "a/a_1.png": b"x"}),
    "packed by another method": made(mode=zipfile.ZIP_BZIP2),
    "encrypted": with_flags(1),
    "descriptors": with_flags(8),
    "a name in another code page": made().replace("ü".encode() + b"/", b"\x81\x81/"),
    "a name with NUL": made().replace(b"b/b_1.png", b"b/b\0001.png"),
    "a comment of a member": None,
    "overlapping": overlapping(),
    "cut": made()[:-30],
    "no ZIP": bytes(100),
    "short": b"PK\x05\x06",
    "an end that refers to another one": struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 65535, 65535, MAX, MAX, 0),
}


def commented():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        one = zipfile.ZipInfo("a/a_1.png")
        one.comment = b"a word"
        archive.writestr(one, b"x")
    return file.getvalue()


@pytest.mark.parametrize("case", ODD)
def test_what_is_not_plain_is_left_to_zipfile(case, tmp_path):
    data = ODD[case] if case != "a comment of a member" else commented()
    assert read_directory(io.BytesIO(data)) is None
    path = tmp_path / "odd.zip"
    path.write_bytes(data)
    try:
        wanted, start = listed(path)
    except (zipfile.BadZipFile, ValueError):
        with pytest.raises(DatasetError, match=r"odd\.zip: not a readable ZIP archive"):
            Archive(path)
        return
    archive = Archive(path)
    assert (facts(archive.entries + archive.folders), archive.directory_start) == (
        sorted(wanted, key=lambda f: f[0][-1:] == "/"),
        start,
    )
    assert archive.names == [name for name, *_ in wanted if not name.endswith("/")]
    if case == "overlapping":
        with pytest.raises(DatasetError, match="begins at 0 within"):
            archive.refuse_overlaps()


def small_zip64():
    """An archive that says in the form of ZIP64 what is small."""
    directory = b""
    for name, start, size, packed, offset in ((b"s/s_1.png", 0, MAX, MAX, 0), (b"s/s_2.png", 49, 10, 10, MAX)):
        values = [10] * (size == MAX) + [10] * (packed == MAX) + [start] * (offset == MAX)
        extra = struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values)
        head = struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 45, 45, 0, 0, 0, 33, 7, packed, size, 9, len(extra), 0, 0, 0, 0, offset
        )
        directory += head + name + extra
    end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 2, 2, len(directory), 98)
    end += struct.pack("<4sIQI", b"PK\6\7", 0, 98 + len(directory), 1)
    end += struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 2, 2, len(directory), 98, 0)
    return bytes(98) + directory + end


@pytest.mark.parametrize("data", [made(), small_zip64()], ids=["zip", "zip64"])
def test_any_byte_changed_is_read_as_zipfile_reads_it_or_left_to_it(data):
    """Of the directory and the end."""
    assert read(io.BytesIO(data)) == listed(io.BytesIO(data))
    tried = taken = 0
    for place in range(data.index(b"PK\x01\x02"), len(data)):
        for value in {0, 255, data[place] ^ 1, data[place] ^ 128, data[place] + 1 & 255} - {data[place]}:
            changed = io.BytesIO(data[:place] + bytes([value]) + data[place + 1 :])
            tried += 1
            if (found := read(changed)) is not None:
                taken += 1
                assert found == listed(changed), (place, value)
    assert tried > 800
    assert taken > 100, "times, checksums and letters of names may be anything"


def test_members_take_less_than_an_object_each(tmp_path):
    names = [f"s/s_{number:06}.camera.jpeg".encode() for number in range(70_000)]
    path = sparse(tmp_path / "many.zip", [entry(name, 57 * at, 0) for at, name in enumerate(names)])
    with path.open("rb") as file:
        found = read_directory(file)
    columns = sum(column.nbytes for column in found if isinstance(column, np.ndarray))
    assert columns <= 80 * len(names)
