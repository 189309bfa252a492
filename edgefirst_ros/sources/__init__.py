# SPDX-License-Identifier: Apache-2.0
"""Sources of messages: MCAP recordings, ROS 2, Zenoh."""
