# SPDX-License-Identifier: Apache-2.0
"""Files from storage, hashed on the way; finished datasets to storage, the container last."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.objects.location import Location, ReplacedError, StoredObject
from edgefirst_ros.dataset.objects.store import Store, open_store
from edgefirst_ros.errors import DatasetError, StorageError, UsageError
from edgefirst_ros.progress import Progress, quiet


def download(store: Store, found: StoredObject, path: Path, *, again: bool = False) -> tuple[StoredObject, str]:
    """Bring an object to a new file, and compare its ETag again at the end.

    Args:
        store: Where it is.
        found: The object as it was listed.
        path: The new file.
        again: True to bring the new object, once, where it was replaced in the meantime.

    Returns:
        The object whose bytes the file has, and their SHA-256 as hex digits.

    Raises:
        ObjectStoreError: Storage refuses, or the object was replaced.
        StorageError: The disk refuses.
    """
    try:
        digest = _fetch(store, found, path)
        now = store.stat(found.key)
        if now == found:
            return found, digest
        replaced = ReplacedError(f"{found.key}: was replaced or removed while it was fetched")
    except ReplacedError as error:
        now, replaced = store.stat(found.key), error
    if now is None or not again:
        raise replaced
    path.unlink(missing_ok=True)
    return download(store, now, path)


def _fetch(store: Store, found: StoredObject, path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("xb") as file:
            for block in store.stream(found):
                digest.update(block)
                file.write(block)
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

    Checksums are compared before it returns, so that the files may be deleted then. What exists already with the same
    bytes stays, so that an upload that was interrupted continues. `store`: that of the prefix, where there is one open.
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
