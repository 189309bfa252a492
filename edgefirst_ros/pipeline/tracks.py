# SPDX-License-Identifier: Apache-2.0
"""Position, attitude and pose of frames: fixes, attitudes and poses, kept as long as a frame may need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefirst_ros.counts import NO_POSE, OTHER_FRAMES, OWN_FRAME
from edgefirst_ros.messages import list_transforms
from edgefirst_ros.sensors import navigation, transforms
from edgefirst_ros.sensors.calibration import MOST_TRANSFORMS, read_frame_id
from edgefirst_ros.sensors.navigation import EgoPose, FixTrack, GeoPosition, Quaternion, ValueTrack, compose, make_pose
from edgefirst_ros.sensors.transforms import BASE, Floats, World
from edgefirst_ros.streams import POSE_COVARIANCE, POSE_STAMPED

Edge = tuple[str, str]
"""Parent and child of a transform that moves."""


@dataclass(slots=True)
class _Tracks:
    """Positions and attitudes of one epoch."""

    fixes: FixTrack
    attitudes: ValueTrack[Quaternion]
    newest: int = 0  # stamp of the last message, ns


class Navigation:
    """Fixes and attitudes by epoch. Owned by the thread that pushes messages."""

    def __init__(self, max_gap: int) -> None:
        """`max_gap`: the longest time in ns between two messages to interpolate (inclusive)."""
        self._max_gap = max_gap
        self._epochs: dict[int, _Tracks] = {}

    def add_fix(self, content: Any, stamp: int, now: int, epoch: int) -> bool:
        """Add a NavSatFix; False if it is not a valid fix."""
        tracks = self._tracks(epoch)
        tracks.newest = stamp
        fix = navigation.fix_of(content, stamp)
        if fix is not None:
            tracks.fixes.add(fix, now)
        return fix is not None

    def add_attitude(self, content: Any, stamp: int, now: int, epoch: int) -> bool:
        """Add an Imu message; False if it has no orientation."""
        tracks = self._tracks(epoch)
        tracks.newest = stamp
        attitude = navigation.read_attitude(content)
        if attitude is not None:
            tracks.attitudes.add(stamp, attitude, now)
        return attitude is not None

    def at(self, stamp: int, epoch: int) -> tuple[GeoPosition | None, Quaternion | None]:
        """Return position and orientation at a stamp in ns; None where unknown."""
        tracks = self._tracks(epoch)
        return tracks.fixes.position(stamp), tracks.attitudes.at(stamp)

    def motion(self, first: int, second: int, epoch: int) -> Floats | None:
        """Return (4, 4) from the vehicle at one stamp in ns to the vehicle at another; None where a pose is unknown."""
        poses = []
        for stamp in (first, second):
            position, turn = self.at(stamp, epoch)
            if position is None or turn is None:
                return None
            world = transforms.make_world_to_ecef(position.latitude, position.longitude, position.altitude or 0.0)
            poses.append(world @ transforms.make_pose(transforms.make_rotation(turn), np.zeros(3)))
        return transforms.invert_poses(poses[1]) @ poses[0]

    def horizon(self, stamp: int, epoch: int) -> int:
        """Return the latest stamp, ns, at which a further message could change the result of `at(stamp)`."""
        tracks = self._tracks(epoch)
        return max(tracks.fixes.horizon(stamp), tracks.attitudes.horizon(stamp), stamp)

    def forget(self, first: Mapping[int, int], lookahead: int, came_before: int) -> None:
        """Drop unneeded messages from before `came_before`; `first`: {epoch: stamp of its first frame, ns}."""
        for epoch, tracks in self._epochs.items():
            # Where no frame waits the camera is silent, maybe for ever.
            before = first.get(epoch, tracks.newest - 2 * lookahead) - lookahead
            tracks.fixes.forget(before, came_before)
            tracks.attitudes.forget(before, came_before)

    def close(self) -> int:
        """Return the total number of fixes refused because of their neighbours; no more may be added."""
        for tracks in self._epochs.values():
            tracks.fixes.close()
        return sum(tracks.fixes.refused for tracks in self._epochs.values())

    def _tracks(self, epoch: int) -> _Tracks:
        if epoch not in self._epochs:
            self._epochs[epoch] = _Tracks(FixTrack(self._max_gap), ValueTrack(navigation.interpolate, self._max_gap))
        return self._epochs[epoch]


class Poses:
    """Poses of the vehicle by segment: of messages, or along a chain of transforms. Owned as `Navigation`.

    They are those of base_link where static transforms join it to the frame that moves.
    """

    def __init__(
        self, max_gap: int, frames: tuple[str, str] | None, statics: Callable[[], Sequence[Mapping[str, Any]]]
    ) -> None:
        """`max_gap`: as for `Navigation`; `frames`: fixed and moving, None for messages with poses.

        `statics`: returns the static transforms that are known.
        """
        self._max_gap = max_gap
        self._frames = frames
        self._statics = statics
        self._parents: dict[str, str] = {}
        self._tracks: dict[int, dict[Edge, ValueTrack[EgoPose]]] = {}
        self._newest: dict[int, int] = {}  # stamp of the newest message of each segment, ns
        self._edge: Edge | None = None  # frames of the first message with a pose
        self._chain: list[tuple[Edge | EgoPose, bool]] | None = None
        """Transforms that move, or constant ones, and whether each is inverted; None while no chain is known."""
        self.source: tuple[str, str | None] | None = None
        """Frame of the poses, and that whose they are, None where messages do not state it; None before the first."""

    def add(
        self, schema: str, content: Any, stamp: int, offset: int | None, now: int, segment: Callable[[int], int]
    ) -> str:
        """Add a message; return why it is not used, or an empty text.

        Args:
            schema: its type.
            content: the decoded message.
            stamp: its time, ns.
            offset: added to the own stamps of transforms, ns; None if these do not count.
            now: when it came, ns.
            segment: returns the segment of a stamp.
        """
        if self._frames is None:
            return self._add_pose(schema, content, stamp, now, segment(stamp))
        found = list_transforms(schema, content)
        for one in found:
            if one.child_frame_id not in self._parents and len(self._parents) < MOST_TRANSFORMS:
                self._parents[one.child_frame_id] = one.frame_id
                self._chain = None
        if self._chain is None:
            self.renew()
        wanted = None if self._chain is None else {step for step, _ in self._chain}
        used = [one for one in found if wanted is None or (one.frame_id, one.child_frame_id) in wanted]
        valid = [(one, value) for one in used if (value := make_pose(one.translation, one.rotation)) is not None]
        for one, value in valid:
            at = stamp if offset is None else one.stamp + offset
            self._track(segment(at), (one.frame_id, one.child_frame_id), at).add(at, value, now)
        return "" if valid else NO_POSE if used else OTHER_FRAMES

    def _add_pose(self, schema: str, content: Any, stamp: int, now: int, segment: int) -> str:
        edge = read_frame_id(content) or "", getattr(content, "child_frame_id", "").removeprefix("/")
        whole = content.pose_with_covariance if schema == POSE_COVARIANCE else content.pose
        given = whole if schema == POSE_STAMPED else whole.pose
        place, turn = given.position, given.orientation
        value = make_pose((place.x, place.y, place.z), (turn.x, turn.y, turn.z, turn.w))
        if value is None or edge[0] == BASE:
            return NO_POSE if value is None else OWN_FRAME
        if self._edge is None:
            self._edge, self._chain = edge, [(edge, False), *self._to_base(edge[1])]
            self.source = edge[0], BASE if len(self._chain) > 1 else edge[1] or None
        if edge != self._edge:
            return OTHER_FRAMES
        self._track(segment, edge, stamp).add(stamp, value, now)
        return ""

    def renew(self) -> None:
        """Find the chain of transforms, if it is not known yet."""
        if self._frames is None or self._chain is not None:
            return
        statics = {entry["child"]: entry for entry in self._statics()}
        parents = {**self._parents, **{child: entry["parent"] for child, entry in statics.items()}}
        try:
            steps = transforms.find_chain(parents, *self._frames)
        except ValueError:
            return  # of a recording the first pass reports it; live it may still come
        chain: list[tuple[Edge | EgoPose, bool]] = []
        for parent, child, upward in steps:
            fixed = statics.get(child)
            value = make_pose(fixed["translation"], fixed["rotation"]) if fixed is not None else None
            chain.append(((parent, child) if value is None else value, upward))
        self._chain = [*chain, *self._to_base(self._frames[1])]
        self.source = self._frames[0], BASE if len(self._chain) > len(chain) else self._frames[1]

    def _to_base(self, frame: str) -> list[tuple[Edge | EgoPose, bool]]:
        """Return the constant step from the frame that moves to base_link; empty if it is base_link, or not joined."""
        found = transforms.chain_frames(self._statics(), frame).get(BASE) if frame not in ("", BASE) else None
        if found is None:
            return []
        x, y, z = map(float, found[:3, 3])
        return [(EgoPose((x, y, z), tuple(transforms.make_quaternion(found[:3, :3]).tolist())), False)]

    def at(self, stamp: int, segment: int) -> EgoPose | None:
        """Return the pose at a stamp in ns of a segment; None where it is unknown."""
        found: EgoPose | None = None
        for step, inverted in self._chain or ():
            value = step
            if not isinstance(value, EgoPose):
                track = self._tracks.get(segment, {}).get(value)
                known = track.at(stamp) if track is not None else None
                if known is None:
                    return None
                value = known
            value = navigation.invert(value) if inverted else value
            found = value if found is None else compose(found, value)
        return found

    def world(self, stamp: int, segment: int) -> World | None:
        """Return the fixed frame, and where the vehicle is in it at a stamp in ns; None before the first pose."""
        if self.source is None:
            return None
        known = self.at(stamp, segment)
        way = _make_matrix(navigation.invert(known)) if known is not None else None
        return World(self.source[0], self.source[1] or BASE, way)

    def motion(self, first: int, second: int, segment: int) -> Floats | None:
        """Return (4, 4) from the vehicle at one stamp in ns to the vehicle at another; None where a pose is unknown."""
        before, after = self.at(first, segment), self.at(second, segment)
        if before is None or after is None:
            return None
        return _make_matrix(compose(navigation.invert(after), before))

    def horizon(self, stamp: int, segment: int) -> int:
        """Return the latest stamp, ns, at which a further message could change the result of `at(stamp, segment)`."""
        tracks = self._tracks.get(segment, {}).values()
        return max((track.horizon(stamp) for track in tracks), default=stamp)

    def forget(self, first: Mapping[int, int], current: int, lookahead: int, came_before: int) -> None:
        """Drop poses that no frame needs, as `Navigation.forget`; `current`: segment of the newest frame."""
        for segment, tracks in list(self._tracks.items()):
            if segment < current and segment not in first:
                del self._tracks[segment], self._newest[segment]
                continue
            before = first.get(segment, self._newest[segment] - 2 * lookahead) - lookahead
            for track in tracks.values():
                track.forget(before, came_before)

    def _track(self, segment: int, edge: Edge, stamp: int) -> ValueTrack[EgoPose]:
        self._newest[segment] = stamp
        tracks = self._tracks.setdefault(segment, {})
        return tracks.setdefault(edge, ValueTrack(navigation.blend_poses, self._max_gap))


def _make_matrix(pose: EgoPose) -> Floats:
    return transforms.make_pose(transforms.make_rotation(pose.orientation), pose.position)
