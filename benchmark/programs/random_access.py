# SPDX-License-Identifier: Apache-2.0
"""Random samples, picture decoded: ours from the dataset against PIL from loose files of the same bytes.

    random_access.py CONTAINER.zip ROUNDS

Everything is in the page cache. In each round both read all pictures, in the same shuffled order, as RGB arrays.
Prints JSON: samples a second of each round for both.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from edgefirst_ros import Dataset


def main() -> None:
    container = Path(sys.argv[1])
    dataset = Dataset(container)
    with tempfile.TemporaryDirectory(dir=container.parent) as temporary:
        with zipfile.ZipFile(container) as archive:
            files = [Path(archive.extract(sample.member("camera"), temporary)) for sample in dataset.samples()]
        order = list(range(len(files)))
        ours, theirs = [], []
        for turn in range(int(sys.argv[2]) + 1):
            random.Random(turn).shuffle(order)
            began = time.perf_counter()
            mine = [dataset[index].image().shape for index in order]
            between = time.perf_counter()
            other = []
            for index in order:
                with Image.open(files[index]) as picture:
                    other.append(np.asarray(picture).shape)
            ended = time.perf_counter()
            if mine != other:
                raise ValueError("not the same pictures")
            if turn:  # the first one warms up
                ours.append(len(order) / (between - began))
                theirs.append(len(order) / (ended - between))
    print(json.dumps({"ours": ours, "pil": theirs}))


if __name__ == "__main__":
    main()
