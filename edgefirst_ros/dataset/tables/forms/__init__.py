# SPDX-License-Identifier: Apache-2.0
"""Annotations as files: Arrow, Parquet and nested JSON, in every schema version."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefirst_ros.dataset.tables.forms.read import Annotations, read_annotations

__all__ = ["Annotations", "read_annotations"]


def __getattr__(name: str) -> object:
    """Import what is asked for when it is asked for: the forms need heavy libraries."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from edgefirst_ros.dataset.tables.forms import read

    return getattr(read, name)
