# SPDX-License-Identifier: Apache-2.0
"""Sources, what is done of them, names, and the catalogue of all states."""

import hashlib
import io
import json
import os

import polars as pl
import pytest

from edgefirst_ros import __version__
from edgefirst_ros.dataset.objects import places
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.errors import ObjectStoreError, UsageError
from edgefirst_ros.fleet import catalogue
from edgefirst_ros.fleet.converting import make_plan
from edgefirst_ros.fleet.sources import ListedRecording, find_sources
from edgefirst_ros.fleet.state import Layout, MemberFile, RecordingState
from edgefirst_ros.fleet.work import write_state

HASH = "0123456789abcdef"


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x89MCAP0\r\n")


def found(*given):
    notes = []
    return [source.uri for source in find_sources([os.fspath(one) for one in given], notes.append)], notes


def test_folders_globs_files_and_lists_give_each_recording_once(tmp_path):
    touch(tmp_path, "a/x.mcap", "a/deep/er/y.mcap", "b/z.mcap", "b/z1.mcap", "a/notes.txt", "a/._x.mcap")
    every = [str(tmp_path / name) for name in ("a/deep/er/y.mcap", "a/x.mcap", "b/z.mcap", "b/z1.mcap")]
    assert found(tmp_path) == (every, [f"{tmp_path}: skipped (.*): 1 hidden file"])
    assert found(tmp_path / "a/x.mcap", f"file://{tmp_path}/a/x.mcap")[0] == every[1:2]
    assert found(f"{tmp_path}/*/z?.mcap")[0] == every[3:]
    assert found(f"{tmp_path}/**/[xy].mcap")[0] == every[:2]
    assert found(f"{tmp_path}/**")[0] == every
    (tmp_path / "list").write_text(f"# drives\n{tmp_path}/b\n\n{every[0]}\n")
    assert found(tmp_path / "list")[0] == [every[0], *every[2:]]


def test_a_rosbag2_folder_is_one_recording(tmp_path):
    touch(tmp_path, "day/run.1/run_0.mcap", "day/run.1/run_1.mcap", "day/run.1/metadata.yaml", "day/one.mcap")
    touch(tmp_path, "day/run.1/deeper/metadata.yaml", "day/.old/metadata.yaml", "day/.old/run_0.mcap", "other/x.mcap")
    day = tmp_path / "day"
    folder, one, parts = str(day / "run.1"), str(day / "one.mcap"), [f"{day}/run.1/run_{n}.mcap" for n in (0, 1)]
    assert found(day) == ([one, folder], [f"{day}: skipped (.*): 1 hidden file"])
    for text in (folder, f"{folder}/metadata.yaml", f"{day}/run?1", f"{tmp_path}/*/*1/metadata.yaml"):
        assert found(text)[0] == [folder]
    assert found(f"{day}/**")[0] == [one, folder]
    assert found(f"{day}/**/*.mcap")[0] == [one, *parts]
    assert found(parts[0])[0] == parts[:1]
    (bag,) = find_sources([folder], print)
    assert (bag.name, bag.size) == ("run.1", 3 * 8)
    assert [f"/{part.key}" for part in bag.parts] == [f"{folder}/metadata.yaml", *parts]
    assert plan_of([bag], Layout(Location.of(tmp_path / "sets"))).names == {folder: "run.1"}
    (day / "run.1" / "run_1.mcap").write_bytes(b"\x89MCAP1\r\n")
    assert find_sources([folder], print)[0].etag != bag.etag


def test_a_glob_finds_the_rosbag2_folders_that_it_matches_and_no_others(tmp_path):
    touch(tmp_path, *(f"day/{name}/{file}" for name in ("run.1", "walk.1") for file in ("metadata.yaml", "0.mcap")))
    for glob in ("day/run*", "day/*n.1"):
        assert found(f"{tmp_path}/{glob}")[0] == [str(tmp_path / "day" / "run.1")]
        assert [one.path for one in places.locate([f"{tmp_path}/{glob}"])] == [tmp_path / "day" / "run.1"]


def test_a_name_that_is_no_text_is_left_out_and_noted(tmp_path):
    touch(tmp_path, "a.mcap")
    with open(os.fsencode(tmp_path) + b"/\xff.mcap", "wb"):
        pass
    names, notes = found(tmp_path)
    assert names == [str(tmp_path / "a.mcap")]
    assert "not UTF-8" in notes[0]


def test_a_bucket_is_listed_as_a_folder_is(s3):
    for key in ("p/a.mcap", "p/q/b.mcap", "p/q/c.txt", "pp/d.mcap"):
        s3.put(key, b"x")
    assert found("s3://drives/p")[0] == ["s3://drives/p/a.mcap", "s3://drives/p/q/b.mcap"]
    assert found("s3://drives/p/")[0] == found("s3://drives/p")[0]
    assert found("s3://drives/p*/*.mcap")[0] == ["s3://drives/p/a.mcap", "s3://drives/pp/d.mcap"]
    assert found("s3://drives/p?/?.mcap")[0] == ["s3://drives/pp/d.mcap"]
    assert found("s3://drives/p/a.mcap")[0] == ["s3://drives/p/a.mcap"]
    (source,) = find_sources(["s3://drives/p/a.mcap"], print)
    assert source.etag == hashlib.md5(b"x").hexdigest()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{0}/drivse", "no such file or directory; beside it: drives"),
        ("{0}/empty", r"no recording \(\*.mcap, \*.db3, \*.bag\) here; it is empty"),
        ("{0}/other", "here; there are notes.txt"),
        ("{0}/drives/*.bag", r"no recording"),
        ("{0}/binary", "neither a recording nor a list"),
        ("{0}/blank", "blank: expected a list with a path on each line; it has no line"),
        (
            "{0}/prose",
            "prose: expected a list with a path on each line; no line names a file, as the first one: 'Hello",
        ),
        ("/dev/zero", "/dev/zero: is not a file or folder"),
    ],
)
def test_what_has_no_recording_is_said_with_what_there_is(tmp_path, given, said):
    touch(tmp_path, "drives/a.mcap", "other/notes.txt")
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank").write_text("# no drives yet\n\n")
    (tmp_path / "prose").write_text("Hello\nmore\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=said):
        found(given.format(tmp_path))


def test_a_path_of_which_nothing_is_there_has_nothing_beside_it(tmp_path):
    with pytest.raises(UsageError, match=r"no such file or directory$"):
        found(tmp_path / "none" / "drives")


def test_a_list_has_a_largest_size(tmp_path, monkeypatch):
    touch(tmp_path, "a.mcap")
    (tmp_path / "list").write_text(f"{tmp_path}/a.mcap\n")
    size = (tmp_path / "list").stat().st_size
    monkeypatch.setattr(places, "LARGEST_LIST", size)
    assert found(tmp_path / "list")[0] == [str(tmp_path / "a.mcap")]
    monkeypatch.setattr(places, "LARGEST_LIST", size - 1)
    with pytest.raises(UsageError, match=f"a list has at most {size - 1}"):
        found(tmp_path / "list")


# ---- states and plan ---------------------------------------------------------------------------
def state_of(source, layout, verdict="ok", name=None, **facts):
    """Write a state, and members that are there."""
    name = name or source.uri.rpartition("/")[2].removesuffix(".mcap")
    members = []
    if verdict in ("ok", "loss"):
        for end in ("arrow", "frames.arrow", "zip"):
            place = layout.dataset(HASH, name) / f"{name}.{end}"
            put = open_store(place).write(place.key, b"x")
            members.append(MemberFile(key=layout.relative(put.key), bytes=1, etag=put.etag))
    facts = {"software": __version__, "members": tuple(members)} | facts
    state = RecordingState(
        source=source.uri, size=source.size, etag=source.etag, settings=HASH, verdict=verdict, name=name, **facts
    )
    write_state(layout, state)
    return state


@pytest.fixture(params=["folder", "s3"])
def layout(request, tmp_path):
    if request.param == "folder":
        return Layout(Location.of(tmp_path / "sets"))
    request.getfixturevalue("s3")
    return Layout(Location.of(f"s3://drives/{tmp_path.name}"))


def plan_of(sources, layout, retry_failed=False):
    return make_plan(sources, catalogue.update_catalogue(layout).rows, layout, HASH, retry_failed=retry_failed)


def test_what_is_done_is_left_and_anything_else_is_done(layout):
    one, two, bad, dead, gone, new = sources = [
        ListedRecording(f"/d/{n}.mcap", 5, "e") for n in ("1", "2", "b", "d", "g", "n")
    ]
    state_of(one, layout)
    state_of(two, layout, "loss")
    state_of(bad, layout, "failed", error="no camera")
    state_of(dead, layout, "crashed")
    state_of(gone, layout, "storage")
    plan = plan_of(sources, layout)
    assert plan.done == {one.uri: "ok", two.uri: "loss", bad.uri: "failed", dead.uri: "crashed"}
    assert plan.todo == [gone, new]
    assert plan_of(sources, layout, retry_failed=True).todo == [bad, dead, gone, new]
    replaced = ListedRecording(one.uri, 5, "other")
    assert plan_of([replaced, two], layout).todo == [replaced]
    assert make_plan([one], catalogue.update_catalogue(layout).rows, layout, "another", retry_failed=False).todo == [
        one
    ]


def test_a_member_that_is_gone_or_another_makes_it_undone(layout):
    one, two = sources = [ListedRecording(f"/d/{n}.mcap", 5, "e") for n in ("1", "2")]
    for source in sources:
        state_of(source, layout)
    assert plan_of(sources, layout).todo == []
    store = open_store(layout.root)
    store.delete((layout.dataset(HASH, "1") / "1.frames.arrow").key)
    store.write((layout.dataset(HASH, "2") / "2.zip").key, b"y")
    assert plan_of(sources, layout).todo == [one, two]


def test_other_software_does_it_anew(layout):
    one = ListedRecording("/d/1.mcap", 5, "e")
    state_of(one, layout, software="0.0.1")
    assert plan_of([one], layout).todo == [one]


def test_names_stay_and_a_later_one_that_clashes_gets_the_hash_of_its_uri(layout):
    early, late, third = [ListedRecording(f"/{n}/drive.mcap", 5, "e") for n in ("z", "a", "b")]
    state_of(early, layout)
    loud = ListedRecording("/c/DRIVE.mcap", 5, "e")
    names = plan_of([early, late, third, loud], layout).names
    mark = hashlib.sha256(late.uri.encode()).hexdigest()[:8]
    assert names[early.uri] == "drive"
    assert names[late.uri] == f"drive_{mark}"
    assert len({name.casefold() for name in names.values()}) == 4
    state_of(late, layout, name=names[late.uri])
    assert plan_of([late], layout).names == {late.uri: names[late.uri]}
    long = [ListedRecording(f"/{n}/{'x' * 178}.mcap", 5, "e") for n in "ab"]
    assert max(len(name.encode()) for name in plan_of(long, layout).names.values()) <= 180


def test_the_catalogue_has_a_row_a_state_and_reads_only_what_changed(layout, monkeypatch):
    sources = [ListedRecording(f"/d/{n}.mcap", 5, "e") for n in ("1", "2", "3")]
    state_of(sources[0], layout, samples=7, sensors={"radar.cube": 3}, labels={"car": 2}, first=1, latitude=1.5)
    state_of(sources[1], layout, "failed", error="no camera")
    table = catalogue.update_catalogue(layout)
    catalogue.write_catalogue(layout, table)
    place = layout.catalogue
    stored = pl.read_parquet(open_store(place).read(place.key))
    assert stored.equals(table.rows.collect())
    assert (table.changed, catalogue.update_catalogue(layout).changed, len(table)) == (True, False, 2)
    row = stored.row(by_predicate=pl.col("verdict") == "ok", named=True)
    assert (row["samples"], row["samples_radar_cube"], row["label_car"], row["first"]) == (7, 3, 2, 1)
    assert (row["container"], row["bytes"], row["latitude"]) == (f"{HASH}/1/1.zip", 3, 1.5)
    assert row["state"] == f"_state/{HASH}/{hashlib.sha256(b'/d/1.mcap').hexdigest()}.json"
    wanted = "source size etag sha256 settings software verdict samples first last latitude longitude bytes group loss"
    assert set(f"{wanted} error container".split()) <= set(stored.columns)
    state_of(sources[2], layout, labels={"a b": 1})
    state_of(sources[1], layout, "failed", error="no radar at all")
    read = []
    real = RecordingState.of_json
    monkeypatch.setattr(RecordingState, "of_json", lambda data, place: read.append(place) or real(data, place))
    again = catalogue.update_catalogue(layout)
    assert len(read) == 2
    assert again.rows.collect()["state"].is_sorted()
    assert again.choose('"label_a b" = 1')["source"].to_list() == ["/d/3.mcap"]
    assert again.choose("verdict = 'failed'", "error").rows() == [("no radar at all",)]
    assert again.choose("label_car = 0")["source"].to_list() == sorted(["/d/2.mcap", "/d/3.mcap"], key=state_key)
    with pytest.raises(UsageError, match=r"did you mean 'verdict'\?; columns: bytes, container"):
        again.choose("verdit = 'failed'")
    with pytest.raises(UsageError, match="columns: bytes, container"):
        again.choose("samples > 'many'")
    whole = open_store(place).read(place.key)
    other = io.BytesIO()
    pl.DataFrame({"broken": [1]}).write_parquet(other)
    for broken in (other.getvalue(), whole[:-9], whole[:200] + bytes(500) + whole[700:], b""):
        open_store(place).write(place.key, broken)
        assert catalogue.update_catalogue(layout).rows.collect().equals(again.rows.collect(), null_equal=True)
    catalogue.write_catalogue(layout, again)
    state_of(sources[0], layout)
    open_store(place).delete(layout.state(HASH, sources[2].uri).key)
    last = catalogue.update_catalogue(layout)
    assert len(last) == 2
    assert not [name for name in last.rows.collect_schema().names() if name.startswith("label_")]


def state_key(uri):
    return hashlib.sha256(uri.encode()).hexdigest()


def test_a_state_that_is_none_is_noted_and_not_done(layout):
    one = ListedRecording("/d/1.mcap", 5, "e")
    state_of(one, layout)
    place = layout.state(HASH, one.uri)
    for data in (b"", b"[1]", b'{"source": 5}', json.dumps({"source": "x" * (2 << 20)}).encode()):
        open_store(place).write(place.key, data)
        notes = []
        assert len(catalogue.update_catalogue(layout, notes.append)) == 0
        assert "counts as not done" in notes[0]
        assert plan_of([one], layout).todo == [one]


def test_storage_that_refuses_a_state_ends_it(layout, monkeypatch):
    """It is no state that counts as not done: else everything would be done anew."""
    state_of(ListedRecording("/d/1.mcap", 5, "e"), layout)
    store, notes = type(open_store(layout.root)), []

    def refuse(*_):
        raise ObjectStoreError("403 Forbidden")

    monkeypatch.setattr(store, "read", refuse)
    with pytest.raises(ObjectStoreError, match="403 Forbidden"):
        catalogue.update_catalogue(layout, notes.append)
    assert notes == []
