# SPDX-License-Identifier: Apache-2.0
"""What a picture of a dataset needs is loaded, and nothing else: a start takes as long as its imports."""

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.query import map_rows, select_first_rows
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.errors import DatasetError

SMALL = {"seconds": 0.5, "size": (128, 64), "fps": 10.0, "codec": "jpeg"}


def loaded(code, *arguments):
    """Libraries that a fresh process has loaded once `code` ran."""
    text = f"import sys\n{code}\nimport json\nprint(json.dumps([name for name in sys.modules if '.' not in name]))"
    done = subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_a_picture_needs_no_polars(recording, tmp_path):
    path = convert(recording(**SMALL), tmp_path).paths.container
    read = "from edgefirst_ros import Dataset\nd = Dataset(sys.argv[1])\nd[0].image(), d[-1].repeats"
    found = loaded(read, path)
    assert {"numpy", "pyarrow"} <= found
    assert not found & {"polars", "av", "mcap", "plotly", "dask", "obstore", "typer"}


def test_help_loads_no_library_of_the_work():
    read = "from edgefirst_ros.cli.app import app\nsys.argv = ['edgefirst-ros', '--help']\n"
    read += "try:\n    app()\nexcept SystemExit:\n    pass"
    assert not loaded(read) & {"pydantic", "numpy", "pyarrow", "polars", "av", "PIL", "yaml"}


def test_a_verb_loads_no_other_verb():
    read = "from edgefirst_ros.cli.app import app\nsys.argv = ['edgefirst-ros', 'recover', '--help']\n"
    read += "try:\n    app()\nexcept SystemExit:\n    pass\nassert 'edgefirst_ros.cli.view' not in sys.modules"
    assert "polars" not in loaded(read)


NAMES = ["b", "b", None, "a", "b"]
FRAMES = [2, None, 1, 7, 2]


@pytest.mark.parametrize(
    "text", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
@pytest.mark.parametrize("whole", [pa.uint8(), pa.int32(), pa.int64(), pa.null()], ids=str)
def test_rows_by_key_are_those_of_polars(tmp_path, text, whole):
    frames = [None] * len(FRAMES) if whole == pa.null() else FRAMES
    dictionary = pa.array(NAMES, pa.string()).dictionary_encode().cast(text) if pa.types.is_dictionary(text) else None
    names = pa.array(NAMES, text) if dictionary is None else dictionary
    table = pa.table({"name": names, "further": np.arange(5), "frame": pa.array(frames, whole)})
    path = tmp_path / "drive.frames.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        for number in range(0, 5, 2):
            writer.write_table(table.slice(number, 2))
    assert map_rows(TableFile(path)) == select_first_rows(pl.from_arrow(table), path)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"name": [1.5]}, "column 'name' is double, must be text"),
        ({"name": ["a"], "frame": ["1"]}, "column 'frame' is string, must be whole numbers"),
        ({"frame": [1]}, "has no column 'name'"),
    ],
)
def test_frames_of_another_kind_are_named(tmp_path, columns, says):
    table = pa.table(columns)
    path = tmp_path / "drive.frames.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DatasetError, match=says):
        map_rows(TableFile(path))


def test_frames_alone_without_numbers(tmp_path, recording):
    outcome = convert(recording(**SMALL), tmp_path)
    frames = pl.read_ipc(outcome.paths.frames).drop("frame")
    outcome.paths.frames.unlink()
    frames.write_ipc(outcome.paths.frames)
    assert len(Dataset(outcome.paths.container)) == outcome.samples
