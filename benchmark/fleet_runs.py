# SPDX-License-Identifier: Apache-2.0
"""Fleets on real workers of Dask: what a recording costs besides its conversion, scaling, the catalogue, kills.

    python benchmark/fleet_runs.py overhead --recordings 10000
    python benchmark/fleet_runs.py scaling --rounds 5
    python benchmark/fleet_runs.py catalogue --recordings 100000
    python benchmark/fleet_runs.py kill --rounds 50

`kill` ends worker, scheduler and driver in turn at a random moment, `--rounds` times each, runs the same once more, in
its own process, and compares all objects with what `convert` makes.

Exit code 1 where a promise of docs/how-to/fleet.md does not hold.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "test" / "fleet"))

import polars as pl
from fleet_speed import SMALL, megabytes, overhead, scaling
from fleet_tasks import Here

import edgefirst_ros
from edgefirst_ros import __version__
from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.fleet import catalogue
from edgefirst_ros.fleet.converting import Conversion, make_plan
from edgefirst_ros.fleet.sources import ListedRecording
from edgefirst_ros.fleet.state import Layout, MemberFile, RecordingState
from edgefirst_ros.synthetic import Recipe, write_recording

ROOT = Path(__file__).resolve().parents[1]
RATE = 5
COMMAND = [sys.executable, "-m", "edgefirst_ros", "fleet", "convert"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": ROOT}
DRIVES, ONE, WHOLE_RUN = 12, 0.2, 6.0
"""Recordings of a run that is killed; how long one of them takes, and all from the start of the command, s."""


def catalogues(options, folder):
    """States of a folder to the table, and questions to it; then to one of `--rows` of the same again and again."""
    layout = Layout(Location.of(folder / "sets"))
    members = tuple(MemberFile(key=f"s/d/d.{end}", bytes=10_000_000, etag="e" * 32) for end in ("arrow", "zip"))
    for n in range(options.recordings):
        source = f"s3://drives/2026/{n % 365}/drive{n}.mcap"
        state = RecordingState(
            source=source,
            size=n,
            etag=f"{n:032x}",
            settings="s",
            software=__version__,
            verdict="ok",
            name=f"drive{n}",
            members=members,
            samples=n % 1000,
            labels={"car": n % 7},
            latitude=n / 1e6,
        )
        path = layout.state("s", source).path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(state.to_json())
    print(f"{options.recordings} states of {len(state.to_json())} bytes; this process: {megabytes():.0f} MB")

    def timed(what, function):
        began = time.monotonic()
        found = function()
        print(f"{what}: {time.monotonic() - began:.2f} s; peak {megabytes():.0f} MB", flush=True)
        return time.monotonic() - began, found

    _, made = timed("all states read", lambda: catalogue.update_catalogue(layout))
    assert len(made) == options.recordings
    timed("table written", lambda: catalogue.write_catalogue(layout, made))
    for n in range(0, options.recordings, 1000):
        path = layout.state("s", f"s3://drives/2026/{n % 365}/drive{n}.mcap").path
        path.write_bytes(path.read_bytes().replace(b'"ok"', b'"loss"'))
    _, again = timed("one in a thousand changed, read", lambda: catalogue.update_catalogue(layout))
    assert len(again) == options.recordings
    assert again.changed
    timed("table written", lambda: catalogue.write_catalogue(layout, again))
    _, same = timed("nothing changed, states listed", lambda: catalogue.update_catalogue(layout))
    assert not same.changed
    where = "label_car > 3 AND samples > 500 AND latitude < 0.05"
    asked, found = timed("table asked", lambda: same.choose(where, "name", "container"))
    print(f"{len(found)} found; {layout.catalogue.path.stat().st_size / 1e6:.0f} MB of Parquet")
    stored, _ = timed(
        "stored table asked by polars",
        lambda: pl.SQLContext(c=pl.scan_parquet(layout.catalogue.path)).execute(
            f"SELECT name, container FROM c WHERE {where}", eager=True
        ),
    )
    sources = [
        ListedRecording(f"s3://drives/2026/{n % 365}/drive{n}.mcap", n, f"{n:032x}") for n in range(options.recordings)
    ]
    timed("what is to be done, told", lambda: make_plan(sources, same.rows, layout, "s", retry_failed=False))
    many = Layout(Location.of(folder / "many"))
    many.root.path.mkdir()
    many.catalogue.path.write_bytes(_repeated(same.rows, options.rows))
    made = catalogue.Catalogue(pl.scan_parquet(many.catalogue.path.read_bytes()), options.rows, changed=False)
    print(f"{options.rows} rows: {many.catalogue.path.stat().st_size / 1e6:.0f} MB of Parquet")
    times = [
        timed("asked for two columns", lambda: made.choose(where, "name", "container")),
        timed("asked for one recording", lambda: made.choose(f"source = '{options.rows - 1}'", "verdict", "error")),
        timed("bytes and cars added up", lambda: made.choose(None, pl.col("bytes").sum(), pl.col("label_car").sum())),
    ]
    assert len(times[1][1]) == 1
    return max(asked, stored, *(seconds for seconds, _ in times)) < 1


def _repeated(rows, number):
    """So many rows as Parquet, of these again and again, each with a source, state and tags of its own."""
    table, own = rows.collect(), pl.int_range(number, eager=True)
    many = pl.concat([table] * -(-number // len(table))).head(number)
    named = {"source": own.cast(pl.String), "name": "drive" + own.cast(pl.String), "etag": own.hash().cast(pl.String)}
    digests = {"state": own.hash(1).cast(pl.String), "state_etag": own.hash(2).cast(pl.String)}
    return catalogue._pack_table(many.with_columns(**named, **digests, size=own).lazy())


def kill(options, folder):
    """Worker, scheduler, driver, each `--rounds` times; each time one more run, and all objects compared."""
    drives, hand = folder / "drives", {}
    drives.mkdir()
    for n in range(DRIVES):
        path = drives / f"drive{n}.mcap"
        write_recording(path, Recipe(seed=n, **SMALL))
        outcome = edgefirst_ros.convert(path, folder / "hand" / str(n), rate=RATE)
        hand |= {f"drive{n}/{file.name}": file.read_bytes() for file in outcome.paths.out.iterdir()}
    choose, bad, told = random.Random(options.seed), 0, Counter()
    for number in range(3 * options.rounds):
        what = ("worker", "scheduler", "driver")[number % 3]
        to = folder / f"sets{number}"
        killed, code = _killed_run(what, choose, drives, to, folder)
        done = len(list(to.glob("_state/*/*.json")))
        again = Conversion([str(drives)], str(to), Settings(rate=RATE)).run(Here(), lambda tally: None).exit_code
        made = {
            f"{file.parent.name}/{file.name}": file.read_bytes()
            for file in to.rglob("*")
            if file.suffix in (".zip", ".arrow")
        }
        whole = again == 0 and made == hand and not list(to.rglob("*.partial"))
        # a dead worker is made good for in the same run; what another death leaves is for the next one
        expected = code == 0 if what == "worker" or not killed else code != 0 or done == DRIVES
        bad += not (whole and expected)
        told[what] += killed
        told[f"{what} with some but not all done"] += killed and 0 < done < DRIVES
        if not (whole and expected):
            print(
                f"round {number}: {what}: exit codes {code}, {again}; objects equal: {made == hand}; {done} done",
                flush=True,
            )
        if number % 30 == 29:
            print(f"{number + 1} rounds: {dict(told)}", flush=True)
        shutil.rmtree(to)
    print(f"3 * {options.rounds} rounds; killed while it ran: {dict(told)}; not whole after one more run: {bad}")
    return not bad


def _killed_run(what, choose, drives, to, folder):
    """Run until something is killed: in most rounds when some number of recordings is done, else at any moment.

    Returns whether there was something to kill, and the exit code.
    """
    command, helpers = [*COMMAND, drives, "-o", to, "--rate", str(RATE), "--workers", "2"], []
    if what == "scheduler":
        command, helpers = _with_cluster(command[:-2], folder)
    driver = subprocess.Popen(command, **QUIET)
    if choose.random() < 0.7:
        number = choose.randrange(DRIVES)
        while len(list(to.glob("_state/*/*.json"))) < number and driver.poll() is None:
            time.sleep(0.01)
        time.sleep(choose.uniform(0, ONE))
    else:
        time.sleep(choose.uniform(0, WHOLE_RUN))
    victims = {"driver": [driver.pid], "scheduler": [helper.pid for helper in helpers[:1]], "worker": _workers(driver)}
    killed = driver.poll() is None and bool(victims[what])
    if killed:
        os.kill(choose.choice(victims[what]), signal.SIGKILL)
    code = driver.wait(timeout=180)
    for helper in helpers:
        helper.kill()
        helper.wait()
    return killed, code


def _with_cluster(command, folder):
    """A scheduler and a worker in processes of their own, and the command on them."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    scheduler = ["dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file]
    worker = ["dask_worker", "--scheduler-file", file, "--nthreads", "1", "--no-dashboard"]
    helpers = []
    for module, *arguments in (scheduler, worker):
        helpers.append(subprocess.Popen([sys.executable, "-m", f"distributed.cli.{module}", *arguments], **QUIET))
        while not file.exists():
            time.sleep(0.05)
    return [*command, "--cluster", file], helpers


def _workers(driver):
    """Processes of the workers of a command's own cluster."""
    listed = subprocess.run(
        ["ps", "-ww", "--ppid", str(driver.pid), "-o", "pid=,args="], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    return [int(line.split()[0]) for line in listed if "spawn_main" in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("overhead", "scaling", "catalogue", "kill"))
    parser.add_argument("--recordings", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the largest catalogue that is asked")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    run = {"overhead": overhead, "scaling": scaling, "catalogue": catalogues, "kill": kill}[options.what]
    with tempfile.TemporaryDirectory() as folder:
        return 0 if run(options, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
