# SPDX-License-Identifier: Apache-2.0
"""Annotations of a dataset in any file format, as a table."""

from __future__ import annotations

import os
from pathlib import Path

from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

SUFFIXES = (".arrow", ".parquet", ".json")
"""Suffixes of annotation files; of several files the first counts."""


def annotation_forms(arrow: Path) -> list[Path]:
    """Return the paths that the annotations of a dataset may have: NAME.arrow, NAME.parquet, NAME.json."""
    return [arrow.with_name(arrow.name.removesuffix(SUFFIXES[0]) + suffix) for suffix in SUFFIXES]


def annotation_path(arrow: Path) -> Path | None:
    """Return NAME.arrow, else NAME.parquet or NAME.json beside it; None without any of them."""
    return next((path for path in annotation_forms(arrow) if os.path.lexists(path)), None)


def open_annotations(path: Path, limits: Limits = DEFAULT_LIMITS) -> TableFile:
    """Open annotations of any format as a table. Raises DatasetError if the file is not one."""
    if path.suffix != SUFFIXES[-1]:
        return TableFile(path, limits)
    from edgefirst_ros.dataset.tables.forms.nested_table import NestedTable

    return NestedTable(path, limits)
