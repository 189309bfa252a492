# SPDX-License-Identifier: Apache-2.0
"""Headers of H.264 and H.265 against the order in which libx264 and libx265 say that pictures are shown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import KINDS, Judge, sets_of, stream

from edgefirst_ros.counts import AFTER_LOSS, BEFORE_KEYFRAME, DAMAGED, NO_PICTURE
from edgefirst_ros.sensors.video.bitstream import START_CODE, find_nal_units
from edgefirst_ros.synthetic.video import split_parameter_sets


def judged(made, left=None):
    """{number: AccessUnit}, only what the stream itself says."""
    track = Judge(made.codec)
    return {n: track.unit(made.units[n]) for n in (range(len(made.units)) if left is None else left)}


def heads(unit, codec):
    """(type, reference) of the NAL units with pictures, cut at start codes by hand."""
    parts = unit.replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1")[1:]
    if codec == "h264":
        return [(part[0] & 31, bool(part[0] & 0x60)) for part in parts if part[0] & 31 in (1, 5)]
    return [(part[0] >> 1 & 63, None) for part in parts if part[0] >> 1 & 63 < 32]


@pytest.mark.parametrize("kind", KINDS)
def test_whole_streams(kind):
    made = stream(kind)
    units = judged(made)
    entry, shown = 0, made.index
    for n, unit in units.items():
        first, reference = heads(made.units[n], made.codec)[0]
        assert unit.fault is None
        assert unit.keyframe == (first == 5 if made.codec == "h264" else 16 <= first <= 21)
        assert unit.closed == (first == 5 if made.codec == "h264" else 16 <= first <= 20)
        assert unit.entry >= unit.keyframe
        entry = n if unit.entry else entry
        if made.codec == "h264":
            assert unit.picture.reference == reference
            assert unit.leading == (shown[n] < shown[entry])
        else:
            assert unit.leading == (first in (8, 9))
            assert unit.leading <= (shown[n] < shown[entry])
            assert unit.picture.reference >= (first % 2 == 1 or unit.entry)
    expected = {"h264-open": 4, "h264-refresh": 1, "h264-endless": 1, "h265-refresh": 1, "h265-endless": 1}
    assert sum(unit.entry for unit in units.values()) == expected.get(kind, 4)
    assert any(unit.leading for unit in units.values()) == (
        kind in ("h264-open", "h265-open", "h265-once", "h265-422-10")
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("h264")])
def test_a_lost_reference_shows_in_frame_num(kind):
    made = stream(kind)
    whole = judged(made)
    for lost in range(1, len(made.units)):
        after = judged(made, [n for n in range(len(made.units)) if n != lost])
        again = next((n for n in range(lost + 1, len(made.units)) if whole[n].entry), len(made.units))
        between = {after[n].fault for n in range(lost + 1, again)}
        if whole[lost].entry and not whole[lost].keyframe:
            continue  # the SEI is lost with it; what follows is judged as if it belonged to the group before
        assert between <= ({AFTER_LOSS} if whole[lost].picture.reference else {None})
        assert {after[n].fault for n in range(again, len(made.units)) if not whole[n].leading} <= {None}


@pytest.mark.parametrize("kind", ["h264-open", "h265-open"])
def test_leading_pictures_need_the_group_before(kind):
    made = stream(kind)
    whole = judged(made)
    entries = [n for n, unit in whole.items() if unit.entry]
    started = judged(made, range(entries[1], len(made.units)))
    for n, unit in started.items():
        assert unit.fault == (BEFORE_KEYFRAME if unit.leading and n < entries[2] else None)
    leading = [n for n, unit in whole.items() if unit.leading and n < entries[2]]
    for last in (entries[1] - 1, leading[0]):  # lost before the entry, or between the leading pictures
        track = Judge(made.codec)
        faults = {}
        for n, data in enumerate(made.units):
            if n == last:
                track.mark_gap()
            else:
                faults[n] = track.unit(data).fault
        assert {faults[n] for n in leading if n != last} == {AFTER_LOSS}


@pytest.mark.parametrize("kind", ["h264-b", "h265-b"])
def test_what_is_said_of_a_loss(kind):
    made = stream(kind)
    track = Judge(made.codec)
    assert track.unit(made.units[5]).fault == BEFORE_KEYFRAME
    track.mark_gap()
    assert track.unit(made.units[6]).fault == BEFORE_KEYFRAME
    assert track.unit(made.units[12]).fault is None
    track.mark_gap()
    assert track.unit(made.units[13]).fault == AFTER_LOSS
    assert track.unit(b"").fault == track.unit(sets_of(made.units[0], made.codec)).fault == NO_PICTURE
    assert track.unit(made.units[24]).fault is None
    head = made.units[25].index(b"\0\0\1") + 4
    assert track.unit(made.units[25][: head + (0 if made.codec == "h264" else 1)]).fault in (DAMAGED, NO_PICTURE)


def test_end_of_sequence_begins_anew():
    made = stream("h265-b")
    track = Judge("hevc")
    assert track.unit(made.units[0] + b"\0\0\1\x48\1").fault is None
    assert track.unit(made.units[1]).fault == BEFORE_KEYFRAME


def test_the_first_slice_is_missed():
    made = stream("h265-slices")
    assert all(len(heads(unit, "hevc")) > 1 for unit in made.units)
    track = Judge("hevc")
    track.unit(made.units[0])
    second = made.units[1].index(b"\0\0\1", 6)
    assert track.unit(made.units[1][second:]).fault == DAMAGED
    assert track.unit(made.units[2]).fault == AFTER_LOSS


def cut(data):
    """NAL units without the zeros behind them."""
    return [part.rstrip(b"\0") for part in data.split(START_CODE)[1:]]


@pytest.mark.parametrize("kind", KINDS)
def test_parameter_sets(kind):
    made = stream(kind)
    short = {"h264": "h264", "hevc": "h265"}[made.codec]
    for data in made.units:
        expected = split_parameter_sets(data, short)[0]
        assert cut(sets_of(data, made.codec)) == cut(expected)


@pytest.mark.parametrize("layer", [1, 32])
def test_another_layer_of_h265_says_nothing_of_the_picture(layer):
    """A keyframe of `nuh_layer_id` 1 or 32 before the picture of the base layer: H.265 7.3.1.2."""
    made = stream("h265")
    key = next(part for part in cut(made.units[0]) if 16 <= part[0] >> 1 & 63 <= 21)
    other = START_CODE + bytes([key[0] & 0xFE | layer >> 5, key[1] & 7 | (layer & 31) << 3]) + key[2:]
    plain, layered = Judge("hevc"), Judge("hevc")
    for number, unit in enumerate(made.units[:4]):
        expected, found = plain.unit(unit), layered.unit(other + unit if number else unit)
        assert (found.entry, found.fault, found.number) == (expected.entry, expected.fault, expected.number)


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda nal: b"\0\0" not in nal and nal[-1]), max_size=6))
def test_nal_units(nals):
    data = b"".join(START_CODE + nal for nal in nals)
    assert [data[begin:].partition(START_CODE)[0] for begin in find_nal_units(data)] == nals
    assert list(find_nal_units(memoryview(START_CODE + data + START_CODE))) == [
        begin + 3 for begin in find_nal_units(data)
    ]


@settings(max_examples=200)
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_any_bytes_are_judged(kind, data):
    made = stream(kind)
    track = Judge(made.codec)
    for n in range(3):
        unit = bytearray(made.units[n][: data.draw(st.integers(0, 120))])
        for _ in range(data.draw(st.integers(0, 4))):
            if unit:
                unit[data.draw(st.integers(0, len(unit) - 1))] = data.draw(st.integers(0, 255))
        track.unit(bytes(unit))
    track.unit(data.draw(st.binary(max_size=80)))
    again = [track.unit(made.units[n]).fault for n in range(12, 24) if n < len(made.units)]
    if not KINDS[kind][2].get("once") and judged(made)[12].closed:
        assert again == [None] * 12
