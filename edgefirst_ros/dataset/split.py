# SPDX-License-Identifier: Apache-2.0
"""Groups of samples, such as train and val: by sequence, or by blocks of time in a single one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

GOLDEN = Fraction("0.6180339887498948482")
GroupOf = Callable[[int], str | None]
"""Gives the group of a stamp in ns."""


class Splitter:
    """Gives each block of samples a group.

    Blocks follow one another along the golden ratio, so that any number of them comes as near to the shares as
    whole blocks can, without knowing how many there will be. Another seed gives another split.
    """

    def __init__(self, shares: Mapping[str, float], block: int, seed: int) -> None:
        """`shares` add up to 1; `block` is the length of a block of time in ns."""
        self._shares = dict(shares)
        self._block = block
        self._offset = Fraction(seed) * Fraction("0.7548776662466927600")  # another irrational, so that seeds differ

    def of_number(self, number: int) -> str | None:
        """Group of the block (or sequence) with a number; None without shares."""
        place = float((self._offset + number * GOLDEN) % 1)
        for group, share in self._shares.items():
            if place < share:
                return group
            place -= share
        return next(reversed(self._shares), None)

    def of_time(self, stamp: int) -> str | None:
        """Group of the block of time that holds a stamp, ns since the epoch."""
        return self.of_number(stamp // self._block) if self._shares else None


def guarded(group_of: GroupOf, gap: int) -> GroupOf:
    """The same groups, but none for stamps nearer than `gap` ns to another one; `gap` is less than half a block.

    Neighbouring samples are next to equal: where one was trained with, the other is no test.
    """

    def group(stamp: int) -> str | None:
        own = group_of(stamp)
        return own if own == group_of(stamp - gap) == group_of(stamp + gap) else None

    return group if gap else group_of
