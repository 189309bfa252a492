# SPDX-License-Identifier: Apache-2.0
"""A dataset as traces of roverd: what has a home goes into sensors, all else under `_edgefirst`.

OUT/SEQUENCE/           a trace: config.yaml, edgefirst.schema.yaml, a folder a sensor
OUT/_edgefirst/         tables as files, members without a home, and where each of the others is
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zlib_ng import zlib_ng

import edgefirst_ros
from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.dataset.names import member_name
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.ahead import ahead
from edgefirst_ros.export.drive import Drive, class_masks, drives, measured
from edgefirst_ros.export.report import Report
from edgefirst_ros.export.roverd.channels import write_json
from edgefirst_ros.export.roverd.clouds import most_points
from edgefirst_ros.export.roverd.motion import write_motion, write_places
from edgefirst_ros.export.roverd.traces import (
    BYTES,
    CameraTrace,
    CloudTrace,
    CubeTrace,
    Ready,
    SegmentTrace,
    SensorTrace,
)
from edgefirst_ros.progress import Progress

SIDE, HEAD, LIST, FILES = "_edgefirst", "dataset.json", "samples.jsonl", "members"
"""The folder beside the traces, and what is in it."""
FORM = "edgefirst_ros roverd 1"
SENSORS = {
    "camera.jpeg": "camera",
    "radar.png": "radar",
    "radar.pcd": "radar_points",
    "lidar.pcd": "lidar_points",
}
"""Kind of a member -> its sensor."""
SEMANTIC = "_camera"


@dataclass(slots=True)
class Found:
    """A member: its bytes as read, and as an entry of its sensor."""

    kind: str
    data: bytes
    crc: int
    ready: Ready | None


@dataclass(slots=True)
class TraceCounts:
    """Where the members of a dataset went."""

    members: dict[Key, dict[str, list[Any]]] = field(default_factory=dict)
    """{sample: {kind: size, CRC-32, and if it has an entry its sensor, index and note}}."""
    stamps: dict[Key, int] = field(default_factory=dict)
    entries: Counter[str] = field(default_factory=Counter)
    """Entries by sensor."""
    files: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Members kept as files, by kind and reason."""


def export(dataset: Dataset, out: Path, report: Report, progress: Progress) -> None:
    """Write the traces of a dataset into `out`, a folder that is there and empty.

    Raises DatasetError where stamps are missing or something cannot be read, StorageError where it cannot be written.
    """
    tally = TraceCounts()
    side = out / SIDE
    side.mkdir()
    for drive in drives(dataset):
        if drive.name.casefold() == SIDE:
            raise DatasetError(f"{dataset.container.path}: a sequence cannot have the name {drive.name!r} in this form")
        member_name(drive.name, 0, "camera.jpeg")  # refuses what cannot name a folder
        with ExitStack() as closing:
            _Trace(drive, out, tally, closing).write(progress)
    annotations, _ = dataset.table_files
    for table in dataset.table_files:
        if table is not None:
            (side / table.path.name).write_bytes(table.content())
    write_json(
        side / HEAD,
        {
            "form": FORM,
            "name": dataset.paths.name,
            "layout": dataset.paths.layout,
            "software": edgefirst_ros.__version__,
        }
        | {"annotations": annotations.path.name if annotations else None, "frames": dataset.paths.frames.name},
    )
    with (side / LIST).open("x", encoding="utf-8") as file:
        for key in dict.fromkeys(key for key in _stored_order(dataset) if key in tally.members):
            line = {"sequence": key.name, "frame": key.frame, "timestamp": tally.stamps[key]}
            file.write(json.dumps(line | {"members": tally.members[key]}, ensure_ascii=False) + "\n")
    _tell(dataset, tally, report)


def _stored_order(dataset: Dataset) -> Iterator[Key]:
    """Yield the samples as their members lie in the container."""
    places = {name: key for key in (s.key for s in dataset.samples()) for name in dataset.members(key).values()}
    return (places[name] for name in dataset.container.names if name in places)


class _Trace:
    """One drive."""

    def __init__(self, drive: Drive, out: Path, tally: TraceCounts, closing: ExitStack) -> None:
        self._drive, self._tally = drive, tally
        self._folder = out / drive.name
        self._folder.mkdir()
        self._files = out / SIDE / FILES
        container = drive.dataset.container
        found: dict[str, list[str]] = {}
        for sample in drive.samples:
            for kind, name in drive.dataset.members(sample.key).items():
                found.setdefault(kind, []).append(name)
        seconds = (int(drive.stamps[-1]) - int(drive.stamps[0])) / 1e9
        camera = CameraTrace(self._folder / "camera", (len(drive) - 1) / seconds if seconds else 1.0)
        self._streams: dict[str, SensorTrace] = {"camera.jpeg": camera, "radar.png": CubeTrace(self._folder / "radar")}
        for kind in ("radar.pcd", "lidar.pcd"):
            most = most_points(container, found.get(kind, ()))
            self._streams[kind] = CloudTrace(self._folder / SENSORS[kind], most)
        self._segments = SegmentTrace(self._folder / SEMANTIC)
        for stream in (*self._streams.values(), self._segments):
            closing.callback(stream.abandon)
        self._camera = camera
        self._masks = class_masks(drive.dataset)
        self._pictures: list[Sample] = []
        """The sample of each picture in the video."""

    def write(self, progress: Progress) -> None:
        """Write the trace; `tally` is told of the members."""
        total = len(self._drive)
        with closing(ahead(self._wanted(), self._prepare)) as prepared:
            for number, ((sample, _), found) in enumerate(prepared):
                self._take(sample, self._drive.rows[number], found)
                progress(f"exporting {self._drive.name}", number, total)
        self._finish()
        progress(f"exporting {self._drive.name}", total, total)

    def _wanted(self) -> Iterator[tuple[Sample, set[str]]]:
        """Yield the samples, each with the kinds of members that the one before does not have already."""
        before: dict[str, int] = {}
        for sample, row in zip(self._drive.samples, self._drive.rows, strict=True):
            stamps = {kind: measured(row, kind) for kind in self._streams}
            yield sample, {kind for kind, stamp in stamps.items() if before.get(kind) != stamp}
            before |= {kind: stamps[kind] for kind in self._drive.dataset.members(sample.key) if kind in stamps}

    def _prepare(self, wanted: tuple[Sample, set[str]]) -> list[Found]:
        """Read a sample: its members, and last its mask of classes, of the kind SEMANTIC. Threads share this."""
        sample, fresh = wanted
        found = []
        for kind in self._drive.dataset.members(sample.key):
            data = sample.read(kind)
            ready = self._streams[kind].ready(data) if kind in fresh else None
            found.append(Found(kind, data, zlib_ng.crc32(data), ready))
        if sample.key in self._masks:
            mask: bytes = self._drive.dataset.annotation_rows[0]["mask"][self._masks[sample.key]]
            found.append(Found(SEMANTIC, mask, 0, self._segments.ready(mask)))
        return found

    def _take(self, sample: Sample, row: Mapping[str, Any], members: list[Found]) -> None:
        """Write what was made of a sample, of which the table of frames has `row`."""
        noted = self._tally.members.setdefault(sample.key, {})
        stamp = self._tally.stamps[sample.key] = int(row["timestamp"])
        for found in members:
            if found.kind == SEMANTIC:
                self._segments.add(stamp, found.data, found.ready)
                continue
            noted[found.kind] = [len(found.data), found.crc]
            stream = self._streams.get(found.kind)
            entry = stream.add(measured(row, found.kind), found.data, found.ready) if stream else None
            if entry is None:
                self._keep(sample, found.kind, found.data)
            else:
                noted[found.kind] += [SENSORS[found.kind], *entry]
                if found.kind == "camera.jpeg":
                    self._pictures.append(sample)

    def _keep(self, sample: Sample, kind: str, data: bytes) -> None:
        """Keep a member as a file."""
        path = self._files / member_name(sample.name, sample.frame or 0, kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if kind not in self._streams:
            self._tally.files[kind, ""] += 1

    def _finish(self) -> None:
        """Complete the sensors, and describe the trace."""
        drive = self._drive
        channels: dict[str, list[str]] = {}
        for kind, stream in self._streams.items():
            name = SENSORS[kind]
            channels[name] = stream.close()
            self._tally.entries[name] += len(stream.stamps)
            for reason, number in stream.kept.items():
                self._tally.files[kind, reason] += number
        for number in self._camera.changed():
            sample = self._pictures[number]
            self._keep(sample, "camera.jpeg", sample.read("camera.jpeg"))
            del self._tally.members[sample.key]["camera.jpeg"][2:]
            self._tally.files["camera.jpeg", BYTES] += 1
        channels[SEMANTIC] = self._segments.close()
        self._tally.entries[SEMANTIC] += len(self._segments.stamps)
        self._tally.files[SEMANTIC, ""] += sum(self._segments.kept.values())
        channels |= write_motion(drive, self._folder, self._tally.entries)
        write_places(drive, self._folder)
        known = {name: names for name, names in channels.items() if names}
        schema = "".join(f"{json.dumps(name)}: {json.dumps(names)}\n" for name, names in known.items())
        (self._folder / "edgefirst.schema.yaml").write_text(schema, encoding="utf-8")
        said = {
            "name": drive.name,
            "dataset": drive.dataset.paths.name,
            "software": f"edgefirst_ros {edgefirst_ros.__version__}",
            "sensors": [name for name in known if not name.startswith("_")],
        }
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in said.items())  # JSON is YAML
        (self._folder / "config.yaml").write_text(text, encoding="utf-8")


# ---- the report ----------------------------------------------------------------------------------
def _tell(dataset: Dataset, tally: TraceCounts, report: Report) -> None:
    """Say what became of every sensor and column."""
    entries, files = tally.entries, Counter({key: number for key, number in tally.files.items() if number})
    stamps = "stamps to 0.1 us (exact in the tables)"
    lost = f"a message of several samples is one entry; {stamps}"
    for kind, (name, where, what) in {
        "camera.jpeg": ("camera", "camera/video.avi", stamps),
        "radar.png": ("radar", "radar/cube, radar/radar.json", lost),
        "radar.pcd": ("radar_points", "radar_points/", lost),
        "lidar.pcd": ("lidar_points", "lidar_points/", lost),
    }.items():
        if entries[name]:
            report.add(kind, where, what, entries[name])
    for (kind, reason), number in sorted(files.items()):
        if kind == SEMANTIC:
            report.add("mask of classes", "", "more than one size, no 8-bit PNG: in the table alone", number)
        else:
            told = reason or "no sensor of roverd holds it"
            report.add(kind, f"{SIDE}/{FILES}/", f"not read by roverd: {told}", number)
    frames = dataset.frames
    columns = set(frames.columns) if frames is not None else set()
    if entries["gps"]:
        report.add(
            "latitude, longitude, altitude",
            "gps/lla",
            "interpolated to the pictures, as in the dataset",
            entries["gps"],
        )
    if entries["imu"]:
        report.add("orientation", "imu/rot", "as Euler angles, float32", entries["imu"])
        report.add(
            "acceleration, angular velocity",
            "",
            "not in the dataset: no imu/acc, imu/avel; roverd's class IMU wants them",
        )
    if entries["pose"]:
        report.add(
            "position with orientation", "_radar/pose.npz", "velocity and acceleration are differences", entries["pose"]
        )
    if entries[SEMANTIC]:
        report.add("mask of classes", f"{SEMANTIC}/segment", "", entries[SEMANTIC])
    homes = {"latitude", "longitude", "altitude", "orientation"}
    report.add(", ".join(sorted(columns - homes)), f"{SIDE}/{dataset.paths.frames.name}", "not read by roverd")
    annotations, _ = dataset.table_files
    if annotations is not None:
        report.add(", ".join(dataset.annotation_columns), f"{SIDE}/{annotations.path.name}", "not read by roverd")
    strangers = len(dataset.container.names) - sum(map(len, tally.members.values()))
    if strangers:
        report.add("files that belong to no sample", "", "not taken along", strangers)
