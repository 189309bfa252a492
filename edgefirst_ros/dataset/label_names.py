# SPDX-License-Identifier: Apache-2.0
"""Labels and their indices, from metadata and rows of a dataset, and how new labels get theirs.

Source: EdgeFirst Annotation Schema 2026.04, "Category Metadata", "Labels Metadata", "label_index".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.frames_metadata import parsed
from edgefirst_ros.dataset.tables.seal import json_text
from edgefirst_ros.errors import UsageError


@dataclass
class Labels:
    """The labels of a dataset by index."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[str, dict[str, Any]] = field(default_factory=dict)
    """{label: further category metadata}."""
    bound: bool = False
    """True if indices must not change: semantic masks or metadata use them."""

    @classmethod
    def of(
        cls, metadata: Mapping[str, str], rows: pl.DataFrame, categories: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Labels:
        """Labels as the file metadata list them, else as rows use them; of `categories` alone where they are given."""
        listed = _parsed(metadata, "labels", list)
        described = {name: dict(of) for name, of in _parsed(metadata, "category_metadata", dict).items() if of}
        found = cls(categories={name: of for name, of in described.items() if isinstance(of, dict)})
        if categories is not None:
            found.categories = {name: dict(of) for name, of in categories.items()}
            listed = []
        for index, name in enumerate(listed):
            found._add(index, name)
        for name, of in found.categories.items():
            if isinstance(of.get("id"), int) and name not in found.names.values():
                found._add(of["id"], name)
        found.bound = bool(found.names) and categories is None
        if not found.names and {"label", "label_index"} <= set(rows.columns):
            for index, name in _pairs(rows):
                found._add(index, name)
        return found

    def indexed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows whose labels all have an index, which are added to those known.

        Raises UsageError where an index stands for two labels, or a label has two.
        """
        if "label" not in rows.columns:
            return rows
        if "label_index" not in rows.columns:
            rows = rows.with_columns(pl.lit(None, pl.UInt64).alias("label_index"))
        given: dict[int, str] = {}
        for index, name in _pairs(rows):
            if given.setdefault(index, name) != name:
                raise UsageError(f"label_index {index} is both {given[index]!r} and {name!r}; expected one label")
            if self.bound and self.names.get(index, name) != name:
                raise UsageError(
                    f"label_index {index} is {self.names[index]!r} in this dataset, a row has it for {name!r}"
                )
        if len(set(given.values())) < len(given):
            name = next(name for name in given.values() if list(given.values()).count(name) > 1)
            indices = [index for index, other in given.items() if other == name]
            raise UsageError(f"label {name!r} has the indices {indices}; expected one")
        for index, name in given.items():
            self._add(index, name)
        place = {name: index for index, name in reversed(self.names.items())} | {n: i for i, n in given.items()}
        missing = rows.filter(pl.col("label").is_not_null() & pl.col("label_index").is_null())["label"]
        for name in missing.unique(maintain_order=True).to_list():
            if name not in place:
                place[name] = max(self.names, default=-1) + 1
                self._add(place[name], name)
        by_name = pl.DataFrame(
            {"label": list(place), "index": list(place.values())}, {"label": pl.String, "index": pl.UInt64}
        )
        joined = rows.select("label").join(by_name, on="label", how="left", maintain_order="left")
        return rows.with_columns(pl.coalesce("label_index", joined["index"]).alias("label_index"))

    def metadata(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return file metadata with these labels: a list where the indices are places in one, else ids by name."""
        kept = {key: value for key, value in before.items() if key not in ("labels", "category_metadata")}
        if not schema.has_metadata(before.get("schema_version", schema.UNNAMED_VERSION)):
            return kept
        places = sorted(self.names)
        listed = places == list(range(len(places)))
        described = {name: dict(of) for name, of in self.categories.items()}
        if not listed or any("id" in of for of in described.values()):
            for index in places:
                described.setdefault(self.names[index], {})["id"] = index
        if places and listed:
            kept["labels"] = json_text([self.names[index] for index in places])
        if described:
            kept["category_metadata"] = json_text(described)
        return kept

    def _add(self, index: int, name: object) -> None:
        if isinstance(name, str):
            self.names[index] = name


def _pairs(rows: pl.DataFrame) -> list[tuple[int, str]]:
    found = rows.select("label_index", "label").drop_nulls().unique(maintain_order=True)
    return [(int(index), str(name)) for index, name in found.iter_rows()]


def _parsed(metadata: Mapping[str, str], key: str, kind: type[Any]) -> Any:
    value = parsed(metadata[key]) if key in metadata else None
    return value if isinstance(value, kind) else kind()
