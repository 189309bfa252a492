# SPDX-License-Identifier: Apache-2.0
"""Selections of samples: by inputs, by the tables, by a polars expression; in any order."""

from __future__ import annotations

import operator
import random
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex, overload

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.inputs import INPUTS, Key, input_name
from edgefirst_ros.dataset.query import keys_of, matching, with_frames
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.errors import UsageError, counted, describe_foreign, nearest_first

if TYPE_CHECKING:
    import polars as pl

    from edgefirst_ros.dataset.reader import Dataset


class Samples(Sequence[Sample]):
    """Some samples of a dataset in some order; nothing is read before it is accessed.

    A map-style dataset of PyTorch as it is: it has a length, gives samples by place, and can be pickled, to processes
    that are forked or spawned alike. Threads may share it.
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
        """Return the samples in a random order, which depends only on their number and the seed."""
        keys = list(self._keys)
        random.Random(seed).shuffle(keys)  # noqa: S311  an order, no secret
        return Samples(self.dataset, keys)

    def where(self, expression: pl.Expr) -> Samples:
        """Return the samples for which a polars expression is true, in the same order.

        It is asked of the samples' rows of the table of frames; where it names columns of the annotations, of each
        annotation with the columns of its frame, and a sample is kept where it is true for one of them.
        Raises UsageError for columns that are not there, and where it gives no Boolean for each row.
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
    wanted = {input_name(name) for name in ([inputs] if isinstance(inputs, str) else inputs or ())}
    kinds = [frozenset(INPUTS[name]) for name in wanted]
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
        named = wanted or INPUTS.keys()
        found = [key for key in found if not dataset.repeats.get(key, frozenset()) & named]
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
