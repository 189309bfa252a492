# SPDX-License-Identifier: Apache-2.0
"""Datasets as they are used: samples with the inputs that are wanted, read at random without unpacking.

Source: EdgeFirst Dataset Format, "Dataset Storage Format" and "Annotation Schema".
"""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.config import DEFAULT_LIMITS, Limits
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.frames_metadata import frames_metadata, parsed
from edgefirst_ros.dataset.inputs import INPUT_OF, INPUTS, Key, input_name, member_of
from edgefirst_ros.dataset.names import find
from edgefirst_ros.dataset.pictures import decode_image
from edgefirst_ros.dataset.query import annotating, first_rows, matching, sorted_rows, without_broken_rings
from edgefirst_ros.dataset.repeats import repeats_of
from edgefirst_ros.dataset.sequences import SequenceCalibration, calibration_of, of_sequence
from edgefirst_ros.dataset.storage.access import Archive, Container, open_container
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.forms.table import annotation_path, open_annotations
from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.streams import of_kind

if TYPE_CHECKING:
    import polars as pl

    from edgefirst_ros.sensors.cube import Cube

T = TypeVar("T")


class Position(NamedTuple):
    """Where a sample was taken: degrees WGS-84, metres (None: unknown)."""

    latitude: float
    longitude: float
    altitude: float | None


class Dataset:
    """A dataset, named by OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow alike, in either layout.

    Datasets of other tools open too: without frames or annotations, with other padding of the frame numbers, with
    NAME.parquet or NAME.json, with other types of columns.  Threads may share a Dataset, and it can be pickled.
    Raises DatasetError naming file and member wherever something cannot be read, is a link or no regular file, overlaps
    with another member, or unpacks to more than `limits` let it.
    """

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.paths, self.limits = find(path), limits
        if not os.path.lexists(self.paths.members):
            raise DatasetError(f"{self.paths.members}: not there; the tables alone are no dataset")
        self.container: Container = open_container(self.paths.members, limits)
        if isinstance(self.container, Archive):
            self.container.refuse_overlaps()
        found = annotation_path(self.paths.arrow)
        self._annotation_file = open_annotations(found, limits) if found else None
        there = os.path.lexists(self.paths.frames)
        self._frames_file = TableFile(self.paths.frames, limits) if there else None
        self._members: dict[Key, dict[str, str]] = {}
        for name in self.container.names:
            member = member_of(name)
            if member:
                self._members.setdefault(member[0], {}).setdefault(member[1], name)
        self._order = self._ordered()

    def __reduce__(self) -> tuple[partial[Dataset], tuple[Path]]:
        path = self.paths.container if self.paths.layout == "zip" else self.paths.folder
        return partial(Dataset, limits=self.limits), (path,)

    def __len__(self) -> int:
        """Samples that have at least one member."""
        return len(self._order)

    @property
    def sequences(self) -> list[str]:
        """Names of the sequences, in the order of the samples."""
        return list(dict.fromkeys(key.name for key in self._order))

    @cached_property
    def annotations(self) -> pl.DataFrame:
        """All rows of NAME.arrow (else NAME.parquet, NAME.json); without such a file no rows and no columns.

        Values are as stored, but for rings that are odd, under three points or not finite: they are dropped, with a
        warning. JSON is as the Arrow file of its version would be.
        """
        import polars as pl

        if not self._annotation_file:
            return pl.DataFrame()
        table, broken = without_broken_rings(self._annotation_file.frame())
        if broken:
            warnings.warn(f"{self._annotation_file.path}: {broken} broken rings are dropped", stacklevel=3)
        return table

    @cached_property
    def frames(self) -> pl.DataFrame | None:
        """All rows of NAME.frames.arrow; None for a dataset without it."""
        return self._frames_file.frame() if self._frames_file else None

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """File metadata of both tables: `schema_version` and its like as text or parsed JSON, `counts` and so on.

        Raises DatasetError where those of the frames have not the form of the format.
        """
        found: dict[str, Any] = {key.name: key.default for key in schema.METADATA if key.default is not None}
        if self._annotation_file:
            for key, value in self._annotation_file.metadata.items():
                found[key] = parsed(value) if key in ("labels", "category_metadata") else value
        if self._frames_file:
            found |= frames_metadata(self.paths.frames, self._frames_file.metadata)
        return found

    def __getitem__(self, index: int) -> Sample:
        """One sample by its place in `samples()`, negative ones from the end. Raises IndexError when there is none."""
        return Sample(self, self._order[operator.index(index)])

    def samples(
        self,
        inputs: set[str] | frozenset[str] | None = None,
        *,
        label: str | Collection[str] | None = None,
        group: str | None = None,
        score: float | None = None,
        annotated: bool | None = None,
        model: bool | None = None,
        repeats: bool = True,
    ) -> Iterator[Sample]:
        """Samples that have all `inputs`, sequence by sequence in the order of the frames table, else of the numbers.

        Inputs are "camera", "radar.cube", "radar.pcd" or "radar", "lidar.pcd" or "lidar", "depth". Of the others only
        those are left away that lack what is asked for: an annotation with `label` (or one of several) and a score at
        least `score`, the `group`, annotations at all (`annotated` True) or their absence (False),
        a look of the model (`model` True; it may have seen nothing) or none (False); with `repeats` False those too
        that repeat one of `inputs`, of all where none is named.
        Raises UsageError for an unknown input or a score outside 0..1.
        """
        wanted = {input_name(name) for name in inputs or ()}
        keys: Collection[Key] = self._members
        if (label, group, score) != (None, None, None):
            table = self.annotations
            keys = matching(table, self.paths.arrow, label, group, score) if "name" in table.columns else ()
        return (
            sample
            for key in self._order
            if key in keys
            and wanted <= (sample := Sample(self, key)).inputs
            and annotated in (None, key in self.annotation_rows[1])
            and (repeats or not (sample.repeats & (wanted or sample.repeats)))
            and model in (None, sample.row.get(schema.MODEL_TIMESTAMP) is not None)
        )

    def sample(self, sequence: str, frame: int | None) -> Sample:
        """One sample. Raises DatasetError when there is none."""
        key = Key(sequence, frame)
        if key not in self._members:
            raise DatasetError(f"{self.container.path}: has no frame {frame} of sequence {sequence!r}")
        return Sample(self, key)

    def calibration(self, sequence: str) -> SequenceCalibration:
        """The calibration of a sequence; raises DatasetError when the metadata are not as the format says."""
        return calibration_of(self.sequence_facts(sequence))

    def sequence_facts(self, sequence: str) -> dict[str, Any]:
        """What the metadata say of a sequence (dataset.md 10): sources, camera_info, time_base, counts and so on.

        Of a dataset of an earlier version what is certain to be of this one. Raises DatasetError when the metadata
        are not as the format says.
        """
        kinds = {kind for key, members in self._members.items() if key.name == sequence for kind in members}
        try:
            return of_sequence(self.metadata, sequence, self.sequences, kinds)
        except DatasetError as error:
            raise DatasetError(f"{self.paths.frames}: {error}") from None

    def members(self, key: Key) -> Mapping[str, str]:
        """Member names by kind."""
        return self._members[key]

    @cached_property
    def frame_rows(self) -> dict[Key, int]:
        """Row in `frames` by sample; the first of several."""
        return {} if self.frames is None else first_rows(self.frames, self.paths.frames)

    @cached_property
    def annotation_rows(self) -> tuple[pl.DataFrame, dict[Key, tuple[int, int]]]:
        """The annotations sorted by sample, and the (first row, rows) of each."""
        table = self.annotations
        return sorted_rows(annotating(table), self.paths.arrow) if "name" in table.columns else (table, {})

    @cached_property
    def repeats(self) -> dict[Key, frozenset[str]]:
        """Inputs by sample whose message the sample before has too; only samples that have such."""
        return repeats_of(self.frames, self._order, self.frame_rows)

    def _ordered(self) -> list[Key]:
        plain = sorted(self._members, key=lambda key: (key.name, -1 if key.frame is None else key.frame))
        if self._frames_file is None:
            return plain
        listed = dict.fromkeys(key for key in self.frame_rows if key in self._members)
        rank = {name: n for n, name in enumerate(dict.fromkeys(key.name for key in listed))}
        merged = [*listed, *(key for key in plain if key not in listed)]
        return sorted(merged, key=lambda key: rank.setdefault(key.name, len(rank)))


@dataclass(frozen=True)
class Sample:
    """One sample: everything that was recorded around one stamp."""

    dataset: Dataset
    key: Key

    @property
    def name(self) -> str:
        """The sequence."""
        return self.key.name

    @property
    def frame(self) -> int | None:
        """The frame number."""
        return self.key.frame

    @property
    def inputs(self) -> frozenset[str]:
        """Names of the inputs that it has, such as `camera` and `radar.cube`."""
        return frozenset(INPUT_OF[kind] for kind in self.dataset.members(self.key))

    @property
    def repeats(self) -> frozenset[str]:
        """Those of the inputs whose message the sample before, of the same sequence, has too."""
        return self.dataset.repeats.get(self.key, frozenset()) & self.inputs

    @property
    def row(self) -> Mapping[str, Any]:
        """The row of the frames table; empty when there is none."""
        number = self.dataset.frame_rows.get(self.key)
        frames = self.dataset.frames
        return {} if number is None or frames is None else frames.row(number, named=True)

    @property
    def timestamp(self) -> int | None:
        """Nanoseconds since the epoch; None when no frames table says it."""
        return self.row.get("timestamp")

    @property
    def position(self) -> Position | None:
        """Interpolated at the time of the sample; None when unknown."""
        row = self.row
        latitude, longitude = row.get("latitude"), row.get("longitude")
        return None if latitude is None or longitude is None else Position(latitude, longitude, row.get("altitude"))

    @property
    def calibration(self) -> SequenceCalibration:
        """Of its sequence: `camera_info`, `static_transforms` and what they are worth, `calibration`."""
        return self.dataset.calibration(self.name)

    @property
    def skew(self) -> dict[str, int]:
        """Stamp of each companion less that of the sample, ns, by `radar_cube`, `lidar_points` and so on."""
        return {
            name.removesuffix("_skew"): value
            for name, value in self.row.items()
            if name.endswith("_skew") and value is not None
        }

    @property
    def annotations(self) -> pl.DataFrame:
        """The annotations, columns as in the dataset's; no rows when there are none."""
        table, rows = self.dataset.annotation_rows
        start, count = rows.get(self.key, (0, 0))
        return table.slice(start, count)

    def member(self, kind: str) -> str:
        """Name of the member that holds an input ("camera") or is of a kind ("camera.jpeg").

        Raises DatasetError when the sample has none, UsageError for an unknown input.
        """
        return self.dataset.members(self.key)[self._kind(kind)]

    def _kind(self, kind: str) -> str:
        """The kind of member that the sample has of an input."""
        members = self.dataset.members(self.key)
        for candidate in (kind,) if kind in INPUT_OF else INPUTS[input_name(kind)]:
            if candidate in members:
                return candidate
        raise DatasetError(f"{self.dataset.container.path}: frame {self.frame} of {self.name!r} has no {kind}")

    def read(self, kind: str) -> bytes:
        """The bytes of a member, as stored."""
        return self.dataset.container.read(self.member(kind))

    def image(self) -> NDArray[np.uint8]:
        """The picture, (height, width, 3) uint8 RGB, rows as stored.

        JPEG is decoded by libjpeg-turbo's default (accurate) transform and smooth upsampling.
        """
        return self._decoded("camera", decode_image)

    def cube(self, rows: int = 1, columns: int = 1) -> Cube:
        """The radar cube; `rows` and `columns` name the grid of a picture that does not describe itself."""
        from edgefirst_ros.sensors.cube import decode_cube

        return self._decoded("radar.cube", partial(decode_cube, rows=rows, columns=columns))

    def decode(self, kind: str) -> Any:
        """Return what the member of an input holds, by its sensor's codec.

        A cube, points (N,), or a picture: the camera's (height, width, 3) uint8 RGB, another's (height, width) uint8 or
        uint16 as measured. Raises DatasetError, UsageError for an unknown input.
        """
        from edgefirst_ros.sensors.companions import decode

        found = of_kind(self._kind(kind))
        return self.image() if found.form == "camera" else self._decoded(kind, partial(decode, found.key))

    def radar(self) -> NDArray[np.void]:
        """Radar points: structured, (N,), or (height, width) when organised; metres in the sensor's frame."""
        return self._decoded("radar.pcd", _points)

    def lidar(self) -> NDArray[np.void]:
        """Lidar points: structured, (N,), or (height, width) when organised; metres in the sensor's frame."""
        return self._decoded("lidar.pcd", _points)

    def _decoded(self, kind: str, decode: Callable[[bytes], T]) -> T:
        data = self.read(kind)
        try:
            return decode(data)
        except EdgeFirstError as error:
            raise DatasetError(f"{self.dataset.container.path}: {self.member(kind)!r}: {error}") from error


def _points(data: bytes) -> NDArray[np.void]:
    """The points of a PCD file; (height, width) when organised."""
    from edgefirst_ros.sensors.cloud import decode_grid

    points = decode_grid(data)
    return points if len(points) > 1 else points.reshape(-1)
