# SPDX-License-Identifier: Apache-2.0
"""Reads annotations of any file format, schema version and types into rows of one shape."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.tables.arrow_file import TableFile, to_polars
from edgefirst_ros.dataset.tables.json_form import LAYOUT, NestedFile
from edgefirst_ros.dataset.tables.values import (
    LAYOUTS,
    Tally,
    cast_values,
    fix_arrays,
    fix_lengths,
    is_list,
    is_text,
    is_valid,
    read_numbers,
    split,
    strip_broken_rings,
)
from edgefirst_ros.errors import DatasetError, UsageError, explain_errors
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import polars as pl

LOCATION_ORDERS: dict[str, tuple[str, ...]] = {
    "lat-lon": ("latitude", "longitude"),
    "lon-lat": ("longitude", "latitude"),
}
POSE_ORDERS: dict[str, tuple[str, ...]] = {
    "yaw-pitch-roll": ("yaw", "pitch", "roll"),
    "roll-pitch-yaw": ("roll", "pitch", "yaw"),
}
JSON_SUFFIX = ".json"
FIRST_FORMAT = (
    "without schema_version, and location is Float64: read as the first format, location as longitude, latitude "
    "and pose as roll, pitch, yaw"
)
_VERSION = re.compile(r"\d{4}\.\d{2}")


class TableSource(Protocol):
    """An open file of annotations, as stored."""

    schema: pa.Schema
    metadata: dict[str, str]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""


class Annotations:
    """Annotations in working types (`schema.WORKING`), with further columns of the file after them.

    `version`: that stated or recognised; `metadata`: file metadata, text by key; `schema`, `columns`: those of the
    file; `separated`: whether polygons come as lists with NaN between rings; `orders`: those of `location` and `pose`
    in the file, where it does not name them; `tally`: unreadable values, counted during the first pass of `batches`.
    Boxes stay as `layout` and `normalised` say; `location` is [latitude, longitude], `pose` [yaw, pitch, roll].
    """

    def __init__(
        self,
        path: Path,
        location_order: str | None = None,
        pose_order: str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        source: TableSource | None = None,
    ) -> None:
        """`source`: rows instead of those of the file at `path`, which messages name."""
        for what, said, known in (("location", location_order, LOCATION_ORDERS), ("pose", pose_order, POSE_ORDERS)):
            if said is not None and said not in known:
                raise UsageError(f"--{what}-order: expected one of {', '.join(known)}, got {said!r}")
        self.path = path
        self.tally = Tally()
        self.nested = source is None and path.suffix.lower() == JSON_SUFFIX
        self._file: TableSource = source or (NestedFile(path, self.tally) if self.nested else TableFile(path, limits))
        self.metadata = dict(self._file.metadata)
        self.version = self._version()
        near = schema.find_nearest_version(self.version)
        self.orders: dict[str, tuple[str, ...]] = {}
        if not self.nested:  # nested files name latitude and longitude, yaw and roll
            self.orders["location"] = LOCATION_ORDERS.get(location_order or "", schema.get_location_order(near))
            self.orders["pose"] = POSE_ORDERS.get(pose_order or "", schema.get_pose_order(near))
        self._sources = self._plan()
        self.separated = any(name == "polygon" and source == "mask" for name, (source, _) in self._sources.items())
        listed = {name: column for name, (_, column) in self._sources.items()}
        rank = {name: number for number, name in enumerate(schema.WORKING)}
        self.columns = dict(sorted(listed.items(), key=lambda item: rank.get(item[0], len(rank))))
        self.schema = schema.make_journal_schema(self.columns)

    @property
    def layout(self) -> str:
        """Layout of `box2d`. Raises DatasetError for an unknown one."""
        said: str = self.metadata.get("box2d_format", LAYOUT if self.nested else LAYOUTS[0])
        if said not in LAYOUTS:
            raise DatasetError(f"{self.path}: box2d_format is {said!r}, must be one of {', '.join(LAYOUTS)}")
        return said

    @property
    def normalised(self) -> bool:
        """True if `box2d` is normalised to the picture, False if in pixels. Raises DatasetError as `layout`."""
        said = self.metadata.get("box2d_normalized", "true")
        if said not in ("true", "false"):
            raise DatasetError(f"{self.path}: box2d_normalized is {said!r}, must be true or false")
        return bool(said == "true")

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows, of some columns or all. Raises DatasetError naming the column that cannot be read."""
        names = list(self.columns) if columns is None else list(columns)
        wanted = self.schema_of(names)
        for batch in self._file.batches():
            yield pa.record_batch([self._read(batch, name) for name in names], schema=wanted)

    def schema_of(self, columns: Sequence[str]) -> pa.Schema:
        """Return what batches of these columns have."""
        return schema.make_journal_schema({name: self.columns[name] for name in columns})

    def frame(self) -> pl.DataFrame:
        """Return all rows. Raises as `batches`."""
        return to_polars(self.path, pa.Table.from_batches(list(self.batches()), self.schema))

    def _version(self) -> str:
        """Return the version that the file states, else the one that its columns show."""
        said: str | None = self.metadata.get("schema_version")
        if said is not None and not _VERSION.fullmatch(said):
            self.tally.add_note(f"schema_version is {said!r}, must be like 2026.04: passed over")
            said = None
        if said is not None:
            if said not in schema.VERSIONS:
                near = schema.find_nearest_version(said)
                self.tally.add_note(
                    f"schema_version {said} is not known: read by the rules of {near}, as far as they go"
                )
            return said
        if isinstance(self._file, NestedFile):
            if not self._file.bare:
                self.tally.add_note("no schema_version: an object with samples is 2026.04")
            return schema.UNNAMED_VERSION if self._file.bare else schema.DEFAULT_VERSION
        if schema.find_version({}, self._file.schema) == schema.FIRST_VERSION:
            self.tally.add_note(FIRST_FORMAT)
            return schema.FIRST_VERSION
        types = {field.name: field.type for field in self._file.schema}
        if "polygon" in types or (
            "mask" in types and not is_list(types["mask"]) and not pa.types.is_null(types["mask"])
        ):
            self.tally.add_note("no schema_version: masks or polygons are those of 2026.04")
            return "2026.04"
        return schema.UNNAMED_VERSION

    def _plan(self) -> dict[str, tuple[str, schema.Column]]:
        """Return for each column that is given which one of the file it is read from."""
        found: dict[str, tuple[str, schema.Column]] = {}
        for field in self._file.schema:
            name = schema.ALIASES.get(field.name, field.name)
            if name == "mask" and is_list(field.type):
                name = "polygon"
            if name in found:
                raise DatasetError(f"{self.path}: columns {found[name][0]!r} and {field.name!r} both hold {name}")
            known = schema.WORKING.get(name)
            if known is not None and name == "timing" and pa.types.is_struct(field.type):
                # After the known fields those that no version knows: new ones do not break readers.
                fields = {one.name: one.type for one in known.type}
                new = [f for f in field.type if f.name not in fields]
                more = [pa.field(f.name, schema.TEXT if is_text(f.type) else _convert_further(f).type) for f in new]
                known = known._replace(type=pa.struct([*known.type, *more]))
            found[name] = (field.name, known or _convert_further(field))
        if "name" not in found:
            raise DatasetError(f"{self.path}: has no column 'name', so it holds no annotations")
        return found

    def _read(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        source, column = self._sources[name]
        kind = schema.choose_working_type(column)
        with explain_errors(f"{self.path}: column {source!r}", DatasetError, pa.ArrowException, ValueError):
            array = self._convert_column(batch[source], name, kind)
        if array.null_count and not column.nullable:
            row = pc.index(pc.is_null(array), True).as_py()
            raise DatasetError(
                f"{self.path}: column {source!r} is null in row {row} of {batch.num_rows}; it must not be"
            )
        return array

    def _convert_column(self, array: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
        if pa.types.is_fixed_size_list(kind) and name in schema.WORKING:
            array, bad = fix_arrays(array, kind)
            self.tally.lose(f"{name}: not {kind.list_size} finite numbers", bad)
            turned = self.orders.get(name, ("",))[0] in ("longitude", "roll")
            return fix_lengths(read_numbers(array)[:, ::-1], is_valid(array), array.type) if turned else array
        if name == "polygon":
            separated = is_list(array.type) and not is_list(array.type.value_type)
            array = split(cast_values(array, schema.MASK_AS_POLYGON)) if separated else cast_values(array, kind)
            array, bad = strip_broken_rings(array)
            self.tally.lose("polygon: rings that are odd, under three points or not finite", bad)
            return array
        array = cast_values(array, kind)
        if name in schema.WORKING and name.endswith("_score"):
            fits = pc.fill_null(pc.and_(pc.greater_equal(array, 0), pc.less_equal(array, 1)), False)
            bad = int((is_valid(array) & ~fits.to_numpy(zero_copy_only=False)).sum())
            if bad:
                self.tally.lose(f"{name}: outside 0..1", bad)
                array = pc.if_else(fits, array, pa.scalar(None, kind))
        return array


def read_annotations(
    path: Path | str, location_order: str | None = None, pose_order: str | None = None, limits: Limits = DEFAULT_LIMITS
) -> Annotations:
    """Open NAME.arrow, NAME.parquet or NAME.json (the suffix .json says which it is; the others begin differently).

    `location_order` ("lat-lon", "lon-lat") and `pose_order` ("yaw-pitch-roll", "roll-pitch-yaw") state the orders in
    a file that differs from its version. Raises DatasetError for a file that holds no annotations, UsageError for an
    unknown order.
    """
    return Annotations(Path(path), location_order, pose_order, limits)


def _convert_further(field: pa.Field) -> schema.Column:
    """Return a column that no version knows, with a type that can be written again."""
    kind = field.type
    if is_text(kind):
        return schema.Column(field.name, schema.CATEGORY if pa.types.is_dictionary(kind) else schema.TEXT)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return schema.Column(field.name, pa.large_binary() if pa.types.is_binary_view(kind) else kind)
