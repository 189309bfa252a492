# SPDX-License-Identifier: Apache-2.0
"""Reads datasets: samples with the wanted inputs, by random access without unpacking.

Source: EdgeFirst Dataset Format, "Dataset Storage Format" and "Annotation Schema".
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from edgefirst_ros.dataset import query, schema
from edgefirst_ros.dataset.lazy import pl
from edgefirst_ros.dataset.names import (
    DatasetPaths,
    Key,
    find_input,
    find_instances,
    list_members,
    locate,
    map_kinds,
    order_of,
)
from edgefirst_ros.dataset.objects.location import Location, is_remote
from edgefirst_ros.dataset.objects.places import LIST, get_one_place, is_glob
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.dataset.query import Samples
from edgefirst_ros.dataset.remote_archive import SUFFIXES, open_objects
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.dataset.schema import SequenceCalibration, parse_frames_metadata, parse_metadata, select_sequence
from edgefirst_ros.dataset.storage.zip_read import Archive, Container, Loop, open_container
from edgefirst_ros.dataset.tables.arrow_file import TableFile, find_annotations, open_annotations
from edgefirst_ros.errors import DatasetError, UsageError, describe_any, explain_errors, pluralize, sort_nearest
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.streams import find_by_key, list_keys, stamp_columns

if TYPE_CHECKING:
    from typing_extensions import Self

Named: TypeAlias = "str | os.PathLike[str]"
"""A path, or the URI of a bucket."""
CONDITIONS = ("label", "group", "score", "annotated", "model", "repeats", "sequence")


class Dataset(Samples):
    """A dataset: a sequence of samples with the methods of `Samples`, and a map-style dataset of PyTorch.

    `dataset[3]`, `dataset[10:20]` and `for sample in dataset` work. Threads may share it, and it can be pickled.
    `Dataset("s3://BUCKET/NAME.zip")` reads a ZIP in a bucket in place, with credentials of the environment.
    A list of names, a folder, a glob, a prefix of a bucket or the folder of a fleet opens all datasets there as one,
    without a merge; so does `a + b`.

    Args:
        path: OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow, in either layout, also of other tools.
        more: Further datasets, as one with the first.
        limits: Largest table and ZIP that is read, an `edgefirst_ros.limits.Limits`.

    Raises:
        DatasetError: A file or member cannot be read, is a link, overlaps another member, or exceeds the limits.
    """

    def __new__(
        cls, path: Named | Iterable[Named | Dataset] = (), *more: Named, limits: Limits = DEFAULT_LIMITS
    ) -> Self:
        """Choose the class: one dataset, or several as one."""
        if cls is Dataset and (more or is_several(path)):
            from edgefirst_ros.dataset.several import Datasets

            return cast("Self", object.__new__(Datasets))
        return object.__new__(cls)

    def __init__(self, path: Named | Iterable[Named | Dataset], *more: Named, limits: Limits = DEFAULT_LIMITS) -> None:
        self.paths, self.container, *tables = _open_files(cast("Named", path), limits)
        self.limits, (self._annotation_file, self._frames_file) = limits, tables
        self._members: dict[Key, dict[str, str]] = {}
        names = self.container.names
        for name, member in zip(names, list_members(names, self._find_annotated), strict=True):
            if member:
                self._members.setdefault(member[0], {}).setdefault(member[1], name)
        self._keys = self._order_keys()

    def __reduce__(self) -> tuple[partial[Dataset], tuple[Path]]:
        return partial(Dataset, limits=self.limits), (self.place,)

    def __fspath__(self) -> str:
        """Return its path: functions that take the path of a dataset take the dataset too."""
        return str(self.place)

    def __repr__(self) -> str:
        return f"<Dataset {self.title}: {pluralize(len(self), 'sample')}>"

    @property
    def place(self) -> Path:
        """Path that opens it again: its ZIP, or its folder."""
        return self.paths.container if self.paths.layout == "zip" else self.paths.folder

    @property
    def title(self) -> str:
        """The dataset in messages: its path."""
        return str(self.container.path)

    @property
    def parts(self) -> Sequence[Dataset]:
        """The datasets that it consists of; only itself for a single dataset."""
        return (self,)

    def __enter__(self) -> Self:
        """Return itself, for `with`; its files close with the last reference to it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: you may still use it."""

    def __add__(self, other: Samples) -> Samples:
        """Return both datasets as one, without a merge."""
        if isinstance(other, Dataset):
            return Dataset([*self.parts, *other.parts], limits=self.limits)
        return super().__add__(other) if isinstance(other, Samples) else NotImplemented

    @property
    def dataset(self) -> Dataset:
        """Itself: all samples are of it."""
        return self

    def _sample_of(self, key: Any) -> Sample:
        return Sample(self, key)

    def _iter_samples(self, keys: Sequence[Any]) -> Iterator[Sample]:
        """Yield the samples of keys; of a bucket the members that a loop reads are fetched some samples ahead."""
        loop = Loop()
        for place, key in enumerate(keys):
            self.container.expect(partial(self._upcoming, keys, place), loop)
            yield Sample(self, key)
        self.container.expect(None)

    def _upcoming(self, keys: Sequence[Key], place: int) -> Iterator[Mapping[str, str]]:
        return (self._members[keys[n]] for n in range(place, len(keys)))

    def _keys_where(
        self, keys: Sequence[Any], expression: pl.Expr, schemas: Sequence[Mapping[str, Any]] = ()
    ) -> list[Any]:
        """Return the keys for which an expression is true, as `Samples.where`.

        `schemas`: of the frames and of the annotations of all datasets that are asked; columns absent here are null.
        """
        table, path = self.frames, self.paths.frames
        named = dict.fromkeys(expression.meta.root_names())
        of_frames, of_rows = schemas or (table.schema if table is not None else {}, {})
        if table is None or not named.keys() <= of_frames.keys():
            table, path = self.to_polars(), self.paths.arrow
        if of_rows.get("mask") == pl.Binary:
            table = query.with_polygons(table)
        known = {**of_rows, **of_frames, **table.schema}
        query.check_known("column", named, known)
        table = table.with_columns(pl.lit(None, known[name]).alias(name) for name in named if name not in table.columns)
        try:
            asked = table.select(expression.alias("asked"))["asked"]
            if asked.dtype == pl.Boolean and len(asked) in (1, table.height):
                rows = table.filter(asked if len(asked) == table.height else pl.lit(asked[0]))
                there = {Key(name, frame) for name, frame in query.select_keys(rows, path).iter_rows()}
                return [key for key in keys if key in there]
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise UsageError(f"the expression cannot be evaluated: {describe_any(error)}") from error
        raise UsageError(
            f"expected one Boolean for each row, the expression returns {len(asked)} of type {asked.dtype}"
        )

    @property
    def sequences(self) -> list[str]:
        """Names of the sequences, in the order of the samples."""
        return list(dict.fromkeys(key.name for key in self._keys))

    @cached_property
    def sensors(self) -> dict[str, str]:
        """{kind of member: key of its sensor}."""
        return map_kinds(self._frames_file.schema.names if self._frames_file else ())

    def kinds_of(self, name: str) -> tuple[str, ...]:
        """Return the kinds of members of a sensor.

        Args:
            name: Any name of the sensor, such as `lidar.points` or `lidar`.

        Returns:
            Kinds such as `lidar.pcd`; empty if the members belong to another sensor.

        Raises:
            UsageError: The name is unknown.
        """
        kinds = find_by_key(find_input(name)).kinds
        return tuple(kind for kind in kinds if self.sensors[kind] in list_keys(name))

    @property
    def table_files(self) -> tuple[TableFile | None, TableFile | None]:
        """The open files of annotations and frames, wherever they are; None if absent."""
        return self._annotation_file, self._frames_file

    @cached_property
    def annotations(self) -> pl.DataFrame:
        """All rows of NAME.arrow (else NAME.parquet, NAME.json), with every column of their version of the schema.

        Columns without a value are null; `annotation_columns` are those of the file. Values are as stored, except that
        invalid rings of polygons are dropped, with a warning. JSON has the columns and types of an Arrow file of its
        version. Without such a file the table has no rows.
        """
        if not self._annotation_file:
            return query.with_all_columns(pl.DataFrame(schema={"name": pl.String}), schema.DEFAULT_VERSION)
        table, broken = query.without_broken_rings(self._annotation_file.frame())
        if broken:
            warnings.warn(f"{self._annotation_file.path}: {pluralize(broken, 'broken ring')} dropped", stacklevel=3)
        version = schema.find_version(self._annotation_file.metadata, self._annotation_file.schema)
        return query.with_all_columns(table, schema.find_nearest_version(version))

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

        Missing columns become null, and columns of your own stay. Values of the sample (group, size, location and so
        on) keep their old value where they are null. Labels without an index get that of their name.

        Args:
            annotations: Rows with `name`, `frame` and columns as in `Dataset.annotations`.
            categories: {label: {"id": index, ...}}, which replaces all known facts about labels.
            keep_as: Ending under which the old file stays; beside older ones with `.2`, `.3` and so on after it.
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
            raise DatasetError(f"{self.paths.arrow}: is in a bucket; download the dataset to change it")
        frames, stamps = self.frames, None
        if frames is not None and {"timestamp", "frame"} <= set(frames.columns):
            stamps = [sample.timestamp for sample in self]
        before = Written(self.paths, self.limits, self._keys, stamps, self.annotations)
        kept = write_annotations(before, annotations, categories, keep_as, dry_run=dry_run)
        for name in ("annotations", "annotation_rows", "first_annotations", "metadata"):
            self.__dict__.pop(name, None)
        found = find_annotations(self.paths.arrow)
        self._annotation_file = open_annotations(found, self.limits) if found else None
        return kept

    @cached_property
    def frames(self) -> pl.DataFrame | None:
        """All rows of NAME.frames.arrow; None for a dataset without it."""
        return self._frames_file.frame() if self._frames_file else None

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """File metadata of both tables, such as `schema_version` (text) and `counts` (parsed JSON).

        Raises DatasetError if those of the frames table are invalid.
        """
        found: dict[str, Any] = {
            key.name: key.default
            for key in schema.METADATA
            if key.default is not None and (key.column is None or key.column in self.annotation_columns)
        }
        if self._annotation_file:
            for key, value in self._annotation_file.metadata.items():
                found[key] = parse_metadata(value) if key in ("labels", "category_metadata") else value
        if self._frames_file:
            found |= parse_frames_metadata(self.paths.frames, self._frames_file.metadata)
        return found

    @property
    def lacks_axes(self) -> bool:
        """True if an earlier version wrote its `box3d`, in the optical axes of a sensor; `migrate` turns them."""
        stated = self._annotation_file.metadata if self._annotation_file else {}
        return schema.lacks_axes(self.annotation_columns, stated, self.metadata.get("software"))

    def samples(
        self,
        inputs: str | Collection[str] | None = None,
        *more: str,
        label: str | Collection[str] | None = None,
        group: str | Collection[str] | None = None,
        score: float | None = None,
        annotated: bool | None = None,
        model: bool | None = None,
        repeats: bool = True,
        sequence: str | Collection[str] | None = None,
        **unknown: NoReturn,
    ) -> Samples:
        """Return the samples that have all `inputs` and match every condition, in the order of the frames table.

        Args:
            inputs: One or several sensors by any of their names: camera, radar.cube, radar.targets (or radar),
                lidar.points (or lidar), lidar.depth, lidar.reflect, depth.
            more: Further sensors.
            label: Label of an annotation of the sample, or several labels.
            group: Group of the sample, such as train, or several groups.
            score: Lowest score of that annotation, 0 to 1.
            annotated: True: samples with annotations; False: samples without.
            model: True: samples that the model processed, also without detections; False: the others.
                In sequences without a model, samples with annotations count as processed.
            repeats: False: drop samples that repeat the message of one of `inputs`; without `inputs`, of any sensor.
            sequence: Name of the sequence, or of several.
            unknown: Refused by name.

        Returns:
            A sequence of samples; a member is read when you access it.

        Raises:
            UsageError: An input, label, group or sequence is unknown, or the score is outside 0..1.
        """
        query.check_known("argument", unknown, CONDITIONS)
        keys = self._keys
        if sequence is not None:
            sequences = query.list_names(sequence)
            query.check_known("sequence", sequences, self.sequences)
            keys = [key for key in keys if key.name in sequences]
        named = [*query.list_names(inputs), *more]
        instances = find_instances(named)
        query.check_known("sensor", instances, self._sensors_there() if instances else ())
        kinds = [frozenset(self.kinds_of(name)) for name in named]
        found = [key for key in keys if all(kind & self.members(key).keys() for kind in kinds)]
        if (label, group, score) != (None, None, None):
            metadata = self.metadata if label is not None else {}
            rows = query.find_matching(self.annotations, self.paths.arrow, metadata, label, group, score)
            found = [key for key in found if key in rows]
        if annotated is not None:
            there = self.annotation_rows[1]
            found = [key for key in found if (key in there) == annotated]
        if model is not None:
            looked = query.find_processed(self)
            found = [key for key in found if (key in looked) == model]
        if not repeats:
            wanted = {self.sensors[kind] for kind in frozenset().union(*kinds)}
            repeated = (self.repeats.get(key, frozenset()) for key in found)
            found = [key for key, of in zip(found, repeated, strict=True) if not (of & wanted if named else of)]
        return Samples(self, found)

    def _sensors_there(self) -> set[str]:
        return {self.sensors[kind] for kind in {kind for own in self._members.values() for kind in own}}

    @property
    def groups(self) -> dict[str, int]:
        """{group: number of samples}, sorted."""
        rows = self.annotations
        texts = rows.select("name", "frame", rows["group"].cast(str)).drop_nulls("group").unique(["name", "frame"])
        return dict(texts["group"].value_counts().sort("group").iter_rows())

    @property
    def labels(self) -> dict[str, int]:
        """{label: number of annotations}, sorted; labels that are listed only have 0."""
        found = dict.fromkeys(query.list_labels(self.metadata), 0)
        found |= dict(self.annotations["label"].drop_nulls().cast(str).value_counts().iter_rows())
        return dict(sorted(found.items()))

    def to_polars(self) -> pl.DataFrame:
        """Return one table: the annotations, each with the columns of its frame.

        Returns:
            A polars DataFrame.
        """
        return query.with_frames(self.annotations, self.frames, self.paths)

    def sample(self, sequence: str, frame: int | None = None) -> Sample:
        """Return one sample.

        Args:
            sequence: Name of the sequence.
            frame: Frame number.

        Returns:
            The sample.

        Raises:
            DatasetError: The dataset has no such frame.
        """
        key, part = Key(sequence, frame), self._with_sequence(sequence)
        if key not in part._members:
            known = sort_nearest(str(frame), (str(key.frame) for key in part._members if key.name == sequence))
            raise DatasetError(f"{part.title}: sequence {sequence!r} has no frame {frame!r}; known: {known}")
        return Sample(part, key)

    def _with_sequence(self, sequence: str) -> Dataset:
        for part in self.parts:
            if sequence in part.sequences:
                return part
        hint = "the property sequences lists them, dataset[0] is the first sample"
        raise DatasetError(f"{self.title}: has no sequence {sequence!r}; {hint}")

    def calibration(self, sequence: str) -> SequenceCalibration:
        """Return the calibration of a sequence.

        Args:
            sequence: Name of the sequence.

        Returns:
            CameraInfo, static transforms, and their quality.

        Raises:
            UsageError: The dataset has no such sequence.
            DatasetError: The metadata do not have the form of the format.
        """
        known = self.sequence_facts(sequence)
        infos, frames = known.get(schema.CAMERA_INFOS) or {}, known.get("sensor_frames") or {}
        transforms = known.get("static_transforms") or []
        return SequenceCalibration(known.get("camera_info"), transforms, known["calibration"], infos, frames)

    def sequence_facts(self, sequence: str) -> dict[str, Any]:
        """Return the metadata of a sequence: sources, camera_info, time_base, counts and so on.

        Args:
            sequence: Name of the sequence.

        Returns:
            {key: value}; for datasets of earlier versions only facts that certainly belong to this sequence.

        Raises:
            UsageError: The dataset has no such sequence.
            DatasetError: The metadata do not have the form of the format.
        """
        kinds = {kind for key, members in self._members.items() if key.name == sequence for kind in members}
        if not kinds and sequence not in {key.name for key in self.frame_rows}:
            query.check_known("sequence", [sequence], self.sequences)
        with explain_errors(str(self.paths.frames), DatasetError):
            return select_sequence(self.metadata, sequence, self.sequences, kinds)

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
        return query.map_rows(self._frames_file) if self._frames_file else {}

    @cached_property
    def annotation_rows(self) -> tuple[pl.DataFrame, dict[Key, tuple[int, int]]]:
        """The annotations sorted by sample, and {sample: (first row, number of rows)}."""
        return query.sort_rows(query.select_annotating(self.annotations), self.paths.arrow)

    @cached_property
    def first_annotations(self) -> dict[Key, int]:
        """{sample: its first row in `annotations`}, also one that holds no annotation."""
        return query.select_first_rows(self.annotations, self.paths.arrow)

    @cached_property
    def repeats(self) -> dict[Key, frozenset[str]]:
        """{sample: inputs whose message the sample before has too}, only samples with such inputs."""
        if self._frames_file is None:
            return {}
        there = stamp_columns(self._frames_file.schema.names)
        values = self._frames_file.values(list(there.values()))
        return query.find_repeats({name: values[column] for name, column in there.items()}, self._keys, self.frame_rows)

    def _find_annotated(self) -> Collection[Key]:
        return query.map_rows(self._annotation_file).keys() if self._annotation_file else ()

    def _order_keys(self) -> list[Key]:
        plain = sorted(self._members, key=order_of)
        listed = dict.fromkeys(key for key in self.frame_rows if key in self._members)
        rank = {name: n for n, name in enumerate(dict.fromkeys(key.name for key in listed))}
        merged = [*listed, *(key for key in plain if key not in listed)]
        return sorted(merged, key=lambda key: rank.setdefault(key.name, len(rank)))


def is_several(path: object) -> bool:
    """Return True for what represents any number of datasets: a list, a folder, a glob, a prefix of a bucket."""
    if not isinstance(path, str | os.PathLike):
        return True
    text = os.fspath(path)
    if is_remote(text):
        place = Location.of(text)
        if is_glob(text):
            return True
        named = not place.name or place.name.endswith(SUFFIXES)
        return not named and open_store(place).stat(f"{place.key}.zip") is None
    if not os.path.isdir(text):
        return (text.endswith(LIST) and os.path.isfile(text)) or (not os.path.lexists(text) and is_glob(text))
    try:
        locate(text)
    except DatasetError:
        return True
    return False


def _open_files(path: Named, limits: Limits) -> tuple[DatasetPaths, Container, TableFile | None, TableFile | None]:
    """Return paths, container, annotations and frames of the dataset that a user names. Raises DatasetError."""
    text = os.fspath(path)
    if "*" in text or text.startswith("file:"):
        path = get_one_place(path)
    if is_remote(path):
        return open_objects(Location.of(path), limits)
    paths = locate(path)
    if not os.path.lexists(paths.members):
        raise DatasetError(f"{paths.members}: missing; without it the tables are not a dataset")
    container = open_container(paths.members, limits)
    if isinstance(container, Archive):
        container.refuse_overlaps()
    return paths, container, *open_tables(paths, limits)


def open_tables(paths: DatasetPaths, limits: Limits = DEFAULT_LIMITS) -> tuple[TableFile | None, TableFile | None]:
    """Open the annotations and the frames of a dataset, None if absent. Raises DatasetError."""
    found = find_annotations(paths.arrow)
    annotations = open_annotations(found, limits) if found else None
    return annotations, TableFile(paths.frames, limits) if os.path.lexists(paths.frames) else None
