# SPDX-License-Identifier: Apache-2.0
"""Replacement of zarr groups for the library's writers: every array and attribute is written once, as a whole.

zarr looks for what might be there already, and reads back what it has just written: three quarters of an export's time.
A thread of each store packs and writes, so that things lie in it in the order in which they are put. Blosc packs with
one thread when it is not the main one, so that its bytes depend on the values alone.
Source: Zarr storage specification version 2.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import lzma
import os
import tarfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset.storage.lock import write_at
from edgefirst_ros.dataset.storage.syncing import WriteBehind
from edgefirst_ros.export.ncore.library import library

REMEMBERED = 64
"""Groups below one that may be asked for again."""
BATCH, MOST = 1 << 16, 64
"""Bytes, and number of entries, that are handed to a thread at once: handing on costs as much as a small entry."""
WAITING = 8
"""Batches of a store that may wait to be written."""
METADATA = (".zarray", ".zattrs", ".zgroup")
TOGETHER = ".zmetadata.cbor.xz"
"""All of them in one, of which the library reads."""
PRESET = 2
"""Preset of xz: a tenth of the time of the default, and 7 % more bytes."""
FIRST = ("/.zarray", "/.zgroup")
"""Keys that are written first of an array or a group below the root."""
Put = Callable[[Sequence[tuple[str, bytes]]], None]
T = TypeVar("T")


@cache
def groups_writer() -> Any:
    """Return the library's SequenceComponentGroupsWriter, whose components write into our groups."""
    official: Any = library().SequenceComponentGroupsWriter

    class Writer(official):  # type: ignore[misc]
        """The same stores, faster."""

        _stores_rootgroups: dict[str, Any]

        def get_base_group(self, component_group_name: str | None) -> Group:
            """Return the root of the store of a group of components, begun with the first of them."""
            group = super().get_base_group(component_group_name)
            if not isinstance(group, Group):
                begun, name = group.store, component_group_name or ""
                if hasattr(begun, "dir_path"):
                    store = Store(into_folder(begun.path), begun.close)
                else:
                    tar = Tar(begun)
                    store = Store(tar.put, tar.close, tar.md5)
                store.update({key: begun[key] for key in begun})
                group = Group(store)
                self._stores_rootgroups[name] = group, self._stores_rootgroups[name][1]
            return group

        def finished(self, look: Callable[[Any, str | None], T]) -> list[T]:
            """Complete the stores, side by side; what `look` gives for the path of each and its MD5, if it is known."""
            stores: dict[str, tuple[Group, Any]] = self._stores_rootgroups
            self._stores_rootgroups = {}
            try:
                self.finalize()  # of the components alone: it knows of no store
            finally:
                self._stores_rootgroups = stores

            def complete(begun: tuple[Group, Any]) -> T:
                store = begun[0].store
                store.complete()
                return look(begun[1], store.md5())

            with ThreadPoolExecutor(len(stores)) as pool:
                return list(pool.map(complete, stores.values()))

        def abandon(self) -> None:
            """Leave the stores as they are; afterwards nothing more is written."""
            for group, _ in self._stores_rootgroups.values():
                if isinstance(group, Group):
                    group.store.abandon()

    return Writer


def into_folder(root: str) -> Put:
    """Return a function that writes keys as files below a folder that nobody else writes to."""

    def put(entries: Sequence[tuple[str, bytes]]) -> None:
        for key, data in entries:
            if key.endswith(FIRST):  # of a group or an array; those above it are there
                os.mkdir(f"{root}/{key.rpartition('/')[0]}")
            fd = os.open(f"{root}/{key}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(fd, left) :]
            finally:
                os.close(fd)

    return put


class Tar:
    """Appends keys to an IndexedTarStore of the library, and takes the MD5 of its file meanwhile.

    The file is the same, byte by byte: the library copies data in pieces of 16 KB and remembers every entry twice.

    Owns: one thread at a time puts, and closes.
    """

    def __init__(self, begun: Any) -> None:
        self._begun, self._tar = begun, begun.tar_file
        file = begun.tar_file_object
        file.flush()
        self._fd, self._path = file.fileno(), str(begun.itar_upath.path)
        self._digest = hashlib.md5(os.pread(self._fd, self._tar.offset, 0), usedforsecurity=False)
        self._behind = WriteBehind(self._fd)

    def put(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Write entries. Raises ValueError for a key that is there."""
        tar, records = self._tar, self._begun.index.records
        views, at = [], tar.offset
        for key, data in entries:
            if key in records:
                raise ValueError(f"{key} is there already")
            info = tarfile.TarInfo(key)
            info.size = len(data)
            head = info.tobuf(tar.format, tar.encoding, tar.errors)
            rest = bytes(-len(data) % tarfile.BLOCKSIZE)
            views += [memoryview(head), memoryview(data), memoryview(rest)]
            records[key] = self._begun.TarRecord(at + len(head), len(data))
            at += len(head) + len(data) + len(rest)
        tar.offset = write_at(self._fd, views, tar.offset)
        for view in views:
            self._digest.update(view)
        self._behind.reached(tar.offset)

    def close(self) -> None:
        """Complete the file."""
        end = self._tar.offset
        self._begun.tar_file_object.seek(end)
        self._begun.close()
        with open(self._path, "rb") as file:
            file.seek(end)
            self._digest.update(file.read())

    def md5(self) -> str:
        """MD5 of the complete file, as hexadecimal digits."""
        return self._digest.hexdigest()


class Store(dict[str, bytes]):
    """A store that is written, once for each key; what is remembered of it is the metadata."""

    def __init__(self, put: Put, close: Callable[[], None], md5: Callable[[], str | None] = lambda: None) -> None:
        """`put`, `close`, and `md5` of the closed store where it is known, are the store's; a thread puts in order."""
        super().__init__()
        self._put, self._close, self.md5 = put, close, md5
        self._pool = ThreadPoolExecutor(1)
        self._batch: list[tuple[str, Callable[[], bytes]]] = []
        self._size = 0
        """Bytes of the batch, before they are packed."""
        self._waiting: deque[Future[None]] = deque()

    def __setitem__(self, key: str, data: bytes) -> None:
        """Write bytes. Raises what went wrong with the ones before, as `pack` does."""
        if key.endswith(METADATA):
            super().__setitem__(key, data)
        self._behind(key, lambda: data, len(data))

    def pack(self, key: str, values: NDArray[Any], codec: Any) -> None:
        """Write values, packed where there is a codec; they are not to be changed afterwards."""

        def packed() -> bytes:
            return codec.encode(np.ascontiguousarray(values)) if codec else values.tobytes()

        self._behind(key, packed, values.nbytes)

    def _behind(self, key: str, made: Callable[[], bytes], size: int) -> None:
        self._batch.append((key, made))
        self._size += size
        if self._size >= BATCH or len(self._batch) >= MOST:
            self._hand_on()

    def _hand_on(self) -> None:
        batch, self._batch, self._size = self._batch, [], 0
        if len(self._waiting) >= WAITING:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._write, batch))

    def _write(self, batch: list[tuple[str, Callable[[], bytes]]]) -> None:
        self._put([(key, made()) for key, made in batch])

    def complete(self) -> None:
        """Put all metadata in one, as the library's `consolidate_compressed_metadata`, and close."""
        import cbor2

        found = {key: json.loads(text) for key, text in self.items()}
        told = cbor2.dumps({"zarr_consolidated_format": 1, "metadata": found})
        self[TOGETHER] = lzma.compress(told, preset=PRESET)
        self.close()

    def close(self) -> None:
        """Write what waits, and close the store."""
        self._hand_on()
        while self._waiting:
            self._waiting.popleft().result()
        self._pool.shutdown()
        self._close()

    def abandon(self) -> None:
        """Write no more."""
        self._pool.shutdown(cancel_futures=True)


class Attributes:
    """JSON beside a group or an array."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path = store, path

    def put(self, values: Mapping[str, Any]) -> None:
        """Write them all; once."""
        self._store[f"{self._path}.zattrs"] = _json(values)

    def __setitem__(self, name: str, value: Any) -> None:
        """Write the only one."""
        self.put({name: value})


class Array:
    """An array that is written."""

    def __init__(self, store: Store, path: str) -> None:
        self.attrs = Attributes(store, path)


class Group:
    """A group that is being written."""

    def __init__(self, store: Store, path: str = "") -> None:
        self.store, self._path = store, path
        self._groups: dict[str, Group] = {}
        self.attrs = Attributes(store, path)

    def require_group(self, name: str) -> Group:
        """Return a group below this one, at any depth."""
        first, _, rest = name.strip("/").partition("/")
        group = self._groups.get(first) or self.create_group(first)
        return group.require_group(rest) if rest else group

    def create_group(self, name: str) -> Group:
        """Return a new group in this one."""
        group = Group(self.store, f"{self._path}{name}/")
        self.store[f"{group._path}.zgroup"] = b'{"zarr_format": 2}'
        if len(self._groups) >= REMEMBERED:  # frames that are done
            del self._groups[next(iter(self._groups))]
        self._groups[name] = group
        return group

    def create_dataset(
        self, name: str, data: Any, chunks: tuple[int, ...] | None = None, compressor: Any = "default"
    ) -> Array:
        """Return a new array in this group or one below it; without `chunks` in one piece."""
        if "/" in name:
            group, _, name = name.rpartition("/")
            return self.require_group(group).create_dataset(name, data, chunks, compressor)
        values = np.asarray(data)
        pieces = tuple(max(1, size) for size in chunks or values.shape)
        codec = _default() if isinstance(compressor, str) else compressor  # a codec compares slowly
        path = f"{self._path}{name}/"
        packed = tuple(codec.get_config().items()) if codec is not None else None
        self.store[f"{path}.zarray"] = _described(values.shape, pieces, values.dtype.str, packed)
        counts = [-(-size // piece) for size, piece in zip(values.shape, pieces, strict=True)]
        for place in itertools.product(*map(range, counts)):
            self.store.pack(path + (".".join(map(str, place)) or "0"), _chunk(values, place, pieces), codec)
        return Array(self.store, path)


def _chunk(values: NDArray[Any], place: tuple[int, ...], pieces: tuple[int, ...]) -> NDArray[Any]:
    """Return one piece; at the end of an axis filled up with zeros."""
    if values.shape == pieces:
        return values
    part = values[tuple(slice(n * size, (n + 1) * size) for n, size in zip(place, pieces, strict=True))]
    if part.shape == pieces:
        return part
    chunk = np.zeros(pieces, values.dtype)
    chunk[tuple(map(slice, part.shape))] = part
    return chunk


@cache
def _default() -> Any:
    from numcodecs import Blosc  # type: ignore[import-untyped, unused-ignore]

    return Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE)


@lru_cache(maxsize=REMEMBERED)
def _described(
    shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str, compressor: tuple[tuple[str, Any], ...] | None
) -> bytes:
    """Return the metadata of an array; those of many frames are the same."""
    return _json(
        {
            "chunks": chunks,
            "compressor": dict(compressor) if compressor is not None else None,
            "dtype": dtype,
            "fill_value": None,
            "filters": None,
            "order": "C",
            "shape": shape,
            "zarr_format": 2,
        }
    )


_ENCODER = json.JSONEncoder(allow_nan=False)


def _json(values: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(values).encode()
