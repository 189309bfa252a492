# SPDX-License-Identifier: Apache-2.0
"""The official library, loaded where it is first needed, and our own components in its terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from edgefirst_ros.errors import DatasetError, EdgeFirstError, missing_extra

WITHOUT_TORCH = "without torch: pip install --no-deps 'nvidia-ncore==19.8.*', and the extra ncore-light"
"""Torch takes 5 GB, and only `ncore.sensors` needs it."""
CUBE = "ai.edgefirst.radar_cube"
VERSION = "v1"
RIG, WORLD, EARTH = "rig", "world", "world_global"
"""Frames: the vehicle, ENU at its first place, the earth (ECEF)."""
PIECE = 1 << 26
"""Bytes of a chunk: a larger cube is stored in several."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn whatever the library, zarr and Pillow raise on broken stores inside into a DatasetError."""
    try:
        yield
    except EdgeFirstError:
        raise
    except Exception as error:
        raise DatasetError(f"{what} cannot be read: {error!r}") from error


@cache
def library() -> Any:
    """Return the names of `ncore.data` and `ncore.data.v4` in one. Raises EdgeFirstError if they cannot be imported."""
    try:
        import ncore.data
        import ncore.data.v4
        from ncore.impl.common.transformations import HalfClosedInterval
        from upath import UPath
    except ImportError as error:
        raise EdgeFirstError(f"{missing_extra('NCore', 'ncore', error)}; {WITHOUT_TORCH}") from error

    class Library:
        """Namespace."""

    for module in (ncore.data, ncore.data.v4):
        for name in module.__all__:
            setattr(Library, name, getattr(module, name))
    for kind in (HalfClosedInterval, UPath):
        setattr(Library, kind.__name__, kind)
    return Library


@cache
def components() -> tuple[Any, Any]:
    """Return (cube writer, cube reader): our custom component.

    `ai.edgefirst.radar_cube` holds frames by their stamp in µs, each the 16-bit grayscale PNG of the dataset (value =
    int16 + 32768, rows sequence x range, columns antenna x doppler x (re, im)) with what its text says as attributes.
    """
    writer, reader = library().ComponentWriter, library().ComponentReader

    class CubeWriter(_named(writer, CUBE)):  # type: ignore[misc]
        """Radar cubes, one a frame."""

        def store_cube(self, png: bytes, timestamp_us: int, described: Mapping[str, Any]) -> None:
            """Put one cube."""
            frame = self._group.require_group(f"frames/{timestamp_us}")
            frame.attrs.put({"format": "png", "offset": 32768, **described})
            _bytes_into(frame, "cube", png)

        def store_timestamps(self, timestamps_us: list[int]) -> None:
            """Put the stamps of all frames."""
            self._group.create_dataset("timestamps_us", data=np.array(timestamps_us, np.uint64))

    class CubeReader(_named(reader, CUBE)):  # type: ignore[misc]
        """Radar cubes by their stamps."""

        @property
        def timestamps_us(self) -> Any:
            """(N,) uint64."""
            return np.array(_there(self._group["timestamps_us"]))

        def get_png(self, timestamp_us: int) -> bytes:
            """Return the picture of one cube."""
            return bytes(np.array(_there(self._group[f"frames/{timestamp_us}/cube"])))

        def get_cube(self, timestamp_us: int) -> Any:
            """Return one cube, an `edgefirst_ros.sensors.cube.Cube`: int16 (sequence, range, rx, doppler, 2)."""
            from edgefirst_ros.sensors.cube import decode_cube

            return decode_cube(self.get_png(timestamp_us))

    return CubeWriter, CubeReader


def _named(base: Any, name: str) -> Any:
    """Return the library's writer or reader of components, for those called `name` in the one version that there is."""

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


def _there(array: Any) -> Any:
    """Return an array, all of whose chunks are there, so that it is no larger than its store. Raises KeyError."""
    if array.ndim != 1:
        raise KeyError(f"{array.path} with one dimension")
    for number in range(array.nchunks):
        if f"{array.path}/{number}" not in array.chunk_store:
            raise KeyError(f"{array.path}/{number}")
    return array


def _bytes_into(group: Any, name: str, data: bytes) -> None:
    values = np.frombuffer(data, np.uint8)
    group.create_dataset(name, data=values, chunks=(min(max(1, len(data)), PIECE),), compressor=None)
