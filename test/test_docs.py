# SPDX-License-Identifier: Apache-2.0
"""The documents are true: their examples run, and what they list is what the code has."""

import ast
import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
import typer
import typer.main
from object_server import S3
from PIL import Image
from pydantic import TypeAdapter
from shared_data import REAL

import edgefirst_ros
from edgefirst_ros.cli.app import app
from edgefirst_ros.config import LiveSettings, ReplaySettings, Settings, StreamSettings
from edgefirst_ros.config.load import load
from edgefirst_ros.counts import LOSS, NO_LOSS, PART_REASONS
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import KINDS
from edgefirst_ros.dataset.reader import Dataset, Sample
from edgefirst_ros.dataset.sequences import LEFT_OUT, SEQUENCES
from edgefirst_ros.dataset.validate import RULES
from edgefirst_ros.limits import Limits
from edgefirst_ros.pipeline.conversion import Outcome
from edgefirst_ros.sensors.cube import Cube
from edgefirst_ros.synthetic import Recipe, write_recording

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in DOCUMENTS}
EVERYTHING = "\n".join(TEXTS.values())
SMALL = {"seconds": 2, "size": (160, 96), "cube_shape": (2, 16, 4, 32), "lidar_points": 100}
LANGUAGES = {"bash", "python", "yaml", "text"}
NOT_RUN = 8
"""Blocks that make environments of their own, or need ROS, a device or large libraries."""
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
        write_recording(folder / f"{name}.mcap", Recipe(seed=seed, **SMALL))
    return folder


@pytest.fixture
def desk(recordings, command, tmp_path, monkeypatch):
    """A folder with the recordings the examples name, and `edgefirst-ros` on the path."""
    programs = tmp_path / "programs"
    programs.mkdir()
    shim = programs / "edgefirst-ros"
    shim.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
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


def run_examples(document, desk):
    """Run all blocks of a document in order, programs as processes of their own."""
    names = {}
    for block in blocks(document):
        place = f"{document}, line {block.line}"
        if not block.run:
            continue
        if block.language == "bash":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{place}: {done.stdout}{done.stderr}"
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


@pytest.mark.parametrize("document", TEXTS)
def test_examples_run(document, desk, request):
    if document == "fleet.md":
        request.getfixturevalue("buckets")
    run_examples(document, desk)


def test_the_way_from_the_first_line_to_a_loader(desk):
    """A terminal: the first steps of the README, then the loop of the page on training, on what they made."""
    for block in blocks("README.md"):
        if block.line > TEXTS["README.md"].partition("## 3.")[0].count("\n"):
            break
        if block.run:
            subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], check=True, capture_output=True)
    (loop,) = (block.text for block in blocks("training.md") if block.text.startswith("# loop.py"))
    (desk / "loop.py").write_text(loop)
    done = subprocess.run([sys.executable, "loop.py"], capture_output=True, text=True, check=True)
    boxes, pictures = map(int, re.fullmatch(r"(\d+) boxes of (\d+) pictures\n", done.stdout).groups())
    assert boxes
    assert pictures == len(edgefirst_ros.Dataset("out/week.zip").samples("camera", group="train"))


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_the_python_of_the_readme_runs_on_real_recordings(path, desk):
    edgefirst_ros.convert(path, "out", name="drive", rate=0.5)
    for block in blocks("README.md"):
        if block.language == "python":
            exec(compile(block.text, "README.md", "exec"), {})


def test_all_pages_are_in_the_index():
    linked = set(re.findall(r"\]\((\w+\.md)\)", TEXTS["index.md"]))
    assert linked == {path.name for path in DOCUMENTS} - {"README.md", "index.md"}


def test_examples_leave_what_they_say(desk):
    lines = [line for block in blocks("README.md") for line in block.text.splitlines()]
    convert = next(line for line in lines if line.startswith("edgefirst-ros convert"))
    subprocess.run(["bash", "-euc", convert], check=True, capture_output=True)
    assert {os.fspath(path.relative_to(desk)) for path in desk.glob("out/*")} == set(
        code(" ".join(row[0] for row in rows("README.md", "| file | content")))
    )


def test_every_block_has_a_language_and_few_are_not_run():
    found = [block for document in TEXTS for block in blocks(document)]
    assert {block.language for block in found} <= LANGUAGES
    assert sum(text.count("```") for text in TEXTS.values()) == 2 * len(found)
    assert sum(not block.run for block in found) == NOT_RUN
    assert sum(block.run and block.language == "bash" for block in found) > 10


def test_make_targets_are_there():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", EVERYTHING, re.MULTILINE)) == {"demo", "test"} <= targets


def test_links_lead_somewhere():
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)]+)\)", TEXTS[path.name]):
            file, _, heading = target.partition("#")
            linked = path.parent / file if file else path
            assert linked.is_file(), f"{path.name}: {target}"
            if heading:
                titles = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
                assert heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, target


def test_the_picture_is_what_its_script_makes(tmp_path, monkeypatch):
    kept, made = ROOT / "docs" / "picture.png", tmp_path / "picture.png"
    monkeypatch.setenv("PYTHONPATH", os.fspath(ROOT))
    subprocess.run([sys.executable, ROOT / "docs" / "picture.py", made], check=True)
    assert kept.stat().st_size < 300_000
    with Image.open(kept) as old, Image.open(made) as new:
        assert old.size == new.size


def test_the_readme_is_short():
    assert len(TEXTS["README.md"].splitlines()) < 120


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


@pytest.mark.parametrize("name", commands())
def test_commands_and_options_are_documented(name):
    assert f"edgefirst-ros {name.partition(' ')[0]}" in TEXTS["README.md"]
    assert f"edgefirst-ros {name}" in EVERYTHING
    assert commands()[name].params
    for option in options(commands()[name]):
        assert re.search(rf"{option}(?![\w-])", EVERYTHING), f"{name} {option}"


def test_no_option_is_invented():
    known = set().union(*map(options, commands().values()))
    foreign = {"--from-paths", "--ignore-src", "--packages-select", "--help", "--ros-args", "--params-file"}
    foreign |= {"--nthreads", "--nworkers", "--resources"}  # of Dask
    whole = {"--install-completion"}  # of the command itself
    foreign |= {"--no-deps", "--user"}  # of pip
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", EVERYTHING)) <= known | foreign | whole


# ---- settings ----------------------------------------------------------------------------------
def default_of(field):
    value = field.get_default(call_default_factory=True)
    return json.dumps(value, default=lambda model: TypeAdapter(type(model)).dump_python(model, exclude_defaults=True))


def test_all_settings_are_listed():
    listed = {code(row[0])[0]: (code(row[2])[0], row[3]) for row in rows("configuration.md", "| setting | option")}
    assert listed == {name: (default_of(field), field.description) for name, field in Settings.model_fields.items()}


def test_all_limits_are_listed():
    listed = {code(row[0])[0]: (code(row[1])[0], row[2]) for row in rows("configuration.md", "| limit | default")}
    fields = dataclasses.fields(Limits)
    assert listed == {field.name: (json.dumps(field.default), field.metadata["description"]) for field in fields}


def test_all_settings_of_a_stream_are_listed():
    listed = {code(row[0])[0]: (code(row[1])[0], row[2]) for row in rows("configuration.md", "| setting | default")}
    assert listed == {
        name: (default_of(field), field.description) for name, field in StreamSettings.model_fields.items()
    }


@pytest.mark.parametrize(("model", "name"), [(LiveSettings, "capture"), (ReplaySettings, "replay")])
def test_all_settings_of_a_node_are_listed(model, name):
    head = f"| setting of a {name} | default"
    listed = {code(row[0])[0]: (code(row[1])[0], row[2]) for row in rows("configuration.md", head)}
    assert listed == {name: (default_of(field), field.description) for name, field in model.model_fields.items()}


def test_the_options_of_settings_are_those_of_convert():
    listed = {name for row in rows("configuration.md", "| setting | option") for name in code(row[1])}
    others = {"--name", "--config", "--set", "--join", "--sequence", "--overwrite", "--report", "--resume", "--json"}
    others |= {"--upload"}
    assert listed == options(commands()["convert"]) - others


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
        for name, kind, versions, _ in rows("format.md", "| column | type | versions")
        for version in (schema.WRITABLE if versions == "all" else versions.split(", "))
    ]
    real = [(v, c.name, type_name(c.type)) for v in schema.WRITABLE for c in schema.columns(v).values()]
    assert sorted(listed) == sorted(real)


def test_frames_columns_are_listed():
    listed = [(code(name)[0], kind) for name, kind, _ in rows("format.md", "| column | type | content")]
    assert listed == [(c.name, type_name(c.type)) for c in schema.frames_columns(schema.COMPANIONS).values()]


def test_metadata_are_listed():
    head = "| file metadata | value"
    parts = TEXTS["format.md"].split(head)[1:]  # of the annotations, and of the frames
    listed = [re.findall(r"^\| `(\w+)` \|", part.partition("\n\n")[0], re.MULTILINE) for part in parts]
    assert listed == [[key.name for key in schema.METADATA], [*schema.FRAMES_METADATA, SEQUENCES, LEFT_OUT]]


def test_kinds_of_members_are_listed():
    assert {code(row[0])[0] for row in rows("format.md", "| kind | from")} == set(KINDS)


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
    listed = {name for row in rows("format.md", "| EXIF tag") for name in row[0].split(", ")}
    found -= {"ExifOffset", "GPSInfo", "ExifVersion", "GPSVersionID"}  # of the form, not of the picture
    assert {name.lower() for name in listed} == {name.lower() for name in found}
    with Image.open(desk / "one.png") as picture:
        assert {code(row[0])[0] for row in rows("format.md", "| chunk | content")} == set(picture.text)


# ---- architecture ------------------------------------------------------------------------------
def part_of(path):
    return path.relative_to(ROOT / "edgefirst_ros").with_suffix("").parts[0]


def test_parts_import_only_from_below():
    level = {part: number for number, row in enumerate(rows("architecture.md", "| parts |")) for part in code(row[0])}
    files = [path for path in (ROOT / "edgefirst_ros").rglob("*.py") if part_of(path) not in ("__init__", "__main__")]
    assert {part_of(path) for path in files} == set(level)
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            modules = (
                [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in getattr(node, "names", [])]
            )
            for module in filter(None, modules):
                top, _, below = str(module).partition(".")
                used = below.partition(".")[0]
                if top == "edgefirst_ros" and used and used != part_of(path):
                    assert level[used] > level[part_of(path)], f"{path}: {module}"


def test_files_named_by_the_architecture_are_there():
    for row in rows("architecture.md", "| part | what it does"):
        for name in code(row[0]):
            assert (ROOT / "edgefirst_ros" / name).exists(), name


def test_the_package_loads_no_library_by_itself():
    program = (
        "import sys, edgefirst_ros; print({'numpy', 'polars', 'av', 'mcap', 'pydantic', 'rclpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# ---- reasons, rules, names ---------------------------------------------------------------------
def test_reasons_are_listed_with_what_is_a_loss():
    listed = {code(row[0])[0]: row[2] for row in rows("time.md", "| reason")}
    free = {"lacks SENSOR", "encoding NAME"}
    assert {reason for reason, loss in listed.items() if loss == "yes"} == LOSS
    assert {reason for reason, loss in listed.items() if loss == "no"} == NO_LOSS | PART_REASONS | free


def test_rules_are_listed():
    assert rows("validation.md", "| rule | severity") == [[r.id, r.severity, r.description] for r in RULES]


@pytest.mark.parametrize(
    ("kind", "head"),
    [(Outcome, "| `convert(recordings"), (Dataset, "| `Dataset(path)`"), (Sample, "| a sample"), (Cube, "| a cube")],
)
def test_public_attributes_are_listed(kind, head):
    listed = {re.match(r"\w+", name)[0] for row in rows("format.md", head) for name in code(row[0])} - {"len"}
    public = {name for name in (*vars(kind), *kind.__annotations__) if not name.startswith("_")}
    if kind is Dataset:
        public |= {"paths", "container"}  # set when it is opened
    assert listed == public


def test_public_names_are_documented():
    section = TEXTS["format.md"].partition("## In Python")[2]
    for name in edgefirst_ros.__all__:
        assert f"`{name}`" in section
        assert hasattr(edgefirst_ros, name)
