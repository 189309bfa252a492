# SPDX-License-Identifier: Apache-2.0
"""Whether a trace is what roverd's text says, and holds what the dataset holds: nothing here is the exporter's.

Written from the published "data interface" of roverd, with zipfile, json, lzma, numpy, pyarrow, Pillow.
`faults(trace, dataset, name)` gives what is wrong, nothing where all is right.
"""

import io
import itertools
import json
import lzma
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.ipc
from PIL import Image

FORMATS = {"raw", "lzma", "lzmaf", "mjpg", "npz", "jpg"}


class Bad(Exception):
    """Something that keeps a channel from being looked at further."""


# ---- the rules of the format --------------------------------------------------------------------
def avi_chunks(path):
    """The pictures of an AVI, by its RIFF structure."""
    data, found = path.read_bytes(), []

    def walk(start, end):
        while start + 8 <= end:
            kind, size = struct.unpack_from("<4sI", data, start)
            if start + 8 + size > end:
                raise Bad(f"{kind} at {start} reaches over its end")
            if kind in (b"RIFF", b"LIST"):
                walk(start + 12, start + 8 + size)
            elif kind == b"00dc":
                found.append(data[start + 8 : start + 8 + size])
            start += 8 + size + size % 2

    walk(0, len(data))
    return found


def jpeg_size(data):
    with Image.open(io.BytesIO(data), formats=["JPEG"]) as picture:
        return picture.size


def frames_of(path, dtype, shape):
    index = np.frombuffer((path.parent / (path.name + "_i")).read_bytes(), "<u8").astype(np.int64)
    data = path.read_bytes()
    if len(index) < 1 or index[0] != 0 or (np.diff(index) <= 0).any() or index[-1] != len(data):
        raise Bad("the index does not go from 0 to the end of the file")
    try:
        parts = [lzma.decompress(data[a:b]) for a, b in itertools.pairwise(index)]
        return np.array([np.frombuffer(part, dtype).reshape(shape) for part in parts])
    except (lzma.LZMAError, ValueError) as error:
        raise Bad(f"an entry is no .xz of the shape: {error}") from error


def channel(folder, name, meta):
    if set(meta) - {"format", "type", "shape", "desc", "description", "args"} or not {"format", "type", "shape"} <= set(
        meta
    ):
        raise Bad(f"keys {sorted(meta)}")
    if meta["format"] not in FORMATS or name == "meta.json" or not re.fullmatch("[iuf][1248]", meta["type"]):
        raise Bad(f"format {meta['format']}, type {meta['type']}")
    dtype, shape, path = np.dtype(f"<{meta['type']}"), tuple(meta["shape"]), folder / name
    if meta["format"] == "raw":
        size = dtype.itemsize * int(np.prod(shape))
        data = path.read_bytes()
        if len(data) % size:
            raise Bad(f"{len(data)} bytes are no entries of {size}")
        return np.frombuffer(data, dtype).reshape(-1, *shape)
    if meta["format"] == "lzmaf":
        return frames_of(path, dtype, shape)
    pictures = avi_chunks(path)
    if dtype != np.uint8 or any((*reversed(jpeg_size(picture)), 3) != shape for picture in pictures):
        raise Bad("pictures of another size")
    return pictures


def sensors_of(trace, faults):
    """{sensor: {channel: entries}} of all folders with a meta.json, with faults of the form."""
    if not (trace / "config.yaml").is_file():
        faults.append("no config.yaml")
    found = {}
    for file in sorted(trace.glob("*/meta.json")):
        folder = file.parent
        channels = {}
        for name, meta in json.loads(file.read_text()).items():
            try:
                channels[name] = channel(folder, name, meta)
            except (Bad, OSError) as error:
                faults.append(f"{folder.name}/{name}: {error}")
        stamps = channels.get("ts")
        if stamps is None or stamps.dtype != np.dtype("<f8") or stamps.ndim != 1:
            faults.append(f"{folder.name}/ts: not there, or no f8")
            continue
        if (np.diff(stamps) <= 0).any():
            faults.append(f"{folder.name}/ts: does not rise")
        for name, entries in channels.items():
            if len(entries) != len(stamps):
                faults.append(f"{folder.name}/{name}: {len(entries)} entries, ts has {len(stamps)}")
        if "length" in channels:
            for name, entries in channels.items():
                if entries.ndim > 1 and any(
                    entry[n:].any() for entry, n in zip(entries, channels["length"], strict=False)
                ):
                    faults.append(f"{folder.name}/{name}: something stands behind the last point")
        found[folder.name] = channels
    return found


# ---- what the dataset holds ---------------------------------------------------------------------
class Truth:
    """The dataset OUT/NAME.zip with its tables, one sequence of it."""

    def __init__(self, dataset, name, sequence):
        with zipfile.ZipFile(dataset / f"{name}.zip") as archive:
            self.members = {entry: archive.read(entry) for entry in archive.namelist()}
        table = pyarrow.ipc.open_file(dataset / f"{name}.frames.arrow").read_all()
        self.rows = sorted((r for r in table.to_pylist() if r["name"] == sequence), key=lambda r: r["timestamp"])
        self.metadata = {key.decode(): json.loads(value) for key, value in table.schema.metadata.items()}
        self.sequence = sequence
        rows = pyarrow.ipc.open_file(dataset / f"{name}.arrow").read_all()
        rows = rows.select(
            [c for c in ("name", "frame", "timestamp", "label", "object_id", "mask") if c in rows.column_names]
        )
        self.annotations = [row for row in rows.to_pylist() if row["name"] == sequence]

    def of(self, kind, column):
        """[(stamp in ns, member)] of the different messages of a kind, in their order."""
        found = {}
        for row in self.rows:
            member = self.members.get(f"{self.sequence}/{self.sequence}_{row['frame']:03d}.{kind}")
            if member is not None:
                found.setdefault(row[column], member)
        return sorted(found.items())

    def matrix(self, child):
        for entry in self.metadata["sequences"][self.sequence]["static_transforms"]:
            if entry["child"] == child and entry["parent"] == "base_link":
                matrix = np.eye(4)
                matrix[:3, :3], matrix[:3, 3] = turn(entry["rotation"]), entry["translation"]
                return matrix
        return None


def turn(quaternion):
    """By rotating the three axes: v + 2 w (q x v) + 2 q x (q x v)."""
    q, w = np.array(quaternion[:3]), quaternion[3]
    return np.array([v + 2 * w * np.cross(q, v) + 2 * np.cross(q, np.cross(q, v)) for v in np.eye(3)]).T


def axis(angle, number):
    c, s = np.cos(angle), np.sin(angle)
    matrix = np.eye(3)
    a, b = (number + 1) % 3, (number + 2) % 3
    matrix[a, a] = matrix[b, b] = c
    matrix[b, a], matrix[a, b] = s, -s
    return matrix


def points_of(pcd):
    """{field: values} of a binary PCD file."""
    end = pcd.index(b"DATA binary\n") + 12
    said = dict(line.split(" ", 1) for line in pcd[:end].decode().splitlines() if not line.startswith("#"))
    kinds = [f"<{t.lower()}{s}" for t, s in zip(said["TYPE"].split(), said["SIZE"].split(), strict=True)]
    return np.frombuffer(pcd[end:], list(zip(said["FIELDS"].split(), kinds, strict=True)))


def cube_of(png):
    """[sequence, rx, range, doppler, (re, im)] by the documented grid: RX across, sequences down."""
    with Image.open(io.BytesIO(png)) as picture:
        values = (np.asarray(picture).astype(np.int32) - 32768).astype(np.int16)
        said = {key.removeprefix("edgefirst:"): json.loads(text) for key, text in picture.text.items()}
    assert (said["layout"], said["is_complex"]) == ([6, 1, 5, 2], True)
    sequences, ranges, receivers, doubled = said["shape"]
    found = np.empty((sequences, receivers, ranges, doubled // 2, 2), np.int16)
    for s in range(sequences):
        for x in range(receivers):
            cell = values[s * ranges : (s + 1) * ranges, x * doubled : (x + 1) * doubled]
            found[s, x] = cell.reshape(ranges, doubled // 2, 2)
    return found, said


# ---- both together ------------------------------------------------------------------------------
def faults(trace, dataset, name):
    found = []
    sensors = sensors_of(trace, found)
    truth = Truth(Path(dataset), name, trace.name)

    def expect(ok, what):
        if not ok:
            found.append(what)

    def stamped(sensor, stamps):
        ts = sensors.get(sensor, {}).get("ts", np.empty(0))
        good = len(ts) == len(stamps) and np.allclose(ts, np.array(stamps, float) / 1e9, rtol=0, atol=3e-7)
        expect(good, f"{sensor}/ts: other times than in the dataset")
        return good

    def same(sensor, channel, expected):
        entries = sensors.get(sensor, {}).get(channel, [])
        good = len(entries) == len(expected) and all(
            np.array_equal(a, b) for a, b in zip(entries, expected, strict=True)
        )
        expect(good, f"{sensor}/{channel}: other values than in the dataset")

    camera = truth.of("camera.jpeg", "timestamp")
    if camera and stamped("camera", [stamp for stamp, _ in camera]):
        expect(sensors["camera"].get("video.avi") == [jpeg for _, jpeg in camera], "camera/video.avi: other pictures")

    cubes = truth.of("radar.png", "radar_cube_timestamp")
    if cubes and stamped("radar_cube", [stamp for stamp, _ in cubes]):
        decoded = [cube_of(png) for _, png in cubes]
        same("radar_cube", "cube", [values for values, _ in decoded])
        said, scales = json.loads((trace / "radar_cube/radar.json").read_text()), decoded[0][1]["scales"]
        expect(
            said["range_resolution"] == scales[1] and said["doppler_resolution"] == scales[3], "radar.json: resolutions"
        )

    for sensor, kind, column in (
        ("radar_points", "radar.pcd", "radar_targets_timestamp"),
        ("lidar_points", "lidar.pcd", "lidar_points_timestamp"),
    ):
        clouds = truth.of(kind, column)
        expect(not clouds or "xyz" in sensors.get(sensor, ()), f"{sensor}: has no points")
        if clouds and "xyz" in sensors.get(sensor, ()) and stamped(sensor, [stamp for stamp, _ in clouds]):
            points = [points_of(pcd) for _, pcd in clouds]
            most = max(map(len, points))
            expect(
                json.loads((trace / sensor / "meta.json").read_text())["xyz"]["shape"] == [max(1, most), 3],
                f"{sensor}: shape",
            )
            same(sensor, "length", [np.int32(len(p)) for p in points])
            for field in points[0].dtype.names:
                number = "xyz".find(field)
                if number < 0 and field not in sensors[sensor]:
                    found.append(f"{sensor}: has no {field}")
                    continue
                entries = sensors[sensor].get("xyz" if number >= 0 else field)
                for n, p in enumerate(points):
                    given = entries[n, : len(p), number] if number >= 0 else entries[n, : len(p)]
                    if given.dtype != p.dtype[field] or not np.array_equal(given, p[field]):
                        found.append(f"{sensor}/{field}: other points than in the dataset")
                        break

    placed = [row for row in truth.rows if row["latitude"] is not None]
    if placed and stamped("_gps", [row["timestamp"] for row in placed]):
        same("_gps", "lla", [np.array([row["latitude"], row["longitude"], row["altitude"]]) for row in placed])
    turned = [row for row in truth.rows if row["orientation"] is not None]
    if turned and stamped("_imu", [row["timestamp"] for row in turned]):
        for angles, row in zip(sensors["_imu"]["rot"].astype(float), turned, strict=True):
            matrix = axis(angles[0], 0) @ axis(angles[1], 1) @ axis(angles[2], 2)
            if not np.allclose(matrix, turn(row["orientation"]), atol=1e-6):
                found.append("_imu/rot: other turns than in the dataset")
                break
    both = [row for row in placed if row["orientation"] is not None]
    if len(both) > 1:
        check_pose(trace, both, expect)

    for folder, child in (("camera", "camera_optical"), ("radar_cube", "radar"), ("lidar_points", "lidar")):
        expected, path = truth.matrix(child), trace / folder / "extrinsics.json"
        if expected is not None and folder in sensors:
            given = np.array(json.loads(path.read_text())["sensor_to_parent"])
            expect(np.allclose(given, expected, atol=1e-9), f"{folder}/extrinsics.json: another place")
    info = truth.metadata["sequences"][truth.sequence]["camera_info"]
    if info is not None and "camera" in sensors:
        given = json.loads((trace / "camera/intrinsics.json").read_text())
        expect(given == info, "camera/intrinsics.json: other intrinsics")

    masks = {
        row["timestamp"]: np.asarray(Image.open(io.BytesIO(row["mask"])))
        for row in truth.annotations
        if row.get("mask") is not None and row.get("label") is None and row.get("object_id") is None
    }
    if masks and stamped("_camera", sorted(masks)):
        same("_camera", "segment", [masks[stamp] for stamp in sorted(masks)])
    return found


def check_pose(trace, rows, expect):
    """Places on a flat earth about the first one are right to some mm over the metres of a short drive."""
    pose = np.load(trace / "_radar/pose.npz")
    seconds = np.array([row["timestamp"] for row in rows], float) / 1e9
    expect(set(pose.files) == {"pos", "rot", "vel", "acc", "t"}, "pose.npz: other keys")
    expect(np.allclose(pose["t"], seconds, rtol=0, atol=3e-7), "pose.npz: other times")
    expect(
        all(
            pose[key].shape == (len(rows), *shape)
            for key, shape in {"pos": (3,), "vel": (3,), "acc": (3,), "rot": (3, 3)}.items()
        ),
        "pose.npz: shapes",
    )
    first = rows[0]
    phi = np.radians(first["latitude"])
    north = (1 - 0.0066943799901) * 6378137.0 / (1 - 0.0066943799901 * np.sin(phi) ** 2) ** 1.5 * np.pi / 180
    east = 6378137.0 / np.sqrt(1 - 0.0066943799901 * np.sin(phi) ** 2) * np.cos(phi) * np.pi / 180
    flat = np.array(
        [
            [
                (r["longitude"] - first["longitude"]) * east,
                (r["latitude"] - first["latitude"]) * north,
                r["altitude"] - first["altitude"],
            ]
            for r in rows
        ]
    )
    reach = 1e-3 + 1e-6 * np.abs(flat).max() ** 2
    expect(np.allclose(pose["pos"], flat, atol=reach), "pose.npz: other places")
    expect(
        all(np.allclose(r, turn(row["orientation"]), atol=1e-3) for r, row in zip(pose["rot"], rows, strict=True)),
        "pose.npz: other turns",
    )
    times = seconds - seconds[0]
    way = np.diff(flat, axis=0)
    driven = (pose["vel"][1:] + pose["vel"][:-1]) / 2 * np.diff(times)[:, None]
    expect(np.allclose(driven.sum(0), way.sum(0), atol=0.05 + 0.02 * np.abs(way.sum(0))), "pose.npz: other velocities")
