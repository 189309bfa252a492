# SPDX-License-Identifier: Apache-2.0
"""Recordings given by a user: files, rosbag2 folders, folders of these, parts to join, names of sequences."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from edgefirst_ros.errors import RecordingError, UsageError, need
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.source import Recording
from edgefirst_ros.streams import RECORDINGS

METADATA = "metadata.yaml"
MAGIC = b"\x89MCAP"
BAG = "rosbag2_bagfile_information"
LONGEST_METADATA = 1 << 22
"""Bytes of the metadata of a rosbag2 folder: every topic has its offered QoS profiles in it."""
STORAGES = ("mcap", "sqlite3")
SUFFIXES = ", ".join(f"*{suffix}" for suffix in RECORDINGS)


def open_files(
    path: Path, limits: Limits = DEFAULT_LIMITS, *, hashed: bool = False, more: Iterable[Path] = ()
) -> Recording:
    """Return the recording in a file and those that follow it, in any container, without reading them yet.

    Raises EdgeFirstError where the extra is not installed, UsageError where files of several containers are joined.
    """
    more = tuple(more)
    kinds = {file.suffix if file.suffix in RECORDINGS else ".mcap" for file in (path, *more)}
    if len(kinds) > 1:
        raise UsageError(f"{path}: files of several containers cannot be joined: {', '.join(sorted(kinds))}")
    if kinds == {".mcap"}:
        return McapRecording(path, limits, hashed=hashed, more=more)
    need(f"a recording in {path.suffix}", "bags", "rosbags")
    from edgefirst_ros.sources.bags import BagRecording

    return BagRecording(path, limits, hashed=hashed, more=more)


def is_recording(path: Path) -> bool:
    """True if it is a rosbag2 folder, or a file that begins as MCAP does or says so by its name."""
    with suppress(OSError):
        if is_rosbag2(path):
            return True
        if os.path.isfile(path):
            if path.suffix in RECORDINGS:  # also one without permission to read: opening it as a recording reports that
                return True
            with path.open("rb") as file:
                return file.read(len(MAGIC)) == MAGIC
    return False


class RecordingInput(NamedTuple):
    """One recording: its files in order, and the default name of its sequence."""

    path: Path
    """Path shown in messages: the only file, the folder, or the first of the joined files."""
    files: tuple[Path, ...]
    name: str

    @property
    def label(self) -> str:
        """Name shown in messages."""
        return self.path.name or str(self.path)


def list_recordings(
    given: Sequence[Path], *, join: bool = False, sequences: Mapping[str, Path] | None = None
) -> list[RecordingInput]:
    """Return the recordings that files and folders hold, in order.

    `join`: all files are parts of one recording. `sequences`: other names for recordings, which need not be given also.
    Raises UsageError or RecordingError that names the path, and the contents found and expected.
    """
    found = [recording for path in given for recording in _find_inputs(path)]
    if join:
        files = tuple(file for recording in found for file in recording.files)
        if not files:
            raise UsageError("no recording is given that could be joined")
        found = [RecordingInput(files[0], files, files[0].stem)]
    names: dict[int, str] = {}
    for name, path in (sequences or {}).items():
        real = os.path.realpath(path)
        places = [n for n, one in enumerate(found) if real in map(os.path.realpath, (one.path, *one.files))]
        if not places:
            if join:
                raise UsageError(f"--sequence {name}={path}: is not one of the joined files")
            added = list(_find_inputs(path))
            if len(added) != 1:
                raise UsageError(f"--sequence {name}={path}: is a folder of {len(added)} recordings; name one of them")
            places, found = [len(found)], [*found, *added]
        if places[0] in names:
            raise UsageError(f"--sequence {name}={path}: {found[places[0]].label} is {names[places[0]]} already")
        names[places[0]] = name
    known: dict[str, Path] = {}
    for file in (file for one in found for file in one.files if "\0" not in str(file)):  # which no file has
        other = known.setdefault(os.path.realpath(file), file)
        if other is not file:
            what = f"{file} is given twice" if other == file else f"{other} and {file} are the same file"
            raise UsageError(f"{what}; name each recording once")
    return [RecordingInput(one.path, one.files, names.get(n, one.name)) for n, one in enumerate(found)]


def is_rosbag2(path: Path) -> bool:
    """True if a path is a rosbag2 folder, or the metadata of one."""
    return os.path.isfile(path / METADATA) or (path.name == METADATA and os.path.isfile(path))


def _find_inputs(path: Path) -> Iterator[RecordingInput]:
    """Yield the recordings at a path: the file, the rosbag2 folder, or all in a folder, recursively.

    A link to one that is in the folder too, such as `latest.mcap`, is no further one.
    """
    if is_rosbag2(path):
        folder = path.parent if path.name == METADATA else path
        yield RecordingInput(folder, _list_bag_files(folder), Path(os.path.abspath(folder)).name)
    elif os.path.isdir(path):
        inside = list(_find_inside(path))
        if not inside:
            expected = f"{SUFFIXES} or rosbag2 folders ({METADATA}) in it"
            raise RecordingError(f"{path}: is a directory without recordings; expected {expected}")
        own: dict[str, Path] = {}
        for one in sorted(inside, key=lambda one: one.path.is_symlink()):
            own.setdefault(os.path.realpath(one.path), one.path)
        kept = {*own.values()}
        yield from (one for one in inside if one.path in kept)
    else:
        yield RecordingInput(path, (path,), path.stem)


def _find_inside(folder: Path) -> Iterator[RecordingInput]:
    """Yield the recordings in a folder and those below it."""
    try:
        places = sorted(folder.iterdir(), key=_make_natural_key)
    except OSError as error:
        raise RecordingError(f"{folder}: cannot be read: {error.strerror}") from None
    for place in (place for place in places if not place.name.startswith(".")):
        if is_rosbag2(place) and place.name != METADATA:
            yield from _find_inputs(place)
        elif place.suffix in RECORDINGS and (place.is_file() or not place.exists()):  # a link may lead nowhere
            yield RecordingInput(place, (place,), place.stem)
        elif place.is_dir() and not place.is_symlink():
            yield from _find_inside(place)


def _make_natural_key(path: Path) -> list[tuple[int, str]]:
    """Return the key of natural order: drive_2 before drive_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", path.name)]


def _list_bag_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a rosbag2 folder in the order of its metadata.yaml."""
    from edgefirst_ros.config.yaml_file import read_yaml  # PyYAML, which recordings that are one file do not need

    place = folder / METADATA
    try:
        content = read_yaml(place, LONGEST_METADATA)
    except UsageError as error:
        raise RecordingError(str(error)) from None
    known: Any = content.get(BAG) if isinstance(content, dict) else None
    files = known.get("relative_file_paths") if isinstance(known, dict) else None
    if not isinstance(files, list) or not files or not all(isinstance(file, str) and file for file in files):
        raise RecordingError(f"{place}: names no files; expected {BAG} with relative_file_paths")
    storage = known.get("storage_identifier", "mcap")
    if storage not in STORAGES:
        raise RecordingError(f"{place}: its storage is {str(storage)[:80]!r}; expected {' or '.join(STORAGES)}")
    packed = str(known.get("compression_mode") or "none").lower() == "file"
    found = []
    for file in files:
        plain = Path(file.removesuffix(".zstd") if packed else file)
        if plain.is_absolute() or ".." in plain.parts or "\0" in file:
            raise RecordingError(f"{place}: names {file[:200]!r}; expected a file in {folder}")
        inside = folder / plain
        found.append(inside if inside.exists() else folder / plain.name)  # older ones begin with the folder's name
        if packed and not found[-1].exists():
            raise RecordingError(f"{place}: its files are compressed as a whole; unpack them beside it: zstd -d *.zstd")
    if len(set(found)) < len(found):
        raise RecordingError(f"{place}: names a file twice")
    return tuple(found)
