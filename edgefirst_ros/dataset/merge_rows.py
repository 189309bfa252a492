# SPDX-License-Identifier: Apache-2.0
"""Tables of a dataset read for a merge: only columns and types of the format, rows by sample.

Rows stay in Arrow, however many there are: as values of Python they would take fifty times the memory.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from itertools import accumulate

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.dataset.query import keys_of
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.cast import cast_rows
from edgefirst_ros.dataset.tables.forms.read import Annotations
from edgefirst_ros.dataset.tables.journal import ANNOTATION_JOURNAL
from edgefirst_ros.dataset.tables.rings import is_valid, lengths, lists
from edgefirst_ros.errors import DatasetError, text_of
from edgefirst_ros.limits import Limits
from edgefirst_ros.sensors.grayscale import encode_gray
from edgefirst_ros.sensors.masks import VOID

INDICES = ("neg_label_indices", "not_exhaustive_label_indices")
FREE_PIXELS, PIXELS_PER_BYTE, PER_MASK = 1 << 30, 1032, 1 << 14
"""Pixels of masks that are counted anew in any case, and for each byte of the file: deflate cannot do better.

A mask counts for so many at least: to look at it takes time, however small it is."""


def read_frames(file: TableFile) -> pl.DataFrame:
    """Return the columns of a table of frames that the format has, in its types.

    Raises DatasetError naming a column of another kind, before anything is made of it.
    """
    known = {c.name: c for c in schema.frames_columns(schema.COMPANIONS).values() if c.name in file.schema.names}
    wanted = schema.journal_schema(known)
    batches = [_cast(file, batch.select(wanted.names), wanted) for batch in file.batches()]
    return pl.DataFrame(pl.from_arrow(pa.Table.from_batches(batches, wanted)))


def _cast(file: TableFile, batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    try:
        return cast_rows(batch, wanted)
    except DatasetError as error:
        raise DatasetError(f"{file.path}: {error}") from error


class AnnotationRows:
    """Annotations in columns of a journal, those of a sample behind each other.

    `table`: all rows; `keys`: name and frame of every sample that has rows, also of those that are not there.
    """

    def __init__(self, found: Annotations, samples: Collection[Key], limits: Limits) -> None:
        """`samples`: those whose rows are asked for. Raises DatasetError where rows cannot be read."""
        self.path = found.path
        names = [name for name in ANNOTATION_JOURNAL.names if name in found.columns]
        batches = list(found.batches(names))
        table = pa.Table.from_batches(batches, found.schema_of(names))
        order = keys_of(
            pl.DataFrame(pl.from_arrow(table.select([n for n in ("name", "frame") if n in names]))), self.path
        )
        order = order.with_row_index().sort("name", "frame", maintain_order=True)
        runs = order.group_by("name", "frame", maintain_order=True).len()
        if not order["index"].is_sorted():
            table = table.take(order["index"].to_arrow())
        self.table = table
        self.keys = runs.select("name", "frame")
        starts = accumulate(runs["len"], initial=0)
        wanted = frozenset(samples)
        self._spans = {
            Key(name, frame): (start, count)
            for (name, frame, count), start in zip(runs.iter_rows(), starts, strict=False)
            if (name, frame) in wanted
        }
        self._pixels = max(FREE_PIXELS, PIXELS_PER_BYTE * found.path.stat().st_size, limits.unpacked_bytes)

    def of(
        self, key: Key, sequence: str, timestamp: int, ids: Mapping[str, str], indices: Mapping[int, int]
    ) -> pa.RecordBatch | None:
        """Return the rows of a sample for the merged dataset; None without any.

        `ids`, `indices`: what becomes of an object id and a label's index, where that is another.
        """
        start, count = self._spans.get(key, (0, 0))
        if not count:
            return None
        rows = self.table.slice(start, count).combine_chunks()
        found = {name: rows[name].chunk(0) for name in rows.column_names}
        if ids and "object_id" in found:
            found["object_id"] = pa.array([ids.get(one, one) for one in found["object_id"].to_pylist()], schema.TEXT)
        if indices:
            self._count_anew(found, indices)
        found |= {
            "name": pa.repeat(pa.scalar(sequence, schema.TEXT), count),
            "frame": pa.repeat(pa.scalar(key.frame, pa.uint32()), count),
            "timestamp": pa.repeat(pa.scalar(timestamp, pa.int64()), count),
        }
        columns = [found[c.name] if c.name in found else pa.nulls(count, c.type) for c in ANNOTATION_JOURNAL]
        return pa.record_batch(columns, schema=ANNOTATION_JOURNAL)

    def _count_anew(self, found: dict[str, pa.Array], indices: Mapping[int, int]) -> None:
        if "label_index" in found:
            found["label_index"] = _mapped(found["label_index"], indices)
        for name in (name for name in INDICES if name in found):
            array = found[name]
            found[name] = lists(lengths(array), _mapped(pc.list_flatten(array), indices), is_valid(array), array.type)
        if "mask" not in found:
            return
        plain = is_valid(found["mask"])
        for name in ("box2d", "polygon", "label"):
            if name in found:
                plain &= ~is_valid(found[name])
        if plain.any():
            masks = [
                self._mask(mask.as_py(), indices) if of_classes else mask.as_py()
                for mask, of_classes in zip(found["mask"], plain, strict=True)
            ]
            found["mask"] = pa.array(masks, found["mask"].type)

    def _mask(self, png: bytes, indices: Mapping[int, int]) -> bytes:
        """Return a semantic mask with the label indices of the merged dataset."""
        from PIL import Image

        known = [indices.get(old, old) if old < VOID else old for old in range(256)]
        try:
            with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
                if image.mode not in ("1", "L"):
                    raise DatasetError(f"{self.path}: a mask of classes of mode {image.mode}, expected 8 bits")
                self._pixels -= max(PER_MASK, image.width * image.height)
                if self._pixels < 0:
                    raise DatasetError(
                        f"{self.path}: masks of classes must be renumbered and have too many pixels for their bytes "
                        f"({PIXELS_PER_BYTE} for each, {FREE_PIXELS} or limits.unpacked_bytes in any case)"
                    )
                classes = np.asarray(image).astype(np.uint8)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DatasetError(f"{self.path}: a mask cannot be read as PNG: {text_of(error)}") from error
        if max((known[old] for old in np.flatnonzero(np.bincount(classes.ravel(), minlength=256))), default=0) > VOID:
            raise DatasetError(f"{self.path}: a mask of classes can have {VOID} labels, there are more")
        return encode_gray(np.array([new & 255 for new in known], np.uint8)[classes])


def _mapped(array: pa.Array, indices: Mapping[int, int]) -> pa.Array:
    """Return an array with the keys of `indices` replaced by their values; nulls stay."""
    old = np.array(sorted(indices), np.uint64)
    new = np.array([indices[one] for one in sorted(indices)], np.uint64)
    values: NDArray[np.uint64] = pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(np.uint64)
    place = np.minimum(np.searchsorted(old, values), len(old) - 1)
    changed = np.where(old[place] == values, new[place], values)
    return pa.array(changed, mask=~is_valid(array)).cast(array.type)
