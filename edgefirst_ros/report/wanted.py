# SPDX-License-Identifier: Apache-2.0
"""Resolves paths to datasets and recordings, in folders too, and recordings whose files are joined."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.names import find, locate
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.sources.inputs import SUFFIX, RecordingInput, is_rosbag2, recordings_of

MAGIC = b"\x89MCAP"


@dataclass(frozen=True)
class Wanted:
    """One thing to be looked at."""

    path: Path
    name: str
    recording: RecordingInput | None = None
    """Its files; None: it is a dataset."""
    fetch: Callable[[], AbstractContextManager[Path]] | None = None
    """Gives a dataset as files of this machine while it is looked at; None: it lies at `path`."""

    def files(self) -> AbstractContextManager[Path]:
        """Give the path at which a dataset lies while it is looked at."""
        return nullcontext(self.path) if self.fetch is None else self.fetch()

    @property
    def page(self) -> Path:
        """NAME.html beside it."""
        if self.recording is not None:
            return Path(os.path.abspath(self.path)).parent / f"{self.name}.html"
        return find(self.path).out / f"{self.name}.html"


def wanted_of(paths: Sequence[Path], *, join: bool = False) -> tuple[list[Wanted], bool]:
    """Return all datasets and recordings that paths name, and whether these can be several.

    `join`: all are parts of one recording. Raises DatasetError for what is neither, RecordingError for a recording
    that is broken from outside.
    """
    if join:
        (joined,) = recordings_of(paths, join=True)
        return [Wanted(joined.path, joined.name, joined)], False
    found: list[Wanted] = []
    several = len(paths) > 1
    for path in paths:
        if is_recording(path):
            found += _recordings(path)
        elif not os.path.isdir(path) or _is_dataset(path):
            try:
                found.append(Wanted(path, find(path).name))
            except DatasetError as error:
                what = "neither a dataset nor a recording" if os.path.lexists(path) else "not there"
                raise DatasetError(f"{path}: {what}: {error}") from error
        else:
            inside = sorted(_inside(path), key=lambda one: str(one.path))
            if not inside:
                raise DatasetError(f"{path}: neither a dataset nor a recording, and a folder with none of them in it")
            found += inside
            several = True
    return found, several


def refuse_settings(wanted: Sequence[Wanted], settings: Settings) -> None:
    """Raise UsageError for settings of a conversion where there is no recording."""
    if any(one.recording is not None for one in wanted):
        return
    usual = Settings()
    for name in Settings.model_fields:
        if name != "limits" and getattr(settings, name) != getattr(usual, name):
            raise UsageError(f"{name} is for recordings; {wanted[0].path} is a dataset, of which all samples are shown")


def is_recording(path: Path) -> bool:
    """True if it is a rosbag2 folder, or a file that begins as MCAP does or says so by its name."""
    with suppress(OSError):
        if is_rosbag2(path):
            return True
        if os.path.isfile(path):
            if path.suffix == SUFFIX:  # also one that may not be read: it is refused as a recording then
                return True
            with path.open("rb") as file:
                return file.read(len(MAGIC)) == MAGIC
    return False


def _recordings(path: Path) -> list[Wanted]:
    return [Wanted(one.path, one.name, one) for one in recordings_of([path])]


def _is_dataset(path: Path) -> bool:
    with suppress(DatasetError):
        return os.path.isdir(locate(path).members) or os.path.isfile(locate(path).members)
    return False


def _inside(folder: Path) -> Iterator[Wanted]:
    """Datasets and recordings in a folder, and in those below it that are neither."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be listed: {error.strerror}") from error
    for name in names:
        path = folder / name
        if os.path.islink(path) or name.endswith(".partial"):
            continue
        if os.path.isdir(path):
            if os.path.isdir(path / name):
                yield Wanted(path, name)
            elif is_rosbag2(path):
                yield from _recordings(path)
            else:
                yield from _inside(path)
        elif path.suffix == ".zip":
            yield Wanted(path, path.stem)
        elif path.suffix == SUFFIX:
            yield from _recordings(path)
