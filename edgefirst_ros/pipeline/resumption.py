# SPDX-License-Identifier: Apache-2.0
"""What an earlier conversion left: whether it was this one, unfinished or finished."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgefirst_ros.config import Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.reader import parsed
from edgefirst_ros.dataset.recovery.state import tidy
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.errors import DatasetError


def take_over(paths: DatasetPaths, mine: Mapping[str, Any]) -> UnfinishedDataset:
    """Open what an interrupted conversion left; `mine` describes the one that is to continue it.

    Raises DatasetError if it was another one, or a living writer is at work on it.
    """
    leftover = UnfinishedDataset(paths)
    known = leftover.journals.description
    what = "sources" if known and not _same_files(known.get("sources"), mine["sources"]) else ""
    if known and not what:
        alike = _alike(known.get("configuration"), mine["configuration"])
        what = "configuration" if not alike else "software" if known.get("software") != mine["software"] else ""
    if what:
        leftover.close()
        raise DatasetError(
            f"{paths.members_partial}: an unfinished dataset of another conversion is in the way ({what} differ); "
            "complete it with edgefirst-ros recover, or use --overwrite to replace it"
        )
    return leftover


def finished(
    paths: DatasetPaths, recordings: Sequence[Path], settings: Settings
) -> tuple[int, Counts, dict[str, dict[str, Any]]]:
    """Samples, counts and time bases of a conversion that is finished; raises DatasetError if it was another one.

    What a kill behind its last step left beside it is removed.
    """
    table = TableFile(paths.frames)
    known = {key: parsed(value) for key, value in table.metadata.items()}
    files = [{"file": path.name, "size": path.stat().st_size} for path in recordings if path.exists()]
    mine = settings.model_dump(mode="json")
    same = _same_files(known.get("sources"), files) and len(known["sources"]) == len(recordings)
    if "recovered" in known or not same or not _alike(known.get("configuration"), mine):
        why = "an interrupted conversion that was recovered" if "recovered" in known else "another conversion"
        raise DatasetError(f"{paths.container} exists and is of {why}; use --overwrite to replace it")
    tidy(paths)
    base = known["time_base"]
    return table.rows, Counts.of(known["counts"]), base.get("sequences") or {paths.name: base}


def _alike(known: Any, mine: Mapping[str, Any]) -> bool:
    """Whether two configurations give the same dataset, as they do with any number of threads."""
    return isinstance(known, dict) and {**known, "jobs": 0} == {**mine, "jobs": 0}


def _same_files(known: Any, mine: Sequence[Mapping[str, Any]]) -> bool:
    """Whether two lists of sources begin alike, as far as both go."""
    if not isinstance(known, list) or not all(isinstance(source, dict) for source in known):
        return False
    pairs = zip(known, mine, strict=False)
    return all(source.get(key) == own[key] for source, own in pairs for key in ("file", "size"))
