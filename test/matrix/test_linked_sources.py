# SPDX-License-Identifier: Apache-2.0
"""Links in folders of recordings and datasets: to data elsewhere, to what is there too, to nothing."""

import shutil

import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.fleet.sources import find_sources

SMALL = {"seconds": 0.5, "size": (128, 64), "fps": 10.0, "topics": {"camera"}, "codec": "jpeg"}


@pytest.fixture
def folder(recording, tmp_path):
    """here/drive.mcap and here/below/near.mcap; links to them, to a recording and a bag elsewhere, and to a folder."""
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    (elsewhere / "bag").mkdir(parents=True)
    here.mkdir()
    shutil.copy(recording(**SMALL), here / "drive.mcap")
    for name, target in (("far.mcap", elsewhere / "far.mcap"), ("bag/bag_0.mcap", elsewhere / "bag" / "bag_0.mcap")):
        shutil.copy(recording(**{**SMALL, "seed": len(name)}), target)
    (elsewhere / "bag" / "metadata.yaml").write_text(
        "rosbag2_bagfile_information: {storage_identifier: mcap, relative_file_paths: [bag_0.mcap]}\n"
    )
    (here / "latest.mcap").symlink_to("drive.mcap")
    (here / "far.mcap").symlink_to(elsewhere / "far.mcap")
    (here / "bag").symlink_to(elsewhere / "bag")
    (here / "up").symlink_to("..")
    (here / "below").mkdir()
    shutil.copy(elsewhere / "far.mcap", here / "below" / "near.mcap")
    (here / "newest.mcap").symlink_to("below/near.mcap")
    (here / "same.mcap").symlink_to(elsewhere / "far.mcap")
    return here


def test_a_conversion_and_a_fleet_find_the_same_recordings(folder, tmp_path):
    notes = []
    names = [one.name for one in find_sources([str(folder)], notes.append)]
    assert sorted(names) == ["bag", "drive", "far", "near"]
    for link, target in {"latest": "drive", "newest": "below/near", "same": "far"}.items():
        assert f"{folder}/{link}.mcap: skipped: it is a link to {folder}/{target}.mcap" in notes
    assert sorted(Dataset(convert(folder, tmp_path / "out").paths.container).sequences) == sorted(names)


def test_a_link_to_nothing_is_named(folder, tmp_path):
    (folder / "gone.mcap").symlink_to("nowhere.mcap")
    (gone,) = (one for one in find_sources([str(folder)], print) if one.name == "gone")
    assert gone.size == 0
    outcome = convert(folder, tmp_path / "out")
    assert outcome.exit_code == 3
    assert [note for note in outcome.notes if "gone.mcap" in note and "no such file" in note]


def test_a_dataset_that_is_a_link_is_named(recording, tmp_path):
    """A dataset is not followed through links; one to a dataset of the folder needs no word."""
    here = tmp_path / "here"
    here.mkdir()
    for name in ("near", "far"):
        convert(recording(**SMALL), tmp_path / name, name=name)
    for name in ("near.zip", "near.arrow", "near.frames.arrow"):
        shutil.copy(tmp_path / "near" / name, here / name)
        (here / name.replace("near", "latest")).symlink_to(name)
        (here / name.replace("near", "far")).symlink_to(tmp_path / "far" / name.replace("near", "far"))
    with pytest.warns(UserWarning, match="is a link") as told:
        dataset = Dataset(here)
    assert [part.paths.name for part in dataset.parts] == ["near"]
    assert [str(one.message) for one in told] == [f"{here}/far.zip is a link, which is not followed: name its target"]
