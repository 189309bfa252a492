# SPDX-License-Identifier: Apache-2.0
"""Changes rows between schema versions and box layouts, batch by batch, and counts what changed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.schema import Column
from edgefirst_ros.dataset.tables.boxes import converted
from edgefirst_ros.dataset.tables.forms.read import Annotations
from edgefirst_ros.dataset.tables.forms.variants import fixed, numbers_of
from edgefirst_ros.dataset.tables.outline import outline_of_png, scored_threshold
from edgefirst_ros.dataset.tables.rings import is_valid
from edgefirst_ros.errors import DatasetError

CROWD = "2026.10"
"""From this version on `ignore` replaces `iscrowd`, which mirrors it."""
RASTER = "2026.04"
"""From this version on masks are PNG pictures."""
OUTLINED = "mask: its outline is kept"

Rows = NDArray[np.bool_]


@dataclass(frozen=True)
class Boxes:
    """Layout and unit of `box2d`."""

    layout: str
    normalised: bool


class Change:
    """Rows of a file as another version and layout has them, in working types, with their `columns`, `boxes`."""

    def __init__(self, source: Annotations, to: str, boxes: Boxes, *, nested: bool, optical: bool = False) -> None:
        """`optical`: `box3d` of the source is in optical axes (right, down, forward)."""
        self._source = source
        self._tally = source.tally
        self._to = to
        self._found = Boxes(source.layout, source.normalised)
        self.boxes = boxes
        self._interpretation = source.metadata.get("mask_interpretation", "binary")
        self._steps: list[Callable[[dict[str, pa.Array]], None]] = []
        there = source.columns
        added: dict[str, Column] = {}
        if "box2d" in there and self._found != boxes:
            self._steps.append(self._converted_boxes)
        if optical and "box3d" in there:
            self._steps.append(self._turned_boxes)
        if to >= CROWD and "iscrowd" in there and "ignore" not in there:
            self._steps.append(self._ignored)
            added["ignore"] = schema.WORKING["ignore"]
        if to < CROWD and "ignore" in there:
            self._steps.append(self._crowds)
            added["iscrowd"] = schema.WORKING["iscrowd"]
        if to < RASTER and "mask" in there:
            self._steps.append(self._outlined)
            added["polygon"] = schema.WORKING["polygon"]
        if nested:
            self._steps.append(self._finite)
        gone = {"ignore"} if to < CROWD else set()
        gone |= {"mask"} if to < RASTER else set()
        merged = {**there, **added}
        known = [name for name in schema.WORKING if name in merged] + [n for n in merged if n not in schema.WORKING]
        self.columns = {name: merged[name] for name in known if name not in gone}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for batch in self._source.batches():
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for step in self._steps:
                step(columns)
            target = schema.journal_schema(self.columns)
            yield pa.record_batch([columns[name] for name in self.columns], schema=target)

    def _converted_boxes(self, columns: dict[str, pa.Array]) -> None:
        array = columns["box2d"]
        valid: Rows = is_valid(array)
        numbers = numbers_of(array).astype(np.float64)
        if self._found.normalised != self.boxes.normalised:
            known, scale = np.zeros(len(array), bool), np.ones((len(array), 4))
            if "size" in columns:
                size = numbers_of(columns["size"])
                known = np.asarray((size > 0).all(axis=1))
                scale[known] = np.tile(size[known], 2)
            self._tally.lose("box2d: the size of the picture is not known", int((valid & ~known).sum()))
            valid = valid & known
            numbers = numbers / scale if self.boxes.normalised else numbers * scale
        numbers = converted(numbers, self._found.layout, self.boxes.layout)
        with np.errstate(over="ignore"):
            single = numbers.astype(np.float32)
        finite = np.asarray(np.isfinite(single).all(axis=1))
        self._tally.lose("box2d: too large for its layout", int((valid & ~finite).sum()))
        valid = valid & finite
        single[~valid] = 0
        columns["box2d"] = fixed(single, valid, array.type)
        self._tally.change(f"box2d: {_words(self._found)} to {_words(self.boxes)}", int(valid.sum()))

    def _turned_boxes(self, columns: dict[str, pa.Array]) -> None:
        array = columns["box3d"]
        valid: Rows = is_valid(array)
        turned = numbers_of(array)[:, [2, 0, 1, 5, 3, 4]] * np.array([1, -1, -1, 1, 1, 1], np.float32)
        turned[~valid] = 0
        columns["box3d"] = fixed(turned.astype(np.float32), valid, array.type)
        self._tally.change("box3d: right, down, forward to forward, left, up", int(valid.sum()))

    def _finite(self, columns: dict[str, pa.Array]) -> None:
        """Count and remove numbers that JSON does not have (NaN, infinity); columns of the schema have none."""
        for name, array in columns.items():
            if name not in schema.WORKING and pa.types.is_floating(array.type):
                fits = pc.is_finite(array)
                lost = int(pc.sum(pc.invert(fits)).as_py() or 0)
                if lost:
                    self._tally.lose(f"{name}: NaN and infinity, which JSON has not", lost)
                    columns[name] = pc.if_else(fits, array, pa.scalar(None, array.type))

    def _ignored(self, columns: dict[str, pa.Array]) -> None:
        crowd = columns["iscrowd"]
        columns["ignore"] = crowd
        self._tally.change("ignore: made from iscrowd, which stays", len(crowd) - crowd.null_count)

    def _crowds(self, columns: dict[str, pa.Array]) -> None:
        ignore = columns.pop("ignore")
        crowd = columns.get("iscrowd", pa.nulls(len(ignore), pa.bool_()))
        other = int(pc.sum(pc.not_equal(ignore, crowd)).as_py() or 0)
        self._tally.lose("iscrowd: other than ignore, which counts", other)
        columns["iscrowd"] = pc.coalesce(ignore, crowd)
        self._tally.change("ignore: kept as iscrowd", len(ignore) - ignore.null_count)

    def _outlined(self, columns: dict[str, pa.Array]) -> None:
        """Put the outlines of masks where there is no polygon; a list of coordinates is all that 2025.10 has."""
        masks = columns.pop("mask")
        polygons = columns.get("polygon", pa.nulls(len(masks), schema.POLYGON))
        boxes = columns.get("box2d", pa.nulls(len(masks)))
        taken, boxed = is_valid(polygons), is_valid(boxes)
        found: list[list[list[float]] | None] = [None] * len(masks)
        for row in np.flatnonzero(is_valid(masks)).tolist():
            if taken[row]:
                self._tally.lose("mask: the row has a polygon, which takes its place", 1)
                continue
            try:
                found[row] = self._outline(masks[row].as_py(), bool(boxed[row]))
            except DatasetError as error:
                self._tally.lose(f"mask: {error}", 1)
                continue
            self._tally.change(OUTLINED, 1)
            if (threshold := scored_threshold(masks[row].as_py())) is not None:
                self._tally.lose(f"mask: scores of its pixels, object is above {threshold}, half of the range", 1)
        outlines = pa.array(found, schema.POLYGON)
        index = np.where(taken, 0, len(masks)) + np.arange(len(masks))
        columns["polygon"] = pa.concat_arrays([polygons, outlines]).take(pa.array(index))

    def _outline(self, png: bytes, boxed: bool) -> list[list[float]]:
        from PIL import Image

        if self._interpretation == "logits":
            raise DatasetError("logits have no threshold that makes an outline")
        rings = outline_of_png(png)
        with Image.open(io.BytesIO(png)) as picture:
            if picture.mode != "1" and not boxed:
                raise DatasetError("indices of classes are not an outline of one object")
        return rings


def _words(boxes: Boxes) -> str:
    return f"{boxes.layout} {'normalised' if boxes.normalised else 'in pixels'}"
