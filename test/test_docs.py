# SPDX-License-Identifier: Apache-2.0
"""The documents are true: their examples run and print what they show, and what they list is what the code has."""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
import typer
import typer.main
from object_server import S3
from PIL import Image
from shared_data import REAL

import edgefirst_ros
from edgefirst_ros.cli.app import app
from edgefirst_ros.config import Settings, StreamSettings
from edgefirst_ros.config.load import load
from edgefirst_ros.counts import LOSS, NO_LOSS, PART_REASONS
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import KINDS
from edgefirst_ros.dataset.schema import LEFT_OUT, SEQUENCES
from edgefirst_ros.streams import SENSORS, Sensor
from edgefirst_ros.synthetic import Recipe, write_recording

ROOT = Path(__file__).resolve().parents[1]
PAGES = {path.relative_to(ROOT / "docs").as_posix(): path for path in sorted((ROOT / "docs").rglob("*.md"))}
DOCUMENTS = {"README.md": ROOT / "README.md", **PAGES}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in DOCUMENTS.items()}
EVERYTHING = "\n".join(TEXTS.values())
FORMAT, ANNOTATIONS = "reference/dataset-format.md", "reference/annotation-schema.md"
SMALL = {"seconds": 2, "size": (160, 96), "cube_shape": (2, 16, 4, 32), "lidar_points": 100}
LANGUAGES = {"bash", "console", "python", "yaml", "text"}
SHOWN = ("README.md", "tutorials/first-dataset.md")
"""Pages that show what a conversion prints, and so run each of theirs."""
BUCKETS = ("how-to/fleet.md",)
NOT_RUN = re.compile(r"needs|installs|makes?\b|environments?\b")
"""Reasons for which a block is not run."""
PROGRAM = re.compile(r"# (\w+\.py)\n")
"""First line of a block that is a program of its own."""


class Block(NamedTuple):
    document: str
    line: int
    language: str
    text: str
    run: bool


def blocks(document):
    """The fenced blocks of a document, in order."""
    found = []
    text = TEXTS[document]
    for match in re.finditer(r"^(<!-- not run: [^\n]+ -->\n)?```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text[: match.start()].count("\n") + 1
        found.append(Block(document, line, match[2], match[3], match[1] is None))
    return found


def rows(document, head):
    """Cells of the table below a head line that begins with `head`."""
    lines = TEXTS[document].splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(head)]
    assert len(starts) == 1, f"{document}: {head!r}"
    found = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    assert found
    return found


def code(cell):
    """What stands in backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)


# ---- examples ----------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    for seed, name in enumerate(("drive", "monday", "tuesday")):
        seconds = {"seconds": 3} if name == "drive" else {}  # with a position for 95 % of its samples: a green report
        write_recording(folder / f"{name}.mcap", Recipe(seed=seed, **SMALL | seconds))
    return folder


@pytest.fixture(scope="module")
def converted(recordings, tmp_path_factory):
    """What `convert drive.mcap -o out` writes, which most pages begin with."""
    out = tmp_path_factory.mktemp("converted") / "out"
    edgefirst_ros.convert(recordings / "drive.mcap", out)
    return out


@pytest.fixture
def desk(recordings, converted, command, tmp_path, monkeypatch, request):
    """A folder with the recordings the examples name, and `edgefirst-ros` on the path.

    A fleet has one worker there: each takes a second of processor time to begin.
    """
    programs = tmp_path / "programs"
    programs.mkdir()
    shim = programs / "edgefirst-ros"
    shown = "document" in request.fixturenames and request.getfixturevalue("document") in SHOWN
    ready = f'[ "$*" = "convert drive.mcap -o out" ] && [ ! -e out ] && exec cp -r {converted} out'
    one = 'case "$1 $2" in "fleet convert"|"fleet validate"|"fleet export") set -- "$@" --workers 1;; esac'
    shim.write_text(f'#!/bin/sh\n{"" if shown else ready}\n{one}\nexec {shlex.join(command)} "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.fspath(ROOT))
    folder = tmp_path / "desk"
    shutil.copytree(recordings, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def buckets(desk, monkeypatch):
    """An S3 server with the buckets that the examples name, two recordings in one of them."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    with S3(monkeypatch) as server:
        for bucket in ("sets", "train"):
            server.client.create_bucket(Bucket=bucket)
        for name in ("drive", "monday"):
            server.put_file(f"2026/{name}.mcap", desk / f"{name}.mcap")
        yield server


def run_shell(text, place):
    """What the lines of a shell print."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{place}: {done.stdout}{done.stderr}"
    return done.stdout


def masked(line):
    """A line without its numbers and the width of its columns: they differ with the recording."""
    return " ".join(re.sub(r"-?\d[\d.,]*", "0", line).split())


def check_console(text, place):
    """Run each `$ command` of a block; the lines after it must be what it prints, `…` standing for omitted ones."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        printed = [masked(one) for one in run_shell(line, place).splitlines()]
        gap = True
        for one in map(masked, shown.splitlines()):
            if one == "…":
                gap = True
                continue
            found = printed.index(one) if gap and one in printed else 0
            assert printed[found : found + 1] == [one], f"{place}: {line}: no {one!r} in {printed}"
            printed, gap = printed[found + 1 :], False
        assert gap or not any(printed), f"{place}: {line}: prints {printed} too"


def run_examples(document, desk):
    """Run all blocks of a document in order, programs as processes of their own."""
    names = {}
    for block in blocks(document):
        place = f"{document}, line {block.line}"
        if not block.run:
            continue
        if block.language == "bash":
            run_shell(block.text, place)
        elif block.language == "console":
            check_console(block.text, place)
        elif block.language == "python" and (named := PROGRAM.match(block.text)):
            (desk / named[1]).write_text(block.text)
            missing = [name for name in ("torch",) if f"import {name}" in block.text and find_spec(name) is None]
            if not missing:
                done = subprocess.run([sys.executable, named[1]], capture_output=True, text=True, check=False)
                assert done.returncode == 0, f"{place}: {done.stdout}{done.stderr}"
        elif block.language == "python":
            exec(compile(block.text, place, "exec"), names)
        elif block.language == "yaml":
            named = re.match(r"# (\S+\.yaml)\n", block.text)
            path = desk / (named[1] if named else "settings.yaml")
            path.write_text(block.text)
            assert load(path) != Settings(), f"{place}: changes nothing"


@pytest.mark.parametrize("document", [name for name in TEXTS if any(block.run for block in blocks(name))])
def test_examples_run(document, desk, request):
    if document in BUCKETS:
        request.getfixturevalue("buckets")
    if any("edgefirst-ros view" in block.text for block in blocks(document)):
        pytest.importorskip("rerun", reason="rerun-sdk needs Python 3.11")
    run_examples(document, desk)
    if document == "README.md":
        files = code(" ".join(row[0] for row in rows("README.md", "| file | content")))
        assert {os.fspath(path.relative_to(desk)) for path in desk.glob("out/*")} == set(files)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_the_python_of_the_readme_runs_on_real_recordings(path, desk):
    edgefirst_ros.convert(path, "out", name="drive", rate=0.5)
    for block in blocks("README.md"):
        if block.language == "python":
            exec(compile(block.text, "README.md", "exec"), {})


def test_all_pages_are_in_the_index_and_in_the_menu():
    pages = set(PAGES) - {"index.md"}
    assert set(re.findall(r"\]\(([\w/-]+\.md)\)", TEXTS["index.md"])) == pages
    assert set(re.findall(r"- ([\w/-]+\.md)", (ROOT / "mkdocs.yml").read_text())) == pages


def test_every_block_has_a_language_and_a_reason_not_to_run():
    found = [block for document in TEXTS for block in blocks(document)]
    assert {block.language for block in found} <= LANGUAGES
    assert sum(text.count("```") for text in TEXTS.values()) == 2 * len(found)
    assert all(map(NOT_RUN.search, re.findall(r"<!-- not run: (.*) -->", EVERYTHING)))
    assert sum(block.run and block.language in ("bash", "console") for block in found) > 20
    assert not [block for block in found if block.language == "text" and "edgefirst-ros " in block.text]


def test_make_targets_are_there():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = EVERYTHING + (ROOT / "CONTRIBUTING.md").read_text()
    assert {"demo", "test", "docs", "references"} <= set(re.findall(r"`make (\w+)", named)) <= targets


def test_links_lead_somewhere():
    documents = [*DOCUMENTS.values(), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    for path in documents:
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            if target.startswith("https://"):
                continue
            file, _, heading = target.partition("#")
            linked = path.parent / file if file else path
            assert linked.is_file(), f"{path.name}: {target}"
            if heading:
                titles = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
                known = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
                assert heading in known, f"{path.name}: {target}"


def test_the_picture_is_what_its_script_makes(tmp_path, monkeypatch):
    kept, made = ROOT / "docs" / "img" / "picture.png", tmp_path / "picture.png"
    monkeypatch.setenv("PYTHONPATH", os.fspath(ROOT))
    subprocess.run([sys.executable, ROOT / "docs" / "tools" / "picture.py", made], check=True)
    assert kept.stat().st_size < 400_000
    with Image.open(kept) as old, Image.open(made) as new:
        assert old.size == new.size


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the parts of mkdocs for Python 3.10 do not fit together")
def test_the_site_builds_and_opens_from_the_disk_without_requests_to_other_hosts(browser, tmp_path):
    pytest.importorskip("mkdocstrings", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    asked, names = set(), [name.replace(".md", ".html") for name in PAGES]
    with browser.new_page() as page:
        page.on("request", lambda request: asked.add(request.url.partition(":")[0]))
        for name in names:
            page.goto((tmp_path / name).as_uri())
        page.locator("a", has_text="Glossary").first.click()
        assert page.url == (tmp_path / "reference" / "glossary.html").as_uri()
    assert asked == {"file"}


def test_the_readme_is_short():
    assert len(TEXTS["README.md"].splitlines()) <= 100


def test_generated_references_are_up_to_date():
    path = ROOT / "docs" / "tools" / "references.py"
    spec = spec_from_file_location("references", path)
    references = module_from_spec(spec)
    spec.loader.exec_module(references)
    pages = [page for page in PAGES.values() if "<!-- generated" in page.read_text("utf-8")]
    assert len(pages) == 3
    for page in pages:
        assert references.renew(page.read_text("utf-8")) == page.read_text("utf-8"), f"{page.name}: make references"


# ---- command line ------------------------------------------------------------------------------
def commands():
    """The verbs by name; those of a group of verbs as `fleet convert`."""
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        verbs = getattr(command, "commands", {})
        found |= {f"{name} {verb}": one for verb, one in verbs.items()} or {name: command}
    return found


def options(command):
    parameters = command.get_params(typer.Context(command))  # those of convert are made when they are asked for
    return {name for parameter in parameters for name in parameter.opts if name.startswith("--")} - {
        "--help",
        "--out",
    }


def test_no_option_is_invented():
    known = set().union(*map(options, commands().values()))
    foreign = {"--from-paths", "--ignore-src", "--packages-select", "--help", "--ros-args", "--params-file"}
    foreign |= {"--nthreads", "--nworkers", "--resources"}  # of Dask
    whole = {"--install-completion"}  # of the command itself
    foreign |= {"--no-deps", "--user"}  # of pip
    foreign |= {"--exclude", "--partial", "--qos-profile-overrides-path"}  # of rsync and rosbag2
    foreign |= {"--show-args", "--share"}  # of ros2
    foreign |= {"--annotations", "--images", "--annotation-set-id", "--dataset-name", "--monitor", "--description"}
    foreign |= {"--out", "--version", "--system", "--now"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", EVERYTHING)) <= known | foreign | whole


# ---- settings ----------------------------------------------------------------------------------
def test_the_example_configuration_has_every_setting_at_its_default():
    path = ROOT / "config" / "convert.yaml"
    text = path.read_text()
    assert load(path) == Settings()
    assert set(re.findall(r"^(\w+):", text, re.MULTILINE)) == set(Settings.model_fields)
    assert all("#" in line for line in text.splitlines() if line)


def test_the_commented_stream_of_the_example_configuration_loads(tmp_path):
    lines = (ROOT / "config" / "convert.yaml").read_text().splitlines()
    (shown,) = (line[1:] for line in lines if line.startswith("#  "))
    path = tmp_path / "stream.yaml"
    path.write_text(f"streams:\n{shown}\n")
    assert load(path).streams["radar.cube"] == StreamSettings(tolerance=0.05, offset=-0.02, reuse=False)


# ---- format ------------------------------------------------------------------------------------
def type_name(kind):
    types = pa.types
    if types.is_dictionary(kind):
        return "category"
    if types.is_fixed_size_list(kind):
        return f"{type_name(kind.value_type)}[{kind.list_size}]"
    if types.is_large_list(kind):
        return f"list of {type_name(kind.value_type)}"
    if types.is_struct(kind):
        return f"struct of {type_name(kind[0].type)}"
    return {"large_string": "text", "large_binary": "binary"}.get(str(kind), str(kind))


def test_annotation_columns_are_listed():
    listed = [
        (version, code(name)[0], kind)
        for name, kind, versions, _ in rows(ANNOTATIONS, "| column | type | versions")
        for version in (schema.WRITABLE if versions == "all" else versions.split(", "))
    ]
    real = [(v, c.name, type_name(c.type)) for v in schema.WRITABLE for c in schema.list_columns(v).values()]
    assert sorted(listed) == sorted(real)


def test_frames_columns_are_listed():
    listed = [(code(name)[0], kind) for name, kind, _ in rows(FORMAT, "| column | type | content")]
    companions = [sensor.column for sensor in SENSORS if sensor.column]
    assert listed == [(c.name, type_name(c.type)) for c in schema.list_frames_columns(companions).values()]


def test_metadata_are_listed():
    head = "| file metadata | value"
    parts = [TEXTS[page].partition(head)[2] for page in (ANNOTATIONS, FORMAT)]
    listed = [re.findall(r"^\| `(\w+)` \|", part.partition("\n\n")[0], re.MULTILINE) for part in parts]
    assert listed == [[key.name for key in schema.METADATA], [*schema.FRAMES_METADATA, SEQUENCES, LEFT_OUT]]


def test_settings_that_the_metadata_leave_out_are_named(desk):
    dataset = edgefirst_ros.convert(desk / "drive.mcap", desk / "kept", name="kept", rate=1).paths.container
    absent = Settings.model_fields.keys() - edgefirst_ros.Dataset(dataset).metadata["configuration"].keys()
    (named,) = re.findall(r"^\| `configuration` \|(.*)", TEXTS[FORMAT], re.MULTILINE)
    assert absent == {*code(named), *(f"{name}_topic" for name in ("lidar", "radar", "cube", "pose"))}


def test_fields_of_a_new_sensor_are_those_of_its_record():
    fields = [code(row[0])[0] for row in rows("developer/add-a-sensor.md", "| field |")]
    assert fields == [*Sensor._fields[: len(fields)]]


def test_kinds_of_members_are_listed():
    assert {code(row[0])[0] for row in rows(FORMAT, "| kind | from")} == set(KINDS)


def test_exif_tags_and_cube_texts_are_listed(desk):
    """Of a sample that was really converted, read by Pillow."""
    outcome = edgefirst_ros.convert("drive.mcap", "out", heading_from_imu=True)
    sample = edgefirst_ros.Dataset(outcome.paths.container).sample("drive", 30)
    (desk / "one.jpeg").write_bytes(sample.read("camera"))
    (desk / "one.png").write_bytes(sample.read("radar.cube"))
    from PIL.ExifTags import GPSTAGS, IFD, TAGS

    with Image.open(desk / "one.jpeg") as picture:
        exif = picture.getexif()
        found = {TAGS[tag] for tag in (*exif, *exif.get_ifd(IFD.Exif))} | {
            GPSTAGS[t] for t in exif.get_ifd(IFD.GPSInfo)
        }
    listed = {name for row in rows(FORMAT, "| EXIF tag") for name in row[0].split(", ")}
    found -= {"ExifOffset", "GPSInfo", "ExifVersion", "GPSVersionID"}  # of the form, not of the picture
    assert {name.lower() for name in listed} == {name.lower() for name in found}
    with Image.open(desk / "one.png") as picture:
        assert {code(row[0])[0] for row in rows(FORMAT, "| chunk | content")} == set(picture.text)


# ---- architecture ------------------------------------------------------------------------------
def part_of(path):
    return path.relative_to(ROOT / "edgefirst_ros").with_suffix("").parts[0]


def test_parts_import_only_from_below():
    level = {
        part: number
        for number, row in enumerate(rows("developer/architecture.md", "| parts |"))
        for part in code(row[0])
    }
    files = [path for path in (ROOT / "edgefirst_ros").rglob("*.py") if part_of(path) not in ("__init__", "__main__")]
    assert {part_of(path) for path in files} == set(level)
    for path in files:
        for used in re.findall(r"^ *(?:from|import) edgefirst_ros\.(\w+)", path.read_text(), re.MULTILINE):
            assert used == part_of(path) or level[used] > level[part_of(path)], f"{path}: {used}"


# ---- reasons, rules, names ---------------------------------------------------------------------
def test_reasons_are_listed_with_what_is_a_loss():
    listed = {code(row[0])[0]: row[2] for row in rows("reference/exit-codes.md", "| reason")}
    free = {"lacks SENSOR", "unknown encoding (NAME)"}
    assert {reason for reason, loss in listed.items() if loss == "yes"} == LOSS
    assert {reason for reason, loss in listed.items() if loss == "no"} == NO_LOSS | PART_REASONS | free


# ---- Python ------------------------------------------------------------------------------------
USED = {
    "Cube": "sample.cube()",
    "Outcome": "outcome.counts",
    "Sample": "dataset.sample(",
    "Samples": "dataset.samples(",
    "SequenceCalibration": "dataset.calibration(",
    "errors": "edgefirst_ros.errors.",
}
"""What an example has of a public object that it does not call by its name."""
FUNCTIONS = ("convert", "export", "label", "merge", "migrate", "project", "report", "restore", "split", "validate")


def described(thing, sections):
    """Whether a docstring has the sections, and an entry for each parameter under Args."""
    text = inspect.getdoc(thing) or ""
    arguments = [name for name in inspect.signature(thing).parameters if name != "self"]
    wanted = [one for one in sections if one != "Args" or arguments]
    entries = set(re.findall(r"^    \*{0,2}(\w+): ", text.partition("Args:")[2].partition("Returns:")[0], re.MULTILINE))
    return all(f"\n{one}:\n" in f"\n{text}\n" for one in wanted) and ("Args" not in wanted or entries >= {*arguments})


@pytest.mark.parametrize("name", sorted({*edgefirst_ros.__all__} - {"__version__"}))
def test_public_object_is_documented_with_an_example(name):
    thing = getattr(edgefirst_ros, name)
    page = TEXTS["reference/python.md"]
    examples = "\n".join(block.text for block in blocks("reference/python.md"))
    assert USED.get(name, f"edgefirst_ros.{name}(") in examples
    if name in FUNCTIONS:
        module = sys.modules[f"edgefirst_ros.{edgefirst_ros._HOMES[name]}"]
        assert described(getattr(module, name), ("Args", "Returns", "Raises"))
    for method in vars(thing).items() if isinstance(thing, type) else ():
        if inspect.isfunction(method[1]) and not method[0].startswith("_"):
            assert described(method[1], ("Args", "Returns")), method[0]
    assert re.search(rf"^::: edgefirst_ros\.(\w+\.)*{name}\b", page, re.MULTILINE), name


def test_packages_are_called_like_their_function(desk, converted):
    shutil.copytree(converted, "out")
    program = """
import edgefirst_ros.export, edgefirst_ros.report.projection
from edgefirst_ros.export import export
from edgefirst_ros import report
assert "help(edgefirst_ros.export.export)" in edgefirst_ros.export.__doc__
assert "help(edgefirst_ros.report.report)" in edgefirst_ros.report.__doc__
assert edgefirst_ros.export.export is export and edgefirst_ros.report is report
assert edgefirst_ros.export("out/drive.zip", "coco", "coco", pictures="none").out.name == "coco"
try:
    report([], "x.html", samples=-1)
except edgefirst_ros.errors.EdgeFirstError as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("Error\n")
