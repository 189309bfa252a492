# SPDX-License-Identifier: Apache-2.0
"""Several datasets as one, without a merge: on disk and in buckets, opened when they are needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from edgefirst_ros.dataset.lazy import pl
from edgefirst_ros.dataset.names import Key, add_counts, find_instances
from edgefirst_ros.dataset.objects.bucket import map_in_threads
from edgefirst_ros.dataset.objects.location import ObjectPath, is_remote
from edgefirst_ros.dataset.objects.places import list_dataset_places
from edgefirst_ros.dataset.query import Samples, check_known, list_names, with_polygons
from edgefirst_ros.dataset.reader import Dataset, Named
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.dataset.storage.zip_read import Loop
from edgefirst_ros.errors import DatasetError, join_names, pluralize
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

AT_ONCE = 8
"""Datasets of buckets that are opened side by side."""
MOST_NAMED = 3

PartKey = tuple[int, Key]
"""Number of the dataset, and the key of a sample in it."""


class Datasets(Dataset):
    """Several datasets as one sequence of samples, each dataset's after those of the one before.

    Only the list of names is pickled, so that every worker opens the datasets that it reads for itself.
    """

    def __init__(self, path: Named | Iterable[Named | Dataset], *more: Named, limits: Limits = DEFAULT_LIMITS) -> None:
        """Find the datasets; raises DatasetError without any, UsageError for an invalid name."""
        given = [*([path] if isinstance(path, str | os.PathLike) else path), *more]
        self.limits = limits
        self._lock = threading.Lock()
        self._opened: dict[Path, Dataset] = {}
        self._places: list[Path] = []
        for one in given:
            if isinstance(one, Dataset):
                self._opened |= {_place_of(part): part for part in one.parts}
                self._places += map(_place_of, one.parts)
            else:
                self._places += list_dataset_places(one)
        self._places = list(dict.fromkeys(self._places))

    def __reduce__(self) -> tuple[Callable[..., Datasets], tuple[list[Path], Limits]]:  # type: ignore[override]
        return _reopen, (self._places, self.limits)

    def __getattr__(self, name: str) -> Any:
        if name in ("paths", "container", "table_files"):
            raise DatasetError(f"{self.title}: several datasets as one have no {name}; use its .parts, or merge them")
        return super().__getattr__(name)

    def open_dataset(self, number: int) -> Dataset:
        """Return one of the datasets, opened when it is first asked for."""
        place = self._places[number]
        with self._lock:
            found = self._opened.get(place)
        if found is None:
            found = Dataset(place, limits=self.limits)
            with self._lock:
                found = self._opened.setdefault(place, found)
        return found

    @property
    def parts(self) -> Sequence[Dataset]:
        """All datasets, those of buckets opened side by side."""
        return list(self._open(range(len(self._places))))

    def _open(self, numbers: Iterable[int]) -> Iterator[Dataset]:
        """Yield datasets in order; where some are in buckets, those that come next are opened meanwhile."""
        if not any(is_remote(place) and place not in self._opened for place in self._places):
            return map(self.open_dataset, numbers)
        return map_in_threads(self.open_dataset, numbers, AT_ONCE)

    @property
    def title(self) -> str:
        return join_names(self._places, MOST_NAMED)

    @cached_property
    def _keys(self) -> list[PartKey]:  # type: ignore[override]
        return [(number, key) for number, part in enumerate(self.parts) for key in part._keys]

    def _sample_of(self, key: PartKey) -> Sample:
        return self.open_dataset(key[0])._sample_of(key[1])

    def _iter_samples(self, keys: Sequence[PartKey]) -> Iterator[Sample]:
        own: dict[int, list[Key]] = {}
        for number, key in keys:
            own.setdefault(number, []).append(key)
        opened, loop = self._open(own), Loop()
        begun: dict[int, tuple[Dataset, int]] = {}
        for number, key in keys:  # each dataset of a bucket fetches its own ahead, also where they take turns
            part, place = begun[number] if number in begun else (next(opened), 0)
            begun[number] = part, place + 1
            loop.among = len(begun)
            part.container.expect(partial(part._upcoming, own[number], place), loop)
            yield part._sample_of(key)
            if place + 1 == len(own[number]):
                del begun[number]
                part.container.expect(None)

    def _keys_where(
        self, keys: Sequence[PartKey], expression: pl.Expr, schemas: Sequence[Mapping[str, Any]] = ()
    ) -> list[PartKey]:
        own: dict[int, list[Key]] = {}
        for number, key in keys:
            own.setdefault(number, []).append(key)
        frames = [part.frames.schema for part in self.parts if part.frames is not None]
        schemas = [{name: kind for one in frames for name, kind in one.items()}, {}]
        if not schemas[0].keys() >= {*expression.meta.root_names()}:
            schemas[1] = _stack_tables([part.annotations.clear() for part in self.parts]).schema
        kept = {
            number: set(self.open_dataset(number)._keys_where(its, expression, schemas)) for number, its in own.items()
        }
        return [one for one in keys if one[1] in kept[one[0]]]

    @property
    def sequences(self) -> list[str]:
        """Names of the sequences, in the order of the samples."""
        return list(dict.fromkeys(name for part in self.parts for name in part.sequences))

    @property
    def annotations(self) -> pl.DataFrame:
        """Annotations of all datasets, with the columns of any."""
        return _stack_tables([part.annotations for part in self.parts])

    @property
    def annotation_columns(self) -> list[str]:
        """Names of the columns that any of the files has."""
        return list(dict.fromkeys(name for part in self.parts for name in part.annotation_columns))

    @property
    def frames(self) -> pl.DataFrame | None:
        found = [part.frames for part in self.parts if part.frames is not None]
        return _stack_tables(found) if found else None

    @property
    def metadata(self) -> dict[str, Any]:
        first, *others = [part.metadata for part in self.parts]
        return {key: value for key, value in first.items() if all(one.get(key) == value for one in others)}

    @property
    def lacks_axes(self) -> bool:
        return any(part.lacks_axes for part in self.parts)

    @property
    def groups(self) -> dict[str, int]:
        return add_counts(part.groups for part in self.parts)

    @property
    def labels(self) -> dict[str, int]:
        return add_counts(part.labels for part in self.parts)

    def to_polars(self) -> pl.DataFrame:
        """Return one table: the annotations, each with the columns of its frame."""
        return _stack_tables([part.to_polars() for part in self.parts])

    def samples(self, inputs: str | Collection[str] | None = None, *more: str, **conditions: Any) -> Samples:
        """Return the samples that match, as `Dataset.samples`; a label, group or sequence may be in any dataset."""
        given = [name for name in ("label", "group", "sequence") if conditions.get(name) is not None]
        asked = {name: list_names(conditions[name]) for name in given}
        there = [{name: getattr(part, f"{name}s") for name in asked} for part in self.parts]
        for name, values in asked.items():
            check_known(name, values, {one for part in there for one in part[name]})
        instances = find_instances([*list_names(inputs), *more])
        sensors = [part._sensors_there() if instances else set[str]() for part in self.parts]
        check_known("sensor", instances, set[str]().union(*sensors))
        found: list[PartKey] = []
        for number, (part, known_here) in enumerate(zip(self.parts, there, strict=True)):
            own = {name: [one for one in asked[name] if one in known] for name, known in known_here.items()}
            if all(own.values()) and instances <= sensors[number]:
                found += [(number, key) for key in part.samples(inputs, *more, **conditions | own)._keys]
        return Samples(self, found)

    def sequence_facts(self, sequence: str) -> dict[str, Any]:
        return self._with_sequence(sequence).sequence_facts(sequence)

    def __repr__(self) -> str:
        number = pluralize(len(self._places), "dataset")
        return f"<Dataset of {number} ({self.title}): {pluralize(len(self), 'sample')}>"


def join_samples(first: Samples, second: Samples) -> Samples:
    """Return samples of two datasets as samples of both."""
    both = cast("Datasets", Dataset([*first.dataset.parts, *second.dataset.parts], limits=first.dataset.limits))
    number = {place: n for n, place in enumerate(both._places)}
    keys: list[PartKey] = []
    for one in (first, second):
        places = [number[_place_of(part)] for part in one.dataset.parts]
        several = isinstance(one.dataset, Datasets)
        keys += [(places[key[0]], key[1]) if several else (places[0], key) for key in one._keys]
    return Samples(both, keys)


def _reopen(places: list[Path], limits: Limits) -> Datasets:
    made = Datasets((), limits=limits)
    made._places = places
    return made


def _place_of(part: Dataset) -> Path:
    return part.place if isinstance(part.place, ObjectPath) else Path(os.path.abspath(part.place))


def _stack_tables(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return tables below each other, with the columns of any; categories as texts, which need no common list.

    Masks that are outlines, as until 2025.10, become polygons where another table has masks in pixels.
    """
    texts = [table.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String)) for table in tables]
    if any(table.schema.get("mask") == pl.Binary for table in texts):
        texts = list(map(with_polygons, texts))
    return pl.concat(texts, how="diagonal_relaxed")
