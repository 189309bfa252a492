# SPDX-License-Identifier: Apache-2.0
"""ROS 2 nodes; importing one needs rclpy."""
