# SPDX-License-Identifier: Apache-2.0
"""Columns of a finished dataset's tables that splitting into groups needs."""

from __future__ import annotations

import os

import polars as pl

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.forms.table import annotation_path, open_annotations
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

KEY = ["name", "frame"]
ANNOTATIONS = {"name": pl.String, "frame": pl.Int64, "timestamp": pl.Int64, "label": pl.String, "group": pl.String}
FRAMES = {"name": pl.String, "frame": pl.Int64, "timestamp": pl.Int64} | {
    f"{column}_timestamp": pl.Int64 for column in schema.COMPANIONS
}


class GroupRows:
    """Reads the tables of a dataset. Raises DatasetError where they cannot be read.

    `annotations`: name, frame, timestamp, label and group of every row, in the order of the file; `samples`: name,
    frame, timestamp and the stamps of companions of every sample. Frame and stamp (ns) are null where nothing says
    them; stamps are those of the table of frames, where it has the sample.
    """

    def __init__(self, paths: DatasetPaths, limits: Limits = DEFAULT_LIMITS) -> None:
        found = annotation_path(paths.arrow)
        own = pl.DataFrame(schema=ANNOTATIONS)
        if found is not None:
            own = typed_columns(open_annotations(found, limits), ANNOTATIONS)
        there = os.path.lexists(paths.frames)
        frames = typed_columns(TableFile(paths.frames, limits), FRAMES) if there else pl.DataFrame(schema=FRAMES)
        known = frames.select(*KEY, pl.col("timestamp").alias("stamp")).unique(KEY, keep="first")
        joined = own.join(known, on=KEY, how="left", nulls_equal=True, maintain_order="left")
        self.annotations = joined.with_columns(pl.coalesce("stamp", "timestamp").alias("timestamp")).drop("stamp")
        further = self.annotations.join(known, on=KEY, how="anti", nulls_equal=True).select(*KEY, "timestamp")
        self.samples = pl.concat([frames, further.unique(KEY, keep="first", maintain_order=True)], how="diagonal")


def typed_columns(table: TableFile, wanted: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    """Return some columns of a table, null for one that it lacks."""
    there = [name for name in wanted if name in table.schema.names]
    if "name" not in there:
        raise DatasetError(f"{table.path}: has no column 'name'")
    columns = [
        (pl.col(name) if name in there else pl.lit(None)).cast(kind).alias(name) for name, kind in wanted.items()
    ]
    found = pl.DataFrame(schema=wanted)
    try:
        for frame in table.frames(there):
            found.extend(frame.select(columns))  # copied: the other columns of the batch need not stay
    except pl.exceptions.PolarsError as error:
        raise DatasetError(f"{table.path}: columns {', '.join(there)} cannot be read: {error}") from error
    if found["name"].null_count():
        raise DatasetError(f"{table.path}: column 'name' is null in a row; it must not be")
    return found
