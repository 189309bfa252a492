# SPDX-License-Identifier: Apache-2.0
"""A dataset or recording in rerun's viewer: logged once, shown by the viewer's own program."""

ENTITIES = {
    "camera": "camera",
    "lidar.points": "lidar",
    "radar.targets": "radar",
    "radar.clusters": "radar",
    "radar.cube": "cube",
}
"""Sensor -> first part of its path; clusters are where targets are."""
