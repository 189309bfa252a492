# SPDX-License-Identifier: Apache-2.0
"""GOPs decoded side by side give what one decoder gives, whatever is lost, damaged or asked for."""

from __future__ import annotations

import random
import threading
from collections import Counter

import av
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import KINDS, SIZE, Judge, Numbered, as_picture, encode, plainly, planes, read, sets_of, stream
from test_video_reader import damaged

from edgefirst_ros.sensors.video import reader as gops
from edgefirst_ros.sensors.video.reader import GopReader, VideoReader, measure_outcome


@pytest.fixture(autouse=True)
def tight(monkeypatch):
    """GOPs as short as can be, and little room, so that threads wait for one another all the time."""
    av.logging.set_level(av.logging.INFO)
    av.logging.set_skip_repeated(False)
    monkeypatch.setattr(gops, "SHORTEST", 1)
    monkeypatch.setattr(gops, "AHEAD_BYTES", 40_000)
    monkeypatch.setattr(gops, "AHEAD_UNITS", 5)


def side_by_side(made, messages, threads=3, encode=None, **asked):
    reader = Numbered(GopReader, made.codec, threads, encode=encode)
    try:
        return read(reader, messages, made.shown, **asked)
    finally:
        reader.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("threads", "lag", "encode"), [(3, 17, as_picture), (20, 99, None)])
def test_whole_streams(kind, threads, lag, encode):
    made = stream(kind)
    assert side_by_side(made, dict(enumerate(made.units)), threads, encode, lag=lag) == dict(enumerate(made.pictures))


@settings(max_examples=75)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**32), st.sampled_from([0, 3, 20, 99]))
def test_any_damage_loss_and_choice(kind, seed, lag):
    made, rng = stream(kind), random.Random(seed)
    messages, altered = dict(enumerate(made.units)), False
    for n in rng.sample(range(len(made.units)), rng.choice([0, 1, 3])):
        messages[n] = damaged(made.units[n], rng)
        altered |= sets_of(messages[n], made.codec) != sets_of(made.units[n], made.codec)
    for n in rng.sample(range(len(made.units)), rng.choice([0, 1, 3])):
        messages[n] = None
    for n in rng.sample(range(len(made.units)), rng.choice([0, 2])):
        del messages[n]
    wanted = None if rng.random() < 0.7 else set(rng.sample(range(40), 25))
    found = side_by_side(made, messages, encode=rng.choice([None, as_picture]), lag=lag, wanted=wanted)
    one = read(Numbered(VideoReader, made.codec), messages, made.shown, lag=lag, wanted=wanted)
    assert found.keys() == one.keys()
    # What a decoder makes of damage that it does not notice depends on what it did before.
    unnoticed = {n for n, picture in one.items() if not isinstance(picture, str) and picture != made.pictures[n]}
    if altered:  # with wrong parameter sets it also depends on earlier ones what comes out, but not what it shows
        unnoticed |= {n for n in found if isinstance(found[n], str) or isinstance(one[n], str)}
    assert [n for n in found if n not in unnoticed and found[n] != one[n]] == []
    assert altered or [n for n in unnoticed if isinstance(found[n], str)] == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "refresh" not in kind])
@pytest.mark.parametrize("lag", [30])
def test_keyframes_alone(kind, lag, monkeypatch):
    monkeypatch.setattr(gops, "SHORTEST_KEYFRAMES_ONLY", 1 + lag % 2)
    made, track = stream(kind, 60), Judge(stream(kind).codec)
    keyframes = {n for n, data in enumerate(made.units) if track.unit(data).keyframe}
    reader = Numbered(GopReader, made.codec, 2, keyframes_only=True)
    found = read(reader, dict(enumerate(made.units)), made.shown, wanted=keyframes, lag=lag)
    reader.close()
    assert found == {n: made.pictures[n] for n in keyframes}
    assert not any(unit.data for unit in reader.units.values()), "bytes that nothing needs are held in memory"


@pytest.mark.parametrize("kind", ["h264-b", "h265-b", "h264-endless"])
def test_pictures_may_be_asked_for_in_any_order(kind):
    made, rng = stream(kind), random.Random(1)
    for _ in range(5):
        reader, judge = Numbered(GopReader, made.codec, 2), Judge(made.codec)
        for number, data in enumerate(made.units):
            reader.push(number, judge.unit(data))
        order = rng.sample(range(40), 40)
        found = {n: planes(reader.picture(n, last=True)) for n in order}
        reader.close()
        assert found == dict(enumerate(made.pictures))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("asked", [0, 11, 12, 39])
def test_one_picture_of_which_all_others_are_skipped(asked, last, monkeypatch):
    made, judge = stream("h264"), Judge("h264")
    monkeypatch.setattr(gops, "AHEAD_UNITS", 1)
    reader = Numbered(GopReader, "h264", 2)
    for number, data in enumerate(made.units):
        reader.push(number, judge.unit(data))
        if number not in (0, asked):
            reader.skip(number)
    if asked:  # so that the first is waited for while the others are skipped, and then the other one
        assert planes(reader.picture(0, last=True)) == made.pictures[0]
    found = reader.picture(asked, last=last or not asked)
    assert found is None or planes(found) == made.pictures[asked]
    assert found is not None or not last
    reader.close()


@pytest.mark.parametrize("kind", ["h264", "h265-cra"])
def test_gops_are_decoded_side_by_side(kind, monkeypatch):
    """Two decoders are inside a GOP at the same time: each waits until the other is there too."""
    made, both = stream(kind), threading.Barrier(2, timeout=20)
    inside = VideoReader.push

    def push(self, unit):
        if unit.number in (13, 25):  # the second unit of two GOPs that follow one another
            both.wait()
        return inside(self, unit)

    monkeypatch.setattr(VideoReader, "push", push)
    monkeypatch.setattr(gops, "AHEAD_UNITS", 32)
    assert side_by_side(made, dict(enumerate(made.units)), 2) == dict(enumerate(made.pictures))


def test_what_is_held_is_bounded(monkeypatch):
    """Nobody asks: one picture a thread beyond what there is room for at most, and no GOP beyond the threads'."""
    made = stream("h264", 120)
    size = len(plainly("h264", dict(enumerate(made.units[:2])))[0][0])
    monkeypatch.setattr(gops, "AHEAD_BYTES", 3 * size)
    reader, judge = Numbered(GopReader, "h264", 2), Judge("h264")
    for number, data in enumerate(made.units):
        reader.push(number, judge.unit(data))
    for _ in range(30):
        threading.Event().wait(0.01)
        held = Counter(id(unit.gop) for unit in list(reader.units.values()) if unit.given)
    assert 6 <= held.total() <= 8
    assert len(held) == 2
    assert planes(reader.picture(0)) == made.pictures[0]
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.picture(119, last=True)


def test_all_gops_together_hold_no_more():
    """Every unit a keyframe, and nobody asks: finished GOPs must not make room for further ones."""
    packets = encode("h264", "keyint=1:threads=1", 60)
    reader, judge = Numbered(GopReader, "h264", 2), Judge("h264")
    for number, (_, data) in enumerate(packets):
        reader.push(number, judge.unit(data))
    for _ in range(30):
        threading.Event().wait(0.01)
    held = sum(measure_outcome(unit.outcome) for unit in list(reader.units.values()) if unit.given)
    assert held < 2 * 40_000 + 3 * 20_000
    assert all(not isinstance(reader.picture(number, last=True), str) for number in range(60))
    reader.close()


def test_a_picture_is_encoded_by_the_thread_that_decoded_it():
    made, threads = stream("h264"), set[str]()

    def encode_here(frame):
        threads.add(threading.current_thread().name)
        return as_picture(frame)

    assert side_by_side(made, dict(enumerate(made.units)), 2, encode_here) == dict(enumerate(made.pictures))
    assert all(name.startswith("decode") for name in threads)
    reader = Numbered(GopReader, "h264", 2, encode=encode_here)
    reader.push(0, Judge("h264").unit(made.units[0]))
    found = reader.picture(0, last=True)
    assert found.size == SIZE
    reader.close()


def test_what_an_encoder_raises_is_raised_where_the_picture_is_asked_for():
    def refuse(frame):
        raise MemoryError("no more")

    reader = Numbered(GopReader, "h264", 2, encode=refuse)
    reader.push(0, Judge("h264").unit(stream("h264").units[0]))
    with pytest.raises(MemoryError, match="no more"):
        reader.picture(0, last=True)
    reader.close()


@pytest.mark.parametrize("kind", ["h264-once", "h265-once"])
def test_a_broken_parameter_set_does_not_hide_those_behind_it(kind):
    made = stream(kind)
    broken = sets_of(made.units[0], made.codec)[:7]
    messages = {-2: broken, **dict(enumerate(made.units))}
    one = read(Numbered(VideoReader, made.codec), messages, [-2, *made.shown])
    reader = Numbered(GopReader, made.codec, 2)
    found = read(reader, messages, [-2, *made.shown])
    reader.close()
    assert found == one
    assert {n: picture for n, picture in found.items() if n >= 0} == dict(enumerate(made.pictures))


def test_a_fault_in_a_thread_is_raised_where_the_picture_is_asked_for(monkeypatch):
    def push(self, unit):
        raise MemoryError("no more")

    monkeypatch.setattr(VideoReader, "push", push)
    reader = Numbered(GopReader, "h264", 2)
    reader.push(0, Judge("h264").unit(stream("h264").units[0]))
    with pytest.raises(MemoryError, match="no more"):
        reader.picture(0, last=True)
    reader.close()
