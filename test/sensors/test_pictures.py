# SPDX-License-Identifier: Apache-2.0
"""Camera messages of every form to files: bar codes of video, stills byte for byte, the reason where there is none."""

from __future__ import annotations

import io

import numpy as np
import pytest
from edgefirst.schemas import builtin_interfaces, foxglove_msgs, sensor_msgs, std_msgs
from PIL import Image
from streams import Pictures, painted, read_bar_code, stream

from edgefirst_ros.counts import AFTER_LOSS, NO_PICTURE, UNDECODABLE
from edgefirst_ros.messages import Message
from edgefirst_ros.sensors.picture import Picture, PictureEncoder
from edgefirst_ros.sensors.pictures import VideoParser
from edgefirst_ros.streams import COMPRESSED_IMAGE, IMAGE, VIDEO


@pytest.fixture
def video():
    """Function that gives the next message of a camera as it comes to its pictures."""
    parse, stamp = VideoParser(), builtin_interfaces.Time(1, 0)

    def parsed(data, form="h264"):
        content = foxglove_msgs.CompressedVideo(stamp, "camera", np.frombuffer(data, np.uint8), form)
        return parse(Message("/camera/h264", VIDEO, 1, 1, 1, content.to_bytes()))

    return parsed


def compressed(data, form="jpeg"):
    return sensor_msgs.CompressedImage(std_msgs.Header(frame_id="camera"), form, np.frombuffer(data, np.uint8))


def raw(rgb, encoding="rgb8"):
    height, width, _ = rgb.shape
    return sensor_msgs.Image(std_msgs.Header(frame_id=""), height, width, encoding, 0, 3 * width, rgb.reshape(-1))


def made(schema, form="jpeg", keyframes_only=False):
    return Pictures(schema, PictureEncoder(form, 90), keyframes_only=keyframes_only)


def image(data):
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize(("kind", "form"), [("h264-b", "h264"), ("h265-open", "h265")])
@pytest.mark.parametrize("member", ["jpeg", "png"])
def test_video(kind, form, member, video):
    units = stream(kind)
    pictures = made(VIDEO, member)
    for n, data in enumerate(units.units):
        pictures.push(n, video(data, form))
    assert [n for n in range(40) if pictures.keyframe(n)] == ([0, 12, 24, 36] if form == "h264" else [0, 9, 21, 33])
    for n in units.shown:
        picture = pictures.take(n, last=True)
        assert (picture.kind, picture.size) == (f"camera.{member}", (128, 96))
        found = image(picture.encode())
        assert (found.format, found.size) == (member.upper(), (128, 96))
        assert read_bar_code(np.asarray(found)) == units.index[n]


def test_video_with_faults(video):
    units = stream("h264-b").units
    pictures = made(VIDEO)
    for unknown in (video(units[0], "vp9"), video(b"", "")):
        pictures.push(-2, unknown)
        assert not pictures.keyframe(-2)
        assert pictures.take(-2, last=False).reason == UNDECODABLE
    pictures.push(-1, video(b""))
    assert pictures.take(-1, last=False).reason == NO_PICTURE
    for n in range(5):
        pictures.push(n, video(units[n]))
    pictures.push(5, video(units[5], "h265"))
    pictures.push(6, video(units[6]))
    assert isinstance(pictures.take(0, last=False), Picture)
    for n in (1, 2, 3, 4):
        assert isinstance(pictures.take(n, last=True), Picture)
    assert [pictures.take(n, last=False).reason for n in (5, 6)] == [UNDECODABLE, AFTER_LOSS]
    pictures.push(12, video(units[12], " H264"))
    pictures.mark_gap()
    pictures.push(14, video(units[14]))
    assert isinstance(pictures.take(12, last=True), Picture)
    assert pictures.take(14, last=True).reason == AFTER_LOSS


def test_an_unreadable_message_is_a_loss(video):
    units = stream("h265-b").units  # nothing in H.265 itself says that one is missing
    pictures = made(VIDEO)
    for n, form in enumerate(["h265", "vp9", "h265"]):
        pictures.push(n, video(units[n], form))
    assert [pictures.take(n, last=True).reason for n in (1, 2)] == [UNDECODABLE, AFTER_LOSS]


def test_more_is_needed_or_not(video):
    units = stream("h264-b").units
    pictures = made(VIDEO)
    pictures.push(0, video(units[0]))
    assert pictures.take(0, last=False) is None
    assert isinstance(pictures.take(0, last=True), Picture)
    keyframes = made(VIDEO, keyframes_only=True)
    keyframes.push(0, video(units[0]))
    assert isinstance(keyframes.take(0, last=False), Picture)


def test_nothing_grows(video):
    """Of units that were taken or skipped their source keeps none, and they keep neither bytes nor pictures."""
    units = stream("h264-b").units
    pictures = made(VIDEO)
    for n in range(960):
        pictures.push(n, video(units[n % 36], "h264" if n % 36 != 7 else "vp9"))
        if n >= 10:
            pictures.skip(n - 10) if n % 3 else pictures.take(n - 10, last=True)
    held = [unit for unit in pictures.units.values() if unit.data or unit.outcome is not None or unit.before]
    assert len(held) <= 24


def test_stills_pass_through():
    pictures = made(COMPRESSED_IMAGE, "png")
    for n, form in enumerate(("JPEG", "PNG")):
        file = io.BytesIO()
        Image.fromarray(painted(n)).save(file, form)
        pictures.push(n, compressed(file.getvalue(), "whatever"))
        assert pictures.keyframe(n)
        picture = pictures.take(n, last=False)
        assert (picture.kind, picture.size) == (f"camera.{form.lower()}", (128, 96))
        assert bytes(picture.encode()) == file.getvalue()
        pictures.push(n, compressed(file.getvalue()[:-20]))
        assert pictures.take(n, last=False).reason == UNDECODABLE
    pictures.push(9, compressed(b""))
    pictures.mark_gap()
    assert pictures.take(9, last=False).reason == UNDECODABLE


def test_raw_images():
    pictures = made(IMAGE, "png")
    pictures.push(0, raw(painted(3)))
    pictures.push(1, raw(painted(4), "rgb16"))
    pictures.push(2, raw(painted(5)))
    pictures.skip(2)
    assert np.array_equal(np.asarray(image(pictures.take(0, last=False).encode())), painted(3))
    assert pictures.take(1, last=False).reason == "cannot be stored"
    assert pictures.units[2].content is None


def test_before_anything_was_pushed_there_is_no_note():
    pictures = made(VIDEO)
    pictures.mark_gap()
    assert pictures.note == ""


@pytest.mark.parametrize(
    ("decoder", "says"),
    [("v4l2m2m", "h264_v4l2m2m cannot be opened"), ("auto", "h264_v4l2m2m cannot be opened"), ("software", "")],
)
def test_without_a_hardware_decoder_software_decodes(decoder, says, video):
    """No machine that runs the tests has one; what hardware gives is not tested."""
    units = stream("h264-b")
    pictures = Pictures(VIDEO, PictureEncoder("jpeg", 90), keyframes_only=False, decoder=decoder)
    for n, data in enumerate(units.units):
        pictures.push(n, video(data))
    assert isinstance(pictures.take(0, last=True), Picture)
    assert says in pictures.note
    assert bool(says) == bool(pictures.note)
