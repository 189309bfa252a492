# SPDX-License-Identifier: Apache-2.0
"""Samples as sequences: places, slices, orders, expressions; in other processes; and what they say of themselves."""

import multiprocessing
import pickle
import pydoc
from collections.abc import Sequence

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import edgefirst_ros
from edgefirst_ros.dataset import Dataset
from edgefirst_ros.errors import UsageError

ROWS = [  # frame, label, score
    (3, "car", 0.9),
    (3, "person", 0.25),
    (4, None, None),
    (7, "car", 0.5),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("selection")
    found = made.write(folder, made.good())
    kinds = {"frame": pl.UInt32, "label": pl.Categorical, "box2d_score": pl.Float32}
    rows = pl.DataFrame(ROWS, kinds, orient="row").with_columns(name=pl.lit(made.SEQUENCE))
    table = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    with pa.ipc.new_file(folder / "data.arrow", table.schema.with_metadata({"schema_version": "2026.04"})) as file:
        file.write_table(table)
    return found


@pytest.fixture
def dataset(path):
    return Dataset(path)


def frames(samples):
    return [sample.frame for sample in samples]


def test_a_dataset_is_a_sequence_of_its_samples(dataset):
    assert isinstance(dataset, Sequence)
    assert frames(dataset) == frames(dataset.samples()) == [3, 4, 7]
    assert frames(reversed(dataset)) == [7, 4, 3]
    assert dataset[1] in dataset
    assert dataset.index(dataset[2]) == 2
    with pytest.raises(IndexError):
        dataset[3]


@pytest.mark.parametrize("cut", [slice(1, None), slice(None, None, -1), slice(-1, None), slice(5, 9), slice(0, 3, 2)])
def test_slices_are_those_of_a_list(dataset, cut):
    assert frames(dataset[cut]) == [3, 4, 7][cut]
    assert frames(dataset.samples("lidar")[cut]) == [3, 4, 7][cut]
    assert isinstance(dataset[cut], Sequence)


def test_one_input_is_a_name_and_several_any_collection(dataset):
    assert frames(dataset.samples("radar")) == frames(dataset.samples(["radar.pcd"])) == [3]
    assert frames(dataset.samples(("camera", "radar.cube"))) == [3, 4]


def test_places_of_a_view_are_its_own(dataset):
    seen = dataset.samples(label="car")
    assert (len(seen), seen[1].frame, seen[-2].frame) == (2, 7, 3)
    assert seen[np.int64(1)].frame == 7
    with pytest.raises(IndexError):
        seen[2]


def test_a_shuffle_depends_on_the_seed_alone(path):
    orders = [frames(Dataset(path).samples().shuffle(seed)) for seed in (0, 0, 1, 2, 3, 4)]
    assert orders[0] == orders[1]
    assert all(sorted(order) == [3, 4, 7] for order in orders)
    assert len(set(map(tuple, orders))) > 1
    assert frames(Dataset(path)) == [3, 4, 7]


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        (pl.col("longitude") < 0, [3, 4]),  # of the frames
        (pl.col("frame") > 3, [4, 7]),
        (pl.col("frame") == pl.col("frame").max(), [7]),
        (pl.col("label") == "car", [3, 7]),  # of the annotations
        (pl.col("label").is_null(), [4]),
        ((pl.col("label") == "car") & (pl.col("box2d_score") > 0.6), [3]),
        ((pl.col("label") == "person") & (pl.col("box2d_score") > 0.6), []),  # both of one annotation
        ((pl.col("label") == "car") & pl.col("latitude").is_null(), [7]),  # of both tables
        (pl.col("polygon").is_not_null(), []),  # a column that nobody filled
        (pl.lit(True), [3, 4, 7]),
    ],
)
def test_expressions_choose_samples(dataset, expression, kept):
    assert frames(dataset.samples().where(expression)) == kept
    assert frames(dataset.samples()[::-1].where(expression)) == kept[::-1]


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        (pl.col("latitud") > 0, r"unknown column 'latitud'; known: latitude,"),
        (pl.col("latitude"), "expected one Boolean for each row.*Float64"),
        (pl.col("latitude").is_null().sort().head(2), "2 of type Boolean"),
        (pl.col("latitude") > "north", "cannot be evaluated"),
        ("latitude > 0", "expected an expression"),
    ],
)
def test_expressions_that_choose_nothing_are_refused(dataset, expression, told):
    with pytest.raises(UsageError, match=told):
        dataset.samples().where(expression)


def test_expressions_without_a_table_of_frames(tmp_path):
    path = made.write(tmp_path, made.good())
    (tmp_path / "data.frames.arrow").unlink()
    assert frames(Dataset(path).samples().where(pl.col("label") == "car")) == [3]
    with pytest.raises(UsageError, match="unknown column 'latitude'"):
        Dataset(path).samples().where(pl.col("latitude") > 0)


def total(samples):
    """In another process."""
    return [int(sample.image().sum()) for sample in samples]


def test_views_go_to_spawned_processes(dataset):
    view = dataset.samples("camera").shuffle(1)[1:]
    assert frames(pickle.loads(pickle.dumps(view))) == frames(view)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(total, [view]) == total(view)


def test_every_column_of_the_schema_is_there(path, dataset):
    stored = pl.read_ipc(path.with_name("data.arrow").read_bytes())
    assert dataset.annotation_columns == stored.columns
    full = dataset.annotations
    assert {"polygon", "mask", "box3d", "box2d", "object_id", "group", "timestamp"} < set(full.columns)
    assert full.select(stored.columns).equals(stored)
    assert all(full[name].null_count() == full.height for name in set(full.columns) - set(stored.columns))
    assert full.schema["box2d"] == pl.Array(pl.Float32, 4)
    assert dataset[0].annotations.columns == full.columns


def test_without_annotations_the_columns_are_there(tmp_path):
    path = made.write(tmp_path, made.good())
    (tmp_path / "data.arrow").unlink()
    assert Dataset(path).annotations.height == 0
    assert "label" in Dataset(path)[0].annotations.columns
    assert Dataset(path).annotation_columns == []


def test_arrays_are_writable_and_not_shared(dataset):
    sample = dataset[0]
    for give in (sample.image, sample.lidar, sample.radar, lambda: sample.cube().values, lambda: sample.cube().raw()):
        first = give()
        before = first.copy()
        first.view(np.uint8)[...] = 0
        assert first.flags.writeable
        assert np.array_equal(give(), before)


def test_what_they_say_of_themselves(dataset, path):
    assert repr(dataset) == f"<Dataset {path}: 3 samples>"
    assert repr(dataset.samples("radar")) == f"<1 of the 3 samples of {path}>"
    assert repr(dataset[0]) == (
        f"<Sample {made.SEQUENCE!r} frame 3 of {path}: camera, lidar.points, radar.cube, radar.targets>"
    )
    assert repr(dataset[0].cube()) == (
        "<Cube 2 x 2 x 5 x 3 (sequence, rx, range, doppler), complex, 0.5 m a bin, 0.25 m/s a bin>"
    )


@pytest.mark.parametrize("name", ["lidar.points", "lidar", "lidar.pcd", "lidar_points", "/lidar/points"])
def test_every_name_of_a_sensor_is_accepted(dataset, name):
    sample = dataset[0]
    assert name in sample.inputs
    assert name in sample.skew
    assert (sample.skew[name], sample.skew.get(name)) == (0, 0)
    assert len(dataset.samples(name)) == 3
    assert sample.read(name) == sample.read("lidar.pcd")
    assert sample.decode(name).size == sample.lidar().size == 6
    with pytest.raises(KeyError, match=r"radar\.clusters"):
        sample.skew["radar.clusters"]


def test_dir_and_help_show_what_can_be_asked_for(dataset):
    assert {"convert", "Dataset", "migrate"} <= set(dir(edgefirst_ros))
    assert {"image", "cube", "lidar", "radar", "annotations", "position"} <= set(dir(dataset[0]))
    text = pydoc.plain(pydoc.render_doc(Dataset))
    assert "samples(" in text
    assert "map-style" in text
    assert "print(edgefirst_ros.Settings())" in pydoc.plain(pydoc.render_doc(edgefirst_ros.convert))
    assert "jpeg_quality" in str(edgefirst_ros.Settings())
