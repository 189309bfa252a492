# SPDX-License-Identifier: Apache-2.0
"""NCore sequences as an EdgeFirst dataset: those written here exactly as it was, those of others as far as they map."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from zlib_ng import zlib_ng

from edgefirst_ros.dataset.names import DatasetPaths, check_name
from edgefirst_ros.dataset.storage.budget import Budget
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.importing import check_member_name, refuse_links
from edgefirst_ros.export.ncore.foreign import bring
from edgefirst_ros.export.ncore.library import PIECE, reading
from edgefirst_ros.export.ncore.opening import Sequences, find_sequences
from edgefirst_ros.export.report import Report
from edgefirst_ros.limits import Limits
from edgefirst_ros.progress import Progress

FIRST, LAST = datetime(1980, 1, 1, tzinfo=timezone.utc), datetime(2107, 12, 31, tzinfo=timezone.utc)
"""Times that a ZIP can tell."""


def restore(source: Path, out: Path, limits: Limits, report: Report, progress: Progress) -> None:
    """Write the NCore sequences in `source` as a dataset into `out`, an empty folder.

    `source` is a folder that holds stores at any depth, or one store. With what `export` put beside them (in the
    group edgefirst) every member and both tables are as they were, byte for byte, whatever became of the other
    components since. Raises UsageError without the library, DatasetError where nothing can be read, or where a store
    holds a link.
    """
    found = find_sequences(source, report)
    stores = [store for stores in found for store in stores]
    size = sum(refuse_links(store.resolve() if store == source else store) for store in stores)
    budget = Budget.of_import(source, size, limits)
    with closing(Sequences(found)) as sequences:
        indices = []
        for number in range(len(sequences)):
            with reading(f"{source}: the NCore sequence"):
                origin = sequences[number].origin
            indices.append(None if origin is None else _checked(source, origin))
        if any(index is not None and "tables" in index for index in indices):
            _again(source, sequences, indices, out, budget, report, progress)
        else:
            bring((sequences[number].reader for number in range(len(sequences))), out, budget, report, progress)


def _checked(source: Path, origin: Any) -> dict[str, Any]:
    try:
        index: dict[str, Any] = origin.get_index()
        check_name(index["dataset"])
        tables = index.get("tables", {})
        if index["layout"] not in ("zip", "directory") or any("/" in check_member_name(name) for name in tables):
            raise ValueError(f"layout {index['layout']!r}, tables {sorted(tables)}")
        taken: set[str] = set()
        for position, name, crc, stamp, home, key, rest in index["members"]:
            numbers = all(type(number) is int for number in (position, crc, stamp, rest))
            texts = all(type(text) is str for text in (name, home, key))
            if not numbers or not texts or not 0 <= rest <= PIECE or not 0 <= stamp < 1 << 63:
                raise ValueError(f"member {str(name)[:80]!r}")
            if check_member_name(name) in taken:
                raise ValueError(f"member {name[:80]!r} comes twice")
            taken.add(name)
        return index
    except Exception as error:  # also what zarr raises on broken chunks
        raise DatasetError(f"{source}: the index of the dataset cannot be read: {error}") from error


# ---- as it was ---------------------------------------------------------------------------------------
def _again(
    source: Path,
    sequences: Sequences,
    indices: list[Any],
    out: Path,
    budget: Budget,
    report: Report,
    progress: Progress,
) -> None:
    """Write the dataset as it was exported."""
    known = [n for n, index in enumerate(indices) if index is not None]
    whole = next(n for n in known if "tables" in indices[n])
    name, layout = indices[whole]["dataset"], indices[whole]["layout"]
    if any((indices[n]["dataset"], indices[n]["layout"]) != (name, layout) for n in known):
        raise DatasetError(f"{source}: sequences of several datasets; restore each one for itself")
    paths = DatasetPaths(out, name, layout)
    paths.folder.mkdir(parents=True, exist_ok=True)
    for table, key in indices[whole]["tables"].items():
        with reading(f"{source}: {table!r}"):
            data = sequences[whole].origin.get_bytes(key)
        budget.take(unpacked=len(data))
        (paths.folder / table).write_bytes(data)
    entries = sorted((tuple(entry), n) for n in known for entry in indices[n]["members"])
    with _container(paths) as write:
        for done, ((_, member, crc, stamp, home, key, rest), n) in enumerate(entries, 1):
            with reading(f"{source}: {member!r}"):
                data = sequences[n].member(home, key)
                budget.take(unpacked=len(data) + rest)
                data += bytes(rest)
            if zlib_ng.crc32(data) != crc:
                raise DatasetError(f"{source}: {member!r} is not what was exported; was a component changed since?")
            write(member, data, stamp)
            progress("restoring from NCore", done, len(entries))
    report.add("members", paths.members.name, number=len(entries))
    for table in indices[whole]["tables"]:
        report.add(table, table)
    others = [sequences[n].reader.sequence_id for n in range(len(sequences)) if n not in known]
    if others:
        report.add(", ".join(others), "", "not of this dataset: restore each one for itself", len(others))


@contextmanager
def _container(paths: DatasetPaths) -> Iterator[Callable[[str, bytes, int], None]]:
    """Return a function that writes (name, bytes, stamp in ns) as a member of any name into a ZIP or a folder."""

    def into_folder(name: str, data: bytes, stamp: int) -> None:
        path = paths.members / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(stamp, stamp))

    if paths.layout == "directory":
        paths.members.mkdir()
        yield into_folder
        return
    with zipfile.ZipFile(paths.members, "x", zipfile.ZIP_STORED) as archive:

        def into_archive(name: str, data: bytes, stamp: int) -> None:
            at = min(max(datetime.fromtimestamp(stamp // 1_000_000_000, timezone.utc), FIRST), LAST)
            entry = zipfile.ZipInfo(name, (at.year, at.month, at.day, at.hour, at.minute, at.second))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)

        yield into_archive
