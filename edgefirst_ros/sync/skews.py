# SPDX-License-Identifier: Apache-2.0
"""Distribution of |skew| of a sensor over a drive of any length."""

from __future__ import annotations

from collections import Counter

BIN = 100_000
"""Bin width in ns: resolution of percentiles; the maximum is exact."""


class Skews:
    """Counts |skew| in bins, so that memory depends on the tolerance and not on the number of samples."""

    def __init__(self) -> None:
        self.largest = 0
        """ns."""
        self._bins: Counter[int] = Counter()

    @property
    def samples(self) -> int:
        """Number of skews added."""
        return self._bins.total()

    def add(self, skew: int) -> None:
        """Add the skew of a sample, ns."""
        self._bins[abs(skew) // BIN] += 1
        self.largest = max(self.largest, abs(skew))

    def merge(self, other: Skews) -> None:
        """Add the skews of another sequence."""
        self._bins.update(other._bins)
        self.largest = max(self.largest, other.largest)

    def percentile(self, percent: int) -> int:
        """Return a percentile of |skew|, ns, rounded down to BIN; 0 without samples."""
        rank, passed = (self._bins.total() - 1) * percent // 100, 0
        for place, number in sorted(self._bins.items()):
            passed += number
            if passed > rank:
                return place * BIN
        return 0
