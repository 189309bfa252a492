# SPDX-License-Identifier: Apache-2.0
"""The states of a capture, called from one thread with the times at which messages came."""

import errno
import re
import time
from pathlib import Path

import polars as pl
import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config import SECOND, LiveSettings, Settings
from edgefirst_ros.pipeline.pretrigger import Arrival
from edgefirst_ros.pipeline.recorder import Recorder, RecorderState, Results
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.topics import choose_topics

STILL = {"seconds": 3.0, "size": (160, 96), "codec": "jpeg", "topics": ["camera", "imu"]}
OPEN = {"b_frames": 2, "open_gop": True}


class Played:
    """A recorder, and the messages of a recording that come at their own times."""

    def __init__(self, path, out, settings=None, **live):
        recording = McapRecording(path)
        self.messages = list(recording.iter_messages())
        self.results, self.events = Results(), []
        settings = settings or Settings(jobs=2)
        roles = choose_topics(recording.topics, settings)
        options = {"min_free_bytes": 0, "fsync": False, **live}
        live = LiveSettings(out=str(out), **options)
        self.recorder = Recorder(settings, live, roles, "wagon", self.results, self.events.append)

    def play(self, begin=0.0, end=1e9):
        first = self.messages[0].log_time
        for message in self.messages:
            elapsed = message.log_time - first
            if begin <= elapsed / SECOND < end:
                self.recorder.arrive(Arrival(message, elapsed))


@pytest.fixture
def played(recording, tmp_path):
    it = Played(recording(**STILL), tmp_path / "out")
    yield it
    it.recorder.stop()
    it.recorder.close()


def test_the_states_of_a_capture(played):
    recorder, states = played.recorder, []

    def state():
        states.append(recorder.state)

    state()
    recorder.start(0)
    state()
    played.play(end=0.5)
    state()
    played.play(0.5, 1.5)
    state()
    assert recorder.split(2 * SECOND)
    state()
    played.play(1.5, 2.0)
    state()
    recorder.stop()
    state()
    recorder.close()
    state()
    waiting, recording = RecorderState.WAITING, RecorderState.RECORDING
    expected = [
        RecorderState.IDLE,
        waiting,
        waiting,
        recording,
        RecorderState.SPLITTING,
        recording,
        RecorderState.COMPLETING,
        RecorderState.IDLE,
    ]
    assert states == expected
    assert (len(played.results.finished), played.results.exit_code) == (2, 0)


def test_nothing_is_there_to_be_split(played):
    assert not played.recorder.split(0)
    played.recorder.start(0)
    assert not played.recorder.split(0)
    assert played.recorder.state is RecorderState.WAITING


def test_a_second_start_changes_nothing(played):
    played.recorder.start(0)
    played.play(end=2.0)
    before = played.recorder.facts()["sequence"]
    played.recorder.start(2 * SECOND)
    assert played.recorder.facts()["sequence"] == before
    assert played.recorder.state is RecorderState.RECORDING


def test_a_dataset_that_fails_ends_and_the_next_one_begins(played):
    played.recorder.start(0)
    played.play(end=2.0)
    played.recorder.fail(OSError("planted"))
    assert played.recorder.state in (RecorderState.COMPLETING, RecorderState.IDLE)
    assert played.events[-1] == "the dataset ends here: OSError: planted"
    assert played.results.failure == "OSError: planted"
    played.recorder.start(2 * SECOND)
    assert played.recorder.state is RecorderState.RECORDING
    assert (played.results.failure, played.results.failures) == (None, 1)


def ended(it):
    """The samples of each dataset: stamps and latitudes."""
    it.recorder.stop()
    it.recorder.close()
    return [Dataset(path).frames.select("timestamp", "latitude") for path in sorted(it.results.finished)]


def test_the_last_frames_before_a_split_have_the_fix_that_comes_later(recording, tmp_path):
    """Fixes come each 1.7 s: of the frames just before the split the next one is 1.5 s away."""
    path = recording(**{**STILL, "seconds": 7.0, "fps": 10.0, "topics": ["camera", "gps"]}, rates={"gps": 0.6})
    it = Played(path, tmp_path / "live", settings=Settings(jobs=2, lookahead=0.1))
    it.recorder.start(0)
    it.play(end=3.5)
    it.recorder.split(round(3.5 * SECOND))
    it.play(3.5)
    whole = Dataset(convert(path, tmp_path / "whole", lookahead=0.1).paths.container).frames
    parts = ended(it)
    assert len(parts) == 2
    assert pl.concat(parts).equals(whole.select("timestamp", "latitude"))
    assert whole["latitude"].null_count() < 20


def test_a_split_waits_ten_seconds_for_a_closed_group_of_pictures(recording, tmp_path):
    """After the first one all are open: pictures after their keyframe need those before it."""
    path = recording(**{**STILL, "codec": "h264", "seconds": 15.0, "fps": 10.0, "gop": 10, **OPEN})
    it = Played(path, tmp_path)
    it.recorder.start(0)
    it.play(end=2.5)
    it.recorder.split(round(2.5 * SECOND))
    it.play(2.5)
    stamps = pl.concat(ended(it))["timestamp"]
    (first, second) = (len(Dataset(path).frames) for path in sorted(it.results.finished))
    assert stamps.is_sorted()
    assert 12.5 <= (stamps[first] - stamps[0]) / SECOND < 13.6
    assert second > 10


def test_a_pause_drops_its_own_pictures_and_no_others(recording, tmp_path):
    """The pictures after it need those that came during it: their bytes are those of a conversion."""
    path = recording(**{**STILL, "codec": "h264", "gop": 30, "topics": ["camera", "gps", "radar/targets"]})
    it = Played(path, tmp_path / "live", sequence=path.stem)
    assert not it.recorder.pause(paused=True), "there is no dataset"
    it.recorder.start(0)
    it.play(end=1.1)
    assert it.recorder.pause(paused=True)
    it.play(1.1, 1.9)
    assert it.recorder.state is RecorderState.PAUSED
    assert not it.recorder.facts()["recording"]
    assert not it.recorder.split(2 * SECOND)
    it.recorder.pause(paused=False)
    it.play(1.9, 2.5)
    it.recorder.pause(paused=True)
    it.play(2.5, 2.7)
    it.recorder.start(3 * SECOND)
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
    recorder = played.recorder
    recorder.start(0)
    played.play(end=1.2)
    recorder.pause(paused=True)
    recorder.fail(OSError(errno.ENOSPC, "planted"))
    deadline = time.monotonic() + 30
    while not played.results.finished:
        assert time.monotonic() < deadline
        recorder.settle()
    played.play(1.2, 2.4)
    assert recorder.state is RecorderState.FULL
    assert recorder.pause(paused=False)
    played.play(2.4)
    assert recorder.state is RecorderState.RECORDING


def test_what_is_written_is_committed_while_the_camera_stands_still(recording, tmp_path):
    it = Played(recording(**STILL), tmp_path, flush_interval=60.0)
    it.recorder.start(0)
    it.play()
    deadline, now = time.monotonic() + 30, 10 * SECOND
    while it.recorder.facts()["committed"] < 80:
        assert time.monotonic() < deadline
        now += SECOND
        it.recorder.advance(now)
        time.sleep(0.01)
    ended(it)


def test_what_may_not_be_meant_is_told_at_the_beginning(recording, tmp_path):
    it = Played(recording(**STILL), tmp_path / "out", settings=Settings(jobs=2, tolerance=50))
    assert it.events == [
        "tolerance is 50 s: companions that far from a frame join it; 50 ms would be 0.05",
    ]
    it.recorder.close()


def test_a_name_that_is_taken_gives_way_to_one_by_host_and_time(recording, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "one.zip").write_bytes(b"precious")
    it = Played(recording(**STILL), out, sequence="one")
    it.recorder.start(0)
    it.play()
    it.recorder.stop()
    it.recorder.close()
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
    it.recorder.start(8 * SECOND)
    it.recorder.stop()
    it.recorder.close()
    (made,) = it.results.finished
    assert 0 < len(Dataset(made).frames) <= (1 << 20) // (160 * 96 * 3)
