# SPDX-License-Identifier: Apache-2.0
"""A capture without ROS: messages of a recording as they would come, and what a conversion makes of them."""

import errno
import shutil
import threading
import time
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest
from edgefirst.schemas import builtin_interfaces, geometry_msgs, sensor_msgs, std_msgs

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.writer import DatasetWriter
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.messages import Message
from edgefirst_ros.pipeline import capture, samples
from edgefirst_ros.pipeline.capture import Capture
from edgefirst_ros.pipeline.frame import Frame
from edgefirst_ros.sensors.pictures import StillMessage
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.topics import choose_topics
from edgefirst_ros.synthetic import START

S = 1_000_000_000
STILL = {"seconds": 4.0, "size": (160, 96), "codec": "jpeg", "cube_shape": (1, 16, 2, 16), "lidar_points": 200}
SLOW = {**STILL, "fps": 10.0}
CAMERA, LIDAR, IMU = "/camera/jpeg", "/lidar/points", "/imu"


class Feed:
    """A capture, and the messages of a recording to be put into it."""

    def __init__(self, path, out, *, start=True, ago=0.0, settings=None, **options):
        """`ago`: s by which the first message came before now."""
        recording = McapRecording(path)
        for _ in recording.walk():
            pass
        topics = {channel.topic: channel.schema for channel in recording.channels.values()}
        self.settings = settings or Settings(jobs=2)
        self.messages = list(recording.iter_messages(set(topics)))
        self.first = self.messages[0].log_time
        self.begun = time.monotonic_ns() - round(ago * S)
        self.events = []
        options = {"host": "test", "fsync": False, "min_free_bytes": 0, **options}
        roles = choose_topics(topics, self.settings)
        self.capture = Capture(self.settings, LiveSettings(out=str(out), **options), roles, "test", self.events.append)
        if start:
            self.capture.start()

    def play(self, begin=0.0, end=1e9, wait=True):
        """Hand over what was recorded from `begin` to `end` s."""
        for message in self.messages:
            elapsed = message.log_time - self.first
            if begin <= elapsed / S < end:
                self.capture.put(message, self.begun + elapsed)
        if wait:
            self.until(lambda facts: facts["queue"] == 0)

    def until(self, enough):
        deadline = time.monotonic() + 20
        while not enough(facts := self.capture.status()):
            assert time.monotonic() < deadline, (facts, self.events)
            time.sleep(0.01)
        return facts

    def held(self):
        """Bytes of messages that wait for a dataset to begin with them."""
        return sum(len(arrival.message.data) for arrival in self.capture._recent.since(0))


@pytest.fixture
def patient(monkeypatch):
    """Nothing is left out, however slow this machine is."""
    monkeypatch.setattr(samples, "PATIENCE", 600)
    monkeypatch.setattr(samples, "LAST_WORK", 600)


def frames(out, name):
    return pl.read_ipc(out / f"{name}.frames.arrow")


# ---- beginning ---------------------------------------------------------------------------------
def test_memory_stays_bounded_where_no_dataset_can_begin(recording, tmp_path):
    feed = Feed(recording(**{**SLOW, "seconds": 12.0}), tmp_path, min_free_bytes=1 << 60)
    feed.play(end=4.0)
    assert "must stay free" in feed.capture.results.failure
    early = feed.held()
    feed.play(4.0)
    assert feed.held() < 1.5 * early
    feed.capture.close()


def test_calibration_and_labels_that_came_once_long_before_the_start_count(recording, tmp_path):
    path = recording(**{**SLOW, "seconds": 14.0})
    feed = Feed(path, tmp_path / "live", start=False, ago=12.0)
    once = {"/camera/info", "/tf_static", "/model/info"}
    feed.messages = [m for m in feed.messages if m.topic not in once or m.log_time - feed.first < S]
    assert {m.topic for m in feed.messages} >= once
    feed.play(end=12.0)
    feed.capture.start()
    feed.play(12.0)
    feed.capture.close()
    live = Dataset(*feed.capture.results.finished)
    whole = Dataset(convert(path, tmp_path / "whole").paths.container)
    assert live.calibration(*live.sequences) == whole.calibration(*whole.sequences)
    assert live.metadata["labels"] == whole.metadata["labels"]


@pytest.mark.parametrize("report", [False, True])
def test_a_dataset_that_gets_a_report_is_noted_from_its_begin(recording, tmp_path, report):
    """Until then it is not removed after its upload."""
    feed = Feed(recording(**SLOW), tmp_path, report=report)
    feed.play()
    feed.capture.close()
    (container,) = feed.capture.results.finished
    assert feed.capture.results.unreported == ({Path(container).stem} if report else set())


def test_a_clock_that_cannot_be_used_is_said_once(recording, tmp_path):
    path = recording(**{**SLOW, "seconds": 8.0}, header_zero={"camera"})
    feed = Feed(path, tmp_path, settings=Settings(jobs=2, time_base="header"))
    feed.play()
    ends = [event for event in feed.events if event.startswith("the dataset ends here")]
    assert len(ends) == 1
    assert "set time_base to another one" in ends[0]
    feed.capture.start()
    feed.begun += 8 * S
    feed.play()
    assert len([event for event in feed.events if event.startswith("the dataset ends here")]) == 2
    feed.capture.close()


def test_another_name_is_taken_where_somebody_begins_a_dataset_of_the_same(recording, tmp_path, monkeypatch):
    """Several cameras, one folder: nodes look for a name in the same moment."""
    names = iter(["test_2026_01_01_00_00_00", "test_2026_01_01_00_00_01"])
    monkeypatch.setattr(capture, "find_free_name", lambda *_: next(names))
    with DatasetWriter(tmp_path, "test_2026_01_01_00_00_00"):
        feed = Feed(recording(**STILL), tmp_path)
        feed.play()
        feed.capture.close()
    assert feed.capture.results.failure is None
    assert feed.capture.results.finished == [str(tmp_path / "test_2026_01_01_00_00_01.zip")]


def test_a_dataset_without_a_sample_is_told(recording, tmp_path):
    settings = Settings(jobs=2, require=("lidar.points",), tolerance=0.0)
    feed = Feed(recording(**STILL), tmp_path, settings=settings)
    feed.play()
    feed.capture.close()
    assert (feed.capture.results.finished, feed.capture.results.empty) == ([], 1)


def test_a_stop_ends_the_wait_for_a_clock_that_cannot_be_used(recording, tmp_path):
    feed = Feed(recording(**STILL, header_zero={"camera"}), tmp_path, settings=Settings(jobs=2, time_base="header"))
    feed.play(end=0.5)
    with pytest.raises(UsageError, match="set time_base to another one"):
        feed.capture.stop()
    facts = feed.capture.status()
    assert (facts["waiting"], feed.capture.results.failures) == (False, 1)
    assert "set time_base to another one" in facts["failure"]
    feed.capture.close()


def test_messages_do_not_wait_for_a_dataset_that_is_being_completed(recording, tmp_path, patient, monkeypatch):
    """Tables of hours take a minute on the device: in that time the next dataset's messages would fill its memory."""
    may, finish = threading.Event(), DatasetWriter.finish

    def slow(*arguments):
        assert may.wait(60)
        return finish(*arguments)

    monkeypatch.setattr(DatasetWriter, "finish", slow)
    feed = Feed(recording(**{**SLOW, "seconds": 16.0}), tmp_path)
    feed.play(end=4.0)
    feed.capture.split()
    feed.play(4.0)
    facts = feed.until(lambda facts: facts["samples"] > 5 * 10)
    assert facts["finished"] == []
    may.set()
    assert len(feed.until(lambda facts: facts["finished"])["finished"]) == 1
    feed.capture.close()
    assert sum(len(pl.read_ipc(path)) for path in tmp_path.glob("*.frames.arrow")) == 16 * 10
    assert (len(feed.capture.results.finished), feed.capture.results.failures) == (2, 0)


def test_a_dataset_that_cannot_be_completed_is_told_and_ends_no_other(recording, tmp_path, patient, monkeypatch):
    monkeypatch.setattr(DatasetWriter, "finish", Mock(side_effect=OSError(errno.EIO, "planted")))
    feed = Feed(recording(**{**SLOW, "seconds": 16.0}), tmp_path)
    feed.play(end=4.0)
    feed.capture.split()
    feed.play(4.0)
    facts = feed.until(lambda facts: facts["failure"])
    assert "could not be completed: OSError: [Errno 5] planted" in facts["failure"]
    assert facts["recording"]
    monkeypatch.undo()
    feed.capture.close()
    assert (len(feed.capture.results.finished), feed.capture.results.failures) == (1, 1)


def test_losses_of_a_dataset_that_is_not_kept_are_losses(recording, tmp_path):
    feed = Feed(recording(**STILL), tmp_path, start=False)
    feed.play(end=1.2)
    feed.messages = [m._replace(data=m.data[:8]) if m.topic == CAMERA else m for m in feed.messages]
    feed.play(1.2, 2.0)
    feed.capture.start()
    feed.play(2.0)
    feed.capture.close()
    assert (feed.capture.results.finished, feed.capture.results.empty, feed.capture.results.lossy) == ([], 1, True)


def test_an_order_that_fails_in_an_unknown_way_is_answered_and_told(recording, tmp_path, monkeypatch):
    feed = Feed(recording(**STILL), tmp_path, start=False)
    feed.play(end=1.5)
    with monkeypatch.context() as patch:
        patch.setattr(capture.CaptureDataset, "__init__", Mock(side_effect=RuntimeError("no more threads")))
        with pytest.raises(DatasetError, match="RuntimeError: no more threads"):
            feed.capture.start()
    assert feed.capture.status()["failure"] == "RuntimeError: no more threads"
    with pytest.raises(DatasetError, match="no dataset is being recorded"):
        feed.capture.split()
    assert feed.capture.results.failures == 1
    feed.capture.start()
    feed.play(1.5)
    feed.capture.close()
    assert len(feed.capture.results.finished) == 1


# ---- what came before --------------------------------------------------------------------------
def test_the_pretrigger_is_written_however_long_that_takes(recording, tmp_path, monkeypatch):
    """Ten seconds of frames wait for their turn at once: it is memory that was given for them."""
    monkeypatch.setattr(samples, "PATIENCE", 0.05)
    path = recording(**{**STILL, "seconds": 10.0, "size": (640, 360), "codec": "h264", "gop": 10, "objects": 1})
    feed = Feed(path, tmp_path, start=False, ago=10.0, pretrigger=60.0, sequence="early")
    feed.play()
    feed.capture.start()
    feed.until(lambda facts: facts["backlog"] == 0)
    feed.capture.close()
    found = frames(tmp_path, "early")
    assert len(found) == 300
    assert "left out under load" not in found_counts(tmp_path, "early")["/camera/h264"]["dropped"]


def found_counts(out, name):
    return Dataset(out / f"{name}.zip").metadata["counts"]


def test_what_was_lost_before_a_dataset_began_is_no_loss_of_it(recording, tmp_path, patient):
    feed = Feed(recording(**STILL), tmp_path, start=False, sequence="later")
    for message in feed.messages:
        elapsed = message.log_time - feed.first
        if elapsed == 2 * S or (elapsed > 2 * S and not feed.capture.status()["recording"]):
            feed.until(lambda facts: facts["queue"] == 0)
            feed.capture.start()
        feed.capture.put(message, feed.begun + elapsed, lost=7 if message.topic == IMU and elapsed < 1.5 * S else 0)
    feed.capture.close()
    assert found_counts(tmp_path, "later")[IMU]["dropped"] == {}
    assert not feed.capture.results.lossy


@pytest.mark.usefixtures("patient")
def test_companions_of_a_late_camera_are_kept_for_a_new_dataset(recording, tmp_path):
    path = recording(**{**SLOW, "seconds": 6.0}, latency_ms={"camera": 1600.0})
    feed = Feed(path, tmp_path / "live", sequence="first")
    feed.play(end=4.0)
    feed.capture.split()
    feed.play(4.0)
    feed.capture.close()
    names = [path.rpartition("/")[2].removesuffix(".zip") for path in feed.capture.results.finished]
    assert len(names) == 2
    columns = ["timestamp", "lidar_points_timestamp", "radar_targets_timestamp"]
    found = pl.concat([frames(tmp_path / "live", name).select(columns) for name in names]).sort("timestamp")
    assert found.equals(frames(tmp_path / "offline", convert(path, tmp_path / "offline").paths.name).select(columns))


def test_a_dataset_asked_for_while_the_clock_is_chosen_begins_when_it_was_asked_for(recording, tmp_path):
    feed = Feed(recording(**STILL), tmp_path, start=False, ago=0.5, sequence="early")
    feed.play(end=0.5)
    feed.capture.start()
    feed.play(0.5)
    feed.capture.close()
    assert frames(tmp_path, "early")["timestamp"][0] < feed.first + 0.9 * S  # a second is listened to


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize("sent", ["parameter_sets_once", "leading_packet"])
def test_parameter_sets_that_came_once_are_there_for_every_dataset(codec, sent, recording, tmp_path):
    """One behind a split, and one that is begun later."""
    path = recording(seconds=5.0, fps=15.0, size=(160, 96), codec=codec, gop=8, topics=["camera"], **{sent: True})
    feed = Feed(path, tmp_path)
    feed.play(end=2.0)
    feed.capture.split()
    feed.play(2.0, 3.5)
    feed.capture.stop()
    feed.capture.start()
    feed.play(3.5)
    feed.capture.close()
    assert (len(feed.capture.results.finished), feed.capture.results.lossy) == (3, False)
    offline = {
        sample.timestamp: sample.image() for sample in Dataset(convert(path, tmp_path / "offline").paths.container)
    }
    found = [sample for name in feed.capture.results.finished for sample in Dataset(name)]
    assert {sample.timestamp for sample in found} >= {*sorted(offline)[2:]}
    for sample in found[:: len(found) // 9]:
        assert (sample.image() == offline[sample.timestamp]).all()


def test_a_capture_names_header_stamps_of_a_simulation(recording, tmp_path):
    ago = {"camera": -START}  # stamps begin at 0
    feed = Feed(recording(**{**SLOW, "seconds": 4.0, "topics": {"camera"}}, clock_offset=ago), tmp_path, sequence="sim")
    feed.play()
    feed.capture.close()
    assert [event for event in feed.events if "before the year 2000" in event and "--time-base header" in event]


# ---- later -------------------------------------------------------------------------------------
@pytest.mark.usefixtures("patient")
def test_the_clock_of_a_topic_that_comes_later_is_looked_at(recording, tmp_path):
    path = recording(
        **{**SLOW, "seconds": 8.0}, clock_offset={"lidar/points": -(10**15)}, drop={"lidar/points": range(30)}
    )
    feed = Feed(path, tmp_path, sequence="late")
    feed.play()
    feed.capture.close()
    assert any(event.startswith(f"{LIDAR}: log_time") for event in feed.events)
    count = found_counts(tmp_path, "late")[LIDAR]
    assert count["written"] >= count["seen"] - 12  # of the second in which it is listened to


@pytest.mark.usefixtures("patient")
def test_a_clock_that_was_looked_at_later_survives_the_end_of_the_process(recording, tmp_path):
    path = recording(
        **{**SLOW, "seconds": 8.0}, clock_offset={"lidar/points": -(10**15)}, drop={"lidar/points": range(30)}
    )
    feed = Feed(path, tmp_path / "live", sequence="late")
    feed.play()
    feed.until(lambda facts: facts["committed"] > 30)
    shutil.copytree(tmp_path / "live", tmp_path / "left")
    feed.capture.close()
    recover(tmp_path / "left" / "late")
    assert Dataset(tmp_path / "left" / "late.zip").metadata["time_base"]["topics"].keys() == {LIDAR}


def test_memory_does_not_grow_while_the_disk_stands_still(recording, tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "PATIENCE", 0.3)
    stands, whole = threading.Event(), DatasetWriter.write

    def write(self, sample):
        stands.wait(20)
        whole(self, sample)

    stands.set()
    monkeypatch.setattr(DatasetWriter, "write", write)
    feed = Feed(recording(**{**STILL, "seconds": 12.0}), tmp_path, sequence="slow")
    feed.play(end=3.0)
    stands.clear()
    feed.play(3.0, 4.0)
    built = feed.capture._current.output.samples
    feed.until(lambda facts: facts["standstill_s"] > built._pace._patience + 0.5)  # longer after a slow start
    feed.play(4.0)
    waiting = list(built._choosing._items.queue)
    works = [item for item in waiting if isinstance(item, Frame)]
    assert len(works) > 100
    assert sum(bool(work.companions) for work in works) < len(works) / 2
    pictures = [item for item in waiting if not isinstance(item, Frame)]
    assert sum(isinstance(item.content, StillMessage) for item in pictures) < len(pictures) / 2
    stands.set()
    feed.capture.close()
    count = found_counts(tmp_path, "slow")[CAMERA]
    assert count["dropped"]["left out under load"] >= len(works) / 2
    assert count["seen"] == count["written"] + sum(count["dropped"].values()) >= 359


def test_memory_does_not_grow_while_the_camera_is_silent(recording, tmp_path):
    feed = Feed(recording(**STILL), tmp_path)
    feed.play(end=2.0)
    for n in range(2000):
        at = feed.first + 2 * S + n * S // 20
        head = std_msgs.Header(builtin_interfaces.Time(at // S, at % S), "imu")
        data = sensor_msgs.Imu(head, geometry_msgs.Quaternion(0.0, 0.0, 0.0, 1.0)).to_bytes()
        feed.capture.put(Message(IMU, "sensor_msgs/msg/Imu", at, at, n, data), feed.begun + at - feed.first)
    feed.until(lambda facts: facts["queue"] == 0)
    tracks = feed.capture._current.output.frames._navigation._epochs.values()
    assert sum(len(track.attitudes._stamps) for track in tracks) < 400
    feed.capture.close()


def test_results_whose_stamps_come_again_are_counted_once(recording, tmp_path):
    """As a recording that is played in a loop: what is late for the first pass belongs to the second one."""
    feed = Feed(recording(**STILL), tmp_path, sequence="loop")
    feed.play()
    feed.messages = [m._replace(log_time=m.log_time + 5 * S) for m in feed.messages]
    feed.play()
    feed.capture.close()
    count = found_counts(tmp_path, "loop")["/model/output"]
    assert count["written"] > 60
    assert count["seen"] == count["written"] + sum(count["dropped"].values())


# ---- the same as offline -----------------------------------------------------------------------
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("fault", ["header_zero", "all_equal"])
def test_results_are_joined_as_offline_where_header_stamps_tell_nothing(recording, tmp_path, fault):
    topics = {"camera", "model/output", "model/info"}
    path = recording(**STILL, topics=topics, **{fault: {"camera", "model/output"}})
    # from a minute on: a frame waits for its results however long it takes to hand them over
    feed = Feed(path, tmp_path / "live", ago=-60.0, sequence=path.stem)
    feed.play()
    feed.capture.close()
    offline = convert(path, tmp_path / "offline")
    found, expected = (pl.read_ipc(out / f"{path.stem}.arrow") for out in (tmp_path / "live", offline.paths.out))
    assert found.equals(expected)
    assert found["label"].drop_nulls().len() > 40
