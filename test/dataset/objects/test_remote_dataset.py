# SPDX-License-Identifier: Apache-2.0
"""Datasets in a bucket, read in place: the same samples as from the disk, by few requests."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import edgefirst_ros
from edgefirst_ros.dataset.objects.store import upload_dataset
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.synthetic import Recipe, write_recording


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    recipe = Recipe(seconds=1, size=(320, 192), cube_shape=(2, 16, 4, 32), lidar_points=50)
    write_recording(folder / "drive.mcap", recipe)
    return edgefirst_ros.Dataset(edgefirst_ros.convert(folder / "drive.mcap", folder / "out").paths.container)


@pytest.fixture(scope="module")
def uri(s3, local):
    return f"s3://drives/{upload_dataset(local.paths, 's3://drives/sets/may')[-1].key}"


def test_samples_are_those_of_the_disk(local, uri):
    remote = edgefirst_ros.Dataset(uri)
    assert len(remote) == len(local) > 10
    assert remote.annotations.equals(local.annotations)
    assert remote.frames.equals(local.frames)
    assert remote.metadata == local.metadata
    for mine, theirs in zip(remote.samples(), local.samples(), strict=True):
        assert (mine.key, mine.timestamp, mine.inputs) == (theirs.key, theirs.timestamp, theirs.inputs)
        for name in mine.inputs:
            assert mine.read(name) == theirs.read(name)
    assert remote[3].image().shape == (192, 320, 3)


@pytest.mark.parametrize("end", ["", ".zip", ".arrow", ".frames.arrow"])
def test_any_of_its_names_names_it(uri, local, end):
    stem = uri.removesuffix(".zip")
    for name in (stem + end, Path(stem + end)):
        assert len(edgefirst_ros.Dataset(name)) == len(local)
    assert str(edgefirst_ros.Dataset(uri).paths.container) == uri


def test_four_requests_open_it_and_one_reads_a_member(local, uri, line):
    remote = edgefirst_ros.Dataset(uri)
    assert line.requests <= 4
    before = line.requests
    assert remote[5].read("camera") == local[5].read("camera")
    assert line.requests == before + 1
    with ThreadPoolExecutor(8) as pool:
        pictures = list(pool.map(lambda n: remote[n].read("camera"), range(len(local))))
    assert pictures == [sample.read("camera") for sample in local.samples()]
    assert line.requests == before + 1 + len(local)


def test_it_is_not_written_to(uri):
    remote = edgefirst_ros.Dataset(uri)
    with pytest.raises(DatasetError, match="is in a bucket; download"):
        remote.write_annotations(remote.annotations)


def test_processes_share_it(local, uri):
    again = pickle.loads(pickle.dumps(edgefirst_ros.Dataset(uri)))
    assert again[2].read("camera") == local[2].read("camera")


def test_what_is_not_there_or_no_dataset_is_said(s3, uri):
    with pytest.raises(DatasetError, match=r"s3://drives/none.zip: no dataset here"):
        edgefirst_ros.Dataset("s3://drives/none")
    s3.put("broken/x.zip", b"no archive" * 10)
    with pytest.raises(DatasetError, match="not a readable ZIP archive"):
        edgefirst_ros.Dataset("s3://drives/broken/x.zip")
    with pytest.raises(DatasetError, match="names no dataset"):
        edgefirst_ros.Dataset("s3://drives")


def test_one_that_is_replaced_while_it_is_open_is_an_error(s3, local, uri):
    files = s3.objects("sets/may")
    for key, data in files.items():
        s3.put(key.replace("may", "june"), data)
    remote = edgefirst_ros.Dataset("s3://drives/sets/june/drive.zip")
    s3.put("sets/june/drive.zip", files["sets/may/drive.zip"] + b"x")
    with pytest.raises(DatasetError, match="was replaced"):
        remote[0].read("camera")
