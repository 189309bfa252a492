# SPDX-License-Identifier: Apache-2.0
"""NCore V4: many sequences in one folder."""

import os

from late import late
from test_ncore_odd_sequences import sequence

from edgefirst_ros.export import restore
from edgefirst_ros.export.ncore import library

v4 = late("ncore.data.v4", reason="nvidia-ncore is not installed")


def test_few_of_many_sequences_are_open_at_a_time(tmp_path, monkeypatch):
    """Each takes a descriptor a store, of which a process has 1,024, and up to 1 MiB a store."""
    for number in range(9):
        sequence(tmp_path / "in" / f"s{number}", name=f"s{number}")
    monkeypatch.setattr(library, "OPEN", 2)
    before, most = len(os.listdir("/proc/self/fd")), 0

    def watch(*_):
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")) - before)

    restore(tmp_path / "in", "ncore", tmp_path / "out", progress=watch)
    assert most < 14  # a writer has several files open
    assert sorted(path.stem for path in (tmp_path / "out").glob("*.zip")) == [f"s{number}" for number in range(9)]
    assert len(os.listdir("/proc/self/fd")) == before
