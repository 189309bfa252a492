# SPDX-License-Identifier: Apache-2.0
"""Rules, findings and reports of a validation, and the dataset under validation: opened once, tables as frames."""

from __future__ import annotations

import itertools
import json
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import DatasetPaths, Key, list_members
from edgefirst_ros.dataset.schema import parse_metadata
from edgefirst_ros.dataset.storage.zip_read import Archive, Container, Entry, open_container
from edgefirst_ros.dataset.tables.arrow_file import TableFile, find_annotations, open_annotations
from edgefirst_ros.dataset.tables.values import cast_values, is_list, is_valid, split
from edgefirst_ros.dataset.verdict import Check, Level, find_worst
from edgefirst_ros.errors import DatasetError, escape_line, pluralize
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.streams import Form, Sensor, find_by_kind

Severity = Literal["error", "warning"]
KEPT = 100
"""Findings of one rule that stay; all are counted."""
LONGEST = 1000
"""Characters of a finding that stay: names and values can be of any length."""


Found = Iterable["tuple[str, str] | int"]
"""(place, message) of each place that breaks a rule; a number represents that many more."""


@dataclass(frozen=True)
class Repair:
    """Repair by `--fix` for a rule, a column at a time."""

    said: str
    """Description of the repair, with {} for the column."""
    mend: Mapping[str, Callable[[Any], tuple[Any, int]]]
    """{column: function}: an Arrow array with broken values made good or null, and how many; others stay bit by bit."""
    fits: Callable[[Any], bool] = lambda _: True
    """True if it is for a column of this Arrow type."""


@dataclass(frozen=True)
class Rule:
    """One rule of the format: what breaks it, and how that is repaired where no guess is needed."""

    id: str
    severity: Severity
    description: str
    bad: Callable[..., Found] | None
    """Of a dataset; None: the validation itself reports it."""
    bad_member: Callable[[View], Iterable[str]] | None = None
    """Messages on one member."""
    forms: tuple[Form, ...] = ()
    """Contents of the members that the rule is for, those with bytes; none: all members."""
    fix: Repair | None = None


def rule(
    rule_id: str, severity: Severity, description: str, fix: Repair | None = None
) -> Callable[[Callable[[Subject], Found]], Rule]:
    """Make a rule of a function of the dataset."""
    return lambda bad: Rule(rule_id, severity, description, bad, fix=fix)


def member_rule(
    rule_id: str, severity: Severity, description: str, *forms: Form
) -> Callable[[Callable[[View], Iterable[str]]], Rule]:
    """Make a rule of a function of one member."""
    return lambda bad: Rule(rule_id, severity, description, None, bad, forms)


@dataclass(frozen=True)
class Finding:
    """One place that violates a rule."""

    rule: str
    severity: Severity
    place: str
    message: str


@dataclass
class Report:
    """All findings on one dataset, in the order of the rules.

    At most KEPT findings of a rule stay, `counts` has the number of all; `checked` says how much was processed.
    """

    dataset: str
    strict: bool = False
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    errors: int = 0
    warnings: int = 0
    checked: dict[str, int] = field(default_factory=dict)
    drive: list[Check] = field(default_factory=list)
    """Checks of the drive from the tables, green ones too; they are not findings."""

    @property
    def ok(self) -> bool:
        """True without errors; when strict, without warnings either."""
        return not self.errors and not (self.strict and self.warnings)

    def add(self, broken: Rule, place: str, message: str) -> None:
        """Count a finding; the text of one that is longer than LONGEST is cut."""
        place, message = (text if len(text) <= LONGEST else f"{text[:LONGEST]}..." for text in (place, message))
        self.count(broken, 1)
        if self.counts[broken.id] <= KEPT:
            self.findings.append(Finding(broken.id, broken.severity, place, message))

    def count(self, broken: Rule, number: int) -> None:
        """Count findings whose text is not kept."""
        self.counts[broken.id] += number
        if broken.severity == "error":
            self.errors += number
        else:
            self.warnings += number

    def sort(self, rules: Iterable[Rule]) -> None:
        """Sort the findings by the order of the rules."""
        rank = {known.id: number for number, known in enumerate(rules)}
        self.findings.sort(key=lambda finding: rank[finding.rule])
        self.counts = Counter({known: self.counts[known] for known in sorted(self.counts, key=rank.__getitem__)})

    def plain(self) -> dict[str, Any]:
        """Return the report ready for JSON."""
        checks = [
            {"check": c.key, "level": c.level.word, "place": c.place, "sequence": c.sequence, "found": c.found}
            for c in self.drive
        ]
        facts = ("dataset", "ok", "strict", "errors", "warnings", "checked")
        return {name: getattr(self, name) for name in facts} | {
            "counts": dict(self.counts),
            "findings": [vars(finding) for finding in self.findings],
            "drive": {"level": find_worst(self.drive).word, "checks": checks},
        }

    def to_json(self) -> str:
        """Return the report as a JSON object."""
        return json.dumps(self.plain(), indent=2)

    def to_text(self, most: int = 5) -> str:
        """Return one line per finding, at most `most` of a rule, drive checks that are not green, and the outcome."""
        lines = []
        for known, found in itertools.groupby(self.findings, lambda finding: finding.rule):
            first = itertools.islice(found, most)
            lines += [escape_line(f"{known} {one.severity}: {one.place}: {one.message}") for one in first]
            if self.counts[known] > most:
                lines.append(f"{known} +{self.counts[known] - most} more")
        for one in self.drive:
            if one.level is not Level.GREEN:
                of = f" of {one.where}" if one.where else ""
                lines.append(escape_line(f"drive {one.level.word}: {one.key}{of}: {one.found}"))
        rows = {"annotations": "annotation row"}  # a sample without annotations has one too
        checked = ", ".join(pluralize(n, rows.get(what, what.removesuffix("s"))) for what, n in self.checked.items())
        verdict = "ok" if self.ok else "not ok"
        lines.append(
            escape_line(
                f"{self.dataset}: {verdict}, {pluralize(self.errors, 'error')}, {pluralize(self.warnings, 'warning')}"
            )
            + (f" ({checked})" if checked else "")
        )
        return "\n".join(lines)


KEY = ["name", "frame"]


@dataclass
class View:
    """One member while it is checked; `fault` says why it could not be read."""

    name: str
    key: Key | None
    kind: str
    sensor: Sensor | None
    data: bytes
    fault: str
    row: Mapping[str, Any] | None
    """That of the frames table."""
    entry: zipfile.ZipInfo | None
    local: Entry | DatasetError | None
    """In a ZIP its local header, or why that cannot be read."""
    notes: dict[str, Any] = field(default_factory=dict)
    """Values that one rule read from the member and others need, too."""


class Subject:
    """The dataset under validation.  Raises DatasetError when its members cannot be listed."""

    def __init__(self, paths: DatasetPaths, limits: Limits = DEFAULT_LIMITS) -> None:
        self.paths, self._limits = paths, limits
        if not os.path.lexists(paths.members):
            raise DatasetError(f"{paths.members}: missing; without it the tables are not a dataset")
        self.container: Container = open_container(paths.members, limits)
        self.table_faults: list[tuple[str, str]] = []
        found = find_annotations(paths.arrow)
        self.annotations = self._open(open_annotations, found) if found else None
        self.frames = self._open(TableFile, paths.frames) if os.path.lexists(paths.frames) else None
        names = self.container.names
        self.members = list(zip(names, list_members(names, self._find_annotated), strict=True))
        self.starts: dict[int, int] = {}
        """Offset of the data by that of the local header, of the members that `views` has read."""
        self.samples: dict[Key, set[str]] = {}
        for _, member in self.members:
            if member:
                self.samples.setdefault(member[0], set()).add(member[1])

    @property
    def archive(self) -> Archive | None:
        """The ZIP; None for a folder."""
        return self.container if isinstance(self.container, Archive) else None

    @property
    def version(self) -> str:
        """Schema version of the annotations; that of 2026.04 for one that is not known."""
        said = schema.find_version(self.annotations.metadata, self.annotations.schema) if self.annotations else ""
        return said if said in schema.VERSIONS else schema.DEFAULT_VERSION

    def views(self) -> Iterator[View]:
        """Every member, read once; duplicates too."""
        archive, rows = self.archive, self.rows
        for number, (name, found) in enumerate(self.members):
            entry = archive.entries[number] if archive else None
            local = self.read_local(entry) if entry else None
            whole = local if isinstance(local, Entry) else None
            data, fault = b"", ""
            try:
                data = archive.read_entry(entry, whole) if archive and entry else self.container.read(name)
            except DatasetError as error:
                fault = str(error).removeprefix(f"{self.container.path}: {name!r}: ")
            key, kind = found or (None, "")
            sensor = find_by_kind(kind) if kind else None
            yield View(name, key, kind, sensor, data, fault, rows.get(key) if key else None, entry, local)

    def read_local(self, entry: zipfile.ZipInfo) -> Entry | DatasetError | None:
        """Return the local header of a member of the ZIP, or why it cannot be read."""
        try:
            local = self.archive.read_local(entry.header_offset) if self.archive else None
        except DatasetError as error:
            return error
        if local:
            self.starts[local.start] = local.data
        return local

    @cached_property
    def annotated(self) -> pl.DataFrame:
        """Rows of the annotations; `has_mask` and `has_polygon` show if it exists.

        Has all columns of the format, null where the table does not have them or in a type that no version has.
        """
        heavy = ("mask", "polygon")
        found = make_plain_frame(self.annotations, [c for c in schema.COLUMNS if c.name not in heavy])
        there = {name: self._find_filled(name) for name in heavy}
        return found.with_columns(pl.Series(f"has_{name}", flags, pl.Boolean) for name, flags in there.items())

    @cached_property
    def companions(self) -> list[str]:
        """Companions with columns in the frames table."""
        return schema.find_companions(self.frames.schema.names if self.frames else ())

    @cached_property
    def framed(self) -> pl.DataFrame:
        """Rows of the frames table, with the columns of the format as in `annotated`."""
        return make_plain_frame(self.frames, schema.list_frames_columns(self.companions).values())

    @cached_property
    def keys(self) -> pl.DataFrame:
        """Name and frame of every sample that has a member."""
        names, frames = zip(*self.samples, strict=True) if self.samples else ((), ())
        return pl.DataFrame({"name": names, "frame": frames}, schema={"name": pl.String, "frame": pl.Int64})

    @cached_property
    def compared(self) -> pl.DataFrame:
        """Rows of the annotations with timestamp, size and position of the frames table; only rows that it has."""
        known = self.framed.select(*KEY, "timestamp", "size", "latitude", "longitude").unique(KEY, keep="last")
        rows = self.annotated.select(*KEY, "timestamp", "size", "location")
        return rows.join(known, on=KEY, nulls_equal=True, maintain_order="left", suffix="_frames")

    def masks(self) -> Iterator[dict[str, Any]]:
        """Rows that have a mask as bytes: name, frame, label, object_id, box2d and mask."""
        kind = self._kinds().get("mask")
        if self.annotations is None or kind is None or not is_readable(kind, pa.large_binary()):
            return
        start, other = 0, self.annotated.select(*KEY, "label", "object_id", "box2d")
        for batch in self.annotations.batches():
            column, there = batch.column("mask"), is_valid(batch.column("mask"))
            rows = other[start : start + batch.num_rows].filter(pl.Series(there)).iter_rows(named=True)
            for place, row in zip(np.flatnonzero(there).tolist(), rows, strict=True):
                yield {**row, "mask": column[place].as_py()}
            start += batch.num_rows

    def rings(self, *, apart: bool) -> Iterator[pl.DataFrame]:
        """Name, frame and `ring` of every ring of polygons, batch by batch.

        `apart`: also the rings of a mask of 2025.10, which NaN separates; else it is as one ring.
        """
        kinds, start = self._kinds(), 0
        wanted = {"polygon": schema.POLYGON, "mask": schema.MASK_AS_POLYGON}
        names = [name for name, kind in wanted.items() if name in kinds and is_readable(kinds[name], kind)]
        for batch in self.annotations.batches() if self.annotations and names else ():
            keys = self.annotated.select(KEY)[start : start + batch.num_rows]
            start += batch.num_rows
            for name in names:
                column = batch.column(name)
                if not is_valid(column).any():
                    continue
                if name == "mask" and apart:
                    column = split(cast_values(column, schema.MASK_AS_POLYGON))
                nested = name == "polygon" or apart
                kind = pl.List(pl.List(pl.Float64)) if nested else pl.List(pl.Float64)
                rings = pl.Series("ring", pl.from_arrow(column)).cast(kind, strict=False)
                found = keys.with_columns(rings).filter(pl.col("ring").list.len() > 0)
                yield found.explode("ring", empty_as_null=False) if nested else found

    def read_metadata(self, key: str) -> Any:
        """Return file metadata of the annotations as JSON; None if absent (TAB005)."""
        return parse(self.annotations.metadata.get(key, "null")) if self.annotations else None

    @cached_property
    def frames_metadata(self) -> dict[str, Any]:
        """File metadata of the frames table that are JSON (FRM002)."""
        found = self.frames.metadata if self.frames else {}
        values = {key: parse_metadata(text) for key, text in found.items()}
        return {key: value for key, value in values.items() if value is not found[key]}

    @property
    def categories(self) -> dict[str, int]:
        """{name: id} of `category_metadata`, those that have an id."""
        found = self.read_metadata("category_metadata")
        known = found.items() if isinstance(found, dict) else ()
        return {name: one["id"] for name, one in known if isinstance(one, dict) and type(one.get("id")) is int}

    def _kinds(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self.annotations.schema} if self.annotations else {}

    def _find_filled(self, name: str) -> NDArray[np.bool_]:
        """Return which rows have a value of a column that can be read."""
        kind = self._kinds().get(name)
        known = [column.type for column in schema.COLUMNS if column.name == name]
        if self.annotations is None or kind is None or not any(is_readable(kind, wanted) for wanted in known):
            return np.zeros(self.annotations.rows if self.annotations else 0, bool)
        flags = [is_valid(batch.column(name)) for batch in self.annotations.batches()]
        return np.concatenate([np.zeros(0, bool), *flags])

    def _open(self, opener: Callable[[Path, Limits], TableFile], path: Path) -> TableFile | None:
        """A table whose rows can all be read, or None and a fault."""
        try:
            return opener(path, self._limits).check_rows()
        except DatasetError as error:
            self.table_faults.append((path.name, str(error).removeprefix(f"{path}: ")))
            return None

    def _find_annotated(self) -> set[Key]:
        return {read_key(row) for row in self.annotated.select(KEY).unique().iter_rows(named=True)}

    @cached_property
    def rows(self) -> dict[Key, dict[str, Any]]:
        """{sample: what members are compared with in its row of the frames table}, the last of several."""
        wanted = ("timestamp", "size", "latitude", "longitude")
        columns = [n for n in self.framed.columns if n in wanted or n.endswith(("_timestamp", "_size"))]
        return {read_key(row): row for row in self.framed.select(*KEY, *columns).iter_rows(named=True)}


def parse(text: str) -> Any:
    """Return the value of JSON; None for invalid JSON, which other rules report."""
    return None if (value := parse_metadata(text)) is text else value


def read_key(row: dict[str, Any]) -> Key:
    """The sample of a row."""
    return Key(str(row.get("name")), row.get("frame"))


def read_position(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """The position of a row of the frames table."""
    place = row["latitude"], row["longitude"]
    return None if None in place else place


def place_of(row: dict[str, Any] | Key) -> str:
    """The sample of a row, in words."""
    key = row if isinstance(row, Key) else read_key(row)
    return key.name if key.frame is None else f"{key.name} frame {key.frame}"


def list_places(
    frame: pl.DataFrame,
    bad: pl.Expr,
    say: str | Callable[[dict[str, Any]], str],
    place: str | Callable[[dict[str, Any]], str] = place_of,
) -> Iterator[tuple[str, str] | int]:
    """Yield place and message of rows that break a rule, and of further ones than KEPT their number.

    `say` and `place`: a text with columns of the row in braces, or a function of the row.
    """
    rows = frame.filter(bad)
    tell = [one if callable(one) else one.format_map for one in (place, say)]
    for row in rows.head(KEPT).iter_rows(named=True):
        yield tell[0](row), tell[1](row)
    if len(rows) > KEPT:
        yield len(rows) - KEPT


def make_plain_frame(table: TableFile | None, columns: Iterable[schema.Column]) -> pl.DataFrame:
    """Return columns as text, Int64, Float64 and lists of these, null where a table has no readable one.

    Other rules report columns of a type that no version has; their values have no meaning.
    """
    kinds = {field.name: field.type for field in table.schema} if table else {}
    wanted: dict[str, pl.DataType] = {}
    readable = []
    for column in columns:
        name, kind = column.name, kinds.get(column.name)
        wanted.setdefault(name, pl.UInt64() if name == "label_index" else _choose_plain_type(column.type))
        if kind is not None and is_readable(kind, column.type):
            readable.append(name)
    found: dict[str, pl.Series] = {}
    for values in _read_columns(table, readable) if table and readable else ():
        is_struct = isinstance(values.dtype, pl.Struct)
        with suppress(pl.exceptions.PolarsError):
            found[values.name] = values if is_struct else values.cast(wanted[values.name], strict=False)
    length = table.rows if table else 0
    none = (pl.repeat(None, length, dtype=kind, eager=True).alias(name) for name, kind in wanted.items())
    return pl.DataFrame([found.get(empty.name, empty) for empty in none])


def _read_columns(table: TableFile, names: Sequence[str]) -> list[pl.Series]:
    """Return the columns that polars can read: all at once, or one by one where it cannot read one of them."""
    with suppress(DatasetError):
        return table.frame(names).get_columns()
    return [column for name in names for column in _read_columns(table, [name])] if len(names) > 1 else []


def _choose_plain_type(kind: pa.DataType) -> pl.DataType:
    if is_list(kind):
        return pl.List(_choose_plain_type(kind.value_type))
    return {"integer": pl.Int64(), "float": pl.Float64(), "struct": pl.Null()}.get(_name_form(kind), pl.String())


def is_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """True if both are one type to a reader: how lengths and offsets are stored makes no difference.

    A struct may have further fields, as `timing` may.
    """
    return _fits(found, wanted, exact=True)


def is_readable(found: pa.DataType, wanted: pa.DataType) -> bool:
    """True if values of one are values of the other after a conversion.

    Text and categories, integers of any width, floats of any width, lists and arrays, more or fewer fields of a struct.
    """
    return _fits(found, wanted, exact=False)


def _fits(found: pa.DataType, wanted: pa.DataType, *, exact: bool) -> bool:
    forms = {_name_form(found), _name_form(wanted)}
    if forms == {"struct"}:
        fields = {field.name: field.type for field in found}
        kinds = ((fields.get(field.name), field.type) for field in wanted)
        return all(not exact if own is None else _fits(own, kind, exact=exact) for own, kind in kinds)
    if forms <= {"array", "list"} and (len(forms) == 1 or not exact):
        sizes = {kind.list_size for kind in (found, wanted) if pa.types.is_fixed_size_list(kind)}
        return len(sizes) < 2 and _fits(found.value_type, wanted.value_type, exact=exact)
    if forms == {"category"}:
        return _fits(found.value_type, wanted.value_type, exact=True)
    loose = pa.types.is_null(found) or forms in ({"text", "category"}, {"integer"}, {"float"})
    return (loose and not exact) or forms in ({"text"}, {"binary"}) or bool(found == wanted)


def _name_form(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "binary"
    if types.is_list(kind) or types.is_large_list(kind):
        return "list"
    if types.is_integer(kind) or types.is_boolean(kind):
        return "integer"
    others = {"category": types.is_dictionary, "array": types.is_fixed_size_list, "struct": types.is_struct}
    found = {**others, "float": types.is_floating}
    return next((form for form, holds in found.items() if holds(kind)), str(kind))
