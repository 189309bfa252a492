# SPDX-License-Identifier: Apache-2.0
"""Four messages with one stamp become one, all four or none."""

import struct
from types import SimpleNamespace

import pytest
from mcap.writer import Writer

from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import Message, decode, join_tiles, read_header_stamp
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.tiles import MOST_WAITING, TiledRecording, TileJoiner, find_whole
from edgefirst_ros.streams import IMU, TILED, VIDEO

TOPIC = "/camera/h264/tl"
MS = 1_000_000


def tile(number, name, at):
    data = struct.pack("<4siI", b"\0\1\0\0", 0, at * MS) + name.encode()
    return Message(f"/camera/h264/{name}", VIDEO, at * MS, at * MS, number, data)


def joined(*sent):
    """[(stamp, ms; sequence; which tiles are there)] of what (tile, number, stamp) become."""
    joiner = TileJoiner(TOPIC)
    found = [
        m
        for name, number, at in sent
        for m, *_ in joiner.add(tile(number, name, at), ["tl", "tr", "bl", "br"].index(name))
    ]
    return [(read_header_stamp(m) // MS, m.sequence, there(m)) for m in (*found, *(m for m, *_ in joiner.flush()))]


def there(message):
    assert (message.topic, message.schema) == (TOPIC, TILED)
    at, found = 12, []
    while at < len(message.data):
        (size,) = struct.unpack_from("<i", message.data, at)
        found.append(message.data[at + 4 : at + 4 + size][12:].decode() if size >= 0 else "")
        at += 4 + max(0, size)
    return " ".join(found)


ALL = "tl tr bl br"


def frames(*numbers, without=()):
    return [(name, n, 10 * n) for n in numbers for name in ALL.split() if (name, n) not in without]


def test_tiles_come_together_in_whatever_order_they_come():
    assert joined(*frames(0, 1, 2)) == [(0, 0, ALL), (10, 1, ALL), (20, 2, ALL)]
    mixed = [
        ("br", 0, 0),
        ("tl", 0, 0),
        ("tl", 1, 10),
        ("bl", 0, 0),
        ("tr", 0, 0),
        ("br", 1, 10),
        ("bl", 1, 10),
        ("tr", 1, 10),
    ]
    assert joined(*mixed) == [(0, 0, ALL), (10, 1, ALL)]


def test_a_missing_tile_is_known_once_its_stream_is_past_it():
    assert joined(*frames(0, 1, 2, without=[("bl", 1)])) == [(0, 0, ALL), (10, 1, "tl tr  br"), (20, 2, ALL)]
    assert joined(*frames(0, 1, without=[("br", 1)])) == [(0, 0, ALL), (10, 1, "tl tr bl ")]


def test_what_is_lost_of_all_tiles_is_a_step_in_the_numbers():
    assert joined(*frames(0, 1, 4)) == [(0, 0, ALL), (10, 1, ALL), (40, 4, ALL)]


def test_a_stream_that_ends_holds_nothing_up_for_ever():
    sent = frames(0) + [(name, n, 10 * n) for n in range(1, MOST_WAITING + 50) for name in ("tl", "tr", "br")]
    found = joined(*sent)
    assert len(found) == MOST_WAITING + 50
    assert {tiles for _, _, tiles in found[1:]} == {"tl tr  br"}


@pytest.mark.parametrize(
    ("topic", "schema", "whole"),
    [
        ("/camera/h264/tl", VIDEO, ("/camera/h264/tl", 0)),
        ("rt/camera/h264/br", VIDEO, ("rt/camera/h264/tl", 3)),
        ("/host/camera/h264/bl", VIDEO, ("/host/camera/h264/tl", 2)),
        ("/camera/h264", VIDEO, None),
        ("/camera/h264/tr", IMU, None),
        ("/lidar/tr", VIDEO, None),
    ],
)
def test_tiles_are_known_by_name_and_type(topic, schema, whole):
    assert find_whole(topic, schema) == whole


def test_topics_of_tiles_are_one():
    topics = {f"/camera/h264/{name}": VIDEO for name in ALL.split()} | {"/imu": IMU}
    recording = SimpleNamespace(path=None, topics=topics)
    assert TiledRecording(recording).topics == {TOPIC: TILED, "/imu": IMU}


def test_a_message_with_a_missing_tile_is_none():
    message = Message(TOPIC, TILED, 0, 0, 0, join_tiles(0, [None] * 4))
    with pytest.raises(MessageError, match="a tile is missing: /camera/h264/tl: tl"):
        decode(message)


def test_a_recording_of_tiles_has_one_topic_whose_messages_are_the_stamps(tmp_path):
    path = tmp_path / "drive.mcap"
    sent = [tile(n, name, at) for name, n, at in frames(0, 1, 2, without={("br", 1)})]
    other = [Message("/imu", IMU, 5 * MS + n, 0, n, bytes(12)) for n in range(2)]
    with open(path, "wb") as file:
        writer = Writer(file)
        writer.start(profile="", library="test")
        channels = {}
        for m in sorted((*sent, *other), key=lambda m: m.log_time):
            if m.topic not in channels:
                schema = writer.register_schema(m.schema, "ros2msg", b"")
                channels[m.topic] = writer.register_channel(m.topic, "cdr", schema)
            writer.add_message(channels[m.topic], m.log_time, m.data, m.publish_time, m.sequence)
        writer.finish()
    recording = TiledRecording(McapRecording(path))
    walked = [(m.topic, m.schema) for m in recording.walk()]
    assert sorted(walked) == [(TOPIC, TILED)] * 3 + [("/imu", IMU)] * 2
    assert recording.topics == {TOPIC: TILED, "/imu": IMU}
    there_are = sorted((c.topic, c.schema, c.seen) for c in recording.channels.values())
    assert there_are == [(TOPIC, TILED, 3), ("/imu", IMU, 2)]
    assert [file.path for file in recording.files] == [path]
    assert recording.damage == []
    read = [(read_header_stamp(m) // MS, there(m)) for m in recording.iter_messages([TOPIC])]
    assert read == [(0, ALL), (10, "tl tr bl "), (20, ALL)]
    assert [m.topic for m in recording.iter_messages(["/imu"])] == ["/imu"] * 2
    assert [m.topic for m in recording.iter_messages({TOPIC: TILED}, start=20 * MS)] == [TOPIC]


def test_tiles_of_b_frames_are_joined_in_decode_order():
    order = [0, 3, 1, 2, 6, 4, 5]
    sent = [(name, number, 10 * n) for number, n in enumerate(order) for name in ALL.split()]
    assert joined(*sent) == [(10 * n, number, ALL) for number, n in enumerate(order)]
    without = [one for one in sent if one != ("bl", 2, 10)]
    assert [tiles for _, _, tiles in joined(*without)] == [ALL, ALL, "tl tr  br", *[ALL] * 4]


@pytest.mark.parametrize("stamps", [(4000, 4010, 0, 10), (0, 1500, 3000, 0, 1500, 3000)])
@pytest.mark.parametrize("behind", [False, True])
def test_a_clock_set_back_costs_no_tile(stamps, behind):
    """Also where the same stamps come again, as a recording that is played in a loop has them."""
    sent = [(name, n, at) for n, at in enumerate(stamps) for name in ALL.split()]
    if behind:  # the last tile of each picture comes after the first one of the next
        for last in range(3, len(sent) - 1, 4):
            sent[last : last + 2] = sent[last + 1], sent[last]
    assert [(at, tiles) for at, _, tiles in joined(*sent)] == [(at, ALL) for at in stamps]


def test_a_tile_later_than_the_wait_joins_no_other_stamp():
    held = [("tl", n, 10 * n) for n in range(300)] + [("tr", n, 10 * n) for n in range(300)]
    late = [(name, n, 10 * n) for n in range(300) for name in ("bl", "br")]
    found = joined(*held, *late, *frames(300, 301))
    assert found[-2:] == [(3000, found[-2][1], ALL), (3010, found[-1][1], ALL)]
    assert sum(tiles == ALL for _, _, tiles in found) >= 200
