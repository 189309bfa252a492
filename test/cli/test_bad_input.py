# SPDX-License-Identifier: Apache-2.0
"""What is given by mistake, and output that nobody takes: what is said, the exit code, what is left."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import handmade_dataset as made
import polars as pl
import pytest
import zstandard

import edgefirst_ros
from edgefirst_ros.cli import output as progress_module
from edgefirst_ros.cli.output import describe_other, explain_paths, show
from edgefirst_ros.errors import DatasetError, StorageError, UsageError, pluralize
from edgefirst_ros.export import Exported
from edgefirst_ros.export.output import LossReport
from edgefirst_ros.sensors.exif import insert_jpeg

SMALL = {"seconds": 1, "size": (160, 96), "cube_shape": (1, 16, 2, 16), "lidar_points": 100}
OF_DATASETS = (["info"], ["validate"], ["recover"], ["merge", "-o", "merged"], ["export", "--to", "roverd", "-o", "x"])


@pytest.fixture(scope="module")
def converted(recording, tmp_path_factory):
    return edgefirst_ros.convert(recording(**SMALL), tmp_path_factory.mktemp("made"), name="drive", rate=5.0).paths.out


@pytest.fixture
def dataset(converted, tmp_path):
    """OUT/NAME of a small dataset, in OUT."""
    return shutil.copytree(converted, tmp_path / "out") / "drive"


# ---- one thing in place of another -------------------------------------------------------------
@pytest.mark.parametrize("verb", OF_DATASETS, ids=lambda verb: verb[0])
def test_a_recording_in_place_of_a_dataset(run, recording, tmp_path, verb):
    os.link(recording(**SMALL), tmp_path / "drive.zip")  # whatever its name
    done = run(verb[0], "drive.zip", *verb[1:])
    if verb[0] == "info":  # which takes both
        assert (done.returncode, done.stderr) == (0, "")
        return
    assert done.returncode == 1
    assert "edgefirst-ros convert drive.zip -o OUT" in done.stderr
    assert os.listdir(tmp_path) == ["drive.zip"]


@pytest.mark.parametrize("verb", OF_DATASETS, ids=lambda verb: verb[0])
def test_the_folder_that_datasets_are_in(run, dataset, verb):
    done = run(verb[0], dataset.parent, *verb[1:])
    if verb[0] in ("info", "export", "merge", "validate"):  # which take all datasets of a folder
        assert (done.returncode, done.stderr) == (0, "")
        return
    assert done.returncode == 1
    assert f"name one of them: {dataset}.zip" in done.stderr
    assert sorted(path.suffix for path in dataset.parent.iterdir()) == [".arrow", ".arrow", ".zip"]


def test_libraries_say_nothing_of_their_own(run, tmp_path):
    """Of EXIF that is cut Pillow warns, with a line of its source."""
    parts = made.good()
    for frame in made.FRAMES:
        name = made.name_of(frame, "camera.jpeg")
        parts.members[name] = b"".join(map(bytes, insert_jpeg(parts.members[name], b"MM\0*\0\0\0\x08")))
    given = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        given.append(made.write(folder, parts))
    done = run("merge", *given, "--rename", "-o", "merged")
    assert (done.returncode, done.stderr) == (0, "")


def test_hints(tmp_path):
    for name in ("a.zip", "b/b", "c.txt", "d/x", "lone/lone"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch() if path.suffix else path.mkdir()
    assert f"name one of them: {tmp_path / 'a.zip'}, {tmp_path / 'b'}, {tmp_path / 'lone'}" in describe_other(tmp_path)
    assert (
        describe_other(tmp_path / "lone")
        == describe_other(tmp_path / "c.txt")
        == describe_other(tmp_path / "none")
        == ""
    )
    for number in range(9):
        (tmp_path / f"{number}.zip").touch()
    assert describe_other(tmp_path).endswith(" and 7 more")
    with pytest.raises(StorageError, match=r"full\n.* is a folder with datasets"), explain_paths(tmp_path):
        raise StorageError("full")
    for place in (tmp_path / "a.html", os.path.relpath(tmp_path / "a.html")):  # the folder was the right one
        with pytest.raises(DatasetError) as caught, explain_paths(Path(place).parent):
            raise DatasetError(f"{place}: exists already")
        assert str(caught.value) == f"{place}: exists already"
    for paths in ([tmp_path / "c.txt"], [tmp_path, tmp_path / "c.txt"]):  # of several only the one that is wrong
        with pytest.raises(DatasetError) as caught, explain_paths(*paths):
            raise DatasetError("as it is")
        assert str(caught.value) == "as it is"
    with pytest.raises(DatasetError, match="with datasets in it"), explain_paths(tmp_path, tmp_path / "c.txt"):
        raise DatasetError(f"{tmp_path}: no dataset")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("drive.frames.arrow", "is the table of frames of a dataset; expected NAME.arrow, its annotations"),
        ("", "is a folder with datasets in it; name one of them: "),
        ("none.arrow", "No such file"),
        ("none", "no such file or directory"),
    ],
)
def test_migrate_wants_annotations(run, dataset, given, says):
    done = run("migrate", dataset.parent / given, "-o", "new.json")
    assert done.returncode == 1
    assert says in done.stderr
    assert not (dataset.parents[1] / "new.json").exists()


@pytest.mark.parametrize("given", ["drive.zip", "drive", "drive.arrow"])
def test_migrate_reads_the_annotations_of_a_dataset(run, dataset, given):
    done = run("migrate", dataset.parent / given, "-o", "new.parquet")
    assert (done.returncode, done.stderr) == (0, "")
    assert run("migrate", "new.parquet", "-o", "back.arrow").returncode == 0
    assert pl.read_ipc(dataset.parents[1] / "back.arrow").equals(pl.read_ipc(dataset.with_suffix(".arrow")))


def test_migrate_does_not_wait_for_a_pipe_and_names_the_folder_that_is_missing(run, dataset, tmp_path):
    os.mkfifo(tmp_path / "pipe.arrow")
    assert "is not a regular file" in run("migrate", "pipe.arrow", "-o", "new.json").stderr
    done = run("migrate", f"{dataset}.arrow", "-o", "none/new.json")
    assert done.returncode == 1
    assert "no folder none" in done.stderr


def test_output_inside_of_what_is_read(run, dataset, tmp_path):
    assert run("export", f"{dataset}.zip", "--to", "roverd", "-o", "roverd").returncode == 0
    before = sorted(path.name for path in tmp_path.joinpath("roverd").rglob("*"))
    (tmp_path / "link").symlink_to("roverd")
    for out in ("roverd/new", "link/deep/new"):
        done = run("import", "roverd", "--from", "roverd", "-o", out)
        assert done.returncode == 2
        assert "name a folder outside of it" in done.stderr
    assert sorted(path.name for path in tmp_path.joinpath("roverd").rglob("*")) == before


def test_convert_does_not_wait_for_a_pipe(run, tmp_path):
    os.mkfifo(tmp_path / "pipe.mcap")
    done = run("convert", "pipe.mcap", "-o", "out")
    assert done.returncode == 1
    assert "pipe.mcap" in done.stderr


def test_an_unfinished_dataset_is_named_with_what_completes_it(run, tmp_path):
    (tmp_path / "drive.zip.partial").touch()
    assert "edgefirst-ros recover drive.zip completes it" in run("info", "drive.zip").stderr
    made.write(tmp_path, made.good())
    told = run("info", ".")
    assert "3 samples in 1 sequence" in told.stdout
    assert told.stderr == "note: ./drive is unfinished: edgefirst-ros recover ./drive completes it\n"


def test_validate_names_what_is_missing_once(run):
    assert "none.zip: none.zip: " not in run("validate", "none.zip").stdout


def test_what_may_not_be_read_is_no_wrong_usage(run, tmp_path):
    for name in ("drive.mcap", "drive.zip"):
        (tmp_path / name).touch(mode=0o000)
    denied = run("info", "drive.mcap").stderr
    if "Permission denied" not in denied:
        pytest.skip("this user may read everything")
    for verb in OF_DATASETS:
        done = run(verb[0], "drive.zip", *verb[1:])
        assert done.returncode == 1
        assert "drive.zip" in done.stderr + done.stdout


def test_names_do_not_steer_the_terminal(run):
    assert "\x1b" not in run("info", "\x1b[31mred.mcap").stderr
    assert "\x1b" not in run("demo", "-o", "\x1b[31mred", "--seconds", "1").stdout


def test_topics_do_not_steer_the_terminal_nor_begin_lines(run, recording):
    path = recording(**SMALL, prefix="/\x1b[31m\nnote: \u202e/", drop_video={5})
    assert run("convert", path, "-o", "out", "--name", "drive").returncode == 3
    for arguments in (
        ["info", path],
        ["info", "out/drive.zip"],
        ["validate", "out/drive.zip"],
        ["info", path, "--json"],
    ):
        done = run(*arguments)
        assert done.returncode == 0
        assert all(character.isprintable() or character == "\n" for character in done.stdout + done.stderr)
    assert r"/\x1b[31m\nnote: \u202e/camera/h264" in run("info", path).stdout


def test_spaces_in_a_list_of_sensors(run, recording):
    required = "radar.cube, lidar.points"
    done = run("convert", recording(**SMALL), "-o", "out", "--rate", "5", "--require", required)
    assert done.returncode == 0, done.stderr


# ---- output that nobody takes ------------------------------------------------------------------
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_does_not_change_the_exit_code(run, recording, dataset, unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    reading, writing = os.pipe()
    os.close(reading)
    calls = {
        ("convert", str(recording(**SMALL, drop_video={20}, sequence_gaps=True)), "-o", "loss"): 3,
        ("info", f"{dataset}.zip", "--json"): 0,
        ("validate", "nowhere"): 1,
    }
    if not unbuffered:  # what is written at the end of the process is that of each verb
        calls[("validate", f"{dataset}.zip")] = 0
    for arguments, code in calls.items():
        done = run(*arguments, stdout=writing, env=environment)
        assert (done.returncode, done.stderr) == (code, "")
    os.close(writing)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_standard_output_that_takes_no_more_is_an_error(run, dataset):
    with open("/dev/full", "w") as full:
        done = run("info", f"{dataset}.zip", stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("edgefirst-ros: standard output: cannot write: No space left on device")
    assert len(done.stderr.splitlines()) == 1


def test_characters_that_the_terminal_does_not_have(run, recording, tmp_path):
    path = tmp_path / "ünï.mcap"
    os.link(recording(**SMALL), path)
    done = run("info", path, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "?n?.mcap" in done.stdout


def test_progress_goes_on_where_nobody_reads_it(monkeypatch):
    class Gone:
        def isatty(self):
            return False

        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(progress_module, "LINE_EVERY", 0.0)
    monkeypatch.setattr(sys, "stderr", Gone())
    with progress_module.show_progress(quiet=False) as report:
        report("reading", 1, 2)


# ---- demo --------------------------------------------------------------------------------------
def test_an_interrupted_demo_leaves_no_half_recording(cold_command, tmp_path):
    process = subprocess.Popen([*cold_command, "demo", "-o", tmp_path / "here", "--seconds", "600"])
    while not list(tmp_path.glob("here/*.partial")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert list((tmp_path / "here").iterdir()) == []


def test_demo_where_no_folder_can_be(run, tmp_path):
    (tmp_path / "file").touch()
    for out in ("file", "file/below"):
        done = run("demo", "-o", out, "--seconds", "1")
        assert done.returncode == 1
        assert "name another folder with -o" in done.stderr


# ---- what is said ------------------------------------------------------------------------------
def test_other_words_for_a_verb_lead_to_it(run):
    shown = run("help", "convert").stdout
    assert shown == run("convert", "--help").stdout != run("help").stdout == run("--help").stdout
    words = {"ls": "info", "show": "info", "check": "validate", "fix": "validate --fix", "restore": "import"}
    for tried, verb in {**words, "record": "capture"}.items():
        done = run(tried, "x")
        assert (done.returncode, f"no command {tried}; use edgefirst-ros {verb}" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["export", "out", "-o", "new"],
            "Missing option '--to'. Expected one of coco, yolo, ncore, l5kit",
        ),
        (["label", "out", "labels.json"], "Missing option '--from'. Expected one of coco, yolo"),
        (["import", "out", "-o", "new"], "Missing option '--from'. Expected one of"),
        (["convert", "x.mcap"], "Missing option '-o' / '--out'. Folder for the dataset."),
        (["fleet", "convert", "."], "Missing option '-o' / '--out'. Folder or s3://BUCKET/PREFIX."),
        (["merge", "-o", "new"], "Missing argument 'DATASET'. OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow."),
    ],
)
def test_a_missing_option_or_path_says_what_it_is(call, arguments, says):
    done = call(*arguments)
    assert (done.exit_code, says in " ".join(done.output.split())) == (2, True), done.output


def test_options_are_suggested_only_if_they_are_near(call):
    assert "(Possible options" not in call("convert", "x", "--cameras", "front").output
    assert "(Possible options" not in call("report", "x", "--open").output
    assert "--tolerance" in call("convert", "x", "--tolerence", "1").output
    assert "(Possible options: --retry-failed)" in call("fleet", "convert", "x", "--retry").output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["view", "x", "-o", "x.rrd"], "no option -o; use --save"),
        (["fleet", "convert", ".", "--to", "x"], "no option --to; use --end or --out"),
        (["fleet", "convert", ".", "-j", "2"], "no option -j; use --workers"),
        (["split", "x", "-o", "y"], "no option -o; split changes the dataset itself, so copy it first"),
        (["fleet", "list", "x"], "no command fleet list; known: validate, status,"),
    ],
)
def test_other_words_for_an_option_lead_to_it(call, arguments, says):
    done = call(*arguments)
    assert isinstance(done.exception, UsageError)
    assert says in str(done.exception)


def test_a_file_whose_name_begins_with_a_dash_is_not_only_an_unknown_option(call, tmp_path):
    (tmp_path / "-day.mcap").touch()
    assert "no option -d; a file begins with a dash: write ./-day.mcap" in str(
        call("convert", "-day.mcap", "-o", "out").exception
    )


def test_help_names_arguments_without_types_of_python(call):
    lines = call("merge", "--help").output.splitlines()
    assert "  DATASET  OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow.  [required]" in lines


def test_an_option_without_its_value_is_not_taken_for_an_unknown_one(call):
    assert "Option '-o' requires an argument" in call("convert", "x.mcap", "-o").output


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda data: b"PK\3\4 and more", "it is a ZIP, such as a dataset; expected the recording"),
        (zstandard.compress, "it is compressed; unpack it with zstd -d"),
        (gzip.compress, "it is compressed; unpack it with gunzip"),
        (lambda data: b"SQLite format 3\0 and more", "it is a file of rosbag2; rename it to NAME.db3"),
        (lambda data: b"#ROSBAG V2.0\n and more", "it is a recording of ROS 1; rename it to NAME.bag"),
    ],
)
def test_what_is_not_a_recording_is_named(run, recording, tmp_path, make, says):
    (tmp_path / "drive.mcap").write_bytes(make(recording(seconds=0.2).read_bytes()))
    assert says in run("convert", "drive.mcap", "-o", "out").stderr


def test_a_page_that_is_to_be_reported_is_named_once(run, tmp_path):
    (tmp_path / "drive.html").write_bytes(b"<html>")
    done = run("report", "drive.html", "-o", "new.html")
    assert "drive.html: not a recording, and not a dataset; expected OUT/NAME.zip" in done.stderr
    assert done.stderr.count("drive.html") == 1


def test_recover_of_a_folder_names_the_unfinished_dataset_in_it(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "drive.zip.partial").write_bytes(b"")
    says = "out/drive is unfinished: edgefirst-ros recover out/drive completes it"
    assert says in run("recover", "out").stderr
    for verb in (("info",), ("export", "--to", "coco", "-o", "x")):  # the cause, without what else a path may be
        done = run(verb[0], "out/drive", *verb[1:])
        says = "out/drive: it is unfinished: edgefirst-ros recover out/drive completes it"
        assert (done.returncode, done.stderr) == (1, f"edgefirst-ros: {says}\n")


def test_version(run):
    assert run("--version").stdout == f"edgefirst-ros {edgefirst_ros.__version__}\n"


def test_every_verb_is_said_in_a_line(run):
    for line in run("--help").stdout.partition("Commands:")[2].splitlines():
        assert not line.endswith("..."), line


def test_counted():
    assert [pluralize(n, "sample") for n in (0, 1, 2)] == ["0 samples", "1 sample", "2 samples"]


def test_the_summary_says_what_samples_have_and_which_topics_are_no_part_of_them(run, recording):
    path = recording(**SMALL)
    text = run("convert", path, "-o", "out").stdout
    shown = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    assert shown["/gps"][1] == shown["/tf_static"][1] == "-"
    assert shown["/camera/h264"] == ["30", "30"]
    told = json.loads(run("convert", path, "-o", "again", "--json").stdout)
    frames = edgefirst_ros.Dataset(told["dataset"]).frames
    expected = {
        "position": frames["latitude"].count(),
        "attitude": frames["orientation"].count(),
        "lidar.points": frames["lidar_points_timestamp"].count(),
        "radar.cube": frames["radar_cube_timestamp"].count(),
        "radar.targets": frames["radar_targets_timestamp"].count(),
        "model": frames["model_timestamp"].count(),
    }
    assert told["samples_with"] == expected == {name: int(shown[name][0]) for name in expected}


def test_info_says_the_groups(run, recording):
    path = recording(**SMALL | {"seconds": 3})
    (path.parent / "settings.yaml").write_text("split: {train: 0.5, val: 0.5}\nsplit_block: 1.0\nsplit_gap: 0.1\n")
    done = run("convert", path, "-o", "out", "--name", "split", "--config", path.parent / "settings.yaml")
    assert done.returncode == 0, done.stderr
    groups = json.loads(run("info", "out/split", "--json").stdout)["groups"]
    assert set(groups) == {"train", "val"}
    assert 0 < sum(groups.values()) < 90
    assert f"train  {groups['train']:>7}\nval    {groups['val']:>7}\n" in run("info", "out/split").stdout
    assert re.search(rf"^group +train +val\nsamples +{groups['train']} +{groups['val']}\n", done.stdout, re.MULTILINE)
    assert f"without a group: {90 - sum(groups.values())} samples" in done.stdout


def test_a_group_that_got_nothing_is_shown(run, recording):
    path = recording(**SMALL)
    done = run("convert", path, "-o", "out", "--split", "train=0.8,val=0.2", "--json")
    told = json.loads(done.stdout)  # one block: all or nothing
    assert {group: counts["samples"] for group, counts in told["groups"].items()} == {"train": 30, "val": 0}
    empty = "group val is empty: it needs more sequences, or a shorter split_block, such as 1"
    assert empty in told["notes"]
    done = run("convert", path, "-o", "out", "--split", "train=0.8,val=0.2", "--overwrite")
    assert re.search(r"^group +train  val\nsamples +30    0\n", done.stdout, re.MULTILINE)
    assert f"note: {empty}\n" in done.stdout


def test_info_of_a_recording_without_messages(run, recording):
    done = run("info", recording(seconds=1, topics=set()))
    assert done.returncode == 0
    assert "kB, no messages" in done.stdout
    assert "1970" not in done.stdout


def test_names_in_reports_are_not_cut(capsys):
    report = LossReport("roverd")
    name = "maivin-with-a-long-name-00000001_2018_08_02_16_15_20.frames.arrow"
    report.add(name, number=1, where="there")
    show(Exported("roverd", Path("out"), report).text())
    assert f"{name}       1  there" in capsys.readouterr().out


def test_a_table_wider_than_the_terminal_is_printed_as_paragraphs(monkeypatch):
    head, rows = (
        ("topic", "Hz", "type"),
        [("/camera/h264", "30.0", "foxglove_msgs/msg/CompressedVideo"), ("/imu", "1", "")],
    )
    wide = progress_module.format_table(head, rows)
    assert wide[1] == "/camera/h264  30.0  foxglove_msgs/msg/CompressedVideo"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(len(wide[1])))
    assert progress_module.format_table(head, rows) == wide
    monkeypatch.setenv("COLUMNS", "44")
    lines = ["/camera/h264", "  Hz: 30.0; type:", "  foxglove_msgs/msg/CompressedVideo", "/imu", "  Hz: 1"]
    assert progress_module.format_table(head, rows) == lines


@pytest.mark.parametrize(
    "verb",
    [["info"], ["report"], ["view", "--save", "x.rrd"], ["validate"], ["merge", "-o", "out"], ["export", "--to", "coco",
     "-o", "out"], ["split", "--split", "train=1"], ["convert", "-o", "out"], ["fleet", "convert", "-o", "out"]],
    ids=lambda verb: verb[0],
)  # fmt: skip
def test_a_path_that_is_missing_names_those_like_it_and_what_is_read(run, tmp_path, verb):
    if verb[0] in ("report", "view"):
        pytest.importorskip({"report": "plotly", "view": "rerun"}[verb[0]])
    for name in ("drive1.mcap", "drive2.zip", "other", "rive_2018"):
        (tmp_path / name).touch()
    own = 2 if verb[0] == "fleet" else 1
    done = run(*verb[:own], "drive", *verb[own:])
    assert done.returncode in (1, 2)
    said = done.stdout + done.stderr
    assert "drive: no such file or directory; beside it: drive2.zip, drive1.mcap" in said
    assert "rive_2018" not in said
    assert ("*.mcap, *.db3, *.bag and rosbag2 folders" in said) == (verb[0] in ("info", "report", "view"))
