# SPDX-License-Identifier: Apache-2.0
"""All settings as one model: YAML files, ROS parameters and command line flags all become this."""

from edgefirst_ros.config.rig import Rig, RigSensor, StreamSettings
from edgefirst_ros.config.settings import MODEL, PARTS, SENSORS, LiveSettings, PlayerSettings, ReplaySettings, Settings
from edgefirst_ros.config.values import SECOND, Model, parse_utc, to_ns

__all__ = [
    "MODEL",
    "PARTS",
    "SECOND",
    "SENSORS",
    "LiveSettings",
    "Model",
    "PlayerSettings",
    "ReplaySettings",
    "Rig",
    "RigSensor",
    "Settings",
    "StreamSettings",
    "parse_utc",
    "to_ns",
]  # fmt: skip
