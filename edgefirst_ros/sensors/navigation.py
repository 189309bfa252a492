# SPDX-License-Identifier: Apache-2.0
"""Position and attitude of the device: validity of fixes and attitudes, and interpolation between them."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from edgefirst.schemas.sensor_msgs import Imu, NavSatFix

SECOND = 1_000_000_000
MAX_GAP = 2 * SECOND
MAX_SPEED = 1000.0
"""m/s; a fix that needs more than this to be reached from both its neighbours is rejected."""
EARTH_DIAMETER = 12_742_000.0
DEGREE = 111_200.0
"""m; a degree of a great circle is a little shorter."""
NEARLY_ONE = 1 - 1e-9
Quaternion = tuple[float, float, float, float]
T = TypeVar("T")


class Fix(NamedTuple):
    """A fix that is valid by itself: stamp in ns, degrees (WGS-84), altitude in m (NaN when unknown).

    `error` is the horizontal positioning error in m, None when the receiver does not send it.
    """

    stamp: int
    latitude: float
    longitude: float
    altitude: float
    error: float | None


class GeoPosition(NamedTuple):
    """Degrees (WGS-84, longitude in [-180, 180)), altitude and horizontal error in m or None when unknown."""

    latitude: float
    longitude: float
    altitude: float | None
    error: float | None


def fix_of(message: NavSatFix, stamp: int) -> Fix | None:
    """Return the fix of a message; None for no fix, numbers that are not finite or out of range, and (0, 0)."""
    latitude, longitude = message.latitude, message.longitude
    if message.status.status < 0 or not (math.isfinite(latitude) and math.isfinite(longitude)):
        return None
    if abs(latitude) > 90 or abs(longitude) > 180 or latitude == longitude == 0:
        return None
    error = None
    if message.position_covariance_type:
        covariance = message.position_covariance
        variance = covariance[0] + covariance[4]
        error = math.sqrt(max(0.0, variance)) if math.isfinite(variance) else None
    return Fix(stamp, latitude, longitude, message.altitude, error)


def is_reachable(first: Fix, second: Fix) -> bool:
    """True if the way from an earlier fix to a later one is possible at 1 km/s (haversine, 6371 km)."""
    reach = MAX_SPEED * (second.stamp - first.stamp)
    if DEGREE * SECOND * (abs(second.latitude - first.latitude) + abs(second.longitude - first.longitude)) <= reach:
        return True  # along the meridian and the equator is further
    a, b = math.radians(first.latitude), math.radians(second.latitude)
    turn = math.radians(second.longitude - first.longitude)
    chord = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(turn / 2) ** 2
    distance = EARTH_DIAMETER * math.asin(min(1.0, math.sqrt(chord)))
    return distance * SECOND <= reach


class FixTrack:
    """Fixes of one receiver by stamp, and the position between them.

    A fix counts when the one before or the one after can be reached, or when it is the only one. Fixes more than two
    gaps after the requested stamp are ignored, so that a result never depends on how far ahead was read.
    """

    def __init__(self, max_gap: int = MAX_GAP) -> None:
        """`max_gap`: the longest time in ns between two fixes to interpolate (inclusive)."""
        self._max_gap = max_gap
        self._stamps: list[int] = []
        self._fixes: list[Fix] = []
        self._arrived: list[int] = []
        self._before: Fix | None = None
        self._since = 0  # where the newest stretch of stamps without a jump began
        self._refused = 0
        self._closed = False

    @property
    def refused(self) -> int:
        """Fixes that no neighbour reaches, with the stamp of another, or too late; final after close()."""
        return self._refused

    def add(self, fix: Fix, arrived: int = 0) -> None:
        """Take a fix, and when it came; in any order, but of equal stamps the first one added counts."""
        if not self._stamps or fix.stamp > self._stamps[-1]:
            place = len(self._stamps)
            if not self._stamps or fix.stamp - self._stamps[-1] > 2 * self._max_gap:
                self._since = fix.stamp
        else:
            place = bisect.bisect_left(self._stamps, fix.stamp)
            known = place < len(self._stamps) and self._stamps[place] == fix.stamp
            forgotten = self._before is not None and fix.stamp <= self._before.stamp
            if forgotten and fix.stamp < self._since - self._max_gap:  # not late: the clock was set back
                self._before, self._since = None, fix.stamp
            elif known or forgotten:
                self._refused += 1
                return
        self._stamps.insert(place, fix.stamp)
        self._fixes.insert(place, fix)
        self._arrived.insert(place, arrived)

    def position(self, stamp: int) -> GeoPosition | None:
        """The position at a stamp in ns, or None: no two valid fixes around it, too far apart, or a jump between."""
        first, second, _ = self._sides(stamp)
        if first is None or second is None or not is_reachable(first, second):
            return None
        errors = [error for error in (first.error, second.error) if error is not None]
        error = max(errors, default=None)
        part = 0.0 if first is second else (stamp - first.stamp) / (second.stamp - first.stamp)
        turn = (second.longitude - first.longitude + 180) % 360 - 180
        altitude = first.altitude + part * (second.altitude - first.altitude) if part else first.altitude
        return GeoPosition(
            first.latitude + part * (second.latitude - first.latitude),
            (first.longitude + part * turn + 180) % 360 - 180,
            altitude if math.isfinite(altitude) else None,
            error,
        )

    def horizon(self, stamp: int) -> int:
        """Return the latest stamp at which a further fix could change position(stamp); at most two gaps after it.

        Once all fixes up to this stamp are known, the position is final.
        """
        return self._sides(stamp)[2]

    def forget(self, before_stamp: int, came_before: int = 1) -> None:
        """Drop fixes that came earlier than that and that positions at `before_stamp` and later do not need."""
        # One more than within the gap: the first of these may be valid because of it.
        cut = bisect.bisect_left(self._stamps, before_stamp - self._max_gap) - 1
        cut = _count_old(self._arrived, cut, came_before)
        if cut > 0:
            self._refused += self._invalid(cut)
            self._before = self._fixes[cut - 1]
            del self._stamps[:cut], self._fixes[:cut], self._arrived[:cut]

    def close(self) -> None:
        """No more fixes will come: `refused` becomes final."""
        if not self._closed:
            self._closed = True
            self._refused += self._invalid(len(self._fixes))

    def _invalid(self, count: int) -> int:
        """Return how many of the first `count` fixes no neighbour reaches."""
        return sum(not self._valid(n, len(self._fixes)) for n in range(count))

    def _follows(self, n: int) -> bool:
        """True if the fix before it is enough to make a fix valid."""
        before = self._fixes[n - 1] if n else self._before
        return before is not None and is_reachable(before, self._fixes[n])

    def _valid(self, n: int, end: int) -> bool:
        """True if a fix is valid when those from index `end` on are unknown."""
        if self._follows(n):
            return True
        if n + 1 < end:
            return is_reachable(self._fixes[n], self._fixes[n + 1])
        return not n and self._before is None

    def _sides(self, stamp: int) -> tuple[Fix | None, Fix | None, int]:
        """(valid fix at or before a stamp, valid fix at or after it, horizon); both the same at an equal stamp."""
        limit = stamp + 2 * self._max_gap
        after, end = bisect.bisect_right(self._stamps, stamp), bisect.bisect_right(self._stamps, limit)
        nearest = after - 1
        if nearest < 0 or stamp - self._stamps[nearest] > self._max_gap:
            return None, None, stamp
        # The nearest may be valid only by the next one. Without a next one within the gap the position is unknown
        # anyway, unless the nearest is the position itself.
        horizon = stamp
        if after == end or not self._follows(nearest):
            horizon = self._stamps[after] if after < end else limit
            if self._stamps[nearest] != stamp:
                horizon = min(horizon, self._stamps[nearest] + self._max_gap)
        n = nearest
        while not self._valid(n, end):
            n -= 1
            if n < 0 or stamp - self._stamps[n] > self._max_gap:
                return None, None, horizon
        first = self._fixes[n]
        if first.stamp == stamp:
            return first, first, stamp if self._follows(n) else horizon
        if after == end:
            return first, None, horizon
        for n in range(after, end):
            if self._stamps[n] - first.stamp > self._max_gap:
                return first, None, max(horizon, first.stamp + self._max_gap)
            if self._follows(n):
                return first, self._fixes[n], max(horizon, self._stamps[n])
            if n + 1 < end:
                horizon = self._stamps[n + 1]
                if self._valid(n, end):
                    return first, self._fixes[n], horizon
        return first, None, limit


def read_attitude(message: Imu) -> Quaternion | None:
    """Return the unit quaternion (x, y, z, w) of an IMU message, sensor to world; None when it is not an attitude.

    That is a quaternion of zeros or not finite, or the identity with orientation_covariance[0] = -1 or with a turn
    rate: drivers of lidars that know no attitude send the identity to which ROS 2 initialises it.
    """
    turn, rate = message.orientation, message.angular_velocity
    x, y, z, w = turn.x, turn.y, turn.z, turn.w
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if not math.isfinite(length) or length == 0:
        return None
    if abs(w) == length and (message.orientation_covariance[0] == -1 or any((rate.x, rate.y, rate.z))):
        return None
    return x / length, y / length, z / length, w / length


class ValueTrack(Generic[T]):
    """Values of one source by stamp, and the value between them."""

    def __init__(self, blend: Callable[[T, T, float], T], max_gap: int = MAX_GAP) -> None:
        """`blend`: returns the value between two, a part (0 to 1) of the way.

        `max_gap`: the longest time in ns between two values to interpolate (inclusive).
        """
        self._blend, self._max_gap = blend, max_gap
        self._stamps: list[int] = []
        self._values: list[T] = []
        self._arrived: list[int] = []

    def add(self, stamp: int, value: T, arrived: int = 0) -> None:
        """Take a value, and when it came; in any order, of equal stamps the first one counts."""
        place = bisect.bisect_left(self._stamps, stamp)
        if place == len(self._stamps) or self._stamps[place] != stamp:
            self._stamps.insert(place, stamp)
            self._values.insert(place, value)
            self._arrived.insert(place, arrived)

    def at(self, stamp: int) -> T | None:
        """Return the value at a stamp in ns, interpolated; None without two near neighbours."""
        after = bisect.bisect_left(self._stamps, stamp)
        if after < len(self._stamps) and self._stamps[after] == stamp:
            return self._values[after]
        if after in (0, len(self._stamps)):
            return None
        first, second = self._stamps[after - 1], self._stamps[after]
        if second - first > self._max_gap:
            return None
        return self._blend(self._values[after - 1], self._values[after], (stamp - first) / (second - first))

    def horizon(self, stamp: int) -> int:
        """Return the latest stamp at which a further value could change at(stamp)."""
        after = bisect.bisect_right(self._stamps, stamp)
        nearest = self._stamps[after - 1] if after else None
        if nearest is None or nearest == stamp or stamp - nearest > self._max_gap:
            return stamp
        farthest = nearest + self._max_gap
        return min(farthest, self._stamps[after]) if after < len(self._stamps) else farthest

    def forget(self, before_stamp: int, came_before: int = 1) -> None:
        """Drop values that came earlier than that and that values at `before_stamp` and later do not need."""
        cut = _count_old(self._arrived, bisect.bisect_left(self._stamps, before_stamp - self._max_gap), came_before)
        if cut > 0:
            del self._stamps[:cut], self._values[:cut], self._arrived[:cut]


class EgoPose(NamedTuple):
    """A pose: position in m, orientation as unit quaternion x, y, z, w."""

    position: tuple[float, float, float]
    orientation: Quaternion


def make_pose(position: Sequence[float], orientation: Sequence[float]) -> EgoPose | None:
    """Return a pose of m and a quaternion x, y, z, w of any length; None if it is not finite or the length is 0."""
    x, y, z, w = orientation
    length = math.sqrt(x * x + y * y + z * z + w * w)
    if not (math.isfinite(length) and length > 0 and all(map(math.isfinite, position))):
        return None
    a, b, c = position
    return EgoPose((a, b, c), (x / length, y / length, z / length, w / length))


def multiply(first: Quaternion, second: Quaternion) -> Quaternion:
    """Return the rotation `second`, then `first`."""
    (ax, ay, az, aw), (bx, by, bz, bw) = first, second
    return (
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def compose(first: EgoPose, second: EgoPose) -> EgoPose:
    """Return the pose `second`, which is in the axes of `first`, in the axes that `first` is in."""
    x, y, z = (a + b for a, b in zip(first.position, _turn(first.orientation, second.position), strict=True))
    return EgoPose((x, y, z), multiply(first.orientation, second.orientation))


def invert(pose: EgoPose) -> EgoPose:
    """Return the pose of the outer axes in the inner ones."""
    x, y, z, w = pose.orientation
    back = (-x, -y, -z, w)
    a, b, c = _turn(back, pose.position)
    return EgoPose((-a, -b, -c), back)


def _turn(turn: Quaternion, place: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return a place turned by a unit quaternion."""
    (x, y, z, w), (a, b, c) = turn, place
    u, v, t = 2 * (y * c - z * b), 2 * (z * a - x * c), 2 * (x * b - y * a)
    return a + w * u + y * t - z * v, b + w * v + z * u - x * t, c + w * t + x * v - y * u


def blend_poses(first: EgoPose, second: EgoPose, part: float) -> EgoPose:
    """Return the pose between two: the position along the line, the orientation the short way."""
    x, y, z = (a + part * (b - a) for a, b in zip(first.position, second.position, strict=True))
    return EgoPose((x, y, z), interpolate(first.orientation, second.orientation, part))


def _count_old(arrived: list[int], count: int, before: int) -> int:
    """How many of the first `count` can go: early stamps that came just now are those of a clock that was set back."""
    return next((n for n in range(count) if arrived[n] >= before), count)


def find_angles(turn: Quaternion) -> tuple[float, float, float]:
    """(yaw, pitch, roll) in degrees of a unit quaternion (x, y, z, w)."""
    x, y, z, w = turn
    roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = math.asin(max(-1.0, min(1.0, 2 * (w * y - z * x))))
    yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return math.degrees(yaw), math.degrees(pitch), math.degrees(roll)


def interpolate(first: Quaternion, second: Quaternion, part: float) -> Quaternion:
    """Return the attitude between two unit quaternions, the short way."""
    cosine = first[0] * second[0] + first[1] * second[1] + first[2] * second[2] + first[3] * second[3]
    sign = -1.0 if cosine < 0 else 1.0
    cosine = abs(cosine)
    before, behind = 1 - part, part
    if cosine < NEARLY_ONE:
        angle = math.acos(cosine)
        before, behind = math.sin(before * angle), math.sin(behind * angle)
    x, y, z, w = (before * a + sign * behind * b for a, b in zip(first, second, strict=True))
    length = math.sqrt(x * x + y * y + z * z + w * w)
    return x / length, y / length, z / length, w / length
