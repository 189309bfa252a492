# SPDX-License-Identifier: Apache-2.0
"""Samples by label, group, score and by whether there is anything, and by their place."""

import pickle

import handmade_dataset as made
import polars as pl
import pytest

from edgefirst_ros.dataset import Dataset
from edgefirst_ros.errors import DatasetError, UsageError

ROWS = [  # frame, label, group, score
    (3, "car", "train", 0.9),
    (3, "person", "train", 0.25),
    (4, None, "val", None),
    (7, "car", "val", 0.5),
    (7, "bus", "val", 0.75),
]


@pytest.fixture(params=[pl.Categorical, pl.String, pl.Enum(["car", "person", "bus", "train", "val"])], ids=str)
def dataset(tmp_path, request):
    path = made.write(tmp_path, made.good())
    columns = {"frame": pl.UInt32, "label": request.param, "group": request.param, "box2d_score": pl.Float32}
    pl.DataFrame(ROWS, columns, orient="row").with_columns(name=pl.lit(made.SEQUENCE)).write_ipc(
        tmp_path / "data.arrow"
    )
    return Dataset(path)


@pytest.mark.parametrize(
    ("asked", "frames"),
    [
        ({}, [3, 4, 7]),
        ({"label": "car"}, [3, 7]),
        ({"label": ["person", "bus"]}, [3, 7]),
        ({"label": {"bus"}}, [7]),
        ({"label": []}, []),
        ({"group": "val"}, [4, 7]),
        ({"score": 0.6}, [3, 7]),
        ({"score": 0.9}, [3]),
        ({"score": 0}, [3, 7]),
        ({"label": "car", "score": 0.6}, [3]),  # both of one row
        ({"label": "person", "score": 0.6}, []),
        ({"group": "val", "label": "car"}, [7]),
        ({"annotated": True}, [3, 7]),
        ({"annotated": False}, [4]),
        ({"annotated": False, "group": "train"}, []),
        ({"inputs": {"radar.cube"}, "group": "val"}, [4]),
        ({"inputs": {"depth"}, "label": "car"}, []),
    ],
)
def test_what_is_asked_for(dataset, asked, frames):
    assert [sample.frame for sample in dataset.samples(**asked)] == frames


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_a_score_that_none_can_have_is_refused(dataset, score):
    with pytest.raises(UsageError, match=r"within 0\.\.1"):
        dataset.samples(score=score)


def test_what_no_table_tells_is_not_found(tmp_path):
    path = made.write(tmp_path, made.good())
    (tmp_path / "data.arrow").unlink()
    dataset = Dataset(path)
    assert not list(dataset.samples(score=0.5))
    assert not list(dataset.samples(annotated=True))
    assert [sample.frame for sample in dataset.samples(annotated=False)] == [3, 4, 7]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"label": "Car"}, r"unknown label 'Car'; known: car,"),
        ({"label": ["bus", "tree"]}, "unknown label 'tree'"),
        ({"group": "vall"}, r"unknown group 'vall'; known: val, train$"),
        ({"inputs": "lidra"}, r"'lidra'.*known: lidar\.depth, lidar\.points, .*radar\.targets, "),
        ({"inputs": ["camera", "depht"]}, r"'depht'.*known: depth, lidar\.depth, "),
    ],
)
def test_unknown_names_are_errors_that_list_the_known_ones_near_first(dataset, asked, told):
    with pytest.raises(UsageError, match=told):
        dataset.samples(**asked)


def test_a_dataset_without_labels_and_groups_says_so(tmp_path):
    path = made.write(tmp_path, made.good())
    (tmp_path / "data.arrow").unlink()
    for asked in ({"label": "car"}, {"group": "val"}):
        with pytest.raises(UsageError, match="known: none"):
            Dataset(path).samples(**asked)


def test_places(dataset):
    assert [dataset[n].frame for n in range(len(dataset))] == [3, 4, 7]
    assert [dataset[n].frame for n in (-1, -3)] == [7, 3]
    assert [sample.frame for sample in dataset] == [3, 4, 7]
    assert pickle.loads(pickle.dumps(dataset))[1].read("camera") == dataset[1].read("camera")
    for wrong in (3, -4):
        with pytest.raises(IndexError):
            dataset[wrong]
    with pytest.raises(TypeError):
        dataset["3"]


def test_frame_numbers_that_no_reader_takes_are_an_error(tmp_path):
    path = made.write(tmp_path, made.good())
    rows = pl.DataFrame(
        {"name": [made.SEQUENCE], "frame": [2**63], "label": ["car"]}, schema_overrides={"frame": pl.UInt64}
    )
    rows.write_ipc(tmp_path / "data.arrow")
    with pytest.raises(DatasetError, match=r"data\.arrow: columns name and frame cannot be read: "):
        Dataset(path).samples(label="car")


def test_without_a_table_of_frames_labelled_samples_were_looked_at_and_nothing_repeats(tmp_path):
    path = made.write(tmp_path, made.good())
    (tmp_path / "data.frames.arrow").unlink()
    dataset = Dataset(path)
    assert [sample.frame for sample in dataset.samples(model=True)] == [3]
    assert [sample.frame for sample in dataset.samples(model=False)] == [4, 7]
    assert [sample.frame for sample in dataset.samples(repeats=False)] == [3, 4, 7]
    assert dataset.repeats == {}
