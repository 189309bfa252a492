# SPDX-License-Identifier: Apache-2.0
"""Prints the hashes of datasets made by this interpreter, a line each: they are compared between versions of Python.

Members by their bytes, tables by their rows; the metadata names FFmpeg, whose version may differ. Real recordings where
they are at hand, and a synthetic one of each codec.
"""

import hashlib
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa
from shared_data import REAL

from edgefirst_ros import convert
from edgefirst_ros.synthetic import Recipe, write_recording

with tempfile.TemporaryDirectory() as folder:
    recordings = [path for path in REAL if path.stem.startswith(("gopro-max", "verdin"))]
    for codec in ("h264", "h265", "jpeg"):
        path = Path(folder, f"{codec}.mcap")
        write_recording(path, Recipe(seconds=2, size=(160, 96), codec=codec, lidar_points=200))
        recordings.append(path)
    for path in recordings:
        paths = convert(path, Path(folder, "out"), name=path.stem).paths
        digest = hashlib.sha256()
        with zipfile.ZipFile(paths.container) as container:
            for name in sorted(container.namelist()):
                digest.update(name.encode() + container.read(name))
        for table in (paths.arrow, paths.frames):
            digest.update(repr(pa.ipc.open_file(pa.memory_map(str(table))).read_all().to_pylist()).encode())
        print(digest.hexdigest(), path.stem, flush=True)
