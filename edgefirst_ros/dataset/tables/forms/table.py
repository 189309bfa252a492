# SPDX-License-Identifier: Apache-2.0
"""The annotations of a dataset, whichever form they have, as one table."""

from __future__ import annotations

import os
from pathlib import Path

from edgefirst_ros.config import DEFAULT_LIMITS, Limits
from edgefirst_ros.dataset.tables.arrow_file import TableFile

SUFFIXES = (".arrow", ".parquet", ".json")
"""Of the annotations, beside each other the first counts."""


def annotation_path(arrow: Path) -> Path | None:
    """NAME.arrow, else NAME.parquet or NAME.json beside it; None where there is none of them."""
    paths = (arrow.with_name(arrow.name.removesuffix(SUFFIXES[0]) + suffix) for suffix in SUFFIXES)
    return next((path for path in paths if os.path.lexists(path)), None)


def open_annotations(path: Path, limits: Limits = DEFAULT_LIMITS) -> TableFile:
    """Annotations of any form as a table. Raises DatasetError when they are none."""
    if path.suffix != SUFFIXES[-1]:
        return TableFile(path, limits)
    from edgefirst_ros.dataset.tables.forms.nested_table import NestedTable

    return NestedTable(path, limits)
