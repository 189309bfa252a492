# SPDX-License-Identifier: Apache-2.0
"""Datasets of one drive and of several: whatever is counted, judged or drawn is so by sequence first, then in sum.

Expected numbers come from the tables as polars reads them, and from arithmetic. A new kind is one line of `KINDS`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter

import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.app import app
from edgefirst_ros.cli.info import DatasetInfo
from edgefirst_ros.cli.output import show
from edgefirst_ros.dataset.summary import ALL, summarize, summarize_dataset, summarize_tables
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.verdict import Timeline
from edgefirst_ros.report.figures import draw_rates
from edgefirst_ros.report.run import report
from edgefirst_ros.report.subject import ReportSubject
from edgefirst_ros.streams import SENSORS
from edgefirst_ros.synthetic import START

SMALL = {
    "seconds": 3,
    "size": (128, 64),
    "cube_shape": (1, 16, 2, 16),
    "lidar_points": 50,
    "codec": "jpeg",
    "fps": 10.0,
}
CAMERA = {"camera", "camera/info", "tf_static", "gps", "imu"}
LIDAR = {*CAMERA, "lidar/points"}
KINDS = {
    # recipes of the drives, settings
    "one": ([{}], {}),
    "alike": ([{}, {"seed": 1}], {}),
    "other sensors": ([{}, {"topics": LIDAR}, {"topics": CAMERA}], {}),
    "other cameras": ([{"size": (192, 96)}, {"codec": "h264"}, {"fps": 5.0}], {}),
    "other labels": ([{"objects": 6, "seed": 5}, {"objects": 1}, {"topics": CAMERA}], {}),
    "other groups": ([{}, {"seed": 1}, {"seed": 2}], {"group": {"val": "drive1", "train": "drive[02]"}}),
    "groups by time": ([{}], {"split": {"train": 0.5, "val": 0.5}, "split_block": 1.0}),
    "other calibration": ([{}, {"topics": {"camera", "lidar/points"}}], {}),
    "other losses": ([{}, {"truncate": {"camera": [5]}}, {"drop": {"lidar/points": range(5, 25)}}], {}),
}


@pytest.fixture(scope="module", params=list(KINDS))
def made(request, recording, tmp_path_factory):
    """The outcome of one conversion, and its tables as polars reads them."""
    recipes, settings = KINDS[request.param]
    folder = tmp_path_factory.mktemp("drives")
    sources = []
    for number, recipe in enumerate(recipes):
        sources.append(folder / f"drive{number}.mcap")
        sources[-1].symlink_to(recording(**{**SMALL, **recipe}))
    outcome = convert(sources, folder / "out", name="set", **settings)
    return outcome, Truth(outcome.paths)


class Truth:
    """What the tables say of each sequence."""

    def __init__(self, paths):
        self.frames, rows = pl.read_ipc(paths.frames), pl.read_ipc(paths.arrow)
        stored = pa.ipc.open_file(paths.frames).schema.metadata
        self.names = self.frames["name"].unique(maintain_order=True).to_list()
        self.counts = {name: of["counts"] for name, of in json.loads(stored[b"sequences"]).items()}
        self.words = {name: of["calibration"] for name, of in json.loads(stored[b"sequences"]).items()}
        self.whole = json.loads(stored[b"counts"])
        self.rows = rows.with_columns(pl.col(c).cast(pl.String) for c in ("label", "group") if c in rows.columns)

    def of(self, name):
        own, rows = self.frames.filter(name=name), self.rows.filter(name=name)
        columns = {f"{sensor.column}_timestamp": sensor.key for sensor in SENSORS if sensor.column}
        groups = rows.unique(["frame", "group"])["group"].drop_nulls().to_list() if "group" in rows.columns else []
        return {
            "samples": len(own),
            "sensors": {key: own[c].count() for c, key in columns.items() if c in own.columns and own[c].count()},
            "groups": dict(Counter(groups)),
            "labels": dict(Counter(rows["label"].drop_nulls().to_list())) if "label" in rows.columns else {},
            "counts": self.counts[name],
            "calibration": self.words[name],
        }

    @property
    def several(self):
        return len(self.names) > 1


def is_loss(reason):
    return reason in ("undecodable", "damaged")


def summed(parts):
    total = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


# ---- counts ------------------------------------------------------------------------------------
def test_counts_are_those_of_each_sequence_and_their_sum(made):
    outcome, truth = made
    summary = summarize_tables(outcome.paths)
    assert [one.name for one in summary.sequences] == truth.names
    for one in summary.sequences:
        expected = truth.of(one.name)
        sensors = {key: n for key, n in one.sensors.items() if n and key not in ("position", "attitude", "model")}
        found = {"samples": one.samples, "sensors": sensors, "groups": one.groups, "labels": one.labels}
        assert found | {"counts": one.counts, "calibration": one.calibration} == expected
        assert one.lost == sum(
            n for topic in expected["counts"].values() for reason, n in topic["dropped"].items() if is_loss(reason)
        )
    whole = summary.whole
    assert whole.samples == len(truth.frames)
    for what in ("groups", "labels", "sensors"):
        total = summed(getattr(one, what) for one in summary.sequences)
        assert {key: n for key, n in getattr(whole, what).items() if n} == {key: n for key, n in total.items() if n}
    assert whole.counts == truth.whole
    for topic, count in whole.counts.items():
        parts = [one.counts[topic] for one in summary.sequences if topic in one.counts]
        assert (count["seen"], count["written"]) == tuple(
            sum(part[key] for part in parts) for key in ("seen", "written")
        )
    assert whole.lost == sum(one.lost for one in summary.sequences)


def test_every_reader_of_a_dataset_has_the_same_summary(made, tmp_path):
    outcome, truth = made
    tables = summarize_tables(outcome.paths).plain()
    members = summarize_dataset(Dataset(outcome.paths.container)).plain()
    shown = report([outcome.paths.container], tmp_path / "page.html", samples=0).facts[0]["sequences"]
    row = report([outcome.paths.out], tmp_path / "table.html", table_only=True).facts[0]["sequences"]
    info = DatasetInfo(outcome.paths.container).plain()["by_sequence"]
    assert info == members
    for name in truth.names:
        for key in ("samples", "start", "duration_s", "calibration", "skew_ms", "counts", "lost"):
            assert tables[name][key] == members[name][key] == shown[name][key] == row[name][key], key
        assert tables[name]["labels"] == members[name]["labels"] == shown[name]["labels"]
        assert tables[name]["groups"] == members[name]["groups"] == shown[name]["groups"]


def test_a_drive_without_samples_is_told_alike_by_every_front_end(recording, tmp_path):
    """A recording outside `start` and `end` is a sequence of no sample, with the calibration it was converted with."""
    drives = []
    for name, recipe in {"there": {}, "later": {"start": START + 3_600_000_000_000}}.items():
        drives.append(tmp_path / f"{name}.mcap")
        drives[-1].symlink_to(recording(**{**SMALL, **recipe}))
    times = {"start": "2026-01-15T12:00:00Z", "end": "2026-01-15T12:00:02Z"}
    outcome = convert(drives, tmp_path / "out", name="set", **times)
    tables, members = (
        summarize_tables(outcome.paths).plain(),
        summarize_dataset(Dataset(outcome.paths.container)).plain(),
    )
    page = report([outcome.paths.container], tmp_path / "page.html", samples=0)
    table = report([outcome.paths.out], tmp_path / "table.html", table_only=True)
    for found in (tables, members, page.facts[0]["sequences"], table.facts[0]["sequences"]):
        assert {name: (one["samples"], one["calibration"]) for name, one in found.items()} == {
            "there": (20, "given"),
            "later": (0, "given"),
        }
    assert validate(outcome.paths.container).ok


@pytest.mark.parametrize("fault", ["cut", "not converted", "without counts", "harmless"])
def test_a_number_of_lost_messages_that_is_not_known_is_no_zero(recording, tmp_path, fault):
    """A whole drive beside one that is cut or left out; tables that state no counts; damage in which nothing was."""
    whole, other = tmp_path / "whole.mcap", tmp_path / "other.mcap"
    whole.symlink_to(recording(**SMALL))
    content = recording(**SMALL, host="other").read_bytes()
    left_out = fault == "not converted"
    other.write_bytes(b"text" if left_out else content[: len(content) * 6 // 10] if fault == "cut" else content)
    outcome = convert(tmp_path, tmp_path / "out", name="set")
    if fault in ("without counts", "harmless"):
        table = pa.ipc.open_file(pa.BufferReader(outcome.paths.frames.read_bytes())).read_all()
        stored = dict(pa.ipc.open_file(outcome.paths.frames).schema.metadata)
        if fault == "harmless":
            sources = [{**one, "damage": [{"offset": 0, "what": "no magic", "loss": False}]}
                       for one in json.loads(stored[b"sources"])]  # fmt: skip
            stored[b"sources"] = json.dumps(sources).encode()
        else:
            del stored[b"counts"], stored[b"sequences"]
        with pa.ipc.new_file(outcome.paths.frames, table.schema.with_metadata(stored)) as writer:
            writer.write_table(table.replace_schema_metadata(stored))
    known = 0 if fault == "harmless" else None
    each = {"cut": {"other": None, "whole": 0}, "not converted": {"whole": 0}}.get(
        fault, {"other": known, "whole": known}
    )
    dataset = outcome.paths.container
    page = report([dataset], tmp_path / "page.html", samples=0).facts[0]
    row = report([outcome.paths.out], tmp_path / "table.html", table_only=True).facts[0]
    assert page["lost"] == row["lost"] == summarize_tables(outcome.paths).whole.lost == known
    info = DatasetInfo(dataset).plain()["by_sequence"]
    for found in (info, page["sequences"], row["sequences"]):
        assert {name: one["lost"] for name, one in found.items()} == each
    word = "0" if known == 0 else "unknown"
    assert f'data-name="lost">{word}<' in (tmp_path / "table.html").read_text()
    table = summarize_tables(outcome.paths).sequence_table()
    place = table[0].index("lost")
    words = {0: "0", None: "unknown"}
    assert [line[place] for line in table[1]] == [words[lost] for lost in (*each.values(), known)]
    if not left_out:
        html = (tmp_path / "page.html").read_text()
        shown = re.findall('data-name="lost">([^<]*)<', html)
        assert shown == ["unknown" if one is None else str(one) for one in each.values()]


# ---- tables for people -------------------------------------------------------------------------
@pytest.mark.parametrize("verb", ["convert", "info"])
def test_tables_tell_sequences_apart_and_end_with_their_sum(made, capsys, verb):
    outcome, truth = made
    show((outcome if verb == "convert" else DatasetInfo(outcome.paths.container)).text())
    lines = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    topics = next(n for n, line in enumerate(lines) if "seen" in line)
    rows = [line for line in lines[topics + 1 :] if line[-1]][: lines[topics:].index([""]) - 1]
    rows = [row for row in rows if not row[0].startswith("-:")]
    if not truth.several:
        assert lines[topics][0] == "topic"
        assert {row[0]: row[1] for row in rows} == {topic: str(one["seen"]) for topic, one in truth.whole.items()}
        return
    expected = [(name, topic, str(one["seen"])) for name in truth.names for topic, one in truth.counts[name].items()]
    expected += [(ALL, topic, str(one["seen"])) for topic, one in truth.whole.items()]
    assert [tuple(row[:3]) for row in rows] == expected
    (head,) = [line for line in lines if line[:2] == ["sequence", "samples"]]
    drives = {
        line[0]: dict(zip(head, line, strict=False)) for line in lines[lines.index(head) + 1 :][: len(truth.names) + 1]
    }
    assert list(drives) == [*truth.names, ALL]
    for name in truth.names:
        want = truth.of(name)
        assert drives[name]["samples"] == str(want["samples"])
        assert drives[name]["calibration"] == want["calibration"]
        assert drives[name].get("group", "-") == (next(iter(want["groups"])) if want["groups"] else "-")


@pytest.mark.parametrize(("number", "lines"), [(50, 51), (51, 1)])
def test_of_many_sequences_only_the_sum_is_listed_by_topic(number, lines):
    counts = {"/camera": {"seen": 3, "written": 2, "dropped": {"cut": 1}}}
    summary = summarize(Timeline.empty(), {"sequences": {f"s{n}": {"counts": counts} for n in range(number)}}, {})
    (_, rows), *notes = summary.topic_table()
    assert (len(rows), rows[-1]) == (lines, ("all", "/camera", str(3 * number), str(2 * number), f"{number} cut"))
    assert notes == (["topics, sensors, groups and labels of each of the 51 sequences: info --json"] * (lines == 1))
    assert len(summary.sequence_table()[1]) == number + 1


def test_the_model_is_judged_in_the_sequences_that_have_it(made, capsys):
    outcome, truth = made
    show(outcome.text())
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("the model processed")]
    own = truth.frames.with_columns(done=truth.frames["model_timestamp"].is_not_null())
    found = own.group_by("name").agg(pl.len(), pl.col("done").sum()).filter(pl.col("done") > 0)
    done, samples, with_model, every = (*found.select(pl.sum("done", "len")).row(0), len(found), len(truth.names))
    of = f" in {with_model} of {every} sequences" if with_model < every else ""
    skipped = f" and skipped {samples - done}: do not train on these as background" if samples > done else ""
    assert said == ([f"the model processed {done} of {samples} samples{of}{skipped}"] if with_model else [])


def test_json_has_every_sequence(made):
    outcome, truth = made
    done = CliRunner().invoke(app, ["info", str(outcome.paths.container), "--json"])
    found = json.loads(done.stdout)["by_sequence"]
    assert {name: one["samples"] for name, one in found.items()} == dict(
        truth.frames["name"].value_counts().iter_rows()
    )


# ---- verdicts ----------------------------------------------------------------------------------
def test_a_sensor_is_judged_in_the_sequences_that_have_it(made):
    outcome, truth = made
    report_of = validate(outcome.paths.container)
    coverage = [one for one in report_of.drive if one.key == "coverage"]
    for sensor in {key for name in truth.names for key in truth.of(name)["sensors"]}:
        having = [name for name in truth.names if sensor in truth.of(name)["sensors"]]
        judged = [one for one in coverage if one.place == sensor and "% of the samples" in one.found]
        assert [one.sequence for one in judged] == (having if truth.several else [""])
        for one, name in zip(judged, having, strict=True):
            want = truth.of(name)
            assert one.found == f"in {want['sensors'][sensor] / want['samples']:.1%} of the samples"
        named = [one for one in coverage if one.place == sensor and one not in judged]
        lacking = [name for name in truth.names if name not in having]
        assert [one.found for one in named] == (
            [f"in {len(having)} of {len(truth.names)} sequences; not in {', '.join(lacking)}"] if lacking else []
        )
        assert all(one.level.word == "green" for one in named)
    found = json.loads(report_of.to_json())["drive"]["checks"]
    assert {one["sequence"] for one in found} <= ({*truth.names, ""} if truth.several else {""})


def test_a_drive_is_not_worse_for_another(made, tmp_path):
    """The verdict of each sequence is that of its recording converted alone; that of all is the worst."""
    outcome, truth = made
    facts = report([outcome.paths.container], tmp_path / "page.html", samples=0).facts[0]
    levels = ["green", "amber", "red"]
    for name in truth.names:
        source = outcome.paths.out.parent / f"{name}.mcap"
        alone = convert(source, tmp_path / name).paths.container
        expected = report([alone], tmp_path / f"{name}.html", samples=0).facts[0]["verdict"]["level"]
        assert facts["sequences"][name]["verdict"] == expected, name
    assert facts["verdict"]["level"] == max((one["verdict"] for one in facts["sequences"].values()), key=levels.index)


# ---- pages -------------------------------------------------------------------------------------
def test_a_page_has_a_row_and_a_track_for_each_drive(made, tmp_path):
    outcome, truth = made
    done = report([outcome.paths.container], tmp_path / "page.html", samples=2)
    page, facts = done.pages[0].read_text(), done.facts[0]
    with_positions = [name for name in truth.names if truth.frames.filter(name=name)["latitude"].count()]
    assert len(re.findall(r'id="figure-track[-\d]*"', page)) == len(with_positions)
    tracks = facts["track"].get("sequences", {})
    assert list(tracks) == (with_positions if len(with_positions) > 1 else [])
    assert all(one["length_m"] < 50 and max(one["extent_m"]) < 50 for one in tracks.values())  # 10 m/s for 3 s
    drives = re.findall(r'<table class="cards" id="drives">.*?</table>', page, re.DOTALL)
    assert len(drives) == truth.several
    for name in truth.names if truth.several else ():
        (row,) = re.findall(rf"<tr><td><span[^>]*>(\w+)</span></td><td>{name}</td>", drives[0])
        assert row == facts["sequences"][name]["verdict"]


def test_the_map_of_rates_is_empty_where_a_drive_lacks_the_sensor(made):
    outcome, truth = made
    subject = ReportSubject("set", str(outcome.paths.container), Dataset(outcome.paths.container))
    (figure,) = draw_rates(subject)
    (data,) = figure.data
    starts = [*subject.timeline.starts.values(), float("inf")]
    for sensor, cells in zip(data["y"], data["z"], strict=True):
        for name, (begin, end) in zip(truth.names, itertools.pairwise(starts), strict=True):
            own = [cell for at, cell in zip(data["x"], cells, strict=True) if begin <= at < end]
            there = truth.of(name)["sensors"].get(sensor, 0) if sensor not in ("samples", "model") else None
            if there == 0:
                assert set(own) == {None}
            elif there is not None:
                assert None not in own
