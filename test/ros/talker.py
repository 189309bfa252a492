# SPDX-License-Identifier: Apache-2.0
"""Publishes numbered radar cubes of 1.6 MB and video packets: `talker.py best_effort|reliable COUNT HZ`."""

from __future__ import annotations

import array
import sys
import time

import rclpy
from edgefirst_msgs.msg import RadarCube
from foxglove_msgs.msg import CompressedVideo
from rclpy.duration import Duration
from rclpy.qos import QoSProfile, ReliabilityPolicy

VALUES = 800_000


def main(reliability: str, count: int, rate: float) -> None:
    rclpy.init()
    node = rclpy.create_node("talker")
    qos = QoSProfile(depth=count, reliability=ReliabilityPolicy[reliability.upper()])
    publishers = [
        node.create_publisher(RadarCube, "/radar/cube", qos),
        node.create_publisher(CompressedVideo, "/camera/h264", qos),
    ]
    while any(publisher.get_subscription_count() == 0 for publisher in publishers):
        time.sleep(0.02)
    time.sleep(0.5)  # the reader may know of us a little later than we of it
    cube = RadarCube(layout=[6, 1, 5, 2], shape=[2, 200, 4, 500], scales=[1.0, 0.2, 1.0, 0.1], is_complex=True)
    video = CompressedVideo(format="h264", frame_id="camera_optical")
    began = time.monotonic()
    for number in range(count):
        cube.timestamp = number
        cube.cube = array.array("h", [number]) * VALUES
        publishers[0].publish(cube)
        video.timestamp.sec = number
        video.data = array.array("B", [number % 256]) * 20_000
        publishers[1].publish(video)
        time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
    for publisher in publishers:
        publisher.wait_for_all_acked(Duration(seconds=60))  # a reliable reader may still ask for something again
    time.sleep(0.5)  # best effort knows nothing of that
    rclpy.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
