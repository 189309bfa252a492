# SPDX-License-Identifier: Apache-2.0
"""A recording played on the bus, in this process: once or in a loop, with and without somebody who listens."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")

from zenoh_network import encoding_of, free_port, open_bus, until  # noqa: E402

from edgefirst_ros.config import PlayerSettings  # noqa: E402
from edgefirst_ros.errors import RecordingError  # noqa: E402
from edgefirst_ros.nodes import play as playing  # noqa: E402
from edgefirst_ros.nodes.play import open_channels  # noqa: E402
from edgefirst_ros.nodes.zenoh import _Outlets, make_device_key, play  # noqa: E402
from edgefirst_ros.sources.mcap import McapRecording  # noqa: E402
from edgefirst_ros.sources.source import Channel  # noqa: E402
from edgefirst_ros.streams import IMU  # noqa: E402
from edgefirst_ros.synthetic import Recipe, write_recording  # noqa: E402

DRIVE = {"seconds": 0.2, "topics": frozenset({"imu"}), "rates": {"imu": 100.0}}
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ear:
    """A router, and what it hears under the device's keys; `at` messages are followed by a signal to this process."""

    def __init__(self):
        self.address = f"tcp/127.0.0.1:{free_port()}"
        self.bus = open_bus("router", listen=self.address)
        self.came, self.at = [], None

    def listen(self):
        self.bus.declare_subscriber("rt/**", zenoh.handlers.Callback(self._take, indirect=False))

    def _take(self, sample):
        self.came.append((str(sample.key_expr), str(sample.encoding), sample.payload.to_bytes()))
        if len(self.came) == self.at:
            os.kill(os.getpid(), signal.SIGHUP)


@pytest.fixture
def ear():
    before = [signal.getsignal(number) for number in SIGNALS]
    one = Ear()
    yield one
    one.bus.close()
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Nobody is waited for once somebody listens."""
    monkeypatch.setattr(playing, "SETTLED", 0)


@pytest.fixture
def drive(recording):
    path = recording(**DRIVE)
    source = McapRecording(path)
    for _ in source.walk():
        pass
    return path, [message.data for message in source.iter_messages()]


def test_all_messages_come_once_as_the_device_sends_them(ear, drive, capsys):
    path, sent = drive
    ear.listen()
    assert play(PlayerSettings(recording=str(path), rate=100.0), ear.address) == 0
    until(lambda: len(ear.came) == len(sent))
    assert ear.came == [("rt/imu", encoding_of(IMU), data) for data in sent]
    assert f"{len(sent)} messages of 1 topic in " in capsys.readouterr().err


def test_a_loop_begins_anew_until_a_signal_comes(ear, drive):
    path, sent = drive
    ear.at = 2 * len(sent) + 3
    ear.listen()
    assert play(PlayerSettings(recording=str(path), rate=20.0, loop=True), ear.address) == 0
    came = [data for _, _, data in ear.came]
    assert len(came) >= ear.at
    assert came == (sent * (len(came) // len(sent) + 1))[: len(came)]


def test_where_nobody_listens_it_is_played_all_the_same_and_said(ear, drive, capsys):
    path, sent = drive
    assert play(PlayerSettings(recording=str(path), rate=100.0, wait_timeout=0.1), ear.address) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "edgefirst-ros play: warning: 0 of 1 topics have a subscriber; playing anyway"
    assert f"{len(sent)} messages" in told[1]


def test_a_signal_ends_the_wait_for_somebody_who_listens(ear, drive, monkeypatch, capsys):
    nap = lambda _: os.kill(os.getpid(), signal.SIGHUP)  # noqa: E731
    monkeypatch.setattr(
        playing, "time", SimpleNamespace(monotonic=time.monotonic, monotonic_ns=time.monotonic_ns, sleep=nap)
    )
    assert play(PlayerSettings(recording=str(drive[0])), ear.address) == 0
    assert capsys.readouterr().err.startswith("edgefirst-ros play: stopped by SIGHUP: 0 messages of 1 topic in ")


def test_a_recording_without_a_message_cannot_be_played(ear, tmp_path):
    path = tmp_path / "empty.mcap"
    write_recording(path, Recipe(seconds=0.2, topics=frozenset({"imu"}), drop={"imu": tuple(range(1000))}))
    with pytest.raises(RecordingError, match=r"empty\.mcap: it has no message that could be published"):
        play(PlayerSettings(recording=str(path)), ear.address)


def test_a_topic_that_is_no_key_is_left_out_with_the_reason(ear):
    channels = [Channel(topic, IMU, "cdr", b"", 3) for topic in ("/imu", "/odd#imu")]
    skipped = {"/odd#imu": "3 messages: Zenoh does not take the key rt/odd#imu"}
    opened, left = open_channels(_Outlets(ear.bus), channels, ())
    assert (opened.keys(), left) == ({("/imu", IMU)}, skipped)


@pytest.mark.parametrize(
    ("topic", "key"),
    [("/camera/h264", "rt/camera/h264"), ("rt/imu", "rt/imu"), ("/rt/imu", "rt/imu"), ("gps", "rt/gps")],
)
def test_the_key_of_a_topic_is_that_of_the_device(topic, key):
    assert make_device_key(topic) == key
