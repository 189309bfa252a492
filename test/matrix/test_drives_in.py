# SPDX-License-Identifier: Apache-2.0
"""Every container of a drive with every picture source: the same samples, and every message accounted for."""

from dataclasses import replace

import pytest
from bags import bag, messages, renumbered, write
from mcap.writer import CompressionType
from mcap_files import chunks
from same_dataset import adds_up
from written import members, rows

from edgefirst_ros import Dataset, convert

SMALL = {"seconds": 2.5, "fps": 20.0, "gop": 12, "size": (128, 64), "lidar_points": 20}
TOPICS = {"camera", "lidar/points", "gps", "imu", "camera/info", "tf_static"}
SOURCES = ("b-frames", "jpeg", "tiles")
TILES = ("tl", "tr", "bl", "br")
SECOND = 10**9


def tiled(found):
    """The camera's messages as four tiles that all show it."""
    changed = []
    for schema, channel, message in found:
        if channel.topic != "/camera/h264":
            changed.append((schema, channel, message))
            continue
        changed += [(schema, replace(channel, topic=f"/camera/h264/{tile}"), message) for tile in TILES]
    return changed


@pytest.fixture(scope="module", params=SOURCES)
def drive(request, recording, tmp_path_factory):
    """Messages of a drive, and the conversion of the file that holds all of them."""
    kind = request.param
    codec = "jpeg" if kind == "jpeg" else "h264"
    more = {"b_frames": 2, "open_gop": True} if kind == "b-frames" else {}
    found = messages(recording(codec=codec, topics=TOPICS, **SMALL, **more))
    found = tiled(found) if kind == "tiles" else found
    folder = tmp_path_factory.mktemp(kind)
    whole = write(folder / "drive.mcap", found, compression=CompressionType.NONE)
    outcome = convert(whole, folder / "out")
    assert (outcome.exit_code, outcome.samples) == (0, 50)
    return found, outcome


def camera(outcome):
    """Topic of the camera, and its counts."""
    topic = next(topic for topic in outcome.counts.topics if topic.startswith(("/camera/h264", "/camera/jpeg")))
    return topic, outcome.counts.plain()[topic]


def one_file(path, found, **options):
    return write(path / "drive.mcap", found, **options)


def folder_of(path, found, **options):
    return bag(path / "drive", found, [len(found) // 3, 2 * len(found) // 3 + 1], **options)


def joined(path, found, *, reverse=False, **options):
    folder = folder_of(path / "parts", found, **options)
    first, *more = sorted(folder.glob("*.mcap"))
    first = first.rename(folder / "drive.mcap")
    return [first, *(more[::-1] if reverse else more)]


CONTAINERS = {
    "lz4": lambda path, found: one_file(path, found, compression=CompressionType.LZ4),
    "zstd": lambda path, found: one_file(path, found, compression=CompressionType.ZSTD),
    "without chunks": lambda path, found: one_file(path, found, use_chunking=False),
    "numbered by nothing": lambda path, found: one_file(path, [(s, c, replace(m, sequence=0)) for s, c, m in found]),
    "rosbag2 folder": folder_of,
    "rosbag2 folder, each file numbered from 0": lambda path, found: folder_of(path, found, fresh=True),
    "joined": joined,
    "joined, each file numbered from 0": lambda path, found: joined(path, found, fresh=True),
    "joined in another order": lambda path, found: joined(path, found, reverse=True),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_gives_the_same_samples(drive, container, tmp_path):
    found, expected = drive
    given = CONTAINERS[container](tmp_path, found)
    outcome = convert(given, tmp_path / "out", join=isinstance(given, list))
    assert outcome.exit_code == 0
    assert members(outcome) == members(expected)
    assert rows(outcome.paths.frames) == rows(expected.paths.frames)
    assert outcome.counts.plain() == expected.counts.plain()
    assert adds_up(camera(outcome)[1])


def test_messages_out_of_order_in_the_file_change_nothing(drive, tmp_path):
    found, expected = drive
    groups = [found[n : n + 10][::-1] for n in range(0, len(found), 10)]
    outcome = convert(one_file(tmp_path, [item for group in groups for item in group]), tmp_path / "out")
    assert members(outcome) == members(expected)
    assert rows(outcome.paths.frames) == rows(expected.paths.frames)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("given_as", ["folder", "join"])
def test_messages_that_two_files_hold_count_once(drive, given_as, fresh, tmp_path):
    found, expected = drive
    given = (folder_of if given_as == "folder" else joined)(tmp_path, found, overlap=30, fresh=fresh)
    outcome = convert(given, tmp_path / "out", join=given_as == "join")
    assert outcome.exit_code == 0
    assert members(outcome) == members(expected)
    assert rows(outcome.paths.frames) == rows(expected.paths.frames)
    topic, count = camera(outcome)
    assert adds_up(count)
    twice = {t: c["dropped"].get("recorded twice", 0) for t, c in outcome.counts.plain().items()}
    if topic != "/camera/h264/tl":  # tiles are counted by stamps
        assert sum(twice.values()) == 60
        assert count["seen"] == 50 + twice[topic]
        assert twice[topic] > 0


@pytest.mark.parametrize("pause", [False, True])
def test_a_publisher_that_is_started_again_is_no_loss_unless_its_stamps_leave_a_gap(drive, pause, tmp_path):
    """Its numbers count from 300, then from 0 again; with a `pause` the two pictures before that are not there."""
    found, expected = drive
    topic, _ = camera(expected)
    cut = [n for n, (_, channel, _) in enumerate(found) if channel.topic == topic][30]
    before = renumbered(found[:cut], 300)
    if pause:
        stop = [n for n, (_, channel, _) in enumerate(before) if channel.topic == topic][28]
        before = [item for n, item in enumerate(before) if n < stop or not item[1].topic.startswith("/camera/")]
    again = [*before, *renumbered(found[cut:], 0)]
    outcome = convert(one_file(tmp_path, again), tmp_path / "out")
    frames = [sample.timestamp for sample in Dataset(outcome.paths.container)]
    assert frames == sorted(frames)
    _, count = camera(outcome)
    assert adds_up(count)
    assert len(Dataset(outcome.paths.container)[0:200]) == outcome.samples
    if not pause:
        assert outcome.exit_code == 0
        assert members(outcome) == members(expected)
    elif topic == "/camera/h264":
        # the pictures that refer to those that were lost
        assert outcome.exit_code == 3
        assert count["dropped"].keys() == {"after a loss, before the next keyframe"}
    assert "the clock was stepped" not in "".join(outcome.notes)


def test_a_loss_within_a_file_is_still_one(drive, tmp_path):
    """Behind the seam numbers step forward by more than one."""
    found, expected = drive
    topic, _ = camera(expected)
    places = [n for n, (_, channel, _) in enumerate(found) if channel.topic == topic]
    lost = places[28]
    kept = [item for n, item in enumerate(renumbered(found)) if not lost <= n <= lost + 3 or item[1].topic != topic]
    folder = bag(tmp_path / "drive", kept, [places[14]])
    outcome = convert(folder, tmp_path / "out")
    _, count = camera(outcome)
    assert adds_up(count)
    if topic == "/camera/h264":
        assert outcome.exit_code == 3
        assert count["seen"] == 49


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD])
def test_a_cut_file_gives_what_is_whole(drive, compression, tmp_path):
    found, expected = drive
    path = one_file(tmp_path, found, chunk_size=4096, compression=compression)
    data = path.read_bytes()
    last = chunks(data)[len(chunks(data)) * 2 // 3]
    path.write_bytes(data[: (last.body + last.end) // 2])
    outcome = convert(path, tmp_path / "out")
    assert outcome.exit_code == 3
    whole = members(expected)
    pictures = {name: data for name, data in members(outcome).items() if ".camera." in name}
    assert 20 < len(pictures) < 50
    for name, data in pictures.items():  # what stands before the tables may lack a position, which needs the next fix
        assert data[data.index(b"\xff\xdb") :] == whole[name][whole[name].index(b"\xff\xdb") :]
    assert adds_up(camera(outcome)[1])
    assert any("is cut" in note for note in outcome.notes)
