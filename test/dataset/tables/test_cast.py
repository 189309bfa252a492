# SPDX-License-Identifier: Apache-2.0
"""Rows of a journal of another version in the columns of this one: whole, or an error naming the column."""

import pyarrow as pa
import pytest

from edgefirst_ros.dataset.tables.values import cast_rows
from edgefirst_ros.errors import DatasetError

TIMING = pa.struct([("load", pa.int64()), ("decode", pa.int64())])
BOX = pa.list_(pa.float32(), 4)
WANTED = pa.schema([("name", pa.large_string()), ("box2d", BOX), ("timing", TIMING)])


def test_columns_and_fields_that_are_not_there_are_null():
    batch = pa.record_batch({"name": ["a"], "timing": pa.array([{"decode": 3}], pa.struct([("decode", pa.int32())]))})
    assert cast_rows(batch, WANTED).to_pylist() == [{"name": "a", "box2d": None, "timing": {"load": None, "decode": 3}}]


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ({"colour": pa.array(["red"])}, "this version knows no column 'colour'"),
        ({"timing": pa.array([{"decode": 3, "wait": 1}])}, "this version knows no field 'wait' of column 'timing'"),
        ({"box2d": pa.array([[1.0, 2.0, 3.0]])}, r"column 'box2d' cannot be cast: 1 values are not fixed_size_list"),
        ({"box2d": pa.array(["x"])}, r"column 'box2d' cannot be cast: is string, must be"),
        ({"timing": pa.array([{"decode": 1.5}])}, r"column 'timing' cannot be cast: is double, must be int64"),
    ],
)
def test_what_would_be_lost_is_named(column, told):
    with pytest.raises(DatasetError, match=told):
        cast_rows(pa.record_batch({"name": pa.array(["a"]), **column}), WANTED)
