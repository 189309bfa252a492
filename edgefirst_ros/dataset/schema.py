# SPDX-License-Identifier: Apache-2.0
"""The tables of a dataset, described once: columns, types and metadata of every schema version.

Source: EdgeFirst Annotation Schema 2026.04, "Complete Polars Schema" and "File-Level Metadata"; EdgeFirst Dataset
Format, "Annotation Schema" (2025.01). Versions are compared as text, as the vendor's document says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.streams import SENSORS, Sensor, of_column, of_columns

VERSIONS = ("2025.01", "2025.10", "2026.04", "2026.10")
"""All that can be read; files of the first two name no version, and `stated_version` shows them apart."""
WRITABLE = ("2025.10", "2026.04", "2026.10")
DEFAULT_VERSION = "2026.04"
FIRST_VERSION, UNNAMED_VERSION = "2025.01", "2025.10"
"""The versions of files without `schema_version`."""

Level = Literal["identity", "sample", "annotation"]

# The large variants are the types of polars in memory: reading does not convert them.
TEXT = pa.large_string()
CATEGORY = pa.dictionary(pa.uint32(), TEXT)
MASK_AS_POLYGON = pa.large_list(pa.float32())
POLYGON = pa.large_list(pa.large_list(pa.float32()))
INDICES = pa.large_list(pa.uint32())
TIMING = pa.struct([(field, pa.int64()) for field in ("load", "preprocess", "inference", "decode")])


def array(kind: pa.DataType, length: int) -> pa.DataType:
    """Return the type of an array of `length` values (polars: Array)."""
    return pa.list_(kind, length)


@dataclass(frozen=True)
class Column:
    """One column of one range of schema versions (`until` is the last that has it)."""

    name: str
    type: pa.DataType
    level: Level = "annotation"
    since: str = VERSIONS[0]
    until: str = VERSIONS[-1]
    nullable: bool = True

    @property
    def is_category(self) -> bool:
        """True if it is stored as a dictionary of texts (polars: Categorical or Enum)."""
        return bool(pa.types.is_dictionary(self.type))


_F32, _F64, _U32, _I64 = pa.float32(), pa.float64(), pa.uint32(), pa.int64()

COLUMNS = (
    Column("name", CATEGORY, "identity", until="2025.01", nullable=False),
    Column("name", TEXT, "identity", since="2025.10", nullable=False),
    Column("frame", pa.uint64(), "identity", until="2025.01"),
    Column("frame", _U32, "identity", since="2025.10"),
    Column("object_id", TEXT, since="2025.10"),
    Column("label", CATEGORY),
    Column("label_index", pa.uint64(), since="2025.10"),
    Column("group", CATEGORY, "sample"),
    Column("polygon", POLYGON, since="2026.04"),
    Column("polygon_score", _F32, since="2026.04"),
    Column("mask", MASK_AS_POLYGON, until="2025.10"),
    Column("mask", pa.large_binary(), since="2026.04"),
    Column("mask_score", _F32, since="2026.04"),
    Column("box2d", array(_F32, 4)),
    Column("box2d_score", _F32, since="2026.04"),
    Column("box3d", array(_F32, 6)),
    Column("box3d_score", _F32, since="2026.04"),
    Column("iscrowd", pa.uint8(), since="2025.10", until="2025.10"),
    Column("iscrowd", pa.bool_(), since="2026.04"),
    Column("ignore", pa.bool_(), since="2026.10"),
    Column("category_frequency", CATEGORY, since="2026.04"),
    Column("size", array(_U32, 2), "sample", since="2025.10"),
    Column("location", array(_F64, 2), "sample", until="2025.01"),
    Column("location", array(_F32, 2), "sample", since="2025.10"),
    Column("pose", array(_F64, 3), "sample", until="2025.01"),
    Column("pose", array(_F32, 3), "sample", since="2025.10"),
    Column("degradation", CATEGORY, "sample", until="2025.01"),
    Column("degradation", TEXT, "sample", since="2025.10"),
    Column("status", CATEGORY, until="2025.01"),
    Column("neg_label_indices", INDICES, "sample", since="2025.10"),
    Column("not_exhaustive_label_indices", INDICES, "sample", since="2025.10"),
    Column("timing", TIMING, since="2026.04"),
    Column("timestamp", _I64, "identity", since="2025.10"),  # our own further column, nanoseconds since the epoch
)

FURTHER = (
    Column("exclude", pa.bool_()),
    Column("truncation", _U32),
    Column("occlusion", _U32),
    Column("status", CATEGORY),
)
"""Columns that other tools add to some files: carried along as they are in every version, never filled here."""

ALIASES = {"object_reference": "object_id"}
"""Older names of columns."""

GEOMETRY = ("polygon", "mask", "box2d", "box3d")
"""A row without a label and without any of these represents a sample without annotations."""


def columns(version: str) -> dict[str, Column]:
    """Return the columns of one version by name, in the order of the format. Raises KeyError for an unknown version."""
    if version not in VERSIONS:
        raise KeyError(version)
    return {column.name: column for column in COLUMNS if column.since <= version <= column.until}


class MetadataKey(NamedTuple):
    """One key of the file metadata of the annotations; all values are text."""

    name: str
    default: str | None
    """Value of an absent key."""
    values: tuple[str, ...] = ()
    """Allowed values; empty: any."""
    written: str | None = None
    """Value written for annotations made here."""
    column: str | None = None
    """The key is written only if this column is filled."""
    since: str = "2026.04"


OWN_SOFTWARE = ("edgefirst_ros", "edgefirst-ros")
"""Names under which this software states itself in the frames table."""
BOX3D_AXES = "FLU"
"""Axes of `box3d`: x forward, y left, z up."""

METADATA = (
    MetadataKey("schema_version", UNNAMED_VERSION),
    MetadataKey("box2d_format", "cxcywh", ("cxcywh", "xyxy", "ltwh"), "cxcywh", "box2d"),
    MetadataKey("box2d_normalized", "true", ("true", "false"), "true", "box2d"),
    MetadataKey("box3d_format", "cxcyczwhl", ("cxcyczwhl",), "cxcyczwhl", "box3d"),
    MetadataKey("box3d_normalized", "true", ("true", "false"), "false", "box3d"),  # metres
    MetadataKey("box3d_axes", BOX3D_AXES, (BOX3D_AXES,), BOX3D_AXES, "box3d"),
    MetadataKey("box3d_frame", None, column="box3d"),
    MetadataKey("mask_interpretation", "binary", ("binary", "confidence", "sigmoid", "logits"), "binary", "mask"),
    MetadataKey("category_metadata", None),
    MetadataKey("labels", None),
)


def nearest(stated: str) -> str:
    """Return the known version whose rules hold for a file that states `stated`: itself, or the last before it."""
    return max((version for version in VERSIONS if version <= stated), default=UNNAMED_VERSION)


def stated_version(metadata: Mapping[str, str], fields: pa.Schema) -> str:
    """Return the version that a table states, else that of its columns: a `location` of Float64 is the first format's.

    There `location` is [longitude, latitude] and `pose` [roll, pitch, yaw].
    """
    place = fields.get_field_index("location")
    kind = fields.field(place).type if place >= 0 else pa.null()
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    first = listed and pa.types.is_float64(kind.value_type)
    return metadata.get("schema_version", FIRST_VERSION if first else UNNAMED_VERSION)


def has_metadata(version: str) -> bool:
    """True if files of this version carry file metadata."""
    return any(key.since <= version for key in METADATA)


def stated(version: str, given: Mapping[str, str | None], columns: Collection[str]) -> dict[str, str]:
    """Return file metadata in the order of the format: as given, else as they are written here; None stays out.

    Those about a column that is not in `columns` stay out too.
    """
    own = has_metadata(version)
    every = {key.name: key.written if own else None for key in METADATA} | dict(given)
    left_out = {key.name for key in METADATA if key.column is not None and key.column not in columns}
    return {name: value for name, value in every.items() if value is not None and name not in left_out}


def check_writable(file: Path, version: str, metadata: Mapping[str, str], columns: Collection[str]) -> None:
    """Raise DatasetError if a table has a version or conventions (box layout, orders) that are not written here."""
    wrong = "" if version in WRITABLE else f"schema {version} cannot be written; known: {', '.join(WRITABLE)}"
    for key in METADATA:
        found = metadata.get(key.name, key.default)
        said = key.column in columns and (has_metadata(version) or key.name in metadata)
        if said and key.written not in (None, found):
            wrong = wrong or f"{key.name} is {found}, only {key.written} is written"
    if wrong:
        raise DatasetError(f"{file}: {wrong}; convert the annotations with edgefirst-ros migrate")


def lacks_axes(names: Collection[str], metadata: Mapping[str, Any], software: Any) -> bool:
    """Return True for a table of an earlier version of this software: its `box3d` is in a sensor's optical axes.

    Args:
        names: columns of the annotations.
        metadata: their file metadata.
        software: metadata `software` of the frames table beside it.
    """
    own = isinstance(software, Mapping) and software.get("name") in OWN_SOFTWARE
    stated = not has_metadata(nearest(metadata.get("schema_version", UNNAMED_VERSION))) or "box3d_axes" in metadata
    return own and "box3d" in names and not stated


def pose_order(version: str) -> tuple[str, str, str]:
    """Return the order of the angles of `pose`, degrees."""
    return ("yaw", "pitch", "roll") if version in ("2025.10", "2026.04") else ("roll", "pitch", "yaw")


def location_order(version: str) -> tuple[str, str]:
    """Return the order of the coordinates of `location`, degrees."""
    return ("longitude", "latitude") if version == "2025.01" else ("latitude", "longitude")


DEFAULT_COMPANIONS = tuple(sensor.column for sensor in SENSORS if sensor.column and sensor.default)
"""Sensors with a stamp and a skew in every frames table, by the beginning of their columns."""

MODEL_TIMESTAMP = "model_timestamp"
"""Frames column: stamp of the model result of a frame, ns; null if the model did not process it.

Earlier versions do not have it."""
POSE_COLUMNS = ("pose_position", "pose_orientation")
"""Frames columns that a table has only if they are filled."""
LATER = (MODEL_TIMESTAMP, *POSE_COLUMNS)
"""Optional frames columns of a table: earlier versions do not have them."""

FRAMES_METADATA = ("sources", "configuration", "software", "time_base", "camera_info", "static_transforms", "counts")
"""Keys of the metadata of the frames table; the values are JSON."""


def companions_of(columns: Iterable[str]) -> list[str]:
    """Return the companions that have columns among those of a frames table, by the beginning of their columns."""
    return [sensor.column for sensor in of_columns(columns) if sensor.column]


def companion_columns(sensor: Sensor) -> dict[str, Column]:
    """Return the columns of a companion in the frames table by name."""
    listed = [Column(f"{sensor.column}_{what}", _I64, "sample") for what in ("timestamp", "skew")]
    listed += [Column(sensor.size_column, array(_U32, 2), "sample")] if sensor.form == "camera" else []
    return {column.name: column for column in listed}


def frames_columns(companions: Sequence[str] = DEFAULT_COMPANIONS) -> dict[str, Column]:
    """Return the columns of NAME.frames.arrow by name; a table has those of the pose only if filled."""
    listed = [
        Column("name", TEXT, "identity", nullable=False),
        Column("frame", _U32, "identity", nullable=False),
        Column("timestamp", _I64, "identity", nullable=False),
        Column("latitude", _F64, "sample"),
        Column("longitude", _F64, "sample"),
        Column("altitude", _F64, "sample"),
        Column("orientation", array(_F64, 4), "sample"),  # x, y, z, w
        Column("pose_position", array(_F64, 3), "sample"),  # m in pose_frame
        Column("pose_orientation", array(_F64, 4), "sample"),  # x, y, z, w
        Column("size", array(_U32, 2), "sample"),  # width, height
        *(column for base in companions for column in companion_columns(of_column(base)).values()),
        Column("keyframe", pa.bool_(), "sample"),
        Column("segment", _U32, "sample"),
        Column(MODEL_TIMESTAMP, _I64, "sample"),
    ]
    return {column.name: column for column in listed}


def working(described: Column) -> pa.DataType:
    """Return the type of a column on its way from one file to another: plain text for categories."""
    return TEXT if described.is_category else described.type


WORKING = {**columns(VERSIONS[-1]), **{column.name: column for column in FURTHER}}
"""Columns in memory, for all versions that are read or written; `pose` is [yaw, pitch, roll] here."""


def arrow_schema(described: dict[str, Column]) -> pa.Schema:
    """Return the Arrow schema of a table, without metadata."""
    return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in described.values()])


def journal_schema(described: dict[str, Column]) -> pa.Schema:
    """Return the same with plain text for categories: a stream cannot know them before its end."""
    return pa.schema([pa.field(c.name, working(c), nullable=c.nullable) for c in described.values()])
