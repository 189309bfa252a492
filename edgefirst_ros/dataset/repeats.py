# SPDX-License-Identifier: Apache-2.0
"""Which samples have a companion's message that the sample before has too: it is stored in each (dataset.md 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.streams import with_column

if TYPE_CHECKING:
    import polars as pl


def repeats_of(frames: pl.DataFrame | None, keys: Iterable[Key], rows: Mapping[Key, int]) -> dict[Key, frozenset[str]]:
    """Return the inputs that samples repeat; `keys` in the order of the samples, `rows` of each its row of frames."""
    if frames is None:
        return {}
    names = {s.input: f"{s.column}_timestamp" for s in with_column() if f"{s.column}_timestamp" in frames.columns}
    stamps = {name: frames[column].to_list() for name, column in names.items()}
    found: dict[Key, frozenset[str]] = {}
    before: tuple[str, int] | None = None
    for key in keys:
        row = rows.get(key)
        if row is None:
            before = None
            continue
        if before is not None and before[0] == key.name:
            last = before[1]
            same = [name for name, of in stamps.items() if of[row] is not None and of[row] == of[last]]
            if same:
                found[key] = frozenset(same)
        before = key.name, row
    return found
