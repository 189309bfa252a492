# SPDX-License-Identifier: Apache-2.0
"""The official library, loaded where it is first needed, and our own components in its terms."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from edgefirst_ros.errors import DatasetError, EdgeFirstError, UsageError

INSTALL = (
    "pip install --no-deps 'nvidia-ncore==19.8.*' && "
    "pip install 'zarr>=2.18,<3' dataclasses_json cbor2 scipy universal_pathlib typing_extensions"
)
"""All that is used here; torch (5 GB) is needed by `ncore.sensors` alone."""
CUBE = "ai.edgefirst.radar_cube"
ORIGIN = "ai.edgefirst.dataset"
PIECE = 1 << 26
"""Bytes of a chunk: longer texts and tables are stored in several."""
MOST = 1 << 30
"""Bytes of the largest array that is read in one."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn whatever the library, zarr and Pillow raise on broken stores inside into a DatasetError."""
    try:
        yield
    except EdgeFirstError:
        raise
    except Exception as error:
        raise DatasetError(f"{what} cannot be read: {error!r}") from error


def check_arrays(reader: Any) -> None:
    """Raise ValueError where an array of a sequence is packed otherwise than NCore packs, or is too large to be read.

    zarr unpacks with whatever a store names, also with what executes it, and allocates what an array is said to have.
    """
    for group, _ in reader._component_stores.values():  # all metadata, consolidated: zarr looks at no others
        for key, said in group.store.meta_store.items():
            if not key.endswith(".zarray"):
                continue
            dtype, sides, pieces = np.dtype(said["dtype"]), said["shape"], said["chunks"]
            codec = said["compressor"]
            if dtype.hasobject or said["filters"] or (codec is not None and codec["id"] != "blosc"):
                raise ValueError(f"{key}: packed with {codec!r}, filters {said['filters']!r}, of {dtype}")
            if not all(type(side) is int and side >= 0 for side in (*sides, *pieces)):
                raise ValueError(f"{key}: shape {sides!r}, chunks {pieces!r}")
            # What is read piece by piece is as large as its pieces, which must be there.
            own = key.startswith((f"{CUBE}/", f"{ORIGIN}/")) and codec is None
            if max(math.prod(pieces), 0 if own else math.prod(sides)) * dtype.itemsize > MOST:
                raise ValueError(f"{key}: shape {sides!r}, chunks {pieces!r} of {dtype} are more than {MOST} bytes")


@cache
def library() -> Any:
    """The names of `ncore.data` and `ncore.data.v4` in one. Raises UsageError where they cannot be imported."""
    try:
        import ncore.data
        import ncore.data.v4
        from ncore.impl.common.transformations import HalfClosedInterval
        from upath import UPath
    except ImportError as error:
        raise UsageError(f"NCore needs nvidia-ncore 19.8 ({error}); without torch it comes by: {INSTALL}") from error

    class Library:
        """Namespace."""

    for module in (ncore.data, ncore.data.v4):
        for name in module.__all__:
            setattr(Library, name, getattr(module, name))
    for kind in (HalfClosedInterval, UPath):
        setattr(Library, kind.__name__, kind)
    return Library


@cache
def components() -> tuple[Any, Any, Any, Any]:
    """(cube writer, cube reader, origin writer, origin reader): our custom components.

    `ai.edgefirst.radar_cube` holds frames by their stamp in µs, each the 16-bit grayscale PNG of the dataset (value =
    int16 + 32768, rows sequence x range, columns antenna x doppler x (re, im)) with what its text says as attributes.
    `ai.edgefirst.dataset` holds what NCore would change or has no home for: members and tables as bytes, and an index.
    """
    writer, reader = library().ComponentWriter, library().ComponentReader

    class CubeWriter(writer):  # type: ignore[misc, valid-type]
        """Radar cubes, one a frame."""

        @staticmethod
        def get_component_name() -> str:
            return CUBE

        @staticmethod
        def get_component_version() -> str:
            return "v1"

        def store_cube(self, png: bytes, timestamp_us: int, described: Mapping[str, Any]) -> None:
            """Put one cube."""
            frame = self._group.require_group(f"frames/{timestamp_us}")
            frame.attrs.put({"format": "png", "offset": 32768, **described})
            _bytes_into(frame, "cube", png)

        def store_timestamps(self, timestamps_us: list[int]) -> None:
            """Put the stamps of all frames."""
            self._group.create_dataset("timestamps_us", data=np.array(timestamps_us, np.uint64))

    class CubeReader(reader):  # type: ignore[misc, valid-type]
        """Radar cubes by their stamps."""

        @staticmethod
        def get_component_name() -> str:
            return CUBE

        @staticmethod
        def supports_component_version(version: str) -> bool:
            return version == "v1"

        @property
        def timestamps_us(self) -> Any:
            """(N,) uint64."""
            return np.array(_there(self._group["timestamps_us"]))

        def get_png(self, timestamp_us: int) -> bytes:
            """The picture of one cube."""
            return bytes(np.array(_there(self._group[f"frames/{timestamp_us}/cube"])))

        def get_cube(self, timestamp_us: int) -> Any:
            """One cube, an `edgefirst_ros.sensors.cube.Cube`: int16 (sequence, range, rx, doppler, 2)."""
            from edgefirst_ros.sensors.cube import decode_cube

            return decode_cube(self.get_png(timestamp_us))

    class OriginWriter(writer):  # type: ignore[misc, valid-type]
        """Bytes by key, and an index."""

        @staticmethod
        def get_component_name() -> str:
            return ORIGIN

        @staticmethod
        def get_component_version() -> str:
            return "v1"

        def store_bytes(self, key: str, data: bytes) -> None:
            """Put something as it is."""
            _bytes_into(self._group, f"blobs/{key}", data)

        def store_index(self, index: Mapping[str, Any]) -> None:
            """Put what tells where everything is."""
            _bytes_into(self._group, "index", json.dumps(index, ensure_ascii=False).encode("utf-8", "surrogatepass"))

    class OriginReader(reader):  # type: ignore[misc, valid-type]
        """The same, read."""

        @staticmethod
        def get_component_name() -> str:
            return ORIGIN

        @staticmethod
        def supports_component_version(version: str) -> bool:
            return version == "v1"

        def get_bytes(self, key: str) -> bytes:
            """What was put under a key. Raises KeyError."""
            return bytes(np.array(_there(self._group[f"blobs/{key}"])))

        def get_index(self) -> dict[str, Any]:
            """What tells where everything is."""
            text = bytes(np.array(_there(self._group["index"])))
            found: dict[str, Any] = json.loads(text.decode("utf-8", "surrogatepass"))
            return found

    return CubeWriter, CubeReader, OriginWriter, OriginReader


def _there(array: Any) -> Any:
    """An array, all of whose chunks are there, so that it is no larger than its store. Raises KeyError."""
    if array.ndim != 1:
        raise KeyError(f"{array.path} with one dimension")
    for number in range(array.nchunks):
        if f"{array.path}/{number}" not in array.chunk_store:
            raise KeyError(f"{array.path}/{number}")
    return array


def _bytes_into(group: Any, name: str, data: bytes) -> None:
    values = np.frombuffer(data, np.uint8)
    group.create_dataset(name, data=values, chunks=(min(max(1, len(data)), PIECE),), compressor=None)
