# SPDX-License-Identifier: Apache-2.0
"""Recordings as drivers of other vehicles write them: names of frames and topics, fields of clouds."""

import pytest
from bags import messages, write
from pose_recordings import ODOMETRY, add_messages, poses
from rosbags.typesys import Stores, get_typestore
from same_dataset import assert_same_dataset

from edgefirst_ros import convert
from edgefirst_ros.synthetic import START

SMALL = {"seconds": 1.0, "size": (128, 64), "codec": "jpeg", "lidar_points": 50}


# ---- frames of ROS 1 --------------------------------------------------------------------------
@pytest.mark.parametrize("slashed", ["clouds", "transforms", "all"])
def test_a_leading_slash_of_a_frame_means_nothing(recording, tmp_path, slashed):
    """Drivers and bags of ROS 1 write /velodyne and velodyne for one frame; tf2 takes the slash off."""
    store = get_typestore(Stores.ROS2_HUMBLE)
    moving = poses(ODOMETRY, lambda at: ((at - START, 0, 0), (0, 0, 0, 1)), START, 1.0, child="camera_optical")
    plain = add_messages(recording(**SMALL), tmp_path / "plain" / "drive.mcap", moving)
    found = messages(plain)
    for schema, _, message in found:
        named = slashed == "all" or (slashed == "clouds") == schema.name.endswith("PointCloud2")
        if named and schema.name in store.types:
            content = store.deserialize_cdr(message.data, schema.name)
            for part in (content.header, content):
                for name in {"frame_id", "child_frame_id"} & set(vars(part)):
                    object.__setattr__(part, name, f"/{getattr(part, name)}")
            message.data = bytes(store.serialize_cdr(content, schema.name))
    (tmp_path / "slashed").mkdir()
    path = write(tmp_path / "slashed" / "drive.mcap", found)
    for one in (plain, path):
        convert(one, one.parent, rig={"base_frame": "/base_link", "pose": "/odom"})
    assert_same_dataset(path.parent, plain.parent, "drive")
