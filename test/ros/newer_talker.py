# SPDX-License-Identifier: Apache-2.0
"""Publishes the newer ModelInfo on /model/info at 10 Hz until it is stopped."""

from __future__ import annotations

import signal
import time

import rclpy
from edgefirst_msgs.msg import ModelInfo
from rclpy.signals import SignalHandlerOptions


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits it ignored
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node("newer_talker")
    publisher = node.create_publisher(ModelInfo, "/model/info", 10)
    try:
        while True:
            publisher.publish(ModelInfo(model_name="yolov8n", input_dtype=1))
            time.sleep(0.1)
    except KeyboardInterrupt:
        rclpy.shutdown()


if __name__ == "__main__":
    main()
