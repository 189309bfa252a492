# SPDX-License-Identifier: Apache-2.0
"""What verbs of a fleet say of recordings that failed, of datasets that were merged with notes, and of progress."""

import html
import json
import os
import resource

import pytest
from fleet_tasks import Here

from edgefirst_ros import Dataset
from edgefirst_ros.cli.app import VERBS, app
from edgefirst_ros.cli.fleet import describe
from edgefirst_ros.config import Settings
from edgefirst_ros.errors import UsageError
from edgefirst_ros.fleet.converting import Conversion, FleetProgress
from edgefirst_ros.synthetic import Recipe, write_recording

SMALL = {"seconds": 0.5, "size": (160, 96), "codec": "jpeg", "fps": 10.0, "topics": {"camera"}}


def converted(folder, to):
    """A fleet of the recordings in a folder."""
    Conversion([str(folder)], str(to), Settings(), scratch=str(to.parent / "scratch")).run(Here(), lambda _: None)
    return to


@pytest.fixture
def failed(tmp_path):
    """A fleet of 23 recordings that are none."""
    (tmp_path / "in").mkdir()
    for number in range(23):
        (tmp_path / "in" / f"r{number:02}.mcap").write_bytes(b"\x89MCAP0\r\nnothing")
    return converted(tmp_path / "in", tmp_path / "sets")


@pytest.fixture
def sets(tmp_path):
    """A fleet of two drives."""
    (tmp_path / "in").mkdir()
    for seed, name in enumerate(("day", "night")):
        write_recording(tmp_path / "in" / f"{name}.mcap", Recipe(seed=seed, **SMALL))
    return converted(tmp_path / "in", tmp_path / "sets")


# ---- recordings that failed --------------------------------------------------------------------
def test_the_first_failures_are_listed_and_the_others_counted(call, failed, tmp_path):
    done = call("fleet", "status", failed)
    assert done.exit_code == 1
    listed = [line for line in done.stdout.splitlines() if line.startswith(str(tmp_path / "in"))]
    assert [line.split()[0] for line in listed] == [str(tmp_path / "in" / f"r{n:02}.mcap") for n in range(20)]
    assert {line.split()[1] for line in listed} == {"failed"}
    assert "and 3 recordings more: --json lists all\n" in done.stdout
    told = json.loads(call("fleet", "status", failed, "--json").stdout)
    assert (len(told["recordings"]), told["exit_code"]) == (23, 1)


def test_failures_of_before_are_told_and_not_tried_again(call, failed, tmp_path):
    done = call("fleet", "convert", tmp_path / "in", "-o", failed)
    assert done.exit_code == 1
    assert "and 3 more: edgefirst-ros fleet status " in done.stdout
    assert {line.count(".mcap") for line in done.stdout.splitlines() if " failed  " in line} == {1}
    assert "failed before, and not tried again: 23 recordings; --retry-failed does\n" in done.stdout
    assert "23 recordings: 23 failed (23 of them done before)\n" in done.stdout
    assert "23 recordings: 0 to do, 23 done before" in done.stderr
    told = json.loads(call("fleet", "convert", tmp_path / "in", "-o", failed, "--json").stdout)
    assert (told["done_before"], told["verdicts"], len(told["not_all_there"])) == (23, {"failed": 23}, 20)
    dry = call("fleet", "convert", tmp_path / "in", "-o", failed, "--retry-failed", "--dry-run")
    assert dry.stdout.endswith("23 to do (0.3 kB), 0 done before; dry run: no file changes\n")


def test_a_catalogue_that_cannot_be_written_does_not_hide_the_status(call, failed):
    os.remove(failed / "catalogue.parquet")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        done = call("fleet", "status", failed)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.exit_code == 1
    assert not (failed / "catalogue.parquet").exists()
    assert done.stderr.startswith("the catalogue stays as it is: ")
    assert "and 3 recordings more" in done.stdout


@pytest.fixture
def partly(tmp_path):
    """A fleet of two drives, one cut in its first chunk, one empty, and one that is none."""
    (tmp_path / "in").mkdir()
    for seed, name in enumerate(("day", "night")):
        write_recording(tmp_path / "in" / f"{name}.mcap", Recipe(seed=seed, **SMALL))
    (tmp_path / "in" / "cut.mcap").write_bytes((tmp_path / "in" / "day.mcap").read_bytes()[:1500])
    (tmp_path / "in" / "empty.mcap").touch()
    (tmp_path / "in" / "text.mcap").write_bytes(b"text" * 100)
    return converted(tmp_path / "in", tmp_path / "sets")


@pytest.mark.parametrize("mode", ["--table-only", "--overwrite"])
def test_a_recording_that_failed_is_a_red_row_by_its_uri_with_the_cause_first(call, partly, tmp_path, mode):
    pytest.importorskip("plotly")
    done = call("fleet", "report", partly, "-o", tmp_path / "r" / "table.html", mode)
    assert done.exit_code == 3
    assert "2 of 5 recordings have a dataset\n" in done.stdout
    page = html.unescape((tmp_path / "r" / "table.html").read_text())
    for name, cause in (
        ("cut", "at byte 48: the last chunk is cut"),
        ("empty", "the file is empty"),
        ("text", "begins with b'text"),
    ):
        (row,) = (row for row in page.split("<tr") if f"/in/{name}.mcap" in row)
        assert "red" in row
        assert cause in row
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == (
        ["day.html", "night.html", "table.html"] if mode == "--overwrite" else ["table.html"]
    )
    told = json.loads(call("fleet", "report", partly, "-o", tmp_path / "r" / "t.html", "--table-only", "--json").stdout)
    assert [one["path"] for one in told["reports"] if "error" in one] == [
        str(tmp_path / "in" / f"{name}.mcap") for name in ("cut", "empty", "text")
    ]
    assert call("fleet", "report", partly, "-o", tmp_path / "r" / "one.html", "--where", "name = 'cut'").exit_code == 3


def test_the_status_tells_how_many_have_a_dataset_and_the_cause_first(call, partly, tmp_path):
    done = call("fleet", "status", partly)
    assert "2 of 5 recordings have a dataset\n" in done.stdout
    (cut,) = (line for line in done.stdout.splitlines() if line.startswith(str(tmp_path / "in" / "cut.mcap")))
    assert cut.split(None, 2)[1:] == ["failed", cut.split(None, 2)[2]]
    assert cut.split(None, 2)[2].startswith("the recording is cut: at byte 48: ")


def test_workers_find_a_hook_beside_the_settings(call, sets, tmp_path):
    """Also those of a cluster of their own, which know only what the driver sends."""
    pytest.importorskip("distributed")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "hook_of_a_fleet.py").write_text("def dark(picture):\n    return picture * 0\n")
    (tmp_path / "private" / "fleet.yaml").write_text("picture_hook: hook_of_a_fleet:dark\n")
    settings = "private/fleet.yaml"
    done = call("fleet", "convert", "in", "-o", "dark", "--config", settings, "--workers", "1")
    assert done.exit_code == 0, done.output
    assert [sample.image().max() < 3 for sample in Dataset("dark")] == [True] * 10


# ---- merge, report, export ---------------------------------------------------------------------
def test_notes_of_a_merge_are_told(call, sets, tmp_path):
    done = call("fleet", "merge", sets, "-o", tmp_path / "all", "--group", "val=n*,test=day")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"10 samples of 2 datasets in {tmp_path}/all/all.zip\n")
    assert [line.split() for line in done.stdout.splitlines()[1:4]] == [
        [],
        ["group", "val", "test"],
        ["samples", "5", "5"],
    ]
    done = call("fleet", "merge", sets, "-o", tmp_path / "one", "--split", "train=0.99,val=0.01", "--stable")
    assert "note: group val is empty: it needs more sequences\n" in done.stdout  # blocks are not used


def test_a_report_needs_a_place_for_its_table(call, sets, tmp_path):
    pytest.importorskip("plotly", reason="plotly is not installed")
    refused = call("fleet", "report", sets)
    assert refused.exit_code == 2
    assert "Missing option '-o' / '--out'" in refused.output
    shown = " ".join(call("fleet", "report", "--help").output.split())
    assert "-o, --out X.html The table, with the pages beside it. [required]" in shown
    assert (
        "Exit codes: 0 written, 1 no page written, 2 wrong usage, 3 some datasets are missing or cannot be read."
        in shown
    )
    done = call("fleet", "report", sets, "-o", tmp_path / "all.html", "--table-only", "--json")
    told = json.loads(done.stdout)
    assert (done.exit_code, [one["samples"] for one in told["reports"]]) == (0, [5, 5])
    assert sorted(path.name for path in tmp_path.glob("*.html")) == ["all.html"]


def test_a_format_that_is_not_known_is_refused(call, sets):
    error = call("fleet", "export", sets, "--to", "yolo9", "-o", "out").exception
    assert isinstance(error, UsageError)
    assert str(error).startswith("--to: expected one of ")
    error = call("fleet", "export", sets, "--to", "yolo", "-o", "out").exception
    assert "each drive of a fleet is in one group, and YOLO needs two: first edgefirst-ros fleet merge" in str(error)
    folder = next(path for path in sets.glob("[!_]*") if path.is_dir())
    error = call("fleet", "merge", folder, "-o", "out").exception
    assert str(error).endswith(": has no datasets; expected the folder -o of fleet convert")
    catalogue = sets / "catalogue.parquet"
    for verb in (["status"], ["validate"], ["merge", "-o", "out"], ["export", "--to", "roverd", "-o", "out"]):
        error = call("fleet", verb[0], catalogue, *verb[1:]).exception
        assert isinstance(error, UsageError)
        assert str(error) == f"{catalogue}: is not a folder; expected the folder -o of fleet convert"
    error = call("fleet", "convert", "nigth*.mcap", "-o", "out").exception
    assert str(error) == "nigth*.mcap: no recording (*.mcap, *.db3, *.bag) here; no file matches"


# ---- progress ----------------------------------------------------------------------------------
def test_progress_tells_rate_bytes_and_the_time_left():
    tally = FleetProgress(total=100, before=10, now=20, running=4, workers=4, waiting=2, bytes=3_000_000, seconds=10.0)
    assert describe(tally) == (
        "30 of 100 done, 4 running, 0 failed, 2 waiting for storage, 2.0/s, 3.0 MB, 0:35 left"  # 70 at 2 a second
    )
    slow = FleetProgress(total=100, now=1, running=1, workers=1, bytes=5_000_000_000, seconds=120.0)
    assert describe(slow) == "1 of 100 done, 1 running, 0 failed, 0.5/min, 5.00 GB, 3:18:00 left"  # 99 of 2 min each


def test_the_command_has_all_its_verbs():
    import typer.main

    commands = typer.main.get_command(app).commands
    assert len(commands) == len(VERBS) == len(list(commands))
    assert {"convert", "fleet", "capture"} <= set(commands)
