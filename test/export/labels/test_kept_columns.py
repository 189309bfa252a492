# SPDX-License-Identifier: Apache-2.0
"""What `label` keeps of the rows before, what it counts as lost or empty, and labels in the style of LVIS."""

import errno
import json
import os

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from labelled_dataset import OTHER, write
from pycocotools.coco import COCO

from edgefirst_ros import Dataset
from edgefirst_ros.export import export
from edgefirst_ros.export.labels.labelling import label
from edgefirst_ros.sensors.png import encode_gray

FORMS = [("coco", {}), ("yolo", {"single_group": True}), ("yolo", {"single_group": True, "segment": True})]
RING = [0.25, 0.25, 0.5, 0.25, 0.5, 0.5]
CARRIED = ("object_id", "mask", "box2d_score", "timing", "annotator")
"""Columns that at least one of the forms cannot hold."""


def mask(value):
    found = np.zeros(made.SIZE[::-1], bool)
    found[4:8, 8 : 8 + value] = True
    return encode_gray(found)


def everything(extra=()):
    """Rows with all that a model gives: boxes, polygons, masks, scores, timing, and columns of one's own."""
    timing = {"load": 1, "preprocess": None, "inference": 2, "decode": 3}
    rows = [
        {
            "name": (made.SEQUENCE, OTHER)[n % 2],
            "frame": made.FRAMES[n // 2 % 3],
            "label": ("car", "person")[n % 3 == 0],
            "box2d": [0.25 + 0.05 * n, 0.5, 0.2, 0.25],
            "object_id": f"00000000-0000-4000-8000-{n:012d}",
            "box2d_score": n / 16,
            "mask": mask(n + 1) if n % 2 else None,
            "polygon": [RING] if n in (1, 4) else None,
            "timing": timing if n != 3 else None,
            "iscrowd": n == 6,
            "annotator": f"person {n}",
        }
        for n in range(9)
    ]
    rows += [dict.fromkeys(rows[0]) | row for row in extra]
    kinds = {
        "box2d": pl.Array(pl.Float32, 4),
        "box3d": pl.Array(pl.Float32, 6),
        "polygon": pl.List(pl.List(pl.Float32)),
        "box2d_score": pl.Float32,
        "mask": pl.Binary,
    }
    return pl.DataFrame(
        rows, infer_schema_length=None, schema_overrides={k: v for k, v in kinds.items() if k in rows[-1]}
    )


EXTRA = [
    {"name": OTHER, "frame": 4, "mask": mask(9), "annotator": "classes"},
    {"name": OTHER, "frame": 7, "label": "car", "box3d": [1, 2, 3, 4, 5, 6], "object_id": "in space"},
    {"name": OTHER, "frame": 7, "label": "car", "box2d": [1.5, 0.5, 0.1, 0.1], "object_id": "outside"},
    {"name": OTHER, "frame": 7, "label": "car", "box2d": [0.95, 0.5, 0.4, 0.1], "object_id": "cut"},
]


def table(dataset):
    found = pl.read_ipc(dataset.paths.arrow)
    kinds = {name: pl.String for name, kind in found.schema.items() if kind == pl.Categorical}
    return found.cast(kinds).sort("name", "frame", "object_id", "label", nulls_last=True)


@pytest.mark.parametrize(("form", "options"), FORMS)
def test_what_a_dataset_exported_comes_back_without_loss(tmp_path, form, options):
    dataset = write(tmp_path / "data", everything(EXTRA))
    before = table(dataset)
    out = export(dataset, form, tmp_path / form, **options).out
    done = label(dataset, form, out, replace=True)
    assert (done.exit_code, done.lost, done.empty) == (0, {}, 0)
    after = table(dataset)
    assert after.select("name", "frame", "label", "label_index", *CARRIED, "iscrowd").equals(
        before.select("name", "frame", "label", "label_index", *CARRIED, "iscrowd")
    )
    assert after["box3d"].drop_nulls().to_list() == [[1, 2, 3, 4, 5, 6]]
    if not options.get("segment"):
        assert after["polygon"].drop_nulls().to_list() == [[RING]] * 2
    if form == "coco":
        assert after["box2d"].equals(before["box2d"])


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical, pl.Enum(["ann", "bob"]), pl.Boolean, pl.Int16, pl.Date])
def test_columns_of_ones_own_are_in_coco_as_json_has_them(tmp_path, kind):
    """Dates have no form in JSON."""
    values = {pl.Boolean: [True, False], pl.Int16: [-7, 9], pl.Date: [19000, 19001]}.get(kind, ["ann", "bob"])
    dataset = write(tmp_path / "data", everything())
    rows = pl.read_ipc(dataset.paths.arrow)
    own = pl.Series("own", [values[n % 2] for n in range(rows.height)]).cast(kind)
    rows.with_columns(own).write_ipc(tmp_path / "new")
    (tmp_path / "new").replace(dataset.paths.arrow)
    done = export(Dataset(dataset.paths.container), "coco", tmp_path / "coco", pictures="none")
    found = json.loads((done.out / "instances.json").read_text())["annotations"]
    (line,) = (line for line in done.report.lines if line.what == "column own")
    if kind == pl.Date:
        assert not any("own" in one for one in found)
        assert (line.where, line.lost) == ("", "has no place in COCO")
    else:
        names = rows["object_id"].to_list()
        assert [one["own"] for one in found] == [values[names.index(one["object_id"]) % 2] for one in found]
        assert (line.where, line.lost) == ("annotations.own", "")


@pytest.mark.parametrize(("form", "options"), FORMS[:2])
def test_rows_that_no_label_matches_are_lost_by_column(tmp_path, form, options):
    """One box moves a little, one further than half of it, one gets another label, one is deleted."""
    dataset = write(tmp_path / "data", everything())
    before = {row["object_id"]: row for row in table(dataset).to_dicts()}
    out = export(dataset, form, tmp_path / form, pictures="none", **options).out
    if form == "coco":
        file = out / "instances.json"
        found = json.loads(file.read_text())
        by_id = {one["object_id"][-1]: one for one in found["annotations"]}
        by_id["1"]["bbox"][0] += 1  # of 6.4 pixels
        by_id["2"]["bbox"][0] += 4
        by_id["4"]["category_id"] = by_id["3"]["category_id"]
        found["annotations"].remove(by_id["7"])
        for one in found["annotations"]:  # as another tool writes them
            for key in ("object_id", "score", "annotator"):
                del one[key]
        file.write_text(json.dumps(found))
    else:
        names = (out / "data.yaml").read_text().splitlines()
        number = {name.split('"')[1]: name.split(":")[0].strip() for name in names if name.startswith("  ")}
        for path in out.glob("labels/*/*.txt"):
            lines = [line.split() for line in path.read_text().splitlines()]
            for line in lines:
                place = round((float(line[1]) - 0.25) / 0.05)
                line[1] = str(float(line[1]) + {1: 1 / 32, 2: 4 / 32}.get(place, 0))
                line[0] = number["person"] if place == 4 else line[0]
                line[0] = "gone" if place == 7 else line[0]
            path.write_text("".join(" ".join(line) + "\n" for line in lines if line[0] != "gone"))
    done = label(dataset, form, out, replace=True)
    of = {"object_id": 3, "box2d_score": 3, "timing": 3, "annotator": 3, "mask": 1, "polygon": 1, "iscrowd": 3}
    wanted = of if form == "yolo" else {name: n for name, n in of.items() if name not in ("mask", "polygon", "iscrowd")}
    assert done.lost == {f"{name} of replaced annotations that no label matches": n for name, n in wanted.items()}
    assert done.exit_code == 3
    ids = {row["object_id"]: row for row in table(dataset).to_dicts() if row["object_id"]}
    assert {one[-1] for one in ids} == set("013568")
    assert all(row["timing"] == before[one]["timing"] for one, row in ids.items())
    kept = pl.read_ipc(done.before).height
    assert done.before.name == "data.arrow.before-label"
    assert kept == 9


@pytest.mark.parametrize("mode", ["join", "replace"])
def test_the_table_before_stays_and_a_dry_run_changes_nothing(tmp_path, layout, mode):
    dataset = write(tmp_path / "data", everything(), layout)
    out = export(dataset, "coco", tmp_path / "coco", pictures="none").out
    files = {path: path.read_bytes() for path in sorted(dataset.paths.folder.rglob("*")) if path.is_file()}
    changed = dataset.paths.arrow.parent.stat().st_mtime_ns
    dry = label(dataset, "coco", out, **{mode: True}, dry_run=True)
    assert dataset.paths.arrow.parent.stat().st_mtime_ns == changed  # not even for a while: the medium may refuse
    assert {path: path.read_bytes() for path in sorted(dataset.paths.folder.rglob("*")) if path.is_file()} == files
    first = dataset.paths.arrow.read_bytes()
    done = label(dataset, "coco", out, **{mode: True})
    assert (dry.annotations, dry.replaced, dry.kept, dry.before) == (done.annotations, done.replaced, done.kept, None)
    assert done.before == dataset.paths.arrow.with_name("data.arrow.before-label")
    assert done.before.read_bytes() == first
    assert len(Dataset(dataset.paths.container)) == 6


@pytest.mark.parametrize("links", [True, False])
def test_labels_after_labels_keep_every_table_before(tmp_path, layout, links, monkeypatch):
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    dataset = write(tmp_path / "data", everything(), layout)
    arrow = dataset.paths.arrow
    out = export(dataset, "coco", tmp_path / "coco", pictures="none").out
    tables = []
    for number in range(3):
        tables.append(arrow.read_bytes())
        kept = label(dataset, "coco", out, join=True).before
        assert kept.name == f"{arrow.name}.before-label{('', '.2', '.3')[number]}"
        found = [arrow.with_name(f"{arrow.name}.before-label{end}") for end in ("", ".2", ".3")[: number + 1]]
        assert [one.read_bytes() for one in found] == tables
    assert len(set(tables)) == 3
    assert {one.name for one in arrow.parent.iterdir() if ".partial" in one.name} == set()
    found[0].replace(arrow)  # undone
    again = Dataset(dataset.paths.container)
    assert again.annotations.height == 9
    assert label(again, "coco", out, join=True).before == found[0]
    assert found[0].read_bytes() == tables[0]


def test_a_table_whose_import_was_killed_before_its_last_step_is_kept_once(tmp_path, layout):
    dataset = write(tmp_path / "data", everything(), layout)
    out = export(dataset, "coco", tmp_path / "coco", pictures="none").out
    kept = dataset.paths.arrow.with_name("data.arrow.before-label")
    os.link(dataset.paths.arrow, kept)
    before = kept.read_bytes()
    assert label(dataset, "coco", out, join=True).before == kept
    assert kept.read_bytes() == before
    assert [one.name for one in kept.parent.glob("*.before-label*")] == [kept.name]


def refuse(*_):
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("form", ["coco", "yolo", "yolo without a file"])
def test_pictures_without_a_label_are_counted_as_empty(tmp_path, form, skip):
    dataset = write(tmp_path / "data", everything())
    out = export(dataset, form[:4], tmp_path / "out", **({} if form == "coco" else {"single_group": True})).out
    if form == "coco":
        file = out / "instances.json"
        found = json.loads(file.read_text())
        (number,) = (one["id"] for one in found["images"] if one["file_name"].startswith(f"{made.SEQUENCE}_004"))
        found["annotations"] = [one for one in found["annotations"] if one["image_id"] != number]
        file.write_text(json.dumps(found))
    else:
        path = out / f"labels/all/{made.SEQUENCE}_004.txt"
        path.write_text("") if form == "yolo" else path.unlink()
    there = dataset.sample(made.SEQUENCE, 4).annotations.height
    assert there == 2
    done = label(dataset, form[:4], out, replace=True, skip_empty=skip)
    assert done.empty == 1
    assert dataset.sample(made.SEQUENCE, 4).annotations.height == (there if skip else 0)
    assert done.exit_code == (0 if skip else 3)  # with its boxes go their scores


LVIS = {
    "info": {"version": "1.0"},
    "licenses": [{"id": 1}],
    "categories": [
        {"id": 1, "name": "person", "frequency": "f", "def": "a human", "synset": "person.n.01", "synonyms": ["human"],
         "image_count": 7, "instance_count": 9},
        {"id": 3, "name": "car", "frequency": "c", "def": "it has wheels", "image_count": 1, "instance_count": 1},
        {"id": 90, "name": "brush", "frequency": "r", "def": "it paints", "image_count": 1, "instance_count": 1},
        {"id": 1203, "name": "zucchini", "frequency": "r", "def": "green", "image_count": 1, "instance_count": 1},
    ],
    "images": [
        {"id": 5, "file_name": f"{made.SEQUENCE}_003.jpg", "width": 32, "height": 24, "neg_category_ids": [90],
         "not_exhaustive_category_ids": [3], "coco_url": "http://images"},
        {"id": 6, "file_name": f"{made.SEQUENCE}_004.jpg", "width": 32, "height": 24, "neg_category_ids": [1, 3],
         "not_exhaustive_category_ids": []},
        {"id": 7, "file_name": f"{made.SEQUENCE}_007.jpg", "width": 32, "height": 24},
    ],
    "annotations": [
        {"id": 1, "image_id": 5, "category_id": 1, "bbox": [8, 6, 4, 3], "area": 12, "segmentation": []},
        {"id": 2, "image_id": 5, "category_id": 1203, "bbox": [2, 2, 4, 3], "area": 12, "segmentation": []},
        {"id": 3, "image_id": 5, "category_id": 3, "bbox": [1, 2, 4, 3], "area": 12, "keypoints": [1, 2, 2]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("rows", ["none", "others", "joined"])
def test_lvis_is_kept_and_nothing_is_inferred(tmp_path, rows):
    parts = made.good()
    row = parts.annotations[0] | {"label": "sign", "label_index": 40}
    parts.annotations = {
        "none": [], "others": [row | {"frame": 7}], "joined": [row]
    }[rows]  # fmt: skip
    given = {**LVIS, "images": LVIS["images"][: 2 if rows == "others" else 3]}  # then frame 7 keeps its own
    parts.annotation_metadata.pop("labels")
    dataset = Dataset(made.write(tmp_path, parts))
    (tmp_path / "lvis.json").write_text(json.dumps(given))
    done = label(dataset, "coco", tmp_path / "lvis.json", **({} if rows == "none" else {"join": True}))
    assert (done.exit_code, done.lost) == (0, {})
    assert done.empty == len(given["images"]) - 1
    assert done.keys == {
        "annotations.keypoints": 1, "categories.image_count": 4, "categories.instance_count": 4,
        "images.coco_url": 1, "licenses": 1,
    }  # fmt: skip
    found = pl.read_ipc(dataset.paths.arrow).cast({"label": pl.String, "category_frequency": pl.String})
    lists = {
        frame: (neg, loose)
        for frame, neg, loose in found.select("frame", "neg_label_indices", "not_exhaustive_label_indices").rows()
    }
    assert lists == {3: ([90], [3]), 4: ([1, 3], []), 7: (None, None)}
    both = found.filter(pl.col("frame") == 3)["neg_label_indices"].to_list()
    assert both == [[90]] * len(both)
    pairs = found.drop_nulls("label").select("label", "label_index", "category_frequency").rows()
    wanted = [("person", 1, "f"), ("zucchini", 1203, "r"), ("car", 3, "c")]
    assert pairs == (
        wanted
        if rows == "none"
        else [*wanted, ("sign", 40, None)]
        if rows == "others"
        else [("sign", 40, None), *wanted]
    )
    known = dataset.metadata["category_metadata"]
    assert known["person"] == {"id": 1, "synset": "person.n.01", "synonyms": ["human"], "definition": "a human"}
    assert known["brush"] == {"id": 90, "definition": "it paints", "frequency": "r"}  # no row has it

    out = export(dataset, "coco", tmp_path / "again", pictures="none", unlooked=True).out
    again = COCO(str(out / "instances.json"))
    for one in LVIS["categories"]:
        keys = ("name", "frequency", "def")
        assert {key: again.cats[one["id"]][key] for key in keys} == {key: one[key] for key in keys}
    assert not any("category_frequency" in one for one in again.anns.values())  # it is that of the category
    images = {image["frame"]: image for image in again.imgs.values()}
    assert (images[3]["neg_category_ids"], images[3]["not_exhaustive_category_ids"]) == ([90], [3])
    assert (images[4]["neg_category_ids"], images[4]["not_exhaustive_category_ids"]) == ([1, 3], [])
    assert "neg_category_ids" not in images[7]


def test_lists_of_lvis_that_are_none_are_counted(tmp_path):
    parts = made.good()
    parts.annotations, parts.annotation_schema = [], pa.schema([("name", pa.large_string())])
    dataset = Dataset(made.write(tmp_path, parts))
    images = [{**image, "neg_category_ids": bad} for image, bad in zip(LVIS["images"], (3, [-1], ["x"]), strict=True)]
    (tmp_path / "lvis.json").write_text(json.dumps({**LVIS, "images": images}))
    done = label(dataset, "coco", tmp_path / "lvis.json")
    assert done.lost == {"neg_category_ids that is not a list of ids": 3}
    assert done.exit_code == 3
