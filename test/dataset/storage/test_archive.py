# SPDX-License-Identifier: Apache-2.0
import datetime
import errno
import os
import shutil
import stat
import struct
import subprocess
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefirst_ros.dataset.names import KINDS, make_member_name
from edgefirst_ros.dataset.storage import lock, zip_write
from edgefirst_ros.dataset.storage.folder import DirectoryWriter
from edgefirst_ros.dataset.storage.zip_read import convert_dos_time, encode_dos_time
from edgefirst_ros.dataset.storage.zip_write import ArchiveWriter
from edgefirst_ros.errors import DatasetError, StorageError

STAMP = 1767323045_123456789  # 2026-01-02T03:04:05Z
UTC = datetime.timezone.utc
TOOLS = {"unzip": ["-tqq"], "7z": ["t", "-bso0", "-bsp0"], "bsdtar": ["-xOf"]}


def write(path, members, stamp=STAMP):
    writer = ArchiveWriter(path)
    for name, buffers in members:
        writer.add(name, buffers, stamp)
    writer.close()


def test_zipfile_reads_it(tmp_path):
    pixels = np.arange(100_000, dtype=np.int16).reshape(10, -1)
    members = [("a/a_001.radar.png", [b"head", pixels, b"", memoryview(b"tail")]), ("ä/ä_002.radar.pcd", [])]
    write(tmp_path / "x.zip", members)
    with zipfile.ZipFile(tmp_path / "x.zip") as found:
        assert found.testzip() is None
        assert found.namelist() == [name for name, _ in members]
        assert found.read(members[0][0]) == b"head" + pixels.tobytes() + b"tail"
        assert found.read(members[1][0]) == b""
        first, second = found.infolist()
    assert first.compress_type == zipfile.ZIP_STORED
    assert first.flag_bits == 0
    assert second.flag_bits == 0x800
    assert zlib.crc32(b"head" + pixels.tobytes() + b"tail") == first.CRC
    assert first.date_time == (2026, 1, 2, 3, 4, 4)
    assert stat.S_ISREG(first.external_attr >> 16)
    assert first.external_attr >> 16 & 0o777 == 0o644


@pytest.fixture(scope="module", params=[40, 66_000])
def numerous(request, tmp_path_factory):
    """An archive of so many members."""
    path, count = tmp_path_factory.mktemp("members") / "x.zip", request.param
    write(path, [(f"ä b/ä b_{n:03d}.camera.jpeg", [b"abc" * (n % 9)]) for n in range(count)])
    return path, count


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_read_it(numerous, tool):
    path, count = numerous
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    done = subprocess.run([tool, *TOOLS[tool], path], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    if tool == "bsdtar":
        assert len(done.stdout) == sum(3 * (n % 9) for n in range(count))


NAMES = st.builds(
    make_member_name,
    st.sampled_from(["a", "bé", "host_2026_01_02_03_04_05"]),
    st.integers(0, 2**32 - 1),
    st.sampled_from(KINDS),
)


@settings(max_examples=60)
@given(st.dictionaries(NAMES, st.lists(st.binary(max_size=50), max_size=5), max_size=12), st.integers(0, 2**63 - 1))
def test_any_members(members, stamp):
    with TemporaryDirectory() as folder:
        path = Path(folder, "x.zip")
        write(path, members.items(), stamp)
        with zipfile.ZipFile(path) as found:
            assert {name: found.read(name) for name in found.namelist()} == {n: b"".join(b) for n, b in members.items()}
            end = 0
            data = path.read_bytes()
            for entry in found.infolist():  # one after the other, without gaps, whole local headers
                assert entry.header_offset == end
                flags, crc, packed, size, length, extra = struct.unpack_from("<6xH6xIIIHH", data, end)
                assert (flags & 8, crc, packed, size) == (0, entry.CRC, entry.file_size, entry.file_size)
                end += 30 + length + extra + size
            assert found.start_dir == end


def test_zero_copy_fields_of_messages(tmp_path):
    schemas = pytest.importorskip("edgefirst.schemas")
    text = b"\0\1\0\0" + struct.pack("<iI", 0, 0) + struct.pack("<I", 2) + b"c\0\0\0"
    for payload in (b"", b"12345"):
        cdr = text + struct.pack("<I", 5) + b"jpeg\0\0\0\0" + struct.pack("<I", len(payload)) + payload
        data = schemas.sensor_msgs.CompressedImage.from_cdr(cdr).data.view()
        write(tmp_path / "x.zip", [("a/a_001.camera.jpeg", [b"<", data, b">"])])
        assert zipfile.ZipFile(tmp_path / "x.zip").read("a/a_001.camera.jpeg") == b"<" + payload + b">"


def test_same_input_same_bytes(tmp_path):
    for name in ("x.zip", "y.zip"):
        write(tmp_path / name, [(f"a/a_{n:03d}.radar.pcd", [b"x" * n]) for n in range(20)])
    assert (tmp_path / "x.zip").read_bytes() == (tmp_path / "y.zip").read_bytes()


@pytest.mark.parametrize(
    ("stamp", "date"),
    [
        (0, (1980, 1, 1, 0, 0, 0)),
        (-1, (1980, 1, 1, 0, 0, 0)),
        (2**63 - 1, (2107, 12, 31, 23, 59, 58)),
        (1767323045_999999999, (2026, 1, 2, 3, 4, 4)),
        (1709251199_000000000, (2024, 2, 29, 23, 59, 58)),
        (4354819199_000000000, (2107, 12, 31, 23, 59, 58)),
    ],
)
def test_dos_time_limits(tmp_path, stamp, date):
    write(tmp_path / "x.zip", [("a/a_001.radar.pcd", [b""])], stamp)
    assert zipfile.ZipFile(tmp_path / "x.zip").infolist()[0].date_time == date


@given(st.integers(315532800, 4354819199))
def test_dos_time(seconds):
    time, date = encode_dos_time(seconds * 10**9)
    known = datetime.datetime.fromtimestamp(seconds // 2 * 2, UTC)
    found = datetime.datetime(
        1980 + (date >> 9), date >> 5 & 15, date & 31, time >> 11, time >> 5 & 63, (time & 31) * 2, tzinfo=UTC
    )
    assert found == known


# ---- ZIP64 -----------------------------------------------------------------------------------
def test_members_beyond_four_gibibytes(tmp_path):
    writer = ArchiveWriter(tmp_path / "x.zip")
    writer.add("a/a_001.radar.pcd", [b"first"], STAMP)
    writer._offset = 5 << 30  # a hole: the file is sparse
    writer.add("a/a_002.radar.pcd", [b"second"], STAMP)
    writer.close()
    with zipfile.ZipFile(tmp_path / "x.zip") as found:
        assert found.infolist()[1].header_offset == 5 << 30
        assert [found.read(name) for name in found.namelist()] == [b"first", b"second"]
    assert (tmp_path / "x.zip").stat().st_blocks * 512 < 1 << 20
    if shutil.which("unzip"):
        assert (
            subprocess.run(["unzip", "-p", tmp_path / "x.zip", "a/a_002*"], capture_output=True, check=False).stdout
            == b"second"
        )


def test_member_of_four_gibibytes(tmp_path, monkeypatch):
    """A view that says it has 4 GiB; what reaches the disk is a hole."""
    import mmap

    size = (1 << 32) + 10
    with (tmp_path / "sparse").open("wb+") as file:
        file.truncate(size)
        zeros = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    monkeypatch.setattr(lock.zlib_ng, "crc32", lambda view, crc: crc if len(view) == size else zlib.crc32(view, crc))
    monkeypatch.setattr(zip_write, "write_at", _sparse)
    writer = ArchiveWriter(tmp_path / "x.zip")
    writer.add("a/a_001.radar.pcd", [zeros], STAMP)
    writer.add("a/a_002.radar.pcd", [b"behind"], STAMP)
    writer.close()
    with zipfile.ZipFile(tmp_path / "x.zip") as found:
        first, second = found.infolist()
        assert (first.file_size, first.compress_size, first.extract_version) == (size, size, 45)
        assert found.read(second) == b"behind"
        with found.open(first) as member:
            assert member.read(10) == bytes(10)
    with (tmp_path / "x.zip").open("rb") as file:
        header = file.read(80)
    assert struct.unpack_from("<II", header, 18) == (0xFFFFFFFF, 0xFFFFFFFF)
    length = struct.unpack_from("<H", header, 26)[0]
    assert struct.unpack_from("<HHQQ", header, 30 + length) == (1, 16, size, size)


def _sparse(fd, views, offset):
    for view in views:
        if len(view) < 1 << 20:
            os.pwrite(fd, view, offset)
        offset += len(view)
    return offset


@pytest.mark.parametrize("count", [65534, 65535])
def test_many_members(tmp_path, count):
    write(tmp_path / "x.zip", [(f"a/a_{frame:03d}.radar.pcd", [b"%d" % frame]) for frame in range(count)])
    with zipfile.ZipFile(tmp_path / "x.zip") as found:
        assert len(found.namelist()) == count
        assert found.read(f"a/a_{count - 1:03d}.radar.pcd") == b"%d" % (count - 1)
    assert (b"PK\x06\x06" in (tmp_path / "x.zip").read_bytes()[-200:]) == (count >= 65535)


def test_memory_is_flat(tmp_path):
    writer = ArchiveWriter(tmp_path / "x.zip")
    payload = bytes(10_000)
    tracemalloc.start()
    for frame in range(10_000):
        writer.begin()
        writer.add(f"a/a_{frame:03d}.radar.pcd", [payload], STAMP)
    grown = tracemalloc.get_traced_memory()[0]
    writer.close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert grown < 120_000  # a byte a frame and the buffer of the directory, which has 800 kB
    assert peak < 700_000


# ---- refusals and faults ---------------------------------------------------------------------
@pytest.fixture(params=[ArchiveWriter, DirectoryWriter])
def container(request, tmp_path):
    writer = request.param(tmp_path / "x")
    yield writer
    writer.abandon()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "/etc/passwd",
        "../x",
        "a/b_001.radar.pcd",
        "a/a_1.radar.pcd",
        "../.._001.radar.pcd",
        "a\0/a\0_001.radar.pcd",
        "a:/a:_001.radar.pcd",
    ],
)
def test_no_member_name(container, name):
    with pytest.raises(DatasetError, match="name"):
        container.add(name, [b""], STAMP)


def test_repeated_names(container):
    for frame in (1, 600, 2, 1_000_000, 513):
        container.add(f"a/a_{frame:03d}.radar.pcd", [b"1"], STAMP)
        container.add(f"a/a_{frame:03d}.radar.png", [b"1"], STAMP)
        container.add(f"b/b_{frame:03d}.radar.png", [b"1"], STAMP)
    for name in ("a/a_001.radar.pcd", "b/b_513.radar.png", "a/a_1000000.radar.pcd"):
        with pytest.raises(DatasetError, match="before"):
            container.add(name, [b"2"], STAMP)


def test_short_writes(tmp_path, monkeypatch):
    real, data = os.pwritev, [os.urandom(n % 60) for n in range(3000)]
    monkeypatch.setattr(zip_write.os, "pwritev", lambda fd, views, offset: real(fd, [b"".join(views)[:777]], offset))
    write(tmp_path / "x.zip", [("a/a_001.radar.pcd", data)])
    assert zipfile.ZipFile(tmp_path / "x.zip").read("a/a_001.radar.pcd") == b"".join(data)


def test_many_buffers(tmp_path):
    data = [os.urandom(n % 60) for n in range(5000)]  # more than one call takes
    write(tmp_path / "x.zip", [("a/a_001.radar.pcd", data)])
    assert zipfile.ZipFile(tmp_path / "x.zip").read("a/a_001.radar.pcd") == b"".join(data)


def test_disk_full_leaves_whole_members(tmp_path, monkeypatch):
    writer = ArchiveWriter(tmp_path / "x.zip")
    writer.add("a/a_001.radar.pcd", [b"whole"], STAMP)
    real = os.pwritev

    def full(fd, views, offset):
        if len(views) > 1:
            return real(fd, views[:1], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(zip_write.os, "pwritev", full)
        with pytest.raises(DatasetError, match=r"x\.zip.*No space") as caught:
            writer.add("a/a_002.radar.pcd", [b"lost"], STAMP)
    assert caught.value.__cause__.errno == errno.ENOSPC
    writer.add("a/a_003.radar.pcd", [b"again"], STAMP)
    writer.close()
    with zipfile.ZipFile(tmp_path / "x.zip") as found:
        assert found.namelist() == ["a/a_001.radar.pcd", "a/a_003.radar.pcd"]
        assert found.testzip() is None


def test_full_device():
    with pytest.raises(DatasetError, match="regular"):
        ArchiveWriter(Path("/dev/full"))


def test_second_writer_is_refused(tmp_path):
    writer = ArchiveWriter(tmp_path / "x.zip")
    with pytest.raises(DatasetError, match="another writer"):
        ArchiveWriter(tmp_path / "x.zip")
    writer.abandon()
    ArchiveWriter(tmp_path / "x.zip").abandon()


def test_an_old_file_is_replaced_not_written_into(tmp_path):
    (tmp_path / "other").write_bytes(b"precious")
    os.link(tmp_path / "other", tmp_path / "x.zip")
    write(tmp_path / "x.zip", [])
    assert (tmp_path / "other").read_bytes() == b"precious"


def test_links_are_not_followed(tmp_path):
    (tmp_path / "other").write_bytes(b"precious")
    (tmp_path / "x.zip").symlink_to("other")
    with pytest.raises(DatasetError, match="regular"):
        ArchiveWriter(tmp_path / "x.zip")
    assert (tmp_path / "other").read_bytes() == b"precious"


def test_nothing_beside_the_archive(tmp_path):
    writer = ArchiveWriter(tmp_path / "x.zip")
    writer.add("a/a_001.radar.pcd", [b"1"], STAMP)
    assert os.listdir(tmp_path) == ["x.zip"]
    writer.abandon()


def test_cut_anywhere_bsdtar_gets_the_whole_members(tmp_path):
    if not shutil.which("bsdtar"):
        pytest.skip("bsdtar is not installed")
    writer = ArchiveWriter(tmp_path / "x.zip")
    for n in range(9):
        writer.add(f"a/a_{n:03d}.radar.pcd", [bytes([65 + n]) * 1000], STAMP)
    writer.flush(sync=True)
    writer.abandon()
    os.truncate(tmp_path / "x.zip", (tmp_path / "x.zip").stat().st_size - 500)
    with (tmp_path / "x.zip").open("rb") as file:  # from a pipe: by local headers alone
        found = subprocess.run(["bsdtar", "-xOf", "-"], stdin=file, capture_output=True, check=False).stdout
    assert found.startswith(b"".join(bytes([65 + n]) * 1000 for n in range(8)))


# ---- folder ----------------------------------------------------------------------------------
def test_directory(tmp_path):
    writer = DirectoryWriter(tmp_path / "x")
    for name in ("a/a_001.radar.pcd", "b/b_001.radar.pcd", "a/a_002.radar.pcd"):
        writer.add(name, [name.encode(), b"!"], STAMP)
    writer.close()
    found = {str(p.relative_to(tmp_path / "x")): p.read_bytes() for p in (tmp_path / "x").rglob("*") if p.is_file()}
    assert found == {n: n.encode() + b"!" for n in ("a/a_001.radar.pcd", "b/b_001.radar.pcd", "a/a_002.radar.pcd")}
    assert (tmp_path / "x/a/a_001.radar.pcd").stat().st_mtime_ns == STAMP


def test_directory_follows_no_links(tmp_path):
    (tmp_path / "outside").mkdir()
    writer = DirectoryWriter(tmp_path / "x")
    (tmp_path / "x/a").symlink_to(tmp_path / "outside")
    with pytest.raises(DatasetError):
        writer.add("a/a_001.radar.pcd", [b""], STAMP)
    writer.abandon()
    assert not os.listdir(tmp_path / "outside")


def test_directory_keeps_no_half_member(tmp_path, monkeypatch):
    writer = DirectoryWriter(tmp_path / "x")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(zip_write.os, "pwritev", full)
        with pytest.raises(DatasetError, match="No space"):
            writer.add("a/a_001.radar.pcd", [b"lost"], STAMP)
    writer.add("a/a_002.radar.pcd", [b"kept"], STAMP)
    writer.abandon()
    assert os.listdir(tmp_path / "x/a") == ["a_002.radar.pcd"]


def test_directory_is_not_complete_once_the_disk_refused_to_keep_it(tmp_path, monkeypatch):
    """The system tells of a failed sync once: the next one succeeds without what the disk did not take."""
    writer = DirectoryWriter(tmp_path / "x")
    writer.add("a/a_001.radar.pcd", [b"lost"], STAMP)

    def refuse(_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("edgefirst_ros.dataset.storage.folder.sync_disk", refuse)
        with pytest.raises(StorageError, match="Input/output error"):
            writer.flush(sync=True)
    writer.flush(sync=False)
    with pytest.raises(StorageError, match="lost data that was written before"):
        writer.close()
    writer.abandon()


def test_a_time_that_is_none_is_the_epoch():
    assert convert_dos_time(0, 0) == 0  # no month, no day
    assert convert_dos_time(*encode_dos_time(STAMP)) == 1767323044_000000000


def test_a_file_system_that_does_not_tell_its_limit_leaves_nothing(tmp_path, monkeypatch):
    def refused(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(zip_write, "find_largest_file", refused)
    with pytest.raises(StorageError, match=r"x\.zip: cannot create: Input/output error"):
        ArchiveWriter(tmp_path / "x.zip")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_read_back_is_an_error(tmp_path, monkeypatch):
    writer = ArchiveWriter(tmp_path / "x.zip")
    for n in range(2000):  # more than is held in memory
        writer.add(f"a/a_{n:03d}.camera.jpeg", [b"x"], STAMP)
    monkeypatch.setattr(os, "pread", lambda *_: b"")
    with pytest.raises(StorageError, match=r"x\.zip: cannot .*: the directory so far cannot be read back"):
        writer.close()
    writer.abandon()
