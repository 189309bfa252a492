# SPDX-License-Identifier: Apache-2.0
"""A disk that takes no more in the middle of a conversion of several sequences; a writer that refuses is that disk."""

import pytest
from mcap.reader import make_reader
from mcap.writer import Writer
from same_dataset import files

from edgefirst_ros import convert
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

        monkeypatch.undo()
        monkeypatch.setattr(DatasetWriter, "write", until_full)

    return limit


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("layout", ["zip", "directory"])
@pytest.mark.parametrize("number", [1, 3], ids=["one", "several"])
def test_a_full_disk_leaves_a_conversion_that_is_continued(recordings, takes, tmp_path, number, layout, resume):
    given, out = recordings[:number], tmp_path / "out"
    convert(given, tmp_path / "whole", name="drive", layout=layout)
    for most in (4, 4, 9 if number == 1 else 17):
        takes(most)
        outcome = convert(given, out, name="drive", layout=layout, resume=resume)
        assert (outcome.samples, outcome.exit_code) == (most, 3)
        assert isinstance(outcome.refused, StorageError)
        assert any(note.startswith(f"unfinished, {most} samples committed: members: cannot") for note in outcome.notes)
        assert outcome.paths.unfinished
        assert not outcome.paths.container.exists()
    takes(1000)
    outcome = convert(given, out, name="drive", layout=layout, resume=resume)
    assert (outcome.samples, outcome.exit_code, outcome.refused) == (10 * number, 0, None)
    assert files(out) == files(tmp_path / "whole")


def test_recordings_that_the_disk_does_not_take_are_named(recordings, takes, tmp_path):
    takes(14)
    outcome = convert(recordings, tmp_path, name="drive")
    assert f"{recordings[2].name}: not converted, the disk refuses more data" in outcome.notes


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
    takes(1000)
    again = convert(path, tmp_path / "full", name="drive", reference_topic=CAMERAS)
    assert again.exit_code == 0
    assert files(tmp_path / "full") == files(tmp_path / "whole")


def test_results_of_the_model_that_the_disk_does_not_take_are_not_written(recording, takes, tmp_path):
    """Every third frame has one: of four samples two."""
    path = recording(**{**STILL, "topics": frozenset({"camera", "model/output"})})
    takes(4)
    counts = convert(path, tmp_path, name="drive").counts.plain()
    assert counts["/camera/jpeg"] == {"seen": 10, "written": 4, "dropped": {"refused by the disk": 6}}
    assert counts["/model/output"] == {"seen": 4, "written": 2, "dropped": {"refused by the disk": 2}}


def test_messages_that_no_sample_would_have_used_are_not_lost_to_the_disk(recording, takes, tmp_path):
    """Ten clouds in each second, and two samples, of which the second, at 0.5 s, is the last that the disk takes."""
    path = recording(**{**STILL, "seconds": 2.0, "topics": frozenset({"camera", "lidar/points"})}, lidar_points=20)
    takes(2)
    count = convert(path, tmp_path, name="drive", rate=2).counts.plain()["/lidar/points"]
    assert count == {
        "seen": 20,
        "written": 2,
        "dropped": {"nearest to no sample": 4, "refused by the disk": 14},
    }
