# SPDX-License-Identifier: Apache-2.0
"""Rebuilds rows of both tables for samples whose rows were lost, from names, pictures and the other table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeGuard

import pyarrow as pa

from edgefirst_ros.counts import INTERRUPTED, Counts
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import FrameSet, Member, keys_of
from edgefirst_ros.dataset.recovery.unfinished import Found
from edgefirst_ros.dataset.sequences import REFERENCE, SEQUENCES
from edgefirst_ros.dataset.tables.rowlog import ANNOTATION_ROWS, Rows
from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.exif import ExifFound, read_exif
from edgefirst_ros.sensors.jpeg import jpeg_size
from edgefirst_ros.sensors.navigation import yaw_pitch_roll
from edgefirst_ros.sensors.png import check_png

_HEADS = (1 << 12, 1 << 17)
"""Bytes of a JPEG in which EXIF and size are looked for; the second only where the first do not do."""
_NOTHING = ExifFound(None, None, None, None, None, None)
_SINGLE = 2e-5
"""Degrees: positions of annotations have steps of 1.5e-5 at 180."""
_STAMPS = range(-(1 << 63), 1 << 63)


class Rebuilt:
    """The rebuilt rows, `rows` of annotations and `frames`; `samples` and `unstamped` count them.

    A sample without a picture that tells its stamp gets the time of its member, which is right to 2 s.
    """

    def __init__(self, companions: list[str]) -> None:
        self.samples = self.annotations = self.unstamped = 0
        self.per_sequence: dict[str, int] = {}
        self._without_picture: dict[tuple[str, int], int] = {}
        self._in_frames = FrameSet()
        self._in_annotations = FrameSet()
        self._told: dict[tuple[str, int], tuple[Any, ...]] = {}
        """Stamp, size and position by the rows of annotations, of samples that have only these."""
        self.rows = Rows(ANNOTATION_ROWS)
        self.frames = Rows(schema.journal_schema(schema.frames_columns(companions)))

    def know_frame(self, sequence: str, frame: int) -> None:
        """Note a sample that has a frames row."""
        self._in_frames.add(sequence, frame)

    def know_annotations(self, batch: pa.RecordBatch) -> None:
        """Note samples that have annotation rows; those with a frames row are noted before."""
        for place, key in enumerate(keys_of(batch)):
            self._in_annotations.add(*key)
            if key not in self._in_frames and key not in self._told:
                self._told[key] = tuple(batch[name][place].as_py() for name in ("timestamp", "size", "location"))

    def take(self, member: Member, found: Found) -> None:
        """Rebuild the rows of a whole member's sample, if it has none."""
        key = member.sequence, member.frame
        if key in self._in_frames:
            return
        if not member.kind.startswith("camera."):
            self._without_picture.setdefault(key, found.stamp)
            return
        self._without_picture.pop(key, None)
        exif, size = _described(member.kind, found)
        self._add(member.sequence, member.frame, exif, size, found.stamp)

    def annotate(self, row: Mapping[str, Any]) -> None:
        """Rebuild the annotation row for a frames row, if there is none."""
        key = row["name"], row["frame"]
        if key in self._in_annotations:
            return
        self._in_annotations.add(*key)
        self.annotations += 1
        made: dict[str, object] = {name: row[name] for name in ("name", "frame", "timestamp", "size")}
        if row["latitude"] is not None and row["longitude"] is not None:
            made["location"] = [row["latitude"], row["longitude"]]
        if row["orientation"] is not None:
            made["pose"] = list(yaw_pitch_roll(row["orientation"]))
        self.rows.append(made)

    def finish(self) -> None:
        """Rebuild the rows of samples without a picture."""
        for (sequence, frame), stamp in self._without_picture.items():
            self._add(sequence, frame, _NOTHING, None, stamp)

    def _add(self, sequence: str, frame: int, exif: ExifFound, size: tuple[int, int] | None, stamp: int) -> None:
        self.samples += 1
        self.per_sequence[sequence] = self.per_sequence.get(sequence, 0) + 1
        self._in_frames.add(sequence, frame)
        told, told_size, place = self._told.pop((sequence, frame), (None, None, None))
        if told is None and exif.stamp is not None and exif.stamp in _STAMPS:
            told = exif.stamp
        self.unstamped += told is None
        row: dict[str, Any] = {"name": sequence, "frame": frame, "timestamp": stamp if told is None else told}
        row |= {"size": told_size or size, "latitude": None, "longitude": None, "orientation": None}
        latitude, longitude, altitude = exif.latitude, exif.longitude, exif.altitude
        if place is not None and not _is_same((latitude, longitude), place):
            (latitude, longitude), altitude = place, None
        if latitude is not None and longitude is not None and abs(latitude) <= 90 and abs(longitude) <= 180:
            row |= {"latitude": latitude, "longitude": longitude, "altitude": altitude}
        self.frames.append(row)
        self.annotate(row)


def _is_same(exact: tuple[float | None, float | None], place: list[float]) -> bool:
    """True if two positions are equal in single precision."""
    return all(a is not None and abs(a - b) <= _SINGLE for a, b in zip(exact, place, strict=True))


def _described(kind: str, found: Found) -> tuple[ExifFound, tuple[int, int] | None]:
    """Return the EXIF facts of a picture, as far as it can be read."""
    for length in _HEADS if kind.endswith("jpeg") else (1 << 30,):
        head = found.head(length)
        try:
            size = jpeg_size(head) if kind.endswith("jpeg") else check_png(head)
            return read_exif(head), size
        except MessageError:
            if len(head) < length:
                break
    return _NOTHING, None


def recounted_facts(described: Mapping[str, Any], used: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """Metadata of the last commit, with counts of what is `used` now, by sequence and part.

    An earlier version told the topics beside them, and counts of the whole alone.
    """
    sequences = described.get(SEQUENCES)
    if not isinstance(sequences, dict) or not all(isinstance(known, dict) for known in sequences.values()):
        counts = _recounted(described.get("counts"), described.get("topics"), used)
        return {"counts": counts, "static_transforms": described.get("static_transforms") or []}
    found: dict[str, Any] = {}
    total: Counts | None = Counts()
    for name, known in sequences.items():
        own = {key: number for key, number in used.items() if key[0] == name}
        counts = _recounted(known.get("counts"), {name: known.get("topics")}, own)
        found[name] = {**known, "counts": counts}
        if total is not None and counts is not None:
            total.add(Counts.of(counts))
        else:
            total = None
    return {SEQUENCES: found, "counts": total.plain() if total is not None else None}


def _recounted(counts: Any, topics: Any, used: Mapping[tuple[str, str], int]) -> dict[str, Any] | None:
    """Return the counts of the last commit with what is `used` now, by sequence and part; None where there are none.

    What of a reference was seen and is nowhere else was interrupted. `topics` is {sequence: {part: topic}}.
    """
    if not _is_counted(counts) or not _is_by_part(topics):
        return None
    told = {topic for parts in topics.values() for topic in parts.values()}
    written = Counter(dict.fromkeys(told & counts.keys(), 0))
    for (sequence, part), number in used.items():
        topic = topics.get(sequence, {}).get(part, "")
        written.update({topic: number} if topic else {})
    for topic, number in written.items():
        count = counts.setdefault(topic, {"seen": 0, "written": 0, "dropped": {}})
        count["written"] = number
        # What a capture wrote since the last commit was seen since then as well.
        count["seen"] = max(count["seen"], number + sum(count["dropped"].values()))
    for reference in {parts[REFERENCE] for parts in topics.values() if REFERENCE in parts} & set(counts):
        count = counts[reference]
        rest = count["seen"] - count["written"] - sum(count["dropped"].values())
        if rest > 0:
            count["dropped"][INTERRUPTED] = rest
    return counts


def _is_by_part(topics: Any) -> TypeGuard[dict[str, dict[str, str]]]:
    """True if it is {sequence: {part: topic}}."""
    return isinstance(topics, dict) and all(
        isinstance(parts, dict) and all(isinstance(topic, str) for topic in parts.values()) for parts in topics.values()
    )


def _is_counted(counts: Any) -> TypeGuard[dict[str, Any]]:
    """True if it is {topic: {"seen", "written", "dropped": {reason: n}}}."""
    return isinstance(counts, dict) and all(
        isinstance(count, dict)
        and isinstance(count.get("dropped"), dict)
        and all(isinstance(n, int) for n in (count.get("seen"), count.get("written"), *count["dropped"].values()))
        for count in counts.values()
    )
