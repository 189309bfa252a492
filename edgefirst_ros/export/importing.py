# SPDX-License-Identifier: Apache-2.0
"""Shared by all imports: limits, names that are safe, links that are rejected, nearest entries, metadata."""

from __future__ import annotations

import json
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import edgefirst_ros
from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import find_host, make_safe
from edgefirst_ros.dataset.storage.lock import open_file, report_errors
from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg, insert_png, read_exif
from edgefirst_ros.sensors.jpeg import Buffer, check_jpeg
from edgefirst_ros.streams import find_by_kind

TOLERANCE = 100_000_000
"""Largest time between a picture and what belongs to it, ns."""
TEXT = 1 << 25
"""Bytes of the largest file of JSON that is read: its values take up to 20 times as much memory."""
NEAR = 1e-7
"""Degrees up to which a position in EXIF is that of the frames table."""
LONGEST_PART, LONGEST_NAME, DEEPEST_NAME = 255, 4096, 64
"""Bytes of a part of a member's name, bytes of the whole, and parts."""
_DRIVE = re.compile(r"[A-Za-z]:")
DEEPEST = 64
"""Deepest nesting of folders in an import."""
BLOCK, INLINE = 512, 4096
"""Bytes of a block as the system counts them, and of the largest file that some file systems keep without any."""
NOT_FOLLOWED = "a symbolic link, which an import does not follow"
LONGEST_INSTANCE = 24
"""Characters of the name of a further sensor, without the number of one of several; INSTANCE allows 32."""


# ---- samples -------------------------------------------------------------------------------------
def find_nearest(stamps: NDArray[np.int64], stamp: int) -> int | None:
    """Return the index of the stamp (N,), rising, nearest to another, of two the earlier; None beyond TOLERANCE; ns."""
    place = int(np.searchsorted(stamps, stamp))
    near = [n for n in (place - 1, place) if 0 <= n < len(stamps)]
    found = min(near, key=lambda n: abs(int(stamps[n]) - stamp), default=None)
    return found if found is not None and abs(int(stamps[found]) - stamp) <= TOLERANCE else None


@dataclass(frozen=True)
class SensorEntries:
    """A sensor beside the reference camera."""

    what: str
    """Its name in the report."""
    kind: str
    """Kind of its members; empty for a mask of classes."""
    stamps: NDArray[np.int64]
    """(N,) rising, ns."""
    make: Callable[[int], bytes]
    """Returns an entry as a member, empty if it cannot be one; successive calls with rising numbers."""
    exact: Callable[[int], int | None] | None = None
    """Returns the stamp of an entry in ns, where it is known better than in `stamps`."""

    def near(self, stamp: int, time: int, row: dict[str, Any]) -> bytes:
        """Return the entry nearest to a picture, empty without one; `row` gets its stamp, skew and, of a picture, size.

        `stamp`: of the picture, ns, as in `stamps`; `time`: of the sample, ns.
        """
        number = find_nearest(self.stamps, stamp)
        data = b"" if number is None else self.make(number)
        known = find_by_kind(self.kind) if self.kind else None
        if data and number is not None and known is not None and known.column is not None:
            measured = self.exact(number) if self.exact is not None else None
            measured = int(self.stamps[number]) if measured is None else measured
            row |= {f"{known.column}_timestamp": measured, f"{known.column}_skew": measured - time}
            if known.form == "camera":
                row[known.size_column] = check_jpeg(data)
        return data


def list_companion_columns(companions: Iterable[SensorEntries]) -> list[str]:
    """Return the companions with columns in the frames table: the usual ones, then the others of these."""
    there = (find_by_kind(companion.kind).column for companion in companions if companion.kind)
    return list(dict.fromkeys(("radar_targets", "lidar_points", "radar_cube", *filter(None, there))))


def name_kinds(kind: str, names: Iterable[str], first: str) -> dict[str, str]:
    """Return the kind of the members of several sensors by their names: `lidar-rear.pcd` of `lidar-rear`.

    Args:
        kind: kind of the first instance: `lidar.pcd`.
        names: names of the sensors.
        first: name, and beginning of further names, in an export: `lidar`. Without it the first of all is the first.
    """
    found: dict[str, str] = {}
    for name in sorted(names, key=lambda name: name != first):
        plain = re.sub(r"[^a-z0-9_]", "_", re.sub(f"^{first}[-_.]", "", name.lower()))[:LONGEST_INSTANCE] or first
        instance, number = plain, 1
        while (own := kind.replace(".", f"-{instance}.", 1)) in found.values():
            number += 1
            instance = f"{plain}_{number}"
        found[name] = own if found else kind
    return found


def name_sequences(names: Iterable[str]) -> list[str]:
    """Return a safe name for each; one that exists already gets a number."""
    found: list[str] = []
    taken: set[str] = set()
    tried: Counter[str] = Counter()
    """The last number by the name that it follows."""
    for given in names:
        base = name = make_safe(given)
        while name.casefold() in taken:
            tried[base] = max(tried[base], 1) + 1
            name = make_safe(f"{base}-{tried[base]}")
        taken.add(name.casefold())
        found.append(name)
    return found


def make_counts(camera: str, seen: int, written: int, reason: str) -> dict[str, Any]:
    """Return the counts of a sequence, of whose `seen` pictures those that were not `written` were dropped."""
    dropped = {reason: seen - written} if seen > written else {}
    return {camera: {"seen": seen, "written": written, "dropped": dropped}}


def make_metadata(files: Sequence[str], sequences: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metadata of the frames table of an import.

    Args:
        files: names of the files read.
        sequences: facts of each sequence: sources (indices of `files`), camera_info, static_transforms, calibration,
            topics and counts.
    """
    base, counts = {"base": "header", "topics": {}}, Counts()
    for facts in sequences.values():
        counts.add(Counts.of(facts["counts"]))
    return {
        "sources": [{"file": file} for file in files],
        "configuration": {"tolerance": TOLERANCE / 1e9},
        "software": {"name": "edgefirst-ros", "version": edgefirst_ros.__version__},
        "time_base": base,
        **schema.combine_sequences(sequences)[0],
        "counts": counts.plain(),
        "sequences": {name: {**facts, "time_base": base} for name, facts in sequences.items()},
    }


def stamp_picture(
    kind: str, data: bytes, sequence: str, frame: int, stamp: int, row: Mapping[str, Any]
) -> Sequence[Buffer]:
    """Return a picture, as buffers, whose EXIF names its sample if it named another; others stay as they are.

    `stamp` is in ns; `row`, of the frames table, has latitude, longitude and altitude.
    """
    try:
        found = read_exif(data)
        place = [row.get(name) for name in ("latitude", "longitude", "altitude")]
        there = found.latitude, found.longitude
        near = all(
            a == b or (a is not None and b is not None and abs(a - b) < NEAR)
            for a, b in zip(there, place, strict=False)
        )
        if found.frame is None or (near and (found.sequence, found.frame, found.stamp) == (sequence, frame, stamp)):
            return [data]
        software = f"edgefirst_ros {edgefirst_ros.__version__}"
        exif = encode_exif(ExifInfo(sequence, frame, stamp, find_host(sequence), software, *place))
        return insert_png(data, exif) if kind.endswith("png") else insert_jpeg(data, exif)
    except EdgeFirstError:
        return [data]


# ---- files ---------------------------------------------------------------------------------------
def check_member_name(name: str) -> str:
    """Return the name of a member that an import writes as it is. Raises ValueError where that could do harm.

    It must stay in its folder on every system: no `..`, backslash, drive letter or control character, and be Unicode.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in name or _DRIVE.match(name):
        raise ValueError(f"name {name[:80]!r} leads out of the folder, or is empty")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in name):
        raise ValueError(f"name {name[:80]!r} has control characters, or is not Unicode")
    longest = max(len(part.encode()) for part in parts)
    if longest > LONGEST_PART or len(name.encode()) > LONGEST_NAME or len(parts) > DEEPEST_NAME:
        raise ValueError(f"name {name[:80]!r} has {len(name)} characters in {len(parts)} parts, too many")
    return name


def clean_text(text: str) -> str:
    """Return text of others that is stored as a value, with a question mark for each half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def read_file(path: Path, most: int) -> bytes:
    """Return the bytes of a regular file. Raises DatasetError, also where they are more than `most`."""
    try:
        with open(open_file(path), "rb") as file:
            if os.fstat(file.fileno()).st_size > most:
                raise DatasetError(f"{path}: has more than {most} bytes")
            return file.read(most)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error


def read_json(path: Path) -> Any:
    """Return the value in a file of JSON. Raises DatasetError."""
    try:
        return json.loads(read_file(path, TEXT))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: cannot be read as JSON: {error}") from error


def refuse_links(path: Path) -> int:
    """Return the bytes that a path and all files below it have on the disk; holes do not count.

    Raises DatasetError where one of them is neither a folder nor a regular file, or folders are too deep.
    """
    with report_errors(path, "read"):
        total, waiting = 0, list[Path | os.DirEntry[str]]([path])
        while waiting:
            place = waiting.pop()
            known = place.stat(follow_symlinks=False)
            if stat.S_ISDIR(known.st_mode):
                refuse_deep(Path(place), path)
                with os.scandir(place) as entries:
                    waiting += entries
            elif stat.S_ISREG(known.st_mode):
                total += min(known.st_size, known.st_blocks * BLOCK + INLINE)
            else:
                link = stat.S_ISLNK(known.st_mode)
                what = f"{NOT_FOLLOWED}; put its target there" if link else "neither a file nor a folder"
                raise DatasetError(f"{os.fspath(place)}: is {what}")
        return total


def refuse_deep(folder: Path, top: Path) -> None:
    """Raise DatasetError where a folder is too deep below another."""
    if len(folder.parts) - len(top.parts) > DEEPEST:
        raise DatasetError(f"{top}: holds folders in each other, more than {DEEPEST} deep")
