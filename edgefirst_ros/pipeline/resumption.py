# SPDX-License-Identifier: Apache-2.0
"""Datasets of an earlier run: whether they are of this conversion, unfinished or finished."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgefirst_ros.config import Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.schema import LEFT_OUT
from edgefirst_ros.errors import DatasetError, EdgeFirstError, pluralize
from edgefirst_ros.pipeline.facts import describe_making
from edgefirst_ros.sensors.pictures import find_ffmpeg_version
from edgefirst_ros.sources.inputs import RecordingInput
from edgefirst_ros.sources.source import hash_file, open_recording

if TYPE_CHECKING:  # loaded only with an unfinished dataset, which most conversions do not find
    from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset

_LONGEST = 300  # most characters of why a recording is dropped


class Planned(NamedTuple):
    """A recording to be converted, and its sequences, one a camera."""

    recording: RecordingInput
    sequences: Sequence[str]

    def describe_dropped(self, error: EdgeFirstError) -> dict[str, Any]:
        """Return metadata about it where it cannot be converted; they do not differ between machines."""
        why = str(error).split("\n")[0]
        for path in (self.recording.path, *self.recording.files):
            why = why.replace(os.fspath(path), path.name)
        return {**self._list_seen(), "why": why[:_LONGEST]}

    def was_left_out(self, known: Any) -> bool:
        """True if it is in such metadata, and as it was then."""
        seen = self._list_seen().items()
        return any(isinstance(of, dict) and seen <= of.items() for of in (known if isinstance(known, list) else ()))

    def _list_seen(self) -> dict[str, Any]:
        try:
            size = sum(path.stat().st_size for path in self.recording.files)
        except OSError:
            size = None
        return {"file": self.recording.label.encode("utf-8", "replace").decode(), "size": size}


def resume_unfinished(paths: DatasetPaths, plan: Sequence[Planned], mine: Mapping[str, Any]) -> UnfinishedDataset:
    """Open the unfinished dataset of an interrupted conversion; `mine` is the metadata of the one that continues it.

    Raises DatasetError if it was another one, or a living writer is at work on it; no file changes then.
    """
    from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset

    unfinished = UnfinishedDataset(paths)
    known = unfinished.journals.description
    what = (_compare_making(known, mine) or _compare_recordings(known, mine)) if known else ""
    what = what or (_compare_sequences(known, plan, finished=False) if known else "")
    if what:
        unfinished.close()
        raise _refuse_continuing(paths, what)
    return unfinished


def check_recordings(paths: DatasetPaths, known: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raise DatasetError where the interrupted conversion had other recordings, as far as both have come."""
    what = _compare_recordings(known, mine) if known else ""
    if what:
        raise _refuse_continuing(paths, what)


def read_finished(
    paths: DatasetPaths, plan: Sequence[Planned], settings: Settings
) -> tuple[int, Counts, dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """Return samples, counts, time bases and dropped recordings of a finished conversion.

    Raises DatasetError if it was another one. The recordings are hashed, unless something else shows already that they
    are others. Files left beside the dataset by a kill after its last step are removed. Raises RecordingError where a
    recording cannot be read.
    """
    from edgefirst_ros.dataset.recovery.recover import tidy
    from edgefirst_ros.dataset.schema import parse_frames_metadata
    from edgefirst_ros.dataset.tables.arrow_file import TableFile

    table = TableFile(paths.frames, settings.limits)
    known = parse_frames_metadata(paths.frames, table.metadata)
    sources: Any = known.get("sources")
    left: Any = known.get(LEFT_OUT, [])
    recordings = [file for planned in plan if not planned.was_left_out(left) for file in planned.recording.files]
    what = "it was interrupted, and completed by recover" if "recovered" in known else ""
    what = (
        what
        or _compare_making(known, describe_making(settings))
        or _compare_sources(sources, map(_describe_file, recordings))
    )
    if not what and len(sources) != len(recordings):
        what = f"it was made from {len(sources)} files, now {len(recordings)}"
    what = what or _compare_sequences(known, plan, finished=True)
    what = what or _compare_sources(
        sources, ({"sha256": hash_file(path), **_describe_file(path)} for path in recordings)
    )
    if what:
        other = f"is of another conversion: {what}"
        raise DatasetError(f"{paths.container} exists and {other}; use --overwrite to replace it")
    tidy(paths)
    base = known["time_base"]
    return table.rows, Counts.of(known["counts"]), base.get("sequences") or {paths.name: base}, left


def _describe_file(path: Path) -> dict[str, Any]:
    with open_recording(path) as file:
        return {"file": path.name, "size": os.fstat(file.fileno()).st_size}


def _refuse_continuing(paths: DatasetPaths, what: str) -> DatasetError:
    return DatasetError(
        f"{paths.members_partial}: an unfinished dataset of another conversion is in the way: {what}; complete it with "
        f"edgefirst-ros recover {paths.container}, or use --overwrite to start over"
    )


def _compare_making(known: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    """Return in words how software and settings differ; empty if they make the same dataset."""
    software, settings = known.get("software"), known.get("configuration")
    told = software if isinstance(software, dict) else {}
    if any(told.get(key) != value for key, value in mine["software"].items()):
        return f"it is of version {told.get('version')} of the software, this is {mine['software']['version']}"
    if told.get("ffmpeg") not in (None, find_ffmpeg_version()):
        return f"its pictures were decoded by FFmpeg {told['ffmpeg']}, this is {find_ffmpeg_version()}"
    if not isinstance(settings, dict):
        return "it does not say by which settings"
    own = mine["configuration"]
    differing = [key for key in {**settings, **own} if key != "jobs" and settings.get(key) != own.get(key)]
    return f"it has other settings ({', '.join(differing)})" if differing else ""


def _compare_sequences(known: Mapping[str, Any], plan: Sequence[Planned], *, finished: bool) -> str:
    """Return in words which sequence has another name, or is not there; empty if all are those of the plan."""
    there, left = list(known.get("sequences") or ()), known.get(LEFT_OUT)
    mine = [name for planned in plan if not planned.was_left_out(left) for name in planned.sequences]
    for name, own in zip(there, mine, strict=False):
        if name != own:
            return f"it has the sequence {name!r} where this one has {own!r}"
    if len(there) > len(mine) or (finished and len(there) < len(mine)):
        return f"it has {pluralize(len(there), 'sequence')}, this one has {len(mine)}"
    return ""


def _compare_recordings(known: Mapping[str, Any], mine: Mapping[str, Any]) -> str:
    """Return in words which recording is another, or has more or fewer files; empty if the common ones agree."""
    sequences = known.get("sequences")
    for name, own in mine["sequences"].items():
        there = sequences.get(name) if isinstance(sequences, dict) else None
        files = there.get("sources") if isinstance(there, dict) else None
        if isinstance(files, list) and len(files) != len(own["sources"]):
            return f"{name} is of {pluralize(len(files), 'file')}, now of {len(own['sources'])}"
    return _compare_sources(known.get("sources"), mine["sources"])


def _compare_sources(known: Any, mine: Iterable[Mapping[str, Any]]) -> str:
    """Return in words which source is another recording; empty if the common ones agree in all keys of `mine`."""
    if not isinstance(known, list) or not all(isinstance(source, dict) for source in known):
        return "it does not say from which recordings"
    for source, own in zip(known, mine, strict=False):
        for key in own.keys() & {"file", "size", "sha256"}:
            if source.get(key) != own[key]:
                return f"{own['file']} is not the recording it was made from ({key} differs)"
    return ""
