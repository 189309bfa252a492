# SPDX-License-Identifier: Apache-2.0
"""Poses of the frames table in every export, and against those of GPS and IMU."""

import json
import math
from operator import itemgetter

import numpy as np
import polars as pl
import pytest
from edgefirst.schemas import sensor_msgs
from edgefirst.schemas.geometry_msgs import Quaternion, Vector3
from l5kit_truth import east_north_up, tracked, turn
from late import late
from mcap.reader import make_reader
from pose_recordings import LATENCY, ODOMETRY, STATIC, S, add_messages, head, pose_message, static_message
from scipy.spatial.transform import Rotation, Slerp
from shared_data import REAL
from test_nuscenes import ego, faults, judged, with_still

from edgefirst_ros import Dataset, convert
from edgefirst_ros.export import export
from edgefirst_ros.export.drive import list_drives
from edgefirst_ros.export.l5kit.zarr2 import RecordArray
from edgefirst_ros.messages import Message, decode
from edgefirst_ros.sensors.transforms import convert_to_geodetic
from edgefirst_ros.synthetic import START, Recipe
from edgefirst_ros.synthetic.scene import Scene

SHIFT = np.array([431_000.0, 5_039_000.0, 12.0])
"""m; a frame of poses may be far away, as UTM is."""
SYNTHETIC = {"seconds": 6.0, "size": (128, 64), "codec": "jpeg", "topics": ("camera", "gps", "imu", "tf_static")}


@pytest.fixture(scope="module")
def dataset(boxed_path):
    """Two drives with poses, and without positions and attitudes."""
    opened = with_still(tracked(Dataset(boxed_path)))
    places, turns = [], []
    for row in opened.frames.iter_rows(named=True):
        place, rotation = ego(opened.sequences.index(row["name"]), row["timestamp"])
        known = row["latitude"] is not None and row["orientation"] is not None
        places.append([*(place + SHIFT).tolist()] if known else None)
        turns.append(Rotation.from_matrix(rotation).as_quat().tolist() if known else None)
    kinds = opened.frames.schema
    opened.frames = opened.frames.with_columns(
        pl.Series("pose_position", places, pl.Array(pl.Float64, 3)),
        pl.Series("pose_orientation", turns, pl.Array(pl.Float64, 4)),
        *(pl.lit(None, kinds[name]).alias(name) for name in ("latitude", "longitude", "altitude", "orientation")),
    )
    known = {"pose_frame": "utm", "pose_source": {"topic": "/odom", "type": ODOMETRY, "child": "base_link"}}
    opened.metadata |= {"sequences": {name: {**of, **known} for name, of in opened.metadata["sequences"].items()}}
    return opened


def ways(opened):
    """By sequence: stamps, places and rotations of the samples with a pose, from the first one on, by the scene."""
    found = {}
    for number, name in enumerate(opened.sequences):
        own = opened.frames.filter(pl.col("name") == name).drop_nulls("pose_position")["timestamp"].to_list()
        known = [ego(number, stamp) for stamp in own]
        found[name] = own, np.array([place for place, _ in known]), np.array([rotation for _, rotation in known])
    return found


def read_ncore(out, name):
    v4 = late("ncore.data.v4", reason="nvidia-ncore is not installed")
    (summary,) = (out / name).glob("*.json")
    loader = v4.SequenceLoaderV4(v4.SequenceComponentGroupsReader([summary]))
    times = loader.get_camera_sensor("camera").frames_timestamps_us[:, 1]
    poses = loader.pose_graph.evaluate_poses("rig", "world", times)
    return poses[:, :3, 3], poses[:, :3, :3]


def read_l5kit(out, name):
    place = json.loads((out / "meta.json").read_text())[name]
    assert place["frame"] == "utm"
    frames = RecordArray(out / "scenes.zarr" / "frames")
    half = len(frames) // 2
    own = frames.read(0, half) if "second" not in name else frames.read(half, len(frames))
    return own["ego_translation"], own["ego_rotation"]


def read_roverd(out, name):
    with np.load(out / name / "_radar" / "pose.npz") as found:
        return found["pos"], found["rot"]


@pytest.mark.parametrize("system", ["ncore", "l5kit", "roverd"])
def test_an_export_has_the_poses_and_says_which(dataset, tmp_path, system):
    done = export(dataset, system, tmp_path / "out")
    assert any(line.what == "poses (/odom in utm)" for line in done.report.lines)
    read = {"ncore": read_ncore, "l5kit": read_l5kit, "roverd": read_roverd}[system]
    for name, (_, places, rotations) in ways(dataset).items():
        found, turned = read(done.out, name)
        assert np.abs(found - (places - places[0])).max() < 1e-3
        assert np.abs(np.asarray(turned) - rotations).max() < 1e-4


def test_nuscenes_has_the_poses_at_the_stamp_of_every_sweep(dataset, tmp_path):
    """By the official reader."""
    done = export(dataset, "nuscenes", tmp_path / "out")
    places = json.loads((done.out / "origin.json").read_text())
    name = dataset.sequences[0]
    assert places[name]["frame"] == "utm"
    assert places[name]["position"] == pytest.approx((SHIFT + ways(dataset)[name][1][0]).tolist(), abs=1e-6)
    assert any(line.what == "poses (/odom in utm)" for line in done.report.lines)
    assert faults(judged(done.out)) == set()


# ---- GPS and IMU, written as Odometry ------------------------------------------------------------
def ecef(latitude, longitude, altitude):
    """NIMA TR8350.2."""
    a, f = 6_378_137.0, 1 / 298.257223563
    e2, phi, lam = f * (2 - f), math.radians(latitude), math.radians(longitude)
    n = a / math.sqrt(1 - e2 * math.sin(phi) ** 2)
    across = (n + altitude) * math.cos(phi)
    return np.array([across * math.cos(lam), across * math.sin(lam), (n * (1 - e2) + altitude) * math.sin(phi)])


def axes(latitude, longitude):
    """East, north and up as columns, in ECEF."""
    (sp, cp), (sl, cl) = ((math.sin(a), math.cos(a)) for a in (math.radians(latitude), math.radians(longitude)))
    return np.array([[-sl, -sp * cl, cp * cl], [cl, -sp * sl, cp * sl], [0.0, cp, sp]])


def as_odometry(path, start):
    """Fixes and attitudes of a recording as Odometry in ENU at `start`: latitude, longitude, altitude."""
    fixes, turns = [], []
    with path.open("rb") as file:
        for schema, channel, m in make_reader(file).iter_messages(["/gps", "/imu"]):
            content = decode(Message(channel.topic, schema.name, m.log_time, m.publish_time, m.sequence, m.data))
            stamp = content.stamp.sec * S + content.stamp.nanosec
            if channel.topic == "/gps":
                fixes.append((stamp, content.latitude, content.longitude, content.altitude))
            else:
                q = content.orientation
                turns.append((stamp, q.x, q.y, q.z, q.w))
    (at, *lla), (when, *quaternions) = (list(zip(*sorted(found), strict=True)) for found in (fixes, turns))
    rotations = Slerp(np.array(when) - when[0], Rotation.from_quat(np.array(quaternions).T))
    stamps = [s for s in sorted({*at, *when}) if max(at[0], when[0]) <= s <= min(at[-1], when[-1])]
    origin, world = ecef(*start), axes(*start[:2])
    for stamp in stamps:
        place = [np.interp(stamp - at[0], np.array(at) - at[0], axis) for axis in lla]
        enu = world.T @ (ecef(*place) - origin)
        turned = Rotation.from_matrix(world.T @ axes(*place[:2])) * rotations(stamp - when[0])
        yield stamp + LATENCY, "/odom", ODOMETRY, pose_message(ODOMETRY, stamp, enu, turned.as_quat())


@pytest.mark.parametrize("kind", ["synthetic", "verdin"])
def test_fixes_written_as_odometry_give_the_same_poses_to_a_millimetre(recording, tmp_path, kind):
    real = next((path for path in REAL if path.name.startswith("verdin")), None)
    if kind == "verdin" and real is None:
        pytest.skip("the recording is not at hand")
    path = recording(**SYNTHETIC) if kind == "synthetic" else real
    options = {} if kind == "synthetic" else {"reference_topic": "/radar/targets", "sensors": ["radar.targets"]}
    (old,) = list_drives(Dataset(convert(path, tmp_path / "gps", **options).paths.container))
    first = old.row(int(np.argmax(old.located)))
    messages = sorted(as_odometry(path, [first[name] for name in ("latitude", "longitude", "altitude")]))
    again = add_messages(path, tmp_path / path.name, messages)
    outcome = convert(again, tmp_path / "odometry", **options)
    assert outcome.counts["/odom"].dropped == {}
    (new,) = list_drives(Dataset(outcome.paths.container))
    assert (old.source, new.source) == ("GPS and IMU", "/odom in odom")
    both = old.located & new.located
    assert both.sum() > 50
    assert (both == old.located).all()
    away = new.rig_to_world[both][:, :3, 3] + new.origin - old.rig_to_world[both][:, :3, 3]
    assert np.abs(away).max() < 1e-3
    turned = Rotation.from_matrix(new.rig_to_world[both][:, :3, :3]).inv()
    turned *= Rotation.from_matrix(old.rig_to_world[both][:, :3, :3])
    assert np.degrees(turned.magnitude().max()) < 0.01
    if kind == "synthetic":
        scene = Scene(Recipe(**SYNTHETIC))
        stamps = old.stamps[both].tolist()
        for stamp, pose in list(zip(stamps, new.rig_to_world[both], strict=True))[::20]:
            truth = east_north_up(scene.position(stamp), scene.position(stamps[0]))
            assert pose[:3, 3] == pytest.approx(truth, abs=0.01)
            assert np.abs(pose[:3, :3] - turn(scene, stamp)).max() < 0.01


# ---- where GPS and IMU are -----------------------------------------------------------------------
ANTENNA, TURNED = (1.2, -0.4, 1.6), Rotation.from_euler("xz", (180, 90), degrees=True)
"""Place of the antenna in base_link, m; the IMU hangs from the roof, and its x axis points left."""


def mounted(path, frames):
    """The messages of GPS and IMU of a recording, of sensors in `frames` that are mounted so."""
    truth = Scene(Recipe(**SYNTHETIC))
    with path.open("rb") as file:
        found = list(make_reader(file).iter_messages(["/gps", "/imu"]))
    for schema, channel, m in found:
        content = decode(Message(channel.topic, schema.name, m.log_time, m.publish_time, m.sequence, m.data))
        stamp = content.stamp.sec * S + content.stamp.nanosec
        own = Rotation.from_quat(truth.orientation(stamp))
        header = head(stamp, frames[channel.topic])
        if channel.topic == "/imu":
            turn_of = Quaternion(*(own * TURNED).as_quat())
            rate = Vector3(*TURNED.inv().apply([0, 0, content.angular_velocity.z]))
            data = sensor_msgs.Imu(header, turn_of, [0.0] * 9, rate).to_bytes()
        else:
            base = truth.position(stamp)
            place = convert_to_geodetic(ecef(*base) + axes(*base[:2]) @ own.apply(ANTENNA)).tolist()
            data = sensor_msgs.NavSatFix(header, content.status, *place, [0.0] * 9, 0).to_bytes()
        yield m.log_time, channel.topic, schema.name, data


@pytest.mark.parametrize("frames", [{"/gps": "antenna", "/imu": "imu_link"}, {"/gps": "gps", "/imu": "imu"}])
def test_poses_of_gps_and_imu_are_those_of_the_vehicle(recording, tmp_path, frames):
    """Where static transforms place the antenna and the IMU."""
    path = recording(**SYNTHETIC)
    still = (0.0, 0.0, 0.0, 1.0)
    static = [
        (START, "/tf_static", STATIC, static_message(START, "base_link", frames["/gps"], ANTENNA, still)),
        (START, "/tf_static", STATIC, static_message(START, "base_link", frames["/imu"], (0, 0, 2), TURNED.as_quat())),
    ]
    sent = sorted([*static, *mounted(path, frames)], key=itemgetter(0))
    again = add_messages(path, tmp_path / path.name, sent, leave=("/gps", "/imu"))
    old, new = (
        list_drives(Dataset(convert(one, tmp_path / one.parent.name).paths.container))[0] for one in (path, again)
    )
    both = old.located & new.located
    assert both.sum() > 50
    plain, moved = (one.rig_to_world[both] for one in (old, new))
    away = np.linalg.inv(plain[0]) @ plain - np.linalg.inv(moved[0]) @ moved
    assert np.abs(away[:, :3, 3]).max() < 0.01
    assert np.abs(away[:, :3, :3]).max() < 1e-3
