# SPDX-License-Identifier: Apache-2.0
"""From encoded parts to a sample: its members, its row of frames, and the columns of its annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgefirst_ros import __version__, streams
from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.names import host_of
from edgefirst_ros.dataset.schema import MODEL_TIMESTAMP
from edgefirst_ros.dataset.writer import Sample
from edgefirst_ros.pipeline.encoding import SampleParts
from edgefirst_ros.pipeline.facts import SOFTWARE, SequenceFacts
from edgefirst_ros.pipeline.frame import Frame
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg, insert_png
from edgefirst_ros.sensors.navigation import yaw_pitch_roll
from edgefirst_ros.sensors.picture import Picture


def assemble(parts: SampleParts, facts: SequenceFacts, settings: Settings) -> Sample:
    """Wait for the encoded parts of a sample and assemble it; boxes and masks that are left out are counted."""
    frame, picture = parts.frame, parts.picture
    members: list[tuple[str, Sequence[Any]]] = []
    row: dict[str, object] = {"segment": frame.segment, "keyframe": parts.keyframe}
    common: dict[str, object] = {}
    if picture is not None:
        if parts.image is not None:
            data, degradation = parts.image()
            members.append((picture.kind, _with_exif(data, frame, picture, facts, settings)))
            common |= {"degradation": degradation} if degradation is not None else {}
        row["size"] = common["size"] = list(picture.size)
        if facts.calibration.pictures is not None and facts.calibration.pictures.size is None:
            facts.calibration.pictures.size = picture.full
        if picture.full != picture.size:
            facts.scaling.note(picture.full, picture.size)
    _add_navigation(frame, row, common)
    if frame.result is not None:
        row[MODEL_TIMESTAMP] = frame.result.stamp
    if frame.own is not None and frame.own[1].encoded is not None and parts.part.has(frame.own[0]):
        members.append((streams.of_key(frame.own[0]).kind, frame.own[1].encoded.result()))
    for sensor, (stamp, message) in frame.companions.items():
        known = streams.of_key(sensor)
        if message.encoded is not None and parts.part.has(sensor):
            members.append((known.kind, message.encoded.result()))
        if known.column is not None:
            row.update({f"{known.column}_timestamp": stamp, f"{known.column}_skew": stamp - frame.stamp})
    rows: list[dict[str, object]] = []
    if parts.rows is not None:
        rows, dropped = parts.rows.result()
        for (topic, reason), number in dropped.items():
            facts.counts.drop(topic, reason, number)
    return Sample(facts.name, frame.number, frame.stamp, members, row, rows, common)


def _add_navigation(frame: Frame, row: dict[str, object], common: dict[str, object]) -> None:
    if frame.position is not None:
        place = frame.position
        row.update(latitude=place.latitude, longitude=place.longitude, altitude=place.altitude)
        common["location"] = [place.latitude, place.longitude]
    if frame.orientation is not None:
        row["orientation"] = list(frame.orientation)
        common["pose"] = list(yaw_pitch_roll(frame.orientation))


def _with_exif(data: bytes, frame: Frame, picture: Picture, facts: SequenceFacts, settings: Settings) -> Sequence[Any]:
    place, heading = frame.position, None
    if settings.heading_from_imu and frame.orientation is not None:
        heading = (90 - yaw_pitch_roll(frame.orientation)[0]) % 360  # from counter-clockwise of east
    exif = encode_exif(
        ExifInfo(
            facts.name,
            frame.number,
            frame.stamp,
            host_of(facts.name),
            f"{SOFTWARE} {__version__}",
            place.latitude if place else None,
            place.longitude if place else None,
            place.altitude if place else None,
            place.error if place else None,
            heading,
            facts.calibration.focal_35mm,
        )
    )
    return insert_png(data, exif) if picture.kind.endswith("png") else insert_jpeg(data, exif)
