# SPDX-License-Identifier: Apache-2.0
"""Power cuts, state by state: what a disk may hold after every write, sync and rename, and what `recover` makes of it.

Traces a writer with strace, replays its calls on a model of a disk, and after every call builds states that the disk
may hold when the power goes: any subset of the pages that were not synced, and a prefix of the changes of names and
sizes (`ordered`, as journaling file systems do). `posix` is stricter: a name is certain only once its folder was
synced, whatever happened later. Each state is given to `recover`, or to a writer that goes on, and must keep every
committed sample and no damaged member.

    python benchmark/powercut.py [--states 10] [--jobs 2] [--only zip-new ...]
"""

from __future__ import annotations

import argparse
import hashlib
import io
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import Image

from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.dataset import DatasetWriter, NewSample
from edgefirst_ros.dataset.names import DatasetPaths, parse_member
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.errors import DatasetError

PAGE = 4096
START = 1_767_323_045_000_000_000
SEQUENCE = "host_2026_01_02_03_04_05"
WAYS = ("all", "none", "one", "one", "one", "random", "random", "random")
"""Which pages that were not synced the disk has: "one" lacks a single one."""
LAYOUTS = ("zip", "directory")
MODES = ("new", "overwrite", "resume", "recover", "live")
SAMPLES = range(20)
COMMITS = (2, 5, 9, 14)
CALLS = (
    "openat,open,creat,write,pwrite64,pwritev,pwritev2,writev,ftruncate,truncate,rename,renameat,renameat2,unlink,"
    "unlinkat,rmdir,mkdir,mkdirat,fsync,fdatasync,sync,syncfs,fallocate"
)


# ---- the disk --------------------------------------------------------------------------------------
Change = tuple[str, int, Any, Any]
"""("name", folder, name, inode or None) or ("size", inode, bytes, None)."""


@dataclass
class File:
    """A file: bytes as programs see them, and as the disk has them for certain."""

    live: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)


class Disk:
    """A model of a disk below one folder: names and sizes change in order, data page by page."""

    ROOT = 0

    def __init__(self) -> None:
        self.folders: dict[int, dict[str, int]] = {self.ROOT: {}}
        self.files: dict[int, File] = {}
        self.sizes: dict[int, int] = {}
        """Sizes of files that the disk has for certain, in the ordered model."""
        self.certain: dict[int, dict[str, int]] = {self.ROOT: {}}
        """Names that the disk has for certain, in the ordered model."""
        self.pending: list[list[Change]] = []
        self.posix_names: dict[int, dict[str, int]] = {self.ROOT: {}}
        self._unsynced: list[list[Change]] = []
        """Changes of names whose folders were not synced since."""
        self.posix_sizes: dict[int, int] = {}
        self._next = 1

    def load(self, folder: Path) -> None:
        """Take over what is in a folder, all of it synced."""
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_dir():
                self.mkdir(name)
            else:
                self.create(name)
                self.write(name, 0, path.read_bytes())
        self.sync_all()

    # ---- calls -------------------------------------------------------------------------------
    def mkdir(self, name: str) -> None:
        """Make a folder."""
        parent, last = self._parent(name)
        number = self._new()
        self.folders[number] = {}
        self.certain[number] = {}
        self.posix_names[number] = {}
        self._change([("name", parent, last, number)])

    def create(self, name: str) -> None:
        """Make an empty file, if none is there."""
        parent, last = self._parent(name)
        if last in self.folders[parent]:
            return
        number = self._new()
        self.files[number] = File()
        self.sizes[number] = self.posix_sizes[number] = 0
        self._change([("name", parent, last, number), ("size", number, 0, None)])

    def write(self, name: str, offset: int | None, data: bytes) -> None:
        """Write at an offset; None: at the end."""
        number = self.find(name)
        file = self.files[number]
        offset = len(file.live) if offset is None else offset
        grown = max(len(file.live), offset + len(data))
        if grown > len(file.live):
            file.live.extend(bytes(grown - len(file.live)))
            self._change([("size", number, grown, None)])
        file.live[offset : offset + len(data)] = data

    def truncate(self, name: str, size: int) -> None:
        """Cut or extend a file."""
        number = self.find(name)
        live = self.files[number].live
        del live[size:]
        live.extend(bytes(size - len(live)))
        self._change([("size", number, size, None)])

    def remove(self, name: str) -> None:
        """Remove a file or a folder."""
        parent, last = self._parent(name)
        self._change([("name", parent, last, None)])

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing what is there."""
        (parent, last), (target, final) = self._parent(old), self._parent(new)
        number = self.folders[parent][last]
        self._change([("name", parent, last, None), ("name", target, final, number)])

    def sync(self, name: str) -> None:
        """Sync a file or a folder."""
        number = self.find(name)
        self._settle()
        if number in self.files:
            file = self.files[number]
            file.disk = bytearray(file.live)
            self.posix_sizes[number] = len(file.live)
        else:
            kept = []
            for changes in self._unsynced:
                if any(folder == number for _, folder, _, _ in changes):
                    _apply(changes, self.posix_names, None)
                else:
                    kept.append(changes)
            self._unsynced = kept

    def sync_all(self) -> None:
        """Sync everything."""
        self._settle()
        for number, file in self.files.items():
            file.disk = bytearray(file.live)
            self.posix_sizes[number] = len(file.live)
        self.posix_names = {number: dict(names) for number, names in self.folders.items()}
        self._unsynced.clear()

    def find(self, name: str) -> int:
        """Return the number of a file or folder."""
        number = self.ROOT
        for part in filter(None, name.split("/")):
            number = self.folders[number][part]
        return number

    def _parent(self, name: str) -> tuple[int, str]:
        folder, _, last = name.rpartition("/")
        return self.find(folder), last

    def _new(self) -> int:
        self._next += 1
        return self._next

    def _change(self, changes: list[Change]) -> None:
        _apply(changes, self.folders, None)
        self.pending.append(changes)
        if names := [change for change in changes if change[0] == "name"]:
            self._unsynced.append(names)

    def _settle(self) -> None:
        for changes in self.pending:
            _apply(changes, self.certain, self.sizes)
        self.pending.clear()

    # ---- states ------------------------------------------------------------------------------
    def ordered(self, chance: random.Random, most: int) -> Iterator[dict[str, bytes | None]]:
        """Yield at most `most` states of an ordered journaling disk: {name: bytes, None for a folder}."""
        cuts = {0, len(self.pending)}
        cuts |= {n for n, changes in enumerate(self.pending) if any(kind == "name" for kind, *_ in changes)}
        choices = [(cut, way) for cut in sorted(cuts, reverse=True) for way in WAYS]
        chance.shuffle(choices)
        for cut, way in sorted(choices, key=lambda choice: choice[0] != len(self.pending))[:most]:
            names = {number: dict(found) for number, found in self.certain.items()}
            sizes, least = dict(self.sizes), dict(self.sizes)
            for changes in self.pending[:cut]:
                _apply(changes, names, sizes)
                for kind, number, size, _ in changes:
                    if kind == "size":
                        least[number] = min(least.get(number, 0), size)
            yield self._state(names, sizes, least, way, chance)

    def posix(self, chance: random.Random, most: int) -> Iterator[dict[str, bytes | None]]:
        """Yield states of a disk that has names only once their folder was synced."""
        for tried in range(most):
            names = {number: dict(found) for number, found in self.posix_names.items()}
            for changes in self._unsynced:
                if tried and chance.random() < 0.5:
                    _apply(changes, names, None)
            sizes = {n: len(f.live) if chance.random() < 0.5 else self.posix_sizes[n] for n, f in self.files.items()}
            least = {n: min(size, self.posix_sizes[n]) for n, size in sizes.items()}
            yield self._state(names, sizes, least, chance.choice(("all", "none", "random")), chance)

    def killed(self) -> Iterator[dict[str, bytes | None]]:
        """Yield the state after a kill of the program only: all that it wrote is there."""
        sizes = {number: len(file.live) for number, file in self.files.items()}
        yield self._state(self.folders, sizes, sizes, "all", random.Random(0))

    def _state(
        self,
        names: Mapping[int, Mapping[str, int]],
        sizes: Mapping[int, int],
        least: Mapping[int, int],
        way: str,
        chance: random.Random,
    ) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}

        def visit(number: int, prefix: str) -> None:
            for name, child in sorted(names.get(number, {}).items()):
                path = f"{prefix}{name}"
                if child in self.files:
                    found[path] = self._content(child, sizes.get(child, 0), least.get(child, 0), way, chance)
                else:
                    found[path] = None
                    visit(child, f"{path}/")

        visit(self.ROOT, "")
        return found

    def _content(self, number: int, size: int, least: int, way: str, chance: random.Random) -> bytes:
        file = self.files[number]
        before = file.disk[:least] + bytes(max(0, size - least))
        if way == "none":
            return bytes(before[:size]) + bytes(max(0, size - len(before)))
        made = bytearray(before[:size]) + bytes(max(0, size - len(before)))
        live = file.live[:size] + bytes(max(0, size - len(file.live)))
        pages = [p for p in range(0, size, PAGE) if made[p : p + PAGE] != live[p : p + PAGE]]
        left_out = {chance.choice(pages)} if way == "one" and pages else set()
        for place in pages:
            if place not in left_out and (way != "random" or chance.random() < 0.5):
                made[place : place + PAGE] = live[place : place + PAGE]
        return bytes(made)


def _apply(changes: Sequence[Change], names: dict[int, dict[str, int]], sizes: dict[int, int] | None) -> None:
    for kind, number, what, value in changes:
        if kind == "size":
            if sizes is not None:
                sizes[number] = what
        elif value is None:
            names.setdefault(number, {}).pop(what, None)
        else:
            names.setdefault(number, {})[what] = value


# ---- the trace -------------------------------------------------------------------------------------
_LINE = re.compile(r"^(\d+) +(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)\) += (-?\d+)(?:<(.*)>)?.*$")
_RESUMED = re.compile(r"^<\.\.\. \w+ resumed>(.*)$")
_FD = re.compile(r"^(AT_FDCWD|-?\d+)(?:<((?:[^>\\]|\\.)*)>)?")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def calls_of(trace: Path, root: Path, marks: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the calls below `root` as (method of `Disk`, arguments), and ("mark", (text,)) for what goes to `marks`."""
    begun: dict[str, str] = {}
    for line in trace.read_text(errors="replace").splitlines():
        pid, rest = _LINE.match(line).groups()  # type: ignore[union-attr]
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        if (resumed := _RESUMED.match(rest)) is not None:
            rest = begun.pop(pid, "") + resumed.group(1).lstrip()
        call = _CALL.match(rest)
        if call is not None and int(call.group(3)) >= 0:
            yield from _calls(call.group(1), call.group(2), int(call.group(3)), os.fspath(root), os.fspath(marks))


def _calls(name: str, text: str, result: int, root: str, marks: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    fd = _FD.match(text)
    at = _unhex(fd.group(2) or "").decode(errors="replace") if fd is not None else ""
    at = at.removesuffix(" (deleted)")
    texts = [_unhex(found) for found in _TEXT.findall(text)]

    def below(path: str, folder: str = "") -> str | None:
        full = os.path.normpath(os.path.join(folder, path))
        return full.removeprefix(root).lstrip("/") if full == root or full.startswith(f"{root}/") else None

    if name in ("write", "pwrite64", "pwritev", "pwritev2", "writev"):
        data = b"".join(texts)[:result]
        if at == marks:
            yield "mark", (data.decode(),)
        elif (path := below(at)) is not None:
            offset = None
            if name in ("pwrite64", "pwritev"):
                offset = int(text.rpartition(",")[2])
            elif name == "pwritev2":
                offset = int(text.split(", ")[-2])
            yield "write", (path, offset, data)
    elif name in ("openat", "open", "creat"):
        if name == "creat" or "O_CREAT" in text:
            path = below(texts[0].decode(), at if name == "openat" else "")
            if path is not None:
                yield "create", (path,)
                if "O_TRUNC" in text:
                    yield "truncate", (path, 0)
    elif name in ("mkdir", "mkdirat", "unlink", "unlinkat", "rmdir"):
        path = below(texts[0].decode(), at if name.endswith("at") else "")
        if path is not None:
            yield "mkdir" if name.startswith("mkdir") else "remove", (path,)
    elif name in ("rename", "renameat", "renameat2"):
        folders = re.findall(r"(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>, \"", text) if name != "rename" else ["", ""]
        old, new = (below(t.decode(), _unhex(f).decode()) for t, f in zip(texts, folders, strict=False))
        if old is not None and new is not None:
            yield "rename", (old, new)
    elif name == "ftruncate":
        if (path := below(at)) is not None:
            yield "truncate", (path, int(text.rpartition(",")[2]))
    elif name in ("fsync", "fdatasync"):
        if (path := below(at)) is not None:
            yield "sync", (path,)
    elif name in ("sync", "syncfs"):
        yield "sync_all", ()


# ---- what is traced --------------------------------------------------------------------------------
def sample(frame: int) -> NewSample:
    """Return a sample of several pages, with two rows."""
    chance = np.random.default_rng(frame)
    data = io.BytesIO()
    Image.fromarray(chance.integers(0, 256, (72, 96, 3), np.uint8)).save(data, "JPEG", quality=90)
    points = chance.random((600, 3), np.float32).tobytes()
    head = (
        "VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH 600\nHEIGHT 1\n"
        "VIEWPOINT 0 0 0 1 0 0 0\nPOINTS 600\nDATA binary\n"
    )
    stamp = START + frame * 100_000_000
    row = {"size": (96, 72), "lidar_points_timestamp": stamp + 5, "lidar_points_skew": 5, "segment": 0}
    boxes = [{"label": f"car{frame}", "label_index": 0, "box2d": (0.5, 0.5, 0.1, n / 10)} for n in (1, 2)]
    members = [("camera.jpeg", [data.getvalue()]), ("lidar.pcd", [head.encode() + points])]
    return NewSample(SEQUENCE, frame, stamp, members, row, boxes, {"size": (96, 72)})


def write_all(out: Path, layout: str, mark: Callable[[str], None], frames: Sequence[int], **options: Any) -> None:
    """Write a dataset as a capture does, and say how much of it is committed."""
    with DatasetWriter(out, "d", layout=layout, fsync=True, flush_interval=1e9, **options) as writer:  # type: ignore[arg-type]
        for number, frame in enumerate(frames):
            writer.write(sample(frame))
            if number in COMMITS:
                writer.flush()
                mark(f"{writer.committed}\n")
        writer.finish({"counts": {}})
    mark(f"{len(frames)}\n")


class Killed(BaseException):
    """The end of a process."""


def prepare(mode: str, layout: str, out: Path) -> None:
    """Leave what is there before the traced program begins."""
    if mode == "overwrite":
        write_all(out, layout, lambda _: None, range(20, 23))
    if mode in ("resume", "recover"):
        program = f"import powercut, pathlib; powercut.leave(pathlib.Path({os.fspath(out)!r}), {layout!r})"
        subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, check=False)


def leave(out: Path, layout: str) -> None:
    """Write some samples, commit most of them, and end as a kill does."""
    writer = DatasetWriter(out, "d", layout=layout, fsync=True, flush_interval=1e9)  # type: ignore[arg-type]
    for frame in SAMPLES if mode_is_recover() else range(5):
        writer.write(sample(frame))
        if frame in COMMITS:
            writer.flush()
    os._exit(0)


def mode_is_recover() -> bool:
    """Return True in the program that leaves a dataset to be recovered."""
    return os.environ.get("POWERCUT_MODE") == "recover"


def act(mode: str, layout: str, out: Path, marks: Path) -> None:
    """Run what is traced."""
    fd = os.open(marks, os.O_WRONLY | os.O_CREAT, 0o644)

    def mark(text: str) -> None:
        os.write(fd, text.encode())

    if mode == "new":
        write_all(out, layout, mark, SAMPLES)
    elif mode == "overwrite":
        write_all(out, layout, mark, SAMPLES, overwrite=True)
    elif mode == "resume":
        mark("3\n")
        unfinished = UnfinishedDataset(DatasetPaths(out, "d", layout))  # type: ignore[arg-type]
        write_all(out, layout, mark, SAMPLES, unfinished=unfinished)
    elif mode == "recover":
        mark(f"{COMMITS[-1] + 1}\n")
        recover(out / "d")
    else:
        capture(layout, out, mark)


def capture(layout: str, out: Path, mark: Callable[[str], None]) -> None:
    """Capture a made-up drive, as fast as it can be had."""
    from edgefirst_ros.pipeline.capture import Capture
    from edgefirst_ros.sources.mcap import McapRecording
    from edgefirst_ros.sources.topics import choose_topics
    from edgefirst_ros.synthetic import Recipe, write_recording

    path = out.parent.parent / "drive.mcap"
    recipe = {"size": (128, 64), "codec": "jpeg", "fps": 10.0, "cube_shape": (1, 16, 2, 16), "lidar_points": 400}
    write_recording(path, Recipe(seconds=2.0, **recipe))  # type: ignore[arg-type]
    recording = McapRecording(path)
    for _ in recording.walk():
        pass
    topics = {channel.topic: channel.schema for channel in recording.channels.values()}
    settings = Settings(layout=layout, jobs=1)  # type: ignore[arg-type]
    live = LiveSettings(out=str(out), host="h", sequence="d", fsync=True, flush_interval=0.05, min_free_bytes=0)
    caught = Capture(settings, live, choose_topics(topics, settings), "h", lambda _: None)
    caught.start()
    messages = list(recording.iter_messages(set(topics)))
    begun = time.monotonic_ns() - 2_000_000_000
    for message in messages:
        caught.put(message, begun + message.log_time - messages[0].log_time)
        mark(f"{caught.status().get('committed', 0)}\n")
        time.sleep(0.01)
    for _ in range(40):
        mark(f"{caught.status().get('committed', 0)}\n")
        time.sleep(0.02)
    caught.close()


# ---- the judge -------------------------------------------------------------------------------------
@dataclass
class Content:
    """A finished dataset: its members, and its rows by sample."""

    members: dict[str, bytes]
    frames: dict[tuple[str, int], Any]
    annotations: dict[tuple[str, int], Any]


def content_of(out: Path, layout: str) -> Content:
    """Read a finished dataset with zipfile and polars alone."""
    paths = DatasetPaths(out, "d", layout)  # type: ignore[arg-type]
    if layout == "zip":
        with zipfile.ZipFile(paths.container) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    else:
        root = paths.members
        members = {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    tables = []
    for path in (paths.frames, paths.arrow):
        found: dict[tuple[str, int], Any] = {}
        for row in pl.read_ipc(path.read_bytes()).to_dicts():
            plain = {key: value for key, value in row.items() if value is not None}
            found.setdefault((row["name"], row["frame"]), []).append(plain)
        tables.append(found)
    return Content(members, *tables)


def key_of(name: str) -> tuple[str, int]:
    """Return the sample of a member."""
    member = parse_member(name)
    if member is None:
        raise ValueError(name)
    return member.sequence, member.frame


class Judge:
    """Says what is wrong with what `recover`, or a writer that goes on, makes of a state."""

    def __init__(self, mode: str, layout: str, whole: Content, old: Content | None) -> None:
        self.mode, self.layout, self.whole, self.old = mode, layout, whole, old
        self.order = list(whole.frames)

    def faults(self, out: Path, committed: int, *, resume: bool) -> list[str]:
        """Return what is wrong with a state."""
        paths = DatasetPaths(out, "d", self.layout)  # type: ignore[arg-type]
        if resume and paths.unfinished and not os.path.lexists(paths.container):
            return self._resume(paths)
        try:
            recover(out / "d")
        except DatasetError as error:
            if self.old is not None and os.path.lexists(paths.container):
                if wrong := self._compare(out, self.old, len(self.old.frames)):
                    return [f"the old one is not whole: {wrong[0]}", str(error)]
                try:
                    recover(out / "d", overwrite=True)
                except DatasetError as other:
                    return [f"{committed} samples were committed: {other}"] if committed else []
                return self._compare(out, self.whole, committed)
            return [f"{committed} samples were committed: {error}"] if committed else []
        if self.old is not None and not self._compare(out, self.old, len(self.old.frames)):
            return [] if committed < len(self.order) else ["the new one is gone"]
        return self._compare(out, self.whole, committed)

    def _compare(self, out: Path, wanted: Content, committed: int) -> list[str]:
        try:
            found = content_of(out, self.layout)
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
            return [f"cannot be read: {type(error).__name__} {error}"]
        wrong = [f"{name} is damaged" for name, data in found.members.items() if wanted.members.get(name) != data]
        for key in list(wanted.frames)[:committed]:
            gone = [n for n in wanted.members if key_of(n) == key and n not in found.members]
            wrong += [f"{name} of a committed sample is gone" for name in gone]
            if found.frames.get(key) != wanted.frames[key]:
                wrong.append(f"the frames row of the committed sample {key} is another")
            if found.annotations.get(key) != wanted.annotations[key]:
                wrong.append(f"annotations of the committed sample {key} are others")
        samples = {key_of(name) for name in found.members}
        if samples != set(found.frames) or samples != set(found.annotations):
            wrong.append("samples of tables and members differ")
        return wrong

    def _resume(self, paths: DatasetPaths) -> list[str]:
        try:
            unfinished = UnfinishedDataset(paths)
            with DatasetWriter(
                paths.out,
                "d",
                layout=self.layout,
                fsync=True,
                flush_interval=1e9,
                unfinished=unfinished,  # type: ignore[arg-type]
            ) as writer:
                for frame in SAMPLES:
                    writer.write(sample(frame))
                writer.finish({"counts": {}})
        except DatasetError as error:
            return [f"cannot be continued: {error}"]
        return self._compare(paths.out, self.whole, len(self.order))


# ---- runs ------------------------------------------------------------------------------------------
@dataclass
class Tally:
    """Numbers of one mode and layout."""

    events: int = 0
    states: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


Call = tuple[str, tuple[Any, ...]]


def trace(
    cases: Sequence[tuple[str, str]], folder: Path, prepare: Callable[[str, str, Path], None] = prepare
) -> list[tuple[Disk, list[Call], Path]]:
    """Run modes and layouts under strace; returns of each the disk before it, its calls, and the folder of the result.

    One process runs all of them. `prepare` makes what is there before.
    """
    log, acts, disks = folder / "trace", [], []
    for mode, layout in cases:
        root = folder / f"{layout}-{mode}"
        root.mkdir(parents=True)
        os.environ["POWERCUT_MODE"] = mode
        prepare(mode, layout, root / "out")
        disks.append(Disk())
        disks[-1].load(root)
        acts += [mode, layout, root / "out", folder / f"{layout}-{mode}.marks"]
    command = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-o", log, "-e", f"trace={CALLS}"]
    subprocess.run([*command, sys.executable, __file__, "--act", *acts], check=True)
    found = []
    for disk, out, marks in zip(disks, acts[2::4], acts[3::4], strict=True):
        found.append((disk, list(calls_of(log, out.parent, marks)), out))
    log.unlink()
    return found


def run(mode: str, layout: str, most: int) -> Tally:
    """Judge every state of one mode and layout."""
    tally, chance = Tally(), random.Random(f"{mode} {layout}")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as temporary:
        folder = Path(os.path.realpath(temporary))
        ((disk, calls, out),) = trace([(mode, layout)], folder)
        old = None
        if mode == "overwrite":
            shutil.copytree(out, folder / "new")
            prepare("overwrite", layout, folder / "before")
            old = content_of(folder / "before", layout)
        judge = Judge(mode, layout, content_of(out, layout), old)
        replay(disk, calls, judge, folder / "state", chance, most, tally)
    return tally


def replay(
    disk: Disk,
    calls: Sequence[tuple[str, tuple[Any, ...]]],
    judge: Judge,
    place: Path,
    chance: random.Random,
    most: int,
    tally: Tally,
    *,
    every: int = 1,
    kills: bool = False,
) -> None:
    """Judge the states after each call, or after one of `every`; `kills`: of the program, not of the machine."""
    committed, seen = 0, set()
    for name, arguments in calls:
        if name == "mark":
            committed = max(committed, *map(int, arguments[0].split()))
            continue
        try:
            getattr(disk, name)(*arguments)
        except KeyError:
            continue  # a file without a name: nobody finds it after a power cut
        tally.events += 1
        if tally.events % every:
            continue
        for model, states in (
            (("killed", disk.killed()),)
            if kills
            else (("ordered", disk.ordered(chance, most)), ("posix", disk.posix(chance, max(2, most // 3))))
        ):
            for state in states:
                digest = hashlib.sha256()
                for path, data in state.items():
                    digest.update(path.encode() + b"\0" + (data or b"") + b"\1")
                known = (digest.digest(), committed)
                if known in seen:
                    continue
                seen.add(known)
                tally.states[model] += 1
                build(state, place)
                resume = judge.mode in ("new", "resume") and tally.states[model] % 3 == 0
                try:
                    wrong = judge.faults(place / "out", committed, resume=resume)
                except Exception as error:  # noqa: BLE001  it is what is looked for
                    wrong = [f"{type(error).__name__}: {error}"]
                if wrong:
                    what = f"{model}, after {name} {arguments[0] if arguments else ''}, {committed} committed"
                    tally.faults.append(f"{what}{', resumed' if resume else ''}: {wrong[0]}")
                shutil.rmtree(place)


def build(state: Mapping[str, bytes | None], place: Path) -> None:
    """Make the files of a state."""
    place.mkdir()
    for path, data in state.items():
        if data is None:
            (place / path).mkdir()
        else:
            (place / path).write_bytes(data)


def _run(case: tuple[str, str, int]) -> Tally:
    os.nice(10)
    mode, layout, most = case
    return run(mode, layout, most)


def main() -> None:
    """Run all modes in both layouts, and print a table."""
    if len(sys.argv) > 1 and sys.argv[1] == "--act":
        for mode, layout, out, marks in zip(*(sys.argv[2 + n :: 4] for n in range(4)), strict=True):
            act(mode, layout, Path(out), Path(marks))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=16, help="most ordered states after each call")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="layout-mode, as zip-new")
    options = parser.parse_args()
    if shutil.which("strace") is None:
        print("strace is not installed: nothing was traced")
        return
    cases = [(mode, layout, options.states) for layout in LAYOUTS for mode in MODES]
    cases = [case for case in cases if not options.only or f"{case[1]}-{case[0]}" in options.only]
    total: Counter[str] = Counter()
    print(f"{'layout':10} {'mode':10} {'calls':>6} {'ordered':>8} {'posix':>8} {'faults':>7}")
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for (mode, layout, _), tally in zip(cases, pool.imap(_run, cases, chunksize=1), strict=True):
            states = tally.states
            numbers = f"{tally.events:6} {states['ordered']:8} {states['posix']:8} {len(tally.faults):7}"
            print(f"{layout:10} {mode:10} {numbers}")
            print("".join(f"    {fault}\n" for fault in tally.faults[:10]), end="", flush=True)
            total.update({**states, "faults": len(tally.faults)})
    print(f"{total['ordered']} ordered and {total['posix']} posix states, {total['faults']} faults")
    sys.exit(1 if total["faults"] else 0)


if __name__ == "__main__":
    main()
