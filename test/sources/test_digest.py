# SPDX-License-Identifier: Apache-2.0
"""The hash of a recording, whatever was read of it, in which order and in how large pieces."""

from __future__ import annotations

import hashlib
import io
import random

import pytest

from edgefirst_ros.sources.mcap import _BLOCK, _LONG, _WAITING, HashedFile

SIZE = (_WAITING + 3) * _BLOCK + 12_345


@pytest.fixture(scope="module")
def content():
    return random.Random(3).randbytes(SIZE)


@pytest.fixture
def path(tmp_path, content):
    path = tmp_path / "recording"
    path.write_bytes(content)
    return path


def hash_of(path, content, reads):
    """Return the hash after some reads (place, bytes), of which each gave the right bytes."""
    with HashedFile(io.FileIO(path)) as file:
        for place, size in reads:
            file.seek(place)
            assert file.read(size) == (content[place : place + size] if size >= 0 else content[place:])
            file.advance(place)
        return file.sha256()


@pytest.mark.parametrize(
    "reads",
    [
        [],
        [(0, SIZE)],
        [(0, -1)],
        [(0, 8), (8, SIZE)],
        [(8, _LONG), (8 + _LONG, _LONG - 1), (SIZE - 100, 200)],
        [(0, 3 * _LONG), (_LONG, 3 * _LONG), (0, 2 * _LONG)],  # read again, and beyond
        [(5 * _BLOCK, _LONG), (_BLOCK, _LONG), (7 * _BLOCK, 2 * _BLOCK)],  # skipped, and back
        [(place, 100) for place in range(0, SIZE, 90_001)],
        [(place, _BLOCK + 1) for place in range(0, SIZE, _BLOCK)],
        [(0, (_WAITING + 2) * _BLOCK)],  # more than may wait
        [(SIZE, 1000), (SIZE + 5, 1000)],
    ],
    ids=str,
)
def test_the_hash_is_that_of_the_whole_file(path, content, reads):
    assert hash_of(path, content, reads) == hashlib.sha256(content).hexdigest()


def test_any_reads(path, content):
    rng = random.Random(11)
    sizes = (0, 1, 31, 4096, _LONG - 1, _LONG, _LONG + 1, _BLOCK, 3 * _BLOCK + 7)
    for _ in range(8):
        reads = [(rng.randrange(SIZE), rng.choice(sizes)) for _ in range(30)]
        reads = sorted(reads) if rng.random() < 0.5 else reads
        assert hash_of(path, content, reads) == hashlib.sha256(content).hexdigest()


def test_what_is_read_in_one_piece_is_read_once(path, content, monkeypatch):
    again = []
    monkeypatch.setattr(
        "os.pread", lambda fd, size, place: again.append((place, size)) or content[place : place + size]
    )
    heads = [(place, 80) for place in range(0, SIZE, 2 * _BLOCK)]
    bodies = [(place + 60, min(2 * _BLOCK - 60, SIZE - place - 60)) for place, _ in heads]
    reads = [read for pair in zip(heads, bodies, strict=True) for read in pair]
    assert hash_of(path, content, reads) == hashlib.sha256(content).hexdigest()
    assert again == [(place, 60) for place, _ in heads]


def test_an_empty_file(tmp_path):
    (tmp_path / "empty").touch()
    assert hash_of(tmp_path / "empty", b"", [(0, 10)]) == hashlib.sha256().hexdigest()
