# SPDX-License-Identifier: Apache-2.0
"""Groups by their shares: properties that hold for whatever there is to be shared out."""

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefirst_ros.dataset.grouping import SAMPLES, Kind, assign, hash_group
from edgefirst_ros.dataset.summary import describe_shares

CUBE, LIDAR, CAR = Kind("sensor", "radar.cube"), Kind("sensor", "lidar.points"), Kind("label", "car")
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)
SHARES = [{"train": 0.8, "val": 0.2}, {"train": 0.7, "val": 0.2, "test": 0.1}, {"a": 1.0}, {"a": 1 / 3, "b": 2 / 3}]


@st.composite
def tallies(draw, least=1, most=25):
    """What sequences have: some sensors on all their samples, some on none, any number of labels."""
    found = {}
    for number in range(draw(st.integers(least, most))):
        samples = draw(st.integers(1, 500))
        found[f"drive{number}"] = {
            SAMPLES: samples,
            CUBE: draw(st.sampled_from([0, samples])),
            LIDAR: draw(st.sampled_from([0, 0, samples])),
            CAR: draw(st.integers(0, 900)),
        }
    return found


def many(number, seed=0):
    chance = random.Random(seed)
    found = {}
    for unit in range(number):
        samples = chance.randint(50, 500)
        cube, lidar = (samples if chance.random() < share else 0 for share in (0.5, 0.3))
        found[f"drive{unit}"] = {SAMPLES: samples, CUBE: cube, LIDAR: lidar, CAR: chance.randint(0, 900)}
    return found


def of_group(found, groups):
    """What each group has, by kind."""
    totals = {}
    for unit, group in groups.items():
        totals.setdefault(group, Counter()).update(found[unit])
    return totals


@settings(max_examples=40)
@given(tallies(), st.sampled_from(SHARES), st.randoms(use_true_random=False))
def test_the_order_does_not_matter(found, shares, chance):
    shuffled, groups = list(found.items()), list(shares.items())
    chance.shuffle(shuffled)
    chance.shuffle(groups)
    assert assign(dict(shuffled), dict(groups)) == assign(found, shares)


@given(tallies(), st.sampled_from(SHARES))
def test_shares_are_met_to_one_unit_and_no_group_stays_empty_that_could_have_one(found, shares):
    groups = assign(found, shares)
    assert groups.keys() == found.keys()
    assert len(set(groups.values())) == min(len(found), len(shares))
    have, total = of_group(found, groups), sum(tally[SAMPLES] for tally in found.values())
    largest = max(tally[SAMPLES] for tally in found.values())
    if len(found) >= len(shares):
        for group, share in shares.items():
            assert abs(have[group][SAMPLES] - share * total) <= largest * (1 + 1e-6)


@pytest.mark.parametrize("sizes", [(1, 4, 9, 5, 7, 4), (1, 9, 1, 4, 4, 7, 4), (6, 9, 4, 4, 7, 4, 6)])
def test_shares_that_several_exchanges_meet_exactly_are_met(sizes):
    found = {f"drive{n}": {SAMPLES: size} for n, size in enumerate(sizes)}
    have = of_group(found, assign(found, {"train": 0.5, "val": 0.3, "test": 0.2}))
    tenth = sum(sizes) // 10
    assert {group: tally[SAMPLES] for group, tally in have.items()} == {
        "train": 5 * tenth, "val": 3 * tenth, "test": 2 * tenth,
    }  # fmt: skip


@given(st.integers(0, 10**6))
@settings(max_examples=15)
def test_sensors_and_labels_are_shared_out_as_the_samples(seed):
    found, shares = many(60, seed), SHARES[1]
    have = of_group(found, assign(found, shares))
    for kind in (SAMPLES, CUBE, LIDAR, CAR):
        total = sum(tally[kind] for tally in found.values())
        for group, share in shares.items():
            assert abs(have[group][kind] - share * total) <= 0.1 * total, (kind, group)


def test_the_only_recording_with_radar_goes_to_the_largest_group():
    found = {"town": {SAMPLES: 30, CUBE: 30, LIDAR: 30}, "road": {SAMPLES: 30}, "wood": {SAMPLES: 20}}
    assert assign(found, SHARES[0])["town"] == "train"


def test_a_first_assignment_is_improved_by_exchanges():
    """Largest first gives 5 + 3 and 4 + 3 + 3; only 5 + 4 beside 3 + 3 + 3 are halves."""
    found = {name: {SAMPLES: size} for name, size in zip("abcde", (5, 4, 3, 3, 3), strict=True)}
    have = of_group(found, assign(found, {"one": 0.5, "other": 0.5}))
    assert [tally[SAMPLES] for tally in have.values()] == [9, 9]


def test_one_unit_goes_to_the_largest_group():
    assert assign({"short": {SAMPLES: 7}}, {"val": 0.2, "train": 0.8}) == {"short": "train"}


def test_thousands_of_units():
    found, shares = many(2000), SHARES[1]
    have = of_group(found, assign(found, shares))
    total = sum(tally[SAMPLES] for tally in found.values())
    assert all(abs(have[group][SAMPLES] / total - share) < 0.01 for group, share in shares.items())


@settings(max_examples=50)
@given(st.lists(NAMES, unique=True, min_size=1, max_size=9), st.sampled_from(SHARES))
def test_a_stable_group_needs_to_know_no_other(names, shares):
    together = {name: hash_group(name, shares) for name in names}
    assert set(together.values()) <= set(shares)
    assert together == {name: hash_group(name, shares) for name in reversed(names)}


def test_stable_groups_meet_their_shares_in_the_long_run():
    found = Counter(hash_group(f"drive{number}", SHARES[1]) for number in range(5000))
    assert all(abs(found[group] / 5000 - share) < 0.02 for group, share in SHARES[1].items())


@pytest.mark.parametrize(("name", "group"), [("monday", "b"), ("tuesday", "b"), ("night", "a")])
def test_a_stable_group_stays_for_ever(name, group):
    """By `printf monday | sha256sum`: the first 16 digits, as a part of 16**16, below a third or not."""
    assert hash_group(name, SHARES[3]) == group


def test_groups_are_the_same_in_every_process():
    code = (
        "from edgefirst_ros.dataset.grouping import SAMPLES, assign;"
        "print(sorted(assign({f's{n}': {SAMPLES: n % 7 + 1} for n in range(50)}, {'a': 0.7, 'b': 0.3}).items()))"
    )
    outputs = set()
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_units_of_which_nothing_is_known_are_given_out_too():
    """No group stays empty where there are as many units as groups."""
    groups = assign({"a": {}, "b": {SAMPLES: 0}, "c": {}}, SHARES[1])
    assert sorted(groups) == ["a", "b", "c"]
    assert sorted(groups.values()) == ["test", "train", "val"]


def test_what_rounding_leaves_of_the_shares_goes_to_the_last_group():
    """The place of a name is its SHA-256; one behind all shares is nobody's else."""
    names = [f"drive {number}" for number in range(200)]
    places = {name: int(hashlib.sha256(name.encode()).hexdigest()[:16], 16) / 2**64 for name in names}
    shares = {"train": 0.5, "val": 0.25}
    assert {name for name in names if hash_group(name, shares) == "train"} == {
        n for n, at in places.items() if at < 0.5
    }
    assert {hash_group(name, shares) for name, at in places.items() if at >= 0.75} == {"val"}


@pytest.mark.parametrize(
    ("groups", "words"), [({}, "-"), ({"train": 9}, "train"), ({"train": 80, "val": 20}, "train 80, val 20")]
)
def test_groups_are_told_with_their_samples_where_there_are_several(groups, words):
    assert describe_shares(groups) == words
