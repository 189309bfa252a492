# SPDX-License-Identifier: Apache-2.0
"""Converts annotations between file formats and schema versions, and reports what changed and the losses.

Source: EdgeFirst Annotation Schema 2026.04, "Type changed in 2026.04", "File-Level Metadata".
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import check_path, locate
from edgefirst_ros.dataset.objects.location import Location, ObjectPath, is_remote
from edgefirst_ros.dataset.objects.places import get_one_on_disk
from edgefirst_ros.dataset.schema import SEQUENCES, Column, parse_frames_metadata
from edgefirst_ros.dataset.storage.lock import Replacement
from edgefirst_ros.dataset.tables.arrow_file import SUFFIXES, TableFile, find_annotations
from edgefirst_ros.dataset.tables.forms import JSON_SUFFIX, Annotations, read_annotations
from edgefirst_ros.dataset.tables.json_form import ANNOTATION, SAMPLE
from edgefirst_ros.dataset.tables.values import LAYOUTS, convert_layout, fix_lengths, is_valid, read_numbers
from edgefirst_ros.dataset.tables.write import (
    choose_columns,
    count_columns,
    describe_lost_scores,
    outline_png,
    write_rows,
)
from edgefirst_ros.errors import DatasetError, Text, UsageError, explain_errors, pluralize
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.png import decode_gray
from edgefirst_ros.sensors.transforms import BASE, chain_frames

OF_VERSION = ("schema_version", "box2d_format", "box2d_normalized", "box3d_format", "box3d_axes", "mask_interpretation")
"""Metadata with fixed values in versions without file metadata."""


@dataclass(frozen=True)
class BoxForm:
    """Layout and unit of `box2d`."""

    layout: str
    normalised: bool

    def __str__(self) -> str:
        return f"{self.layout} {'normalised' if self.normalised else 'in pixels'}"


FIXED = {".json": BoxForm("ltwh", True), ".arrow": BoxForm("cxcywh", True), ".parquet": BoxForm("cxcywh", True)}
"""Box layout of formats without metadata."""


@dataclass(frozen=True)
class Migration:
    """Outcome of a migration: `changed` and `lost` count values by what happened to them."""

    source: Path
    out: Path
    from_version: str
    to_version: str
    rows: int
    changed: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        return 3 if self.lost else 0

    def plain(self) -> dict[str, Any]:
        named = {"source": str(self.source), "out": str(self.out), "from": self.from_version, "to": self.to_version}
        return named | {name: getattr(self, name) for name in ("rows", "changed", "lost", "notes", "exit_code")}

    def text(self) -> Text:
        yield f"{self.out}: {pluralize(self.rows, 'row')}, {self.from_version} to {self.to_version}"
        for what, values in (("changed", self.changed), ("lost", self.lost)):
            yield from (f"{what}: {number} x {reason}" for reason, number in values.items())
        yield from (f"note: {note}" for note in self.notes)


def migrate(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: str = schema.DEFAULT_VERSION,
    *,
    box2d: str | None = None,
    normalised: bool | None = None,
    location_order: str | None = None,
    pose_order: str | None = None,
    box3d_axes: str | None = None,
    overwrite: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Migration:
    """Write annotations in another schema version or file format.

    Args:
        source: Table to read: .arrow, .parquet or .json; or a dataset, for its annotations.
        out: Table to write; its suffix is the format.
        to: Schema version: 2025.10, 2026.04 or 2026.10.
        box2d: Layout of 2D boxes in `out`: cxcywh, xyxy or ltwh.
        normalised: False for boxes in pixels.
        location_order: Order of `location` in `source` if it differs from that of its version.
        pose_order: Order of `pose` in `source` if it differs from that of its version.
        box3d_axes: "optical" if `source` has boxes in the optical axes of a sensor.
        overwrite: Replace an existing file.
        limits: Largest table that is read.

    Returns:
        Number of rows, what changed, the losses, and the exit code: 3 if values were lost.

    Raises:
        UsageError: The version, layout or suffix is unknown.
        DatasetError: `source` cannot be read, or `out` exists or cannot be written.
    """
    check_path(out)
    target = Path(out)
    form = target.suffix.lower()
    if form not in SUFFIXES:
        raise UsageError(f"{target}: expected X.arrow, X.parquet or X.json")
    if to not in schema.WRITABLE:
        raise UsageError(f"--to: unknown version {to!r}; known: {', '.join(schema.WRITABLE)}")
    if box2d is not None and box2d not in LAYOUTS:
        raise UsageError(f"--box2d: unknown layout {box2d!r}; known: {', '.join(LAYOUTS)}")
    if box3d_axes not in (None, "optical"):
        text = f"--box3d-axes {box3d_axes!r}: expected optical; other tables are in forward, left, up already"
        raise UsageError(text)
    if target.is_dir():
        raise DatasetError(f"{target} is a folder")
    if not target.parent.is_dir():
        raise DatasetError(f"{target}: no folder {target.parent}; make it first")
    if target.name.endswith(".frames.arrow"):
        raise UsageError(f"{target}: is the name of a table of frames; expected annotations, such as NAME.arrow")
    if os.path.lexists(target) and not overwrite:
        raise DatasetError(f"{target} exists; use --overwrite to replace it")
    with get_one_on_disk(source) as given:
        table = given
        if table.name.endswith(".frames.arrow"):
            raise DatasetError(f"{table}: is the table of frames of a dataset; expected NAME.arrow, its annotations")
        if table.suffix.lower() not in SUFFIXES:
            arrow = locate(given).arrow
            table = find_annotations(arrow) or arrow
        annotations = read_annotations(table, location_order, pose_order, limits)
        stated = annotations.metadata.get("box3d_axes")
        if box3d_axes is not None and stated is not None:
            raise UsageError(f"--box3d-axes {box3d_axes}: {table} states that its boxes are in {stated} already")
        boxes = _choose_layout(annotations, form, to, box2d, normalised)
        change = Change(annotations, to, boxes, nested=form == JSON_SUFFIX, optical=box3d_axes is not None)
        columns = _list_columns(change, form, to)
        filled, categories = count_columns(change.batches, columns)
        tally = annotations.tally
        _count(annotations, change, columns, filled, form, to)
        written = choose_columns(filled, columns)
        metadata = _make_metadata(annotations, change, written, form, to)
        if box3d_axes is not None and "box3d" in written and metadata:
            metadata |= {"box3d_axes": schema.BOX3D_AXES, **_find_box_frame(annotations.path, limits)}
        tally.freeze()
        with Replacement(target, suffix=".partial", action="write") as replacement:
            with replacement.writing() as file:
                refusals = pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException
                with explain_errors(f"{target}: cannot be written", *refusals):
                    rows = write_rows(change.batches, file, form, written, categories, metadata, to)
            replacement.put_in_place(overwrite=overwrite)
        shown = cast("Path", ObjectPath(str(Location.of(source)))) if is_remote(source) else table
        changed, lost = dict(tally.changed), dict(tally.lost)
        return Migration(shown, target, annotations.version, to, rows, changed, lost, list(tally.notes))


def _find_box_frame(path: Path, limits: Limits) -> dict[str, str]:
    """Return box3d_frame of a table of an earlier version, by the frames table beside it; empty without one."""
    place = path.with_name(f"{path.stem}.frames.arrow")
    if not place.is_file():
        return {}
    metadata = parse_frames_metadata(place, TableFile(place, limits).metadata)
    sequences = metadata.get(SEQUENCES) or {"": metadata}
    known = {
        "lidar" if "lidar" in chain_frames(facts.get("static_transforms") or (), BASE) else "radar"
        for facts in sequences.values()
    }
    return {"box3d_frame": known.pop()} if len(known) == 1 else {}


def _choose_layout(
    annotations: Annotations, form: str, to: str, layout: str | None, normalised: bool | None
) -> BoxForm:
    """Return the box layout of the target: as asked for, else as in the source, unless the target cannot state it."""
    if not schema.has_metadata(to):
        fixed = FIXED[form]
        if layout not in (None, fixed.layout) or normalised not in (None, fixed.normalised):
            raise UsageError(f"boxes of {to} in a {form} file are always {fixed.layout}, normalised; remove the option")
        return fixed
    if layout is None:
        said = "box2d_format" in annotations.metadata or form == JSON_SUFFIX
        layout = annotations.layout if said else FIXED[form].layout
    return BoxForm(layout, annotations.normalised if normalised is None else normalised)


def _list_columns(change: Change, form: str, to: str) -> dict[str, Column]:
    """Return the columns of the target: those of the version, then those unknown to all versions."""
    known, there = schema.list_columns(to), {*change.columns}
    if "polygon" not in known and "polygon" in there:
        known |= {"polygon": schema.WORKING["polygon"]} if form == JSON_SUFFIX else {}
        there.add("mask")
    bound = {column.name for column in schema.COLUMNS} - {column.name for column in schema.FURTHER}
    further = {name: column for name, column in change.columns.items() if name not in bound}
    if form == JSON_SUFFIX:
        known.pop("mask" if "polygon" in known and to < RASTER else "", None)
        taken = {*SAMPLE, *ANNOTATION, "annotations"} - schema.WORKING.keys()
        further = {name: c for name, c in further.items() if _has_json(c.type) and name not in taken}
    if "timing" in known and "timing" in change.columns:
        known["timing"] = change.columns["timing"]  # with the fields that no version knows
    return {name: column for name, column in known.items() if name in there} | further


def _has_json(kind: pa.DataType) -> bool:
    """True if JSON can store values of a type, and reading them returns the same type."""
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return _has_json(kind.value_type) and not types.is_floating(kind.value_type)  # a NaN would pass unnoticed
    plain = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return bool(plain or types.is_large_string(kind) or types.is_string(kind) or types.is_dictionary(kind))


def _count(
    annotations: Annotations, change: Change, columns: dict[str, Column], filled: Counter[str], form: str, to: str
) -> None:
    tally, polygons = annotations.tally, filled["polygon"]
    for name in change.columns:
        if name not in columns and not (name == "polygon" and "mask" in columns):
            place = to if name in schema.list_columns(schema.VERSIONS[-1]) else "JSON"
            tally.lose(f"{name}: {place} has no place for it", filled[name])
    if annotations.separated and to >= RASTER:
        tally.change("mask: NaN-separated polygons to rings in polygon", polygons)
    elif not annotations.separated and to < RASTER:
        tally.change("polygon: rings to polygons in mask", polygons - tally.changed[OUTLINED])
    if (schema.find_nearest_version(annotations.version) < RASTER) != (to < RASTER):
        tally.change("iscrowd: number and truth value", filled["iscrowd"])
    if form != JSON_SUFFIX:
        for name, order in (("location", schema.get_location_order(to)), ("pose", schema.get_pose_order(to))):
            before = annotations.orders.get(name, order)
            if before != order:
                tally.change(f"{name}: {', '.join(before)} to {', '.join(order)}", filled[name])


def _make_metadata(
    annotations: Annotations, change: Change, written: dict[str, Column], form: str, to: str
) -> dict[str, str]:
    given = {key: value for key, value in annotations.metadata.items() if key != "schema_version"}
    if not schema.has_metadata(to):
        if given.get("box3d_frame") == BASE:
            given.pop("box3d_frame")  # the origin of that version
        for key in sorted(given.keys() - set(OF_VERSION)):
            annotations.tally.lose(f"metadata {key}: {to} has none", 1)
        return {}
    found = {"schema_version": to, **given}
    if "box2d" in written:
        found["box2d_format"] = change.boxes.layout
        found["box2d_normalized"] = "true" if change.boxes.normalised else "false"
    if "box3d" in written and not schema.has_metadata(schema.find_nearest_version(annotations.version)):
        found.setdefault("box3d_normalized", "false")  # metres; the default for an absent key came later
        found.setdefault("box3d_axes", schema.BOX3D_AXES)
    if form == JSON_SUFFIX and found.pop("samples", None) is not None:
        annotations.tally.lose("metadata samples: JSON has its samples there", 1)
    rank = {key.name: number for number, key in enumerate(schema.METADATA)}
    return dict(sorted(found.items(), key=lambda item: rank.get(item[0], len(rank))))


CROWD = "2026.10"
"""From this version on `ignore` replaces `iscrowd`, which mirrors it."""
RASTER = "2026.04"
"""From this version on masks are PNG pictures."""
OUTLINED = "mask: its outline stays"

Rows = NDArray[np.bool_]


class Change:
    """Rows of a file as another version and layout has them, in working types, with their `columns`, `boxes`."""

    def __init__(self, source: Annotations, to: str, boxes: BoxForm, *, nested: bool, optical: bool = False) -> None:
        """`optical`: `box3d` of the source is in optical axes (right, down, forward)."""
        self._source = source
        self._tally = source.tally
        self._to = to
        self._found = BoxForm(source.layout, source.normalised)
        self.boxes = boxes
        self._interpretation = source.metadata.get("mask_interpretation", "binary")
        self._steps: list[Callable[[dict[str, pa.Array]], None]] = []
        there = source.columns
        added: dict[str, Column] = {}
        if "box2d" in there and self._found != boxes:
            self._steps.append(self._convert_boxes)
        if optical and "box3d" in there:
            self._steps.append(self._turn_boxes)
        if to >= CROWD and "iscrowd" in there and "ignore" not in there:
            self._steps.append(self._convert_ignored)
            added["ignore"] = schema.WORKING["ignore"]
        if to < CROWD and "ignore" in there:
            self._steps.append(self._crowds)
            added["iscrowd"] = schema.WORKING["iscrowd"]
        if to < RASTER and "mask" in there:
            self._steps.append(self._outline_masks)
            added["polygon"] = schema.WORKING["polygon"]
        if nested:
            self._steps.append(self._finite)
        gone = {"ignore"} if to < CROWD else set()
        gone |= {"mask"} if to < RASTER else set()
        merged = {**there, **added}
        known = [name for name in schema.WORKING if name in merged] + [n for n in merged if n not in schema.WORKING]
        self.columns = {name: merged[name] for name in known if name not in gone}

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._source.batches():
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for step in self._steps:
                step(columns)
            target = schema.make_journal_schema(self.columns)
            yield pa.record_batch([columns[name] for name in self.columns], schema=target)

    def _convert_boxes(self, columns: dict[str, pa.Array]) -> None:
        array = columns["box2d"]
        valid: Rows = is_valid(array)
        numbers = read_numbers(array).astype(np.float64)
        if self._found.normalised != self.boxes.normalised:
            known, scale = np.zeros(len(array), bool), np.ones((len(array), 4))
            if "size" in columns:
                size = read_numbers(columns["size"])
                known = np.asarray((size > 0).all(axis=1))
                scale[known] = np.tile(size[known], 2)
            self._tally.lose("box2d: the size of the picture is not known", int((valid & ~known).sum()))
            valid = valid & known
            numbers = numbers / scale if self.boxes.normalised else numbers * scale
        numbers = convert_layout(numbers, self._found.layout, self.boxes.layout)
        with np.errstate(over="ignore"):
            single = numbers.astype(np.float32)
        finite = np.asarray(np.isfinite(single).all(axis=1))
        self._tally.lose("box2d: too large for its layout", int((valid & ~finite).sum()))
        valid = valid & finite
        single[~valid] = 0
        columns["box2d"] = fix_lengths(single, valid, array.type)
        self._tally.change(f"box2d: {self._found} to {self.boxes}", int(valid.sum()))

    def _turn_boxes(self, columns: dict[str, pa.Array]) -> None:
        array = columns["box3d"]
        valid: Rows = is_valid(array)
        turned = read_numbers(array)[:, [2, 0, 1, 5, 3, 4]] * np.array([1, -1, -1, 1, 1, 1], np.float32)
        turned[~valid] = 0
        columns["box3d"] = fix_lengths(turned.astype(np.float32), valid, array.type)
        self._tally.change("box3d: right, down, forward to forward, left, up", int(valid.sum()))

    def _finite(self, columns: dict[str, pa.Array]) -> None:
        """Count and remove numbers that JSON does not have (NaN, infinity), in columns outside the schema."""
        for name, array in columns.items():
            if name not in schema.WORKING and pa.types.is_floating(array.type):
                fits = pc.is_finite(array)
                lost = int(pc.sum(pc.invert(fits)).as_py() or 0)
                if lost:
                    self._tally.lose(f"{name}: NaN and infinity, which JSON has not", lost)
                    columns[name] = pc.if_else(fits, array, pa.scalar(None, array.type))

    def _convert_ignored(self, columns: dict[str, pa.Array]) -> None:
        crowd = columns["iscrowd"]
        columns["ignore"] = crowd
        self._tally.change("ignore: made from iscrowd, which stays", len(crowd) - crowd.null_count)

    def _crowds(self, columns: dict[str, pa.Array]) -> None:
        ignore = columns.pop("ignore")
        crowd = columns.get("iscrowd", pa.nulls(len(ignore), pa.bool_()))
        other = int(pc.sum(pc.not_equal(ignore, crowd)).as_py() or 0)
        self._tally.lose("iscrowd: other than ignore, which counts", other)
        columns["iscrowd"] = pc.coalesce(ignore, crowd)
        self._tally.change("ignore: kept as iscrowd", len(ignore) - ignore.null_count)

    def _outline_masks(self, columns: dict[str, pa.Array]) -> None:
        """Put the outlines of masks without a polygon; a list of coordinates is all that 2025.10 has."""
        masks = columns.pop("mask")
        polygons = columns.get("polygon", pa.nulls(len(masks), schema.POLYGON))
        boxed = is_valid(columns.get("box2d", pa.nulls(len(masks))))
        masked, taken = is_valid(masks), is_valid(polygons)
        self._tally.lose("mask: the row has a polygon, which takes its place", int((masked & taken).sum()))
        found: list[list[list[float]] | None] = [None] * len(masks)
        for row in np.flatnonzero(masked & ~taken).tolist():
            png = masks[row].as_py()
            try:
                found[row] = self._outline(png, bool(boxed[row]))
            except DatasetError as error:
                self._tally.lose(f"mask: {error}", 1)
                continue
            self._tally.change(OUTLINED, 1)
            if reason := describe_lost_scores(png):
                self._tally.lose(reason, 1)
        columns["polygon"] = pc.coalesce(polygons, pa.array(found, schema.POLYGON))

    def _outline(self, png: bytes, boxed: bool) -> list[list[float]]:
        if self._interpretation == "logits":
            raise DatasetError("logits have no threshold that makes an outline")
        rings = outline_png(png)
        if not boxed and (values := decode_gray(png)) is not None and values.dtype != bool:
            raise DatasetError("indices of classes are not an outline of one object")
        return rings
