# SPDX-License-Identifier: Apache-2.0
"""Which sequences and blocks of time are shared out, and which have their group by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.grouping import SAMPLES, GroupRule
from edgefirst_ros.errors import UsageError

S = 10**9
HALVES = {"a": 0.5, "b": 0.5}


def drives(*names, blocks=1):
    """A sample a second in as many blocks of 10 s."""
    return {(name, block): {SAMPLES: 10} for name in names for block in range(blocks)}


def test_as_many_sequences_as_groups_stay_whole():
    groups = GroupRule(HALVES).groups(drives("one", "two", blocks=5))
    assert {groups.of("one", 0), groups.of("two", 0)} == {"a", "b"}
    assert all(groups.of(name, t * S) == groups.of(name, 0) for name in ("one", "two") for t in range(50))


def test_fewer_sequences_than_groups_are_cut_at_the_same_times():
    groups = GroupRule({"a": 0.5, "b": 0.3, "c": 0.2}).groups(drives("left", "right", blocks=10))
    found = [groups.of("left", t * S) for t in range(100)]
    assert found == [groups.of("right", t * S) for t in range(100)]
    assert {group: found.count(group) for group in set(found)} == {"a": 50, "b": 30, "c": 20}
    assert all(len(set(found[start : start + 10])) == 1 for start in range(0, 100, 10))


@given(st.integers(1, 49), st.integers(2, 8))
@settings(max_examples=20)
def test_nothing_is_nearer_than_the_gap_to_another_group(gap, blocks):
    """Whatever has a group lies further from all stamps of others, and nothing else lacks one."""
    tallies = {("drive", block): {SAMPLES: 1} for block in range(blocks)}
    whole, cut = (GroupRule(HALVES, block=100, gap=one).groups(tallies) for one in (0, gap))
    for stamp in range(100 * blocks):
        near = {whole.of("drive", other) for other in (stamp - gap, stamp, stamp + gap) if 0 <= other < 100 * blocks}
        assert cut.of("drive", stamp) == (near.pop() if len(near) == 1 else None)


def test_sequences_by_name_take_no_part_in_the_shares():
    rule = GroupRule(HALVES, {"test": ("night*", "rain?"), "b": ("n*",)})
    groups = rule.groups(drives("night1", "rain2", "noon", "one", "two"))
    assert groups.by_sequence["night1"] == groups.by_sequence["rain2"] == "test"
    assert groups.by_sequence["noon"] == "b"
    assert {groups.by_sequence["one"], groups.by_sequence["two"]} == {"a", "b"}
    assert rule.names == ["a", "b", "test"]


def test_without_shares_what_no_pattern_names_has_no_group():
    groups = GroupRule(named={"test": ("night*",)}).groups(drives("night", "day"))
    assert (groups.of("night", 0), groups.of("day", 0)) == ("test", None)


@given(st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1), st.integers(0, 8))
def test_stable_groups_are_those_of_any_other_run(names, cut):
    rule = GroupRule({"train": 0.8, "val": 0.2}, stable=True)
    together = rule.groups(drives(*names)).by_sequence
    apart = [rule.groups(drives(*part)).by_sequence for part in (names[:cut], names[cut:])]
    assert together == apart[0] | apart[1]
    assert None not in together.values()


def test_a_pattern_that_matches_nothing_lists_the_sequences_like_ones_first():
    rule = GroupRule(named={"test": ("nihgt*",)})
    with pytest.raises(UsageError, match=r"--group test=nihgt\* matches no sequence; known: night, "):
        rule.check(["day", "wood", "night"])
    GroupRule(named={"test": ("night*",)}).check(["day", "night"])
    with pytest.raises(UsageError, match="day19 and 5 more"):
        rule.check([f"day{n:02}" for n in range(25)])


def test_the_rule_of_settings_goes_into_a_journal_and_back():
    chosen = Settings(split={"train": 0.8, "val": 0.2}, group={"test": "night*"}, split_block=5, split_gap=0.5)
    rule = GroupRule.of(chosen)
    assert rule == GroupRule({"train": 0.8, "val": 0.2}, {"test": ("night*",)}, False, 5 * S, S // 2)
    assert GroupRule.of_plain(rule.plain) == rule
    assert GroupRule.of(Settings()) is None


@pytest.mark.parametrize(
    "change",
    [{"shares": []}, {"shares": {"a": "x"}}, {"shares": {"a": 7}}, {"named": 3}, {"block": 0}, {"gap": 10**18}, None],
)
def test_a_rule_that_is_none_is_passed_over(change):
    plain = GroupRule(HALVES).plain
    assert GroupRule.of_plain(change if change is None else plain | change) is None
