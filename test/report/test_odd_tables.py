# SPDX-License-Identifier: Apache-2.0
"""Tables that lack columns, or have them in another type: the page says what is known, and no more."""

import math
import re

import handmade_dataset as made
import pyarrow as pa
import pytest

from edgefirst_ros.dataset.names import locate
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.report.run import report
from edgefirst_ros.report.subject import read_summary


def facts_of(folder, parts, **options):
    done = report([made.write(folder, parts)], samples=2, **options)
    assert done.pages[0].read_text().count('<figure class="shot">') == 2
    return done.facts[0]


def typed(schema, name, kind):
    """The schema with another type of a column."""
    return schema.set(schema.get_field_index(name), pa.field(name, kind))


def without(schema, name):
    return schema.remove(schema.get_field_index(name))


@pytest.fixture
def unframed():
    """A dataset without its table of frames."""
    parts = made.good()
    parts.frames = []
    return parts


def test_without_frames_samples_are_those_with_members(tmp_path, unframed):
    facts = facts_of(tmp_path, unframed)
    assert (facts["samples"], facts["start"], facts["duration_s"]) == (3, None, 0.0)
    assert [(name, one["samples"], one["calibration"]) for name, one in facts["sequences"].items()] == [
        (made.SEQUENCE, 3, "missing")
    ]
    assert facts["sensors"] == {"camera": 3, "lidar.points": 3, "radar.cube": 2, "radar.targets": 1}
    assert (facts["track"], facts["skew"]) == ({"positions": 0}, {})
    assert facts["verdict"]["level"] == "amber"  # the calibration is gone with the table
    assert [one for one in facts["verdict"]["checks"] if one["check"] == "samples"] == []


def test_a_row_of_the_table_over_several_says_that_there_are_no_frames(tmp_path, unframed):
    (tmp_path / "in").mkdir()
    path = made.write(tmp_path / "in", unframed)
    assert read_summary(locate(path)) is None
    (facts,) = report([tmp_path / "in"], tmp_path / "all.html", table_only=True).facts
    (check,) = [one for one in facts["verdict"]["checks"] if one["check"] == "samples"]
    assert (check["level"], check["found"]) == ("green", "3 samples; the dataset has no table of frames")


def test_tables_without_members_are_no_dataset(tmp_path):
    (tmp_path / "in").mkdir()
    paths = locate(made.write(tmp_path / "in", made.good()))
    paths.container.unlink()
    done = report([paths.arrow, paths.frames], tmp_path / "all.html", table_only=True)
    assert done.exit_code == 3
    assert [one["error"] for one in done.facts] == [
        f"{paths.members}: missing; without it the tables are not a dataset"
    ] * 2


@pytest.mark.parametrize("case", ["text", "NaN", "no column", "beyond the pole"])
def test_positions_that_are_none_make_no_track(tmp_path, case):
    parts = made.good()
    if case == "text":
        parts.frames_schema = typed(parts.frames_schema, "latitude", pa.large_string())
    if case == "no column":
        parts.frames_schema = without(parts.frames_schema, "latitude")
    for row in parts.frames:
        row["latitude"] = {"text": "north", "NaN": math.nan, "beyond the pole": 90.1}.get(case)
    facts = facts_of(tmp_path, parts)
    assert facts["track"] == {"positions": 0}
    assert [one for one in facts["verdict"]["checks"] if one["check"] == "position"] == []


def test_the_length_of_a_track_is_that_of_the_meridian(tmp_path):
    parts = made.good()
    for row, latitude in zip(parts.frames, (0.0, 0.001, None), strict=True):
        row["latitude"], row["longitude"] = latitude, 7.0
    metres = math.radians(0.001) * 6378137 * (1 - 0.00669437999014)  # a (1 - e^2) is the radius at the equator
    assert facts_of(tmp_path, parts)["track"] == {
        "positions": 2,
        "length_m": round(metres, 1),
        "extent_m": [0.0, round(metres, 1)],
    }


def test_the_earliest_stamp_that_fits_is_a_date(tmp_path):
    parts = made.good()
    for number, row in enumerate(parts.frames):
        row["timestamp"] = -(2**63) + number
    assert facts_of(tmp_path, parts)["start"] == "1677-09-21T00:12:43Z"


def test_annotations_without_groups_or_labels_have_none(tmp_path):
    parts = made.good()
    parts.annotation_schema = without(without(parts.annotation_schema, "group"), "label")
    facts = facts_of(tmp_path, parts)
    assert (facts["groups"], facts["pictures"]["labels"]) == ({}, {})
    assert facts["samples"] == 3


def test_groups_of_another_type_are_refused_by_name_and_nothing_is_written(tmp_path):
    parts = made.good()
    parts.annotation_schema = typed(parts.annotation_schema, "group", pa.list_(pa.int32()))
    for row in parts.annotations:
        row["group"] = [1]
    path = made.write(tmp_path, parts)
    with pytest.raises(DatasetError, match=re.escape(f"{tmp_path}/data.arrow: the column group cannot be read")):
        report([path])
    assert not (tmp_path / "data.html").exists()
