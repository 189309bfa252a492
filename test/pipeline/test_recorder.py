# SPDX-License-Identifier: Apache-2.0
"""The states of a capture, called from one thread with the times at which messages came."""

import pytest

from edgefirst_ros.config import SECOND, LiveSettings, Settings
from edgefirst_ros.pipeline.completion import Results
from edgefirst_ros.pipeline.pretrigger import Arrival
from edgefirst_ros.pipeline.recorder import Recorder, State
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.topics import choose_topics

STILL = {"seconds": 3.0, "size": (160, 96), "codec": "jpeg", "topics": ["camera", "imu"]}


class Played:
    """A recorder, and the messages of a recording that come at their own times."""

    def __init__(self, path, out, **live):
        recording = McapRecording(path)
        self.messages = list(recording.iter_messages())
        self.results, self.events = Results(), []
        settings = Settings(jobs=2)
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
    waiting, recording = State.WAITING, State.RECORDING
    expected = [State.IDLE, waiting, waiting, recording, State.SPLITTING, recording, State.COMPLETING, State.IDLE]
    assert states == expected
    assert (len(played.results.finished), played.results.exit_code) == (2, 0)


def test_nothing_is_there_to_be_split(played):
    assert not played.recorder.split(0)
    played.recorder.start(0)
    assert not played.recorder.split(0)
    assert played.recorder.state is State.WAITING


def test_a_second_start_changes_nothing(played):
    played.recorder.start(0)
    played.play(end=2.0)
    before = played.recorder.facts()["sequence"]
    played.recorder.start(2 * SECOND)
    assert played.recorder.facts()["sequence"] == before
    assert played.recorder.state is State.RECORDING


def test_a_dataset_that_fails_ends_and_the_next_one_begins(played):
    played.recorder.start(0)
    played.play(end=2.0)
    played.recorder.fail(OSError("planted"))
    assert played.recorder.state in (State.COMPLETING, State.IDLE)
    assert played.events[-1] == "the dataset ends here: OSError: planted"
    assert played.results.failure == "OSError: planted"
    played.recorder.start(2 * SECOND)
    assert played.recorder.state is State.RECORDING
    assert (played.results.failure, played.results.failures) == (None, 1)
