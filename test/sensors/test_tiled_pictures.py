# SPDX-License-Identifier: Apache-2.0
"""Pictures of four streams message by message: when they come, which have none and why."""

import functools

import av
import pytest
from streams import X264, Pictures, encode, painted, stream

from edgefirst_ros.counts import AFTER_LOSS, CANNOT_BE_STORED, UNDECODABLE
from edgefirst_ros.limits import Limits
from edgefirst_ros.sensors.picture import Picture, PictureEncoder
from edgefirst_ros.sensors.pictures import TiledMessage, VideoParser, join_pictures
from edgefirst_ros.streams import TILED

B_FRAMES = stream("h264-b")


@functools.cache
def units(tile, size=(128, 96)):
    """Access units whose pictures say which tile they are of, and their number: 64 * tile + number."""
    paint = lambda index, size: painted(index + 64 * tile, size)  # noqa: E731
    return [data for _, data in encode("h264", f"{X264}bframes=0", 4, size=size, paint=paint)]


class Camera:
    """Pictures of four streams, each of which is parsed by itself."""

    def __init__(self, form="jpeg", limits=None):
        self.parsers = [VideoParser() for _ in range(4)]
        encoder = PictureEncoder(form, 90)
        self.pictures = Pictures(TILED, encoder, limits=limits or Limits())

    def push(self, number, tiles, forms=("h264",) * 4):
        parsed = [p.parse(form, data) for p, form, data in zip(self.parsers, forms, tiles, strict=True)]
        self.pictures.push(number, TiledMessage(tuple(parsed)))

    def take(self, number, last=False):
        return self.pictures.take(number, last=last)


@pytest.fixture
def camera():
    made = []

    def make(**given):
        made.append(Camera(**given))
        return made[-1]

    yield make
    for one in made:
        one.pictures.close()


def test_tiles_of_the_format_of_hardware_are_joined_without_the_padding_of_their_rows():
    """NV12 has the two colours of a pixel beside each other, in a plane of half the size; 36 bytes a row are padded."""
    tiles = []
    for number in range(4):
        tile = av.VideoFrame(36, 4, "nv12")
        for plane, colour in zip(tile.planes, (number, 100 + number), strict=True):
            plane.update(bytes([colour]) * plane.buffer_size)
        assert tile.planes[0].line_size > 36
        tiles.append(tile)
    whole = join_pictures(tiles)
    lumas, colours = whole.to_ndarray()[:8], whole.to_ndarray()[8:]
    assert (whole.width, whole.height) == (72, 8)
    for plane, first, half in ((lumas, 0, 4), (colours, 100, 2)):
        assert [
            set(part.ravel()) for rows in (plane[:half], plane[half:]) for part in (rows[:, :36], rows[:, 36:])
        ] == [{first + number} for number in range(4)]


def test_a_picture_comes_once_each_of_its_tiles_has_come_out_of_its_decoder(camera):
    one = camera()
    one.push(0, [B_FRAMES.units[0]] * 4)
    assert one.take(0) is None  # B-frames may come before it: libavcodec holds it back
    one.push(1, [B_FRAMES.units[1]] * 4)
    assert one.take(0, last=True).size == (256, 192)


def test_tiles_that_are_waiting_go_with_a_picture_that_is_skipped(camera):
    one = camera()
    one.push(0, [units(0)[0], *[B_FRAMES.units[0]] * 3])
    assert one.take(0) is None  # one tile is there, three are not
    one.pictures.skip(0)
    one.push(1, [units(0)[1], *[B_FRAMES.units[1]] * 3])
    assert isinstance(one.take(1, last=True), Picture)


@pytest.mark.parametrize("forms", [("h264", "h264", "h265", "h264"), ("h264", "av1", "h264", "h264")])
def test_a_tile_of_another_codec_is_a_loss_of_its_picture_and_of_those_that_refer_to_it(camera, forms):
    one = camera()
    for number in range(3):
        one.push(number, [units(tile)[number] for tile in range(4)], forms if number == 1 else ("h264",) * 4)
    assert not one.pictures.keyframe(1)
    assert isinstance(one.take(0, last=True), Picture)
    assert [one.take(number, last=True).reason for number in (1, 2)] == [UNDECODABLE, AFTER_LOSS]


def test_tiles_of_different_sizes_are_no_picture(camera):
    one = camera()
    one.push(0, [units(0)[0], units(1)[0], units(2)[0], units(3, (64, 48))[0]])
    refused = one.take(0, last=True)
    assert refused.reason == CANNOT_BE_STORED
    assert "64 x 48 yuv420p, 128 x 96 yuv420p" in str(refused)


def test_the_limit_of_pixels_is_that_of_the_whole_picture(camera):
    for most, fits in ((256 * 192, True), (256 * 192 - 1, False)):
        one = camera(limits=Limits(picture_pixels=most))
        one.push(0, [units(tile)[0] for tile in range(4)])
        found = one.take(0, last=True)
        assert isinstance(found, Picture) == fits
        if not fits:
            assert found.reason == CANNOT_BE_STORED
            assert "256 x 192 pixels, more than 49151 (limits.picture_pixels)" in str(found)


def test_the_colours_of_the_whole_picture_are_those_of_its_first_tile():
    """BT.709 of full range; the other tiles say another form."""
    tiles = [av.VideoFrame(32, 16, "yuv420p") for _ in range(4)]
    for number, tile in enumerate(tiles):
        first = number == 0
        tile.colorspace, tile.color_range = (1, 2) if first else (5, 1)
        tile.color_primaries, tile.color_trc = (1, 1) if first else (5, 6)
    whole = join_pictures(tiles)
    assert (whole.width, whole.height) == (64, 32)
    assert (whole.colorspace, whole.color_range, whole.color_primaries, whole.color_trc) == (1, 2, 1, 1)
