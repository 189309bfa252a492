# SPDX-License-Identifier: Apache-2.0
"""COCO read by pycocotools and the vendor's client; boxes as the tables' float32; labels that come back."""

import json
import subprocess
import sys
from pathlib import Path

import handmade_dataset as made
import numpy as np
import polars as pl
import pytest
from labelled_dataset import HOSTILE, OTHER, boxes, write

from edgefirst_ros import Dataset
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export import export
from edgefirst_ros.export.labels.coco import decode_runs, encode_runs, unpack_runs
from edgefirst_ros.export.labels.labelling import label
from edgefirst_ros.sensors.png import decode_gray, encode_gray

coco_tools = pytest.importorskip("pycocotools.coco", reason="pycocotools is not installed")
from pycocotools import mask as official  # noqa: E402

WIDTH, HEIGHT = made.SIZE
RING = [0.25, 0.25, 0.75, 0.25, 0.75, 0.5]


def opened(path, capsys):
    found = coco_tools.COCO(str(path))
    capsys.readouterr()
    return found


def disc():
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return (x - 16) ** 2 + (y - 12) ** 2 < 60


def test_boxes_are_those_of_the_table(tmp_path, layout, capsys):
    dataset = write(tmp_path, boxes(60), layout)
    done = export(dataset, "coco", tmp_path / "coco")
    tool = opened(done.out / "instances.json", capsys)
    assert (len(tool.imgs), len(tool.anns)) == (6, 60)
    for image in tool.imgs.values():
        rows = dataset.sample(image["sequence"], image["frame"]).annotations
        assert image["file_name"] == f"{image['sequence']}_{image['frame']:03d}.jpeg"
        assert (done.out / "images" / image["file_name"]).read_bytes() == made.jpeg(image["frame"])
        own = tool.loadAnns(tool.getAnnIds(imgIds=[image["id"]]))
        assert [tool.cats[one["category_id"]]["name"] for one in own] == rows["label"].cast(str).to_list()
        x, y, w, h = np.array([one["bbox"] for one in own]).T
        again = np.stack([(x + w / 2) / WIDTH, (y + h / 2) / HEIGHT, w / WIDTH, h / HEIGHT], 1).astype(np.float32)
        assert np.array_equal(again, rows["box2d"].to_numpy())
        assert [one["object_id"] for one in own] == rows["object_id"].to_list()
        assert np.array_equal(np.array([one["score"] for one in own], np.float32), rows["box2d_score"].to_numpy())


def test_rings_and_masks_are_the_same_pixels(tmp_path, capsys):
    rows = boxes(3).with_columns(
        polygon=pl.Series([[RING, [0.0, 0.5, 0.5, 0.0, 0.0, 0.0]], None, None], dtype=pl.List(pl.List(pl.Float32))),
        mask=pl.Series([None, encode_gray(disc()), encode_gray(~disc())]),
    )
    dataset = write(tmp_path, rows)
    tool = opened(export(dataset, "coco", tmp_path / "coco").out / "instances.json", capsys)
    by_id = {one["object_id"]: one for one in tool.anns.values()}
    polygon, first, second = (by_id[one] for one in rows["object_id"])
    assert np.array_equal(tool.annToMask(first).astype(bool), disc())
    assert np.array_equal(tool.annToMask(second).astype(bool), ~disc())
    assert first["area"] == disc().sum()
    assert polygon["area"] == pytest.approx(16 * 6 / 2 + 16 * 12 / 2)  # the rings turn opposite ways
    assert polygon["segmentation"][0] == [v * (HEIGHT if n % 2 else WIDTH) for n, v in enumerate(RING)]
    assert abs(int(tool.annToMask(polygon).sum()) - polygon["area"]) < 12  # an edge of pixels


@pytest.mark.parametrize(("form", "options"), [("coco", {}), ("yolo", {"segment": True, "single_group": True})])
@pytest.mark.parametrize(("kind", "half"), [(np.uint8, 127), (np.uint16, 32767)])
def test_masks_of_scores_that_become_pixels_or_outlines_lose_them(tmp_path, form, options, kind, half):
    """A mask of none and full loses nothing, and one beside a polygon is not used."""
    full = disc() * np.iinfo(kind).max
    scored = np.where(disc(), full - 9, 9).astype(kind)
    rows = boxes(3).with_columns(
        polygon=pl.Series([[RING], None, None], dtype=pl.List(pl.List(pl.Float32))),
        mask=pl.Series([encode_gray(scored), encode_gray(full.astype(kind)), encode_gray(scored)]),
    )
    done = export(write(tmp_path, rows), form, tmp_path / form, **options)
    said = {line.what: line.number for line in done.report.lines if "scores of its pixels" in line.what}
    assert said == {f"mask: scores of its pixels, object is above {half}, half of the range": 1}


@pytest.mark.parametrize("seed", range(4))
def test_runs_are_those_of_pycocotools(seed):
    random = np.random.default_rng(seed)
    mask = random.random((random.integers(1, 40), random.integers(1, 40))) < random.random()
    packed = official.encode(np.asfortranarray(mask.astype(np.uint8)))
    size = mask.shape[::-1]
    assert unpack_runs(packed["counts"].decode()) == encode_runs(mask)
    assert np.array_equal(decode_runs(encode_runs(mask), size), mask)
    again = official.frPyObjects({"size": list(mask.shape), "counts": encode_runs(mask)}, *mask.shape)
    assert again["counts"] == packed["counts"]


@pytest.mark.parametrize("text", ["\x00", "~", "o", "ooooooooooooooooo0", "@", "0@", "é"])
def test_packed_runs_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="run"):
        decode_runs(unpack_runs(text), (4, 4))


@pytest.mark.parametrize("runs", [[[1, 2]], [1.5], [-1, 2], ["3"]])
def test_runs_that_are_no_lengths_are_refused(runs):
    with pytest.raises(ValueError, match="runs are not a list of lengths"):
        decode_runs(runs, (1, 1))


def test_labels_come_back_as_they_went(tmp_path, layout):
    """A round trip: every column that COCO has a key for; the container is not touched."""
    rows = boxes(40).with_columns(
        mask=pl.Series([encode_gray(disc()) if n % 5 == 0 else None for n in range(40)]),
        iscrowd=pl.Series([True if n % 7 == 0 else None for n in range(40)]),
        weather=pl.Series(["rain" if n % 2 else None for n in range(40)]),
        minutes=pl.Series([n / 4 for n in range(40)]),
    )
    dataset = write(tmp_path, rows, layout, groups={made.SEQUENCE: "train", OTHER: "val"})
    before, members = dataset.annotations, {name: dataset.container.read(name) for name in dataset.container.names}
    out = export(dataset, "coco", tmp_path / "coco", pictures="none").out
    assert not (out / "images").exists()
    wrong = before.filter(pl.col("frame") == 3).with_columns(label=pl.lit("wrong", pl.Categorical))
    dataset.write_annotations(wrong.drop("label_index"))
    done = label(dataset, "coco", out, replace=True)
    assert (done.exit_code, done.annotations, done.pictures, done.kept) == (0, 40, 6, 0)
    after = dataset.annotations
    assert after.drop("mask").equals(before.drop("mask"), null_equal=True)
    for old, new in zip(before["mask"], after["mask"], strict=True):
        assert (old is None) == (new is None)
        assert old is None or np.array_equal(decode_gray(old), decode_gray(new))
    assert {name: Dataset(dataset.paths.arrow).container.read(name) for name in members} == members


@pytest.mark.parametrize("form", ["coco", "yolo"])
def test_hostile_names_of_labels_go_out_and_come_back(tmp_path, form, capsys):
    dataset = write(tmp_path, boxes(2 * len(HOSTILE), names=HOSTILE))
    before = dataset.annotations
    assert set(before["label"].cast(str)) == set(HOSTILE)
    single = {"single_group": True} if form == "yolo" else {}
    out = export(dataset, form, tmp_path / form, pictures="none", **single).out
    if form == "coco":
        assert {one["name"] for one in opened(out / "instances.json", capsys).cats.values()} == set(HOSTILE)
    label(dataset, form, out, replace=True)
    after = dataset.annotations
    assert after["label"].cast(str).to_list() == before["label"].cast(str).to_list()
    assert after["box2d"].equals(before["box2d"])
    assert set(dataset.metadata["category_metadata"]) == set(HOSTILE)


def test_a_frequency_is_said_of_its_category_or_of_rows_that_disagree(tmp_path, capsys):
    """Rows of cars agree, those of persons do not."""
    rows = boxes(4).with_columns(category_frequency=pl.Series(["f", "r", "f", "c"]))
    tool = opened(export(write(tmp_path, rows), "coco", tmp_path / "coco").out / "instances.json", capsys)
    assert {one["name"]: one.get("frequency") for one in tool.cats.values()} == {"car": "f", "person": None}
    found = {(tool.cats[one["category_id"]]["name"], one.get("category_frequency")) for one in tool.anns.values()}
    assert found == {("car", None), ("person", "r"), ("person", "c")}
    assert all("score" in one for one in tool.anns.values())


def test_categories_keep_their_ids(tmp_path, capsys):
    """Those of COCO itself have gaps."""
    labels = {
        "images": [{"id": 7, "file_name": f"sub/{made.SEQUENCE}_003.jpg", "width": 32, "height": 24}],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 90, "bbox": [1, 2, 3, 4], "iscrowd": 0}],
        "categories": [{"id": 90, "name": "brush", "supercategory": "indoor"}, {"id": 3, "name": "car"}],
    }
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    dataset = write(tmp_path / "data", boxes(0))
    assert label(dataset, "coco", tmp_path / "labels.json").annotations == 1
    assert dataset.annotations.select("label", "label_index").drop_nulls().rows() == [("brush", 90)]
    out = export(dataset, "coco", tmp_path / "again").out
    tool = opened(out / "instances.json", capsys)
    assert {one["id"]: (one["name"], one["supercategory"]) for one in tool.cats.values()} == {
        3: ("car", "car"),
        90: ("brush", "indoor"),
    }


def test_what_the_model_never_looked_at_is_no_background(tmp_path, capsys):
    """Looked and seen, looked and nothing seen, never looked; and labelled by hand as empty."""
    rows = boxes(1)
    dataset = write(tmp_path / "a", rows, looked=[3, 4])
    done = export(dataset, "coco", tmp_path / "coco")
    images = opened(done.out / "instances.json", capsys).imgs.values()
    assert [(one["sequence"], one["frame"]) for one in images] == [(made.SEQUENCE, 3), (made.SEQUENCE, 4)]
    (left,) = (line for line in done.report.lines if "model skipped" in line.what)
    assert (left.number, left.where) == (4, "")
    assert (
        len(opened(export(dataset, "coco", tmp_path / "all", unlooked=True).out / "instances.json", capsys).imgs) == 6
    )
    with pytest.raises(DatasetError, match=r"no labels and no result of the model in 6 pictures; --unlooked"):
        export(write(tmp_path / "b", boxes(0)), "coco", tmp_path / "none")


def test_samples_that_are_labelled_as_empty_are_background(tmp_path, capsys):
    labels = {
        "images": [{"id": n, "file_name": f"{made.SEQUENCE}_00{n}.jpeg"} for n in (3, 4)],
        "annotations": [{"id": 1, "image_id": 3, "category_id": 1, "bbox": [1, 2, 3, 4]}],
        "categories": [{"id": 1, "name": "car"}],
    }
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    dataset = write(tmp_path / "data", boxes(0))
    label(dataset, "coco", tmp_path / "labels.json")
    tool = opened(export(dataset, "coco", tmp_path / "out").out / "instances.json", capsys)
    assert [(one["frame"], one.get("neg_category_ids")) for one in tool.imgs.values()] == [(3, None), (4, [1])]


def test_by_group_each_has_a_file(tmp_path, capsys):
    dataset = write(tmp_path, boxes(12), groups={made.SEQUENCE: "train", OTHER: "val"})
    out = export(dataset, "coco", tmp_path / "coco", by_group=True).out
    names = {path.name for path in out.glob("*.json")} - {"export-report.json"}
    assert names == {"instances_train.json", "instances_val.json"}
    for group, sequence in (("train", made.SEQUENCE), ("val", OTHER)):
        tool = opened(out / f"instances_{group}.json", capsys)
        assert {one["sequence"] for one in tool.imgs.values()} == {sequence}
        assert {one["group"] for one in tool.imgs.values()} == {group}
        assert len(tool.anns) == 6
    assert label(dataset, "coco", out, replace=True).annotations == 12


def test_the_vendors_client_reads_it(tmp_path):
    """Boxes and ids are the same in its table; why it is not used to write is in the docs."""
    client = Path(sys.executable).with_name("edgefirst-client")
    if not client.exists():
        pytest.skip("edgefirst-client is not installed")
    dataset = write(tmp_path, boxes(30))
    out = export(dataset, "coco", tmp_path / "coco").out
    run = [client, "coco-to-arrow", out / "instances.json", "-o", tmp_path / "theirs.arrow"]
    subprocess.run(run, check=True, capture_output=True)
    theirs = pl.read_ipc((tmp_path / "theirs.arrow").read_bytes())
    assert theirs.height == 30
    ours = dataset.annotations
    names = [f"{name}_{frame:03d}" for name, frame in ours.select("name", "frame").rows()]
    boxed = {(name, tuple(np.round(box, 5))) for name, box in zip(names, ours["box2d"].to_list(), strict=True)}
    assert {(row["name"], tuple(np.round(row["box2d"], 5))) for row in theirs.to_dicts()} == boxed
    assert set(theirs["label_index"]) == set(ours["label_index"])


def test_pictures_are_copied_linked_or_left(tmp_path, layout):
    dataset = write(tmp_path, boxes(2), layout)
    if layout == "zip":
        with pytest.raises(UsageError, match="is a ZIP"):
            export(dataset, "coco", tmp_path / "links", pictures="link")
        return
    out = export(dataset, "coco", tmp_path / "links", pictures="link").out
    (picture,) = (path for path in (out / "images").iterdir() if made.SEQUENCE in path.name)
    assert picture.is_symlink()
    assert picture.read_bytes() == made.jpeg(3)
    with pytest.raises(UsageError, match=r"--pictures: expected copy, link, none, got 'move'"):
        export(dataset, "coco", tmp_path / "none", pictures="move")
