# SPDX-License-Identifier: Apache-2.0
"""Boxes of fusion at places computed by hand: 20 m ahead stays ahead, whatever frame they are sent in."""

import math

import numpy as np
import pytest
from edgefirst.schemas.builtin_interfaces import Time
from edgefirst.schemas.edgefirst_msgs import Box, Detect
from edgefirst.schemas.std_msgs import Header

from edgefirst_ros.sensors.detections import Context, make_box_rows
from edgefirst_ros.sensors.transforms import BoxFrames, chain_frames, make_pose, move_boxes

HALF = math.sqrt(0.5)
SINE, COSINE = math.sin(math.radians(8)), math.cos(math.radians(8))


def turned(angle, axis=2):
    """A quaternion about an axis, degrees."""
    found = [0.0, 0.0, 0.0, math.cos(math.radians(angle) / 2)]
    found[axis] = math.sin(math.radians(angle) / 2)
    return found


def transform(child, rotation, translation=(1.0, 0.0, 1.5), parent="base_link"):
    return {"parent": parent, "child": child, "translation": list(translation), "rotation": list(rotation)}


OPTICAL = [-0.5, 0.5, -0.5, 0.5]
"""x right, y down, z forward against x forward, y left, z up."""
LIDAR = [transform("lidar", turned(0))]
CASES = {
    # frame, transforms -> center of what is 20 m ahead of the sensor, 1 m to the left, 0.5 m above; extents
    "parallel": ("lidar", LIDAR, (21, 1, 2), (4, 4, 1.5)),
    "nothing leads there": ("lidar", [], (20, 1, 0.5), (4, 4, 1.5)),
    "by two steps": (
        "lidar", [transform("mast", turned(0)), transform("lidar", turned(0), parent="mast")],
        (22, 1, 3.5), (4, 4, 1.5),
    ),
    "from child to parent": (
        "lidar", [transform("base_link", turned(0), (-1, 0, -1.5), "lidar")], (21, 1, 2), (4, 4, 1.5),
    ),
    "looks left": ("lidar", [transform("lidar", turned(90))], (0, 20, 2), (4, 4, 1.5)),
    "upside down": ("lidar", [transform("lidar", turned(180, axis=0))], (21, -1, 1), (4, 4, 1.5)),
    "lies on its side": ("lidar", [transform("lidar", turned(90, axis=0))], (21, -0.5, 2.5), (4, 1.5, 4)),
    "turned a little": (
        "lidar", [transform("lidar", turned(8))],
        (1 + 20 * COSINE - SINE, 20 * SINE + COSINE, 2), (4, 4, 1.5),
    ),
    "turned by 45 degrees": (
        "lidar", [transform("lidar", turned(45))], (1 + 19 * HALF, 21 * HALF, 2), (8 * HALF, 8 * HALF, 1.5),
    ),
    "an optical frame": ("camera_optical", [transform("camera_optical", OPTICAL)], (21, 1, 2), (4, 4, 1.5)),
    "the camera's frame": ("eye", [transform("eye", OPTICAL)], (21, 1, 2), (4, 4, 1.5)),
    "an optical frame that looks left": (
        "left_optical", [transform("left_optical", turned(-90, axis=0))], (0, 20, 2), (4, 4, 1.5),
    ),
    "the camera's frame, which looks left": ("eye", [transform("eye", turned(-90, axis=0))], (0, 20, 2), (4, 4, 1.5)),
    "an optical placeholder": ("camera_optical", [transform("camera_optical", turned(0))], (21, 1, 2), (4, 4, 1.5)),
    "an optical frame without a place": ("camera_optical", [], (20, 1, 0.5), (4, 4, 1.5)),
    "no quaternion": ("lidar", [transform("lidar", [0, 0, 0, 0])], (20, 1, 0.5), (4, 4, 1.5)),
}  # fmt: skip


def rows_in(frame, transforms, **further):
    """Rows of one box as the vendor sends it: center_x right, center_y down, distance ahead."""
    frames = BoxFrames()
    context = Context("s", 0, None, place_of=lambda name: frames.place(name, transforms, "eye"))
    boxes = [Box(-1.0, -0.5, 4.0, 1.5, "car", 1.0, 20.0, 0.0)]
    message = Detect(Header(Time(1, 0), frame), Time(0, 0), Time(0, 0), Time(0, 0), boxes)
    rows, dropped = make_box_rows(message, context, **further)
    assert not dropped
    return rows, frames.names


@pytest.mark.parametrize("case", CASES)
def test_a_box_ahead_stays_ahead(case):
    frame, transforms, center, extents = CASES[case]
    (row,), names = rows_in(frame, transforms)
    np.testing.assert_allclose(row["box3d"], [*center, *extents], atol=1e-6)
    joined = "base_link" in {entry["parent"] for entry in transforms if any(entry["rotation"])}
    joined |= any(entry["child"] == "base_link" for entry in transforms)
    assert names == {"base_link" if joined else frame}


def test_a_box_is_carried_to_the_stamp_of_its_frame():
    """The vehicle goes 0.5 m ahead and turns by 2 degrees to the left between scan and picture."""
    motion = np.linalg.inv(make_pose(np.eye(3), [0.5, 0, 0]))
    assert rows_in("lidar", LIDAR, motion=motion)[0][0]["box3d"] == pytest.approx((20.5, 1, 2, 4, 4, 1.5))
    assert rows_in("lidar", [], motion=motion)[0][0]["box3d"] == pytest.approx((20, 1, 0.5, 4, 4, 1.5))
    sine, cosine = math.sin(math.radians(2)), math.cos(math.radians(2))
    motion = np.linalg.inv(make_pose([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]], [0, 0, 0]))
    expected = (21 * cosine + sine, cosine - 21 * sine, 2, 4, 4, 1.5)
    assert rows_in("lidar", LIDAR, motion=motion)[0][0]["box3d"] == pytest.approx(expected)


def test_the_frame_is_decided_with_the_first_box():
    frames = BoxFrames()
    first = frames.place("lidar", [], None)
    assert frames.place("lidar", LIDAR, None) is first
    assert frames.names == {"lidar"}


@pytest.mark.parametrize(("angle", "hull"), [(9.9, False), (10.1, True), (80.1, False), (79.9, True), (-9.9, False)])
def test_a_box_becomes_its_hull_beyond_ten_degrees(angle, hull):
    sine, cosine = math.sin(math.radians(angle)), math.cos(math.radians(angle))
    way = make_pose([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]], [0, 0, 0])
    (found,) = move_boxes([10, 0, 0, 4, 2, 1], way)
    kept = [4, 2, 1] if abs(angle) < 45 else [2, 4, 1]
    around = [4 * cosine + 2 * abs(sine), 4 * abs(sine) + 2 * cosine, 1]
    np.testing.assert_allclose(found, [10 * cosine, 10 * sine, 0, *(around if hull else kept)], atol=1e-12)


def test_frames_of_a_loop_are_joined_by_the_shortest_chain():
    loop = [*LIDAR, transform("mast", turned(0), (0, 0, 1)), transform("lidar", turned(0), (9, 9, 9), "mast")]
    np.testing.assert_allclose(chain_frames(loop, "base_link")["lidar"][:3, 3], [1, 0, 1.5])
