# SPDX-License-Identifier: Apache-2.0
"""The states of a capture, by messages that say themselves when they came."""

import errno
import re
import time
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config import SECOND, LiveSettings, Settings
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.pipeline import samples
from edgefirst_ros.pipeline.capture import Capture, CaptureState
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.topics import choose_topics

STILL = {"seconds": 3.0, "size": (160, 96), "codec": "jpeg", "topics": ["camera", "imu"]}
OPEN = {"b_frames": 2, "open_gop": True}


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Nothing is left out, however slow this machine is."""
    monkeypatch.setattr(samples, "PATIENCE", 600)
    monkeypatch.setattr(samples, "LAST_WORK", 600)


class Played:
    """A capture, and the messages of a recording that come at their own times after it began."""

    def __init__(self, path, out, settings=None, **live):
        recording = McapRecording(path)
        self.messages = list(recording.iter_messages())
        self.events = []
        settings = settings or Settings(jobs=2)
        roles = choose_topics(recording.topics, settings)
        options = {"min_free_bytes": 0, "fsync": False, **live}
        live = LiveSettings(out=str(out), **options)
        self.capture = Capture(settings, live, roles, "wagon", self.events.append)
        self.results, self.begun = self.capture.results, time.monotonic_ns()

    def play(self, begin=0.0, end=1e9):
        first = self.messages[0].log_time
        for message in self.messages:
            elapsed = message.log_time - first
            if begin <= elapsed / SECOND < end:
                self.capture.put(message, self.begun + elapsed)
        self.capture._order(lambda: None)  # all are handled


@pytest.fixture
def played(recording, tmp_path):
    it = Played(recording(**STILL), tmp_path / "out")
    yield it
    it.capture.close()


def test_the_states_of_a_capture(played):
    capture, states = played.capture, []

    def state():
        states.append(capture.state)

    state()
    capture.start()
    state()
    played.play(end=0.5)
    state()
    played.play(0.5, 1.5)
    state()
    capture.split()
    state()
    played.play(1.5, 2.0)
    state()
    capture.stop()
    state()
    waiting, recording = CaptureState.WAITING, CaptureState.RECORDING
    expected = [
        CaptureState.IDLE,
        waiting,
        waiting,
        recording,
        CaptureState.SPLITTING,
        recording,
        CaptureState.IDLE,
    ]
    assert states == expected
    assert (len(played.results.finished), played.results.exit_code) == (2, 0)


def test_nothing_is_there_to_be_split(played):
    for _ in range(2):
        with pytest.raises(DatasetError, match="no dataset is being recorded that could be split"):
            played.capture.split()
        played.capture.start()
    assert played.capture.state is CaptureState.WAITING


def test_a_second_start_changes_nothing(played):
    played.capture.start()
    played.play(end=2.0)
    before = played.capture.status()["sequence"]
    played.capture.start()
    assert played.capture.status()["sequence"] == before
    assert played.capture.state is CaptureState.RECORDING


def test_a_dataset_that_fails_ends_and_the_next_one_begins(played):
    played.capture.start()
    played.play(end=2.0)
    played.capture._order(lambda: played.capture._fail(OSError("planted")))
    assert played.capture.state in (CaptureState.COMPLETING, CaptureState.IDLE)
    assert played.events[-1] == "the dataset ends here: OSError: planted"
    assert played.results.failure == "OSError: planted"
    played.capture.start()
    assert played.capture.state is CaptureState.RECORDING
    assert (played.results.failure, played.results.failures) == (None, 1)


def ended(it):
    """The samples of each dataset: stamps and latitudes."""
    it.capture.close()
    return [Dataset(path).frames.select("timestamp", "latitude") for path in sorted(it.results.finished)]


def test_the_last_frames_before_a_split_have_the_fix_that_comes_later(recording, tmp_path):
    """Fixes come each 1.7 s: of the frames just before the split the next one is 1.5 s away."""
    path = recording(**{**STILL, "seconds": 7.0, "fps": 10.0, "topics": ["camera", "gps"]}, rates={"gps": 0.6})
    it = Played(path, tmp_path / "live", settings=Settings(jobs=2, lookahead=0.1))
    it.capture.start()
    it.play(end=3.5)
    it.capture.split()
    it.play(3.5)
    whole = Dataset(convert(path, tmp_path / "whole", lookahead=0.1).paths.container).frames
    parts = ended(it)
    assert len(parts) == 2
    assert pl.concat(parts).equals(whole.select("timestamp", "latitude"))
    assert whole["latitude"].null_count() < 20


def test_the_last_frames_before_a_split_have_the_scans_that_are_sent_late(recording, tmp_path):
    path = recording(
        **{**STILL, "seconds": 7.0, "fps": 10.0, "topics": ["camera", "radar/targets"]},
        latency_ms={"radar/targets": 1500.0},
    )
    waits = {"lookahead": 2.0, "max_gap": 0.5}
    it = Played(path, tmp_path / "live", settings=Settings(jobs=2, **waits))
    it.capture.start()
    it.play(end=3.5)
    it.capture.split()
    it.play(3.5)
    it.capture.close()
    parts = [Dataset(path).frames for path in sorted(it.results.finished)]
    whole = Dataset(convert(path, tmp_path / "whole", **waits).paths.container).frames
    columns = ["timestamp", "radar_targets_timestamp"]
    assert len(parts) == 2
    assert pl.concat(part.select(columns) for part in parts).equals(whole.select(columns))
    assert parts[0]["radar_targets_timestamp"].null_count() == 0


def test_a_split_waits_ten_seconds_for_a_closed_group_of_pictures(recording, tmp_path):
    """After the first one all are open: pictures after their keyframe need those before it."""
    path = recording(**{**STILL, "codec": "h264", "seconds": 15.0, "fps": 10.0, "gop": 10, **OPEN})
    it = Played(path, tmp_path)
    it.capture.start()
    it.play(end=2.5)
    asked = time.monotonic_ns() - it.begun
    it.capture.split()
    split = time.monotonic_ns() - it.begun
    it.play(2.5)
    stamps = pl.concat(ended(it))["timestamp"]
    (first, second) = (len(Dataset(path).frames) for path in sorted(it.results.finished))
    assert stamps.is_sorted()
    late = SECOND // 2  # pictures that are shown later are sent before them
    assert asked + 10 * SECOND - late < stamps[first] - stamps[0] < split + 11 * SECOND + late
    assert second > 10


def test_a_pause_drops_its_own_pictures_and_no_others(recording, tmp_path):
    """The pictures after it need those that came during it: their bytes are those of a conversion."""
    path = recording(**{**STILL, "codec": "h264", "gop": 30, "topics": ["camera", "gps", "radar/targets"]})
    it = Played(path, tmp_path / "live", sequence=path.stem)
    with pytest.raises(DatasetError, match="only a dataset that has begun"):
        it.capture.pause(paused=True)
    it.capture.start()
    it.play(end=1.1)
    it.capture.pause(paused=True)
    it.play(1.1, 1.9)
    assert it.capture.state is CaptureState.PAUSED
    assert not it.capture.status()["recording"]
    with pytest.raises(DatasetError, match="could be split"):
        it.capture.split()
    it.capture.pause(paused=False)
    it.play(1.9, 2.5)
    it.capture.pause(paused=True)
    it.play(2.5, 2.7)
    it.capture.start()
    it.play(2.7)
    ended(it)
    whole, part = (Dataset(p) for p in (convert(path, tmp_path / "whole").paths.container, *it.results.finished))
    first = it.messages[0].log_time
    came = [(m.log_time - first) / SECOND for m in it.messages if m.topic == "/camera/h264"]
    kept = [i for i, at in enumerate(came) if not (1.1 <= at < 1.9 or 2.5 <= at < 2.7)]
    columns = ["timestamp", "latitude", "radar_targets_timestamp"]
    assert part.frames.select(columns).equals(whole.frames.select(columns)[kept])
    assert [one.read("camera") for one in part.samples()] == [whole[i].read("camera") for i in kept]
    count = part.metadata["counts"]["/camera/h264"]
    assert count == {"seen": 90, "written": 60, "dropped": {"came during a pause": 30}}
    assert (len(kept), it.results.exit_code) == (60, 0)


def test_a_pause_outlasts_a_full_disk(played):
    """There is room at once, and nothing is recorded before the pause ends."""
    capture = played.capture
    capture.start()
    played.play(end=1.2)
    capture.pause(paused=True)
    capture._order(lambda: capture._fail(OSError(errno.ENOSPC, "planted")))
    deadline = time.monotonic() + 30
    while not played.results.finished:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    played.play(1.2, 2.4)
    assert capture.state is CaptureState.FULL
    capture.pause(paused=False)
    played.play(2.4)
    assert capture.state is CaptureState.RECORDING


def test_what_is_written_is_committed_while_the_camera_stands_still(recording, tmp_path):
    it = Played(recording(**STILL), tmp_path, flush_interval=60.0)
    it.capture.start()
    it.play()
    deadline, now = time.monotonic() + 30, it.begun + 10 * SECOND
    while it.capture.status()["committed"] < 80:
        assert time.monotonic() < deadline
        now += SECOND
        it.capture._order(partial(it.capture._advance, now))
        time.sleep(0.01)
    ended(it)


def test_what_may_not_be_meant_is_told_at_the_beginning(recording, tmp_path):
    it = Played(recording(**STILL), tmp_path / "out", settings=Settings(jobs=2, tolerance=50))
    assert it.events == [
        "tolerance is 50 s: companions that far from a frame join it; 50 ms would be 0.05",
    ]
    it.capture.close()


def test_a_name_that_is_taken_gives_way_to_one_by_host_and_time(recording, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "one.zip").write_bytes(b"precious")
    it = Played(recording(**STILL), out, sequence="one")
    it.capture.start()
    it.play()
    it.capture.close()
    assert f"one exists already in {out}: named by host and time instead" in it.events
    (made,) = it.results.finished
    assert re.fullmatch(r"wagon_\d{4}(_\d\d){5}\.zip", Path(made).name)
    assert (out / "one.zip").read_bytes() == b"precious"


def test_a_pre_trigger_for_which_there_is_no_room_is_told_once(recording, tmp_path):
    """0.5 MB a second of pictures without compression; 1 MiB may be kept."""
    path = recording(**{**STILL, "codec": "rgb8", "seconds": 8.0, "fps": 11.0})
    it = Played(path, tmp_path / "out", pretrigger=6.0, pretrigger_bytes=1 << 20)
    it.play()
    assert it.events == [
        "the pre-trigger takes more than pretrigger_bytes: a dataset may begin later than it says",
    ]
    it.capture.start()
    it.capture.close()
    (made,) = it.results.finished
    assert 0 < len(Dataset(made).frames) <= (1 << 20) // (160 * 96 * 3)
