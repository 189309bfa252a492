# SPDX-License-Identifier: Apache-2.0
"""Work of one recording on any engine: fetch to scratch, convert, upload, write the state.

The code here does not depend on an engine. Work that is repeated, even at the same time,
writes the same bytes under the same names.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

from edgefirst_ros import __version__
from edgefirst_ros.config import Settings
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import DatasetPaths, make_safe
from edgefirst_ros.dataset.objects.location import Location, StoredObject
from edgefirst_ros.dataset.objects.store import download, list_dataset_files, open_store
from edgefirst_ros.dataset.regroup import ANNOTATIONS, KEY, read_columns
from edgefirst_ros.dataset.schema import parse_frames_metadata
from edgefirst_ros.dataset.storage.lock import keep_each
from edgefirst_ros.dataset.tables.arrow_file import TableFile, find_annotations, open_annotations
from edgefirst_ros.errors import ObjectStoreError, StorageError, describe_any, is_out_of_memory
from edgefirst_ros.fleet.sources import ListedRecording
from edgefirst_ros.fleet.state import LONGEST_ERROR, Layout, MemberFile, RecordingState, Verdict
from edgefirst_ros.pipeline.conversion import Outcome, convert
from edgefirst_ros.sensors.picture_hook import prepare_hook
from edgefirst_ros.streams import RECORDINGS, stamp_columns

PREFIX, LOCK = "edgefirst-ros-fleet-", "lock"
BEFORE = ".before-convert"
"""Ending under which a table that is not that of the recording stays."""


class Scratch:
    """The folder of one process. A lock on it shows that the process lives; the system releases it with the process.

    Owns: any thread may ask for `folder`.
    """

    def __init__(self, root: Path) -> None:
        """Sweep what dead processes left in `root`, and make a folder there. Raises StorageError."""
        try:
            root.mkdir(parents=True, exist_ok=True)
            sweep(root)
            while (made := _make_locked_folder(root)) is None:
                pass
            self._folder, self._lock = made
        except OSError as error:
            raise StorageError(f"{root}: cannot be used as scratch: {error.strerror or error}") from error

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Yield a new folder, and remove it with its content. Raises StorageError if it cannot be made."""
        try:
            made = Path(tempfile.mkdtemp(dir=self._folder))
        except OSError as error:
            raise StorageError(f"{self._folder}: {error.strerror or error}") from error
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def _make_locked_folder(root: Path) -> tuple[Path, int] | None:
    """Return a new folder and its lock; None where another process took it for a dead one's before it was locked."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # waits for one that is removing it
    if (folder / LOCK).exists():
        return folder, lock
    os.close(lock)
    return None


_here: dict[tuple[int, Path], Scratch] = {}
_guard = threading.Lock()


def find_scratch(root: str | None) -> Scratch:
    """Return the scratch of this process in `root`, by default where temporary files go; made when first asked for."""
    place = Path(root or tempfile.gettempdir())
    with _guard:
        if (key := (os.getpid(), place)) not in _here:
            _here[key] = Scratch(place)
            atexit.register(_here[key].close)
        return _here[key]


def sweep(root: str | Path | None) -> None:
    """Remove the folders of workers of this machine that were ended; those that cannot be removed stay."""
    for folder in Path(root or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: it lives
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


LONGEST_FILE_NAME = 255
"""Bytes."""


def collect_facts(paths: DatasetPaths) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the samples, sensors, labels, times, positions and groups of a `RecordingState`; and the sources.

    Raises DatasetError where a table cannot be read.
    """
    table = TableFile(paths.frames)
    stamps = stamp_columns(table.schema.names)
    stamps |= {"model": schema.MODEL_TIMESTAMP} if schema.MODEL_TIMESTAMP in table.schema.names else {}
    samples = table.frame(["timestamp", "latitude", "longitude", *stamps.values()])
    sensors = {key: number for key, name in stamps.items() if (number := samples[name].count())}
    known = samples.select("latitude", "longitude").drop_nulls()
    labels, groups = _count_labels(paths)
    return {
        "samples": len(samples),
        "sensors": sensors,
        "labels": labels,
        "first": samples["timestamp"].min(),
        "last": samples["timestamp"].max(),
        "latitude": known["latitude"][0] if len(known) else None,
        "longitude": known["longitude"][0] if len(known) else None,
        "group": groups[0] if len(groups) == 1 else None,
    }, parse_frames_metadata(paths.frames, {"sources": table.metadata["sources"]})["sources"]


def _count_labels(paths: DatasetPaths) -> tuple[dict[str, int], list[str]]:
    """Return the number of samples with each label, and the groups."""
    if (path := find_annotations(paths.arrow)) is None:
        return {}, []
    rows = read_columns(open_annotations(path), {name: ANNOTATIONS[name] for name in (*KEY, "label", "group")})
    labels = rows.select(*KEY, "label").unique()["label"].value_counts()
    return dict(sorted(labels.drop_nulls("label").iter_rows())), rows["group"].drop_nulls().unique().to_list()


@dataclass(frozen=True, slots=True)
class Job:
    """Job of a worker: one recording."""

    source: str
    size: int
    etag: str
    name: str
    to: str
    """DST."""
    settings: dict[str, Any]
    settings_hash: str
    parts: tuple[tuple[str, int, str], ...] = ()
    """Key, size and ETag of the files of a rosbag2 folder."""
    software: str = __version__
    scratch: str | None = None
    config: str | None = None
    """File of the settings: the module of a hook may be beside it."""

    def state(self, verdict: Verdict, **facts: Any) -> RecordingState:
        """Return a state of this recording."""
        own = {name: getattr(self, name) for name in ("source", "size", "etag", "software", "name")}
        return RecordingState(**own, settings=self.settings_hash, verdict=verdict, **facts)


def catch_errors(work: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the function of a task, so that an engine tries again only where a worker died.

    Its record has: verdict, error, seconds; `software` where the worker has another version and did no work.
    """

    @wraps(work)
    def guarded(plain: dict[str, Any]) -> dict[str, Any]:
        if plain.get("software") != __version__:
            return {"verdict": "refused", "software": __version__}
        began = time.monotonic()
        try:
            record = work(plain)
        except BaseException as error:  # noqa: BLE001  panics of libraries are not of type Exception
            verdict = "storage" if isinstance(error, StorageError) else "failed"
            record = {"verdict": verdict, "error": describe_any(error)}
        return record | {"seconds": time.monotonic() - began}

    return guarded


@catch_errors
def work(plain: dict[str, Any]) -> dict[str, Any]:
    """Do the work of a `Job` given as a plain dict; returns a plain record of its result."""
    state = _do_job(Job(**plain))
    return {"verdict": state.verdict, "error": state.error or state.loss}


def _do_job(job: Job) -> RecordingState:
    """Convert, upload, write the state; raises StorageError where storage or the scratch disk refuses."""
    layout = Layout(Location.of(job.to))
    with find_scratch(job.scratch).folder() as folder:
        try:
            state = _convert_job(job, layout, folder)
        except StorageError:
            raise
        except BaseException as error:  # noqa: BLE001  panics of libraries are not of type Exception
            text = describe_any(error).replace(str(_choose_path(job, folder)), job.source)
            verdict: Verdict = "crashed" if is_out_of_memory(error) else "failed"
            state = job.state(verdict, error=text[:LONGEST_ERROR])
    write_state(layout, state)
    return state


def write_state(layout: Layout, state: RecordingState) -> None:
    """Write a state. Raises ObjectStoreError."""
    place = layout.state(state.settings, state.source)
    open_store(place).write(place.key, state.model_dump_json(indent=1).encode())


def _convert_job(job: Job, layout: Layout, folder: Path) -> RecordingState:
    settings = Settings.model_validate({**job.settings, "jobs": 1})
    if settings.picture_hook is not None and job.config is not None:
        prepare_hook(settings.picture_hook, Path(job.config))
    job, recording = _fetch_recording(job, folder)
    outcome = convert(recording, folder / "out", name=job.name, settings=settings, one_of_many=True)
    if outcome.refused is not None:  # the part that had room is not a dataset of the recording
        raise outcome.refused
    members = _publish_outcome(outcome, layout, job)
    known, sources = collect_facts(outcome.paths)
    loss = _describe_loss(outcome, sources)
    verdict: Verdict = "ok" if loss is None else "loss"
    counts = outcome.counts.plain()
    digests = [source["sha256"] for source in sources]  # of several files the digest of theirs as hex digits
    sha256 = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return job.state(verdict, sha256=sha256, members=members, counts=counts, loss=loss, **known)


def _fetch_recording(job: Job, folder: Path) -> tuple[Job, Path]:
    """Return the recording as a local file or rosbag2 folder, whose name the sequence gets.

    In a bucket a file that is replaced in the meantime is fetched again once; the job that is returned has the new one.
    """
    source, path = Location.of(job.source), _choose_path(job, folder)
    store = open_store(source)
    found = [StoredObject(*part) for part in job.parts] or [StoredObject(source.key, job.size, job.etag)]
    if not source.local:
        for number, one in enumerate(found):
            inside = one.key[len(source.key) :].strip("/")
            if ".." in inside.split("/"):
                raise ObjectStoreError(f"{source.root}/{one.key}: no path of a file below {source}")
            (path / inside).parent.mkdir(parents=True, exist_ok=True)
            found[number], _ = download(store, one, path / inside if inside else path, again=True)
        now = ListedRecording.of_folder(source, found) if job.parts else found[0]
        return replace(job, size=now.size, etag=now.etag), path
    for one in found:
        if store.stat(one.key) != one:
            raise ObjectStoreError(f"{Location(source.root, one.key)}: was replaced or removed since it was listed")
    if path.name == source.name:
        return job, source.path
    path.symlink_to(source.path)
    return job, path


def _choose_path(job: Job, folder: Path) -> Path:
    """Return the path of the recording in scratch: its own name, if the dataset gets its name from that."""
    name = Location.of(job.source).name
    suffix = Path(name).suffix
    stem, end = (name, "") if job.parts else (Path(name).stem, suffix if suffix in RECORDINGS else RECORDINGS[0])
    plain = job.name == make_safe(stem) and len(os.fsencode(name)) <= LONGEST_FILE_NAME
    return folder / (name if plain else f"{job.name}{end}")


def _publish_outcome(outcome: Outcome, layout: Layout, job: Job) -> tuple[MemberFile, ...]:
    place = layout.dataset(job.settings_hash, job.name)
    store = open_store(place)
    found = []
    for path in list_dataset_files(outcome.paths):
        there = place / path.name
        old = store.stat(there.key) if there.local and path == outcome.paths.arrow else None
        if old is not None and not store.holds(old, path):  # split or label may have changed it
            keep_each(there.path, BEFORE)
        stored = store.put(there.key, path, scratch=True)
        found.append(MemberFile(key=layout.relative(stored.key), bytes=stored.size, etag=stored.etag))
    return tuple(found)


def _describe_loss(outcome: Outcome, sources: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the losses, in words; None without loss."""
    if not outcome.loss:
        return None
    parts = [
        f"{topic}: {', '.join(f'{number} {reason}' for reason, number in sorted(reasons.items()))}"
        for topic, reasons in sorted(outcome.counts.lost.items())
    ]
    several = len(sources) > 1
    damage = [
        f"{source['file']}: {told}" if several else told
        for source in sources
        for d in source.get("damage", ())
        if d.get("loss") is not False
        for told in [f"at byte {d['offset']}: {d['what']}"]
    ]
    return "; ".join([*damage, *parts])[:LONGEST_ERROR] or "see the notes of convert"
