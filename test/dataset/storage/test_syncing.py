# SPDX-License-Identifier: Apache-2.0
"""The disk begins early with what is appended, piece by piece, and the file stays as it was written."""

import os

from edgefirst_ros.dataset.storage.lock import WriteBehind

MEGABYTE = 1 << 20


def test_the_disk_is_told_of_every_piece_once(tmp_path, monkeypatch):
    told, advise = [], os.posix_fadvise

    def noted(fd, begin, size, advice):
        told.append((begin, begin + size, advice))
        advise(fd, begin, size, advice)

    monkeypatch.setattr(os, "posix_fadvise", noted)
    data = os.urandom(3 * MEGABYTE)
    with (tmp_path / "file").open("xb", buffering=0) as file:
        behind = WriteBehind(file.fileno())
        for number in range(1, 14):  # 39 MB
            file.write(data)
            behind.advance(number * len(data))
    assert told == [(0, 18 * MEGABYTE, os.POSIX_FADV_DONTNEED), (18 * MEGABYTE, 36 * MEGABYTE, os.POSIX_FADV_DONTNEED)]
    assert (tmp_path / "file").read_bytes() == data * 13
