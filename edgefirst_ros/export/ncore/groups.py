# SPDX-License-Identifier: Apache-2.0
"""What the library's writers do with a zarr group, without zarr: every array and attribute is written once, whole.

zarr looks for what might be there already, and reads back what it has just written: three quarters of an export's time.
Source: Zarr storage specification version 2.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.export.ncore.library import library

REMEMBERED = 64
"""Groups below one that may be asked for again."""
Put = Callable[[str, bytes], None]


@cache
def groups_writer() -> Any:
    """The library's SequenceComponentGroupsWriter, whose components write into our groups."""
    official: Any = library().SequenceComponentGroupsWriter

    class Writer(official):  # type: ignore[misc]
        """The same stores, faster."""

        def get_base_group(self, component_group_name: str | None) -> Group:
            """The root of the store of a group of components, begun with the first of them."""
            found: dict[str, Group] = self.__dict__.setdefault("own_groups", {})
            name = component_group_name or ""
            if name not in found:
                store = super().get_base_group(component_group_name).store
                found[name] = Group(into_folder(store.path) if hasattr(store, "dir_path") else store.__setitem__)
            return found[name]

    return Writer


def into_folder(root: str) -> Put:
    """What writes keys as files below a folder that nobody else writes to."""

    def put(key: str, data: bytes) -> None:
        path = f"{root}/{key}"
        try:
            handle = open(path, "wb", buffering=0)  # noqa: SIM115  # closed below
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            handle = open(path, "wb", buffering=0)  # noqa: SIM115
        with handle:
            view = memoryview(data)
            while view:
                view = view[handle.write(view) :]

    return put


class Attributes:
    """JSON beside a group or an array."""

    def __init__(self, put: Put, path: str) -> None:
        self._put, self._path = put, path

    def put(self, values: Mapping[str, Any]) -> None:
        """Write them all; once."""
        self._put(f"{self._path}.zattrs", _json(values))

    def __setitem__(self, name: str, value: Any) -> None:
        """Write the only one."""
        self.put({name: value})


class Array:
    """An array that is written."""

    def __init__(self, put: Put, path: str) -> None:
        self.attrs = Attributes(put, path)


class Group:
    """A group that is being written."""

    def __init__(self, put: Put, path: str = "") -> None:
        self._put, self._path = put, path
        self._groups: dict[str, Group] = {}
        self.attrs = Attributes(put, path)

    def require_group(self, name: str) -> Group:
        """A group below this one, at any depth."""
        first, _, rest = name.strip("/").partition("/")
        group = self._groups.get(first) or self.create_group(first)
        return group.require_group(rest) if rest else group

    def create_group(self, name: str) -> Group:
        """A new group in this one."""
        group = Group(self._put, f"{self._path}{name}/")
        self._put(f"{group._path}.zgroup", b'{"zarr_format": 2}')
        if len(self._groups) >= REMEMBERED:  # frames that are done
            del self._groups[next(iter(self._groups))]
        self._groups[name] = group
        return group

    def create_dataset(
        self, name: str, data: Any, chunks: tuple[int, ...] | None = None, compressor: Any = "default"
    ) -> Array:
        """A new array in this group or one below it; without `chunks` in one piece."""
        if "/" in name:
            group, _, name = name.rpartition("/")
            return self.require_group(group).create_dataset(name, data, chunks, compressor)
        values = np.asarray(data)
        values = values if values.flags.c_contiguous else np.ascontiguousarray(values)
        pieces = tuple(max(1, size) for size in chunks or values.shape)
        codec = _default() if compressor == "default" else compressor
        path = f"{self._path}{name}/"
        described = {
            "chunks": pieces,
            "compressor": codec.get_config() if codec is not None else None,
            "dtype": values.dtype.str,
            "fill_value": None,
            "filters": None,
            "order": "C",
            "shape": values.shape,
            "zarr_format": 2,
        }
        self._put(f"{path}.zarray", _json(described))
        counts = [-(-size // piece) for size, piece in zip(values.shape, pieces, strict=True)]
        for place in itertools.product(*map(range, counts)):
            chunk = _chunk(values, place, pieces)
            packed = codec.encode(chunk) if codec is not None else chunk.tobytes()
            self._put(path + (".".join(map(str, place)) or "0"), packed)
        return Array(self._put, path)


def _chunk(values: NDArray[Any], place: tuple[int, ...], pieces: tuple[int, ...]) -> NDArray[Any]:
    """One piece; at the end of an axis filled up with zeros."""
    if values.shape == pieces:
        return values
    part = values[tuple(slice(n * size, (n + 1) * size) for n, size in zip(place, pieces, strict=True))]
    if part.shape == pieces:
        return np.ascontiguousarray(part)
    chunk = np.zeros(pieces, values.dtype)
    chunk[tuple(map(slice, part.shape))] = part
    return chunk


@cache
def _default() -> Any:
    from numcodecs import Blosc  # type: ignore[import-untyped, unused-ignore]

    return Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE)


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=True, allow_nan=False).encode()
