# SPDX-License-Identifier: Apache-2.0
"""Headers of Parquet pages as any writer may make them: what they state is counted, however they state it.

Thrift's compact protocol by hand: a field is a byte of (fields on << 4 | kind), numbers are zigzag, 0 ends a struct.
Source: apache/thrift, thrift-compact-protocol.md; apache/parquet-format, parquet.thrift ("PageHeader").
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.errors import DatasetError, TooLargeError
from edgefirst_ros.limits import Limits

SMALL = Limits(unpacked_bytes=1 << 20)
TRUE, BYTE, INT, DOUBLE, TEXT, LIST, STRUCT = 1, 3, 5, 7, 8, 9, 12
LARGE = 1 << 30
VALUE = 1 << 14
"""Bytes of the only value, over which a header is written."""


def varint(number):
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def number(value):
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def struct(*fields):
    """Fields as (id, kind, bytes), each in the short form."""
    found, last = b"", 0
    for field, kind, body in fields:
        found += bytes([field - last << 4 | kind]) + body
        last = field
    return found + b"\0"


def page(*further, unpacked=LARGE, packed=VALUE):
    """A header of a data page of one value; fields behind 5 come in `further`."""
    data = struct((1, INT, number(1)), (2, INT, number(0)), (3, INT, number(3)), (4, INT, number(3)))
    return struct(
        (1, INT, number(0)), (2, INT, number(unpacked)), (3, INT, number(packed)), (5, STRUCT, data), *further
    )


def parquet(path, head):
    """A file of one page with another header."""
    table = pa.table({"name": pa.array([bytes(VALUE)], pa.binary())})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
    place = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[place : place + len(head)] = head
    path.write_bytes(data)
    return path


def test_a_page_that_states_more_than_the_limit_is_refused(tmp_path):
    with pytest.raises(TooLargeError, match=rf"t\.parquet: unpacks to {LARGE} bytes or more.*limits\.unpacked_bytes"):
        TableFile(parquet(tmp_path / "t.parquet", page()), SMALL)
    assert TableFile(parquet(tmp_path / "t.parquet", page(unpacked=VALUE)), SMALL).rows == 1


@pytest.mark.parametrize(
    "field",
    [
        (TRUE, b""),
        (BYTE, b"\x7f"),
        (DOUBLE, b"\x15" * 8),
        (TEXT, varint(5) + b"\x15" * 5),
        (TEXT, varint(5000) + b"\x15" * 5000),
        (STRUCT, struct((1, STRUCT, struct((3, TEXT, varint(2) + b"\x15" * 2))))),
    ],
    ids=["truth", "byte", "double", "text", "longer than is read at first", "nested"],
)
def test_fields_of_any_kind_are_passed_over(tmp_path, field):
    """The size is behind them: it stands in a second page, which is found only where the first header ends rightly."""
    first = page((15, *field), unpacked=VALUE, packed=0)
    with pytest.raises(TooLargeError, match=rf"unpacks to {VALUE + LARGE} bytes"):
        TableFile(parquet(tmp_path / "t.parquet", first + page()), SMALL)


def test_a_field_that_names_its_number_is_that_field(tmp_path):
    """The long form: no step, but the number of the field behind the kind."""
    size = bytes([INT]) + number(2) + number(LARGE)
    head = b"\x15" + number(0) + size + b"\x15" + number(VALUE) + b"\0"
    with pytest.raises(TooLargeError, match=rf"unpacks to {LARGE} bytes"):
        TableFile(parquet(tmp_path / "t.parquet", head), SMALL)


def nested(depth):
    return b"\0" if not depth else struct((1, STRUCT, nested(depth - 1)))


REFUSED = {
    "page of a negative size": (page(unpacked=VALUE, packed=-5), r"a page of -5 bytes at 4"),
    "number in place of a struct": (
        struct((1, INT, number(0)), (2, INT, number(9)), (3, INT, number(9)), (5, INT, number(7))),
        r"the page at 4 is described by a number",
    ),
    "nested": (nested(9), r"the header of a page is nested too deeply"),
    "list": (struct((1, LIST, b"\x15\0")), r"the header of a page holds a value of kind 9"),
    "number without an end": (struct((1, INT, b"\xff" * 10)), r"a number of more than 64 bits"),
    "text beyond the file": (struct((1, TEXT, varint(1 << 20))), r"the header of the page at 4 cannot be read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_header_that_is_none_is_refused(tmp_path, case):
    head, told = REFUSED[case]
    with pytest.raises(DatasetError, match=rf"t\.parquet: cannot be read as a table: {told}"):
        TableFile(parquet(tmp_path / "t.parquet", head))


def test_texts_of_one_page_may_all_lie_in_one_row(tmp_path):
    """A dictionary states a text once, and a list may hold it as often as the page has values."""
    path, text, times = tmp_path / "t.parquet", "a" * 1000, 5000
    for lists in ([[text] * times], [[text]] * times):
        pq.write_table(pa.table({"name": pa.array(lists)}), path, compression="zstd", store_schema=False)
        assert path.stat().st_size < 1 << 15
        with pytest.raises(TooLargeError, match=r"t\.parquet: unpacks to 50\d{5} bytes"):
            TableFile(path, SMALL)
    assert TableFile(path, Limits(unpacked_bytes=1 << 23)).values(["name"]) == {"name": [[text]] * times}
