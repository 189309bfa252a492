# SPDX-License-Identifier: Apache-2.0
"""Groups of samples (train, val, …): by sequence name, by its hash, or by shares of sequences or blocks of time."""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import fsum
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from edgefirst_ros import streams
from edgefirst_ros.config import Settings, to_ns
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.lazy import pl
from edgefirst_ros.dataset.tables.write import Batches
from edgefirst_ros.errors import UsageError, sort_nearest


class Kind(NamedTuple):
    """Kind of count: samples, samples with a sensor, annotations of a label."""

    what: Literal["samples", "sensor", "label"]
    name: str = ""


SAMPLES = Kind("samples")
Tally = Mapping[Kind, int]
MOST_TRIES = 50_000
"""Moves and exchanges that are tried to improve a first assignment; with thousands of units that one is near enough."""
MISSED = 0.05
"""Difference of a share from the one that was requested, beyond which it is reported."""
UNSTAMPED = -1
"""Placeholder for a missing stamp of a sample."""
NOISE = 1e-9
"""Tolerance for rounding of shares."""


def assign(tallies: Mapping[str, Tally], shares: Mapping[str, float]) -> dict[str, str]:
    """Return the group of each unit (a sequence, a block of time), independent of the order of `tallies`.

    The `shares` add up to 1. Largest first, each unit is assigned to the group furthest from its share, counted over
    samples, sensors and labels. No group's samples differ from its share by more than the largest unit, and no group
    stays empty if the units are at least as many as the groups. Equal on every processor and version of Python.
    """
    names = sorted(shares, key=lambda group: (-shares[group], group))
    balance = _Balance(tallies, {group: shares[group] for group in names})
    units = sorted(tallies, key=lambda unit: (-balance.size(unit), unit))
    for number, unit in enumerate(units):
        balance.put(unit, balance.choose(unit, len(units) - number))
    balance.refine(units)
    return dict(balance.group_of)


def hash_group(sequence: str, shares: Mapping[str, float]) -> str:
    """Return the group of a sequence by the hash of only its name: it does not depend on other sequences."""
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
        if left > len(groups):  # else each empty group needs one of the units
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


Tallies = Mapping[tuple[str, int], Tally]
"""{(sequence, number of the time block): counts of its contents}."""


class Groups(NamedTuple):
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

    def of_rows(self, rows: pl.DataFrame, *, keep: bool) -> list[str | None]:
        """Return the group of each row with name, timestamp and group; `keep`: without a new one that it has."""
        stamps = rows["timestamp"].fill_null(UNSTAMPED)
        before = rows["group"] if keep else [None] * len(rows)
        return [self.of(name, stamp) or own for name, stamp, own in zip(rows["name"], stamps, before, strict=True)]


@dataclass(frozen=True)
class GroupRule:
    """Rule that assigns samples to groups: some sequences by name, the others by shares.

    Shares assign whole sequences if they are at least as many as the groups, or `stable`: then by the hash of only the
    name. Otherwise they assign blocks of time, over all of these sequences alike.
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
        block, gap = to_ns(settings.split_block), to_ns(settings.split_gap)
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
        return asdict(self)

    @property
    def names(self) -> list[str]:
        """Names of the groups, those with a share first."""
        return list(dict.fromkeys([*self.shares, *self.named]))

    def share_of(self, sequence: str) -> bool:
        """True if the group of a sequence is one by shares."""
        return bool(self.shares) and self._by_name(sequence) is None

    def check(self, sequences: Collection[str]) -> None:
        """Raise UsageError for a pattern that matches no given sequence."""
        for group, globs in self.named.items():
            for glob in globs:
                if not any(fnmatch.fnmatchcase(sequence, glob) for sequence in sequences):
                    turned = f"; the group is first: {glob}={group}" if group in sequences else ""
                    known = sort_nearest(glob, sequences)
                    raise UsageError(f"--group {group}={glob} matches no sequence{turned}; known: {known}")

    def groups(self, tallies: Tallies) -> Groups:
        """Return the group of every sample; the order of `tallies` does not matter."""
        sequences = dict.fromkeys(sequence for sequence, _ in tallies)
        by_sequence: dict[str, str | None] = {sequence: self._by_name(sequence) for sequence in sequences}
        rest = {sequence for sequence, group in by_sequence.items() if group is None}
        by_block: dict[int, str] = {}
        if self.shares and self.stable:
            by_sequence |= {sequence: hash_group(sequence, self.shares) for sequence in rest}
        elif self.shares and len(rest) >= len(self.shares):
            by_sequence |= assign(
                _sum_tallies({key: key[0] for key in tallies if key[0] in rest}, tallies), self.shares
            )
        elif self.shares:
            blocks = assign(_sum_tallies({key: str(key[1]) for key in tallies if key[0] in rest}, tallies), self.shares)
            by_block = {int(block): group for block, group in blocks.items()}
            by_sequence = {sequence: group for sequence, group in by_sequence.items() if group is not None}
        return Groups(by_sequence, by_block, self.block, self.gap)

    def _by_name(self, sequence: str) -> str | None:
        for group, globs in self.named.items():
            if any(fnmatch.fnmatchcase(sequence, glob) for glob in globs):
                return group
        return None


def _sum_tallies(units: Mapping[tuple[str, int], str], tallies: Tallies) -> dict[str, Counter[Kind]]:
    found: dict[str, Counter[Kind]] = {}
    for key, unit in units.items():
        found.setdefault(unit, Counter()).update(tallies[key])
    return found


def find_groups(rule: GroupRule, frames: Iterable[pl.DataFrame], annotations: Iterable[pl.DataFrame]) -> Groups:
    """Return the groups of all samples: of rows of frames and of annotations with name and timestamp.

    Rows of frames may have stamps of companions, those of annotations labels.
    """
    found: dict[tuple[str, int], Counter[Kind]] = {}
    for counted, tables in ((count_samples, frames), (count_labels, annotations)):
        for rows in tables:
            units = rows.with_columns(block=pl.col("timestamp").fill_null(UNSTAMPED) // rule.block)
            for (name, block), tally in counted(units, "name", "block"):
                found.setdefault((name, block), Counter()).update(tally)
    return rule.groups(found)


def count_samples(rows: pl.DataFrame, *by: str) -> Iterator[tuple[tuple[Any, ...], Counter[Kind]]]:
    """Yield the values of the columns `by`, and counts of samples and sensors of rows of frames that have them."""
    stamps = {sensor.key: f"{sensor.column}_timestamp" for sensor in streams.find_by_columns(rows.columns)}
    stamps = {key: column for key, column in stamps.items() if column in rows.columns}
    counts = [pl.len().alias("samples"), *(pl.col(column).count() for column in stamps.values())]
    for row in rows.group_by(by).agg(counts).sort(by).rows():
        sensors = zip(stamps, row[len(by) + 1 :], strict=True)
        found = Counter({Kind("sensor", key): number for key, number in sensors if number})
        yield row[: len(by)], found + Counter({SAMPLES: row[len(by)]})


def count_labels(rows: pl.DataFrame, *by: str) -> Iterator[tuple[tuple[Any, ...], Counter[Kind]]]:
    """Yield the values of the columns `by`, and the count of a label of annotations that have them."""
    for *key, label, number in rows.drop_nulls("label").group_by(*by, "label").len().sort(*by, "label").rows():
        yield tuple(key), Counter({Kind("label", label): number})


def with_groups(rule: GroupRule | None, frames: Batches, annotations: Batches) -> Batches:
    """Return the rows of a journal of annotations with the group of their sample; as they are without a rule."""
    if rule is None:
        return annotations

    def table(batch: pa.RecordBatch, *names: str) -> pl.DataFrame:
        return pl.DataFrame(pl.from_arrow(batch.select(names)))

    def stamps(batch: pa.RecordBatch) -> pl.DataFrame:
        return table(batch, "name", *(name for name in batch.schema.names if name.endswith("timestamp")))

    labels = (table(batch, "name", "timestamp", "label") for batch in annotations())
    groups, keep = find_groups(rule, map(stamps, frames()), labels), not rule.shares

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in annotations():
            place = batch.schema.get_field_index("group")
            column = groups.of_rows(table(batch, "name", "timestamp", "group"), keep=keep)
            yield batch.set_column(place, batch.schema.field(place), pa.array(column, schema.TEXT))

    return batches


def describe_missed_shares(asked: Mapping[str, float], samples: Mapping[str | None, int]) -> str | None:
    """Return asked and got shares in words; None if all differ by at most MISSED. `samples` by group."""
    total = sum(samples.values())
    got = {group: samples.get(group, 0) / total for group in asked} if total else {}
    if not any(abs(asked[group] - share) > MISSED + NOISE for group, share in got.items()):
        return None
    said = [f"{group} {100 * asked[group]:.4g} % asked, {100 * share:.1f} % got" for group, share in got.items()]
    return f"shares of samples: {', '.join(said)}"
