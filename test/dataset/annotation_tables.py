# SPDX-License-Identifier: Apache-2.0
"""Rows of annotations by hypothesis, and tables of them by pyarrow alone."""

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.tables.forms import read_annotations

F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
COORDINATE = st.floats(0, 1, width=32)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
RING = st.lists(st.tuples(COORDINATE, COORDINATE), min_size=3, max_size=4).map(lambda r: [v for p in r for v in p])
U32 = st.integers(0, 2**32 - 1)
NUMBER = st.none() | st.integers(-(2**63), 2**63 - 1)


def maybe(strategy):
    return st.none() | strategy


COLUMNS = {
    "frame": maybe(U32),
    "object_id": maybe(TEXT),
    "label": maybe(TEXT),
    "label_index": maybe(st.integers(0, 2**64 - 1)),
    "group": maybe(st.sampled_from(["train", "val"])),
    "polygon": maybe(st.lists(RING, max_size=2)),
    "polygon_score": maybe(COORDINATE),
    "mask": maybe(st.binary(max_size=9)),
    "mask_score": maybe(COORDINATE),
    "box2d": maybe(st.tuples(*[F32] * 4).map(list)),
    "box2d_score": maybe(COORDINATE),
    "box3d": maybe(st.tuples(*[F32] * 6).map(list)),
    "box3d_score": maybe(COORDINATE),
    "iscrowd": maybe(st.booleans()),
    "category_frequency": maybe(st.sampled_from("fcr")),
    "size": maybe(st.tuples(U32, U32).map(list)),
    "location": maybe(st.tuples(F32, F32).map(list)),
    "pose": maybe(st.tuples(F32, F32, F32).map(list)),
    "degradation": maybe(TEXT),
    "neg_label_indices": maybe(st.lists(U32, max_size=2)),
    "not_exhaustive_label_indices": maybe(st.lists(U32, max_size=2)),
    "timing": maybe(st.fixed_dictionaries(dict.fromkeys(("load", "preprocess", "inference", "decode"), NUMBER))),
    "timestamp": NUMBER,
}
IN_2025 = [name for name in COLUMNS if name in schema.list_columns("2025.10") and name != "mask"] + ["polygon"]
ROWS = st.lists(st.fixed_dictionaries({"name": TEXT, **COLUMNS}), max_size=5)
PROPERTY = settings(max_examples=15, suppress_health_check=list(HealthCheck))


def table(rows, kinds=None, version="2026.04", metadata=None):
    """An Arrow table by pyarrow alone."""
    types = {c.name: c.type for c in schema.list_columns(version).values()} | (kinds or {})
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["name", "frame"]
    arrays = [
        pa.array([given_as(types[name], row.get(name)) for row in rows], plain(types[name])).cast(types[name])
        for name in names
    ]
    said = {"schema_version": version, **(metadata or {})} if version >= "2026.04" else None
    return pa.table(arrays, names=names).replace_schema_metadata(said)


def plain(kind):
    return pa.large_string() if pa.types.is_dictionary(kind) else kind


def given_as(kind, value):
    return int(value) if isinstance(value, bool) and pa.types.is_integer(kind) else value


def store(path, found):
    if path.suffix == ".parquet":
        pq.write_table(found, path)
    else:
        with pa.ipc.new_file(path, found.schema) as writer:
            writer.write_table(found)
    return path


def rows_of(path):
    annotations = read_annotations(path)
    return pa.Table.from_batches(annotations.batches(), annotations.schema).to_pylist()


def filled(rows, names):
    """Rows with every name that some row has a value for, null where there is none."""
    there = [name for name in names if name in ("name", "frame") or any(row.get(name) is not None for row in rows)]
    return [{name: row.get(name) for name in there} for row in rows]


def same(found, rows, names=("name", *COLUMNS)):
    assert filled(found, names) == filled(rows, names)
