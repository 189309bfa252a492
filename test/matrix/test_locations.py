# SPDX-License-Identifier: Apache-2.0
"""Every kind of location with every verb and with Dataset: the result of the plain path, or a refusal by name."""

import json
import re
import resource
import shutil
import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest
from object_server import S3
from same_dataset import files
from typer.testing import CliRunner

from edgefirst_ros import Dataset, convert, migrate, validate
from edgefirst_ros.cli.app import app
from edgefirst_ros.dataset.objects.store import upload_dataset
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.synthetic import Recipe, write_recording

SMALL = Recipe(seconds=1.0, size=(160, 96), codec="jpeg", fps=5.0, topics={"camera", "gps", "model/output"})
BUCKET = {"s3 zip", "s3 zip64", "s3 name", "s3 table", "s3 glob", "s3 prefix"}
DATASETS = {"zip", "zip64", "name", "table", "directory", "file uri", "glob", "list", "fleet", *BUCKET}
RECORDINGS = {"file", "file uri", "folder", "glob", "list", "s3 file", "s3 prefix", "s3 glob"}
READING = {
    "info": (),
    "validate": (),
    "report": ("-o", "out.html", "--samples", "1"),
    "merge": ("-o", "out", "--name", "all"),
    "view": ("--save", "out.rrd"),
}
WRITING = {"split": ("--split", "train=1"), "label": ("labels", "--from", "coco"), "recover": ()}
EXPORTS = ("coco", "yolo", "ncore", "l5kit", "roverd")


def as_zip64(path):
    """Write a ZIP as `zipfile` writes large ones: sizes, offsets and numbers in records of ZIP64."""
    with zipfile.ZipFile(path) as archive:
        members = [(zipfile.ZipInfo(one.filename, one.date_time), archive.read(one)) for one in archive.infolist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zipfile, "ZIP64_LIMIT", 0)
        patch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 0)
        with zipfile.ZipFile(path, "w") as archive:
            for member in members:
                archive.writestr(*member)
    assert path.read_bytes()[-42:].startswith(b"PK\6\7")


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """The same dataset and recording at every kind of location; `places` and `recordings` name them."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("obstore")
    folder = tmp_path_factory.mktemp("given")
    (folder / "drives").mkdir()
    recording = folder / "drives" / "drive.mcap"
    write_recording(recording, SMALL)
    made = convert(recording, folder / "sets", name="drive", split={"train": 0.5, "val": 0.5})
    convert(recording, folder / "plain", name="drive", layout="directory", split={"train": 0.5, "val": 0.5})
    shutil.copytree(folder / "sets", folder / "same" / "drive")
    shutil.copytree(folder / "plain", folder / "same too" / "drive")
    shutil.copytree(folder / "sets", folder / "sets64")
    as_zip64(folder / "sets64" / "drive.zip")
    (folder / "sets.txt").write_text(f"# datasets\n{made.paths.container}\n")
    (folder / "drives.txt").write_text(f"{recording}\n")
    fleet = folder / "fleet" / "0123456789abcdef" / "drive"
    shutil.copytree(folder / "sets", fleet)
    (folder / "fleet" / "_state").mkdir()
    with pytest.MonkeyPatch.context() as patch, S3(patch) as server:
        upload_dataset(made.paths, "s3://drives/sets")
        for path in (folder / "sets64").iterdir():
            server.put_file(f"sets64/{path.name}", path)
        server.put_file("drives/drive.mcap", recording)
        yield {
            "recordings": {
                "file": recording,
                "file uri": f"file://{recording}",
                "folder": folder / "drives",
                "glob": folder / "drives" / "*.mcap",
                "list": folder / "drives.txt",
                "s3 file": "s3://drives/drives/drive.mcap",
                "s3 prefix": "s3://drives/drives",
                "s3 glob": "s3://drives/drives/*.mcap",
            },
            "places": {
                "zip": made.paths.container,
                "zip64": folder / "sets64" / "drive.zip",
                "name": folder / "sets" / "drive",
                "table": made.paths.arrow,
                "directory": folder / "plain" / "drive",
                "file uri": f"file://{made.paths.container}",
                "glob": folder / "sets" / "*.zip",
                "folder of its name": folder / "same" / "drive",
                "folder of its name, directory": folder / "same too" / "drive",
                "list": folder / "sets.txt",
                "fleet": folder / "fleet",
                "s3 zip": "s3://drives/sets/drive.zip",
                "s3 zip64": "s3://drives/sets64/drive.zip",
                "s3 name": "s3://drives/sets/drive",
                "s3 table": "s3://drives/sets/drive.arrow",
                "s3 glob": "s3://drives/sets/*.zip",
                "s3 prefix": "s3://drives/sets",
            },
        }


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgefirst_ros.limits.keep_buffers", lambda: None)

    def call(*arguments):
        if arguments[0] == "view":
            pytest.importorskip("rerun", reason="rerun-sdk needs Python 3.11")
        return CliRunner().invoke(app, list(map(str, arguments)))

    return call


def facts(verb, done, folder):
    """What a verb made of a dataset, without the place at which it was."""
    if verb == "merge":
        return files(folder / "out")
    if verb == "view":
        return (folder / "out.rrd").is_file()
    told = json.loads(done.stdout)
    for key in ("dataset", "path", "page", "container"):
        told.pop(key, None)
    return told


@pytest.mark.parametrize("verb", READING)
def test_a_verb_that_reads_makes_the_same_of_a_dataset_anywhere(given, run, tmp_path, verb):
    if verb == "report":
        pytest.importorskip("plotly")
    options = READING[verb] if verb in ("merge", "view") else (*READING[verb], "--json")
    found = {}
    for kind in ("zip", *sorted(DATASETS - {"zip"})):
        done = run(verb, given["places"][kind], *options, *(("--overwrite",) * (verb not in ("info", "validate"))))
        assert done.exit_code == 0, (kind, done.output, done.exception)
        found[kind] = facts(verb, done, tmp_path)
        if kind != "directory" or verb == "view":  # members are files there, so some facts differ
            assert found[kind] == found["zip"], kind


@pytest.mark.parametrize("kind", sorted(BUCKET))
@pytest.mark.parametrize("verb", ["info", "validate", "merge", "report"])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_is_said_of_a_dataset_in_a_bucket_names_its_object(given, run, tmp_path, verb, kind, form):
    done = run(verb, given["places"][kind], *READING[verb], *form)
    assert done.exit_code == 0, (done.output, done.exception)
    page = tmp_path / "out.html"
    said = page.read_text() if verb == "report" else done.stdout
    assert "s3://drives/sets" in said
    assert verb != "report" or not form or json.loads(done.stdout)["path"].startswith("s3://drives/sets")
    assert tempfile.gettempdir() + "/edgefirst-ros-" not in done.output + said


def test_groups_are_made_in_a_copy_of_a_dataset_in_a_bucket(given, run):
    """`split` does not write to buckets."""
    done = run("export", given["places"]["s3 zip"], "--to", "yolo", "-o", "yolo")
    assert "make groups in a local copy with edgefirst-ros split drive.zip --split" in str(done.exception)


@pytest.mark.parametrize("only", [(), ("--table-only",)])
def test_a_report_over_several_of_a_bucket_names_their_objects(given, run, tmp_path, only):
    """Of a recording and of a dataset."""
    paths = given["places"]["s3 zip"], given["recordings"]["s3 file"]
    done = run("report", *paths, "-o", "out.html", "--samples", "1", "--json", *only)
    assert done.exit_code == 0, (done.output, done.exception)
    assert [one["path"] for one in json.loads(done.stdout)["reports"]] == list(map(str, paths))
    for page in tmp_path.glob("*.html"):
        assert tempfile.gettempdir() + "/edgefirst-ros-" not in page.read_text()


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("two", "coco accepts one dataset, got 2: "),
        ("two/*.zip", "coco accepts one dataset, got 2: "),
        ("s3://drives/none", "s3://drives/none.zip: no dataset here"),
        ("s3://drives/none/*.zip", "s3://drives/none/*.zip: no dataset here"),
    ],
)
def test_an_export_of_none_or_several_is_refused_by_name(given, run, tmp_path, place, says):
    (tmp_path / "two").mkdir()
    for name in ("one", "two"):
        shutil.copy(given["places"]["zip"], tmp_path / "two" / f"{name}.zip")
    done = run("export", place, "--to", "coco", "-o", "out")
    assert str(done.exception).startswith(says)


def test_validate_of_a_recording_in_a_bucket_names_it_in_the_hint(given, run):
    place = given["recordings"]["s3 file"]
    done = run("validate", place)
    assert done.exit_code == 1
    assert f"{place} is a recording; make a dataset of it: edgefirst-ros convert {place} -o OUT" in done.stderr
    assert tempfile.gettempdir() not in done.output


@pytest.mark.parametrize("to", EXPORTS)
def test_an_export_is_that_of_the_plain_path(given, run, tmp_path, to):
    expected = None
    for kind in ("zip", *sorted(DATASETS - {"zip", "directory"})):
        out = tmp_path / kind
        done = run("export", given["places"][kind], "--to", to, "-o", out)
        said = str(done.exception) if done.exit_code else ""  # some need more than this drive has: wherever it is
        assert "s3:" not in said or kind in BUCKET, said
        assert bool(said) != out.exists()
        made = files(out)
        expected = made if expected is None else expected
        assert made == expected, kind


@pytest.mark.parametrize("verb", WRITING)
@pytest.mark.parametrize("kind", sorted(BUCKET))
def test_a_verb_that_writes_in_place_refuses_a_bucket_by_name(given, run, verb, kind):
    before = files(given["places"]["zip"].parent)
    done = run(verb, given["places"][kind], *WRITING[verb])
    assert isinstance(done.exception, UsageError)
    said = str(done.exception)
    assert said.startswith("s3://drives/sets")
    assert said.endswith(
        f"{verb} does not write to a bucket; fetch the dataset, change it on this machine, and upload it"
    )
    assert files(given["places"]["zip"].parent) == before


def test_an_import_does_not_read_from_a_bucket(run, tmp_path):
    done = run("import", "s3://drives/sets", "--from", "roverd", "-o", tmp_path / "new")
    assert isinstance(done.exception, UsageError)
    assert (
        str(done.exception) == "s3://drives/sets: import does not read from a bucket; fetch the folder, and import that"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["convert", "merge", "export", "import", "migrate", "report"])
def test_an_output_in_a_bucket_is_refused_by_name(given, run, tmp_path, verb):
    place = given["recordings"]["file"] if verb == "convert" else given["places"]["table"]
    end = {"export": ("--to", "coco"), "import": ("--from", "roverd")}.get(verb, ())
    done = run(verb, place, "-o", "s3://drives/new", *end)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith(f"s3://drives/new: {verb} does not write to a bucket; ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file:///drives/new", "http://drives/new"])
@pytest.mark.parametrize("verb", ["convert", "merge", "export", "import", "migrate", "report", "rig", "view", "demo"])
def test_an_output_that_is_a_uri_is_refused(given, run, tmp_path, verb, place):
    """It became a folder `file:`, where the user did not look for the dataset."""
    source = given["recordings"]["file"] if verb in ("convert", "rig") else given["places"]["zip"]
    end = {"export": ("--to", "coco"), "import": ("--from", "roverd")}.get(verb, ())
    suffix = {"migrate": ".arrow", "report": ".html", "rig": ".yaml", "view": ".rrd"}.get(verb, "")
    option = "--save" if verb == "view" else "-o"
    done = run(verb, *(() if verb == "demo" else (source,)), option, place + suffix, *end)
    assert isinstance(done.exception, UsageError), done.output
    assert f"/drives/new{suffix} is a URI; " in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["path", "relative", "slash", "link", "file uri"])
def test_an_import_reads_a_folder_by_any_name(given, run, tmp_path, kind):
    done = run("export", given["places"]["zip"], "--to", "roverd", "-o", "there")
    assert done.exit_code == 0, (done.output, done.exception)
    (tmp_path / "link").symlink_to("there")
    place = {"relative": "there", "slash": "there/", "link": "link", "file uri": f"file://{tmp_path}/there"}
    for name, source in (("plain", tmp_path / "there"), ("new", place.get(kind, tmp_path / "there"))):
        done = run("import", source, "--from", "roverd", "-o", name)
        assert done.exit_code == 0, (done.output, done.exception)
    assert files(tmp_path / "new") == files(tmp_path / "plain")
    assert validate(next((tmp_path / "new").glob("*.zip"))).ok


@pytest.mark.parametrize("name", ["drive.zip", "drive.arrow", "drive.frames.arrow", "drive.mcap", "drive.db3", "x.bag"])
@pytest.mark.parametrize("verb", ["report", "report table", "view", "rig", "migrate"])
def test_overwrite_of_one_file_does_not_destroy_a_dataset_or_recording(given, run, tmp_path, verb, name):
    """The place of a dataset, typed in place of a page's."""
    shutil.copytree(given["places"]["zip"].parent, tmp_path / "sets")
    for other in ("drive.mcap", "drive.db3", "x.bag"):
        shutil.copy(given["recordings"]["file"], tmp_path / "sets" / other)
    before, place = files(tmp_path / "sets"), tmp_path / "sets" / name
    arguments = {
        "report": ("report", "sets/drive.zip", "-o"),
        "report table": ("report", given["places"]["zip"].parent, "-o"),
        "view": ("view", "sets/drive.zip", "--save"),
        "rig": ("rig", "sets/drive.mcap", "-o"),
        "migrate": ("migrate", "sets/drive.arrow", "-o"),
    }[verb]
    if (verb, name) != ("migrate", "drive.arrow"):  # which is annotations in place of annotations
        assert run(*arguments, place, "--overwrite").exit_code != 0
        assert files(tmp_path / "sets") == before


@pytest.mark.parametrize("kind", sorted(RECORDINGS))
def test_a_recording_is_converted_from_anywhere_to_the_same_files(given, run, tmp_path, kind):
    place = given["recordings"][kind]
    done = run("convert", place, "-o", tmp_path / "made", "--name", "drive", "--split", "train=0.5,val=0.5")
    assert done.exit_code == 0, (done.output, done.exception)
    assert files(tmp_path / "made") == files(given["places"]["zip"].parent)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("kind", ["s3 file", "s3 prefix", "s3 glob"])
def test_a_recording_of_a_bucket_gets_another_name(given, run, tmp_path, kind, beside):
    """Given besides, in the same words or others, it is still one sequence."""
    also = ["s3://drives/drives/drive.mcap"] if beside else []
    place = given["recordings"][kind]
    done = run("convert", *also, "--sequence", f"other={place}", "-o", tmp_path / "made", "--name", "drive")
    assert done.exit_code == 0, (done.output, done.exception)
    assert Dataset(tmp_path / "made" / "drive.zip").sequences == ["other"]


def test_a_name_for_several_recordings_of_a_bucket_is_refused(given, run, tmp_path):
    place = given["recordings"]["file"]
    done = run("convert", place, "--sequence", "other=s3://drives/**", "-o", tmp_path / "made")
    assert isinstance(done.exception, UsageError)
    named = r"--sequence other=s3://drives/\*\*: matches \d recordings; name one of them"
    assert re.fullmatch(named, str(done.exception))


@pytest.mark.parametrize("kind", sorted(RECORDINGS))
def test_info_of_a_recording_is_the_same_anywhere(given, run, kind):
    told = [json.loads(run("info", given["recordings"][one], "--json").stdout) for one in ("file", kind)]
    named = told[1].pop("recording")
    assert named == (f"s3://drives/drives/{Path(told[0].pop('recording')).name}" if kind.startswith("s3") else named)
    told[0].pop("recording", None)
    assert told[0].keys() == told[1].keys()
    assert told[0].get("topics") == told[1].get("topics")


def test_info_of_a_folder_has_its_datasets_and_its_recordings(given, run, tmp_path):
    shutil.copytree(given["places"]["zip"].parent, tmp_path / "both" / "sets")
    shutil.copytree(given["places"]["directory"].parent, tmp_path / "both" / "plain")
    shutil.copytree(given["recordings"]["folder"], tmp_path / "both" / "drives")
    sets, recording = json.loads(run("info", "both", "--json").stdout)
    assert (sets["samples"], recording["recording"]) == (
        2 * len(Dataset(given["places"]["zip"])),
        "both/drives/drive.mcap",
    )


@pytest.mark.parametrize("kind", sorted(RECORDINGS))
def test_a_rig_drafted_of_a_recording_is_the_same_anywhere(given, run, kind):
    told = [run("rig", given["recordings"][one]).stdout for one in ("file", kind)]
    assert told[0] == told[1] != ""


@pytest.mark.parametrize("kind", ["table", "s3 table", "s3 glob"])
def test_migrate_reads_a_table_from_anywhere(given, run, tmp_path, kind):
    place = given["places"][kind] if kind != "s3 glob" else "s3://drives/sets/drive.*.arrow"
    done = run("migrate", place, "-o", tmp_path / "new.parquet")
    if kind == "s3 glob":  # a glob names datasets, and a table is none
        assert isinstance(done.exception, UsageError)
        return
    assert done.exit_code == 0, (done.output, done.exception)
    assert (tmp_path / "new.parquet").stat().st_size > 100


@pytest.mark.parametrize("kind", sorted(DATASETS - {"list", "fleet"}))
def test_migrate_in_python_reads_from_anywhere(given, tmp_path, kind):
    place = given["places"][kind]
    done = migrate(place, tmp_path / "new.parquet")
    migrate(given["places"]["zip"], tmp_path / "plain.parquet")
    assert files(tmp_path)["new.parquet"] == files(tmp_path)["plain.parquet"]
    assert tempfile.gettempdir() + "/edgefirst-ros-" not in str(done.source)
    assert str(done.source).startswith("s3://drives/sets") == (kind in BUCKET)


@pytest.mark.parametrize("kind", sorted(DATASETS - {"list", "fleet", "s3 prefix"}))
def test_a_dataset_opens_anywhere(given, kind):
    dataset, plain = Dataset(given["places"][kind]), Dataset(given["places"]["zip"])
    assert [sample.key for sample in dataset] == [sample.key for sample in plain]
    assert dataset.annotations.equals(plain.annotations)
    assert dataset[0].read("camera") == plain[0].read("camera")


@pytest.mark.parametrize("verb", ["info", "report", "merge", "export", "Dataset", "validate", "split", "label"])
@pytest.mark.parametrize("kind", ["folder of its name", "folder of its name, directory"])
def test_a_folder_named_like_the_dataset_in_it_is_a_folder_of_datasets(given, run, tmp_path, verb, kind):
    """`merge -o OUT/NAME` makes such a one; it passed for a dataset that lost its members, or one without samples."""
    place = given["places"][kind]
    if verb == "Dataset":
        assert len(Dataset(place)) == len(Dataset(given["places"]["zip"]))
        return
    options = {"export": ("--to", "coco", "-o", "new")} | READING | WRITING
    done = run(verb, place, *options[verb])
    if verb in ("split", "label"):
        assert done.exit_code != 0
        said = f"name one of them: {place}/drive" if verb == "split" else "already has 7 annotations"
        assert said in done.output + str(done.exception)
    else:
        assert done.exit_code == 0, (done.output, done.exception)
    if verb == "info":
        assert f" {len(Dataset(given['places']['zip']))} samples in 1 sequence" in done.output


@pytest.mark.parametrize("verb", ["validate", "export", "merge", "view", "report"])
def test_a_fault_of_the_dataset_in_a_folder_is_not_explained_by_the_folder(given, run, tmp_path, verb):
    """A dataset without its frames table; the folder was found to be one of datasets already."""
    (tmp_path / "lone").mkdir()
    shutil.copy(given["places"]["zip"], tmp_path / "lone" / "bare.zip")
    options = {"export": ("--to", "l5kit", "-o", "new")} | READING | WRITING
    done = run(verb, "lone", *options[verb])
    assert "name one of them" not in done.output + str(done.exception)
    assert verb != "validate" or "bare.frames.arrow: is missing" in done.output


@pytest.mark.parametrize("verb", ["convert", "rig"])
def test_a_disk_without_room_for_the_copies_is_named(given, run, monkeypatch, verb):
    monkeypatch.setattr("tempfile.tempdir", str(Path.cwd()))
    monkeypatch.setattr("sys.dont_write_bytecode", True)  # modules that are imported meanwhile would be cut
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        done = run(verb, given["recordings"]["s3 file"], "-o", "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert f"; the copy is made in {Path.cwd()}, TMPDIR names another folder" in str(done.exception)


@pytest.fixture
def unfinished(given, tmp_path):
    """An interrupted dataset of each layout; all names by which a user may give it."""
    (tmp_path / "z").mkdir()
    shutil.copy(given["places"]["zip"], tmp_path / "z" / "drive.zip.partial")
    shutil.copytree(given["places"]["directory"], tmp_path / "d" / "drive.partial")
    return "z", "z/drive", "z/drive.zip", "z/drive.zip.partial", "d", "d/drive", "d/drive.partial"


@pytest.mark.parametrize("verb", ["info", "validate", "merge", "export", "Dataset", "view", "report"])
def test_unfinished_datasets_in_a_folder_with_a_finished_one_are_named(given, run, tmp_path, verb):
    """At any depth; the finished one is read."""
    (tmp_path / "all" / "deep").mkdir(parents=True)
    shutil.copytree(given["places"]["zip"].parent, tmp_path / "all", dirs_exist_ok=True)
    shutil.copy(given["places"]["zip"], tmp_path / "all" / "cut.zip.partial")
    shutil.copytree(given["places"]["directory"], tmp_path / "all" / "deep" / "old.partial")
    (tmp_path / "all" / "deep" / "old.partial" / "drive").rename(tmp_path / "all" / "deep" / "old.partial" / "old")
    options = {"export": ("--to", "coco", "-o", "new")} | READING
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        done = None if verb == "Dataset" else run(verb, "all", *options[verb])
        assert verb != "Dataset" or len(Dataset("all")) == len(Dataset(given["places"]["zip"]))
    assert done is None or done.exit_code == (3 if verb == "report" else 0), (done.output, done.exception)
    said = {str(one.message) for one in told} | set(done.output.split("\n") if done is not None else ())
    lines = {f"all/{one}{':' if verb == 'report' else ''} is unfinished: edgefirst-ros recover all/{one} completes it"
             for one in ("cut", "deep/old")}  # fmt: skip
    assert verb == "view" or lines <= said


def test_a_recording_is_not_explained_to_a_verb_that_reads_recordings(given, run, tmp_path):
    (tmp_path / "out.html").touch()
    done = run("report", given["recordings"]["file"], *READING["report"])
    assert str(done.exception) == "out.html: exists already; --overwrite replaces it, -o names another place"


@pytest.mark.parametrize("verb", [*READING, "split", "label", "export", "Dataset"])
def test_an_unfinished_dataset_names_the_command_that_completes_it(unfinished, run, verb):
    options = {"export": ("--to", "coco", "-o", "out")} | READING | WRITING
    for place in unfinished:
        if verb == "Dataset":
            with pytest.raises(DatasetError) as caught:
                Dataset(place)
            said = str(caught.value)
        else:
            done = run(verb, place, *options[verb])
            assert done.exit_code == 1
            said = done.output + str(done.exception)
        named = f"{place}/drive" if place in ("z", "d") else place
        assert f"unfinished: edgefirst-ros recover {named} completes it" in said
        assert run("recover", named, "--dry-run").exit_code in (0, 3)  # a ZIP without its row log loses rows


@pytest.mark.parametrize("name", ["cut.zip", "cut.zip.partial"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text"])
def test_a_zip_without_a_whole_member_is_refused_by_its_own_name(run, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    for given in (name, "cut", "cut.zip"):
        said = str(run("recover", given, "--dry-run").exception)
        assert said.startswith(f"{tmp_path / name}: has no whole member to recover")


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("s3://drives/none", "found no datasets"),
        ("s3://drives/none/*.zip", "found no datasets"),
        ("ftp://drives/x", "a scheme that is not known"),
    ],
)
@pytest.mark.parametrize("verb", ["info", "validate", "report", "merge"])
def test_a_place_with_nothing_is_said_by_its_name(given, run, verb, place, says):
    done = run(verb, place, *READING[verb])
    assert isinstance(done.exception, (UsageError, DatasetError)), done.output
    assert says in str(done.exception)
