# SPDX-License-Identifier: Apache-2.0
"""Validation as a whole: what a good dataset gives, what no file may do to it, and what the report says."""

import io
import itertools
import json
import math
import os
import random
import shutil
import tracemalloc
import zipfile

import handmade_dataset as made
import polars as pl
import pyarrow as pa
import pytest
import test_validate_files
import test_validate_members
import test_validate_tables
from handmade_dataset import SEQUENCE, name_of, stamp_of
from PIL import Image

from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.validate import RULES, validate
from edgefirst_ros.dataset.writer import DatasetWriter, NewSample
from edgefirst_ros.errors import DatasetError


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_good_dataset_gives_no_finding(tmp_path, layout):
    report = validate(made.write(tmp_path, made.good(), layout), strict=True)
    assert report.findings == []
    assert report.ok
    assert report.checked == {"samples": 3, "members": 9, "annotations": 5, "frames": 3}


def test_a_member_is_read_once_its_header_and_its_data(tmp_path, monkeypatch):
    """A local header and the data are one read each, whatever the number of rules; one more is the end of the file."""
    path = made.write(tmp_path, made.good())
    reads, real = [], os.pread
    monkeypatch.setattr(
        os, "pread", lambda fd, size, at: reads.append(os.readlink(f"/dev/fd/{fd}")) or real(fd, size, at)
    )
    report = validate(path)
    monkeypatch.undo()
    assert report.ok
    assert len([file for file in reads if file == str(path)]) <= 2 * report.checked["members"] + 1


def test_rules_have_different_codes_in_order():
    codes = [rule.id for rule in RULES]
    assert len(set(codes)) == len(codes)
    assert all(rule.description and rule.severity in ("error", "warning") for rule in RULES)
    for group in {code[:3] for code in codes}:
        of_group = [code for code in codes if code.startswith(group)]
        assert of_group == [f"{group}{n:03d}" for n in range(1, len(of_group) + 1)]


@pytest.mark.parametrize("spoil", ["absent", "no zip", "empty", "tables only"])
def test_what_cannot_be_opened_is_one_finding(tmp_path, spoil):
    path = made.write(tmp_path, made.good())
    if spoil in ("absent", "tables only"):
        path.unlink()
    if spoil == "absent":
        shutil.rmtree(tmp_path)
    if spoil == "no zip":
        path.write_bytes(b"PK\x03\x04 and then nothing")
    if spoil == "empty":
        path.write_bytes(b"")
    report = validate(path)
    assert [finding.rule for finding in report.findings] == ["STR001"]
    assert not report.ok


def test_every_rule_has_a_planted_defect():
    planted = {*test_validate_members.SPOILT, *test_validate_tables.SPOILT, "STR001"}
    planted |= {code for code, *_ in test_validate_files.WRITTEN}
    assert {rule.id for rule in RULES} == planted


def test_random_damage_is_reported_and_never_raises(tmp_path):
    """Bytes changed anywhere in the three files."""
    path = made.write(tmp_path, made.good())
    originals = {file: file.read_bytes() for file in tmp_path.iterdir()}
    choose = random.Random(7)
    for _ in range(150):
        for file, data in originals.items():
            spoilt = bytearray(data)
            for _ in range(choose.choice((1, 4))):
                spoilt[choose.randrange(len(spoilt))] = choose.randrange(256)
            file.write_bytes(spoilt[: choose.choice((len(spoilt), len(spoilt), choose.randrange(len(spoilt))))])
        report = validate(path)
        assert json.loads(report.to_json())["errors"] == report.errors


def test_datasets_of_other_tools_have_no_errors(tmp_path):
    """No frames table, no EXIF, deflated, unpadded numbers, the types that polars and the vendor write."""
    plain = io.BytesIO()
    Image.new("RGB", made.SIZE).save(plain, "JPEG")
    with zipfile.ZipFile(tmp_path / "data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{SEQUENCE}/", b"")
        for frame in (1, 22):
            archive.writestr(f"{SEQUENCE}/{SEQUENCE}_{frame}.camera.jpeg", plain.getvalue())
    pl.DataFrame(
        {"name": [SEQUENCE], "frame": [22], "label": ["person"], "box2d": [[0.5, 0.5, 0.1, 0.1]]},
        schema={"name": pl.Categorical, "frame": pl.UInt64, "label": pl.Enum(["person"]), "box2d": pl.List(pl.Float64)},
    ).write_ipc(tmp_path / "data.arrow")
    report = validate(tmp_path / "data")
    assert report.errors == 0
    assert report.ok
    assert set(report.counts) == {"STR005", "NAM004", "HDR002", "TAB002"}
    assert not validate(tmp_path / "data", strict=True).ok


def test_report_caps_the_printout_but_counts_all(tmp_path):
    parts = made.good()
    for number in range(130):
        parts.members[f"extra{number}\x1b.txt"] = b"x"
    report = validate(made.write(tmp_path, parts))
    assert report.counts["NAM001"] == 130
    lines = report.to_text().splitlines()
    assert len([line for line in lines if line.startswith("NAM001 warning: ")]) == 5
    assert "NAM001 +125 more" in lines
    assert "\x1b" not in report.to_text()
    data = json.loads(report.to_json())
    assert (data["ok"], data["errors"], data["warnings"]) == (False, 130, 130)
    assert data["findings"][0] == {
        "rule": "NAM001",
        "severity": "warning",
        "place": "extra0\x1b.txt",
        "message": "is not SEQUENCE/SEQUENCE_FRAME.KIND",
    }


@pytest.mark.parametrize("layout", ["zip", "directory"])
@pytest.mark.parametrize("version", ["2025.10", "2026.04", "2026.10"])
def test_what_the_writer_writes_gives_no_finding(tmp_path, layout, version):
    with DatasetWriter(tmp_path, "data", layout=layout, schema=version) as writer:
        for row in made.good().frames:
            frame = row["frame"]
            members = [
                (name.partition(".")[2], [data])
                for name, data in made.good().members.items()
                if name_of(frame, "") in name
            ]
            rows = [row for row in made.good().annotations if row["frame"] == frame]
            common = {key: rows[0][key] for key in ("size", "location", "group")}
            boxes = [{k: v for k, v in box.items() if k not in common} for box in rows if box.get("label")]
            frame_row = {k: v for k, v in row.items() if k not in ("name", "frame", "timestamp")}
            writer.write(NewSample(SEQUENCE, frame, stamp_of(frame), members, frame_row, boxes, common))
        texts = made.good().frames_metadata
        paths = writer.finish({key: json.loads(value) for key, value in texts.items()}, ["person", "car"])
    report = validate(paths.container, strict=True)
    assert report.findings == []
    assert report.checked == {"samples": 3, "members": 9, "annotations": 5, "frames": 3}


def test_memory_does_not_grow_with_the_members(tmp_path):
    def peak(count: int) -> int:
        parts = made.good()
        for number in range(count):
            parts.members[f"many/many_{number:03d}.lidar.pcd"] = made.cloud(1, 16, 16) + bytes(500_000)
        path = made.write(tmp_path / str(count), parts)
        tracemalloc.start()
        validate(path)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    few, many = peak(10), peak(40)
    assert many < few + 500_000  # one member; 30 more are 15 MB


ODD = [
    pa.array(["x"] * 5),
    pa.array([["x", None]] * 5),
    pa.array([{"load": "x", "other": 1}] * 5),
    pa.array([1.5, math.nan, math.inf, -1.0, None]),
    pa.array([-1, 0, 2**40, None, 5]),
    pa.array([None] * 5),
    pa.array([True, None, False, True, True]),
    pa.array([b"\xff", b"", None, b"", b""]),
    pa.array([0] * 5, pa.timestamp("ns", "UTC")),
    pa.array([[[1.0, None], None]] * 5),
    pa.array(["x"] * 5).dictionary_encode(),
    pa.array([1] * 5).dictionary_encode(),
    pa.array([[("k", 1)]] * 5, pa.map_(pa.string(), pa.int64())),
]


@pytest.mark.filterwarnings("ignore:.* broken rings? dropped")
@pytest.mark.parametrize("table", ["data.arrow", "data.frames.arrow"])
@pytest.mark.parametrize("odd", ODD, ids=[str(values.type) for values in ODD])
def test_columns_of_any_type_are_reported_and_never_raise(tmp_path, table, odd):
    """Half of the columns at a time, so that for each two there is a half with the one and without the other.

    Each column is in three of six halves, and no two in the same three.
    """
    path = made.write(tmp_path, made.good())
    with pa.ipc.open_file((tmp_path / table).read_bytes()) as file:
        whole = file.read_all()
    places = list(itertools.islice(itertools.combinations(range(6), 3), whole.num_columns))
    assert len(places) == whole.num_columns
    for half in range(6):
        spoilt = whole
        for number in (number for number, of in enumerate(places) if half in of):
            spoilt = spoilt.set_column(number, whole.schema.field(number).name, odd[: whole.num_rows])
        with pa.OSFile(str(tmp_path / table), "wb") as sink, pa.ipc.new_file(sink, spoilt.schema) as writer:
            writer.write_table(spoilt)
        assert validate(path, strict=True).findings
        try:
            for sample in Dataset(path).samples():
                assert sample.annotations.height >= 0
        except DatasetError as error:
            assert table in str(error)  # noqa: PT017
