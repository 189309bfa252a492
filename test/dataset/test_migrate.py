# SPDX-License-Identifier: Apache-2.0
"""Versions and layouts changed, with a report that tells the truth."""

import errno
import io
import json
import math
import os
import subprocess

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from annotation_tables import rows_of, same, store, table
from PIL import Image

from edgefirst_ros import migrate
from edgefirst_ros.dataset import migrate as migrating
from edgefirst_ros.dataset.tables import write
from edgefirst_ros.dataset.tables.forms import read_annotations
from edgefirst_ros.errors import DatasetError, UsageError


def png(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


SQUARE = np.pad(np.ones((2, 4), bool), ((1, 1), (2, 2)))  # x 2..6 of 8, y 1..3 of 4
RING = [0.25, 0.25, 0.75, 0.25, 0.75, 0.75, 0.25, 0.75]
BOX = [0.5, 0.5, 0.25, 0.125]  # of 640 x 480: 160 x 60 px around (320, 240)
BOXES = {
    ("cxcywh", True): BOX,
    ("ltwh", True): [0.375, 0.4375, 0.25, 0.125],
    ("xyxy", True): [0.375, 0.4375, 0.625, 0.5625],
    ("cxcywh", False): [320, 240, 160, 60],
    ("ltwh", False): [240, 210, 160, 60],
    ("xyxy", False): [240, 210, 400, 270],
}


def row(**values):
    return {"name": "s", "frame": 1, **values}


def start(tmp_path, rows, version="2026.04", **metadata):
    return store(tmp_path / "start.arrow", table(rows, None, version, metadata))


@pytest.mark.parametrize("suffix", [".arrow", ".parquet", ".json"])
@pytest.mark.parametrize("there", BOXES)
@pytest.mark.parametrize("wanted", BOXES)
def test_layouts_of_boxes(tmp_path, there, wanted, suffix):
    said = {"box2d_format": there[0], "box2d_normalized": str(there[1]).lower()}
    path = start(tmp_path, [row(box2d=BOXES[there], size=[640, 480]), row(box2d=None, size=[640, 480])], **said)
    report = migrate(path, tmp_path / f"b{suffix}", box2d=wanted[0], normalised=wanted[1])
    found = read_annotations(report.out)
    assert (found.layout, found.normalised) == wanted
    assert [r["box2d"] for r in rows_of(report.out)] == [BOXES[wanted], None]
    assert sum(report.changed.values()) == (there != wanted)


def test_pixels_need_a_size(tmp_path):
    path = start(tmp_path, [row(box2d=BOX, size=[640, 480]), row(box2d=BOX, size=None), row(box2d=BOX, size=[0, 480])])
    report = migrate(path, tmp_path / "b.arrow", normalised=False)
    assert report.lost == {"box2d: the size of the picture is not known": 2}
    assert [r["box2d"] for r in rows_of(report.out)] == [BOXES["cxcywh", False], None, None]


def test_2025_10_has_one_layout(tmp_path):
    path = start(
        tmp_path, [row(box2d=BOXES["xyxy", False], size=[640, 480])], box2d_format="xyxy", box2d_normalized="false"
    )
    for suffix, layout in ((".arrow", "cxcywh"), (".json", "ltwh")):
        report = migrate(path, tmp_path / f"b{suffix}", "2025.10")
        assert read_annotations(report.out).layout == layout
        assert rows_of(report.out)[0]["box2d"] == BOXES[layout, True]
        with pytest.raises(UsageError, match=layout):
            migrate(path, tmp_path / f"c{suffix}", "2025.10", box2d="xyxy")


def test_masks_become_outlines_in_2025_10(tmp_path):
    rows = [
        row(mask=png(SQUARE), box2d=BOX),
        row(mask=png(SQUARE), polygon=[RING, RING]),
        row(mask=png(SQUARE.astype(np.uint8) * 3)),
        row(mask=b"no picture"),
        row(mask=png(SQUARE)),
        row(mask=None),
    ]
    report = migrate(start(tmp_path, rows), tmp_path / "b.arrow", "2025.10")
    found = pl.read_ipc(report.out.read_bytes())
    assert found.schema["mask"] == pl.List(pl.Float32)
    masks = found["mask"].to_list()
    assert [masks[0], *masks[2:]] == [RING, None, None, RING, None]
    assert masks[1][:8] == masks[1][9:] == RING
    assert math.isnan(masks[1][8])
    assert report.changed == {"mask: its outline stays": 2, "polygon: rings to polygons in mask": 1}
    assert [(text.partition(":")[0], number) for text, number in report.lost.items()] == [("mask", 1)] * 3
    assert report.exit_code == 3


def test_what_2025_10_has_no_place_for_is_listed(tmp_path):
    rows = [row(box2d=BOX, box2d_score=0.5, category_frequency="f", iscrowd=True, label_index=90), row(box2d=BOX)]
    path = start(tmp_path, rows, labels='["a"]', box2d_format="cxcywh")
    report = migrate(path, tmp_path / "b.arrow", "2025.10")
    assert report.lost == {
        "box2d_score: 2025.10 has no place for it": 1,
        "category_frequency: 2025.10 has no place for it": 1,
        "metadata labels: 2025.10 has none": 1,
    }
    found = pl.read_ipc(report.out.read_bytes())
    assert found.schema["iscrowd"] == pl.UInt8
    assert found["iscrowd"].to_list() == [1, None]
    assert found["label_index"].to_list() == [90, None]
    assert read_annotations(report.out).metadata == {}


def test_crowds_and_ignore(tmp_path):
    """2026.10 says `ignore`, and mirrors it in `iscrowd`; before there is `iscrowd` alone."""
    path = start(tmp_path, [row(iscrowd=True), row(iscrowd=False), row(iscrowd=None)])
    newer = migrate(path, tmp_path / "b.arrow", "2026.10")
    assert [(r["iscrowd"], r["ignore"]) for r in rows_of(newer.out)] == [(True, True), (False, False), (None, None)]
    older = migrate(newer.out, tmp_path / "c.arrow")
    assert "ignore" not in rows_of(older.out)[0]
    assert older.lost == {}
    path = start(tmp_path, [row(iscrowd=True, ignore=False), row(ignore=True, iscrowd=None)], "2026.10")
    older = migrate(path, tmp_path / "d.arrow")
    assert [r["iscrowd"] for r in rows_of(older.out)] == [False, True]
    assert older.lost == {"iscrowd: other than ignore, which counts": 1}


@pytest.mark.parametrize("rest", [{}, {"iscrowd": None}])
def test_ignore_alone_becomes_iscrowd(tmp_path, rest):
    path = start(tmp_path, [row(ignore=value, **rest) for value in (True, False, None)], "2026.10")
    older = migrate(path, tmp_path / "b.arrow")
    assert [r["iscrowd"] for r in rows_of(older.out)] == [True, False, None]
    assert older.lost == {}


def test_boxes_in_metres_stay_so(tmp_path):
    """What 2025.10 does not say would be taken as normalised from 2026.04 on."""
    path = start(tmp_path, [row(box3d=[1, 2, 3, 4, 5, 6])], "2025.10")
    assert read_annotations(migrate(path, tmp_path / "b.arrow").out).metadata["box3d_normalized"] == "false"


@pytest.mark.parametrize("suffix", [".arrow", ".parquet", ".json"])
def test_boxes_in_optical_axes_are_turned(tmp_path, suffix):
    """A car 20 m ahead, 1 m to the right, 0.5 m below; 1.8 m wide, 1.5 m high, 4.2 m long."""
    path = start(tmp_path, [row(box3d=[1, 0.5, 20, 1.8, 1.5, 4.2]), row(label="a")])
    report = migrate(path, tmp_path / f"b{suffix}", box3d_axes="optical")
    assert report.changed["box3d: right, down, forward to forward, left, up"] == 1
    assert report.exit_code == 0
    there = read_annotations(report.out)
    found = [r["box3d"] for r in rows_of(report.out)]
    np.testing.assert_allclose(found[0], [20, -1, -0.5, 4.2, 1.8, 1.5], rtol=1e-6)
    assert found[1] is None
    assert there.metadata["box3d_axes"] == "FLU"
    assert "box3d_frame" not in there.metadata  # the origin is not known without the frames table
    with pytest.raises(UsageError, match=r"--box3d-axes optical: .* states that its boxes are in FLU already"):
        migrate(report.out, tmp_path / "c.arrow", box3d_axes="optical")
    with pytest.raises(UsageError, match="--box3d-axes 'sideways': expected optical"):
        migrate(path, tmp_path / "c.arrow", box3d_axes="sideways")
    older = migrate(path, tmp_path / "d.arrow", "2025.10", box3d_axes="optical").out
    assert read_annotations(older).metadata == {}, "that version has none"


@pytest.mark.parametrize("sensor", ["lidar", "radar"])
def test_the_frames_table_names_the_origin_of_turned_boxes(tmp_path, sensor):
    path = start(tmp_path, [row(box3d=[1, 0.5, 20, 1.8, 1.5, 4.2])])
    moved = {"parent": "base_link", "child": sensor, "translation": [1, 0, 2], "rotation": [0, 0, 0, 1]}
    facts = {"drive": {"static_transforms": [moved]}}
    frames = pa.table({"name": ["drive"]}).replace_schema_metadata({"sequences": json.dumps(facts)})
    with pa.ipc.new_file(tmp_path / f"{path.stem}.frames.arrow", frames.schema) as out:
        out.write_table(frames)
    report = migrate(path, tmp_path / "b.arrow", box3d_axes="optical")
    assert read_annotations(report.out).metadata["box3d_frame"] == sensor


def test_a_frame_other_than_the_vehicle_is_lost_in_2025_10(tmp_path):
    path = start(tmp_path, [row(box3d=[1, 2, 3, 4, 5, 6])], box3d_axes="FLU", box3d_frame="base_link")
    assert migrate(path, tmp_path / "b.arrow", "2025.10").lost == {}
    path = start(tmp_path, [row(box3d=[1, 2, 3, 4, 5, 6])], box3d_axes="FLU", box3d_frame="lidar")
    assert migrate(path, tmp_path / "c.arrow", "2025.10").lost == {"metadata box3d_frame: 2025.10 has none": 1}


def test_nothing_changes_by_itself(tmp_path):
    rows = [row(box2d=BOXES["xyxy", False], polygon=[RING], label_index=7)]
    path = start(tmp_path, rows, box2d_format="xyxy", box2d_normalized="false", other="x")
    report = migrate(path, tmp_path / "b.arrow")
    assert (report.changed, report.lost, report.notes) == ({}, {}, [])
    assert read_annotations(report.out).metadata == read_annotations(path).metadata
    again = migrate(report.out, tmp_path / "c.arrow")
    assert again.out.read_bytes() == report.out.read_bytes()
    same(rows_of(report.out), rows, rows[0])


def test_existing_files_are_kept(tmp_path):
    path = start(tmp_path, [row(label="a")])
    out = tmp_path / "b.arrow"
    out.write_bytes(b"mine")
    with pytest.raises(DatasetError, match=r"b\.arrow exists; use --overwrite"):
        migrate(path, out)
    assert out.read_bytes() == b"mine"
    migrate(path, out, overwrite=True)
    migrate(out, out, "2025.10", overwrite=True)  # in its own place
    assert rows_of(out) == [row(label="a")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.arrow", "start.arrow"]
    (tmp_path / "folder.arrow").mkdir()
    with pytest.raises(DatasetError, match="folder"):
        migrate(path, tmp_path / "folder.arrow", overwrite=True)
    with pytest.raises(DatasetError, match=r"no folder .*not there; make it first"):
        migrate(path, tmp_path / "not there" / "b.arrow")


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_is_kept(tmp_path, monkeypatch, links):
    path, out = start(tmp_path, [row(label="a")]), tmp_path / "b.arrow"
    real, fails = write.write_rows, [True]

    def slowly(*words):
        if fails[0]:
            out.write_bytes(b"mine")
        return real(*words)

    def refuse(*words):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(migrating, "write_rows", slowly)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(DatasetError, match="exists"):
        migrate(path, out)
    assert out.read_bytes() == b"mine"
    fails[0] = False
    out.unlink()
    assert rows_of(migrate(path, out).out) == [row(label="a")]
    assert not list(tmp_path.glob("*.partial"))


def test_a_failure_leaves_what_was_there(tmp_path):
    good = start(tmp_path, [row(label="a")])
    out = tmp_path / "b.arrow"
    migrate(good, out)
    before = out.read_bytes()
    bad = tmp_path / "bad.json"
    bad.write_text('[{"name": "a"}, {')
    with pytest.raises(DatasetError):
        migrate(bad, out, overwrite=True)
    assert out.read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"to": "2025.01"},
        {"to": "new"},
        {"out": "b.csv"},
        {"box2d": "xywh"},
        {"pose_order": "x"},
        {"location_order": "x"},
    ],
)
def test_wrong_usage(tmp_path, wrong):
    path = start(tmp_path, [row(label="a")])
    out = tmp_path / wrong.pop("out", "b.arrow")
    with pytest.raises(UsageError):
        migrate(path, out, **wrong)


@pytest.mark.parametrize("said", [{"box2d_format": "round"}, {"box2d_normalized": "maybe"}])
def test_metadata_that_mean_nothing(tmp_path, said):
    with pytest.raises(DatasetError, match=next(iter(said))):
        migrate(start(tmp_path, [row(box2d=BOX)], **said), tmp_path / "b.arrow")


def test_command(command, tmp_path):
    def run(*words):
        line = [*command, "migrate", *map(os.fspath, words)]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    path = start(tmp_path, [row(box2d=BOX, box2d_score=0.5, size=[640, 480])])
    assert run(path, "-o", tmp_path / "a.json", "--to", "2026.10", "--box2d", "xyxy", "--pixels").returncode == 0
    assert rows_of(tmp_path / "a.json")[0]["box2d"] == BOXES["xyxy", False]
    lossy = run(tmp_path / "a.json", "-o", tmp_path / "b.parquet", "--to", "2025.10", "--json")
    report = json.loads(lossy.stdout)
    assert lossy.returncode == report["exit_code"] == 3
    assert (report["from"], report["to"], report["rows"]) == ("2026.10", "2025.10", 1)
    assert list(report["lost"]) == ["box2d_score: 2025.10 has no place for it"]
    assert run(path, "-o", tmp_path / "a.json").returncode == 1
    assert run(path, "-o", tmp_path / "c.txt").returncode == 2
    assert run(path).returncode == 2
    assert run(path, "-o", tmp_path / "d.arrow", "--pixels", "--normalised").returncode == 2


def test_logits_have_no_outline_and_are_counted(tmp_path):
    mask = png((SQUARE * 255).astype(np.uint8))
    path = start(tmp_path, [row(mask=mask, box2d=BOX)] * 2, mask_interpretation="logits")
    report = migrate(path, tmp_path / "b.arrow", "2025.10")
    assert report.lost["mask: logits have no threshold that makes an outline"] == 2
    assert report.exit_code == 3
    assert [one.get("polygon") for one in rows_of(report.out)] == [None, None]


def test_metadata_that_json_has_another_use_for_are_counted(tmp_path):
    report = migrate(start(tmp_path, [row(label="a")], samples="7", site="north"), tmp_path / "b.json")
    assert report.lost == {"metadata samples: JSON has its samples there": 1}
    document = json.loads(report.out.read_text())
    assert document["site"] == "north"
    assert [sample["name"] for sample in document["samples"]] == ["s"]


def test_a_type_that_the_target_cannot_store_leaves_no_file(tmp_path):
    """Parquet has no such intervals."""
    every = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    path = store(tmp_path / "a.arrow", pa.table({"name": ["s"], "every": every}))
    with pytest.raises(DatasetError, match=r"b\.parquet: cannot be written: "):
        migrate(path, tmp_path / "b.parquet")
    assert [one.name for one in tmp_path.iterdir()] == ["a.arrow"]
