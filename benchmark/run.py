# SPDX-License-Identifier: Apache-2.0
"""The benchmark: what the package costs beside ffmpeg, scripts, copying and the bare codecs, measured side by side.

    make benchmark                    or  python benchmark/run.py [NAME ...] [--rounds N] [--keep]

Compared programs run in turn, in the same minutes; a ratio is the median of those of the rounds, with the lowest and
the highest. What became worse on this kind of machine is told; `--keep` (of `make benchmark`) adds the ratios to
history.json and draws those of all runs in .cache/benchmark/history.html. Inputs are made once and kept in
.cache/benchmark (5 GB); the whole takes an hour on two cores. The load of a live capture is not here, since it needs
ROS 2: benchmark/live.py. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

from suite import codecs, commands, copying, datasets, history, length, peers, reading, sampling, startup, table, video
from suite.inputs import CACHE
from suite.measure import ProgramError
from suite.table import Line

SUITE: dict[str, Callable[[int], Iterator[Line]]] = {
    "startup": startup.startup,
    "video": video.full_hd,
    "floor": codecs.floor,
    "cores": codecs.cores,
    "cubes": codecs.cubes,
    "copying": copying.copying,
    "rate": sampling.rate,
    "keyframes": sampling.keyframes,
    "reading": reading.reading,
    "training": datasets.training,
    "exports": datasets.exports,
    "length": length.length,
    "sizes": video.other_sizes,
    "peers": peers.peers,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure; without names everything.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SUITE))
    parser.add_argument("--rounds", type=int, default=5, help="runs of each program (5)")
    parser.add_argument("--keep", action="store_true", help="add the ratios to history.json")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in SUITE]
    if unknown or given.rounds < 1:
        parser.error(f"no part named {', '.join(unknown)}: {', '.join(SUITE)}" if unknown else "no rounds")
    print(table.head(given.rounds, commands.ffmpeg_version()), flush=True)
    missed, lines = 0, []
    for name in given.names or SUITE:
        try:
            for line in SUITE[name](given.rounds):
                print(line.text(), flush=True)
                lines.append(line)
                history.comparisons(lines)  # a name that is there twice is better found now than after an hour
                missed += line.passed is False
        except ProgramError as error:
            print(f"{name}: could not be measured: {error}", flush=True)
            missed += 1
    print(f"\n{missed} missed" if missed else "\nall bars met")
    runs, now = history.read(), history.entry(lines, given.rounds)
    for worse in history.regressions(runs, now, lines):
        print(f"worse than before: {worse}")
    if given.keep and now["ratios"]:
        history.write([*runs, now])
        (CACHE / "history.html").write_text(history.page([*runs, now]))
        print(f"drawn in {CACHE / 'history.html'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
