# SPDX-License-Identifier: Apache-2.0
"""Random invalid values in annotations: refused on writing, and found by the right rule on checking."""

import math

import handmade_dataset as made
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgefirst_ros.dataset.tables.rowlog import ANNOTATION_ROWS, RowRules
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError

NOT_FINITE = st.sampled_from([math.nan, math.inf, -math.inf])
PLACES = st.floats(0, 1, width=32)


def with_one(size, good, bad):
    """Lists of `size` good values but for a bad one somewhere."""
    return st.tuples(st.lists(good, min_size=size, max_size=size), st.integers(0, size - 1), bad).map(
        lambda parts: [parts[2] if n == parts[1] else value for n, value in enumerate(parts[0])]
    )


RINGS = st.one_of(
    st.lists(PLACES, min_size=1, max_size=5),
    st.lists(PLACES, min_size=7, max_size=21).filter(lambda ring: len(ring) % 2),
)
SCORES = st.one_of(NOT_FINITE, st.floats(1.125, 1e6, width=32), st.floats(-1e6, -0.125, width=32))
BOXES = with_one(4, PLACES, NOT_FINITE)
REFUSED = st.one_of(
    st.tuples(st.just("polygon"), RINGS.map(lambda ring: [[0.0, 0.0, 1.0, 0.0, 1.0, 1.0], ring]), st.just("TAB007")),
    st.tuples(st.just("box2d_score"), SCORES, st.just("TAB008")),
    st.tuples(st.just("box2d"), BOXES, st.just("TAB009")),
)
TIMES = with_one(4, st.integers(0, 10**12), st.integers(-(10**12), -1)).map(
    lambda times: dict(zip(("load", "preprocess", "inference", "decode"), times, strict=True))
)
FOUND = st.one_of(
    REFUSED,
    st.tuples(st.just("timing"), TIMES, st.just("TAB010")),
    st.tuples(st.just("group"), st.text("abcxyz", min_size=1, max_size=5), st.just("TAB011")),
    st.tuples(st.just("mask"), st.binary(max_size=40), st.just("TAB013")),
    st.tuples(
        st.just("mask"), st.integers(0, len(made.mask_png()) - 1).map(lambda n: made.mask_png()[:n]), st.just("TAB013")
    ),
    st.tuples(st.just("frame"), st.integers(100, 2**32 - 1), st.just("REF001")),
)


@settings(max_examples=150)
@given(bad=REFUSED)
def test_refused_on_writing(bad):
    name, value, _ = bad
    row = {"name": "drive", "frame": 1, "timestamp": 1}
    RowRules(ANNOTATION_ROWS).check(row)
    with pytest.raises(DatasetError, match="drive frame 1"):
        RowRules(ANNOTATION_ROWS).check({**row, name: value})


@settings(max_examples=60)
@given(bad=FOUND, row=st.integers(0, 1))
def test_found_by_the_right_rule(bad, row, tmp_path_factory):
    name, value, rule = bad
    parts = made.good()
    assume(parts.annotations[row].get(name) != value)
    parts.annotations[row][name] = value
    folder = tmp_path_factory.mktemp("invalid")
    assert rule in validate(made.write(folder, parts), strict=True).counts
