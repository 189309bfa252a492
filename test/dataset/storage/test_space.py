# SPDX-License-Identifier: Apache-2.0
"""Room on the disk: the reserve, limits, the pace of growth; and writers that fail give everything back."""

import errno
import os
import resource
import shutil
import subprocess
import sys
import textwrap
import zipfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from open_files import list_open_files

from edgefirst_ros.dataset import DatasetWriter, NewSample
from edgefirst_ros.dataset.storage.space import Headroom, Reserve, check_there, count_free_bytes, find_largest_file
from edgefirst_ros.dataset.storage.zip_read import Entry
from edgefirst_ros.dataset.storage.zip_write import ArchiveWriter
from edgefirst_ros.errors import StorageError

MIB = 1 << 20
STAMP = 1_767_323_045_000_000_000


def sample(frame, size=1000, **further):
    return NewSample("drive", frame, STAMP + frame, [("camera.jpeg", [bytes(size)])], {"segment": 0}, **further)


def limited(limit, code):
    """Run code in a process whose files cannot grow beyond `limit` bytes."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# ---- the reserve -------------------------------------------------------------------------------
def test_the_reserve_takes_space_and_gives_it_back(tmp_path):
    path = tmp_path / "x.reserve.partial"
    path.write_bytes(b"left by somebody")
    reserve = Reserve(path)
    reserve.hold(1)
    assert path.stat().st_size == MIB
    assert path.stat().st_blocks * 512 >= MIB, "a sparse file holds nothing"
    reserve.hold(MIB + 1)
    assert path.stat().st_blocks * 512 >= 2 * MIB
    reserve.hold(100)
    assert path.stat().st_size == 2 * MIB
    reserve.release()
    assert not path.exists()
    reserve.release()
    reserve.hold(100)
    assert not path.exists()


def test_a_reserve_that_cannot_be_had(tmp_path):
    code = f"""
        from pathlib import Path
        from edgefirst_ros.dataset.storage.space import Reserve
        from edgefirst_ros.errors import StorageError
        reserve = Reserve(Path({os.fspath(tmp_path / "x")!r}))
        reserve.hold(100)
        try:
            reserve.hold(10 << 20)
        except StorageError as error:
            print(error, error.__cause__.errno)
        reserve.release()
    """
    done = limited(2 * MIB, code)
    assert done.stderr == ""
    assert "x: cannot reserve 15728640 bytes: File too large; write to a disk" in done.stdout
    assert done.stdout.split()[-1] == str(errno.EFBIG)
    assert list(tmp_path.iterdir()) == []


# ---- what is known beforehand ------------------------------------------------------------------
def test_another_file_in_its_place_is_noticed(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"")
    with path.open("rb") as file:
        check_there(path, file.fileno())
        path.rename(tmp_path / "y")
        with pytest.raises(FileNotFoundError):
            check_there(path, file.fileno())
        path.symlink_to(tmp_path / "y")
        with pytest.raises(OSError, match="another file"):
            check_there(path, file.fileno())


def test_an_archive_is_completed_only_in_its_place(tmp_path):
    writer = ArchiveWriter(tmp_path / "x")
    writer.add("a/a_001.radar.pcd", [b"one"], STAMP)
    (tmp_path / "x").rename(tmp_path / "y")
    (tmp_path / "x").write_bytes(b"another")
    with pytest.raises(StorageError, match="x: cannot finish: another file took its place"):
        writer.close()
    writer.abandon()
    assert (tmp_path / "x").read_bytes() == b"another"


def test_free_space_is_that_of_the_folder_above(tmp_path):
    status = os.statvfs(tmp_path)
    assert count_free_bytes(tmp_path / "not" / "there") == pytest.approx(
        status.f_bavail * status.f_frsize, abs=100 * MIB
    )


def test_the_pace_of_growth_counts(tmp_path):
    """1 GB a second needs 3 GB besides what is to be kept; space that others may take meanwhile: 1 GB."""
    free, giga = count_free_bytes(tmp_path), 1_000_000_000
    keep = free - 2 * giga
    assert keep > 0, "this test needs 2 GB of free disk"
    slow = Headroom(tmp_path, now=100.0)
    slow.check(0, keep, now=100.0)
    slow.check(giga // 10, keep, now=101.0)
    slow.check(2 * giga // 10, keep, now=102.0)
    with pytest.raises(
        StorageError, match=f"{keep} must stay free, and 3000000000 are still to be written: free some space"
    ):
        slow.check(2 * giga // 10 + giga, keep, now=103.0)
    slow.check(2 * giga // 10 + giga, keep, now=104.0)
    fast = Headroom(tmp_path, now=0.0)
    fast.check(giga, keep, now=10.0)
    with pytest.raises(StorageError, match="and 0 are still to be written"):
        Headroom(tmp_path, now=0.0).check(0, free + giga, now=1.0)


# ---- writers that fail -------------------------------------------------------------------------
@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_fifty_writers_that_cannot_begin_leave_nothing(tmp_path, layout):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for n in range(50):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (n * 100, limits[1]))
            with pytest.raises(StorageError, match="File too large; "):
                DatasetWriter(tmp_path, "drive", layout=layout)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert list(tmp_path.iterdir()) == []
    assert list_open_files(tmp_path) == []


@pytest.mark.parametrize("suffix", ["reserve.partial", "rows.journal"])
def test_what_is_in_the_way_keeps_nothing_else(tmp_path, suffix):
    blocked = tmp_path / f"drive.{suffix}"
    blocked.mkdir()
    with pytest.raises(StorageError, match=f"drive.{suffix}: cannot create: Is a directory"):
        DatasetWriter(tmp_path, "drive")
    assert list(tmp_path.iterdir()) == [blocked]
    assert list_open_files(tmp_path) == []


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_fifty_writers_that_cannot_end_leave_no_descriptor(tmp_path, layout):
    for n in range(50):
        out = tmp_path / str(n)
        with DatasetWriter(out, "drive", layout=layout) as writer:
            writer.write(sample(0))
            out.rename(tmp_path / f"moved {n}")
            with pytest.raises(StorageError, match=r"is still there, .*; once that is fixed, `edgefirst-ros recover"):
                writer.finish({})
    assert list_open_files(tmp_path) == []


def test_a_disk_that_is_full_for_a_large_table(tmp_path):
    """What is reserved covers tables that are large beside their members."""
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode:
        pytest.skip("this process may not mount a file system")
    code = """
        import os, sys
        from edgefirst_ros.dataset import DatasetWriter, NewSample
        from edgefirst_ros.errors import StorageError
        rows = [{"label": f"thing {n}", "box2d": (0.5, 0.5, 0.1, 0.1), "polygon": [[0.5] * 20]} for n in range(200)]
        with DatasetWriter(sys.argv[1], "drive", schema=sys.argv[2], flush_interval=0.01) as writer:
            try:
                for frame in range(10_000):
                    members = [("camera.jpeg", [bytes(1000)])]
                    writer.write(NewSample("drive", frame, frame, members, {"segment": 0}, rows))
            except StorageError:
                print(writer.samples)
            writer.finish({})
    """
    for version in ("2025.10", "2026.04"):
        kept = tmp_path / version
        (kept / "disk").mkdir(parents=True)
        script = 'mount -t tmpfs -o size=12m none "$1" && "$2" -c "$3" "$1" "$4" && cp "$1"/* "$5"'
        command = ["unshare", "-rm", "sh", "-c", script, "-", kept / "disk", sys.executable, textwrap.dedent(code)]
        done = subprocess.run([*command, version, kept], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        with zipfile.ZipFile(kept / "drive.zip") as archive:
            assert archive.testzip() is None
            assert len(archive.namelist()) == int(done.stdout) > 50
        shutil.rmtree(kept / "disk")


# ---- what the disk did not let go of, or did not take ------------------------------------------
def refuse(monkeypatch, name, number, reason):
    """Let `os.NAME` fail so many times."""
    real, left = getattr(os, name), [number]

    def call(*args, **options):
        if left[0]:
            left[0] -= 1
            raise OSError(reason, os.strerror(reason))
        return real(*args, **options)

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize("again", [False, True], ids=["closed", "synced again"])
@pytest.mark.parametrize("failing", ["fdatasync", "fsync"])
@pytest.mark.parametrize("damaged", [False, True], ids=["taken", "not taken"])
def test_a_sync_that_failed_is_not_believed(tmp_path, monkeypatch, damaged, failing, again):
    """The system forgets what a sync could not write: what cannot be read back then makes no whole archive."""
    path = tmp_path / "x.zip"
    writer = ArchiveWriter(path)
    writer.add("a/a_001.radar.pcd", [bytes(5000)], STAMP)
    writer.flush(sync=True)
    writer.add("a/a_002.radar.pcd", [bytes(5000)], STAMP)
    with monkeypatch.context() as patch:
        refuse(patch, failing, 1, errno.EIO)
        with pytest.raises(StorageError, match="Input/output error"):
            writer.close() if failing == "fsync" else writer.flush(sync=True)
    if damaged:
        with path.open("r+b") as file:
            file.seek(7000)
            file.write(b"not as it was")
    writer.add("a/a_003.radar.pcd", [bytes(5000)], STAMP)
    for then in [partial(writer.flush, sync=True), writer.close][not again :]:
        with pytest.raises(StorageError, match="cannot be read back") if damaged else nullcontext():
            then()
    writer.abandon()
    if not damaged:
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            assert archive.namelist() == [f"a/a_00{n}.radar.pcd" for n in (1, 2, 3)]


def test_what_lies_between_the_members_of_a_recovered_archive_is_no_loss(tmp_path, monkeypatch):
    path = tmp_path / "x.zip"
    writer = ArchiveWriter(path)
    for number in range(1, 4):
        writer.add(f"a/a_00{number}.radar.pcd", [bytes([number]) * 5000], STAMP)
    writer.abandon()
    with path.open("r+b") as file:
        file.seek(7000)
        file.write(b"not as it was")
    writer = ArchiveWriter(path, reopen=True)
    kept = [found for found in writer.scan(0) if isinstance(found, Entry) and writer.keep(found)]
    assert len(kept) == 2
    with monkeypatch.context() as patch:
        refuse(patch, "fsync", 1, errno.EIO)
        with pytest.raises(StorageError, match="Input/output error"):
            writer.close()
    writer.close()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["a/a_001.radar.pcd", "a/a_003.radar.pcd"]


def test_what_cannot_be_cut_off_now_is_cut_off_at_the_end(tmp_path, monkeypatch):
    writer = ArchiveWriter(tmp_path / "x.zip")
    writer.add("a/a_001.radar.pcd", [b"kept"], STAMP)
    writer.begin()
    writer.add("a/a_002.radar.pcd", [bytes(100_000)], STAMP)
    with monkeypatch.context() as patch:
        refuse(patch, "ftruncate", 100, errno.EIO)
        writer.undo()
    assert (tmp_path / "x.zip").stat().st_size > 100_000
    writer.close()
    assert (tmp_path / "x.zip").stat().st_size < 400
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.namelist() == ["a/a_001.radar.pcd"]


def test_members_that_cannot_be_removed_now_are_removed_at_the_end(tmp_path, monkeypatch):
    with DatasetWriter(tmp_path, "drive", layout="directory") as writer:
        writer.write(sample(0))
        both = NewSample("drive", 1, STAMP, [("camera.jpeg", [b"1"]), ("radar.png", [b"2"])], {"segment": 0})
        with monkeypatch.context() as patch:
            refuse(patch, "unlink", 100, errno.EIO)
            real = os.rename

            def rename(old, new, **options):
                if new.endswith("radar.png"):
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                real(old, new, **options)

            patch.setattr(os, "rename", rename)
            with pytest.raises(StorageError):
                writer.write(both)
        writer.write(sample(2))
        paths = writer.finish({})
    names = sorted(p.name for p in paths.members.rglob("*") if p.is_file())
    assert names == ["drive_000.camera.jpeg", "drive_002.camera.jpeg"]


def test_rows_are_not_gathered_while_the_disk_refuses(tmp_path, monkeypatch):
    """A writer whose caller goes on after a refusal says so again each time, and keeps what it could take."""
    with DatasetWriter(tmp_path, "drive") as writer:
        writer.write(sample(0))
        with monkeypatch.context() as patch:
            refuse(patch, "pwritev", 1 << 30, errno.ENOSPC)
            for frame in range(1, 100):
                with pytest.raises(StorageError, match="No space left"):
                    writer.write(sample(frame))
            assert writer.samples == 1
        writer.write(sample(100))
        paths = writer.finish({})
    with zipfile.ZipFile(paths.container) as archive:
        assert archive.namelist() == ["drive/drive_000.camera.jpeg", "drive/drive_100.camera.jpeg"]


@pytest.mark.parametrize(("kind", "most"), [("vfat", (1 << 32) - 1), ("ext4", 1 << 62), ("", 1 << 62)])
def test_files_on_fat_end_at_4_gib(tmp_path, monkeypatch, kind, most):
    """Where the system does not say what file system it is, there is no limit."""
    device = tmp_path.stat().st_dev
    line = f"36 35 {os.major(device)}:{os.minor(device)} / {tmp_path} rw,noatime - {kind} /dev/sda1 rw"
    text = "1 0 0:0 / / rw - other x rw\n" + (f"{line}\n" if kind else "")
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert find_largest_file(tmp_path) == most
