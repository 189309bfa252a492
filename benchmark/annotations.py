# SPDX-License-Identifier: Apache-2.0
"""Seconds (elapsed and of the processor) and memory to write, read and migrate annotations in every form.

    python benchmark/annotations.py [ROWS] [FOLDER]

Every step is a process of its own, so that its peak memory is its own.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

ROWS = 1_000_000
PER_SAMPLE = 10
LABELS = [f"label {number}" for number in range(80)]


def batches(rows: int):
    """Boxes, scores and a polygon of four points in every fourth row."""
    from edgefirst_ros.dataset import schema

    random = np.random.default_rng(0)
    for start in range(0, rows, 1 << 14):
        count = min(1 << 14, rows - start)
        number = np.arange(start, start + count)
        index = random.integers(0, len(LABELS), count)
        ring = pa.array(random.random(count * 8, np.float32))
        rings = pa.LargeListArray.from_arrays(np.arange(count + 1) * 8, ring)
        polygons = pa.LargeListArray.from_arrays(
            pa.array(np.arange(count + 1), mask=np.append(number % 4 != 0, False)), rings
        )
        found = {
            "name": pa.array(["sequence"] * count, schema.TEXT),
            "frame": pa.array(number // PER_SAMPLE, pa.uint32()),
            "object_id": pa.array([f"00000000-0000-4000-8000-{n:012x}" for n in number], schema.TEXT),
            "label": pa.array(LABELS, schema.TEXT).take(pa.array(index)),
            "label_index": pa.array(index, pa.uint64()),
            "polygon": polygons,
            "box2d": pa.FixedSizeListArray.from_arrays(pa.array(random.random(count * 4, np.float32)), 4),
            "box2d_score": pa.array(random.random(count, np.float32)),
            "size": pa.FixedSizeListArray.from_arrays(pa.array(np.tile([1920, 1080], count), pa.uint32()), 2),
            "timestamp": pa.array(10**18 + number // PER_SAMPLE),
        }
        yield pa.record_batch(list(found.values()), names=list(found))


def write(rows: int, out: str) -> None:
    from edgefirst_ros.dataset import schema
    from edgefirst_ros.dataset.tables.write import choose_columns, count_columns, write_rows

    made = list(batches(rows))
    begin()
    found, categories = count_columns(lambda: made, schema.WORKING)
    columns = choose_columns(found, schema.list_columns("2026.04"))
    metadata = {"schema_version": "2026.04", "box2d_format": "cxcywh"}
    with Path(out).open("wb") as file:
        write_rows(lambda: made, file, Path(out).suffix, columns, categories, metadata, "2026.04")


def read(path: str) -> None:
    from edgefirst_ros.dataset.tables.forms import read_annotations

    begin()
    print(sum(batch.num_rows for batch in read_annotations(path).batches()), file=sys.stderr)


def migrate(path: str, out: str, version: str) -> None:
    from edgefirst_ros import migrate as run

    begin()
    run(path, out, version, overwrite=True)


began: list[float] = []


def begin() -> None:
    """Start to measure."""
    began[:] = [time.perf_counter(), time.process_time()]


def step(*words: str) -> None:
    """Run one step in this process and print what it took."""
    {"write": lambda: write(int(words[1]), words[2]), "read": lambda: read(words[1])}.get(
        words[0], lambda: migrate(*words[1:])
    )()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([time.perf_counter() - began[0], time.process_time() - began[1], peak]))


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        print(f"{rows} rows\n{'step':34}{'s':>8}{'CPU s':>8}{'MB':>8}{'file MB':>9}")
        for form in ("arrow", "parquet", "json"):
            here = f"{folder}/a.{form}"
            older, newer = f"{folder}/older.{form}", f"{folder}/newer.{form}"
            for words in (
                ["write", str(rows), here],
                ["read", here],
                ["migrate", here, older, "2025.10"],
                ["migrate", older, newer, "2026.04"],
            ):
                done = subprocess.run(
                    [sys.executable, __file__, "--step", *words], capture_output=True, text=True, check=True
                )
                elapsed, processor, peak = json.loads(done.stdout)
                name = f"{form}: {words[0]}{' to ' + words[3] if words[0] == 'migrate' else ''}"
                size = Path(words[1] if words[0] == "read" else words[2]).stat().st_size / 1e6
                print(f"{name:34}{elapsed:8.2f}{processor:8.2f}{peak:8.0f}{size:9.0f}", flush=True)


if __name__ == "__main__":
    step(*sys.argv[2:]) if sys.argv[1:2] == ["--step"] else main()
