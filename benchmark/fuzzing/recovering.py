# SPDX-License-Identifier: Apache-2.0
"""Damaged unfinished datasets are completed and continued: what comes out is genuine, and what is lost is told."""

import itertools
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from edgefirst_ros import convert
from edgefirst_ros.cli.info import DatasetInfo
from edgefirst_ros.dataset.names import DatasetPaths, parse_member
from edgefirst_ros.dataset.recovery.recover import Recovery, recover
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import EdgeFirstError
from fuzzing import leftover, seeds
from fuzzing.leftover import CASES, COMMITS, NAME, Bundle, File

Key = tuple[str, int]
Rows = dict[Key, list[dict[str, Any]]]
REPORTED = ("samples", "members", "lost_stretches", "lost_bytes", "rows_rebuilt", "annotations_lost", "rows_dropped",
            "members_missing", "exit_code")  # fmt: skip
LOG = f"{NAME}.rows.journal"


@dataclass(frozen=True)
class Truth:
    """A case: what was left, and what it becomes without interruption."""

    left: Bundle
    paths: DatasetPaths
    members: dict[str, bytes]
    """In the order in which they were written."""
    spans: dict[str, int]
    """In a ZIP: where each ends."""
    frames: Rows
    annotations: Rows


@dataclass(frozen=True)
class Untouched:
    """What of a damaged dataset is as it was written."""

    members: set[str]
    """Those that lie before any damage."""
    samples: set[Key]
    """Those whose rows do."""
    trusted: bool
    """Whether nothing is damaged that the disk was known to have."""


def target(folder: Path, given: Path) -> Callable[[bytes], bool]:
    """Feeds damaged unfinished datasets."""
    for name in ("fsync", "fdatasync", "sync"):  # nothing here is about the disk
        setattr(os, name, lambda *_: None)
    tempfile.tempdir = str(folder)
    work, lefts = given / "leftover", [Bundle.unpacked(data) for data in seeds.load(given, "left")]
    truths = [_truth(work, bundle) for bundle in lefts]
    precious = folder / "precious"
    precious.mkdir()
    (precious / "kept").write_bytes(b"precious" * 1000)

    def feed(data: bytes) -> bool:
        bundle, out = Bundle.unpacked(data), folder / "out"
        truth, before = truths[bundle.case], _tree(precious)
        try:
            bundle.lay(out, (precious, precious / "kept")[zlib.crc32(data) // 2 % 2])
            accepted = _recovered(bundle, truth, out, verify=bool(zlib.crc32(data) % 2))
            shutil.rmtree(out)
            bundle.lay(out, (precious, precious / "kept")[zlib.crc32(data) // 2 % 2])
            accepted |= _continued(bundle, truth, out, leftover.recording_of(work, CASES[bundle.case]))
        finally:
            shutil.rmtree(out)
        assert _tree(precious) == before, "changed beyond the folder"
        return accepted

    return feed


def _truth(work: Path, left: Bundle) -> Truth:
    paths = DatasetPaths(leftover.finished_of(work, left.case), NAME, CASES[left.case].layout)
    members, spans = _members(paths), {}
    if paths.layout == "zip":
        with zipfile.ZipFile(paths.container) as archive:
            starts = [info.header_offset for info in archive.infolist()]
            spans = dict(zip(archive.namelist(), [*starts[1:], archive.start_dir], strict=True))
    return Truth(left, paths, members, spans, _rows(paths.frames), _rows(paths.arrow))


def _members(paths: DatasetPaths) -> dict[str, bytes]:
    if paths.layout == "directory":
        files = sorted(path for path in paths.members.glob("*/*") if path.is_file())
        return {str(path.relative_to(paths.members)): path.read_bytes() for path in files}
    with zipfile.ZipFile(paths.container) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def _rows(path: Path) -> Rows:
    found: Rows = {}
    for row in pa.ipc.open_file(path.read_bytes()).read_all().to_pylist():
        found.setdefault((row["name"], row["frame"]), []).append({k: v for k, v in row.items() if v is not None})
    return found


def _tree(folder: Path) -> dict[str, object]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.lstat().st_size, path.lstat().st_mode)
        for path in folder.rglob("*")
        if not path.is_dir()
    }


# ---- what is untouched -----------------------------------------------------------------------
def _untouched(bundle: Bundle, truth: Truth) -> Untouched:
    # A log of another dataset in its place is believed when it says that the disk had it all.
    fsync = CASES[bundle.case].fsync or b'"synced": true' in _file(bundle, LOG)
    committed = sorted(truth.frames)[: COMMITS[-1] + 1] if fsync else []
    samples, _, whole_log = _logged(bundle, truth.left)
    if truth.paths.layout == "zip":
        name = f"{NAME}.zip.partial"
        kept, synced = len(_kept(bundle, truth.left, name)), 0
        for member, end in truth.spans.items():
            synced = end if _key(member) in committed else synced
        file = bundle.files.get(name, File())
        short = whole_log and len(file.content) + file.zeros < synced  # the disk did not keep its word: nothing is
        trusted = kept >= synced or short
        return Untouched({m for m, end in truth.spans.items() if end <= kept}, samples, trusted)
    begin = f"{NAME}.partial/{NAME}/"
    members = [name for name in truth.members if begin + name in truth.left.files]
    whole = {m for m in members if not leftover.changed([b.files.get(begin + m) for b in (bundle, truth.left)])}
    return Untouched(whole, samples, all(m in whole for m in members if _key(m) in committed))


def _kept(bundle: Bundle, left: Bundle, name: str) -> bytes:
    """The first bytes of a file that are as they were."""
    first, second = (_file(b, name) for b in (bundle, left))
    shorter = min(len(first), len(second))
    differing = np.frombuffer(first[:shorter], np.uint8) != np.frombuffer(second[:shorter], np.uint8)
    return first[: int(differing.argmax()) if differing.any() else shorter]


def _file(bundle: Bundle, name: str) -> bytes:
    """The content of a file, which lies in a folder of its own where members do; empty where it is not there."""
    found = bundle.files.get(name) or bundle.files.get(f"{NAME}.partial/{name}")
    return found.content if found is not None else b""


def _logged(bundle: Bundle, left: Bundle) -> tuple[set[Key], set[str], bool]:
    """Samples and members in the part of the row log that is as it was, and whether that is all of it."""
    kept, whole = _kept(bundle, left, LOG), _file(left, LOG)
    samples, members = set(), set()
    for start, end in itertools.pairwise([*leftover.record_starts(whole), len(whole)]):
        if end > len(kept):
            break
        facts = json.loads(whole[start + leftover.HEAD.size :][: leftover.HEAD.unpack_from(whole, start)[1]])
        if "frame" in facts:
            samples.add((facts["frame"]["name"], facts["frame"]["frame"]))
        members.update(name for name, _, _ in facts.get("members", ()))
    return samples, members, kept == whole


def _key(name: str) -> Key:
    member = parse_member(name)
    assert member is not None, f"{name!r} is no name of a member"
    return member.sequence, member.frame


# ---- what is done ----------------------------------------------------------------------------
def _attempt(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except EdgeFirstError:
        return None


def _recovered(bundle: Bundle, truth: Truth, out: Path, *, verify: bool) -> bool:
    paths, untouched = DatasetPaths(out, NAME, truth.paths.layout), _untouched(bundle, truth)
    before = _tree(out)
    _attempt(lambda: DatasetInfo(paths.container).plain())
    assert not validate(paths.members_partial).ok
    dry = _attempt(lambda: recover(paths.container, verify=verify, dry_run=True))
    assert _tree(out) == before, "a dry run changed something"
    report = _attempt(lambda: recover(paths.container, verify=verify))
    if report is None:
        in_the_way = any(file.kind != "file" for file in bundle.files.values())
        assert in_the_way or not untouched.members, "whole members, and refused"
        return False
    assert dry is not None, "a dry run refuses what can be recovered"
    said = [{key: getattr(one, key) for key in REPORTED} for one in (dry, report)]
    assert said[0] == said[1], f"dry run {said[0]}, then {said[1]}"
    assert recover(paths.container).complete
    if untouched.trusted or verify:
        _check(paths, bundle, truth, untouched, report)
    return True


def _check(paths: DatasetPaths, bundle: Bundle, truth: Truth, untouched: Untouched, report: Recovery) -> None:
    """What was recovered is genuine, complete as far as it must be, and no loss is kept silent."""
    checked = validate(paths.container)
    dates = checked.counts["HDR007"]  # those of members in an archive: a header has no checksum
    assert checked.errors == dates, checked.to_text()
    members, frames, annotations = _members(paths), _rows(paths.frames), _rows(paths.arrow)
    for name, content in members.items():
        assert content in _possible(bundle, truth, name), f"{name} is not what was written"
    missing = untouched.members - members.keys()
    assert not missing, f"whole members are missing: {sorted(missing)[:3]}"
    assert (report.members, report.samples) == (len(members), len(frames))
    assert all(len(rows) == 1 for rows in frames.values()), "a sample has two rows of frames"
    assert frames.keys() == annotations.keys() >= {_key(name) for name in members}
    whole = {key for key in frames if _names(truth.members, key) <= members.keys()}
    anew = {key for key, (row,) in frames.items() if not _is_row(row, truth.frames[key], key in whole)}
    assert len(anew) <= report.rows_rebuilt, f"rows of frames differ: {sorted(anew)[:3]}, {report.rows_rebuilt} anew"
    assert not anew & untouched.samples, f"rows of frames were whole: {sorted(anew & untouched.samples)[:3]}"
    poor = {key for key, rows in annotations.items() if rows != truth.annotations[key]}
    assert len(poor) <= report.annotations_lost, f"annotations differ: {sorted(poor)[:3]}, {report.text}"
    assert not poor & untouched.samples, f"annotations were whole: {sorted(poor & untouched.samples)[:3]}"
    genuine = {key for key in anew if all(members[n] == truth.members[n] for n in _names(members, key))}
    for key in genuine:  # nothing tells of a JPEG that is a file of its own that its EXIF was changed
        assert _is_weaker(frames[key][0], truth.frames[key][0]), f"{frames[key]} of {truth.frames[key]}"
    for key in poor:
        assert len(annotations[key]) == 1, f"{annotations[key]} of {truth.annotations[key]}"
        assert _is_weaker(annotations[key][0], truth.annotations[key][0]), f"{annotations[key]}"
    known = {n for n in truth.members if _key(n) in untouched.samples} - members.keys()
    assert report.exit_code or not known, f"lost and not reported: {sorted(known)[:3]}; {report.text}"


def _possible(bundle: Bundle, truth: Truth, name: str) -> tuple[bytes, ...]:
    """The contents a member may have.

    Only the row log tells that a JPEG or PCD that is a file of its own is not as it was. Nothing tells that bits of a
    name were flipped so that it is another member's.
    """
    written = (truth.members[name],) if name in truth.members else ()
    archive, file = (bundle.files.get(n) for n in (f"{NAME}.zip.partial", f"{NAME}.partial/{NAME}/{name}"))
    before = truth.left.files.get(f"{NAME}.zip.partial")
    if archive and before and archive.content.count(name.encode()) > before.content.count(name.encode()):
        return tuple(truth.members.values())
    if name in _logged(bundle, truth.left)[1]:
        return written
    content = file.content + bytes(file.zeros) if file else b""
    alike = not name.endswith(".png") or any(map(content.startswith, written))
    return (*written, content) if file and alike else written


def _names(members: Mapping[str, bytes], key: Key) -> set[str]:
    return {name for name in members if _key(name) == key}


def _is_row(row: Mapping[str, Any], written: list[dict[str, Any]], whole: bool) -> bool:
    """Whether a row is the one that was written, less what is said of companions that are lost."""
    first = written[0]
    lost = {key for key in first if key.endswith(("_timestamp", "_skew"))} - row.keys() if not whole else set()
    return row == {key: value for key, value in first.items() if key not in lost}


def _is_weaker(row: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """Whether all that a row says is true, as far as members tell it."""
    exact = ("name", "frame", "size")
    return abs(row["timestamp"] - written["timestamp"]) <= 2 * 10**9 and all(
        row[key] == written.get(key) if key in exact else _is_close(row[key], written.get(key))
        for key in row
        if key != "timestamp"
    )


def _is_close(value: Any, other: Any) -> bool:
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_is_close, value, other))
    return value == other or (isinstance(other, float) and abs(value - other) < 1e-3)


def _continued(bundle: Bundle, truth: Truth, out: Path, recording: Path) -> bool:
    """A conversion that is continued gives the same as without interruption, or says why it does not."""
    paths = DatasetPaths(out, NAME, truth.paths.layout)
    try:
        if convert(recording, out, name=NAME, layout=paths.layout).refused:
            return False
    except EdgeFirstError:
        return False
    if not _untouched(bundle, truth).trusted:
        return True
    checked = validate(paths.container)
    assert checked.ok, f"continued: {checked.to_text()}"
    members = _members(paths)
    names = truth.members.keys() | filter(parse_member, members)
    differing = [n for n in names if members.get(n) not in _possible(bundle, truth, n)]
    assert not differing, f"continued: {sorted(differing)[:3]} differ"
    assert _rows(paths.frames) == truth.frames, "continued: rows of frames differ"
    assert _rows(paths.arrow) == truth.annotations, "continued: annotations differ"
    if list(members) == list(truth.members) and paths.layout == "zip":  # those of a sample may have been swapped
        assert paths.container.read_bytes() == truth.paths.container.read_bytes(), "continued: the archive differs"
    return True
