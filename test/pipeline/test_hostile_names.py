# SPDX-License-Identifier: Apache-2.0
"""Names of topics that are made to harm, and a system clock that is set back: what they do to a dataset."""

import datetime
import json
import time

import pyarrow as pa
import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import UsageError
from edgefirst_ros.synthetic import Recipe, write_recording

SMALL = {"seconds": 0.5, "size": (160, 96), "codec": "jpeg", "fps": 10.0, "topics": {"camera", "gps", "tf_static"}}


@pytest.mark.parametrize(
    "prefix", ["/\x1b]0;x\x07/", "/../../", "/a\0b/", "/\u202e\n/", "/" + "x" * 5000 + "/", "C:\\"]
)
def test_topics_are_stored_as_they_are_and_name_no_file(tmp_path, prefix):
    path = tmp_path / "in" / "r.mcap"
    path.parent.mkdir()
    write_recording(path, Recipe(**SMALL, prefix=prefix))
    outcome = convert(path, tmp_path / "out" / "deep", name="d")
    assert {found.name for found in (tmp_path / "out").rglob("*")} == {"deep", "d.zip", "d.arrow", "d.frames.arrow"}
    assert {name.partition("_")[0] for name in Dataset(outcome.paths.container).container.names} == {"r/r"}
    counts = json.loads(pa.ipc.open_file(outcome.paths.frames.read_bytes()).schema.metadata[b"counts"])
    assert all(topic.startswith(prefix) for topic in counts)
    report = validate(outcome.paths.container)
    assert report.ok, report.to_text()
    assert "\x1b" not in report.to_text()


@pytest.mark.parametrize(
    ("one", "other"), [("/a:b/camera/jpeg", "/a*b/camera/jpeg"), ("/camera/jpeg", "/Camera/JPEG"), ("/\1/x", "/\2/x")]
)
def test_cameras_whose_names_would_be_one_on_some_disk_are_refused(tmp_path, one, other):
    with pytest.raises(UsageError, match="would both be the camera"):
        convert(tmp_path / "r.mcap", tmp_path / "out", reference_topic=(one, other))
    assert not (tmp_path / "out").exists()


def test_the_clock_of_the_system_plays_no_part(tmp_path, monkeypatch):
    """It is set back a day at each look; the three files are the same bytes."""
    path = tmp_path / "r.mcap"
    write_recording(path, Recipe(**SMALL))
    expected = convert(path, tmp_path / "plain", name="d").paths
    hours = iter(range(10**6, 0, -24))

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(3600 * next(hours), tz)

    monkeypatch.setattr(time, "time", lambda: 3600.0 * next(hours))
    monkeypatch.setattr(time, "time_ns", lambda: 3600 * 10**9 * next(hours))
    monkeypatch.setattr(datetime, "datetime", Clock)
    found = convert(path, tmp_path / "back", name="d").paths
    for file in ("container", "arrow", "frames"):
        assert getattr(found, file).read_bytes() == getattr(expected, file).read_bytes()
