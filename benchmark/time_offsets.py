# SPDX-License-Identifier: Apache-2.0
"""Errors of the time check, by sensor: offsets of up to 200 ms in streets of many seeds, and the same without any.

python benchmark/time_offsets.py [--seeds 30] [--seconds 10]

Prints the largest and the median error of each pair of sensors, and how many were called uncertain or unknown.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from pathlib import Path

from edgefirst_ros.config import Settings
from edgefirst_ros.pipeline.first_pass import walk
from edgefirst_ros.pipeline.time_check import check_time
from edgefirst_ros.synthetic import Recipe, write_recording

TOPICS = ("camera", "gps", "imu", "lidar/points", "radar/targets")
MOST = 200
"""ms to each side."""
FLAGGED = 0.005
"""s from which an offset in a drive without any is a fault."""


def check(path: Path, seed: int, seconds: float, off: dict[str, int]) -> dict[str, tuple[float | None, bool]]:
    """Return {pair of sensors: (error in s, None if unknown; whether it is certain)}."""
    stamps = {name: ms * 1_000_000 for name, ms in off.items()}
    recipe = Recipe(
        seed=seed, seconds=seconds, scene="street", size=(320, 180), fps=15.0, topics={*TOPICS}, clock_offset=stamps
    )
    write_recording(path, recipe)
    settings = Settings()
    found = check_time(walk(path, settings).conclude(settings), settings)
    away = {name.replace("/", "."): ms / 1000 for name, ms in off.items()}
    errors = {}
    for pair in found.pairs:
        true = away.get(pair.first, 0.0) - away.get(pair.second, 0.0)
        seconds_off = pair.offset.seconds
        error = None if seconds_off is None else seconds_off - true
        errors[f"{pair.first}, {pair.second}"] = error, pair.offset.certain
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    print(f"{'sensors':24} {'planted':>10} {'median, ms':>10} {'most, ms':>9} {'uncertain':>9} {'unknown':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for planted in (True, False):
            found: dict[str, list[tuple[float | None, bool]]] = {}
            for seed in range(options.seeds):
                chance = random.Random(seed)
                off = {name: chance.randint(-MOST, MOST) * planted for name in TOPICS}
                for pair, result in check(Path(folder) / "drive.mcap", seed, options.seconds, off).items():
                    found.setdefault(pair, []).append(result)
            for pair, results in found.items():
                known = [abs(error) for error, _ in results if error is not None]
                what = f"+-{MOST} ms" if planted else "0"
                numbers = (statistics.median(known) * 1000, max(known) * 1000) if known else (float("nan"),) * 2
                uncertain = sum(not certain for _, certain in results)
                print(
                    f"{pair:24} {what:>10} {numbers[0]:10.1f} {numbers[1]:9.1f} {uncertain:9} "
                    f"{len(results) - len(known):8}",
                    flush=True,
                )
                if not planted and any(error >= FLAGGED for error in known):
                    print(f"  {sum(error >= FLAGGED for error in known)} without an offset are {FLAGGED} s off or more")


if __name__ == "__main__":
    main()
