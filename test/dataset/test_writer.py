# SPDX-License-Identifier: Apache-2.0
import errno
import os
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import edgefirst_client
import numpy as np
import polars as pl
import pytest

from edgefirst_ros.dataset import DatasetWriter, NewSample, locate
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.dataset.storage import zip_write
from edgefirst_ros.dataset.tables.rowlog import LoggedRows
from edgefirst_ros.errors import DatasetError, UsageError

SEQUENCE = "maivin_2026_01_02_03_04_05"
STAMP = 1767323045_000000000


def sample(frame, **further):
    return NewSample(
        SEQUENCE,
        frame,
        STAMP + frame * 33_000_000,
        [("camera.jpeg", [b"\xff\xd8", b"picture %d" % frame]), ("radar.png", [np.full(10, frame, np.int16)])],
        {
            "latitude": 45.5,
            "size": (4, 2),
            "keyframe": frame == 0,
            "segment": 0,
            "radar_cube_timestamp": STAMP,
            "radar_cube_skew": -frame,
        },
        **{
            "annotations": [{"label": "car", "box2d": (0.5, 0.5, 1, 1), "box2d_score": 0.5}] * (frame % 3),
            "common": {"size": (4, 2)},
            **further,
        },
    )


def make(out, frames=range(5), name="drive", **options):
    with DatasetWriter(out, name, **options) as writer:
        for frame in frames:
            writer.write(sample(frame))
        return writer.finish({"counts": {}}, ["car"])


def everything(root):
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in sorted(Path(root).rglob("*"))}


def members(paths):
    if paths.layout == "zip":
        with zipfile.ZipFile(paths.container) as found:
            assert found.testzip() is None
            return {name: found.read(name) for name in found.namelist()}
    return {str(p.relative_to(paths.members)): p.read_bytes() for p in paths.members.rglob("*") if p.is_file()}


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_written(tmp_path, layout):
    paths = make(tmp_path / "new/out", layout=layout)
    assert paths == locate(tmp_path / "new/out/drive")
    found = members(paths)
    assert len(found) == 10
    assert found[f"{SEQUENCE}/{SEQUENCE}_003.camera.jpeg"] == b"\xff\xd8picture 3"
    assert found[f"{SEQUENCE}/{SEQUENCE}_003.radar.png"] == np.full(10, 3, np.int16).tobytes()
    rows, frames = pl.read_ipc(paths.arrow.read_bytes()), pl.read_ipc(paths.frames.read_bytes())
    assert rows["frame"].to_list() == [0, 1, 2, 2, 3, 4]
    assert rows["label"].to_list() == [None, "car", "car", "car", None, "car"]
    assert set(rows["name"]) == {SEQUENCE}
    assert rows["size"].to_list() == [[4, 2]] * 6
    assert frames["frame"].to_list() == [0, 1, 2, 3, 4]
    assert frames["timestamp"].to_list() == [STAMP + n * 33_000_000 for n in range(5)]
    assert frames["radar_cube_skew"].to_list() == [0, -1, -2, -3, -4]
    top = {"zip": {"drive.zip", "drive.arrow", "drive.frames.arrow"}, "directory": {"drive"}}[layout]
    assert set(os.listdir(tmp_path / "new/out")) == top
    edgefirst_client.read_dataset_metadata(str(paths.arrow))


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_same_samples_same_bytes(tmp_path, layout):
    make(tmp_path / "a", layout=layout)
    make(tmp_path / "b", layout=layout, flush_interval=0, fsync=True)
    assert everything(tmp_path / "a") == everything(tmp_path / "b")


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_only_partial_names_until_the_end(tmp_path, layout):
    with DatasetWriter(tmp_path, "drive", layout=layout) as writer:
        writer.write(sample(0))
        writer.flush()
        assert os.listdir(tmp_path)
        assert all(name.endswith((".partial", ".journal")) for name in os.listdir(tmp_path))
        with pytest.raises(DatasetError, match="unfinished"):
            locate(tmp_path / "drive")
        writer.finish({})


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_existing_output(tmp_path, layout):
    make(tmp_path, layout=layout)
    before = everything(tmp_path)
    with pytest.raises(DatasetError, match=r"drive.*--overwrite"):
        make(tmp_path, layout=layout)
    assert everything(tmp_path) == before
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        DatasetWriter(tmp_path, "drive", layout=layout, overwrite=True) as writer,
    ):
        writer.write(sample(9))
        now = everything(tmp_path)
        assert {name: now[name] for name in before} == before
        raise ZeroDivisionError
    now = everything(tmp_path)
    assert {name: now[name] for name in before} == before
    paths = make(tmp_path, range(2), layout=layout, overwrite=True)
    assert len(members(paths)) == 4
    assert everything(tmp_path).keys() <= before.keys()


@pytest.mark.parametrize("suffix", [".zip", ".arrow", ".frames.arrow"])
def test_any_existing_file_is_refused(tmp_path, suffix):
    (tmp_path / f"drive{suffix}").write_bytes(b"precious")
    with pytest.raises(DatasetError, match="--overwrite"):
        make(tmp_path)
    assert everything(tmp_path) == {f"drive{suffix}": b"precious"}


def test_output_that_appears_meanwhile_is_not_overwritten(tmp_path):
    with DatasetWriter(tmp_path, "drive") as writer:
        writer.write(sample(0))
        (tmp_path / "drive.zip").write_bytes(b"precious")
        with pytest.raises(DatasetError, match="--overwrite"):
            writer.finish({})
    assert (tmp_path / "drive.zip").read_bytes() == b"precious"


def test_foreign_folder_is_never_replaced(tmp_path):
    (tmp_path / "drive").mkdir()
    (tmp_path / "drive/thesis.tex").write_bytes(b"precious")
    with pytest.raises(DatasetError, match="other files than those of a dataset"):
        make(tmp_path, layout="directory", overwrite=True)
    (tmp_path / "drive.zip").mkdir()
    with pytest.raises(DatasetError, match="folder"):
        make(tmp_path, overwrite=True)
    assert (tmp_path / "drive/thesis.tex").read_bytes() == b"precious"


def test_what_an_earlier_run_left_is_gone_before_the_first_sample(tmp_path):
    left = DatasetPaths(tmp_path, "drive").temporary
    for path in left:
        path.write_bytes(b"left")
    with DatasetWriter(tmp_path, "drive", overwrite=True) as writer:
        assert [path.name for path in left if path.exists() and path.read_bytes() == b"left"] == []
        writer.write(sample(0))
        writer.finish({})


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_second_writer_is_refused(tmp_path, layout):
    with DatasetWriter(tmp_path, "drive", layout=layout) as writer:
        writer.write(sample(0))
        before = everything(tmp_path)
        with pytest.raises(DatasetError, match="another writer"):
            DatasetWriter(tmp_path, "drive", layout=layout)
        assert everything(tmp_path) == before
        DatasetWriter(tmp_path, "other", layout=layout).abort()
        writer.write(sample(1))
        paths = writer.finish({})
    assert len(members(paths)) == 4


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_nothing_written_nothing_left(tmp_path, layout):
    with DatasetWriter(tmp_path, "drive", layout=layout):
        pass
    assert os.listdir(tmp_path) == []
    with DatasetWriter(tmp_path, "drive", layout=layout) as writer:
        writer.write(sample(0))
        writer.abort()
    assert os.listdir(tmp_path) == []


KILLED = """
import os, signal, sys
sys.path[:0] = sys.argv[3:]
from test_writer import DatasetWriter, sample
writer = DatasetWriter(sys.argv[1], "drive", layout=sys.argv[2], flush_interval=0)
for frame in range(20):
    writer.write(sample(frame))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_killed(tmp_path, layout):
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, layout, here, here.parents[1]], capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder = tmp_path if layout == "zip" else tmp_path / "drive.partial"
    found = LoggedRows(folder / "drive.rows.journal")
    for rows in (found.frames, found.annotations):
        assert {frame for batch in rows.batches() for frame in batch["frame"].to_pylist()} == set(range(20))
    if layout == "zip":
        data = (folder / "drive.zip.partial").read_bytes()
        assert all(b"picture %d" % frame in data for frame in range(20))
    with pytest.raises(DatasetError, match=r"unfinished.*recover.*--overwrite"):
        make(tmp_path, layout=layout)
    assert len(members(make(tmp_path, layout=layout, overwrite=True))) == 10
    assert not [name for name in os.listdir(tmp_path) if "partial" in name or "journal" in name]


def test_invalid_rows_leave_no_members(tmp_path):
    with DatasetWriter(tmp_path, "drive") as writer:
        writer.write(sample(0))
        for bad in ({"annotations": [{"box2d": (0, 0, 1, float("nan"))}]}, {"common": {"colour": 1}}):
            with pytest.raises(DatasetError):
                writer.write(sample(1, **bad))
        writer.write(sample(1))
        paths = writer.finish({})
    assert len(members(paths)) == 4


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "/abs", "a\0b", "x" * 300, "nul", ".x", "a\n"])
def test_unsafe_names(tmp_path, name):
    with pytest.raises(UsageError, match="name"):
        DatasetWriter(tmp_path / "out", name)
    assert os.listdir(tmp_path) == []


def test_unsafe_sequences(tmp_path):
    with DatasetWriter(tmp_path / "out", "drive", layout="directory") as writer:
        for sequence in ("..", "../x", "a\0", "/x", ""):
            with pytest.raises(DatasetError):
                writer.write(NewSample(sequence, 0, 0, [("radar.pcd", [b""])]))
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("option", [{"layout": "tar"}, {"schema": "2025.01"}, {"schema": "9"}])
def test_wrong_options(tmp_path, option):
    with pytest.raises(UsageError):
        DatasetWriter(tmp_path, "drive", **option)


def test_out_is_no_path(tmp_path):
    with pytest.raises(UsageError):
        DatasetWriter(f"{tmp_path}/a\0b", "drive")
    with pytest.raises(DatasetError, match="x"):
        DatasetWriter(tmp_path / ("x" * 300), "drive")


def test_out_is_a_file(tmp_path):
    (tmp_path / "out").write_bytes(b"precious")
    with pytest.raises(DatasetError, match="is a file"):
        DatasetWriter(tmp_path / "out", "drive")
    with pytest.raises(DatasetError, match="out"):
        DatasetWriter(tmp_path / "out/below", "drive")


@pytest.mark.parametrize("layout", ["zip", "directory"])
@pytest.mark.parametrize("out", ["/proc/none", "/sys/none", "/proc"])
def test_out_cannot_be_written(out, layout):
    with pytest.raises(DatasetError, match=out):
        DatasetWriter(out, "drive", layout=layout)


def test_links_in_the_way(tmp_path):
    (tmp_path / "outside").mkdir()
    out = tmp_path / "out"
    out.mkdir()
    (out / "drive.partial").symlink_to(tmp_path / "outside")
    (out / "drive.zip.partial").symlink_to(tmp_path / "outside/x")
    for layout in ("zip", "directory"):
        with pytest.raises(DatasetError):
            DatasetWriter(out, "drive", layout=layout)
    (out / "drive").symlink_to(tmp_path / "outside")
    (out / "drive.partial").unlink()
    with pytest.raises(DatasetError):
        DatasetWriter(out, "drive", layout="directory", overwrite=True)
    assert os.listdir(tmp_path / "outside") == []


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_sample_is_written_whole_or_not_at_all(tmp_path, monkeypatch, layout):
    real, calls = os.pwritev, []

    def full_at_the_second_member(*arguments):
        calls.append(0)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    with DatasetWriter(tmp_path, "drive", layout=layout) as writer:
        writer.write(sample(0))
        with monkeypatch.context() as patch:
            patch.setattr(zip_write.os, "pwritev", full_at_the_second_member)
            with pytest.raises(DatasetError, match="No space"):
                writer.write(sample(1))
        writer.write(sample(2))
        writer.write(sample(1))
        with pytest.raises(DatasetError, match="before"):
            writer.write(sample(2))
        paths = writer.finish({})
    names = [f"{SEQUENCE}/{SEQUENCE}_{n:03d}.{kind}" for n in (0, 1, 2) for kind in ("camera.jpeg", "radar.png")]
    assert sorted(members(paths)) == names
    assert pl.read_ipc(paths.frames.read_bytes())["frame"].to_list() == [0, 2, 1]


def test_disk_full(tmp_path, monkeypatch):
    with (  # noqa: PT012
        pytest.raises(DatasetError, match=r"drive\.zip\.partial.*No space"),
        DatasetWriter(tmp_path, "drive") as writer,
    ):
        writer.write(sample(0))

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(zip_write.os, "pwritev", full)
        writer.write(sample(1))
    monkeypatch.undo()
    paths = recover(tmp_path / "drive").paths
    assert len(members(paths)) == 2
    assert pl.read_ipc(paths.frames.read_bytes())["frame"].to_list() == [0]


def test_an_output_whose_path_is_no_utf8_is_refused_before_anything_is_written(tmp_path):
    out = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    with pytest.raises(UsageError, match=r"\\udcff' is not a valid path in UTF-8"):
        DatasetWriter(out, "drive")
    assert not list(tmp_path.iterdir())


def test_a_writer_that_has_ended_takes_nothing_more(tmp_path):
    writer = DatasetWriter(tmp_path, "drive")
    writer.write(sample(0))
    writer.finish({})
    before = everything(tmp_path)
    for use in (lambda: writer.write(sample(1)), lambda: writer.finish({})):
        with pytest.raises(DatasetError, match=r"drive\.zip: its writer is finished, expected it to be open"):
            use()
    writer.abort()
    assert (writer.state.value, everything(tmp_path)) == ("finished", before)


def continued(out, frames=3):
    """A writer that goes on with a dataset of some committed samples."""
    with DatasetWriter(out, "drive") as writer:
        for frame in range(frames):
            writer.write(sample(frame))
        writer.flush()
    return DatasetWriter(out, "drive", unfinished=UnfinishedDataset(writer.paths))


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (replace(sample(1), timestamp=7), rf"sample 2 has timestamp {STAMP + 33_000_000}, now it is 7"),
        (sample(2), "sample 2 has frame 1, now it is 2"),
        (replace(sample(1), frame_row={"radar_cube_timestamp": 9}), f"has radar_cube_timestamp {STAMP}, now it is 9"),
    ],
)
def test_only_the_same_samples_are_continued(tmp_path, other, told):
    with continued(tmp_path) as writer:
        writer.write(sample(0))
        with pytest.raises(DatasetError, match=rf"drive\.zip\.partial: .*{told}: it was made from another recording"):
            writer.write(other)
    assert recover(tmp_path / "drive").samples == 3


def test_a_dataset_that_is_continued_does_not_become_shorter(tmp_path):
    with continued(tmp_path) as writer:
        writer.write(sample(0))
        with pytest.raises(DatasetError, match=r"drive\.zip\.partial: has 3 samples, now 1: .*--overwrite"):
            writer.finish({})
    assert recover(tmp_path / "drive").samples == 3
