# SPDX-License-Identifier: Apache-2.0
"""Unfinished datasets for the tests: as a writer leaves them when it is killed, with real pictures in them."""

import io
import os
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import polars as pl
import pytest
from handmade_dataset import SEQUENCE, START, STEP, cloud, cube_png
from PIL import Image

from edgefirst_ros import Dataset
from edgefirst_ros.dataset import DatasetWriter, NewSample
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.dataset.writer import WriterState
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg

JOURNALS = ("row_log",)
KINDS = ("camera.jpeg", "radar.png", "lidar.pcd")


def stamp_of(frame):
    return START + frame * STEP


def place_of(frame):
    return 45.5 + frame / 1e4, -73.6


def picture(frame, size=(16, 8), noise=False):
    """A JPEG with EXIF, written by the program's own module."""
    pixels = np.full((size[1], size[0], 3), frame % 256, np.uint8)
    if noise:
        pixels = np.random.default_rng(frame).integers(0, 256, pixels.shape, np.uint8)
    plain = io.BytesIO()
    Image.fromarray(pixels).save(plain, "JPEG")
    exif = encode_exif(ExifInfo(SEQUENCE, frame, stamp_of(frame), "host", "test", *place_of(frame), 30.0))
    return b"".join(map(bytes, insert_jpeg(plain.getvalue(), exif)))


def sample(frame, *, size=(16, 8), noise=False):
    stamp = stamp_of(frame)
    members = [picture(frame, size, noise), cube_png(frame), cloud(frame)]
    latitude, longitude = place_of(frame)
    row = {"size": size, "latitude": latitude, "longitude": longitude, "keyframe": frame == 0, "segment": 0}
    skews = {"radar_cube": 1000, "lidar_points": 5}
    row |= {f"{base}_timestamp": stamp + skew for base, skew in skews.items()}
    row |= {f"{base}_skew": skew for base, skew in skews.items()}
    box = {"label": "car", "label_index": 0, "box2d": (0.5, 0.5, 0.1, 0.1), "box2d_score": 0.5}
    return NewSample(
        SEQUENCE,
        frame,
        stamp,
        [(kind, [data]) for kind, data in zip(KINDS, members, strict=True)],
        row,
        [box] * (frame % 3),
        {"size": size, "location": (latitude, longitude)},
    )


def leave(out, samples, *, commits=(), layout="zip", fsync=False, name="drive", describe=None):
    """Write samples, commit behind those in `commits`, and end as a kill does; returns the paths."""
    out.mkdir(exist_ok=True, parents=True)
    writer = DatasetWriter(out, name, layout=layout, fsync=fsync, flush_interval=1e9, describe=describe)
    for number, one in enumerate(samples):
        writer.write(one)
        if number in commits:
            writer.flush()
    vanish(writer)
    return writer.paths


def vanish(writer):
    """Close what a process has open, as its end does: nothing is written any more."""
    for file in (writer._log, writer._reserve):
        if file._fd >= 0:
            os.close(file._fd)
        file._fd = -1
    writer._members.abandon()
    if writer.state in (WriterState.OPEN, WriterState.COMPLETING):
        os.close(writer._lock)
    writer.state = WriterState.SUSPENDED


def rewound(paths):
    """Samples that a writer would go on behind; it is let go again."""
    members, lock, point = UnfinishedDataset(paths).hand_over()
    members.abandon()
    os.close(lock)
    return point.samples


def finish(out, samples, *, name="drive", **options):
    """The same samples without interruption."""
    with DatasetWriter(out, name, **options) as writer:
        for one in samples:
            writer.write(one)
        return writer.finish({"counts": {}})


def copy(paths, out):
    """Another copy of an unfinished dataset."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(paths.out, out)
    return DatasetPaths(out, paths.name, paths.layout)


def spans(archive):
    """[(name, start, end)] of the members of a finished archive, by zipfile: each reaches to the next one."""
    with zipfile.ZipFile(archive) as whole:
        infos = whole.infolist()
        starts = [info.header_offset for info in infos]
        return list(zip([i.filename for i in infos], starts, [*starts[1:], whole.start_dir], strict=True))


def members(paths):
    if paths.layout == "zip":
        with zipfile.ZipFile(paths.container) as found:
            assert found.testzip() is None
            return {name: found.read(name) for name in found.namelist()}
    return {str(p.relative_to(paths.members)): p.read_bytes() for p in paths.members.rglob("*") if p.is_file()}


def frames_of(names):
    """Frame numbers in names of members."""
    return sorted({int(name.partition(".")[0].rpartition("_")[2]) for name in names})


def table(path):
    return pl.read_ipc(path.read_bytes())


def cut(path, size):
    with path.open("r+b") as file:
        file.truncate(size)


def check(paths, expected):
    """The dataset has these members and no more, and its tables are right about them."""
    assert list(members(paths)) == expected
    frames, annotations = table(paths.frames), table(paths.arrow)
    numbers = frames_of(expected)
    assert sorted(frames["frame"]) == numbers
    labels = {frame: [] for frame in numbers}
    for row in annotations.iter_rows(named=True):
        labels[row["frame"]].append(row.get("label"))
    for row in frames.iter_rows(named=True):
        frame = row["frame"]
        has_picture, has_cloud = (f"{SEQUENCE}/{SEQUENCE}_{frame:03d}.{kind}" in expected for kind in KINDS[::2])
        assert row["lidar_points_skew"] in ((5, None) if has_cloud else (None,))
        assert labels[frame] in (["car"] * (frame % 3) or [None], [None])
        if has_picture or row["latitude"] is not None:
            assert row["timestamp"] == stamp_of(frame)
            assert (row["latitude"], row["longitude"]) == pytest.approx(place_of(frame), abs=1e-8)
        else:
            assert abs(row["timestamp"] - stamp_of(frame)) < 2 * 10**9
    assert len(Dataset(paths.container)) == len(frames)


def everything(root):
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in sorted(root.rglob("*"))}


def readers_accept(archive):
    """Exit codes of the usual programs, those that are installed, on an archive."""
    commands = (["unzip", "-tqq"], ["7z", "t"], ["bsdtar", "-tf"], [sys.executable, "-m", "zipfile", "-t"])
    found = [command for command in commands if shutil.which(command[0])]
    codes = {}
    for command in found:
        run = subprocess.run([*command, archive], capture_output=True, check=False)
        codes[os.path.basename(command[0])] = run.returncode
    return codes
