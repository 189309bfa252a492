# SPDX-License-Identifier: Apache-2.0
"""Disks that refuse: full, too small a limit, broken, read-only, over quota, gone. What was written is never lost."""

import collections
import errno
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import textwrap

import pyarrow.ipc
import pytest
from disk_runs import NAME, Runs, compiled, frame_of, may_mount, members, whole_members

from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError

TINY = {"seconds": 0.5, "size": (160, 96), "cube_shape": (2, 16, 4, 32), "lidar_points": 100, "gop": 5}
LARGER = {"seconds": 1, "size": (640, 360), "cube_shape": (2, 32, 4, 64), "lidar_points": 2000, "gop": 5}
LONGER = TINY | {"seconds": 1}
POINTS, PARTS = (0, 1, 3, 5, 7, 8), 9
"""Which parts of what is needed are there."""
SOME = 6
"""Calls of a conversion that are tried; all of them with EDGEFIRST_EVERY_CALL=1."""
REASONS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = compiled(tmp_path_factory.mktemp("shim"))
    if library is None:
        pytest.skip("no C compiler")
    return library


@pytest.fixture
def runs(tmp_path, recording):
    """Function that gives the `Runs` of a recording."""
    begun = []

    def begin(recipe, **options):
        begun.append(Runs(tmp_path, recording(**recipe), **options))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


@pytest.fixture(scope="module")
def refusing(tmp_path_factory, recording, shim):
    """The `Runs` of tests whose calls fail."""
    runs = Runs(tmp_path_factory.mktemp("refusing"), recording(**TINY), shim=shim)
    yield runs
    runs.close()


@pytest.fixture(scope="module")
def undisturbed(refusing):
    """Function that gives the whole result of a layout and the calls that lead to it."""

    @functools.cache
    def run(layout):
        return complete(refusing, layout, log=os.fspath(refusing.log)), refusing.calls()

    return run


def frames(out, layout="zip"):
    """Frame numbers and counts of a finished dataset."""
    folder = out if layout == "zip" else out / NAME
    table = pyarrow.ipc.open_file(folder / f"{NAME}.frames.arrow").read_all()
    return table["frame"].to_pylist(), json.loads(table.schema.metadata[b"counts"])


def assert_begins_like(whole, out, layout, at_least):
    """The dataset is valid, its samples are the first of the whole one's, and nothing else is there."""
    expected_members, (expected, _) = whole
    found, _ = frames(out, layout)
    assert found == expected[: len(found)]
    assert len(found) >= at_least
    chosen = {name: data for name, data in expected_members.items() if frame_of(name) in set(found)}
    assert members(out, layout) == chosen
    container = out / (f"{NAME}.zip" if layout == "zip" else NAME)
    assert validate(container).ok, validate(container).to_text()
    assert [p.name for p in out.rglob("*") if p.name.endswith((".partial", ".journal"))] == []


def assert_recoverable(whole, out, layout, at_least):
    """Nothing has a final name; after `recover` the first samples are there, and members of one that was not whole."""
    assert not (out / (f"{NAME}.zip" if layout == "zip" else NAME)).exists()
    left = whole_members(out / f"{NAME}.zip.partial")
    try:
        recover(out / NAME)
    except DatasetError:
        assert not left
        assert not at_least
        return
    found = members(out, layout)
    assert left.keys() <= found.keys()
    assert all(whole[0][name] == data for name, data in found.items())
    numbers, _ = frames(out, layout)
    assert numbers == whole[1][0][: len(numbers)]
    assert len(numbers) >= at_least
    container = out / (f"{NAME}.zip" if layout == "zip" else NAME)
    assert validate(container).ok, validate(container).to_text()


def judge(runs, code, whole, layout, at_least, reason):
    """Say what a run that met a refusal must say and leave."""
    out = runs.out
    assert code in (1, 3), runs.text
    assert "Traceback" not in runs.text, runs.text
    assert "Exception ignored" not in runs.text, runs.text
    assert reason in runs.text
    if code == 3:
        said = re.search(r"unfinished, (\d+) samples? committed", runs.text)
        assert said, runs.text
        assert "run the same command again" in runs.text
        assert_recoverable(whole, out, layout, max(at_least, int(said.group(1))))
    else:
        last = runs.text.splitlines()[-1]
        assert last.startswith("edgefirst-ros: ")
        assert "disk/out" in last
        assert last.count("; ") >= 1, f"{last} does not say what to do"
        assert_recoverable(whole, out, layout, at_least)


def complete(runs, layout, **case):
    """The undisturbed result."""
    assert runs.convert(layout, **case) == 0, runs.text
    return members(runs.out, layout), frames(runs.out, layout)


# ---- every kind of call ------------------------------------------------------------------------
def committed(runs, whole, layout):
    """Samples whose members were all there before the first refusal."""
    marks = {"zip": ("pwritev", ".zip.partial"), "directory": ("rename", f"/{NAME}.partial/{NAME}/")}
    function, path = marks[layout]
    done = 0
    for outcome, name, place in runs.calls():
        if outcome == "refused" and place.endswith(".rows.journal"):
            done -= 1  # the sample whose rows it does not take is taken back
            break
        if path in place:
            if outcome == "refused":
                break
            done += name.startswith(function)
    samples = collections.Counter(frame_of(name) for name in whole[0])
    for number, frame in enumerate(sorted(samples)):
        done -= samples[frame]
        if done < 0:
            return number
    return len(samples)


@pytest.mark.parametrize(("layout", "number"), [("zip", 1), ("zip", 3), ("zip", 0), ("directory", 1), ("directory", 0)])
def test_calls_fail(refusing, undisturbed, layout, number):
    """The n-th call that changes a file fails, or three, or all (0) from there on."""
    disk, (whole, made) = refusing, undisturbed(layout)
    calls = len(made)
    assert calls > 60
    step = 1 if "EDGEFIRST_EVERY_CALL" in os.environ else -(-calls // SOME)
    codes = collections.Counter()
    for at, reason in zip(range(1 + number, calls + 1, step), itertools.cycle(REASONS), strict=False):
        code = disk.convert(layout, log=os.fspath(disk.log), at=at, number=number, errno=reason)
        if code == 0:  # what failed was not needed: there was nothing to be removed, or another way was found
            assert sum(outcome == "refused" for outcome, _, _ in disk.calls()) <= 1  # a quick run makes fewer calls
            assert_begins_like(whole, disk.out, layout, len(whole[1][0]))
        else:
            judge(disk, code, whole, layout, committed(disk, whole, layout), os.strerror(reason))
        codes[code] += 1
    assert codes[1] > 0
    assert codes[3] > 0 or not number


@pytest.mark.parametrize(("layout", "name"), [("zip", "fdatasync"), ("zip", "fsync"), ("directory", "syncfs")])
def test_the_disk_takes_everything_until_it_is_to_keep_it(refusing, undisturbed, layout, name):
    """A broken disk tells so when it is waited for; then the dataset must not be called complete."""
    disk, (whole, made) = refusing, undisturbed(layout)
    at = next(n for n, call in enumerate(made, 1) if call[1] == name and call[2].endswith((".zip.partial", f"/{NAME}")))
    assert disk.convert(layout, log=os.fspath(disk.log), at=at, number=1, errno=errno.EIO) == 3
    judge(disk, 3, whole, layout, len(whole[1][0]), os.strerror(errno.EIO))


# ---- full --------------------------------------------------------------------------------------
def test_a_small_disk_is_full_at_any_point(runs):
    if not may_mount():
        pytest.skip("this process may not mount a file system")
    disk = runs(LARGER, mounts=True)
    whole = complete(disk, "zip", size=1 << 26)
    needed = sum(map(len, whole[0].values()))
    codes, reached = [], []
    for point in POINTS:
        size = (point * (needed + (1 << 20)) // PARTS) // 4096 * 4096 or 4096
        codes.append(disk.convert(size=size))
        judge(disk, codes[-1], whole, "zip", 0, os.strerror(errno.ENOSPC))
        reached.append(len(frames(disk.out)[0]) if codes[-1] == 3 else 0)  # by `recover`
    assert codes == sorted(codes), "with more space it does worse"
    assert codes.count(1) <= len(POINTS) // 2
    assert reached == sorted(reached)
    assert reached[-1] > len(whole[1][0]) * 3 // 4


def test_a_file_meets_its_limit_at_any_point(runs):
    disk = runs(LARGER)
    whole = complete(disk, "zip")
    needed = (disk.out / f"{NAME}.zip").stat().st_size
    codes, reached = [], []
    for point in POINTS:
        codes.append(disk.convert(limit=point * (needed - 1) // POINTS[-1]))
        judge(disk, codes[-1], whole, "zip", 0, os.strerror(errno.EFBIG))
        reached.append(len(frames(disk.out)[0]) if codes[-1] == 3 else 0)
    assert codes == sorted(codes)
    assert reached == sorted(reached)
    assert reached[-1] >= len(whole[1][0]) - 1


# ---- gone --------------------------------------------------------------------------------------
VANISH = """
    import shutil, sys, subprocess
    from pathlib import Path
    from edgefirst_ros import cli
    from edgefirst_ros.dataset.writer import DatasetWriter

    out, how = Path(sys.argv[1]), sys.argv[2]
    write = DatasetWriter.write

    def write_and_vanish(self, sample):
        write(self, sample)
        if self.samples != 20:
            return
        if how == "removed":
            shutil.rmtree(out)
        elif how == "moved":
            out.rename(out.with_name("elsewhere"))
        elif how == "replaced":
            (out / "drive.zip.partial").rename(out / "kept")
            (out / "drive.zip.partial").write_bytes(b"somebody else's")
        else:
            subprocess.run(["umount", "-l", out], check=True)

    DatasetWriter.write = write_and_vanish
    sys.argv = ["edgefirst-ros", "convert", sys.argv[3], "-o", str(out), "--name", "drive"]
    cli.main()
"""
"""Converts, and takes the disk away behind the 20th sample."""


def vanish(how, out, recording, *before):
    command = [*before, sys.executable, "-c", textwrap.dedent(VANISH), out, how, recording]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_the_output_vanishes(recording, tmp_path, how):
    out = tmp_path / "out"
    done = vanish(how, out, recording(**LONGER))
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"edgefirst-ros: {out}")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.zip")), "what was not written has a final name"
    if how == "replaced":
        assert (out / "drive.zip.partial").read_bytes() == b"somebody else's"
        (out / "kept").replace(out / "drive.zip.partial")
    if how == "moved":
        out = tmp_path / "elsewhere"
    if how != "removed":
        left = whole_members(out / "drive.zip.partial")
        report = recover(out / "drive")
        assert members(out).keys() == left.keys()
        assert report.samples >= 20
        assert validate(out / "drive.zip").ok


def test_the_disk_is_taken_away(recording, tmp_path):
    if not may_mount():
        pytest.skip("this process may not mount a file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f'mount -t tmpfs -o size=64m none "{disk}" && exec "$@"'
    done = vanish("unmounted", disk, recording(**LONGER), "unshare", "-rm", "sh", "-c", mount, "-")
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"edgefirst-ros: {disk}")
    assert "Traceback" not in done.stderr
    assert list(disk.iterdir()) == [], "something was written beside the disk that is gone"
