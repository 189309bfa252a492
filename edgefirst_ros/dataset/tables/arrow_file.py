# SPDX-License-Identifier: Apache-2.0
"""Opens a table of a dataset as a file: Arrow IPC, Parquet as other tools write it, or nested JSON.

Sizes that batches and pages state are summed before any is unpacked. Source: Apache Arrow, format/File.fbs, Message.fbs
("Footer", "RecordBatch", "BodyCompression"); FlatBuffers internals; apache/parquet-format, parquet.thrift
("PageHeader"); Thrift compact protocol.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
from numpy.typing import NDArray

from edgefirst_ros.dataset.lazy import pl
from edgefirst_ros.dataset.storage.lock import open_file
from edgefirst_ros.dataset.tables.values import decode_dictionary, find_bounds, is_list, is_valid, read_scalars
from edgefirst_ros.errors import DatasetError, TooLargeError, explain_errors
from edgefirst_ros.limits import DEFAULT_LIMITS, Budget, Limits

if TYPE_CHECKING:
    from typing_extensions import Self


PYARROW = int(pa.__version__.partition(".")[0])
"""Major version: below 26 nulls in lists of fixed size are not read from Parquet, and Python 3.10 has no later one."""
_TAIL = struct.Struct("<i6s")
_BLOCK = struct.Struct("<qi4xq")
_PAIR = struct.Struct("<2q")
_MARK = struct.Struct("<4si")
_SCHEMA, _DICTIONARY, _RECORDS = 1, 2, 3
_CONTINUED = b"\xff\xff\xff\xff"
_OLD_COMPRESSION = b"ARROW:experimental_compression"


def count_batches(fd: int, size: int, budget: Budget) -> None:
    """Take what all batches state from `budget`: rows, values, bytes once unpacked.

    Raises ValueError where the file is cut or its parts are outside of it, DatasetError where it is too much.
    """
    length, _ = _TAIL.unpack(_pread(fd, _TAIL.size, size - _TAIL.size, size))
    footer = _Table.root(_pread(fd, length, size - _TAIL.size - length, size))
    for field in (2, 3):
        for offset, head, _ in footer.structs(field, _BLOCK):
            budget.spend(unpacked=head)  # it is read, also where many blocks are one and the same
            _count(fd, size, offset, _pread(fd, head, offset, size), budget)


def count_stream(fd: int, size: int, budget: Budget) -> int:
    """Return where the last message of an Arrow IPC stream ends that is whole, with those before it within `budget`."""
    place = schemas = 0
    while True:
        try:
            mark, length = _MARK.unpack(_pread(fd, _MARK.size, place, size))
            head = _pread(fd, _MARK.size + length, place, size) if mark == _CONTINUED else b""
            message = _Table.root(head[_MARK.size :])
            end = place + len(head) + _not_negative(message.scalar(3, "<q"))
            if end > size:
                return place
            if message.scalar(1, "<B") == _SCHEMA and not schemas:
                schemas += 1
            else:
                _count(fd, size, place, head, budget)
        except (ValueError, struct.error, TooLargeError):
            return place
        place = end


def count_message(fd: int, size: int, offset: int, budget: Budget) -> None:
    """Subtract the sizes that the record batch at `offset` of a file of `size` bytes states from `budget`.

    Raises ValueError where it is cut or broken, DatasetError where it is too much.
    """
    try:
        mark, length = _MARK.unpack(_pread(fd, _MARK.size, offset, size))
        if mark != _CONTINUED:
            raise ValueError("no message begins here")
        _count(fd, size, offset, _pread(fd, _MARK.size + length, offset, size), budget)
    except struct.error as error:
        raise ValueError(str(error)) from error


def _count(fd: int, size: int, offset: int, head: bytes, budget: Budget) -> None:
    message = _Table.root(head[8 if head.startswith(_CONTINUED) else 4 :])
    if _OLD_COMPRESSION in head:
        raise ValueError("is packed in a way that was given up before Arrow 1.0")
    kind, batch = message.scalar(1, "<B"), message.table(2)
    if kind == _DICTIONARY and batch is not None:
        batch = batch.table(1)
    elif kind != _RECORDS:
        raise ValueError(f"a message of kind {kind} is not a batch")
    if batch is None:
        return
    values = sum(_not_negative(length) for length, _ in batch.structs(1, _PAIR))
    rows = _not_negative(batch.scalar(0, "<q"))
    packed, unpacked = batch.table(3) is not None, 0
    for place, length in batch.structs(2, _PAIR):
        stated = -1
        if packed and length:
            stated = struct.unpack("<q", _pread(fd, 8, offset + len(head) + place, size))[0]
        unpacked += _not_negative(length if stated == -1 else stated)
    budget.spend(rows=rows if kind == _RECORDS else 0, values=max(values, rows), unpacked=unpacked)


def _not_negative(number: int) -> int:
    if number < 0:
        raise ValueError(f"a length of {number} is stated in it")
    return number


def _pread(fd: int, length: int, offset: int, size: int) -> bytes:
    data = os.pread(fd, length, offset) if length >= 0 and offset >= 0 and offset + length <= size else b""
    if len(data) != length:
        raise ValueError(f"it is cut or damaged: it names byte {offset + length}, and has {size}")
    return data


class _Table:
    """A table of a FlatBuffer; struct.error, a ValueError here, where it leaves the buffer."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._slots = place - self._at(place, "<i")
        self._end = self._slots + self._at(self._slots, "<H")

    @classmethod
    def root(cls, data: bytes) -> _Table:
        """Return the table that a buffer begins with the place of."""
        if len(data) < 4:
            raise ValueError("a part of it is empty")
        return cls(data, struct.unpack_from("<I", data)[0])

    def scalar(self, field: int, form: str) -> int:
        """Return a number; 0 where it is dropped."""
        place = self._field(field)
        return self._at(place, form) if place else 0

    def table(self, field: int) -> _Table | None:
        """Return a table; None where it is dropped."""
        place = self._field(field)
        return _Table(self._data, place + self._at(place, "<I")) if place else None

    def structs(self, field: int, form: struct.Struct) -> Iterator[tuple[int, ...]]:
        place = self._field(field)
        if not place:
            return iter(())
        start = place + self._at(place, "<I")
        end = start + 4 + self._at(start, "<I") * form.size
        if end > len(self._data):
            raise ValueError("a list in it reaches over its end")
        return form.iter_unpack(memoryview(self._data)[start + 4 : end])

    def _field(self, field: int) -> int:
        slot = self._slots + 4 + 2 * field
        offset = self._at(slot, "<H") if slot < self._end else 0
        return self._place + offset if offset else 0

    def _at(self, place: int, form: str) -> int:
        if not 0 <= place <= len(self._data) - struct.calcsize(form):
            raise ValueError("it names a place outside of itself")
        return int(struct.unpack_from(form, self._data, place)[0])


HEAD, LARGEST_HEAD = 1 << 12, 1 << 24
"""Bytes read for the header of a page at first, and at most (the reader's own limit)."""
PER_PAGE = 1 << 10
"""Bytes that a page counts for at least: to look at it takes time, however small it is."""
DEEPEST_THRIFT = 8
_DICTIONARY_PAGE, _DELTA_BYTES = 2, 7
_TEXTS = ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")


def count_pages(fd: int, metadata: Any, budget: Budget) -> int:
    """Take what all pages state from `budget`; returns the bytes of the longest value that a row may repeat.

    Pages of text state each value once where rows repeat it: of such a column no more is known than that no value is
    longer than its page. Raises ValueError where a page cannot be read, DatasetError where it is too much.
    """
    longest = 0
    for group in range(metadata.num_row_groups):
        budget.spend(rows=metadata.row_group(group).num_rows)
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            values, repeated = _count_column(fd, column, budget)
            if column.physical_type in _TEXTS and repeated:
                if metadata.schema.column(number).max_repetition_level:
                    budget.spend(unpacked=values * repeated)  # all of them may be in one row
                longest = max(longest, repeated)
    return longest


def _count_column(fd: int, column: Any, budget: Budget) -> tuple[int, int]:
    """(values, bytes of the largest page whose values may be repeated)."""
    place = int(column.data_page_offset)
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < place:
        place = int(column.dictionary_page_offset)
    end = place + int(column.total_compressed_size)
    total = repeated = 0
    while place < end:
        page, size = _read_header(fd, place)
        unpacked, packed = _get_number(page, 2), _get_number(page, 3)
        data = page.get(5) or page.get(8) or {}
        if not isinstance(data, dict):
            raise ValueError(f"the page at {place} is described by a number")
        values = _get_number(data, 1)
        budget.spend(unpacked=max(unpacked, PER_PAGE), values=values)
        encoding = data.get(4 if 8 in page else 2)
        if page.get(1) == _DICTIONARY_PAGE or encoding == _DELTA_BYTES:
            repeated = max(repeated, unpacked)
        total += values
        if packed < 0:
            raise ValueError(f"a page of {packed} bytes at {place}")
        place += size + packed
    return total, repeated


def _get_number(found: dict[int, Any], field: int) -> int:
    """Return the number of a field, 0 without the field. Raises ValueError for another type."""
    value = found.get(field, 0)
    if not isinstance(value, int):
        raise ValueError(f"field {field} of a page is not a number")
    return value


def _read_header(fd: int, place: int) -> tuple[dict[int, Any], int]:
    """Return the header of a page, and how many bytes it takes."""
    length = HEAD
    while True:
        data = os.pread(fd, length, place)
        reader = _Compact(data)
        try:
            return reader.struct(DEEPEST_THRIFT), reader.place
        except IndexError:
            if len(data) < length or length >= LARGEST_HEAD:
                raise ValueError(f"the header of the page at {place} cannot be read") from None
            length *= 8


class _Compact:
    """Thrift's compact protocol, as far as headers of pages need it; IndexError where the data end early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Return the numbers and structs of a struct by field; texts and lists are passed over."""
        if not depth:
            raise ValueError("the header of a page is nested too deeply")
        found: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._read_signed()
            found[field] = self._value(head & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._read_signed()
        if kind == 7:
            self._skip(8)
        elif kind == 8:
            self._skip(self._read_unsigned())
        elif kind == 12:
            return self.struct(depth - 1)
        else:
            raise ValueError(f"the header of a page holds a value of kind {kind}")
        return None

    def _byte(self) -> int:
        self.place += 1
        return self._data[self.place - 1]

    def _skip(self, length: int) -> None:
        if self.place + length > len(self._data):
            raise IndexError
        self.place += length

    def _read_unsigned(self) -> int:
        value = shift = 0
        while shift < 64:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("a number of more than 64 bits in the header of a page")

    def _read_signed(self) -> int:
        value = self._read_unsigned()
        return value >> 1 ^ -(value & 1)


DEEPEST = 16
"""Types nested more deeply are rejected; those of the format have three levels."""


def count_text_bytes(array: pa.Array, depth: int = DEEPEST) -> int:
    """Return the bytes of all texts and pictures of a checked array, those that rows share once for each of them.

    Raises ValueError for types whose rows can share more than texts: run ends, views of lists, unions.
    """
    kind, types = array.type, pa.types
    if not depth:
        raise ValueError("a column is nested too deeply")
    if types.is_dictionary(kind):
        sizes = _sizes(array.dictionary)
        index = read_scalars(array.indices)[is_valid(array)]
        return int(sizes[index].sum())
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return int(_view_sizes(array).sum())
    if is_list(kind):
        return count_text_bytes(array.values, depth - 1)
    if types.is_map(kind):
        return count_text_bytes(array.keys, depth - 1) + count_text_bytes(array.items, depth - 1)
    if types.is_struct(kind):
        return sum(count_text_bytes(array.field(number), depth - 1) for number in range(kind.num_fields))
    if isinstance(array, pa.ExtensionArray):
        return count_text_bytes(array.storage, depth - 1)
    if types.is_nested(kind) or types.is_run_end_encoded(kind):
        raise ValueError(f"columns of type {kind} are not read")
    return 0


def _sizes(values: pa.Array) -> NDArray[np.int64]:
    kind, types = values.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _view_sizes(values)
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        return np.diff(find_bounds(values)).astype(np.int64)
    if types.is_nested(kind) or types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        raise ValueError(f"dictionaries of {kind} are not read")
    return np.full(len(values), 0 if types.is_null(kind) else -(-kind.bit_width // 8), np.int64)


def _view_sizes(array: pa.Array) -> NDArray[np.int64]:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), np.int64)
    views = np.frombuffer(buffer, np.int32, 4 * (array.offset + len(array))).reshape(-1, 4)
    return np.where(is_valid(array), views[array.offset :, 0], 0).astype(np.int64)


ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 14, 1 << 24
"""Rows that `TableFile.frames` yields at a time, or bytes of all their columns, or some more."""
ARROW_MAGIC = b"ARROW1"
PARQUET_MAGIC = b"PAR1"
ROWS = 65536


class TableFile:
    """An open table: `schema` (Arrow, without metadata), `metadata` (text by key), `is_parquet`, rows batch by batch.

    The file is read, never mapped: if another process cuts it, reading raises an error. Raises DatasetError where the
    file is not a table, a link or not a regular file, its rows are broken, or it states that it unpacks to more than
    `limits` let it.
    """

    def __init__(self, path: Path, limits: Limits = DEFAULT_LIMITS, *, fd: int | None = None) -> None:
        """`fd`: a descriptor of its bytes, which is closed here; `path` is then what messages call it."""
        self.path = path
        self._checked = False
        self._limits = limits
        self._at_once = ROWS
        fd = open_file(path) if fd is None else fd
        try:
            start = os.pread(fd, len(ARROW_MAGIC), 0)
            self._size = os.fstat(fd).st_size
            self.is_parquet = start != ARROW_MAGIC
            if not self.is_parquet:
                if os.pread(fd, len(ARROW_MAGIC), max(self._size - len(ARROW_MAGIC), 0)) != ARROW_MAGIC:
                    raise ValueError("it is cut, its end is missing; edgefirst-ros recover OUT/NAME rebuilds it")
                count_batches(fd, self._size, self._budget())
                self._bytes = _open_native(fd)
                self._file: Any = pa.ipc.open_file(self._bytes)
                schema = self._file.schema
            elif start.startswith(PARQUET_MAGIC):
                schema = self._open_parquet(fd)
            else:
                stream = "; an Arrow IPC stream?" if start[:4] == b"\xff\xff\xff\xff" else ""
                raise DatasetError(f"{path}: begins with {start!r}, expected {ARROW_MAGIC!r} (Arrow IPC file){stream}")
            self.schema = schema.remove_metadata()
            _check_names(self.schema)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{path}: cannot be read as a table: {error}") from error
        finally:
            os.close(fd)
        self.metadata = {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for key, value in (schema.metadata or {}).items()
        }

    def _open_parquet(self, fd: int) -> Any:
        from pyarrow.parquet import ParquetFile

        self._bytes = _open_native(fd)
        self._file = file = ParquetFile(self._bytes)
        schema = file.schema_arrow
        if PYARROW < 26 and any(pa.types.is_fixed_size_list(field.type) for field in schema):
            coded = [field.name for field in schema if pa.types.is_dictionary(field.type)]
            plain = _without_arrow_schema(file.metadata)
            self._file = ParquetFile(self._bytes, metadata=plain, read_dictionary=coded)
        budget = self._budget()
        longest = count_pages(fd, self._file.metadata, budget)
        self._at_once = max(1, min(ROWS, budget.unpacked // max(1, longest)))
        # polars leaves the metadata of the file out of the Arrow schema that it stores in it
        stored = dict(file.metadata.metadata or {})
        stored.pop(b"ARROW:schema", None)
        return schema.with_metadata(stored)

    def _budget(self) -> Budget:
        return Budget.of_file(self.path, self._size, self._limits)

    @cached_property
    def rows(self) -> int:
        """Number of rows."""
        if self.is_parquet:
            return int(self._file.metadata.num_rows)
        return sum(batch.num_rows for batch in self._read_stored())

    def batches(self) -> Iterator[Any]:
        """Yield the record batches, on the first pass fully validated: lengths, offsets, UTF-8, dictionary indices."""
        budget, found = self._budget(), 0
        with explain_errors(f"{self.path}: rows cannot be read", pa.ArrowException, OSError, ValueError):
            for batch in self._read_stored():
                found += batch.num_rows
                if not self._checked:
                    batch.validate(full=True)
                    budget.spend(rows=batch.num_rows, unpacked=sum(map(count_text_bytes, batch.columns)))
                    budget.spend(unpacked=batch.nbytes if self.is_parquet else 0)
                yield batch.replace_schema_metadata()  # it may be bytes at which polars panics
            if self.is_parquet and found != self.rows:
                raise ValueError(f"{self.rows} are announced, but {found} are there")
            self.rows = found
            self._checked = True

    def check_rows(self) -> Self:
        """Read all rows, which validates them, and return itself. Raises DatasetError."""
        for _ in self.batches():
            pass
        return self

    def values(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the values of existing columns as Python objects, without loading polars.

        Raises DatasetError.
        """
        found: dict[str, list[Any]] = {name: [] for name in names}
        for batch in self.batches():
            for name, values in found.items():
                array = batch.column(name)
                values.extend((decode_dictionary(array) if pa.types.is_dictionary(array.type) else array).to_pylist())
        return found

    def frame(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return all rows, of `columns` the existing ones. Raises DatasetError, also for types unknown to polars."""
        names = [name for name in self.schema.names if columns is None or name in columns]
        return self._in_polars(names, self.batches())

    def frames(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the rows of existing columns, some batches at a time: these hold all columns. Raises as `frame`."""
        waiting, rows, size = list[Any](), 0, 0
        for batch in self.batches():
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
                yield self._in_polars(columns, waiting)
                waiting, rows, size = [], 0, 0
        if waiting or not self.rows:
            yield self._in_polars(columns, waiting)

    def _in_polars(self, names: Sequence[str], batches: Iterable[Any]) -> pl.DataFrame:
        with explain_errors(f"{self.path}: cannot be read as a table", pa.ArrowException, ValueError):
            schema = pa.schema([self.schema.field(name) for name in names])
            table = pa.Table.from_batches([batch.select(names) for batch in batches], schema).unify_dictionaries()
        return to_polars(self.path, table)

    def _read_stored(self) -> Iterator[Any]:
        if self.is_parquet:
            for batch in self._file.iter_batches(self._at_once):
                if batch.schema.equals(self.schema):
                    yield batch
                else:
                    kinds = zip(batch.columns, self.schema.types, strict=True)
                    yield pa.record_batch([_convert(column, kind) for column, kind in kinds], schema=self.schema)
        else:
            for number in range(self._file.num_record_batches):
                yield self._file.get_batch(number)


def _without_arrow_schema(metadata: Any) -> Any:
    """Return the metadata of a Parquet file without the Arrow schema, so that lists of fixed size are read as lists."""
    from pyarrow.parquet import read_metadata

    written = io.BytesIO()
    metadata.write_metadata_file(written)
    return read_metadata(io.BytesIO(written.getvalue().replace(b"ARROW:schema", b"ARROW.schema")))


def _convert(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array in the type that the file states; raises ValueError for a list that has another size."""
    if array.type == kind:
        return array
    if not pa.types.is_fixed_size_list(kind) or pa.types.is_fixed_size_list(array.type):
        return array.cast(kind)
    size, valid = kind.list_size, np.asarray(array.is_valid())
    lengths = np.diff(np.asarray(array.offsets))[valid]
    if (lengths != size).any():
        raise ValueError(f"lists of {size} values are announced, but one has {int(lengths[lengths != size][0])}")
    begins = np.where(valid, np.cumsum(valid) - 1, 0) * size
    places = begins[:, None] + np.arange(size)
    missing = np.broadcast_to(~valid[:, None], places.shape)
    values = array.flatten().cast(kind.value_type).take(pa.array(places.ravel(), mask=missing.ravel()))
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=pa.array(~valid))


def _open_native(fd: int) -> Any:
    """Return the same file opened by pyarrow itself.

    Of a file of Python its threads hold buffers that only Python can free; one that is freed while the interpreter ends
    aborts the process.
    """
    return pa.OSFile(f"/dev/fd/{fd}")


def to_polars(path: Path, table: Any) -> pl.DataFrame:
    """Return a pyarrow table in polars. Raises DatasetError naming `path` for types unknown to polars."""
    refusals = pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError
    with explain_errors(f"{path}: cannot be read as a table", *refusals):
        _check_types(table.schema)
        return pl.DataFrame(pl.from_arrow(table))


def _check_types(fields: Iterable[Any]) -> None:
    """Raise ValueError for types at which polars panics, with text on stderr."""
    for field in fields:
        kind, types = field.type, pa.types
        empty = types.is_fixed_size_list(kind) and not kind.list_size
        if empty or types.is_interval(kind) or types.is_union(kind) or types.is_decimal256(kind):
            raise ValueError(f"{field.name!r} is {kind}")
        _check_types(kind.field(number) for number in range(kind.num_fields))


def _check_names(fields: Iterable[Any]) -> None:
    """Raise ValueError for names that come twice or have a NUL, and metadata that are not UTF-8: polars would panic."""
    seen: set[str] = set()
    for field in fields:
        try:
            _ = [text.decode() for pair in (field.metadata or {}).items() for text in pair]
        except UnicodeDecodeError as error:
            raise ValueError(f"the metadata of column {field.name!r} is not UTF-8: {error}") from error
        if "\0" in field.name:
            raise ValueError(f"column {field.name!r} has a NUL in its name")
        if field.name in seen:
            raise ValueError(f"two columns are named {field.name!r}")
        seen.add(field.name)
        _check_names(field.type.field(number) for number in range(field.type.num_fields))


SUFFIXES = (".arrow", ".parquet", ".json")
"""Suffixes of annotation files; of several files the first counts."""


def list_annotation_paths(arrow: Path) -> list[Path]:
    """Return the paths that the annotations of a dataset may have: NAME.arrow, NAME.parquet, NAME.json."""
    return [arrow.with_name(arrow.name.removesuffix(SUFFIXES[0]) + suffix) for suffix in SUFFIXES]


def find_annotations(arrow: Path) -> Path | None:
    """Return NAME.arrow, else NAME.parquet or NAME.json beside it; None without any of them."""
    return next((path for path in list_annotation_paths(arrow) if os.path.lexists(path)), None)


def open_annotations(path: Path, limits: Limits = DEFAULT_LIMITS) -> TableFile:
    """Open annotations of any format as a table. Raises DatasetError if the file is not one."""
    if path.suffix != SUFFIXES[-1]:
        return TableFile(path, limits)
    from edgefirst_ros.dataset.tables.json_form import NestedTable

    return NestedTable(path, limits)
