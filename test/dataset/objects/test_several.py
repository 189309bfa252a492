# SPDX-License-Identifier: Apache-2.0
"""Several datasets as one, on the disk and in a bucket, and what users guess that a dataset and a sample can do."""

import dataclasses
import itertools
import math
import os
import pickle
import random
import re
import subprocess
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import polars as pl
import pytest

import edgefirst_ros
from edgefirst_ros import Dataset
from edgefirst_ros.dataset import remote_archive
from edgefirst_ros.dataset.objects.store import upload_dataset
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


def test_info_of_a_folder_sums_its_datasets(command, folder, parts):
    said = subprocess.run([*command, "info", str(folder)], capture_output=True, text=True, check=True).stdout
    repeated = sum(len(sample.repeats) for part in parts for sample in part)
    assert f"{folder}: {sum(map(len, parts))} samples in {len(parts)} sequences\n" in said
    assert f"repeated members: {repeated}, " in said


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
    with pytest.raises(DatasetError, match=r"use its \.parts, or merge them"):
        Dataset(folder).container.read("x")


def read_epoch(samples, worker):
    return [(one.name, one.frame, len(one.read("camera"))) for one in samples[worker::2]]


@pytest.mark.parametrize("place", ["disk", "bucket"])
@pytest.mark.parametrize("name", ["day [1]", "day*?", "day [1]/day*?"])
def test_a_name_that_exists_is_no_glob(parts, s3, tmp_path, place, name):
    root = tmp_path if place == "disk" else "s3://drives/odd"
    upload_dataset(parts[0].paths, f"{root}/{name}")
    for given in (f"{root}/{name}/monday.zip", f"{root}/{name}/monday", f"{root}/{name}/m*.zip", f"{root}/{name}"):
        assert list_samples(Dataset(given)) == list_samples(parts[0]), given
    assert Dataset(f"{root}/{name}/monday.zip").paths.name == "monday"


@pytest.fixture(scope="module")
def ten(s3, parts):
    """Ten datasets in a bucket: five copies of each."""
    for number in range(10):
        upload_dataset(parts[number % 2].paths, f"s3://drives/ten/{number}")
    return "s3://drives/ten"


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_two_workers_read_every_sample_once(folder, ten, parts, place):
    samples, copies = Dataset(ten if place == "bucket" else folder).shuffle(seed=3), 5 if place == "bucket" else 1
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = [one for its in pool.map(read_epoch, [samples] * 2, range(2)) for one in its]
    every = [(one.name, one.frame, len(one.read("camera"))) for part in parts for one in part]
    assert sorted(found) == sorted(every * copies)


def test_ten_datasets_in_turns_take_one_request_each_more_than_a_merged_one(parts, ten, line, tmp_path):
    """What a loop learnt of one dataset, the kinds that it reads and how far it goes, holds for the next."""
    for number in range(10):
        for path in (parts[number % 2].paths.container, parts[number % 2].paths.arrow, parts[number % 2].paths.frames):
            (tmp_path / f"{number}{path.name[len(parts[number % 2].paths.name) :]}").hardlink_to(path)
    names = [tmp_path / f"{number}.zip" for number in range(10)]
    merged = edgefirst_ros.merge(names, tmp_path / "out", name="merged", rename=True)
    upload_dataset(merged.paths, "s3://drives/merged")
    asked = []
    for place in (ten, "s3://drives/merged"):
        samples = Dataset(place).shuffle(seed=3)
        assert len(samples) == 5 * sum(map(len, parts))
        assert all(part.frames is not None for part in samples.dataset.parts)  # they are open
        before = line.requests
        assert all(sample.read("camera") and sample.read("radar.cube") for sample in samples)
        asked.append(line.requests - before)
    assert asked[0] <= asked[1] + 10


def test_a_loop_opens_the_datasets_that_come_next_side_by_side(ten, monkeypatch):
    samples = pickle.loads(pickle.dumps(Dataset(ten).shuffle(seed=3)))
    two, begin = threading.Barrier(2), remote_archive.RemoteArchive.__init__

    def begin_with_another(archive, *given):
        two.wait(60)
        begin(archive, *given)

    monkeypatch.setattr(remote_archive.RemoteArchive, "__init__", begin_with_another)
    assert sum(len(sample.read("camera")) > 0 for sample in samples) == len(samples)


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


@pytest.mark.parametrize("whole", [True, False], ids=["all fits", "a part fits"])
def test_a_loop_in_a_random_order_fetches_each_sample_once(prefix, whole, monkeypatch):
    remote = Dataset(f"{prefix}/monday.zip")
    needed = sum(remote.container.size(sample.member("camera")) for sample in remote)
    if not whole:
        monkeypatch.setattr(remote_archive, "AHEAD", remote.container.file_size // 5)
    fetched, pread = [], remote_archive.RemoteArchive.pread
    monkeypatch.setattr(
        remote_archive.RemoteArchive, "pread", lambda self, size, at: fetched.append(size) or pread(self, size, at)
    )
    assert all(sample.read("camera") for sample in remote.shuffle(seed=3))
    assert len(fetched) <= len(remote) * (0.3 if whole else 0.6)
    assert sum(fetched) <= remote.container.file_size * (3 if whole else 2)  # the first requests are small
    assert needed < sum(fetched)


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


GUESSES = {
    # expressions that users try -> what they mean, by the tables and other ways in
    "len(d)": "frames.height",
    "d[0].frame": "frames['frame'][0]",
    "d[-1].frame": "frames['frame'][-1]",
    "[s.frame for s in d[2:4]]": "frames['frame'][2:4].to_list()",
    "[s.frame for s in d[:3]]": "frames['frame'][:3].to_list()",
    "sum(1 for _ in d)": "frames.height",
    "next(iter(d)).frame": "frames['frame'][0]",
    "list(reversed(d))[0].frame": "frames['frame'][-1]",
    "bool(d)": "True",
    "d.sequences": "frames['name'].cast(str).unique(maintain_order=True).to_list()",
    "d.groups": "{'train': frames.height}",
    "list(d.groups)": "['train']",
    "d.labels": "counts",
    "sorted(d.labels)": "sorted(counts)",
    "'car' in d.labels": "'car' in counts",
    "d.annotations.height": "rows.height",
    "d.frames.height": "frames.height",
    "d.frames['timestamp'].to_list()": "frames['timestamp'].to_list()",
    "d.to_polars().height": "rows.height",
    "d.to_polars()['latitude'].null_count() < rows.height": "True",
    "d.metadata['schema_version']": "'2026.04'",
    "len(d.samples())": "frames.height",
    "len(d.samples('camera'))": "frames.height",
    "len(d.samples(['camera', 'lidar']))": "frames['lidar_points_skew'].count()",
    "len(d.samples('lidar.points'))": "frames['lidar_points_skew'].count()",
    "len(d.samples('lidar'))": "frames['lidar_points_skew'].count()",
    "len(d.samples('lidar.pcd'))": "frames['lidar_points_skew'].count()",
    "len(d.samples('lidar_points'))": "frames['lidar_points_skew'].count()",
    "len(d.samples('/lidar/points'))": "frames['lidar_points_skew'].count()",
    "len(d.samples('radar'))": "frames['radar_targets_skew'].count()",
    "len(d.samples('radar.pcd'))": "frames['radar_targets_skew'].count()",
    "len(d.samples('radar.targets'))": "frames['radar_targets_skew'].count()",
    "len(d.samples('radar.cube'))": "frames['radar_cube_skew'].count()",
    "len(d.samples('radar_cube'))": "frames['radar_cube_skew'].count()",
    "len(d.samples({'camera', 'radar'}))": "frames['radar_targets_skew'].count()",
    "len(d.samples(group='train'))": "frames.height",
    "len(d.samples(sequence=d.sequences[0]))": "frames.height",
    "len(d.samples(sequence=d.sequences))": "frames.height",
    "len(d.samples(label='car'))": "frames_of('car')",
    "len(d.samples(label=['car']))": "frames_of('car')",
    "len(d.samples(model=True))": "frames['model_timestamp'].count()",
    "len(d.samples(model=False))": "frames['model_timestamp'].null_count()",
    "len(d.samples(annotated=True)) + len(d.samples(annotated=False))": "frames.height",
    "len(d.where(pl.col('label') == 'car'))": "frames_of('car')",
    "len(d.where(lambda s: 'car' in s.labels))": "frames_of('car')",
    "len(d.where(pl.col('frame') > 5))": "frames.filter(pl.col('frame') > 5).height",
    "len(d.samples('camera').where(pl.col('frame') > 5))": "frames.filter(pl.col('frame') > 5).height",
    "len(d.where(pl.col('group') == 'train'))": "frames.height",
    "sorted(s.frame for s in d.shuffle())": "frames['frame'].sort().to_list()",
    "[s.frame for s in d.shuffle(1)] == [s.frame for s in d.shuffle(seed=1)]": "True",
    "[s.frame for s in d.shuffle(1)] != [s.frame for s in d.shuffle(2)]": "True",
    "len(d.shuffle(seed=4)[:5])": "5",
    "len(d + e)": "len(d) + len(e)",
    "(d + e)[len(d)].frame": "e[0].frame",
    "(d + e).sequences": "d.sequences + e.sequences",
    "(d + e).groups": "{**d.groups, **e.groups}",
    "len((d + e).samples(group='val'))": "len(e)",
    "len((d + e) + d)": "len(d) + len(e)",  # a dataset is in it once
    "len(d.samples('camera') + e.samples('camera'))": "len(d) + len(e)",
    "len(Dataset([d, e]))": "len(d) + len(e)",
    "len(Dataset([path, other]))": "len(d) + len(e)",
    "len(Dataset((path, other)))": "len(d) + len(e)",
    "len(Dataset(str(path)))": "len(d)",
    "len(Dataset(path.parent))": "len(d) + len(e)",
    "len(Dataset(f'{path.parent}/*.zip'))": "len(d) + len(e)",
    "len(Dataset(path.with_suffix('')))": "len(d)",
    "len(Dataset(path.with_suffix('.arrow')))": "len(d)",
    "len(edgefirst_ros.Dataset(path))": "len(d)",
    "len(pickle.loads(pickle.dumps(d)))": "len(d)",
    "len(pickle.loads(pickle.dumps(d.samples('camera'))))": "len(d)",
    "'monday.zip' in repr(d)": "True",
    "'2 datasets' in repr(d + e)": "True",
    "len(d.show(3))": "3",
    "d.show(2)._repr_html_().count('<figure>')": "2",
    "d.samples('lidar').show(1)._repr_html_().count('<figure>')": "1",
    "d.calibration(d.sequences[0]).calibration": "'given'",
    "d.sample(d.sequences[0], 3).frame": "3",
    "s.frame": "number",
    "s.name": "d.sequences[0]",
    "s.sequence": "d.sequences[0]",
    "s.group": "'train'",
    "s.timestamp": "row['timestamp']",
    "s.row['timestamp']": "row['timestamp']",
    "s.position.latitude": "row['latitude']",
    "s.position.longitude": "row['longitude']",
    "s.position[2]": "row['altitude']",
    "s.image().shape": "(96, 160, 3)",
    "s.image().dtype": "np.dtype('uint8')",
    "s.decode('camera').shape": "(96, 160, 3)",
    "s.read('camera')[:3]": "bytes.fromhex('ffd8ff')",
    "s.read('camera.jpeg')[:3]": "bytes.fromhex('ffd8ff')",
    "s.read('radar.cube')[:4]": "bytes.fromhex('89504e47')",
    "s.read('lidar.points') == s.read('lidar.pcd')": "True",
    "s.member('camera').endswith('.camera.jpeg')": "True",
    "s.lidar()['x'].ndim": "1",
    "s.lidar().x": "s.lidar()['x']",
    "s.radar().y": "s.radar()['y']",
    "s.decode('lidar').z": "s.lidar()['z']",
    "s['radar'].x": "s.radar()['x']",
    "s.decode('lidar').shape": "s.lidar().shape",
    "s.decode('lidar.points').shape": "s.lidar().shape",
    "s.decode('radar.targets').shape": "s.radar().shape",
    "s.cube().shape": "(1, 2, 8, 8)",
    "s.cube().complex().shape": "(1, 2, 8, 8)",
    "s.cube().complex().dtype": "np.dtype('complex64')",
    "s.decode('radar.cube').shape": "(1, 2, 8, 8)",
    "'1 x 2 x 8 x 8 (sequence, rx, range, doppler)' in repr(s.cube())": "True",
    "s.cube().raw().shape": "s.cube().message_shape",
    "sorted(s.inputs)": "sorted(SENSORS)",
    "'lidar' in s.inputs": "True",
    "'lidar.pcd' in s.inputs": "True",
    "'lidar.depth' in s.inputs": "False",
    "'camera' in s.inputs": "True",
    "s.skew['lidar.points']": "row['lidar_points_skew']",
    "s.skew['lidar_points']": "row['lidar_points_skew']",
    "s.skew['lidar']": "row['lidar_points_skew']",
    "s.skew['radar.cube']": "row['radar_cube_skew']",
    "s.skew.get('depth')": "None",
    "s.skew.get('radar')": "row['radar_targets_skew']",
    "s.annotations.height": "own.height",
    "s.annotations['label'].cast(str).to_list()": "own['label'].cast(str).to_list()",
    "s.labels": "own['label'].cast(str).unique(maintain_order=True).to_list()",
    "s.boxes.tolist()": "own['box2d'].cast(pl.Array(pl.Float64, 4)).to_list()",
    "len(s.boxes)": "own.height",
    "s.mask.shape": "(96, 160)",
    "s.calibration.camera_info['width']": "160",
    "s.calibration.calibration": "'given'",
    "s.project('lidar').pixels.shape[1]": "2",
    "s.project('lidar.points').mask.sum() > 0": "True",
    "len(s.project('radar').pixels)": "s.radar().size",
    "s.project().pixels.shape": "s.project('lidar').pixels.shape",
    "s.show().mode": "'RGB'",
    "s._repr_html_().startswith('<figure>')": "True",
    "f'frame {number}' in repr(s)": "True",
    "s.dataset is d": "True",
    "s == d.sample(s.name, s.frame)": "True",
    "Dataset(d).frames.height": "frames.height",
    "os.fspath(d)": "str(path)",
    "edgefirst_ros.validate(d).ok": "edgefirst_ros.validate(path).ok",
    "np.asarray(s.cube()).shape": "s.cube().shape",
    "np.asarray(s.cube(), np.float32).max()": "abs(s.cube().complex()).max()",
    "random.choice(d).frame in frames['frame']": "True",
    "s['camera']": "s.image()",
    "s['lidar']": "s.lidar()",
    "'lidar' in s": "True",
    "'lidar.depth' in s": "False",
    "len(Dataset(path, other))": "len(d) + len(e)",
    "len(Dataset(d, e))": "len(d) + len(e)",
    "len(d.samples('camera', 'lidar'))": "len(d.samples(['camera', 'lidar']))",
    "len((d + e).samples('camera', 'lidar'))": "len(d.samples('lidar')) + len(e.samples('lidar'))",
    "d.__enter__() is d": "True",
    "s['cube'].shape": "s.cube().shape",
    "s['image']": "s.image()",
    "len(d.samples(group=['train', 'train']))": "len(d.samples(group='train'))",
    "len((d + e).samples(group=['train', 'val']))": "sum((d + e).groups.values())",
    "edgefirst_ros.project(s.lidar(), 'lidar', s).mask.sum()": "s.project().mask.sum()",
    "len(random.sample(d, 3))": "3",
}
REFUSED = {
    # expressions that users try -> the words that lead on
    "d.filter(pl.col('frame') > 5)": "use where(condition)",
    "d.head()": "use [:5]",
    "d.to_pandas()": "use to_polars()",
    "d.names": "use labels",
    "d.path": "use title",
    "d.first()": "use [0]",
    "d.close()": "files close with the last reference",
    "d.lidar": "use samples('camera')",
    "s.x": "use lidar()['x']",
    "s.width": "use image().shape",
    "s.bbox": "use boxes",
    "s['lidr']": "known: lidar.",
    "d.fps": "use frames, metadata, or the command edgefirst-ros info",
    "(d + e).episodes": "use sequences",
    "d.samples('camera').train_test_split(0.2)": "use edgefirst_ros.split",
    "d.validate()": "edgefirst_ros",
    "d['camera']": "samples('camera') selects by sensor",
    "d[[0, 1]]": "expected an index or a slice, got list",
    "s.img": "use image()",
    "s.cloud": "use lidar() or radar()",
    "s.boxes2d": "use boxes",
    "s.radar_cube": "use cube()",
    "s.camera_info": "use calibration.camera_info",
    "s.save('x.png')": "use show().save(path)",
    "s.project(s.lidar())": " [...] is not a sensor of a sample; known: ",
    "d.sample(s.name)": "has no frame None; known: ",
    "d.samples('camera').annotations": "use dataset.annotations, which is that of all samples",
    "edgefirst_ros.validate(d.samples('camera'))": "expected a Dataset, a recording or a path, got Samples",
    "edgefirst_ros.export(d.samples('camera'), 'coco', 'x')": "expected a Dataset, a recording or a path, got Sample",
    "edgefirst_ros.project(s.lidar(), s.calibration, 'lidar')": "expected project(points, sensor, sample), got str",
    "edgefirst_ros.convert(path, 'out', settings={'rate': 5})": "such as convert(recording, out, rate=5), got a map",
    "d.sample(s.name, '3')": "has no frame '3'; known: 3, ",
    "s.points": "use lidar() or radar()",
    "s.bboxes": "use boxes",
    "s.gps": "use position",
    "s.nothing": "'Sample' object has no attribute 'nothing'",
    "(d + e).paths": "several datasets as one have no paths; use its .parts, or merge them",
    "edgefirst_ros.split('s3://b/a.zip', {'train': 1.0})": "s3://b/a.zip: is not on this machine; download it first",
    "edgefirst_ros.convert('s3://b/a.mcap', 'out')": "s3://b/a.mcap: convert does not read from a bucket; the command ",
    "edgefirst_ros.convert([], 'out', sequences={'a': 's3://b/a.mcap'})": "s3://b/a.mcap: convert does not read ",
    "edgefirst_ros.convert(path, 's3://b/x')": "the output s3://b/x is a URI; expected a path of this machine",
    "edgefirst_ros.merge(path, 's3://b/x')": "the output s3://b/x is a URI; expected a path of this machine",
    "edgefirst_ros.migrate(path, 's3://b/x.arrow')": "the output s3://b/x.arrow is a URI; expected a path of this ",
    "edgefirst_ros.export(path, 'coco', 's3://b/x')": "s3://b/x: export does not write to a bucket; export to a folder",
    "edgefirst_ros.restore(path, 'roverd', 's3://b/x')": "s3://b/x: import does not write to a bucket; import to a ",
    "edgefirst_ros.restore('s3://b/x', 'roverd', 'out')": "s3://b/x: import does not read from a bucket; fetch the ",
    "edgefirst_ros.label(d, 'coco', 's3://b/x', replace=True)": "s3://b/x: label does not read from a bucket; fetch ",
    "d.sample(5)": "dataset[0] is the first sample",
    "(d + e).sample(5)": "dataset[0] is the first sample",
    "(d + e).calibration('nothing')": "has no sequence 'nothing'",
    "d.samples(labels=['car'])": "unknown argument 'labels'; known: label, ",
    "(d + e).samples(labels=['car'])": "unknown argument 'labels'; known: label, ",
    "d.samples(5)": "5 is not a sensor of a sample",
    "d.samples(group=1)": "unknown group 1; known: train",
    "d.samples(sequence=1)": "unknown sequence 1; known: ",
    "d.samples(label=1)": "unknown label 1; known: ",
    "(d + e).samples(group=1)": "unknown group 1; known: ",
    "d.where(label='car')": "got label=; samples(label='car') selects by label",
    "(d + e).samples('camera').where(label='car')": "got label=; samples(label='car') selects by label",
    "d.where()": "expected an expression such as polars.col('latitude') > 45, got NoneType",
    **dict.fromkeys(
        ("s.image(0)", "s.lidar(0)", "s.radar(0)", "s.decode(0)", "s.read(0)", "s.member(0)", "s[0]", "s.project(0)"),
        "0 is not a sensor of a sample; known: ",
    ),
    "s.lidar.x": "lidar is a method; use lidar().x",
    "s.lidar['x']": "lidar is a method; use lidar()['x']",
    "s.radar.size": "radar is a method; use radar().size",
    "s.image.shape": "image is a method; use image().shape",
    "s.image[0]": "image is a method; use image()[0]",
    "s.cube.shape": "cube is a method; use cube().shape",
    "s.cube().magnitude": "use abs(cube.complex())",
    "s.cube().nothing": "'Cube' object has no attribute 'nothing'",
    "outcome.path": "use paths.container",
    "outcome.nothing": "'Outcome' object has no attribute 'nothing'",
    "s.image('camera.right')": "has no camera.right; it has camera, lidar.points, radar.cube, radar.targets",
    "s.read('lidar.depth')": "has no lidar.depth; it has camera, lidar.points, radar.cube, radar.targets",
    "d.samples('camera.right')": "unknown sensor 'camera.right'; known: camera, ",
    "(d + e).samples('camera', 'camera.right')": "unknown sensor 'camera.right'; known: camera, ",
    "edgefirst_ros.load(path)": "use edgefirst_ros.Dataset(path)",
    "edgefirst_ros.info(path)": "use the command edgefirst-ros info",
    "edgefirst_ros.__getattr__('fleet')": "use the command edgefirst-ros fleet",
    "edgefirst_ros.version": "use edgefirst_ros.__version__",
    "edgefirst_ros.DatasetError": "use edgefirst_ros.errors.DatasetError",
    "edgefirst_ros.import_(path)": "use edgefirst_ros.restore(source, system, out)",
    "edgefirst_ros.convert(path, 'out', fps=5)": "unknown setting 'fps'; did you mean 'rate'?",
    "edgefirst_ros.convert(path, 'out', sensors='camera')": "expected a list of texts such as [A, B], got 'camera'",
    "edgefirst_ros.split(path, 0.8)": "split: expected a map or text such as train=0.8,val=0.2, got 0.8",
    "edgefirst_ros.split(path, {})": "expected shares such as {'train': 0.8, 'val': 0.2}",
    "edgefirst_ros.split(path, {'train': 80, 'val': 20})": "got 80, 20; set all at once: train=0.8,val=0.2",
}


def test_what_users_guess_does_what_they_mean(parts, folder, tmp_path):
    d, e = parts
    outcome = edgefirst_ros.convert(folder / "monday.mcap", tmp_path, rate=1)
    path, other = d.paths.container, e.paths.container
    frames, rows = pl.read_ipc(d.paths.frames), pl.read_ipc(d.paths.arrow)
    labelled = rows.with_columns(rows["label"].cast(str)).drop_nulls("label")
    counts = dict(labelled["label"].value_counts().iter_rows()) | {n: 0 for n in d.labels if not d.labels[n]}
    s = d.samples(SENSORS, annotated=True).where(pl.col("latitude").is_not_null())[0]
    own, number = labelled.filter(pl.col("frame") == s.frame), s.frame
    row = frames.row(by_predicate=pl.col("frame") == number, named=True)
    known = {**globals(), **locals(), "os": os, "random": random}
    known["frames_of"] = lambda label: labelled.filter(pl.col("label") == label)["frame"].n_unique()
    wrong = {}
    for guess, meaning in GUESSES.items():
        try:
            got, meant = eval(guess, known), eval(meaning, known)
        except Exception as error:  # noqa: BLE001  a guess that is refused
            wrong[guess] = repr(error)
            continue
        if not np.array_equal(got, meant) and got != pytest.approx(meant):
            wrong[guess] = f"{got!r} is not {meant!r}"
    print(f"{len(GUESSES) - len(wrong)} of {len(GUESSES)} guesses do what is meant")
    assert wrong == {}
    assert len(GUESSES) >= 130
    for guess, hint in REFUSED.items():
        with pytest.raises((AttributeError, TypeError, edgefirst_ros.errors.EdgeFirstError), match=re.escape(hint)):
            eval(guess, known)


def test_outlines_of_an_older_version_are_polygons_beside_masks(tmp_path):
    """Expected: the older table's numbers as polars reads them, cut at NaN."""
    recipe = Recipe(seconds=0.5, size=(160, 96), lidar_points=40, cube_shape=(1, 8, 2, 16), host="new")
    new = edgefirst_ros.convert(write_recording(tmp_path / "new.mcap", recipe).path, tmp_path, name="new").paths
    old = edgefirst_ros.convert(
        write_recording(tmp_path / "old.mcap", dataclasses.replace(recipe, host="old")).path,
        tmp_path,
        name="old",
        schema_version="2025.10",
    ).paths
    flat = pl.read_ipc(old.arrow)["mask"].to_list()
    rings = [
        None if row is None else [list(g) for nan, g in itertools.groupby(row, math.isnan) if not nan] for row in flat
    ]
    assert any(ring for ring in rings)
    for both in (Dataset([new.container, old.container]), Dataset(new.container) + Dataset(old.container)):
        for table in (both.to_polars(), both.annotations):
            assert table["mask"].dtype == pl.Binary
            assert table.filter(pl.col("name").str.contains("old"))["polygon"].to_list() == rings
            assert table["mask"].drop_nulls().len() == pl.read_ipc(new.arrow)["mask"].drop_nulls().len()


OUTLINED = {
    "a polygon": pl.col("polygon").is_not_null(),
    "a mask": pl.col("mask").is_not_null(),
    "no mask": pl.col("mask").is_null(),
    "a long mask": pl.col("mask").bin.size() > 10,
    "rings": pl.col("polygon").list.len() > 0,
    "either, north": (pl.col("polygon").is_not_null() | pl.col("mask").is_not_null()) & (pl.col("latitude") > 0),
}


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """One drive in each version of the schema, with masks."""
    folder = tmp_path_factory.mktemp("versions")
    recipe = Recipe(seconds=0.5, size=(160, 96), topics={"camera", "gps", "model/output"})
    found = []
    for version in ("2025.10", "2026.04", "2026.10"):
        drive = write_recording(
            folder / f"{version}.mcap", dataclasses.replace(recipe, host=f"v{version[-2:]}{version[3]}")
        )
        found.append(edgefirst_ros.convert(drive.path, folder / version, schema_version=version).paths.container)
    return found


@pytest.mark.parametrize("order", list(itertools.permutations(range(3), 2)), ids=str)
@pytest.mark.parametrize("asked", OUTLINED)
def test_conditions_on_masks_hold_for_datasets_of_all_versions(versions, order, asked):
    """Expected: the same condition on the joined table."""
    first, second = (Dataset(versions[number]) for number in order)
    for both in (Dataset([first, second]), first + second, first[:10] + second[:10], (first + second)[: len(first)]):
        rows = both.dataset.to_polars().filter(OUTLINED[asked])
        there = set(rows.select("name", "frame").iter_rows())
        found = [(sample.name, sample.frame) for sample in both.where(OUTLINED[asked])]
        assert found == [(sample.name, sample.frame) for sample in both if (sample.name, sample.frame) in there]
    assert there or (asked in ("a polygon", "rings") and 0 not in order)
