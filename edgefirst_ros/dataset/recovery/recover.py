# SPDX-License-Identifier: Apache-2.0
"""Completes unfinished datasets: every whole member is kept, the tables are rebuilt around them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.grouping import GroupRule, with_groups
from edgefirst_ros.dataset.names import KIND_OF, FrameSet, NewMessages, keys_of, parse_member
from edgefirst_ros.dataset.publish import place, refuse_existing, remove_unfinished
from edgefirst_ros.dataset.recovery.finished_tables import FinishedFrames, FinishedTables, write_annotations
from edgefirst_ros.dataset.recovery.members import Found
from edgefirst_ros.dataset.recovery.rebuild import Rebuilt, recounted_facts
from edgefirst_ros.dataset.recovery.report import Recovery
from edgefirst_ros.dataset.recovery.state import has_tables, is_cut, locate_any, tidy, unfinished
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.dataset.sequences import LEFT_OUT, REFERENCE
from edgefirst_ros.dataset.storage.lock import reporting
from edgefirst_ros.dataset.storage.zip_read import Archive
from edgefirst_ros.dataset.storage.zip_write import Lost, missing
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.rowlog import Rows
from edgefirst_ros.dataset.tables.write import GROUPING, seal_annotations, seal_frames
from edgefirst_ros.errors import DatasetError, EdgeFirstError, InUseError, StorageError, counted
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits


def recover(
    path: str | os.PathLike[str],
    *,
    verify: bool = False,
    dry_run: bool = False,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Recovery:
    """Complete the unfinished dataset that a user names by OUT/NAME or one of its files; a finished one stays as it is.

    Every whole member is kept, what is cut or damaged between them is left out. Up to the last commit that was synced
    to disk, members are believed by their headers or sizes; after it, and with `verify` everywhere, their checksums are
    compared. Rows that the row log does not have are rebuilt: from names, and from stamps, positions and sizes of the
    pictures. Finished tables of this software keep the rows of samples that are left. `dry_run` only reports. Raises
    DatasetError when there is nothing that could be completed, or a finished dataset would have to be replaced and not
    `overwrite`; nothing is changed then, nor where a table or ZIP unpacks to more than `limits` let it.
    """
    paths = locate_any(path)
    if paths.unfinished:
        dataset = UnfinishedDataset(paths)
    elif not is_cut(paths, limits):
        report = Recovery(paths, dry_run, complete=True)
        if paths.layout == "directory":
            report.notes.append("it is a folder, of which nothing was compared: edgefirst-ros validate looks at it")
        for entry, error in Archive(paths.container, limits).damaged() if verify and paths.layout == "zip" else ():
            report.note(Lost(entry.header_offset, entry.header_offset + entry.compress_size, entry.filename, error))
            report.complete = False
        if not dry_run:
            tidy(paths)
        return report
    elif dry_run:
        dataset = UnfinishedDataset(paths, paths.container)
    else:
        recover(
            paths.container, dry_run=True, limits=limits
        )  # raises where nothing is whole: what is no archive keeps its name
        with reporting(paths.container, "rename"):
            os.rename(paths.container, paths.members_partial)
        dataset = UnfinishedDataset(paths)
    try:
        return _Recoverer(dataset, Recovery(paths, dry_run), limits).run(verify=verify, overwrite=overwrite)
    finally:
        dataset.close()


def recover_all(out: Path, say: Callable[[str], None]) -> None:
    """Complete every unfinished dataset in a folder that nobody writes to; `say` gets a line about each."""
    try:
        found = unfinished(out)
    except StorageError as error:
        say(str(error))
        return
    for paths in found:
        try:
            report = recover(paths.container)
        except InUseError:
            continue
        except EdgeFirstError as error:
            say(f"{paths.container} was left unfinished and cannot be completed: {error}")
        else:
            say(f"completed {paths.container}, which was left unfinished: {report.text}")


class _Recoverer:
    def __init__(self, dataset: UnfinishedDataset, report: Recovery, limits: Limits) -> None:
        self._dataset, self._limits = dataset, limits
        self._journals = dataset.journals
        self._paths = dataset.paths
        self._report = report
        self._foreign = not dataset.journals.written_here
        self._used: Counter[tuple[str, str]] = Counter()
        self._messages = NewMessages()
        self._kept = FrameSet()
        """Samples of the journal of frames that stay."""
        self._damaged: list[str] = []
        self._finished: FinishedTables | None = None
        """Those of an archive without journals."""

    def run(self, *, verify: bool, overwrite: bool) -> Recovery:
        paths, report = self._paths, self._report
        replaces = os.path.lexists(paths.container) and paths.unfinished
        if replaces and not report.dry_run:
            refuse_existing(paths, overwrite=overwrite)
        if has_tables(paths, self._limits) and self._dataset.is_complete(self._limits):
            report.complete = True
            if not report.dry_run:
                place(paths)
                tidy(paths)
            return report
        if self._foreign and not replaces:  # else the tables are those of the finished dataset
            self._finished = FinishedTables(paths, self._limits)
        if self._own is not None:
            report.told_by = "tables"
        rebuilt = Rebuilt(self._journals.companions)
        self._collect(rebuilt, verify=verify)
        if not report.members:
            self._nothing()
        self._note_journals()
        if report.members_missing:
            members = counted(report.members_missing, "member")
            report.notes.append(f"not there, and named by the {report.told_by}: {members}")
        self._note_merge()
        if not report.dry_run:
            self._complete(rebuilt)
        return report

    def _collect(self, rebuilt: Rebuilt, *, verify: bool) -> None:
        """Find the whole members, and rebuild missing rows."""
        journals, report = self._journals, self._report
        frames = journals.frames if self._own is None else self._own.batches
        for batch in frames():
            for key in keys_of(batch):
                rebuilt.know_frame(*key)
        for batch in journals.annotations():
            rebuilt.know_annotations(batch)
        for found in self._dataset.members(verify=verify):
            if isinstance(found, Found):
                report.members += 1
                member = parse_member(found.name)
                if member is not None:
                    rebuilt.take(member, found)
            else:
                self._lose(found)
        for batch in frames():
            rows, lost = self._kept_frames(batch)
            report.members_missing += lost
            report.rows_dropped += batch.num_rows - len(rows)
            report.samples += len(rows)
            for row in rows:
                self._kept.add(row["name"], row["frame"])
                self._used.update((row["name"], part) for part in (REFERENCE, *self._messages.of(row)))
                rebuilt.annotate(row)
        rebuilt.finish()
        for sequence, count in rebuilt.per_sequence.items():
            self._used[sequence, REFERENCE] += count
        report.samples += rebuilt.samples
        if not self._stays(self._paths.frames):
            report.rows_rebuilt, report.unstamped = rebuilt.samples, rebuilt.unstamped
        if not self._stays(self._paths.arrow):
            report.annotations_lost = rebuilt.annotations

    def _lose(self, lost: Lost) -> None:
        self._report.note(lost)
        if self._paths.layout == "directory":
            self._damaged.append(lost.name)

    def _note_journals(self) -> None:
        """Choose where journals that are not understood are kept, beside the dataset under free names, and note it."""
        for path, why in self._journals.not_understood.items():
            names = (f"{path.name}.unreadable{number}" for number in ("", *range(2, 1000)))
            kept = next(self._paths.out / name for name in names if not os.path.lexists(self._paths.out / name))
            self._report.kept[path] = kept
            self._report.notes.append(f"{path.name} is not understood ({why}): it is kept as {kept.name}")

    def _note_merge(self) -> None:
        """Note that an interrupted merge lacks what it had not copied yet."""
        merged = self._journals.description.get("merged")
        if isinstance(merged, list) and merged:
            names = ", ".join(str(part.get("dataset")) for part in merged if isinstance(part, dict))
            self._report.notes.append(
                f"it was being merged from {names} and has only what was copied by then; "
                "merge them again with --overwrite to have all"
            )

    def _nothing(self) -> None:
        """Remove what a writer left before its first member was whole, and raise DatasetError."""
        report, paths = self._report, self._paths
        cut = all(lost.why.startswith("cut") for lost in report.lost) and not self._journals.not_understood
        if cut and not self._foreign and not report.dry_run:
            remove_unfinished(paths)
        raise DatasetError(
            f"{paths.members_partial}: has no whole member, nothing can be recovered"
            + ("" if cut else "; it is left as it is")
        )

    # ---- rows ----------------------------------------------------------------------------
    def _kept_frames(self, batch: pa.RecordBatch) -> tuple[list[dict[str, Any]], int]:
        """Return the frames rows of existing samples, lost companions set to null, and the number of lost members."""
        kept, lost = [], 0
        for row in batch.to_pylist():
            kinds = self._dataset.kinds(row["name"], row["frame"])
            if not kinds and missing(row, kinds):
                continue
            lost += missing(row, kinds)
            for base, kind in KIND_OF.items():
                if f"{base}_skew" in row and kind not in kinds:
                    row[f"{base}_timestamp"] = row[f"{base}_skew"] = None
            kept.append(row)
        return kept, lost

    def _frames(self, rebuilt: Rows) -> Iterator[pa.RecordBatch]:
        for batch in self._journals.frames():
            yield pa.RecordBatch.from_pylist(self._kept_frames(batch)[0], schema=batch.schema)
        yield from rebuilt.batches()

    def _annotations(self, rebuilt: Rows) -> Iterator[pa.RecordBatch]:
        for batch in self._journals.annotations():
            yield batch.filter(pa.array(map(self._is_there, keys_of(batch)), pa.bool_()))
        yield from rebuilt.batches()

    def _is_there(self, sample: tuple[str, int]) -> bool:
        return sample in self._kept or bool(self._dataset.kinds(*sample))

    # ---- the end -------------------------------------------------------------------------
    def _complete(self, rebuilt: Rebuilt) -> None:
        paths, described = self._paths, self._journals.description
        with reporting(paths.reserve, "remove"):
            paths.reserve.unlink(missing_ok=True)
        version = described.get("schema_version")
        version = version if version in schema.WRITABLE else schema.DEFAULT_VERSION
        labels = described.get("labels")
        labels = labels if isinstance(labels, list) and all(isinstance(label, str) for label in labels) else None
        categories = described.get("category_metadata")
        categories = categories if isinstance(categories, dict) else None
        if not self._is_kept(paths.arrow):
            rule, rows = GroupRule.of_plain(described.get(GROUPING)), partial(self._annotations, rebuilt.rows)
            grouped = with_groups(rule, partial(self._frames, rebuilt.frames), rows)
            stated = {key: described.get(key) for key in ("box3d_axes", "box3d_frame")}  # older journals have neither
            seal_annotations(grouped, paths.arrow_partial, version, labels, categories, stated=stated)
        if not self._is_kept(paths.frames):
            columns = schema.frames_columns(self._journals.companions)
            seal_frames(partial(self._frames, rebuilt.frames), paths.frames_partial, columns, self._metadata())
        for path in self._journals.not_understood:
            with reporting(path, "rename"):
                os.rename(path, self._report.kept[path])
        self._dataset.complete(self._damaged)
        place(paths)

    @property
    def _own(self) -> FinishedFrames | None:
        """The finished table of frames, if this software wrote it."""
        return self._finished.frames if self._finished is not None else None

    def _stays(self, path: Path) -> bool:
        """True for a table of an archive without journals that can be read."""
        return self._finished is not None and path in self._finished.readable

    def _is_kept(self, path: Path) -> bool:
        """True if a table is not made anew: one of another tool stays as it is, an own one without what is gone.

        One that cannot be read is put aside.
        """
        if self._finished is None:
            return False
        error, table = self._finished.unreadable.get(path), self._finished.readable.get(path)
        if error is not None:
            with reporting(path, "rename"):
                os.rename(path, path.with_name(f"{path.name}.unreadable"))
            self._report.notes.append(f"{error}; it is kept as {path.name}.unreadable")
        if table is None:
            return False
        trimmed = self._trim_frames() if path == self._paths.frames else self._trim_annotations(table)
        if not trimmed:
            self._report.notes.append(f"{path} is kept as it is")
        return True

    def _trim_annotations(self, annotations: TableFile) -> bool:
        """Write the annotations without those of samples that are gone; False where there are none."""
        if self._own is None or not self._report.rows_dropped or not {"name", "frame"} <= {*annotations.schema.names}:
            return False
        write_annotations(annotations, self._paths.arrow_partial, self._is_there)
        return True

    def _trim_frames(self) -> bool:
        """Write the table of frames without what is gone; False where nothing is."""
        if self._own is None or not (self._report.rows_dropped or self._report.members_missing):
            return False
        changed = {"recovered": self._report.plain({}), **recounted_facts(self._own.description, self._used)}
        self._own.write(self._paths.frames_partial, self._dataset.kinds, changed)
        return True

    def _metadata(self) -> dict[str, Any]:
        told = self._journals.description
        known: dict[str, Any] = {key: told.get(key) for key in schema.FRAMES_METADATA}
        known["sources"] = known["sources"] or []
        known |= {LEFT_OUT: told[LEFT_OUT]} if told.get(LEFT_OUT) else {}
        known |= recounted_facts(self._journals.description, self._used)
        known["recovered"] = self._report.plain(self._journals.not_understood)
        return known
