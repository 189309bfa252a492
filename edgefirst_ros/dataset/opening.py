# SPDX-License-Identifier: Apache-2.0
"""Opens the files of a dataset, on disk or in place in a bucket."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, cast

from edgefirst_ros.dataset.names import DatasetPaths, find
from edgefirst_ros.dataset.objects.location import Location, ObjectPath, is_remote
from edgefirst_ros.dataset.objects.places import one_place
from edgefirst_ros.dataset.objects.store import Store, open_store
from edgefirst_ros.dataset.storage.zip_read import Archive, Container, RemoteArchive, open_container
from edgefirst_ros.dataset.tables.arrow_file import TableFile, annotation_forms, annotation_path, open_annotations
from edgefirst_ros.errors import DatasetError, StorageError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

AT_ONCE = 8 << 20
"""Bytes of a table fetched by one request."""
SUFFIXES = (".zip", ".frames.arrow", ".arrow")


class DatasetFiles(NamedTuple):
    """Open container and tables of a dataset."""

    paths: DatasetPaths
    container: Container
    annotations: TableFile | None
    frames: TableFile | None


def open_files(path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> DatasetFiles:
    """Open the dataset that a user names, by a path or as s3://BUCKET/NAME.zip. Raises DatasetError."""
    text = os.fspath(path)
    if "*" in text or text.startswith("file:"):
        path = one_place(path)
    if is_remote(path):
        return _open_objects(Location.of(path), limits)
    paths = find(path)
    if not os.path.lexists(paths.members):
        raise DatasetError(f"{paths.members}: not there; the tables alone are not a dataset")
    container = open_container(paths.members, limits)
    if isinstance(container, Archive):
        container.refuse_overlaps()
    return DatasetFiles(paths, container, *open_tables(paths, limits))


def open_tables(paths: DatasetPaths, limits: Limits = DEFAULT_LIMITS) -> tuple[TableFile | None, TableFile | None]:
    """Open the annotations and the frames of a dataset, None where there are none. Raises DatasetError."""
    found = annotation_path(paths.arrow)
    annotations = open_annotations(found, limits) if found else None
    return annotations, TableFile(paths.frames, limits) if os.path.lexists(paths.frames) else None


def _open_objects(place: Location, limits: Limits) -> DatasetFiles:
    """Open a dataset in a bucket by three requests; one more if the directory of the ZIP is large."""
    name = place.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    if not name:
        raise DatasetError(f"{place}: names no dataset; expected s3://BUCKET/PREFIX/NAME.zip")
    paths = DatasetPaths(cast("Path", ObjectPath(str(place.parent))), name)
    store = open_store(place)
    container = RemoteArchive(paths.container, place.parent / f"{name}.zip", limits)
    container.refuse_overlaps()
    return DatasetFiles(paths, container, _annotations(store, paths, limits), _table(store, paths.frames, limits))


def _annotations(store: Store, paths: DatasetPaths, limits: Limits) -> TableFile | None:
    """Return the annotations in the first form that is there. Raises DatasetError for nested JSON."""
    forms = annotation_forms(paths.arrow)
    for path in forms[:-1]:
        if (found := _table(store, path, limits)) is not None:
            return found
    if store.stat(Location.of(forms[-1]).key) is not None:
        raise DatasetError(f"{forms[-1]}: JSON is not read in place; fetch the dataset, or upload it as NAME.arrow")
    return None


def _table(store: Store, path: Path, limits: Limits) -> TableFile | None:
    """Return a table, held in memory; None if it does not exist."""
    place = Location.of(path)
    if (answer := store.tail(place.key, AT_ONCE)) is None:
        return None
    found, data = answer
    try:
        fd = os.memfd_create(place.name)
        try:
            with os.fdopen(os.dup(fd), "wb") as file:
                for block in [data] if len(data) == found.size else store.stream(found):
                    file.write(block)
        except BaseException:
            os.close(fd)
            raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be held in memory: {error.strerror}") from error
    return TableFile(path, limits, fd=fd)
