# SPDX-License-Identifier: Apache-2.0
"""Writes a dataset under partial names, until it is complete and renamed to its final ones."""

from __future__ import annotations

import enum
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgefirst_ros.dataset import publish
from edgefirst_ros.dataset import schema as schemas
from edgefirst_ros.dataset.grouping import GroupRule, with_groups
from edgefirst_ros.dataset.names import DatasetPaths, Layout, check_folder, check_name, make_member_name
from edgefirst_ros.dataset.storage.lock import give_back, report_errors, sum_up
from edgefirst_ros.dataset.storage.space import Reserve
from edgefirst_ros.dataset.tables.rowlog import ANNOTATION_ROWS, IN_MEMORY, Checkpoint, Row, RowLog
from edgefirst_ros.dataset.tables.write import GROUPING, seal_annotations, seal_frames
from edgefirst_ros.errors import DatasetError, StorageError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer, Self

    from edgefirst_ros.dataset.recovery.journals import Journals
    from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset


_SOONEST = 0.4
"""Shortest interval between commits, s, on a fast disk."""
_SPARE = 20
"""Multiple of a commit's duration before the next one, so that a slow disk is not kept busy."""


class CommitPace:
    """Decides when the next commit is due. Owned by the writer thread; others may read `age`."""

    def __init__(self, interval: float) -> None:
        """`interval`: longest time between commits, s."""
        self._interval = interval
        self._due = min(interval, _SOONEST)
        self._last = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the last commit."""
        return time.monotonic() - self._last

    def is_due(self, age: float, *, keyframe: bool) -> bool:
        """True if a commit is due `age` s after the last one; at a keyframe after half the time."""
        return (age * 2 if keyframe else age) >= self._due

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Measure the commit made inside, unless it fails."""
        began = time.monotonic()
        yield
        self._last = time.monotonic()
        self._due = min(self._interval, max(_SOONEST, _SPARE * (self._last - began)))


Describe = Callable[[], Mapping[str, object]]


class WriterState(enum.Enum):
    """State of a writer."""

    OPEN = "open"
    COMPLETING = "being completed"
    """`finish` began; should the disk refuse, all stays as `recover` needs it, or `finish` is called again."""
    FINISHED = "finished"
    ABORTED = "aborted"
    """All its files are removed."""
    SUSPENDED = "left unfinished"
    """Its files stay as they are, for `recover` or a writer that continues."""


class _Earlier:
    """Committed samples of an unfinished dataset that a writer continues: each must be written again identically."""

    def __init__(self, paths: DatasetPaths, journals: Journals, samples: int) -> None:
        self._paths, self.samples = paths, samples
        self.of_sequence: Counter[str] = Counter()
        for batch in journals.frames.batches(samples):
            self.of_sequence.update(batch["name"].to_pylist())
        self._rows: Iterator[Row] = journals.frames.rows(samples)

    def compare(self, row: Row, number: int) -> None:
        """Raise DatasetError where sample `number`, from 1, is not the one that was written before."""
        expected = next(self._rows)
        for key in ("name", "frame", "timestamp", *(key for key in row if key.endswith("_timestamp"))):
            if row.get(key) != expected.get(key):
                raise DatasetError(
                    f"{self._paths.members_partial}: sample {number} has {key} {expected.get(key)}, now it is "
                    f"{row.get(key)}: it was made from another recording or with other settings; "
                    "use --overwrite to start over"
                )


@dataclass(frozen=True)
class NewSample:
    """One frame with its members and rows."""

    sequence: str
    frame: int
    timestamp: int
    """Stamp, ns since the epoch."""
    members: Sequence[tuple[str, Sequence[Buffer]]] = ()
    """(kind, buffers written one after the other), e.g. ("camera.jpeg", [header, body])."""
    frame_row: Mapping[str, object] = field(default_factory=dict)
    annotations: Sequence[Mapping[str, object]] = ()
    """One row of NAME.arrow each; empty: one row without label and geometry."""
    common: Mapping[str, object] = field(default_factory=dict)
    """Columns of NAME.arrow equal on every row: size, location [lat, lon], pose [yaw, pitch, roll]."""
    batch: pa.RecordBatch | None = None
    """Complete rows of NAME.arrow in the `columns` of the writer, instead of `annotations` and `common`."""


class DatasetWriter:
    """Writes samples in the order given. Until `finish` only `*.partial` and `*.journal` names exist below `out`.

    `flush` commits samples: members are synced first, then the row log that names them. This happens by itself after
    `flush_interval` at the latest, sooner where the disk is quick, and at a keyframe after half of that. Left by an
    error, the writer keeps written samples, and without one removes its files. Raises DatasetError when a finished
    output exists and not `overwrite`, when an unfinished one exists that is neither to be replaced nor continued,
    when another writer is at work on it, or when `out` cannot be written.

    Owns: all files of the dataset; one thread writes, others may read `samples`, `committed`, `state`, `flush_age`.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        name: str,
        *,
        layout: Layout = "zip",
        schema: str = schemas.DEFAULT_VERSION,
        companions: Sequence[str] = schemas.DEFAULT_COMPANIONS,
        overwrite: bool = False,
        fsync: bool = False,
        flush_interval: float = 1.0,
        describe: Describe | None = None,
        group_rule: GroupRule | None = None,
        unfinished: UnfinishedDataset | None = None,
        columns: pa.Schema = ANNOTATION_ROWS,
    ) -> None:
        """`companions`: those with columns in the frames table; `fsync`: flush to the disk, not only to the system.

        `describe` returns the known facts of the dataset so far (keys of the frames table's metadata, `labels`,
        `topics`), in case it is never finished. `group_rule`: assigns all samples to groups when the tables are
        sealed; without it rows keep theirs. `unfinished`: a dataset to continue with; the samples it has must be
        written again, and only those after them reach the disk. `columns`: those of the batches of samples.
        """
        if layout not in ("zip", "directory"):
            raise UsageError(f"layout {layout!r}; known: zip, directory")
        if schema not in schemas.WRITABLE:
            raise UsageError(f"schema {schema!r}; can be written: {', '.join(schemas.WRITABLE)}")
        if "\0" in os.fspath(out):
            raise UsageError(f"{os.fspath(out)!r} is not a valid path")
        check_folder(out)
        self.paths = DatasetPaths(Path(os.path.abspath(out)), check_name(name), layout)
        self.state = WriterState.OPEN
        self.samples = 0
        self.committed = 0
        """Samples that survive the end of the process, and with `fsync` a power cut."""
        self._schema, self._overwrite, self._fsync = schema, overwrite, fsync
        self._describe: Describe = describe or dict
        self._group_rule = group_rule
        self._earlier: _Earlier | None = None
        self._companions, self._columns = list(companions), columns
        self._open(unfinished)
        self._pace = CommitPace(flush_interval)

    def _open(self, unfinished: UnfinishedDataset | None) -> None:
        """Create the files; or continue after the committed samples of a dataset, and cut off all later data."""
        paths, point = self.paths, Checkpoint()
        if unfinished is None:
            self._members, self._lock = publish.create_members(paths, overwrite=self._overwrite)
        else:
            self._members, self._lock, point = unfinished.hand_over()
        with ExitStack() as failing:
            failing.callback(give_back, self._lock)
            failing.callback(self._members.abandon)
            if unfinished is None:
                failing.callback(publish.remove_if_possible, paths)
                for path in paths.temporary:  # of an earlier run, or of another user
                    with report_errors(path, "create"):
                        path.unlink(missing_ok=True)
            elif point.end and unfinished.journals.companions != self._companions:
                raise DatasetError(
                    f"{paths.row_log}: has columns of {', '.join(unfinished.journals.companions) or 'no companion'}, "
                    f"now they are of {', '.join(self._companions) or 'none'}; use --overwrite to start over"
                )
            self._reserve = Reserve(paths.reserve)
            failing.callback(self._reserve.release)
            self._log = RowLog(paths.row_log, self._companions, point if point.end else None, columns=self._columns)
            failing.callback(self._log.close)
            if unfinished is None:
                publish.sync_names(paths)
                self._commit(0)
            else:
                self._earlier = _Earlier(paths, unfinished.journals, point.samples)
                self._commit(self._members.flush(self._fsync))
            failing.pop_all()
        self.committed = point.samples

    def count_kept(self, sequence: str) -> int:
        """Return how many first samples of a sequence the continued dataset has already."""
        return self._earlier.of_sequence[sequence] if self._earlier is not None else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.state not in (WriterState.OPEN, WriterState.COMPLETING):
            return
        if self.samples or self.committed:
            self._release(WriterState.SUSPENDED)
        elif kind is None:
            self.abort()
        else:
            with suppress(StorageError):  # the error that led here says more
                self.abort()

    def write(self, sample: NewSample) -> None:
        """Append a sample: its members first, then its rows.

        Raises DatasetError for a row that breaks the format; the sample is not added then. Raises StorageError
        when the disk refuses; `samples` shows whether the sample is among those that can still be completed.
        """
        self._check(WriterState.OPEN)
        identity = {"name": sample.sequence, "frame": sample.frame, "timestamp": sample.timestamp}
        frame = {**identity, **sample.frame_row}
        if self._earlier is not None and self.samples < self._earlier.samples:
            self._earlier.compare(frame, self.samples + 1)
            self.samples += 1
            return
        rows = (sample.annotations or ({},)) if sample.batch is None else ()
        annotations = [{**identity, **sample.common, **row} for row in rows]
        self._log.check(frame, annotations)
        names = [make_member_name(sample.sequence, sample.frame, kind) for kind, _ in sample.members]
        self._members.begin()
        whole = False
        try:
            if self._members.announced:
                sums = (sum_up(buffers) for _, buffers in sample.members)
                self._log.announce([(name, *found) for name, found in zip(names, sums, strict=True)])
            for name, (_, buffers) in zip(names, sample.members, strict=True):
                self._members.add(name, buffers, sample.timestamp)
            self._log.append(frame, annotations, sample.batch)
            whole = True
        finally:
            if not whole:
                self._members.undo()
        self.samples += 1
        if self._pace.is_due(self.flush_age, keyframe=bool(sample.frame_row.get("keyframe"))):
            self.flush()

    def flush(self) -> None:
        """Commit all samples so far: they survive the end of the process, and with `fsync` a power cut."""
        if self.samples <= self.committed:
            return
        with self._pace.commit():
            self._commit(self._members.flush(self._fsync))
            self.committed = self.samples

    def _commit(self, size: int) -> None:
        """Record a commit, the container being `size` bytes long."""
        own = {"schema_version": self._schema, "box3d_axes": schemas.BOX3D_AXES}
        grouping = {} if self._group_rule is None else {GROUPING: self._group_rule.plain}
        self._log.commit(size, {**self._describe(), **own, **grouping}, sync=self._fsync)
        rows = self._log.bytes
        spilled = rows if rows > IN_MEMORY else 0
        self._reserve.hold(rows + rows // 4 + spilled + self._members.closing_bytes)

    @property
    def flush_age(self) -> float:
        """Seconds since the last flush."""
        return self._pace.age

    def finish(
        self,
        frames_metadata: Mapping[str, object],
        labels: Sequence[str] | None = None,
        category_metadata: Mapping[str, object] | None = None,
        box3d_frame: str | None = None,
    ) -> DatasetPaths:
        """Seal the tables, complete the container, rename all into place; returns where they are.

        `box3d_frame`: the frame whose x forward, y left, z up all boxes in space are in; None if it is not known.
        Raises StorageError when the disk refuses; everything stays as `edgefirst-ros recover` needs it.
        """
        self._check(WriterState.OPEN, WriterState.COMPLETING)
        paths = self.paths
        if self.samples < self.committed:
            raise DatasetError(
                f"{paths.members_partial}: has {self.committed} samples, now {self.samples}: it was made "
                "from another recording or with other settings; use --overwrite to start over"
            )
        self.state = WriterState.COMPLETING
        try:
            self._members.flush(sync=False)  # is it still there?
            self._reserve.release()
            frames, annotations = self._log.read()
            rows = with_groups(self._group_rule, frames.batches, annotations.batches)
            stated = {"box3d_frame": box3d_frame}
            seal_annotations(rows, paths.arrow_partial, self._schema, labels, category_metadata, stated)
            seal_frames(
                frames.batches, paths.frames_partial, schemas.list_frames_columns(self._companions), frames_metadata
            )
            self._members.close()
            if self._earlier is None:
                publish.refuse_existing(paths, overwrite=self._overwrite)
            publish.place(paths)
        except StorageError as error:
            raise StorageError(
                f"{error}; once that is fixed, `edgefirst-ros recover {paths.container}` completes the dataset"
            ) from error
        self._release(WriterState.FINISHED)
        return paths

    def abort(self) -> None:
        """Remove everything that was written, unless the writer has ended. Raises StorageError."""
        if self.state not in (WriterState.OPEN, WriterState.COMPLETING):
            return
        try:
            publish.remove_unfinished(self.paths)
        finally:
            self._release(WriterState.ABORTED)

    def _release(self, state: WriterState) -> None:
        if self.state in (WriterState.OPEN, WriterState.COMPLETING):
            self.state = state
            self._reserve.release()
            self._log.close()
            self._members.abandon()
            give_back(self._lock)

    def _check(self, *states: WriterState) -> None:
        if self.state not in states:
            raise DatasetError(f"{self.paths.container}: its writer is {self.state.value}, expected it to be open")
