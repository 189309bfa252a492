# SPDX-License-Identifier: Apache-2.0
"""Labels and their indices, from metadata and rows of a dataset, and how new labels get theirs.

`label_index` is the number that the source gave a label and is never changed on the way; `category_metadata` has
the names by index. `labels` names only the pixel values of masks of classes.
Source: EdgeFirst Annotation Schema 2026.04, "Category Metadata", "Labels Metadata", "label_index".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.lazy import pl
from edgefirst_ros.dataset.schema import parse_metadata
from edgefirst_ros.dataset.tables.write import encode_json
from edgefirst_ros.errors import UsageError

MOST_NAMED = 10


@dataclass
class Labels:
    """The labels of a dataset by index."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[str, dict[str, Any]] = field(default_factory=dict)
    """{label: category metadata}."""
    bound: bool = False
    """True if metadata state the indices."""

    @classmethod
    def of(
        cls, metadata: Mapping[str, str], rows: pl.DataFrame, categories: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Labels:
        """Return the labels that file metadata and rows have; of `categories` only, where they are given."""
        if categories is not None:
            ids = {of["id"]: name for name, of in categories.items() if type(of.get("id")) is int}
            return cls(ids, {name: dict(of) for name, of in categories.items()})
        found = cls(categories=read_categories(metadata))
        for index, name in list_pairs(metadata, rows):
            found.names.setdefault(index, name)
        found.bound = bool(found.names) and bool(metadata.keys() & {"labels", "category_metadata"})
        return found

    def add_indices(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows whose labels all have an index, which are added to those known.

        Raises UsageError where an index represents two labels, or a label has two.
        """
        if "label" not in rows.columns:
            return rows
        if "label_index" not in rows.columns:
            rows = rows.with_columns(pl.lit(None, pl.UInt64).alias("label_index"))
        pairs = _list_row_pairs(rows)
        if conflicts := list_conflicts(pairs):
            raise UsageError(f"{'; '.join(conflicts)}; expected one index a label")
        given = dict(pairs)
        for index, name in pairs if self.bound else ():
            if self.names.get(index, name) != name:
                raise UsageError(
                    f"label_index {index} is {self.names[index]!r} in this dataset, a row has it for {name!r}"
                )
        self.names |= given
        place = {name: index for index, name in reversed(self.names.items())} | {n: i for i, n in given.items()}
        missing = rows.filter(pl.col("label").is_not_null() & pl.col("label_index").is_null())["label"]
        for name in missing.unique(maintain_order=True).to_list():
            if name not in place:
                place[name] = max(self.names, default=-1) + 1
                self.names[place[name]] = name
        by_name = pl.DataFrame(
            {"label": list(place), "index": list(place.values())}, {"label": pl.String, "index": pl.UInt64}
        )
        joined = rows.select("label").join(by_name, on="label", how="left", maintain_order="left")
        return rows.with_columns(pl.coalesce("label_index", joined["index"]).alias("label_index"))

    def metadata(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return file metadata with these labels: `category_metadata` with the id of each; `labels` stays as it is."""
        kept = {key: value for key, value in before.items() if key != "category_metadata"}
        if not schema.has_metadata(before.get("schema_version", schema.UNNAMED_VERSION)):
            return kept
        known = {name: dict(of) for name, of in self.categories.items()}
        for index in sorted(self.names):
            known.setdefault(self.names[index], {})["id"] = index
        return {**kept, "category_metadata": encode_json(known)} if known else kept


def read_categories(metadata: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the category metadata by label."""
    stated = _parse_value(metadata, "category_metadata", dict)
    return {name: dict(of) for name, of in stated.items() if isinstance(of, Mapping)}


def list_pairs(metadata: Mapping[str, str], rows: pl.DataFrame) -> list[tuple[int, str]]:
    """Return (label_index, label) of the category metadata, then of the rows; both may number a label differently.

    In datasets of earlier versions only `labels` numbers labels that no row has: it does where all rows agree with it.
    """
    categories = read_categories(metadata)
    stated = [(of["id"], name) for name, of in categories.items() if type(of.get("id")) is int]
    there = _list_row_pairs(rows) if {"label", "label_index"} <= set(rows.columns) else []
    listed = [item for item in enumerate(_parse_value(metadata, "labels", list)) if isinstance(item[1], str)]
    if not categories and set(there) <= set(listed):
        stated = listed
    return list(dict.fromkeys([*stated, *there]))


def make_categories(labels: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the category metadata of a model's labels: the id of each is its place, of equal ones the first."""
    places = {name: index for index, name in reversed([*enumerate(labels)])}  # there may be 65,536
    return {name: {"id": places[name]} for name in dict.fromkeys(labels)}


def list_conflicts(pairs: Iterable[tuple[int, str]]) -> list[str]:
    """Return in words which indices have two names, and which names two indices."""
    names: dict[int, list[str]] = {}
    indices: dict[str, list[int]] = {}
    for index, name in sorted(set(pairs)):
        names.setdefault(index, []).append(name)
        indices.setdefault(name, []).append(index)
    found = [
        f"label_index {index} is {' and '.join(repr(name[:80]) for name in of)}"
        for index, of in names.items()
        if len(of) > 1
    ]
    found += [
        f"{name[:80]!r} has the label_index {' and '.join(map(str, of))}" for name, of in indices.items() if len(of) > 1
    ]
    more = [f"and {len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return [*found[:MOST_NAMED], *more]


def unite_models(known: Sequence[str] | None, own: Sequence[str] | None) -> list[str] | None:
    """Return one list of the labels of two models, by index; None where neither has labels.

    Raises UsageError where they number labels differently.
    """
    if known is None or own is None:
        return None if known is own else [*(known or own or ())]
    pairs = [(of["id"], name) for labels in (known, own) for name, of in make_categories(labels).items()]
    conflicts = list_conflicts(pairs)
    if conflicts:
        raise UsageError(
            f"its model numbers labels differently from the recordings before, and label_index never changes: "
            f"{'; '.join(conflicts)}; convert it to a dataset of its own, and join them with edgefirst-ros merge "
            "--renumber"
        )
    return [*max(known, own, key=len)]


def _list_row_pairs(rows: pl.DataFrame) -> list[tuple[int, str]]:
    found = rows.select("label_index", "label").drop_nulls().unique(maintain_order=True)
    return [(int(index), str(name)) for index, name in found.iter_rows()]


def _parse_value(metadata: Mapping[str, str], key: str, kind: type[Any]) -> Any:
    value = parse_metadata(metadata[key]) if key in metadata else None
    return value if isinstance(value, kind) else kind()
