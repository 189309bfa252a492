# SPDX-License-Identifier: Apache-2.0
"""Pictures of damaged streams: bit by bit those of the whole stream as a plain decoder sees it, or withheld."""

from __future__ import annotations

import itertools
import random

import av
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from streams import KINDS, Judge, Numbered, encode, plainly, planes, read, sets_of, stream

from edgefirst_ros.counts import AFTER_LOSS, BEFORE_KEYFRAME, NO_OUTPUT, NO_PICTURE
from edgefirst_ros.sensors.video import reader as video_reader
from edgefirst_ros.sensors.video.reader import VideoReader

REPEATED = [kind for kind in KINDS if not kind.endswith("-once")]
"""Kinds whose parameter sets come with every keyframe."""


@pytest.fixture(autouse=True)
def complaints():
    av.logging.set_level(av.logging.INFO)
    av.logging.set_skip_repeated(False)


@pytest.fixture
def fed(monkeypatch):
    """Numbers of the units that decoders get, in order."""
    numbers = []
    create = av.CodecContext.create

    class Counting:
        def __init__(self, context):
            self.__dict__["context"] = context

        def __getattr__(self, name):
            return getattr(self.context, name)

        def __setattr__(self, name, value):
            setattr(self.context, name, value)

        def decode(self, packet):
            if packet is not None and packet.pts is not None:
                numbers.append(packet.pts)
            return self.context.decode(packet)

    class Codecs:
        @staticmethod
        def create(*args):
            return Counting(create(*args))

    monkeypatch.setattr(av, "CodecContext", Codecs)
    return numbers


BEHIND = b"\xff" * 1024


def groups(made):
    """Per unit, the entry from which it can be decoded on its own, as the whole stream shows."""
    track = Judge(made.codec)
    units = [track.unit(data) for data in made.units]
    entries, starts = [], []
    for n, unit in enumerate(units):
        if unit.entry:
            entries.append(n)
        starts.append(entries[-2] if unit.leading else entries[-1])
    return starts


def noticed(made, number, data, start):
    """Whether a plain decoder that starts there complains about these bytes as unit `number`.

    What it says of the whole unit in the same place is of references before the start. H.265 goes on behind its end.
    """
    before, behind = {n: made.units[n] for n in range(start, number)}, BEHIND if made.codec == "hevc" else b""

    def complaints(unit):
        return plainly(made.codec, {**before, number: unit + behind})[1].get(number, set())

    return bool(complaints(data) - complaints(made.units[number]))


def check(made, messages, found, hurt=(), wanted=None):
    """The rules of this file."""
    starts = groups(made)
    expected = {n for n, data in messages.items() if data is not None and (wanted is None or n in wanted)}
    assert set(found) == expected
    wrong = [n for n in found if not isinstance(found[n], str) and found[n] != made.pictures[n]]
    # Damage that no decoder notices, in what these pictures are made from, is nobody's fault.
    suspects = {h for h in hurt if any(starts[n] <= h <= n for n in wrong)}
    silent = {h for h in suspects if not noticed(made, h, messages[h], starts[h])}
    assert not [n for n in wrong if not any(starts[n] <= h <= n for h in silent)]
    losses = {n for n in range(len(made.units)) if messages.get(n) is None} | set(hurt)
    withheld = [n for n in found if isinstance(found[n], str) and not any(starts[n] <= x <= n for x in losses)]
    assert not [(n, found[n]) for n in withheld]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lag", [0, 5, 99])
def test_whole_streams(kind, lag):
    made = stream(kind)
    found = read(Numbered(VideoReader, made.codec), dict(enumerate(made.units)), made.shown, lag=lag)
    assert found == dict(enumerate(made.pictures))


@settings(max_examples=150)
@given(st.sampled_from(REPEATED), st.data())
def test_any_loss(kind, data):
    made = stream(kind)
    number = st.integers(0, len(made.units) - 1)
    start = data.draw(st.just(0) | number)
    dropped = data.draw(st.sets(number, max_size=8))
    unreadable = data.draw(st.sets(number, max_size=2))
    wanted = data.draw(st.none() | st.sets(number))
    messages = {
        n: None if n in unreadable else unit for n, unit in enumerate(made.units) if n >= start and n not in dropped
    }
    found = read(
        Numbered(VideoReader, made.codec),
        messages,
        made.shown,
        wanted=wanted,
        lag=data.draw(st.sampled_from([0, 3, 20, 99])),
    )
    check(made, messages, found, wanted=wanted)


def damaged(unit, rng):
    data = bytearray(unit)
    way = rng.randrange(5)
    if way == 0:
        for _ in range(rng.choice([1, 2, 8])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif way == 1:
        del data[rng.randrange(1, len(data)) :]
    elif way == 2:
        start = rng.randrange(len(data))
        data[start : start + 64] = rng.randbytes(len(data[start : start + 64]))
    elif way == 3:
        start = rng.randrange(len(data))
        data[start:] = bytes(len(data) - start)
    else:
        data[rng.randrange(min(60, len(data)))] = rng.randrange(256)
    return bytes(data)


@settings(max_examples=75)
@given(st.sampled_from(REPEATED), st.integers(0, 2**32), st.booleans())
@example("h264-open", 3630420, False)  # whole or damaged, a decoder that starts at 33 says the same of unit 37
def test_any_damage(kind, seed, lossy):
    made, rng = stream(kind), random.Random(seed)
    messages = dict(enumerate(made.units))
    for n in rng.sample(range(len(made.units)), rng.choice([1, 1, 2, 4])):
        messages[n] = damaged(made.units[n], rng)
    if lossy:
        for n in rng.sample(range(len(made.units)), 2):
            del messages[n]
    hurt = [n for n, data in messages.items() if data != made.units[n]]
    found = read(Numbered(VideoReader, made.codec), messages, made.shown, lag=rng.choice([0, 3, 20, 99]))
    check(made, messages, found, hurt)


@pytest.mark.parametrize("kind", ["h264-once", "h265-once"])
def test_parameter_sets_that_come_once(kind):
    made = stream(kind)
    groups_begin = [n for n, start in enumerate(groups(made)) if n == start]
    sets, second = sets_of(made.units[0], made.codec), groups_begin[1]
    ahead = {-1: sets, **dict(enumerate(made.units))}  # in a message of their own; the picture's own ones are gone
    ahead[0] = made.units[0][len(sets) - 3 :] if made.codec == "hevc" else made.units[0]
    for messages in (ahead, {n: ahead[n] for n in ahead if n not in (0, 3)}, {**ahead, 4: ahead[4][:60]}):
        found = read(Numbered(VideoReader, made.codec), messages, [-1, *made.shown])
        assert found.pop(-1) == NO_PICTURE
        check(made, {n: messages[n] for n in messages if n >= 0}, found, [n for n in (4,) if len(messages[n]) == 60])
        assert found[second] == made.pictures[second]
    # only a damaged first picture carries them, or one that is not wanted
    hurt = {**dict(enumerate(made.units)), 0: made.units[0][: len(sets) + 200]}
    assert read(Numbered(VideoReader, made.codec), hurt, made.shown)[second] == made.pictures[second]
    last = groups_begin[-1]
    assert read(Numbered(VideoReader, made.codec), dict(enumerate(made.units)), made.shown, wanted={last}, lag=99) == {
        last: made.pictures[last]
    }


def test_nothing_depends_on_a_damaged_picture_without_references():
    made = stream("h264-b")
    damaged = next(n for n in range(14, 24) if not made.units[n][4] & 0x60)  # nal_ref_idc behind a long start code
    messages = {**dict(enumerate(made.units)), damaged: made.units[damaged][:16] + b"\xff" * 40}
    found = read(Numbered(VideoReader, "h264"), messages, made.shown)
    assert isinstance(found.pop(damaged), str)
    assert found == {n: made.pictures[n] for n in range(40) if n != damaged}


@pytest.mark.parametrize("kind", ["h264-open", "h265-open"])
def test_leading_pictures_are_those_shown_before_their_entry(kind):
    """Every twelfth picture is an entry; the order of H.264, of 6 bits, begins again within those around the 96th."""
    made, judge = stream(kind, 104), Judge(KINDS[kind][0])
    leading = {n for n, unit in enumerate(made.units) if judge.unit(unit).leading}
    entries = [n for n, index in enumerate(made.index) if index % 12 == 0]
    assert leading == {n for n, index in enumerate(made.index) for at in entries if at < n and index < made.index[at]}


def test_a_lost_leading_picture():
    made = stream("h264-open")
    leading = [n for n, start in enumerate(groups(made)) if made.index[n] < made.index[33] and n > 33]
    messages = {n: data for n, data in enumerate(made.units) if n != leading[0]}
    found = read(Numbered(VideoReader, "h264"), messages, made.shown)
    assert [found[n] for n in leading[1:]] == [AFTER_LOSS] * 2


def test_a_leading_picture_still_to_come_is_wanted():
    for kind in ("h264-open", "h265-open"):
        made = stream(kind)
        wanted = {10, 13, 15, 16, 21, 24, 28}
        found = read(Numbered(VideoReader, made.codec), dict(enumerate(made.units)), made.shown, wanted=wanted)
        assert found == {n: made.pictures[n] for n in wanted}


@pytest.mark.parametrize("kind", ["h264-b", "h265-b"])
def test_reasons(kind):
    made = stream(kind)
    messages = {n: data for n, data in enumerate(made.units) if n >= 5 and n not in (20, 26)}
    messages[26] = None
    reasons = {
        n: reason
        for n, reason in read(Numbered(VideoReader, made.codec), messages, made.shown).items()
        if isinstance(reason, str)
    }
    assert reasons == dict.fromkeys(range(5, 12), BEFORE_KEYFRAME) | dict.fromkeys(
        (21, 22, 23, *range(27, 36)), AFTER_LOSS
    )
    reader = Numbered(VideoReader, made.codec)
    judge = Judge(made.codec)
    reader.push(0, judge.unit(made.units[0]))
    reader.push(1, judge.unit(b"\0\0\1\x09\x10" if made.codec == "h264" else b"\0\0\1\x46\1\x50"))
    assert reader.picture(1) == NO_PICTURE
    assert planes(reader.picture(0, last=True)) == made.pictures[0]
    with pytest.raises(ValueError, match="unit 0 was not pushed"):
        reader.picture(0)


# ---- sampling ----------------------------------------------------------------------------------
SAMPLED = ["h264", "h264-b", "h264-open", "h265-b", "h265-open", "h265-radl"]


@settings(max_examples=80)
@given(st.sampled_from(SAMPLED), st.sets(st.integers(0, 39)), st.sampled_from([0, 4, 99]))
def test_any_sample_gives_the_same_pictures(kind, wanted, lag):
    made = stream(kind)
    found = read(Numbered(VideoReader, made.codec), dict(enumerate(made.units)), made.shown, wanted=wanted, lag=lag)
    assert found == {n: made.pictures[n] for n in wanted}


@pytest.mark.parametrize("kind", SAMPLED)
def test_groups_nobody_wants_are_not_decoded(kind, fed):
    made = stream(kind, 120)
    messages, begin = dict(enumerate(made.units)), groups(made)
    entries = [n for n, start in enumerate(begin) if n == start]
    group = range(entries[4], entries[5])
    fed.clear()
    wanted = {made.shown[made.index[entries[4]] + 1]}  # one picture shortly behind a keyframe in the middle
    found = read(Numbered(VideoReader, made.codec), messages, made.shown, wanted=wanted, lag=20)
    assert found == {n: made.pictures[n] for n in wanted}
    assert fed
    assert set(fed) <= set(group)


@pytest.mark.parametrize("kind", SAMPLED)
def test_keyframes_alone(kind, fed):
    made = stream(kind, 120)
    entries = {n for n, start in enumerate(groups(made)) if n == start}
    for lag in (0, 3, 30):
        fed.clear()
        reader = Numbered(VideoReader, made.codec, keyframes_only=True)
        found = read(reader, dict(enumerate(made.units)), made.shown, wanted=entries, lag=lag)
        assert found == {n: made.pictures[n] for n in entries}
        assert sorted(entries) == fed


def test_nothing_wanted_nothing_decoded(fed):
    made = stream("h264-b", 120)
    fed.clear()
    assert read(Numbered(VideoReader, "h264"), dict(enumerate(made.units)), made.shown, wanted=set(), lag=9) == {}
    assert fed == []


def test_bytes_of_units_that_are_never_decoded_are_freed():
    """Units may be held for long after that: by the samples that wait for other sensors."""
    made = stream("h264-b", 120)
    reader, entries = Numbered(VideoReader, "h264"), sorted({*groups(made)})
    judge = Judge("h264")
    for number, data in enumerate(made.units[: entries[2]]):
        reader.push(number, judge.unit(data))
    assert all(unit.data for unit in reader.units.values())
    for number in made.shown[: entries[1]]:
        reader.skip(number)
    assert not isinstance(reader.picture(entries[1], last=True), str)
    assert not any(reader.units[number].data for number in range(entries[1]))


# ---- memory ------------------------------------------------------------------------------------
def kept(reader):
    """Things a reader holds."""
    return len(reader._units) + (len(reader._prefix) + len(reader._decoder._sets)) // 1000


def grey(index, size):
    return np.full((*size, 3), index % 200, np.uint8)


@pytest.fixture(scope="module")
def long_streams():
    endless = encode("h264", "keyint=infinite:scenecut=0:bframes=0", 1500, size=(64, 64), paint=grey)
    made = stream("h264-b", 36)
    return {
        "groups": list(itertools.islice(itertools.cycle(made.units), 1500)),
        "endless": [data for _, data in endless],
    }


@pytest.mark.parametrize("name", ["groups", "endless"])
@pytest.mark.parametrize("mode", ["all", "tenth", "keyframes", "none", "lost", "damaged", "hurt and skipped", "empty"])
def test_nothing_grows(long_streams, monkeypatch, name, mode):
    monkeypatch.setattr(video_reader, "LARGEST_BACKLOG", 150_000)
    reader = Numbered(VideoReader, "h264", keyframes_only=mode == "keyframes")
    judge, largest, given = Judge("h264"), 0, 0
    for n, data in enumerate(long_streams[name]):
        if mode == "lost" and n % 50 == 7:
            judge.mark_gap()
        elif mode in ("damaged", "hurt and skipped") and n % 50 == 7:
            reader.push(n, judge.unit(data[: len(data) // 2]))
        elif mode == "empty" and n % 2:
            reader.push(n, judge.unit(sets_of(long_streams[name][0], "h264")))
        else:
            reader.push(n, judge.unit(data))
        asked = n - 10
        lost = mode == "lost" and asked % 50 == 7
        if asked < 0 or lost:
            continue
        wanted = {
            "tenth": asked % 10 == 0,
            "hurt and skipped": asked % 50 == 49,
            "keyframes": name == "groups" and asked % 12 == 0,
            "none": False,
        }.get(mode, True)
        if wanted:
            given += not isinstance(reader.picture(asked, last=True), str)
        else:
            reader.skip(asked)
        largest = max(largest, kept(reader))
    expected = {
        "all": 1450,
        "tenth": 145,
        "keyframes": 120 if name == "groups" else 0,
        "none": 0,
        "hurt and skipped": 0 if name == "endless" else 1,
    }
    assert given >= expected.get(mode, 1 if name == "endless" else 30)
    assert largest < 350


def test_the_last_pictures_always_come():
    made = stream("h265-b")
    reader, judge = Numbered(VideoReader, "hevc"), Judge("hevc")
    for n in range(15):
        reader.push(n, judge.unit(made.units[n]))
    results = [reader.picture(n, last=True) for n in sorted(range(15), key=made.index.__getitem__)]
    assert NO_OUTPUT not in [r for r in results if isinstance(r, str)]
    assert all(results)
