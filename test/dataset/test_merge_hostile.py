# SPDX-License-Identifier: Apache-2.0
"""Datasets of others in `merge`: large packed tables, columns of other types, masks out of next to nothing."""

import io
import subprocess
import sys

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image

from edgefirst_ros import Dataset
from edgefirst_ros.dataset import merge_rows
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import Limits
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg

MEASURED = """
import sys
from edgefirst_ros.dataset.merge import merge
merge(sys.argv[2:], sys.argv[1])
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def store(path, table, metadata=None):
    """By polars and Arrow alone, packed."""
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    arrow = table.to_arrow(compat_level=pl.CompatLevel.oldest()).replace_schema_metadata(metadata or {})
    with pa.ipc.new_file(str(path), arrow.schema, options=packed) as writer:
        writer.write_table(arrow)


def png(side, value=0):
    file = io.BytesIO()
    Image.fromarray(np.full((side, side), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def rows(count):
    return pl.DataFrame(
        {
            "name": pl.repeat(made.SEQUENCE, count, eager=True),
            "frame": pl.repeat(3, count, dtype=pl.UInt32, eager=True),
            "object_id": pl.int_range(count, eager=True).cast(pl.String),
            "label": pl.repeat("car", count, eager=True),
            "box2d": pl.repeat([0.5, 0.5, 0.25, 0.25], count, dtype=pl.Array(pl.Float32, 4), eager=True),
        }
    )


def test_many_rows_of_one_sample(tmp_path):
    """As polars writes them and packed; the merged table has them in their order."""
    dataset, table = made.write(tmp_path, made.good()), rows(100_000)
    store(tmp_path / "data.arrow", table, {"schema_version": "2026.04"})
    arguments = [sys.executable, "-c", MEASURED, tmp_path / "out", dataset]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) < 1 << 20
    merged = pl.read_ipc(tmp_path / "out/out.arrow")
    own = merged.filter(pl.col("frame") == 3).select(pl.col(pl.Categorical).cast(pl.String), pl.exclude(pl.Categorical))
    assert own.select(table.columns).equals(table)
    assert own["timestamp"].unique().to_list() == [made.stamp_of(3)]


WRONG = {
    "timestamp": ("1", 1.5, [1], {"a": 1}, b"1", True),
    "name": (b"\xff", 5, [made.SEQUENCE], {"a": 1}),
    "frame": ("3", 3.5, [3], b"3"),
    "latitude": ("45", True, [45.0]),
    "orientation": (1.0, [1.0, 2.0], "x"),
    "keyframe": ("yes", [True]),
    "radar_cube_skew": ("0", 0.5, {"ns": 1}),
}


@pytest.mark.parametrize(("column", "value"), [(name, value) for name in WRONG for value in WRONG[name]], ids=repr)
def test_columns_of_frames_of_other_types_are_refused_by_name(tmp_path, column, value):
    dataset = made.write(tmp_path, made.good())
    path = tmp_path / "data.frames.arrow"
    table = pl.read_ipc(path)
    metadata = {k.decode(): v.decode() for k, v in pa.ipc.open_file(path.read_bytes()).schema.metadata.items()}
    store(path, table.with_columns(pl.Series(column, [value] * len(table))), metadata)
    with pytest.raises(DatasetError, match=rf"data\.frames\.arrow: column '{column}'"):
        merge([dataset], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "kind", [pl.Int8, pl.UInt64, pl.Int128, pl.Decimal(20, 0), pl.Date, pl.Duration("ns")], ids=str
)
def test_numbers_of_frames_are_any_integers(tmp_path, kind):
    dataset = made.write(tmp_path, made.good())
    path = tmp_path / "data.frames.arrow"
    table = pl.read_ipc(path).with_columns(pl.lit(1).cast(pl.Int64).cast(kind).alias("segment"))
    metadata = {k.decode(): v.decode() for k, v in pa.ipc.open_file(path.read_bytes()).schema.metadata.items()}
    try:
        store(path, table, metadata)
    except (pa.ArrowException, pl.exceptions.PolarsError, KeyError):
        pytest.skip("Arrow has no such type")
    if kind in (pl.Int8, pl.UInt64):
        merged = merge([dataset], tmp_path / "out")
        assert pl.read_ipc(merged.paths.frames)["segment"].to_list() == [1] * len(made.FRAMES)
    else:
        with pytest.raises(DatasetError, match=r"data\.frames\.arrow"):
            merge([dataset], tmp_path / "out")


def with_exif(data, change):
    """A picture with EXIF of ours, changed."""
    exif = encode_exif(ExifInfo(made.SEQUENCE, 3, made.stamp_of(3), "host", "software", 45.5, -73.6, 30.0))
    return b"".join(map(bytes, insert_jpeg(data, change(exif))))


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (lambda exif: exif.replace(b"\x01\x31\0\2", b"\x01\x31\0\x0b"), True),  # a text that says it is floats
        (lambda exif: exif[:8], False),
        (lambda exif: exif[:4] + b"\xff" * 4 + exif[8:], False),
        (lambda exif: exif.replace(b"ASCII\0\0\0{", b"ASCII\0\0\0["), False),
    ],
    ids=["types", "cut", "leads elsewhere", "comment"],
)
def test_exif_that_is_broken_where_pictures_are_renamed(tmp_path, change, refused):
    """What names no sequence stays as it is; what cannot be rewritten is named."""
    name, places = made.name_of(3, "camera.jpeg"), []
    for folder in (tmp_path / "a", tmp_path / "b"):
        parts = made.good()
        parts.members[name] = with_exif(parts.members[name], change)
        folder.mkdir()
        places.append(made.write(folder, parts))
    if refused:
        with pytest.raises(DatasetError, match=rf"b/data\.zip: '{name}': its EXIF cannot be rewritten"):
            merge(places, tmp_path / "out", rename=True)
        assert not list((tmp_path / "out").iterdir())
    else:
        merged = Dataset(merge(places, tmp_path / "out", rename=True).paths.container)
        data = [merged.sample(sequence, 3).read("camera") for sequence in merged.sequences]
        assert data == [parts.members[name]] * 2


@pytest.mark.parametrize(("count", "side"), [(200, 8), (3, 2000)])
def test_masks_of_classes_that_take_too_long_are_refused(tmp_path, monkeypatch, count, side):
    """Few bytes that stand for many masks, or for large ones, which all would have to be counted anew."""
    monkeypatch.setattr(merge_rows, "FREE_PIXELS", 1 << 20)
    monkeypatch.setattr(merge_rows, "PIXELS_PER_BYTE", 1)
    places = []
    for name, labels in (("a", '["car", "person"]'), ("b", '["person", "car"]')):
        folder = tmp_path / name
        folder.mkdir()
        places.append(made.write(folder, made.good()))
        table = rows(count).select("name", "frame").with_columns(mask=pl.lit(png(side)))
        store(folder / "data.arrow", table, {"schema_version": "2026.04", "labels": labels})
    with pytest.raises(DatasetError, match=r"b/data\.arrow: masks of classes .* too many pixels"):
        merge(places, tmp_path / "out", rename=True, limits=Limits(unpacked_bytes=1 << 20))
    assert list((tmp_path / "out").iterdir()) == []


def test_masks_of_classes_are_counted_anew(tmp_path):
    places = []
    for name, labels in (("a", '["car", "person", "bus"]'), ("b", '["person", "car"]')):
        folder = tmp_path / name
        folder.mkdir()
        places.append(made.write(folder, made.good()))
        masks = [png(8, value) for value in (0, 1, 255)]
        table = rows(3).select("name", "frame").with_columns(mask=pl.Series(masks))
        store(folder / "data.arrow", table, {"schema_version": "2026.04", "labels": labels})
    paths = merge(places, tmp_path / "out", rename=True).paths
    masks = pl.read_ipc(paths.arrow).drop_nulls("mask")["mask"].to_list()
    assert [int(np.asarray(Image.open(io.BytesIO(mask)))[0, 0]) for mask in masks] == [0, 1, 255, 1, 0, 255]
