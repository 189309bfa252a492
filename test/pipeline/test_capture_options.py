# SPDX-License-Identifier: Apache-2.0
"""Settings of sensors and pictures in a capture: it makes what a conversion makes with them, byte for byte."""

import zipfile

import pyarrow as pa
import pytest
from test_capture import Feed

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config import Settings
from edgefirst_ros.pipeline import samples

DRIVE = {"seconds": 2.0, "size": (160, 96), "fps": 10.0, "cube_shape": (1, 16, 2, 16), "lidar_points": 200}


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def table(path):
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


@pytest.mark.parametrize(
    "options",
    [
        {"sensors": ["camera", "lidar.points"], "max_width": 80},
        {"picture_hook": "shaded:shade", "max_width": 100, "rate": 5},
        {"require": ["model"]},
        {"sensors": ["lidar.points"], "masks": False},
    ],
)
def test_live_equals_offline(recording, tmp_path, monkeypatch, options):
    monkeypatch.setattr(samples, "PATIENCE", 600)
    monkeypatch.setattr(samples, "LAST_WORK", 600)
    (tmp_path / "shaded.py").write_text("def shade(picture):\n    picture //= 2\n    return picture\n")
    monkeypatch.syspath_prepend(tmp_path)
    path, settings = recording(**DRIVE), Settings(jobs=2, **options)
    feed = Feed(path, tmp_path / "live", settings=settings, sequence=path.stem, pretrigger=5.0)
    feed.play()
    feed.capture.close()
    offline = convert(path, tmp_path / "offline", settings=settings)
    live = Dataset(tmp_path / "live" / f"{path.stem}.zip")
    assert offline.samples > 4
    assert members(live.container.path) == members(offline.paths.container)
    for part in ("arrow", "frames"):
        found, expected = table(getattr(live.paths, part)), table(getattr(offline.paths, part))
        assert found.equals(expected)
    ours, theirs = (
        live.metadata["sequences"][path.stem],
        Dataset(offline.paths.container).metadata["sequences"][path.stem],
    )
    assert ours["camera_info"] == theirs["camera_info"]
    assert (ours["camera_info"] or {}).get("width") == min(160, options.get("max_width", 160))
    assert live.metadata["configuration"] == Dataset(offline.paths.container).metadata["configuration"]


def test_start_and_end_are_not_looked_at(recording, tmp_path):
    path = recording(codec="jpeg", **{**DRIVE, "seconds": 1.0})
    feed = Feed(path, tmp_path, settings=Settings(jobs=2, start=50.0), pretrigger=5.0)
    feed.play()
    feed.capture.close()
    assert "start and end are for recordings, a capture does not look at them" in feed.events
    assert len(feed.capture.results.finished) == 1
