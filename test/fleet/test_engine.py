# SPDX-License-Identifier: Apache-2.0
"""The order in which tasks go through an engine, with an engine and a clock that are made up."""

import random

import pytest

from edgefirst_ros.fleet.engine import PAUSES, STREAK, Driver, Task, count_window


class MadeUp:
    """Ends the oldest tasks first, with what `outcome` says of each attempt, and has a clock of its own.

    As Dask does it gives tasks to the worker that has the fewest, and a death gives up what else waits on that worker;
    of a task that is by itself it tries once more.
    """

    def __init__(self, outcome, threads=2):
        self.threads = self.workers = threads
        self._outcome = outcome
        self._tasks, self.now, self.under_way, self.attempts, self.most, self.beside = {}, 0.0, {}, {}, 0, {}

    def submit(self, task):
        load = [sum(worker == one for worker in self.under_way.values()) for one in range(self.threads)]
        number = task.arguments["n"]
        assert number not in self.under_way
        self.under_way[number] = load.index(min(load))
        self._tasks[number] = task
        self.most = max(self.most, len(self.under_way))

    def collect_completed(self, timeout):
        if not self.under_way:
            self.now += timeout
            return []
        self.now += 0.1
        number, worker = next(iter(self.under_way.items()))
        there = [one for one, where in self.under_way.items() if where == worker]
        self.beside[number] = len(there) - 1
        attempt = self.attempts[number] = self.attempts.get(number, 0) + 1
        outcome = self._outcome(number, attempt)
        if outcome == "death" and len(there) == 1:
            outcome = self._outcome(number, attempt + 1)
        ended = there if outcome == "death" else [number]
        for one in ended:
            del self.under_way[one]
        record = "workers died of it" if outcome == "death" else {"verdict": outcome}
        return [(self._tasks[one], record) for one in ended]


def drive(outcome, number=20, threads=2):
    engine = MadeUp(outcome, threads)
    driver = Driver(engine, clock=lambda: engine.now)
    results = [(r[0].arguments["n"], r[1]["verdict"]) for r in driver.run(Task(dict, {"n": n}) for n in range(number))]
    assert len({n for n, _ in results}) == len(results)
    assert not engine.under_way
    return dict(results), engine, driver


def test_all_are_done_once_with_few_under_way():
    found, engine, _ = drive(lambda n, attempt: "ok", 1000)
    assert found == dict.fromkeys(range(1000), "ok")
    assert set(engine.attempts.values()) == {1}
    assert engine.most == count_window(2) == 8
    assert [count_window(threads) for threads in (0, 1, 16, 20, 32, 1000)] == [1, 4, 64, 64, 64, 2000]


def test_a_task_that_kills_workers_is_crashed_and_takes_no_other_along():
    found, engine, _ = drive(lambda n, attempt: "death" if n in (3, 11) else "ok")
    assert {n for n, verdict in found.items() if verdict == "crashed"} == {3, 11}
    assert len(found) == 20
    assert set(found.values()) == {"ok", "crashed"}
    assert engine.beside[3] == engine.beside[11] == 0


def test_one_whose_worker_died_is_done_again():
    found, _, _ = drive(lambda n, attempt: "death" if (n, attempt) == (5, 1) else "ok")
    assert set(found.values()) == {"ok"}
    assert len(found) == 20


def test_what_storage_refuses_comes_again_after_a_pause():
    found, engine, driver = drive(lambda n, attempt: "storage" if n == 4 and attempt < 3 else "ok")
    assert set(found.values()) == {"ok"}
    assert engine.attempts[4] == 3
    assert engine.now >= sum(PAUSES)
    assert not driver.stopped
    found, engine, _ = drive(lambda n, attempt: "storage" if n == 4 else "ok")
    assert found[4] == "storage"
    assert engine.attempts[4] == 1 + len(PAUSES)


def test_storage_that_refuses_everything_ends_it():
    found, engine, driver = drive(lambda n, attempt: "storage", 100_000)
    assert driver.stopped
    assert set(found.values()) == {"storage"}
    assert STREAK <= len(engine.attempts) <= STREAK + count_window(2)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_each_has_one_result(seed):
    choose = random.Random(seed)
    fates = {n: choose.choices(("ok", "death", "storage", "once"), (80, 3, 3, 14))[0] for n in range(300)}

    def outcome(n, attempt):
        fate = fates[n]
        return ("death" if attempt == 1 else "ok") if fate == "once" else fate

    found, _, _ = drive(outcome, 300, choose.choice((1, 2, 7, 40)))
    expected = {"ok": "ok", "once": "ok", "death": "crashed", "storage": "storage"}
    assert found == {n: expected[fate] for n, fate in fates.items()}
