# SPDX-License-Identifier: Apache-2.0
"""What another user put where a dataset is built, under the names that are used there."""

import os

import pytest

from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.publish import remove_tree
from edgefirst_ros.dataset.writer import DatasetWriter, NewSample
from edgefirst_ros.errors import DatasetError

PLACES = ("members_partial", "arrow_journal", "frames_journal", "row_log", "arrow_partial", "frames_partial", "reserve",
          "aside", "container", "arrow", "frames", "folder_partial")  # fmt: skip


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("layout", ["zip", "directory"])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_elsewhere_is_written_or_removed(tmp_path, place, layout, overwrite):
    victim, folder = tmp_path / "victim", tmp_path / "folder"
    for number, target in enumerate((victim, folder, tmp_path / "new", None, "the same file")):
        folder.mkdir(exist_ok=True)
        for file in (victim, folder / "inner"):
            file.write_text("precious")
        out = tmp_path / f"out{number}"
        path = getattr(DatasetPaths(out, "d", layout), place)
        if path == out:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if target == "the same file":
            os.link(victim, path)
        else:
            os.mkfifo(path) if target is None else path.symlink_to(target)
        try:
            with DatasetWriter(out, "d", layout=layout, overwrite=overwrite) as writer:
                writer.write(NewSample("s", 0, 10**18, [("lidar.pcd", [b"x"])]))
                writer.finish({})
        except DatasetError:
            pass
        assert (victim.read_text(), (folder / "inner").read_text()) == ("precious", "precious")
        assert os.listdir(folder) == ["inner"]
        assert not (tmp_path / "new").exists()


def test_a_pipe_is_removed_without_waiting_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    remove_tree(tmp_path / "pipe")
    remove_tree(tmp_path / "pipe")
    assert os.listdir(tmp_path) == []
