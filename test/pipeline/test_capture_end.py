# SPDX-License-Identifier: Apache-2.0
"""The end of a capture that has no time for the frames that still wait."""

from same_dataset import adds_up, counts_of, frames
from test_capture import CAMERA, SLOW, Feed

from edgefirst_ros.counts import OVERLOAD
from edgefirst_ros.pipeline import samples


def test_frames_for_which_there_is_no_time_are_counted_and_those_before_are_written(recording, tmp_path, monkeypatch):
    """The time is over as it begins: what waits for later fixes is left out, and nothing else."""
    monkeypatch.setattr(samples, "PATIENCE", 600)
    monkeypatch.setattr(samples, "LAST_WORK", -1.0)
    feed = Feed(recording(**SLOW), tmp_path, sequence="drive")
    feed.play()
    feed.until(lambda facts: facts["samples"] > 0)
    feed.capture.close()
    counts = counts_of(tmp_path / "drive.frames.arrow")[CAMERA]
    assert adds_up(counts)
    assert counts["seen"] == 40
    assert counts["dropped"].keys() == {OVERLOAD}
    written = frames(tmp_path / "drive.frames.arrow")["frame"].to_list()
    assert 0 < len(written) == counts["written"]
    assert feed.capture.results.exit_code == 3
