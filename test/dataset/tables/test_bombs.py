# SPDX-License-Identifier: Apache-2.0
"""Small tables that unpack to more than there is memory, and large ones that are honest."""

import struct

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.migrate import migrate
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import Limits

SMALL = Limits(table_rows=1 << 16, unpacked_bytes=1 << 20)
ROWS = 1 << 16


def ipc(path, batch, compression=None):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return path


def nulls(path):
    """2**36 rows in a few hundred bytes: the length of a null column is a number alone."""
    return states(ipc(path, pa.record_batch([pa.nulls(123_456_789)], names=["name"])), 1 << 36)


def nested_nulls(path):
    """One row with 2**36 values."""
    offsets = pa.array([0, 123_456_789], pa.int64())
    values = pa.LargeListArray.from_arrays(offsets, pa.nulls(123_456_789))
    return states(ipc(path, pa.record_batch([values], names=["name"])), 1 << 36)


def states(path, number):
    """Have the file state another number."""
    path.write_bytes(path.read_bytes().replace(struct.pack("<q", 123_456_789), struct.pack("<q", number)))
    return path


def packed(path):
    """Zeros as a few bytes of zstd."""
    return ipc(
        path, pa.record_batch([pa.FixedSizeListArray.from_arrays(np.zeros(1 << 18), 64)], names=["name"]), "zstd"
    )


def shared_views(path):
    """Texts that are one and the same."""
    view = struct.pack("<i4sii", 1 << 10, b"aaaa", 0, 0)
    buffers = [None, pa.py_buffer(view * ROWS), pa.py_buffer(b"a" * (1 << 10))]
    return ipc(path, pa.record_batch([pa.Array.from_buffers(pa.string_view(), ROWS // 2, buffers)], names=["name"]))


def shared_dictionary(path):
    return ipc(path, pa.record_batch([repeated()], names=["name"]), "zstd")


def run_ends(path):
    array = pa.RunEndEncodedArray.from_arrays(pa.array([ROWS], pa.int32()), pa.array(["a" * (1 << 10)]))
    return ipc(path, pa.record_batch([array], names=["name"]))


def repeated():
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), pa.array(["a" * (1 << 10)]))


def parquet(path, column, **options):
    pa.parquet.write_table(pa.table({"name": column}), path, compression="zstd", store_schema=False, **options)
    return path


def parquet_rows(path):
    """A run of one value."""
    return parquet(path, pa.array(np.zeros(ROWS + 1, np.uint8)))


def parquet_texts(path):
    return parquet(path, repeated())


def parquet_prefixes(path):
    """Texts that each begin with the one before them."""
    return parquet(
        path, pa.array(["a" * (1 << 10)] * ROWS), use_dictionary=False, column_encoding={"name": "DELTA_BYTE_ARRAY"}
    )


def parquet_page(path):
    return parquet(path, pa.array([bytes(1 << 21)], pa.large_binary()), use_dictionary=False)


BOMBS = [
    *(nulls, nested_nulls, packed, shared_views, shared_dictionary, run_ends),
    *(parquet_rows, parquet_texts, parquet_prefixes, parquet_page),
]


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused(tmp_path, bomb):
    file = bomb(tmp_path / "t.table")
    before, largest = pa.total_allocated_bytes(), pa.default_memory_pool().max_memory()
    with pytest.raises(DatasetError, match=r"t\.table.*(limits\.|not read)"):
        TableFile(file, SMALL).frame()
    assert pa.total_allocated_bytes() - before < 4 << 20
    assert bomb is parquet_page or pa.default_memory_pool().max_memory() <= max(largest, before + (32 << 20))


@pytest.mark.parametrize("bomb", [nulls, nested_nulls])
def test_a_bomb_is_refused_by_every_way_in(tmp_path, bomb):
    parts = made.good()
    parts.annotations = []
    dataset = made.write(tmp_path, parts)
    file = bomb(tmp_path / "data.arrow")
    assert file.stat().st_size < 1000
    for use in (lambda: Dataset(dataset), lambda: migrate(file, tmp_path / "new.arrow")):
        with pytest.raises(DatasetError, match=r"data\.arrow: .*limits\."):
            use()
    assert "limits." in validate(dataset).to_text()


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
@pytest.mark.parametrize("compression", ["zstd", "lz4", "uncompressed"])
def test_half_a_million_rows_as_polars_writes_them_are_read(tmp_path, suffix, compression):
    rows = 500_000
    table = pl.DataFrame(
        {
            "name": pl.Series(["drive_2026_01_02_03_04_05"]).new_from_index(0, rows),
            "frame": np.arange(rows, dtype=np.uint32) // 10,
            "label": pl.Series(["car"], dtype=pl.Categorical).new_from_index(0, rows),
            "box2d": pl.Series(np.full((rows, 4), 0.5, np.float32)),
        }
    )
    path = tmp_path / f"t.{suffix}"
    table.write_ipc(path, compression=compression) if suffix == "arrow" else table.write_parquet(
        path, compression=compression
    )
    found = TableFile(path)
    assert found.rows == rows
    assert sum(batch.num_rows for batch in found.batches()) == rows


def test_the_limits_are_settings(tmp_path):
    path = ipc(tmp_path / "t.arrow", pa.record_batch([pa.array(np.zeros(1 << 21, np.uint8))], names=["name"]), "zstd")
    with pytest.raises(DatasetError, match=r"2097152 rows.*limits\.table_rows"):
        TableFile(path)
    assert TableFile(path, Limits(table_rows=1 << 21)).rows == 1 << 21
    with pytest.raises(DatasetError, match=r"limits\.unpacked_bytes"):
        TableFile(path, Limits(table_rows=1 << 21, unpacked_bytes=1 << 20))


@pytest.mark.parametrize("what", ["zero", "cut", "other"])
def test_a_footer_that_lies_is_an_error(tmp_path, what):
    path = ipc(tmp_path / "t.arrow", pa.record_batch([pa.array(["a"])], names=["name"]))
    data = bytearray(path.read_bytes())
    for place in range(len(data) - 10 - struct.unpack_from("<i", data, len(data) - 10)[0], len(data) - 6):
        spoilt = bytearray(data)
        spoilt[place] = {"zero": 0, "cut": 0x7F, "other": 0xFF}[what]
        path.write_bytes(spoilt)
        try:
            list(TableFile(path).batches())
        except DatasetError:
            continue


@pytest.mark.parametrize(("place", "kind"), [(6, 0x1C), (8, 0x1C), (10, 0x25), (11, 0x1C)])
def test_headers_of_pages_with_fields_of_other_kinds(tmp_path, place, kind):
    """Thrift compact: 0x15 is a number one field on, 0x1c a struct, 0x25 a number two fields on; 0 ends a struct."""
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"name": ["x"]}), path, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    assert data[4:6] == b"\x15\x00"
    assert (data[6], data[8], data[10], data[11]) == (0x15, 0x15, 0x2C, 0x15)
    data[place], data[place + 1] = kind, 0
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"t\.parquet"):
        TableFile(path)
