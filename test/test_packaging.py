# SPDX-License-Identifier: Apache-2.0
"""What is installed, by pip and by colcon, and that all say the same of it."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

import edgefirst_ros
from edgefirst_ros.messages import KNOWN_TOPICS
from edgefirst_ros.synthetic import Recipe, write_recording

ROOT = Path(__file__).resolve().parents[1]
NAME = "edgefirst_ros"
INDEX = f"share/ament_index/resource_index/packages/{NAME}"
PARTS = (
    "edgefirst_ros",
    "resource",
    "config",
    "launch",
    "package.xml",
    "setup.py",
    "setup.cfg",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.rst",
)


def shared_files():
    """What lies in share/edgefirst_ros of an installation."""
    return {"package.xml", "README.md", "LICENSE", "CHANGELOG.rst"} | {
        os.fspath(path.relative_to(ROOT)) for part in ("config", "launch") for path in (ROOT / part).rglob("*.*")
    }


@pytest.fixture
def source(tmp_path):
    """A copy of the package: building writes beside what it builds."""
    folder = tmp_path / "src" / NAME
    folder.mkdir(parents=True)
    for part in PARTS:
        path = ROOT / part
        if path.is_dir():
            shutil.copytree(path, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_file():
            shutil.copy(path, folder)
    return folder


@pytest.fixture
def pip():
    """Function that has a pip build the package; offline where the environment's setuptools can do it by itself."""
    found = importlib.util.find_spec("setuptools") and importlib.metadata.version("setuptools")
    able = bool(found) and tuple(map(int, found.split(".")[:2])) >= (70, 1)

    def run(program, *arguments):
        command = [sys.executable, *program, *arguments, "-q", "--no-deps", *["--no-build-isolation"] * able]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and not able:
            pytest.skip(f"no setuptools 70.1 or later, and none can be had: {done.stderr[-300:]}")
        assert done.returncode == 0, done.stderr

    return run


@pytest.mark.parametrize("origin", ["checkout", "sdist"])
def test_the_wheel_holds_everything(pip, source, tmp_path, origin):
    if origin == "sdist":
        build = "from setuptools import build_meta; print(build_meta.build_sdist('dist'))"
        done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True, check=True)
        source = source / "dist" / done.stdout.splitlines()[-1]
    pip(["-m", "pip"], "wheel", "-w", tmp_path, source)
    with zipfile.ZipFile(*tmp_path.glob("*.whl")) as wheel:
        names = set(wheel.namelist())
        (top,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        points = wheel.read(f"{top}/entry_points.txt").decode()
        metadata = wheel.read(f"{top}/METADATA").decode()
    data = top.replace(".dist-info", ".data/data")
    assert {name.removeprefix(f"{data}/share/{NAME}/") for name in names if f"/share/{NAME}/" in name} == shared_files()
    assert f"{data}/{INDEX}" in names
    modules = {os.fspath(path.relative_to(ROOT)) for path in (ROOT / NAME).rglob("*.py")}
    modules |= {os.fspath(path.relative_to(ROOT)) for path in (ROOT / NAME / "report" / "templates").iterdir()}
    assert modules | {f"{NAME}/py.typed"} == {name for name in names if name.startswith(f"{NAME}/")}
    assert "edgefirst-ros = edgefirst_ros.cli:main" in points
    assert re.search(rf"^Version: {re.escape(edgefirst_ros.__version__)}$", metadata, re.MULTILINE)
    assert any(name.endswith("/LICENSE") for name in names)
    description = metadata.partition("\n\n")[2]
    assert len(description) > 2000
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert [link for link in links if not link.startswith("https://")] == [], "a package index has no such page"


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pip 23.0 cannot run on this Python")
def test_an_older_pip_puts_the_command_where_it_belongs(pip, source, tmp_path):
    """That of Debian 12 runs setup.py itself where nothing tells it not to, and setup.cfg is written for ROS 2."""
    older = tmp_path / "older"
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", older, "pip==23.0.1"]
    if subprocess.run(download, check=False).returncode:
        pytest.skip("pip 23.0.1 cannot be had")
    with zipfile.ZipFile(*older.glob("*.whl")) as wheel:
        wheel.extractall(older)
    quick = ("--disable-pip-version-check", "--ignore-installed", "--no-compile")
    for name, how in (("editable", ["-e"]), ("whole", [])):
        prefix = tmp_path / name
        pip([older / "pip"], "install", *quick, "--prefix", prefix, *how, source)
        assert (prefix / "bin" / "edgefirst-ros").exists(), name


def test_colcon_builds_it(source, tmp_path):
    colcon = shutil.which("colcon", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))
    if colcon is None:
        pytest.skip("colcon is not installed")
    command = [colcon, "--log-base", "log", "build", "--base-paths", "src"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    prefix = tmp_path / "install" / NAME
    assert (prefix / INDEX).is_file()
    share = prefix / "share" / NAME
    assert all((share / file).is_file() for file in shared_files())
    (library,) = prefix.glob("lib/python*/site-packages")
    program = prefix / "lib" / NAME / "edgefirst-ros"
    assert os.access(program, os.X_OK)
    environment = {**os.environ, "PYTHONPATH": os.fspath(library)}
    shown = subprocess.run(
        [sys.executable, program, "--help"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert all(verb in shown.stdout for verb in ("convert", "info", "validate", "demo"))


def test_package_xml_has_what_ament_asks_for():
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    assert (package.tag, package.get("format")) == ("package", "3")
    assert package.findtext("name") == NAME
    assert re.fullmatch(r"\d+\.\d+\.\d+", package.findtext("version"))
    assert package.findtext("description").strip()
    assert "@" in package.find("maintainer").get("email")
    assert package.findtext("license") == "Apache-2.0"
    assert (ROOT / package.find("license").get("file")).read_text().lstrip().startswith("Apache License")
    assert package.findtext("export/build_type") == "ament_python"
    depends = [element.text for element in package if element.tag.endswith("depend")]
    assert depends
    assert len(depends) == len(set(depends))
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9_-]*", depend) for depend in depends)


def test_package_xml_is_valid_to_ros_tools():
    tool = pytest.importorskip("catkin_pkg.package")
    warnings = []
    package = tool.parse_package(os.fspath(ROOT / "package.xml"), warnings=warnings)
    package.validate(warnings=warnings)
    assert not warnings


def test_package_xml_declares_what_the_nodes_import_and_hear():
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    declared = {element.text for element in package.findall("exec_depend")}
    nodes = [*(ROOT / NAME / "nodes").glob("*.py"), ROOT / NAME / "sources" / "ros.py"]
    imported = set(
        re.findall(
            r"^(?:from|import) (rcl\w+|\w+_msgs|\w+_srvs|\w+_interfaces)\b",
            "\n".join(file.read_text() for file in nodes),
            re.MULTILINE,
        )
    )
    heard = {kind.partition("/")[0] for kinds in KNOWN_TOPICS.values() for kind in kinds} - {NAME}
    assert imported | heard <= declared | {"edgefirst_msgs"}, "edgefirst_msgs has no rosdep key"
    assert len(imported) > 3


@pytest.mark.parametrize(
    ("linter", "arguments"), [("ament_copyright", ("edgefirst_ros",)), ("ament_xmllint", ("package.xml",))]
)
def test_the_linters_of_ament_are_content(linter, arguments):
    if shutil.which(linter) is None:
        pytest.skip(f"no {linter}: source a ROS 2 that has it")
    done = subprocess.run([linter, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_one_version():
    package = ElementTree.parse(ROOT / "package.xml").getroot()
    changes = re.findall(r"^(\d+\.\d+\.\d+) \(.+\)\n-+$", (ROOT / "CHANGELOG.rst").read_text(), re.MULTILINE)
    found = {edgefirst_ros.__version__, package.findtext("version"), changes[0]}
    assert re.search(r'^    version=re.search.*"package.xml"', (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert len(found) == 1, found


def test_the_changelog_has_the_form_of_ros():
    lines = (ROOT / "CHANGELOG.rst").read_text().splitlines()
    assert lines[1] == f"Changelog for package {NAME}"
    assert set(lines[0]) == set(lines[2]) == {"^"}
    assert len(lines[0]) == len(lines[1]) == len(lines[2])


def install_block(line):
    """The block of the page on installing with this text."""
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    blocks = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if line in block]
    return found


def test_the_install_page_makes_a_workspace_with_this_package_in_it(tmp_path):
    """The lines for ROS 2, with programs of ROS, pip and the network that only write down how they were called."""
    programs, home = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    log = tmp_path / "calls"
    git = shutil.which("git")
    for name in ("rosdep", "colcon", "ros2", "python3"):
        (programs / name).write_text(f'#!/bin/sh\nset -e\necho "{name} $*" >> {log}\nls src/*/package.xml >> {log}\n')
    (programs / "git").write_text(
        f'#!/bin/sh\ncase "$*" in *https:*) mkdir -p src/edgefirst_schemas;; *) exec {git} "$@";; esac\n'
    )
    for file in programs.iterdir():
        file.chmod(0o755)
    (home / "edgefirst_ws" / "install").mkdir(parents=True)
    (home / "edgefirst_ws" / "install" / "setup.sh").touch()
    if subprocess.run([git, "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("not a checkout of git")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", install_block("colcon build")],
        cwd=ROOT,
        env={"PATH": path, "HOME": os.fspath(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    calls = log.read_text()
    assert calls.count("src/edgefirst_ros/package.xml") == 4, "before rosdep, pip, colcon and ros2"
    assert "python3 -m pip install --user ./src/edgefirst_ros\n" in calls


def test_no_second_list_of_requirements():
    """What is installed stands in setup.py, and rosdep keys in package.xml."""
    required = re.search(r"install_requires=\[(.*?)\]", (ROOT / "setup.py").read_text(), re.DOTALL)[1]
    names = set(re.findall(r'"([a-z0-9_-]+)', required))
    assert len(names) > 10
    for document in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md")):
        for line in re.findall(r"pip install ([^\n`]+)", document.read_text()):
            assert not names & set(line.split()), f"{document.name}: {line}"


EXTRAS = {"report": ["jinja2", "plotly"], "fleet": ["distributed", "obstore"], "zenoh": ["zenoh"], "view": ["rerun"]}
"""Modules that are there only with an extra; those of NCore are in none of the commands of the README."""


def test_the_readme_runs_with_what_make_demo_installs(tmp_path):
    """Every command of its blocks but those marked, with the other extras out of reach."""
    line = re.search(r"^\t\$\(call install,\.venv\) .+$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0]
    installed = re.search(r"\.\[([\w,]+)\]", line)
    there = installed[1].split(",") if installed else []
    hidden = [module for extra, modules in EXTRAS.items() if extra not in there for module in modules]
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({hidden!r}))\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    shim = programs / "edgefirst-ros"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m edgefirst_ros "$@"\n')
    shim.chmod(0o755)
    desk = tmp_path / "desk"
    desk.mkdir()
    for seed, name in enumerate(("drive", "monday", "tuesday")):
        recipe = Recipe(seed=seed, seconds=2, size=(160, 96), cube_shape=(2, 16, 4, 32), lidar_points=100)
        write_recording(desk / f"{name}.mcap", recipe)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
    }
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(
        r"^(<!-- not run[^\n]*-->\n)?```(bash|console|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    for marked, language, block in blocks:
        if marked:
            continue
        lines = "\n".join(re.findall(r"^\$ (.*)", block, re.MULTILINE)) if language == "console" else block
        run = ["bash", "-euc", lines] if language != "python" else [sys.executable, "-c", block]
        done = subprocess.run(run, cwd=desk, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


@pytest.mark.parametrize(
    ("variables", "marker", "more"), [({"COLCON": "1"}, [], 0), ({"COLCON": "1"}, ["-m", "not short"], 1)]
)
def test_colcon_runs_the_short_tests(variables, marker, more):
    """`test_counts.py` has none of them, `test_messages.py` only such."""
    files = [f"test/{name}.py" for name in ("test_counts", "test_messages")]
    command = [sys.executable, "-m", "pytest", "--collect-only", *marker, *files]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert ("test_messages.py" in done.stdout, "test_counts.py" in done.stdout) == (not more, bool(more)), done.stdout
