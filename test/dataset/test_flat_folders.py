# SPDX-License-Identifier: Apache-2.0
"""Flat folders as the vendor's client makes them: SEQUENCE_FRAME.camera.jpeg beside each other, and NAME.arrow."""

import subprocess
import sys

import handmade_dataset as made
import numpy as np
import polars as pl
import pytest

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.export import export

CLIENT = f"{sys.prefix}/bin/edgefirst-client"


@pytest.fixture
def flat(tmp_path):
    """A snapshot of two frames of a drive, one of another in the vendor's other spelling, and a single picture."""
    folder = tmp_path / "flat" / "flat"
    folder.mkdir(parents=True)
    for name, frame in ((f"{made.SEQUENCE}_003.camera", 3), (f"{made.SEQUENCE}_004.camera", 4)):
        (folder / f"{name}.jpeg").write_bytes(made.jpeg(frame))
    (folder / "other_7.jpg").write_bytes(made.jpeg(7, comment=False))
    (folder / "single.jpeg").write_bytes(made.jpeg(7, comment=False))
    table = folder.with_suffix(".arrow")
    subprocess.run([CLIENT, "generate-arrow", folder, "-o", table], check=True, capture_output=True)
    subprocess.run([CLIENT, "validate-snapshot", folder.parent], check=True, capture_output=True)
    return folder.parent


KEYS = {(made.SEQUENCE, 3), (made.SEQUENCE, 4), ("other", 7), ("single", None)}


def test_a_flat_folder_of_the_vendors_client_is_a_dataset(flat):
    rows = pl.read_ipc(flat / "flat.arrow").select("name", "frame").rows()
    dataset = Dataset(flat)
    assert {tuple(sample.key) for sample in dataset} == KEYS == set(rows)
    assert dataset.sample(made.SEQUENCE, 4).image().shape == (*made.SIZE[::-1], 3)
    assert np.array_equal(dataset.sample("other", 7).image(), dataset.sample("single", None).image())


def test_a_flat_folder_passes_validate(flat):
    report = validate(flat)
    assert report.ok
    assert not {finding.rule for finding in report.findings} & {"REF001", "REF002", "IMG004"}
    assert [found.place for found in report.findings if found.rule == "NAM001"] == ["single.jpeg"]


def test_a_flat_folder_is_exported(flat, tmp_path):
    done = export(flat, "coco", tmp_path / "coco", unlooked=True)
    names = {path.name for path in (done.out / "images").iterdir()}
    assert names == {f"{made.SEQUENCE}_003.jpeg", f"{made.SEQUENCE}_004.jpeg", "other_007.jpeg", "single.jpeg"}


def test_names_decide_where_a_table_has_the_whole_name(flat):
    """Pictures that are called so, and belong to no sequence: as coco-to-arrow has them."""
    table = pl.DataFrame(
        {"name": [f"{made.SEQUENCE}_003", "other_7"], "frame": pl.Series([None, None], dtype=pl.UInt32)}
    )
    table.write_ipc(flat / "flat.arrow")
    found = {tuple(sample.key) for sample in Dataset(flat)}
    assert found == {(f"{made.SEQUENCE}_003", None), (made.SEQUENCE, 4), ("other_7", None), ("single", None)}
    (flat / "flat.arrow").unlink()
    found = {tuple(sample.key) for sample in Dataset(flat)}
    assert found == {(made.SEQUENCE, 3), (made.SEQUENCE, 4), ("other_7", None), ("single", None)}
