# SPDX-License-Identifier: Apache-2.0
"""Recordings whose clock was set back: which frames messages may meet, by a plain search of all of them."""

import itertools
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.writer import Writer
from rosbags.typesys import Stores, get_typestore

from edgefirst_ros import convert

SECOND = 10**9
MS = 10**6
START = 1_700_000_000 * SECOND
TOLERANCE, GAP = 100 * MS, 2 * SECOND
CAMERA, GPS, TARGETS = "/camera/image", "/gps", "/radar/targets"
MODEL = frozenset({"camera", "model/output", "model/info"})
ROS = get_typestore(Stores.ROS2_HUMBLE)
NAME = "host_2026_01_15_12_00_00"


class Sent(NamedTuple):
    topic: str
    stamp: int
    segment: int
    """During which it was recorded: how often the clock had been set before the last frame."""
    value: float
    """Latitude of a fix."""


def sent(length, second, back, lag, silence=0):
    """Messages in recorded order: `length` ns, then the clock is set back by `back`, then `second` ns.

    Camera at 20 Hz, targets at 10 Hz, recorded `lag` after they were measured, fixes at 2 Hz, from
    `silence` on.
    """
    steps = {CAMERA: (50 * MS, 0, 0), TARGETS: (100 * MS, lag, 0), GPS: (500 * MS, 0, silence)}
    whole = sorted(
        (time + late, order, topic, time)
        for order, (topic, (step, late, begin)) in enumerate(steps.items())
        for time in range(begin, length + second, step)
    )
    found, segment = [], 0
    for number, (_, _, topic, time) in enumerate(whole):
        if topic == CAMERA and time >= length:
            segment = 1
        found.append(Sent(topic, START + time - (back if time >= length else 0), segment, 45 + number * 1e-6))
    return found


def content(message):
    make = {name.rpartition("/")[2]: kind for name, kind in ROS.types.items() if "/msg/" in name}
    header = make["Header"](make["Time"](message.stamp // SECOND, message.stamp % SECOND), "x")
    if message.topic == CAMERA:
        return make["Image"](header, 2, 2, "mono8", 0, 2, np.zeros(4, np.uint8))
    if message.topic == GPS:
        status = make["NavSatStatus"](0, 1)
        return make["NavSatFix"](header, status, message.value, 9.0, 1.0, np.zeros(9), 0)
    return make["PointCloud2"](
        header, 1, 1, [make["PointField"]("x", 0, 7, 1)], False, 4, 4, np.zeros(4, np.uint8), True
    )


def record(path, messages):
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start(profile="", library="test")
        known, numbers = {}, {}
        for number, message in enumerate(messages):
            told = content(message)
            kind = told.__msgtype__
            if message.topic not in known:
                schema = writer.register_schema(kind.replace("/msg/", "/"), "ros2msg", b"")
                known[message.topic] = writer.register_channel(message.topic, "cdr", schema)
            numbers[message.topic] = numbers.get(message.topic, -1) + 1
            data, log = bytes(ROS.serialize_cdr(told, kind)), message.stamp + number
            writer.add_message(known[message.topic], log, data, message.stamp, numbers[message.topic])
        writer.finish()
    return path


def expected(messages):
    """[(stamp of the targets or None, latitude or None)] of each frame, by looking at all messages for each."""
    spans = {}
    for message in messages:
        if message.topic == CAMERA:
            first, last = spans.get(message.segment, (message.stamp, message.stamp))
            spans[message.segment] = min(first, message.stamp), max(last, message.stamp)
    near = len(spans) == 2 and spans[0][0] - TOLERANCE <= spans[1][1] and spans[1][0] - TOLERANCE <= spans[0][1]
    rows = []
    for frame in (message for message in messages if message.topic == CAMERA):
        met = [message for message in messages if not near or message.segment == frame.segment]
        stamps = [message.stamp for message in met if message.topic == TARGETS]
        best = min(stamps, key=lambda stamp: (abs(stamp - frame.stamp), stamp), default=None)
        fixes = sorted({m.stamp: m.value for m in reversed(met) if m.topic == GPS}.items())
        latitude = dict(fixes).get(frame.stamp)
        for (before, one), (after, other) in itertools.pairwise(fixes):
            if before < frame.stamp < after and after - before <= GAP:
                latitude = one + (other - one) * (frame.stamp - before) / (after - before)
        rows.append((best if best is not None and abs(best - frame.stamp) <= TOLERANCE else None, latitude))
    return rows


def check(messages, folder):
    outcome = convert(record(folder / f"{NAME}.mcap", messages), folder / "out", overwrite=True)
    rows = pl.read_ipc(outcome.paths.frames).sort("frame")
    found = list(zip(rows["radar_targets_timestamp"], rows["latitude"], strict=True))
    assert [targets for targets, _ in found] == [targets for targets, _ in expected(messages)]
    latitudes = [latitude for _, latitude in expected(messages)]
    assert [latitude for _, latitude in found] == [None if v is None else pytest.approx(v, abs=1e-9) for v in latitudes]


FRAMES = st.integers(15, 40)
LAGS = st.sampled_from((0, 30, 90))


@settings(max_examples=20)
@given(FRAMES, FRAMES, st.integers(1100, 5000), LAGS, st.sampled_from((0, 220)))
def test_any_set_back(tmp_path_factory, length, second, back, lag, silence):
    messages = sent(50 * MS * length, 50 * MS * second, back * MS, lag * MS, silence * MS)
    check(messages, tmp_path_factory.mktemp("back"))


@settings(max_examples=20)
@given(FRAMES, FRAMES, st.integers(-200, 200), LAGS)
def test_any_set_back_by_about_what_was_recorded(tmp_path_factory, length, second, between, lag):
    """The second segment ends `between` ms before the first one begins."""
    back = 50 * (length + second - 1) + between
    check(sent(50 * MS * length, 50 * MS * second, back * MS, lag * MS), tmp_path_factory.mktemp("back"))


@pytest.mark.parametrize("between", [-50, 0, 50, 99, 100, 101, 150])
def test_segments_that_come_near_each_other_keep_to_themselves(between, tmp_path):
    """Set back so that the second one ends `between` ms before the first one begins."""
    length, second = 1500 * MS, 1500 * MS
    check(sent(length, second, length + second - 50 * MS + between * MS, 30 * MS), tmp_path)


@pytest.mark.parametrize("codec", ["jpeg", "h264"])
def test_results_join_their_own_pictures_where_stamps_come_again(recording, tmp_path, codec):
    """The clock is set back by a multiple of the frame period: each frame has the boxes it has without that."""
    recipe = {"seconds": 4, "codec": codec, "size": (160, 96), "fps": 10, "gop": 10, "topics": MODEL, "model_every": 1}
    found = {}
    for name, steps in (("as it was", ()), ("set back", ((2.0, -2 * SECOND),))):
        outcome = convert(recording(**recipe, clock_steps=steps), tmp_path / name)
        frames = pl.read_ipc(outcome.paths.frames)
        rows = pl.read_ipc(outcome.paths.arrow).drop_nulls("box2d")
        found[name] = (
            [stamp // MS for stamp in frames["timestamp"]],
            {key: rows.filter(frame=key).select("box2d", "box2d_score", "label").rows() for key in frames["frame"]},
        )
    stamps, boxes = found["set back"]
    assert len(set(stamps)) < len(stamps) - 10
    assert sum(map(len, boxes.values())) > 100
    assert boxes == found["as it was"][1]
