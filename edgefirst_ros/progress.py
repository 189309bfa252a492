# SPDX-License-Identifier: Apache-2.0
"""The callback that long work reports its progress to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Progress = Callable[[str, int, int], None]
"""Called with the name of the step, how much of it is done, and of how much; an exception it raises ends the work."""
UNITS: Mapping[str, str] = {
    "reading": "B",
    "uploading": "B",
    "converting": "messages",
    "looking": "messages",
    "merging": "samples",
    "exporting": "samples",
    "importing": "samples",
    "logging": "samples",
    "restoring": "members",
    "pictures": "pictures",
    "samples": "samples",
    "scenes": "scenes",
    "reporting": "reports",
    "datasets": "datasets",
}
"""First word of a step -> unit of what is counted."""


def quiet(what: str, done: int, of: int) -> None:
    """Ignore progress."""
