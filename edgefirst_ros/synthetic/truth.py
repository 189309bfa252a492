# SPDX-License-Identifier: Apache-2.0
"""Ground truth of a synthetic recording, as formulas: memory does not grow with its length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.synthetic.picture import Painter, class_picture, outline, pixels
from edgefirst_ros.synthetic.ranging import Lidar, Radar
from edgefirst_ros.synthetic.recipe import SECOND, Recipe
from edgefirst_ros.synthetic.scene import LABELS, TRANSFORMS, Scene, Thing, Transform


@dataclass(frozen=True)
class Truth:
    """Facts about the recording at `path`. Times are true ns since the epoch; `recipe.clock` returns the device's."""

    path: Path
    recipe: Recipe
    scene: Scene
    painter: Painter
    radar: Radar
    lidar: Lidar
    counts: Mapping[str, int]
    """Messages written, by the recipe's name of the topic (before the file was cut)."""

    @property
    def fps(self) -> float:
        """Pictures a second."""
        return float(self.recipe.rate("camera"))

    @property
    def labels(self) -> tuple[str, ...]:
        """The model's labels."""
        return LABELS

    @property
    def intrinsics(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy in pixels."""
        return self.scene.intrinsics

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """Transforms of tf_static."""
        return TRANSFORMS

    def topic(self, name: str) -> str:
        """Return a topic's name in the recording."""
        return self.recipe.topic(name)

    def stamp(self, name: str, index: int) -> int:
        """Time at which message `index` of a topic was measured (camera: picture `index` in order of presentation)."""
        return self.recipe.stamp(name, index)

    def frame(self, time: int) -> int:
        """Return the number in the bar code of the picture taken at (or next to) a time."""
        rate = self.recipe.rate("camera")
        return round((time - self.recipe.start) * rate / SECOND)

    def position(self, time: int) -> tuple[float, float, float]:
        """Latitude, longitude in degrees, altitude in m."""
        return self.scene.position(time)

    def orientation(self, time: int) -> tuple[float, float, float, float]:
        """Quaternion x, y, z, w."""
        return self.scene.orientation(time)

    def boxes(self, time: int) -> list[Thing]:
        """Return the objects in view, in the order of the model's boxes (nearest last)."""
        return [thing for thing in self.scene.things(time) if thing.box2d is not None]

    def mask(self, thing: Thing) -> NDArray[np.bool_]:
        """Return the pixels of an object as it is painted, nearer ones left away, (H, W)."""
        width, height = self.recipe.size
        mask = np.zeros((height, width), dtype=np.bool_)
        left, top, right, bottom = pixels(thing, width, height) or (0, 0, 0, 0)
        mask[top:bottom, left:right] = outline(thing, width, height)
        return mask

    def classes(self, time: int) -> NDArray[np.uint8]:
        """Return the class of every pixel, (H, W) uint8: 0 without an object."""
        return class_picture(self.scene.things(time), *self.recipe.size)

    def radar_bins(self, time: int) -> list[tuple[int, int, float]]:
        """(range bin, complex doppler bin, sine of the azimuth) of the cube's targets."""
        return self.radar.bins(time)

    def picture(self, index: int) -> NDArray[np.uint8]:
        """Picture `index` before coding, (H, W, 3) uint8 RGB."""
        return self.painter.picture(index)
