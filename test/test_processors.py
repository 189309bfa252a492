# SPDX-License-Identifier: Apache-2.0
"""How many threads there are: by affinity, and by the quota of a container."""

import os

import pytest

from edgefirst_ros.limits import count_processors, count_workers

V2 = "0::/user/job\n"
V1 = "12:memory:/\n4:cpu,cpuacct:/docker/ab\n3:cpuset:/\n0::/\n"


def tree(root, processes, files):
    """Folder with what a kernel shows: /proc/self/cgroup, and files below /sys/fs/cgroup."""
    shown = {"proc/self/cgroup": processes} | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for place, text in shown.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("processes", "files", "expected"),
    [
        (V2, {"user/job/cpu.max": "max 100000\n"}, 16),
        (V2, {"user/job/cpu.max": "200000 100000\n"}, 2),
        (V2, {"user/job/cpu.max": "250000 100000\n"}, 3),  # rounded up
        (V2, {"user/job/cpu.max": "10000 100000\n"}, 1),
        (V2, {"user/job/cpu.max": "max 100000\n", "user/cpu.max": "400000 100000\n"}, 4),  # of a group above
        (V2, {"user/job/cpu.max": "800000 100000\n", "user/cpu.max": "400000 100000\n"}, 4),
        (V2, {"user/job/cpu.max": "9900000 100000\n"}, 16),  # more than there are
        (V2, {"cpu.max": "300000 100000\n"}, 3),  # in a container that is shown the host's path
        (V2, {"other/cpu.max": "100000 100000\n"}, 16),
        (V2, {"user/job/cpu.max": "nonsense"}, 16),
        (V2, {"user/job/cpu.max": "100000 0"}, 16),
        (
            V1,
            {"cpu,cpuacct/docker/ab/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/docker/ab/cpu.cfs_period_us": "100000"},
            16,
        ),
        (
            V1,
            {"cpu,cpuacct/docker/ab/cpu.cfs_quota_us": "150000", "cpu,cpuacct/docker/ab/cpu.cfs_period_us": "50000"},
            3,
        ),
        (V1, {"cpu/cpu.cfs_quota_us": "110000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        (V1, {"cpu/cpu.cfs_quota_us": "110000\n"}, 16),
        ("", {"cpu.max": "100000 100000"}, 16),
    ],
)
def test_threads_are_no_more_than_a_container_may_use(tmp_path, monkeypatch, processes, files, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    assert count_processors(tree(tmp_path, processes, files)) == expected


def test_threads_are_no_more_than_the_affinity_allows(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5})
    assert count_processors(tree(tmp_path, V2, {"user/job/cpu.max": "800000 100000\n"})) == 2
    assert count_processors(tmp_path / "nothing") == 2


def test_workers_are_as_many_as_processors_unless_said():
    assert count_workers(3) == 3
    assert count_workers(0) == count_processors() >= 1
