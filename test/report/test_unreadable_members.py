# SPDX-License-Identifier: Apache-2.0
"""Members that cannot be read: a note names the first of each kind, and the page shows what is left."""

import errno
import io
import os
import re
import struct
from pathlib import Path

import handmade_dataset as made
import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from edgefirst_ros.errors import RecordingError
from edgefirst_ros.report.content import read_speeds
from edgefirst_ros.report.run import report

GARBAGE = b"neither a picture nor points"


def reported(folder, *spoilt, samples=3):
    """Facts and text of the page of a dataset of three pictures, two cubes, one radar cloud and three lidar clouds.

    `spoilt`: (frame, kind, bytes) of members with other bytes.
    """
    parts = made.good()
    for frame, kind, data in spoilt:
        assert made.name_of(frame, kind) in parts.members
        parts.members[made.name_of(frame, kind)] = data
    done = report([made.write(folder, parts)], samples=samples)
    return done.facts[0], done.pages[0].read_text()


def numbers(facts):
    """What was looked at: pictures, cubes, radar and lidar clouds, radar targets."""
    radar = facts["radar"]
    return facts["pictures"]["looked_at"], *(
        radar[name] for name in ("cubes_looked_at", "clouds_looked_at", "lidar_clouds_looked_at", "targets")
    )


def test_all_of_a_whole_dataset_is_looked_at_without_a_note(tmp_path):
    facts, page = reported(tmp_path)
    assert (numbers(facts), facts["notes"]) == ((3, 2, 1, 3, 3), [])
    assert facts["pictures"]["alignment"]["boxes"] == 3
    assert (page.count('<img class="cam"'), page.count('<img class="bev"')) == (3, 3)


@pytest.mark.parametrize(
    ("frame", "kind", "what", "left"),
    [
        (4, "camera.jpeg", "picture", (2, 2, 1, 3, 3)),
        (4, "radar.png", "radar cube", (3, 1, 1, 3, 3)),
        (3, "radar.pcd", "radar points", (3, 2, 0, 3, 0)),
        (7, "lidar.pcd", "lidar points", (3, 2, 1, 2, 3)),
    ],
)
def test_a_member_that_is_garbage_is_noted_and_the_others_count(tmp_path, frame, kind, what, left):
    facts, page = reported(tmp_path, (frame, kind, GARBAGE))
    assert numbers(facts) == left
    (note,) = facts["notes"]
    assert note.startswith(f"{what}: ")
    assert made.name_of(frame, kind) in note
    assert what in page
    assert page.count('<figure class="shot">') == 3
    assert " object at 0x" not in page  # an address would differ with every run
    assert page.count('<img class="cam"') == left[0]


@pytest.mark.parametrize(("frame", "kind", "what"), [(3, "radar.pcd", "radar"), (4, "lidar.pcd", "lidar")])
def test_a_cloud_without_x_y_and_z_is_noted(tmp_path, frame, kind, what):
    width, height = (3, 1) if what == "radar" else (3, 2)
    facts, page = reported(tmp_path, (frame, kind, made.cloud(frame, width, height, "a b c reflect")))
    assert numbers(facts) == ((3, 2, 0, 3, 0) if what == "radar" else (3, 2, 1, 2, 3))
    (note,) = facts["notes"]
    assert note.startswith(f"{what} points: ")
    assert facts["pictures"]["alignment"]["boxes"] == (0 if what == "radar" else 3)
    assert facts["pictures"]["alignment"]["clouds"] == (3 if what == "radar" else 2)
    assert page.count('<img class="cam"') == 3


def test_only_the_first_member_of_a_kind_is_named(tmp_path):
    facts, _ = reported(tmp_path, *((frame, "camera.jpeg", GARBAGE) for frame in made.FRAMES))
    (note,) = facts["notes"]
    assert [frame for frame in made.FRAMES if made.name_of(frame, "camera.jpeg") in note] == [3]
    assert facts["pictures"]["looked_at"] == 0
    assert [one for one in facts["verdict"]["checks"] if one["check"] == "exposure"] == []


def test_a_picture_that_says_to_be_huge_is_not_decoded(tmp_path):
    data = made.jpeg(4)
    place = data.index(b"\xff\xc0") + 5  # of the height and the width in the header of the frame
    huge = data[:place] + struct.pack(">HH", 8200, 8300) + data[place + 4 :]
    with Image.open(io.BytesIO(huge)) as picture:
        assert picture.size == (8300, 8200)
    facts, _ = reported(tmp_path, (4, "camera.jpeg", huge), samples=0)
    assert facts["pictures"]["looked_at"] == 2
    (note,) = facts["notes"]
    assert re.search(r"^picture: .*8300 x 8200 pixels are too many$", note)


def test_cubes_of_another_number_of_ranges_are_left_out(tmp_path):
    other = io.BytesIO()
    with Image.open(io.BytesIO(made.cube_png(4))) as picture:
        rows = picture.crop((0, 0, 12, 8))  # 4 of 5 range bins in 2 sequences
        info = PngInfo()
        for key, value in picture.text.items():
            info.add_text(key, value.replace("[2, 5, 2, 6]", "[2, 4, 2, 6]"))
        rows.save(other, "PNG", pnginfo=info)
    facts, page = reported(tmp_path, (4, "radar.png", other.getvalue()), samples=0)
    assert facts["radar"]["cubes_looked_at"] == 1
    assert facts["notes"] == ["radar cube: 4 range bins, those before have 5"]
    assert "4 range bins, those before have 5" in page


def test_a_mask_that_is_garbage_is_noted_and_the_boxes_are_drawn(tmp_path):
    parts = made.good()
    parts.annotations[1]["mask"] = GARBAGE
    done = report([made.write(tmp_path, parts)], samples=3)
    (note,) = done.facts[0]["notes"]
    assert note == f"mask: frame 3 of '{made.SEQUENCE}': a mask cannot be read: cannot identify image file"
    assert done.facts[0]["pictures"]["labels"] == {"car": 2, "person": 1}
    assert "oxes of car, person" in done.pages[0].read_text()


@pytest.mark.parametrize("name", ["speed", "radial_speed", "Doppler", "velocity", "vx"])
def test_the_speed_of_a_target_is_known_by_its_name(name):
    points = np.zeros(2, [("x", "f4"), (name, "f4")])
    points[name] = 1.5, -2
    assert read_speeds(points).tolist() == [1.5, -2]
    assert np.isnan(read_speeds(points[["x"]])).all()


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
