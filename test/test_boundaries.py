# SPDX-License-Identifier: Apache-2.0
"""Who imports whom: the layers of the package, what a base install needs, what is public."""

import ast
import functools
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import edgefirst_ros

ROOT = Path(edgefirst_ros.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
FLOORS = (
    ("errors", "streams"),
    ("counts", "limits"),
    ("config", "messages"),
    ("sensors",),
    ("sources", "sync"),
    ("dataset",),
    ("pipeline", "export", "synthetic"),
    ("fleet",),
    ("report", "nodes"),
    ("cli",),
)
"""The floors of the house, the lowest first: a part imports only from floors below its own."""
FLOOR_OF = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
BLIND = {
    "dataset": {"messages", "sources", "sync"},
    "sensors": {"dataset", "sources"},
    "sources": {"dataset"},
}
"""Part -> parts it must know nothing of, whatever their floor."""
ROS = ("nodes/", "sources/ros.py")
OUTER = {
    "rclpy": ROS,
    "mcap": ("sources/", "messages.py", "synthetic/"),
    "mcap_ros2": ("messages.py",),
    "mcap_protobuf": ("sources/protobuf.py",),
    "rosbags": ("sources/bags.py",),
    "av": ("sensors/", "synthetic/", "export/roverd/"),
    "typer": ("cli/",),
    "rich": ("cli/",),
    "pyarrow": ("dataset/",),
    "yaml": ("config/yaml_file.py",),
    "jinja2": ("report/",),
    "plotly": ("report/",),
    "rerun": ("report/",),
    "zenoh": ("sources/zenoh.py", "sources/zenoh_session.py"),
    "ncore": ("export/ncore/",),
    "numcodecs": ("export/l5kit/zarr2.py", "export/ncore/"),
    "dask": ("fleet/dask_engine.py",),
    "distributed": ("fleet/dask_engine.py",),
    "obstore": ("dataset/objects/bucket.py",),
    "upath": ("export/ncore/",),
    "zarr": ("export/ncore/library.py",),
    "l5kit": (),
    # Its CRC-32 leaves the upper halves of AVX registers in use, and libavcodec's SSE takes up to twice as long then.
    "isal": ("sensors/png.py",),
}
"""Libraries -> the only places that may import them."""


def place(file):
    return file.relative_to(ROOT).as_posix()


@functools.cache
def used_by(file):
    """Imports of a file, and the names of the functions that it calls; the others, half a million in all, go."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)], called


def imports(file):
    """Dotted names imported anywhere in a file; for `from a import b` both a and a.b."""
    for node in used_by(file)[0]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def parts(file):
    """Parts of the package that a file imports."""
    for name in imports(file):
        head, _, rest = name.partition(".")
        if head == "edgefirst_ros" and rest and not rest.startswith("__") and rest != "CallableModule":  # of the face
            yield rest.partition(".")[0]


def test_a_file_imports_only_what_lies_below_it():
    for file in FILES:
        own = place(file).removesuffix(".py").partition("/")[0]
        if own in ("__init__", "__main__"):  # the face imports lazily, the way in is the command line's
            continue
        used = set(parts(file)) - {own}
        above = {part for part in used if FLOOR_OF[part] >= FLOOR_OF[own]}
        assert above | used & BLIND.get(own, set()) == set(), place(file)


def test_every_part_has_a_floor():
    there = {place(file).removesuffix(".py").partition("/")[0] for file in FILES} - {"__init__", "__main__"}
    assert there == {part for part in FLOOR_OF if part != "streams" or part in there}
    packages = {part for part in there if (ROOT / part).is_dir()}
    assert len(packages) <= 12, sorted(packages)
    assert len(there - packages) <= 7, sorted(there - packages)


def test_libraries_stay_in_their_places():
    for file in FILES:
        for name in imports(file):
            places = OUTER.get(name.partition(".")[0])
            assert places is None or place(file).startswith(places), f"{place(file)} imports {name}"


def test_nobody_but_the_command_line_prints():
    for file in FILES:
        if not place(file).startswith(("cli/", "nodes/")):  # a node may fail before it can log
            assert "print" not in used_by(file)[1], place(file)


def test_every_file_names_its_licence_first():
    for file in FILES:
        assert file.read_text(encoding="utf-8").splitlines()[0] == "# SPDX-License-Identifier: Apache-2.0", place(file)


def test_no_file_is_longer_than_700_lines():
    for file in FILES:
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 700, place(file)


def fresh(code):
    """What a new interpreter prints as JSON."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent, check=True)
    return json.loads(run.stdout)


def test_importing_the_package_loads_nothing_heavy():
    loaded = set(fresh("import edgefirst_ros, sys, json; print(json.dumps(sorted(sys.modules)))"))
    heavy = {
        "numpy",
        "av",
        "polars",
        "pyarrow",
        "PIL",
        "pydantic",
        "mcap",
        "edgefirst",
        "typer",
        "rich",
        "yaml",
        "rclpy",
    }
    assert not loaded & heavy


def test_a_picture_is_read_without_what_only_settings_need(recording, tmp_path):
    """Of all that is loaded pydantic would take the longest."""
    dataset = edgefirst_ros.convert(recording(seconds=0.5), tmp_path).paths.container
    read = f"edgefirst_ros.Dataset({str(dataset)!r})[0].image()"
    loaded = set(fresh(f"import edgefirst_ros, sys, json; {read}; print(json.dumps(sorted(sys.modules)))"))
    assert {"numpy", "pyarrow", "PIL"} <= loaded
    assert not loaded & {"av", "polars", "pydantic", "mcap", "typer", "rich", "yaml", "edgefirst"}


def test_a_picture_is_read_through_at_most_12_files(recording, tmp_path):
    dataset = edgefirst_ros.convert(recording(seconds=0.5), tmp_path).paths.container
    code = f"""
import json, sys
from edgefirst_ros import Dataset
passed = set()
sys.setprofile(lambda frame, event, value: passed.add(frame.f_code.co_filename))
Dataset({str(dataset)!r})[0].image()
sys.setprofile(None)
print(json.dumps(sorted(name for name in passed if "edgefirst_ros/" in name)))
"""
    assert 8 <= len(fresh(code)) <= 12


def test_a_base_install_needs_no_ros():
    """Everything but the nodes is imported where rclpy and message packages cannot be."""
    names = [
        "edgefirst_ros." + place(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for file in FILES
        if not place(file).startswith(ROS) and file.name not in ("__main__.py", "__init__.py")
    ]
    assert "edgefirst_ros.pipeline.conversion" in names
    code = f"""
import builtins, importlib, json, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("rclpy", "rosidl_runtime_py", "sensor_msgs", "std_msgs", "ament_index_python"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:  # which there is none of for Python 3.10
        if error.name != "rerun":
            raise
print(json.dumps(sorted(name for name in sys.modules if name.startswith("rclpy"))))
"""
    assert fresh(code) == []


def test_public_names_are_those_of_all():
    for package in ("edgefirst_ros", "edgefirst_ros.dataset", "edgefirst_ros.synthetic"):
        module = importlib.import_module(package)
        assert sorted(module.__all__) == module.__all__ or len(set(module.__all__)) == len(module.__all__)
        for name in module.__all__:
            assert getattr(module, name) is not None
        imported = {
            alias.asname or alias.name
            for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("edgefirst_ros")
            for alias in node.names
        }
        assert imported <= set(module.__all__), package
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = edgefirst_ros.nothing_here


def test_pages_that_code_names_exist():
    """Users have the pages in docs/ and published documents, and no other notes of ours."""
    foreign = {"design.md"}  # of rmw_zenoh
    for file in FILES:
        for page in re.findall(r"[\w./-]+\.md\b", file.read_text(encoding="utf-8")):
            assert page in foreign or (ROOT.parent / page).is_file(), f"{place(file)} names {page}"


OLDER = {
    r"\bdatetime import .*\bUTC\b|datetime\.UTC\b": "datetime.timezone.utc",
    r"memoryview\(\w+\.data\)|frombuffer\(message\.\w+,": ".view() of a field: its buffer is not one on Python 3.10",
    r"\{[\w.]+:\+?z": "+ 0.0",
    r"to_pandas_dtype": "the name of the type: pyarrow 25 imports pandas for it",
    r"file_digest|from typing import .*\b(Self|Unpack)\b|contextlib\.chdir": "what Python 3.10 has",
}
"""Pattern of what Python 3.10 or its wheels lack -> what to write."""


def test_python_3_10_can_run_it():
    for file in FILES:
        for pattern, instead in OLDER.items():
            found = re.search(pattern, file.read_text(encoding="utf-8"))
            assert found is None, f"{place(file)}: {found[0]}: write {instead}"
