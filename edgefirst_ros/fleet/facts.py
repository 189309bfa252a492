# SPDX-License-Identifier: Apache-2.0
"""Facts of a finished dataset for the catalogue, from its tables."""

from __future__ import annotations

from typing import Any

import polars as pl

from edgefirst_ros import streams
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.frames_metadata import frames_metadata
from edgefirst_ros.dataset.group_rows import KEY, GroupRows
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.tables.arrow_file import TableFile


def facts(paths: DatasetPaths) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return samples, sensors, labels, first, last, latitude, longitude and group, as in `State`; and the sources.

    Raises DatasetError where a table cannot be read.
    """
    rows = GroupRows(paths)
    samples, annotations = rows.samples, rows.annotations
    sensors = {}
    for sensor in streams.with_column():
        number = samples[column].drop_nulls().len() if (column := f"{sensor.column}_timestamp") in samples else 0
        if number:
            sensors[sensor.key] = number
    labels = annotations.drop_nulls("label").unique([*KEY, "label"]).group_by("label").len().sort("label")
    groups = annotations["group"].drop_nulls().unique().to_list()
    table = TableFile(paths.frames)
    looked, position = _position_and_model(table)
    return {
        "samples": len(samples),
        "sensors": sensors | ({"model": looked} if looked else {}),
        "labels": dict(labels.iter_rows()),
        "first": samples["timestamp"].min(),
        "last": samples["timestamp"].max(),
        "latitude": position[0],
        "longitude": position[1],
        "group": groups[0] if len(groups) == 1 else None,
    }, frames_metadata(paths.frames, table.metadata)["sources"]


def _position_and_model(table: TableFile) -> tuple[int, tuple[float | None, float | None]]:
    """Return the number of samples that the model processed, and the first known position."""
    wanted = [name for name in ("latitude", "longitude", schema.MODEL_TIMESTAMP) if name in table.schema.names]
    frame = table.frame(wanted)
    looked = frame[schema.MODEL_TIMESTAMP].drop_nulls().len() if schema.MODEL_TIMESTAMP in frame.columns else 0
    known = frame.filter(pl.col("latitude").is_not_null() & pl.col("longitude").is_not_null())
    return looked, known.select("latitude", "longitude").row(0) if len(known) else (None, None)
