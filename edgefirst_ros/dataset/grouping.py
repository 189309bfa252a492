# SPDX-License-Identifier: Apache-2.0
"""Assignment of samples to groups (train, val, …): by sequence name, by its hash, or by shares of all samples."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgefirst_ros.config import Settings, nanoseconds
from edgefirst_ros.dataset.split import Kind, Tally, assign, stable_group
from edgefirst_ros.errors import UsageError, nearest_first

Tallies = Mapping[tuple[str, int], Tally]
"""{(sequence, number of the time block): counts of its contents}."""


@dataclass(frozen=True)
class Groups:
    """The group of every sample, once all are known."""

    by_sequence: Mapping[str, str | None]
    by_block: Mapping[int, str]
    """Group of each time block, for samples of all other sequences."""
    block: int
    """Length of a block, ns."""
    gap: int
    """Samples nearer than this to a block of another group have no group, ns; less than half a block."""

    def of(self, sequence: str, stamp: int) -> str | None:
        """Return the group of a sample, by its stamp in ns."""
        if sequence in self.by_sequence:
            return self.by_sequence[sequence]
        own = self.by_block.get(stamp // self.block)
        for near in (stamp - self.gap, stamp + self.gap):
            if self.by_block.get(near // self.block, own) != own:
                return None
        return own


@dataclass(frozen=True)
class GroupRule:
    """Rule that assigns samples to groups: some sequences by name, the others by shares.

    By shares go whole sequences where there are at least as many as groups, or where they are to be `stable`: then by
    the hash of the name alone. Else blocks of time do, over all of these sequences alike.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """{group: glob patterns of sequence names}; the first group that matches wins."""
    stable: bool = False
    block: int = 10_000_000_000
    """Length of a block of time, ns."""
    gap: int = 0
    """Samples nearer than this to a block of another group have no group, ns."""

    @classmethod
    def of(cls, settings: Settings) -> GroupRule | None:
        """Return the rule in the settings; None without groups."""
        if not settings.split and not settings.group:
            return None
        block, gap = nanoseconds(settings.split_block), nanoseconds(settings.split_gap)
        return cls(settings.split, settings.group, settings.stable, block, gap)

    @classmethod
    def of_plain(cls, plain: Any) -> GroupRule | None:
        """Return the rule from its `plain` form; None if it is not one."""
        try:
            shares = {str(group): float(share) for group, share in plain["shares"].items()}
            named = {str(group): tuple(map(str, globs)) for group, globs in plain["named"].items()}
            rule = cls(shares, named, bool(plain["stable"]), int(plain["block"]), int(plain["gap"]))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return None
        fits = all(0 < share <= 1 for share in shares.values()) and 0 <= 2 * rule.gap < rule.block
        return rule if fits and (shares or named) else None

    @property
    def plain(self) -> dict[str, Any]:
        """The rule, ready for JSON."""
        named = {group: list(globs) for group, globs in self.named.items()}
        return {
            "shares": dict(self.shares),
            "named": named,
            "stable": self.stable,
            "block": self.block,
            "gap": self.gap,
        }

    @property
    def names(self) -> list[str]:
        """Names of the groups, those with a share first."""
        return list(dict.fromkeys([*self.shares, *self.named]))

    def check(self, sequences: Collection[str]) -> None:
        """Raise UsageError for a pattern that matches none of these sequences."""
        for group, globs in self.named.items():
            for glob in globs:
                if not any(fnmatch.fnmatchcase(sequence, glob) for sequence in sequences):
                    raise UsageError(
                        f"group: {group}={glob} matches no sequence; there are {nearest_first(glob, sequences)}"
                    )

    def groups(self, tallies: Tallies) -> Groups:
        """Return the group of every sample; the order of `tallies` does not matter."""
        sequences = dict.fromkeys(sequence for sequence, _ in tallies)
        by_sequence: dict[str, str | None] = {sequence: self._by_name(sequence) for sequence in sequences}
        rest = {sequence for sequence, group in by_sequence.items() if group is None}
        by_block: dict[int, str] = {}
        if self.shares and self.stable:
            by_sequence |= {sequence: stable_group(sequence, self.shares) for sequence in rest}
        elif self.shares and len(rest) >= len(self.shares):
            by_sequence |= assign(_summed({key: key[0] for key in tallies if key[0] in rest}, tallies), self.shares)
        elif self.shares:
            blocks = assign(_summed({key: str(key[1]) for key in tallies if key[0] in rest}, tallies), self.shares)
            by_block = {int(block): group for block, group in blocks.items()}
            by_sequence = {sequence: group for sequence, group in by_sequence.items() if group is not None}
        return Groups(by_sequence, by_block, self.block, self.gap)

    def _by_name(self, sequence: str) -> str | None:
        for group, globs in self.named.items():
            if any(fnmatch.fnmatchcase(sequence, glob) for glob in globs):
                return group
        return None


def _summed(units: Mapping[tuple[str, int], str], tallies: Tallies) -> dict[str, Counter[Kind]]:
    found: dict[str, Counter[Kind]] = {}
    for key, unit in units.items():
        found.setdefault(unit, Counter()).update(tallies[key])
    return found
