# SPDX-License-Identifier: Apache-2.0
"""IMG: pictures. Structure, size and what their EXIF says; the pixels of camera pictures are not decoded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from edgefirst_ros import streams
from edgefirst_ros.dataset.validate.report import rule
from edgefirst_ros.dataset.validate.subject import Subject, View
from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.sensors.companions import decode
from edgefirst_ros.sensors.exif import read_exif
from edgefirst_ros.sensors.picture_file import check_jpeg, check_png

POSITION = 1e-6  # degrees: EXIF has five decimals of an arc second or more
CAMERA = streams.kinds("camera")
PICTURES = streams.kinds("camera", "picture")
MEASURED = tuple(kind for sensor in streams.companions() if sensor.form == "picture" for kind in sensor.kinds)
"""Pictures whose values are looked at too: nothing but the file itself tells their size."""


def _camera(subject: Subject) -> View | None:
    """The member under view when it is a whole camera picture (`whole` has looked at it before)."""
    view = subject.view
    return view if view and view.kind in CAMERA and "size" in view.notes else None


@rule("IMG001", "error", "pictures are whole JPEG and PNG files")
def whole(subject: Subject) -> Iterator[tuple[str, str]]:
    """Markers, segments and end of a JPEG; chunks, their CRC and end of a PNG; values of other sensors' pictures."""
    view = subject.view
    if view is None or view.kind not in PICTURES or not view.data:
        return
    try:
        view.notes["size"] = check_jpeg(view.data) if view.kind.endswith("jpeg") else check_png(view.data)
        if view.kind in MEASURED:
            decode(streams.of_kind(view.kind).key, view.data)
    except EdgeFirstError as error:
        yield view.name, str(error)


@rule("IMG002", "error", "pictures have the size that the tables say")
def sizes(subject: Subject) -> Iterator[tuple[str, str]]:
    """Compared with the frames table; REF007 compares the annotations with that."""
    view = _camera(subject)
    if view and view.row and view.row.size and view.notes["size"] != view.row.size:
        yield view.name, f"is {_by(view.notes['size'])}, the frames table says {_by(view.row.size)}"


@rule("IMG003", "warning", "camera pictures carry sequence, frame and stamp in their EXIF")
def described(subject: Subject) -> Iterator[tuple[str, str]]:
    """Only where there is a frames table: other tools write no such comment."""
    view = _camera(subject)
    if view is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow only warns of EXIF that is cut
            view.notes["exif"] = read_exif(view.data)
    except (EdgeFirstError, UserWarning) as error:
        yield view.name, str(error)
        return
    if view.row and view.notes["exif"].frame is None:
        yield view.name, "has no EXIF comment with its stamp"


@rule("IMG004", "error", "EXIF names the sample that the picture belongs to")
def same_sample(subject: Subject) -> Iterator[tuple[str, str]]:
    """A picture under another's name is worse than none."""
    view = _camera(subject)
    exif = view.notes.get("exif") if view else None
    if view and view.key and exif and exif.frame is not None and (exif.sequence, exif.frame) != view.key:
        yield view.name, f"EXIF says {exif.sequence!r} frame {exif.frame}"


@rule("IMG005", "error", "EXIF has the stamp that the frames table has")
def same_stamp(subject: Subject) -> Iterator[tuple[str, str]]:
    """Nanoseconds, exactly."""
    view = _camera(subject)
    exif = view.notes.get("exif") if view else None
    if view and view.row and exif and exif.frame is not None and exif.stamp != view.row.timestamp:
        yield view.name, f"EXIF says {exif.stamp} ns, the frames table {view.row.timestamp}"


@rule("IMG006", "error", "EXIF has the position that the frames table has")
def same_position(subject: Subject) -> Iterator[tuple[str, str]]:
    """Only for pictures with our comment: another tool may have written its own position."""
    view = _camera(subject)
    exif = view.notes.get("exif") if view else None
    if view is None or view.row is None or exif is None or exif.frame is None:
        return
    found = None if exif.latitude is None or exif.longitude is None else (exif.latitude, exif.longitude)
    wanted = view.row.position
    if (found is None) != (wanted is None) or (found and wanted and not _near(found, wanted)):
        yield view.name, f"EXIF says {found}, the frames table {wanted}"


MEMBER_RULES = (whole, sizes, described, same_sample, same_stamp, same_position)


def _by(size: tuple[int, ...]) -> str:
    return " x ".join(map(str, size))


def _near(found: tuple[float, float], wanted: tuple[float, float]) -> bool:
    turned = abs(found[1] - wanted[1]) % 360
    return abs(found[0] - wanted[0]) <= POSITION and min(turned, 360 - turned) <= POSITION
