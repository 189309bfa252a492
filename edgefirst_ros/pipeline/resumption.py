# SPDX-License-Identifier: Apache-2.0
"""Datasets of an earlier run: whether they are of this conversion, unfinished or finished."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgefirst_ros.config import Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset.frames_metadata import frames_metadata
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.state import tidy
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.pipeline.facts import making
from edgefirst_ros.sources.container import open_recording
from edgefirst_ros.sources.digest import sha256


def take_over(paths: DatasetPaths, mine: Mapping[str, Any]) -> UnfinishedDataset:
    """Open the unfinished dataset of an interrupted conversion; `mine` is the metadata of the one that continues it.

    Raises DatasetError if it was another one, or a living writer is at work on it; nothing is changed then.
    """
    unfinished = UnfinishedDataset(paths)
    known = unfinished.journals.description
    what = (_other_making(known, mine) or _other_sources(known.get("sources"), mine["sources"])) if known else ""
    if what:
        unfinished.close()
        raise _not_continued(paths, what)
    return unfinished


def check_sources(paths: DatasetPaths, known: Any, first: int, mine: Sequence[Mapping[str, Any]]) -> None:
    """Raise DatasetError where the interrupted conversion had other sources from `first` on, if it had any."""
    what = _other_sources(known[first : first + len(mine)], mine) if isinstance(known, list) else ""
    if what:
        raise _not_continued(paths, what)


def finished(
    paths: DatasetPaths, recordings: Sequence[Path], settings: Settings
) -> tuple[int, Counts, dict[str, dict[str, Any]]]:
    """Return samples, counts and time bases of a finished conversion; raises DatasetError if it was another one.

    The recordings are hashed, unless something else tells already that they are others. What a kill behind its last
    step left beside the dataset is removed. Raises RecordingError where a recording cannot be read.
    """
    table = TableFile(paths.frames, settings.limits)
    known = frames_metadata(paths.frames, table.metadata)
    sources: Any = known.get("sources")
    what = "it was interrupted, and completed by recover" if "recovered" in known else ""
    what = what or _other_making(known, making(settings)) or _other_sources(sources, map(_file, recordings))
    if not what and len(sources) != len(recordings):
        what = f"it was made from {len(sources)} files, now there are {len(recordings)}"
    what = what or _other_sources(sources, ({"sha256": sha256(path), **_file(path)} for path in recordings))
    if what:
        raise DatasetError(
            f"{paths.container} exists and is of another conversion: {what}; use --overwrite to replace it"
        )
    tidy(paths)
    base = known["time_base"]
    return table.rows, Counts.of(known["counts"]), base.get("sequences") or {paths.name: base}


def _file(path: Path) -> dict[str, Any]:
    with open_recording(path) as file:
        return {"file": path.name, "size": os.fstat(file.fileno()).st_size}


def _not_continued(paths: DatasetPaths, what: str) -> DatasetError:
    return DatasetError(
        f"{paths.members_partial}: an unfinished dataset of another conversion is in the way: {what}; complete it with "
        f"edgefirst-ros recover {paths.container}, or use --overwrite to start over"
    )


def _other_making(known: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    """Return in words how software and settings differ; empty if they give the same dataset."""
    software, settings = known.get("software"), known.get("configuration")
    if software != mine["software"]:
        version = software.get("version") if isinstance(software, dict) else None
        return f"it is of version {version} of the software, this is {mine['software']['version']}"
    if not isinstance(settings, dict):
        return "it does not say by which settings"
    own = mine["configuration"]
    differing = [key for key in {**settings, **own} if key != "jobs" and settings.get(key) != own.get(key)]
    return f"it has other settings ({', '.join(differing)})" if differing else ""


def _other_sources(known: Any, mine: Iterable[Mapping[str, Any]]) -> str:
    """Return in words which source is another recording; empty if the common ones agree in all keys of `mine`."""
    if not isinstance(known, list) or not all(isinstance(source, dict) for source in known):
        return "it does not say from which recordings"
    for source, own in zip(known, mine, strict=False):
        for key in own.keys() & {"file", "size", "sha256"}:
            if source.get(key) != own[key]:
                return f"{own['file']} is not the recording it was made from ({key} differs)"
    return ""
