# SPDX-License-Identifier: Apache-2.0
"""STR, NAM, HDR, IMG, CUB and PCD: files, members and ZIP headers of a dataset.

The pixels of camera pictures are not decoded. Source: EdgeFirst Dataset Format, "Dataset Hierarchy"; PKWARE APPNOTE
4.3.7, 4.4.4, 4.5.3.
"""

from __future__ import annotations

import json
import unicodedata
import zipfile
from collections.abc import Iterator

from edgefirst_ros import streams
from edgefirst_ros.dataset.names import fold_case, parse_member
from edgefirst_ros.dataset.storage.zip_read import (
    DEFLATED,
    DESCRIPTOR,
    DESCRIPTOR_MARK,
    END,
    END_MARK,
    LIMIT32,
    STORED,
    UTF8,
    Archive,
    decode_dos_time,
    encode_dos_time,
    encode_name,
)
from edgefirst_ros.dataset.validate.report import Rule, Subject, View, member_rule, place_of, read_position, rule
from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.sensors.cloud import decode_grid
from edgefirst_ros.sensors.companions import decode
from edgefirst_ros.sensors.cube import find_description_fault
from edgefirst_ros.sensors.exif import read_exif
from edgefirst_ros.sensors.jpeg import check_jpeg
from edgefirst_ros.sensors.png import check_png, read_png

POSITION = 1e-6  # degrees: EXIF has five decimals of an arc second or more
PREFIX = "edgefirst:"
AXES = {"x", "y", "z"}


opens = Rule("STR001", "error", "the dataset exists and its members can be listed", None)


@rule("STR002", "error", "the dataset has a sample")
def has_samples(subject: Subject) -> Iterator[tuple[str, str]]:
    """A dataset without samples is invalid."""
    if not subject.samples:
        yield subject.paths.members.name, f"{len(subject.members)} files that are not members of a sample"


@rule("STR003", "error", "the tables are Arrow IPC (annotations also Parquet or JSON) and every row can be read")
def check_tables_open(subject: Subject) -> Iterator[tuple[str, str]]:
    """Found on opening."""
    yield from subject.table_faults


@rule("STR004", "warning", "the dataset has an annotation table")
def has_annotations(subject: Subject) -> Iterator[tuple[str, str]]:
    """Readers can do without."""
    if subject.annotations is None and not subject.table_faults:
        yield subject.paths.arrow.name, "is missing"


@rule("STR005", "warning", "the dataset has a frames table")
def has_frames(subject: Subject) -> Iterator[tuple[str, str]]:
    """Other tools do not write it; stamps and navigation are unknown then."""
    if not subject.paths.frames.exists():
        yield subject.paths.frames.name, "is missing: the stamps of the samples are unknown"


@rule("STR006", "warning", "no unfinished files are beside")
def check_unfinished(subject: Subject) -> Iterator[tuple[str, str]]:
    """Files of an interrupted capture."""
    paths = subject.paths
    for path in (paths.members_partial, *paths.journals):
        if path.exists():
            yield path.name, "left by writing that was not finished"


@rule("NAM001", "warning", "names are SEQUENCE/SEQUENCE_FRAME.KIND")
def check_form(subject: Subject) -> Iterator[tuple[str, str]]:
    """The vendor's client also makes flat folders of SEQUENCE_FRAME.KIND; readers ignore other files."""
    for name, found in subject.members:
        flat = "/" not in name and found is not None and found[0].frame is not None
        if not flat and parse_member(name) is None:
            yield name, "is not SEQUENCE/SEQUENCE_FRAME.KIND"


@rule("NAM002", "error", "names stay inside the dataset when unpacked")
def check_safe(subject: Subject) -> Iterator[tuple[str, str]]:
    """No absolute paths, no way up, no drive, no control characters."""
    for name in subject.container.names:
        parts = name.replace("\\", "/").split("/")
        steered = not name.isprintable() and any(unicodedata.category(one) in ("Cc", "Cs") for one in name)
        if name.startswith("/") or ".." in parts or "\\" in name or name[1:2] == ":" or steered:
            yield name, "is not a safe relative path"


@rule("NAM003", "error", "a sample has every input once")
def check_unique(subject: Subject) -> Iterator[tuple[str, str]]:
    """The same name twice, one frame number in two spellings, or a JPEG and a PNG of the same camera."""
    seen: dict[tuple[object, str], str] = {}
    for name, found in subject.members:
        if found is None:
            continue
        key, sensor = found[0], streams.find_by_kind(found[1]).key
        if (key, sensor) in seen:
            yield name, f"repeats {seen[key, sensor]}: {sensor} of {place_of(key)}"
        else:
            seen[key, sensor] = name


@rule("NAM004", "warning", "frame numbers are written with three digits at least, and no zeros before more")
def check_padding(subject: Subject) -> Iterator[tuple[str, str]]:
    """The one form that all versions of the vendor's client find."""
    for name in subject.container.names:
        member = parse_member(name)
        if member and not name.endswith(f"_{member.frame:03d}.{member.kind}"):
            yield name, f"frame {member.frame} is not written {member.frame:03d}"


@rule("NAM005", "warning", "sequences differ by more than upper and lower case")
def check_cases(subject: Subject) -> Iterator[tuple[str, str]]:
    """Some file systems cannot hold both."""
    seen: dict[str, str] = {}
    for sequence in dict.fromkeys(key.name for key in subject.samples):
        first = seen.setdefault(fold_case(sequence), sequence)
        if first != sequence:
            yield sequence, f"is {first} but for case"


@member_rule("STR007", "error", "every member can be read whole and its CRC is right")
def check_readable(view: View) -> Iterator[str]:
    """The checksum is that of the central directory."""
    if view.fault:
        yield view.fault


@member_rule("STR008", "error", "no member is empty")
def check_not_empty(view: View) -> Iterator[str]:
    """Even a cloud without points has a header."""
    if view.kind and not view.data and not view.fault:
        yield "has no bytes"


@member_rule("IMG001", "error", "pictures are whole JPEG and PNG files", "camera", "picture")
def check_whole(view: View) -> Iterator[str]:
    """Markers, segments and end of a JPEG; chunks, their CRC and end of a PNG; values of other sensors' pictures."""
    sensor = view.sensor
    try:
        view.notes["size"] = check_jpeg(view.data) if view.kind.endswith("jpeg") else check_png(view.data)
        if sensor and sensor.form == "picture" and sensor.topics:  # only the file itself shows their size
            decode(sensor.key, view.data)
    except EdgeFirstError as error:
        yield str(error)


@member_rule("IMG002", "error", "pictures have the size that the tables say", "camera")
def check_sizes(view: View) -> Iterator[str]:
    """Compared with the frames table; REF007 compares the annotations with that."""
    found = view.notes.get("size")
    size = view.row.get(view.sensor.size_column) if view.row and view.sensor else None
    if found and size is not None and found != tuple(size):
        yield f"is {_by(found)}, the frames table says {_by(size)}"


@member_rule("IMG003", "warning", "camera pictures carry sequence, frame and stamp in their EXIF", "camera")
def check_exif(view: View) -> Iterator[str]:
    """Only with a frames table: other tools write no such comment."""
    if "size" not in view.notes:
        return  # IMG001
    try:
        exif = read_exif(view.data)
    except EdgeFirstError as error:
        yield str(error)
        return
    if exif.frame is not None:
        view.notes["exif"] = exif
    elif view.row:
        yield "has no EXIF comment with its stamp"


@member_rule("IMG004", "error", "EXIF names the sample that the picture belongs to", "camera")
def check_same_sample(view: View) -> Iterator[str]:
    """A picture under another's name is worse than a missing one. Other cameras of a rig count their own pictures."""
    exif = view.notes.get("exif")
    other = view.sensor and view.sensor.instance is not None
    if exif and view.key and (exif.sequence != view.key.name or (exif.frame != view.key.frame and not other)):
        yield f"EXIF says {exif.sequence!r} frame {exif.frame}"


@member_rule("IMG005", "error", "EXIF has the stamp that the frames table has", "camera")
def check_same_stamp(view: View) -> Iterator[str]:
    """Nanoseconds, exactly."""
    exif = view.notes.get("exif")
    if view.row is None or view.sensor is None or exif is None:
        return
    column = view.sensor.column
    stamp = view.row.get(f"{column}_timestamp" if column else "timestamp")
    if exif.stamp != stamp and (stamp is not None or column is None):
        yield f"EXIF says {exif.stamp} ns, the frames table {stamp}"


@member_rule("IMG006", "error", "EXIF has the position that the frames table has", "camera")
def check_same_position(view: View) -> Iterator[str]:
    """Only for pictures with our comment: another tool may have written its own position.

    The table has no positions at the stamps of other cameras.
    """
    exif = view.notes.get("exif")
    if view.row is None or view.sensor is None or exif is None or view.sensor.instance is not None:
        return
    found = None if exif.latitude is None or exif.longitude is None else (exif.latitude, exif.longitude)
    wanted = read_position(view.row)
    if (found is None) != (wanted is None) or (found and wanted and not _is_near(found, wanted)):
        yield f"EXIF says {found}, the frames table {wanted}"


@member_rule("CUB001", "error", "radar cubes are whole 16-bit grayscale PNG files", "cube")
def check_cube_form(view: View) -> Iterator[str]:
    """Chunks, their CRC and the header; the values themselves are not decoded."""
    try:
        found = read_png(view.data)
    except EdgeFirstError as error:
        yield str(error)
        return
    if (found.bits, found.colour) != (16, 0):
        yield f"has {found.bits} bits and colour type {found.colour}, expected 16 bits grayscale (0)"
    texts = {key.removeprefix(PREFIX): value for key, value in found.texts.items() if key.startswith(PREFIX)}
    view.notes |= {"size": (found.width, found.height), "texts": texts}


@member_rule("CUB002", "error", "the description in a cube is JSON and fits its picture", "cube")
def check_cube_description(view: View) -> Iterator[str]:
    """The description is ours: cubes of other tools do not have it."""
    texts = view.notes.get("texts")
    if not texts:
        return
    try:
        view.notes["description"] = stated = {key: json.loads(value) for key, value in texts.items()}
        width, height = view.notes["size"]
        fault = find_description_fault(stated, height, width * height)
    except (ValueError, RecursionError) as error:
        fault = f"is no JSON: {error}"
    if fault:
        yield f"description {fault}"


@member_rule("CUB003", "error", "a cube has the stamp that the frames table has", "cube")
def check_cube_stamp(view: View) -> Iterator[str]:
    """Nanoseconds, exactly."""
    stated = view.notes.get("description")
    wanted = view.row.get(f"{view.sensor.column}_timestamp") if view.row and view.sensor else None
    if stated and wanted is not None and stated.get("timestamp") != wanted:
        yield f"says {stated.get('timestamp')} ns, the frames table {wanted}"


@member_rule("PCD001", "error", "point clouds are whole PCD files", "cloud")
def check_cloud_form(view: View) -> Iterator[str]:
    """The header and as many bytes as it says."""
    try:
        view.notes["fields"] = decode_grid(view.data, writable=False).dtype.names
    except EdgeFirstError as error:
        yield str(error)


@member_rule("PCD002", "warning", "point clouds have x, y and z", "cloud")
def check_cloud_axes(view: View) -> Iterator[str]:
    """Points without a place are of little use."""
    fields = view.notes.get("fields")
    if fields and not set(fields) >= AXES:
        yield f"has fields {', '.join(fields)}"


def _by(size: tuple[int, ...]) -> str:
    return " x ".join(map(str, size))


def _is_near(found: tuple[float, float], wanted: tuple[float, float]) -> bool:
    turned = abs(found[1] - wanted[1]) % 360
    return abs(found[0] - wanted[0]) <= POSITION and min(turned, 360 - turned) <= POSITION


OF_HEADERS = ("name", "method", "flags", "time", "CRC", "packed size", "size")


@member_rule("HDR001", "error", "local headers agree with the central directory")
def check_agreement(view: View) -> Iterator[str]:
    """Repair after a cut needs them; sizes and CRC of entries with a descriptor are not in the header."""
    local, entry = view.local, view.entry
    if local is None or entry is None:
        return
    if isinstance(local, DatasetError):
        yield str(local)
        return
    time = decode_dos_time(local.time, local.date)
    said = (local.name, local.method, local.flags, time, local.crc, local.packed, local.size)
    wanted = (
        encode_name(entry), entry.compress_type, entry.flag_bits, entry.date_time, entry.CRC, entry.compress_size,
        entry.file_size,
    )  # fmt: skip
    if said != wanted:
        stated = len(OF_HEADERS) - 3 * bool(local.flags & DESCRIPTOR)
        for what, its, other in list(zip(OF_HEADERS, said, wanted, strict=True))[:stated]:
            if its != other:
                yield f"{what} is {its!r} in the local header, {other!r} in the directory"


@rule("HDR002", "warning", "members are stored (clouds may be deflated)")
def check_stored(subject: Subject) -> Iterator[tuple[str, str]]:
    """Pictures are compressed already; packing them again costs readers time."""
    for entry in subject.archive.entries if subject.archive else ():
        allowed = (STORED, DEFLATED) if entry.filename.endswith(".pcd") else (STORED,)
        if entry.compress_type not in allowed:
            yield entry.filename, f"is packed by method {entry.compress_type}"


@rule("HDR003", "warning", "sizes and CRC are in the local header, not in a data descriptor")
def check_no_descriptor(subject: Subject) -> Iterator[tuple[str, str]]:
    """An archive that was cut cannot be repaired with them."""
    for entry in subject.archive.entries if subject.archive else ():
        if entry.flag_bits & DESCRIPTOR:
            yield entry.filename, "has a data descriptor"


@rule("HDR004", "error", "members do not overlap each other or the directory")
def check_overlaps(subject: Subject) -> Iterator[tuple[str, str]]:
    """Overlapping entries are how ZIP bombs are made."""
    end, last = 0, ""
    for entry, _, stop in _list_spans(subject):
        if entry.header_offset < end:
            yield entry.filename, f"begins at {entry.header_offset} within {last}"
        end, last = max(end, stop), entry.filename
    if subject.archive and end > subject.archive.directory_start:
        yield last, f"reaches to {end}, into the directory at {subject.archive.directory_start}"


@rule("HDR005", "warning", "no unused bytes are between the members, before them or after the end record")
def check_no_gaps(subject: Subject) -> Iterator[tuple[str, str]]:
    """Bytes outside of members: left by a repair, or hidden."""
    archive, end = subject.archive, 0
    if archive is None:
        return
    for entry, start, stop in _list_spans(subject):
        if entry.header_offset > end:
            yield entry.filename, f"{entry.header_offset - end} unused bytes before it"
        end = max(stop, start) + (_measure_descriptor(archive, entry, stop) if entry.flag_bits & DESCRIPTOR else 0)
    if archive.entries and archive.directory_start > end:
        yield subject.paths.members.name, f"{archive.directory_start - end} unused bytes before the directory"
    tail = archive.pread(END.size, archive.file_size - END.size)
    if tail[:4] != END_MARK:
        yield subject.paths.members.name, "does not end with its end record: a comment, or bytes after it"


@rule("HDR006", "warning", "names that are not ASCII are marked as UTF-8")
def check_marks(subject: Subject) -> Iterator[tuple[str, str]]:
    """Without the mark they are code page 437."""
    for entry in subject.archive.entries if subject.archive else ():
        if not entry.filename.isascii() and not entry.flag_bits & UTF8:
            yield entry.filename, "is not marked as UTF-8"


@rule("HDR007", "error", "the time of a member is that of its sample, UTC, rounded down to 2 s")
def check_times(subject: Subject) -> Iterator[tuple[str, str]]:
    """Only where the frames table knows the time."""
    archive = subject.archive
    for entry, (_, found) in zip(archive.entries if archive else (), subject.members, strict=False):
        row = subject.rows.get(found[0]) if found else None
        if row and row["timestamp"] is not None:
            wanted = decode_dos_time(*encode_dos_time(row["timestamp"]))
            if entry.date_time != wanted:
                yield entry.filename, f"time {entry.date_time}, must be {wanted}"


def _list_spans(subject: Subject) -> Iterator[tuple[zipfile.ZipInfo, int, int]]:
    """(entry, first byte of its data, byte after them) in the order of the file, those with a local header."""
    archive = subject.archive
    everything = [*archive.entries, *archive.folders] if archive else []
    for folder in archive.folders if archive else ():
        subject.read_local(folder)
    for entry in sorted(everything, key=lambda item: item.header_offset):
        start = subject.starts.get(entry.header_offset)
        if start is not None:
            yield entry, start, start + entry.compress_size


def _measure_descriptor(archive: Archive, entry: zipfile.ZipInfo, stop: int) -> int:
    signed = archive.pread(4, stop) == DESCRIPTOR_MARK if stop + 4 <= archive.file_size else False
    return (16 if signed else 12) + (8 if entry.file_size > LIMIT32 else 0)
