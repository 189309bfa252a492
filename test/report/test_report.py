# SPDX-License-Identifier: Apache-2.0
"""`report`: what it says of a drive, what it writes and what it refuses."""

import itertools
import json
import re
import shutil

import numpy as np
import polars as pl
import pytest
from planted import write as write_planted
from planted import write_delivered_late
from plotly.offline import get_plotlyjs

import edgefirst_ros
from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.report.page import render_table
from edgefirst_ros.report.run import report
from edgefirst_ros.synthetic import Recipe, write_recording

SMALL = {"seconds": 3, "size": (160, 96), "cube_shape": (1, 32, 2, 32), "lidar_points": 400}
SECTIONS = ["verdict", "topics", "samples", "time", "skew", "track", "pictures", "radar", "bytes"]


@pytest.fixture(scope="module")
def drive(recording, tmp_path_factory):
    """A recording and its dataset."""
    path = recording(**SMALL)
    return path, edgefirst_ros.convert(path, tmp_path_factory.mktemp("drive"), name="drive").paths


@pytest.fixture(scope="module")
def both(drive, tmp_path_factory):
    """What is reported of both."""
    folder = tmp_path_factory.mktemp("pages")
    path, paths = drive
    return report([paths.container], folder / "dataset.html"), report([path], folder / "recording.html")


def checks(facts, key):
    return [one for one in facts["verdict"]["checks"] if one["check"] == key]


def ids(page):
    return re.findall(r"<section id=\"?(\w+)", page.read_text())


def test_a_page_has_its_sections_in_order(both):
    for done in both:
        assert ids(done.pages[0]) == SECTIONS
        assert done.pages[0].stat().st_size < 7_000_000


def test_facts_are_those_of_the_tables(drive, both):
    facts = both[0].facts[0]
    frames = pl.read_ipc(drive[1].frames)
    assert facts["samples"] == len(frames) == 90
    assert facts["duration_s"] == pytest.approx((frames["timestamp"][-1] - frames["timestamp"][0]) / 1e9, abs=1e-3)
    far = frames["lidar_points_skew"].drop_nulls().abs() / 1e6
    assert facts["skew"]["lidar.points"]["max_ms"] == pytest.approx(far.max(), abs=1e-3)
    assert facts["skew"]["lidar.points"]["p95_ms"] == pytest.approx(np.percentile(far, 95), abs=1e-3)
    pace = facts["time"]["paces"]["lidar.points"]
    assert pace["messages"] == frames["lidar_points_timestamp"].n_unique() == 30
    assert pace["hz"] == 10
    assert facts["pictures"]["labels"] == dict(
        pl.read_ipc(drive[1].arrow)["label"].drop_nulls().cast(str).value_counts().iter_rows()
    )
    assert facts["pictures"]["model"] == {"looked_at": 30, "samples": 90}
    # 10 m/s on a curve of 200 m, by the scene; the way starts and ends within a frame and a fix
    assert facts["track"]["length_m"] == pytest.approx(10 * 2.9, rel=0.04)
    sizes = facts["bytes"]["kinds"]
    dataset = Dataset(drive[1].container)
    assert sum(one["bytes"] for one in sizes.values()) == sum(map(dataset.container.size, dataset.container.names))


def test_a_recording_is_seen_as_the_pipeline_sees_it(both):
    dataset, recording = both[0].facts[0], both[1].facts[0]
    for key in ("samples", "duration_s", "start", "time", "skew", "track"):
        assert recording[key] == dataset[key], key
    assert recording["kind"] == "recording"
    assert recording["pictures"]["labels"] == dataset["pictures"]["labels"]
    used = {one["topic"]: (one["seen"], one["used"], one["dropped"]) for one in dataset["topics"]}
    seen = {one["topic"]: (one["seen"], one["used"], one["dropped"]) for one in recording["topics"]}
    assert used == seen
    assert recording["bytes"]["sources"] == dataset["bytes"]["sources"]


def test_a_good_drive_is_green(both):
    for done in both:
        assert done.facts[0]["verdict"]["level"] == "green", done.facts[0]["verdict"]["checks"][:3]
    radar = next(one for one in checks(both[0].facts[0], "alignment") if one["place"] == "radar")
    boxes = both[0].facts[0]["pictures"]["labels"]
    assert radar["found"].startswith(f"{sum(boxes.values())} of {sum(boxes.values())} boxes")


def test_samples_are_shown_evenly_by_skew_and_by_label(both, tmp_path, drive):
    page = both[0].pages[0].read_text()
    assert page.count('<figure class="shot">') == 12
    captions = re.findall(r"<figcaption title=[^>]+>([^<]*)", page)
    assert any(re.fullmatch(r"Largest skew of lidar\.points: [+-]\d+\.\d ms\.", caption) for caption in captions)
    assert max(map(len, captions)) <= 80
    assert "ost annotations of person" in page
    assert page.count('<img class="cam"') == page.count('<img class="bev"') == 12
    few = report([drive[1].container], tmp_path / "few.html", samples=3).pages[0].read_text()
    assert few.count('<figure class="shot">') == 3
    assert report([drive[1].container], tmp_path / "none.html", samples=0).pages[0].read_text().count("<img class") == 0


def test_every_picture_has_a_text_and_the_outline_is_one(both):
    for done in both:
        page = done.pages[0].read_text()
        assert all(re.search(r'alt="[^"]{20,}"', image) for image in re.findall(r"<img[^>]+", page))
        levels = [int(n) for n in re.findall(r"<h(\d)[ >]", page)]
        assert levels[0] == 1
        assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
        assert re.findall(r'role="img" aria-label="[^"]{20,}"', page)
        assert '<html lang="en">' in page


def test_the_first_screen_has_pictures_the_track_and_folded_greens(both):
    page = both[0].pages[0].read_text()
    first = page[page.index('id="verdict"') : page.index('id="topics"')]
    assert first.count("background-image:url(data:image/jpeg;base64,") == 6
    assert first.count("<polyline ") == 1
    assert first.count("<dt>") == 7
    shown, _, folded = first.partition("<details>")
    green = sum(one["level"] == "green" for one in both[0].facts[0]["verdict"]["checks"])
    assert f"<summary>{green} checks passed</summary>" in folded
    assert '"pill green"' not in shown[shown.index("<dt>") :]


def test_no_request_can_leave_and_no_other_script_can_run(both):
    page = both[0].pages[0].read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert get_plotlyjs() in page
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.partition("style-src")[0]
    assert "http" not in policy
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?http", page)


# ---- planted faults ----------------------------------------------------------------------------
def planted(tmp_path, name, **options):
    path = tmp_path / f"{name}.mcap"
    write_recording(path, Recipe(**{**SMALL, **options}))
    return path


def test_a_lost_stretch_of_lidar_is_amber(tmp_path):
    path = planted(tmp_path, "gap", codec="jpeg", drop={"lidar/points": range(10, 20)})
    dataset = edgefirst_ros.convert(path, tmp_path).paths.container
    for source in (path, dataset):
        facts = report([source], tmp_path / "x.html", samples=0, overwrite=True).facts[0]
        (found,) = [one for one in checks(facts, "gaps") if one["level"] != "green"]
        assert (found["place"], found["level"]) == ("lidar.points", "amber")
        assert "1 gap, longest 1.1 s" in found["found"]
        assert facts["verdict"]["level"] == "amber"
        assert "longest gaps" in (tmp_path / "x.html").read_text()


def test_a_gap_of_several_sequences_is_told_by_its_own(tmp_path):
    lost = planted(tmp_path, "lost", codec="jpeg", drop={"lidar/points": range(10, 20)})
    without = planted(tmp_path, "without", codec="jpeg", topics={"camera"})
    dataset = edgefirst_ros.convert([without, lost], tmp_path / "out", name="both").paths.container
    facts = report([dataset], tmp_path / "x.html", samples=0).facts[0]
    (found,) = [one for one in checks(facts, "gaps") if one["level"] != "green"]
    assert re.fullmatch(r"1 gap, longest 1.1 s, at (0.9|1.0) s", found["found"])
    assert (found["place"], found["sequence"], found["level"]) == ("lidar.points", "lost", "amber")
    pace = facts["time"]["paces"]["lidar.points"]
    assert (round(pace["at_s"]), pace["sequence"], round(pace["at_s_of_sequence"])) == (4, "lost", 1)  # end to end
    (longest,) = re.findall(r"longest gaps.*?<tbody>(.*?)</tbody>", (tmp_path / "x.html").read_text(), re.DOTALL)
    assert re.search(
        rf"<td>lidar.points</td><td class=\"n\">{pace['at_s']:.2f}</td><td>(0.9|1.0)\d s of lost</td>", longest
    )
    assert len(re.findall("<tr>", longest)) == 1


def test_a_clock_that_is_set_is_amber(tmp_path):
    path = planted(tmp_path, "step", codec="jpeg", topics={"camera"}, clock_steps=[(1.5, -3_000_000_000)])
    facts = report([path], tmp_path / "x.html", samples=0).facts[0]
    (found,) = checks(facts, "clock")
    assert (found["level"], found["found"]) == ("amber", "set, or stood still, 1 time")
    assert facts["duration_s"] == pytest.approx(3 - 2 / 30, abs=0.01)  # both parts, nothing between them


def test_damaged_pictures_are_a_loss(tmp_path):
    path = planted(tmp_path, "damage", codec="jpeg", topics={"camera"}, truncate={"camera": [5]})
    facts = report([path], tmp_path / "x.html", samples=0).facts[0]
    (found,) = checks(facts, "loss")
    assert found["level"] == "red"  # 1 of 90 is more than 1 %
    assert found["place"] == "/camera/jpeg"


def test_the_first_screen_says_once_where_a_recording_is_cut(tmp_path, drive):
    path = tmp_path / "cut.mcap"
    path.write_bytes(drive[0].read_bytes()[: drive[0].stat().st_size // 2])
    done = report([path], tmp_path / "x.html", samples=0)
    ((damage,),) = [one["damage"] for one in done.facts[0]["bytes"]["sources"]]
    (found,) = checks(done.facts[0], "loss")
    assert (found["level"], found["place"]) == ("amber", "cut.mcap")
    assert found["found"] == f"at byte {damage['offset']}: {damage['what']}"
    page = done.pages[0].read_text()
    assert page[page.index('id="verdict"') : page.index('id="topics"')].count(found["found"]) == 1


@pytest.mark.parametrize("zeros", [0, 65536])
def test_a_recording_without_its_end_lost_nothing(tmp_path, zeros):
    path = planted(tmp_path, "endless", codec="jpeg", topics={"camera"}, without_end=True)
    with path.open("ab") as file:
        file.write(bytes(zeros))
    done = edgefirst_ros.convert(path, tmp_path)
    assert not done.loss
    for source in (path, done.paths.container):
        facts = report([source], tmp_path / "x.html", samples=0, overwrite=True).facts[0]
        (found,) = checks(facts, "loss")
        assert (found["level"], found["found"]) == ("green", "nothing lost")
        ((damage,),) = [one["damage"] for one in facts["bytes"]["sources"]]
        assert damage["offset"] == path.stat().st_size - zeros
        assert damage["what"]
    assert [one.found for one in validate(done.paths.container).drive if one.key == "loss"] == ["nothing lost"]


def test_a_placeholder_is_projected_only_when_asked_for(tmp_path, drive):
    frames, folder = drive[1].frames, tmp_path / "copy"
    folder.mkdir()
    for path in (drive[1].container, drive[1].arrow, frames):
        shutil.copy(path, folder)
    import pyarrow as pa

    table = pa.ipc.open_file(frames).read_all()
    still = [{"parent": "base_link", "child": child, "translation": [0, 0, 1.0], "rotation": [0, 0, 0, 1]}
             for child in ("camera_optical", "radar", "lidar")]  # fmt: skip
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"sequences"}
    metadata[b"static_transforms"] = json.dumps(still).encode()
    with pa.ipc.new_file(folder / frames.name, table.schema.with_metadata(metadata)) as writer:
        writer.write_table(table.replace_schema_metadata(metadata))
    plain = report([folder / "drive.zip"], folder / "plain.html", samples=3)
    (found,) = checks(plain.facts[0], "calibration")
    assert (found["level"], plain.facts[0]["verdict"]["level"]) == ("amber", "amber")
    assert plain.facts[0]["pictures"]["alignment"]["points_in_picture"] is None
    assert "do not rotate" in plain.pages[0].read_text()
    asked = report([folder / "drive.zip"], folder / "asked.html", samples=3, assume_forward=True)
    assert asked.facts[0]["pictures"]["alignment"]["points_in_picture"] > 0.1
    page = asked.pages[0].read_text()
    assert page.count("Assumed: camera looks forward") == page.count('<figure class="shot">') == 3


# ---- what is written ---------------------------------------------------------------------------
def test_the_page_lies_beside_the_dataset_and_is_not_replaced(drive, tmp_path, run):
    for path in (drive[1].container, drive[1].arrow, drive[1].frames):
        shutil.copy(path, tmp_path)
    assert run("report", "drive.zip", "--samples", "1").returncode == 0
    page = tmp_path / "drive.html"
    before = page.read_bytes()
    again = run("report", "drive.arrow")
    assert (again.returncode, page.read_bytes()) == (1, before)
    assert "drive.html: exists already; --overwrite" in again.stderr
    done = run("report", "drive", "--overwrite", "--title", "Monday & <b>", "--samples", "1", "--json")
    facts = json.loads(done.stdout)
    assert (done.returncode, facts["samples"], facts["exit_code"]) == (0, 90, 0)
    assert "<h1>Monday &amp; &lt;b&gt;</h1>" in page.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "drive.arrow", "drive.frames.arrow", "drive.html", "drive.zip"
    ]  # fmt: skip


def test_a_conversion_writes_its_page(drive, tmp_path, run):
    done = run("convert", drive[0], "-o", "out", "--name", "drive", "--rate", "5", "--report", "--json")
    page = tmp_path / "out" / "drive.html"
    assert (done.returncode, json.loads(done.stdout)["notes"]) == (0, [f"report: {page}"])
    assert ids(page) == SECTIONS


def test_what_is_neither_is_named_and_nothing_is_written(tmp_path, run):
    (tmp_path / "text.txt").write_text("no dataset")
    (tmp_path / "empty").mkdir()
    done = run("report", "text.txt", "-o", "x.html")  # a list of datasets, whose one line names none
    assert (done.returncode, "no line names a file, as the first one: 'no dataset'" in done.stderr) == (2, True)
    for what, said in (("nowhere.zip", "no such file"), ("empty", "contains neither")):
        done = run("report", what, "-o", "x.html")
        assert done.returncode == 1
        assert what in done.stderr
        assert said in done.stderr
    assert not (tmp_path / "x.html").exists()
    (tmp_path / "bad.mcap").write_bytes(b"\x89MCAP0\r\nnothing")
    done = run("report", "bad.mcap")
    assert (done.returncode, (tmp_path / "bad.html").exists()) == (1, False)


def test_several_become_a_table_with_pages_beside_it(drive, tmp_path, run):
    for folder in ("a", "b"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        for path in (drive[1].container, drive[1].arrow, drive[1].frames):
            shutil.copy(path, tmp_path / "in" / folder)
    (tmp_path / "in" / "broken.zip").write_bytes(b"PK")
    done = run("report", "in", "-o", "out/fleet.html", "--samples", "0")
    assert done.returncode == 3
    assert "broken.zip" in done.stdout
    table = (tmp_path / "out" / "fleet.html").read_text()
    assert re.findall(r'<td><a href="([^"]+)"', table) == ["drive.html", "drive-2.html"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["drive-2.html", "drive.html", "fleet.html"]
    assert 'href="fleet.html"' in (tmp_path / "out" / "drive-2.html").read_text()
    assert run("report", "in/a/drive.zip", "in/b/drive.zip").returncode == 2
    only = run("report", "in", "-o", "table.html", "--table-only", "--json")
    assert [one.get("samples") for one in json.loads(only.stdout)["reports"]] == [90, 90, None]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "table.html"]


def test_the_worst_drives_come_first():
    """Red ones, then those with the most findings."""
    found = [{"check": name, "level": "amber", "where": "", "found": "1"} for name in ("gaps", "skew")]
    rows = [
        {"name": name, "verdict": {"level": level, "checks": found[:number]}}
        for name, level, number in (("a", "amber", 1), ("b", "green", 0), ("c", "amber", 2), ("d", "red", 1))
    ]
    html = render_table(rows, "Drives").decode()
    assert re.findall(r">([abcd])</td>", html) == ["d", "c", "a", "b"]


def test_a_missing_extra_is_one_line(tmp_path, monkeypatch, drive):
    import sys

    from edgefirst_ros.errors import EdgeFirstError

    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(EdgeFirstError, match=r"jinja2 is not installed.*'edgefirst-ros\[report\]'") as raised:
        report([drive[1].container], tmp_path / "x.html")
    assert raised.value.exit_code == 1
    assert not list(tmp_path.iterdir())


def test_the_thresholds_are_those_of_the_document():
    from pathlib import Path

    from edgefirst_ros.dataset.verdict import THRESHOLDS

    text = Path(__file__).parents[2].joinpath("docs", "how-to", "inspect.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| (.+?) \| (\S+) \| (\S+) \| (.+) \|$", text, re.MULTILINE)
    number = {None: "-", 1e-12: "any"}
    assert listed == [
        (
            one.key,
            one.good,
            number.get(one.amber, f"{one.amber or 0:g}"),
            number.get(one.red, f"{one.red or 0:g}"),
            one.unit,
        )
        for one in THRESHOLDS.values()
    ]


def test_planted_faults_are_in_the_verdict_and_in_their_sections(tmp_path):
    """A sensor 200 ms late, a lost second, a clock set back, a wrong transform, a model that stops, night."""
    path = tmp_path / "planted.mcap"
    write_planted(path)
    dataset = edgefirst_ros.convert(path, tmp_path, name="dataset").paths.container
    everywhere = (
        ("gaps", "lidar.points", "longest 1.1 s, at 17.", "time"),
        ("clock", "", "set, or stood still, 1 time", "time"),
        ("alignment", "radar", " boxes have a target in them", "pictures"),
        ("gaps", "model", "longest 5.9 s, at 24.0 s", "time"),
        ("exposure", "", " pictures are dark", "pictures"),
    )
    only_recorded = ("delay", "/radar/targets", "-199 ms from the usual for 10 s, from 5 s on", "time")
    for source, expected in ((path, (only_recorded, *everywhere)), (dataset, everywhere)):
        facts = report([source], tmp_path / f"{source.stem}.html", samples=2).facts[0]
        found = {(one["check"], one["place"]): one for one in facts["verdict"]["checks"] if one["level"] != "green"}
        for check, place, said, section in expected:
            one = found.pop((check, place))
            assert said in one["found"], one
            assert one["section"] == section
        assert facts["verdict"]["level"] == "red"
        assert all(check == "gaps" for check, _ in found), found  # what the step leaves between messages
        late = facts["time"]["paces"]["radar.targets"]  # of a dataset all that is left of the late stamps is a hole
        assert (round(late["longest_s"], 2), round(late["at_s"])) == (0.26, 5)
        gaps = (tmp_path / f"{source.stem}.html").read_text().partition("The longest gaps")[2]
        assert re.search(r"<td>lidar.points</td><td class=\"n\">17\.\d+</td><td class=\"n\">1\.100</td>", gaps)
    page = (tmp_path / "planted.html").read_text()
    assert '<a href="#time">delay</a></td><td data-name="where">/radar/targets' in page


def test_a_sensor_that_comes_late_is_seen_in_the_recording_alone(tmp_path):
    """Its stamps are right, so that the samples are as they should be."""
    path = tmp_path / "late.mcap"
    write_delivered_late(path)
    facts = report([path], tmp_path / "late.html", samples=0).facts[0]
    (delay,) = checks(facts, "delay")
    assert (delay["place"], delay["level"], delay["section"]) == ("/radar/targets", "amber", "time")
    assert "+199 ms from the usual for 3 s, from 3 s on" in delay["found"]
    dataset = edgefirst_ros.convert(path, tmp_path, name="dataset").paths.container
    assert report([dataset], samples=0).facts[0]["skew"] == facts["skew"]
    assert facts["skew"]["radar.targets"]["max_ms"] <= 50


def test_the_first_sentence_says_what_is_wrong(both, tmp_path):
    path = planted(tmp_path, "lossy", codec="jpeg", topics={"camera"}, truncate={"camera": [5]})
    done = report([path], tmp_path / "x.html", samples=0)
    for facts, page, said in (
        (done.facts[0], done.pages[0], "Red: loss of /camera/jpeg; check it before you train on it."),
        (both[0].facts[0], both[0].pages[0], "All is well: "),
    ):
        assert facts["verdict"]["summary"].startswith(said)
        (first,) = re.findall(r'<section id="verdict".*?<p[^>]*>([^<]+)</p>', page.read_text(), re.DOTALL)
        assert first == facts["verdict"]["summary"]
        assert "every line" not in page.read_text().replace(get_plotlyjs(), "")
