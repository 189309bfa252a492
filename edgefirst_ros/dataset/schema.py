# SPDX-License-Identifier: Apache-2.0
"""The tables of a dataset, described once: columns, types and metadata of every schema version.

Metadata of a frames table are checked by one model for all readers, and given by sequence: calibration, clock, counts;
datasets of earlier versions state them of only the whole.

Source: EdgeFirst Annotation Schema 2026.04, "Complete Polars Schema" and "File-Level Metadata"; EdgeFirst Dataset
Format, "Annotation Schema" (2025.01). Versions are compared as text, as the vendor's document says.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.sensors.calibration import WORDS, find_frames, judge
from edgefirst_ros.streams import CAMERA, SENSORS, Sensor, find_by_column, find_by_columns, find_by_kind

VERSIONS = ("2025.01", "2025.10", "2026.04", "2026.10")
"""All that can be read; files of the first two name no version, and `find_version` tells them apart."""
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


class Column(NamedTuple):
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
    Column("box2d", pa.list_(_F32, 4)),
    Column("box2d_score", _F32, since="2026.04"),
    Column("box3d", pa.list_(_F32, 6)),
    Column("box3d_score", _F32, since="2026.04"),
    Column("iscrowd", pa.uint8(), since="2025.10", until="2025.10"),
    Column("iscrowd", pa.bool_(), since="2026.04"),
    Column("ignore", pa.bool_(), since="2026.10"),
    Column("category_frequency", CATEGORY, since="2026.04"),
    Column("size", pa.list_(_U32, 2), "sample", since="2025.10"),
    Column("location", pa.list_(_F64, 2), "sample", until="2025.01"),
    Column("location", pa.list_(_F32, 2), "sample", since="2025.10"),
    Column("pose", pa.list_(_F64, 3), "sample", until="2025.01"),
    Column("pose", pa.list_(_F32, 3), "sample", since="2025.10"),
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


def list_columns(version: str) -> dict[str, Column]:
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


def find_nearest_version(stated: str) -> str:
    """Return the known version whose rules hold for a file that states `stated`: itself, or the last before it."""
    return max((version for version in VERSIONS if version <= stated), default=UNNAMED_VERSION)


def find_version(metadata: Mapping[str, str], fields: pa.Schema) -> str:
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


def order_metadata(version: str, given: Mapping[str, str | None], columns: Collection[str]) -> dict[str, str]:
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
    stated = (
        not has_metadata(find_nearest_version(metadata.get("schema_version", UNNAMED_VERSION)))
        or "box3d_axes" in metadata
    )
    return own and "box3d" in names and not stated


def get_pose_order(version: str) -> tuple[str, str, str]:
    """Return the order of the angles of `pose`, degrees."""
    return ("yaw", "pitch", "roll") if version in ("2025.10", "2026.04") else ("roll", "pitch", "yaw")


def get_location_order(version: str) -> tuple[str, str]:
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


def find_companions(columns: Iterable[str]) -> list[str]:
    """Return the companions that have columns among those of a frames table, by the beginning of their columns."""
    return [sensor.column for sensor in find_by_columns(columns) if sensor.column]


def list_companion_columns(sensor: Sensor) -> dict[str, Column]:
    """Return the columns of a companion in the frames table by name."""
    listed = [Column(f"{sensor.column}_{what}", _I64, "sample") for what in ("timestamp", "skew")]
    listed += [Column(sensor.size_column, pa.list_(_U32, 2), "sample")] if sensor.form == "camera" else []
    return {column.name: column for column in listed}


def list_frames_columns(companions: Sequence[str] = DEFAULT_COMPANIONS) -> dict[str, Column]:
    """Return the columns of NAME.frames.arrow by name; a table has those of the pose only if filled."""
    listed = [
        Column("name", TEXT, "identity", nullable=False),
        Column("frame", _U32, "identity", nullable=False),
        Column("timestamp", _I64, "identity", nullable=False),
        Column("latitude", _F64, "sample"),
        Column("longitude", _F64, "sample"),
        Column("altitude", _F64, "sample"),
        Column("orientation", pa.list_(_F64, 4), "sample"),  # x, y, z, w
        Column("pose_position", pa.list_(_F64, 3), "sample"),  # m in pose_frame
        Column("pose_orientation", pa.list_(_F64, 4), "sample"),  # x, y, z, w
        Column("size", pa.list_(_U32, 2), "sample"),  # width, height
        *(column for base in companions for column in list_companion_columns(find_by_column(base)).values()),
        Column("keyframe", pa.bool_(), "sample"),
        Column("segment", _U32, "sample"),
        Column(MODEL_TIMESTAMP, _I64, "sample"),
    ]
    return {column.name: column for column in listed}


def choose_working_type(described: Column) -> pa.DataType:
    """Return the type of a column on its way from one file to another: plain text for categories."""
    return TEXT if described.is_category else described.type


WORKING = {**list_columns(VERSIONS[-1]), **{column.name: column for column in FURTHER}}
"""Columns in memory, for all versions that are read or written; `pose` is [yaw, pitch, roll] here."""


def make_arrow_schema(described: dict[str, Column]) -> pa.Schema:
    """Return the Arrow schema of a table, without metadata."""
    return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in described.values()])


def make_journal_schema(described: dict[str, Column]) -> pa.Schema:
    """Return the same with plain text for categories: a stream cannot know them before its end."""
    return pa.schema([pa.field(c.name, choose_working_type(c), nullable=c.nullable) for c in described.values()])


# ---- metadata of the frames table --------------------------------------------------------------
SEQUENCES = "sequences"
"""Key of the metadata."""
REFERENCE = "reference"
"""Key of the reference topic among the topics of a sequence; companions have the names of their columns."""
MODEL, WITHOUT_STAMPS = "model", ("model_mask", "boxes3d")
"""Keys of the model's topics beside them; columns do not show the messages of its masks and 3D boxes."""
LEFT_OUT = "left_out"
"""Key of the recordings that could not be converted: [{"file", "size", "why"}]."""
CALIBRATION = ("camera_info", "static_transforms")
POSE = ("pose_frame", "pose_source")
"""Keys that only sequences with poses have."""
CAMERA_INFOS = "camera_infos"
"""Key of the CameraInfo of other cameras of a rig, by their keys; only if it has any."""
UNUSED, LACKING = "unused_topics", "missing"
"""Keys of usable topics without a role, and of keys of the rig without a topic; only if it has any."""
SOME = (LEFT_OUT, *POSE, CAMERA_INFOS, UNUSED, LACKING, "namespace")
"""Keys that only some datasets have."""
KNOWN = (*FRAMES_METADATA, *POSE, CAMERA_INFOS, UNUSED, LACKING, "sequences", "merged", "left_out")
"""Keys that are checked; others may have any value."""
DEEPEST = 64
MOST_SHOWN = 80
"""Characters of an invalid value that a message shows."""


class SequenceCalibration(NamedTuple):
    """Calibration of one sequence; that of another sequence is never used for it."""

    camera_info: Any
    """frame_id, width, height, distortion_model, d, k, r, p as in sensor_msgs/CameraInfo, pixels; None: unknown."""
    static_transforms: Any
    """[{"parent", "child", "translation": [x, y, z] m, "rotation": [x, y, z, w]}]."""
    calibration: str
    """`given`, `identity` (a placeholder: transforms without rotation) or `missing`."""
    camera_infos: Mapping[str, Any] = MappingProxyType({})
    """The same of each other camera of the rig, by its key: `camera.left`."""
    sensor_frames: Mapping[str, str] = MappingProxyType({})
    """{sensor: its frame}, where that is not `lidar` or `radar`."""

    def info_of(self, camera: str) -> Any:
        """Return the CameraInfo of a camera.

        Args:
            camera: Its key, such as `camera.left`.

        Returns:
            As `camera_info`; None if unknown.
        """
        return self.camera_info if camera == CAMERA.key else self.camera_infos.get(camera)


def parse_frames_metadata(path: Path, stored: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of the frames table at `path` as plain values; text that is not a JSON stays text.

    Raises DatasetError naming the first of `KNOWN` that has not the form of the format.
    """
    found = {key: parse_metadata(text) for key, text in stored.items()}
    for key, what in find_faults(found):
        raise DatasetError(f"{path}: metadata {key}: {what}")
    return found


def find_faults(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, the fault) for metadata that have not the form of the format."""
    if not found.keys() & {*KNOWN}:
        return
    from pydantic import ValidationError

    from edgefirst_ros.dataset.frames_forms import FramesMetadata

    for key in KNOWN:
        if key not in found:
            continue
        if _is_deep(found[key]):
            yield key, f"nested more than {DEEPEST} times"
            continue
        try:
            FramesMetadata.model_validate({key: found[key]})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(ascii(str(step))[1:-1][:MOST_SHOWN] for step in first["loc"][1:])
            text = ascii(first["input"])
            shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
            yield key, f"{place + ': ' if place else ''}found {shown}, {first['msg'].lower()}"


def parse_metadata(text: str) -> Any:
    """Return the JSON value of a text of metadata, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def combine_sequences(sequences: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return what all sequences have in common of calibration and source of poses, and notes of differences.

    Values that differ become None.
    """
    common: dict[str, Any] = {}
    notes = []
    some = [key for key in (*POSE, CAMERA_INFOS) if any(of.get(key) is not None for of in sequences.values())]
    for key in (*CALIBRATION, *some):
        values = [known.get(key) for known in sequences.values()]
        agreed = all(repr(value) == repr(values[0]) for value in values)
        common[key] = values[0] if values and agreed else None
        if not agreed:
            notes.append(f"the sequences differ in {key}: each has its own in the metadata, under {SEQUENCES}")
    return common, notes


def unite_topics(sequences: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the unused topics and the missing keys of all sequences, each once."""
    unused = {of["topic"]: of for known in sequences.values() for of in known.get(UNUSED) or ()}
    missing = sorted({key for known in sequences.values() for key in known.get(LACKING) or ()})
    return {**({UNUSED: list(unused.values())} if unused else {}), **({LACKING: missing} if missing else {})}


def select_sequence(
    metadata: Mapping[str, Any], name: str, names: Collection[str], kinds: Collection[str]
) -> dict[str, Any]:
    """Return the metadata of one sequence; from earlier versions only the values certain to belong to it.

    `names`: all sequences that have samples; `kinds`: of the members this one has. Raises DatasetError where it is
    not as the format says.
    """
    stored = metadata.get(SEQUENCES)
    if stored is None:
        return _derive_metadata(metadata, name, names, kinds)
    known = stored.get(name, {}) if isinstance(stored, dict) else None
    if not isinstance(known, dict):
        raise DatasetError(f"the metadata {SEQUENCES} cannot be read: expected facts of {name!r}, found {known!r:.80}")
    return {**known, "calibration": _check_word(known, kinds)}


def _check_word(known: Mapping[str, Any], kinds: Collection[str]) -> str:
    said = known.get("calibration")
    if isinstance(said, str) and said in WORDS:
        return said
    frames = find_frames({find_by_kind(kind).key for kind in kinds}, known.get("sensor_frames") or {})
    return judge(known.get("camera_info"), known.get("static_transforms"), frames)


def _derive_metadata(
    metadata: Mapping[str, Any], name: str, names: Collection[str], kinds: Collection[str]
) -> dict[str, Any]:
    """Return metadata from the keys of the whole dataset, where it has no other sequence."""
    base, sources = metadata.get("time_base"), metadata.get("sources")
    bases = base.get(SEQUENCES) if isinstance(base, dict) else None
    several = bool({*names, *(bases if isinstance(bases, dict) else ())} - {name})
    whole = {} if several else metadata
    known = {key: whole.get(key) for key in CALIBRATION}
    return {
        "sources": list(range(len(sources))) if isinstance(sources, list) and not several else [],
        **known,
        "calibration": _check_word(known, kinds),
        "time_base": bases.get(name) if isinstance(bases, dict) else base,
        "topics": {},
        "counts": whole.get("counts"),
    }


def _is_deep(value: Any, left: int = DEEPEST) -> bool:
    if not isinstance(value, dict | list):
        return False
    return not left or any(_is_deep(one, left - 1) for one in (value.values() if isinstance(value, dict) else value))
