# SPDX-License-Identifier: Apache-2.0
"""A Dask cluster on Slurm by dask-jobqueue: `python slurm.py`, then `fleet convert ... --cluster scheduler.json`.

pip install dask-jobqueue 'edgefirst-ros[fleet]' in an environment that all nodes see. It ends with Ctrl-C.
"""

import json
import signal

from dask_jobqueue import SLURMCluster

CORES, MEMORY, JOBS = 16, 64_000_000_000, 8

if __name__ == "__main__":
    with SLURMCluster(
        cores=CORES,
        processes=CORES,  # one thread each
        memory=f"{MEMORY}B",
        walltime="12:00:00",
        local_directory="/local/scratch",
        interface="ib0",
        worker_extra_args=["--resources", f"MEM={MEMORY // CORES}"],
        job_script_prologue=["export TMPDIR=/local/scratch"],
        scheduler_options={"interface": "ib0", "dashboard_address": "127.0.0.1:8787"},
    ) as cluster:
        cluster.scale(jobs=JOBS)
        with open("scheduler.json", "w", encoding="utf-8") as file:
            json.dump({"address": cluster.scheduler_address}, file)
        signal.pause()
