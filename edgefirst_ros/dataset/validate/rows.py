# SPDX-License-Identifier: Apache-2.0
"""Selection of the annotation rows that stay when a table is repaired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.dataset.tables.forms.variants import decoded
from edgefirst_ros.dataset.tables.rings import is_valid
from edgefirst_ros.dataset.validate.repair import Flags, nulled, taken

IDENTITY = ("name", "frame")
OF_AN_ANNOTATION = {c.name for c in (*schema.COLUMNS, *schema.FURTHER) if c.level == "annotation"} | {
    old for old, new in schema.ALIASES.items() if new == "object_id"
}


class Rows:
    """The rows of a table: first all are added, batch by batch, then it is decided, then it is applied to each."""

    def __init__(self, samples: Collection[Key]) -> None:
        self._samples = samples
        self._codes: dict[Key, int] = {}
        self._code: list[NDArray[np.int64]] = []
        self._empty: list[Flags] = []
        self._lost: list[Flags] = []
        self._filled: dict[str, list[Flags]] = {}
        self._keep = self._blank = np.zeros(0, bool)
        self._left_out: set[str] = set()

    def add(self, fixed: pa.RecordBatch, before: pa.RecordBatch, readable: Collection[str]) -> None:
        """Take in a batch: as it is with its columns put right, and as it was."""
        self._code.append(self._coded(fixed, readable))
        had, has = _any(before, schema.GEOMETRY), _any(fixed, schema.GEOMETRY)
        self._empty.append(~has & ~_any(fixed, ("label",)))
        self._lost.append(had & ~has)
        for name in fixed.schema.names:
            self._filled.setdefault(name, []).append(is_valid(fixed.column(name)))

    def decide(self, changed: Counter[tuple[str, str]]) -> None:
        """Choose the rows and columns that stay, and count the others.

        Rows of samples that are not there go, unless no row would be left: then it is the names that differ. So do
        rows that say nothing, or lost all their geometry, but for one of a sample that has no others.
        """
        code = np.concatenate(self._code)
        empty, lost = np.concatenate(self._empty), np.concatenate(self._lost)
        there = np.array([key in self._samples for key in self._codes], bool)[code]
        keep = there if there.any() else np.ones(len(code), bool)
        gone = keep & (empty | lost)
        other = np.bincount(code[keep & ~gone], minlength=len(self._codes)) > 0
        order = np.lexsort((lost, code))  # of each sample those first that were empty before
        order = order[gone[order] & ~other[code[order]]]
        stays = np.zeros(len(code), bool)
        stays[order[np.unique(code[order], return_index=True)[1]]] = True
        self._blank = stays & lost
        self._keep = keep & (~gone | stays)
        dropped = gone & ~stays
        numbers = {
            ("REF001", "rows of samples that are not there removed"): int((~keep).sum()),
            ("TAB015", "rows that say nothing removed"): int((dropped & ~lost).sum()),
            ("TAB015", "rows left without geometry removed"): int((dropped & lost).sum()),
            ("TAB015", "only rows of their sample, left without geometry, emptied"): int(self._blank.sum()),
        }
        for name, parts in self._filled.items():
            said = np.concatenate(parts) & self._keep
            if name in OF_AN_ANNOTATION:
                said &= ~self._blank
            if name not in IDENTITY and not said.any():
                self._left_out.add(name)
        numbers["TAB006", "columns that nobody filled left out"] = len(self._left_out)
        changed.update({what: number for what, number in numbers.items() if number})

    def schema(self, before: pa.Schema) -> pa.Schema:
        """Return the columns that stay."""
        return pa.schema([f for f in before if f.name not in self._left_out])

    def apply(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """Return what stays of a batch whose first row is row `start` of the table."""
        stop = start + batch.num_rows
        blank, target = self._blank[start:stop], self.schema(batch.schema)
        arrays = [nulled(batch[n], blank) if n in OF_AN_ANNOTATION else batch[n] for n in target.names]
        keep = self._keep[start:stop]
        if not keep.all():
            arrays = [taken(array, pa.array(np.flatnonzero(keep))) for array in arrays]
        return pa.record_batch(arrays, schema=target)

    def _coded(self, batch: pa.RecordBatch, readable: Collection[str]) -> NDArray[np.int64]:
        """Return a number for the sample of each row, the same in all batches."""
        name = batch["name"]
        text = decoded(name) if pa.types.is_dictionary(name.type) else name
        names = text.cast(schema.TEXT).dictionary_encode(null_encoding="encode")
        known, of_name = names.dictionary.to_pylist(), names.indices.to_numpy(zero_copy_only=False)
        frame = batch["frame"].cast(pa.int64(), safe=False) if "frame" in readable else pa.nulls(len(batch), pa.int64())
        values, of_frame = np.unique(pc.fill_null(frame, -1).to_numpy(zero_copy_only=False), return_inverse=True)
        pairs, of_pair = np.unique(of_name.astype(np.int64) * len(values) + of_frame, return_inverse=True)
        codes = []
        for at, number in zip(*divmod(pairs, max(len(values), 1)), strict=True):
            value = int(values[number])
            key = Key(str(known[at]), None if value < 0 else value)
            codes.append(self._codes.setdefault(key, len(self._codes)))
        return np.array(codes, np.int64)[of_pair]


def _any(batch: pa.RecordBatch, names: Collection[str]) -> Flags:
    """Return where one of the columns is filled."""
    found: Flags = np.zeros(batch.num_rows, np.bool_)
    for name in names:
        if name in batch.schema.names:
            found = np.logical_or(found, is_valid(batch[name]))
    return found
