# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros fleet` at a terminal, and what is done with the datasets of a fleet."""

import json
import re
import subprocess
from collections import Counter
from dataclasses import asdict

import polars as pl
import pytest
from fleet_tasks import Here
from warm_command import run_warm

import edgefirst_ros
from edgefirst_ros.cli.fleet import describe
from edgefirst_ros.config import Settings
from edgefirst_ros.counts import ignore_progress
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import download, open_store
from edgefirst_ros.dataset.validate.fix import fix
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.fleet import datasets as each
from edgefirst_ros.fleet.converting import Conversion, FleetProgress
from edgefirst_ros.fleet.datasets import END, FleetDataset, check_one_kind, list_datasets, make_shards, merge_fleet
from edgefirst_ros.fleet.state import Layout


def convert_fleet(drives, to, tmp_path, **settings):
    settings = Settings(rate=5, split={"train": 0.5, "val": 0.5}, **settings)
    conversion = Conversion([str(drives)], str(to), settings, scratch=str(tmp_path / "scratch"))
    conversion.run(Here(), lambda tally: None)
    return conversion


@pytest.fixture(scope="module", params=["folder", "s3"])
def fleet(request, drives, tmp_path_factory):
    """A fleet of three drives, in a folder or a bucket."""
    folder = tmp_path_factory.mktemp("fleet")
    to = folder / "sets"
    if request.param == "s3":
        request.getfixturevalue("s3")
        to = f"s3://drives/{folder.name}"
    return convert_fleet(drives, to, folder)


def samples_of(paths):
    """Bytes of the pictures by (sequence, frame)."""
    return {tuple(s.key): s.read("camera") for path in paths for s in edgefirst_ros.Dataset(path).samples()}


def containers(fleet):
    return [fleet.layout.root / d.container for d in list_datasets(fleet.layout, None)]


def test_all_are_merged_or_those_that_a_condition_chooses(fleet, tmp_path):
    datasets = list_datasets(fleet.layout, None)
    ((container, merged),) = merge_fleet(fleet.layout, datasets, str(tmp_path / "m"), progress=ignore_progress)
    assert str(container) == str(tmp_path / "m" / "m.zip")
    assert samples_of([str(container)]) == samples_of(map(str, containers(fleet)))
    groups = dict(
        edgefirst_ros.Dataset(merged.paths.container).annotations.select("name", "group").unique().iter_rows()
    )
    whole = fleet.layout.root
    for dataset in datasets:
        own = edgefirst_ros.Dataset(str(whole / dataset.container)).annotations["group"].unique().to_list()
        assert [groups[dataset.name]] == own
    chosen = list_datasets(fleet.layout, "name LIKE 'day%' AND samples > 1")
    assert [dataset.name for dataset in chosen] == ["day1", "day2"]
    with pytest.raises(DatasetError, match="exists"):
        merge_fleet(fleet.layout, chosen, str(tmp_path / "m"), progress=ignore_progress)
    with pytest.raises(DatasetError, match="0 of 3 datasets meet"):
        list_datasets(fleet.layout, "samples > 1000000")


def test_shards_are_never_larger_than_wanted_and_have_all(fleet, tmp_path):
    datasets = list_datasets(fleet.layout, None)
    most = sum(sorted(d.members[-1]["bytes"] for d in datasets)[1:])
    out = str(tmp_path / "m") if fleet.layout.root.local else f"{fleet.layout.root}-shards"
    made = merge_fleet(
        fleet.layout, datasets, out, name="all", shard_bytes=most, scratch=str(tmp_path / "s"), progress=ignore_progress
    )
    assert [container.name for container, _ in made] == ["all-000.zip", "all-001.zip"]
    store = open_store(Location.of(out))
    assert all(store.stat(container.key).size <= most for container, _ in made)
    assert samples_of(str(container) for container, _ in made) == samples_of(map(str, containers(fleet)))
    with pytest.raises(UsageError, match=r"has [0-9]+ bytes; allow"):
        make_shards(datasets, most // 10)
    exact = datasets[0].members[-1]["bytes"]
    (made,) = merge_fleet(
        fleet.layout, datasets[:1], str(tmp_path / "one"), shard_bytes=exact, progress=ignore_progress
    )
    assert made[1].paths.container.stat().st_size <= exact


def test_shards_of_large_ones_leave_room_for_a_larger_directory():
    members = [{"key": "x.zip", "bytes": 1 << 32, "etag": ""}]
    datasets = [FleetDataset(f"{n}", "s", members, 100, 1000) for n in range(3)]
    assert [len(part) for part in make_shards(datasets, 2 << 32)] == [1, 1, 1]
    assert [len(part) for part in make_shards(datasets, (2 << 32) + 2 * 28_000 + END)] == [2, 1]
    assert make_shards(datasets, None) == [datasets]


def test_each_is_validated_and_one_that_was_changed_is_told(fleet, tmp_path):
    datasets = list_datasets(fleet.layout, None)

    def verdicts():
        found = each.run_each(
            Here(), each.validate_one, fleet.layout, datasets, quiet_of, strict=False, scratch=str(tmp_path)
        )
        return {record["name"]: record["verdict"] for record in found}

    def quiet_of(done, of):
        assert done <= of == 3

    assert verdicts() == dict.fromkeys(("day1", "day2", "night1"), "ok")
    store = open_store(fleet.layout.root)
    key = (fleet.layout.root / datasets[0].container).key
    data = store.read(key)
    store.write(key, data[:-1])
    assert verdicts() == {"day1": "failed", "day2": "ok", "night1": "ok"}
    again = convert_fleet_again(fleet)
    assert [source.uri.rpartition("/")[2] for source in again.plan.todo] == ["day1.mcap"]
    again.run(Here(), lambda tally: None)
    assert store.read(key) == data


@pytest.mark.parametrize("change", ["split", "label", "fix"])
def test_a_table_that_was_changed_in_a_fleet_stays_beside_the_new_one(drives, tmp_path, change):
    fleet = convert_fleet(drives, tmp_path / "sets", tmp_path)
    (path,) = tmp_path.glob("sets/*/day1/day1.arrow")
    dataset, made = edgefirst_ros.Dataset(path), path.read_bytes()
    if change == "split":
        edgefirst_ros.split(path, {"mine": 1.0})
    elif change == "label":
        dataset.write_annotations(dataset.annotations.with_columns(object_id=pl.lit("mine")))
    else:
        dataset.write_annotations(dataset.annotations.with_columns(box2d=pl.lit([9.0] * 4, pl.Array(pl.Float32, 4))))
        fix(path)
    changed = path.read_bytes()
    assert changed != made
    datasets = list_datasets(fleet.layout, None)
    hint = "was changed; run fleet convert again, which keeps a changed table as NAME.arrow.before-convert"
    with pytest.raises(DatasetError, match=f"{hint}$"), each.fetch_copy(fleet.layout, datasets[0], None):
        pass
    convert_fleet_again(fleet).run(Here(), lambda tally: None)
    assert path.read_bytes() == made
    assert path.with_name(f"{path.name}.before-convert").read_bytes() == changed
    assert {one.name for one in path.parent.parent.rglob("*.before-convert")} == {f"{path.name}.before-convert"}
    edgefirst_ros.split(path, {"other": 1.0})
    last = path.read_bytes()
    convert_fleet_again(fleet).run(Here(), lambda tally: None)
    assert path.with_name(f"{path.name}.before-convert").read_bytes() == changed
    assert path.with_name(f"{path.name}.before-convert.2").read_bytes() == last
    assert len(edgefirst_ros.Dataset(tmp_path / "sets")) == sum(one.samples for one in datasets)


def convert_fleet_again(fleet):
    sources = [source.uri for source in fleet.sources]
    return Conversion(sources, str(fleet.layout.root), fleet.settings)


def test_each_is_exported_once_with_a_mark_behind_it(fleet, tmp_path):
    pytest.importorskip("zarr")
    datasets = list_datasets(fleet.layout, "name = 'day2'")
    out = str(tmp_path / "x") if fleet.layout.root.local else f"{fleet.layout.root}-export"
    options = {"format": "roverd", "out": out, "options": {}, "scratch": str(tmp_path / "s")}

    def export():
        return list(each.run_each(Here(), each.export_one, fleet.layout, datasets, lambda *a: None, **options))

    (record,) = export()
    assert (record["verdict"], record["why"]) == ("ok", "")
    place = Location.of(out)
    store = open_store(place)
    made = {o.key.removeprefix(f"{place.key}/day2/"): o for o in store.objects((place / "day2").key)}
    with_hand = tmp_path / "by-hand"
    from edgefirst_ros.export import export as export_by_hand

    (tmp_path / "fetched").mkdir()
    for member in datasets[0].members:
        key = (fleet.layout.root / member["key"]).key
        source = open_store(fleet.layout.root)
        download(source, source.stat(key), tmp_path / "fetched" / key.rpartition("/")[2])
    export_by_hand(tmp_path / "fetched" / "day2.zip", "roverd", with_hand)
    by_hand = {p.relative_to(with_hand).as_posix(): p.read_bytes() for p in with_hand.rglob("*") if p.is_file()}
    assert made.keys() == by_hand.keys()
    assert all(store.read(made[name].key) == data for name, data in by_hand.items() if not name.endswith(".json"))
    assert store.stat((place / "day2.export.json").key) is not None
    (record,) = export()
    assert record["before"]


def test_a_dataset_that_scratch_cannot_take_is_the_fault_of_storage(s3, tmp_path):
    """A file lies where the folder of scratch should be."""
    s3.put(f"{tmp_path.name}/day1.zip", b"x")
    (tmp_path / "file").touch()
    place = Location.of(f"s3://drives/{tmp_path.name}")
    found = open_store(place).stat((place / "day1.zip").key)
    dataset = FleetDataset("day1", "s", [{"key": "day1.zip", "bytes": found.size, "etag": found.etag}], 1, 1)
    given = {"to": str(place), "dataset": asdict(dataset), "software": edgefirst_ros.__version__, "strict": False}
    record = each.validate_one(given | {"scratch": str(tmp_path / "file")})
    assert (record["verdict"], "file: cannot be used as scratch" in record["error"]) == ("storage", True)
    assert each.validate_one(given | {"scratch": str(tmp_path / "s")})["verdict"] == "invalid"  # x is no dataset


def test_datasets_of_several_settings_are_not_mixed(drives, tmp_path):
    for quality in (80, 90):
        conversion = convert_fleet(drives / "day1.mcap", tmp_path / "sets", tmp_path, jpeg_quality=quality)
    layout = Layout(Location.of(tmp_path / "sets"))
    with pytest.raises(UsageError, match="2 settings"):
        check_one_kind(list_datasets(layout, None))
    assert len(check_one_kind(list_datasets(layout, f"settings = '{conversion.hash}'"))) == 1


def test_a_catalogue_that_cannot_be_written_at_the_end_is_noted_and_verdicts_stand(drives, tmp_path):
    place, notes = tmp_path / "sets" / "catalogue.parquet", []

    class InTheWay(Here):
        def submit(self, task):
            place.unlink()
            place.mkdir()
            super().submit(task)

    conversion = Conversion([str(drives / "day1.mcap")], str(tmp_path / "sets"), Settings(rate=5), note=notes.append)
    assert conversion.run(InTheWay(), lambda tally: None).exit_code == 0
    (note,) = notes
    assert "the catalogue is out of date" in note
    place.rmdir()
    assert len(list_datasets(conversion.layout, None)) == 1


# ---- at a terminal -----------------------------------------------------------------------------
def run(warm, *arguments, code):
    done = run_warm(warm, ["fleet", *arguments], None)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_progress_says_how_far_it_is_and_what_it_waits_for():
    tally = FleetProgress(200, Counter(ok=90, loss=8, failed=2), before=40, now=60, running=8, workers=4, seconds=30.0)
    tally.bytes = 1_500_000_000
    assert describe(tally) == "100 of 200 done, 8 running, 2 failed, 2.0/s, 1.50 GB, 0:50 left"
    waiting = FleetProgress(2, waiting=2)
    assert describe(waiting) == "0 of 2 done, 0 running, 0 failed, 2 waiting for storage, no worker is connected"


def test_a_run_that_has_nothing_to_do_says_so_by_all_verdicts(warm, drives, tmp_path):
    """No cluster is begun for it."""
    folder = tmp_path / "drives"
    folder.mkdir()
    for name in ("day1", "day2"):
        (folder / f"{name}.mcap").write_bytes((drives / f"{name}.mcap").read_bytes())
    data = (drives / "day1.mcap").read_bytes()
    (folder / "cut.mcap").write_bytes(data[: len(data) * 7 // 10])
    (folder / "empty.mcap").touch()
    plan = run(warm, "convert", folder, "-o", tmp_path / "sets", "--rate", "5", "--dry-run", code=0)
    assert re.search(r"^4 to do \(0\.\d MB\), 0 done before; dry run: no file changes$", plan.stdout, re.MULTILINE)
    assert not (tmp_path / "sets").exists()
    Conversion([str(folder)], str(tmp_path / "sets"), Settings(rate=5)).run(Here(), lambda tally: None)
    done = run(warm, "convert", folder, "-o", tmp_path / "sets", "--rate", "5", code=3)
    assert "4 recordings: 1 failed, 1 loss, 2 ok (4 of them done before)" in done.stdout
    assert f"{folder}/empty.mcap" in done.stdout
    assert "failed before, and not tried again: 1 recording; --retry-failed does" in done.stdout
    run(warm, "convert", folder / "day1.mcap", "-o", tmp_path / "sets", "--rate", "5", code=0)
    run(warm, "convert", folder / "empty.mcap", "-o", tmp_path / "sets", "--rate", "5", code=1)
    status = run(warm, "status", tmp_path / "sets", code=3)
    assert "the file is empty" in status.stdout
    told = json.loads(run(warm, "status", tmp_path / "sets", "--where", "verdict = 'ok'", "--json", code=0).stdout)
    assert {row["name"] for row in told["recordings"]} == {"day1", "day2"}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["status", "nowhere"], 1, "nowhere: not the folder of a fleet"),
        (["merge", "nowhere", "-o", "x"], 1, "has no datasets"),
        (["convert", "nowhere", "-o", "x"], 2, "no such file or directory"),
        (["convert", "s4://b", "-o", "x"], 2, "known: s3://, gs://, az://, file://"),
        (["convert", "{0}", "-o", "x", "--set", "layout=directory"], 2, "fleet convert does not use this setting"),
        (["convert", "{0}", "-o", "x", "--set", "jobs=4"], 2, "fleet convert does not use this setting"),
        (["convert", "{0}", "-o", "x", "--cluster", "tcp://h:1", "--workers", "1"], 2, "cannot be combined"),
        (["convert", "{0}", "-o", "x", "--group", "test=nihgt*"], 2, "known: night1"),
        (["export", "nowhere", "--to", "yollo", "-o", "x"], 2, "--to: expected one of coco, yolo,"),
        (["convert", "{0}", "-o", "{0}/day1.mcap/x"], 1, "Not a directory"),
    ],
)
def test_wrong_guesses_are_told_what_to_do(warm, drives, arguments, code, said):
    done = run(warm, *(argument.format(drives) for argument in arguments), code=code)
    assert said in done.stderr


@pytest.mark.parametrize("fleet", ["s3"], indirect=True)
def test_a_report_has_a_row_for_each_dataset(warm, fleet, tmp_path):
    pytest.importorskip("plotly")
    page = tmp_path / "report.html"
    done = run(warm, "report", fleet.layout.root, "-o", page, "--table-only", "--scratch", tmp_path / "s", code=0)
    assert "3 rows" in done.stdout
    assert all(name in page.read_text() for name in ("day1", "day2", "night1"))
    one = run(warm, "report", fleet.layout.root, "-o", tmp_path / "o.html", "--where", "name = 'day2'", code=0)
    assert "1 row, 1 page beside it" in one.stdout
    assert 'href="day2.html"' in (tmp_path / "o.html").read_text()
    assert (tmp_path / "day2.html").stat().st_size > 1_000_000


def test_a_report_of_its_folder_has_the_recordings_that_failed_too(warm, fleet, drives, tmp_path):
    """`report DST`, `fleet report DST` and the function have the same rows."""
    pytest.importorskip("plotly")
    broken, to = tmp_path / "broken", f"{fleet.layout.root}-and-more"
    broken.mkdir()
    (broken / "day3.mcap").write_bytes((drives / "day1.mcap").read_bytes()[:100])
    (broken / "day1.mcap").write_bytes((drives / "day1.mcap").read_bytes())
    convert_fleet(broken, to, tmp_path)
    told = []
    for verb in (["report"], ["fleet", "report"]):
        page = tmp_path / f"{verb[0]}.html"
        done = run_warm(warm, [*verb, to, "-o", page, "--table-only", "--json"], tmp_path)
        assert done.returncode == 3, done.stderr
        told.append(json.loads(done.stdout)["reports"])
    made = edgefirst_ros.report(to, tmp_path / "function.html", table_only=True)
    assert told[0] == told[1] == json.loads(json.dumps(made.facts))
    assert [(one["name"].rpartition("/")[2], "error" in one) for one in told[0]] == [
        ("day1", False),
        ("day3.mcap", True),
    ]
    assert "day3.mcap" in (tmp_path / "report.html").read_text()


def test_a_fleet_in_which_all_failed_has_only_red_rows(warm, fleet, drives, tmp_path):
    pytest.importorskip("plotly")
    to = f"{fleet.layout.root}-failed"
    (tmp_path / "day3.mcap").write_bytes((drives / "day1.mcap").read_bytes()[:100])
    convert_fleet(tmp_path / "day3.mcap", to, tmp_path)
    for verb in (["report"], ["fleet", "report"]):
        done = run_warm(warm, [*verb, to, "-o", tmp_path / f"{verb[0]}.html", "--json"], tmp_path)
        assert done.returncode == 3, done.stderr
        (row,) = json.loads(done.stdout)["reports"]
        assert row["name"].endswith("/day3.mcap")
        assert row["error"]


def test_a_single_conversion_is_uploaded_and_goes_on_with_resume(command, drives, tmp_path, s3):
    to = f"s3://drives/{tmp_path.name}"
    convert = [*command, "convert", drives / "day1.mcap", "-o", tmp_path / "out", "--rate", "5", "--upload", to]
    done = subprocess.run(convert, capture_output=True, text=True, check=True)
    assert f"note: uploaded to {to}/day1.zip" in done.stdout
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert {k.rpartition("/")[2]: v for k, v in s3.objects(f"{tmp_path.name}/").items()} == files
    s3.client.delete_object(Bucket="drives", Key=f"{tmp_path.name}/day1.zip")
    subprocess.run([*convert, "--resume"], capture_output=True, check=True)
    assert len(s3.objects(f"{tmp_path.name}/")) == 3
    for target, code, said in (("s3://nowhere/x", 1, "--resume uploads it"), ("s4://x", 2, "known: s3")):
        done = subprocess.run([*convert[:-1], target, "--overwrite"], capture_output=True, text=True, check=False)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
