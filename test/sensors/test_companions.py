# SPDX-License-Identifier: Apache-2.0
"""Members of companions: what is encoded for a sensor is what is decoded for it, and Pillow reads the pictures."""

import io

import numpy as np
import pytest
from edgefirst.schemas import sensor_msgs, std_msgs
from PIL import Image

from edgefirst_ros.config import Settings
from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.companions import check_storable, decode, encode


def message(values):
    encoding = "mono16" if values.dtype == np.uint16 else "mono8"
    height, width = values.shape
    step, data = width * values.itemsize, values.view(np.uint8).reshape(-1)
    return sensor_msgs.Image(std_msgs.Header(frame_id="lidar"), height, width, encoding, 0, step, data)


@pytest.mark.parametrize("sensor", ["lidar.depth", "depth"])
def test_depth_is_a_png_of_the_same_values(sensor):
    depth = np.arange(20, dtype=np.uint16).reshape(4, 5) * 3000
    check_storable(sensor, message(depth))
    member = b"".join(encode(sensor, message(depth), 1, Settings()))
    with Image.open(io.BytesIO(member)) as picture:
        assert (picture.format, np.asarray(picture).tolist()) == ("PNG", depth.tolist())
    assert decode(sensor, member).tolist() == depth.tolist()


def test_reflectivity_is_a_jpeg_in_gray():
    values = np.full((8, 16), 90, np.uint8)
    check_storable("lidar.reflect", message(values))
    member = b"".join(encode("lidar.reflect", message(values), 1, Settings()))
    with Image.open(io.BytesIO(member)) as picture:
        assert (picture.format, picture.mode, picture.size) == ("JPEG", "L", (16, 8))
    assert decode("lidar.reflect", member).tolist() == values.tolist()


@pytest.mark.parametrize(("sensor", "kind"), [("lidar.depth", np.uint8), ("lidar.reflect", np.uint16)])
def test_what_is_of_the_other_sensor_cannot_be_stored(sensor, kind):
    with pytest.raises(MessageError, match="cannot be stored"):
        check_storable(sensor, message(np.zeros((4, 5), kind)))
