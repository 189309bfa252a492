# SPDX-License-Identifier: Apache-2.0
"""Poses of the vehicle from every kind of source: the same truth, offline and live, through every step of a dataset."""

import json
import time

import numpy as np
import polars as pl
import pyarrow.ipc
import pytest
from pose_recordings import (
    COVARIANCE,
    LATENCY,
    ODOMETRY,
    POSE,
    STATIC,
    TF,
    S,
    add_messages,
    poses,
    static_message,
    transforms_message,
)
from same_dataset import assert_same_dataset
from scipy.spatial.transform import Rotation, Slerp

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.dataset.verdict import Timeline
from edgefirst_ros.errors import UsageError
from edgefirst_ros.pipeline import samples
from edgefirst_ros.pipeline.capture import Capture
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.topics import choose_topics
from edgefirst_ros.synthetic import START

SECONDS = 2.0
SMALL = {"seconds": SECONDS, "size": (128, 64), "codec": "jpeg", "topics": ("camera", "gps", "imu", "tf_static")}
MOUNT = ((0.3, -0.2, 0.9), (0.0, 0.0, 0.6, 0.8))
"""base_link to body, which the sources of motion are about; m, x, y, z, w."""


def way(stamp):
    """A way of the vehicle that turns about all axes: place in m, quaternion."""
    t = (stamp - START) / S
    turn = Rotation.from_euler("ZYX", [170 + 25 * t, 8 * np.sin(2 * t), 5 * t], degrees=True).as_quat()
    return (1000 + 12 * t, -500 + 3 * t * t, 0.5 * t), tuple(turn)


def as_matrix(place, turn):
    found = np.eye(4)
    found[:3, :3], found[:3, 3] = Rotation.from_quat(turn).as_matrix(), place
    return found


def as_pose(matrix):
    return tuple(matrix[:3, 3]), tuple(Rotation.from_matrix(matrix[:3, :3]).as_quat())


def drift(stamp):
    """map to odom: what a localisation corrects."""
    t = (stamp - START) / S
    return (5 + t, -2.0, 0.0), tuple(Rotation.from_euler("z", 10 * t, degrees=True).as_quat())


def moved(inner):
    """The way of the body, or of odom's, as seen by the source."""
    return lambda stamp: as_pose(inner(stamp))


def in_odom(stamp):
    return np.linalg.inv(as_matrix(*drift(stamp))) @ as_matrix(*way(stamp))


def of_body(stamp):
    return as_matrix(*way(stamp)) @ as_matrix(*MOUNT)


def chain(parent_of_map="map"):
    """/tf of map -> odom -> base_link, in one message and in two, and of a wheel that is not asked for."""
    found = []
    for at in range(START, START + round(SECONDS * S) + 1, S // 20):
        both = [(at, parent_of_map, "odom", *drift(at)), (at, "odom", "base_link", *moved(in_odom)(at))]
        wheel = [(at, "base_link", "wheel", (0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))]
        groups = [both] if (at // (S // 20)) % 2 else [both[:1], wheel, both[1:]]
        found += [(at + LATENCY + n, "/tf", TF, transforms_message(part)) for n, part in enumerate(groups)]
    return found


def source_of(kind):
    """Messages and settings of each kind of source, and the error of interpolating along its parts, m."""
    if kind == "tf":
        return chain(), {"rig": {"pose": {"tf": ["map", "base_link"]}}}, "map", "base_link"
    if kind == "mounted":
        static = (START, "/tf_static", STATIC, static_message(START, "base_link", "body", *MOUNT))
        found = poses(ODOMETRY, moved(of_body), START, SECONDS, child="body")
        return [static, *found], {"pose_topic": "/odom"}, "odom", "base_link"
    schema = {"odometry": ODOMETRY, "pose": POSE, "covariance": COVARIANCE}[kind]
    return poses(schema, way, START, SECONDS), {}, "odom", "base_link" if kind == "odometry" else None


KINDS = ("odometry", "pose", "covariance", "tf", "mounted")


@pytest.fixture(scope="module")
def made(recording, tmp_path_factory):
    def make(kind):
        folder = tmp_path_factory.mktemp(kind)
        messages, options, *expected = source_of(kind)
        path = add_messages(recording(**SMALL), folder / "drive" / "drive.mcap", messages)
        return path, options, expected

    return make


def metadata(path):
    return {key.decode(): value for key, value in pyarrow.ipc.open_file(path).schema.metadata.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_pose_gives_the_truth_offline_and_live(made, tmp_path, monkeypatch, kind):
    path, options, (frame, child) = made(kind)
    outcome = convert(path, tmp_path / "offline", **options)
    rows = pl.read_ipc(outcome.paths.frames)
    stated = metadata(outcome.paths.frames)
    source = json.loads(stated["pose_source"])
    assert (json.loads(stated["pose_frame"]), source["child"]) == (frame, child)
    known = rows.drop_nulls("pose_position")
    inside = rows.filter(pl.col("timestamp").is_between(START, START + round(SECONDS * S)))
    assert len(known) == len(inside) > 50
    steps = np.arange(START, START + round(SECONDS * S) + 1, S // 20)
    truth = [way(at) for at in steps.tolist()]
    stamps = (known["timestamp"].to_numpy() - START) / S
    places = np.column_stack(
        [np.interp(stamps, (steps - START) / S, axis) for axis in np.array([p for p, _ in truth]).T]
    )
    turns = Slerp((steps - START) / S, Rotation.from_quat([turn for _, turn in truth]))(stamps)
    found = Rotation.from_quat(known["pose_orientation"].to_list())
    exact = kind in ("odometry", "pose", "covariance")  # a chain is interpolated along its parts
    assert np.abs(known["pose_position"].to_numpy() - places).max() < (1e-9 if exact else 1e-2)
    assert (found.inv() * turns).magnitude().max() < np.radians(1e-6 if exact else 1e-2)
    at_messages = known.filter(pl.col("timestamp").is_in(steps.tolist()))
    for row in at_messages.to_dicts():
        place, turn = way(row["timestamp"])
        assert row["pose_position"] == pytest.approx(place, abs=1e-9)
        assert (Rotation.from_quat(row["pose_orientation"]).inv() * Rotation.from_quat(turn)).magnitude() < 1e-9
    assert Timeline.of(rows.to_arrow()).present["pose"] == len(known)
    assert "pose" not in Timeline.of(rows.drop("pose_position").to_arrow()).present
    sample = Dataset(outcome.paths.container).sample("drive", int(known["frame"][5]))
    assert sample.pose.position == tuple(known["pose_position"][5])
    assert sample.pose.yaw == pytest.approx(found[5].as_euler("ZYX", degrees=True)[0])
    dropped = outcome.counts[source["topic"]].dropped
    assert sum(dropped.values()) == (20 if kind == "tf" else 0), dropped  # messages of the wheel

    monkeypatch.setattr(samples, "PATIENCE", 600)
    monkeypatch.setattr(samples, "LAST_WORK", 600)
    capture_like(path, tmp_path / "live", Settings(**options))
    assert_same_dataset(tmp_path / "live", tmp_path / "offline", "drive")


def capture_like(path, out, settings):
    read = McapRecording(path)
    topics = {}
    for message in read.walk():
        topics[message.topic] = message.schema
    roles = choose_topics(topics, settings)
    live = LiveSettings(out=str(out), sequence="drive", fsync=False, min_free_bytes=0)
    capture = Capture(settings, live, roles, "test", lambda text: None)
    begun = time.monotonic_ns()
    capture.start()
    messages = list(read.iter_messages(set(topics)))
    for message in messages:
        capture.put(message, begun + message.log_time - messages[0].log_time)
    capture.stop()
    capture.close()


@pytest.mark.parametrize(
    ("frames", "parent", "said"),
    [
        (["map", "base_link"], "base_link", "loop: base_link -> odom -> base_link"),
        (["world", "base_link"], "map", "joins 'world' and 'base_link'.* world and map -> odom -> base_link"),
        (["map", "lidar_2"], "map", "joins 'map' and 'lidar_2'.* map and lidar_2"),
        (["map", "map"], "map", "both frames are 'map'"),
    ],
)
def test_a_loop_and_a_chain_without_an_end_are_errors_that_name_the_frames(recording, tmp_path, frames, parent, said):
    path = add_messages(recording(**SMALL), tmp_path / "drive" / "drive.mcap", chain(parent))
    with pytest.raises(UsageError, match=said):
        convert(path, tmp_path, rig={"pose": {"tf": frames}})


def test_transforms_of_the_other_byte_order_that_are_cut_or_empty_are_counted(recording, tmp_path):
    good = (START, "map", "base_link", *way(START))
    zero = (START + S, "map", "base_link", (1.0, 2.0, 3.0), (0.0, 0.0, 0.0, 0.0))
    sent = [
        transforms_message([good]),
        transforms_message([(START + S // 2, *good[1:])], ">"),
        transforms_message([zero]),
        transforms_message([]),
        transforms_message([good])[:-3],
    ]
    messages = [(START + n * S // 2, "/tf", TF, data) for n, data in enumerate(sent)]
    path = add_messages(recording(**SMALL), tmp_path / "drive" / "drive.mcap", messages)
    outcome = convert(path, tmp_path, rig={"pose": {"tf": ["map", "base_link"]}})
    assert dict(outcome.counts["/tf"].dropped) == {
        "no valid pose": 1,
        "between other frames than the pose": 1,
        "undecodable": 1,
    }
    assert outcome.exit_code == 3
    known = pl.read_ipc(outcome.paths.frames).drop_nulls("pose_position")
    assert known["timestamp"].max() <= START + S // 2
    assert len(known) == 16


def test_poses_are_not_interpolated_over_gaps_and_between_frames(recording, tmp_path):
    near = [m for m in poses(ODOMETRY, way, START, SECONDS) if not START + 0.3 * S < m[0] < START + 0.7 * S]
    stray = poses(ODOMETRY, lambda at: ((9e9, 0, 0), (0, 0, 0, 1)), START + S // 100, SECONDS, frame="other")
    path = add_messages(recording(**SMALL), tmp_path / "drive" / "drive.mcap", sorted([*near, *stray]))
    outcome = convert(path, tmp_path, max_gap=0.3)
    rows = pl.read_ipc(outcome.paths.frames)
    known = rows.drop_nulls("pose_position")
    assert outcome.counts["/odom"].dropped == {"between other frames than the pose": len(stray)}
    assert known["pose_position"].arr.max().max() < 2000
    gap = pl.col("timestamp").is_between(START + 0.251 * S, START + 0.699 * S)
    assert len(known) == len(rows) - rows.filter(gap).height
    assert rows.filter(gap).height > 10


@pytest.mark.parametrize("key", ["camera", "gps", "imu", "pose"])
def test_an_offset_moves_the_stamps_of_its_sensor_alone(made, tmp_path, key):
    """0.1 s are 3 frames: what was at a frame is then at the third after it, or the frames themselves move."""
    path, _, _ = made("odometry")
    plain = pl.read_ipc(convert(path, tmp_path / "plain").paths.frames)
    moved = pl.read_ipc(convert(path, tmp_path / "moved", rig={key: {"offset": 0.1}}).paths.frames)
    column = {"gps": "latitude", "imu": "orientation", "pose": "pose_position"}.get(key)
    by = 100_000_000
    assert (moved["timestamp"] - plain["timestamp"]).unique().to_list() == [by if key == "camera" else 0]
    for name in ("latitude", "orientation", "pose_position"):
        old, new = (frames[name].to_numpy() for frames in (plain, moved))
        shift = {"camera": 3, column: -3}.get(key if key == "camera" else name, 0)
        pairs = (old[10 + shift : 40 + shift], new[10:40])
        assert np.allclose(*pairs, rtol=0, atol=1e-4), name
        assert shift == 0 or not np.allclose(old[10:40], new[10:40], rtol=0, atol=1e-9)


@pytest.mark.parametrize("line", [{"gps": {"tolerance": 0.1}}, {"pose": {"reuse": False}}, {"model": {"offset": 0.1}}])
def test_settings_of_the_alignment_are_refused_by_name_where_they_have_no_effect(recording, tmp_path, line):
    key, own = next(iter(line.items()))
    with pytest.raises(UsageError, match=f"{key}: {next(iter(own))} is not for this sensor"):
        convert(recording(**SMALL), tmp_path, rig=line)


def test_several_topics_of_poses_are_named_and_none_is_used(recording, tmp_path):
    messages = [m for n in "ab" for m in poses(ODOMETRY, way, START, 1.0, topic=f"/{n}/odom")]
    path = add_messages(recording(**SMALL), tmp_path / "drive" / "drive.mcap", sorted(messages))
    outcome = convert(path, tmp_path)
    assert any("/a/odom, /b/odom" in note for note in outcome.notes)
    assert "pose_frame" not in metadata(outcome.paths.frames)
    assert {use["use"] for use in json.loads(metadata(outcome.paths.frames)["unused_topics"])} >= {
        "pose_topic: /a/odom"
    }
