# SPDX-License-Identifier: Apache-2.0
"""What verbs leave where files may not grow: one error, what was there, and nothing half-written under a final name."""

import os
import resource
import shutil
from contextlib import contextmanager

import handmade_dataset as made
import pytest
from unfinished_datasets import everything

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.migrate import migrate
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export, restore
from edgefirst_ros.report.run import report
from edgefirst_ros.report.view.run import view

LIMITS = (0, 300)
"""Bytes: all of them too few."""


@contextmanager
def files_up_to(size):
    """As a quota: no file of this process grows beyond."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with a dataset, the same as a store of roverd, and as an unfinished one in `cut`."""
    folder = tmp_path_factory.mktemp("given")
    made.write(folder, made.good())
    export(folder / "data.zip", "roverd", folder / "store")
    (folder / "cut").mkdir()
    shutil.copy(folder / "data.zip", folder / "cut" / "data.zip.partial")
    os.truncate(folder / "cut" / "data.zip.partial", (folder / "data.zip").stat().st_size - 100)
    return folder


VERBS = {
    "merge": lambda given, out: merge([given / "data.zip"], out / "merged"),
    "migrate to JSON": lambda given, out: migrate(given / "data.arrow", out / "data.json"),
    "migrate to Parquet": lambda given, out: migrate(given / "data.arrow", out / "data.parquet"),
    "export to roverd": lambda given, out: export(given / "data.zip", "roverd", out / "store"),
    "export to coco": lambda given, out: export(given / "data.zip", "coco", out / "labels"),
    "export to yolo": lambda given, out: export(given / "data.zip", "yolo", out / "labels", single_group=True),
    "import": lambda given, out: restore(given / "store", "roverd", out / "dataset"),
    "report": lambda given, out: report([given / "data.zip"], out / "report.html"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_files_that_may_not_grow(given, tmp_path, verb):
    before = everything(given)
    for limit in LIMITS:
        out = tmp_path / str(limit)
        out.mkdir()
        with files_up_to(limit), pytest.raises(DatasetError, match=r"File too large|refuses"):
            VERBS[verb](given, out)
        left = [path.name for path in out.rglob("*") if path.is_file() and not path.name.endswith(".partial")]
        assert not left, f"with {limit} bytes"
    assert everything(given) == before


def test_recover_can_be_called_again(given, tmp_path):
    shutil.copytree(given / "cut", tmp_path / "cut")
    for limit in LIMITS:
        with files_up_to(limit), pytest.raises(DatasetError, match="File too large"):
            recover(tmp_path / "cut" / "data")
        assert not (tmp_path / "cut" / "data.zip").exists()
    assert recover(tmp_path / "cut" / "data").samples == len(Dataset(given / "data.zip"))


@pytest.mark.parametrize("limit", [*LIMITS, 20_000])
def test_a_file_of_the_viewer_that_may_not_grow(given, tmp_path, capfd, limit):
    pytest.importorskip("rerun")
    with files_up_to(limit), pytest.raises(DatasetError, match=r"x\.rrd: cannot be written: File too large"):
        view(given / "data.zip", save=tmp_path / "x.rrd")
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr().err == ""
