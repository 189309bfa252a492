# SPDX-License-Identifier: Apache-2.0
"""YOLO by its rules: five numbers or the points of a ring, within 0..1; folders by group; what comes back."""

import handmade_dataset as made
import numpy as np
import polars as pl
import pytest
import yaml
from labelled_dataset import OTHER, boxes, write
from PIL import Image, ImageDraw

from edgefirst_ros.errors import UsageError
from edgefirst_ros.export import export
from edgefirst_ros.export.labels.labelling import label
from edgefirst_ros.export.labels.yolo import join, split_rings
from edgefirst_ros.sensors.png import encode_gray

RING = [0.25, 0.25, 0.75, 0.25, 0.75, 0.5]
HOLE = [0.5, 0.3, 0.6, 0.3, 0.6, 0.4]


def check(folder, count):
    """The rules of ultralytics (verify_image_label, img2label_paths, check_det_dataset), of all pictures."""
    data = yaml.safe_load((folder / "data.yaml").read_text(encoding="utf-8"))
    assert {"train", "val", "names"} <= data.keys()
    assert list(data["names"]) == list(range(len(data["names"])))
    seen = 0
    for group in {data[key] for key in data.keys() - {"names", "label_index"}}:
        for picture in sorted((folder / group).iterdir()):
            path = folder / group.replace("images", "labels") / f"{picture.stem}.txt"
            lines = [line.split() for line in path.read_text().split("\n") if line]
            segments = any(len(line) > 6 for line in lines)
            for line in lines:
                numbers = np.array(line[1:], np.float32)
                assert len(numbers) >= 6 if segments else len(numbers) == 4
                assert numbers.min() >= 0
                assert numbers.max() <= 1
                assert int(line[0]) in data["names"]
            seen += len(lines)
            with Image.open(picture) as opened:
                opened.verify()
    assert seen == count
    return data


def lines_of(folder, sequence, frame):
    (path,) = folder.glob(f"labels/*/{sequence}_{frame:03d}.txt")
    return [line.split() for line in path.read_text().splitlines()]


def test_boxes_are_those_of_the_table(tmp_path, layout):
    dataset = write(tmp_path, boxes(60), layout)
    done = export(dataset, "yolo", tmp_path / "yolo", single_group=True)
    data = check(done.out, 60)
    assert (data["train"], data["val"], data["names"]) == ("images/all", "images/all", {0: "car", 1: "person"})
    for sample in dataset:
        found = lines_of(done.out, *sample.key)
        assert [data["names"][int(line[0])] for line in found] == sample.annotations["label"].cast(str).to_list()
        assert np.array_equal(
            np.array([line[1:] for line in found], np.float32), sample.annotations["box2d"].to_numpy()
        )


def test_folders_are_the_groups(tmp_path):
    rows = boxes(12)
    dataset = write(tmp_path, rows, groups={made.SEQUENCE: "train", OTHER: "val"})
    out = export(dataset, "yolo", tmp_path / "yolo").out
    data = check(out, 12)
    assert (data["train"], data["val"]) == ("images/train", "images/val")
    assert {path.name.rpartition("_")[0] for path in (out / "images" / "val").iterdir()} == {OTHER}


def test_samples_without_a_group_stay_out_and_a_missing_group_is_said(tmp_path):
    dataset = write(tmp_path, boxes(12), groups={made.SEQUENCE: "train", OTHER: None})
    done = export(dataset, "yolo", tmp_path / "yolo", single_group=True)
    data = check(done.out, 6)
    assert (data["train"], data["val"]) == ("images/train", "images/train")
    said = {line.what: line for line in done.report.lines}
    assert said["samples without a group"].number == 3
    assert "no sample is in group val" in said["val of data.yaml"].lost


@pytest.mark.parametrize(
    ("groups", "missing"),
    [({}, "train or val"), ({made.SEQUENCE: "train"}, "val"), ({made.SEQUENCE: "val", OTHER: "test"}, "train")],
)
def test_pictures_without_a_train_and_a_val_group_are_refused(tmp_path, groups, missing):
    dataset = write(tmp_path, boxes(12), groups={made.SEQUENCE: None, OTHER: None, **groups} if groups else None)
    with pytest.raises(UsageError, match=f"in group {missing}.*edgefirst-ros split.*--single-group"):
        export(dataset, "yolo", tmp_path / "yolo")
    assert not (tmp_path / "yolo").exists()
    assert export(dataset, "yolo", tmp_path / "yolo", single_group=True).out.is_dir()


def test_boxes_over_the_edge_are_cut_and_counted(tmp_path):
    """A centre outside makes ultralytics drop the whole picture; a hundredth of a pixel counts."""
    over, by_little = [[-0.1, 0.5, 0.6, 0.2], [0.5, 0.5, 1.5, 0.2], [1.5, 0.5, 0.2, 0.2]], [0.5, 0.5, 1.0005, 0.5]
    rows = boxes(5).with_columns(box2d=pl.Series([*over, [0.9, 0.5, 0.4, 0.5], by_little]))
    done = export(write(tmp_path, rows), "yolo", tmp_path / "yolo", single_group=True)
    check(done.out, 4)
    said = {line.what: line.number for line in done.report.lines if line.number}
    assert said["boxes cut at the edge of the picture"] == 3
    assert said["boxes outside of the picture"] == 1
    (kept,) = lines_of(done.out, OTHER, 4)
    assert kept[1:] == ["0.9", "0.5", "0.4", "0.5"]  # as the table has it: its centre and size are allowed
    (cut,) = lines_of(done.out, made.SEQUENCE, 3)
    assert np.allclose(np.array(cut[1:], float), [0.1, 0.5, 0.2, 0.2], atol=1e-6)


def test_an_outline_outside_of_the_picture_is_counted_once(tmp_path):
    beyond = [2.0, 2.0, 3.0, 2.0, 3.0, 3.0]
    rows = boxes(2).with_columns(polygon=pl.Series([[beyond], [RING]], dtype=pl.List(pl.List(pl.Float32))))
    done = export(write(tmp_path, rows), "yolo", tmp_path / "yolo", single_group=True, segment=True)
    assert {line.what: line.number for line in done.report.lines if "outside" in line.what} == {
        "outlines outside of the picture": 1
    }


def test_crowds_and_rows_without_a_label_or_shape_are_counted(tmp_path):
    rows = boxes(4).with_columns(
        iscrowd=pl.Series([True, None, None, None]),
        label=pl.Series(["car", None, "car", "car"]),
        box2d=pl.Series([[0.5] * 4, [0.5] * 4, None, [0.5] * 4], dtype=pl.List(pl.Float32)),
    )
    done = export(write(tmp_path, rows), "yolo", tmp_path / "yolo", single_group=True)
    check(done.out, 1)
    left = {line.what: line.number for line in done.report.lines if line.lost == "not exported"}
    assert sorted(number for number in left.values()) == [1, 1, 1]


def area(rings):
    """Pixels of a ring as OpenCV and Pillow fill it: even and odd."""
    picture = Image.new("1", (400, 400))
    ImageDraw.Draw(picture).polygon([(x * 400, y * 400) for x, y in zip(rings[::2], rings[1::2], strict=True)], fill=1)
    return np.asarray(picture)


def test_outlines_of_several_rings_are_one_and_come_apart_again():
    apart = [0.1, 0.6, 0.2, 0.6, 0.2, 0.9, 0.1, 0.9]
    for rings in ([RING], [RING, HOLE], [RING, apart], [RING, HOLE, apart]):
        joined = join(rings)
        assert split_rings(joined) == rings
    filled = np.logical_xor.reduce([area(RING), area(HOLE), area(apart)])
    assert (area(join([RING, HOLE, apart])) != filled).mean() < 0.01  # the edges


def test_segments_are_rings_masks_or_rectangles(tmp_path):
    mask = np.zeros(made.SIZE[::-1], bool)
    mask[4:8, 8:24] = True
    rows = boxes(4).with_columns(
        polygon=pl.Series([[RING], [RING, HOLE], None, None], dtype=pl.List(pl.List(pl.Float32))),
        mask=pl.Series([None, None, encode_gray(mask), None]),
    )
    dataset = write(tmp_path, rows)
    done = export(dataset, "yolo", tmp_path / "yolo", segment=True, single_group=True)
    check(done.out, 4)
    (first,) = lines_of(done.out, made.SEQUENCE, 3)
    assert np.array_equal(np.array(first[1:], np.float32), np.array(RING, np.float32))
    (third,) = lines_of(done.out, made.SEQUENCE, 4)
    assert sorted(zip(third[1::2], third[2::2], strict=True)) == sorted(
        (str(x), str(np.float32(y))) for x in (0.25, 0.75) for y in (4 / 24, 8 / 24)
    )
    said = {line.what: line.number for line in done.report.lines if line.number}
    assert said["annotations"] == 4
    assert said["outlines of several rings: joined to one"] == 1
    assert said["boxes without an outline: rectangles"] == 1
    label(dataset, "yolo", done.out / "data.yaml", replace=True)
    rings = {row["name"]: row["polygon"] for row in dataset.annotations.to_dicts() if row["frame"] == 3}
    assert np.allclose(rings[made.SEQUENCE], [RING])
    assert [np.allclose(a, b) for a, b in zip(rings[OTHER], [RING, HOLE], strict=True)] == [True, True]


def test_boxes_come_back_as_they_went(tmp_path, layout):
    dataset = write(tmp_path, boxes(50), layout, groups={made.SEQUENCE: "train", OTHER: "val"})
    before = dataset.annotations
    out = export(dataset, "yolo", tmp_path / "yolo", pictures="none").out
    done = label(dataset, "yolo", out, replace=True)
    assert (done.exit_code, done.annotations, done.replaced, done.kept) == (0, 50, 50, 0)
    kept = ["name", "frame", "label", "label_index", "group", "box2d", "timestamp", "size"]
    assert dataset.annotations.select(kept).equals(before.select(kept))


def test_indices_with_gaps_come_back(tmp_path):
    rows = boxes(4).with_columns(label_index=pl.Series([9, 4, 9, 4]))
    dataset = write(tmp_path, rows)
    out = export(dataset, "yolo", tmp_path / "yolo", single_group=True).out
    assert check(out, 4)["label_index"] == [4, 9]
    label(dataset, "yolo", out, replace=True)
    assert dict(
        dataset.annotations.select("label", "label_index").drop_nulls().unique().cast({"label": str}).rows()
    ) == {
        "car": 9,
        "person": 4,
    }


@pytest.mark.parametrize("names", [["car", "person"], {0: "car", 1: "person"}])
def test_the_layout_of_other_tools_is_read(tmp_path, names):
    """train/labels beside train/images, scores behind, names as a list, files without a match."""
    folder = tmp_path / "theirs" / "train" / "labels"
    folder.mkdir(parents=True)
    (tmp_path / "theirs" / "data.yaml").write_text(yaml.safe_dump({"train": "train/images", "names": names}))
    (folder / f"{made.SEQUENCE}_003.txt").write_text("1 0.5 0.5 0.25 0.125 0.75\r\n\n0 .1 .1 .1 .1\n0 .2 .1 .1 .1 1.5")
    (folder / "holiday.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    dataset = write(tmp_path / "data", boxes(0))
    done = label(dataset, "yolo", tmp_path / "theirs")
    assert (done.exit_code, done.annotations, done.unmatched) == (3, 3, ["holiday"])
    assert done.lost == {"annotations of pictures that are not samples": 1, "score outside 0..1": 1}
    found = dataset.annotations.drop_nulls("label")
    assert found.select("label", "label_index", "box2d_score").rows() == [
        ("person", 1, 0.75), ("car", 0, None), ("car", 0, None)
    ]  # fmt: skip
