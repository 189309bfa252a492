# SPDX-License-Identifier: Apache-2.0
"""The parts of a sample, encoded side by side: picture, members of companions, annotation rows; then put together."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from edgefirst_ros import __version__, streams
from edgefirst_ros.config import Settings
from edgefirst_ros.counts import MASK_REASONS
from edgefirst_ros.dataset.names import find_host
from edgefirst_ros.dataset.schema import MODEL_TIMESTAMP
from edgefirst_ros.dataset.tables.write import outline_png
from edgefirst_ros.dataset.writer import NewSample
from edgefirst_ros.limits import count_workers
from edgefirst_ros.pipeline.facts import SOFTWARE, SequenceFacts
from edgefirst_ros.pipeline.frame import Frame, Part, SensorMessage
from edgefirst_ros.sensors.companions import encode
from edgefirst_ros.sensors.detections import Context, make_box_rows, make_model_rows, map_labels
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg, insert_png
from edgefirst_ros.sensors.jpeg import Buffer
from edgefirst_ros.sensors.navigation import GeoPosition, Quaternion, find_angles
from edgefirst_ros.sensors.picture import Picture, judge_picture
from edgefirst_ros.sources.topics import CAMERA

Rows = tuple[list[dict[str, object]], Counter[tuple[str, str]]]
"""Annotation rows, and for each topic how many results were dropped, by reason."""


def make_result_rows(frame: Frame, context: Context, settings: Settings) -> Rows:
    """Return all rows of a frame: 2D boxes with their masks, semantic masks, 3D boxes."""
    rows: list[dict[str, object]] = []
    dropped: Counter[tuple[str, str]] = Counter()
    if frame.result is not None:
        mask = frame.result.mask
        rows, reasons = make_model_rows(frame.result.content, context, mask.content if mask is not None else None)
        for reason, number in reasons.items():
            source = mask if mask is not None and reason in MASK_REASONS else frame.result
            dropped[source.topic, reason] += number
    for row in rows:
        add_outline(row, settings)
    if frame.boxes3d is not None:
        more, reasons = make_box_rows(frame.boxes3d.content, context, frame.motion, frame.world)
        rows += more
        for reason, number in reasons.items():
            dropped[frame.boxes3d.topic, reason] += number
    return rows, dropped


def add_outline(row: dict[str, object], settings: Settings) -> None:
    """Add the outline of the instance mask to a row as `polygon`; drop the mask if only the outline is needed."""
    mask = row.get("mask")
    if settings.polygons and isinstance(mask, bytes) and "box2d" in row and (rings := outline_png(mask)):
        row["polygon"] = rings
    if not settings.masks:
        row.pop("mask", None)


@dataclass(slots=True)
class SampleParts:
    """A sample in progress: its frame and picture, and once encoding has begun the futures of its parts.

    Owns: the thread that chooses frames makes it, and hands it on to the thread that writes.
    """

    frame: Frame
    picture: Picture | None
    keyframe: bool
    part: Part
    """The wanted part: a companion's message shared with other samples may be encoded, but not be a member of this."""
    image: Callable[[], tuple[Buffer, str | None]] | None = None
    """Waits for and returns the encoded picture, and its degradation if that is requested."""
    rows: Future[Rows] | None = None


class SampleEncoder:
    """Encodes the parts of samples in a thread pool; blocks while too much is in progress.

    Owns: `begin` belongs to the thread that chooses frames, and only it counts the samples that are written already.
    """

    def __init__(self, settings: Settings, facts: SequenceFacts, kept: int) -> None:
        """`kept`: number of first samples that are written already, and need no members."""
        self._settings = settings
        self._without_masks = settings.model_copy(update={"masks": False, "polygons": False})
        self._facts = facts
        self._kept = kept
        threads = count_workers(settings.jobs)
        self._pool = ThreadPoolExecutor(threads, "encode")
        self._slots = threading.BoundedSemaphore(2 * threads)

    def begin(self, sample: SampleParts) -> None:
        """Start to encode the wanted parts of the next sample."""
        frame, picture, part = sample.frame, sample.picture, sample.part
        wanted, self._kept = self._kept == 0, max(0, self._kept - 1)
        if wanted:
            if picture is not None:
                of_picture = functools.partial(self._image, picture)
                ready = picture.data is not None and not self._settings.degradation
                sample.image = of_picture if ready else self._submit(of_picture).result
            if frame.own is not None and part.has(frame.own[0]):
                self._encode(*frame.own)
            for sensor, (_, message) in frame.companions.items():
                if part.has(sensor):
                    self._encode(sensor, message)
        sample.rows = self._rows(frame, picture, masks=part.masks)

    def close(self) -> None:
        """End all threads; samples that have not started are not encoded."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _encode(self, sensor: str, message: SensorMessage) -> None:
        if message.encoded is not None:  # a slow sensor's message serves several frames
            return
        encoding: Callable[[], Sequence[Any]]
        if isinstance(message.picture, Picture):
            encoding = functools.partial(self._camera, sensor, message, message.picture)
        else:
            encoding = functools.partial(encode, sensor, message.content, message.stamp, self._settings)
        message.encoded = self._submit(encoding)
        message.drop_pixels()

    def _camera(self, sensor: str, message: SensorMessage, picture: Picture) -> Sequence[Any]:
        """Return the member of another camera, with its own place in the EXIF."""
        at, where = (message.content.number, message.stamp), message.place or (None, None)
        return _with_exif(picture.encode(), picture, sensor, at, where, self._facts, self._settings)

    def _rows(self, frame: Frame, picture: Picture | None, *, masks: bool) -> Future[Rows] | None:
        if not frame.results:
            return None
        settings = self._settings if masks else self._without_masks
        facts = self._facts
        size = picture.size if picture is not None else facts.calibration.size if masks else None
        classes = facts.calibration.labels or ()
        semantic = settings.masks and settings.schema_version != "2025.10"  # its masks are outlines of one object
        context = Context(
            facts.name, frame.number, size, map_labels(classes, settings.label_map) or (), classes,
            settings.min_score, settings.label_map, settings.masks or settings.polygons, semantic, facts.place_of,
        )  # fmt: skip
        return self._submit(functools.partial(make_result_rows, frame, context, settings))

    def _image(self, picture: Picture) -> tuple[Buffer, str | None]:
        data = picture.encode()
        return data, judge_picture(bytes(data)) if self._settings.degradation else None

    def _submit(self, function: Callable[[], Any]) -> Future[Any]:
        self._slots.acquire()
        future = self._pool.submit(function)
        future.add_done_callback(lambda _: self._slots.release())
        return future


# ---- the parts put together --------------------------------------------------------------------
def assemble(parts: SampleParts, facts: SequenceFacts, settings: Settings) -> NewSample:
    """Wait for the encoded parts of a sample and assemble it; boxes and masks that are dropped are counted."""
    frame, picture = parts.frame, parts.picture
    members: list[tuple[str, Sequence[Any]]] = []
    row: dict[str, object] = {"segment": frame.segment, "keyframe": parts.keyframe}
    common: dict[str, object] = {}
    if picture is not None:
        _record_size(CAMERA, picture, facts)
        if parts.image is not None:
            data, degradation = parts.image()
            at, where = (frame.number, frame.stamp), (frame.position, frame.orientation)
            members.append((picture.kind, _with_exif(data, picture, CAMERA, at, where, facts, settings)))
            common |= {"degradation": degradation} if degradation is not None else {}
        row["size"] = common["size"] = list(picture.size)
    _add_navigation(frame, row, common)
    if frame.result is not None:
        row[MODEL_TIMESTAMP] = frame.result.stamp
    if frame.own is not None and frame.own[1].encoded is not None and parts.part.has(frame.own[0]):
        members.append((streams.find_by_key(frame.own[0]).kind, frame.own[1].encoded.result()))
    for sensor, (stamp, message) in frame.companions.items():
        known = streams.find_by_key(sensor)
        kind = known.kind
        if isinstance(message.picture, Picture):
            _record_size(sensor, message.picture, facts)
            row[known.size_column] = list(message.picture.size)
            kind = next(kind for kind in known.kinds if kind.endswith(message.picture.kind.removeprefix(CAMERA)))
        if message.encoded is not None and parts.part.has(sensor):
            members.append((kind, message.encoded.result()))
        if known.column is not None:
            row.update({f"{known.column}_timestamp": stamp, f"{known.column}_skew": stamp - frame.stamp})
    rows: list[dict[str, object]] = []
    if parts.rows is not None:
        rows, dropped = parts.rows.result()
        for (topic, reason), number in dropped.items():
            facts.counts.drop(topic, reason, number)
    return NewSample(facts.name, frame.number, frame.stamp, members, row, rows, common)


def _add_navigation(frame: Frame, row: dict[str, object], common: dict[str, object]) -> None:
    if frame.position is not None:
        place = frame.position
        row.update(latitude=place.latitude, longitude=place.longitude, altitude=place.altitude)
        common["location"] = [place.latitude, place.longitude]
    if frame.pose is not None:
        row["pose_position"], row["pose_orientation"] = map(list, frame.pose)
    if frame.orientation is not None:
        row["orientation"] = list(frame.orientation)
        common["pose"] = list(find_angles(frame.orientation))


def _record_size(camera: str, picture: Picture, facts: SequenceFacts) -> None:
    """Note the size of a camera's picture, before and after scaling: which CameraInfo is its own, and its scale."""
    pictures = facts.calibration.cameras.get(camera)
    if pictures is not None and pictures.size is None:
        pictures.size = picture.full
    if picture.full != picture.size:
        facts.scalings.setdefault(camera, (picture.full, picture.size))


def _with_exif(
    data: Buffer,
    picture: Picture,
    camera: str,
    at: tuple[int, int],
    where: tuple[GeoPosition | None, Quaternion | None],
    facts: SequenceFacts,
    settings: Settings,
) -> Sequence[Any]:
    """Return the picture of a camera with its EXIF; `at`: number of its message, and stamp in ns."""
    (place, turn), heading = where, None
    if settings.heading_from_imu and turn is not None:
        heading = (90 - find_angles(turn)[0]) % 360  # from counter-clockwise of east
    latitude, longitude, altitude, error = place or (None, None, None, None)
    info = ExifInfo(
        facts.name, *at, find_host(facts.name), f"{SOFTWARE} {__version__}", latitude, longitude, altitude, error,
        heading, facts.calibration.focal_35mm(camera),
    )  # fmt: skip
    exif = encode_exif(info)
    return insert_png(data, exif) if picture.kind.endswith("png") else insert_jpeg(data, exif)
