# SPDX-License-Identifier: Apache-2.0
"""Recordings are taken by `report` and `view` as a conversion takes them; tables alone tell what members do."""

import json
import shutil
import subprocess

import pytest
import yaml
from mcap.reader import make_reader
from mcap.writer import Writer

from edgefirst_ros import convert
from edgefirst_ros.dataset.names import locate
from edgefirst_ros.report.facts import collect_quick
from edgefirst_ros.report.run import report
from edgefirst_ros.report.subject import read_summary
from edgefirst_ros.synthetic import START, Recipe, write_recording

SMALL = {"seconds": 4, "codec": "jpeg", "size": (320, 192), "lidar_points": 100, "topics": {"camera", "lidar/points"}}


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """One recording whole, as a rosbag2 folder of two files, and these files."""
    folder = tmp_path_factory.mktemp("parts")
    whole, bag = folder / "whole.mcap", folder / "bag.2026"
    write_recording(whole, Recipe(**SMALL))
    bag.mkdir()
    files = [bag / "bag_0.mcap", bag / "bag_1.mcap"]
    with whole.open("rb") as read, files[0].open("wb") as first, files[1].open("wb") as second:
        writers, known = [Writer(first), Writer(second)], {}
        for writer in writers:
            writer.start(profile="ros2", library="test")
        for schema, channel, message in make_reader(read).iter_messages(log_time_order=False):
            number = int(message.log_time >= START + 2_000_000_000)
            if (number, channel.id) not in known:
                own = writers[number].register_schema(schema.name, schema.encoding, schema.data)
                known[number, channel.id] = writers[number].register_channel(channel.topic, "cdr", own)
            place = known[number, channel.id]
            times = message.log_time, message.data, message.publish_time, message.sequence
            writers[number].add_message(place, *times)
        for writer in writers:
            writer.finish()
    said = {"relative_file_paths": [file.name for file in files], "storage_identifier": "mcap"}
    (bag / "metadata.yaml").write_text(yaml.safe_dump({"rosbag2_bagfile_information": said}))
    return whole, bag, files


def test_a_rosbag2_folder_and_joined_files_are_one_recording(parts, tmp_path):
    whole, bag, files = parts
    shutil.copytree(bag, tmp_path / "in" / bag.name)
    (tmp_path / "in" / "more").mkdir()
    shutil.copy(files[1], tmp_path / "in" / "more")
    one = report([whole], tmp_path / "whole.html", samples=1).facts[0]
    of_bag = report([tmp_path / "in" / bag.name], samples=1)
    joined = report(files, tmp_path / "joined.html", samples=1, join=True)
    assert of_bag.pages == [tmp_path / "in" / "bag.2026.html"]
    for facts in (of_bag.facts[0], joined.facts[0]):
        assert facts["samples"] == one["samples"] == 120
        assert facts["time"] == one["time"]
        assert [source["file"] for source in facts["bytes"]["sources"]] == ["bag_0.mcap", "bag_1.mcap"]
    table = report([tmp_path / "in"], tmp_path / "table.html", table_only=True)
    halves = table.facts[1]["samples"]
    assert [(row["name"], row["samples"]) for row in table.facts] == [("bag.2026", 120), ("bag_1", halves)]
    assert 55 <= halves <= 65


def test_settings_of_recordings_are_those_of_a_conversion(parts, tmp_path, run):
    whole, *_ = parts
    (tmp_path / "drive.yaml").write_text("streams: {lidar.points: {tolerance: 0.02}}")
    given = ("--rate", "5", "--start", "1", "--config", "drive.yaml")
    made = run("convert", whole, "-o", "out", *given, "--json")
    facts = json.loads(run("report", whole, "-o", "x.html", *given, "--json").stdout)
    dataset = json.loads(run("report", "out/whole.zip", "--json").stdout)
    assert facts["samples"] == dataset["samples"] == json.loads(made.stdout)["samples"] == 15
    for key in ("duration_s", "time", "skew", "topics"):
        assert facts[key] == dataset[key], key
    assert facts["pictures"]["shown"] == 12
    for wrong, said in (
        (("out/whole.zip", "-o", "y.html", "--rate", "5"), "--rate is for recordings; out/whole.zip is a dataset"),
        (("out/whole.zip", "-o", "y.html", "--check-time"), "--check-time is for recordings; out/whole.zip is a data"),
        ((whole, "-o", "y.html", "--set", "split=train=0.8"), "--set split: report does not use this setting"),
        ((whole, "-o", "y.html", "--set", "streams.lidar.tolerance=1"), "streams.lidar.points"),
        (
            (whole, "-o", "y.html", "--reference-topic", "/camera/jpeg", "--reference-topic", "/lidar/points"),
            "one is shown at a time",
        ),
    ):
        done = run("report", *wrong)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "y.html").exists()


def test_view_takes_them_alike(parts, tmp_path, run):
    pytest.importorskip("rerun", reason="rerun-sdk is not installed")
    from edgefirst_ros.report.view.viewer import find_program

    _, bag, files = parts
    assert run("view", bag, "--save", "bag.rrd", "--rate", "5", "--end", "1", "--only", "camera").returncode == 0
    assert run("view", *files, "--join", "--save", "joined.rrd", "--rate", "5", "--only", "camera").returncode == 0
    for name, number in (("bag", 5), ("joined", 20)):
        line = [find_program(), "rrd", "print", tmp_path / f"{name}.rrd"]
        told = subprocess.run(line, capture_output=True, text=True, check=True).stdout
        rows = [one for one in told.splitlines() if "/camera/image" in one and "EncodedImage:blob" in one]
        assert sum(int(one.partition("with ")[2].partition(" rows")[0]) for one in rows) == number
    several = run("view", *files, "--save", "x.rrd")
    assert (several.returncode, "one dataset or recording is shown at a time" in several.stderr) == (2, True)


@pytest.mark.parametrize("topics", [{"camera"}, {"camera", "gps"}, {"camera", "radar/cube"}, SMALL["topics"]])
def test_a_recording_shows_pictures_whatever_sensors_are_beside_its_camera(topics, tmp_path):
    path = write_recording(tmp_path / "drive.mcap", Recipe(**{**SMALL, "seconds": 1, "topics": topics})).path
    (facts,) = report(path, tmp_path / "x.html", samples=3).facts
    assert facts["sensors"]["camera"] == facts["samples"] == 30
    assert facts["pictures"]["shown"] == 3
    assert facts["pictures"]["looked_at"] >= 3


def test_the_tables_alone_tell_what_the_members_do(parts, tmp_path):
    whole, *_ = parts
    paths = convert(whole, tmp_path).paths
    told = read_summary(locate(paths.container))
    page = report([paths.container], samples=0).facts[0]
    row = collect_quick(told, "whole", str(paths.container))
    for key in row.keys() - {"verdict", "sequences"}:
        assert row[key] == page[key], key
    for name, one in row["sequences"].items():  # the members tell the sensors, and other tables groups and labels
        apart = {"sensors", "groups", "labels", "verdict"}
        assert {key: one[key] for key in one.keys() - apart} == {
            key: value for key, value in page["sequences"][name].items() if key not in apart
        }
    assert [one for one in page["verdict"]["checks"] if one in row["verdict"]["checks"]] == row["verdict"]["checks"]
    paths.container.write_bytes(paths.container.read_bytes()[:-100])
    (cut,) = report([tmp_path], tmp_path / "table.html", table_only=True).facts
    assert "no directory at its end" in cut["error"]


def test_a_time_check_has_its_place_in_the_page_where_it_is_asked_for(recording, parts, tmp_path):
    drive = {"seconds": 8, "seed": 1, "scene": "street", "topics": {"camera", "imu", "gps"}}
    path = recording(**drive, size=(320, 180), fps=10.0, clock_offset={"gps": -90_000_000})
    (page,) = report(path, tmp_path / "timed.html", samples=0, check_time=True).pages
    assert "<td>gps, imu</td><td>turn</td>" in page.read_text()
    line = page.read_text().partition("<pre>gps: {offset: ")[2].partition("}")[0]
    assert float(line) == pytest.approx(0.09, abs=0.01)
    (plain,) = report(parts[0], tmp_path / "plain.html", samples=0).pages
    assert "Not estimated. For a recording, use report --check-time" in plain.read_text()
