# SPDX-License-Identifier: Apache-2.0
"""4K pictures from four streams: each tile in its place and of its stamp, all four or none."""

import functools

import pytest
from edgefirst.schemas import builtin_interfaces, foxglove_msgs
from live_system import System
from mcap_files import Sent, write
from same_dataset import adds_up, assert_same_dataset, counts_of
from streams import X264, encode, painted, read_bar_code

from edgefirst_ros import Dataset, convert, merge
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.pipeline.capture_session import CaptureSession
from edgefirst_ros.sources.live import Settling
from edgefirst_ros.sources.mcap import McapRecording

TILES = ("tl", "tr", "bl", "br")
FRAMES, GOP = 24, 12
START, STEP = 1_700_000_000_000_000_000, 66_666_667
WHOLE = "/camera/h264/tl"


@functools.cache
def units(tile):
    """Access units whose pictures say which tile they are of, and their number: 64 * tile + number."""
    paint = lambda index, size: painted(index + 64 * tile, size)  # noqa: E731
    return [data for _, data in encode("h264", f"{X264}bframes=0", FRAMES, paint=paint)]


def record(path, without=(), more=()):
    """A recording of the four streams but for some (tile, number)."""
    messages = []
    for number in range(FRAMES):
        stamp = START + number * STEP
        for tile, name in enumerate(TILES):
            if (tile, number) in without:
                continue
            data = units(tile)[number]
            time = builtin_interfaces.Time(*divmod(stamp, 10**9))
            video = foxglove_msgs.CompressedVideo(time, "camera", data, "h264").to_bytes()
            messages.append(Sent(f"/camera/h264/{name}", stamp + tile * 1000, number, bytes(video), stamp))
    write(path, [*messages, *more], schema="foxglove_msgs/msg/CompressedVideo")
    return path


def shown(sample):
    """What the four quarters of a picture say: 64 * tile + number."""
    picture = sample.image()
    height, width = (length // 2 for length in picture.shape[:2])
    assert (width, height) == (128, 96)
    quarters = [picture[y : y + height, x : x + width] for y in (0, height) for x in (0, width)]
    return [read_bar_code(quarter) for quarter in quarters]


def expected(number):
    return [64 * tile + number for tile in range(4)]


def test_a_missing_tile_is_a_loss_of_its_picture_and_of_those_that_refer_to_it(tmp_path):
    outcome = convert(record(tmp_path / "drive.mcap", without={(2, 5)}), tmp_path / "out")
    assert outcome.exit_code == 3
    samples = [*Dataset(outcome.paths.container).samples()]
    assert [sample.frame for sample in samples] == [*range(5), *range(GOP, FRAMES)]
    assert all(shown(sample) == expected(sample.frame) for sample in samples)
    dropped = dict(outcome.counts.topics[WHOLE].dropped)
    assert dropped == {"a tile is missing": 1, "after a loss, before the next keyframe": GOP - 6}
    assert outcome.counts.topics[WHOLE].seen == FRAMES


def test_a_stream_of_the_whole_picture_goes_before_its_tiles(tmp_path):
    whole = [
        Sent("/camera/h264", START + n * STEP, n, bytes(foxglove_msgs.CompressedVideo(
            builtin_interfaces.Time(*divmod(START + n * STEP, 10**9)), "camera", units(0)[n], "h264").to_bytes()))
        for n in range(GOP)
    ]  # fmt: skip
    outcome = convert(record(tmp_path / "drive.mcap", more=whole), tmp_path / "out")
    assert outcome.samples == GOP
    assert next(iter(Dataset(outcome.paths.container).samples())).image().shape == (96, 128, 3)


# ---- live --------------------------------------------------------------------------------------
class Live:
    """A capture session whose system has the four topics of a recording, under these names."""

    def __init__(self, path, out, prefix):
        recording = McapRecording(path)
        self.messages = list(recording.iter_messages())
        self.system = System(names={topic: f"{prefix}{topic[1:]}" for topic in recording.topics})
        self.system.offers = dict(recording.topics)
        live = LiveSettings(out=str(out), sequence="drive", min_free_bytes=0, fsync=False)
        self.session = CaptureSession(self.system, Settings(jobs=2), live, "wagon", self.system)
        self.session.activate()
        self.session.refresh()

    def play(self):
        for message in self.messages:
            self.system.send(self.system.names[message.topic], message.data, message.sequence + 1)
        self.session.refresh()
        self.session.deactivate()
        return self.session.exit_code


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["first", "last"])
@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_drive_of_tiles_joins_one_of_a_single_stream(tmp_path, layout, order):
    """Without a merge and merged: the pictures of both."""
    tiles = convert(record(tmp_path / "tiles.mcap"), tmp_path, layout=layout)
    video = foxglove_msgs.CompressedVideo(builtin_interfaces.Time(START // 10**9, 0), "camera", units(0)[0], "h264")
    write(
        tmp_path / "one.mcap",
        [Sent("/camera/h264", START, 0, bytes(video.to_bytes()), START)],
        schema="foxglove_msgs/msg/CompressedVideo",
    )
    one = convert(tmp_path / "one.mcap", tmp_path, layout=layout)
    first, second = (Dataset(made.paths.container) for made in (tiles, one)[order])
    merge([first.paths.container, second.paths.container], tmp_path / "merged", name="both")
    for both in (first + second, first[:FRAMES] + second[:FRAMES], Dataset(tmp_path / "merged" / "both.zip")):
        found = {name: [sample for sample in both if sample.name == name] for name in ("tiles", "one")}
        assert [shown(sample) for sample in found["tiles"]] == [expected(number) for number in range(FRAMES)]
        assert [read_bar_code(sample.image()) for sample in found["one"]] == [0]


@pytest.mark.parametrize("without", [set(), {(3, 7)}, {(tile, 7) for tile in range(4)}])
def test_a_capture_joins_tiles_as_a_conversion_does(tmp_path, monkeypatch, without):
    monkeypatch.setattr(Settling, "QUIET", 0.0)
    path = record(tmp_path / "drive.mcap", without)
    live = Live(path, tmp_path / "live", "rt/")
    facts = live.session.status()
    assert list(facts["topics"]) == ["rt/camera/h264/tl"]
    code = live.play()
    outcome = convert(path, tmp_path / "offline")
    assert code == outcome.exit_code == (3 if without else 0)
    if len(without) < 4:
        assert_same_dataset(tmp_path / "live", tmp_path / "offline", "drive")
    counts = counts_of(tmp_path / "live" / "drive.frames.arrow")[WHOLE]
    assert adds_up(counts)
    assert counts["seen"] == FRAMES
    assert counts["dropped"].get("lost on the way", 0) == (len(without) == 4)
