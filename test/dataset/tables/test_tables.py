# SPDX-License-Identifier: Apache-2.0
import io
import json
import math
import subprocess
import sys
from pathlib import Path

import edgefirst_client
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.tables.rowlog import ANNOTATION_ROWS, Rows
from edgefirst_ros.dataset.tables.write import encode_json, seal_annotations, seal_frames
from edgefirst_ros.errors import DatasetError


def png(pixels):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


MASK = png(np.pad(np.ones((2, 4), bool), ((1, 1), (2, 2))))
SEPARATED = [0.25, 0.25, 0.75, 0.25, 0.75, 0.75, 0.25, 0.75]


def row(frame, **further):
    return {"name": "s", "frame": frame, "timestamp": 10**18 + frame, **further}


BOXES = [
    row(
        1,
        label="person",
        label_index=0,
        object_id="u1",
        box2d=(0.5, 0.5, 0.25, 0.125),
        box2d_score=0.5,
        mask=MASK,
        size=(1920, 1080),
        location=(45.5, -73.25),
        pose=(1.0, 2.0, 3.0),
        timing={"load": 1, "preprocess": None, "inference": 3, "decode": 4},
    ),
    row(
        1,
        label="car",
        label_index=1,
        box2d=[0.25, 0.5, 0.5, 1.0],
        box2d_score=1.0,
        size=(1920, 1080),
        pose=(1.0, 2.0, 3.0),
    ),
    row(2, size=(1920, 1080)),
    row(3, label="person", label_index=0, box2d=np.array([0, 0, 1, 1], np.float32), box2d_score=0.0),
]


def held(rows, every=0):
    made = Rows(ANNOTATION_ROWS)
    for n, item in enumerate(rows):
        made.append(item)
        if every and n % every == 0:
            made.settle()
    return made.batches


def sealed(tmp_path, rows, version="2026.04", **further):
    seal_annotations(held(rows), tmp_path / "t.arrow", version, **further)
    metadata = pa.ipc.open_file(tmp_path / "t.arrow").schema.metadata or {}
    return pl.read_ipc((tmp_path / "t.arrow").read_bytes()), {k.decode(): v.decode() for k, v in metadata.items()}


def test_2026_04(tmp_path):
    table, metadata = sealed(tmp_path, BOXES, labels=["person", "car"])
    assert dict(table.schema) == {
        "name": pl.String,
        "frame": pl.UInt32,
        "object_id": pl.String,
        "label": pl.Categorical,
        "label_index": pl.UInt64,
        "mask": pl.Binary,
        "box2d": pl.Array(pl.Float32, 4),
        "box2d_score": pl.Float32,
        "size": pl.Array(pl.UInt32, 2),
        "location": pl.Array(pl.Float32, 2),
        "pose": pl.Array(pl.Float32, 3),
        "timing": pl.Struct(dict.fromkeys(("load", "preprocess", "inference", "decode"), pl.Int64)),
        "timestamp": pl.Int64,
    }
    assert table["label"].to_list() == ["person", "car", None, "person"]
    assert table["box2d"].to_list() == [[0.5, 0.5, 0.25, 0.125], [0.25, 0.5, 0.5, 1.0], None, [0, 0, 1, 1]]
    assert table["box2d_score"].to_list() == [0.5, 1.0, None, 0.0]
    assert table["mask"].to_list() == [MASK, None, None, None]
    assert table["pose"].to_list()[0] == [1, 2, 3]
    assert table["timing"].to_list()[0] == {"load": 1, "preprocess": None, "inference": 3, "decode": 4}
    assert table["timing"].to_list()[2] in (None, dict.fromkeys(("load", "preprocess", "inference", "decode")))
    assert table["timestamp"].to_list() == [10**18 + f for f in (1, 1, 2, 3)]
    assert metadata == {
        "schema_version": "2026.04",
        "box2d_format": "cxcywh",
        "box2d_normalized": "true",
        "mask_interpretation": "binary",
        "labels": '["person", "car"]',
    }


def test_one_dictionary(tmp_path):
    sealed(tmp_path, [row(n, label=f"l{n % 7 + n // 1500}") for n in range(3000)])
    with pa.ipc.open_file(tmp_path / "t.arrow") as file:
        assert file.num_record_batches == 3
        batches = [file.get_batch(n) for n in range(3)]
    words = {tuple(batch["label"].dictionary.to_pylist()) for batch in batches}
    assert words == {tuple(f"l{n}" for n in range(8))}


def test_2025_10(tmp_path):
    ring = [0.0, 0.0, 1.0, 0.0, 0.5, 0.5]
    rows = [*BOXES, row(4, polygon=[ring, ring], polygon_score=1, iscrowd=True, mask=MASK)]
    table, metadata = sealed(tmp_path, rows, "2025.10", labels=["person", "car"])
    assert metadata == {}
    assert table.schema["mask"] == pl.List(pl.Float32)
    assert table.schema["iscrowd"] == pl.UInt8
    assert not {"box2d_score", "polygon", "polygon_score", "timing"} & set(table.columns)
    masks = table["mask"].to_list()
    assert masks[:4] == [SEPARATED, None, None, None]
    assert masks[4][:6] == masks[4][7:] == ring
    assert math.isnan(masks[4][6])
    assert table["pose"].to_list()[0] == [1, 2, 3]


def test_2026_10(tmp_path):
    table, metadata = sealed(tmp_path, [*BOXES, row(4, ignore=True)], "2026.10")
    assert metadata["schema_version"] == "2026.10"
    assert table.schema["ignore"] == pl.Boolean
    assert table["pose"].to_list() == [[3, 2, 1], [3, 2, 1], None, None, None]


def test_metadata_of_what_is_there_alone(tmp_path):
    table, metadata = sealed(tmp_path, [row(1)])
    assert table.columns == ["name", "frame", "timestamp"]
    assert metadata == {"schema_version": "2026.04"}
    _, metadata = sealed(tmp_path, [row(1, box3d=range(6))], category_metadata={"person": {"id": 1}})
    assert metadata["box3d_normalized"] == "false"
    assert metadata["box3d_format"] == "cxcyczwhl"
    assert json.loads(metadata["category_metadata"]) == {"person": {"id": 1}}
    assert "box2d_format" not in metadata


def test_no_rows(tmp_path):
    table, _ = sealed(tmp_path, [])
    assert table.shape == (0, 3)


@pytest.mark.parametrize("version", ["2026.04", "2026.10", "2025.10"])
def test_vendors_client_reads_it(tmp_path, version):
    sealed(tmp_path, BOXES, version, labels=["person", "car"])
    found = edgefirst_client.read_dataset_metadata(str(tmp_path / "t.arrow"))
    assert found is not None
    edgefirst_client.arrow_to_coco(str(tmp_path / "t.arrow"), str(tmp_path / "coco.json"))
    coco = json.loads((tmp_path / "coco.json").read_text())
    assert {c["name"] for c in coco["categories"]} == {"person", "car"}


def test_versions_that_are_not_written(tmp_path):
    with pytest.raises(KeyError):
        sealed(tmp_path, BOXES, "2025.01")


def test_numpy_values(tmp_path):
    ring = np.array([0, 0, 1, 0, 1, 1], np.float32)
    table, _ = sealed(tmp_path, [row(1, box2d_score=np.float32(0.5), polygon=[ring], label_index=np.int64(2))])
    assert table.select("frame", "box2d_score", "polygon", "label_index").row(0) == (1, 0.5, [ring.tolist()], 2)


def test_bytes_do_not_depend_on_flushes(tmp_path):
    rows = [BOXES[n % 4] | {"frame": n, "iscrowd": None if n % 3 else n % 2 == 0} for n in range(600)]
    sources = [held(rows, every) for every in (0, 1, 300)]
    for version in schema.WRITABLE:
        results = set()
        for source in sources:
            seal_annotations(source, tmp_path / "t.arrow", version, ["person", "car"])
            results.add((tmp_path / "t.arrow").read_bytes())
        assert len(results) == 1
    found = pl.read_ipc((tmp_path / "t.arrow").read_bytes())
    assert found["frame"].to_list() == list(range(600))
    assert found["iscrowd"].to_list() == [r["iscrowd"] for r in rows]


def test_frames_table(tmp_path):
    columns = schema.list_frames_columns()
    made = Rows(schema.make_journal_schema(columns))
    made.append(row(7, latitude=45.5, orientation=(0, 0, 0, 1), keyframe=True, segment=0, radar_cube_skew=-5))
    metadata = {"counts": {"/b": {"seen": 1}, "/a": {}}, "camera_info": {"d": [math.nan, 1.5]}, "x": "\udc80é"}
    assert seal_frames(made.batches, tmp_path / "t.arrow", columns, metadata) == 1
    table = pl.read_ipc((tmp_path / "t.arrow").read_bytes())
    assert table.columns == [name for name in columns if name not in schema.POSE_COLUMNS]
    assert table["orientation"].to_list() == [[0, 0, 0, 1]]
    assert table["radar_cube_skew"].to_list() == [-5]
    assert table["altitude"].to_list() == [None]
    found = {k.decode(): v.decode() for k, v in pa.ipc.open_file(tmp_path / "t.arrow").schema.metadata.items()}
    assert found == {
        "counts": '{"/b": {"seen": 1}, "/a": {}}',
        "camera_info": '{"d": [null, 1.5]}',
        "x": '"\\udc80é"',
    }


@pytest.mark.parametrize("value", [object(), {"a": {1, 2}}, b"bytes"])
def test_no_json(value):
    with pytest.raises(DatasetError, match="JSON"):
        encode_json(value)


GROWTH = """
import pathlib, sys
from edgefirst_ros.dataset.tables.rowlog import RowLog
from edgefirst_ros.dataset.tables.write import seal_annotations
folder = pathlib.Path(sys.argv[1])
peaks = []
for rows in (10_000, 30_000):
    made = RowLog(folder / "j", ())
    for n in range(rows):
        frame = {"name": "s", "frame": n, "timestamp": n}
        made.append(frame, [{**frame, "label": "x", "mask": n.to_bytes(4000, "big")}])
    _, annotations = made.read()
    assert seal_annotations(annotations.batches, folder / "t.arrow") == rows
    status = open("/proc/self/status").read()  # ru_maxrss would be that of the parent, where it is larger
    peaks.append(int(status.split("VmHWM:")[1].split()[0]))
    del annotations
print(peaks[1] - peaks[0])
"""


def test_memory_is_flat(tmp_path):
    """Rows beyond those that are held in memory take a small part of their 80 MB when they are written and sealed."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, tmp_path],
        capture_output=True,
        check=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert int(done.stdout) < 15_000  # KiB


def test_old_files_and_links_are_replaced(tmp_path):
    (tmp_path / "other").write_bytes(b"precious")
    (tmp_path / "t.arrow").symlink_to("other")
    sealed(tmp_path, BOXES)
    assert (tmp_path / "other").read_bytes() == b"precious"
