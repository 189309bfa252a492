# SPDX-License-Identifier: Apache-2.0
"""Which recordings a user means: files, folders, globs, prefixes of buckets, lists of these."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgefirst_ros.dataset.objects.location import Location, is_remote
from edgefirst_ros.dataset.objects.store import StoredObject, open_store
from edgefirst_ros.errors import UsageError

SUFFIX, MAGIC = ".mcap", b"\x89MCAP"
LARGEST_LIST = 1 << 28
"""Bytes of a list of recordings."""
LISTED = 5
_GLOB = re.compile(r"[*?\[]")
_TOKEN = re.compile(r"\[(!?)([^]]+)\]|.", re.DOTALL)
_ESCAPED_DASH = re.escape("-")


@dataclass(frozen=True, slots=True)
class Source:
    """A recording as it was listed."""

    uri: str
    size: int
    etag: str


def find_sources(given: Sequence[str], note: Callable[[str], None]) -> list[Source]:
    """Return the recordings meant, each once, in order of their URIs.

    Raises UsageError where one of `given` is nothing, or has no recording; ObjectStoreError.
    """
    found: dict[str, Source] = {}
    for text in given:
        for one in _listed(text) if _is_list(text) else [text]:
            for place, stored in _objects(one, note):
                if (uri := str(place)) != uri.encode("utf-8", "replace").decode():
                    note(f"{uri!a}: left out: its name is no UTF-8")
                    continue
                found[uri] = Source(uri, stored.size, stored.etag)
    return [found[uri] for uri in sorted(found)]


def _is_list(text: str) -> bool:
    """Whether it is a file that does not begin as a recording, nor is called as one."""
    if is_remote(text) or not os.path.isfile(text) or text.endswith(SUFFIX):
        return False
    with open(text, "rb") as file:
        return file.read(len(MAGIC)) != MAGIC


def _listed(path: str) -> Iterator[str]:
    try:
        if os.path.getsize(path) > LARGEST_LIST:
            raise UsageError(f"{path}: a list of recordings has at most {LARGEST_LIST} bytes")
        with open(path, encoding="utf-8") as file:
            for line in file:
                if (entry := line.strip()) and not entry.startswith("#"):
                    yield entry
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: neither a recording nor a list of recordings: {error}") from error


def _objects(text: str, note: Callable[[str], None]) -> Iterator[tuple[Location, StoredObject]]:
    place = Location.of(text)
    store = open_store(place)
    if place.key and (stored := store.stat(place.key)) is not None:
        yield place, stored
        return
    match: re.Pattern[str] | None = None
    below = place
    if _GLOB.search(place.key):
        parts = place.key.split("/")
        fixed = next(n for n, part in enumerate(parts) if _GLOB.search(part))
        below, match = Location(place.root, "/".join(parts[:fixed])), _pattern(parts)
    elif place.local and not place.path.is_dir():
        raise UsageError(f"{text}: there is no such file or folder{_near(place)}")
    number, hidden, others = 0, 0, []
    for stored in store.objects(below.key):
        name = stored.key.rpartition("/")[2]
        if match is not None and not match.fullmatch(stored.key):
            continue
        if not name.endswith(SUFFIX):
            others.append(name)
            del others[LISTED:]
        elif name.startswith("."):
            hidden += 1
        else:
            number += 1
            yield Location(place.root, stored.key), stored
    if hidden:
        note(f"{text}: {hidden} hidden files (.*{SUFFIX}) are left out")
    if not number:
        there = f"; there are {', '.join(others)}" if others else "; there is nothing"
        raise UsageError(f"{text}: no recording (*{SUFFIX}) here{there}")


def _pattern(parts: Sequence[str]) -> re.Pattern[str]:
    """The expression of a glob: * and ? stay within a part of the key, ** is any number of parts."""
    found = []
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            found.append(".*" if last else "(?:[^/]+/)*")
            continue
        translated = _TOKEN.sub(_translated, part)
        found.append(translated if last else translated + "/")
    return re.compile("".join(found), re.DOTALL)


def _translated(match: re.Match[str]) -> str:
    if match[2]:
        return f"[{'^' if match[1] else ''}{re.escape(match[2]).replace(_ESCAPED_DASH, '-')}]"
    return {"*": "[^/]*", "?": "[^/]"}.get(match[0], re.escape(match[0]))


def _near(place: Location) -> str:
    """What lies beside a path that is not there, the most like it first."""
    try:
        there = os.listdir(place.parent.path)
    except OSError:
        return ""
    near = difflib.get_close_matches(place.name, there, LISTED, 0.5)
    return f"; beside it: {', '.join(near)}" if near else ""
