# SPDX-License-Identifier: Apache-2.0
"""Exports of a dataset in a bucket: the same files, byte for byte, as of the copy on the disk, to every system."""

import json
import shutil

import numpy as np
import polars as pl
import pytest
from l5kit_truth import DRIVE, HOUR, tracked
from object_server import s3
from same_dataset import files

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.objects.store import upload_dataset
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import SYSTEMS, export
from edgefirst_ros.synthetic import START

__all__ = ["s3"]
GROUPS = {"train": 0.5, "val": 0.5}


@pytest.fixture(scope="module")
def local(recording, tmp_path_factory):
    """A dataset of two drives with boxes, tracks, masks and groups."""
    short = DRIVE | {"seconds": 1, "size": (128, 64)}
    drives = [recording(**short), recording(**short, seed=1, host="second", start=START + HOUR, heading=-2.5)]
    out = tmp_path_factory.mktemp("local")
    dataset = tracked(Dataset(convert(drives, out, name="both", split=GROUPS).paths.container))
    dataset.write_annotations(dataset.annotations)
    return Dataset(out / "both.zip")


@pytest.fixture(scope="module")
def remote(s3, local):
    upload_dataset(local.paths, "s3://drives/exports")
    return "s3://drives/exports/both.zip"


@pytest.mark.parametrize("to", SYSTEMS)
def test_an_export_from_a_bucket_is_that_of_the_copy_on_the_disk(local, remote, tmp_path, to):
    for name, place in (("disk", local.paths.container), ("bucket", remote)):
        export(place, to, tmp_path / name)
    made = files(tmp_path / "bucket")
    assert made.keys() == files(tmp_path / "disk").keys() != set()
    assert [name for name, data in files(tmp_path / "disk").items() if data != made[name]] == []
    if to == "coco":
        whole = json.loads(made["instances.json"])
        assert len(whole["annotations"]) == local.annotations["box2d"].count() > 0
        labels = set(local.annotations["label"].drop_nulls().cast(pl.String))
        assert {one["name"] for one in whole["categories"]} >= labels


def test_the_progress_of_an_upload_is_in_bytes_of_all_its_files(s3, local):
    seen = []
    upload_dataset(local.paths, "s3://drives/again", progress=lambda *said: seen.append(said))
    sizes = [path.stat().st_size for path in local.paths.folder.iterdir() if path.name.startswith("both.")]
    steps = [done for _, done, _ in seen]
    assert {(what, total) for what, _, total in seen} == {("uploading both", sum(sizes))}
    assert sorted(np.diff([0, *steps]).tolist()) == sorted(sizes)


@pytest.mark.parametrize("to", SYSTEMS)
def test_a_table_that_is_not_in_the_bucket_is_an_error(s3, local, remote, tmp_path, to):
    s3.put_file("bare/both.zip", local.paths.container)
    s3.put_file("bare/both.frames.arrow", local.paths.frames)
    with pytest.raises(DatasetError, match=r"^s3://drives/bare/both\.arrow: missing, .* upload it"):
        export("s3://drives/bare/both.zip", to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", ["coco", "yolo"])
def test_labels_in_another_form_of_table_are_those_of_the_disk(s3, local, tmp_path, to):
    there = tmp_path / "sets"
    there.mkdir()
    for path in (local.paths.container, local.paths.frames):
        shutil.copy(path, there)
    local.annotations.write_parquet(there / "both.parquet")
    for path in there.iterdir():
        s3.put_file(f"parquet/{path.name}", path)
    export(there / "both.zip", to, tmp_path / "disk")
    export("s3://drives/parquet/both.zip", to, tmp_path / "bucket")
    assert files(tmp_path / "bucket") == files(tmp_path / "disk")


def test_nested_json_in_a_bucket_is_refused_by_name(s3, local, tmp_path):
    s3.put_file("nested/both.zip", local.paths.container)
    s3.put("nested/both.json", b"[]")
    with pytest.raises(
        DatasetError, match=r"^s3://drives/nested/both\.json: JSON cannot be read from a bucket; download"
    ):
        Dataset("s3://drives/nested/both.zip")
