# SPDX-License-Identifier: Apache-2.0
"""Point clouds as ROS 2's own sensor_msgs_py makes them, where it is installed."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray
from rclpy.serialization import serialize_message
from rclpy.time import Time
from sensor_msgs.msg import PointField
from std_msgs.msg import Header

from edgefirst_ros.pipeline.dataset_messages import MakeCloud, fields_of

MISSING = (
    "sensor_msgs_py is not installed: point clouds are written by edgefirst-schemas instead; it is part of ROS 2, "
    f"package ros-{os.environ.get('ROS_DISTRO', 'DISTRO')}-sensor-msgs-py"
)


def cloud_maker() -> MakeCloud | None:
    """Return what makes point clouds with sensor_msgs_py; None where that is not installed."""
    try:
        from sensor_msgs_py.point_cloud2 import create_cloud, dtype_from_fields
    except ImportError:
        return None

    def make(points: NDArray[np.void], stamp: int, frame_id: str) -> bytes:
        rows, columns = points.shape
        fields = [
            PointField(name=name, offset=offset, datatype=kind, count=count)
            for name, offset, kind, count in fields_of(points)
        ]
        step = points.dtype.itemsize
        # It takes the first axis of points for the width, and knows values of a field side by side as fields alone.
        flat = points.reshape(-1).view(dtype_from_fields(fields, step))
        header = Header(stamp=Time(nanoseconds=stamp).to_msg(), frame_id=frame_id)
        cloud = create_cloud(header, fields, flat)
        cloud.height, cloud.width, cloud.row_step = rows, columns, step * columns
        return bytes(serialize_message(cloud))

    return make
