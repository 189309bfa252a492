# SPDX-License-Identifier: Apache-2.0
"""Several datasets as one, on the disk and in a bucket, and what users guess that a dataset and a sample can do."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import polars as pl
import pytest

import edgefirst_ros
from edgefirst_ros import Dataset
from edgefirst_ros.dataset.objects.transfer import upload_dataset
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.synthetic import Recipe, write_recording

DRIVES = {"monday": "train", "tuesday": "val"}
SENSORS = ("camera", "radar.cube", "radar.targets", "lidar.points")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("fleet")
    for name, group in DRIVES.items():
        recipe = Recipe(seconds=1, size=(160, 96), cube_shape=(1, 8, 2, 16), lidar_points=40, host=name)
        path = write_recording(out / f"{name}.mcap", recipe).path
        edgefirst_ros.convert(path, out, name=name, group={group: "*"})
    return out


@pytest.fixture(scope="module")
def parts(folder):
    return [Dataset(folder / f"{name}.zip") for name in DRIVES]


@pytest.fixture(scope="module")
def prefix(s3, parts):
    for part in parts:
        upload_dataset(part.paths, "s3://drives/many")
    return "s3://drives/many"


def list_samples(samples):
    return [(sample.name, sample.frame) for sample in samples]


@pytest.mark.parametrize("way", ["list", "folder", "glob", "text", "sum"])
def test_several_datasets_are_one_sequence(folder, parts, way, tmp_path):
    (tmp_path / "names.txt").write_text("\n".join(str(part.paths.container) for part in parts))
    whole = {
        "list": lambda: Dataset([folder / "monday.zip", str(folder / "tuesday")]),
        "folder": lambda: Dataset(folder),
        "glob": lambda: Dataset(f"{folder}/*day.zip"),
        "text": lambda: Dataset(str(tmp_path / "names.txt")),
        "sum": lambda: parts[0] + parts[1],
    }[way]()
    assert list_samples(whole) == [one for part in parts for one in list_samples(part)]
    assert whole.sequences == [part.sequences[0] for part in parts]
    assert whole[-1].read("camera") == parts[1][-1].read("camera")
    assert whole.groups == {"train": len(parts[0]), "val": len(parts[1])}
    assert whole.labels == {label: sum(part.labels.get(label, 0) for part in parts) for label in whole.labels}
    assert whole.to_polars().height == sum(part.annotations.height for part in parts)
    assert list_samples(whole.samples(group="val")) == list_samples(parts[1])
    assert list_samples(whole.samples(sequence=parts[0].sequences[0])) == list_samples(parts[0])
    assert list_samples(whole.where(pl.col("group") == "train")) == list_samples(parts[0])


def test_a_name_that_no_dataset_has_is_refused(folder, tmp_path):
    with pytest.raises(UsageError, match="unknown group 'test'; known: train, val"):
        Dataset(folder).samples(group="test")
    with pytest.raises(DatasetError, match="no dataset here"):
        Dataset(tmp_path)
    with pytest.raises(DatasetError, match="edgefirst-ros merge makes one"):
        Dataset(folder).container.read("x")


def read_epoch(samples, worker):
    return [(one.name, one.frame, len(one.read("camera"))) for one in samples[worker::2]]


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_two_workers_read_every_sample_once(folder, prefix, parts, place):
    samples = Dataset(prefix if place == "bucket" else folder).shuffle(seed=3)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = [one for its in pool.map(read_epoch, [samples] * 2, range(2)) for one in its]
    every = [(one.name, one.frame, len(one.read("camera"))) for part in parts for one in part]
    assert sorted(found) == sorted(every)


def test_only_the_datasets_that_are_read_are_opened(prefix, line):
    samples = pickle.loads(pickle.dumps(Dataset(prefix).samples(group="train")))
    before = line.requests
    assert samples[0].read("camera")
    assert line.requests - before <= 5  # four open it
    assert len(samples.dataset._opened) == 1


def test_a_sample_with_four_members_takes_at_most_1_3_requests_in_order(prefix, parts, line):
    remote = Dataset(f"{prefix}/monday.zip")
    before = line.requests
    for number in range(len(remote)):
        for sensor in remote[number].inputs:
            assert remote[number].read(sensor) == parts[0][number].read(sensor)
    assert line.requests - before <= 1.3 * len(remote)
    before = line.requests
    for mine, theirs in zip(remote, parts[0], strict=True):
        for sensor in mine.inputs:
            assert mine.read(sensor) == theirs.read(sensor)
    assert line.requests - before <= 0.5 * len(remote)


def test_a_label_stands_for_a_look_where_there_is_no_model(folder, parts):
    samples = parts[0].samples(model=True)
    assert 0 < len(samples) <= len(parts[0])
    bare = Dataset(folder / "monday.zip")
    bare.frames = bare.frames.with_columns(pl.lit(None, pl.Int64).alias("model_timestamp"))
    assert list_samples(bare.samples(model=True)) == list_samples(bare.samples(annotated=True))


def test_a_sample_answers_about_itself(parts):
    sample = next(iter(parts[0].samples(SENSORS, annotated=True)))
    rows = sample.annotations
    assert sample.sequence == sample.name == parts[0].sequences[0]
    assert sample.group == "train"
    assert np.allclose(sample.boxes, np.array(rows["box2d"].drop_nulls().to_list()))
    assert sample.labels == rows["label"].cast(str).unique(maintain_order=True).to_list()
    assert sample.mask.shape == sample.image().shape[:2]
    assert sample.pose is None or sample.pose._fields == ("yaw", "pitch", "roll")
    pixels, seen = sample.project("lidar.points")
    assert pixels.shape == (sample.lidar().size, 2)
    assert seen.shape == (sample.lidar().size,)
    assert sample.show().size[0] > 640  # the picture, and the points from above
    assert sample._repr_html_().count("<img") == 2
    assert parts[0].show(3)._repr_html_().count("<figure>") == 3
