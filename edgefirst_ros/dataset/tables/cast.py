# SPDX-License-Identifier: Apache-2.0
"""Rows of a journal that another version wrote, in the columns and types of this one."""

from __future__ import annotations

import pyarrow as pa

from edgefirst_ros.dataset.tables.forms.variants import arrays, brought_to
from edgefirst_ros.errors import DatasetError


def cast_rows(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of `wanted`: null where they lack one, types cast.

    Raises DatasetError for a column that `wanted` does not have, and for a type or value that it cannot hold.
    """
    if batch.schema.equals(wanted):
        return batch
    for name in batch.schema.names:
        if name not in wanted.names:
            raise DatasetError(f"this version knows no column {name!r}")
    return pa.record_batch([_column(batch, field) for field in wanted], schema=wanted)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    values, refused = batch[field.name], 0
    if pa.types.is_struct(field.type) and pa.types.is_struct(values.type):
        for child in values.type:
            if field.type.get_field_index(child.name) < 0:
                raise DatasetError(f"this version knows no field {child.name!r} of column {field.name!r}")
    try:
        if pa.types.is_fixed_size_list(field.type):
            values, refused = arrays(values, field.type)
        else:
            values = brought_to(values, field.type)
    except (DatasetError, pa.ArrowException, ValueError) as error:
        raise DatasetError(f"column {field.name!r} cannot be cast: {error}") from error
    if refused:
        raise DatasetError(f"column {field.name!r} cannot be cast: {refused} values are no {field.type}")
    return values
