# SPDX-License-Identifier: Apache-2.0
"""What a report costs by the length of a drive: time, memory and size of the page; and a table over many datasets.

python benchmark/report_lengths.py [FOLDER] [SECONDS ...]
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edgefirst_ros.synthetic import Recipe, write_recording

LENGTHS = (10, 600, 3600)
DATASETS, PAGES = 1000, 20
RECIPE = {
    "codec": "jpeg",
    "fps": 10.0,
    "size": (320, 192),
    "cube_shape": (1, 32, 2, 32),
    "lidar_points": 300,
    "rates": {"radar/cube": 5.0, "radar/targets": 10.0, "lidar/points": 5.0},
}
MARK = "peak of a process: "
PROGRAM = f"""
import resource, sys
from edgefirst_ros.cli.app import app
try:
    app(sys.argv[1:], standalone_mode=False)
except SystemExit:
    pass
except Exception as error:
    print(type(error).__name__, error)
print("{MARK}", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def measured(*arguments: object) -> tuple[float, float, int]:
    """Wall and processor time in s, and the largest memory in MB of a run of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    took = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, used, int(done.stdout.rsplit(MARK, 1)[1])


def line(what: str, took: float, used: float, peak: int, page: Path) -> None:
    """Print a row."""
    print(f"{what:34} {took:8.1f} {used:8.1f} {peak:8d} {page.stat().st_size / 1e6:8.2f}", flush=True)


def main() -> None:
    """Print the table."""
    given = sys.argv[1:]
    folder = Path(given[0] if given else tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    print(f"{'':34} {'wall, s':>8} {'cpu, s':>8} {'MB':>8} {'page MB':>8}")
    lengths = [int(seconds) for seconds in given[1:]] or LENGTHS
    for seconds in lengths:
        path = folder / f"drive-{seconds}.mcap"
        if not path.exists():
            write_recording(path, Recipe(seconds=float(seconds), **RECIPE))
        if not (folder / f"{path.stem}.zip").exists():
            measured("convert", path, "-o", folder)
        for source in (folder / f"{path.stem}.zip", path):
            page = folder / "page.html"
            line(f"{seconds} s, {source.suffix[1:]}", *measured("report", source, "-o", page, "--overwrite"), page)
    many = folder / "many"
    many.mkdir(exist_ok=True)
    first = f"drive-{min(lengths)}"
    for number in range(DATASETS):
        for ending in (".zip", ".arrow", ".frames.arrow"):
            target = many / f"drive-{number:04}{ending}"
            if not target.exists():
                os.link(folder / f"{first}{ending}", target)
    page = folder / "pages" / "table.html"
    line(f"table over {DATASETS}", *measured("report", many, "--table-only", "-o", page, "--overwrite"), page)
    some = sorted(many.glob("*.zip"))[:PAGES]
    line(f"table and pages of {len(some)}", *measured("report", *some, "-o", page, "--overwrite"), page)


if __name__ == "__main__":
    main()
