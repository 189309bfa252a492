# SPDX-License-Identifier: Apache-2.0
"""Who is told how far something long is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much is done, and of how much; what it raises ends it all."""


def quiet(what: str, done: int, of: int) -> None:
    """Tell nobody."""
