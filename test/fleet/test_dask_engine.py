# SPDX-License-Identifier: Apache-2.0
"""What an engine does where Dask itself fails: with a scheduler and a worker in this process."""

import pytest
from late import late

from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.fleet import dask_engine as dask_engine_module
from edgefirst_ros.fleet.dask_engine import DaskEngine
from edgefirst_ros.fleet.engine import Driver, Task

distributed = late("distributed", reason="dask is not installed")


def say(plain):
    return {"verdict": "ok", "error": plain["text"]}


def of_another_version(plain):
    raise ModuleNotFoundError("No module named 'edgefirst_ros.fleet'")


@pytest.fixture
def client():
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def engine(client):
    engine = DaskEngine(client, local=False)
    yield engine
    engine.close()


def test_a_record_that_does_not_come_in_time_is_asked_for_again(client, monkeypatch):
    monkeypatch.setattr(DaskEngine, "_keep_record", lambda engine, event: None)  # its event is lost
    asked, result = [], distributed.Future.result

    def late_twice(future, timeout=None):
        asked.append(timeout)
        if len(asked) < 3:
            raise TimeoutError
        return result(future, timeout)

    monkeypatch.setattr(distributed.Future, "result", late_twice)
    engine = DaskEngine(client, local=False)
    (found,) = Driver(engine).run([Task(say, {"text": "one"})])
    assert found[1] == {"verdict": "ok", "error": "one"}
    assert asked == [dask_engine_module.RESULT] * 3
    assert (engine._tasks, engine.collect_completed(0.0)) == ({}, [])
    engine.close()


def test_workers_that_have_another_program_are_told_what_they_need(engine):
    engine.submit(Task(of_another_version, {}))
    with pytest.raises(
        EdgeFirstError, match="workers cannot do the work: ModuleNotFoundError: No module named"
    ) as said:
        engine.collect_completed(60)
    assert str(said.value).endswith("they need the same edgefirst-ros[fleet] as this machine")


def test_workers_are_counted_now_and_then(engine, monkeypatch):
    assert (engine.threads, engine.workers) == (1, 1)
    asked, info = [], engine._client.scheduler_info
    monkeypatch.setattr(engine._client, "scheduler_info", lambda **given: asked.append(1) or info(**given))
    assert (engine.threads, engine.workers, len(asked)) == (1, 1, 0)
    monkeypatch.setattr(dask_engine_module, "COUNT_EVERY", 0.0)
    assert (engine.threads, len(asked)) == (1, 1)


def test_a_scheduler_that_is_gone_is_said_where_its_workers_are_counted(engine, monkeypatch):
    def gone(**_):
        raise OSError("Timed out trying to connect to tcp://127.0.0.1:9 after 30 s")

    monkeypatch.setattr(dask_engine_module, "COUNT_EVERY", 0.0)
    monkeypatch.setattr(engine._client, "scheduler_info", gone)
    with pytest.raises(EdgeFirstError, match=r"the scheduler is gone \(OSError\); finished datasets stay"):
        _ = engine.threads
