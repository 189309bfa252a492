# SPDX-License-Identifier: Apache-2.0
"""Notes of a report name what could not be read, the same in every run."""

import errno
import os
from pathlib import Path

import handmade_dataset as made
import numpy as np
import pytest

from edgefirst_ros.errors import RecordingError
from edgefirst_ros.report.look import speeds
from edgefirst_ros.report.run import report


def reported(folder, change):
    """Facts and page of the dataset made by hand, with what `change` did to its parts."""
    parts = made.good()
    change(parts)
    done = report([made.write(folder, parts)], folder / "page.html")
    return done.facts[0], done.pages[0].read_text()


def notes(facts):
    return {what: why for what, _, why in (note.partition(": ") for note in facts["notes"])}


def test_members_that_cannot_be_read_are_named(tmp_path):
    def change(parts):
        for name in parts.members:
            if "_004" in name or not name.endswith("jpeg"):
                parts.members[name] = b"x"

    facts, page = reported(tmp_path, change)
    found = notes(facts)
    assert set(found) == {"picture", "radar cube", "radar points", "lidar points"}
    for what, kind in (
        ("picture", "_004.camera.jpeg"),
        ("radar cube", "_003.radar.png"),
        ("lidar points", "_003.lidar.pcd"),
    ):
        assert kind in found[what]
        assert f"{tmp_path}/data.zip" in found[what]
    assert " object at 0x" not in page  # an address would differ with every run
    assert (facts["samples"], facts["pictures"]["looked_at"], facts["radar"]["cubes_looked_at"]) == (3, 2, 0)


def test_masks_that_cannot_be_read_are_named(tmp_path):
    def change(parts):
        parts.annotations[1]["mask"] = b"no picture"

    facts, _ = reported(tmp_path, change)
    assert notes(facts) == {"mask": f"frame 3 of '{made.SEQUENCE}': a mask cannot be read: cannot identify image file"}


@pytest.mark.parametrize("name", ["speed", "doppler", "velocity", "vx"])
def test_the_speed_of_a_target_is_known_by_its_name(name):
    points = np.zeros(2, [("x", "f4"), (name, "f4")])
    points[name] = 1.5, -2
    assert speeds(points).tolist() == [1.5, -2]
    assert np.isnan(speeds(points[["x"]])).all()


def test_a_recording_that_may_not_be_read_is_said_to_be_one(tmp_path, monkeypatch):
    path = tmp_path / "drive.mcap"
    path.write_bytes(b"\x89MCAP0\r\n")
    refused = PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def refuse(*_):
        raise refused

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr("io.FileIO", refuse)
    with pytest.raises(RecordingError) as caught:
        report([path], tmp_path / "page.html")
    assert str(caught.value) == f"{path}: cannot be opened: Permission denied"
