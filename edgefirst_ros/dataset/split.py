# SPDX-License-Identifier: Apache-2.0
"""Groups, such as train and val, by their shares: of whole sequences, or of blocks of time."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Literal, NamedTuple


class Kind(NamedTuple):
    """Kind of count: samples, samples with a sensor, annotations of a label."""

    what: Literal["samples", "sensor", "label"]
    name: str = ""


SAMPLES = Kind("samples")
Tally = Mapping[Kind, int]
MOST_TRIES = 50_000
"""Moves and exchanges that are tried to improve a first assignment; with thousands of units that one is near enough."""
NOISE = 1e-9
"""Tolerance for rounding of shares."""


def assign(tallies: Mapping[str, Tally], shares: Mapping[str, float]) -> dict[str, str]:
    """Return the group of each unit (a sequence, a block of time), whatever the order of `tallies`.

    The `shares` add up to 1. Largest first, each unit goes to the group that is furthest from its share, counted over
    samples, sensors and labels. No group's samples differ from its share by more than the largest unit, and none stays
    empty while there are as many units as groups. Equal on every processor and version of Python.
    """
    names = sorted(shares, key=lambda group: (-shares[group], group))
    balance = _Balance(tallies, {group: shares[group] for group in names})
    units = sorted(tallies, key=lambda unit: (-balance.size(unit), unit))
    for number, unit in enumerate(units):
        balance.put(unit, balance.choose(unit, len(units) - number))
    balance.refine(units)
    return dict(balance.group_of)


def stable_group(sequence: str, shares: Mapping[str, float]) -> str:
    """Return the group of a sequence by the hash of its name alone: it stays, whatever other sequences there are."""
    place = int.from_bytes(hashlib.sha256(sequence.encode()).digest()[:8], "big") / 2**64
    for group, share in shares.items():
        if place < share:
            return group
        place -= share
    return [*shares][-1]


class _Balance:
    """How far each group is from its share, as fractions of the total of each kind."""

    def __init__(self, tallies: Mapping[str, Tally], shares: Mapping[str, float]) -> None:
        totals: Counter[Kind] = Counter()
        for tally in tallies.values():
            totals.update(tally)
        kinds = sorted((kind for kind in totals if totals[kind]), key=lambda kind: (kind != SAMPLES, kind))
        self._parts = {unit: [tally.get(kind, 0) / totals[kind] for kind in kinds] for unit, tally in tallies.items()}
        self._shares = shares
        self._lack = {group: [share] * len(kinds) for group, share in shares.items()}
        """Deficit of each group in each kind, samples first."""
        self._units = dict.fromkeys(shares, 0)
        self._largest = max((parts[0] for parts in self._parts.values() if parts), default=0.0) + NOISE
        self.group_of: dict[str, str] = {}

    def size(self, unit: str) -> float:
        """Return the size of a unit: the mean of its fractions of each kind."""
        parts = self._parts[unit]
        return fsum(parts) / len(parts) if parts else 0.0

    def put(self, unit: str, group: str) -> None:
        """Assign a unit to a group, removing it from its former one."""
        before = self.group_of.get(unit)
        if before is not None:
            self._units[before] -= 1
            self._lack[before] = [lack + part for lack, part in zip(self._lack[before], self._parts[unit], strict=True)]
        self._units[group] += 1
        self._lack[group] = [lack - part for lack, part in zip(self._lack[group], self._parts[unit], strict=True)]
        self.group_of[unit] = group

    def choose(self, unit: str, left: int) -> str:
        """Return the group for a unit, where `left` are still to be given, it included."""
        parts = self._parts[unit]
        groups = [group for group, units in self._units.items() if not units]
        if left > len(groups):  # else every one of them is needed where there is none yet
            groups = list(self._units)
        if not parts:
            return groups[0]
        roomy = [group for group in groups if self._lack[group][0] >= parts[0] - NOISE]
        if roomy:
            return max(roomy, key=lambda group: self._gain(group, parts))
        return max(groups, key=lambda group: self._lack[group][0])

    def _gain(self, group: str, parts: Sequence[float]) -> float:
        """Return by how much fractions bring a group nearer to its share: squared deficits relative to the share."""
        nearer = fsum(part * (2 * lack - part) for lack, part in zip(self._lack[group], parts, strict=True))
        return nearer / self._shares[group]

    def refine(self, units: Sequence[str]) -> None:
        """Move and exchange units while that brings the groups nearer to their shares."""
        tries, better = 0, True
        while better:
            better = False
            for one, other in itertools.combinations((None, *units), 2):
                tries += 1
                if tries > MOST_TRIES:
                    return
                if other is not None and self._improve(one, other):
                    better = True

    def _improve(self, one: str | None, other: str) -> bool:
        """Exchange two units, or move one to the group that gains most, if that improves the balance."""
        home, parts = self.group_of[other], self._parts[other]
        if one is None:
            away = [group for group in self._units if group != home]
            if not away or self._units[home] == 1:
                return False
            group = max(away, key=lambda group: self._gain(group, parts))
        else:
            group = self.group_of[one]
            parts = [b - a for a, b in zip(self._parts[one], parts, strict=True)]
        if group == home or not parts:
            return False
        gain = self._gain(group, parts) + self._gain(home, [-part for part in parts])
        samples = self._lack[group][0] - parts[0], self._lack[home][0] + parts[0]
        if gain <= NOISE or any(abs(lack) > self._largest for lack in samples):
            return False
        self.put(other, group)
        if one is not None:
            self.put(one, home)
        return True
