# SPDX-License-Identifier: Apache-2.0
"""A second camera of a rig, of every picture source, with every option: its pictures are those of its own conversion.

The first camera sends JPEG; the second one the same number of pictures, 20 ms later.
"""

from __future__ import annotations

import io
import json
import threading
from collections import Counter

import numpy as np
import polars as pl
import pytest
from live_system import System
from PIL import Image
from same_dataset import adds_up, assert_counted, assert_same_dataset, members
from test_picture_sources import (
    FRAMES,
    GOP,
    SMALL,
    SOURCES,
    START,
    STEP,
    each_kind,
    every_source,
    hook,
    sent,
    streams,
    write,
)

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.errors import UsageError
from edgefirst_ros.pipeline.cameras import OtherCamera
from edgefirst_ros.pipeline.capture_session import CaptureSession
from edgefirst_ros.sources.live import Settling

__all__ = ["hook"]
LATER, S = 20_000_000, 10**9
FRONT, KEY = "/front/camera/jpeg", "camera.left"


def left_of(name):
    return f"/left/{SOURCES[name].topics[0]}"


def rig(name, **own):
    return {"camera": {"topic": FRONT}, KEY: {"topic": left_of(name), **own}}


def both(name, begin=START, **options):
    """The messages of both cameras from `begin` on; `options` as for `sent`, of the second one."""
    front = sent("jpeg", "/front/", frame_id="front", results=True, begin=begin)
    left = sent(name, "/left/", frame_id="left", focal=77.0, results=False, begin=begin + LATER, **options)
    return sorted([*front, *left], key=lambda one: one[2])


@pytest.fixture
def drive(tmp_path):
    """Function that records both cameras and gives the path."""
    return lambda name, **options: write(tmp_path / "drive.mcap", both(name, **options))


def lefts(outcome):
    """{frame: (stamp, bytes) of the second camera}, of samples that have it."""
    paths = outcome.paths
    rows = {row["frame"]: row for row in pl.read_ipc(paths.frames).iter_rows(named=True)}
    found = {}
    for member, data in members(paths.container).items():
        frame, _, kind = member.rpartition("/")[2].removeprefix("drive_").partition(".")
        if kind.startswith("camera-left."):
            row = rows[int(frame)]
            assert row["camera_left_skew"] == row["camera_left_timestamp"] - row["timestamp"]
            found[int(frame)] = row["camera_left_timestamp"], data
    with_stamp = {frame for frame, row in rows.items() if row["camera_left_timestamp"] is not None}
    assert with_stamp == found.keys() == {f for f, row in rows.items() if row["camera_left_size"] is not None}
    return found


def own(path, name, folder, **options):
    """{stamp: bytes} of the second camera's own conversion."""
    outcome = convert(path, folder, reference_topic=left_of(name), **options)
    return {sample.timestamp: sample.read("camera") for sample in Dataset(outcome.paths.container).samples()}


def assert_counts(outcome, name):
    assert_counted(outcome.paths.out)
    (count,) = (c for topic, c in outcome.counts.plain().items() if topic == left_of(name))
    assert adds_up(count)
    return count


PICTURES = ("max_width", "camera_format", "picture_hook")
"""Options of the pictures, which the own conversion gets too; others choose samples."""


@each_kind
@pytest.mark.parametrize(
    ("options", "frames"),
    [
        ({"jobs": 1, "max_width": 32}, range(FRAMES)),
        ({"camera_format": "png", "require": [KEY]}, range(FRAMES)),
        ({"picture_hook": "", "rate": 2.5}, range(0, FRAMES, 4)),
        ({"start": 1.5, "rate": 2.5}, [15, 16, 20]),
        ({"keyframes": True, "start": 2.1}, range(21, FRAMES)),
        ({"rate": 2.5, "prefer": "model"}, [0, 6, 9, 12, 18, 21]),
    ],
    ids=str,
)
def test_its_pictures_are_those_of_its_own_conversion(drive, tmp_path, hook, name, options, frames):
    if "picture_hook" in options:
        options = {**options, "picture_hook": hook(*SMALL)}
    path = drive(name)
    outcome = convert(path, tmp_path / "out", rig=rig(name), **options)
    expected = own(path, name, tmp_path / "own", **{key: options[key] for key in PICTURES if key in options})
    stamps = {frame: START + frame * STEP + LATER for frame in frames}
    assert lefts(outcome) == {frame: (stamp, expected[stamp]) for frame, stamp in stamps.items()}
    assert outcome.exit_code == 0
    assert assert_counts(outcome, name)["written"] == len(stamps)


def test_video_of_several_cameras_is_decoded_side_by_side(tmp_path, monkeypatch):
    sources = {"left": "h264-b", "right": "h265-b"}
    found = sent("jpeg", "/front/")
    for name, source in sources.items():
        found += sent(source, f"/{name}/", results=False, cut=(12,), begin=START + LATER)
    path = write(tmp_path / "drive.mcap", sorted(found, key=lambda one: one[2]))
    topics = {f"camera.{name}": f"/{name}/{SOURCES[source].topics[0]}" for name, source in sources.items()}
    together, first_clean, begun = threading.Barrier(len(topics)), OtherCamera.first_clean, set()

    def meeting(camera, near, *, last):
        if camera.key not in begun:
            begun.add(camera.key)
            together.wait(60)
        return first_clean(camera, near, last=last)

    monkeypatch.setattr(OtherCamera, "first_clean", meeting)
    rig = {"camera": FRONT, **topics}
    convert(path, tmp_path / "out", jobs=2, rig=rig)
    assert begun == topics.keys()
    monkeypatch.setattr(OtherCamera, "first_clean", first_clean)
    convert(path, tmp_path / "one", jobs=1, rig=rig)
    assert_same_dataset(tmp_path / "out", tmp_path / "one", "drive")


@every_source
@pytest.mark.parametrize("fault", ["cut", "missing"])
def test_damage_in_it_is_a_loss_and_the_nearest_clean_picture_is_used(drive, tmp_path, name, fault):
    at = {"cut": 12, "missing": 7}[fault]
    order = [index for index, _ in streams(name)[0]]
    lost = {at}
    if SOURCES[name].depends:
        lost = set(order[at : FRAMES if fault == "cut" else GOP])
    path = drive(name, **{fault: {at}})
    outcome = convert(path, tmp_path / "out", rig=rig(name, tolerance=0.1))
    expected = own(path, name, tmp_path / "own")
    clean = [START + n * STEP + LATER for n in range(FRAMES) if n not in lost]
    nearest = {n: min(clean, key=lambda stamp: abs(stamp - START - n * STEP)) for n in range(FRAMES)}
    near = {n: stamp for n, stamp in nearest.items() if abs(stamp - START - n * STEP) <= STEP}
    assert lefts(outcome) == {n: (stamp, expected[stamp]) for n, stamp in near.items()}
    assert outcome.samples == FRAMES
    assert outcome.exit_code == (0 if fault == "missing" and not SOURCES[name].depends else 3)
    assert assert_counts(outcome, name)["written"] == len(set(near.values()))
    required = convert(path, tmp_path / "required", rig=rig(name, tolerance=0.1), require=[KEY])
    assert required.samples == len(near)


@each_kind
def test_the_picture_before_a_damaged_one_is_that_of_the_only_sample_near_them(drive, tmp_path, name):
    """No other sample had it before: of ten pictures in a second every fourth has one."""
    order = [index for index, _ in streams(name)[0]]
    at = order.index(16)
    lost = set(order[at:]) if SOURCES[name].depends else {16}
    path = drive(name, cut={at})
    outcome = convert(path, tmp_path / "out", rig=rig(name, tolerance=0.1), rate=2.5)
    expected = own(path, name, tmp_path / "own")
    clean = [START + n * STEP + LATER for n in range(FRAMES) if n not in lost]
    nearest = {n: min(clean, key=lambda stamp: abs(stamp - START - n * STEP)) for n in range(0, FRAMES, 4)}
    near = {n: stamp for n, stamp in nearest.items() if abs(stamp - START - n * STEP) <= STEP}
    assert lefts(outcome) == {n: (stamp, expected[stamp]) for n, stamp in near.items()}


def pixels(data):
    return Image.open(io.BytesIO(data)).convert("RGB").tobytes()


def after_each_other(*runs):
    """The messages of several runs of 2.5 s as one recording, numbered on; their stamps stay."""
    numbers, found = Counter(), []
    for run, messages in enumerate(runs):
        first = messages[0][2]
        for topic, schema, log_time, _, data in messages:
            found.append((topic, schema, log_time - first + START + run * 25 * STEP, numbers[topic], data))
            numbers[topic] += 1
    return found


@each_kind
@pytest.mark.parametrize("back", [1_293_000_000, 2_493_000_000, 3600 * S])
def test_after_its_clock_was_set_back_each_run_has_the_pictures_of_its_own(drive, tmp_path, name, back):
    runs = both(name), both(name, begin=START + 25 * STEP - back)
    path = write(tmp_path / "drive.mcap", after_each_other(*runs))
    outcome = convert(path, tmp_path / "out", rig=rig(name))
    expected = {}
    for number, messages in enumerate(runs):
        path = write(tmp_path / "drive.mcap", after_each_other(messages))
        found = lefts(convert(path, tmp_path / f"out{number}", rig=rig(name)))
        expected |= {frame + number * FRAMES: (stamp, pixels(data)) for frame, (stamp, data) in found.items()}
    assert {frame: (stamp, pixels(data)) for frame, (stamp, data) in lefts(outcome).items()} == expected
    assert len(expected) == 2 * FRAMES
    assert assert_counts(outcome, name)["written"] == 2 * FRAMES


@each_kind
def test_a_change_of_its_size_is_in_the_rows(drive, tmp_path, name):
    path = drive(name, resize=True)
    outcome = convert(path, tmp_path / "out", rig=rig(name), max_width=48)
    rows = pl.read_ipc(outcome.paths.frames).sort("frame")
    assert rows["camera_left_size"].to_list() == [[48, 36]] * GOP + [[48, 32]] * (FRAMES - GOP)
    assert rows["size"].to_list() == [[48, 36]] * FRAMES
    expected = own(path, name, tmp_path / "own", max_width=48)
    assert {data for _, data in lefts(outcome).values()} == set(expected.values())


@each_kind
def test_its_intrinsics_are_its_own(drive, tmp_path, name):
    outcome = convert(drive(name), tmp_path / "out", rig=rig(name), max_width=32)
    metadata = Dataset(outcome.paths.container).metadata
    (other,) = metadata["camera_infos"].items()
    assert (other[0], other[1]["frame_id"], other[1]["k"][0], other[1]["width"]) == (KEY, "left", 38.5, 32)
    assert (metadata["camera_info"]["frame_id"], metadata["camera_info"]["k"][0]) == ("front", 25)


@each_kind
@pytest.mark.parametrize("options", [{"rate": 2.5, "camera_format": "png"}, {"keyframes": True}], ids=str)
def test_a_capture_writes_the_bytes_of_a_conversion(drive, tmp_path, monkeypatch, name, options):
    monkeypatch.setattr(Settling, "QUIET", 0.0)
    messages, chosen = both(name), {"rig": rig(name), "jobs": 2, **options}
    system = System(names={topic: f"rt{topic}" for topic, *_ in messages})
    system.offers = {topic: schema for topic, schema, *_ in messages}
    live = LiveSettings(out=str(tmp_path / "live"), sequence="drive", min_free_bytes=0, fsync=False)
    session = CaptureSession(system, Settings(**chosen), live, "wagon", system)
    session.activate()
    session.refresh()
    for topic, _, _, number, data in messages:
        system.send(system.names[topic], data, number + 1)
    session.refresh()
    session.deactivate()
    assert session.exit_code == 0
    outcome = convert(drive(name), tmp_path / "offline", **chosen)
    assert lefts(outcome)
    assert_same_dataset(tmp_path / "live", tmp_path / "offline", "drive")
    told = [json.dumps(Dataset(tmp_path / part / "drive.zip").metadata["camera_infos"]) for part in ("live", "offline")]
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"camera": FRONT, KEY: FRONT}, "camera.left"),
        (
            {"camera": FRONT, KEY: "/left/camera/jpeg", "camera.right": "/left/camera/jpeg"},
            "camera.right.*one of its own",
        ),
        (
            rig("jpeg", info="/left/camera/info") | {"camera": {"topic": FRONT, "info": "/left/camera/info"}},
            "/left/camera/info is the topic of camera.*info; expected one of its own",
        ),
        ({"camera": FRONT, KEY: "/front/model/output"}, "expected foxglove_msgs/msg/CompressedVideo or"),
    ],
)
def test_a_topic_that_cannot_be_its_own_is_refused_by_name(drive, tmp_path, wrong, words):
    with pytest.raises(UsageError, match=words):
        convert(drive("jpeg"), tmp_path / "out", rig=wrong)


def test_a_sample_gives_the_picture_of_each_camera(drive, tmp_path):
    outcome = convert(drive("h264"), tmp_path, rig=rig("h264"))
    sample = Dataset(outcome.paths.container)[3]
    for key, kind in (("camera", "camera.jpeg"), (KEY, "camera-left.jpeg")):
        (data,) = (d for n, d in members(outcome.paths.container).items() if n.endswith(f"_003.{kind}"))
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert np.array_equal(sample.image(key), sample.decode(key))
        assert np.abs(sample.image(key).astype(int) - pixels).max() <= 1
    assert not np.array_equal(sample.image(), sample.image(KEY))
