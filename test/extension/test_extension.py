# SPDX-License-Identifier: Apache-2.0
"""A new sensor is one record and one codec, a new column of the annotations one line: everything else follows.

A copy of the package gets these lines, of both, and the cases beside this file are run with it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import edgefirst_ros

HERE = Path(__file__).parent


def insert(file, before, line):
    """Put a line before a text that the file has once."""
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1, (file, before)
    file.write_text(text.replace(before, f"{line}\n{before}"), encoding="utf-8")


def run(copy, *cases):
    """Run cases with a copy of the package."""
    # Without the variables of this run: its processes share recordings, and the one begun here has none but its own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": os.fspath(copy.parent), "EXTENDED": os.fspath(copy)}
    environment["PLAIN"] = os.fspath(Path(edgefirst_ros.__file__).parent)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *(os.fspath(HERE / name) for name in cases)]
    done = subprocess.run(command, cwd=copy.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def add_thermal_camera(package):
    """One record and one codec."""
    shutil.copy(HERE / "thermal.py", package / "sensors")
    insert(
        package / "streams.py",
        ')\n"""All sensors',
        '    Sensor("thermal.image", _make("thermal/image", IMAGE), ("thermal.png",), "thermal", "picture",'
        ' "thermal_image"),',
    )
    codecs = package / "sensors" / "companions.py"
    insert(
        codecs,
        "\n\nclass Codec",
        "from edgefirst_ros.sensors.thermal import check_thermal, decode_thermal, encode_thermal",
    )
    insert(
        codecs,
        '}\n"""Key of a sensor',
        '    "thermal.image": Codec(check_thermal, encode_thermal, decode_thermal),',
    )


def add_column(package):
    """One line, and where its values come from."""
    insert(
        package / "dataset" / "schema.py",
        '    Column("timestamp", _I64, "identity", since=',
        '    Column("distance", _F32, since="2026.04"),',
    )
    insert(
        package / "sensors" / "detections.py",
        '            "box2d_score": box.score,',
        '            "distance": box.distance,',
    )


def test_a_sensor_and_a_column_are_a_line_each_and_one_codec(tmp_path):
    package = tmp_path / "edgefirst_ros"
    shutil.copytree(Path(edgefirst_ros.__file__).parent, package)  # with bytecode, which is that of the same sources
    add_thermal_camera(package)
    add_column(package)
    run(package, "thermal_cases.py", "column_cases.py")
