# SPDX-License-Identifier: Apache-2.0
"""Radar cubes to PNG: ours against Pillow's default, in one process.

    cube_png.py RECORDING ROUNDS

The first cubes of the recording; in each round all of them ours, then all of them by Pillow (from the finished 16-bit
picture). Prints JSON: ms a cube of each round for both, and bytes a cube.
"""

from __future__ import annotations

import io
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from preload import messages

from edgefirst_ros.messages import decode
from edgefirst_ros.sensors.cube import encode_cube
from edgefirst_ros.streams import CUBE

CUBES = 8


def picture(content: Any) -> Image.Image:
    """The cube as a 16-bit picture of (sequence x range) rows, the device's order."""
    shape = np.frombuffer(content.shape.view(), "<u2")
    values = np.frombuffer(content.cube.tobytes(), "<i2").astype(np.int32) + 32768
    return Image.fromarray(values.astype(np.uint16).reshape(int(shape[0]) * int(shape[1]), -1))


def pillow(image: Image.Image) -> int:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.tell()


def main() -> None:
    found = list(itertools.islice(messages(Path(sys.argv[1]), CUBE), CUBES))
    cubes = [decode(message) for message in found]
    pictures = [picture(cube) for cube in cubes]
    encode_cube(cubes[0], 0)
    pillow(pictures[0])
    ours, theirs = [], []
    for _ in range(int(sys.argv[2])):
        began = time.perf_counter()
        mine = sum(len(encode_cube(cube, 0)) for cube in cubes)
        between = time.perf_counter()
        other = sum(map(pillow, pictures))
        ended = time.perf_counter()
        ours.append((between - began) * 1e3 / len(cubes))
        theirs.append((ended - between) * 1e3 / len(cubes))
    raw = 2 * pictures[0].width * pictures[0].height
    sizes = {"raw": raw, "ours_bytes": mine // len(cubes), "pillow_bytes": other // len(cubes)}
    print(json.dumps({"ours": ours, "pillow": theirs, **sizes}))


if __name__ == "__main__":
    main()
