# SPDX-License-Identifier: Apache-2.0
"""Unfinished datasets as inputs: genuine ones to begin with, and what power cuts and bad disks may make of them.

An input is a bundle: every file of the folder with its content, behind a list that tells names and kinds.
"""

import itertools
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

from edgefirst_ros import convert
from edgefirst_ros.dataset import DatasetWriter
from edgefirst_ros.dataset.tables.rowlog import RowLog
from edgefirst_ros.synthetic import Recipe, write_recording
from edgefirst_ros.synthetic.recipe import TOPICS

Change = Callable[[random.Random, bytes, bytes], bytes]
NAME = "d"
RECIPE = {"codec": "jpeg", "seconds": 0.4, "size": (128, 64), "cube_shape": (1, 8, 2, 8), "lidar_points": 20}
MASKS = frozenset({"model/output", "model/mask", "model/mask_compressed"})
COMMITS, KILLED = (3, 7), 10
"""Indices of samples: commits are behind these, the end behind that."""
BLOCKS = (512, 4096)
HEAD = struct.Struct("<4I")
"""Head of a record of the row log: checksum, and the lengths of its JSON object, its rows and its raw bytes."""
LARGE = 1 << 26
"""Bytes of zeros, as preallocation leaves them behind a file."""


@dataclass(frozen=True)
class Case:
    """How a genuine unfinished dataset is made."""

    layout: str
    masks: bool
    fsync: bool = False
    """As a capture does: what is committed is on the disk, and the journal says so."""
    suspended: bool = False
    """Left by an error instead of a kill."""


CASES = (
    Case("zip", masks=True),
    Case("zip", masks=False),
    Case("directory", masks=True),
    Case("directory", masks=False),
    Case("zip", masks=True, fsync=True),
    Case("zip", masks=False, fsync=True),
    Case("directory", masks=False, fsync=True),
    Case("zip", masks=False, suspended=True),
)


@dataclass(frozen=True)
class File:
    """One file of a bundle; `kind` is file, folder, link or pipe."""

    content: bytes = b""
    kind: str = "file"
    mtime: int = 0
    zeros: int = 0
    """Bytes of zeros behind the content."""


@dataclass
class Bundle:
    """An unfinished dataset, by the number of its case."""

    case: int
    files: dict[str, File] = field(default_factory=dict)

    def packed(self) -> bytes:
        """The bundle as an input."""
        listed = [[name, f.kind, f.mtime, f.zeros, len(f.content)] for name, f in self.files.items()]
        head = json.dumps([self.case, listed]).encode()
        return struct.pack("<I", len(head)) + head + b"".join(file.content for file in self.files.values())

    @classmethod
    def unpacked(cls, data: bytes) -> "Bundle":
        """The bundle of an input."""
        place = 4 + struct.unpack_from("<I", data)[0]
        case, listed = json.loads(data[4:place])
        found = cls(case)
        for name, kind, mtime, zeros, length in listed:
            found.files[name] = File(data[place : place + length], kind, mtime, zeros)
            place += length
        return found

    @classmethod
    def of(cls, case: int, folder: Path) -> "Bundle":
        """The bundle of a folder."""
        found = cls(case)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = str(path.relative_to(folder))
            time = path.stat().st_mtime_ns if f"/{NAME}/" in name else 0  # a member's is its sample's
            reserved = path.stat().st_size if name.endswith(".reserve.partial") else 0
            found.files[name] = File(b"" if reserved else path.read_bytes(), mtime=time, zeros=reserved)
        return found

    def lay(self, folder: Path, aim: Path) -> None:
        """Write it to a folder; links lead to `aim`."""
        folder.mkdir()
        for name, file in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.kind == "folder":
                path.mkdir()
                (path / "kept").write_bytes(b"kept")
            elif file.kind == "link":
                path.symlink_to(aim)
            elif file.kind == "pipe":
                os.mkfifo(path)
            else:
                path.write_bytes(file.content)
                os.truncate(path, len(file.content) + file.zeros)
                os.utime(path, ns=(file.mtime, file.mtime))


def recording_of(work: Path, case: Case) -> Path:
    """The recording that a case converts."""
    return work / ("masks.mcap" if case.masks else "plain.mcap")


def finished_of(work: Path, number: int) -> Path:
    """The folder of a case's dataset as it becomes without interruption."""
    return work / f"whole{number}"


def make(work: Path) -> Iterator[bytes]:
    """The seeds: unfinished datasets; what they become without interruption is left in `work`."""
    work.mkdir()
    for masks, name in ((True, "masks"), (False, "plain")):
        topics = TOPICS - (frozenset() if masks else MASKS)
        write_recording(work / f"{name}.mcap", Recipe(**RECIPE, topics=topics))
    for number, case in enumerate(CASES):
        out, left = finished_of(work, number), work / f"left{number}"
        killed = mock.patch.object(DatasetWriter, "write", _killed(DatasetWriter.write, case, out, left))
        with killed, mock.patch.object(RowLog, "commit", _steady(RowLog.commit)):
            try:
                convert(recording_of(work, case), out, name=NAME, layout=case.layout)
            except InterruptedError:
                shutil.move(out, left)
        if case.suspended:
            convert(recording_of(work, case), out, name=NAME, layout=case.layout)
        yield Bundle.of(number, left).packed()


def _killed(write: Callable, case: Case, out: Path, left: Path) -> Callable:
    """As `write` of a writer; what is there when a kill comes is copied to `left`."""
    numbers = itertools.count()

    def written(writer: DatasetWriter, sample: object) -> None:
        writer._fsync = case.fsync
        writer._pace._interval = writer._pace._due = 1e9  # so that the same is committed every time
        write(writer, sample)
        number = next(numbers)
        if number in COMMITS:
            writer.flush()
        if number == KILLED:
            if case.suspended:
                raise InterruptedError
            shutil.copytree(out, left)

    return written


def _steady(commit: Callable) -> Callable:
    """As `commit` of the row log; what depends on how far ahead messages are read is not described."""

    def committed(log: RowLog, size: int, description: Mapping[str, object], *, sync: bool) -> None:
        known = {key: description[key] for key in ("configuration", "software", "schema_version")}
        sources = [{key: source[key] for key in ("file", "size", "sha256")} for source in description["sources"]]
        commit(log, size, {"sources": sources, **known}, sync=sync)

    return committed


# ---- mutations -------------------------------------------------------------------------------
def damaged(rng: random.Random, data: bytes, other: bytes, any_bytes: Change, length_at: Callable) -> bytes:
    """One change: of a file's bytes, of what a file is, or, as after a power cut, of several files' blocks."""
    bundle, second = Bundle.unpacked(data), Bundle.unpacked(other)
    if CASES[bundle.case].masks != CASES[second.case].masks:  # what is of another recording nothing can tell
        second = bundle
    journals = [name for name in bundle.files if name.endswith(".journal")]
    members = [name for name in bundle.files if name not in journals and not name.endswith(".reserve.partial")]
    choice = rng.random()
    if choice < 0.15:
        for name in (*journals, *rng.sample(members, min(len(members), 12))):
            if rng.random() < 0.5:
                file = bundle.files[name]
                bundle.files[name] = replace(file, content=_holes(rng, file.content, rng.choice((0.05, 0.2, 0.6))))
        return bundle.packed()
    everything = sorted(bundle.files) or [f"{NAME}.zip.partial"]
    name = rng.choice((members if choice < 0.45 else journals if choice < 0.97 else everything) or everything)
    file, alike = bundle.files.get(name, File()), second.files.get(name, File(b"\0" * 64))
    if rng.random() < 0.12:
        _replaced(rng, bundle, name, alike)
    else:
        content, zeros = file.content, file.zeros
        change = rng.randrange(10)
        if change == 0:
            zeros = rng.choice((1, 100, 512, 4096, 100_000, LARGE))
        elif change == 1:
            content = any_bytes(rng, content, alike.content)
        elif change == 2:
            content = length_at(rng, content, _place(rng, content))
        elif change < 6:
            content = _records(rng, content, alike.content)
        else:
            content = _blocks(rng, content)
        bundle.files[name] = replace(file, content=content, zeros=zeros)
    return bundle.packed()


def _replaced(rng: random.Random, bundle: Bundle, name: str, alike: File) -> None:
    """A file that is missing, empty, something else, or another dataset's."""
    choice = rng.randrange(6)
    if rng.random() < 0.15 and "/" in name and choice != 2:  # the folder that it lies in
        name = os.path.dirname(name)
        bundle.files = {other: file for other, file in bundle.files.items() if not other.startswith(f"{name}/")}
    if choice == 0:
        bundle.files.pop(name, None)
    elif choice == 1:
        bundle.files[name] = File()
    elif choice == 2:
        bundle.files[name] = alike
    else:
        bundle.files[name] = File(kind=("folder", "link", "pipe")[choice - 3])


def _holes(rng: random.Random, content: bytes, share: float) -> bytes:
    """Blocks of zeros, and perhaps an earlier end: what had not reached the disk when the power went."""
    data, size = bytearray(content), rng.choice(BLOCKS)
    for start in range(0, len(data), size):
        if rng.random() < share:
            data[start : start + size] = bytes(len(data[start : start + size]))
    return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data)


def _blocks(rng: random.Random, content: bytes) -> bytes:
    """Blocks of a disk: gone, zero, swapped, repeated, or bits of them flipped."""
    size = rng.choice(BLOCKS)
    blocks = [content[n : n + size] for n in range(0, len(content), size)] or [b""]
    at, second = rng.randrange(len(blocks)), rng.randrange(len(blocks))
    choice = rng.randrange(6)
    if choice == 0:
        return content[: rng.choice((rng.randrange(len(content) + 1), at * size))]
    if choice == 1:
        return _holes(rng, content, 1 / len(blocks))
    if choice == 2:
        blocks[at], blocks[second] = blocks[second], blocks[at]
    elif choice == 3:
        blocks[at] = blocks[second]
    elif choice == 4:
        blocks.insert(at, blocks[second])
    else:
        flipped = bytearray(blocks[at])
        for _ in range(rng.choice((1, 1, 3)) if flipped else 0):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        blocks[at] = bytes(flipped)
    return b"".join(blocks)


def record_starts(content: bytes) -> list[int]:
    """Where the records of a row log begin, by the lengths in their heads."""
    found, place = [], 0
    while place + HEAD.size <= len(content):
        _, *lengths = HEAD.unpack_from(content, place)
        end = place + HEAD.size + sum(lengths)
        if not lengths[0] or end > len(content):
            break
        found.append(place)
        place = end
    return found


def _starts(content: bytes) -> list[int]:
    """Where members, or records of the row log, begin."""
    mark = b"PK\3\4"
    if not content.startswith(mark):
        return record_starts(content) or [0]
    found, at = [], content.find(mark)
    while at >= 0:
        found.append(at)
        at = content.find(mark, at + 1)
    return found


def _place(rng: random.Random, content: bytes) -> int:
    """Somewhere, likely in a head."""
    if rng.random() < 0.2 or not content:
        return rng.randrange(len(content) + 1)
    return min(len(content) - 1, rng.choice(_starts(content)) + rng.randrange(40))


def _records(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """Whole records dropped, repeated, moved or another dataset's; or bits of a head flipped."""
    starts = [*_starts(content), len(content)]
    records = [content[a:b] for a, b in itertools.pairwise(starts)] or [b""]
    at, second = rng.randrange(len(records)), rng.randrange(len(records))
    choice = rng.randrange(6)
    if choice == 0:
        del records[at]
    elif choice == 1:
        records.insert(at, records[second])
    elif choice == 2:
        records[at], records[second] = records[second], records[at]
    elif choice == 3:
        theirs = [*_starts(other), len(other)]
        begin = rng.randrange(len(theirs) - 1) if len(theirs) > 1 else 0
        records.insert(at, other[theirs[begin] : theirs[min(begin + 1, len(theirs) - 1)]])
    elif choice == 4:
        records = records[: at + 1]
    elif content:
        place = _place(rng, content)
        return content[:place] + bytes((content[place] ^ 1 << rng.randrange(8),)) + content[place + 1 :]
    return b"".join(records)


def changed(before: Sequence[File | None]) -> bool:
    """Whether two files, or what is in their place, differ."""
    first, second = before
    return first is None or second is None or replace(first, mtime=0) != replace(second, mtime=0)
