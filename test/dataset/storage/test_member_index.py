# SPDX-License-Identifier: Apache-2.0
"""Which members are there, a bit each: any number of kinds, exactly those that were added, in bounded memory."""

import random
import tracemalloc

import pytest

from edgefirst_ros.dataset.names import KINDS, Member, MemberIndex, make_member_name
from edgefirst_ros.errors import DatasetError


def test_exactly_the_members_that_were_added_are_there():
    index, chance = MemberIndex(), random.Random(1)
    added = {(f"s{chance.randrange(2)}", chance.choice([0, 1, 511, 512, 2**32 - 1]), kind) for kind in KINDS * 4}
    for key in added:
        index.add(make_member_name(*key))
    for sequence in ("s0", "s1", "none"):
        for frame in (0, 1, 2, 510, 511, 512, 513, 2**32 - 1):
            assert index.kinds(sequence, frame) == {kind for s, f, kind in added if (s, f) == (sequence, frame)}
    with pytest.raises(DatasetError, match="written before"):
        index.add(make_member_name(*next(iter(added))))


def test_what_is_undone_can_be_added_again():
    index = MemberIndex()
    index.add_member(Member("s", 5, KINDS[0]))
    names = [make_member_name("s", 5, kind) for kind in KINDS[1:]]
    for name in names:
        index.add(name)
    assert index.undo() == names
    assert index.kinds("s", 5) == {KINDS[0]}
    assert [index.add(name).kind for name in names] == list(KINDS[1:])


def test_there_may_be_any_number_of_instances():
    index, kinds = MemberIndex(), tuple(f"lidar-n{n}.pcd" for n in range(21))
    for frame in range(1000):
        for n in range(frame % 22):
            assert index.add_member(Member("s", frame, kinds[n]))
    for frame in range(1000):
        assert index.kinds("s", frame) == set(kinds[: frame % 22])
        assert not frame % 22 or not index.add_member(Member("s", frame, kinds[0]))


def test_an_hour_of_members_take_little_memory():
    index, frames = MemberIndex(), 3600 * 30
    tracemalloc.start()
    for frame in range(0, frames, 8):  # of each page some
        for kind in KINDS[:4]:
            index.add_member(Member("s", frame, kind))
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < frames  # a byte of all kinds
