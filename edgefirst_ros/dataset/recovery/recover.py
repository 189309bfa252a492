# SPDX-License-Identifier: Apache-2.0
"""Completes unfinished datasets: keeps every whole member, rebuilds the tables around them, and reports."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard, get_args

import pyarrow as pa

from edgefirst_ros.counts import INTERRUPTED, PART_REASONS, Counts
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.grouping import GroupRule, with_groups
from edgefirst_ros.dataset.names import (
    DatasetPaths,
    FrameSet,
    Layout,
    Member,
    NewMessages,
    hint_recover,
    iter_keys,
    list_unfinished,
    parse_member,
    refuse_unreadable,
)
from edgefirst_ros.dataset.publish import place, refuse_existing, refuse_writer, remove_tree, remove_unfinished
from edgefirst_ros.dataset.recovery.journals import FinishedTables, write_annotations
from edgefirst_ros.dataset.recovery.unfinished import Found, UnfinishedDataset
from edgefirst_ros.dataset.schema import REFERENCE, SEQUENCES, SOME, WITHOUT_STAMPS
from edgefirst_ros.dataset.storage.lock import is_plain_file, report_errors
from edgefirst_ros.dataset.storage.zip_read import Archive
from edgefirst_ros.dataset.storage.zip_write import Lost, count_missing
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.rowlog import Rows
from edgefirst_ros.dataset.tables.write import GROUPING, seal_annotations, seal_frames
from edgefirst_ros.errors import (
    DatasetError,
    EdgeFirstError,
    InUseError,
    MessageError,
    StorageError,
    Text,
    TooLargeError,
    join_names,
    pluralize,
    show_path,
)
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.exif import ExifFound, read_exif
from edgefirst_ros.sensors.jpeg import read_jpeg_size
from edgefirst_ros.sensors.navigation import find_angles
from edgefirst_ros.sensors.png import check_png
from edgefirst_ros.streams import CAMERA, find_by_columns

_HEADS = (1 << 12, 1 << 17)
"""Bytes of a JPEG in which EXIF and size are looked for; the second only where the first do not do."""
_NOTHING = ExifFound(None, None, None, None, None, None)
_SINGLE = 2e-5
"""Degrees: positions of annotations have steps of 1.5e-5 at 180."""
_STAMPS = range(-(1 << 63), 1 << 63)


class Rebuilt:
    """The rebuilt rows, `rows` of annotations and `frames`; `per_sequence` counts these, `unstamped` those of 2 s.

    A sample without a picture that shows its stamp gets the time of its member, which is right to 2 s.
    """

    def __init__(self, companions: list[str], columns: pa.Schema) -> None:
        self.unstamped = 0
        self.per_sequence = Counter[str]()
        self._without_picture: dict[tuple[str, int], int] = {}
        self.in_frames = FrameSet()
        """Samples that have a row of frames."""
        self._in_annotations = FrameSet()
        self._told: dict[tuple[str, int], tuple[Any, ...]] = {}
        """Stamp, size and position by the rows of annotations, of samples that have only these."""
        self.rows = Rows(columns)
        self.frames = Rows(schema.make_journal_schema(schema.list_frames_columns(companions)))

    def know_annotations(self, batch: pa.RecordBatch) -> None:
        """Note samples that have annotation rows; those with a frames row are noted before."""
        for row, key in enumerate(iter_keys(batch)):
            self._in_annotations.add(*key)
            if key not in self.in_frames and key not in self._told:
                self._told[key] = tuple(batch[name][row].as_py() for name in ("timestamp", "size", "location"))

    def rebuild(self, member: Member, found: Found) -> None:
        """Rebuild the rows of a whole member's sample, if they are missing."""
        key = member.sequence, member.frame
        if key in self.in_frames:
            return
        if member.kind not in CAMERA.kinds:
            self._without_picture.setdefault(key, found.stamp)
            return
        self._without_picture.pop(key, None)
        exif, size = _read_description(member.kind, found)
        self._add(member.sequence, member.frame, exif, size, found.stamp)

    def annotate(self, row: Mapping[str, Any]) -> None:
        """Rebuild the annotation row for a frames row, if it is missing."""
        key = row["name"], row["frame"]
        if key in self._in_annotations:
            return
        self._in_annotations.add(*key)
        made: dict[str, object] = {name: row[name] for name in ("name", "frame", "timestamp", "size")}
        if row["latitude"] is not None and row["longitude"] is not None:
            made["location"] = [row["latitude"], row["longitude"]]
        if row["orientation"] is not None:
            made["pose"] = list(find_angles(row["orientation"]))
        self.rows.append(made)

    def finish(self) -> None:
        """Rebuild the rows of samples without a picture."""
        for (sequence, frame), stamp in self._without_picture.items():
            self._add(sequence, frame, _NOTHING, None, stamp)

    def _add(self, sequence: str, frame: int, exif: ExifFound, size: tuple[int, int] | None, stamp: int) -> None:
        self.per_sequence[sequence] += 1
        self.in_frames.add(sequence, frame)
        told, told_size, position = self._told.pop((sequence, frame), (None, None, None))
        if told is None and exif.stamp is not None and exif.stamp in _STAMPS:
            told = exif.stamp
        self.unstamped += told is None
        row: dict[str, Any] = {"name": sequence, "frame": frame, "timestamp": stamp if told is None else told}
        row |= {"size": told_size or size, "latitude": None, "longitude": None, "orientation": None}
        latitude, longitude, altitude = exif.latitude, exif.longitude, exif.altitude
        exact = zip((latitude, longitude), position or (), strict=False)
        if position is not None and not all(one is not None and abs(one - of) <= _SINGLE for one, of in exact):
            (latitude, longitude), altitude = position, None
        if latitude is not None and longitude is not None and abs(latitude) <= 90 and abs(longitude) <= 180:
            row |= {"latitude": latitude, "longitude": longitude, "altitude": altitude}
        self.frames.append(row)
        self.annotate(row)


def _read_description(kind: str, found: Found) -> tuple[ExifFound, tuple[int, int] | None]:
    for length in _HEADS if kind.endswith("jpeg") else (1 << 30,):
        head = found.head(length)
        try:
            size = read_jpeg_size(head) if kind.endswith("jpeg") else check_png(head)
            return read_exif(head), size
        except MessageError:
            if len(head) < length:
                break
    return _NOTHING, None


def recount_facts(described: Mapping[str, Any], used: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """Metadata of the last commit, with counts of the members `used` now, by sequence and part.

    An earlier version wrote the topics beside them, and counts of only the whole.
    """
    sequences = described.get(SEQUENCES)
    if not isinstance(sequences, dict) or not all(isinstance(known, dict) for known in sequences.values()):
        counts = _recount_topics(described.get("counts"), described.get("topics"), used)
        return {"counts": counts, "static_transforms": described.get("static_transforms") or []}
    found: dict[str, Any] = {}
    total: Counts | None = Counts()
    for name, known in sequences.items():
        own = {key: number for key, number in used.items() if key[0] == name}
        counts = _recount_topics(known.get("counts"), {name: known.get("topics")}, own)
        found[name] = {**known, "counts": counts}
        if total is not None and counts is not None:
            total.add(Counts.of(counts))
        else:
            total = None
    return {SEQUENCES: found, "counts": total.plain() if total is not None else None}


def _recount_topics(counts: Any, topics: Any, used: Mapping[tuple[str, str], int]) -> dict[str, Any] | None:
    """Return the counts of the last commit, updated with those `used` now by sequence and part; None if absent.

    Seen messages of a written topic that are not counted elsewhere were interrupted. `topics` is {sequence: {part:
    topic}}. Rows do not distinguish messages of `WITHOUT_STAMPS`: those of the last commit count.
    """
    if not isinstance(counts, dict) or any(schema.find_faults({"counts": counts})) or not _is_by_part(topics):
        return None
    told = {topic for parts in topics.values() for topic in parts.values()}
    kept = {parts[part] for parts in topics.values() for part in WITHOUT_STAMPS if part in parts}
    written = Counter({topic: counts[topic]["written"] if topic in kept else 0 for topic in told & counts.keys()})
    for (sequence, part), number in used.items():
        topic = topics.get(sequence, {}).get(part, "")
        written.update({topic: number} if topic else {})
    references = {parts[REFERENCE] for parts in topics.values() if REFERENCE in parts}
    for topic, number in written.items():
        count = counts.setdefault(topic, {"seen": 0, "written": 0, "dropped": {}})
        whole = topic in references or number or count["written"]  # fixes and attitudes are never written
        count["written"] = number
        # Messages that a capture wrote since the last commit were also seen since then.
        known = number + sum(n for reason, n in count["dropped"].items() if reason not in PART_REASONS)
        count["seen"] = max(count["seen"], known)
        if whole and count["seen"] > known:
            count["dropped"][INTERRUPTED] = count["dropped"].get(INTERRUPTED, 0) + count["seen"] - known
    return counts


def _is_by_part(topics: Any) -> TypeGuard[dict[str, dict[str, str]]]:
    return isinstance(topics, dict) and all(
        isinstance(parts, dict) and all(isinstance(topic, str) for topic in parts.values()) for parts in topics.values()
    )


LISTED = 100
"""Ranges without a whole member that are reported one by one."""
_LOSSES = ("rows_rebuilt", "annotations_lost", "rows_dropped", "members_missing")


@dataclass(slots=True)
class Recovery:
    """Outcome of a recovery."""

    paths: DatasetPaths
    dry_run: bool
    complete: bool = False
    """True if the dataset was complete already."""
    samples: int = 0
    members: int = 0
    lost: list[Lost] = field(default_factory=list)
    """The first ranges without a whole member."""
    lost_stretches: int = 0
    lost_bytes: int = 0
    rows_rebuilt: int = 0
    """Samples whose frames row was lost and is rebuilt."""
    unstamped: int = 0
    """Samples of these whose stamp is known to 2 s only."""
    annotations_lost: int = 0
    """Samples whose annotation rows may be lost."""
    rows_dropped: int = 0
    """Samples of the journal, or of the tables, without any member."""
    members_missing: int = 0
    """Missing members of samples that stay."""
    told_by: str = "journal"
    """Source of the rows: `journal`, or `tables` of a finished dataset that was cut."""
    kept: dict[Path, Path] = field(default_factory=dict)
    """{journal that is not understood: where it stays}."""
    notes: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        """The outcome in one line."""
        if self.complete:
            return "all of it was complete"
        said = f"{pluralize(self.samples, 'sample')}, {pluralize(self.members, 'member')}"
        size, places = pluralize(self.lost_bytes, "byte"), pluralize(self.lost_stretches, "place")
        losses = {
            f"no whole member in {size} in {places}": self.lost_stretches,
            f"{pluralize(self.rows_rebuilt, 'row')} rebuilt": self.rows_rebuilt,
            f"annotations of {pluralize(self.annotations_lost, 'sample')} may be lost": self.annotations_lost,
            f"lost, but named by the {self.told_by}: {pluralize(self.rows_dropped, 'sample')}": self.rows_dropped,
        }
        return "; ".join([said, *(loss for loss, number in losses.items() if number), *self.notes])

    def count_lost(self, lost: Lost) -> None:
        """Count a range without a whole member; the first ones are listed."""
        self.lost_stretches += 1
        self.lost_bytes += lost.end - lost.start
        if len(self.lost) < LISTED:
            self.lost.append(lost)

    def describe(self, not_understood: Mapping[Path, str]) -> dict[str, Any]:
        """Return the metadata `recovered`; `not_understood`: the fault with the journals that stay."""
        lost = [{"offset": lost.start, "name": lost.name, "why": lost.why} for lost in self.lost]
        told: dict[str, Any] = {"members": self.members, "lost_bytes": self.lost_bytes, "lost": lost}
        told |= {name: getattr(self, name) for name in _LOSSES}
        if self.kept:
            told["journals"] = [
                {"file": path.name, "why": not_understood[path], "kept": kept.name} for path, kept in self.kept.items()
            ]
        return told

    @property
    def exit_code(self) -> int:
        return 3 if self.lost_stretches or self.kept or any(getattr(self, name) for name in _LOSSES) else 0

    def plain(self) -> dict[str, Any]:
        first = ("dry_run", "complete", "samples", "members", "lost_bytes")
        names = ("rows_rebuilt", "unstamped", "annotations_lost", "rows_dropped", "members_missing", "notes")
        facts = {"dataset": str(self.paths.container)} | {name: getattr(self, name) for name in first}
        facts["lost"] = [
            {"offset": lost.start, "bytes": lost.end - lost.start, "name": lost.name, "why": lost.why}
            for lost in self.lost
        ]
        return facts | {name: getattr(self, name) for name in names} | {"exit_code": self.exit_code}

    def text(self) -> Text:
        if self.complete:
            yield f"{show_path(self.paths.container)} is complete"
        else:
            done = "dry run, no file changes" if self.dry_run else "completed"
            yield f"{show_path(self.paths.container)}: {done}{', with loss' if self.exit_code else ''}"
            kept = {"samples kept": self.samples, "members kept": self.members}
            numbers = {
                "bytes skipped, damaged or cut": self.lost_bytes,
                "rows of frames rebuilt": self.rows_rebuilt,
                "of these with a stamp rounded to 2 s": self.unstamped,
                "samples whose annotations may be lost": self.annotations_lost,
                f"samples lost: in the {self.told_by} only": self.rows_dropped,
                f"members lost: in the {self.told_by} only": self.members_missing,
            }
            shown = kept | {what: number for what, number in numbers.items() if number}
            yield ("what", "number"), [(what, str(number)) for what, number in shown.items()]
            yield from (f"lost: {lost.name or 'no member'} at byte {lost.start}: {lost.why}" for lost in self.lost)
            if self.lost_stretches > len(self.lost):
                yield f"lost: {self.lost_stretches - len(self.lost)} more places"
            instead = "continues it instead" if self.paths.unfinished else "with --overwrite makes the whole dataset"
            yield f"note: if this was a conversion, the same convert command {instead}"
        yield from (f"note: {note}" for note in self.notes)


_LAYOUTS: tuple[Layout, ...] = get_args(Layout)
_SUFFIXES = (
    ".zip.partial", ".partial", ".rows.journal", ".frames.arrow.journal", ".arrow.journal", ".frames.arrow", ".arrow",
    ".zip",
)  # fmt: skip


def find_unfinished(out: Path) -> list[DatasetPaths]:
    """Return the unfinished datasets in a folder; a writer may be at work on them. Raises StorageError."""
    if not os.path.isdir(out):
        return []
    with report_errors(out, "search it for unfinished datasets"):
        return list_unfinished(out)


def locate_any(path: str | os.PathLike[str]) -> DatasetPaths:
    """Return the dataset that a user names by any of its files, finished or not. Raises DatasetError."""
    text = os.fspath(path)
    if "\0" in text:
        raise DatasetError(f"{text!r} is not a valid path")
    given = Path(os.path.abspath(text))
    stems = [given.name, *(given.name.removesuffix(suffix) for suffix in _SUFFIXES if given.name.endswith(suffix))]
    outs = [given.parent, *([given.parent.parent] if given.parent.name.removesuffix(".partial") in stems else [])]
    candidates = [DatasetPaths(out, stem, layout) for out in outs for stem in stems if stem for layout in _LAYOUTS]
    for paths in candidates:
        # NAME.zip.partial of a ZIP must not pass for the folder of a dataset that is named NAME.zip.
        if paths.unfinished and (paths.layout == "zip" or os.path.isdir(paths.folder_partial)):
            return paths
    for paths in candidates:
        if os.path.isfile(paths.container) if paths.layout == "zip" else os.path.isdir(paths.members):
            return paths
    refuse_unreadable(given)
    found = "not a dataset" if os.path.lexists(given) else "no such file or directory"
    expected = "expected OUT/NAME of a dataset or of its files that end in .partial"
    raise DatasetError(f"{text}: {found}; {expected}{hint_recover(text)}")


def is_cut(paths: DatasetPaths, limits: Limits) -> bool:
    """True if a finished dataset lost one of its tables, or the end of one or of its ZIP. Raises TooLargeError."""
    if paths.layout == "directory":
        return False
    try:
        Archive(paths.container, limits)
    except TooLargeError:
        raise
    except DatasetError:
        return True
    there = [table for table in (paths.arrow, paths.frames) if os.path.isfile(table)]
    if not all(_is_table(table, limits) for table in there):
        return True  # another tool's annotations have no stamps, and no table of frames beside them
    return len(there) == 1 and "timestamp" in TableFile(there[0], limits).schema.names


def has_tables(paths: DatasetPaths, limits: Limits) -> bool:
    """Return True if both tables of an unfinished dataset are complete. Raises TooLargeError."""
    if paths.layout == "zip":
        tables = (paths.arrow_partial, paths.arrow), (paths.frames_partial, paths.frames)
        begun = not os.path.lexists(paths.container)  # else the final tables are those of another dataset
        return all(
            _is_table(final if begun and not os.path.exists(partial) else partial, limits) for partial, final in tables
        )
    building = paths.folder_partial
    return _is_table(building / paths.arrow.name, limits) and _is_table(building / paths.frames.name, limits)


def _is_table(path: Path, limits: Limits) -> bool:
    try:
        return is_plain_file(path) and TableFile(path, limits).check_rows() is not None
    except TooLargeError:
        raise
    except DatasetError:
        return False


def tidy(paths: DatasetPaths) -> None:
    """Remove temporary files beside a finished dataset."""
    with report_errors(paths.container, "remove the files beside it"):
        for path in [paths.aside] if paths.layout == "directory" else paths.temporary:
            if os.path.lexists(path):  # a read-only medium also refuses to remove missing files
                remove_tree(path)


def recover(
    path: str | os.PathLike[str],
    *,
    verify: bool = False,
    dry_run: bool = False,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Recovery:
    """Complete the unfinished dataset that a user names by OUT/NAME or one of its files; a finished one stays as it is.

    Every whole member stays; cut or damaged bytes between them are dropped. Up to the last commit that was synced
    to disk, members are believed by their headers or sizes; after it, and with `verify` everywhere, their checksums are
    compared. Rows that the row log does not have are rebuilt: from names, and from stamps, positions and sizes of the
    pictures. Finished tables of this software keep the rows of samples that remain. `dry_run` only reports. Raises
    DatasetError when no dataset can be completed, or a finished dataset would have to be replaced and not
    `overwrite`; no file changes then, nor where a table or ZIP unpacks to more than `limits` let it.
    """
    paths = locate_any(path)
    if paths.unfinished:
        dataset = UnfinishedDataset(paths)
    elif not is_cut(paths, limits):
        report = Recovery(paths, dry_run, complete=True)
        if paths.layout == "directory":
            report.notes.append("folders are not checked; run edgefirst-ros validate")
        elif absent := [table.name for table in (paths.arrow, paths.frames) if not table.exists()]:
            report.notes.append(f"missing: {join_names(absent, LISTED)}")
        for entry, error in Archive(paths.container, limits).find_damaged() if verify and paths.layout == "zip" else ():
            report.count_lost(
                Lost(entry.header_offset, entry.header_offset + entry.compress_size, entry.filename, error)
            )
            report.complete = False
        if not dry_run:
            tidy(paths)
        return report
    elif dry_run:
        dataset = UnfinishedDataset(paths, paths.container)
    else:
        recover(
            paths.container, dry_run=True, limits=limits
        )  # raises without a whole member: a file that is not an archive keeps its name
        with report_errors(paths.container, "rename"):
            os.rename(paths.container, paths.members_partial)
        dataset = UnfinishedDataset(paths)
    try:
        return _Recoverer(dataset, Recovery(paths, dry_run), limits).run(verify=verify, overwrite=overwrite)
    finally:
        dataset.close()


def find_abandoned(out: Path) -> list[str]:
    """Return the names of unfinished datasets in a folder without a writer; an empty list if it cannot be searched."""
    names = []
    with suppress(StorageError):
        for paths in find_unfinished(out):
            with suppress(DatasetError, OSError):  # a living writer has it, or it is of another user
                refuse_writer(paths)
                names.append(paths.name)
    return names


def recover_all(out: Path, say: Callable[[str], None]) -> None:
    """Complete every unfinished dataset in a folder that has no writer; `say` gets a line about each."""
    try:
        found = find_unfinished(out)
    except StorageError as error:
        say(str(error))
        return
    for paths in found:
        try:
            report = recover(paths.container)
        except InUseError:
            continue
        except EdgeFirstError as error:
            say(f"{paths.container} is unfinished and cannot be completed: {error}")
        else:
            say(f"completed {paths.container}, which was unfinished: {report.sentence}")


class _Recoverer:
    def __init__(self, dataset: UnfinishedDataset, report: Recovery, limits: Limits) -> None:
        self._members, self._limits = dataset.members, limits
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
        self._frame_rows: Callable[[], Iterator[pa.RecordBatch]] = dataset.journals.frames.batches
        self._companions = dataset.journals.companions

    def run(self, *, verify: bool, overwrite: bool) -> Recovery:
        paths, report = self._paths, self._report
        replaces = os.path.lexists(paths.container) and paths.unfinished
        if replaces and not report.dry_run:
            refuse_existing(paths, overwrite=overwrite)
        if has_tables(paths, self._limits) and self._members.is_complete(self._limits):
            report.complete = True
            if not report.dry_run:
                place(paths)
                tidy(paths)
            return report
        if self._foreign and not replaces:  # else the tables are those of the finished dataset
            self._finished = FinishedTables(paths, self._limits)
        if self._own is not None:
            report.told_by, self._frame_rows, self._companions = "tables", self._own.frames, self._own.companions
        rebuilt = Rebuilt(self._companions, self._journals.annotations.columns)
        self._collect(rebuilt, verify=verify)
        if not report.members:
            self._nothing()
        self._keep_journals()
        if report.members_missing:
            members = pluralize(report.members_missing, "member")
            report.notes.append(f"missing, but named by the {report.told_by}: {members}")
        self._report_merge()
        if not report.dry_run:
            self._complete(rebuilt)
        return report

    def _collect(self, rebuilt: Rebuilt, *, verify: bool) -> None:
        journals, report = self._journals, self._report
        for batch in self._frame_rows():
            rebuilt.in_frames.update(iter_keys(batch))
        for batch in journals.annotations.batches():
            rebuilt.know_annotations(batch)
        for found in self._members.whole(verify=verify):
            if isinstance(found, Found):
                report.members += 1
                member = parse_member(found.name)
                if member is not None:
                    rebuilt.rebuild(member, found)
            else:
                report.count_lost(found)
                self._damaged += [found.name] if self._paths.layout == "directory" else []
        for batch in self._frame_rows():
            rows, lost = self._keep_frames(batch)
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
        report.samples += rebuilt.frames.count
        if self._loses or not self._stays(self._paths.frames):
            report.rows_rebuilt, report.unstamped = rebuilt.frames.count, rebuilt.unstamped
        if not self._stays(self._paths.arrow):
            report.annotations_lost = rebuilt.rows.count

    def _keep_journals(self) -> None:
        """Choose where journals that are not understood stay, beside the dataset under free names, and note it."""
        for path, why in self._journals.not_understood.items():
            names = (f"{path.name}.unreadable{number}" for number in ("", *range(2, 1000)))
            kept = next(self._paths.out / name for name in names if not os.path.lexists(self._paths.out / name))
            self._report.kept[path] = kept
            self._report.notes.append(f"{path.name} is not understood ({why}): it stays as {kept.name}")

    def _report_merge(self) -> None:
        """Note that an interrupted merge has only the data that was copied by then."""
        merged = self._journals.description.get("merged")
        if isinstance(merged, list) and merged:
            names = ", ".join(str(part.get("dataset")) for part in merged if isinstance(part, dict))
            self._report.notes.append(
                f"the merge of {names} was interrupted, and it has only the samples copied before; "
                "run merge again with --overwrite to have all"
            )

    def _nothing(self) -> None:
        """Remove the files of a writer that ended before its first whole member, and raise DatasetError."""
        report, paths = self._report, self._paths
        place = paths.members_partial if paths.unfinished else paths.container
        cut = all(lost.why.startswith("cut") for lost in report.lost) and not self._journals.not_understood
        if cut and not self._foreign and not report.dry_run:
            remove_unfinished(paths)
        raise DatasetError(f"{place}: has no whole member to recover" + ("" if cut else "; it stays as it is"))

    # ---- rows ----------------------------------------------------------------------------
    def _keep_frames(self, batch: pa.RecordBatch) -> tuple[list[dict[str, Any]], int]:
        """Return the frames rows of existing samples, lost companions set to null, and the number of lost members."""
        kept, lost = [], 0
        for row in batch.to_pylist():
            kinds = self._members.writer.seen.kinds(row["name"], row["frame"])
            if not kinds and count_missing(row, kinds):
                continue
            lost += count_missing(row, kinds)
            for sensor in find_by_columns(row):
                if kinds.isdisjoint(sensor.kinds):
                    row.update(dict.fromkeys(schema.list_companion_columns(sensor)))
            kept.append(row)
        return kept, lost

    def _frames(self, rebuilt: Rows) -> Iterator[pa.RecordBatch]:
        for batch in self._frame_rows():
            yield pa.RecordBatch.from_pylist(self._keep_frames(batch)[0], schema=batch.schema)
        yield from rebuilt.batches()

    def _annotations(self, rebuilt: Rows) -> Iterator[pa.RecordBatch]:
        for batch in self._journals.annotations.batches():
            yield batch.filter(pa.array(map(self._is_there, iter_keys(batch)), pa.bool_()))
        yield from rebuilt.batches()

    def _is_there(self, sample: tuple[str, int]) -> bool:
        return sample in self._kept or bool(self._members.writer.seen.kinds(*sample))

    # ---- the end -------------------------------------------------------------------------
    def _complete(self, rebuilt: Rebuilt) -> None:
        paths, described = self._paths, self._journals.description
        with report_errors(paths.reserve, "remove"):
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
            columns = schema.list_frames_columns(self._companions)
            seal_frames(partial(self._frames, rebuilt.frames), paths.frames_partial, columns, self._metadata())
        for path in self._journals.not_understood:
            with report_errors(path, "rename"):
                os.rename(path, self._report.kept[path])
        self._members.remove(self._damaged)
        self._members.writer.close()
        place(paths)

    @property
    def _own(self) -> FinishedTables | None:
        """The finished tables, if this software wrote that of frames."""
        return self._finished if self._finished is not None and self._finished.description else None

    @property
    def _loses(self) -> bool:
        """True if tables that this software wrote have rows or stamps of what is gone."""
        return self._own is not None and bool(self._report.rows_dropped or self._report.members_missing)

    def _stays(self, path: Path) -> bool:
        """True for a table of an archive without journals that can be read."""
        return self._finished is not None and path in self._finished.readable

    def _is_kept(self, path: Path) -> bool:
        """True if a table is not made again: one of another tool, and an own one that needs no change.

        An own one of annotations loses the rows of lost samples. One that cannot be read is put aside.
        """
        if self._finished is None:
            return False
        error, table = self._finished.unreadable.get(path), self._finished.readable.get(path)
        if error is not None:
            with report_errors(path, "rename"):
                os.rename(path, path.with_name(f"{path.name}.unreadable"))
            self._report.notes.append(f"{error}; it stays as {path.name}.unreadable")
        if table is None:
            return False
        if self._loses and path == self._paths.frames:
            further = [name for name in table.schema.names if name not in schema.list_frames_columns(self._companions)]
            if further:
                self._report.notes.append(f"{path}: dropped, not columns of the format: {join_names(further, LISTED)}")
            return False
        dropped = self._loses and self._report.rows_dropped
        if path == self._paths.arrow and dropped and {"name", "frame"} <= {*table.schema.names}:
            write_annotations(table, self._paths.arrow_partial, self._is_there)
        else:
            self._report.notes.append(f"{path} stays as it is")
        return True

    def _metadata(self) -> dict[str, Any]:
        if self._own is not None:
            told = known = dict(self._own.description)
        else:
            told = self._journals.description
            known = {key: told.get(key) for key in schema.FRAMES_METADATA}
            known["sources"] = known["sources"] or []
            known |= {key: told[key] for key in SOME if told.get(key)}
        known |= recount_facts(told, self._used)
        known["recovered"] = self._report.describe(self._journals.not_understood)
        return known
