# SPDX-License-Identifier: Apache-2.0
"""Recordings with known truth: one scene seen by all sensors, written as the device writes it."""

from edgefirst_ros.synthetic.recipe import DEFAULT_TOPICS, EVERY, START, TOPICS, Recipe, make_recording_name
from edgefirst_ros.synthetic.recording import Truth, write_recording

__all__ = ["DEFAULT_TOPICS", "EVERY", "START", "TOPICS", "Recipe", "Truth", "make_recording_name", "write_recording"]
