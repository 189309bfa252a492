# SPDX-License-Identifier: Apache-2.0
"""What others wrote as JSON: metadata of a frames table, and the files that tell what is in a foreign store."""

import contextlib
import json
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.export import export, restore
from edgefirst_ros.export.drive import list_drives

HEAD = struct.Struct("<HH")
"""Lengths of the names of a system and of a file, which stand before its bytes."""
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 7, 1 << 31, 1 << 63, 1 << 70, 0.5, 1e308, "", "x", "..", "../x", "C:/x", "\ud800", "\x1b[31m",
    "x" * 70_000, [], {}, [[]], [1], {"sequences": [1]}, {"\ud800": 1}, [None] * 9, [1e308] * 9, "nan", [0, 1, 2, 3],
)  # fmt: skip


def packed(system: str, name: str, data: bytes) -> bytes:
    """A file of a store as one input."""
    return HEAD.pack(len(system), len(name)) + system.encode() + name.encode() + data


def unpacked(data: bytes) -> tuple[str, str, bytes]:
    """System, name and bytes of a file."""
    first, second = HEAD.unpack_from(data)
    names = data[HEAD.size : HEAD.size + first + second].decode()
    return names[:first], names[first:], data[HEAD.size + first + second :]


def metadata_of(container: Path) -> bytes:
    """The metadata of the frames table of a dataset, as JSON."""
    return json.dumps(Dataset(container).metadata).encode()


def stores(container: Path, work: Path) -> Iterator[bytes]:
    """The small files of the exports of a dataset."""
    for system in ("roverd", "l5kit"):
        out = work / f"store-{system}"
        if not out.exists():
            with contextlib.suppress(DatasetError):
                export(container, system, out)
        for path in sorted(out.rglob("*")) if out.exists() else ():
            if path.suffix in (".json", ".jsonl", ".arrow") or path.name in (".zarray", ".zgroup", ".zattrs"):
                yield packed(system, path.relative_to(out).as_posix(), path.read_bytes())


# ---- mutations -----------------------------------------------------------------------------------
def changed_json(rng: random.Random, data: bytes) -> bytes:
    """One value, or one key, replaced; of lines of JSON in one of them."""
    lines = data.split(b"\n") if data.count(b"}\n{") else [data]
    at = rng.randrange(len(lines))
    content = json.loads(lines[at])
    places = list(_places(content))
    if not places:
        return json.dumps(rng.choice(VALUES)).encode()
    holder, key = rng.choice(places)
    choice = rng.randrange(5)
    if choice == 0:
        del holder[key]
    elif choice == 1 and isinstance(holder, dict):
        holder[rng.choice(("\ud800", "..", "a\0b", "", "x" * 999))] = holder.pop(key)
    elif choice == 2 and isinstance(holder, list):
        holder[:] = holder * rng.choice((2, 50))
    else:
        holder[key] = rng.choice(VALUES)
    lines[at] = json.dumps(content).encode()
    return b"\n".join(lines)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(inner)


def changed_file(rng: random.Random, data: bytes, any_bytes: Callable[[random.Random, bytes, bytes], bytes]) -> bytes:
    """A file of a store changed, its name as it was."""
    system, name, content = unpacked(data)
    plain = name.endswith(".arrow") or rng.random() < 0.2
    return packed(system, name, any_bytes(rng, content, content) if plain else changed_json(rng, content))


# ---- targets -------------------------------------------------------------------------------------
def metadata_target(folder: Path, given: Path) -> Callable[[bytes], bool]:
    """A dataset with these metadata is read, merged with itself, and asked where its sensors are."""
    source = next((given / "work").glob("d0/*.zip"))
    names = [source.with_suffix(suffix) for suffix in (".zip", ".arrow", ".frames.arrow")]
    for path in names:
        shutil.copy(path, folder / path.name)
    frames = folder / names[2].name
    table = pa.ipc.open_file(frames.read_bytes()).read_all()

    def feed(data: bytes) -> bool:
        try:
            said = json.loads(data)
        except (ValueError, RecursionError):
            return False
        said = said if isinstance(said, dict) else {"sources": said}
        told = {key.encode("utf-8", "replace"): json.dumps(value).encode() for key, value in said.items()}
        with pa.OSFile(str(frames), "wb") as sink, pa.ipc.new_file(sink, table.schema.with_metadata(told)) as writer:
            writer.write_table(table)
        found = False
        with contextlib.suppress(EdgeFirstError):
            merge([source, folder / names[0].name], folder / "out", rename=True)
            found = True
        shutil.rmtree(folder / "out", ignore_errors=True)
        with contextlib.suppress(EdgeFirstError):
            for drive in list_drives(Dataset(folder / names[0].name)):
                _ = drive.info_of("camera"), drive.statics, drive.place("lidar")
        return found

    return feed


def store_target(folder: Path, given: Path) -> Callable[[bytes], bool]:
    """A store with this file is imported."""

    def feed(data: bytes) -> bool:
        system, name, content = unpacked(data)
        whole, out = folder / "in", folder / "out"
        shutil.copytree(given / "work" / f"store-{system}", whole)
        (whole / name).write_bytes(content)
        try:
            restore(whole, system, out)
            return True
        finally:
            shutil.rmtree(whole)
            shutil.rmtree(out, ignore_errors=True)

    return feed
