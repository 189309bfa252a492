# SPDX-License-Identifier: Apache-2.0
"""The work on one recording, without an engine: the bytes of convert, a state, a record in any case."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict

import bags
import pytest

import edgefirst_ros
from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.dataset.writer import DatasetWriter
from edgefirst_ros.errors import StorageError
from edgefirst_ros.fleet import work
from edgefirst_ros.fleet.sources import find_sources
from edgefirst_ros.fleet.state import Layout, hash_settings, select_settings
from edgefirst_ros.fleet.work import Job, collect_facts

SETTINGS = select_settings(Settings(split={"train": 0.5, "val": 0.5}, rate=5))
HASH, PLAIN = hash_settings(SETTINGS), SETTINGS.model_dump(mode="json")


def job_of(source, to, tmp_path, name=None, settings=SETTINGS, **changes):
    place = Location.of(os.fspath(source))
    stored = open_store(place).stat(place.key)
    name = name or place.name.removesuffix(".mcap")
    plain = settings.model_dump(mode="json")
    job = Job(
        str(place), stored.size, stored.etag, name, str(to), plain, hash_settings(settings), scratch=str(tmp_path / "s")
    )
    return asdict(job) | changes


def stored(to):
    """Bytes by key relative to DST."""
    place = Location.of(str(to))
    store = open_store(place)
    return {Layout(place).relative(o.key): store.read(o.key) for o in store.objects(place.key)}


@pytest.fixture(params=["folder", "s3"])
def ends(request, drives, tmp_path):
    """(function from a drive's name to its source, DST), both in a folder or a bucket."""
    if request.param == "folder":
        return lambda name: drives / f"{name}.mcap", tmp_path / "sets"
    s3 = request.getfixturevalue("s3")

    def source(name):
        s3.put_file(f"{tmp_path.name}/in/{name}.mcap", drives / f"{name}.mcap")
        return f"s3://drives/{tmp_path.name}/in/{name}.mcap"

    return source, f"s3://drives/{tmp_path.name}/out"


def test_the_objects_are_the_files_of_convert_and_the_state_tells_of_them(ends, drives, tmp_path):
    source, to = ends
    record = work.work(job_of(source("day1"), to, tmp_path))
    assert (record["verdict"], record["error"]) == ("ok", None)
    options = {"split": {"train": 0.5, "val": 0.5}, "rate": 5, "stable": True}
    outcome = edgefirst_ros.convert(drives / "day1.mcap", tmp_path / "one", **options)
    made = stored(to)
    (key,) = (key for key in made if key.startswith("_state/"))
    uri = str(source("day1"))
    assert key == f"_state/{HASH}/{hashlib.sha256(uri.encode()).hexdigest()}.json"
    state = json.loads(made.pop(key))
    files = {f"{HASH}/day1/{path.name}": path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert made == files
    assert [member["key"] for member in state["members"]] == [
        f"{HASH}/day1/day1.{end}" for end in ("arrow", "frames.arrow", "zip")
    ]
    assert {member["key"]: member["bytes"] for member in state["members"]} == {k: len(v) for k, v in files.items()}
    recording = (drives / "day1.mcap").read_bytes()
    assert (state["source"], state["size"]) == (uri, len(recording))
    assert state["sha256"] == hashlib.sha256(recording).hexdigest()
    assert state["samples"] == outcome.samples
    dataset = edgefirst_ros.Dataset(outcome.paths.container)
    assert (state["first"], state["last"]) == (dataset[0].timestamp, dataset[-1].timestamp)
    position = next(sample.position for sample in dataset.samples() if sample.position)
    assert (state["latitude"], state["longitude"]) == (position.latitude, position.longitude)
    assert state["sensors"]["radar.cube"] == sum("radar.cube" in sample.inputs for sample in dataset.samples())
    with_label = {}
    for sample in dataset.samples():
        for label in set(sample.annotations["label"].drop_nulls()):
            with_label[label] = with_label.get(label, 0) + 1
    assert state["labels"] == with_label
    assert state["group"] in ("train", "val")
    assert not [path for path in (tmp_path / "s").rglob("*") if path.is_file() and path.name != work.LOCK]


def test_a_rosbag2_folder_is_converted_as_one_recording(ends, drives, tmp_path, s3):
    _, to = ends
    found = bags.messages(drives / "day1.mcap")
    folder = bags.bag(tmp_path / "run.1", found, [len(found) // 2])
    place = folder
    if str(to).startswith("s3:"):
        place = f"s3://drives/{tmp_path.name}/run.1"
        for path in folder.iterdir():
            s3.put_file(f"{tmp_path.name}/run.1/{path.name}", path)
    (bag,) = find_sources([str(place)], print)
    parts = [(part.key, part.size, part.etag) for part in bag.parts]
    job = asdict(Job(bag.uri, bag.size, bag.etag, "run.1", str(to), PLAIN, HASH, parts, scratch=str(tmp_path / "s")))
    record = work.work(job)
    assert (record["verdict"], record["error"]) == ("ok", None)
    options = {"split": {"train": 0.5, "val": 0.5}, "rate": 5, "stable": True}
    edgefirst_ros.convert(folder, tmp_path / "by-hand", **options)
    kept = stored(to)
    assert {k.rpartition("/")[2]: v for k, v in kept.items() if k.startswith(f"{HASH}/run.1/")} == {
        path.name: path.read_bytes() for path in (tmp_path / "by-hand").iterdir()
    }
    (state,) = (json.loads(data) for key, data in kept.items() if key.startswith("_state"))
    digests = [hashlib.sha256((folder / f"run.1_{n}.mcap").read_bytes()).hexdigest() for n in (0, 1)]
    assert (state["source"], state["size"]) == (str(place), bag.size)
    assert state["sha256"] == hashlib.sha256("".join(digests).encode()).hexdigest()
    assert work.work(job | {"name": "other"})["verdict"] == "ok"
    assert edgefirst_ros.Dataset(str(Location.of(str(to)) / HASH / "other" / "other.zip")).sequences == ["other"]
    if place != folder:  # a bucket may have any keys
        outside = work.work(job | {"parts": [*parts, (f"{tmp_path.name}/run.1/../../x.mcap", 1, "e")]})
        assert (outside["verdict"], "no path of a file below" in outside["error"]) == ("storage", True)
    changed = [(key, size, "another") for key, size, _ in parts]
    again = work.work(job | {"parts": changed})
    if place == folder:
        assert "replaced" in again["error"]
    else:
        assert again["verdict"] == "ok"


def test_a_name_that_is_taken_gives_the_sequence_another(drives, tmp_path):
    record = work.work(job_of(drives / "day1.mcap", tmp_path / "sets", tmp_path, name="day1_12345678"))
    assert record["verdict"] == "ok"
    assert edgefirst_ros.Dataset(tmp_path / "sets" / HASH / "day1_12345678" / "day1_12345678.zip").sequences == [
        "day1_12345678"
    ]


def damaged(drives, path, kind):
    data = (drives / "day1.mcap").read_bytes()
    path.write_bytes({"cut": data[: len(data) * 7 // 10], "empty": b"", "foreign": b"PK\x03\x04" * 100}[kind])
    return path


@pytest.mark.parametrize(
    ("kind", "verdict", "said"),
    [("cut", "loss", "at byte"), ("empty", "failed", "MCAP"), ("foreign", "failed", "")],
)
def test_what_is_wrong_with_a_recording_is_its_own_verdict(drives, tmp_path, kind, verdict, said):
    record = work.work(job_of(damaged(drives, tmp_path / "bad.mcap", kind), tmp_path / "sets", tmp_path))
    assert record["verdict"] == verdict
    (state,) = (json.loads(data) for key, data in stored(tmp_path / "sets").items() if key.startswith("_state"))
    assert state["verdict"] == verdict
    assert said in (state["loss"] or state["error"])
    assert bool(state["members"]) == (verdict == "loss")


def test_a_recording_replaced_since_it_was_listed_is_fetched_again_or_told(ends, drives, tmp_path, s3):
    """What is read in place, in a folder, is told; of a bucket the state has the object that was fetched."""
    source, to = ends
    place = source("day2")
    job = job_of(place, to, tmp_path)
    record = work.work(job | {"etag": "another"})
    if not str(place).startswith("s3:"):
        assert record["verdict"] == "storage"
        assert "replaced" in record["error"]
        assert stored(to) == {}
        return
    (state,) = (json.loads(data) for key, data in stored(to).items() if key.startswith("_state"))
    assert (record["verdict"], state["etag"], state["source"]) == ("ok", job["etag"], str(place))


def test_storage_that_refuses_is_a_verdict_and_nothing_half_is_done(drives, tmp_path, s3, line):
    line.faults = [None] * 2
    denied = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    line.always = ("answer", denied)
    record = work.work(job_of(drives / "day1.mcap", "s3://drives/denied", tmp_path))
    assert record["verdict"] == "storage"
    assert "403 Forbidden" in record["error"]
    assert not any("_state" in key for key in s3.objects("denied"))


ON_SMALL_DISKS = """
import json, subprocess, sys
from edgefirst_ros.fleet import work
for size, job in json.load(sys.stdin):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", sys.argv[1]], check=True)
    left = work.work(job), [str(path) for path in work.Path(sys.argv[1]).rglob("*") if path.is_file()]
    print(json.dumps(left))
    subprocess.run(["umount", "--lazy", sys.argv[1]], check=True)
"""


def test_a_full_disk_is_storage_not_the_recordings_fault_and_nothing_is_done(drives, tmp_path, s3):
    """Disks that take less and less: for the recording, for what is made of it in scratch, for the result."""
    if subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    s3.put_file(f"{tmp_path.name}/day1.mcap", drives / "day1.mcap")
    (disk := tmp_path / "disk").mkdir()
    fetched = job_of(f"s3://drives/{tmp_path.name}/day1.mcap", tmp_path / "a", tmp_path)
    jobs = [
        (4, fetched | {"scratch": f"{disk}/1"}, "day1.mcap: cannot write: No space left on device"),
        (600, fetched | {"scratch": f"{disk}/2"}, "No space left on device"),
        (16, job_of(drives / "day1.mcap", disk / "sets", tmp_path), "No space left on device"),
    ]
    run = ["unshare", "-rm", sys.executable, "-c", ON_SMALL_DISKS, disk]
    given = json.dumps([(size, job) for size, job, _ in jobs])
    done = subprocess.run(run, input=given, capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["verdict"] for record, _ in told] == ["storage"] * 3
    for (record, left), (_, _, why) in zip(told, jobs, strict=True):
        assert why in record["error"]
        assert not [name for name in left if name.endswith((".json", ".mcap", ".partial"))]
    assert stored(tmp_path / "a") == {}


def test_nothing_is_raised_whatever_happens(drives, tmp_path, monkeypatch):
    job = job_of(drives / "day1.mcap", tmp_path / "sets", tmp_path)
    for error, verdict in (
        (RuntimeError("no such thing"), "failed"),
        (MemoryError(), "crashed"),
        (KeyError("x"), "failed"),
    ):

        def fail(*args, error=error, **kwargs):
            raise error

        monkeypatch.setattr(work, "convert", fail)
        record = work.work(job)
        assert record["verdict"] == verdict
    assert work.work({"source": "x", "software": "0.0.0"})["verdict"] == "refused"
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    record = work.work(job | {"to": str(tmp_path / "file")})
    assert record["verdict"] == "storage"


def test_group_patterns_of_other_recordings_are_no_error(drives, tmp_path):
    settings = select_settings(Settings(group={"test": ("night*",)}, keyframes=True))
    for name in ("day1", "night1"):
        assert (
            work.work(job_of(drives / f"{name}.mcap", tmp_path / "sets", tmp_path, settings=settings))["verdict"]
            == "ok"
        )
    states = [json.loads(data) for key, data in stored(tmp_path / "sets").items() if key.startswith("_state")]
    assert {state["name"]: state["group"] for state in states} == {"day1": None, "night1": "test"}


def test_scratch_that_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    lock, swept = work.fcntl.flock, []

    def late(file, how):
        """Of the first lock: another process comes before it."""
        if how == work.fcntl.LOCK_EX and not swept:
            swept.extend(tmp_path.iterdir())
            work.sweep(str(tmp_path))
        lock(file, how)

    monkeypatch.setattr(work.fcntl, "flock", late)
    own = work.Scratch(tmp_path)
    with own.folder() as folder:
        (folder / "drive.mcap").touch()
        assert [path.name.startswith(work.PREFIX) for path in tmp_path.iterdir()] == [True]
        assert folder.parent not in swept
    own.close()
    assert not [*tmp_path.iterdir()]


def test_scratch_of_dead_processes_is_swept_and_that_of_living_ones_stays(tmp_path):
    living = work.Scratch(tmp_path)
    dead = tmp_path / f"{work.PREFIX}dead"
    dead.mkdir()
    (dead / work.LOCK).touch()
    (dead / "recording.mcap").write_bytes(b"x")
    (tmp_path / "of-others").mkdir()
    with living.folder() as folder:
        other = work.Scratch(tmp_path)
        assert folder.is_dir()
        assert not dead.exists()
    assert not folder.exists()
    other.close()
    living.close()
    assert [path.name for path in tmp_path.iterdir()] == ["of-others"]


def test_scratch_is_removed_when_its_process_ends(tmp_path):
    code = f"from edgefirst_ros.fleet.work import *\nwith find_scratch({str(tmp_path)!r}).folder() as at: print(at)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{tmp_path}/{work.PREFIX}")
    assert list(tmp_path.iterdir()) == []


def test_scratch_that_cannot_be_made_is_the_fault_of_storage(drives, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file: cannot be used as scratch: File exists"):
        work.Scratch(tmp_path / "file")
    own = work.Scratch(tmp_path / "s")
    (folder,) = (tmp_path / "s").iterdir()
    shutil.rmtree(folder)  # as one who tidies up may do it
    with pytest.raises(StorageError, match=rf"{folder}: No such file or directory"), own.folder():
        pass
    own.close()


def test_a_disk_that_fills_up_in_the_middle_leaves_no_state(drives, tmp_path, monkeypatch):
    """What there was room for is no dataset of the recording. A writer that refuses is that disk."""
    write = DatasetWriter.write

    def until_full(writer, sample):
        if writer.samples >= 2:
            raise StorageError("members: cannot write: No space left on device")
        write(writer, sample)

    monkeypatch.setattr(DatasetWriter, "write", until_full)
    record = work.work(job_of(drives / "day1.mcap", tmp_path / "sets", tmp_path))
    assert record["verdict"] == "storage"
    assert "No space left on device" in record["error"]
    assert stored(tmp_path / "sets") == {}


def test_without_annotations_a_state_has_no_labels_and_no_group(drives, tmp_path):
    paths = edgefirst_ros.convert(drives / "day1.mcap", tmp_path, rate=5, split={"train": 1.0}).paths
    known, _ = collect_facts(paths)
    assert (known["group"], bool(known["labels"])) == ("train", True)
    paths.arrow.unlink()
    without, _ = collect_facts(paths)
    assert without == known | {"group": None, "labels": {}}


def test_objects_are_the_same_done_twice(drives, tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for to in (first, second, second):
        assert work.work(job_of(drives / "night1.mcap", to, tmp_path))["verdict"] == "ok"
    assert {k: v for k, v in stored(first).items() if k[0] != "_"} == {
        k: v for k, v in stored(second).items() if k[0] != "_"
    }
    shutil.rmtree(first)
