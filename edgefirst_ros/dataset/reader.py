# SPDX-License-Identifier: Apache-2.0
"""Reads datasets: samples with the wanted inputs, by random access without unpacking.

Source: EdgeFirst Dataset Format, "Dataset Storage Format" and "Annotation Schema".
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.inputs import Key, list_members
from edgefirst_ros.dataset.objects.location import is_remote
from edgefirst_ros.dataset.opening import open_files
from edgefirst_ros.dataset.query import annotating, rows_by_key, sorted_rows, with_all_columns, without_broken_rings
from edgefirst_ros.dataset.repeats import repeats_of, stamp_columns
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.dataset.selection import Samples, select
from edgefirst_ros.dataset.sequences import SequenceCalibration, calibration_of, frames_metadata, of_sequence, parsed
from edgefirst_ros.dataset.tables.forms.table import annotation_path, open_annotations
from edgefirst_ros.errors import DatasetError, counted
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import polars as pl

    from edgefirst_ros.dataset.tables.arrow_file import TableFile


class Dataset(Sequence[Sample]):
    """A dataset, named by OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow alike, in either layout: a sequence of samples.

    `dataset[3]`, `dataset[10:20]`, `for sample in dataset`, and as it is a map-style dataset of PyTorch.

    One that is a ZIP is also read in a bucket, in place: `Dataset("s3://BUCKET/NAME.zip")`, credentials and endpoint by
    the environment (AWS_..., GOOGLE_..., AZURE_...). Three or four requests open it, one reads a member.

    Datasets of other tools open too: without frames or annotations, with other padding of the frame numbers, with
    NAME.parquet or NAME.json, with other types of columns.  Threads may share a Dataset, and it can be pickled.
    Raises DatasetError naming file and member if something cannot be read, is a link or not a regular file, overlaps
    with another member, or unpacks to more than `limits` allow.
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
            return with_all_columns(pl.DataFrame(), schema.DEFAULT_VERSION)
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
        """Replace NAME.arrow by `annotations`, with columns and types as in `annotations` of this dataset.

        Columns that lack are null; columns that the schema does not know are kept. What is of a sample (group, size,
        location, pose, timestamp and so on) stays where it is null, a sample without rows gets the one that says so,
        and labels without an index get that of their name, new ones the next; `categories` takes the place of all that
        was known of labels: by name an `id`, which is the index, and what else is known. The file is replaced at once,
        when all of the new one is on the disk, or not at all. With `keep_as`, an ending of its name, the file before
        stays, and its path is returned; with `dry_run` all is checked and nothing changed. Raises UsageError for rows
        that are not as the format says, DatasetError where the annotations cannot be replaced, StorageError.
        """
        from edgefirst_ros.dataset.annotate import write_annotations

        if is_remote(self.paths.container):
            raise DatasetError(f"{self.paths.arrow}: is read in place; fetch the dataset to write to it")
        kept = write_annotations(self, annotations, categories, keep_as, dry_run=dry_run)
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
        """Samples that have all `inputs`, sequence by sequence in the order of the frames table, else of the numbers.

        Inputs are one or several of "camera", "radar.cube", "radar.pcd" or "radar", "lidar.pcd" or "lidar",
        "lidar.depth", "lidar.reflectivity", "depth".
        Only those are left away that lack what is asked for: an annotation with `label` (or one of several) and a score
        at least `score`, the `group`, annotations at all (`annotated` True) or their absence (False), a look of the
        model (`model` True; it may have seen nothing) or none (False); with `repeats` False those too that repeat one
        of `inputs`, of all where none is named.
        Raises UsageError for an unknown input, label or group, and a score outside 0..1.
        """
        chosen = select(self, self._order, inputs, label, group, score, annotated, model, repeats)
        return Samples(self, chosen)

    def sample(self, sequence: str, frame: int | None) -> Sample:
        """Return the sample of a sequence and frame number. Raises DatasetError if it does not exist."""
        key = Key(sequence, frame)
        if key not in self._members:
            raise DatasetError(f"{self.container.path}: has no frame {frame} of sequence {sequence!r}")
        return Sample(self, key)

    def calibration(self, sequence: str) -> SequenceCalibration:
        """Return the calibration of a sequence; raises DatasetError when the metadata are not as the format says."""
        return calibration_of(self.sequence_facts(sequence))

    def sequence_facts(self, sequence: str) -> dict[str, Any]:
        """Return the metadata of a sequence: sources, camera_info, time_base, counts and so on.

        Of a dataset of an earlier version what is certain to be of this one. Raises DatasetError when the metadata
        are not as the format says.
        """
        kinds = {kind for key, members in self._members.items() if key.name == sequence for kind in members}
        try:
            return of_sequence(self.metadata, sequence, self.sequences, kinds)
        except DatasetError as error:
            raise DatasetError(f"{self.paths.frames}: {error}") from None

    def members(self, key: Key) -> Mapping[str, str]:
        """Return {kind: member name} of a sample."""
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
