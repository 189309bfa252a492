# SPDX-License-Identifier: Apache-2.0
"""Labels that cannot be taken: no number of pixels is taken for a share of a picture, no loss for an empty picture."""

import json

import handmade_dataset as made
import polars as pl
import pytest
from labelled_dataset import OTHER, boxes, write

from edgefirst_ros import Dataset
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export
from edgefirst_ros.export.labels.labelling import label

BOX = [8, 6, 4, 3]
UNKNOWN = "annotations in pixels of pictures of unknown size"


def coco(path, images, annotations):
    """Labels of pictures by number; an annotation is (number, box, further keys)."""
    content = {
        "images": [{"id": number, **keys} for number, keys in images.items()],
        "annotations": [{"image_id": n, "category_id": 0, "bbox": box, **keys} for n, box, keys in annotations],
        "categories": [{"id": 0, "name": "car"}],
    }
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def unsized(tmp_path):
    """A dataset of which no table states a size, and of whose frame 4 there is no picture."""
    parts = made.good()
    for row in (*parts.annotations, *parts.frames):
        row["size"] = None
    del parts.members[made.name_of(4, "camera.jpeg")]
    return Dataset(made.write(tmp_path / "data", parts))


def boxes_of(dataset):
    """Boxes by frame."""
    rows = dataset.annotations.drop_nulls("box2d")
    return {frame: list(box) for frame, box in rows.select("frame", "box2d").iter_rows()}


def file_name(frame):
    return {"file_name": f"{made.SEQUENCE}_{frame:03d}.jpeg"}


def test_pixels_of_a_picture_of_unknown_size_are_lost(tmp_path, unsized):
    """That of frame 7 is asked itself: 32 x 24."""
    file = coco(tmp_path / "a.json", {1: file_name(4), 2: file_name(7)}, [(1, BOX, {}), (1, BOX, {}), (2, BOX, {})])
    done = label(unsized, "coco", file, replace=True, renumber=True)
    assert (done.exit_code, done.lost, done.annotations) == (3, {UNKNOWN: 2}, 1)
    found = boxes_of(unsized)
    assert 4 not in found
    assert found[7] == [(8 + 2) / 32, (6 + 1.5) / 24, 4 / 32, 3 / 24]


def test_pixels_count_in_the_size_that_the_labels_state(tmp_path, unsized):
    """A mask has to have that of the dataset's picture, of which there is none."""
    mask = {"segmentation": {"size": [60, 80], "counts": [4800]}}
    file = coco(tmp_path / "a.json", {1: {**file_name(4), "width": 80, "height": 60}}, [(1, BOX, mask)])
    done = label(unsized, "coco", file, replace=True, renumber=True)
    assert done.lost == {"masks of another size than the picture": 1}
    assert boxes_of(unsized)[4] == pytest.approx([10 / 80, 7.5 / 60, 4 / 80, 3 / 60], rel=1e-6)


def yolo(folder, lines):
    """Labels by sequence and frame."""
    (folder / "labels").mkdir(parents=True)
    (folder / "data.yaml").write_text("names: [car]\n")
    for (sequence, frame), text in lines.items():
        (folder / "labels" / f"{sequence}_{frame:03d}.txt").write_text(text)
    return folder


def negatives(dataset):
    """Frames in which labels are known to be absent."""
    return dataset.annotations.filter(pl.col("neg_label_indices").is_not_null())["frame"].to_list()


@pytest.mark.parametrize("form", ["coco", "yolo"])
def test_a_picture_whose_annotations_are_lost_is_not_known_to_be_empty(tmp_path, form):
    dataset = write(tmp_path / "data", boxes(0))
    if form == "coco":
        images = {n: {"file_name": f"{OTHER}_{n:03d}.jpeg", "width": 32, "height": 24} for n in made.FRAMES}
        labels = coco(tmp_path / "a.json", images, [(3, BOX, {}), (4, [1, 2, -3, 4], {})])
    else:
        texts = {3: "0 0.5 0.5 0.25 0.25\n", 4: "0 0.5 0.5 -0.25 0.25\n", 7: ""}
        labels = yolo(tmp_path / "yolo", {(OTHER, frame): text for frame, text in texts.items()})
    done = label(dataset, form, labels)
    assert (done.exit_code, done.pictures, done.annotations) == (3, 3, 1)
    assert negatives(dataset) == [7]


def test_pictures_that_are_known_to_be_empty_are_rows_in_their_order(tmp_path):
    """Of two sequences with three pictures each no label is given."""
    dataset = write(tmp_path / "data", boxes(0))
    names = [f"{sequence}_{frame:03d}.jpeg" for sequence in (OTHER, made.SEQUENCE) for frame in reversed(made.FRAMES)]
    label(dataset, "coco", coco(tmp_path / "a.json", {n: {"file_name": name} for n, name in enumerate(names)}, []))
    found = pl.read_ipc(dataset.paths.arrow).filter(pl.col("neg_label_indices").is_not_null())
    assert found.select("name", "frame").rows() == [
        (sequence, frame) for sequence in (made.SEQUENCE, OTHER) for frame in made.FRAMES
    ]


def test_a_mask_that_is_no_picture_stays_where_labels_replace_others(tmp_path):
    """It cannot have been among the labels that were given out, so that it is not missing among those that come."""
    parts = made.good()
    kept = {
        "label": "car",
        "mask": b"\x89PNG\r\n\x1a\n" + b"no picture",
        "box2d": None,
        "box2d_score": None,
        "polygon": None,
    }
    parts.annotations[0] |= kept
    frame = parts.annotations[0]["frame"]
    dataset = Dataset(made.write(tmp_path / "data", parts))
    label(
        dataset, "coco", coco(tmp_path / "a.json", {1: file_name(frame)}, [(1, BOX, {})]), replace=True, renumber=True
    )
    rows = Dataset(dataset.paths.container).annotations.filter(pl.col("frame") == frame)
    assert rows.filter(pl.col("box2d").is_null())["mask"].to_list() == [kept["mask"]]
    assert rows["box2d"].drop_nulls().len() == 1


def test_a_sequence_whose_name_leads_elsewhere_names_no_picture(tmp_path):
    """A drive letter, in a ZIP of another tool."""
    parts = made.good()
    parts.members = {name.replace(made.SEQUENCE, "C:x"): data for name, data in parts.members.items()}
    for row in (*parts.annotations, *parts.frames):
        row["name"] = "C:x"
    dataset = Dataset(made.write(tmp_path, parts))
    with pytest.raises(
        DatasetError, match=r"data\.zip: name 'C:x_003\.jpeg' leads out of the folder.*cannot be called so"
    ):
        export(dataset, "coco", tmp_path / "coco")
    assert not (tmp_path / "coco").exists()
