# SPDX-License-Identifier: Apache-2.0
"""The official library, loaded at the first use; our own components in its terms; its stores, opened with limits.

Stores of others may be made to do harm: the library and zarr unpack with any codec that a store names, and allocate as
much as an array declares. Source: ncore 19.8.3, ncore/impl/data/stores.py (IndexedTarStore,
ConsolidatedCompressedMetadataStore); Zarr storage specification version 2; c-blosc, README_CHUNK_FORMAT.
"""

from __future__ import annotations

import itertools
import lzma
import math
import os
import struct
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgefirst_ros.errors import DatasetError, EdgeFirstError, describe_extra
from edgefirst_ros.export.importing import NOT_FOLLOWED, refuse_deep
from edgefirst_ros.export.output import LossReport

WITHOUT_TORCH = "and its library without torch: pip install --no-deps 'nvidia-ncore==19.8.*'"
"""Torch takes 5 GB, and only `ncore.sensors` needs it."""
CUBE = "ai.edgefirst.radar_cube"
OWN_CUBE = ".cube"
"""End of the name of the cubes of a radar whose points are in another frame: `radar.cube` of `radar`."""
VERSION = "v1"
RIG, WORLD, EARTH = "rig", "world", "world_global"
"""Frames: the vehicle, ENU at its first place, the earth (ECEF)."""
PIECE = 1 << 26
"""Bytes of a chunk: a larger cube is stored in several."""
METADATA = ".zmetadata.cbor.xz"
BLOCK = 512
"""Bytes of a block of a tar file: each entry has at least one, and the last one shows where the index is."""
HEADER = struct.Struct("<4sIQI")
"""Magic, kind, offset and size of the index."""
MEMORY = 1 << 28
"""Bytes that unpacking may take; the highest level of xz takes 65 MiB."""
MOST = 1 << 30
"""Bytes of the largest array that is read in one."""
LARGE, PACKED = 1 << 26, 64
"""Bytes from which on an array is no more than so many times what its chunks have."""


@contextmanager
def convert_errors(what: str) -> Iterator[None]:
    """Turn any error that the library, zarr and Pillow raise on broken stores into a DatasetError."""
    try:
        yield
    except EdgeFirstError:
        raise
    except Exception as error:
        raise DatasetError(f"{what} cannot be read: {error!r}") from error


@cache
def load_library() -> Any:
    """Return the names of `ncore.data` and `ncore.data.v4` in one. Raises EdgeFirstError if they cannot be imported."""
    try:
        import ncore.data
        import ncore.data.v4
        from ncore.impl.common.transformations import HalfClosedInterval
        from upath import UPath
    except ImportError as error:
        raise EdgeFirstError(f"{describe_extra('NCore', 'ncore-light', error)}; {WITHOUT_TORCH}") from error

    class Library:
        """Namespace."""

    for module in (ncore.data, ncore.data.v4):
        for name in module.__all__:
            setattr(Library, name, getattr(module, name))
    for kind in (HalfClosedInterval, UPath):
        setattr(Library, kind.__name__, kind)
    return Library


@cache
def load_components() -> tuple[Any, Any]:
    """Return (cube writer, cube reader): our custom component.

    `ai.edgefirst.radar_cube` holds frames by their stamp in µs, each the 16-bit grayscale PNG of the dataset (value =
    int16 + 32768, rows sequence x range, columns antenna x doppler x (re, im)) with what its text says as attributes.
    """
    writer, reader = load_library().ComponentWriter, load_library().ComponentReader

    class CubeWriter(_get_class(writer, CUBE)):  # type: ignore[misc]
        """Radar cubes, one a frame."""

        def store_cube(self, png: bytes, timestamp_us: int, described: Mapping[str, Any]) -> None:
            """Put one cube."""
            frame = self._group.require_group(f"frames/{timestamp_us}")
            frame.attrs.put({"format": "png", "offset": 32768, **described})
            values, chunk = np.frombuffer(png, np.uint8), min(max(1, len(png)), PIECE)
            frame.create_dataset("cube", data=values, chunks=(chunk,), compressor=None)

        def store_timestamps(self, timestamps_us: list[int]) -> None:
            """Put the stamps of all frames."""
            self._group.create_dataset("timestamps_us", data=np.array(timestamps_us, np.uint64))

    class CubeReader(_get_class(reader, CUBE)):  # type: ignore[misc]
        """Radar cubes by their stamps."""

        @property
        def timestamps_us(self) -> Any:
            """(N,) uint64."""
            return np.array(_fill_chunks(self._group["timestamps_us"]))

        def get_png(self, timestamp_us: int) -> bytes:
            """Return the picture of one cube."""
            return bytes(np.array(_fill_chunks(self._group[f"frames/{timestamp_us}/cube"])))

        def get_cube(self, timestamp_us: int) -> Any:
            """Return one cube, an `edgefirst_ros.sensors.cube.Cube`: int16 (sequence, range, rx, doppler, 2)."""
            from edgefirst_ros.sensors.cube import decode_cube

            return decode_cube(self.get_png(timestamp_us))

    return CubeWriter, CubeReader


def _get_class(base: Any, name: str) -> Any:
    """Return the library's writer or reader of components, for those called `name` in the only version."""

    class Named(base):  # type: ignore[misc]
        @staticmethod
        def get_component_name() -> str:
            return name

        @staticmethod
        def get_component_version() -> str:
            return VERSION

        @staticmethod
        def supports_component_version(version: str) -> bool:
            return version == VERSION

    return Named


def _fill_chunks(array: Any) -> Any:
    """Return an array whose chunks all exist, so that its store limits its size. Raises KeyError."""
    if array.ndim != 1:
        raise KeyError(f"{array.path} with one dimension")
    for number in range(array.nchunks):
        if f"{array.path}/{number}" not in array.chunk_store:
            raise KeyError(f"{array.path}/{number}")
    return array


def check_size(store: Path) -> None:
    """Raise an exception where index or metadata are larger, unpacked, than the store can need.

    They name every entry of a store, and repeat those of metadata; an entry takes a block at least.
    """
    if store.is_dir():
        paths = (Path(place, name) for place, _, names in os.walk(store) for name in names if name.startswith(".z"))
        room = sum(BLOCK + path.stat().st_size for path in paths)
        _unpack_chunk(store, (store / METADATA).read_bytes(), room)
        return
    import cbor2

    with store.open("rb") as file:
        known = os.fstat(file.fileno())
        room = known.st_blocks * BLOCK or known.st_size  # holes do not count
        file.seek(-BLOCK, os.SEEK_END)
        _, _, offset, size = HEADER.unpack(file.read(HEADER.size))
        file.seek(offset)
        table = cbor2.loads(_unpack_chunk(store, file.read(min(size, room)), room))
        entries = dict(zip(table["items"], zip(table["offset_datas"], table["sizes"], strict=True), strict=True))
        offset, size = entries[METADATA]
        file.seek(offset)
        _unpack_chunk(store, file.read(min(size, room)), room)


def _unpack_chunk(store: Path, data: bytes, most: int) -> bytes:
    found = lzma.LZMADecompressor(memlimit=MEMORY).decompress(data, most + 1)
    if len(found) > most:
        raise ValueError(f"{store.name}: index or metadata have more than {most} bytes, more than its entries can need")
    return found


def guard(reader: Any) -> list[Any]:
    """Raise an exception where an array of a sequence is packed otherwise than NCore packs, or is too large.

    Afterwards a read of it raises one where the size of a chunk differs from that of the array. Returns the stores, for
    them to be closed.
    """
    import zarr  # type: ignore[import-not-found,import-untyped,unused-ignore]

    stores = []
    for group, _ in reader._component_stores.values():
        described = group.store.meta_store  # all metadata, consolidated: zarr reads no others
        for key in described:
            if key.endswith(".zarray"):
                _check_array(key, described[key], group.chunk_store)
        stores.append(group.chunk_store)
        group._chunk_store = zarr.storage.KVStore(_Chunks(group.chunk_store, described))
    return stores


def _check_array(key: str, said: Mapping[str, Any], chunks: Mapping[str, bytes]) -> None:
    dtype, sides, pieces = np.dtype(said["dtype"]), said["shape"], said["chunks"]
    codec = said["compressor"]
    if dtype.hasobject or said["filters"] or (codec is not None and codec["id"] != "blosc"):
        raise ValueError(f"{key}: packed with {codec!r}, filters {said['filters']!r}, of {dtype}")
    if not all(type(side) is int and side >= 0 for side in (*sides, *pieces)):
        raise ValueError(f"{key}: shape {sides!r}, chunks {pieces!r}")
    # Cubes that are read piece by piece are as large as their pieces, which must exist.
    own = key.startswith(f"{CUBE}/") and codec is None
    whole = 0 if own else math.prod(sides) * dtype.itemsize
    if max(math.prod(pieces) * dtype.itemsize, whole) > MOST:
        raise ValueError(f"{key}: shape {sides!r}, chunks {pieces!r} of {dtype} are more than {MOST} bytes")
    if whole > LARGE:
        path, sign = key.removesuffix(".zarray"), said.get("dimension_separator") or "."
        places = itertools.product(*(range(-(-side // piece)) for side, piece in zip(sides, pieces, strict=True)))
        there = sum(len(chunks[path + sign.join(map(str, place))]) for place in places)
        if whole > there * PACKED:
            raise ValueError(f"{key}: has {whole} bytes, in chunks of {there}")


class _Chunks(Mapping[str, bytes]):
    """The chunks of a store, by what its metadata say of them."""

    def __init__(self, chunks: Mapping[str, bytes], described: Mapping[str, Any]) -> None:
        self._chunks, self._described = chunks, described

    def __getitem__(self, key: str) -> bytes:
        data = self._chunks[key]
        array, said = key, None
        while said is None and "/" in array:  # the numbers of a chunk may be a path
            array = array.rpartition("/")[0]
            said = self._described.get(f"{array}/.zarray")
        if said is not None and said["compressor"] is not None:
            # The codec unpacks, and reads, as many bytes as bytes 4 to 8 and 12 to 16 state.
            told = [int.from_bytes(data[at : at + 4], "little") for at in (4, 12)]
            if told != [math.prod(said["chunks"]) * np.dtype(said["dtype"]).itemsize, len(data)]:
                raise ValueError(f"{key}: says that it has another size than it has, or than the array")
        return data

    def __contains__(self, key: object) -> bool:
        return key in self._chunks

    def __iter__(self) -> Iterator[str]:
        return iter(self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)


# ---- sequences -----------------------------------------------------------------------------------
ENDINGS = (".zarr.itar", ".zarr")


def find_sequences(source: Path, report: LossReport) -> list[list[Path]]:
    """The stores of each sequence below a path, or of that of one store or summary.

    Raises DatasetError without one. Links to folders on the way are not followed, which is stated in the report.
    """
    if _is_store(source):
        base = source.name.partition(".ncore4")[0]
        found = [p for p in sorted(source.parent.iterdir()) if _is_store(p) and p.name.partition(".ncore4")[0] == base]
        return [found]
    folder = source.parent if source.suffix == ".json" else source
    if not folder.is_dir():
        raise DatasetError(f"{source}: no NCore sequence here")
    grouped: dict[tuple[Path, str], list[Path]] = {}
    for place, folders, files in os.walk(folder):
        refuse_deep(Path(place), folder)
        stores = [Path(place, name) for name in (*folders, *files) if _is_store(Path(place, name))]
        folders[:] = sorted(name for name in folders if Path(place, name) not in stores)
        for path in (path for name in folders if (path := Path(place, name)).is_symlink()):
            report.add(str(path.relative_to(folder)), "", NOT_FOLLOWED)
        for path in sorted(stores):
            base = path.name.partition(".ncore4")[0]
            if source.suffix != ".json" or base == source.stem:
                grouped.setdefault((path.parent, base), []).append(path)
    if not grouped:
        raise DatasetError(f"{source}: no NCore sequence here; looked for stores named *.ncore4*.zarr.itar and *.zarr")
    return list(grouped.values())


def _is_store(path: Path) -> bool:
    return ".ncore4" in path.name and path.name.endswith(ENDINGS) and path.exists()


def open_sequences(found: list[list[Path]]) -> Generator[Any]:
    """Yield the reader of each sequence, open until the next one. Raises DatasetError."""
    lib = load_library()
    for stores in found:
        with ExitStack() as leaving:
            try:
                for store in stores:
                    check_size(store)
                reader = lib.SequenceComponentGroupsReader([lib.UPath(path) for path in stores])
                for held in guard(reader):
                    leaving.callback(held.close)
            except Exception as error:  # any error of zarr or the library on broken stores
                raise DatasetError(f"{stores[0].parent}: not a readable NCore sequence: {error!r}") from error
            yield reader
