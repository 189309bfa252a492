# SPDX-License-Identifier: Apache-2.0
"""Engine on Dask: a local cluster, or one that the user started."""

from __future__ import annotations

import itertools
import json
import logging
import os
import queue
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from edgefirst_ros.errors import EdgeFirstError, UsageError, describe_extra
from edgefirst_ros.fleet.engine import Task
from edgefirst_ros.fleet.work import Scratch
from edgefirst_ros.limits import count_processors

MEMORY = "MEM"
"""Name of the resource of workers, in bytes."""
RECORDS = "edgefirst-ros-fleet"
"""Name of the events of a scheduler with the results of tasks; it keeps the last thousands."""
LEAST_MEMORY = 768 << 20
"""Least memory of a worker of a local cluster, bytes, unless the machine has less."""
CONNECT = 20
"""Longest time to reach a scheduler, s."""
RESULT = 30
"""Longest time to get a record from its worker, s."""
DEATHS = 3
"""Workers of a local cluster that may die of a task before it is given up."""
STARTS = 3
"""Most attempts to start a local cluster."""
COUNT_EVERY = 5.0
"""Time after which workers are counted again, s."""
KEEP_WORKERS = "52 weeks"
"""Time after a death at which a local cluster drops the worker if it has not returned. With Dask's 15 s it dropped
those that had just died once more, or were about to return, with their task."""
NO_WORKER = 60.0
"""Longest time in which a local cluster may have no worker, s: those that died are begun again within seconds."""
SELDOM: Mapping[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "2s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Services that a local cluster does not run, or seldom.

Its HTTP servers know no page, as they ask for no certificate: any user of the machine could read names of recordings.
With Dask's own settings (a sample of what runs every 10 ms, a tick every 20, figures of the machine every 500) an idle
scheduler with one worker took 138 ms of processor time a second, with these 41 in the same minute of a busy machine.
Memory is watched every 100 ms as before.
"""
_AGAIN = object()


class DaskEngine:
    """Runs tasks as futures of a Dask client. Owned by the thread that runs it; futures report through a queue."""

    def __init__(self, client: Any, *, local: bool) -> None:
        """`local`: the number of workers is fixed."""
        self._client, self._local = client, local
        self._ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tasks: dict[str, tuple[Task, Any]] = {}
        self._records: dict[str, Mapping[str, Any]] = {}
        """Records that came ahead of the end of their tasks."""
        client.subscribe_topic(RECORDS, self._keep_record)
        self._run = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()
        self._counted = float("-inf"), (0, 0)
        self._seen = time.monotonic()
        """Last time with a worker."""
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        given = [int(worker.get("resources", {}).get(MEMORY, 0)) for worker in workers]
        self._memory = min(filter(None, given), default=0)
        """Least memory resource of the workers, bytes; 0 without any."""

    @property
    def threads(self) -> int:
        """Threads of all workers, as they were a few seconds ago."""
        return self._count()[0]

    @property
    def workers(self) -> int:
        return self._count()[1]

    def _count(self) -> tuple[int, int]:
        now = time.monotonic()
        if now >= self._counted[0] + COUNT_EVERY:
            try:
                workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
            except OSError as error:
                raise _is_gone(error) from None
            self._counted = now, (sum(worker["nthreads"] for worker in workers), len(workers))
            self._seen = now if workers else self._seen
            if self._local and now > self._seen + NO_WORKER:
                raise EdgeFirstError(
                    "all workers ended and cannot be started again: check memory, and space for temporary files. "
                    "Finished datasets stay; run the same command again to continue"
                )
        return self._counted[1]

    @property
    def dashboard(self) -> str:
        """Address of the dashboard; "" for a local cluster, which does not have one."""
        return "" if self._local else str(self._client.dashboard_link)

    def submit(self, task: Task) -> None:
        """Begin a task; it asks for memory where workers declare it."""
        wanted = {MEMORY: min(task.memory, self._memory)} if self._memory and task.memory else None
        key = f"fleet-{self._run}-{next(self._numbers)}"
        future = self._client.submit(
            _run_task, task.function, task.arguments, key, key=key, pure=False, resources=wanted
        )
        self._tasks[key] = task, future
        future.add_done_callback(self._ended.put)

    def collect_completed(self, timeout: float) -> Sequence[tuple[Task, Mapping[str, Any] | str]]:
        found = []
        try:
            future = self._ended.get(timeout=timeout)
            while True:
                outcome = self._outcome(future)
                if outcome is not _AGAIN:
                    task, _ = self._tasks.pop(future.key)
                    future.release()
                    found.append((task, outcome))
                future = self._ended.get_nowait()
        except queue.Empty:
            return found

    def close(self) -> None:
        """Cancel everything: no task stays on the cluster."""
        with suppress(Exception):  # it may be gone
            self._client.unsubscribe_topic(RECORDS)
            self._client.cancel([future for _, future in self._tasks.values()], asynchronous=False)
        self._tasks.clear()

    def _keep_record(self, event: tuple[float, tuple[str, str]]) -> None:
        """Keep a record; called by the thread of the client, before it learns of the end of the task."""
        _, (key, record) = event
        if key.startswith(f"fleet-{self._run}-"):  # not of another run on the same cluster
            self._records[key] = json.loads(record)

    def _outcome(self, future: Any) -> Any:
        """Return the record, the reason of giving up, or _AGAIN if a worker died with it."""
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        if (record := self._records.pop(future.key, None)) is not None:
            return record
        try:
            return future.result(timeout=RESULT)
        except TimeoutError:
            future.add_done_callback(self._ended.put)
            return _AGAIN
        except KilledWorker:
            return "workers died of it, each time that it was tried: it takes too much memory, or ends their process"
        except (FutureCancelledError, OSError) as error:
            raise _is_gone(error) from None
        except Exception as error:
            raise EdgeFirstError(
                f"workers cannot do the work: {type(error).__name__}: {' '.join(str(error).split())[:300]}; "
                "they need the same edgefirst-ros[fleet] as this machine"
            ) from error


def _run_task(
    function: Callable[[dict[str, Any]], dict[str, Any]], arguments: dict[str, Any], key: str
) -> dict[str, Any]:
    """Do a task in a worker, and send its record as an event: fetching results takes a third of the cost of a task.

    The event is JSON, as text that is not UTF-8 would end the connection. The record is also the result, in case the
    event is lost.
    """
    from distributed import get_worker

    record = function(arguments)
    get_worker().log_event(RECORDS, (key, json.dumps(record)))
    return record


def _is_gone(error: Exception) -> EdgeFirstError:
    return EdgeFirstError(
        f"the scheduler is gone ({type(error).__name__}); finished datasets stay; "
        "run the same command again to continue"
    )


@contextmanager
def open_dask(cluster: str | None, workers: int | None) -> Iterator[DaskEngine]:
    """Open the user's cluster, by its scheduler's address or file, or one of this machine with so many workers.

    On a cluster of this machine scheduler, nannies, workers and this process accept each other only, by TLS with a
    certificate made for this run and held in memory. Their files are in a folder of their own.
    Raises EdgeFirstError where Dask is not installed or the scheduler does not answer, UsageError for no address.
    """
    try:
        import dask
        import distributed
        from distributed.system import MEMORY_LIMIT

        library: Any = distributed
        security = library.Security.temporary() if cluster is None else None
    except ImportError as error:
        raise EdgeFirstError(describe_extra("fleet", "fleet", error)) from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # deaths are reported with their recordings
    if cluster is not None:
        with _make_client(library.Client, cluster) as client, closing(DaskEngine(client, local=False)) as engine:
            yield engine
        return
    number = workers or max(1, min(count_processors(), int(MEMORY_LIMIT) // LEAST_MEMORY))  # by the container's quotas
    memory = int(MEMORY_LIMIT) // number
    settings = {
        "distributed.scheduler.allowed-failures": DEATHS - 1,
        "distributed.worker.daemon": True,
        "distributed.comm.timeouts.connect": CONNECT,
        "distributed.deploy.lost-worker-timeout": KEEP_WORKERS,
        **SELDOM,
    }
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with (
        dask.config.set(settings),
        closing(Scratch(Path(tempfile.gettempdir()))) as scratch,
        scratch.folder() as folder,
        _delay_interrupts() as allow_interrupts,
        _begin_cluster(
            library.LocalCluster,
            n_workers=number,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            security=security,
            local_directory=str(folder),
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            memory_limit=memory,
            resources={MEMORY: memory},
            silence_logs=logging.CRITICAL,
        ) as local,
        library.Client(local, timeout=CONNECT) as client,
        closing(DaskEngine(client, local=True)) as engine,
    ):
        allow_interrupts()
        yield engine


def _begin_cluster(cluster: Any, **options: Any) -> Any:
    """Begin a cluster of this machine, again if one of its workers dies during the start.

    Raises EdgeFirstError after STARTS attempts.
    """
    for _ in range(STARTS):
        try:
            return cluster(**options)
        except (RuntimeError, OSError) as error:
            said = error
    raise EdgeFirstError(
        f"workers cannot be started on this machine: {' '.join(str(said).split())} Check the memory, or use fewer "
        "--workers"
    )


@contextmanager
def _delay_interrupts() -> Iterator[Callable[[], None]]:
    """Begin threads and processes that get no SIGINT, until the function given is called.

    Ctrl-C reaches every process of a terminal: it is for the command, and a worker that it ends is not begun again.
    """
    resource_tracker.ensure_running()  # begun later it would let signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def allow() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield allow
    finally:
        allow()


def _make_client(make: Any, cluster: str) -> Any:
    where = {"scheduler_file": cluster} if os.path.isfile(cluster) else {"address": cluster}
    if "address" in where and "://" not in cluster:
        raise UsageError(f"--cluster {cluster}: neither an address such as tcp://HOST:8786 nor a scheduler file")
    try:
        return make(**where, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise EdgeFirstError(
            f"--cluster {cluster}: no scheduler answers there: {' '.join(str(error).split())}"
        ) from None
