# SPDX-License-Identifier: Apache-2.0
"""Files from storage, hashed on the way; finished datasets to storage, the container last."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import Store, StoredObject, open_store
from edgefirst_ros.errors import DatasetError, StorageError, UsageError
from edgefirst_ros.progress import Progress, quiet


def download(store: Store, found: StoredObject, path: Path, took: Callable[[int], None] = lambda size: None) -> str:
    """Bring an object to a new file; returns its SHA-256 as hex digits. `took` is told of bytes as they come.

    Raises ObjectStoreError, also where the object is replaced meanwhile, and StorageError where the disk refuses.
    """
    digest = hashlib.sha256()
    try:
        with path.open("xb") as file:
            for block in store.stream(found):
                digest.update(block)
                file.write(block)
                took(len(block))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    return digest.hexdigest()


def dataset_files(paths: DatasetPaths) -> Sequence[Path]:
    """Return the files of a dataset in the order in which they are put: once the container is there, all is there.

    Raises UsageError for a dataset that is a folder.
    """
    if paths.layout != "zip":
        raise UsageError(f"{paths.container}: is a folder; only datasets that are one ZIP (layout zip) are uploaded")
    return paths.arrow, paths.frames, paths.container


def upload_dataset(
    paths: DatasetPaths,
    to: str | os.PathLike[str] | Location,
    *,
    overwrite: bool = False,
    progress: Progress = quiet,
    store: Store | None = None,
) -> list[StoredObject]:
    """Put a finished dataset below a prefix, as PREFIX/NAME.arrow and so on; returns its objects, the container last.

    Checksums are compared before it returns, so that the files may be deleted then. What is there already with the same
    bytes stays, so that an upload that was interrupted goes on. `store`: that of the prefix, where there is one open.
    Raises DatasetError where something else has one of the names, unless `overwrite`; ObjectStoreError; UsageError.
    """
    place = to if isinstance(to, Location) else Location.of(to)
    store, files = store or open_store(place), dataset_files(paths)
    done: list[StoredObject] = []
    total, sent = sum(file.stat().st_size for file in files), 0
    for file in files:
        key = (place / file.name).key
        found = store.stat(key)
        if found is None or not store.holds(found, file):
            if found is not None and not overwrite:
                raise DatasetError(f"{place / file.name} exists and is another one; use --overwrite to replace it")
            found = store.put(key, file)
        done.append(found)
        sent += found.size
        progress(f"uploading {paths.name}", sent, total)
    return done
