# SPDX-License-Identifier: Apache-2.0
"""Reads datasets: samples with the wanted inputs, by random access without unpacking.

Source: EdgeFirst Dataset Format, "Dataset Storage Format" and "Annotation Schema".
"""

from __future__ import annotations

import io
import operator
import os
import random
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import INPUT_OF, BySensor, Inputs, Key, input_name, inputs_of_kinds, list_members
from edgefirst_ros.dataset.objects.location import is_remote
from edgefirst_ros.dataset.opening import open_files
from edgefirst_ros.dataset.query import (
    annotating,
    keys_of,
    matching,
    rows_by_key,
    sorted_rows,
    with_all_columns,
    with_frames,
    without_broken_rings,
)
from edgefirst_ros.dataset.repeats import repeats_of, stamp_columns
from edgefirst_ros.dataset.sequences import SequenceCalibration, calibration_of, frames_metadata, of_sequence, parsed
from edgefirst_ros.dataset.tables.arrow_file import annotation_path, open_annotations
from edgefirst_ros.errors import (
    DatasetError,
    EdgeFirstError,
    UsageError,
    counted,
    describe_foreign,
    nearest_first,
    text_of,
)
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.streams import keys_named, of_key, of_kind, with_column

if TYPE_CHECKING:
    import polars as pl

    from edgefirst_ros.dataset.tables.arrow_file import TableFile
    from edgefirst_ros.sensors.cube import Cube

MAX_PIXELS = 1 << 26
"""Pictures of more pixels are refused (an 8K picture has 2**25)."""
MAX_SCANNED = 1 << 30
"""A JPEG of more pixels times scans is refused: a scan of a few bytes goes over all of them."""
START_OF_SCAN = b"\xff\xda"


def decode_image(data: bytes) -> NDArray[np.uint8]:
    """Return (height, width, 3) uint8 RGB of a JPEG or PNG. Raises DatasetError."""
    import simplejpeg
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise DatasetError(f"{width} x {height} pixels, more than {MAX_PIXELS}")
            if picture.format == "JPEG" and data.count(START_OF_SCAN) * width * height > MAX_SCANNED:
                raise DatasetError(f"{data.count(START_OF_SCAN)} scans of {width} x {height} pixels")
            if picture.format == "JPEG" and picture.mode in ("RGB", "L"):
                pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, colorspace="RGB")
                return pixels
            return np.array(picture.convert("RGB"))
    except DatasetError:
        raise
    except Exception as error:  # whatever the libraries raise on bad bytes
        raise DatasetError(f"not a readable picture: {text_of(error)}") from error


T = TypeVar("T")


class Position(NamedTuple):
    """Position of a sample: latitude and longitude in degrees (WGS-84), altitude in m (None: unknown)."""

    latitude: float
    longitude: float
    altitude: float | None


@dataclass(frozen=True, repr=False)
class Sample:
    """One sample: a frame of the reference topic with the messages of all other sensors.

    Every access decodes again, and you may change the arrays. An access to a missing or broken member raises
    DatasetError; an unknown input raises UsageError.
    """

    dataset: Dataset
    """The dataset it belongs to."""
    key: Key
    """Name of the sequence and frame number."""

    def __repr__(self) -> str:
        inputs = ", ".join(sorted(self.inputs))
        return f"<Sample {self.name!r} frame {self.frame} of {self.dataset.container.path}: {inputs}>"

    @property
    def name(self) -> str:
        """Name of the sequence."""
        return self.key.name

    @property
    def frame(self) -> int | None:
        """Frame number; None for a picture that does not belong to a sequence."""
        return self.key.frame

    @property
    def inputs(self) -> Inputs:
        """Sensors that it has, by key, such as `camera` and `radar.cube`; `in` takes their other names too."""
        return Inputs(self.dataset.sensors[kind] for kind in self.dataset.members(self.key))

    @property
    def repeats(self) -> Inputs:
        """Sensors whose message the sample before, of the same sequence, has too."""
        return Inputs(self.dataset.repeats.get(self.key, frozenset()) & self.inputs)

    @property
    def row(self) -> Mapping[str, Any]:
        """The row of the frames table by column; empty without one."""
        number = self.dataset.frame_rows.get(self.key)
        frames = self.dataset.frames
        return {} if number is None or frames is None else frames.row(number, named=True)

    @property
    def timestamp(self) -> int | None:
        """Stamp, ns since the epoch; None without a frames table."""
        return self.row.get("timestamp")

    @property
    def position(self) -> Position | None:
        """Position, interpolated at the stamp of the sample; None if unknown."""
        row = self.row
        latitude, longitude = row.get("latitude"), row.get("longitude")
        return None if latitude is None or longitude is None else Position(latitude, longitude, row.get("altitude"))

    @property
    def calibration(self) -> SequenceCalibration:
        """Calibration of its sequence: `camera_info`, `static_transforms`, and their quality, `calibration`."""
        return self.dataset.calibration(self.name)

    @property
    def skew(self) -> dict[str, int]:
        """{sensor: its stamp minus that of the sample, ns}; `[]`, `in` and `get` take other names of a sensor too."""
        row = self.row
        skews = {sensor.key: row.get(f"{sensor.column}_skew") for sensor in with_column()}
        return BySensor({key: value for key, value in skews.items() if value is not None})

    @property
    def annotations(self) -> pl.DataFrame:
        """Annotations of the sample, columns as in `Dataset.annotations`; no rows without any."""
        table, rows = self.dataset.annotation_rows
        start, count = rows.get(self.key, (0, 0))
        return table.slice(start, count)

    def member(self, kind: str) -> str:
        """Return the name of a member.

        Args:
            kind: An input such as `camera`, or a kind such as `camera.jpeg`.

        Returns:
            Name in the container.

        Raises:
            DatasetError: The sample has no such member.
            UsageError: The input is unknown.
        """
        return self.dataset.members(self.key)[self._kind(kind)]

    def _kind(self, kind: str) -> str:
        """Return the kind of member that holds an input."""
        members = self.dataset.members(self.key)
        for candidate in (kind,) if kind in INPUT_OF else self.dataset.kinds_of(kind):
            if candidate in members:
                return candidate
        raise DatasetError(f"{self.dataset.container.path}: frame {self.frame} of {self.name!r} has no {kind}")

    def read(self, kind: str) -> bytes:
        """Return the bytes of a member as stored.

        Args:
            kind: An input or a kind.

        Returns:
            The bytes.

        Raises:
            DatasetError: The member is missing or damaged.
            UsageError: The input is unknown.
        """
        return self.dataset.container.read(self.member(kind))

    def image(self) -> NDArray[np.uint8]:
        """Return the camera picture.

        Returns:
            (height, width, 3) uint8 RGB, rows as stored.

        Raises:
            DatasetError: The picture is missing or cannot be decoded.
        """
        return self._decoded("camera", decode_image)

    def cube(self, rows: int = 1, columns: int = 1) -> Cube:
        """Return the radar cube.

        Args:
            rows: Number of range bins of a picture that does not describe itself.
            columns: Number of Doppler bins of such a picture.

        Returns:
            The cube with its axes and scales.

        Raises:
            DatasetError: The cube is missing or cannot be decoded.
        """
        from edgefirst_ros.sensors.cube import decode_cube

        return self._decoded("radar.cube", partial(decode_cube, rows=rows, columns=columns))

    def decode(self, kind: str) -> Any:
        """Decode the member of an input by the codec of its sensor.

        Args:
            kind: An input or a kind.

        Returns:
            A cube, points (N,), the camera picture (height, width, 3) uint8 RGB, or another picture (height, width).

        Raises:
            DatasetError: The member is missing or cannot be decoded.
            UsageError: The input is unknown.
        """
        from edgefirst_ros.sensors.companions import decode

        found = of_kind(self._kind(kind))
        return self.image() if found.form == "camera" else self._decoded(kind, partial(decode, found.key))

    def radar(self) -> NDArray[np.void]:
        """Return the radar points.

        Returns:
            Structured array (N,), or (height, width) if organised, with x, y and z in m in the sensor's frame.

        Raises:
            DatasetError: The points are missing or cannot be decoded.
        """
        return self._decoded("radar", _points)

    def lidar(self) -> NDArray[np.void]:
        """Return the lidar points.

        Returns:
            Structured array (N,), or (height, width) if organised, with x, y and z in m in the sensor's frame.

        Raises:
            DatasetError: The points are missing or cannot be decoded.
        """
        return self._decoded("lidar", _points)

    def _decoded(self, kind: str, decode: Callable[[bytes], T]) -> T:
        data = self.read(kind)
        try:
            return decode(data)
        except EdgeFirstError as error:
            raise DatasetError(f"{self.dataset.container.path}: {self.member(kind)!r}: {error}") from error


def _points(data: bytes) -> NDArray[np.void]:
    """Return the points of a PCD file; (height, width) if organised."""
    from edgefirst_ros.sensors.cloud import decode_grid

    points = decode_grid(data)
    return points if len(points) > 1 else points.reshape(-1)


class Samples(Sequence[Sample]):
    """Some samples of a dataset in some order, and a map-style dataset of PyTorch.

    It has a length, indices and slices, can be pickled, and can be shared by threads. A member is read when you
    access
    it.

    Args:
        dataset: The dataset.
        keys: Sequence and frame number of each sample.
    """

    def __init__(self, dataset: Dataset, keys: Sequence[Key]) -> None:
        self.dataset, self._keys = dataset, keys

    def __repr__(self) -> str:
        return f"<{len(self._keys)} of the {counted(len(self.dataset), 'sample')} of {self.dataset.container.path}>"

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> Samples: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Sample | Samples:
        """Return the sample at an index, negative from the end, or the `Samples` of a slice. Raises IndexError."""
        if isinstance(index, slice):
            return Samples(self.dataset, self._keys[index])
        return Sample(self.dataset, self._keys[operator.index(index)])

    def __iter__(self) -> Iterator[Sample]:
        return (Sample(self.dataset, key) for key in self._keys)

    def shuffle(self, seed: int = 0) -> Samples:
        """Return the samples in a random order, which depends only on their number and the seed.

        Args:
            seed: Seed of the order.

        Returns:
            The samples in another order.
        """
        keys = list(self._keys)
        random.Random(seed).shuffle(keys)  # noqa: S311  an order, no secret
        return Samples(self.dataset, keys)

    def where(self, expression: pl.Expr) -> Samples:
        """Return the samples for which a polars expression is true, in the same order.

        Args:
            expression: Condition on columns of the frames table. If it names columns of the annotations, it must
                hold for
                one annotation of the sample.

        Returns:
            The matching samples.

        Raises:
            UsageError: A column is unknown, or the result is not one Boolean for each row.
        """
        return Samples(self.dataset, _where(self.dataset, self._keys, expression))


def select(
    dataset: Dataset,
    keys: Sequence[Key],
    inputs: str | Collection[str] | None,
    label: str | Collection[str] | None,
    group: str | None,
    score: float | None,
    annotated: bool | None,
    model: bool | None,
    repeats: bool,
) -> list[Key]:
    """Return the `keys` that match the arguments of `Dataset.samples`, in their order. Raises UsageError."""
    named = [inputs] if isinstance(inputs, str) else list(inputs or ())
    kinds = [frozenset(dataset.kinds_of(name)) for name in named]
    found = [key for key in keys if all(kind & dataset.members(key).keys() for kind in kinds)]
    if (label, group, score) != (None, None, None):
        metadata = dataset.metadata if label is not None else {}
        rows = matching(dataset.annotations, dataset.paths.arrow, metadata, label, group, score)
        found = [key for key in found if key in rows]
    if annotated is not None:
        there = dataset.annotation_rows[1]
        found = [key for key in found if (key in there) == annotated]
    if model is not None:
        looked = _looked(dataset)
        found = [key for key in found if (key in looked) == model]
    if not repeats:
        wanted = {dataset.sensors[kind] for kind in (frozenset().union(*kinds) if named else INPUT_OF)}
        found = [key for key in found if not dataset.repeats.get(key, frozenset()) & wanted]
    return found


def _looked(dataset: Dataset) -> Collection[Key]:
    """Return the samples that the model processed."""
    frames = dataset.frames
    if frames is None or schema.MODEL_TIMESTAMP not in frames.columns:
        return ()
    looked = frames[schema.MODEL_TIMESTAMP].is_not_null().to_list()
    return {key for key, row in dataset.frame_rows.items() if looked[row]}


def _where(dataset: Dataset, keys: Sequence[Key], expression: pl.Expr) -> list[Key]:
    import polars as pl

    if not isinstance(expression, pl.Expr):
        raise UsageError(f"expected an expression such as polars.col('latitude') > 45, got {type(expression).__name__}")
    table, path = dataset.frames, dataset.paths.frames
    named = dict.fromkeys(expression.meta.root_names())
    if table is None or not named.keys() <= set(table.columns):
        table, path = with_frames(dataset.annotations, dataset.frames, dataset.paths), dataset.paths.arrow
    for name in named:
        if name not in table.columns:
            raise UsageError(f"unknown column {name!r}; known: {nearest_first(name, table.columns)}")
    try:
        asked = table.select(expression.alias("asked"))["asked"]
        if asked.dtype == pl.Boolean and len(asked) in (1, table.height):
            return _kept(keys, table.filter(asked if len(asked) == table.height else pl.lit(asked[0])), path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise UsageError(f"the expression cannot be asked of the rows: {describe_foreign(error)}") from error
    raise UsageError(f"expected one Boolean for each row, the expression gives {len(asked)} of type {asked.dtype}")


def _kept(keys: Sequence[Key], rows: pl.DataFrame, path: Path) -> list[Key]:
    there = {Key(name, frame) for name, frame in keys_of(rows, path).iter_rows()}
    return [key for key in keys if key in there]


class Dataset(Sequence[Sample]):
    """A dataset: a sequence of samples, and a map-style dataset of PyTorch.

    `dataset[3]`, `dataset[10:20]` and `for sample in dataset` work. Threads may share it, and it can be pickled.
    `Dataset("s3://BUCKET/NAME.zip")` reads a ZIP in a bucket in place, with credentials of the environment.

    Args:
        path: OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow, in either layout, also of other tools.
        limits: Largest table and ZIP that is read.

    Raises:
        DatasetError: A file or member cannot be read, is a link, overlaps another member, or exceeds the limits.
    """

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> None:
        opened = open_files(path, limits)
        self.paths, self.limits, self.container = opened.paths, limits, opened.container
        self._annotation_file, self._frames_file = opened.annotations, opened.frames
        self._members: dict[Key, dict[str, str]] = {}
        names = self.container.names
        for name, member in zip(names, list_members(names, self._annotated), strict=True):
            if member:
                self._members.setdefault(member[0], {}).setdefault(member[1], name)
        self._order = self._ordered()

    def __reduce__(self) -> tuple[partial[Dataset], tuple[Path]]:
        path = self.paths.container if self.paths.layout == "zip" else self.paths.folder
        return partial(Dataset, limits=self.limits), (path,)

    def __repr__(self) -> str:
        return f"<Dataset {self.container.path}: {counted(len(self), 'sample')}>"

    def __len__(self) -> int:
        """Samples that have at least one member."""
        return len(self._order)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> Samples: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Sample | Samples:
        """Return the sample at an index, negative from the end, or the `Samples` of a slice. Raises IndexError."""
        return Samples(self, self._order)[index]

    def __iter__(self) -> Iterator[Sample]:
        return iter(Samples(self, self._order))

    @property
    def sequences(self) -> list[str]:
        """Names of the sequences, in the order of the samples."""
        return list(dict.fromkeys(key.name for key in self._order))

    @cached_property
    def sensors(self) -> dict[str, str]:
        """{kind of member: key of its sensor}."""
        return inputs_of_kinds(self._frames_file.schema.names if self._frames_file else ())

    def kinds_of(self, name: str) -> tuple[str, ...]:
        """Return the kinds of members of a sensor.

        Args:
            name: Any name of the sensor, such as `lidar.points` or `lidar`.

        Returns:
            Kinds such as `lidar.pcd`; empty if the members belong to another sensor.

        Raises:
            UsageError: The name is unknown.
        """
        kinds = of_key(input_name(name)).kinds
        return tuple(kind for kind in kinds if self.sensors[kind] in keys_named(name))

    @property
    def table_files(self) -> tuple[TableFile | None, TableFile | None]:
        """The open files of annotations and frames, wherever they are; None where there is none."""
        return self._annotation_file, self._frames_file

    @cached_property
    def annotations(self) -> pl.DataFrame:
        """All rows of NAME.arrow (else NAME.parquet, NAME.json), with every column of their version of the schema.

        Columns that nobody filled are null; `annotation_columns` are those of the file. Values are as stored, but for
        rings that are odd, under three points or not finite: they are dropped, with a warning. JSON is as the Arrow
        file of its version would be. No rows where there is no such file.
        """
        import polars as pl

        if not self._annotation_file:
            return with_all_columns(pl.DataFrame(schema={"name": pl.String}), schema.DEFAULT_VERSION)
        table, broken = without_broken_rings(self._annotation_file.frame())
        if broken:
            warnings.warn(f"{self._annotation_file.path}: {counted(broken, 'broken ring')} dropped", stacklevel=3)
        version = schema.stated_version(self._annotation_file.metadata, self._annotation_file.schema)
        return with_all_columns(table, schema.nearest(version))

    @property
    def annotation_columns(self) -> list[str]:
        """Names of the columns of `annotations` that the file has, in file order."""
        return list(self._annotation_file.schema.names) if self._annotation_file else []

    def write_annotations(
        self,
        annotations: pl.DataFrame,
        *,
        categories: Mapping[str, Mapping[str, Any]] | None = None,
        keep_as: str | None = None,
        dry_run: bool = False,
    ) -> Path | None:
        """Replace NAME.arrow by other annotations; the file is replaced when the new one is complete on the disk.

        Missing columns become null, and columns of your own are kept. Values of the sample (group, size, location
        and so
        on) keep their old value where they are null. Labels without an index get that of their name.

        Args:
            annotations: Rows with `name`, `frame` and columns as in `Dataset.annotations`.
            categories: {label: {"id": index, ...}}, which replaces all known facts about labels.
            keep_as: Ending under which the old file is kept.
            dry_run: Only check the rows.

        Returns:
            Path of the old file, or None.

        Raises:
            UsageError: A row does not have the form of the format.
            DatasetError: The annotations cannot be replaced.
            StorageError: The disk is full or refuses.
        """
        from edgefirst_ros.dataset.annotate import Written, write_annotations

        if is_remote(self.paths.container):
            raise DatasetError(f"{self.paths.arrow}: is read in place; fetch the dataset to write to it")
        frames, stamps = self.frames, None
        if frames is not None and {"timestamp", "frame"} <= set(frames.columns):
            stamps = [sample.timestamp for sample in self]
        before = Written(self.paths, self.limits, self._order, stamps, self.annotations)
        kept = write_annotations(before, annotations, categories, keep_as, dry_run=dry_run)
        for name in ("annotations", "annotation_rows", "metadata"):
            self.__dict__.pop(name, None)
        found = annotation_path(self.paths.arrow)
        self._annotation_file = open_annotations(found, self.limits) if found else None
        return kept

    @cached_property
    def frames(self) -> pl.DataFrame | None:
        """All rows of NAME.frames.arrow; None for a dataset without it."""
        return self._frames_file.frame() if self._frames_file else None

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """File metadata of both tables: `schema_version` and its like as text or parsed JSON, `counts` and so on.

        Raises DatasetError where those of the frames have not the form of the format.
        """
        found: dict[str, Any] = {
            key.name: key.default
            for key in schema.METADATA
            if key.default is not None and (key.column is None or key.column in self.annotation_columns)
        }
        if self._annotation_file:
            for key, value in self._annotation_file.metadata.items():
                found[key] = parsed(value) if key in ("labels", "category_metadata") else value
        if self._frames_file:
            found |= frames_metadata(self.paths.frames, self._frames_file.metadata)
        return found

    @property
    def lacks_axes(self) -> bool:
        """True if an earlier version wrote its `box3d`, in the optical axes of a sensor; `migrate` turns them."""
        stated = self._annotation_file.metadata if self._annotation_file else {}
        return schema.lacks_axes(self.annotation_columns, stated, self.metadata.get("software"))

    def samples(
        self,
        inputs: str | Collection[str] | None = None,
        *,
        label: str | Collection[str] | None = None,
        group: str | None = None,
        score: float | None = None,
        annotated: bool | None = None,
        model: bool | None = None,
        repeats: bool = True,
    ) -> Samples:
        """Return the samples that have all `inputs` and match every condition, in the order of the frames table.

        Args:
            inputs: One or several sensors by any of their names: camera, radar.cube, radar.targets (or radar),
                lidar.points (or lidar), lidar.depth, lidar.reflect, depth.
            label: Label of an annotation of the sample, or several labels.
            group: Group of the sample, such as train.
            score: Lowest score of that annotation, 0 to 1.
            annotated: True: samples with annotations; False: samples without.
            model: True: samples that the model processed, also without detections; False: the others.
            repeats: False: drop samples that repeat the message of one of `inputs`; without `inputs`, of any sensor.

        Returns:
            A sequence of samples; a member is read when you access it.

        Raises:
            UsageError: An input, label or group is unknown, or the score is outside 0..1.
        """
        chosen = select(self, self._order, inputs, label, group, score, annotated, model, repeats)
        return Samples(self, chosen)

    def sample(self, sequence: str, frame: int | None) -> Sample:
        """Return one sample.

        Args:
            sequence: Name of the sequence.
            frame: Frame number.

        Returns:
            The sample.

        Raises:
            DatasetError: The dataset has no such frame.
        """
        key = Key(sequence, frame)
        if key not in self._members:
            raise DatasetError(f"{self.container.path}: has no frame {frame} of sequence {sequence!r}")
        return Sample(self, key)

    def calibration(self, sequence: str) -> SequenceCalibration:
        """Return the calibration of a sequence.

        Args:
            sequence: Name of the sequence.

        Returns:
            CameraInfo, static transforms, and their quality.

        Raises:
            DatasetError: The metadata do not have the form of the format.
        """
        return calibration_of(self.sequence_facts(sequence))

    def sequence_facts(self, sequence: str) -> dict[str, Any]:
        """Return the metadata of a sequence: sources, camera_info, time_base, counts and so on.

        Args:
            sequence: Name of the sequence.

        Returns:
            {key: value}; for datasets of earlier versions only what certainly belongs to this sequence.

        Raises:
            DatasetError: The metadata do not have the form of the format.
        """
        kinds = {kind for key, members in self._members.items() if key.name == sequence for kind in members}
        try:
            return of_sequence(self.metadata, sequence, self.sequences, kinds)
        except DatasetError as error:
            raise DatasetError(f"{self.paths.frames}: {error}") from None

    def members(self, key: Key) -> Mapping[str, str]:
        """Return the members of a sample.

        Args:
            key: Sequence and frame number, `sample.key`.

        Returns:
            {kind: member name}.
        """
        return self._members[key]

    @cached_property
    def frame_rows(self) -> dict[Key, int]:
        """{sample: row index in `frames`}, the first of several."""
        return rows_by_key(self._frames_file) if self._frames_file else {}

    @cached_property
    def annotation_rows(self) -> tuple[pl.DataFrame, dict[Key, tuple[int, int]]]:
        """The annotations sorted by sample, and {sample: (first row, number of rows)}."""
        return sorted_rows(annotating(self.annotations), self.paths.arrow)

    @cached_property
    def repeats(self) -> dict[Key, frozenset[str]]:
        """{sample: inputs whose message the sample before has too}, only samples with such inputs."""
        if self._frames_file is None:
            return {}
        there = stamp_columns(self._frames_file.schema.names)
        values = self._frames_file.values(list(there.values()))
        return repeats_of({name: values[column] for name, column in there.items()}, self._order, self.frame_rows)

    def _annotated(self) -> Collection[Key]:
        return rows_by_key(self._annotation_file).keys() if self._annotation_file else ()

    def _ordered(self) -> list[Key]:
        plain = sorted(self._members, key=lambda key: (key.name, -1 if key.frame is None else key.frame))
        if self._frames_file is None:
            return plain
        listed = dict.fromkeys(key for key in self.frame_rows if key in self._members)
        rank = {name: n for n, name in enumerate(dict.fromkeys(key.name for key in listed))}
        merged = [*listed, *(key for key in plain if key not in listed)]
        return sorted(merged, key=lambda key: rank.setdefault(key.name, len(rank)))
