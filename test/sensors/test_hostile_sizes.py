# SPDX-License-Identifier: Apache-2.0
"""Nothing is allocated for a size that only a message claims, and what is over a limit says which."""

import io

import numpy as np
import pytest
from edgefirst.schemas import edgefirst_msgs, sensor_msgs, std_msgs
from PIL import Image
from streams import Judge, Numbered, Pictures, stream
from test_cloud import LIDAR, encoded
from test_cloud import message as cloud
from test_pictures import compressed, raw

from edgefirst_ros.counts import DAMAGED
from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import Limits
from edgefirst_ros.sensors.cloud import check_cloud, decode_cloud
from edgefirst_ros.sensors.companions import CODECS
from edgefirst_ros.sensors.cube import check_cube
from edgefirst_ros.sensors.picture import Picture, PictureEncoder
from edgefirst_ros.sensors.video.reader import VideoReader
from edgefirst_ros.streams import COMPRESSED_IMAGE, IMAGE

HEADER = std_msgs.Header(frame_id="")


def gray(encoding):
    size = 2 if encoding == "mono16" else 1
    return sensor_msgs.Image(HEADER, 3, 4, encoding, 0, 4 * size, np.zeros(12 * size, np.uint8))


def cube():
    return edgefirst_msgs.RadarCube(
        header=HEADER,
        timestamp=0,
        layout=bytes([1, 2]),
        shape=np.array([3, 4], np.uint16).tobytes(),
        scales=np.ones(2, np.float32).tobytes(),
        cube=bytes(24),
        is_complex=False,
    )


@pytest.mark.parametrize(
    ("check", "content", "limit"),
    [
        (check_cube, cube, "cube_values"),
        (check_cloud, lambda: cloud(LIDAR, 6, 2, 13, bytes(13 * 12)), "cloud_points"),
        (CODECS["lidar.depth"].check, lambda: gray("mono16"), "picture_pixels"),
        (CODECS["lidar.reflect"].check, lambda: gray("mono8"), "picture_pixels"),
    ],
)
def test_twelve_values_pass_a_limit_of_twelve_only(check, content, limit):
    check(content(), Limits(**{limit: 12}))
    with pytest.raises(MessageError, match=rf"more than 11 \(limits\.{limit}\)") as caught:
        check(content(), Limits(**{limit: 11}))
    assert caught.value.reason == "cannot be stored"


def still(form):
    file = io.BytesIO()
    Image.new("RGB", (4, 3)).save(file, form)
    return compressed(file.getvalue())


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        (COMPRESSED_IMAGE, still("JPEG")),
        (COMPRESSED_IMAGE, still("PNG")),
        (IMAGE, raw(np.zeros((3, 4, 3), np.uint8))),
    ],
    ids=["jpeg", "png", "raw"],
)
def test_stills_of_twelve_pixels_pass_a_limit_of_twelve_only(schema, content):
    found = []
    for pixels in (12, 11):
        limits = Limits(picture_pixels=pixels)
        pictures = Pictures(schema, PictureEncoder("jpeg", 90), limits=limits)
        pictures.push(0, content)
        found.append(pictures.take(0, last=True))
    assert isinstance(found[0], Picture)
    assert isinstance(found[1], MessageError)
    assert "4 x 3 pixels, more than 11" in str(found[1])


@pytest.mark.parametrize("kind", ["h264", "h265"])
def test_video_over_the_limit_is_not_decoded(kind):
    """The coded picture counts: 96 lines are a multiple of 16, so it has just the pixels that are shown."""
    made = stream(kind)
    for pixels, fine in ((128 * 96, True), (128 * 96 - 1, False)):
        reader, judge = Numbered(VideoReader, made.codec, limits=Limits(picture_pixels=pixels)), Judge(made.codec)
        for number, unit in enumerate(made.units[:3]):
            reader.push(number, judge.unit(unit))
        found = [reader.picture(number, last=True) for number in range(3)]
        assert all(isinstance(picture, str) is not fine for picture in found)
        assert fine or found[0] == DAMAGED


def test_the_limit_reaches_the_decoder_from_the_settings(recording):
    from edgefirst_ros import convert
    from edgefirst_ros.errors import RecordingError

    path = recording(seconds=0.2, size=(128, 64), lidar_points=10, cube_shape=(1, 4, 2, 8))
    with pytest.raises(RecordingError, match=DAMAGED):
        convert(path, path.parent / "out", limits={"picture_pixels": 100})


def test_text_of_a_large_cloud_is_made_in_pieces():
    """Of more points than a piece has, the last of them alone in theirs."""
    points = (1 << 14) + 1
    table = np.random.default_rng(3).random((points, 1)).astype("<f4")
    found = decode_cloud(encoded(cloud([("x", 0, 7, 1)], points, 1, 4, table.tobytes()), "ascii"))
    assert np.array_equal(found["x"], table[:, 0])
