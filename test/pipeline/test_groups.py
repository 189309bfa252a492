# SPDX-License-Identifier: Apache-2.0
"""Groups of what was converted or captured."""

import time

import polars as pl
import pytest
from shared_data import SHARED

from edgefirst_ros import convert
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.dataset.grouping import SAMPLES, Kind
from edgefirst_ros.errors import UsageError
from edgefirst_ros.pipeline import samples
from edgefirst_ros.pipeline.capture import Capture
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.topics import choose_topics

SMALL = {"seconds": 3.0, "size": (160, 96), "codec": "jpeg", "fps": 10.0, "cube_shape": (1, 8, 2, 8)}
SMALL |= {"lidar_points": 50}
SPLIT = {"split": {"train": 0.75, "val": 0.25}, "split_block": 0.5}
CUBE, TARGETS = Kind("sensor", "radar.cube"), Kind("sensor", "radar.targets")


@pytest.fixture
def patient(monkeypatch):
    """Nothing is left out, however slow this machine is."""
    monkeypatch.setattr(samples, "PATIENCE", 600)
    monkeypatch.setattr(samples, "LAST_WORK", 600)


def captured(path, out, settings):
    """NAME.arrow of a capture of a recording."""
    recording = McapRecording(path)
    for _ in recording.walk():
        pass
    topics = {channel.topic: channel.schema for channel in recording.channels.values()}
    live = LiveSettings(out=str(out), host="test", sequence=path.stem, fsync=False, min_free_bytes=0)
    capture = Capture(settings, live, choose_topics(topics, settings), "test", [].append)
    capture.start()
    messages = list(recording.iter_messages(set(topics)))
    begun = time.monotonic_ns()
    for message in messages:
        capture.put(message, begun + message.log_time - messages[0].log_time)
    capture.close()
    return out / f"{path.stem}.arrow"


@pytest.mark.usefixtures("patient")
def test_a_capture_has_the_groups_of_the_conversion(recording, tmp_path):
    path = recording(**SMALL)
    found = pl.read_ipc(captured(path, tmp_path / "live", Settings(**SPLIT)))
    outcome = convert(path, tmp_path / "offline", **SPLIT)
    rows = pl.read_ipc(outcome.paths.arrow)
    assert found.select("frame", "group").equals(rows.select("frame", "group"))
    assert set(rows["group"].cast(str)) == {"train", "val"}
    assert outcome.groups.groups["train"][CUBE] > outcome.groups.groups["val"][CUBE] > 0


def test_stable_groups_of_recordings_one_by_one_are_those_of_all_together(recording, tmp_path):
    paths = [recording(**SMALL, host=host, seed=seed) for seed, host in enumerate(("one", "two", "three"))]
    options = {"split": {"a": 0.5, "b": 0.5}, "stable": True}

    def groups(*given, out):
        rows = pl.read_ipc(convert(given, tmp_path / out, name="drive", **options).paths.arrow)
        return dict(rows.select(pl.col("name", "group").cast(str)).unique().iter_rows())

    apart = [groups(path, out=path.stem) for path in paths]
    assert groups(*paths, out="together") == apart[0] | apart[1] | apart[2]


def test_sequences_by_name(recording, tmp_path):
    path = recording(**SMALL)
    outcome = convert(path, tmp_path, split={"train": 1.0}, group={"test": f"{path.stem[:6]}*"})
    assert {group: tally.get(SAMPLES, 0) for group, tally in outcome.groups.groups.items()} == {"train": 0, "test": 30}
    with pytest.raises(UsageError, match=f"matches no sequence; known: {path.stem}"):
        convert(path, tmp_path / "no", group={"test": "nothing"})
    assert not (tmp_path / "no").exists()


@pytest.mark.skipif(not (SHARED / "data").is_dir(), reason="the real recordings are not at hand")
def test_the_largest_group_of_real_drives_gets_their_radar(tmp_path):
    """One of the two has radar, both have as many pictures: train must not be left without."""
    names = ("gopro-max_2019_11_18_23_45_14", "highway-h264_2018_08_02_16_15_20")
    outcome = convert([SHARED / "data" / f"{name}.mcap" for name in names], tmp_path, rate=0.5, split=SPLIT["split"])
    train, val = (outcome.groups.groups[group] for group in ("train", "val"))
    assert (train[TARGETS], val[TARGETS]) == (train[SAMPLES], 0)
    assert "group val has no sensor radar.targets, which another group has" in outcome.notes
