# SPDX-License-Identifier: Apache-2.0
"""NCore sequences found in a folder, of which a few are open at a time: each takes descriptors and memory."""

from __future__ import annotations

import os
from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from typing import Any

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.importing import NOT_FOLLOWED, refuse_deep
from edgefirst_ros.export.ncore.library import components, library
from edgefirst_ros.export.ncore.stores import check_size, guard
from edgefirst_ros.export.report import Report

ENDINGS = (".zarr.itar", ".zarr")
OPEN = 8
"""Most sequences that are open at a time."""


def find_sequences(source: Path, report: Report) -> list[list[Path]]:
    """The stores of each sequence below a path, or of that of one store or summary. Raises DatasetError for none.

    Links to folders on the way are not followed, which is said in the report.
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


class OpenSequence:
    """A sequence that is open: its `reader`, and the members of a dataset that went into it."""

    def __init__(self, stores: list[Path]) -> None:
        """Raises DatasetError for stores that are none."""
        lib = library()
        try:
            for store in stores:
                check_size(store)
            self.reader = lib.SequenceComponentGroupsReader([lib.UPath(path) for path in stores])
            self._stores = guard(self.reader)
        except Exception as error:  # whatever zarr and the library raise on broken stores
            raise DatasetError(f"{stores[0].parent}: not a readable NCore sequence: {error!r}") from error

    @cached_property
    def origin(self) -> Any:
        """Reader of what `export` put beside the components; None where there is nothing."""
        return self.reader.open_component_readers(components()[3]).get("default")

    @cached_property
    def _cameras(self) -> Any:
        return self.reader.open_component_readers(library().CameraSensorComponent.Reader)

    @cached_property
    def _cubes(self) -> Any:
        return self.reader.open_component_readers(components()[1])

    def member(self, home: str, key: str) -> bytes:
        """Return the bytes of a member by where it went. Raises KeyError."""
        if home == "camera":
            return bytes(self._cameras["camera"].get_frame_data(int(key)).get_encoded_image_data())
        if home == "cube":
            return bytes(self._cubes["radar"].get_png(int(key)))
        return bytes(self.origin.get_bytes(key))

    def close(self) -> None:
        """Close its stores."""
        for store in self._stores:
            store.close()


class Sequences:
    """Sequences by number, open while they are in use: those used last stay so."""

    def __init__(self, found: list[list[Path]]) -> None:
        self._found = found
        self._open: OrderedDict[int, OpenSequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, number: int) -> OpenSequence:
        """Return a sequence, which is open until `OPEN` others were asked for. Raises DatasetError."""
        if number in self._open:
            self._open.move_to_end(number)
            return self._open[number]
        while len(self._open) >= OPEN:
            self._open.popitem(last=False)[1].close()
        self._open[number] = OpenSequence(self._found[number])
        return self._open[number]

    def close(self) -> None:
        """Close those that are open."""
        while self._open:
            self._open.popitem()[1].close()
