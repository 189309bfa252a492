# SPDX-License-Identifier: Apache-2.0
"""Reads members for a report: a bounded number of pictures, cubes and clouds; statistics of annotations."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import polars as pl
from PIL import Image

from edgefirst_ros.dataset.query import convert_boxes
from edgefirst_ros.dataset.sample import MAX_PIXELS, MAX_SCANNED, START_OF_SCAN, Sample
from edgefirst_ros.dataset.schema import SequenceCalibration
from edgefirst_ros.dataset.verdict import DARK, GLARING, MODEL, THRESHOLDS, Check
from edgefirst_ros.errors import DatasetError, EdgeFirstError, pluralize, quote_error
from edgefirst_ros.report.projection import NotProjectableError, Projector, make_projector, stack_xyz
from edgefirst_ros.report.subject import Floats, PlacedSample, ReportSubject, spread
from edgefirst_ros.sensors.cloud import find_speed_field
from edgefirst_ros.sensors.cube import Cube
from edgefirst_ros.sensors.transforms import convert_to_ecef, make_world_to_ecef
from edgefirst_ros.streams import CAMERA, Form, find_by_key, is_radar

PICTURES, CUBES, CLOUDS, TARGETS = 60, 48, 40, 400
"""Most members of each kind that are read."""
SEQUENCES = 4
"""Most sequences whose cubes are shown."""
SMALL = 160
"""Pixels across of the pictures whose brightness is used."""
LONGEST_RANGE = 250.0
"""m; points of a lidar beyond it do not count."""


Unreadable: TypeAlias = dict[str, str]
"""Kind of members -> why the first of those that could not be read was not."""


def read_each(
    places: Iterable[PlacedSample], read: Callable[[Sample], Any], unreadable: Unreadable, what: str
) -> Iterator[tuple[PlacedSample, Any]]:
    """Yield samples with the member that is read of each; note those that cannot be read as `what`."""
    for place in places:
        try:
            found = read(place.sample)
        except (EdgeFirstError, ValueError) as error:
            unreadable.setdefault(what, str(error))
        else:
            yield place, found


def list_sensors(inputs: Iterable[str], *forms: Form) -> list[str]:
    """Return the keys of sensors whose members have one of some forms, in the order of members."""
    found = (sensor for sensor in map(find_by_key, inputs) if sensor.form in forms)
    return [sensor.key for sensor in sorted(found, key=lambda sensor: sensor.order)]


def list_all_sensors(subject: ReportSubject, *forms: Form) -> list[str]:
    """Return those of the first samples of a subject."""
    return list_sensors({key for place in subject.places[:1000] for key in place.sample.inputs}, *forms)


@dataclass
class Exposure:
    """Brightness of the pictures of a camera."""

    seconds: Floats
    luma: Floats
    """Mean of each picture, 0 to 255."""
    names: Sequence[str] = ()
    """Sequence of each picture; without them all are of one."""
    place: str = ""
    """The camera in checks, if it is not the only one."""

    @property
    def facts(self) -> dict[str, Any]:
        """Numbers of it."""
        if not len(self.luma):
            return {"looked_at": 0}
        return {
            "looked_at": len(self.luma),
            "mean_luma": round(float(self.luma.mean()), 1),
            "dark": int((self.luma < DARK).sum()),
            "glaring": int((self.luma > GLARING).sum()),
        }

    @property
    def checks(self) -> list[Check]:
        """Return the checks of the verdict, by sequence."""
        threshold, found = THRESHOLDS["exposure"], []
        several = len(set(self.names)) > 1
        for name in dict.fromkeys(self.names or [""] * len(self.luma)):
            luma = self.luma[[one == name for one in self.names]] if several else self.luma
            shares = {"dark": float((luma < DARK).mean()), "glaring": float((luma > GLARING).mean())}
            number = pluralize(len(luma), "picture")
            own = [
                Check("exposure", level, f"{share:.0%} of {number} are {what}", self.place)
                for what, share in shares.items()
                if (level := threshold.level(share))
            ]
            own = own or [Check("exposure", threshold.level(0), f"mean luma {luma.mean():.0f} of 255", self.place)]
            found += [one._replace(sequence=name) for one in own] if several else own
        return found


def measure_exposure(subject: ReportSubject, unreadable: Unreadable) -> dict[str, Exposure]:
    """Look at how bright the pictures of each camera are, in small."""
    cameras, found = list_all_sensors(subject, "camera") or [CAMERA.key], {}
    for camera in cameras:
        read = partial(_read_mean_luma, camera=camera)
        looked = list(read_each(subject.with_input(camera, PICTURES), read, unreadable, "picture"))
        seconds, luma = np.array([place.seconds for place, _ in looked]), np.array([luma for _, luma in looked])
        names = [place.sample.name for place, _ in looked]
        found[camera] = Exposure(seconds, luma, names, camera if len(cameras) > 1 else "")
    return found


def _read_mean_luma(sample: Sample, camera: str) -> float:
    """Return the mean luma, 0 to 255, of a JPEG or PNG; raises DatasetError."""
    data, place = sample.read(camera), f"{sample.dataset.container.path}: {sample.member(camera)!r}"
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as picture:
            pixels = picture.width * picture.height
            if pixels <= MAX_PIXELS and data.count(START_OF_SCAN) * pixels <= MAX_SCANNED:
                picture.draft("L", (SMALL, SMALL))
                return float(np.asarray(picture.convert("L"), np.float32).mean())
    except Exception as error:  # any error of the library on bad bytes
        raise DatasetError(f"{place}: not a readable picture: {quote_error(error)}") from error
    raise DatasetError(f"{place}: {picture.width} x {picture.height} pixels are too many")


class CubeContent(NamedTuple):
    """Cubes of one sequence and radar that follow each other."""

    name: str
    """The sequence, and of several radars the radar."""
    seconds: Floats
    """Time of each cube, s of drive."""
    by_range: Floats
    """(range, cube) largest magnitude, dB."""
    by_speed: Floats
    """(range, doppler) largest magnitude of the loudest cube, dB."""
    metres: float | None
    """A range bin."""
    speed: float | None
    """A doppler bin, m/s."""
    whole: bool
    """True if all cubes are shown."""


class RadarContent(NamedTuple):
    """Cubes by sequence, and targets over the whole drive by radar."""

    cubes: Sequence[CubeContent]
    targets: Mapping[str, tuple[Floats, int]]
    """(N, 3) s of drive, range in m, speed in m/s (NaN where it is unknown); and the number of their messages."""


def summarize_radar(subject: ReportSubject, unreadable: Unreadable) -> RadarContent:
    """Look at the radar."""
    radars = list_all_sensors(subject, "cube")
    found: dict[tuple[str, str], list[PlacedSample]] = {}
    for place in subject.places:
        for sensor in radars:
            if sensor in place.sample.inputs and sensor not in place.sample.repeats:
                found.setdefault((place.sample.name, sensor), []).append(place)
    most = CUBES // max(1, min(len(found), SEQUENCES))
    looks = []
    for (name, sensor), its in [*found.items()][:SEQUENCES]:
        middle, drive = max(0, (len(its) - most) // 2), subject.timeline.drives.get(name)
        there = sum(map(len, drive.messages(sensor))) if drive and sensor in drive.companions else len(its)
        shown = its[middle : middle + most]
        looks.append(_summarize_cubes(shown, sensor, unreadable, make_label(name, sensor, radars), there))
    clouds = [sensor for sensor in list_all_sensors(subject, "cloud") if is_radar(sensor)]
    targets = {sensor: _summarize_targets(subject.with_input(sensor, TARGETS), sensor, unreadable) for sensor in clouds}
    return RadarContent([one for one in looks if one is not None], targets)


def make_label(sequence: str, sensor: str, sensors: Sequence[str]) -> str:
    """Return the label of a sequence in a figure: of several sensors with that of the sensor."""
    return sequence if len(sensors) == 1 else f"{sequence}: {sensor}"


def _summarize_cubes(
    places: list[PlacedSample], sensor: str, unreadable: Unreadable, name: str, there: int
) -> CubeContent | None:
    """Read consecutive cubes of a sequence, which has so many of them; None if all are unreadable."""
    columns: list[Any] = []
    seconds, loudest, kept = [], -1.0, cast("Cube | None", None)
    for place, cube in read_each(places, lambda sample: sample.decode(sensor), unreadable, "radar cube"):
        column = _find_loudest(cube.values.reshape(*cube.values.shape[:2], -1), (0, 2))
        if columns and len(column) != len(columns[0]):
            unreadable.setdefault("radar cube", f"{len(column)} range bins, those before have {len(columns[0])}")
            continue
        columns.append(column)
        seconds.append(place.seconds)
        if column.mean() > loudest:
            loudest, kept = float(column.mean()), cube
    if kept is None:
        return None
    return CubeContent(
        name,
        np.array(seconds),
        to_decibels(np.array(columns).T),
        to_decibels(_find_loudest(kept.values.reshape(*kept.values.shape[:4], -1), (0, 2, 4))),
        kept.metres_per_range_bin,
        kept.speed_per_doppler_bin,
        len(columns) >= there,
    )


def _find_loudest(values: Any, axes: tuple[int, ...]) -> Floats:
    """Largest magnitude over some axes; of 16 bits, so that no copy of a cube is made."""
    high, low = values.max(axis=axes).astype(np.int32), values.min(axis=axes).astype(np.int32)
    return np.asarray(np.maximum(high, -low), float)


def to_decibels(values: Any) -> Floats:
    """20 log10, of at least 1."""
    return np.asarray(20 * np.log10(np.maximum(np.asarray(values, float), 1.0)), float)


def _summarize_targets(places: Iterable[PlacedSample], sensor: str, unreadable: Unreadable) -> tuple[Floats, int]:
    def read(sample: Sample) -> Floats:
        points = sample.radar(sensor).ravel()
        return np.column_stack([np.linalg.norm(stack_xyz(points), axis=1), read_speeds(points)])

    read_ones = read_each(places, read, unreadable, "radar points")
    rows = [np.column_stack([np.full(len(one), place.seconds), one]) for place, one in read_ones]
    found = np.concatenate([np.zeros((0, 3)), *rows])
    return found[np.isfinite(found[:, 1])], len(rows)


def read_speeds(points: Any) -> Floats:
    """Radial speed of radar points in m/s; NaN where it is unknown."""
    names = points.dtype.names or ()
    name = find_speed_field(names) or ("vx" if "vx" in names else None)
    return np.full(len(points), math.nan) if name is None else points[name].astype(float)


def summarize_lidar(subject: ReportSubject, unreadable: Unreadable) -> dict[str, tuple[Floats, int]]:
    """Return by sequence, and of several by lidar, the ranges of points in m, and of how many clouds they are."""
    found: dict[str, list[Floats]] = {}
    lidars = [sensor for sensor in list_all_sensors(subject, "cloud") if not is_radar(sensor)]
    for sensor in lidars:
        read = partial(_read_ranges, sensor=sensor)
        for place, away in read_each(subject.with_input(sensor, CLOUDS), read, unreadable, "lidar points"):
            near = away[np.isfinite(away) & (away <= LONGEST_RANGE)]
            found.setdefault(make_label(place.sample.name, sensor, lidars), []).append(near)
    return {name: (np.concatenate(parts), len(parts)) for name, parts in found.items()}


def _read_ranges(sample: Sample, sensor: str) -> Floats:
    return np.asarray(np.linalg.norm(stack_xyz(sample.lidar(sensor)), axis=1), float)


def spread_evenly(places: list[PlacedSample], most: int) -> list[PlacedSample]:
    """Up to `most` of some samples."""
    return [places[n] for n in spread(len(places), most)]


BOXED_SAMPLES, ALIGNED_CLOUDS = 120, 20
"""Most samples processed for boxes, and for points."""
FEWEST = 20
"""Fewest boxes whose share is significant."""
MARGIN = 0.15
"""Fraction of its size by which a box is widened on each side: a target is a point somewhere on an object."""
LEAST = 0.002
"""Share of a cloud in the picture under which it counts as not in it."""


@dataclass
class Alignment:
    """Counts of boxes with targets, and of clouds in the picture, of one sequence or in sum."""

    boxes: int = 0
    """Boxes in samples that also have radar targets."""
    met: int = 0
    """Boxes with a target inside."""
    shares: dict[str, list[float]] = field(default_factory=dict)
    """Lidar -> of each cloud the share of points in any picture."""
    refused: dict[str, str] = field(default_factory=dict)
    """Sensor, and camera if it is a further one -> why it is not projected."""
    parts: dict[str, Alignment] = field(default_factory=dict)
    """{sequence: its own}, of several."""

    @property
    def facts(self) -> dict[str, Any]:
        """Numbers of it."""
        every = [share for shares in self.shares.values() for share in shares]
        means = {sensor: round(float(np.mean(shares)), 4) for sensor, shares in self.shares.items()}
        return {
            "boxes": self.boxes,
            "boxes_with_target": self.met,
            "clouds": len(every),
            "points_in_picture": round(float(np.mean(every)), 4) if every else None,
            **({"points_in_picture_by_lidar": means} if len(means) > 1 else {}),
            "not_projected": self.refused,
        }

    @property
    def checks(self) -> list[Check]:
        """Return the checks of the verdict, by sequence."""
        if len(self.parts) > 1:
            return [one._replace(sequence=name) for name, part in self.parts.items() for one in part.checks]
        threshold, found = THRESHOLDS["alignment"], []
        if self.boxes >= FEWEST:
            missed = 1 - self.met / self.boxes
            text = f"{self.met} of {self.boxes} boxes have a target in them"
            found.append(Check("alignment", threshold.level(missed), text, "radar"))
        for sensor, shares in self.shares.items():
            share, empty = float(np.mean(shares)), sum(share < LEAST for share in shares) / len(shares)
            text = f"{share:.1%} of the points of {pluralize(len(shares), 'cloud')} are in the picture"
            if empty == 1 and len(self.shares) > 1:
                empty, text = 0.0, f"no camera shows points of {pluralize(len(shares), 'cloud')}"
            place = sensor if len(self.shares) > 1 else "lidar"
            found.append(Check("alignment", threshold.level(empty), text, place))
        return found


def measure_alignment(subject: ReportSubject, unreadable: Unreadable) -> Alignment:
    """Project the sensors' points into the pictures and compare them with the boxes, which are the first camera's."""
    ways, parts = make_projectors(subject), {name: Alignment() for name in subject.sequences}
    refused = {
        sensor if camera == CAMERA.key else f"{sensor} in {camera}": way
        for (_, sensor, camera), way in ways.items()
        if isinstance(way, str)
    }
    for sensor in list_all_sensors(subject, "cloud"):
        (_meet_boxes if is_radar(sensor) else _find_in_pictures)(subject, sensor, ways, parts, unreadable)
    each, shares = parts.values(), dict[str, list[float]]()
    for sensor, own in (pair for part in each for pair in part.shares.items()):
        shares.setdefault(sensor, []).extend(own)
    return Alignment(sum(part.boxes for part in each), sum(part.met for part in each), shares, refused, parts)


def _meet_boxes(
    subject: ReportSubject, sensor: str, ways: Ways, parts: Mapping[str, Alignment], unreadable: Unreadable
) -> None:
    """Count the boxes in which a radar has a target."""
    annotated = subject.dataset.annotation_rows[1]
    both = [place for place in subject.places if sensor in place.sample.inputs and place.sample.key in annotated]
    for place in spread_evenly(both, BOXED_SAMPLES):
        way, part = ways.get((place.sample.name, sensor, CAMERA.key)), parts[place.sample.name]
        boxes = convert_boxes(place.sample.annotations, subject.dataset.metadata)
        if not (isinstance(way, Projector) and len(boxes)):
            continue
        try:
            seen = way.project(place.sample.radar(sensor))
        except (EdgeFirstError, ValueError) as error:
            unreadable.setdefault("radar points", str(error))
            continue
        inside = seen.pixels[seen.mask] / way.size if all(way.size) else np.zeros((0, 2))
        near = np.abs(inside[None] - boxes[:, None, :2]) <= (0.5 + MARGIN) * boxes[:, None, 2:]
        part.boxes += len(boxes)
        part.met += int(np.any(np.all(near, 2), 1).sum())


def _find_in_pictures(
    subject: ReportSubject, sensor: str, ways: Ways, parts: Mapping[str, Alignment], unreadable: Unreadable
) -> None:
    """Count the points of a lidar that the picture of any camera shows."""

    def read(sample: Sample) -> Any:
        known = [way for key, way in ways.items() if key[:2] == (sample.name, sensor) and isinstance(way, Projector)]
        points = sample.lidar(sensor) if known else ()
        return np.any([way.project(points).mask for way in known], axis=0) if len(points) else ()

    for place, mask in read_each(subject.with_input(sensor, ALIGNED_CLOUDS), read, unreadable, "lidar points"):
        if len(mask):
            parts[place.sample.name].shares.setdefault(sensor, []).append(float(mask.mean()))


Ways: TypeAlias = "dict[tuple[str, str, str], Projector | str]"
"""By sequence, sensor and camera the projection into the picture, or why it is missing."""


def make_projectors(subject: ReportSubject) -> Ways:
    """Return the ways of the sensors with points into all pictures."""
    seen = list_all_sensors(subject, "camera", "cloud")
    return find_ways(subject.calibrations, seen, assume_forward=subject.assume_forward)


def find_ways(
    calibrations: Mapping[str, SequenceCalibration], inputs: Iterable[str], *, assume_forward: bool = False
) -> Ways:
    """Return the ways of the sensors of `inputs` with points into the pictures of its cameras."""
    found: Ways = {}
    inputs = [*inputs]
    cameras, clouds = list_sensors(inputs, "camera") or [CAMERA.key], list_sensors(inputs, "cloud")
    for (name, calibration), sensor, camera in itertools.product(calibrations.items(), clouds, cameras):
        key = name, sensor, camera
        try:
            found[key] = make_projector(sensor, calibration, camera=camera, assume_forward=assume_forward)
        except NotProjectableError as error:
            found[key] = str(error)
    return found


COLUMNS, ROWS = 32, 18
"""Cells of the map of where boxes are."""
MOST_LABELS = 40
"""Labels that are drawn; the others are counted together."""


def summarize_labels(subject: ReportSubject) -> dict[str, Any]:
    """Annotations by label, samples the model processed, and how degraded pictures are."""
    rows, timeline = subject.dataset.annotations, subject.timeline
    samples = len(timeline) or len(subject.dataset)
    found: dict[str, Any] = {"labels": {}, "model": {"looked_at": 0, "samples": samples}}
    if "label" in rows.columns:
        counted = rows["label"].drop_nulls().cast(str, strict=False).value_counts(sort=True)
        found["labels"] = dict(counted.iter_rows())
    if MODEL in timeline.companions:
        found["model"]["looked_at"] = int(timeline.companions[MODEL].has.sum())
    if "degradation" in rows.columns and {"name", "frame"} <= set(rows.columns):
        one = rows.select("name", "frame", pl.col("degradation").cast(str, strict=False)).unique()
        found["degradation"] = dict(one["degradation"].drop_nulls().value_counts(sort=True).iter_rows())
    return found


def count_box_cells(found: Floats) -> Floats:
    """(ROWS, COLUMNS) how many boxes have their centre in each cell of the picture, the upper ones first."""
    cells, _, _ = np.histogram2d(found[:, 1], found[:, 0], (ROWS, COLUMNS), ((0, 1), (0, 1)))
    return cells


@dataclass(frozen=True)
class Track:
    """The way that one sequence went."""

    metres: Floats
    """(N, 2) m from its first position: east and north, or along x and y of `frame`."""
    seconds: Floats
    """s of drive of each position."""
    frame: str = ""
    """The frame of the poses it is of; empty: it is of positions on the earth."""

    @property
    def facts(self) -> dict[str, Any]:
        """Number of positions, length and extent."""
        steps = np.hypot(*np.diff(self.metres, axis=0).T)
        extent = [round(float(length), 1) for length in np.ptp(self.metres, axis=0)]
        found = {"positions": len(self.metres), "length_m": round(float(steps.sum()), 1), "extent_m": extent}
        return found | ({"pose_frame": self.frame} if self.frame else {})


def make_tracks(subject: ReportSubject) -> dict[str, Track]:
    """Return the way of each sequence that has positions, else poses."""
    frames = subject.dataset.frames
    if frames is None or not len(subject.timeline):
        return {}
    rows, found = subject.timeline.rows, {}
    degrees, places = np.full((2, len(rows), 2), np.nan)
    if {"latitude", "longitude"} <= set(frames.columns):
        columns = [frames[name] for name in ("latitude", "longitude")]
        if all(column.dtype.is_numeric() for column in columns):
            degrees = np.column_stack([column.to_numpy().astype(float)[rows] for column in columns])
    if "pose_position" in frames.columns and frames.schema["pose_position"] == pl.Array(pl.Float64, 3):
        places = np.array([place or (math.nan,) * 3 for place in frames["pose_position"].to_list()], float)[rows, :2]
    known = np.isfinite(degrees).all(1) & (np.abs(degrees) <= (90, 360)).all(1)
    posed = np.isfinite(places).all(1)
    for number, name in enumerate(subject.timeline.names):
        own = subject.timeline.sequence == number
        if (there := own & known).any():
            on_earth = degrees[there]
            metres = convert_to_ecef(on_earth[:, 0], on_earth[:, 1], np.zeros(len(on_earth)))
            local = make_world_to_ecef(on_earth[0, 0], on_earth[0, 1], 0.0)
            flat = ((metres - local[:3, 3]) @ local[:3, :3])[:, :2]
            found[name] = Track(flat, subject.timeline.seconds[there])
        elif (there := own & posed).any():
            frame = str(subject.dataset.sequence_facts(name).get("pose_frame") or "its frame")
            found[name] = Track(places[there] - places[there][0], subject.timeline.seconds[there], frame)
    return found
