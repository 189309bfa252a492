# SPDX-License-Identifier: Apache-2.0
"""roverd, the format of the red-rover rig: a folder for each drive, in it one for each sensor, a file for each channel.

Source: roverd, "data interface".
"""

from __future__ import annotations

from edgefirst_ros.export.roverd.read_foreign import restore
from edgefirst_ros.export.roverd.write import export

__all__ = ["export", "restore"]
