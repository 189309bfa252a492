# SPDX-License-Identifier: Apache-2.0
"""Recordings, whole and damaged, against the mcap library's own reader and a record walk written for the tests."""

import hashlib
import random
import struct
import threading
import time
import tracemalloc
import zlib
from pathlib import Path

import lz4.frame
import mcap_files as files
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from mcap.reader import NonSeekingReader

from edgefirst_ros.errors import RecordingError
from edgefirst_ros.sources import mcap, mcap_walk
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.source import hash_file

BOTH = {"/a", "/b"}


def walked(path, data=None):
    if data is not None:
        path.write_bytes(data)
    recording = McapRecording(path)
    return recording, [m.data for m in recording.walk()]


def ordered(path, topics=BOTH):
    recording = McapRecording(path)
    for _ in recording.walk():
        pass
    return [m.data for m in recording.iter_messages(topics)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "host_2026_01_15_12_00_00.mcap"


# ---- whole files -------------------------------------------------------------------------
@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("crcs", [True, False])
@pytest.mark.parametrize("indexed", [True, False])
def test_reads_what_the_mcap_library_reads(path, compression, chunked, crcs, indexed):
    sent = files.merged(files.series("/a"), files.series("/b", step=7_000_000))
    files.write(path, sent, compression=compression, chunked=chunked, crcs=crcs, indexed=indexed)
    with open(path, "rb") as file:
        expected = [
            (c.topic, m.log_time, m.publish_time, m.sequence, m.data)
            for _, c, m in NonSeekingReader(file).iter_messages(log_time_order=False)
        ]
    recording = McapRecording(path)
    first = [(m.topic, m.log_time, m.publish_time, m.sequence, m.data) for m in recording.walk()]
    second = [(m.topic, m.log_time, m.publish_time, m.sequence, m.data) for m in recording.iter_messages(BOTH)]
    assert first == second == expected
    assert len(expected) == 60
    assert recording.damage == []
    assert recording.size == recording.path.stat().st_size
    assert {(c.topic, c.schema, c.encoding, c.seen, c.definition) for c in recording.channels.values()} == {
        ("/a", "x/msg/Y", "cdr", 30, b"uint8 x"),
        ("/b", "x/msg/Y", "cdr", 30, b"uint8 x"),
    }


def test_only_the_topics_asked_for_are_given_as_often_as_wanted(path):
    a, b = files.series("/a"), files.series("/b")
    files.write(path, files.merged(a, b))
    recording, _ = walked(path)
    for _ in range(2):
        assert [m.data for m in recording.iter_messages({"/b"})] == [m.data for m in b]
    assert list(recording.iter_messages({"/none"})) == []


@pytest.mark.parametrize("topics", [None, BOTH, {"/a": "x/msg/Y", "/b": "x/msg/Y"}], ids=["all", "names", "types"])
def test_a_recording_that_was_not_walked_is_walked_first(path, topics):
    sent = files.merged(files.series("/a"), files.series("/b", step=7_000_000))
    files.write(path, sent)
    recording = McapRecording(path)
    assert [m.data for m in recording.iter_messages(topics)] == [m.data for m in sent]
    assert recording.topics == {"/a": "x/msg/Y", "/b": "x/msg/Y"}


def test_a_walk_that_was_broken_off_begins_anew(path):
    sent = files.series("/a")
    files.write(path, sent)
    recording = McapRecording(path)
    next(recording.walk())
    assert [m.data for m in recording.iter_messages()] == [m.data for m in sent]
    assert len(list(recording.walk())) == recording.channels[1].seen == 30


def test_messages_of_another_type_than_the_one_asked_for_are_left_out(path):
    files.write(path, files.series("/a"))
    assert list(McapRecording(path).iter_messages({"/a": "x/msg/Z"})) == []


@pytest.mark.parametrize("mixed_up", [False, True], ids=["in order", "out of order"])
def test_a_span_of_time_has_its_start_and_not_its_end(path, mixed_up):
    sent = files.series("/a", 200)
    stored = sent[100:] + sent[:100] if mixed_up else sent
    files.write(path, stored)
    recording = McapRecording(path)
    for first, last in ((0, 200), (30, 31), (50, 150), (199, 300), (300, 400), (60, 60)):
        span = files.START + first * files.STEP, files.START + last * files.STEP
        assert [m.data for m in recording.iter_messages({"/a"}, *span)] == [m.data for m in sent[first:last]]
    start = files.START + 100 * files.STEP
    assert [m.sequence for m in recording.iter_messages(start=start)] == list(range(100, 200))
    assert [m.sequence for m in recording.iter_messages(end=start)] == list(range(100))


def test_of_a_short_span_little_is_read(path):
    files.write(path, files.series("/a", 200, size=100_000), chunk_size=1 << 20)
    recording, _ = walked(path)
    before = bytes_read()
    start = files.START + 100 * files.STEP
    assert len(list(recording.iter_messages({"/a"}, start, start + 5 * files.STEP))) == 5
    assert bytes_read() - before < recording.size / 4


def test_foreign_encodings_are_counted_and_not_given(path):
    foreign = [m._replace(encoding="json") for m in files.series("/b")]
    files.write(path, files.merged(files.series("/a"), foreign))
    recording, found = walked(path)
    assert len(found) == 30
    assert list(recording.iter_messages({"/b"})) == []
    assert {c.topic: (c.encoding, c.seen) for c in recording.channels.values()} == {
        "/a": ("cdr", 30),
        "/b": ("json", 30),
    }


def test_the_position_runs_through_the_file_and_the_hash_is_that_of_its_bytes(path):
    data = files.write(path, files.series("/a", 100))
    recording = McapRecording(path)
    positions = [recording.position for _ in recording.walk()]
    assert positions == sorted(positions)
    assert positions[0] < positions[-1] <= recording.size == len(data)
    assert hash_file(path) == hashlib.sha256(data).hexdigest()


def skipped(data):
    """With records that no walk reads: larger than what is read ahead, before and behind the messages."""
    other = files.record(9, bytes(200_000))
    at = len(files.MAGIC)
    end = next(r.start for r in files.walk(data) if r.opcode == files.DATA_END)
    return data[:at] + other + data[at:end] + other + data[end:]


ODD = {
    "whole": bytes,
    "other records": skipped,
    "cut": lambda data: data[: len(data) * 2 // 3],
    "zeros": lambda data: data[: len(data) // 2] + bytes(100_000),
    "garbage": lambda data: data[:5000] + b"garbage" * 999 + data[12000:],
    "more behind the end": lambda data: data + b"more" * 50_000,
}


@pytest.mark.parametrize("compression", ["", "zstd"])
@pytest.mark.parametrize("odd", ODD)
def test_a_walk_makes_the_hash_of_the_whole_file_on_its_way(path, odd, compression):
    """Damaged or not, and no byte is read for it alone but those that the walk skips."""
    data = ODD[odd](files.write(path, files.series("/a", 400, size=5000), compression=compression, chunk_size=100_000))
    path.write_bytes(data)
    read = []
    for hashed in (False, True):
        recording = McapRecording(path, hashed=hashed)
        before = bytes_read()
        found = [m.data for m in recording.walk()]
        read.append(bytes_read() - before)
        assert recording.files[0].sha256 == (hashlib.sha256(data).hexdigest() if hashed else None)
    assert found == walked(path)[1]
    assert read[1] - read[0] < (500_000 if odd == "other records" else 200_000) < len(data) / 2


def test_a_walk_that_is_given_up_leaves_no_thread(path):
    files.write(path, files.series("/a", 1000))
    walk = McapRecording(path, hashed=True).walk()
    next(walk)
    walk.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "hash"]


# ---- what is no recording ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"\x89MCAP1\r\n", "magic"), (b"\0\0\0\x20ftypisom" + bytes(4096), "magic"), (b"\x89MC", "magic")],
)
def test_what_is_no_mcap_is_named(path, content, words):
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=words) as caught:
        list(McapRecording(path).walk())
    assert str(path) in str(caught.value)


def test_what_cannot_be_opened_is_named(path, tmp_path):
    for wrong, words in ((path, "no such file"), (tmp_path, "directory"), (tmp_path / "a\0b", "MCAP|opened")):
        with pytest.raises(RecordingError, match=words):
            list(McapRecording(wrong).walk())


# ---- cut ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("compression", "chunked", "crcs"),
    [("", True, True), ("", True, False), ("", False, True), ("lz4", True, True), ("zstd", True, True)],
)
def test_cut_at_every_byte(path, compression, chunked, crcs):
    sent = files.series("/a", 8, size=20)
    data = files.write(path, sent, compression=compression, chunked=chunked, crcs=crcs, chunk_size=150)
    records = files.walk(data)
    end = next(r for r in records if r.opcode == files.DATA_END)
    bodies = [r for r in records if r.opcode in (files.CHUNK, files.MESSAGE)]
    for cut in range(8, len(data)):
        recording, found = walked(path, data[:cut])
        assert found == files.whole_messages(data[:cut]), cut
        assert [m.data for m in recording.iter_messages({"/a"})] == found
        inside = any(r.start < cut < r.end for r in bodies)
        assert any(d.loss for d in recording.damage) == inside, (cut, recording.damage)
        assert bool(recording.damage) == (cut <= end.start or cut < end.end), cut
    assert len(found) == 8


def test_the_whole_messages_of_a_big_cut_chunk_are_given(path):
    """Compressed blocks are bigger than the chunks of the test above."""
    sent = files.series("/a", 3000, size=400)
    for compression in ("", "lz4", "zstd"):
        data = files.write(path, sent, compression=compression, chunk_size=10 << 20)
        (chunk,) = files.chunks(data)
        cut = data[: chunk.start + (chunk.end - chunk.start) * 6 // 10]
        _, found = walked(path, cut)
        assert found == files.whole_messages(cut)
        assert 1000 < len(found) < 2000, compression


@pytest.mark.parametrize("name", [b"", b"lz4", b"zstd"])
def test_the_head_of_a_chunk_is_read_once_its_last_byte_is_there(name):
    """Opcode and length, four numbers, the name of the compression, the bytes of the records (MCAP, "Chunk")."""
    body = struct.pack("<3QI", 1, 2, 300, 0xABCD) + struct.pack("<I", len(name)) + name + struct.pack("<Q", 100)
    head = struct.pack("<BQ", files.CHUNK, len(body) + 100) + body
    found = mcap_walk.chunk_head(head)
    assert (found.unpacked, found.crc, found.compression, found.packed) == (300, 0xABCD, name.decode(), 100)
    assert found.agrees
    assert mcap_walk.chunk_head(head[:-1]) is None


@pytest.mark.parametrize(("compression", "told"), [(b"zstd", True), (b"of others", False)])
def test_a_record_of_another_type_is_a_chunk_only_with_a_compression_of_chunks(path, compression, told):
    """Types from 0x80 on are for the applications, whose records may hold anything (MCAP, "Records")."""
    record = b"\x80" + files.chunk(files.sent(b"lost"), compression=compression, packed=bytes(50))[1:]
    whole = files.chunk(files.defined() + files.sent(b"first"))
    recording, found = walked(path, files.MAGIC + whole + record + files.chunk(files.sent(b"second")))
    assert found == [b"first", b"second"]
    assert any("a chunk with the type 128" in damage.what for damage in recording.damage) is told


@pytest.mark.parametrize("compression", [b"", b"lz4", b"zstd"])
@pytest.mark.parametrize("zeros", [0, 100_000])
def test_a_chunk_that_was_being_written_gives_its_whole_messages(path, compression, zeros):
    """The recorder's library writes all ones for sizes and CRC, and puts them right when the chunk is full."""
    bodies = [bytes([n]) * 30_000 for n in range(60)]
    inner = b"".join(files.sent(body, sequence=n) for n, body in enumerate(bodies))
    unsized = zstandard.ZstdCompressor(write_content_size=False)
    pack = {b"": bytes, b"lz4": lz4.frame.compress, b"zstd": unsized.compress}
    packed = pack[compression](inner)
    ones = (1 << 64) - 1
    unfinished = files.chunk(
        inner, compression=compression, packed=packed[: len(packed) * 3 // 4], unpacked=ones, crc=0xFFFFFFFF,
        length=ones, packed_size=ones,
    )  # fmt: skip
    data = files.MAGIC + files.chunk(files.defined() + files.sent(b"first")) + unfinished
    recording, found = walked(path, data + bytes(zeros if not compression else 0))
    assert found[0] == b"first"
    assert found[1:] == bodies[: len(found) - 1]
    assert 10 < len(found) < 60
    assert [d.loss for d in recording.damage] == [True]


@pytest.mark.parametrize("zeros", [1, 5, 9, 65536, 3 << 20])
def test_zeros_behind_the_last_chunk_are_no_loss(path, zeros):
    data = files.write(path, files.series("/a"))
    last = files.chunks(data)[-1]
    recording, found = walked(path, data[: last.end] + bytes(zeros))
    assert len(found) == 30
    assert [(d.offset, d.loss) for d in recording.damage] == [(last.end, False)]


# ---- flipped, overwritten, filled in -----------------------------------------------------
@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
def test_one_bit_anywhere_costs_at_most_its_own_chunk(path, compression):
    sent = files.series("/a", 12, size=20)
    data = files.write(path, sent, compression=compression, chunk_size=200)
    chunks = files.chunks(data)
    assert len(chunks) >= 3
    parts = [files.in_chunk(data, c.start, c.end) for c in chunks]
    everything = [m.data for m in sent]
    dice = random.Random(1)
    begins = {r.start for r in files.walk(data)}
    for place in range(8, len(data)):
        hurt = bytearray(data)
        hurt[place] ^= 1 << dice.randrange(8)
        if place in begins and hurt[place] == files.MESSAGE:
            continue  # an index that became a message: outside of chunks nothing tells
        recording, found = walked(path, bytes(hurt))
        hit = [n for n, c in enumerate(chunks) if c.start <= place < c.end]
        if found != everything:
            assert hit, f"the bit at {place} is in no chunk, {recording.damage}"
            assert found == [m for n, part in enumerate(parts) if n not in hit for m in part], place
            assert any(d.loss for d in recording.damage), place
        elif hit and place >= chunks[hit[0]].start + 9 + 40 and not compression:  # frames have idle bits
            pytest.fail(f"a wrong byte at {place} in the content of a chunk was not noticed")


def test_a_chunk_with_a_wrong_crc_gives_nothing_and_later_ones_all(path):
    """The first one, too: there the channels are defined, which only the end of the file repeats."""
    sent = files.series("/a", 60)
    data = files.write(path, sent)
    chunks = files.chunks(data)
    for number in (0, 2, len(chunks) - 1):
        hurt = bytearray(data)
        hurt[(chunks[number].start + chunks[number].end) // 2] ^= 0x10
        recording, found = walked(path, bytes(hurt))
        lost = files.in_chunk(data, chunks[number].start, chunks[number].end)
        assert lost
        assert found == [m.data for m in sent if m.data not in lost]
        assert [(d.offset, d.loss) for d in recording.damage] == [(chunks[number].start, True)]
        assert sum(c.seen for c in recording.channels.values()) == len(found)


def test_garbage_in_the_middle_costs_what_it_covers(path):
    sent = files.series("/a", 200)
    data = files.write(path, sent)
    chunks = files.chunks(data)
    dice = random.Random(3)
    for trial in range(40):
        first = dice.randrange(1, len(chunks) - 3)
        start, end = chunks[first].start + dice.randrange(40), chunks[first + 1].start + dice.randrange(40)
        garbage = bytes(end - start) if trial % 4 == 0 else dice.randbytes(end - start)
        recording, found = walked(path, data[:start] + garbage + data[end:])
        hurt = [n for n, c in enumerate(chunks) if c.start < end and c.end > start]
        kept = [m for n, c in enumerate(chunks) if n not in hurt for m in files.in_chunk(data, c.start, c.end)]
        assert found == kept, (trial, recording.damage)
        assert any(d.loss for d in recording.damage)


@pytest.mark.parametrize("indexed", [True, False])
def test_what_was_filled_in_or_taken_out_costs_no_whole_chunk(path, indexed):
    """Here the offsets in the index, if there is one, are wrong."""
    sent = files.series("/a", 200)
    data = files.write(path, sent, indexed=indexed)
    chunks = files.chunks(data)
    middle = chunks[5].start
    everything = [m.data for m in sent]
    for extra in (b"\0" * 7, b"\0" * 5000, bytes(range(256)) * 3, b"\xff" * 20, b"text, and more text"):
        recording, found = walked(path, data[:middle] + extra + data[middle:])
        assert found == everything, extra[:8]
        assert recording.damage
    recording, found = walked(path, data[: middle + 30] + data[chunks[8].start :])
    lost = [m for c in chunks[5:8] for m in files.in_chunk(data, c.start, c.end)]
    assert found == [m for m in everything if m not in lost]
    assert any(d.loss for d in recording.damage)


@settings(max_examples=150)
@given(st.data())
def test_no_damage_gives_another_error_or_a_message_that_was_not_written(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "a.mcap"
    compression = data.draw(st.sampled_from(["", "lz4", "zstd"]))
    chunked = data.draw(st.booleans())
    sent = files.merged(files.series("/a", 20), files.series("/b", 20))
    whole = bytearray(files.write(path, sent, compression=compression, chunked=chunked))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, len(whole) - 1))
        junk = data.draw(st.binary(min_size=1, max_size=40))
        how = data.draw(st.sampled_from(["over", "in", "out"]))
        whole[at : at + (0 if how == "in" else len(junk))] = b"" if how == "out" else junk
    path.write_bytes(bytes(whole))
    recording = McapRecording(path)
    try:
        found = [m.data for m in recording.walk()]
        again = sorted(m.data for m in recording.iter_messages({c.topic for c in recording.channels.values()}))
    except RecordingError:
        return
    assert again == sorted(found)
    if chunked:  # messages outside of chunks have no CRC
        assert set(found) <= {m.data for m in sent}


# ---- lies --------------------------------------------------------------------------------
HUGE = [(1 << 30) + 1, (1 << 63) + 5, (1 << 64) - 1]


def limited(function, megabytes):
    """What a function gives; it may not take more memory than that, nor minutes, where tracing makes it slow."""
    tracemalloc.start()
    try:
        begun = time.process_time()
        result = function()
        assert time.process_time() - begun < 60
        assert tracemalloc.get_traced_memory()[1] < megabytes << 20
    finally:
        tracemalloc.stop()
    return result


def framed(*records):
    return files.MAGIC + b"".join(records) + files.record(files.DATA_END, bytes(4))


@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("compression", [b"", b"lz4", b"zstd"])
@pytest.mark.parametrize("field", ["unpacked", "packed_size", "length"])
def test_huge_announced_sizes_of_a_chunk(path, field, compression, size):
    inner = files.sent(b"x" * 50) * 3
    pack = {b"": bytes, b"lz4": lz4.frame.compress, b"zstd": zstandard.compress}[compression]
    liar = files.chunk(inner, compression=compression, packed=pack(inner), **{field: size})
    after = files.chunk(files.sent(b"after"))
    data = framed(files.chunk(files.defined() + files.sent(b"before")), liar, after)
    recording, found = limited(lambda: walked(path, data), 8)
    assert found[0] == b"before"
    assert found[-1] == b"after"
    assert set(found[1:-1]) <= {b"x" * 50}
    if field == "unpacked" and compression:
        assert found == [b"before", b"after"]
        assert [d.loss for d in recording.damage] == [True]


@pytest.mark.parametrize("size", [*HUGE, 1 << 20])
@pytest.mark.parametrize("opcode", range(1, 18))
def test_huge_announced_lengths_of_a_record(path, opcode, size):
    liar = struct.pack("<BQ", opcode, size) + bytes(60)
    data = framed(files.chunk(files.defined() + files.sent(b"before")), liar, files.chunk(files.sent(b"after")))
    recording, found = limited(lambda: walked(path, data), 8)
    assert found == [b"before", b"after"]
    assert any(d.loss for d in recording.damage)


@pytest.mark.parametrize("length", [33, 1 << 16, 1 << 31, (1 << 32) - 1])
def test_huge_announced_names(path, length):
    chunk = bytearray(files.chunk(files.sent(b"x"), compression=b"zstd"))
    struct.pack_into("<I", chunk, 9 + 28, length)
    topic = bytearray(files.defined(2, b"/b"))
    at = topic.index(b"/b") - 4
    struct.pack_into("<I", topic, at, length)
    data = framed(files.defined(), bytes(topic), bytes(chunk), files.chunk(files.sent(b"y")))
    recording, found = limited(lambda: walked(path, data), 8)
    assert found == [b"y"]
    assert [c.topic for c in recording.channels.values()] == ["/a"]
    assert len(recording.damage) == 2


def test_a_definition_longer_than_any_text_is_damage_and_the_others_are_used(path, monkeypatch):
    monkeypatch.setattr(mcap_walk, "LONGEST_TEXT", 200)
    long = files.record(files.SCHEMA, struct.pack("<HI", 9, 1) + b"x" + bytes(300))
    data = framed(long, files.defined(), files.sent(b"one"))
    recording, found = walked(path, data)
    assert found == [b"one"]
    assert [damage.what for damage in recording.damage] == ["a schema or channel of 307 bytes"]


def test_a_summary_larger_than_may_be_read_is_not_read(path):
    """A chunk with a definition is broken; only behind the data the channels are told once more."""
    sent = files.series("/a", 30)
    data = bytearray(files.write(path, sent, chunk_size=300))
    begin = files.chunks(bytes(data))[-1].end
    with path.open("rb") as file:
        whole = mcap_walk.iter_definitions(file, len(data), 1 << 20)
        size = len(data) - begin
        assert [opcode for opcode, _ in whole] == [files.SCHEMA, files.CHANNEL]
        assert mcap_walk.iter_definitions(file, len(data), size) == whole
        assert mcap_walk.iter_definitions(file, len(data), 10) == []
    foot = len(data) - 8 - 20 - 9
    for start in (0, 8, foot, len(data), 1 << 60):
        struct.pack_into("<Q", data, foot + 9, start)
        path.write_bytes(data)
        with path.open("rb") as file:
            assert mcap_walk.iter_definitions(file, len(data), 1 << 20) == []


def test_a_chunk_whose_end_is_gone_since_it_was_walked_is_an_error(path):
    data = files.write(path, files.series("/a", 4), chunk_size=10_000)
    (chunk,) = files.chunks(data)
    begin = chunk.body + 8 + 8 + 8 + 4 + 4 + 8
    place = mcap_walk.Chunk(begin, chunk.end - begin, chunk.end - begin, "", True, frozenset())
    path.write_bytes(data)
    with path.open("rb") as file:
        assert len([*mcap_walk.read_messages(file, place, frozenset({1}), 1 << 20)]) == 4
    at = data.rindex(files.series("/a", 4)[-1].data)
    for end in (at - 25, at + 1):  # within the head of the last message, and within its data
        path.write_bytes(data[:end])
        with path.open("rb") as file, pytest.raises(ValueError, match="it ends early"):
            list(mcap_walk.read_messages(file, place, frozenset({1}), 1 << 20))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc here")
def test_a_recording_that_cannot_be_read_has_no_hash():
    """Nothing of this process lies at address 0."""
    with pytest.raises(RecordingError, match=r"/proc/self/mem: cannot be read: \[Errno 5\]"):
        hash_file(Path("/proc/self/mem"))


def test_bombs_are_not_unpacked(path):
    """Frames that say, or do not say, that they hold 300 MB, in chunks that announce little."""
    bomb = bytes(300 << 20)
    for compression, packed in (
        (b"zstd", zstandard.ZstdCompressor(write_content_size=True).compress(bomb)),
        (b"zstd", zstandard.ZstdCompressor(write_content_size=False).compress(bomb)),
        (b"lz4", lz4.frame.compress(bomb, store_size=True)),
    ):
        chunk = files.chunk(b"", compression=compression, packed=packed, unpacked=1000, crc=zlib.crc32(bytes(1000)))
        data = framed(files.defined(), chunk, files.chunk(files.sent(b"y")))
        recording, found = limited(lambda data=data: walked(path, data), 12)
        assert found == [b"y"]
        assert recording.damage


def test_a_frame_that_lies_about_its_size_takes_no_memory(path):
    inner = files.sent(b"x" * 1000)
    head = zstandard.compress(inner)
    liar = head[:4] + b"\xc0\x58" + struct.pack("<Q", 1 << 38) + head[7:]  # no single segment: window, then 8 bytes
    assert zstandard.frame_content_size(liar) == 1 << 38
    data = framed(files.defined(), files.chunk(inner, compression=b"zstd", packed=liar), files.chunk(files.sent(b"y")))
    recording, found = limited(lambda: walked(path, data), 8)
    assert found == [b"y"]
    assert len(recording.damage) == 1


@pytest.mark.parametrize("body", [b"", files.sent(b"x" * 1000)], ids=["empty", "full"])
def test_a_frame_that_does_not_state_its_size_is_read(path, body):
    """Writers that compress as they go do not know it."""
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(body)
    data = framed(files.defined(), files.chunk(body, compression=b"zstd", packed=packed), files.chunk(files.sent(b"y")))
    recording, found = walked(path, data)
    assert found == ([b"x" * 1000] if body else []) + [b"y"]
    assert recording.damage == []


@pytest.mark.parametrize(("crc", "losses"), [(0, [True]), (None, [])], ids=["without", "right"])
def test_a_chunk_that_gives_less_than_it_says_is_a_loss_unless_its_crc_is_right(path, crc, losses):
    body = files.sent(b"x")
    recording, found = walked(path, framed(files.defined(), files.chunk(body, unpacked=len(body) + 30, crc=crc)))
    assert found == [b"x"]
    assert [damage.loss for damage in recording.damage] == losses


@pytest.mark.parametrize(
    ("opcode", "length", "loss"),
    [(files.MESSAGE, 100, True), (files.CHANNEL, 100, False), (files.CHANNEL, 1 << 25, True), (0x7F, 100, True)],
    ids=["message", "channel", "a channel longer than any", "unknown"],
)
def test_a_record_cut_at_the_end_is_a_loss_where_it_may_hold_messages(path, opcode, length, loss):
    data = files.MAGIC + files.defined() + files.sent(b"x") + struct.pack("<BQ", opcode, length) + bytes(30)
    recording, found = walked(path, data)
    assert found == [b"x"]
    assert [damage.loss for damage in recording.damage] == [loss]


def test_an_unknown_compression_is_named(path):
    data = framed(files.defined(), files.chunk(files.sent(b"x"), compression=b"brotli"), files.chunk(files.sent(b"y")))
    recording, found = walked(path, data)
    assert found == [b"y"]
    assert "brotli" in recording.damage[0].what


def test_messages_on_an_unknown_channel_are_said_once_and_not_given(path):
    inner = files.defined(1) + b"".join(files.sent(b"x", number=1 + n % 2) for n in range(1000))
    recording, found = walked(path, framed(files.chunk(inner)))
    assert found == [b"x"] * 500
    assert len(recording.damage) == 1
    assert "unknown channel 2" in recording.damage[0].what
    assert recording.damage[0].loss


def test_records_that_end_early_in_a_chunk_without_crc_are_said(path):
    good = files.sent(b"x")
    for bad in (struct.pack("<BQ", 5, 1 << 63), struct.pack("<BQ", 5, 1000) + bytes(30), bytes(99),
                files.record(5, b"short")):  # fmt: skip
        recording, found = walked(path, framed(files.defined(), files.chunk(good + bad, crc=0)))
        assert found == [b"x"], bad
        assert [d.loss for d in recording.damage] == [True], bad


@pytest.mark.parametrize("compression", [b"", b"zstd"])
def test_a_message_too_short_for_its_head_costs_itself_in_both_walks(path, compression):
    body = files.sent(b"x") + files.record(5, struct.pack("<H", 1) + bytes(9)) + files.sent(b"y", sequence=1)
    packed = zstandard.compress(body) if compression else body
    recording, found = walked(path, framed(files.defined(), files.chunk(body, compression=compression, packed=packed)))
    assert found == [m.data for m in recording.iter_messages({"/a"})] == [b"x", b"y"]
    assert [d.loss for d in recording.damage] == [True]


@pytest.mark.parametrize("stamp", [0, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_any_stamp_fits_into_64_bits_with_sign(path, stamp):
    body = files.defined() + b"".join(
        files.sent(bytes([n]), sequence=n, log_time=s, publish_time=s) for n, s in enumerate((files.START, stamp))
    )
    path.write_bytes(framed(files.chunk(body)))
    recording = McapRecording(path)
    found = [*recording.walk(), *recording.iter_messages({"/a"})]
    assert len(found) == 4
    assert all(0 <= m.log_time <= 4 * 10**18 and 0 <= m.publish_time <= 4 * 10**18 for m in found)
    assert [m.log_time for m in found if m.data == b"\1"] == [min(stamp, 4 * 10**18)] * 2


@pytest.mark.parametrize("compression", ["", "zstd"])
@pytest.mark.parametrize("behind", [bytes, lambda _: b""])
def test_what_changes_between_the_walks_is_an_error_of_the_recording(path, compression, behind):
    data = files.write(path, files.series("/a"), compression=compression)
    recording, _ = walked(path)
    path.write_bytes(data[:500] + behind(len(data) - 500))
    with pytest.raises(RecordingError, match="changed"):
        list(recording.iter_messages({"/a"}))


def test_what_is_not_wanted_is_not_read_again(path):
    """Cubes, clouds and pictures of other cameras may be most of a recording."""
    small, large = files.series("/a", 200), files.series("/b", 200, size=200_000, start=files.START + 1)
    files.write(path, files.merged(small, large), chunk_size=1 << 20)
    recording, _ = walked(path)
    before = bytes_read()
    assert [m.data for m in recording.iter_messages({"/a"})] == [m.data for m in small]
    assert bytes_read() - before < recording.size / 2


def bytes_read():
    with open("/proc/self/io", "rb") as file:
        return int(file.readline().split()[1])


# ---- recorded order ----------------------------------------------------------------------
def rearranged(data, order):
    """The same file with its chunks in another order (index and end left out)."""
    chunks = files.chunks(data)
    return data[: chunks[0].start] + b"".join(data[chunks[n].start : chunks[n].end] for n in order(len(chunks)))


def shuffle(seed):
    def order(number):
        rest = list(range(1, number))  # the first holds the definitions
        random.Random(seed).shuffle(rest)
        return [0, *rest]

    return order


@pytest.mark.parametrize("compression", ["", "zstd"])
def test_shuffled_chunks_give_the_same_messages_in_the_same_order(path, compression):
    sent = files.merged(files.series("/a", 300), files.series("/b", 430, start=files.START + 3, step=7_000_000))
    data = files.write(path, sent, compression=compression)
    expected = ordered(path)
    assert expected == [m.data for m in sent]
    for seed in range(3):
        path.write_bytes(rearranged(data, shuffle(seed)))
        assert ordered(path) == expected


@pytest.mark.parametrize("held", [1, 1 << 26])
def test_chunks_that_are_let_go_and_read_again_change_nothing(path, monkeypatch, held):
    """Messages alternate between the two halves of the file: without room each is read from its chunk anew."""
    a, b = files.series("/a", 40), files.series("/b", 40, start=files.START + 3)
    files.write(path, a + b, compression="zstd")
    read, unpack = [], mcap.unpack
    monkeypatch.setattr(mcap, "unpack", lambda file, chunk, largest: read.append(chunk) or unpack(file, chunk, largest))
    monkeypatch.setattr(mcap, "HELD_CHUNKS", held)
    assert ordered(path) == [m.data for m in files.merged(a, b)]
    number = len(files.chunks(path.read_bytes()))
    assert number > 8
    assert len(read) > 2 * number if held == 1 else len(read) == 2 * number  # once for the index


@pytest.mark.parametrize("mixed_up", [False, True])
def test_a_message_that_two_files_have_comes_once(path, mixed_up):
    """In file order and, where the chunks of a file are out of order, by the index too."""
    sent = files.series(number=60)
    second = path.with_name("second.mcap")
    files.write(path, sent[:40])
    files.write(second, sent[20:])
    if mixed_up:
        path.write_bytes(rearranged(path.read_bytes(), shuffle(1)))
    recording = McapRecording(path, more=[second])
    assert len(list(recording.walk())) == 60
    assert recording.repeated == {"/a": 20}
    assert [m.data for m in recording.iter_messages({"/a"})] == [m.data for m in sent]


def test_chunks_grouped_by_topic_are_merged_by_log_time(path):
    a, b = files.series("/a", 300), files.series("/b", 300, start=files.START + 3)
    files.write(path, a + b)
    assert ordered(path) == [m.data for m in files.merged(a, b)]


@settings(max_examples=60)
@given(st.permutations(range(25)), st.booleans(), st.booleans())
def test_shuffled_messages_come_by_sequence_number_else_by_log_time(tmp_path_factory, order, numbered, crossed):
    """`crossed`: log times fall while sequence numbers rise; the numbers win where they are all different."""
    path = tmp_path_factory.mktemp("any") / "a.mcap"
    sent = [
        m._replace(sequence=m.sequence if numbered else 7, log_time=files.START - n * 1000 if crossed else m.log_time)
        for n, m in enumerate(files.series("/a", 25))
    ]
    files.write(path, [sent[n] for n in order])
    expected = sent if numbered else sorted(sent, key=lambda m: m.log_time)
    assert ordered(path, {"/a"}) == [m.data for m in expected]


def test_equal_log_times_without_sequence_numbers_keep_file_order(path):
    sent = [m._replace(sequence=0, log_time=files.START + n // 4) for n, m in enumerate(files.series("/a", 40))]
    files.write(path, sent)
    assert ordered(path, {"/a"}) == [m.data for m in sent]
    moved = sent[20:] + sent[:20]
    files.write(path, moved)
    assert ordered(path, {"/a"}) == [m.data for m in sorted(moved, key=lambda m: m.log_time)]


def test_a_clock_set_back_keeps_file_order_where_sequence_numbers_rise(path):
    def back(messages):
        return [m._replace(log_time=m.log_time - (3600 * 10**9 if n >= 30 else 0)) for n, m in enumerate(messages)]

    pairs = zip(back(files.series("/a", 60)), back(files.series("/b", 60, start=files.START + 5)), strict=True)
    sent = [m for pair in pairs for m in pair]
    files.write(path, sent)
    assert ordered(path) == [m.data for m in sent]


def test_several_channels_of_one_topic_are_one_stream(path):
    """Each has its own sequence numbers, so that they are not all different and log times count."""
    first = files.series("/a", 20, step=2000)
    second = [m._replace(channel=1) for m in files.series("/a", 20, seed=1, start=files.START + 1000, step=2000)]
    for order in (files.merged(first, second), first + second, second + first):
        files.write(path, order)
        assert ordered(path, {"/a"}) == [m.data for m in files.merged(first, second)]
    recording, _ = walked(path)
    assert sorted((c.topic, c.seen) for c in recording.channels.values()) == [("/a", 20), ("/a", 20)]


# ---- bounded -----------------------------------------------------------------------------
def test_memory_does_not_grow_with_the_file(path):
    dice = random.Random(0)
    peaks = []
    for megabytes in (5, 20):
        sent = [files.Sent("/a", files.START + n, n, dice.randbytes(1 << 18)) for n in range(megabytes * 4)]
        files.write(path, sent, chunk_size=1 << 20, compression="lz4")
        shuffled = rearranged(path.read_bytes(), shuffle(1))
        number = len(sent)
        del sent

        def read(number=number):
            recording = McapRecording(path)
            assert sum(1 for _ in recording.walk()) == number
            assert sum(1 for _ in recording.iter_messages({"/a"})) == number

        tracemalloc.start()
        read()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert recorded(path, shuffled) == number
    assert peaks[1] < peaks[0] + (1 << 20)
    assert peaks[1] < 8 << 20


def recorded(path, data):
    path.write_bytes(data)
    return len(ordered(path, {"/a"}))


def test_small_messages_outside_of_chunks_take_little_memory(path):
    sent = [files.Sent("/a", files.START + n, n, b"x") for n in range(20_000)]
    files.write(path, sent, chunked=False, indexed=False)
    recording = McapRecording(path)

    def read():
        assert sum(1 for _ in recording.walk()) == 20_000
        assert sum(1 for _ in recording.iter_messages({"/a"})) == 20_000

    limited(read, 3)


def test_an_end_of_data_before_the_last_chunk_is_not_believed(path):
    """One wrong bit makes it of an index record."""
    sent = files.series("/a", 60)
    data = bytearray(files.write(path, sent))
    index = next(r for r in files.walk(data) if r.opcode == files.MESSAGE_INDEX)
    data[index.start] = files.DATA_END
    recording, found = walked(path, bytes(data))
    assert found == [m.data for m in sent]
    assert [d.offset for d in recording.damage] == [index.start]
