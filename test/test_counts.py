# SPDX-License-Identifier: Apache-2.0
import json
import sys
import threading

import edgefirst_ros.counts as module
from edgefirst_ros.counts import DAMAGED, LOSS, NO_LOSS, PART_REASONS, Counts


def test_counts_are_kept_by_topic_and_reason():
    counts = Counts()
    counts["/b"].seen += 5
    counts["/a"].seen += 2
    counts.drop("/b", "undecodable")
    counts.drop("/b", "not sampled", 3)
    counts.drop("/b", "never", 0)
    counts["/b"].written += 1
    plain = counts.plain()
    assert plain == {
        "/a": {"seen": 2, "written": 0, "dropped": {}},
        "/b": {"seen": 5, "written": 1, "dropped": {"not sampled": 3, "undecodable": 1}},
    }
    assert list(plain) == ["/a", "/b"]
    assert json.loads(json.dumps(plain)) == plain


def test_what_is_lost_is_told_from_what_is_only_counted():
    counts = Counts()
    for reason in (*LOSS, *NO_LOSS, "unknown encoding (json)"):
        counts.drop("/a", reason, 2)
    counts.drop("/b", "not sampled")
    assert counts.lost == {"/a": dict.fromkeys(LOSS, 2)}


def test_no_reason_is_both_and_every_reason_of_the_module_is_one():
    assert not LOSS & NO_LOSS
    assert not (LOSS | NO_LOSS) & PART_REASONS
    reasons = {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    assert reasons == LOSS | NO_LOSS | PART_REASONS


def test_the_counts_of_recordings_add_up():
    first, second = Counts(), Counts()
    first["/a"].seen, first["/a"].written = 3, 2
    first.drop("/a", "x")
    second["/a"].seen, second["/a"].written = 4, 1
    second.drop("/a", "x", 2)
    second.drop("/a", "y")
    second["/b"].seen = 1
    first.add(second)
    assert first.plain() == {
        "/a": {"seen": 7, "written": 3, "dropped": {"x": 3, "y": 1}},
        "/b": {"seen": 1, "written": 0, "dropped": {}},
    }
    assert second.plain()["/a"]["dropped"] == {"x": 2, "y": 1}


def test_threads_may_count_at_the_same_time():
    counts, switching = Counts(), sys.getswitchinterval()

    def count():
        for _ in range(2000):
            counts.see("a")
            counts.write("a")
            counts.drop("a", DAMAGED)
            counts.plain()

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switching)
    assert counts.plain() == {"a": {"seen": 8_000, "written": 8_000, "dropped": {DAMAGED: 8_000}}}
