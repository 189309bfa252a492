# SPDX-License-Identifier: Apache-2.0
"""Several recordings in one dataset: each sequence keeps its own calibration, sources and counts."""

import io

import pytest
from PIL import Image

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.validate import validate

FIRST = {"seconds": 1.2, "fps": 10.0, "size": (160, 96), "codec": "jpeg", "lidar_points": 20, "host": "first"}
FIRST["topics"] = frozenset({"camera", "camera/info", "lidar/points", "tf_static"})
SECOND = {**FIRST, "size": (128, 64), "host": "second", "seconds": 1.4}
BARE = {**FIRST, "host": "bare", "topics": frozenset({"camera", "lidar/points"})}
WORDS = {"bare": "missing", "first": "given", "second": "given"}
KEYS = {"sources", "camera_info", "static_transforms", "calibration", "time_base", "topics", "counts"}


@pytest.fixture(scope="module")
def recordings(recording):
    return [recording(**recipe) for recipe in (FIRST, SECOND, BARE)]


@pytest.fixture(scope="module")
def converted(recordings, tmp_path_factory):
    return convert(recordings, tmp_path_factory.mktemp("all"), name="all")


def check(path, sources):
    """Every sequence has the picture size, focal length, transforms, source and counts of its own recording."""
    dataset = Dataset(path)
    metadata = dataset.metadata
    assert metadata["camera_info"] is metadata["static_transforms"] is None
    assert [source["file"].partition("_")[0] for source in metadata["sources"]] == sources
    for sequence in dataset.sequences:
        host = sequence.partition("_")[0]
        facts = metadata["sequences"][sequence]
        assert facts.keys() == KEYS
        assert [metadata["sources"][n]["file"] for n in facts["sources"]] == [f"{sequence}.mcap"]
        samples = [sample for sample in dataset.samples() if sample.name == sequence]
        assert facts["counts"]["/camera/jpeg"] == {"seen": len(samples), "written": len(samples), "dropped": {}}
        assert facts["topics"] == {"reference": "/camera/jpeg", "lidar_points": "/lidar/points"}
        found = samples[-1].calibration
        assert found.calibration == facts["calibration"] == WORDS[host]
        assert (found.camera_info is None) == (host == "bare")
        assert len(found.static_transforms) == (0 if host == "bare" else 3)
        if found.camera_info is not None:
            height, width, _ = samples[0].image().shape
            assert (found.camera_info["width"], found.camera_info["height"]) == (width, height)
            with Image.open(io.BytesIO(samples[0].read("camera"))) as picture:
                mm = picture.getexif().get_ifd(0x8769).get(0xA405)
            assert mm == round(36 * found.camera_info["k"][0] / width)
    totals = {topic: count["seen"] for topic, count in metadata["counts"].items()}
    for topic, total in totals.items():
        assert total == sum(facts["counts"].get(topic, {"seen": 0})["seen"] for facts in metadata["sequences"].values())
    warned = [finding.place for finding in validate(path).findings if finding.rule == "CAL001"]
    assert [place.partition("_")[0] for place in warned] == ["bare"]


def test_each_sequence_of_a_conversion_has_its_own(converted):
    check(converted.paths.container, ["first", "second", "bare"])
    said = [note for note in converted.notes if "differ" in note]
    assert said == [
        f"the sequences differ in {key}: each has its own in the metadata, under sequences"
        for key in ("camera_info", "static_transforms")
    ]


def test_each_sequence_of_a_merge_has_its_own(recordings, converted, tmp_path):
    bare, *others = [convert(path, tmp_path / "one").paths.container for path in reversed(recordings)]
    result = merge([bare, *others], tmp_path / "merged")
    check(result.paths.container, ["bare", "second", "first"])
    own = Dataset(converted.paths.container).metadata["sequences"]
    for name, facts in Dataset(result.paths.container).metadata["sequences"].items():
        assert {**facts, "sources": own[name]["sources"]} == own[name]


def test_one_sequence_says_the_same_as_the_whole(recordings, tmp_path):
    metadata = Dataset(convert(recordings[0], tmp_path).paths.container).metadata
    (facts,) = metadata["sequences"].values()
    for key in ("camera_info", "static_transforms", "counts", "time_base"):
        assert facts[key] == metadata[key]
    assert facts["sources"] == [0]
