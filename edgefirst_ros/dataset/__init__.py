# SPDX-License-Identifier: Apache-2.0
"""Datasets on disk: names, container, tables, writing, reading, validating."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefirst_ros.dataset.names import DatasetPaths, locate
    from edgefirst_ros.dataset.reader import Dataset
    from edgefirst_ros.dataset.writer import DatasetWriter, NewSample

__all__ = ["Dataset", "DatasetPaths", "DatasetWriter", "NewSample", "locate"]

_HOMES = {
    "Dataset": "reader",
    "DatasetPaths": "names",
    "DatasetWriter": "writer",
    "NewSample": "writer",
    "locate": "names",
}


def __getattr__(name: str) -> object:
    """Import a public name where it lives when it is first asked for: tables need heavy libraries."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
