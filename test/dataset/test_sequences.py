# SPDX-License-Identifier: Apache-2.0
"""Facts of each sequence: as stored, and of datasets of earlier versions as far as they are certain."""

import json

import handmade_dataset as made
import pytest
from handmade_dataset import CAMERA_INFO, SEQUENCE, TRANSFORMS

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.schema import combine_sequences, select_sequence
from edgefirst_ros.errors import DatasetError

WHOLE = {
    "sources": [{"file": "a.mcap"}, {"file": "b.mcap"}],
    "time_base": {"base": "header", "topics": {}},
    "camera_info": CAMERA_INFO,
    "static_transforms": TRANSFORMS,
    "counts": {"/camera": {"seen": 1, "written": 1, "dropped": {}}},
}
KINDS = {"camera.jpeg", "radar.pcd"}


def test_a_sample_has_the_calibration_of_its_sequence(tmp_path):
    parts = made.good()
    found = Dataset(made.write(tmp_path, parts))[0].calibration
    assert (found.camera_info, found.static_transforms, found.calibration) == (CAMERA_INFO, TRANSFORMS, "given")
    other = {**CAMERA_INFO, "frame_id": "other"}
    parts.frames_metadata["sequences"] = json.dumps({SEQUENCE: {"camera_info": other, "calibration": "identity"}})
    found = Dataset(made.write(tmp_path, parts))[0].calibration
    assert (found.camera_info, found.static_transforms, found.calibration) == (other, [], "identity")


def test_the_only_sequence_of_an_earlier_version_has_what_is_said_of_the_whole():
    known = select_sequence(WHOLE, "a", ["a"], KINDS)
    assert known["sources"] == [0, 1]
    assert {key: known[key] for key in WHOLE if key != "sources"} == {k: v for k, v in WHOLE.items() if k != "sources"}
    assert known["calibration"] == "given"


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        (WHOLE, ["a", "b"]),
        (WHOLE | {"time_base": {**WHOLE["time_base"], "sequences": {"a": {}, "b": {}}}}, ["a"]),  # b has no sample
        (WHOLE | {"merged": [{"sequences": {"a": "a", "b": "b"}, "camera_info": CAMERA_INFO}]}, ["a", "b"]),
        (WHOLE | {"sequences": {"b": {}}}, ["a"]),
    ],
)
def test_what_may_be_of_another_sequence_is_of_none(metadata, names):
    known = select_sequence(metadata, "a", names, KINDS)
    assert (known.get("camera_info"), known.get("counts"), known["calibration"]) == (None, None, "missing")
    assert not known.get("sources")


@pytest.mark.parametrize("stored", [7, "x", [], {"a": 3}, {"a": None}])
def test_facts_that_are_none_are_an_error(stored):
    with pytest.raises(DatasetError, match="the metadata sequences cannot be read"):
        select_sequence({"sequences": stored}, "a", ["a"], KINDS)


def test_the_whole_says_what_all_sequences_agree_in():
    one, two = {"camera_info": CAMERA_INFO, "static_transforms": []}, {"camera_info": None, "static_transforms": []}
    assert combine_sequences({"a": one, "b": one}) == (one, [])
    common, notes = combine_sequences({"a": one, "b": two})
    assert common == {"camera_info": None, "static_transforms": []}
    assert notes == ["the sequences differ in camera_info: each has its own in the metadata, under sequences"]
