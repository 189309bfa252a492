# SPDX-License-Identifier: Apache-2.0
"""Parts of a frame that become members: all in a dataset, few of most frames in a report."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from edgefirst_ros.pipeline.frame import Frame


class Part(NamedTuple):
    """Parts of a frame that are wanted besides its rows in the tables."""

    picture: bool = True
    sensors: Collection[str] | None = None
    """Sensors whose members are made, with the reference if it is not a camera; None: all."""
    masks: bool = True
    """True if its annotations have masks and outlines."""

    def has(self, sensor: str) -> bool:
        """True if the member of a sensor is made."""
        return self.sensors is None or sensor in self.sensors


WHOLE = Part()
ROWS = Part(picture=False, sensors=(), masks=False)

Chosen = Callable[[Frame, bool], Part]
"""Returns how much of a frame is wanted; it may be called more than once for a frame."""
