# SPDX-License-Identifier: Apache-2.0
"""Upload of finished datasets to object storage, beside the capture."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgefirst_ros.config import LiveSettings
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import list_dataset_files, open_store, upload_dataset
from edgefirst_ros.dataset.storage.lock import Replacement, sync_folder
from edgefirst_ros.errors import EdgeFirstError, ObjectStoreError
from edgefirst_ros.sources.live import Log

UPLOADED = ".uploaded"
"""Suffix of the note beside a dataset that says where it was uploaded, with size and time of its files."""
LOOK_EVERY = 2.0
"""s between two searches for finished datasets."""
PATIENCE = 30.0
"""s without an answer after which storage counts as gone."""
PAUSES = 5.0, 300.0
"""s until a failed upload is retried: at first, and at most."""
LAST_WAIT = 0.5
"""s given to an upload when the capture ends; the rest is sent after the next start."""


class Uploader:
    """Uploads every finished dataset of a folder, also of earlier runs, one after the other.

    A note beside it is written once all its checksums were compared. Where datasets are not kept they are removed then,
    the container first, so that a power cut does not leave an incomplete dataset; the next start removes the rest.
    Owns: its thread changes everything; `status` may be read by any.
    """

    def __init__(self, live: LiveSettings, log: Log, unreported: Container[str] = ()) -> None:
        """`unreported`: names of datasets whose reports are still to come; they are not removed yet.

        Raises UsageError if `upload` is not a valid place, or its library is missing.
        """
        self._unreported = unreported
        self._out = Path(live.out)
        self._keep = live.keep
        self._to = Location.of(live.upload or "")
        self._store = open_store(self._to, patience=PATIENCE, rate=live.upload_rate)
        self._log = log
        self._refused: dict[str, str] = {}
        self._waiting = self._sent = 0
        self._failure = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="upload", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """Return the progress: waiting and sent datasets, and the last failure in words."""
        refused = "; ".join(self._refused.values())
        return {
            "to": str(self._to),
            "waiting": self._waiting,
            "sent": self._sent,
            "failure": "; ".join(filter(None, (self._failure, refused))),
        }

    def close(self) -> None:
        """Start no further upload, and wait for the current one at most `LAST_WAIT` s."""
        self._ended.set()
        self._thread.join(LAST_WAIT)

    # ---- in its own thread -----------------------------------------------------------------
    def _run(self) -> None:
        pause = PAUSES[0]
        while not self._ended.is_set():
            sent = self._sent
            try:
                self._send_all()
                self._failure, pause = "", PAUSES[0]
                wait = LOOK_EVERY
            except (EdgeFirstError, OSError) as error:
                if str(error) != self._failure:
                    self._log.warning(f"upload: {error}; it continues")
                self._failure = str(error)
                pause = pause if self._sent == sent else PAUSES[0]  # it answers, at least now and then
                wait, pause = pause, min(2 * pause, PAUSES[1])
            self._ended.wait(wait)

    def _send_all(self) -> None:
        """Upload the finished datasets; raises ObjectStoreError if storage does not answer."""
        datasets = self._datasets()
        self._waiting = len(datasets)
        for paths in datasets:
            if self._ended.is_set():
                return
            try:
                upload_dataset(paths, self._to, store=self._store)
            except ObjectStoreError:
                raise
            except EdgeFirstError as error:  # another one has its name there: a retry would fail too
                self._refused[paths.name] = str(error)
                self._log.error(f"upload: {error}")
                continue
            with Replacement(_locate_note(paths), action="write") as note:
                with note.writing() as file:
                    file.write(json.dumps({"to": str(self._to), "files": _list_files(paths)}).encode())
                note.put_in_place()
            self._sent += 1
            gone = not self._keep and paths.name not in self._unreported
            self._log.info(f"upload: {paths.name} is at {self._to}{', and removed here' if gone else ''}")
            self._waiting -= 1
            if gone:
                _remove(paths)

    def _datasets(self) -> list[DatasetPaths]:
        """Return finished datasets that are not uploaded, oldest first; remove what remains of those that are."""
        with suppress(FileNotFoundError):
            names = {entry.name for entry in os.scandir(self._out)}
            if not self._keep:
                for name in names:
                    paths = DatasetPaths(self._out, name.removesuffix(UPLOADED))
                    if name.endswith(UPLOADED) and paths.name not in self._unreported and _is_uploaded(paths):
                        _remove(paths)
            found = [DatasetPaths(self._out, name.removesuffix(".zip")) for name in names if name.endswith(".zip")]
            wanted = [p for p in found if p.finished and p.name not in self._refused and not _is_uploaded(p)]
            return sorted(wanted, key=lambda paths: paths.container.stat().st_mtime_ns)
        return []


def _locate_note(paths: DatasetPaths) -> Path:
    return paths.out / f"{paths.name}{UPLOADED}"


def _list_files(paths: DatasetPaths) -> Mapping[str, list[int]]:
    """Return {file: [size in bytes, mtime in ns]} of the existing files."""
    found = {}
    for file in list_dataset_files(paths):
        with suppress(FileNotFoundError):
            status = file.stat()
            found[file.name] = [status.st_size, status.st_mtime_ns]
    return found


def _is_uploaded(paths: DatasetPaths) -> bool:
    """True if the files of a dataset were uploaded: a note says so, of these very files."""
    try:
        noted = json.loads(_locate_note(paths).read_text(encoding="utf-8"))["files"]
        return all(noted.get(name) == known for name, known in _list_files(paths).items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _remove(paths: DatasetPaths) -> None:
    for file in (*reversed(list_dataset_files(paths)), _locate_note(paths)):
        file.unlink(missing_ok=True)
        sync_folder(paths.out)
