# SPDX-License-Identifier: Apache-2.0
"""Finds recordings given by a user: files, rosbag2 folders, folders, globs, bucket prefixes, lists of these."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgefirst_ros.dataset.objects.location import Location, StoredObject, is_remote
from edgefirst_ros.dataset.objects.places import find_links, read_list, split_glob
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.errors import UsageError, list_beside, pluralize
from edgefirst_ros.sources.inputs import METADATA, SUFFIXES, is_recording
from edgefirst_ros.streams import RECORDINGS

LISTED, DIGITS = 5, 32


@dataclass(frozen=True, slots=True)
class ListedRecording:
    """A listed recording: a file, or a rosbag2 folder."""

    uri: str
    size: int
    """Bytes of all its files."""
    etag: str
    """Changes when one of them is replaced."""
    parts: tuple[StoredObject, ...] = ()
    """The metadata and the recordings of a rosbag2 folder."""

    @classmethod
    def of_folder(cls, place: Location, parts: Sequence[StoredObject]) -> ListedRecording:
        """Return a rosbag2 folder from its listed files."""
        listed = "\n".join(f"{part.size} {part.etag} {part.key}" for part in parts)
        digest = hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()
        return cls(str(place), sum(part.size for part in parts), digest[:DIGITS], tuple(parts))

    @property
    def name(self) -> str:
        """Name of its sequence, as of `convert`."""
        path = PurePosixPath(self.uri)
        return path.name if self.parts else path.stem


def find_sources(given: Sequence[str], note: Callable[[str], None]) -> list[ListedRecording]:
    """Return the recordings meant, each once, in order of their URIs.

    Raises UsageError where one of `given` does not exist, or has no recording; ObjectStoreError.
    """
    found: dict[str, ListedRecording] = {}
    for text in given:
        listed = not (is_remote(text) or text.endswith(METADATA)) and os.path.isfile(text)
        for one in read_list(text) if listed and not is_recording(Path(text)) else [text]:
            for source in _list_sources(one, note):
                if source.uri != source.uri.encode("utf-8", "replace").decode():
                    note(f"{source.uri!a}: skipped: its name is not UTF-8")
                    continue
                found[source.uri] = source
    for uri, target in find_links(found).items():
        note(f"{uri}: skipped: it is a link to {target}")
        del found[uri]
    return [found[uri] for uri in sorted(found)]


def _list_sources(text: str, note: Callable[[str], None]) -> Iterator[ListedRecording]:
    place = Location.of(text)
    store = open_store(place)
    if place.key and (stored := store.stat(place.key)) is not None:
        if place.name != METADATA:
            yield ListedRecording(str(place), stored.size, stored.etag)
            return
        place = place.parent
    match: re.Pattern[str] | None = None
    if (split := split_glob(place)) is not None:
        place, match = split
    elif place.local and not place.path.is_dir():
        absent = not os.path.lexists(place.path)
        why = f"no such file or directory{list_beside(place.path)}" if absent else "is not a file or folder"
        raise UsageError(f"{text}: {why}")
    files: list[StoredObject] = []
    folders: dict[str, list[StoredObject]] = {}
    hidden, others = 0, []
    for stored in store.objects(place.key):
        folder, _, name = stored.key.rpartition("/")
        named = match is None or match.fullmatch(stored.key) is not None
        if any(part.startswith(".") for part in stored.key[len(place.key) :].split("/")):
            hidden += named and name.endswith(RECORDINGS)
        elif name == METADATA and (named or (match is not None and match.fullmatch(folder))):
            folders[folder] = [stored]
        elif not named:
            continue
        elif not name.endswith(RECORDINGS):
            others.append(name)
            del others[LISTED:]
        else:
            files.append(stored)
    if hidden:
        note(f"{text}: skipped (.*): {pluralize(hidden, 'hidden file')}")
    if not files and not folders:
        found = f"there are {', '.join(others)}" if others else "it is empty" if match is None else "no file matches"
        raise UsageError(f"{text}: no recording ({SUFFIXES}) here; {found}")
    for folder in [folder for folder in folders if _find_outermost(folder, folders) != folder]:
        del folders[folder]  # it is in another one
    for stored in files:
        around = _find_outermost(stored.key.rpartition("/")[0], folders)
        if around is None:
            yield ListedRecording(str(Location(place.root, stored.key)), stored.size, stored.etag)
        elif match is None:
            folders[around].append(stored)
    for folder, listed in folders.items():
        if match is not None:  # its files need not match the expression
            listed += [one for one in store.objects(folder) if one.key.endswith(RECORDINGS)]
        yield ListedRecording.of_folder(Location(place.root, folder), listed)


def _find_outermost(folder: str, folders: Container[str]) -> str | None:
    """Return the outermost of some folders that a folder is, or is in."""
    parts = folder.split("/")
    return next((one for n in range(len(parts)) if (one := "/".join(parts[: n + 1])) in folders), None)
