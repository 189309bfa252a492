# SPDX-License-Identifier: Apache-2.0
"""A dataset as messages: what a converted drive had is what is played."""

import numpy as np
import pytest
from bags import bag, messages

from edgefirst_ros import Dataset, convert
from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.messages import decode, read_header_stamp
from edgefirst_ros.nodes.dataset_messages import DatasetRecording, open_playable
from edgefirst_ros.sources.mcap import McapRecording

SMALL = {"seconds": 1.0, "size": (160, 96), "cube_shape": (2, 16, 4, 32), "lidar_points": 100, "gop": 15}


@pytest.fixture(scope="module")
def drive(recording, tmp_path_factory):
    """(messages of a drive by topic and header stamp, its dataset)."""
    path = recording(**SMALL)
    source = McapRecording(path)
    for _ in source.walk():
        pass
    sent = {}
    for message in source.iter_messages():
        sent.setdefault(message.topic, {})[read_header_stamp(message)] = message
    return sent, convert(path, tmp_path_factory.mktemp("dataset")).paths.container


@pytest.fixture(scope="module")
def played(drive):
    recording = open_playable(drive[1])
    assert isinstance(recording, DatasetRecording)
    times = [message.log_time for message in recording.walk()]
    messages = [*recording.iter_messages()]
    assert [m.log_time for m in messages] == times
    assert {c.topic: c.seen for c in recording.channels.values()} == {
        topic: sum(m.topic == topic for m in messages) for topic in {m.topic for m in messages}
    }
    return messages


def of(played, topic):
    found = [message for message in played if message.topic == topic]
    assert [read_header_stamp(message) for message in found] == [message.log_time for message in found]
    return [(message.log_time, decode(message)) for message in found]


def test_pictures_are_the_members(drive, played):
    samples = [*Dataset(drive[1]).samples()]
    pictures = of(played, "/camera/jpeg")
    assert [stamp for stamp, _ in pictures] == [sample.timestamp for sample in samples]
    for (_, message), sample in zip(pictures, samples, strict=True):
        assert (message.format, message.data.tobytes()) == ("jpeg", sample.read("camera"))


@pytest.mark.parametrize("topic", ["/radar/cube", "/radar/targets", "/lidar/points"])
def test_companions_are_what_was_recorded_and_come_once(drive, played, topic):
    found = of(played, topic)
    stamps = [stamp for stamp, _ in found]
    assert len(set(stamps)) == len(stamps) >= 9
    for stamp, message in found:
        sent = decode(drive[0][topic][stamp])
        if topic == "/radar/cube":
            same = ("layout", "shape", "scales", "cube")
            assert all(getattr(message, name).tobytes() == getattr(sent, name).tobytes() for name in same)
            assert message.is_complex == sent.is_complex
            continue
        assert message.data.tobytes() == sent.data.tobytes()
        assert (message.width, message.height, message.point_step) == (sent.width, sent.height, sent.point_step)
        assert [(f.name, f.offset, f.datatype, f.count) for f in message.fields] == [
            (f.name, f.offset, f.datatype, f.count) for f in sent.fields
        ]


def test_position_attitude_and_boxes_are_those_of_the_tables(drive, played):
    dataset = Dataset(drive[1])
    rows = {row["timestamp"]: row for row in dataset.frames.to_dicts()}
    for stamp, fix in of(played, "/gps"):
        assert (fix.latitude, fix.longitude) == (rows[stamp]["latitude"], rows[stamp]["longitude"])
    for stamp, imu in of(played, "/imu"):
        orientation = imu.orientation
        assert [orientation.x, orientation.y, orientation.z, orientation.w] == list(rows[stamp]["orientation"])
    looked = [stamp for stamp, row in rows.items() if row["model_timestamp"] is not None]
    boxes = of(played, "/model/boxes2d")
    assert [stamp for stamp, _ in boxes] == looked
    for stamp, message in boxes:
        sent = decode(drive[0]["/model/output"][stamp])
        assert [(b.label, b.center_x, b.width) for b in message.boxes] == [
            (b.label, b.center_x, b.width) for b in sent.boxes
        ]


def test_messages_come_in_the_order_of_time(played):
    steps = np.diff([message.log_time for message in played])
    assert steps.min() > -100_000_000, "companions may be a tolerance earlier than the sample before"


def test_of_chosen_topics_nothing_else_comes(drive, played):
    chosen = [*open_playable(drive[1]).iter_messages({"/gps", "/lidar/points"})]
    assert {message.topic for message in chosen} == {"/gps", "/lidar/points"}
    assert chosen == [message for message in played if message.topic in ("/gps", "/lidar/points")]


def test_a_rosbag2_folder_is_played_as_one_recording(recording, tmp_path):
    path = recording(**SMALL)
    found = messages(path)
    parts, whole = open_playable(bag(tmp_path / "drive", found, [len(found) // 2])), open_playable(path)
    assert len([*parts.walk()]) == len([*whole.walk()]) == len(found)
    assert [message.data for message in parts.iter_messages()] == [message.data for message in whole.iter_messages()]


def test_what_is_neither_recording_nor_dataset_is_said(tmp_path, drive):
    with pytest.raises(
        EdgeFirstError,
        match=r"^[^:]*nothing: no such file or directory; expected .*; or a recording, \*\.mcap, .*rosbag2 folder",
    ):
        open_playable(tmp_path / "nothing")
    lone = tmp_path / "lone.zip"
    lone.write_bytes(drive[1].read_bytes())
    with pytest.raises(DatasetError, match="only it has the samples' stamps"):
        open_playable(lone)
