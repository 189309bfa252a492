# SPDX-License-Identifier: Apache-2.0
"""Columns as a whole: rings and separators, bytes that depend on values alone."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from annotation_tables import PROPERTY, RING, ROWS, maybe, table
from hypothesis import given
from hypothesis import strategies as st

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.tables.values import count_lengths, is_valid, join, split, strip_broken_rings
from edgefirst_ros.dataset.tables.write import iter_even_batches, rebuild_array


def separated(rings):
    """By the words of the format: rings with NaN between them."""
    joined = []
    for ring in rings:
        joined += [float("nan"), *ring] if joined else ring
    return joined


@PROPERTY
@given(st.lists(maybe(st.lists(RING, max_size=3)), max_size=5))
def test_rings_and_separators(polygons):
    array = pa.array(polygons, schema.POLYGON)
    joined = join(array)
    joined.validate(full=True)
    assert repr(joined.to_pylist()) == repr([None if p is None else separated(p) for p in polygons])
    again = split(joined)
    again.validate(full=True)
    assert again.to_pylist() == polygons
    assert strip_broken_rings(array) == (array, 0)


def test_split_of_odd_masks():
    nan = float("nan")
    masks = pa.array([[nan, 1, 2, nan, nan, 3], None, [], [nan], [4, None, 5]], schema.MASK_AS_POLYGON)
    assert split(masks).to_pylist() == [[[1, 2], [3]], None, [], [], [[4], [5]]]


@PROPERTY
@given(rows=ROWS.filter(len), pieces=st.lists(st.integers(1, 3), max_size=5))
def test_bytes_depend_on_values_alone(rows, pieces):
    """Junk under nulls, cuts and paddings leave no trace."""
    whole = table(rows).select(
        [n for n in table(rows).column_names if not n.startswith(("label", "group", "category"))]
    )
    expected = next(iter(iter_even_batches(whole.to_batches(), 100))).serialize().to_pybytes()
    longer = pa.concat_tables([whole, whole, whole]).combine_chunks().slice(len(rows), len(rows))
    cut, start = [], 0
    for size in [*pieces, len(rows)]:
        cut += longer.slice(start, size).to_batches()
        start += size
    found = next(iter(iter_even_batches(cut, 100)))
    found.validate(full=True)
    assert found.to_pylist() == whole.to_pylist()
    assert found.serialize().to_pybytes() == expected


def test_junk_under_nulls_is_gone():
    numbers = np.array([1, 2, 3], np.int64)
    bitmap = pa.py_buffer(b"\xfd")  # 1 0 1, and ones behind the end
    junk = pa.Array.from_buffers(pa.int64(), 3, [bitmap, pa.py_buffer(numbers)])
    clean = rebuild_array(junk)
    assert [bytes(buffer) for buffer in clean.buffers()] == [b"\x05", np.array([1, 0, 3], np.int64).tobytes()]
    inner = pa.array([1, 2, 3])
    for kind, buffers in (
        (pa.struct([("a", pa.int64())]), []),
        (pa.large_list(pa.int64()), [pa.array([0, 1, 2, 3]).buffers()[1]]),
    ):
        nested = rebuild_array(pa.Array.from_buffers(kind, 3, [bitmap, *buffers], children=[inner]))
        assert bytes(nested.buffers()[0]) == b"\x05"
        assert np.array(2).tobytes() not in bytes(nested.buffers()[-1])
        nested.validate(full=True)


SOME = {
    pa.bool_(): [True, False, None, True],
    pa.int64(): [1, None, 3, 4],
    pa.uint32(): [None, 2, 3, 4],
    pa.float32(): [0.5, float("nan"), None, -1.0],
    schema.TEXT: ["a", None, "", "größer"],
    pa.large_binary(): [None, b"\0", b"abc", b""],
    schema.MASK_AS_POLYGON: [[1.0, None], None, [], [float("nan")]],
    schema.POLYGON: [[[1.0, 2.0], None], None, [], [[3.0]]],
    schema.TIMING: [{"load": 1, "decode": None}, None, {}, {"inference": 3}],
    pa.list_(pa.float32(), 2): [[1.0, None], None, [3.0, 4.0], [5.0, 6.0]],
}


@pytest.mark.parametrize("kind", SOME, ids=str)
@pytest.mark.parametrize("hidden", [False, True], ids=["", "values below nulls"])
def test_arrays_are_read_as_arrow_reads_them(kind, hidden):
    """At every cut, also within a byte of what tells nulls; the bytes do not tell where it was."""
    whole = pa.array(SOME[kind] * 5, kind)
    nested = pa.types.is_nested(kind)
    if hidden:
        full = pa.array(
            [next(v for v in SOME[kind] if v) if value is None else value for value in SOME[kind] * 5], kind
        )
        children = (
            [full.field(n) for n in range(kind.num_fields)]
            if pa.types.is_struct(kind)
            else [full.values]
            if nested
            else []
        )
        own = full.buffers()[1 : 2 if pa.types.is_large_list(kind) else 1 if nested else None]
        whole = pa.Array.from_buffers(kind, len(full), [whole.buffers()[0], *own], children=children)
    for start in range(len(whole)):
        for count in (0, 1, 7, 9, len(whole) - start):
            array = whole.slice(start, count)
            assert is_valid(array).tolist() == pc.is_valid(array).to_pylist()
            if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
                assert count_lengths(array).tolist() == pc.fill_null(pc.list_value_length(array), 0).to_pylist()
            made = rebuild_array(array)
            made.validate(full=True)
            assert made.equals(array) or repr(made.to_pylist()) == repr(array.to_pylist())  # NaN is not itself
            again = rebuild_array(pa.concat_arrays([whole.slice(0, 3), array]).slice(3))
            batches = (pa.record_batch([one], ["one"]).serialize().to_pybytes() for one in (made, again))
            assert next(batches) == next(batches)
