# SPDX-License-Identifier: Apache-2.0
"""Positions and attitudes against brute force over all messages, and by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from edgefirst.schemas import geometry_msgs, sensor_msgs, std_msgs
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefirst_ros.sensors.navigation import (
    EgoPose,
    Fix,
    FixTrack,
    GeoPosition,
    ValueTrack,
    compose,
    find_angles,
    fix_of,
    interpolate,
    invert,
    is_reachable,
    read_attitude,
)

S = 1_000_000_000
METRE = 1 / 111_194.9  # degrees of a great circle of 6371 km


def navsat(latitude, longitude, altitude=1.0, status=0, covariance=(0.0,) * 9, kind=0):
    return sensor_msgs.NavSatFix(
        std_msgs.Header(frame_id="gps"),
        sensor_msgs.NavSatStatus(status, 1),
        latitude,
        longitude,
        altitude,
        list(covariance),
        kind,
    )


def fix(stamp, latitude=1.0, longitude=1.0, altitude=0.0, error=None):
    return Fix(stamp, latitude, longitude, altitude, error)


def track(fixes, gap=2 * S):
    made = FixTrack(gap)
    for one in fixes:
        made.add(one)
    return made


# ---- messages ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "bad",
    [(0.0, 0.0), (math.nan, 1.0), (1.0, math.inf), (90.1, 1.0), (1.0, -180.1), (1.0, 1.0, 1.0, -1), (-0.0, 0.0)],
)
def test_messages_without_a_fix(bad):
    assert fix_of(navsat(*bad), 5) is None


def test_fixes_of_messages():
    assert fix_of(navsat(90.0, -180.0), 5) == Fix(5, 90.0, -180.0, 1.0, None)
    assert fix_of(navsat(0.0, 1.0), 5) is not None
    assert math.isnan(fix_of(navsat(1.0, 1.0, math.nan), 5).altitude)
    covariance = (9.0, 7, 7, 7, 16.0, 7, 7, 7, 7)
    assert fix_of(navsat(1.0, 1.0, covariance=covariance, kind=2), 5).error == 5.0
    assert fix_of(navsat(1.0, 1.0, covariance=covariance, kind=0), 5).error is None
    assert fix_of(navsat(1.0, 1.0, covariance=(-9.0,) + covariance[1:4] + (1.0,) * 5, kind=1), 5).error == 0.0
    assert fix_of(navsat(1.0, 1.0, covariance=(math.nan,) * 9, kind=1), 5).error is None


def test_reach_is_a_kilometre_a_second():
    assert is_reachable(fix(0), fix(S, 1.0 + 999.9 * METRE))
    assert not is_reachable(fix(0), fix(S, 1.0 + 1000.2 * METRE))
    assert is_reachable(fix(0, 0, 179.999), fix(S, 0, -179.999))
    assert is_reachable(fix(0, 60, 0), fix(S, 60, 1999 * METRE))
    assert is_reachable(fix(7), fix(7))


# ---- positions ---------------------------------------------------------------------------------
def test_between_two_fixes():
    made = track([fix(0, 1.0, 2.0, 10.0, 1.5), fix(S, 1.001, 2.002, 20.0, 0.5)])
    found = made.position(S // 4)
    assert (found.latitude, found.longitude) == (pytest.approx(1.00025, abs=1e-12), pytest.approx(2.0005, abs=1e-12))
    assert (found.altitude, found.error) == (12.5, 1.5)
    assert made.position(0) == GeoPosition(1.0, 2.0, 10.0, 1.5)
    assert made.position(S).error == 0.5
    assert made.position(-1) is None
    assert made.position(S + 1) is None


def test_altitude_and_error_may_be_missing():
    made = track([fix(0, altitude=math.nan, error=None), fix(S, altitude=5.0, error=2.0)])
    assert (made.position(1).altitude, made.position(1).error) == (None, 2.0)
    assert (made.position(0).altitude, made.position(S).altitude) == (None, 5.0)


def test_the_short_way_over_the_antimeridian():
    made = track([fix(0, 0.5, 179.999), fix(S, 0.5, -179.997)])
    assert made.position(S // 4).longitude == pytest.approx(-180.0, abs=1e-9)
    assert made.position(S // 2).longitude == pytest.approx(-179.999, abs=1e-9)
    assert made.position(S // 8).longitude == pytest.approx(179.9995, abs=1e-9)
    assert track([fix(0, 0.5, 180.0)]).position(0).longitude == -180.0


def test_the_gap_is_inclusive_and_configurable():
    assert track([fix(0), fix(2 * S)]).position(S) is not None
    assert track([fix(0), fix(2 * S + 1)]).position(S) is None
    assert track([fix(0), fix(2 * S + 1)], 3 * S).position(S) is not None
    assert track([fix(0), fix(2 * S + 1)]).position(2 * S + 1) is not None


def test_a_jump_is_left_out_and_not_crossed():
    far = 2.0
    made = track([fix(0), fix(S), fix(3 * S // 2, far), fix(2 * S), fix(3 * S)])
    assert made.position(3 * S // 2).latitude == pytest.approx(1.0)
    made.close()
    made.close()
    assert made.refused == 1
    jump = track([fix(0), fix(S), fix(2 * S, far), fix(3 * S, far)])
    assert jump.position(S + 1) is None
    assert jump.position(2 * S).latitude == far
    jump.close()
    assert jump.refused == 0
    pair = track([fix(0), fix(S, far)])
    assert (pair.position(0), pair.position(S), pair.position(5)) == (None, None, None)
    pair.close()
    assert pair.refused == 2


def test_of_equal_stamps_the_first_added_counts():
    made = track([fix(0, 1.0), fix(0, 1.0001), fix(S, 1.0), fix(0, 1.0002)])
    assert made.position(0).latitude == 1.0
    made.close()
    assert made.refused == 2


def valid_of(fixes):
    """The rule of docs/explanation/time-and-alignment.md over all fixes at once."""
    known = []
    for one in sorted(fixes, key=lambda f: f.stamp):
        if not known or known[-1].stamp != one.stamp:
            known.append(one)
    kept = [
        one
        for n, one in enumerate(known)
        if len(known) == 1
        or (n > 0 and is_reachable(known[n - 1], one))
        or (n + 1 < len(known) and is_reachable(one, known[n + 1]))
    ]
    return kept, len(fixes) - len(kept)


def position_of(fixes, stamp, gap):
    kept, _ = valid_of(fixes)
    before = max((f for f in kept if f.stamp <= stamp), key=lambda f: f.stamp, default=None)
    after = min((f for f in kept if f.stamp >= stamp), key=lambda f: f.stamp, default=None)
    if before is None or after is None or after.stamp - before.stamp > gap or not is_reachable(before, after):
        return None
    part = (stamp - before.stamp) / (after.stamp - before.stamp) if after.stamp > before.stamp else 0
    return before.latitude + part * (after.latitude - before.latitude)


def same(found, wanted):
    return (found is None) == (wanted is None) and (found is None or found.latitude == pytest.approx(wanted, abs=1e-9))


# Steps of 1 s and places 1.5 km apart: a neighbour in space needs two steps of time.
places = st.integers(0, 3).map(lambda n: 1.0 + 1500 * n * METRE)
ticks = st.lists(st.tuples(st.integers(0, 14), places), max_size=14).map(
    lambda found: [fix(t * S, p) for t, p in found]
)


@settings(max_examples=400)
@given(ticks, st.integers(-2, 32), st.integers(1, 5))
def test_positions_are_those_of_brute_force(fixes, half, seconds):
    stamp, gap = half * S // 2, seconds * S
    seen = [one for one in fixes if one.stamp <= stamp + 2 * gap]
    assert same(track(fixes, gap).position(stamp), position_of(seen, stamp, gap))


@settings(max_examples=300)
@given(st.lists(places, min_size=1, max_size=14), st.integers(0, 28))
def test_without_gaps_all_fixes_tell(latitudes, half):
    fixes = [fix(n * S, latitude) for n, latitude in enumerate(latitudes)]
    assert same(track(fixes).position(half * S // 2), position_of(fixes, half * S // 2, 2 * S))
    made = track(fixes)
    made.close()
    assert made.refused == valid_of(fixes)[1]


@settings(max_examples=400)
@given(ticks, ticks, st.integers(-2, 32), st.integers(1, 4))
def test_nothing_behind_the_horizon_changes_the_position(known, further, half, seconds):
    stamp, gap = half * S // 2, seconds * S
    made = track(known, gap)
    before, horizon = made.position(stamp), made.horizon(stamp)
    assert stamp <= horizon <= stamp + 2 * gap
    for one in further:
        if one.stamp > horizon:
            made.add(one)
    assert made.position(stamp) == before
    assert made.horizon(stamp) <= horizon


def test_horizon_by_hand():
    assert FixTrack().horizon(7) == 7
    assert track([fix(0)]).horizon(S) == 2 * S
    assert track([fix(0)]).horizon(3 * S) == 3 * S
    assert track([fix(0), fix(S)]).horizon(S) == S
    assert track([fix(0), fix(S)]).horizon(0) == S
    assert track([fix(0, 2.0), fix(S), fix(2 * S)]).horizon(S) == 2 * S
    assert track([fix(0), fix(S), fix(2 * S)]).horizon(3 * S // 2) == 2 * S
    assert track([fix(0), fix(S), fix(2 * S, 2.0)]).horizon(3 * S // 2) == S * 3 // 2 + 4 * S
    back = [fix(0), fix(S), fix(2 * S, 2.0), fix(5 * S // 2)]
    assert track(back).horizon(3 * S // 2) == S * 3 // 2 + 4 * S
    assert track([*back, fix(3 * S)]).horizon(3 * S // 2) == 3 * S


@settings(max_examples=200)
@given(ticks, st.integers(0, 14), st.integers(1, 3))
def test_forgetting_changes_nothing_later(fixes, before, seconds):
    gap, late = seconds * S, [one for one in fixes if one.stamp >= before * S]
    early = [one for one in fixes if one.stamp < before * S]
    whole, short = track(early + late, gap), track(early, gap)
    short.forget(before * S)
    for one in late:
        short.add(one)
    for half in range(2 * before, 34):
        assert short.position(half * S // 2) == whole.position(half * S // 2)
    whole.close()
    short.close()
    assert short.refused == whole.refused == valid_of(fixes)[1]


def test_a_clock_that_was_set_back_begins_a_track_of_its_own():
    made = track([fix(n * S) for n in range(100, 200)])
    made.forget(150 * S)
    made.add(fix(120 * S))  # late by half a minute, and not needed any more
    made.add(fix(98 * S))  # late as well: a gap of two seconds is none
    assert made.refused == 2
    made.add(fix(10 * S, 3.0))  # long before the first one
    made.add(fix(11 * S, 3.001))
    assert made.refused == 2
    assert made.position(21 * S // 2).latitude == pytest.approx(3.0005, abs=1e-12)
    assert made.position(160 * S).latitude == 1.0


def test_memory_is_bounded():
    made, attitudes = FixTrack(), ValueTrack(interpolate)
    for n in range(5000):
        made.add(fix(n * S // 10))
        attitudes.add(n * S // 10, (0.0, 0.0, 0.0, 1.0))
        made.forget(n * S // 10 - S)
        attitudes.forget(n * S // 10 - S)
    assert len(made._fixes) < 40
    assert len(attitudes._stamps) < 40
    made.add(fix(0))
    assert made.refused == 1
    assert len(made._fixes) < 40


# ---- attitudes ---------------------------------------------------------------------------------
def imu(x, y, z, w, covariance=0.0, rate=0.0):
    return sensor_msgs.Imu(
        std_msgs.Header(frame_id="imu"), geometry_msgs.Quaternion(x, y, z, w), [covariance] + [0.0] * 8,
        geometry_msgs.Vector3(0.0, rate, 0.0),
    )  # fmt: skip


def about_z(angle):
    return (0.0, 0.0, math.sin(math.radians(angle) / 2), math.cos(math.radians(angle) / 2))


def test_attitudes_of_messages():
    assert read_attitude(imu(0, 0, 3.0, 4.0, -1.0)) == (0, 0, 0.6, 0.8)
    assert read_attitude(imu(0, 0, 0, 1.0)) == (0, 0, 0, 1)
    for bad in ((0, 0, 0, 0.0), (0, 0, math.nan, 1), (math.inf, 0, 0, 1), (1e200, 0, 0, 0)):
        assert read_attitude(imu(*bad)) is None
    for sign in (1.0, -1.0):
        assert read_attitude(imu(0, 0, 0, sign, -1.0)) is None
        assert read_attitude(imu(0, 0, 0, sign, rate=1e-9)) is None  # as Livox, Hesai and RoboSense send it
    assert read_attitude(imu(0, 0, 3.0, 4.0, rate=1.0)) == (0, 0, 0.6, 0.8)


def test_slerp_turns_evenly_the_short_way():
    made = ValueTrack(interpolate)
    made.add(0, about_z(10))
    made.add(S, tuple(-part for part in about_z(100)))
    for part in range(1, 9):
        found = made.at(part * S // 9)
        assert find_angles(found)[0] == pytest.approx(10 + 10 * part, abs=1e-6)
        assert math.hypot(*found) == pytest.approx(1, abs=1e-12)
    assert made.at(0) == about_z(10)


@given(st.floats(0, 1e-3), st.floats(0, 1))
def test_slerp_of_next_to_no_turn(angle, part):
    made = ValueTrack(interpolate)
    made.add(0, about_z(0))
    made.add(10**9, about_z(angle))
    found = made.at(int(part * 10**9))
    assert find_angles(found)[0] == pytest.approx(angle * int(part * 10**9) / 10**9, abs=1e-12)


def test_yaw_pitch_roll_against_rotation_matrices():
    rng = np.random.default_rng(3)
    for q in rng.normal(size=(50, 4)):
        x, y, z, w = q / np.linalg.norm(q)
        m = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
            ]
        )
        yaw, pitch, roll = np.radians(find_angles((x, y, z, w)))
        turn_z = np.array([[np.cos(yaw), -np.sin(yaw), 0], [np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]])
        turn_y = np.array([[np.cos(pitch), 0, np.sin(pitch)], [0, 1, 0], [-np.sin(pitch), 0, np.cos(pitch)]])
        turn_x = np.array([[1, 0, 0], [0, np.cos(roll), -np.sin(roll)], [0, np.sin(roll), np.cos(roll)]])
        assert np.allclose(turn_z @ turn_y @ turn_x, m)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 170)), max_size=10),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 170)), max_size=5),
    st.integers(-2, 26),
    st.booleans(),
)
def test_attitudes_are_those_of_brute_force(known, further, half, forget):
    stamp, made, first = half * S // 2, ValueTrack(interpolate), {}
    for tick, angle in known:
        made.add(tick * S, about_z(angle))
        first.setdefault(tick * S, angle)
    if forget:
        made.forget(stamp)
    wanted = first.get(stamp)
    for a, b in itertools.pairwise(sorted(first)):
        if a < stamp < b and b - a <= 2 * S:
            wanted = first[a] + (stamp - a) / (b - a) * (first[b] - first[a])
    found, horizon = made.at(stamp), made.horizon(stamp)
    assert (found is None) == (wanted is None)
    if found is not None:
        assert find_angles(found)[0] == pytest.approx(wanted, abs=1e-6)
    assert stamp <= horizon <= stamp + 2 * S
    for tick, angle in further:
        if tick * S > horizon:
            made.add(tick * S, about_z(angle))
    assert made.at(stamp) == found


def test_poses_are_composed_and_inverted_as_by_hand():
    """A third of a turn about x = y = z makes (z, x, y) of (x, y, z)."""
    pose = EgoPose((1.0, 2.0, 3.0), (0.5, 0.5, 0.5, 0.5))
    inner = EgoPose((4.0, 5.0, 7.0), (0.0, 0.0, 0.0, 1.0))
    assert compose(pose, inner) == EgoPose((8.0, 6.0, 8.0), pose.orientation)
    assert invert(pose) == EgoPose((-2.0, -3.0, -1.0), (-0.5, -0.5, -0.5, 0.5))
