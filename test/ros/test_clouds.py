# SPDX-License-Identifier: Apache-2.0
"""Point clouds as sensor_msgs_py makes them are those of the vendor's codec; only what fills gaps may differ."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")

from hearing import same_clouds

from edgefirst_ros.nodes.dataset_messages import codec_cloud
from edgefirst_ros.nodes.player import MISSING, cloud_maker

STAMP = 1_700_000_000_123_456_789


def points(*shape: int, fields: list[tuple[object, ...]]) -> NDArray[np.void]:
    made = np.zeros(shape, np.dtype(fields))
    made.view(np.uint8)[:] = np.random.default_rng(7).integers(0, 256, made.view(np.uint8).shape, np.uint8)
    return made


@pytest.mark.parametrize(
    "cloud",
    [
        points(1, 40, fields=[("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("noise", "<f4")]),
        points(4, 10, fields=[("x", "<f4"), ("ring", "<u2"), ("time", "<f8")]),
        points(1, 5, fields=[("id", "u1"), ("spectrum", "<i2", (3,))]),
        points(1, 0, fields=[("x", "<f4")]),
    ],
    ids=["points", "organised", "several values", "empty"],
)
def test_both_make_the_same_message(cloud: NDArray[np.void]) -> None:
    pytest.importorskip("sensor_msgs_py", reason="no sensor_msgs_py: it comes with a ROS 2 that is sourced")
    make = cloud_maker()
    assert make is not None
    assert same_clouds([make(cloud, STAMP, "lidar")], [codec_cloud(cloud, STAMP, "lidar")])


def test_where_it_is_missing_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sensor_msgs_py.point_cloud2", None)
    assert cloud_maker() is None
    assert "sensor_msgs_py is not installed" in MISSING
