# SPDX-License-Identifier: Apache-2.0
"""Shows datasets and recordings: one page of facts, or a viewer that moves through time.

`help(edgefirst_ros.report.report)` describes the function that `edgefirst_ros.report(...)` calls.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from edgefirst_ros import CallableModule

if TYPE_CHECKING:
    from edgefirst_ros.report.run import report

__all__ = ["report"]


def __getattr__(name: str) -> Any:
    """Import `report` at its first use."""
    if name != "report":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from edgefirst_ros.report.run import report

    return report


sys.modules[__name__].__class__ = CallableModule
