# SPDX-License-Identifier: Apache-2.0
"""Conversions that were interrupted go on, and end as if they never had been."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from same_dataset import files

import edgefirst_ros
from edgefirst_ros import convert
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.writer import DatasetWriter
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.pipeline.facts import SOFTWARE

SMALL = {"seconds": 2, "fps": 15, "size": (160, 96), "gop": 8, "cube_shape": (2, 16, 4, 32), "lidar_points": 50}


class Interrupted(Exception):
    """Raised by what is told of the progress."""


def commit_each(monkeypatch):
    """Every sample is committed at once."""
    monkeypatch.setattr(DatasetWriter, "flush_age", property(lambda _: 1e9))


@pytest.fixture
def busy(monkeypatch):
    commit_each(monkeypatch)


@pytest.fixture(scope="module")
def recordings(recording):
    return [recording(**SMALL, host="one"), recording(**SMALL, host="two", seed=5)]


def interrupt(recordings, out, after, **options):
    """Convert until so many messages were given to the second walks, of all recordings together.

    With one thread each, so that what was read is soon written too.
    """
    count = 0

    def progress(what, done, of):
        nonlocal count
        count += what.startswith("converting")
        if count > after:
            raise Interrupted

    with pytest.raises(Interrupted):
        convert(recordings, out, progress=progress, jobs=1, **options)


@pytest.fixture(scope="module")
def unfinished(recordings, tmp_path_factory):
    """Folders of an unfinished dataset `drive` with committed samples and of its uninterrupted form."""
    out, folder = tmp_path_factory.mktemp("unfinished"), tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as monkeypatch:
        commit_each(monkeypatch)
        count, _ = messages_of(recordings[0], folder, name="drive")
        interrupt(recordings[0], out, count * 9 // 10, name="drive")
    paths = DatasetPaths(out, "drive")
    assert paths.unfinished
    assert paths.members_partial.stat().st_size > 10_000
    return out, folder


@pytest.fixture
def left(unfinished, tmp_path):
    """The unfinished dataset in tmp_path/out; its uninterrupted form is in tmp_path/whole."""
    for folder, name in zip(unfinished, ("out", "whole"), strict=True):
        shutil.copytree(folder, tmp_path / name)
    return DatasetPaths(tmp_path / "out", "drive")


def messages_of(recordings, out, **options):
    """Messages in the second walks of an uninterrupted conversion."""
    count = 0

    def progress(what, done, of):
        nonlocal count
        count += what.startswith("converting")

    outcome = convert(recordings, out, progress=progress, **options)
    return count, outcome


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("number", "options"),
    [
        (1, {}),
        (2, {}),
        (2, {"layout": "directory"}),
        (1, {"rate": 5.0}),
        (1, {"split": {"a": 0.5, "b": 0.5}, "keyframes": True}),
        (2, {"split": {"a": 0.5, "b": 0.5}, "keyframes": True}),
    ],
    ids=str,
)
def test_the_same_bytes(recordings, tmp_path, number, options):
    recordings = recordings[:number]
    count, whole = messages_of(recordings, tmp_path / "whole", name="drive", **options)
    chance = random.Random(number)
    continued = False
    for n, share in enumerate((0.5, 0.95) if "split" in options or "rate" in options else (0.05, 0.5, 0.95)):
        out = tmp_path / f"out{n}"
        interrupt(recordings, out, round(count * share), name="drive", **options)
        interrupt(recordings, out, chance.randrange(count), name="drive", resume=True, **options)
        outcome = convert(recordings, out, name="drive", resume=True, **options)
        continued = continued or any("continues after" in note for note in outcome.notes)
        assert files(out) == files(tmp_path / "whole")
        assert outcome.counts.plain() == whole.counts.plain()
        assert (outcome.samples, outcome.exit_code) == (whole.samples, 0)
    assert continued


@pytest.mark.usefixtures("busy")
def test_only_what_is_missing_is_written(recordings, left, tmp_path, monkeypatch):
    """What is there stays untouched: its bytes lie where they lay, and members are added behind it only."""
    out, partial = left.out, left.members_partial
    before, inode = partial.read_bytes(), partial.stat().st_ino
    offsets = []
    real = DatasetWriter.write
    monkeypatch.setattr(
        DatasetWriter, "write", lambda self, one: (real(self, one), offsets.append(partial.stat().st_size))[0]
    )
    convert(recordings[0], out, name="drive", resume=True)
    assert (out / "drive.zip").stat().st_ino == inode
    assert min(offsets) == max(size for size in offsets if size <= len(before))
    assert files(out) == files(tmp_path / "whole")


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_finished_dataset(recordings, tmp_path, layout):
    """Nothing is done, and nothing has to be."""
    first = convert(recordings, tmp_path, name="drive", layout=layout)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again = convert(recordings, tmp_path, name="drive", layout=layout, resume=True)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times
    assert (again.samples, again.exit_code) == (first.samples, first.exit_code)
    assert again.counts.plain() == first.counts.plain()
    with pytest.raises(DatasetError, match="--overwrite"):
        convert(recordings, tmp_path, name="drive", layout=layout)


def test_a_finished_dataset_has_no_pace(recordings, tmp_path, command):
    arguments = [*command, "convert", recordings[0], "-o", tmp_path, "--name", "drive", "--resume"]
    said = [subprocess.run(arguments, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert ["real time" in text for text in said] == [True, False]
    assert ["was already complete" in text for text in said] == [False, True]


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_killed_behind_the_last_step(recordings, tmp_path, layout):
    """The container has its final name, and what was needed on the way is not yet removed."""
    paths = convert(recordings[0], tmp_path, name="drive", layout=layout).paths
    before = files(tmp_path)
    if layout == "zip":
        for path in paths.journals:
            path.write_bytes(b"rows")
    else:
        shutil.copytree(paths.folder, paths.aside)
    convert(recordings[0], tmp_path, name="drive", layout=layout, resume=True)
    assert files(tmp_path) == before


def replace_recording(recording):
    """Another recording of the same name and size."""
    data = bytearray(recording.read_bytes())
    data[-9] ^= 1  # the last byte of the CRC in the footer, which no walk reads
    recording.write_bytes(data)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("done", [False, True], ids=["unfinished", "finished"])
@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
def test_a_recording_that_was_replaced_is_another_one(recordings, tmp_path, done, which):
    """Name and size do not tell."""
    recordings = [Path(shutil.copy(path, tmp_path)) for path in recordings]  # of the fixture: others use them
    count, _ = messages_of(recordings, tmp_path / ("out" if done else "whole"), name="drive")
    if not done:
        interrupt(recordings, tmp_path / "out", count * 9 // 10, name="drive")
    replace_recording(recordings[which])
    before = files(tmp_path / "out")
    with pytest.raises(DatasetError, match=rf"{recordings[which].name}.*sha256 differs.*--overwrite"):
        convert(recordings, tmp_path / "out", name="drive", resume=True)
    if done or which == 0:
        assert files(tmp_path / "out") == before


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("layout", ["zip", "directory"])
@pytest.mark.parametrize("done", [False, True], ids=["unfinished", "finished"])
def test_another_version_of_the_software(recordings, tmp_path, monkeypatch, layout, done):
    """What it finished is not taken for the same; what it left unfinished is refused untouched, and recovered."""
    out, options = tmp_path / "out", {"name": "drive", "layout": layout}
    with monkeypatch.context() as earlier:
        earlier.setattr("edgefirst_ros.pipeline.facts.__version__", "0.0.9")
        if done:
            convert(recordings[0], out, **options)
        else:
            count, _ = messages_of(recordings[0], tmp_path / "whole", **options)
            interrupt(recordings[0], out, count * 9 // 10, **options)
    before = files(out)
    with pytest.raises(DatasetError, match=r"0\.0\.9.*--overwrite") as refused:
        convert(recordings[0], out, resume=True, **options)
    assert refused.value.exit_code == 1
    assert files(out) == before
    if not done:
        assert "edgefirst-ros recover" in str(refused.value)
        recover(DatasetPaths(out, "drive", layout).container)
        assert DatasetPaths(out, "drive", layout).finished


@pytest.mark.parametrize("done", [False, True], ids=["unfinished", "finished"])
@pytest.mark.parametrize("other", ["settings", "recording", "number"])
def test_another_conversion_is_refused(recordings, left, tmp_path, command, done, other):
    out = tmp_path / "whole" if done else left.out
    before = files(out)
    arguments = {
        "settings": [recordings[0], "--rate", "3"],
        "recording": [recordings[1]],
        "number": [recordings[1], recordings[0]],
    }[other]
    run = subprocess.run(
        [*command, "convert", *arguments, "-o", out, "--name", "drive", "--resume"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert "--overwrite" in run.stderr
    assert "Traceback" not in run.stderr
    assert files(out) == before


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("done", [False, True], ids=["unfinished", "finished"])
def test_a_recording_of_another_number_of_files_is_another_one(recordings, tmp_path, done):
    """Its beginning is the same, and so may be the samples that were committed."""
    out, options = tmp_path / "out", {"name": "drive"}
    count, _ = messages_of(recordings[0], tmp_path / "whole", **options)
    if done:
        convert(recordings[0], out, **options)
    else:
        interrupt(recordings[0], out, count * 9 // 10, **options)
    before = files(out)
    with pytest.raises(DatasetError, match=r"1 files?, now (of )?2.*--overwrite"):
        convert(recordings, out, join=True, resume=True, **options)
    assert files(out) == before


def test_a_dataset_of_fewer_recordings_is_another_one(recordings, tmp_path):
    convert(recordings[0], tmp_path, name="drive")
    with pytest.raises(DatasetError, match="it was made from 1 files, now 2; use --overwrite"):
        convert(recordings, tmp_path, name="drive", resume=True)


OTHER_FFMPEG = json.dumps({"name": SOFTWARE, "version": edgefirst_ros.__version__, "ffmpeg": "1.2.3"}).encode()


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (b"configuration", b"[]", "it does not say by which settings"),
        (b"configuration", None, "it does not say by which settings"),
        (b"sources", None, "it does not say from which recordings"),
        (b"software", None, "it is of version None of the software"),
        (b"software", OTHER_FFMPEG, "its pictures were decoded by FFmpeg 1.2.3, this is "),
    ],
)
def test_a_dataset_that_does_not_say_of_what_it_is_is_another_one(recordings, tmp_path, key, value, told):
    paths = convert(recordings[0], tmp_path, name="drive").paths
    stored = pa.ipc.open_file(paths.frames.read_bytes()).read_all()
    metadata = {k: v for k, v in stored.schema.metadata.items() if k != key}
    stored = stored.replace_schema_metadata(metadata if value is None else {**metadata, key: value})
    with pa.OSFile(str(paths.frames), "wb") as sink, pa.ipc.new_file(sink, stored.schema) as writer:
        writer.write_table(stored)
    before = files(tmp_path)
    with pytest.raises(DatasetError, match=rf"is of another conversion: {told}"):
        convert(recordings[0], tmp_path, name="drive", resume=True)
    assert files(tmp_path) == before


def test_resume_and_overwrite_exclude_each_other(recordings, tmp_path):
    with pytest.raises(UsageError, match="cannot be combined"):
        convert(recordings[0], tmp_path, resume=True, overwrite=True)


@pytest.mark.usefixtures("busy")
def test_overwrite_begins_anew(recordings, left, tmp_path):
    convert(recordings[1], tmp_path / "other", name="drive")
    convert(recordings[1], left.out, name="drive", overwrite=True)
    assert files(left.out) == files(tmp_path / "other")


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("what", ["members_partial", "row_log"])
def test_an_unfinished_one_that_was_cut(recordings, left, tmp_path, what):
    """It goes on behind the last commit of which all is there."""
    for share in (0.0, 0.3, 0.9):
        out = tmp_path / f"out{share}"
        shutil.copytree(left.out, out)
        file = getattr(DatasetPaths(out, "drive"), what)
        with file.open("r+b") as handle:
            handle.truncate(int(file.stat().st_size * share))
        outcome = convert(recordings[0], out, name="drive", resume=True)
        assert outcome.exit_code == 0
        assert files(out) == files(tmp_path / "whole")
