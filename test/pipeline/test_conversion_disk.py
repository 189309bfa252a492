# SPDX-License-Identifier: Apache-2.0
"""A disk that takes no more in the middle of a conversion of several sequences; a writer that refuses is that disk."""

import pytest
from mcap.reader import make_reader
from mcap.writer import Writer

from edgefirst_ros import Dataset, convert
from edgefirst_ros.counts import DISK
from edgefirst_ros.dataset.writer import DatasetWriter
from edgefirst_ros.errors import StorageError

STILL = {"seconds": 1.0, "fps": 10.0, "size": (128, 64), "codec": "jpeg", "topics": frozenset({"camera"})}
CAMERAS = ("/front/camera/jpeg", "/rear/camera/jpeg")


@pytest.fixture(scope="module")
def recordings(recording):
    return [recording(**STILL, host=host) for host in ("one", "two", "three")]


@pytest.fixture
def takes(monkeypatch):
    """Function that lets the disk take so many samples."""
    write = DatasetWriter.write

    def limit(most):
        def until_full(writer, sample):
            if writer.samples >= most:
                raise StorageError("members: cannot write: No space left on device")
            write(writer, sample)

        monkeypatch.setattr(DatasetWriter, "write", until_full)

    return limit


def test_what_was_written_is_kept_and_what_lacks_is_named(recordings, takes, tmp_path):
    takes(14)
    outcome = convert(recordings, tmp_path, name="drive")
    assert (outcome.samples, outcome.exit_code) == (14, 3)
    assert isinstance(outcome.refused, StorageError)
    names = [path.stem for path in recordings]
    assert [sample.name for sample in Dataset(outcome.paths.container).samples()] == [names[0]] * 10 + [names[1]] * 4
    assert f"{recordings[2].name}: not converted, the disk takes no more" in outcome.notes
    assert "ends early: members: cannot write: No space left on device" in outcome.notes
    counts = outcome.counts.plain()["/camera/jpeg"]
    assert (counts["written"], counts["dropped"]) == (14, {DISK: counts["seen"] - 14})


def test_without_a_sample_the_disk_is_the_error(recordings, takes, tmp_path):
    takes(0)
    with pytest.raises(StorageError, match="No space left on device"):
        convert(recordings, tmp_path, name="drive")
    assert not (tmp_path / "drive.zip").exists()


def test_of_two_cameras_the_second_is_not_begun(recordings, takes, tmp_path):
    path = tmp_path / recordings[0].name
    with recordings[0].open("rb") as source, path.open("wb") as file:
        writer = Writer(file)
        writer.start(profile="ros2", library="test")
        channels = {}
        for schema, channel, message in make_reader(source).iter_messages():
            for topic in CAMERAS:
                if topic not in channels:
                    known = writer.register_schema(schema.name, schema.encoding, schema.data)
                    channels[topic] = writer.register_channel(topic, channel.message_encoding, known)
                times = message.log_time, message.data, message.publish_time, message.sequence
                writer.add_message(channels[topic], *times)
        writer.finish()
    whole = convert(path, tmp_path / "whole", name="drive", reference_topic=CAMERAS)
    assert (whole.samples, whole.exit_code) == (20, 0)
    takes(7)
    outcome = convert(path, tmp_path / "full", name="drive", reference_topic=CAMERAS)
    assert (outcome.samples, outcome.exit_code) == (7, 3)
    assert {sample.name for sample in Dataset(outcome.paths.container).samples()} == {"one-front_2026_01_15_12_00_00"}
