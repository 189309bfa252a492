# SPDX-License-Identifier: Apache-2.0
"""Samples at random in two spawned processes: ours from the dataset, against PIL and numpy from loose files.

    workers.py CONTAINER.zip ROUNDS [INPUT]

INPUT is camera (default) or radar.cube. Everything is in the page cache; loose files are the same bytes. In each round
both read all samples in the same shuffled order. Prints JSON: samples a second of each round, memory of a worker in MB.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
import zipfile
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from PIL import Image

from edgefirst_ros import Dataset

CHUNK = 4


def begin(samples):
    """Open the dataset, once in each process."""
    global own  # noqa: PLW0603  what a worker keeps
    own = samples


def ours(kind, index):
    """Of one sample: sum of the values, memory so far."""
    sample = own[index]
    values = sample.image() if kind == "camera" else sample.cube().raw()
    return int(values[0, 0].astype(np.int64).sum()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def loose(kind, path):
    """The same of a file."""
    with Image.open(path) as picture:
        values = np.asarray(picture)
    return int(values[0, 0].astype(np.int64).sum()), 0.0


def main() -> None:
    container, rounds = Path(sys.argv[1]), int(sys.argv[2])
    kind = sys.argv[3] if len(sys.argv) > 3 else "camera"
    samples = Dataset(container).samples(kind)
    rates: dict[str, list[float]] = {"ours": [], "loose": []}
    memory = []
    with tempfile.TemporaryDirectory(dir=container.parent) as temporary:
        with zipfile.ZipFile(container) as archive:
            files = {sample.key: Path(archive.extract(sample.member(kind), temporary)) for sample in samples}
        with get_context("spawn").Pool(2, begin, [samples]) as pool:
            for turn in range(rounds + 1):
                order = random.Random(turn).sample(range(len(samples)), len(samples))
                for name, read, items in (
                    ("ours", partial(ours, kind), order),
                    ("loose", partial(loose, kind), [files[samples[index].key] for index in order]),
                ):
                    began = time.perf_counter()
                    found = list(pool.imap_unordered(read, items, chunksize=CHUNK))
                    taken = time.perf_counter() - began
                    if turn:  # the first one warms up
                        rates[name].append(len(found) / taken)
                    if name == "ours":
                        memory.append(max(used for _, used in found))
    print(json.dumps({**rates, "worker_mb": memory}))


if __name__ == "__main__":
    main()
