# SPDX-License-Identifier: Apache-2.0
"""Against the vendor's client: its files are read here, files from here are read there, COCO comes back as it went."""

import io
import json
import subprocess
import sys
from pathlib import Path

import edgefirst_client
import numpy as np
import pytest
from annotation_tables import rows_of, store, table
from handmade_dataset import good, write
from PIL import Image

from edgefirst_ros import migrate
from edgefirst_ros.dataset.tables.forms import read_annotations

CLIENT = f"{sys.prefix}/bin/edgefirst-client"
RLE = {"counts": [0, 5, 75, 5, 7915], "size": [80, 100]}  # columns first: five pixels of the first two columns
COCO = {
    "images": [
        {
            "id": 7,
            "width": 100,
            "height": 80,
            "file_name": "a.jpg",
            "neg_category_ids": [5],
            "not_exhaustive_category_ids": [3],
        },
        {"id": 9, "width": 64, "height": 32, "file_name": "b.jpg"},
        {
            "id": 11,
            "width": 64,
            "height": 48,
            "file_name": "c.jpg",
            "neg_category_ids": [1],
            "not_exhaustive_category_ids": [],
        },
    ],
    "categories": [
        {
            "id": 1,
            "name": "person",
            "supercategory": "human",
            "frequency": "f",
            "synset": "p.n.01",
            "synonyms": ["p"],
            "def": "d",
        },
        {"id": 3, "name": "car", "supercategory": "vehicle", "frequency": "c"},
        {"id": 5, "name": "dog", "supercategory": "animal", "frequency": "r"},
    ],
    "annotations": [
        {
            "id": 1,
            "image_id": 7,
            "category_id": 1,
            "bbox": [25, 20, 50, 40],
            "area": 2000,
            "iscrowd": 0,
            "segmentation": [[25, 20, 75, 20, 75, 60, 25, 60]],
        },
        {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 2, 5], "area": 10, "iscrowd": 1, "segmentation": RLE},
        {
            "id": 3,
            "image_id": 9,
            "category_id": 1,
            "bbox": [1, 2, 4, 4],
            "area": 16,
            "iscrowd": 0,
            "segmentation": [[1, 2, 5, 2, 5, 6], [1, 2, 3, 2, 3, 4]],
        },
    ],
}


def run(*words):
    return subprocess.run([CLIENT, *map(str, words)], capture_output=True, text=True, check=True)


@pytest.fixture(scope="module", params=[".arrow", ".parquet"])
def golden(request, tmp_path_factory):
    """What the client makes of COCO."""
    folder = tmp_path_factory.mktemp("golden")
    (folder / "coco.json").write_text(json.dumps(COCO))
    run("coco-to-arrow", folder / "coco.json", "-o", folder / f"golden{request.param}", "--group", "val")
    return folder / f"golden{request.param}"


def picture(rle):
    values = np.repeat(np.arange(len(rle["counts"])) % 2, rle["counts"])
    return values.reshape(rle["size"], order="F").astype(bool)


def test_golden_coco(golden):
    annotations = read_annotations(golden)
    assert annotations.version == "2026.10"
    assert annotations.metadata["labels"] == '["person","car","dog"]'
    first, second, third, last = rows_of(golden)
    assert annotations.tally.lost == {}
    assert [row["label_index"] for row in (first, second, third, last)] == [1, 3, 1, None]
    assert [row["label"] for row in (first, second, third, last)] == ["person", "car", "person", None]
    assert [(row["iscrowd"], row["ignore"]) for row in (first, second, last)] == [
        (False, False),
        (True, True),
        (None, None),
    ]
    assert first["box2d"] == [0.5, 0.5, 0.5, 0.5]
    assert first["polygon"] == [[0.25, 0.25, 0.75, 0.25, 0.75, 0.75, 0.25, 0.75]]
    assert third["polygon"] == [
        [v / (64, 32)[n % 2] for n, v in enumerate(r)] for r in COCO["annotations"][2]["segmentation"]
    ]
    assert (np.asarray(Image.open(io.BytesIO(second["mask"]))) == picture(RLE)).all()
    assert [row["category_frequency"] for row in (first, second)] == ["f", "c"]
    assert (first["neg_label_indices"], first["not_exhaustive_label_indices"]) == ([5], [3])
    assert (last["neg_label_indices"], last["not_exhaustive_label_indices"]) == ([1], [])
    assert (third["size"], first["group"], last["name"]) == ([64, 32], "val", "c")


def essence(coco):
    """What must come back; the client numbers images anew and takes areas from boxes."""
    names = {image["id"]: image["file_name"].removesuffix(".jpg") for image in coco["images"]}
    lists = ("width", "height", "neg_category_ids", "not_exhaustive_category_ids")
    return {
        "images": {names[image["id"]]: [image.get(key) for key in lists] for image in coco["images"]},
        "categories": sorted(coco["categories"], key=lambda category: category["id"]),
        "annotations": [
            [names[a["image_id"]], a["category_id"], a["iscrowd"], rounded(a["bbox"]), rounded(a["segmentation"])]
            for a in coco["annotations"]
        ],
    }


def rounded(value):
    """The client reckons in single precision."""
    if isinstance(value, dict):
        return value
    return [rounded(v) if isinstance(v, list) else round(v, 4) for v in value]


@pytest.mark.parametrize("version", ["2026.04", "2026.10"])
@pytest.mark.parametrize("way", [[".arrow"], [".parquet"], [".json", ".arrow"], [".parquet", ".json", ".parquet"]])
def test_coco_comes_back(golden, tmp_path, version, way):
    path = golden
    for number, suffix in enumerate(way):
        report = migrate(path, tmp_path / f"{number}{suffix}", version)
        assert report.lost == {}
        path = report.out
    assert edgefirst_client.read_dataset_metadata(str(path)).schema_version == version
    assert edgefirst_client.arrow_to_coco(str(path), str(tmp_path / "back.json")) == 3
    assert essence(json.loads((tmp_path / "back.json").read_text())) == essence(COCO)


def test_golden_visdrone(tmp_path):
    """With the columns that the client adds: carried through every form and version."""
    split = tmp_path / "VisDrone2019-DET-val"
    for folder in ("annotations", "images"):
        (split / folder).mkdir(parents=True)
    Image.new("RGB", (100, 80)).save(split / "images" / "0001.jpg")
    boxes = "25,20,50,40,1,4,0,1\n0,0,25,20,0,0,0,0\n50,40,25,20,0,11,1,2\n"  # left, top, w, h, score, category, ...
    (split / "annotations" / "0001.txt").write_text(boxes)
    for suffix in (".arrow", ".parquet"):
        path = tmp_path / f"golden{suffix}"
        run("visdrone-to-arrow", split, "-o", path, "--keep-ignored")
        for number, (version, form) in enumerate(
            [("2026.04", ".json"), ("2025.10", ".parquet"), ("2026.10", ".arrow")]
        ):
            path = migrate(path, tmp_path / f"{number}{form}", version, overwrite=True).out
        rows = rows_of(path)
        assert [row["box2d"] for row in rows] == [
            [0.5, 0.5, 0.5, 0.5],
            [0.125] * 2 + [0.25] * 2,
            [0.625] * 2 + [0.25] * 2,
        ]
        assert [(row["label"], row["label_index"], row["group"]) for row in rows] == [
            ("car", 3, "val"),
            (None, None, "val"),
            (None, None, "val"),
        ]
        assert [row["ignore"] for row in rows] == [None, True, None]
        assert [(row["exclude"], row["truncation"], row["occlusion"]) for row in rows] == [
            (None, 0, 1),
            (None, 0, 0),
            (True, 1, 2),
        ]


def made(tmp_path, rows, version):
    start = store(tmp_path / "start.arrow", table(rows))
    return migrate(start, tmp_path / "ours.arrow", version, normalised=True).out


@pytest.mark.parametrize("version", ["2026.04", "2026.10"])
def test_ours_as_coco(tmp_path, version):
    out = io.BytesIO()
    Image.fromarray(picture(RLE)).save(out, "PNG")
    common = {"label": "car", "label_index": 3, "size": [100, 80], "iscrowd": None}
    rows = [
        {"name": "a", **common, "box2d": [0.5, 0.5, 0.5, 0.25], "box2d_score": 0.75, "mask": out.getvalue()},
        {"name": "b", **common, "box2d": [0.125, 0.25, 0.25, 0.5], "box2d_score": 0.25, "mask": None},
    ]
    path = made(tmp_path, rows, version)
    edgefirst_client.arrow_to_coco(str(path), str(tmp_path / "coco.json"))
    coco = json.loads((tmp_path / "coco.json").read_text())
    assert [a["bbox"] for a in coco["annotations"]] == [[25, 30, 50, 20], [0, 0, 25, 40]]
    assert [a["category_id"] for a in coco["annotations"]] == [3, 3]
    assert coco["annotations"][0]["segmentation"] == RLE
    assert [a.get("score") for a in coco["annotations"]] == [0.75, 0.25]


@pytest.mark.parametrize("version", ["2025.10", "2026.04", "2026.10"])
def test_snapshot_with_migrated_annotations(tmp_path, version):
    folder = write(tmp_path, good(), "directory")
    arrow = Path(folder) / "data.arrow"
    migrate(arrow, arrow, version, overwrite=True)
    assert "not found" not in (said := run("validate-snapshot", folder).stdout)
    assert "valid" in said.lower()


def test_what_the_client_migrates_we_migrate_alike(tmp_path):
    ring = [0.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    rows = [{"name": "a", "label": "x", "polygon": [ring, ring]}, {"name": "b", "label": None, "polygon": None}]
    older = made(tmp_path, rows, "2025.10")
    run("migrate", older, "--output", tmp_path / "theirs.arrow")
    ours = migrate(older, tmp_path / "again.arrow", "2026.10").out
    assert [row["polygon"] for row in rows_of(ours)] == [[ring, ring], None]
    theirs = rows_of(tmp_path / "theirs.arrow")
    assert [{key: row[key] for key in rows[0]} for row in theirs] == rows_of(ours) == rows
    assert read_annotations(tmp_path / "theirs.arrow").version == "2026.10"
