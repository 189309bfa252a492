# SPDX-License-Identifier: Apache-2.0
"""A capture on disks that refuse, without ROS: the datasets are completed, and what happened is told."""

import contextlib
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from functools import partial
from pathlib import Path

import pyarrow.ipc
import pytest
from disk_runs import may_mount
from same_dataset import adds_up

from edgefirst_ros import Dataset
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.storage.space import count_free_bytes
from edgefirst_ros.dataset.storage.zip_write import ArchiveWriter
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.pipeline.capture import Capture
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.topics import choose_topics

RECIPE = {"seconds": 4, "size": (640, 360), "cube_shape": (2, 32, 4, 64), "lidar_points": 2000, "gop": 5}
CAMERA = "/camera/h264"
PATIENCE = 20.0
"""s that anything here may take."""


class Feed:
    """Gives a capture the messages of a recording, a stretch at a time, as they would come."""

    def __init__(self, path, out, **live):
        recording = McapRecording(path)
        for _ in recording.walk():
            pass
        topics = {channel.topic: channel.schema for channel in recording.channels.values()}
        settings = Settings(jobs=2)
        roles = choose_topics(topics, settings)
        self.messages = list(recording.iter_messages(set(topics)))
        self.begun = time.monotonic_ns()
        self.events = []
        live = LiveSettings(out=str(out), host="test", fsync=False, **live)
        self.capture = Capture(settings, live, roles, "test", self.events.append)
        self.capture.start()

    def play(self, begin, end):
        """Hand over what was recorded from `begin` to `end` s, and wait until that is encoded or the dataset ended."""
        first, frames = self.messages[0].log_time, 0
        for message in self.messages:
            elapsed = message.log_time - first
            if begin <= elapsed / 1e9 < end:
                self.capture.put(message, self.begun + elapsed)
                frames += message.topic == CAMERA
        self.until(lambda facts: facts["queue"] == 0 and (facts["failure"] or facts.get("backlog", 0) < 5))
        return frames

    def until(self, enough):
        deadline = time.monotonic() + PATIENCE
        while not enough(facts := self.capture.status()):
            assert time.monotonic() < deadline, (facts, self.events)
            time.sleep(0.01)
        return facts


def assert_complete(path):
    """The dataset is valid; returns its samples and counts."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    assert validate(path).ok, validate(path).to_text()
    table = pyarrow.ipc.open_file(f"{str(path).removesuffix('.zip')}.frames.arrow").read_all()
    counts = json.loads(table.schema.metadata[b"counts"])
    for topic in (CAMERA, "/radar/cube", "/radar/targets", "/lidar/points"):
        count = counts[topic]
        assert count["seen"] == count["written"] + sum(count["dropped"].values()), (topic, count)
    assert counts[CAMERA]["written"] == table.num_rows
    return table.num_rows, counts


# ---- full --------------------------------------------------------------------
def test_too_little_free_space_ends_the_dataset_before_the_disk_refuses(recording, tmp_path):
    facts = on_small_disk("kept free", recording(**RECIPE), tmp_path)
    assert "3000000 must stay free" in facts["failure"]
    assert facts["failures"] >= 1  # what it gives back can be room enough to begin again
    assert facts["free"] >= 3_000_000
    assert len(facts["finished"]) >= 1
    samples, counts = assert_complete(tmp_path / "kept" / "one.zip")
    assert 0 < samples < 120
    assert "refused by the disk" not in counts[CAMERA]["dropped"]


def test_a_file_that_meets_its_limit_ends_the_dataset(recording, tmp_path):
    facts = elsewhere("limit", recording(**RECIPE), tmp_path / "out")
    assert os.strerror(errno.EFBIG) in facts["failure"]
    assert facts["failures"] == 1
    assert facts["lossy"]
    assert len(facts["finished"]) == 1
    samples, counts = assert_complete(tmp_path / "out" / "one.zip")
    assert 20 < samples < 120
    assert counts[CAMERA]["dropped"]["refused by the disk"] > 0


def test_a_dataset_that_is_refused_behind_a_split_ends_with_the_next_one(recording, tmp_path):
    """The last frames of the first one do not reach the disk: that is told once, and the second one is completed."""
    out = tmp_path / "out"
    facts = elsewhere("split", recording(**RECIPE), out)
    assert os.strerror(errno.EFBIG) in facts["failure"]
    assert "one could not be completed: " in facts["failure"]
    assert facts["failures"] == 1
    assert facts["threads"] == [], "threads of a dataset are left"
    assert len(facts["finished"]) == 1
    assert assert_complete(facts["finished"][0])[0] > 0
    assert recover(out / "one").samples > 20
    assert validate(out / "one.zip").ok


def on_small_disk(name, path, folder):
    """Run a scenario on a file system of its own; returns its facts, the files are in `folder`/kept then."""
    if not may_mount():
        pytest.skip("this process may not mount a file system")
    disk, kept = folder / "disk", folder / "kept"
    disk.mkdir()
    kept.mkdir()
    mount = 'mount -t tmpfs -o size=9m none "$0" && kept="$1" && shift && "$@" && cp "$0"/* "$kept"'
    return elsewhere(name, path, disk, "unshare", "-rm", "sh", "-c", mount, disk, kept)


def elsewhere(name, path, out, *before):
    """Run a scenario in a process of its own; returns its facts."""
    code = f"""
        import json, sys
        sys.path[:0] = {sys.path!r}
        from test_capture_disk import scenario
        print(json.dumps(scenario(*sys.argv[1:])))
    """
    command = [*before, sys.executable, "-c", textwrap.dedent(code), name, path, out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def scenario(name, path, out):
    """What happens in that process."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if name == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, hard))
    plain = ArchiveWriter.begin

    def begin(writer):
        """Once the second dataset has begun, the first one takes no byte more."""
        begun = sum(" begins in " in event for event in feed.events)
        if name == "split" and writer.path.name == "one.zip.partial" and begun == 2:
            resource.setrlimit(resource.RLIMIT_FSIZE, (writer.path.stat().st_size, hard))
        plain(writer)

    ArchiveWriter.begin = begin
    feed = Feed(Path(path), out, sequence="one", min_free_bytes=3_000_000 if name == "kept free" else 0)
    if name == "split":  # on a slow machine, too, the last frames before it wait for messages, not for the clock
        feed.begun += 60 * 10**9
    for step in range(100 if name == "split" else 120):
        if name == "split" and step == 80:  # what is left takes less than the limit that is set then
            feed.until(lambda facts: facts["samples"] > 30)
            feed.capture.split()
        feed.play(step / 30, (step + 1) / 30)
    told = "could not be completed" if name == "split" else ""
    facts = feed.until(lambda facts: facts["failure"] and told in facts["failure"])
    facts["free"] = count_free_bytes(Path(out))
    deadline = time.monotonic() + PATIENCE  # the other dataset is completed behind the one that is told of
    while (left := threads_of_datasets()) and time.monotonic() < deadline:
        time.sleep(0.01)
    facts["threads"] = left
    feed.capture.close()  # the other dataset may still be completed
    seen = {name: getattr(feed.capture.results, name) for name in ("finished", "failures", "lossy")}
    return {**facts, **seen}


def threads_of_datasets():
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("choose", "decode", "write", "encode"))]


# ---- gone --------------------------------------------------------------------------------------
def test_a_folder_that_vanishes_ends_the_dataset_and_the_next_one_goes_well(recording, tmp_path):
    out = tmp_path / "out"
    feed = Feed(recording(**RECIPE), out, sequence="one", min_free_bytes=0)
    feed.play(0, 1.5)
    reached = feed.until(lambda facts: facts.get("samples"))["samples"]
    out.rename(tmp_path / "elsewhere")
    feed.play(1.5, 2.5)
    with contextlib.suppress(DatasetError):  # it may have been told before
        feed.capture.stop()
    failure = feed.capture.status()["failure"]
    assert "No such file or directory" in failure
    assert "one could not be completed: " in failure
    assert "edgefirst-ros recover" in failure
    assert feed.capture.results.failures == 1
    assert feed.capture.results.finished == []
    feed.capture.start()
    feed.play(2.5, 4)
    assert len(feed.capture.stop()) == 1
    assert feed.capture.results.failure is None
    feed.capture.close()
    assert assert_complete(feed.capture.results.finished[0])[0] > 0
    report = recover(tmp_path / "elsewhere" / "one")
    assert report.samples >= reached
    assert validate(report.paths.container).ok


def test_a_folder_that_cannot_be_made_is_told(recording, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    feed = Feed(recording(**RECIPE), tmp_path / "file" / "out", sequence="one", min_free_bytes=0)
    feed.play(0, 1.5)
    facts = feed.until(lambda facts: facts["failure"])
    assert "Not a directory" in facts["failure"]
    with pytest.raises(DatasetError, match="Not a directory"):
        feed.capture.start()
    assert feed.capture.status()["failure"]
    assert feed.capture.results.failures == 2
    (tmp_path / "file").unlink()
    feed.capture.start()
    feed.play(1.5, 3)
    assert len(feed.capture.stop()) == 1
    feed.capture.close()
    shutil.rmtree(tmp_path / "file")


@pytest.fixture
def small_disk(tmp_path):
    """A real disk of 200 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "none", disk], check=False).returncode
    ):
        pytest.skip("this process may not mount a file system")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def is_full_after(datasets, facts):
    return facts["state"] == "disk full" and len(facts["finished"]) == datasets


def test_a_capture_records_again_once_there_is_room(recording, small_disk):
    """Three times in one capture: each dataset has what was committed, and the next one begins by itself."""
    keep = 90 << 20
    feed = Feed(recording(**RECIPE), small_disk / "out", min_free_bytes=keep)
    filler, committed = small_disk / "filler", []
    try:
        for turn in range(3):
            feed.play(turn, turn + 1)
            committed.append(feed.until(lambda facts: facts["recording"] and facts["committed"])["committed"])
            filler.write_bytes(bytes(count_free_bytes(small_disk) - keep // 2))
            facts = feed.until(partial(is_full_after, turn + 1))
            assert facts["bytes_needed"] == keep + keep // 10
            assert not facts["recording"]
            os.truncate(filler, filler.stat().st_size - max(0, keep - count_free_bytes(small_disk)) - 4096)
            time.sleep(1.2)  # room for what is to be kept, and not for the tenth more
            assert feed.capture.status()["state"] == "disk full"
            filler.unlink()
            assert feed.until(lambda facts: facts["recording"])["failure"] is None
        feed.play(3, 4)
        feed.until(lambda facts: facts["samples"])
        finished = feed.capture.stop()
    finally:
        feed.capture.close()
    assert len(finished) == 4
    for path, least in zip(finished, [*committed, 1], strict=True):
        assert validate(path).ok, validate(path).to_text()
        assert len(Dataset(path)) >= least
        assert adds_up(Dataset(path).metadata["counts"]["/camera/h264"])
    assert sum("recording begins again once" in event for event in feed.events) == 3
    assert feed.capture.results.exit_code == 3
