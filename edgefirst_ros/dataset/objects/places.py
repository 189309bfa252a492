# SPDX-License-Identifier: Apache-2.0
"""Resolves what users name: paths, file://, s3://, prefixes, globs, lists, fleets; as files of this machine."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import cast

from edgefirst_ros.dataset.names import find_unfinished_below, hint_recover, is_folder_dataset
from edgefirst_ros.dataset.objects.location import BAG, Location, ObjectPath, StoredObject, is_remote
from edgefirst_ros.dataset.objects.store import Store, download, open_store
from edgefirst_ros.errors import DatasetError, EdgeFirstError, ObjectStoreError, StorageError, UsageError, escape_text
from edgefirst_ros.streams import RECORDINGS

CONTAINER, TABLES = ".zip", (".arrow", ".frames.arrow", ".parquet", ".json")
LIST = ".txt"
FETCH = "fetch the dataset, change it on this machine, and upload it"
STATES = "_state"
"""Folder of the states of a fleet, which shows that a folder is one."""
LARGEST_LIST = 1 << 28
"""Largest list, bytes."""
_SQUEEZED = re.compile(r"^(?!file:)([a-z][a-z0-9+]*):/(?!/)")
"""A URI as `Path` writes it."""
_GLOB = re.compile(r"[*?\[]")
_TOKEN = re.compile(r"\[(!?)([^]]+)\]|.", re.DOTALL)
_ESCAPED_DASH = re.escape("-")


@dataclass(frozen=True, slots=True)
class Place:
    """One dataset or recording: a path of this machine, or the objects that are fetched for it."""

    uri: str
    path: Path
    """Where it is, or in a folder of its own once it is fetched."""
    objects: tuple[StoredObject, ...] = ()

    @property
    def in_place(self) -> Path | None:
        """Path of what can be opened without a copy: on this machine, or a dataset of a bucket; else None."""
        if not self.objects:
            return self.path
        return cast("Path", ObjectPath(self.uri)) if self.uri.endswith(CONTAINER) else None


def locate(given: Sequence[str | os.PathLike[str]]) -> list[Place]:
    """Return the datasets and recordings that are named.

    A path represents itself. A list (*.txt) has a name a line; a glob, a prefix of a bucket and a fleet's folder name
    the datasets (*.zip) and recordings (*.mcap, *.db3, *.bag, rosbag2 folders) in them.

    Raises:
        UsageError: The name is invalid, or no object has it.
        ObjectStoreError: Storage refuses.
    """
    found: list[Place] = []
    for one in given:
        text = os.fspath(one)
        if not os.path.lexists(text):
            text = _SQUEEZED.sub(r"\1://", text)
        if text.endswith(LIST) and not is_remote(text) and os.path.isfile(text):
            found += locate(read_list(text))
            continue
        place = Location.of(text)
        if (split := split_glob(place)) is not None:
            found += _list_inside(text, open_store(place), *split)
        elif not place.local:
            found += _list_stored(text, place)
        elif is_fleet(text):
            found += _list_inside(text, open_store(place), place)
        else:
            found.append(Place(text, place.path if text.startswith("file:") else Path(text)))
    return found


def list_dataset_places(given: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of all datasets that a name represents; those of buckets are opened where they are.

    A path represents itself; a folder without a dataset of its name, a glob, a list, a prefix of a bucket and a fleet's
    folder for the datasets in them. Raises DatasetError without any, UsageError for an invalid name.
    """
    text = str(Location.of(given)) if is_remote(given) else os.fspath(given)
    fleet = os.path.isdir(text) and is_fleet(text)
    if os.path.isdir(text) and not fleet and not is_folder_dataset(Path(text)):
        found = [
            path
            for path in list_files_below(Path(text), is_folder_dataset)
            if path.suffix == CONTAINER or path.is_dir()
        ]
        links = [(path, "is a link, which is not followed: name its target") for path in found if path.is_symlink()]
        found = [path for path in found if not path.is_symlink()]
        for place, why in [*links, *(find_unfinished_below(text) if found else ())]:
            warnings.warn(f"{place} {why}", stacklevel=3)
    elif fleet or is_remote(text) or is_glob(text) or text.endswith(LIST):
        try:
            places = locate([text])
        except UsageError as error:
            if "found no datasets" not in str(error):
                raise
            places = []
        found = [path for one in places if (path := one.in_place) is not None and not one.uri.endswith(RECORDINGS)]
        if text.endswith(LIST):
            return [path for one in read_list(text) for path in list_dataset_places(one)]
    else:
        return [Path(text)]
    if not found:
        hint = f"; looked for *{CONTAINER} in it{hint_recover(text)}" if os.path.isdir(text) else ""
        named = text if text.endswith(CONTAINER) or os.path.isdir(text) or is_glob(text) else f"{text}{CONTAINER}"
        raise DatasetError(f"{named}: no dataset here{hint}")
    return found


def list_files_below(folder: Path, is_whole: Callable[[Path], bool]) -> list[Path]:
    """Return the files in a folder, and those folders in it that are one thing, sorted.

    The folder of an unfinished dataset is not searched, and of links to folders only those that are one thing. A link
    to a file that is found too counts once. Raises DatasetError for a folder that cannot be listed.
    """
    found = [*_walk_below(folder, is_whole)]
    further = find_links(map(str, found))
    return [path for path in found if str(path) not in further]


def _walk_below(folder: Path, is_whole: Callable[[Path], bool]) -> Iterator[Path]:
    try:
        names = [] if folder.name.endswith(".partial") else sorted(os.listdir(folder))
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be listed: {error.strerror}") from error
    for name in names:
        path = folder / name
        if name.endswith(".partial") or name == STATES:
            continue
        if not os.path.isdir(path) or is_whole(path):
            yield path
        elif not os.path.islink(path):
            yield from _walk_below(path, is_whole)


def is_fleet(given: str | os.PathLike[str]) -> bool:
    """Return True for the folder or prefix that a fleet wrote to. Raises UsageError, ObjectStoreError."""
    place = Location.of(os.fspath(given))
    if place.local:
        return os.path.isdir(place.path / STATES)
    named = place.name.endswith((CONTAINER, *TABLES, *RECORDINGS))  # one object: nothing is below it
    return not named and any(open_store(place).objects((place / STATES).key))


def is_glob(given: str | os.PathLike[str]) -> bool:
    """Return True for a name with wildcards. Raises UsageError, ObjectStoreError."""
    return _GLOB.search(os.fspath(given)) is not None and split_glob(Location.of(given)) is not None


class OnDisk(list[Path]):
    """Paths of this machine, with the names of the objects whose copies they are."""

    def __init__(self, places: Sequence[Place], folder: str = "") -> None:
        """`folder`: receives a folder for each copy."""
        super().__init__(
            Path(folder, str(number), place.path) if place.objects else place.path
            for number, place in enumerate(places)
        )
        self._folders = {
            f"{path.parent}/": f"{place.uri.rpartition('/')[0]}/"
            for place, path in zip(places, self, strict=True)
            if place.objects
        }

    def restore(self, text: str) -> str:
        """Return a text in which objects replace the paths of their copies."""
        for path, uri in self._folders.items():
            text = text.replace(path, uri)
        return text


def on_disk(given: Sequence[str | os.PathLike[str]]) -> AbstractContextManager[OnDisk]:
    """Return named places as paths of this machine, as `fetch_places`. Raises as `locate`."""
    return fetch_places(locate(given))


def get_one_place(given: str | os.PathLike[str]) -> Path:
    """Return the path of one dataset that is opened where it is. Raises UsageError unless exactly one is named."""
    places = locate([given])
    found = [path for place in places if (path := place.in_place) is not None]
    if len(found) != 1 or len(places) != 1:
        raise UsageError(f"{given}: matches {len(places)} datasets or recordings; expected one dataset")
    return found[0]


@contextmanager
def fetch_places(places: Sequence[Place]) -> Iterator[OnDisk]:
    """Yield places as paths of this machine; objects are fetched to a temporary folder and removed at the end.

    Errors name the object, not the copy.
    """
    if not any(place.objects for place in places):
        yield OnDisk(places)
        return
    with tempfile.TemporaryDirectory(prefix="edgefirst-ros-") as folder:
        paths = OnDisk(places, folder)
        try:
            for place, path in zip(places, paths, strict=True):
                try:
                    _fetch(place, path)
                except StorageError as error:
                    if isinstance(error, ObjectStoreError):
                        raise
                    where = f"the copy is made in {tempfile.gettempdir()}, TMPDIR names another folder"
                    raise StorageError(f"{error}; {where}") from error
            yield paths
        except EdgeFirstError as error:
            if (text := paths.restore(str(error))) == str(error):
                raise
            raise type(error)(text) from error


@contextmanager
def get_one_on_disk(given: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the one dataset or recording that is named, as `on_disk`. Raises UsageError where these are several."""
    with on_disk([given]) as paths:
        if len(paths) != 1:
            raise UsageError(f"{given}: matches {len(paths)} datasets or recordings; expected one, name one of them")
        yield paths[0]


def refuse_buckets(verb: str, given: Sequence[str | os.PathLike[str]], instead: str, *, does: str = "write to") -> None:
    """Raise UsageError for an object or a bucket, where a verb works in place or with a folder of this machine."""
    for text in given:
        if is_remote(text):
            raise UsageError(f"{Location.of(text)}: {verb} does not {does} a bucket; {instead}")


def read_list(path: str) -> list[str]:
    """Return the entries of a list, without comments. Raises UsageError for another file, or if no entry may exist."""
    try:
        if os.path.getsize(path) > LARGEST_LIST:
            raise UsageError(f"{path}: has {os.path.getsize(path)} bytes, a list has at most {LARGEST_LIST}")
        with open(path, encoding="utf-8") as file:
            found = [entry for line in file if (entry := line.strip()) and not entry.startswith("#")]
        some = any("://" in one or _GLOB.search(one) or glob(f"{one}*") for one in found)  # OUT/NAME has no file
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: neither a recording nor a list of recordings: {error}") from error
    if not some:
        first = f"no line names a file, as the first one: {found[0][:80]!a}" if found else "it has no line"
        raise UsageError(f"{path}: expected a list with a path on each line; {first}")
    return found


def split_glob(place: Location) -> tuple[Location, re.Pattern[str]] | None:
    """Return the part of a glob before its first wildcard, and the expression of all; None without a wildcard.

    * and ? stay within a part of the key, ** is any number of parts. In the name of an existing file or folder they
    are letters.
    """
    if not _GLOB.search(place.key):
        return None
    parts = place.key.split("/")
    for fixed, part in enumerate(parts):
        if _GLOB.search(part) and not _has_object(Location(place.root, "/".join(parts[: fixed + 1]))):
            break
    else:
        return None
    found = [re.escape(f"{part}/") for part in parts[:fixed]]
    for number, part in enumerate(parts[fixed:], fixed):
        last = number == len(parts) - 1
        if part == "**":
            found.append(".*" if last else "(?:[^/]+/)*")
            continue
        translated = _TOKEN.sub(_translate_match, part)
        found.append(translated if last else translated + "/")
    return Location(place.root, "/".join(parts[:fixed])), re.compile("".join(found), re.DOTALL)


def _has_object(place: Location) -> bool:
    """Return True if there is an object of this name, or any below it."""
    if place.local:
        return os.path.lexists(place.path)
    store = open_store(place)
    return store.stat(place.key) is not None or any(True for _ in store.objects(place.key))


def _translate_match(match: re.Match[str]) -> str:
    if match[2]:
        return f"[{'^' if match[1] else ''}{re.escape(match[2]).replace(_ESCAPED_DASH, '-')}]"
    return {"*": "[^/]*", "?": "[^/]"}.get(match[0], re.escape(match[0]))


def _list_stored(text: str, place: Location) -> list[Place]:
    """Return an object with what belongs to it, or all below a prefix."""
    store, name = open_store(place), place.name
    endings = sorted((CONTAINER, *TABLES), key=len, reverse=True)  # .frames.arrow before .arrow
    stem = name.removesuffix(next((end for end in endings if name.endswith(end)), ""))
    container = place.parent / f"{stem}{CONTAINER}"
    if name and not name.endswith(RECORDINGS) and store.stat(container.key) is not None:
        made = _make_dataset(store, container)
        return [replace(made, path=Path(name)) if name != stem else made]
    if name and (found := store.stat(place.key)) is not None:
        return [Place(str(place), Path(name), (found,))]
    return _list_inside(text, store, place)


def _make_dataset(store: Store, container: Location, listed: Mapping[str, StoredObject] | None = None) -> Place:
    """Return a dataset of a bucket with its tables, which come after the container; `listed`: all that exists."""
    stem = container.name.removesuffix(CONTAINER)
    keys = [(container.parent / name).key for name in (container.name, *(f"{stem}{end}" for end in TABLES))]
    there = [store.stat(key) if listed is None else listed.get(key) for key in keys]
    found = tuple(one for one in there if one is not None)
    return Place(str(container), Path(container.name), found)


def _list_inside(text: str, store: Store, place: Location, match: re.Pattern[str] | None = None) -> list[Place]:
    """Return the datasets and recordings below a prefix, or those that match an expression, by key."""
    files: list[StoredObject] = []
    bags: dict[str, StoredObject] = {}
    beside: dict[str, StoredObject] = {}
    for one in store.objects(place.key):
        beside |= {one.key: one} if one.key.endswith((CONTAINER, *TABLES)) and not place.local else {}
        parts = one.key[len(place.key) :].strip("/").split("/")
        folder, _, name = one.key.rpartition("/")
        if any(part.startswith(".") or part == STATES for part in parts):
            continue
        if name == BAG and (match is None or match.fullmatch(folder)):
            bags[folder] = one
        elif name.endswith((CONTAINER, *RECORDINGS)) and (match is None or match.fullmatch(one.key)):
            files.append(one)
    things = {one.key: [one] for one in files if not any(one.key.startswith(f"{folder}/") for folder in bags)}
    for folder, about in bags.items():
        things[folder] = [about, *(one for one in store.objects(folder) if one.key.endswith(RECORDINGS))]
    found = []
    for key, objects in things.items():
        own = Location(place.root, key)
        if place.local:
            found.append(Place(str(own), own.path))
        elif key in beside:
            found.append(_make_dataset(store, own, beside))
        else:
            found.append(Place(str(own), Path(own.name), tuple(objects)))
    if not found:
        raise UsageError(
            f"{escape_text(text)}: found no datasets (*{CONTAINER}) or recordings "
            f"({', '.join(f'*{suffix}' for suffix in RECORDINGS)})"
        )
    further = find_links(one.uri for one in found)
    return sorted((one for one in found if one.uri not in further), key=lambda one: one.uri)


def find_links(uris: Iterable[str]) -> dict[str, str]:
    """Return {link: its target} of files and folders such as `latest.mcap` whose target is among them too."""
    given = [uri for uri in uris if not is_remote(uri)]
    links = {uri for uri in given if os.path.islink(uri)}
    there = {os.path.realpath(uri): uri for uri in given if uri not in links} if links else {}
    targets = {uri: there.setdefault(os.path.realpath(uri), uri) for uri in sorted(links)}
    return {uri: target for uri, target in targets.items() if target != uri}


def _fetch(place: Place, path: Path) -> None:
    """Bring the objects of a place: one or a dataset beside the path, a rosbag2 folder into it."""
    if not place.objects:
        return
    store = open_store(Location.of(place.uri))
    key = Location.of(place.uri).key
    for one in place.objects:
        inside = one.key[len(key) :].strip("/") if one.key.startswith(f"{key}/") else ""
        if ".." in inside.split("/"):
            raise DatasetError(f"{place.uri}: {one.key} is not a path below it")
        target = path / inside if inside else path.with_name(one.key.rpartition("/")[2])
        target.parent.mkdir(parents=True, exist_ok=True)
        download(store, one, target)
