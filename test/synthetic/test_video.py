# SPDX-License-Identifier: Apache-2.0
"""Video decoded by FFmpeg's decoders: each picture's bar code is the index of its stamp."""

import av
import numpy as np
import pytest
from read_back import Read, nanoseconds, pictures, still
from streams import read_bar_code

from edgefirst_ros.synthetic import Recipe, write_recording

SMALL = {"seconds": 2.0, "size": (320, 180), "fps": 15.0, "gop": 10, "topics": {"camera"}}


def video(tmp_path, **values):
    recipe = Recipe(**SMALL | values)
    truth = write_recording(tmp_path / "video.mcap", recipe)
    return truth, Read(truth.path).messages(truth.recipe.topic("camera"))


def nal_types(unit, codec):
    data = bytes(unit.data)
    heads = [part[0] for part in data.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1")[1:]]
    return [head & 31 if codec == "h264" else head >> 1 & 63 for head in heads]


@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"b_frames": 2},
        {"b_frames": 3, "open_gop": True},
        {"bitrate": 300_000, "noise": 6.0},
        {"parameter_sets_once": True},
        {"leading_packet": True},
        {"quantiser": 38, "full_range": True, "matrix": "bt601"},
    ],
    ids=lambda values: "-".join(values) or "plain",
)
def test_bar_codes_are_the_indices_of_their_stamps(tmp_path, codec, values):
    truth, units = video(tmp_path, codec=codec, **values)
    found = pictures(units, codec, refused={0} if "leading_packet" in values else ())
    assert {stamp: read_bar_code(rgb) for stamp, rgb in found.items()} == {
        truth.recipe.stamp("camera", index): index for index in range(30)
    }
    assert all(truth.frame(stamp) == read_bar_code(rgb) for stamp, rgb in found.items())
    assert {unit.format for unit in units} == {codec}


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_b_frames_come_in_decode_order(tmp_path, codec):
    truth, units = video(tmp_path, codec=codec, b_frames=2)
    stamps = [nanoseconds(unit.timestamp) for unit in units]
    assert stamps != sorted(stamps)
    assert sorted(stamps) == [truth.recipe.stamp("camera", index) for index in range(30)]
    records = Read(truth.path).records(truth.recipe.topic("camera"))
    assert [r.log_time for r in records] == sorted(r.log_time for r in records)
    assert all(r.log_time > r.publish_time for r in records)


@pytest.mark.parametrize(("codec", "sets"), [("h264", {7, 8}), ("h265", {32, 33, 34})])
def test_parameter_sets_repeat_or_come_once_or_ahead(tmp_path, codec, sets):
    def carrying(**values):
        _, units = video(tmp_path, codec=codec, **values)
        return len(units), [number for number, unit in enumerate(units) if sets <= set(nal_types(unit, codec))]

    assert carrying() == (30, [0, 10, 20])
    assert carrying(parameter_sets_once=True) == (30, [0])
    assert carrying(leading_packet=True) == (31, [0])
    _, units = video(tmp_path, codec=codec, leading_packet=True)
    assert set(nal_types(units[0], codec)) == sets
    assert nanoseconds(units[0].timestamp) < nanoseconds(units[1].timestamp)


@pytest.mark.parametrize(("codec", "closed", "opened"), [("h264", 5, 1), ("h265", 20, 21)])
def test_open_gops_have_no_idr_after_the_first(tmp_path, codec, closed, opened):
    def heads(**values):
        _, units = video(tmp_path, codec=codec, b_frames=2, **values)
        return [set(nal_types(unit, codec)) & {5, 19, 20, 21} for unit in units]

    assert sum(bool(head) for head in heads()) == 3
    again = heads(open_gop=True)
    assert sum(bool(head & ({5} if codec == "h264" else {19, 20})) for head in again) == 1
    assert sum(21 in head for head in again) == (0 if codec == "h264" else 2)


@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize(("matrix", "number", "full"), [("bt709", 1, False), ("bt601", 6, True)])
def test_colour_is_declared_and_true(tmp_path, codec, matrix, number, full):
    """The decoded planes against the equations of BT.601 and BT.709, at a spot of one colour."""
    truth, units = video(tmp_path, codec=codec, matrix=matrix, full_range=full, quantiser=10, seconds=0.2)
    decoder = av.CodecContext.create({"h264": "h264", "h265": "hevc"}[codec], "r")
    frames = [f for unit in units for f in decoder.decode(av.Packet(bytes(unit.data)))] + decoder.decode(None)
    frame = frames[0]
    assert (frame.colorspace, frame.color_range) == (number, 2 if full else 1)
    planes = frame.to_ndarray()
    rgb = truth.painter.picture(0)[20:60, 40:80].reshape(-1, 3).mean(axis=0)
    kr, kb = (0.2126, 0.0722) if matrix == "bt709" else (0.299, 0.114)
    luma = rgb @ [kr, 1 - kr - kb, kb]
    cb, cr = (rgb[2] - luma) / (2 - 2 * kb), (rgb[0] - luma) / (2 - 2 * kr)
    expected = [luma, 128 + cb, 128 + cr] if full else [
        16 + luma * 219 / 255, 128 + cb * 224 / 255, 128 + cr * 224 / 255,
    ]  # fmt: skip
    got = [planes[20:60, 40:80].mean()]
    got += [planes[180 + 45 * n : 225 + 45 * n].reshape(90, 160)[10:30, 20:40].mean() for n in range(2)]
    assert got == pytest.approx(expected, abs=1.5)


def test_start_in_gop_leaves_out_the_head(tmp_path):
    truth, units = video(tmp_path, start_in_gop=4)
    assert nanoseconds(units[0].timestamp) == truth.recipe.stamp("camera", 4)
    assert len(units) == truth.counts["camera"] == 26
    assert not any(5 in nal_types(unit, "h264") for unit in units[:6])
    assert [r.sequence for r in Read(truth.path).records("/camera/h264")] == list(range(26))


@pytest.mark.parametrize("gaps", [True, False])
def test_dropped_messages_are_not_there_and_show_in_the_sequence_or_not(tmp_path, gaps):
    truth, units = video(tmp_path, drop_video={12, 13}, sequence_gaps=gaps)
    left = [index for index in range(30) if index not in (12, 13)]
    assert [nanoseconds(unit.timestamp) for unit in units] == [truth.recipe.stamp("camera", index) for index in left]
    sequence = [r.sequence for r in Read(truth.path).records("/camera/h264")]
    assert sequence == (left if gaps else list(range(28)))


@pytest.mark.parametrize("codec", ["jpeg", "png"])
def test_stills(tmp_path, codec):
    truth, images = video(tmp_path, codec=codec, seconds=0.5)
    assert [image.format for image in images] == [codec] * 8
    for index, image in enumerate(images):
        assert read_bar_code(still(image.data)) == index
        assert nanoseconds(image.header.stamp) == truth.recipe.stamp("camera", index)
        difference = still(image.data).astype(int) - truth.painter.picture(index)
        assert np.abs(difference).mean() < (3 if codec == "jpeg" else 1e-9)


@pytest.mark.parametrize("encoding", ["rgb8", "bgr8", "mono8", "yuv422", "nv12"])
def test_raw_pictures_as_opencv_reads_them(tmp_path, encoding):
    import cv2

    truth, images = video(tmp_path, codec=encoding, seconds=0.5, matrix="bt601")
    assert truth.recipe.topic("camera") == "/camera/image"
    shape = {"rgb8": (180, 320, 3), "bgr8": (180, 320, 3), "yuv422": (180, 320, 2), "nv12": (270, 320)}
    code = {
        "bgr8": cv2.COLOR_BGR2RGB, "mono8": cv2.COLOR_GRAY2RGB, "yuv422": cv2.COLOR_YUV2RGB_UYVY,
        "nv12": cv2.COLOR_YUV2RGB_NV12,
    }  # fmt: skip
    for index, image in enumerate(images):
        assert (image.encoding, image.width, image.height) == (encoding, 320, 180)
        array = image.data.reshape(shape.get(encoding, (180, 320)))
        assert image.step == array.nbytes // len(array)
        rgb = cv2.cvtColor(array, code[encoding]) if encoding in code else array
        assert read_bar_code(rgb) == index
        expected = truth.painter.picture(index)
        if encoding == "mono8":
            expected = cv2.cvtColor(cv2.cvtColor(expected, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
        assert np.abs(rgb.astype(int) - expected).mean() < 2
