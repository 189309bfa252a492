# SPDX-License-Identifier: Apache-2.0
"""The contact sheet: which samples are shown, and what is drawn of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.report import drawing
from edgefirst_ros.report.alignment import projectors
from edgefirst_ros.report.labels import boxes_of
from edgefirst_ros.report.look import Unreadable, evenly, speeds
from edgefirst_ros.report.projection import Projector, xyz
from edgefirst_ros.report.subject import Floats, Place, Subject
from edgefirst_ros.sensors.transforms import frames_from

BASE = "base_link"
NOTHING = np.zeros((0, 3))


@dataclass
class Shown:
    """One sample of the sheet."""

    sequence: str
    frame: int | None
    seconds: float
    why: str
    picture: bytes | None
    """JPEG; None where the sample has no picture."""
    above: bytes | None
    """PNG; None where it has no points."""
    alt: str
    above_alt: str
    skews: dict[str, float]
    """ms by sensor."""
    said: str
    """Description of what is drawn, or why nothing is."""


def choose(subject: Subject, most: int) -> list[tuple[Place, str]]:
    """Choose samples, in order of time, each with the reason: worst skews, every label, the rest spread evenly."""
    places = [p for p in subject.places if "camera" in p.sample.inputs] or subject.places
    if not places or most < 1:
        return []
    reasons: dict[int, list[str]] = {}
    by_row = {place.row: number for number, place in enumerate(places) if place.row is not None}
    for sensor, row in _worst(subject, by_row).items():
        if len(reasons) < max(1, most // 4):
            skew = subject.timeline.companions[sensor].skew[row] / 1e6
            reasons.setdefault(by_row[row], []).append(f"largest skew of {sensor}: {skew:+.1f} ms")
    by_key = {place.sample.key: number for number, place in enumerate(places)}
    for label, (key, number) in _labelled(subject, by_key).items():
        if len(reasons) < max(2, most * 2 // 3) or by_key[key] in reasons:
            reasons.setdefault(by_key[key], []).append(f"most of {label}: {number}")
    looked = [place for place in places if place.sample.key in subject.dataset.annotation_rows[1]]
    for source in (looked if len(looked) >= most else [], places):
        left = [place for place in source if by_key[place.sample.key] not in reasons]
        for place in evenly(left, max(most - len(reasons), 0)):
            reasons[by_key[place.sample.key]] = ["one of those spread evenly"]
    return [(places[number], ", ".join(why)) for number, why in sorted(reasons.items())][:most]


def _worst(subject: Subject, rows: dict[int, int]) -> dict[str, int]:
    """Sensor -> the row whose skew is the largest, of those that can be shown."""
    found = {}
    known = np.zeros(len(subject.timeline), bool)
    known[list(rows)] = True
    for sensor, one in subject.timeline.companions.items():
        far = np.where(one.has & known, np.abs(one.skew), -1)
        if sensor != "model" and len(far) and far.max() > 0:
            found[sensor] = int(far.argmax())
    return found


def _labelled(subject: Subject, keys: dict[Any, int]) -> dict[str, tuple[Any, int]]:
    """Label -> the sample with the most annotations of it, of those that can be shown."""
    from edgefirst_ros.dataset.inputs import Key

    found: dict[str, tuple[Any, int]] = {}
    counted = subject.annotations.drop_nulls("label").group_by("name", "frame", "label", maintain_order=True).len()
    for name, frame, label, number in counted.iter_rows():
        key = Key(name, frame)
        if key in keys and number > found.get(str(label), (None, 0))[1]:
            found[str(label)] = key, int(number)
    return found


def sheet(subject: Subject, most: int, unreadable: Unreadable) -> list[Shown]:
    """Draw the samples that are chosen; what cannot be read is left out and noted."""
    ways = projectors(subject)
    poses = {
        name: frames_from(one.static_transforms or (), BASE) for name, one in subject.calibrations.items()
    }  # from each sensor to the vehicle
    colours: dict[str, tuple[int, ...]] = {}
    return [_drawn(subject, place, why, ways, poses, colours, unreadable) for place, why in choose(subject, most)]


def _drawn(
    subject: Subject,
    place: Place,
    why: str,
    ways: dict[tuple[str, str], Projector | str],
    poses: dict[str, dict[str, Floats]],
    colours: dict[str, tuple[int, ...]],
    unreadable: Unreadable,
) -> Shown:
    sample, said, view = place.sample, [], None
    lidar, radar, speed = NOTHING, NOTHING, np.zeros(0)
    if "lidar.pcd" in sample.inputs:
        lidar = _points(sample.lidar, unreadable, "lidar points")[0]
    if "radar.pcd" in sample.inputs:
        radar, speed = _points(sample.radar, unreadable, "radar points")
    picture = None
    if "camera" in sample.inputs:
        try:
            picture = drawing.scaled(sample.image())
        except EdgeFirstError as error:
            unreadable.add("picture", error)
    what = []
    if picture is not None:
        rows = list(sample.annotations.iter_rows(named=True)) if len(sample.annotations) else []
        boxes = {
            n: found[0]
            for n in range(len(rows))
            if len(found := boxes_of(sample.annotations[n : n + 1], subject.metadata))
        }
        for sensor, points in (("lidar", lidar), ("radar", radar)):
            way = ways.get((sample.name, sensor))
            if not len(points) or way is None:
                continue
            if isinstance(way, str):
                said.append(way)
                continue
            view = math.atan2(way.size[0] / 2, way.k[0, 0]) if way.size[0] else None
            number = (
                drawing.draw_lidar(picture, points, way)
                if sensor == "lidar"
                else drawing.draw_radar(picture, points, speed, way)
            )
            what.append(f"{number} {sensor} {'points' if sensor == 'lidar' else 'targets'}")
        try:
            drawing.draw_annotations(picture, rows, boxes, colours)
        except EdgeFirstError as error:
            unreadable.add("mask", DatasetError(f"frame {sample.frame} of {sample.name!r}: {error}"))
        labels = [str(row["label"]) for row in rows if row.get("label") is not None]
        what.append(f"boxes of {', '.join(dict.fromkeys(labels))}" if labels else "no boxes")
    name = f"frame {sample.frame} at {place.seconds:.2f} s"
    above = None
    if len(lidar) or len(radar):
        own = poses.get(sample.name, {})
        above = drawing.from_above(_moved(lidar, own.get("lidar")), _moved(radar, own.get("radar")), speed, view)
    return Shown(
        sample.name,
        sample.frame,
        place.seconds,
        why,
        drawing.jpeg(picture) if picture is not None else None,
        drawing.png(above) if above is not None else None,
        f"Picture of {name}, with {', '.join(what)}",
        f"{len(lidar)} lidar points and {len(radar)} radar targets of {name} from above, forward up",
        {sensor: value / 1e6 for sensor, value in sample.skew.items()},
        "; ".join(dict.fromkeys(said)) or ", ".join(what),
    )


def _points(read: Any, unreadable: Unreadable, what: str) -> tuple[Floats, Floats]:
    """(N, 3) places and (N,) speeds of a cloud; none where it cannot be read."""
    try:
        points = read().ravel()
        return xyz(points), speeds(points)
    except EdgeFirstError as error:
        unreadable.add(what, error)
    except ValueError as error:
        unreadable.add(what, EdgeFirstError(f"{what} without x, y and z: {error}"))
    return NOTHING, np.zeros(0)


def _moved(points: Floats, pose: Floats | None) -> Floats:
    """Points of a sensor in the vehicle's frame; as they are where that is not known."""
    if pose is None:
        return points
    with np.errstate(invalid="ignore"):
        return points @ pose[:3, :3].T + pose[:3, 3]
