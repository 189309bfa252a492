# SPDX-License-Identifier: Apache-2.0
"""Nested JSON read piece by piece: numbers to the last bit, and what is no JSON, wherever the text is cut."""

import json
import math
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefirst_ros.dataset.tables import json_form
from edgefirst_ros.dataset.tables.forms import read_annotations
from edgefirst_ros.errors import DatasetError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(['a"b', "\\", '{"', "\\\\"])
NUMBER = st.floats(-2, 2) | st.integers(-3, 3) | st.sampled_from([1e39, 1e-400, 2**24 - 1])
INTEGER = st.integers(0, 2**64 - 1)
RING = st.lists(st.lists(NUMBER, min_size=2, max_size=2), max_size=4)


def filled(**keys):
    """Objects with any of the keys, null among the values."""
    return st.fixed_dictionaries({}, optional={key: st.none() | values for key, values in keys.items()})


def named(*names):
    return filled(**dict.fromkeys(names, NUMBER))


ANNOTATION = filled(
    label_name=TEXT,
    label_index=INTEGER,
    object_id=TEXT | st.just("2026-01-02 03:04:05"),
    polygon=st.lists(RING, max_size=2),
    mask=st.sampled_from(["", "aGFsbG8=", "iVBORw=="]),
    box2d=named("x", "y", "w", "h") | named("cx", "cy", "w", "h") | named("x_min", "y_min", "x_max", "y_max"),
    box3d=named(*"xyzwhl"),
    box2d_score=NUMBER,
    iscrowd=st.booleans(),
    timing=filled(load=st.integers(-(2**63), 2**63 - 1)),
    name=TEXT,
    frame_number=st.integers(0, 9),
)
OLDER = filled(
    label_name=TEXT,
    mask=filled(polygon=st.lists(RING, max_size=2)),
    iscrowd=st.integers(0, 1),
    object_reference=TEXT,
)
SAMPLE = {
    "image_name": TEXT | st.sampled_from(["a/b.camera.jpeg", ".jpg", "x.", "a.b.png", "a\nb.png"]),
    "sequence_name": TEXT,
    "frame_number": st.integers(-1, 2**32 - 1),
    "group_name": TEXT,
    "width": st.integers(0, 2**32 - 1),
    "height": st.integers(0, 9),
    "timestamp": st.integers(-(2**63), 2**63 - 1),
    "neg_label_indices": st.lists(st.integers(0, 9), max_size=2),
    "sensors": filled(gps=named("latitude", "longitude"), imu=named("yaw", "pitch", "roll")),
}
ODD = st.sampled_from(
    [
        {"files": [{"type": "x"}]},
        {"depth": 1.5},
        {"depth": 10**30},
        {"frame_number": 1.0},
        {"frame_number": "1"},
        {"frame_number": 2**63},
        {"sensors": [{"gps": {"latitude": 1}}, {"imu": None}]},
        {"sensors": {"gps": {"altitude": 1}}},
        {"group_name": "\ud800"},
        {"annotations": [None]},
        {"annotations": [3]},
        {"annotations": {}},
        {"annotations": [{"mask": "*"}]},
        {"annotations": [{"box2d_score": math.inf}, {"box2d_score": math.nan}]},
        {"annotations": [{"box2d": {"x": 1, "depth": 2}}]},
        {"annotations": [{"polygon": [[[0, 0], [1, 0], [1, 1, 1], [1]]]}]},
        {"annotations": [{"polygon": [[[0, None], [1, 0], [1, 1]]]}]},
        {"annotations": [{"polygon": [], "mask": {"polygon": []}}]},
        {"annotations": [{"timing": {"load": 1, "other": 2}}]},
        {"annotations": [{"iscrowd": 2}]},
    ]
)


def samples(annotation):
    return st.lists(
        st.builds(
            lambda sample, name, rows: {"name": name, **sample} | ({} if rows is None else {"annotations": rows}),
            filled(**SAMPLE),
            TEXT,
            st.none() | st.lists(annotation, max_size=3),
        ),
        max_size=6,
    )


DOCUMENTS = st.builds(
    lambda usual, odd, place: [*usual[:place], *({"name": "odd", **one} for one in odd), *usual[place:]],
    samples(ANNOTATION) | samples(OLDER) | samples(ANNOTATION | OLDER),
    st.lists(ODD, max_size=1),
    st.integers(0, 6),
)


def outcome(path):
    """All that is read of a file, or that it is refused."""
    try:
        annotations = read_annotations(path)
        rows = pa.Table.from_batches(annotations.batches(), annotations.schema)
    except DatasetError:
        return None
    tally = annotations.tally
    return rows.schema, repr(rows.to_pylist()), annotations.metadata, dict(tally.lost), dict(tally.changed)


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(document=DOCUMENTS, indent=st.sampled_from([None, 1]), plain=st.booleans(), bare=st.booleans())
def test_where_the_text_is_cut_does_not_matter(tmp_path_factory, document, indent, plain, bare):
    """It is read piece by piece, whatever the samples hold."""
    path = tmp_path_factory.getbasetemp() / "a.json"
    whole = document if bare else {"schema_version": "2026.04", "samples": document, "labels": {"a": {"b": 1}}}
    try:
        path.write_text(json.dumps(whole, ensure_ascii=plain, indent=indent), encoding="utf-8")
    except UnicodeEncodeError:
        path.write_text(json.dumps(whole), encoding="utf-8")
    at_once = outcome(path)
    for chunk in (1, 300):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_form, "CHUNK", chunk)
            assert outcome(path) == at_once


@pytest.mark.parametrize(
    "number", [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, 0.30000000000000004, -0.0, 123456789.125]
)
def test_floats_are_read_to_the_last_bit(tmp_path, number):
    """As float32 in the schema's columns: the nearest there is."""
    with np.errstate(over="ignore"):
        nearest = np.float32(number)
    sample = {"name": "a", "sensors": {"gps": {"latitude": number, "longitude": 0}}, "annotations": [{"depth": number}]}
    (tmp_path / "a.json").write_text(json.dumps([sample]))
    (row,) = [row for batch in read_annotations(tmp_path / "a.json").batches() for row in batch.to_pylist()]
    assert math.copysign(1, row["depth"]) == math.copysign(1, number)
    assert row["depth"] == number
    assert row["location"] == ([float(nearest), 0] if np.isfinite(nearest) else None)


def test_integers_of_64_bits_stay_whole(tmp_path):
    rows = [{"label_index": 2**64 - 1, "timing": {"load": 2**63 - 1}}, {"label_index": 2**53 + 1}]
    (tmp_path / "a.json").write_text(json.dumps([{"name": "a", "timestamp": -(2**63), "annotations": rows}]))
    found = [row for batch in read_annotations(tmp_path / "a.json").batches() for row in batch.to_pylist()]
    assert [row["label_index"] for row in found] == [2**64 - 1, 2**53 + 1]
    assert found[0]["timing"]["load"] == 2**63 - 1
    assert found[1]["timestamp"] == -(2**63)


DEEP = """
import sys
from edgefirst_ros.dataset.tables import json_form
from edgefirst_ros.dataset.tables.forms import read_annotations
from edgefirst_ros.errors import DatasetError

json_form.CHUNK = 1000
for path in sys.argv[1:]:
    try:
        read_annotations(path)
        print("read")
    except DatasetError:
        print("refused")
"""


@pytest.mark.parametrize("first", [0, 50], ids=["at once", "later"])
@pytest.mark.parametrize(
    ("key", "begin", "end"), [("x", "[", "]"), ("x", '{"x":', "}"), ("polygon", "[", "]"), ("box2d", '{"x":', "}")]
)
def test_values_deep_in_each_other_are_no_crash(tmp_path, first, key, begin, end):
    """In the first piece of a file, and when it is known already what there is."""
    skipped = {60: {"read"}, 5_000: {"read", "refused"}, 200_000: {"refused"}}  # how deep json goes: by the Python
    usual = '{"name": "a", "annotations": [{"polygon": null, "box2d": {"x": 1, "y": 1, "w": 1, "h": 1}}]},' * first
    for depth in skipped:
        deep = f'{{"name": "a", "annotations": [{{"{key}": {begin * depth}1{end * depth}}}]}}'
        (tmp_path / f"{depth}.json").write_text(f"[{usual}{deep}]")
    files = [tmp_path / f"{depth}.json" for depth in skipped]
    run = subprocess.run([sys.executable, "-c", DEEP, *files], check=False, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")  # killed: under 0
    for found, allowed in zip(run.stdout.split(), skipped.values(), strict=True):
        assert found in (allowed if key == "x" else {"refused"})


@pytest.mark.parametrize(
    "text",
    [
        '[{"name": "a"}, {"name": "b\nc"}]',
        '[{"name": "a"} {"name": "b"}]',
        '[{"name": "a"},, {"name": "b"}]',
        '[{"name": "a"}]} [{"name": "b"}]',
        '[{"name": "a"}, [{"name": "b"}, {"name": "c"}]]',
        '[{"name": "a", "annotations": [{"box2d_score": 01}]}]',
        '[{"name": "a"}, {"name": "\\udc00"}]',
        '{"samples": [{"name": "a"}], "samples": [{"name": "b"}]}',
        '[{"name": "a"' + ', "sensors": {"gps": ' * 50_000,
    ],
    ids=lambda text: text[:60],
)
def test_texts_that_are_no_json_are_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DatasetError, match=r"a\.json"):
        read_annotations(tmp_path / "a.json")
