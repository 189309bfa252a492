# SPDX-License-Identifier: Apache-2.0
"""A capture session on a system without ROS: the camera is found, orders are carried out, the exit code says how."""

import json
import threading
from pathlib import Path

import pytest
from live_system import System

from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.errors import DatasetError, RecordingError
from edgefirst_ros.pipeline import capture_session
from edgefirst_ros.pipeline.capture import Capture
from edgefirst_ros.pipeline.capture_session import CaptureSession, SessionState
from edgefirst_ros.sources.live import Settling
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sync import clock

STILL = {"seconds": 2.0, "size": (160, 96), "codec": "jpeg", "topics": ["camera", "imu"]}
CAMERA, IMU = "/camera/jpeg", "/imu"
LONG = 60.0


class Drive:
    """A session, and the messages of a recording that come on the topics of its system."""

    def __init__(self, path, out, settings=None, **live):
        recording = McapRecording(path)
        self.messages = list(recording.iter_messages())
        self.offers = dict(recording.topics)
        self.system = System()
        options = {"min_free_bytes": 0, "fsync": False, **live}
        self.session = CaptureSession(
            self.system,
            settings or Settings(jobs=2, time_base="publish"),
            LiveSettings(out=str(out), **options),
            "wagon",
            self.system,
        )

    def begin(self):
        """Activate, and let the topics be there."""
        self.session.activate()
        self.system.offers = dict(self.offers)
        self.session.refresh()

    def play(self):
        for message in self.messages:
            self.system.send(message.topic, message.data, message.sequence + 1)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Topics have settled as soon as they are there."""
    monkeypatch.setattr(Settling, "QUIET", 0.0)


@pytest.fixture
def drive(recording, tmp_path):
    return Drive(recording(**STILL), tmp_path / "out", sequence="one")


def finished(answer):
    return [Path(path).name for path in json.loads(answer.result(LONG))["datasets"]]


# ---- waiting -------------------------------------------------------------------------------
def test_a_waiting_capture_lists_topics_without_events_of_other_captures(drive):
    drive.session.activate()
    drive.system.offers = {
        "/other/capture/finished": "std_msgs/msg/String",
        "/diagnostics": "diagnostic_msgs/msg/DiagnosticArray",
        IMU: drive.offers[IMU],
    }
    drive.session.refresh()
    assert f"; topics: {IMU}; " in drive.session.status()["waiting_for"]


def test_a_session_waits_for_the_camera_and_says_so_once(drive):
    assert drive.session.state is SessionState.INACTIVE
    drive.session.activate()
    for _ in range(3):
        drive.session.refresh()
    assert drive.session.state is SessionState.WAITING
    (told,) = [text for _, text in drive.system.log]
    assert told.startswith("waiting: no camera topic")
    assert drive.session.status() == {"active": True, "waiting_for": told, "wanted": True, "finished": []}
    with pytest.raises(RecordingError, match="waiting: no camera topic"):
        drive.session.split().result(LONG)
    drive.system.offers = dict(drive.offers)
    drive.session.refresh()
    assert drive.session.state is SessionState.CAPTURING
    facts = drive.session.status()
    assert facts["topics"].keys() == {CAMERA, IMU}
    assert (facts["waiting"], facts["state"]) == (True, "waiting for the clock")
    drive.session.deactivate()


def test_a_session_that_is_activated_again_waits_anew_until_the_topics_have_settled(drive, monkeypatch):
    drive.begin()
    assert drive.session.state is SessionState.CAPTURING
    drive.session.deactivate()
    monkeypatch.setattr(Settling, "QUIET", 1e9)
    drive.begin()
    assert drive.session.state is SessionState.WAITING
    drive.session.deactivate()


def test_without_autostart_a_start_that_comes_before_the_camera_holds(recording, tmp_path):
    drive = Drive(recording(**STILL), tmp_path / "out", autostart=False)
    drive.session.activate()
    assert drive.session.start().result(LONG) == "begins as soon as a camera is found"
    drive.begin()
    drive.session.start().result(LONG)
    assert drive.session.status()["waiting"]
    drive.session.deactivate()


def test_a_stop_takes_back_a_start_that_waits_for_the_camera(recording, tmp_path):
    drive = Drive(recording(**STILL), tmp_path / "out", autostart=False)
    drive.session.activate()
    drive.session.start().result(LONG)
    assert finished(drive.session.stop()) == []
    drive.begin()
    facts = drive.session.status()
    assert (facts["waiting"], facts["recording"]) == (False, False)
    drive.session.deactivate()


def test_without_a_start_nothing_is_recorded(recording, tmp_path):
    drive = Drive(recording(**STILL), tmp_path / "out", autostart=False)
    drive.begin()
    drive.play()
    assert not drive.session.status()["recording"]
    assert finished(drive.session.stop()) == []
    drive.session.deactivate()
    assert not (tmp_path / "out").exists()
    assert drive.session.exit_code == 0


# ---- datasets ------------------------------------------------------------------------------
def test_stop_completes_the_dataset_and_start_begins_another(drive):
    drive.begin()
    drive.play()
    assert finished(drive.session.stop()) == ["one.zip"]
    assert not drive.session.status()["recording"]
    assert drive.session.start().result(LONG) == "started"
    drive.play()
    drive.session.deactivate()
    names = [Path(path).name for path in drive.session.status()["finished"]]
    assert names[0] == "one.zip"
    assert names[1].startswith("wagon_2")
    assert [one["dataset"] for one in drive.session.outcomes] == [
        str(Path(drive.session.live.out) / name) for name in names
    ]
    assert drive.session.exit_code == 0
    assert drive.system.closed == 1


def test_the_name_of_the_settings_is_given_away_once(drive):
    for _ in range(2):
        drive.begin()
        drive.play()
        drive.session.deactivate()
    names = [Path(path).name for path in drive.session.status()["finished"]]
    assert names[0] == "one.zip"
    assert names[1].startswith("wagon_2")


def test_settings_that_change_hold_from_the_next_dataset_on(drive):
    drive.begin()
    drive.session.change(drive.session.settings.model_copy(update={"layout": "directory"}), drive.session.live)
    drive.play()
    assert finished(drive.session.stop()) == ["one"]
    drive.session.deactivate()


@pytest.mark.parametrize("what", ["start", "split", "stop"])
def test_orders_to_a_session_that_is_not_active(drive, what):
    answer = getattr(drive.session, what)()
    if what == "stop":
        assert finished(answer) == []
        return
    with pytest.raises(RecordingError, match="not active"):
        answer.result(LONG)


def test_a_split_that_cannot_be_is_refused_and_is_no_failure(drive):
    drive.begin()
    with pytest.raises(DatasetError, match="no dataset is being recorded"):
        drive.session.split().result(LONG)
    assert drive.session.status()["failure"] is None
    drive.session.deactivate()
    assert drive.session.exit_code == 1, "no dataset was written"


def test_orders_are_carried_out_one_after_the_other_and_nobody_waits_for_them(drive, monkeypatch):
    may, carried_out = threading.Event(), []

    class Slow(Capture):
        def start(self, since=None):
            assert may.wait(LONG)
            carried_out.append("start")

        def split(self):
            carried_out.append("split")

    monkeypatch.setattr(capture_session, "Capture", Slow)
    may.set()
    drive.begin()
    may.clear()
    answers = [drive.session.start(), drive.session.split()]
    drive.session.refresh()
    drive.play()
    assert drive.session.status()["topics"][CAMERA]["received"] > 0
    assert not any(answer.done() for answer in answers)
    may.set()
    assert [answer.result(LONG) for answer in answers] == ["started", "a new dataset begins with the next keyframe"]
    assert carried_out == ["start", "start", "split"]
    drive.session.deactivate()


# ---- exit codes ----------------------------------------------------------------------------
def test_a_disk_that_is_too_full_is_told_and_the_exit_code_says_that_nothing_is_there(recording, tmp_path):
    drive = Drive(recording(**STILL), tmp_path / "out", min_free_bytes=1 << 60)
    drive.begin()
    drive.play()
    with pytest.raises(DatasetError, match="bytes are free"):
        drive.session.stop().result(LONG)
    drive.session.deactivate()
    assert drive.session.exit_code == 1


def test_a_dataset_that_fails_is_an_error_in_the_log(drive):
    drive.begin()
    drive.play()
    capture = drive.session._current.capture
    capture._order(lambda: capture._fail(OSError("planted")))
    assert [text for level, text in drive.system.log if level == "error"] == ["the dataset ends here: OSError: planted"]
    drive.session.deactivate()


def test_what_goes_wrong_at_the_end_is_an_error_in_the_log(recording, tmp_path, monkeypatch):
    """The clock is chosen as it ends, and no dataset begins before."""
    monkeypatch.setattr(clock, "LISTEN", 1 << 62)
    drive = Drive(recording(**STILL), tmp_path / "out", min_free_bytes=1 << 60)
    drive.begin()
    drive.play()
    drive.session.deactivate()
    (told,) = [text for level, text in drive.system.log if level == "error"]
    assert "bytes are free" in told
    assert (drive.session.exit_code, drive.session.outcomes) == (1, [])
    assert drive.session.state is SessionState.INACTIVE


def test_a_capture_whose_only_dataset_has_no_sample_is_of_no_use(recording, tmp_path):
    settings = Settings(jobs=2, time_base="publish", require=("lidar.points",))
    drive = Drive(recording(**STILL), tmp_path / "out", settings)
    drive.begin()
    drive.play()
    drive.session.deactivate()
    assert drive.session.status()["finished"] == []
    assert drive.session.exit_code == 1


def test_messages_lost_on_the_way_are_a_loss(drive):
    drive.begin()
    drive.messages = [m for n, m in enumerate(drive.messages) if m.topic != CAMERA or n % 10]
    drive.play()
    drive.session.deactivate()
    (dataset,) = drive.session.status()["finished"]
    assert drive.session.exit_code == 3
    (told,) = [text for _, text in drive.system.log if text.startswith(f"dataset {dataset} is complete: ")]
    (outcome,) = drive.session.outcomes
    assert [f"{CAMERA}: {n} {why}" for why, n in outcome["loss"][CAMERA].items()] == told.split("; ")[1:]


def test_what_an_earlier_capture_left_is_completed_beside(drive, monkeypatch):
    begun, seen = threading.Event(), []

    def recover_all(out, warn):
        seen.append(out)
        begun.set()

    monkeypatch.setattr(capture_session, "recover_all", recover_all)
    drive.session.activate()
    assert begun.wait(LONG)
    assert seen == [Path(drive.session.live.out)]
    drive.session.deactivate()
