# SPDX-License-Identifier: Apache-2.0
"""Whether a capture wrote what the conversion of the same messages writes."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.ipc

from edgefirst_ros.counts import PART_REASONS


def files(folder: Path) -> dict[str, bytes]:
    """Bytes of all files below a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def counts_of(frames: Path) -> dict[str, Any]:
    metadata = pyarrow.ipc.open_file(frames).schema.metadata
    found: dict[str, Any] = json.loads(metadata[b"counts"])
    return found


def adds_up(count: Mapping[str, Any]) -> bool:
    return bool(count["seen"] == count["written"] + sum(count["dropped"].values()))


def assert_counted(folder: Path) -> None:
    """In each sequence of the datasets below a folder, every message is written or dropped under a reason.

    Of topics that are never written, such as fixes, no more than were seen are dropped.
    """
    for path in folder.rglob("*.frames.arrow"):
        try:
            metadata = pyarrow.ipc.open_file(path).schema.metadata
            sequences = json.loads(metadata[b"sequences"]).values()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # damaged on purpose, or of another tool
        for topic, count in (item for one in sequences for item in (one.get("counts") or {}).items()):
            dropped = {reason: n for reason, n in count["dropped"].items() if reason not in PART_REASONS}
            known = count["written"] + sum(dropped.values())
            whole = count["written"] and not topic.endswith("info")
            assert known == count["seen"] if whole else known <= count["seen"], f"{path}: {topic}: {count}"


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def frames(path: Path) -> pl.DataFrame:
    return pl.read_ipc(path)


def assert_same_dataset(live: Path, offline: Path, name: str) -> None:
    """Byte for byte, but for the metadata of the frames: a capture has no source file."""
    one, other = members(live / f"{name}.zip"), members(offline / f"{name}.zip")
    lacking, beyond = sorted(set(other) - set(one)), sorted(set(one) - set(other))
    assert list(one) == list(other), f"{len(lacking)} lack: {lacking[:9]}, {len(beyond)} too many: {beyond[:9]}"
    differ = [member for member in other if one[member] != other[member]]
    assert not differ, f"{len(differ)} differ: {differ[:9]}"
    for file in (f"{name}.zip", f"{name}.arrow"):
        assert (live / file).read_bytes() == (offline / file).read_bytes(), file
    assert frames(live / f"{name}.frames.arrow").equals(frames(offline / f"{name}.frames.arrow"))
    mine, theirs = (facts_of(folder / f"{name}.frames.arrow") for folder in (live, offline))
    assert mine == theirs, f"{mine}\n{theirs}"


def facts_of(path: Path) -> dict[str, Any]:
    """What the metadata say of each sequence, but for its files and what is listed and counted of other topics."""
    known = json.loads(pyarrow.ipc.open_file(path).schema.metadata[b"sequences"])
    skip = ("sources", "counts", "unused_topics", "topics")
    return {
        sequence: {name: value for name, value in facts.items() if name not in skip}
        for sequence, facts in known.items()
    }


def assert_part_of_dataset(live: Path, offline: Path, name: str) -> None:
    """What is there is byte for byte what it is offline; samples may lack."""
    one, other = members(live / f"{name}.zip"), members(offline / f"{name}.zip")
    mine, theirs = (rows_by_frame(folder / f"{name}.frames.arrow") for folder in (live, offline))
    assert mine == {frame: theirs[frame] for frame in mine}
    assert one == {member: data for member, data in other.items() if frame_of(member) in mine}
    mine, theirs = (rows_by_frame(folder / f"{name}.arrow") for folder in (live, offline))
    assert mine == {frame: theirs[frame] for frame in mine}


def frame_of(member: str) -> int:
    """The number in SEQUENCE/SEQUENCE_NUMBER.KIND."""
    return int(member.split(".", maxsplit=1)[0].rpartition("_")[2])


def rows_by_frame(path: Path) -> dict[int, list[dict[str, Any]]]:
    """Rows of a table by their frames, without what is null: a column that nobody filled is not there."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in frames(path).to_dicts():
        found.setdefault(row["frame"], []).append({key: value for key, value in row.items() if value is not None})
    return found
