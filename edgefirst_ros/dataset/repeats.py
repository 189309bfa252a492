# SPDX-License-Identifier: Apache-2.0
"""Samples with the same companion message as the sample before, which is stored in each (dataset.md 10)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.streams import with_column


def stamp_columns(there: Container[str]) -> dict[str, str]:
    """Return {input: its stamp column}, of the columns `there` of a frames table; two sensors may share an input."""
    columns = ((sensor.input, f"{sensor.column}_timestamp") for sensor in with_column())
    return {name: column for name, column in columns if column in there}


def repeats_of(
    stamps: Mapping[str, Sequence[Any]], keys: Iterable[Key], rows: Mapping[Key, int]
) -> dict[Key, frozenset[str]]:
    """Return the inputs that samples repeat.

    `stamps` by input, of every row of the frames; `keys` in the order of the samples, `rows` of each its row.
    """
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
