# SPDX-License-Identifier: Apache-2.0
"""Real workers of Dask: they die, take too much memory, lose their scheduler; what is left is whole."""

import os
import signal
import subprocess
import sys
import threading
import time

import fleet_tasks
import pytest
from fleet_tasks import Here
from late import late

import edgefirst_ros
from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.errors import EdgeFirstError, UsageError
from edgefirst_ros.fleet import converting
from edgefirst_ros.fleet import dask_engine as dask_engine_module
from edgefirst_ros.fleet.converting import Conversion
from edgefirst_ros.fleet.dask_engine import open_dask
from edgefirst_ros.fleet.engine import Driver, Task

distributed = late("distributed", reason="dask is not installed")

SETTINGS = Settings(rate=5, split={"train": 0.5, "val": 0.5})


@pytest.fixture(scope="module")
def cluster(s3):
    """A cluster as a user would start one: two workers, little memory each, nothing tried again after a death."""
    import dask

    begin = distributed.LocalCluster  # from here on Dask has its settings; ours, set before, would be all at the end
    with (
        dask.config.set(
            {
                "distributed.scheduler.allowed-failures": 0,
                "distributed.worker.memory.terminate": 0.8,
                "distributed.deploy.lost-worker-timeout": dask_engine_module.KEEP_WORKERS,
            }
        ),
        begin(
            n_workers=2,
            threads_per_worker=1,
            memory_limit="700MB",
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=60,
        ) as cluster,
    ):
        yield cluster


def files(to):
    """Bytes of all members by key relative to DST, without states and catalogue."""
    place = Location.of(str(to))
    store = open_store(place)
    keys = [o.key for o in store.objects(place.key)]
    return {k.removeprefix(f"{place.key}/"): store.read(k) for k in keys if k.endswith((".zip", ".arrow"))}


@pytest.fixture(scope="module")
def by_hand(drives, tmp_path_factory):
    """What `convert` makes of the drives, one by one, under the keys that a fleet gives them."""
    found = {}
    for name in ("day1", "day2", "night1"):
        out = tmp_path_factory.mktemp(name)
        edgefirst_ros.convert(drives / f"{name}.mcap", out, rate=5, split=SETTINGS.split, stable=True)
        found |= {f"{name}/{path.name}": path.read_bytes() for path in out.iterdir()}
    return found


def run(cluster, drives, to, tmp_path, **options):
    conversion = Conversion([str(drives)], str(to), SETTINGS, scratch=str(tmp_path / "scratch"), **options)
    with open_dask(cluster.scheduler_address, None) as engine:
        tally = conversion.run(engine, lambda tally: None)
    assert cluster.scheduler.tasks == {}  # a user's cluster is left without a task
    return tally, {key.partition("/")[2]: data for key, data in files(to).items()}


def test_objects_are_those_of_convert_and_a_second_run_does_nothing(cluster, drives, by_hand, tmp_path):
    to = f"s3://drives/{tmp_path.name}"
    tally, made = run(cluster, drives, to, tmp_path)
    assert (tally.verdicts, tally.exit_code, tally.now) == ({"ok": 3}, 0, 3)
    assert made == by_hand
    again = Conversion([str(drives)], str(to), SETTINGS)
    assert (again.plan.todo, again.tally.exit_code) == ([], 0)
    assert not [path for path in (tmp_path / "scratch").rglob("*.mcap") if path.is_file()]


def test_a_worker_killed_in_the_middle_costs_one_more_try(cluster, drives, by_hand, tmp_path, monkeypatch):
    (tmp_path / "marks").mkdir()
    (tmp_path / "marks" / "day2").touch()
    monkeypatch.setattr(converting, "work", fleet_tasks.kill_once)
    tally, made = run(cluster, drives, tmp_path / "sets", tmp_path)
    assert not (tmp_path / "marks" / "day2").exists()
    assert tally.verdicts == {"ok": 3}
    assert made == by_hand


def test_what_kills_workers_or_takes_their_memory_is_crashed_and_nothing_else_suffers(
    cluster, drives, by_hand, tmp_path, monkeypatch
):
    monkeypatch.setattr(converting, "work", fleet_tasks.poison)
    tally, made = run(cluster, drives, tmp_path / "sets", tmp_path)
    assert tally.verdicts == {"ok": 1, "crashed": 2}
    assert tally.exit_code == 3
    assert made == {key: data for key, data in by_hand.items() if key.startswith("night1/")}
    monkeypatch.undo()
    kept = Conversion([str(drives)], str(tmp_path / "sets"), SETTINGS)
    assert kept.plan.todo == []
    assert {verdict for _, verdict, _ in kept.tally.failures} == {"crashed"}
    tally, made = run(cluster, drives, tmp_path / "sets", tmp_path, retry_failed=True)
    assert (tally.verdicts, tally.before) == ({"ok": 3}, 1)
    assert made == by_hand


def test_records_come_as_events_and_are_not_fetched(cluster, monkeypatch):
    monkeypatch.setattr(distributed.Future, "result", None)
    texts = ["one", "two", "caf\udce9"]  # the last is no UTF-8
    with open_dask(cluster.scheduler_address, None) as engine, open_dask(cluster.scheduler_address, None) as other:
        tasks = [Task(fleet_tasks.say, {"text": text}) for text in texts]
        found = [(one[0].arguments["text"], one[1]["error"]) for one in Driver(engine).run(tasks)]
        assert engine._records == other._records == {}  # those of another run are not its own
    assert sorted(found) == [(text, text) for text in sorted(texts)]


def test_a_record_whose_event_is_lost_is_fetched(cluster, monkeypatch):
    monkeypatch.setattr(dask_engine_module.DaskEngine, "_keep_record", lambda engine, event: None)
    with open_dask(cluster.scheduler_address, None) as engine:
        (found,) = Driver(engine).run([Task(fleet_tasks.say, {"text": "one"})])
    assert found[1] == {"verdict": "ok", "error": "one"}


def test_a_missing_engine_is_said_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(EdgeFirstError, match=r"pip install 'edgefirst-ros\[fleet\]'"), open_dask(None, 1):
        pass


def test_a_scheduler_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setattr(dask_engine_module, "CONNECT", 0.5)
    with pytest.raises(UsageError, match="neither an address"), open_dask("nowhere", None):
        pass
    with pytest.raises(EdgeFirstError, match="no scheduler answers there"), open_dask("tcp://127.0.0.1:9", None):
        pass


def test_workers_that_do_not_come_back_end_it_on_a_cluster_of_its_own(monkeypatch):
    """A cluster of the user's may be without any for as long as it likes."""
    monkeypatch.setattr(dask_engine_module, "COUNT_EVERY", 0.0)
    monkeypatch.setattr(dask_engine_module, "NO_WORKER", 0.0)
    options = {"n_workers": 0, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        assert dask_engine_module.DaskEngine(client, local=False).threads == 0
        with pytest.raises(EdgeFirstError, match="all workers ended and cannot be started again"):
            _ = dask_engine_module.DaskEngine(client, local=True).threads


def test_a_worker_that_takes_long_to_come_back_is_not_given_up():
    """Dask looks for it once, some time after its death: here before any can be there again."""
    import dask

    assert distributed.LocalCluster  # loads Dask's settings, see `cluster`
    with dask.config.set({"distributed.deploy.lost-worker-timeout": 0}), open_dask(None, 1) as engine:
        (before,) = engine._client.run(os.getpid).values()
        os.kill(before, signal.SIGKILL)
        (found,) = Driver(engine).run([Task(fleet_tasks.say, {"text": "one"})])
        (after,) = engine._client.run(os.getpid).values()
    assert found[1]["verdict"] == "ok"
    assert after != before


def test_a_cluster_whose_worker_dies_as_it_begins_is_begun_again():
    said = [RuntimeError("Nanny failed to start.")]

    def cluster(size):
        if said:
            raise said.pop()
        return size

    assert dask_engine_module._begin_cluster(cluster, size=3) == 3
    said += [RuntimeError("Nanny failed to start.")] * dask_engine_module.STARTS
    with pytest.raises(
        EdgeFirstError, match=r"cannot be started on this machine: Nanny failed to start\. Check the memory"
    ):
        dask_engine_module._begin_cluster(cluster, size=3)


def test_a_scheduler_that_goes_ends_it_and_what_is_done_is_kept(drives, tmp_path):
    script = "from distributed.cli.dask_scheduler import main; main()"
    scheduler = subprocess.Popen(
        [
            sys.executable,
            "-c",
            script,
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--scheduler-file",
            tmp_path / "scheduler",
        ],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not (tmp_path / "scheduler").exists():
            assert scheduler.poll() is None
            time.sleep(0.05)
        conversion = Conversion([str(drives)], str(tmp_path / "sets"), SETTINGS)
        with open_dask(str(tmp_path / "scheduler"), None) as engine:
            threading.Timer(1.0, lambda: os.killpg(scheduler.pid, signal.SIGKILL)).start()
            with pytest.raises(EdgeFirstError, match="scheduler is gone"):
                conversion.run(engine, lambda tally: None)
        assert conversion.tally.verdicts == {"not done": 3}
        assert conversion.tally.exit_code == 1
    finally:
        if scheduler.poll() is None:
            os.killpg(scheduler.pid, signal.SIGKILL)
        scheduler.wait()


NUMBER = 12


def test_interrupts_and_kills_leave_what_is_done_and_no_worker(drives, tmp_path, cold_command):
    """The whole command, in processes of its own, on a cluster of its own.

    An interrupt of its worker alone is nothing; Ctrl-C, which all get, ends it, and so does a kill.
    """
    many, to, scratch = tmp_path / "many", tmp_path / "sets", tmp_path / "scratch"
    many.mkdir()
    for number in range(NUMBER):
        (many / f"drive{number}.mcap").write_bytes((drives / "day1.mcap").read_bytes())
    command = [*cold_command, "fleet", "convert", many, "-o", to, "--workers", "1", "--rate", "5", "--scratch", scratch]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    _wait_for_states(driver, to, 1)
    (worker,) = (pid for pid, what in _alive(driver.pid) if "spawn_main" in what)
    os.kill(worker, signal.SIGINT)
    _wait_for_states(driver, to, 3)
    assert worker in dict(_alive(driver.pid))
    os.killpg(driver.pid, signal.SIGINT)
    *_, last = driver.communicate()[1].splitlines()
    assert (driver.returncode, last) == (
        130,
        "interrupted: finished datasets stay; the same command continues from here",
    )
    _wait_until_gone(driver)  # who ends is seen until the system has taken note
    assert not list(scratch.iterdir())

    done = _states(to)
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    _wait_for_states(driver, to, done + 2)
    driver.kill()
    driver.wait()
    _wait_until_gone(driver)

    before = Conversion([str(many)], str(to), Settings(rate=5)).tally.before
    assert NUMBER > before >= _states(to) - 1  # one more may have been put in place at the end
    for folder in (to, next(to.rglob("*.zip")).parent, next(to.glob("_state/*"))):
        (folder / "file.1-1.partial").touch()  # as a kill at the wrong moment leaves it
    told = Conversion([str(many)], str(to), Settings(rate=5)).run(Here(), lambda tally: None)
    assert (told.before, told.now, told.verdicts) == (before, NUMBER - before, {"ok": NUMBER})
    assert len(list(to.rglob("*.zip"))) == NUMBER
    assert not list(to.rglob("*.partial"))


def _wait_until_gone(driver):
    deadline = time.monotonic() + 60
    while _alive(driver.pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _states(to):
    return len(list(to.glob("_state/*/*.json")))


def _wait_for_states(driver, to, number):
    while _states(to) < number:
        assert driver.poll() is None
        time.sleep(0.02)


def _alive(session):
    """(pid, command) of the processes of a session that are no zombies."""
    listed = subprocess.run(
        ["ps", "-ww", "-s", str(session), "-o", "pid=,stat=,args="], capture_output=True, text=True, check=False
    )
    found = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [(int(pid), what) for pid, state, what in found if not state.startswith("Z")]
