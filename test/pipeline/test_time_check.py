# SPDX-License-Identifier: Apache-2.0
"""Offsets between sensors: those that were put into a drive that turns and accelerates are found, from content alone.

The four drives take 8 s of CPU: their pictures have to be drawn, encoded and decoded.
"""

import json
import math
import re
import struct
from dataclasses import replace

import cv2
import numpy as np
import pytest
from bags import messages, together, write
from edgefirst.schemas import sensor_msgs
from pose_recordings import ODOMETRY, add_messages, poses
from shared_data import SHARED
from typer.testing import CliRunner

from edgefirst_ros.cli.app import app
from edgefirst_ros.cli.info import collect_recording_facts, format_time_check
from edgefirst_ros.cli.output import show
from edgefirst_ros.config import Settings
from edgefirst_ros.counts import ignore_progress
from edgefirst_ros.errors import RecordingError
from edgefirst_ros.pipeline.first_pass import walk
from edgefirst_ros.pipeline.time_check import Pair, check_time, join_pairs
from edgefirst_ros.sensors.motion import TURN, DopplerMotion, Motion, PictureMotion
from edgefirst_ros.sync.offsets import Offset, find_drift, find_offset
from edgefirst_ros.synthetic import START, Recipe
from edgefirst_ros.synthetic.messages import make_cloud
from edgefirst_ros.synthetic.scene import Scene

MS = 1_000_000
DRIVE = {
    "seconds": 10,
    "scene": "street",
    "size": (320, 180),
    "fps": 15.0,
    "topics": {"camera", "gps", "imu", "lidar/points", "radar/targets"},
}
PLANTED = {
    0: {},
    1: {"imu": -200, "lidar/points": 200, "radar/targets": -120, "gps": 60},
    2: {"camera": 150},
    13: {},
}
"""Seed: ms by which the stamps of topics are off."""


def check(path, progress=ignore_progress, **settings):
    settings = Settings(**settings)
    return check_time(walk(path, settings).conclude(settings), settings, progress)


@pytest.mark.parametrize("seed", PLANTED)
def test_offsets_that_were_put_in_are_found(recording, seed):
    off = {name.replace("/", "."): ms / 1000 for name, ms in PLANTED[seed].items()}
    found = check(recording(seed=seed, clock_offset={n: ms * MS for n, ms in PLANTED[seed].items()}, **DRIVE))
    pairs = {(one.first, one.second): one.offset for one in found.pairs}
    assert set(pairs) == {("camera", "imu"), ("lidar.points", "imu"), ("gps", "imu"), ("radar.targets", "gps")}
    for (first, second), offset in pairs.items():
        error = offset.seconds - (off.get(first, 0) - off.get(second, 0))
        assert abs(error) < (0.01 if off else 0.005), (first, second, offset)
        assert offset.certain
        assert offset.confidence > 0.9
    ((reference, lines),) = found.offsets.items()
    assert reference == ("camera" if "camera" not in off else "lidar.points")
    assert {*lines, reference} == {"camera", "imu", "lidar.points", "gps", "radar.targets"}
    assert lines == {key: pytest.approx(-off.get(key, 0), abs=0.012) for key in lines}
    for key, drift in found.drifts.items():  # the recorder's clock is theirs, up to the jitter of 3 ms
        assert abs(drift.ppm) < max(4 * drift.uncertainty, 100), key


def test_of_a_long_drive_the_part_that_turns_most_is_compared(recording, monkeypatch):
    path = recording(seed=2, clock_offset={"camera": 150 * MS}, **{**DRIVE, "seconds": 20, "topics": {"camera", "imu"}})
    monkeypatch.setattr("edgefirst_ros.pipeline.time_check.LONGEST", 8)
    compared = check(path).pairs[0].offset
    assert compared.seconds == pytest.approx(0.150, abs=0.01)
    assert 6 < compared.compared < 8.2


def test_offsets_of_the_settings_are_in_effect_and_in_the_lines(recording):
    rig = {"imu": {"offset": 0.3}}
    found = check(recording(seed=0, clock_offset={}, **DRIVE), rig=rig)
    assert found.pairs[0].offset.seconds == pytest.approx(-0.3, abs=0.005)  # it has to go again
    assert found.offsets["camera"]["imu"] == pytest.approx(0, abs=0.005)


def test_nothing_can_be_told_without_motion_sensors_or_time(recording, capsys):
    still = check(recording(seconds=5))  # one curve at one speed
    assert [one.offset.why for one in still.pairs] == [*["no motion: the drive does not turn"] * 3,
                                                        "no motion: the speed does not change"]  # fmt: skip
    short = check(recording(seconds=0.5))
    assert short.pairs[0].offset.why == "too short: 0.5 s of both; 4 s are needed"
    assert short.drifts["camera"].why == "too short: 1 s; 10 s are needed"
    facts = collect_recording_facts(recording(seconds=1, topics={"camera", "radar/targets"}, fps=10.0), check_time=True)
    show(format_time_check(facts["time_check"]))
    said = capsys.readouterr().out
    for sensor in ("imu", "lidar.points and no imu", "gps"):
        assert f"unknown: the recording has no {sensor}\n" in said
    assert "offset:" not in said
    assert still.offsets == short.offsets == facts["time_check"]["offsets"] == {}


def test_progress_is_told_by_the_messages_that_are_read(recording):
    """In 2 s there are 20 pictures, 20 fixes and 100 messages of the IMU; all are read, then the pictures."""
    told = []
    path = recording(seconds=2, size=(160, 96), fps=10.0, topics={"camera", "imu", "gps"})
    check(path, progress=lambda *said: told.append(said))
    assert {step for step, _, _ in told} == {"checking time"}
    of_all, of_pictures = ([done for _, done, total in told if total == number] for number in (140, 20))
    assert len(of_all) + len(of_pictures) == len(told)
    assert of_all == sorted({0, *of_all})
    assert 100 < of_all[-1] < 140
    assert of_pictures[0] == 0


def test_each_camera_and_lidar_of_a_rig_is_compared(recording, tmp_path):
    small = {"seconds": 1, "size": (160, 96), "fps": 10.0, "lidar_points": 50, "topics": {"camera", "lidar/points"}}
    left = recording(**small, rename={"camera": "/left/camera", "lidar/points": "/left/points"})
    path = write(tmp_path / "both.mcap", together(messages(recording(**small)), messages(left)))
    rig = {"camera": "/camera/h264", "camera.left": "/left/camera", "lidar.points.left": "/left/points"}
    found = check(path, rig={key: {"topic": topic} for key, topic in rig.items()})
    compared = [one.first for one in found.pairs if one.second == "imu"]
    assert compared == ["camera", "camera.left", "lidar.points", "lidar.points.left"]


def test_a_recording_without_camera_is_checked_by_another_reference(recording):
    path = recording(seed=1, **{**DRIVE, "topics": {"imu", "lidar/points"}, "clock_offset": {"imu": -80 * MS}})
    with pytest.raises(RecordingError, match="set reference_topic"):
        check(path)
    assert check(path, reference_topic="/lidar/points").offsets == {
        "lidar.points": {"imu": pytest.approx(0.08, abs=0.005)}
    }


def test_poses_take_the_place_of_imu_and_gps(recording, tmp_path):
    recipe = {**DRIVE, "seed": 3, "seconds": 8, "topics": {"lidar/points", "radar/targets"}}
    scene = Scene(Recipe(**recipe))

    def late(stamp):  # what is stamped then was 60 ms before
        motion, half = scene.motion(stamp - 60 * MS), scene.motion(stamp - 60 * MS).yaw / 2
        return (motion.along, motion.across, 0.0), (0.0, 0.0, math.sin(half), math.cos(half))

    path = add_messages(recording(**recipe), tmp_path / "posed.mcap", poses(ODOMETRY, late, START, 8))
    found = check(path, reference_topic="/lidar/points")
    assert [(one.first, one.second) for one in found.pairs if one.offset.certain] == [
        ("lidar.points", "pose"), ("radar.targets", "pose"),
    ]  # fmt: skip
    ((reference, lines),) = found.offsets.items()
    assert reference == "lidar.points"
    assert lines == {"pose": pytest.approx(-0.06, abs=0.005), "radar.targets": pytest.approx(0, abs=0.005)}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not at hand")
def test_real_drives():
    """Of one device that was walked with the difference is known, not the baseline; sensors of two cars differ."""
    (gopro,) = (SHARED / "data").glob("gopro-max*.mcap")
    plain, moved = (check(gopro, rig={"imu": {"offset": offset}}).pairs[0].offset for offset in (0.0, 0.137))
    assert plain.seconds - moved.seconds == pytest.approx(0.137, abs=0.015)
    assert not plain.certain
    (highway,) = (SHARED / "data").glob("highway*.mcap")
    assert {one.offset.why.partition(":")[0] for one in check(highway).pairs if one.first != "lidar.points"} == {
        "the two do not show one motion"
    }


def motion(rate, hertz=20, seconds=20.0, late=0.0):
    """A motion with a rate, a function of s; its stamps are `late` s too high."""
    found = Motion()
    for n in range(int(seconds * hertz)):
        found.add_rate(START + int((n / hertz + late) * 1e9), np.array([rate(n / hertz)]))
    return found


def wave(seconds):
    return 0.2 * math.sin(1.3 * seconds) + 0.1 * math.sin(2.9 * seconds + 1)


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (motion(lambda s: 0.2 * math.sin(12 * s)), "several offsets"),
        (motion(np.random.default_rng(1).normal), "do not show one motion"),
        (motion(wave, late=1.4), "no best offset within 1 s|do not show one motion"),
        (motion(lambda s: 0.001 * wave(s)), "no motion"),
        (motion(wave, seconds=3), "too short"),
        (motion(wave, seconds=0.05), "too few messages"),
        (motion(wave, hertz=0.5), "too few messages"),
    ],
)
def test_offset_that_cannot_be_told_says_why(second, why):
    first = motion(lambda s: 0.2 * math.sin(12 * s)) if why == "several offsets" else motion(wave)
    found = find_offset(first, second, "turn")
    assert found.seconds is None
    assert not found.certain
    assert re.search(why, found.why), found


@pytest.mark.parametrize("late", [-0.6, 0.6])
def test_an_offset_that_fits_nearly_as_well_on_either_side_is_told(late):
    """All but a hundredth of the motion comes again after 1.2 s."""

    def rate(seconds):
        return 0.2 * math.sin(2 * math.pi * seconds / 1.2) + 0.02 * wave(seconds)

    found = find_offset(motion(rate), motion(rate, hertz=25, late=late), "turn")
    assert (found.best, found.why) == (pytest.approx(-late, abs=0.01), "the motion repeats: several offsets fit")


@pytest.mark.parametrize("number", [20, 21])
def test_an_offset_needs_twenty_intervals(number):
    both = [motion(wave, hertz=2, seconds=number / 2) for _ in range(2)]
    few = find_offset(*both, "turn").why.startswith("too few messages: one in 0.5 s")
    assert few is (number == 20)  # messages, with 19 intervals between them


@pytest.mark.parametrize("late", [-1.1, 1.1])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_offset_of_more_than_a_second_is_not_told(late, swapped):
    """Of two motions that are 1.1 s apart those 1 s apart fit best of all that are compared."""
    both = [motion(wave), motion(wave, late=late)]
    assert find_offset(*both[:: -1 if swapped else 1], "turn").why == "no best offset within 1 s"


@pytest.mark.parametrize("swapped", [False, True])
def test_only_seconds_of_both_are_compared_where_one_begins_later(swapped):
    """Of 20 s each, 17 s apart, 3 s are common; the 20 s that are 10 s apart have 10 s in common."""

    def compare(apart):
        both = [motion(wave), motion(lambda s: wave(s + apart), late=apart)]
        return find_offset(*both[:: -1 if swapped else 1], "turn")

    short, long = compare(17), compare(10)
    assert (short.seconds, short.compared) == (None, pytest.approx(3, abs=0.11))
    assert re.match(r"too short: (2\.9|3\.0) s of both", short.why)
    assert long.seconds == pytest.approx(0, abs=0.005)
    assert long.compared == pytest.approx(10, abs=0.5)


def test_offset_is_found_beside_a_step_of_the_clock_and_at_unlike_rates():
    whole = motion(wave, hertz=50, seconds=30)
    for n in range(1200, 1500):
        whole.stamps[n] += 3600 * 10**9  # the shorter stretch after the clock was set
    assert find_offset(whole, motion(wave, hertz=7, late=-0.123), "turn").seconds == pytest.approx(0.123, abs=0.003)
    assert find_offset(motion(wave, hertz=7, late=-0.123), whole, "turn").seconds == pytest.approx(-0.123, abs=0.003)


def test_two_speeds_of_unlike_size_are_not_of_one_vehicle():
    slow = motion(lambda s: 10 + wave(s) * 10)
    assert find_offset(slow, motion(lambda s: 10 + wave(s) * 10), "speed").seconds == pytest.approx(0, abs=0.001)
    assert find_offset(slow, motion(lambda s: 2 + wave(s) * 3), "speed").why == (
        "the two do not show one speed: ratio 3.33"
    )


def test_drift_is_the_slope_of_the_fastest_messages():
    rng = np.random.default_rng(2)
    log = [START + n * 50 * MS for n in range(1200)]
    late = rng.exponential(4 * MS, len(log))
    drift = find_drift([int(at + 40e-6 * (at - START) - late[n]) for n, at in enumerate(log)], log)
    assert drift.ppm == pytest.approx(40, abs=3)
    assert drift.uncertainty < 3
    assert find_drift(log[:100], log[:100]).why == "too short: 5 s; 10 s are needed"
    within = [at + 250 * MS for at in log[:180]]  # 9 s that begin within one
    assert find_drift(within, within).why == "too short: 9 s; 10 s are needed"
    assert find_drift([], []).why == "no messages"
    assert find_drift([at + (at > START + 20 * 10**9) * 10**9 for at in log], log).why == "the clock was set"


def test_clocks_that_drift_are_found_beside_one_that_does_not(recording, tmp_path):
    """In 40 s the clock of the IMU gains 6 ms, that of the GPS loses 10 ms; the recorder adds up to 3 ms by chance."""
    source = recording(seconds=40, codec="jpeg", fps=5.0, size=(128, 64), topics={"camera", "imu", "gps"})
    planted = {"/imu": 150, "/gps": -250, "/camera/jpeg": 0}

    def drift(channel, message):
        stamp = sum(n * of for n, of in zip(struct.unpack_from("<iI", message.data, 4), (10**9, 1), strict=True))
        stamp += round(planted[channel.topic] * 1e-6 * (stamp - START))
        return replace(message, data=message.data[:4] + struct.pack("<iI", *divmod(stamp, 10**9)) + message.data[12:])

    path = write(tmp_path / "drive.mcap", [(s, c, drift(c, message)) for s, c, message in messages(source)])
    done = CliRunner().invoke(app, ["info", "--check-time", "--json", str(path)])
    assert done.exit_code == 0, done.exception
    found = json.loads(done.stdout)["time_check"]["drift"]
    for topic, ppm in planted.items():
        drift = found[topic.split("/")[1]]
        assert drift["ppm"] == pytest.approx(ppm, abs=max(20, 4 * drift["uncertainty"])), topic
        assert 0 < drift["uncertainty"] < 20
    shown = CliRunner().invoke(app, ["info", "--check-time", str(path)]).stdout
    table = shown[shown.index("clock ") :].split("\n\n")[0]
    assert {line.split()[0]: float(line.split()[1]) for line in table.splitlines()[1:] if line[0].isalpha()} == {
        key: of["ppm"] for key, of in found.items()
    }


def test_numbers_beyond_all_measure_do_not_count(recording):
    wild = motion(wave)
    for at, rate in ((21, 1e300), (22, -1e300), (23, math.inf)):
        wild.add_rate(START + at * 10**9, np.array([rate]))
    assert np.isfinite(wild.totals).all()
    assert find_offset(motion(wave), wild, "turn").seconds == pytest.approx(0, abs=0.005)
    by_log = check(recording(seed=0, clock_offset={}, **DRIVE), time_base="log")
    assert {one.why for one in by_log.drifts.values()} == {"log_time is used for its stamps"}


def pair(first, second, seconds, uncertainty=0.001):
    return Pair(first, second, "turn", Offset(seconds, uncertainty=uncertainty))


def test_lines_are_against_the_camera_unless_most_sensors_disagree_with_it():
    two = [pair("camera", "imu", 0.1)]
    assert join_pairs(two) == {"camera": {"imu": 0.1}}
    apart = [*two, pair("radar.targets", "gps", 0.3), pair("lidar.points", "imu", 0.1, uncertainty=0.1)]
    assert join_pairs(apart) == {"camera": {"imu": 0.1}, "radar.targets": {"gps": 0.3}}
    most = [*two, pair("lidar.points", "imu", 0.0), pair("gps", "imu", 0.0)]
    assert join_pairs(most) == {"lidar.points": {"camera": -0.1, "imu": 0.0, "gps": 0.0}}
    assert join_pairs([Pair("camera", "imu", "turn", Offset(None, "too short"))]) == {}


@pytest.mark.parametrize("name", ["speed", "radial_speed", "Doppler"])
def test_speed_by_doppler_is_that_of_standing_things(name):
    angle = np.radians([-40, -10, 0, 25, 50, 5, 8])
    points = np.zeros(7, dtype=[(field, "<f4") for field in ("x", "y", "z", name)])
    points["x"], points["y"] = 20 * np.cos(angle), 20 * np.sin(angle)
    points[name] = -(12 * np.cos(angle) + 0.5 * np.sin(angle))  # 12 m/s, and 0.5 m/s to the left at the sensor
    points[name][5:] = 3, -19  # two cars
    speeds = DopplerMotion()
    for n in range(2):
        speeds.add(START + n * 10**9, sensor_msgs.PointCloud2.from_cdr(make_cloud(points, "radar", 0)))
    assert speeds.motions["speed"].totals[1] == pytest.approx([12], abs=0.05)


@pytest.mark.parametrize("right", [-2.75, 0.25, 1.5])
def test_pictures_tell_turning_to_a_tenth_of_a_pixel(right):
    """A texture that OpenCV moves by parts of a pixel."""
    texture = cv2.GaussianBlur(np.random.default_rng(4).integers(0, 255, (160, 300)).astype(np.uint8), (0, 0), 2.5)
    texture = cv2.normalize(texture, None, 20, 235, cv2.NORM_MINMAX)
    moved = cv2.warpAffine(texture, np.float32([[1, 0, right], [0, 1, 0]]), (300, 160), flags=cv2.INTER_CUBIC)
    motion = PictureMotion()
    for number, picture in enumerate((texture, moved)):
        motion.add(number * 100 * MS, picture[:, 20:276])
    assert motion.motions[TURN].totals[-1] == pytest.approx([right, 0], abs=0.1)
