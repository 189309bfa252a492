# SPDX-License-Identifier: Apache-2.0
"""EXIF of pictures: written into JPEG and PNG files and read back.

Source: CIPA DC-008 (Exif 2.32).
"""

from __future__ import annotations

import io
import json
import math
import struct
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from edgefirst_ros.counts import UNDECODABLE
from edgefirst_ros.errors import DatasetError, MessageError
from edgefirst_ros.sensors.jpeg import APP0, APP1, DQT, HUFFMAN, SOS, Buffer, iter_segments, make_usual_tables
from edgefirst_ros.sensors.png import PNG_SIGNATURE, iter_chunks, make_chunk

SECOND = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MAKE = "EdgeFirst"
BYTE, ASCII, SHORT, LONG, RATIONAL, UNDEFINED = 1, 2, 3, 4, 5, 7
SIZES = {BYTE: 1, ASCII: 1, SHORT: 2, LONG: 4, RATIONAL: 8, UNDEFINED: 1}
MAIN, GPS, COMMENT = 0x8769, 0x8825, 0x9286
LONGEST_EXIF = 0xFFFF
"""Bytes of EXIF, in PNG too: JPEG has no room for more."""
LONGEST_TIFF = LONGEST_EXIF - 8
HEADER = b"MM\0\x2a\0\0\0\x08"
"""Of a TIFF file, big-endian, whose first directory is right after it."""
ENTRY = struct.Struct(">HHI4s")
Entry = tuple[int, int, bytes]
"""Tag, type and value of a TIFF directory."""
FINE = 10_000_000
"""Denominator of arc seconds and seconds: 60 of them still fit into 32 bits."""


@dataclass(frozen=True, slots=True)
class ExifInfo:
    """EXIF values to be written into a picture.

    stamp in ns since the epoch (UTC); latitude and longitude in degrees (WGS-84), None without a fix; altitude and
    error (horizontal, 1 sigma) in m; heading in degrees from true north; focal_35mm in mm.
    """

    sequence: str
    frame: int
    stamp: int
    host: str
    software: str
    latitude: float | None = None
    longitude: float | None = None
    altitude: float | None = None
    error: float | None = None
    heading: float | None = None
    focal_35mm: int | None = None


class ExifFound(NamedTuple):
    """EXIF values of a picture; units as in ExifInfo, None for absent ones."""

    sequence: str | None
    frame: int | None
    stamp: int | None
    latitude: float | None
    longitude: float | None
    altitude: float | None


def encode_exif(info: ExifInfo) -> bytes:
    """Return the TIFF bytes (big-endian) of all tags, for JPEG and PNG alike.

    Values that are not finite or do not fit their tag (a rational of 32 bits) are dropped. Raises DatasetError when the
    stamp is not a date or the texts do not fit into one JPEG segment.
    """
    seconds, nanoseconds = divmod(info.stamp, SECOND)
    try:
        moment = EPOCH + timedelta(seconds=seconds)
    except OverflowError as error:
        raise DatasetError(f"stamp {info.stamp} is not a date") from error
    date = f"{moment.year:04}:{moment.month:02}:{moment.day:02}"
    time = f"{moment.hour:02}:{moment.minute:02}:{moment.second:02}"
    comment = json.dumps({"sequence": info.sequence, "frame": info.frame, "timestamp_ns": info.stamp})
    exif = [
        (0x9000, UNDEFINED, b"0232"),
        (0x9003, ASCII, f"{date} {time}\0".encode()),
        (0x9011, ASCII, b"+00:00\0"),
        (COMMENT, UNDEFINED, b"ASCII\0\0\0" + comment.encode()),
        (0x9291, ASCII, f"{nanoseconds:09}\0".encode()),
    ]
    if info.focal_35mm is not None and 1 <= info.focal_35mm <= 0xFFFF:
        exif.append((0xA405, SHORT, struct.pack(">H", info.focal_35mm)))
    main = [
        (0x010F, ASCII, _encode_ascii(MAKE)),
        (0x0110, ASCII, _encode_ascii(info.host)),
        (0x0131, ASCII, _encode_ascii(info.software)),
    ]
    return _join(main, exif, _make_gps(info, moment, nanoseconds, date))


def rename_exif(picture: Buffer, sequence: str) -> bytes | None:
    """Return the TIFF bytes of a picture with another sequence in the comment of `encode_exif`.

    None for EXIF that is broken, or that another program wrote. Raises DatasetError if the name is too long.
    """
    try:
        own = _read_own(_find_payload(memoryview(picture).cast("B")) or b"")
    except MessageError:
        return None
    comment = {} if own is None else {tag: value for tag, _, value in own[1]}
    said = _parse_comment(comment.get(COMMENT))
    if own is None or "sequence" not in said:
        return None
    new, (main, exif, gps) = b"ASCII\0\0\0" + json.dumps({**said, "sequence": sequence}).encode(), own
    return _join(main, [(tag, kind, new if tag == COMMENT else value) for tag, kind, value in exif], gps)


def _join(main: list[Entry], exif: list[Entry], gps: list[Entry]) -> bytes:
    """Return the TIFF bytes of three directories. Raises DatasetError if they do not fit into a picture."""
    at = 8 + _measure_directory(main) + ENTRY.size * (2 if gps else 1)
    described = _make_directory(exif, at)
    pointers = [(MAIN, LONG, struct.pack(">I", at))]
    tail = b""
    if gps:
        pointers.append((GPS, LONG, struct.pack(">I", at + len(described))))
        tail = _make_directory(gps, at + len(described))
    tiff = b"".join((HEADER, _make_directory([*main, *pointers], 8), described, tail))
    if len(tiff) > LONGEST_TIFF:
        raise DatasetError(f"EXIF of {len(tiff)} bytes does not fit into a picture: sequence or host name too long")
    return tiff


def insert_jpeg(jpeg: Buffer, exif: bytes) -> list[Buffer]:
    """Return the JPEG with this EXIF, as buffers to be written one after the other; the scan is not copied.

    APP1 comes right after APP0 where that is first, else after SOI.  Existing APP1 segments are dropped; all
    others, and everything from the first quantisation table on, stay byte for byte. If it has no Huffman tables, as
    those of webcams, it gets the usual ones, which not every decoder assumes.
    Raises MessageError(UNDECODABLE) when the segments are broken.
    """
    data = memoryview(jpeg).cast("B")
    segment = struct.pack(">BBH6s", 0xFF, APP1, len(exif) + 8, b"Exif\0\0") + exif
    start, dropped = 2, []
    for marker, begin, end in iter_segments(data):
        if marker in (DQT, SOS):
            break
        if marker == APP0 and begin == 2:
            start = end
        if marker == APP1:
            dropped.append((begin, end))
    parts: list[Buffer] = [data[:start], segment, b"" if HUFFMAN.search(data) else make_usual_tables()]
    for first, end in dropped:
        parts.append(data[start:first])
        start = end
    parts.append(data[start:])
    return [part for part in parts if len(part)]


def insert_png(png: Buffer, exif: bytes) -> list[Buffer]:
    """Return the PNG with this EXIF in an eXIf chunk after IHDR, any other eXIf left out, all else byte for byte.

    Raises MessageError(UNDECODABLE) when the chunks are broken.
    """
    data = memoryview(png).cast("B")
    parts: list[Buffer] = [data[:33], make_chunk(b"eXIf", exif)]
    start = position = 33
    for kind, body in iter_chunks(data):
        if kind == b"IHDR":
            continue
        end = position + len(body) + 12
        if kind == b"eXIf":
            parts.append(data[start:position])
            start = end
        position = end
    parts.append(data[start:])
    return [part for part in parts if len(part)]


def read_exif(picture: Buffer) -> ExifFound:
    """Stamp, position and name that a JPEG or PNG carries; all None without EXIF.

    The stamp is that of our UserComment, else DateTimeOriginal with its fraction and offset (UTC without one).
    Raises MessageError(UNDECODABLE) when the picture or its EXIF is broken.
    """
    payload = _find_payload(memoryview(picture).cast("B"))
    if payload is None:
        return ExifFound(None, None, None, None, None, None)
    if len(payload) > LONGEST_EXIF:
        raise MessageError(UNDECODABLE, f"EXIF of {len(payload)} bytes, expected at most {LONGEST_EXIF}")
    exif: Mapping[int, Any]
    gps: Mapping[int, Any]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow only warns of entries that are cut or no values of their tag
            own = _read_own(payload)
            if own is not None:
                exif, gps = ({tag: _decode_value(kind, raw) for tag, kind, raw in entries} for entries in own[1:])
            else:
                main = _read_directory(payload)
                exif = _read_directory(payload, main[MAIN]) if MAIN in main else {}
                gps = _read_directory(payload, main[GPS]) if GPS in main else {}
            comment = _parse_comment(exif.get(COMMENT))
            stamp, sequence, frame = (comment.get(key) for key in ("timestamp_ns", "sequence", "frame"))
            return ExifFound(
                sequence if isinstance(sequence, str) else None,
                frame if type(frame) is int else None,
                stamp if type(stamp) is int else _parse_moment(exif),
                _parse_degrees(gps.get(2), negative=gps.get(1) == "S"),
                _parse_degrees(gps.get(4), negative=gps.get(3) == "W"),
                _parse_degrees(gps.get(6), negative=gps.get(5) == b"\1"),
            )
    except (ValueError, LookupError, TypeError, OverflowError, OSError, SyntaxError, Warning, struct.error) as error:
        raise MessageError(UNDECODABLE, f"EXIF: {error}") from error


# ---- writing -----------------------------------------------------------------------------------
def _make_gps(info: ExifInfo, moment: datetime, nanoseconds: int, date: str) -> list[Entry]:
    if info.latitude is None or info.longitude is None:
        return []
    second = moment.second * FINE + nanoseconds * FINE // SECOND
    altitude, error = _encode_rational(info.altitude), _encode_rational(info.error)
    heading = _encode_rational(None if info.heading is None else info.heading % 360)
    entries = [
        (0, BYTE, b"\2\3\0\0"),
        (1, ASCII, b"S\0" if info.latitude < 0 else b"N\0"),
        (2, RATIONAL, _encode_degrees(info.latitude)),
        (3, ASCII, b"W\0" if info.longitude < 0 else b"E\0"),
        (4, RATIONAL, _encode_degrees(info.longitude)),
    ]
    if info.altitude is not None and altitude:
        entries += [(5, BYTE, b"\1" if info.altitude < 0 else b"\0"), (6, RATIONAL, altitude)]
    entries.append((7, RATIONAL, struct.pack(">6I", moment.hour, 1, moment.minute, 1, second, FINE)))
    if heading:
        entries += [(16, ASCII, b"T\0"), (17, RATIONAL, heading)]
    entries += [(18, ASCII, b"WGS-84\0"), (29, ASCII, f"{date}\0".encode())]
    return [*entries, (31, RATIONAL, error)] if error else entries


def _encode_degrees(angle: float) -> bytes:
    """Degrees, minutes and seconds; rounded as a whole, so that no 60.0000000 s comes out."""
    minutes, seconds = divmod(round(abs(angle) * 3600 * FINE), 60 * FINE)
    return struct.pack(">6I", minutes // 60, 1, minutes % 60, 1, seconds, FINE)


def _encode_rational(value: float | None) -> bytes:
    """Return a number's absolute value to three decimals, or as an integer if that does not fit; else empty."""
    if value is None or not math.isfinite(value):
        return b""
    for denominator in (1000, 1):
        numerator = round(abs(value) * denominator)
        if numerator <= 0xFFFFFFFF:
            return struct.pack(">II", numerator, denominator)
    return b""


def _encode_ascii(text: str) -> bytes:
    return text.replace("\0", "").encode("ascii", "backslashreplace") + b"\0"


def _measure_directory(entries: list[Entry]) -> int:
    """Return the bytes of `_make_directory`."""
    return 6 + sum(ENTRY.size + (len(value) + len(value) % 2 if len(value) > 4 else 0) for _, _, value in entries)


def _make_directory(entries: list[Entry], at: int) -> bytes:
    """Return a TIFF directory that is at offset `at`, its longer values right after it."""
    place = at + 6 + 12 * len(entries)
    head, heap = [struct.pack(">H", len(entries))], []
    for tag, kind, value in entries:
        count = len(value) // SIZES[kind]
        if len(value) <= 4:
            head.append(ENTRY.pack(tag, kind, count, value))
            continue
        head.append(ENTRY.pack(tag, kind, count, place.to_bytes(4, "big")))
        padded = value + b"\0" if len(value) % 2 else value
        heap.append(padded)
        place += len(padded)
    return b"".join((*head, bytes(4), *heap))


# ---- reading -----------------------------------------------------------------------------------
def _read_entries(tiff: bytes, at: int) -> list[Entry]:
    """Return the entries of a directory. Raises LookupError if their values take more bytes than there are."""
    found, left = list[Entry](), len(tiff)
    end = at + 2 + ENTRY.size * int.from_bytes(tiff[at : at + 2], "big")
    for tag, kind, count, field in ENTRY.iter_unpack(tiff[at + 2 : end]):
        size, place = count * SIZES[kind], int.from_bytes(field, "big")
        left -= size
        if left < 0:
            raise LookupError
        found.append((tag, kind, field[:size] if size <= 4 else tiff[place : place + size]))
    return found


def _read_own(tiff: bytes) -> tuple[list[Entry], list[Entry], list[Entry]] | None:
    """Return the three directories of EXIF as `_join` lays it out, without pointers; None of any other."""
    try:
        main = _read_entries(tiff, len(HEADER))
        places = {tag: int.from_bytes(value, "big") for tag, _, value in main if tag in (MAIN, GPS)}
        own = [entry for entry in main if entry[0] not in places]
        exif, gps = _read_entries(tiff, places[MAIN]), _read_entries(tiff, places[GPS]) if GPS in places else []
        return (own, exif, gps) if _join(own, exif, gps) == tiff else None
    except (struct.error, LookupError, DatasetError):
        return None


def _decode_value(kind: int, raw: bytes) -> Any:
    """Return a value of our EXIF as Pillow gives it, which takes ten times as long."""
    if kind == RATIONAL:
        numbers = struct.unpack(f">{len(raw) // 4}I", raw)
        parts = tuple(a / b if b else math.nan for a, b in zip(numbers[::2], numbers[1::2], strict=True))
        return parts[0] if len(parts) == 1 else parts
    return raw.removesuffix(b"\0").decode("latin-1") if kind == ASCII else raw


def _find_payload(data: memoryview) -> bytes | None:
    if data[:8] == PNG_SIGNATURE:
        return next((bytes(body) for kind, body in iter_chunks(data) if kind == b"eXIf"), None)
    for marker, begin, end in iter_segments(data):
        if marker == APP1 and bytes(data[begin + 4 : begin + 10]) == b"Exif\0\0":
            return bytes(data[begin + 10 : end])
    return None


def _read_directory(tiff: bytes, at: int | None = None) -> Mapping[int, Any]:
    """Return the TIFF directory at an offset, by default the first one; its values are decoded as they are read."""
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    directory, file = ImageFileDirectory_v2(tiff[:8]), io.BytesIO(tiff)
    file.seek(directory.next if at is None else at)
    directory.load(file)
    return directory


def _parse_comment(raw: Any) -> dict[str, Any]:
    """Return the JSON object of our UserComment; empty where the comment is something else."""
    try:
        found = json.loads(raw[8:]) if isinstance(raw, bytes) and raw[:8] == b"ASCII\0\0\0" else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _parse_moment(tags: Mapping[int, Any]) -> int | None:
    """Return DateTimeOriginal in ns since the epoch; None without it."""
    texts = {tag: str(tags[tag]).strip("\0 ") for tag in (0x9003, 0x9011, 0x9291) if tag in tags}
    if 0x9003 not in texts:
        return None
    text = texts[0x9003] + (texts.get(0x9011) or "+00:00")
    seconds = (datetime.strptime(text, "%Y:%m:%d %H:%M:%S%z") - EPOCH) // timedelta(seconds=1)
    return seconds * SECOND + int((texts.get(0x9291) or "0").ljust(9, "0")[:9])


def _parse_degrees(parts: Any, *, negative: bool) -> float | None:
    """Return one number of degrees, minutes and seconds, or of one part, with its sign."""
    try:
        numbers = [float(part) for part in (parts if isinstance(parts, tuple) else [] if parts is None else [parts])]
    except ZeroDivisionError:  # some versions of Pillow divide by a denominator of 0
        return None
    size = math.fsum(part / unit for part, unit in zip(numbers, (1, 60, 3600), strict=False))
    if not numbers or not math.isfinite(size):
        return None
    return -size if negative else size
