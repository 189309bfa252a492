# SPDX-License-Identifier: Apache-2.0
"""What imports take of others: names, sizes, sums, depth."""

import json
import os
from pathlib import Path

import handmade_dataset as made
import numpy as np
import pytest

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import restore
from edgefirst_ros.export.importing import (
    TEXT,
    check_member_name,
    clean_text,
    read_file,
    read_json,
    refuse_links,
    stamp_picture,
)
from edgefirst_ros.export.l5kit.write import AGENT, FRAME, SCENE
from edgefirst_ros.export.l5kit.zarr2 import Writer, write_group
from edgefirst_ros.export.output import LossReport
from edgefirst_ros.limits import Limits
from edgefirst_ros.sensors.exif import read_exif


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a//b", "a/", "./a", "../a", "a/../b", "a\\b", "C:/a", "c:a", "a\0", "a\x1b[31m", "a\nb", "a\x7f",
     "\x85", "\ud800", "a/\udcff", "x" * 256, "ä" * 128, "/".join("abc" * 22), "x" * 70_000, "\u2028"],
)  # fmt: skip
def test_names_that_could_do_harm(name):
    with pytest.raises(ValueError, match=r"^name '.{0,500}' (leads|has)"):
        check_member_name(name)


@pytest.mark.parametrize(
    "name", ["a/a_000.camera.jpeg", "ä ö/ü.x", "-rf", "ab:c", "..a", "x" * 255, ".hidden", "日本/語"]
)
def test_names_that_are_odd_stay(name):
    assert check_member_name(name) == name


def test_a_picture_that_names_its_sample_stays_and_another_is_renamed():
    data, stamp, row = made.jpeg(3), made.stamp_of(3), {"latitude": 45.5, "longitude": -73.6, "altitude": None}
    assert stamp_picture("camera.jpeg", data, made.SEQUENCE, 3, stamp, row)[0] is data
    renamed = read_exif(b"".join(stamp_picture("camera.jpeg", data, made.SEQUENCE, 4, stamp, row)))
    assert (renamed.sequence, renamed.frame, renamed.stamp) == (made.SEQUENCE, 4, stamp)


@pytest.mark.parametrize("off", [1e-3, -1e-3, 1.0])
def test_a_picture_that_was_taken_elsewhere_gets_the_position_of_its_row(off):
    row = {"latitude": 45.5, "longitude": -73.6 + off, "altitude": None}
    placed = read_exif(b"".join(stamp_picture("camera.jpeg", made.jpeg(3), made.SEQUENCE, 3, made.stamp_of(3), row)))
    assert (placed.latitude, placed.longitude) == pytest.approx((45.5, -73.6 + off), abs=1e-9)


def test_text_of_others_is_unicode():
    assert clean_text("a\ud800b\n") == "a?b\n"


def test_holes_hold_nothing_and_folders_lie_64_deep(tmp_path):
    (tmp_path / "data").write_bytes(b"x" * 10_000)
    with (tmp_path / "holes").open("xb") as file:
        file.truncate(1 << 40)
    assert refuse_links(tmp_path) < 1 << 20
    deep = tmp_path / "deep"
    deep.joinpath(*"a" * 64).mkdir(parents=True)
    refuse_links(deep)
    deep.joinpath(*"a" * 65).mkdir()
    with pytest.raises(DatasetError, match="more than 64 deep"):
        refuse_links(deep)


@pytest.mark.parametrize("system", ["ncore", "roverd"])
def test_folders_deep_in_each_other_are_refused(tmp_path, system):
    pytest.importorskip("ncore.data.v4") if system == "ncore" else None
    place = tmp_path / "in"
    place.joinpath(*"a" * 100).mkdir(parents=True)
    with pytest.raises(DatasetError, match="more than 64 deep"):
        restore(place, system, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_json_is_small_regular_and_json(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[" * 100_000)
    with pytest.raises(DatasetError, match="cannot be read as JSON"):
        read_json(path)
    path.write_text("1" * 5000)  # more digits than Python turns into a number
    with pytest.raises(DatasetError, match="cannot be read as JSON"):
        read_json(path)
    os.truncate(path, TEXT + 1)
    with pytest.raises(DatasetError, match="more than"):
        read_json(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DatasetError, match="is not a regular file"):
        read_json(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(DatasetError, match="is a link"):
        read_file(tmp_path / "link", TEXT)


def test_a_file_that_the_system_does_not_give_is_named():
    """At the address 0 no process has memory, and the system tells so as an error of input."""
    with pytest.raises(DatasetError, match=r"^/proc/self/mem: cannot be read: .*Input/output error"):
        read_file(Path("/proc/self/mem"), 8)


def test_what_is_not_there_is_not_restored(tmp_path):
    with pytest.raises(DatasetError, match=r"none: no such file"):
        restore(tmp_path / "none", "roverd", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_report_of_names_that_are_no_unicode(tmp_path):
    report = LossReport("x")
    report.add("a\udcff", "")
    report.write(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["lines"][0]["what"] == "a\udcff"


def test_agents_out_of_next_to_nothing(tmp_path):
    """Zeros pack well, and each agent would become a row."""
    count = 60_000
    scene, frame = np.zeros(1, SCENE), np.zeros(1, FRAME)
    scene["frame_index_interval"], frame["agent_index_interval"] = (0, 1), (0, count)
    frame["ego_rotation"] = np.eye(3)
    write_group(tmp_path / "a.zarr", {})
    for name, records in (("scenes", scene), ("frames", frame), ("agents", np.zeros(count, AGENT))):
        writer = Writer(tmp_path / "a.zarr" / name, records.dtype, len(records))
        writer.append(records)
        writer.close()
    with pytest.raises(DatasetError, match="unpacks to"):
        restore(tmp_path / "a.zarr", "l5kit", tmp_path / "out", limits=Limits(unpacked_bytes=1 << 20))
    assert not (tmp_path / "out").exists()
