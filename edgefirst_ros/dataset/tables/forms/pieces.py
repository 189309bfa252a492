# SPDX-License-Identifier: Apache-2.0
"""Whole samples of nested JSON parsed into columns at once, as long as they hold what is usual.

Arrow's parser is asked for known keys of known types alone: left to find out itself what there is, it crashes where
values lie deep in each other. What it refuses is no error yet: those samples are to be decoded one by one, which knows
older forms and further keys, and says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from edgefirst_ros.dataset.tables.forms.collect import Columns
from edgefirst_ros.dataset.tables.forms.flatten import ANNOTATION, REPEATED, SAMPLE
from edgefirst_ros.dataset.tables.forms.variants import brought_to
from edgefirst_ros.dataset.tables.rings import lengths
from edgefirst_ros.errors import DatasetError

_SAMPLE = pa.struct([*SAMPLE.items(), ("annotations", pa.list_(pa.struct(list(ANNOTATION.items()))))])
_KNOWN = pa.struct([("samples", pa.list_(_SAMPLE))])
_OLDER_MASK = pa.struct([("polygon", ANNOTATION["polygon"])])
_BLANKS = bytes.maketrans(b"\t\n\r", b"   ")


class Whole(NamedTuple):
    """Samples with their annotations, which follow each other; `owner`: which sample each belongs to.

    A sample without annotations has one that is null.
    """

    samples: Columns
    rows: Columns
    owner: NDArray[np.int64]


class Pieces:
    """Parses one piece of text after another; which of the keys there are is learned on the way."""

    def __init__(self) -> None:
        self._asked: pa.Schema | None = None
        self._usual = True

    def parsed(self, text: bytes) -> Whole | None:
        """The samples in `text`, separated by commas; None when they have to be decoded one by one."""
        if not self._usual:
            return None
        whole = b'{"samples":[%b]}' % text.translate(_BLANKS)
        try:
            return self._parsed(whole)
        except (pa.ArrowException, DatasetError, ValueError, RecursionError):
            return None

    def _parsed(self, whole: bytes) -> Whole | None:
        if self._asked is not None:
            try:
                return _taken(_table(whole, self._asked))
            except pa.ArrowException:
                pass  # a key that was not there so far, maybe
        return _taken(_table(whole, self._asked)) if self._learn(whole) else None

    def _learn(self, whole: bytes) -> bool:
        """Ask for what there is from now on; False when that is nothing new, or a key is not known."""
        try:
            there = _narrowed([json.loads(whole)], _KNOWN)
        except KeyError:  # and so it will be with the other samples: not worth to be tried again
            self._usual = False
            return False
        there = there if self._asked is None else _united(pa.struct(list(self._asked)), there)
        asked = pa.schema(list(there))
        if asked == self._asked:
            return False
        self._asked = asked
        return True


def ends(text: bytes) -> NDArray[np.intp]:
    """Places of the braces that close an object which lies in no other, in text that begins outside of all.

    None where a text has a control character in it, which is wrong.
    """
    if b"\\" in text:
        text = text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
    characters = np.frombuffer(text, np.uint8)
    quotes, opening, closing = (characters == ord(wanted) for wanted in '"{}')
    at = np.flatnonzero(quotes | opening | closing | (characters < ord(" ")))
    inside = np.cumsum(quotes[at], dtype=np.int32) & 1 == 1
    opens, closes = opening[at] & ~inside, closing[at] & ~inside
    if (inside & (characters[at] < ord(" "))).any():
        return at[:0]
    depth = np.cumsum(opens.astype(np.int8) - closes, dtype=np.int32)
    found: NDArray[np.intp] = at[closes & (depth == 0)]
    return found


def _table(whole: bytes, asked: pa.Schema) -> pa.Table:
    return pa.json.read_json(
        pa.BufferReader(whole),
        pa.json.ReadOptions(use_threads=False, block_size=len(whole) + 1),
        pa.json.ParseOptions(explicit_schema=asked, unexpected_field_behavior="error"),
    )


def _narrowed(values: Iterable[Any], wanted: pa.DataType) -> pa.DataType:
    """The known type without the keys that no value has, of the types that the parser has.

    Raises KeyError for a key that is not known.
    """
    types = pa.types
    if types.is_large_string(wanted):
        return pa.string()
    if types.is_boolean(wanted) and any(type(value) is int for value in values):
        return pa.int64()
    if types.is_list(wanted) or types.is_large_list(wanted):
        inner = (item for value in values if isinstance(value, list) for item in value)
        return pa.list_(_narrowed(inner, wanted.value_type))
    if types.is_struct(wanted):
        known = {field.name: field.type for field in wanted}
        objects = [value for value in values if isinstance(value, dict)]
        there = dict.fromkeys(key for value in objects for key in value)
        return pa.struct([(key, _asked(key, [value.get(key) for value in objects], known)) for key in there])
    return wanted


def _asked(key: str, values: list[Any], known: dict[str, pa.DataType]) -> pa.DataType:
    if key in REPEATED and key not in known and "label_name" in known:  # passed over, whatever it says
        return pa.int64() if any(type(value) is int for value in values) else pa.string()
    if key == "mask" and any(isinstance(value, dict) for value in values):
        return _narrowed(values, _OLDER_MASK)
    return _narrowed(values, known[key])


def _united(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """The type with all that was found, now and before."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        before, now = ({field.name: field.type for field in kind} for kind in (old, new))
        both = {name: _united(before[name], now[name]) for name in before.keys() & now.keys()}
        return pa.struct(list((before | now | both).items()))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(_united(old.value_type, new.value_type))
    return new


def _taken(table: pa.Table) -> Whole | None:
    """The columns of a table with one row that has all samples; None for what is no such table."""
    if table.num_rows != 1:
        return None
    samples = pc.list_flatten(table["samples"].combine_chunks())
    if samples.null_count:
        return None
    named = _children(samples)
    listed = named.pop("annotations", pa.nulls(len(samples), pa.list_(pa.struct([]))))
    annotations = pc.list_flatten(listed)
    if annotations.null_count:
        return None
    counts = lengths(listed)
    owner = np.repeat(np.arange(len(samples)), np.maximum(counts, 1))
    if not counts.all():
        there = counts[owner] > 0
        annotations = annotations.take(pa.array(np.cumsum(there) - 1, mask=~there))
    found = _children(annotations)
    mask = found.get("mask")
    if mask is not None and pa.types.is_struct(mask.type):
        if "polygon" in found and found["polygon"].null_count < len(annotations):
            return None
        found["polygon"] = _children(found.pop("mask")).get("polygon", pa.nulls(len(mask)))
    return Whole(_completed(named, SAMPLE, len(samples)), _completed(found, ANNOTATION, len(annotations)), owner)


def _children(array: pa.StructArray) -> Columns:
    return dict(zip((field.name for field in array.type), array.flatten(), strict=True))


def _completed(found: Columns, kinds: dict[str, pa.DataType], length: int) -> Columns:
    """All columns there may be, in the types that they are to have."""
    return {
        key: brought_to(found[key], kind) if key in found else pa.nulls(length, kind) for key, kind in kinds.items()
    }
