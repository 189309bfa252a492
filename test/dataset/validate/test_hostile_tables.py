# SPDX-License-Identifier: Apache-2.0
"""Tables that are made to harm, in what writes them anew: `validate --fix`, `migrate`, `split`."""

import handmade_dataset as made
import pyarrow as pa
import pytest

from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.migrate import migrate
from edgefirst_ros.dataset.regroup import split
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.validate.fix import fix
from edgefirst_ros.errors import EdgeFirstError

COUNT = 4
ROWS = {"name": [made.SEQUENCE] * COUNT, "frame": [3, 3, 4, 7], "label": ["car"] * COUNT}
DEEP = "[" * 100_000
METADATA = {
    **{f"{key} deep": {key: DEEP} for key in ("labels", "category_metadata", "schema_version")},
    **{f"{key} escape": {key: "\x1b]0;x\x07"} for key in ("schema_version", "box2d_format", "mask_interpretation")},
    "labels numbers": {"labels": "[1, 2, null, {}]"},
    "labels digits": {"labels": f"[{'9' * 5000}]"},
    "labels huge": {"labels": "[" + '"x",' * 200_000 + '"x"]'},
    "labels surrogate": {"labels": '["\\ud800", "car"]'},
    "category_metadata list": {"category_metadata": "[[]]"},
    "category_metadata surrogate": {"category_metadata": '{"\\udfff": 1, "car": {"\\ud800": []}}'},
    "version far": {"schema_version": "9999.99"},
}
COLUMNS = {
    "box2d texts": ("box2d", pa.array([["a", "b", "c", "d"]] * COUNT)),
    "box2d deep": ("box2d", pa.array([[[[[[1.0]]]]]] * COUNT)),
    "polygon texts": ("polygon", pa.array([[["x"] * 6]] * COUNT)),
    "polygon odd": ("polygon", pa.array([[[0.0] * 7]] * COUNT, pa.list_(pa.list_(pa.float16())))),
    "mask struct": ("mask", pa.array([{"png": b"x"}] * COUNT)),
    "mask text": ("mask", pa.array(["\x89PNG"] * COUNT)),
    "label_index negative": ("label_index", pa.array([-1] * COUNT)),
    "label_index decimal": ("label_index", pa.array([1] * COUNT).cast(pa.decimal128(25, 2))),
    "timing map": ("timing", pa.array([[("load", 1)]] * COUNT, pa.map_(pa.string(), pa.int64()))),
    "timing empty": ("timing", pa.array([{}] * COUNT, pa.struct([]))),
    "score texts": ("box2d_score", pa.array(["0.5"] * COUNT)),
    "neg_label_indices floats": ("neg_label_indices", pa.array([[0.5, float("nan")]] * COUNT)),
    "group bytes": ("group", pa.array([b"\xff\xfe"] * COUNT)),
    "timestamp durations": ("timestamp", pa.array([1] * COUNT, pa.duration("ns"))),
    "object_id run ends": ("object_id", pa.RunEndEncodedArray.from_arrays(pa.array([COUNT]), pa.array(["x"]))),
    "foreign union": ("x", pa.UnionArray.from_sparse(pa.array([0] * COUNT, pa.int8()), [pa.array([1] * COUNT)])),
    "foreign name": ("\x1b[31m\n", pa.array([1] * COUNT)),
}
CASES = [(dict(value), None) for value in METADATA.values()] + [({}, column) for column in COLUMNS.values()]


@pytest.mark.parametrize(("metadata", "column"), CASES, ids=[*METADATA, *COLUMNS])
def test_what_writes_tables_anew_refuses_or_does_it(tmp_path, metadata, column):
    dataset = made.write(tmp_path, made.good())
    rows = pa.table(ROWS)
    table = rows if column is None else rows.append_column(*column)
    path = tmp_path / "data.arrow"
    with pa.ipc.new_file(str(path), table.schema.with_metadata({"schema_version": "2026.04", **metadata})) as writer:
        writer.write_table(table)
    rule = GroupRule.of(Settings(split={"train": 1.0}))
    for change in (lambda: fix(dataset), lambda: migrate(path, tmp_path / "m.json"), lambda: split([dataset], rule)):
        before = {name: name.read_bytes() for name in tmp_path.iterdir()}
        refused = ""
        try:
            change()
        except EdgeFirstError as error:
            refused = str(error)
        assert len(refused) < 1 << 16
        assert not refused or {name: name.read_bytes() for name in tmp_path.iterdir()} == before
    said = validate(dataset).to_text()
    assert "\x1b" not in said
    assert len(said) < 1 << 16


def test_a_column_that_polars_cannot_read_hides_no_other(tmp_path):
    dataset = made.write(tmp_path, made.good())
    kind = pa.struct([("load", pa.int64()), ("further", pa.decimal256(60))])
    timing = pa.array([{"load": -1, "further": None}] * COUNT, kind)
    table = pa.table({**ROWS, "box2d_score": [2.0] * COUNT}).append_column("timing", timing)
    with pa.ipc.new_file(str(tmp_path / "data.arrow"), table.schema) as writer:
        writer.write_table(table)
    counts = validate(dataset).counts
    assert (counts["TAB008"], counts["TAB010"]) == (COUNT, 0)
