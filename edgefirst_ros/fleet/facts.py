# SPDX-License-Identifier: Apache-2.0
"""Facts of a finished dataset for the catalogue, from its tables."""

from __future__ import annotations

from typing import Any

from edgefirst_ros import streams
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.regroup import ANNOTATIONS, KEY, typed_columns
from edgefirst_ros.dataset.sequences import frames_metadata
from edgefirst_ros.dataset.tables.arrow_file import TableFile, annotation_path, open_annotations

SENSORS = {f"{sensor.column}_timestamp": sensor.key for sensor in streams.with_column()} | {
    schema.MODEL_TIMESTAMP: "model"
}
"""Columns of stamps in the table of frames, and the sensors that they tell of."""


def facts(paths: DatasetPaths) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return samples, sensors, labels, first, last, latitude, longitude and group, as in `State`; and the sources.

    Raises DatasetError where a table cannot be read.
    """
    table = TableFile(paths.frames)
    there = [name for name in SENSORS if name in table.schema.names]
    samples = table.frame(["timestamp", "latitude", "longitude", *there])
    sensors = {SENSORS[name]: number for name in there if (number := samples[name].count())}
    known = samples.select("latitude", "longitude").drop_nulls()
    labels, groups = _labels_and_groups(paths)
    return {
        "samples": len(samples),
        "sensors": sensors,
        "labels": labels,
        "first": samples["timestamp"].min(),
        "last": samples["timestamp"].max(),
        "latitude": known["latitude"][0] if len(known) else None,
        "longitude": known["longitude"][0] if len(known) else None,
        "group": groups[0] if len(groups) == 1 else None,
    }, frames_metadata(paths.frames, {"sources": table.metadata["sources"]})["sources"]


def _labels_and_groups(paths: DatasetPaths) -> tuple[dict[str, int], list[str]]:
    """Return the number of samples with each label, and the groups."""
    if (path := annotation_path(paths.arrow)) is None:
        return {}, []
    rows = typed_columns(open_annotations(path), {name: ANNOTATIONS[name] for name in (*KEY, "label", "group")})
    labels = rows.select(*KEY, "label").unique()["label"].value_counts()
    return (
        dict(sorted(labels.drop_nulls("label").iter_rows())),
        rows["group"].drop_nulls().unique().to_list(),
    )
