# SPDX-License-Identifier: Apache-2.0
"""A sequence parameter set that changes counts as damage where no new sequence begins, and only there."""

import pytest
from streams import KINDS, Numbered, encode, read, stream
from test_video_reader import groups

from edgefirst_ros.counts import AFTER_LOSS, DAMAGED
from edgefirst_ros.sensors.video.bitstream import START_CODE, find_nal_units
from edgefirst_ros.sensors.video.reader import VideoReader


def flipped(data, bit):
    """The bytes with one bit changed, counted from the first one's highest."""
    return data[: bit // 8] + bytes([data[bit // 8] ^ 0x80 >> bit % 8]) + data[bit // 8 + 1 :]


def sequence_set(data, codec):
    """(begin, end) of the first sequence parameter set of a unit."""
    kinds = {begin: data[begin] & 31 if codec == "h264" else data[begin] >> 1 & 63 for begin in find_nal_units(data)}
    begin = next(begin for begin, kind in kinds.items() if kind in (7, 33))
    return begin, begin + len(data[begin:].partition(START_CODE)[0].rstrip(b"\0"))


@pytest.mark.parametrize("kind", ["h264-open", "h265-open"])
def test_any_bit_changed_within_a_sequence_is_damage(kind):
    """A decoder would use it: other colours, sizes and references, half of it without a word."""
    made = stream(kind)
    begins = groups(made)
    entry, following = [n for n, start in enumerate(begins) if n == start][1:3]
    begin, end = sequence_set(made.units[entry], made.codec)
    depends = {n for n in range(40) if entry <= n < following or begins[n] == entry}
    bits, withheld = range(8 * begin + 8, 8 * end, 3), 0
    for bit in bits:
        messages = {**dict(enumerate(made.units)), entry: flipped(made.units[entry], bit)}
        found = read(Numbered(VideoReader, made.codec), messages, made.shown)
        changed = {n for n in found if found[n] != made.pictures[n]}
        assert {n for n in changed if not isinstance(found[n], str)} == set()
        assert changed <= depends
        if found[entry] == DAMAGED:  # else it has another number or layer now, and no slice uses it
            assert {found[n] for n in depends - {entry}} == {AFTER_LOSS}
            withheld += 1
    assert withheld >= 0.9 * len(bits)


@pytest.mark.parametrize("kind", ["h264-b", "h265-b"])
def test_a_new_sequence_may_have_another_set(kind):
    """Two streams one behind the other, the second of another size."""
    made = stream(kind)
    other = encode(made.codec, KINDS[kind][1], 12, size=(64, 64))
    messages = dict(enumerate([*made.units[:24], *(data for _, data in other)]))
    shown = sorted(range(24), key=made.index.__getitem__) + sorted(range(24, 36), key=lambda n: other[n - 24][0])
    found = read(Numbered(VideoReader, made.codec), messages, shown)
    assert {n: found[n] for n in range(24)} == {n: made.pictures[n] for n in range(24)}
    assert {len(found[n]) for n in range(24, 36)} == {64 * 64 * 3 // 2}


@pytest.mark.parametrize("kind", ["h264-open", "h265-open"])
def test_behind_a_loss_another_set_is_taken(kind):
    """A sequence may have begun in the gap, so what follows the next entry is as good as it was."""
    made = stream(kind)
    other = encode(made.codec, KINDS[kind][1], 40, size=(64, 64))
    units = [data for _, data in other]
    entry = [n for n, start in enumerate(groups(made)) if n == start][1]
    messages = {**{n: made.units[n] for n in range(5)}, **{n: units[n] for n in range(entry, 40)}}
    shown = sorted(range(5), key=made.index.__getitem__) + [n for n in made.shown if n >= entry]
    found = read(Numbered(VideoReader, made.codec), messages, shown)
    assert len(found[entry]) == 64 * 64 * 3 // 2
    assert [n for n in range(21, 40) if isinstance(found[n], str)] == []
