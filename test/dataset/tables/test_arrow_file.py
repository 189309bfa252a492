# SPDX-License-Identifier: Apache-2.0
"""Tables as files: who owns what was read."""

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.errors import DatasetError


def test_what_is_read_belongs_to_arrow(tmp_path):
    """Buffers of a file of Python would be freed by Arrow's threads, which aborts an interpreter that is ending."""
    path = tmp_path / "drive.arrow"
    table = pa.table({"name": ["drive"] * 5000, "frame": np.arange(5000, dtype=np.uint32)})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    before = pa.total_allocated_bytes()
    batches = list(TableFile(path).batches())
    assert pa.total_allocated_bytes() - before >= sum(batch.nbytes for batch in batches) == table.nbytes


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_rows_of_a_parquet_file_that_are_announced_are_there(tmp_path, version):
    path = tmp_path / "four.parquet"
    table = pa.table({"name": ["a", "b", "c", "d"], "frame": [1, 2, 3, 4]})
    pq.write_table(table, path, use_dictionary=False, write_statistics=False, data_page_version=version)
    whole, refused = path.read_bytes(), 0
    four = [at for at in range(len(whole) - 1) if whole[at : at + 2] in (b"\x15\x08", b"\x16\x08")]  # Thrift: i32, i64
    for at in four:
        path.write_bytes(whole[: at + 1] + b"\0" + whole[at + 2 :])
        try:
            rows = sum(batch.num_rows for batch in TableFile(path).batches())
        except DatasetError:
            refused += 1
        else:
            assert rows == 4
    assert refused >= 6  # of the file, of the row group, and of pages and chunks of both columns


def test_frames_are_the_table_in_parts(tmp_path, monkeypatch):
    """Batches of 1 to 9 rows, each with a longer dictionary, joined until there are 10."""
    monkeypatch.setattr("edgefirst_ros.dataset.tables.arrow_file.ROWS_AT_ONCE", 10)
    labels = [pa.array([f"label {n % size}" for n in range(size)]).dictionary_encode() for size in range(1, 10)]
    path = tmp_path / "t.arrow"
    schema = pa.schema([("label", labels[0].type), ("frame", pa.uint32()), ("mask", pa.binary())])
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_file(path, schema, options=options) as writer:
        for array in labels:
            columns = [array, pa.array(range(len(array)), pa.uint32()), pa.array([b"m"] * len(array))]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    table = TableFile(path)
    parts = [part.rows() for part in table.frames(["label", "frame"])]
    assert [len(part) for part in parts] == [10, 11, 15, 9]
    assert [row for part in parts for row in part] == table.frame(["label", "frame"]).rows()


def test_names_of_columns_at_which_polars_panics_are_refused(tmp_path):
    """Those that come twice or have a NUL; within another column too, where polars would meet them much later."""
    pair = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    cut = pa.StructArray.from_arrays([pa.array([1])], ["x\0y"])
    one = pa.array(["drive"])
    cases = [
        ([one, one], ["name"] * 2, "two columns are named 'name'"),
        ([one, pair], ["name", "at"], "two columns are named 'x'"),
        ([one, one], ["name", "o\0dd"], r"column 'o\\x00dd' has a NUL in its name"),
        ([one, cut], ["name", "at"], r"column 'x\\x00y' has a NUL in its name"),
    ]
    for number, (arrays, names, told) in enumerate(cases):
        path = tmp_path / f"{number}.arrow"
        table = pa.Table.from_arrays(arrays, names)
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
        with pytest.raises(DatasetError, match=rf"{number}\.arrow: .*{told}"):
            TableFile(path)


def test_a_column_that_polars_has_no_type_for_is_an_error(tmp_path):
    path = tmp_path / "t.arrow"
    table = pa.table({"name": ["drive"], "every": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(DatasetError, match=r"t\.arrow: cannot be read as a table: "):
        TableFile(path).frame()
    assert TableFile(path).frame(["name"]).rows() == [("drive",)]


def test_metadata_that_are_not_text_are_read_past_or_refused_by_the_name_of_their_column(tmp_path):
    """polars panics at both; those of the file are of no column, and other programs' business."""
    path = tmp_path / "t.arrow"
    for field, file in (({}, {b"\xff": b"\xfe"}), ({b"\xff": b"\xfe"}, {})):
        table = pa.table({"name": ["drive"]}, pa.schema([pa.field("name", pa.string(), metadata=field)], metadata=file))
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
        if file:
            (batch,) = TableFile(path).batches()
            assert pl.DataFrame(pl.from_arrow(pa.Table.from_batches([batch]))).rows() == [("drive",)]
        else:
            with pytest.raises(DatasetError, match=r"t\.arrow: .*metadata of column 'name' is not UTF-8"):
                TableFile(path)
