# SPDX-License-Identifier: Apache-2.0
"""Headers of H.264 that libx264 does not write, put together bit by bit after ITU-T H.264 7.3."""

import itertools
import re

import pytest
from streams import Judge, Numbered, plainly, read, stream

from edgefirst_ros.counts import AFTER_LOSS, DAMAGED
from edgefirst_ros.sensors.video.bitstream import START_CODE, Bits
from edgefirst_ros.sensors.video.h264 import H264Headers
from edgefirst_ros.sensors.video.reader import VideoReader


def golomb(number):
    """An unsigned Exp-Golomb code (9.1): as many zeros as there are bits behind the first."""
    bits = format(number + 1, "b")
    return "0" * (len(bits) - 1) + bits


def nal_unit(first, bits):
    """A NAL unit with its start code, stop bit and emulation prevention (7.4.1)."""
    whole = bits + "1" + "0" * (-(len(bits) + 1) % 8)
    payload = bytes(int(whole[n : n + 8], 2) for n in range(0, len(whole), 8))
    return b"\0" + START_CODE + bytes([first]) + re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", payload)


def bits_of(nal):
    """The bits of a NAL unit behind its first byte, without stop bit."""
    payload = nal[1:].replace(b"\0\0\3", b"\0\0")
    return "".join(format(byte, "08b") for byte in payload).rstrip("0")[:-1]


def with_order_type_1(unit):
    """An access unit of order type 2, which says in its parameter set that it is of type 1.

    With delta_pic_order_always_zero_flag and a cycle of two reference pictures the slices are the same.
    """
    begin = unit.index(START_CODE + b"\x67") + len(START_CODE)
    end = unit.index(b"\0" + START_CODE, begin)
    bits = bits_of(unit[begin:end])
    head, at = 24, 24  # profile_idc, constraints and level_idc
    for _ in range(2):  # seq_parameter_set_id, log2_max_frame_num_minus4
        zeros = bits.index("1", at) - at
        at += 2 * zeros + 1
    assert bits[:8] == format(66, "08b")
    assert bits[at : at + 3] == golomb(2)
    cycle = "1" + golomb(4) + golomb(8) + golomb(2) + golomb(3) * 2  # se(v) of 2 is ue(v) of 3
    made = nal_unit(0x67, bits[:head] + bits[head:at] + golomb(1) + cycle + bits[at + 3 :])
    return unit[: begin - len(START_CODE) - 1] + made + unit[end:]


@pytest.fixture(scope="module")
def order_type_1():
    """A stream of order type 1 of which libavcodec makes the same pictures."""
    made = stream("h264-baseline")
    units = [with_order_type_1(unit) if START_CODE + b"\x67" in unit else unit for unit in made.units]
    found, complaints, _ = plainly("h264", dict(enumerate(units)))
    assert (found, complaints) == (dict(enumerate(made.pictures)), {})
    return units


def test_frame_numbers_are_found_behind_a_cycle_of_picture_orders(order_type_1):
    headers = H264Headers()
    pictures = [headers.read(unit).picture for unit in order_type_1]
    assert [picture.frame_number for picture in pictures] == [n % 12 for n in range(40)]
    assert {(picture.order, picture.field, picture.gaps_allowed) for picture in pictures} == {(None, False, False)}


def test_a_gap_in_the_frame_numbers_is_seen_with_any_order_type(order_type_1):
    messages = {n: unit for n, unit in enumerate(order_type_1) if n != 15}
    judge = Judge("h264")
    faults = {n: judge.unit(unit).fault for n, unit in messages.items()}
    assert [n for n, fault in faults.items() if fault == AFTER_LOSS] == list(range(16, 24))


def test_pictures_of_order_type_1_are_decoded(order_type_1):
    found = read(Numbered(VideoReader, "h264"), dict(enumerate(order_type_1)), range(40))
    assert found == dict(enumerate(stream("h264-baseline").pictures))


@pytest.mark.parametrize("plane", [0, 1, 2])
def test_the_frame_number_stands_behind_the_colour_plane(plane):
    """4:4:4 with separate_colour_plane_flag: each slice says first of which plane it is."""
    form = golomb(3) + "1" + golomb(0) + golomb(0) + "00"  # 4:4:4, separate planes, 8 bits, no scaling matrix
    orders = golomb(0) + golomb(2) + golomb(1) + "0"  # 4 bits of frame_num, order type 2, one reference, no gaps
    size = golomb(7) + golomb(5) + "1" + "100"
    sequence_set = nal_unit(0x67, format(244, "08b") + "0" * 8 + format(40, "08b") + golomb(0) + form + orders + size)
    picture_set = nal_unit(0x68, golomb(0) + golomb(0) + "1" + "0" + golomb(0))
    slice_head = golomb(0) + golomb(5) + golomb(0) + format(plane, "02b") + format(9, "04b")
    picture = H264Headers().read(sequence_set + picture_set + nal_unit(0x61, slice_head + "0" * 16)).picture
    assert (picture.frame_number, picture.frame_number_bits, picture.reference) == (9, 4, True)


@pytest.mark.parametrize("adaptive", ["0", "1"])
@pytest.mark.parametrize("field", ["0", "1"])
def test_fields_are_told_from_frames(field, adaptive):
    """frame_mbs_only_flag is 0 and mb_adaptive_frame_field_flag follows; the slice says whether it is a field."""
    orders = golomb(0) + golomb(2) + golomb(1) + "0"  # 4 bits of frame_num, order type 2, one reference, no gaps
    size = golomb(7) + golomb(5) + "0" + adaptive + "100"
    sequence_set = nal_unit(0x67, format(77, "08b") + "0" * 8 + format(40, "08b") + golomb(0) + orders + size)
    picture_set = nal_unit(0x68, golomb(0) + golomb(0) + "1" + "0" + golomb(0))
    slice_head = golomb(0) + golomb(5) + golomb(0) + format(9, "04b") + field
    picture = H264Headers().read(sequence_set + picture_set + nal_unit(0x61, slice_head + "0" * 16)).picture
    assert (picture.frame_number, picture.field) == (9, field == "1")


INTERLACED = nal_unit(  # 4 bits of frame_num and of order, order type 0, one reference, no gaps, fields
    0x67,
    format(77, "08b") + "0" * 8 + format(40, "08b") + golomb(0) + golomb(0) + golomb(0) + golomb(0) + golomb(1) + "0"
    + golomb(7) + golomb(5) + "00100",
) + nal_unit(0x68, golomb(0) + golomb(0) + "10" + golomb(0))  # fmt: skip


def coded(first, frame, field, order):
    """A slice of an interlaced picture up to its order; `field`: "0" of a frame, "10" and "11" of its fields."""
    number = golomb(1) if first == 0x65 else ""
    head = golomb(0) + golomb(7) + golomb(0) + format(frame, "04b") + field + number + format(order, "04b")
    return nal_unit(first, head + "0" * 16)


@pytest.mark.parametrize("first", [0x61, 0x65], ids=["", "IDR"])
@pytest.mark.parametrize("field", ["0", "10", "11"], ids=["frame", "top field", "bottom field"])
def test_the_order_of_a_picture_stands_behind_its_field(field, first):
    """bottom_field_flag follows field_pic_flag where that is 1, idr_pic_id in a picture that is an IDR."""
    picture = H264Headers().read(INTERLACED + coded(first, 9, field, 6)).picture
    assert (picture.field, picture.order, picture.order_bits) == (field != "0", 6, 4)


def test_two_fields_of_a_frame_have_one_number():
    """frame_num counts frames (7.4.3); those of frame 2 are lost."""
    judge, lost = Judge("h264"), []
    for frame, field in itertools.product((0, 1, 3), ("10", "11")):
        first = 0x65 if (frame, field) == (0, "10") else 0x61
        lost.append(judge.unit(INTERLACED + coded(first, frame, field, 2 * frame)).fault)
    assert lost == [None] * 4 + [AFTER_LOSS] * 2


def test_more_than_32_zeros_are_no_code():
    fewest = Bits(int("0" * 32 + "1" + "0" * 31 + "1" + "0" * 7, 2).to_bytes(9, "big"))
    assert fewest.golomb() == 2**32
    with pytest.raises(ValueError, match="no Exp-Golomb code"):
        Bits(bytes(9)).golomb()


def test_a_parameter_set_without_a_code_is_damage():
    made = stream("h264-b")
    judge = Judge("h264")
    assert judge.unit(made.units[0]).fault is None
    assert judge.unit(nal_unit(0x67, "0" * 200) + made.units[1]).fault == DAMAGED
