# SPDX-License-Identifier: Apache-2.0
"""The annotations of a dataset as labels go out: boxes and rings by picture, labels with indices, whatever the form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from edgefirst_ros.dataset.label_names import Labels
from edgefirst_ros.dataset.names import Key
from edgefirst_ros.dataset.query import annotating, first_rows, sorted_rows, with_all_columns
from edgefirst_ros.dataset.schema import VERSIONS, WORKING
from edgefirst_ros.dataset.tables.forms import JSON_SUFFIX, Annotations
from edgefirst_ros.dataset.tables.outline import outline_of_png
from edgefirst_ros.dataset.tables.values import converted
from edgefirst_ros.errors import DatasetError

if TYPE_CHECKING:
    from edgefirst_ros.dataset.reader import Dataset
    from edgefirst_ros.export.report import Report

Boxes = NDArray[np.float64]
LISTS = ("neg_label_indices", "not_exhaustive_label_indices")


def extent_of(
    box2d: Sequence[float] | None = None, polygon: Sequence[Sequence[float]] | None = None, mask: bytes | None = None
) -> list[float] | None:
    """Return [cx, cy, w, h] of an annotation, normalised: its box, else the one around its outline; None without."""
    if box2d is not None:
        return list(box2d)
    rings = polygon or (outline_of_png(mask) if mask is not None else [])
    points = np.asarray([value for ring in rings for value in ring], float).reshape(-1, 2)
    if not len(points):
        return None
    low, high = points.min(axis=0), points.max(axis=0)
    return [*((low + high) / 2).tolist(), *(high - low).tolist()]


class LabelRows:
    """Reads all annotations. Raises DatasetError where they cannot be read.

    `table`: those that are one, by sample, with every column; `boxes`: (N, 4) [cx, cy, w, h] normalised, NaN where a
    row has none; `annotated`: samples that have one; `first`: a row by sample of those that columns of the sample are
    asked of; `labels`: names by index; `columns`: those that the file has, `own_columns` those of the annotations
    themselves; `metadata`: text by key. Not `indexed`, labels without an index get none.
    """

    def __init__(self, dataset: Dataset, report: Report, *, indexed: bool = True) -> None:
        file, _ = dataset.table_files
        self.columns: list[str] = []
        metadata: dict[str, str] = {}
        rows = pl.DataFrame({"name": [], "frame": []}, {"name": pl.String, "frame": pl.UInt32})
        self._layout, self._normalised = "cxcywh", True
        if file is not None:
            nested = file.path.suffix == JSON_SUFFIX  # which its own reader understands in full
            found = Annotations(file.path, limits=dataset.limits, source=None if nested else file)
            rows = found.frame()
            metadata, self.columns = dict(found.metadata), [*found.columns]
            self._layout, self._normalised = found.layout, found.normalised
            for what, number in found.tally.lost.items():
                report.add(what, "", "cannot be read", number)
        self.metadata = metadata
        self.labels = Labels.of(metadata, rows)
        rows = with_all_columns(rows, VERSIONS[-1]).cast({"label": pl.String})
        rows = self.labels.indexed(rows) if indexed else rows
        self.own_columns = ["name", "frame", *(name for name in rows.columns if self._is_own(name))]
        self._every = rows
        self.first = first_rows(rows, dataset.paths.arrow)
        self.table, self._spans = sorted_rows(annotating(rows), dataset.paths.arrow)
        self.annotated = self._spans.keys()
        self.boxes = self._boxes()

    def of(self, key: Key) -> range:
        """Return the rows of a sample."""
        start, count = self._spans.get(key, (0, 0))
        return range(start, start + count)

    def column(self, name: str) -> list[Any]:
        """Values of a column of the samples, at the places in `first`."""
        found = self._every[name]
        return (found.cast(pl.String) if found.dtype == pl.Categorical else found).to_list()

    def rings(self, row: int) -> list[list[float]]:
        """Rings of the polygon of a row, normalised x, y."""
        return self.table["polygon"][row : row + 1].to_list()[0] or []

    def mask(self, row: int) -> bytes | None:
        """Return the PNG file of the mask of a row that is one of an object, and none of classes."""
        data: bytes | None = self.table["mask"][row]
        return data if self.table["label"][row] is not None else None

    def fits(self, row: int, form: str) -> bool:
        """True if a row can be in labels of a form: it has a label, and a place in the picture."""
        try:
            box = self.extent(row)
        except DatasetError:  # a mask that is no picture
            return False
        if form == "yolo" and box is not None:
            low, high = (np.clip(np.add(box[:2], np.multiply(box[2:], half)), 0, 1) for half in (-0.5, 0.5))
            box = box if (high > low).all() and not self.is_crowd(row) else None
        return box is not None and self.table["label"][row] is not None

    def is_crowd(self, row: int) -> bool:
        """True for an annotation of several objects that are not told apart."""
        return bool(self.table["iscrowd"][row] or self.table["ignore"][row])

    def _is_own(self, name: str) -> bool:
        column = WORKING.get(name)
        wanted = name in self.columns or name in ("label", "label_index")
        return wanted and (column is None or column.level == "annotation")

    def outline(self, row: int) -> list[list[float]]:
        """Rings of the polygon of a row, else around its mask. Raises DatasetError where that is no picture."""
        rings = self.rings(row)
        data = None if rings else self.mask(row)
        return outline_of_png(data) if data is not None else rings

    def extent(self, row: int, *, boxed: bool = True) -> list[float] | None:
        """Return the box of a row, else (not `boxed`: only) the one around its outline; None where it has neither."""
        box: list[float] = self.boxes[row].tolist()
        return box if boxed and box[0] == box[0] else extent_of(None, self.outline(row))

    def _boxes(self) -> Boxes:
        """Boxes as the tables' float32 have them where they are centre and size."""
        column = self.table["box2d"]
        found = np.full((len(column), 4), np.nan)
        there = column.is_not_null().to_numpy()
        if not there.any():
            return found
        own = column.filter(column.is_not_null()).to_numpy().astype(np.float64).reshape(-1, 4)
        own = converted(own, self._layout, "cxcywh")
        if not self._normalised:
            sizes = self.table["size"].filter(column.is_not_null())
            if sizes.null_count():
                raise DatasetError("box2d is in pixels, and the size of the picture is not known in each row")
            own = own / np.tile(sizes.to_numpy().astype(np.float64).reshape(-1, 2), 2)
        found[there] = own
        return found
