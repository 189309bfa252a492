# SPDX-License-Identifier: Apache-2.0
"""A fleet past this machine: the driver of `fleet convert` with simulated workers and storage.

    python benchmark/fleet.py                      1,000 workers, 1,000,000 recordings
    python benchmark/fleet.py --workers 50 --recordings 20000

Nothing but the engine and its clock is made up. As Dask does it, the engine gives a task to the worker that has the
fewest, a worker that dies takes the tasks that wait on it along in what is counted, and a task is given up when more
than three workers died with it. One attempt in a hundred dies, one recording in a thousand always does, storage answers
in 50 ms, and refuses for good now and then. Printed: the time against the ideal, memory of the driver, what was lost,
done twice or called crashed wrongly. Exit code 1 where anything of that is not none.
"""

import argparse
import heapq
import itertools
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edgefirst_ros.fleet.engine import Driver, Task

DEATHS, POISON, REFUSALS = 0.01, 0.001, 0.002
"""Shares of attempts that die, of recordings that always do, of attempts that storage refuses for good."""
ALLOWED = 3
"""Deaths of workers with a task that Dask bears (distributed.scheduler.allowed-failures)."""
SECONDS, REQUESTS, ANSWER = 60.0, 15, 0.05
"""Of a conversion in the mean; requests of one, and the time of each, s."""


class Workers:
    """The engine: one task at a time on each worker, others wait on it."""

    def __init__(self, number, recordings, seed):
        self.threads = self.workers = number
        self.now, self.busy, self.started = 0.0, 0.0, 0
        self._random = random.Random(seed)
        self._waiting = [[] for _ in range(number)]
        self._loads = [(0, worker) for worker in range(number)]
        self._events, self._numbers = [], itertools.count()
        self._deaths = Counter()
        self.finished = bytearray(recordings)
        """How often each recording was converted to the end: more than once is work done twice."""

    def submit(self, task):
        while True:  # loads that are out of date lie about in the heap
            load, worker = heapq.heappop(self._loads)
            if load == len(self._waiting[worker]):
                break
        self._place(task, worker)

    def collect_completed(self, timeout):
        until, found = self.now + timeout, []
        while self._events and self._events[0][0] <= until and not found:
            self.now, _, worker, task, fate = heapq.heappop(self._events)
            if not self._waiting[worker] or self._waiting[worker][0] is not task:
                continue
            if fate == "death":
                found += self._die(worker)
                continue
            self._waiting[worker].pop(0)
            self._changed(worker)
            self._deaths.pop(id(task), None)
            self.finished[task.arguments["n"]] += fate == "ok"
            found.append((task, {"verdict": fate, "error": None}))
            self._begin(worker)
        if not found:
            self.now = until
        return found

    def _place(self, task, worker):
        self._waiting[worker].append(task)
        self._changed(worker)
        if len(self._waiting[worker]) == 1:
            self._begin(worker)

    def _changed(self, worker):
        """Note a worker's load; the notes that it makes out of date go when there are many."""
        heapq.heappush(self._loads, (len(self._waiting[worker]), worker))
        if len(self._loads) > 8 * self.workers:
            self._loads = [(len(waiting), number) for number, waiting in enumerate(self._waiting)]
            heapq.heapify(self._loads)

    def _begin(self, worker):
        if not self._waiting[worker]:
            return
        task, choose = self._waiting[worker][0], self._random
        self.started += 1
        length = choose.expovariate(1 / SECONDS) + REQUESTS * ANSWER
        fate = choose.choices(("ok", "death", "storage"), (1 - DEATHS - REFUSALS, DEATHS, REFUSALS))[0]
        fate = "death" if task.arguments["poison"] else fate
        length *= choose.random() if fate != "ok" else 1
        self.busy += length
        heapq.heappush(self._events, (self.now + length, next(self._numbers), worker, task, fate))

    def _die(self, worker):
        given_up, again = [], []
        for task in self._waiting[worker]:
            self._deaths[id(task)] += 1
            (given_up if self._deaths[id(task)] > ALLOWED else again).append(task)
        self._waiting[worker] = []
        self._changed(worker)
        for task in again:
            self.submit(task)
        for task in given_up:
            self._deaths.pop(id(task))
        return [(task, "workers died of it") for task in given_up]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--recordings", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    engine = Workers(options.workers, options.recordings, options.seed)
    choose = random.Random(options.seed + 1)
    poison = set(choose.sample(range(options.recordings), round(options.recordings * POISON)))
    tasks = (Task(dict, {"n": n, "poison": n in poison}) for n in range(options.recordings))
    began, verdicts, seen, last, memory = time.monotonic(), Counter(), bytearray(options.recordings), 0.0, []
    wrong = 0
    for result in Driver(engine, clock=lambda: engine.now).run(tasks):
        number, verdict = result.task.arguments["n"], result.record["verdict"]
        seen[number] += 1
        verdicts[verdict] += 1
        wrong += (verdict == "crashed") != (number in poison)
        last = engine.now if verdict == "ok" else last
        if sum(verdicts.values()) % max(1, options.recordings // 10) == 0:
            memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    twice = sum(count > 1 for count in engine.finished)
    lost, repeated = seen.count(0), sum(count > 1 for count in seen)
    ideal = engine.busy / options.workers
    print(f"recordings {options.recordings:,}, workers {options.workers:,}: {dict(verdicts)}")
    print(f"lost {lost}, reported twice {repeated}, converted twice {twice}, wrongly crashed or not {wrong}")
    print(
        f"attempts {engine.started:,}; simulated {engine.now / 3600:.2f} h, ideal {ideal / 3600:.2f} h: "
        f"{engine.now / ideal:.3f}; last dataset at {last / 3600:.2f} h"
    )
    print(f"memory of the process after each tenth, MB: {', '.join(f'{value:.0f}' for value in memory)}")
    print(f"driver and simulation: {1e6 * (time.monotonic() - began) / options.recordings:.0f} us a recording")
    return 1 if lost or repeated or twice or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
