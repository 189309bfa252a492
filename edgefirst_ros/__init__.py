# SPDX-License-Identifier: Apache-2.0
"""Turns drives recorded with the Maivin into EdgeFirst datasets, on the device and off it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.dataset.migrate import migrate
    from edgefirst_ros.pipeline.conversion import convert

__version__ = "0.1.0"
__all__ = ["Dataset", "__version__", "convert", "migrate"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: `import edgefirst_ros` stays quick."""
    if name == "convert":
        from edgefirst_ros.pipeline.conversion import convert

        return convert
    if name == "Dataset":
        from edgefirst_ros.dataset import Dataset

        return Dataset
    if name == "migrate":
        from edgefirst_ros.dataset.migrate import migrate

        return migrate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
