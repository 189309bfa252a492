# SPDX-License-Identifier: Apache-2.0
"""Bytes of texts that rows share, each counted as often as a row has it."""

import pyarrow as pa
import pytest

from edgefirst_ros.dataset.tables.arrow_file import DEEPEST, count_text_bytes

TEXTS = ["aaaa", None, "bb", "a text of more than twelve bytes", "", "bb"]
BYTES = 4 + 2 + 32 + 2


class Tagged(pa.ExtensionType):
    """A type of another program."""

    def __init__(self):
        super().__init__(pa.string_view(), "test.tagged")

    def __arrow_ext_serialize__(self):
        return b""


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()])
def test_a_dictionary_counts_a_text_for_each_row(kind):
    values = pa.array(["aaaa", "bb", "not used", "a text of more than twelve bytes", ""], kind)
    array = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 3, 4, 1]), values)
    assert count_text_bytes(array) == BYTES
    assert count_text_bytes(array.slice(2, 2)) == 2 + 32


@pytest.mark.parametrize(("kind", "size"), [(pa.int64(), 8), (pa.float32(), 4), (pa.bool_(), 1), (pa.null(), 0)])
def test_a_dictionary_of_numbers_counts_their_width(kind, size):
    values = pa.array([None] * 3, kind) if kind == pa.null() else pa.array([1, 0, 1]).cast(kind)
    array = pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 1]), values)
    assert count_text_bytes(array) == 3 * size
    assert count_text_bytes(array.slice(2)) == size


def test_dictionaries_without_any_value_are_empty():
    for kind in (pa.string(), pa.string_view()):
        array = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], kind))
        assert count_text_bytes(array) == 0
        assert count_text_bytes(pa.array([], kind)) == 0


def test_views_are_counted_wherever_they_are():
    views = pa.array(TEXTS, pa.string_view())
    assert count_text_bytes(views) == BYTES
    assert count_text_bytes(views.slice(2, 3)) == 2 + 32
    assert count_text_bytes(pa.ExtensionArray.from_storage(Tagged(), views)) == BYTES
    assert count_text_bytes(pa.array([TEXTS, None, TEXTS], pa.list_(pa.string_view()))) == 2 * BYTES
    assert count_text_bytes(pa.array([{"x": one} for one in TEXTS], pa.struct([("x", pa.string_view())]))) == BYTES
    pairs = pa.array([[("aaaa", "bb")], [("bb", "bb")]], pa.map_(pa.string_view(), pa.string_view()))
    assert count_text_bytes(pairs) == 4 + 2 + 2 + 2


def test_dictionaries_of_what_is_shared_again_are_refused():
    lists = pa.array([["a"], ["b"]])
    with pytest.raises(ValueError, match=r"dictionaries of list<item: string> are not read"):
        count_text_bytes(pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), lists))


def test_columns_that_are_nested_without_end_are_refused():
    kind = pa.int8()
    for _ in range(DEEPEST - 1):
        kind = pa.list_(kind)
    assert count_text_bytes(pa.nulls(1, kind)) == 0
    with pytest.raises(ValueError, match="a column is nested too deeply"):
        count_text_bytes(pa.nulls(1, pa.list_(kind)))
