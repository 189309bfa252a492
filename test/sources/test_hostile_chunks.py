# SPDX-License-Identifier: Apache-2.0
"""Chunks that say or hold more than may be read."""

import lz4.frame
import pytest
import zstandard
from mcap_files import series, write

from edgefirst_ros.limits import Limits
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.mcap_walk import Chunk, unpack

PACK = {"zstd": zstandard.compress, "lz4": lz4.frame.compress, "": bytes}
SMALLEST = 1 << 20


def read(path, **limits):
    recording = McapRecording(path, Limits(**limits))
    return sum(1 for _ in recording.walk()), recording.damage


@pytest.mark.parametrize("compression", PACK)
def test_a_chunk_over_the_limit_is_damage(tmp_path, compression):
    path = tmp_path / "a.mcap"
    write(path, series(number=12, size=100_000), compression=compression, chunk_size=SMALLEST)
    assert read(path) == (12, [])
    found, damage = read(path, chunk_bytes=SMALLEST)
    assert found < 12
    assert "limits.chunk_bytes" in damage[0].what


def test_a_message_outside_of_chunks_over_the_limit_is_damage(tmp_path):
    path = tmp_path / "a.mcap"
    write(path, [*series(number=2, size=100), *series("/b", number=1, size=SMALLEST)], chunked=False)
    assert read(path) == (3, [])
    found, damage = read(path, chunk_bytes=SMALLEST)
    assert found == 2
    assert "limits.chunk_bytes" in damage[0].what


def test_a_chunk_without_compression_is_no_larger_than_it_says(tmp_path):
    path = tmp_path / "chunk"
    path.write_bytes(bytes(SMALLEST + 1))
    for whole, said in ((True, 1), (False, SMALLEST + 1)):
        with path.open("rb") as file, pytest.raises(ValueError, match=r"limits\.chunk_bytes"):
            unpack(file, Chunk(0, SMALLEST + 1, said, "", whole, frozenset()), SMALLEST)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("whole", [True, False])
def test_no_more_is_unpacked_than_the_limit(tmp_path, compression, whole):
    """A bomb that says it is small, and one whose end is missing."""
    path = tmp_path / "chunk"
    path.write_bytes(PACK[compression](bytes(5 * SMALLEST)))
    chunk = Chunk(0, path.stat().st_size, SMALLEST, compression, whole, frozenset())
    with path.open("rb") as file:
        if whole and compression == "zstd":
            with pytest.raises(ValueError, match="in place of"):
                unpack(file, chunk, SMALLEST)
        else:
            assert len(unpack(file, chunk, SMALLEST)) == SMALLEST
