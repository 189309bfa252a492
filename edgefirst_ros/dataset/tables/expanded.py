# SPDX-License-Identifier: Apache-2.0
"""Expanded size of texts with one copy per row: views and dictionaries store one for many rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edgefirst_ros.dataset.tables.rings import is_valid

DEEPEST = 16
"""Types nested more deeply are refused; those of the format have three levels."""


def expanded_bytes(array: pa.Array, depth: int = DEEPEST) -> int:
    """Return the bytes of all texts and pictures of a checked array, those that rows share once for each of them.

    Raises ValueError for types whose rows can share more than texts: run ends, views of lists, unions.
    """
    kind, types = array.type, pa.types
    if not depth:
        raise ValueError("a column is nested too deeply")
    if types.is_dictionary(kind):
        sizes = _sizes(array.dictionary)
        index = array.indices.drop_null().to_numpy(zero_copy_only=False)
        return int(sizes[index].sum())
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return int(_view_sizes(array).sum())
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return expanded_bytes(array.values, depth - 1)
    if types.is_map(kind):
        return expanded_bytes(array.keys, depth - 1) + expanded_bytes(array.items, depth - 1)
    if types.is_struct(kind):
        return sum(expanded_bytes(array.field(number), depth - 1) for number in range(kind.num_fields))
    if isinstance(array, pa.ExtensionArray):
        return expanded_bytes(array.storage, depth - 1)
    if types.is_nested(kind) or types.is_run_end_encoded(kind):
        raise ValueError(f"columns of type {kind} are not read")
    return 0


def _sizes(values: pa.Array) -> NDArray[np.int64]:
    """Return the bytes of each value of a dictionary."""
    kind, types = values.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _view_sizes(values)
    if types.is_string(kind) or types.is_binary(kind) or types.is_large_string(kind) or types.is_large_binary(kind):
        width = np.int64 if types.is_large_string(kind) or types.is_large_binary(kind) else np.int32
        buffer = values.buffers()[1]
        if buffer is None or not len(values):
            return np.zeros(len(values), np.int64)
        offsets = np.frombuffer(buffer, width)[values.offset : values.offset + len(values) + 1]
        return np.diff(offsets).astype(np.int64)
    if types.is_nested(kind) or types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        raise ValueError(f"dictionaries of {kind} are not read")
    return np.full(len(values), 0 if types.is_null(kind) else -(-kind.bit_width // 8), np.int64)


def _view_sizes(array: pa.Array) -> NDArray[np.int64]:
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array), np.int64)
    views = np.frombuffer(buffer, np.int32, 4 * (array.offset + len(array))).reshape(-1, 4)
    return np.where(is_valid(array), views[array.offset :, 0], 0).astype(np.int64)
