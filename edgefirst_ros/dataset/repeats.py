# SPDX-License-Identifier: Apache-2.0
"""Samples with the same companion message as the sample before, which is stored in each."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from edgefirst_ros.dataset.names import DatasetPaths, FrameSet, Key, inputs_of_kinds, keys_of, parse_member
from edgefirst_ros.dataset.storage.zip_read import count_members
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.streams import with_column


def stamp_columns(there: Container[str]) -> dict[str, str]:
    """Return {sensor: its stamp column}, of the columns `there` of a frames table."""
    columns = ((sensor.key, f"{sensor.column}_timestamp") for sensor in with_column())
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


def count_repeats(paths: DatasetPaths) -> tuple[int, int]:
    """Return how many members of a dataset repeat the message of the sample before, and their bytes.

    Memory is a bit for each frame and input, so that it is as good as the same for a drive of any length. Raises
    DatasetError.
    """
    table = TableFile(paths.frames)
    columns = stamp_columns(table.schema.names)
    found = {name: FrameSet() for name in columns}
    inputs_of = inputs_of_kinds(table.schema.names)
    keys, stamps = list[Key](), {name: list[Any]() for name in columns}
    for batch in table.batches():
        keys = [*keys[-1:], *map(Key._make, keys_of(batch))]
        stamps = {name: [*stamps[name][-1:], *batch[column].to_pylist()] for name, column in columns.items()}
        for key, inputs in repeats_of(stamps, keys, {key: row for row, key in enumerate(keys)}).items():
            if key.frame is not None:
                for name in inputs:
                    found[name].add(key.name, key.frame)

    def repeats(name: str) -> bool:
        member = parse_member(name)
        frames = found.get(inputs_of.get(member.kind, "")) if member is not None else None
        return frames is not None and member is not None and (member.sequence, member.frame) in frames

    return count_members(paths.members, repeats) if any(found.values()) else (0, 0)
