# SPDX-License-Identifier: Apache-2.0
"""Labels, object ids, annotation rows and metadata of several datasets, made consistent for one.

Rows stay in columns: as values of Python they would take fifty times the memory.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.label_names import MOST_NAMED, list_conflicts, list_pairs, read_categories
from edgefirst_ros.dataset.names import Key
from edgefirst_ros.dataset.query import find_spans, select_keys
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.schema import (
    CALIBRATION,
    LEFT_OUT,
    SEQUENCES,
    combine_sequences,
    parse_frames_metadata,
    parse_metadata,
    unite_topics,
)
from edgefirst_ros.dataset.tables.arrow_file import TableFile, find_annotations, to_polars
from edgefirst_ros.dataset.tables.forms import Annotations, read_annotations
from edgefirst_ros.dataset.tables.rowlog import ANNOTATION_ROWS
from edgefirst_ros.dataset.tables.values import cast_rows
from edgefirst_ros.errors import DatasetError, UsageError, explain_errors, quote_error
from edgefirst_ros.limits import Limits
from edgefirst_ros.sensors.masks import VOID
from edgefirst_ros.sensors.png import encode_gray

COLUMNS = frozenset(ANNOTATION_ROWS.names)
STAMP = ANNOTATION_ROWS.get_field_index("timestamp")
KEYS = pl.DataFrame(schema={"name": pl.String, "frame": pl.Int64})
OLDEST = pl.CompatLevel.oldest()
RANDOM = 4
"""Version of the random UUIDs that a device assigns to tracks: equal ones in two datasets are the same track."""
UNKNOWN = "unknown"


@dataclass
class MergeInput:
    """One of the datasets that are merged. Raises DatasetError for one without a table of frames."""

    dataset: Dataset
    sequences: dict[str, str]
    """Sequence -> its name in the merged dataset."""
    version: str = schema.UNNAMED_VERSION
    metadata: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Label -> its `label_index` in the merged dataset; empty without a change."""
    indices: Mapping[int, int] = field(default_factory=dict)
    """`label_index` -> that in the merged dataset, without a label beside it, if it changes."""
    values: Mapping[int, int] = field(default_factory=dict)
    """Pixel value of masks of classes -> that in the merged dataset; empty without a change."""
    ids: dict[str, str] = field(default_factory=dict)
    """`object_id` -> that in the merged dataset, if it changes."""
    notes: list[str] = field(default_factory=list)
    lost: int = 0
    """Number of annotation values that cannot be read."""
    pairs: Sequence[tuple[int, str]] = ()
    """(`label_index`, label) of metadata and rows."""
    classes: Sequence[str] | None = None
    """Names of pixel values of masks of classes."""
    has_classes: bool = False
    object_ids: frozenset[str] = frozenset()
    box_frames: frozenset[str] = frozenset()
    """The frame of its boxes in space, if it has any; `unknown` where it is not stated."""
    timing: pa.StructType = schema.TIMING
    columns: pa.Schema = ANNOTATION_ROWS
    """Columns of rows of the merged dataset."""

    def __post_init__(self) -> None:
        frames, limits, file = self.dataset.paths.frames, self.dataset.limits, self.dataset.table_files[1]
        if file is None:
            raise DatasetError(
                f"{frames}: missing; only datasets with a frames table can be merged, because it has the stamps of "
                "the samples"
            )
        self.frames = read_frames(file)
        foreign = sorted(set(file.schema.names) - set(self.frames.columns))
        self.notes += [f"{frames}: columns that are not merged: {', '.join(foreign)}"] if foreign else []
        self.frames_metadata = parse_frames_metadata(frames, file.metadata)
        self._rows: AnnotationRows | None = None
        self._path = path = find_annotations(self.dataset.paths.arrow)
        if path is None:
            return
        found = read_annotations(path, limits=limits)
        table = AnnotationRows(found, limits).table
        self.version, self.metadata = found.version, dict(found.metadata)
        if found.nested and "box2d" in found.columns:
            self.metadata = {**self.metadata, "box2d_format": found.layout}
        if self.dataset.lacks_axes:
            raise DatasetError(
                f"{path}: does not state the axes of box3d, which earlier versions wrote in optical axes; convert "
                "them with edgefirst-ros migrate --box3d-axes optical"
            )
        schema.check_writable(path, self.version, self.metadata, table.columns)
        labels = parse_metadata(self.metadata["labels"]) if "labels" in self.metadata else None
        if labels is not None and (not isinstance(labels, list) or not all(isinstance(one, str) for one in labels)):
            raise DatasetError(f"{self.dataset.paths.arrow}: metadata labels is not a list of texts")
        self.classes = labels
        self.pairs = list_pairs(self.metadata, table.select(n for n in ("label", "label_index") if n in table.columns))
        self.has_classes = bool(find_class_masks(table).any())
        if "object_id" in table.columns:
            self.object_ids = frozenset(table["object_id"].drop_nulls().unique())
        if "box3d" in table.columns and table["box3d"].null_count() < table.height:
            self.box_frames = frozenset({self.metadata.get("box3d_frame", UNKNOWN)})
        if "timing" in found.columns:
            self.timing = table["timing"].clear().to_arrow(compat_level=OLDEST).type
        self.notes += [f"{path}: {what}: {number}" for what, number in found.tally.lost.items()]
        self.lost = sum(found.tally.lost.values())
        foreign = sorted(set(found.columns) - COLUMNS)
        self.notes += [f"{path}: columns that are not merged: {', '.join(foreign)}"] if foreign else []

    @property
    def keys(self) -> pl.DataFrame:
        """(sequence, frame) of the samples with rows, even those without members, within `open_rows`."""
        return KEYS if self._rows is None else self._rows.keys

    @contextmanager
    def open_rows(self) -> Iterator[None]:
        """Hold the annotation rows, for `rows` and `keys`: of one part at a time, as they take the memory."""
        if self._path is not None:
            limits = self.dataset.limits
            self._rows = AnnotationRows(read_annotations(self._path, limits=limits), limits)
            self._rows.prepare(self)
        yield
        self._rows = None

    def rows(self, key: Key, timestamp: int) -> pa.RecordBatch | None:
        """Return the rows of a sample for the merged dataset, within `open_rows`; None without any."""
        return None if self._rows is None else self._rows.of(key, timestamp)


def unite_box_frames(parts: Sequence[MergeInput], notes: list[str]) -> str | None:
    """Return the frame of the boxes in space of all parts; None, with a note, if they have several."""
    frames = sorted(frozenset().union(*(part.box_frames for part in parts)))
    notes += [f"boxes in space have several origins: {', '.join(frames)}"] if len(frames) > 1 else []
    return frames[0] if len(frames) == 1 and frames[0] != UNKNOWN else None


def unite_labels(parts: Sequence[MergeInput], *, renumber: bool) -> tuple[list[str] | None, dict[str, Any] | None]:
    """Return `labels` and category metadata for all parts, and set the new indices in each part.

    Raises UsageError where one index has two names or one name two indices, unless `renumber`: then a label has the
    index of the first part that knows it, or the next free one where a label of an earlier part has that.
    """
    labels, clashes = _unite_classes(parts)
    conflicts = [*list_conflicts(pair for part in parts for pair in part.pairs), *clashes]
    if conflicts and not renumber:
        raise UsageError(
            f"the datasets number labels differently: {'; '.join(conflicts)}; label_index stays as it is, unless "
            "--renumber gives each label one number"
        )
    numbers: dict[str, int] = {}
    free = count(1 + max((index for part in parts for index, _ in part.pairs), default=-1))
    for part in parts:
        for index, name in part.pairs:
            if name not in numbers:
                numbers[name] = next(free) if index in numbers.values() else index
        part.numbers = numbers if conflicts else {}
        part.indices = {index: numbers[name] for index, name in reversed(part.pairs) if numbers[name] != index}
    return labels, _unite_categories(parts, numbers)


def _unite_classes(parts: Sequence[MergeInput]) -> tuple[list[str] | None, list[str]]:
    """Return one list of names by pixel value, and which values of masks have two names in words.

    Set in each part with masks of classes how its values change, where it has another list. Lists of parts with masks
    of classes take precedence.
    """
    united: list[str] | None = None
    clashes: list[str] = []
    for part in sorted(parts, key=lambda part: not part.has_classes):
        if part.classes is None:
            continue
        if united is None:
            united = list(part.classes)
        differing = [(n, pair) for n, pair in enumerate(zip(united, part.classes, strict=False)) if pair[0] != pair[1]]
        if not differing:
            united += part.classes[len(united) :]
        elif not part.has_classes:
            part.notes.append(
                f"{part.dataset.paths.arrow}: has no masks of classes: its labels, the names of their "
                "values, are dropped"
            )
        else:
            clashes += [
                f"value {n} of masks is {one!r:.80} and {other!r:.80}" for n, (one, other) in differing[:MOST_NAMED]
            ]
            united += [name for name in dict.fromkeys(part.classes) if name not in united]
            part.values = {value: united.index(name) for value, name in enumerate(part.classes)}
    return united, clashes


def _unite_categories(parts: Sequence[MergeInput], numbers: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the category metadata of all parts; where two differ in more than the id, the first."""
    united: dict[str, dict[str, Any]] = {}
    for part in parts:
        for label, own in read_categories(part.metadata).items():
            plain = {key: value for key, value in own.items() if key != "id"}
            if not united.get(label):
                united[label] = plain
            elif plain and united[label] != plain:
                part.notes.append(
                    f"{part.dataset.paths.arrow}: category_metadata of {label!r} differs: the first one stays"
                )
    for label, number in numbers.items():
        united[label] = {"id": number, **united.get(label, {})}
    return united or None


def separate_ids(parts: Sequence[MergeInput]) -> None:
    """Set in each part new object ids for those that another object of an earlier part has.

    An id that a device made at random is the same track in both; any other is made of names and numbers, which come
    again in other recordings.
    """
    taken: set[str] = set()
    for part in parts:
        own = part.object_ids
        where = next(iter(part.sequences.values()), "")
        free = own - taken
        for one in sorted(own & taken):
            if not _is_random(one):
                new = f"{where}/{one}"
                while not part.ids.get(one) or part.ids[one] in taken or part.ids[one] in free:
                    new = part.ids[one] = str(uuid.uuid5(uuid.NAMESPACE_URL, new))
                taken.add(new)
        taken |= free


def _is_random(text: str) -> bool:
    try:
        return uuid.UUID(text).version == RANDOM
    except ValueError:
        return False


# ---- rows ----------------------------------------------------------------------------------------
INDICES = ("neg_label_indices", "not_exhaustive_label_indices")
FREE_PIXELS, PIXELS_PER_BYTE, PER_MASK = 1 << 30, 1032, 1 << 14
"""Pixels of masks that are counted again in any case, and for each byte of the file: deflate cannot do better.

A mask counts for so many at least: to look at it takes time, however small it is."""


def read_frames(file: TableFile) -> pl.DataFrame:
    """Return the columns of a table of frames that the format has, in its types.

    Raises DatasetError naming a column of another kind, before anything is made of it.
    """
    known = {
        c.name: c
        for c in schema.list_frames_columns(schema.find_companions(file.schema.names)).values()
        if c.name in file.schema.names
    }
    wanted = schema.make_journal_schema(known)
    batches = []
    for batch in file.batches():
        with explain_errors(str(file.path), DatasetError):
            batches.append(cast_rows(batch.select(wanted.names), wanted))
    return pl.DataFrame(pl.from_arrow(pa.Table.from_batches(batches, wanted)))


class AnnotationRows:
    """Annotations in columns of a journal; `prepare` puts those of a sample next to each other.

    `table`: all rows; `keys`: name and frame of every sample that has rows, also of those that are not there.
    """

    def __init__(self, found: Annotations, limits: Limits) -> None:
        """Read all rows. Raises DatasetError."""
        self.path = found.path
        names = [name for name in ANNOTATION_ROWS.names if name in found.columns]
        table = pa.Table.from_batches(list(found.batches(names)), found.schema_of(names))
        self.table = to_polars(self.path, table)
        self._order = select_keys(self.table.select(name for name in KEYS.columns if name in names), self.path)
        self.keys = self._order.unique()
        self._spans: dict[Key, tuple[int, int]] = {}
        self._pixels = max(FREE_PIXELS, PIXELS_PER_BYTE * found.path.stat().st_size, limits.unpacked_bytes)

    def prepare(self, part: MergeInput) -> None:
        """Make the rows of all samples those of the merged dataset, but for their stamps. Raises DatasetError."""
        samples = pl.DataFrame([sample.key for sample in part.dataset.samples()], KEYS.schema, orient="row")
        order = self._order.with_row_index().join(samples, on=KEYS.columns, how="semi", nulls_equal=True)
        order = order.sort(KEYS.columns, maintain_order=True)
        if order.is_empty():
            return
        whole = len(order) == len(self.table) and order["index"].is_sorted()
        table = self.table if whole else self.table[order["index"]]  # a copy, masks too
        own: dict[str, pl.Series | pl.Expr] = {
            "name": order["name"].replace(part.sequences),
            "frame": order["frame"].cast(pl.UInt32),
            "timestamp": pl.lit(0, pl.Int64),
        }
        table = table.with_columns(**own | (_renumber(table.columns, part) if part.numbers else {}))
        if part.ids and "object_id" in table.columns:
            table = table.with_columns(pl.col("object_id").replace(part.ids))
        if part.values:
            classes = find_class_masks(table)
            masks = [self._mask(png, part.values) for png in table["mask"].filter(classes)] if classes.any() else []
            if masks:
                table = table.with_columns(table["mask"].scatter(classes.arg_true(), masks))
        (batch,) = table.rechunk().to_arrow(compat_level=OLDEST).to_batches()
        self._batch = cast_rows(batch, part.columns)
        self._spans = find_spans(order)

    def of(self, key: Key, timestamp: int) -> pa.RecordBatch | None:
        """Return the rows of a sample for the merged dataset; None without any."""
        start, count = self._spans.get(key, (0, 0))
        if not count:
            return None
        stamps = pa.array(np.full(count, timestamp, np.int64))
        return self._batch.slice(start, count).set_column(STAMP, ANNOTATION_ROWS.field(STAMP), stamps)

    def _mask(self, png: bytes, values: Mapping[int, int]) -> bytes:
        from PIL import Image

        known = [values.get(old, old) if old < VOID else old for old in range(256)]
        try:
            with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
                if image.mode not in ("1", "L"):
                    raise DatasetError(f"{self.path}: a mask of classes of mode {image.mode}, expected 8 bits")
                self._pixels -= max(PER_MASK, image.width * image.height)
                if self._pixels < 0:
                    raise DatasetError(
                        f"{self.path}: masks of classes must be renumbered and have too many pixels for their bytes "
                        f"({PIXELS_PER_BYTE} for each, {FREE_PIXELS} or limits.unpacked_bytes in any case)"
                    )
                classes = np.asarray(image).astype(np.uint8)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DatasetError(f"{self.path}: a mask cannot be read as PNG: {quote_error(error)}") from error
        if max((known[old] for old in np.flatnonzero(np.bincount(classes.ravel(), minlength=256))), default=0) > VOID:
            raise DatasetError(f"{self.path}: a mask of classes can have at most {VOID} labels")
        return encode_gray(np.array([new & 255 for new in known], np.uint8)[classes])


def find_class_masks(table: pl.DataFrame) -> pl.Series:
    """Return which rows have a mask of classes: one that is of no box, polygon or label."""
    others = [pl.col(name).is_null() for name in ("box2d", "polygon", "label") if name in table.columns]
    has_mask = pl.col("mask").is_not_null() if "mask" in table.columns else pl.lit(False)
    return table.select(pl.all_horizontal(has_mask, *others)).to_series()


def _renumber(names: Sequence[str], part: MergeInput) -> dict[str, pl.Expr]:
    """Return columns with other numbers of labels, by name if it exists, else by the old number."""
    found: dict[str, pl.Expr] = {}
    if "label_index" in names:
        old = pl.col("label_index")
        new = old.replace(part.indices)
        if "label" in names:
            new = pl.col("label").replace_strict(part.numbers, default=new, return_dtype=pl.UInt64)
        found["label_index"] = pl.when(old.is_not_null()).then(new)
    for name in (name for name in INDICES if name in names):
        element = pl.element().cast(pl.UInt64).replace(part.indices).cast(pl.UInt32)
        found[name] = pl.col(name).list.eval(element)
    return found


# ---- metadata of the frames ----------------------------------------------------------------------
ONCE = ("configuration", "software")
"""Keys with one value for a whole dataset."""


def merge_metadata(parts: Sequence[MergeInput], notes: list[str]) -> dict[str, Any]:
    """Return the metadata of the frames: sources in one list, counts added up, the rest by sequence and dataset.

    Adds to `notes` what differs. Raises DatasetError for metadata that are not as the format says.
    """
    found = [part.frames_metadata for part in parts]
    counts, sources, sequences = Counts(), list[Any](), dict[str, dict[str, Any]]()
    for part, known in zip(parts, found, strict=True):
        try:
            counts.add(Counts.of(known["counts"] or {}))
        except KeyError as error:
            raise DatasetError(f"{part.dataset.paths.frames}: the metadata have no counts") from error
        sequences |= _merge_sequences(part, known, len(sources), {*sequences, *part.sequences.values()})
        sources += known.get("sources") or []
    if len(found) == 1 and all(old == new for old, new in parts[0].sequences.items()):
        return {**found[0], SEQUENCES: sequences}
    common, differing = combine_sequences(sequences)
    notes += differing
    merged: dict[str, Any] = {"sources": sources, "time_base": _merge_time_base(parts, found), "counts": counts.plain()}
    for key in ONCE:
        values = [known.get(key) for known in found]
        given = [value for value in values if value] or values[:1]
        merged[key] = given[0]
        if any(value != given[0] for value in given):
            notes.append(f"the datasets differ in {key}; the metadata have each value under merged")
            merged[key] = values if key == "configuration" else given[0]
    merged |= {**common, SEQUENCES: sequences, **unite_topics(sequences)}
    merged["merged"] = [
        {
            "dataset": part.dataset.paths.name,
            "sequences": part.sequences,
            **{key: known.get(key) for key in (*ONCE, *CALIBRATION)},
        }
        for part, known in zip(parts, found, strict=True)
    ]
    recovered = [known["recovered"] for known in found if "recovered" in known]
    left = [of for known in found for of in known.get(LEFT_OUT) or ()]
    return merged | ({"recovered": recovered} if recovered else {}) | ({LEFT_OUT: left} if left else {})


def _merge_sequences(
    part: MergeInput, known: Mapping[str, Any], offset: int, taken: set[str]
) -> dict[str, dict[str, Any]]:
    """Return the metadata of a dataset's sequences by new name; their source indices start at `offset`.

    Of sequences without samples too, unless another one has their name.
    """
    others = (known.get(SEQUENCES) or {}).keys() - part.sequences.keys() - taken
    found = {}
    for old, new in {**part.sequences, **{name: name for name in sorted(others)}}.items():
        facts = part.dataset.sequence_facts(old)
        found[new] = {**facts, "sources": [offset + place for place in facts.get("sources") or ()]}
    return found


def _merge_time_base(parts: Sequence[MergeInput], found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the time base as a conversion of several recordings has it: of the first, and by sequence."""
    bases: dict[str, Any] = {}
    for part, known in zip(parts, found, strict=True):
        base = known.get("time_base")
        plain = base and {key: value for key, value in base.items() if key != "sequences"}
        of_each = (base or {}).get("sequences") or {}
        bases |= {new: of_each.get(old, plain) for old, new in part.sequences.items()}
    first = next(iter(bases.values()), None) or {}
    return {**first, "sequences": bases}
