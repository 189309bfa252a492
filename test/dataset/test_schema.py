# SPDX-License-Identifier: Apache-2.0
"""Against the published text of the format, kept here in the vendor's own words."""

import io
import re

import polars as pl
import pyarrow as pa
import pytest

from edgefirst_ros.dataset import schema

# Source: EdgeFirst Annotation Schema 2026.04, "Complete Polars Schema"
COMPLETE = """
    ('name', String), ('frame', UInt32), ('object_id', String), ('label', Categorical), ('label_index', UInt64),
    ('group', Categorical), ('polygon', List(List(Float32))), ('polygon_score', Float32), ('mask', Binary),
    ('mask_score', Float32), ('box2d', Array(Float32, shape=(4,))), ('box2d_score', Float32),
    ('box3d', Array(Float32, shape=(6,))), ('box3d_score', Float32), ('iscrowd', Boolean),
    ('category_frequency', Categorical), ('size', Array(UInt32, shape=(2,))), ('location', Array(Float32, shape=(2,))),
    ('pose', Array(Float32, shape=(3,))), ('degradation', String), ('neg_label_indices', List(UInt32)),
    ('not_exhaustive_label_indices', List(UInt32)),
    ('timing', Struct({'load': Int64, 'preprocess': Int64, 'inference': Int64, 'decode': Int64})),
"""


def published():
    names = {name: getattr(pl, name) for name in set(re.findall(r"[A-Z]\w+", COMPLETE))}
    return eval(f"dict([{COMPLETE}])", names)


def in_polars(columns):
    stream = io.BytesIO()
    with pa.ipc.new_file(stream, schema.make_arrow_schema(columns)):
        pass
    return dict(pl.read_ipc(stream.getvalue()).schema)


def test_2026_04_is_the_published_one():
    found = in_polars(schema.list_columns("2026.04"))
    assert found.pop("timestamp") == pl.Int64
    assert list(found.items()) == list(published().items())


def test_2026_10():
    found, known = in_polars(schema.list_columns("2026.10")), published()
    assert found.pop("ignore") == pl.Boolean
    assert found.pop("timestamp") == pl.Int64
    assert found == known
    assert schema.get_pose_order("2026.10") == ("roll", "pitch", "yaw")


def test_2025_10():
    known = {
        name: kind
        for name, kind in published().items()
        if name not in ("polygon", "timing", "category_frequency") and not name.endswith("_score")
    } | {"mask": pl.List(pl.Float32), "iscrowd": pl.UInt8, "timestamp": pl.Int64}
    assert in_polars(schema.list_columns("2025.10")) == known
    assert not schema.has_metadata("2025.10")


def test_2025_01():
    f32, f64 = pl.Float32, pl.Float64
    assert in_polars(schema.list_columns("2025.01")) == {
        "name": pl.Categorical,
        "frame": pl.UInt64,
        "group": pl.Categorical,
        "label": pl.Categorical,
        "mask": pl.List(f32),
        "box2d": pl.Array(f32, 4),
        "box3d": pl.Array(f32, 6),
        "location": pl.Array(f64, 2),
        "pose": pl.Array(f64, 3),
        "degradation": pl.Categorical,
        "status": pl.Categorical,
    }
    assert schema.get_location_order("2025.01") == ("longitude", "latitude")
    assert schema.get_pose_order("2025.01") == ("roll", "pitch", "yaw")


def test_unknown_version():
    with pytest.raises(KeyError):
        schema.list_columns("2027.01")


def test_frames():
    known = {
        "name": pl.String,
        "frame": pl.UInt32,
        "timestamp": pl.Int64,
        "latitude": pl.Float64,
        "longitude": pl.Float64,
        "altitude": pl.Float64,
        "orientation": pl.Array(pl.Float64, 4),
        "pose_position": pl.Array(pl.Float64, 3),
        "pose_orientation": pl.Array(pl.Float64, 4),
        "size": pl.Array(pl.UInt32, 2),
    }
    for base in ("radar_cube", "radar_targets", "lidar_points"):
        known |= {f"{base}_timestamp": pl.Int64, f"{base}_skew": pl.Int64}
    known |= {"keyframe": pl.Boolean, "segment": pl.UInt32, "model_timestamp": pl.Int64}
    assert list(in_polars(schema.list_frames_columns()).items()) == list(known.items())
    assert "radar_clusters_skew" in schema.list_frames_columns(["radar_cube", "radar_clusters"])


def test_columns_of_a_version_are_described_once():
    for version in schema.VERSIONS:
        names = [c.name for c in schema.COLUMNS if c.since <= version <= c.until]
        assert len(names) == len(set(names))
