# SPDX-License-Identifier: Apache-2.0
"""Seals journals to the final tables."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.schema import Column
from edgefirst_ros.dataset.storage.lock import create_anew, reporting
from edgefirst_ros.dataset.tables.batches import Batches
from edgefirst_ros.dataset.tables.forms.write import write_rows
from edgefirst_ros.dataset.tables.versions import Categories, count_columns, written_columns
from edgefirst_ros.errors import DatasetError

GROUPING = "grouping"
"""Key of the description of an unfinished dataset: its group rule."""


def seal_annotations(
    journal: Batches,
    out: Path,
    version: str = schema.DEFAULT_VERSION,
    labels: Sequence[str] | None = None,
    category_metadata: Mapping[str, object] | None = None,
    stated: Mapping[str, str | None] = MappingProxyType({}),
) -> int:
    """Write NAME.arrow in a schema version from an annotation journal; returns the rows.

    Columns that nobody filled are left out, and metadata about them. `labels`: names by `label_index`; `stated`: values
    of further metadata, None for a key that stays out. Raises DatasetError when it cannot be written, KeyError for a
    version that cannot be.
    """
    if version not in schema.WRITABLE:
        raise KeyError(version)
    known = schema.columns(version)
    found = count_columns(journal, known)
    identity = {column.name: 0 for column in known.values() if column.level == "identity"}
    found.filled = identity | found.filled
    columns = written_columns(found, known)
    metadata: dict[str, str] = {}
    if schema.has_metadata(version):
        given = {
            "schema_version": version,
            "category_metadata": None if category_metadata is None else json_text(category_metadata),
            "labels": None if labels is None else json_text(list(labels)),
            **stated,
        }
        for key in schema.METADATA:
            value = given.get(key.name, key.written)
            if value is not None and (key.column is None or key.column in columns):
                metadata[key.name] = value
    return _seal(journal, out, columns, found.categories, metadata, version)


def seal_frames(journal: Batches, out: Path, columns: dict[str, Column], metadata: Mapping[str, object]) -> int:
    """Write NAME.frames.arrow from a journal, with all `columns` and `metadata` (plain objects, as JSON).

    Returns the rows. Raises DatasetError when it cannot be written or a value has no JSON form.
    """
    return _seal(journal, out, columns, {}, {key: json_text(value) for key, value in metadata.items()}, "")


def json_text(value: object) -> str:
    """Return `value` as JSON in UTF-8; numbers that are not finite become null, mappings keep their order."""
    try:
        text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DatasetError(f"metadata cannot be stored as JSON: {error}") from error
    return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate: JSON's own escape


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _seal(
    journal: Batches,
    out: Path,
    columns: dict[str, Column],
    categories: Mapping[str, Categories],
    metadata: Mapping[str, str],
    version: str,
) -> int:
    with reporting(out, "write"), open(create_anew(out), "wb", buffering=1 << 20) as file:
        rows = write_rows(journal, file, ".arrow", columns, categories, metadata, version)
        file.flush()
        os.fsync(file.fileno())
    return rows
