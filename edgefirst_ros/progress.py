# SPDX-License-Identifier: Apache-2.0
"""The callback that long work reports its progress to."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the name of the step, how much of it is done, and of how much; an exception it raises ends the work."""


def quiet(what: str, done: int, of: int) -> None:
    """Ignore progress."""
