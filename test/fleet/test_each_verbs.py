# SPDX-License-Identifier: Apache-2.0
"""`fleet validate`, `export`, `merge` and `convert` as verbs, in this process; tasks run on a real worker of Dask."""

import json
import shutil
from types import SimpleNamespace

import pytest
from fleet_tasks import Here
from late import late
from typer.testing import CliRunner

from edgefirst_ros import Dataset
from edgefirst_ros.cli.app import app
from edgefirst_ros.cli.fleet import show_progress
from edgefirst_ros.config import Settings
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export import export
from edgefirst_ros.fleet.converting import Conversion, FleetProgress

distributed = late("distributed", reason="dask is not installed")


@pytest.fixture(scope="module")
def cluster():
    """The address of a scheduler with one worker, a thread of this process."""
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options, host="127.0.0.1", protocol="tcp://", silence_logs=60) as begun:
        yield begun.scheduler_address


@pytest.fixture
def sets(drives, tmp_path):
    """A fleet of three datasets in a folder."""
    to = tmp_path / "sets"
    Conversion([str(drives)], str(to), Settings(rate=5), scratch=str(tmp_path / "scratch")).run(Here(), lambda _: None)
    return to


def fleet(*arguments):
    return CliRunner().invoke(app, ["fleet", *map(str, arguments)])


def dataset_of(sets, name):
    (path,) = sets.rglob(f"{name}.zip")
    return path


def test_datasets_are_validated_and_the_bad_ones_are_listed(sets, cluster):
    done = fleet("validate", sets, "--cluster", cluster)
    assert (done.exit_code, done.stdout) == (0, "3 datasets: 3 ok, 0 not\n")
    path = dataset_of(sets, "day2")
    path.write_bytes(path.read_bytes()[:-1])
    done = fleet("validate", sets, "--cluster", cluster)
    head, row, _, last = done.stdout.splitlines()
    assert (done.exit_code, head.split(), last) == (1, ["dataset", "verdict", "why"], "3 datasets: 2 ok, 1 not")
    assert row.split()[:2] == ["day2", "failed"]
    done = fleet("validate", sets, "--cluster", cluster, "--where", "name <> 'day2'", "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["exit_code"]) == (0, 0)
    assert [(one["name"], one["verdict"]) for one in told["datasets"]] == [("day1", "ok"), ("night1", "ok")]


def test_nuscenes_is_one_set_of_all_datasets(sets, tmp_path):
    """Its records are those of each dataset exported by itself: a token depends on nothing else."""
    done = fleet("export", sets, "--to", "nuscenes", "-o", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"out": str(tmp_path / "out"), "datasets": 3}

    def tokens(out, table):
        return sorted(record["token"] for record in json.loads((out / "v1.0-trainval" / f"{table}.json").read_text()))

    names = ("day1", "day2", "night1")
    alone = [export(dataset_of(sets, name), "nuscenes", tmp_path / name).out for name in names]
    for table in ("log", "scene", "sample", "sample_data", "ego_pose", "calibrated_sensor", "sample_annotation"):
        assert tokens(tmp_path / "out", table) == sorted(token for out in alone for token in tokens(out, table))
    assert len(tokens(tmp_path / "out", "scene")) == 3
    files = {path.relative_to(out / "samples") for out in alone for path in (out / "samples").rglob("*.*")}
    assert {path.relative_to(tmp_path / "out/samples") for path in (tmp_path / "out/samples").rglob("*.*")} == files
    refused = fleet("export", sets, "--to", "nuscenes", "-o", tmp_path / "again", "--workers", "2")
    assert isinstance(refused.exception, UsageError)


def test_nuscenes_in_a_bucket_is_the_set_of_a_folder_and_is_not_overwritten(s3, sets, tmp_path):
    assert fleet("export", sets, "--to", "nuscenes", "-o", tmp_path / "out").exit_code == 0
    place = "s3://drives/nuscenes/set"
    done = fleet("export", sets, "--to", "nuscenes", "-o", place)
    assert (done.exit_code, done.stdout) == (0, f"3 datasets in {place}\n")
    local = {path.relative_to(tmp_path / "out").as_posix(): path for path in (tmp_path / "out").rglob("*.*")}
    files = {name: path.read_bytes() for name, path in local.items() if path.is_file()}
    assert {key.removeprefix("nuscenes/set/"): data for key, data in s3.objects("nuscenes/set/").items()} == files
    again = fleet("export", sets, "--to", "nuscenes", "-o", place)
    assert isinstance(again.exception, DatasetError)
    assert "exists already" in str(again.exception)


def test_several_datasets_in_one_set_are_refused_if_a_sequence_is_in_two(sets, tmp_path):
    first = dataset_of(sets, "day1")
    shutil.copytree(first.parent, tmp_path / "copy")
    both = [first, tmp_path / "copy" / first.name]
    with pytest.raises(DatasetError, match=r"several datasets have a sequence '.*'; export only one of them"):
        export(both, "nuscenes", tmp_path / "out")
    with pytest.raises(UsageError, match=r"roverd accepts one dataset, got 2.*only nuscenes accepts several"):
        export(both, "roverd", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_datasets_are_exported_and_some_that_fail_are_a_loss(sets, cluster, tmp_path):
    path = dataset_of(sets, "day2")
    path.write_bytes(path.read_bytes()[:-1])
    done = fleet("export", sets, "--to", "roverd", "-o", tmp_path / "out", "--cluster", cluster)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (3, "3 datasets: 2 ok, 1 not")
    assert {path.name for path in (tmp_path / "out").glob("*.export.json")} == {
        "day1.export.json",
        "night1.export.json",
    }


@pytest.mark.parametrize("verb", [["validate"], ["export", "--to", "roverd", "-o", "x"]])
def test_a_cluster_and_a_number_of_workers_exclude_each_other(sets, verb):
    done = fleet(verb[0], sets, *verb[1:], "--cluster", "tcp://h:1", "--workers", 1)
    assert isinstance(done.exception, UsageError)
    assert "--cluster and --workers cannot be combined" in str(done.exception)


def test_datasets_are_merged_and_the_summary_says_what_came_of_it(sets, tmp_path):
    samples = sum(len(Dataset(path)) for path in sets.rglob("*.zip"))
    done = fleet("merge", sets, "-o", tmp_path / "a", "--split", "train=0.5,val=0.5")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"{samples} samples of 3 datasets in {tmp_path}/a/a.zip\n")
    groups, counts = (line.split() for line in done.stdout.splitlines()[2:4])
    assert groups == ["group", "train", "val"]
    assert sum(map(int, counts[1:])) == samples
    done = fleet("merge", sets, "-o", tmp_path / "b", "--json")
    assert json.loads(done.stdout) == {
        "datasets": [{"container": f"{tmp_path}/b/b.zip", "samples": samples, "sequences": 3}],
        "exit_code": 0,
    }
    assert len(Dataset(tmp_path / "b/b.zip")) == samples


def test_what_would_be_done_is_listed_and_nothing_is_written(drives, tmp_path):
    arguments = ["convert", drives, "-o", tmp_path / "sets", "--rate", 5, "--dry-run"]
    done = fleet(*arguments)
    assert (done.exit_code, (tmp_path / "sets").exists()) == (0, False)
    head, *rows, _ = (line.split() for line in done.stdout.splitlines() if line)
    assert head == ["to", "do", "MB", "becomes"]
    assert [row[0] for row in rows] == [f"{drives}/{name}.mcap" for name in ("day1", "day2", "night1")]
    told = json.loads(fleet(*arguments, "--json").stdout)
    assert [one["size"] for one in told["todo"]] == [path.stat().st_size for path in sorted(drives.glob("*.mcap"))]
    assert told["done"] == {}


def test_recordings_are_converted_on_the_cluster_and_a_second_run_has_nothing_to_do(drives, tmp_path, cluster):
    arguments = ["convert", drives, "-o", tmp_path / "sets", "--rate", 5, "--scratch", tmp_path / "s"]
    done = fleet(*arguments, "--cluster", cluster)
    assert done.exit_code == 0, done.output
    assert "3 recordings: 3 ok (0 of them done before)" in done.stdout
    assert f"catalogue: {tmp_path}/sets/catalogue.parquet" in done.stdout
    told = json.loads(fleet(*arguments, "--json").stdout)
    assert (told["done_before"], told["done_now"], told["verdicts"]) == (3, 0, {"ok": 3})


# ---- progress ------------------------------------------------------------------------------------
class Terminal:
    """Standard error that is a terminal, or none; None: nobody reads it any more."""

    def __init__(self, *, tty, broken=False):
        self.texts, self._tty, self._broken = [], tty, broken

    def isatty(self):
        return self._tty

    def write(self, text):
        if self._broken:
            raise BrokenPipeError
        self.texts.append(text)
        return len(text)

    def flush(self):
        pass


@pytest.fixture
def clock(monkeypatch):
    """The time that progress goes by, and a run of 10 recordings of which 3 are done."""
    from edgefirst_ros.cli import fleet as module

    now = SimpleNamespace(at=0.0, monotonic=lambda: now.at)
    monkeypatch.setattr(module, "time", now)
    return now


def progress_on(monkeypatch, terminal, clock, times):
    tally = FleetProgress(total=10)
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", terminal)
        with show_progress(quiet=False) as report:
            for clock.at in times:
                report(tally)
    return "".join(terminal.texts)


def test_on_a_terminal_one_line_is_written_over_and_taken_away_at_the_end(monkeypatch, clock):
    written = progress_on(monkeypatch, Terminal(tty=True), clock, [0.0, 0.01, 100.0])
    line = "0 of 10 done, 0 running, 0 failed, no worker is connected"
    assert written == f"\r{line}\r{' ' * len(line)}\r"
    monkeypatch.setenv("COLUMNS", "40")
    written = progress_on(monkeypatch, Terminal(tty=True), clock, [200.0])
    assert written == f"\r{line[:39]}\r{' ' * 39}\r", "a line that is wrapped cannot be written over"


def test_in_a_log_a_line_comes_seldom(monkeypatch, clock):
    written = progress_on(monkeypatch, Terminal(tty=False), clock, [0.0, 1.0, 1000.0, 1001.0, 2000.0])
    assert written == "0 of 10 done, 0 running, 0 failed, no worker is connected\n" * 2


def test_progress_that_nobody_reads_does_not_end_the_work(monkeypatch, clock):
    assert progress_on(monkeypatch, Terminal(tty=True, broken=True), clock, [100.0]) == ""
