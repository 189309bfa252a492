# SPDX-License-Identifier: Apache-2.0
"""Statistics of annotations: labels, position and size of boxes, samples that the model processed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from edgefirst_ros.dataset.verdict import MODEL
from edgefirst_ros.report.subject import Floats, Subject

COLUMNS, ROWS = 32, 18
"""Cells of the map of where boxes lie."""
MOST_LABELS = 40
"""Labels that are drawn; the others are counted together."""


def labels(subject: Subject) -> dict[str, Any]:
    """Annotations by label, what the model looked at, and how degraded pictures are."""
    rows, timeline = subject.annotations, subject.timeline
    found: dict[str, Any] = {"labels": {}, "model": {"looked_at": 0, "samples": subject.samples}}
    if "label" in rows.columns:
        counted = rows["label"].drop_nulls().cast(str, strict=False).value_counts(sort=True)
        found["labels"] = dict(counted.iter_rows())
    if MODEL in timeline.companions:
        found["model"]["looked_at"] = int(timeline.companions[MODEL].has.sum())
    if "degradation" in rows.columns and {"name", "frame"} <= set(rows.columns):
        one = rows.select("name", "frame", pl.col("degradation").cast(str, strict=False)).unique()
        found["degradation"] = dict(one["degradation"].drop_nulls().value_counts(sort=True).iter_rows())
    return found


def boxes(subject: Subject) -> Floats:
    """(N, 4) centre x, y, width, height of all boxes that are given in parts of the picture."""
    return boxes_of(subject.annotations, subject.metadata)


def boxes_of(rows: pl.DataFrame, metadata: Mapping[str, Any]) -> Floats:
    """(N, 4) centre and size of boxes in parts of the picture; rows without one, or in pixels, are left out."""
    if "box2d" not in rows.columns or str(metadata.get("box2d_normalized", "true")) == "false":
        return np.zeros((0, 4))
    kind = rows.schema["box2d"]
    if not isinstance(kind, pl.Array | pl.List):
        return np.zeros((0, 4))
    values = rows["box2d"].drop_nulls()
    if isinstance(kind, pl.List):
        values = values.filter(values.list.len() == 4).cast(pl.Array(pl.Float64, 4), strict=False)
    found: Floats = np.array(values.to_list(), float).reshape(-1, 4)
    found = found[np.isfinite(found).all(1)]
    form = metadata.get("box2d_format", "cxcywh")
    if form == "xyxy":
        found = np.column_stack([(found[:, :2] + found[:, 2:]) / 2, found[:, 2:] - found[:, :2]])
    elif form == "ltwh":
        found = np.column_stack([found[:, :2] + found[:, 2:] / 2, found[:, 2:]])
    return found


def box_cells(found: Floats) -> Floats:
    """(ROWS, COLUMNS) how many boxes have their centre in each cell of the picture, the upper ones first."""
    cells, _, _ = np.histogram2d(found[:, 1], found[:, 0], (ROWS, COLUMNS), ((0, 1), (0, 1)))
    return cells
