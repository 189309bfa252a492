# SPDX-License-Identifier: Apache-2.0
"""Labels of other tools on their way into a dataset: by picture, with what could not be used counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefirst_ros.dataset.tables.values import SHORTEST
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.importing import clean_text

LARGEST = 1 << 27
"""Bytes of all files of labels together."""
MOST_KEYS, MOST_SHOWN = 64, 80
"""Names of keys that are distinguished, and characters of a name."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ForeignPicture:
    """Labels of one picture."""

    name: str
    """Name in the labels: with or without folders and suffix."""
    annotations: int
    """Number of annotations, whole or not."""
    rows: Callable[[tuple[int, int] | None], Iterable[Row]]
    """Annotations, called with the size of the dataset's picture; None where that is not known."""
    of_sample: Mapping[str, Any] = field(default_factory=dict)
    """Columns of the sample: indices of labels that are known to be absent, or not annotated exhaustively."""


@dataclass(slots=True)
class ForeignLabels:
    """Labels as they were read: `categories` by name, with `id`; `lost`: entries that violate the format, by reason.

    `keys`: values of keys that have no place, by name; `frequencies`: LVIS's groups by label; `federated`: labels state
    which classes are absent from a picture, so a missing label does not mean absence.
    """

    source: Path
    categories: dict[str, dict[str, Any]] = field(default_factory=dict)
    pictures: list[ForeignPicture] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)
    keys: Counter[str] = field(default_factory=Counter)
    frequencies: dict[str, str] = field(default_factory=dict)
    federated: bool = False

    def lose_key(self, name: str) -> None:
        """Count a value of a key that has no place."""
        name = name[:MOST_SHOWN]
        self.keys[name if name in self.keys or len(self.keys) < MOST_KEYS else "other keys"] += 1

    def category(self, name: Any, number: Any, known: Mapping[str, Any] | None = None) -> str:
        """Add a category. Raises DatasetError where it is not a category, or another has its name or number."""
        if not isinstance(name, str) or type(number) is not int or not 0 <= number < 1 << 32:
            raise DatasetError(f"{self.source}: category {str(name)[:80]!r} has the id {str(number)[:80]!r}")
        text = clean_text(name)
        for other, of in self.categories.items():
            if (other == text) != (of["id"] == number):
                both = f"{other[:80]!r} ({of['id']}) and {text[:80]!r} ({number})"
                raise DatasetError(f"{self.source}: categories {both} have one name or id, expected two")
        self.categories[text] = {"id": number, **(known or {})}
        return text


def check_ring(values: Any) -> list[float] | None:
    """Return the coordinates of a ring; None where they are odd, under three points, or not all finite numbers."""
    if not isinstance(values, list) or len(values) < SHORTEST or len(values) % 2:
        return None
    return values if all(is_number(value) for value in values) else None


def is_number(value: Any) -> bool:
    """True if it is a finite number, and no truth value."""
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:
        return False
