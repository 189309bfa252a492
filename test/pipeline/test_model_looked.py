# SPDX-License-Identifier: Apache-2.0
"""What the model looked at, and what it never did."""

from dataclasses import replace

import pytest
from bags import messages, write
from edgefirst.schemas import builtin_interfaces, edgefirst_msgs, std_msgs

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.errors import UsageError

EVERY = 3
STEP = 100_000_000
RECIPE = {"seconds": 2.0, "fps": 10.0, "size": (128, 64), "codec": "h264", "gop": 5, "model_every": EVERY}
RECIPE["topics"] = frozenset({"camera", "model/output", "model/info"})


def looked(path):
    """Frames that the model looked at."""
    return [sample.frame for sample in Dataset(path).samples(model=True)]


@pytest.fixture(scope="module")
def whole(recording, tmp_path_factory):
    return convert(recording(**RECIPE, objects=0), tmp_path_factory.mktemp("looked"), name="whole").paths.container


def test_saw_nothing_is_told_from_never_looked(whole):
    dataset = Dataset(whole)
    expected = list(range(0, 20, EVERY))
    assert looked(whole) == expected
    assert [sample.frame for sample in dataset.samples(model=False)] == [n for n in range(20) if n % EVERY]
    assert not list(dataset.samples(annotated=True))
    stamps = dict(dataset.frames.select("frame", "model_timestamp").iter_rows())
    own = {sample.frame: sample.timestamp for sample in dataset.samples()}
    assert stamps == {n: own[n] if n in expected else None for n in own}


def test_a_model_that_was_still_loaded_looked_at_nothing(recording, tmp_path):
    """Until November 2025 it sent a Detect without boxes for each picture, with the camera's stamp as input."""
    drive, found, time = recording(**{**RECIPE, "topics": {"camera", "model/boxes2d"}}), [], builtin_interfaces.Time
    for schema, channel, one in messages(drive):
        message = one
        if channel.topic == "/model/boxes2d" and sum(c.topic == channel.topic for _, c, _ in found) < 3:
            stamp = edgefirst_msgs.Detect.from_cdr(one.data).stamp
            sent = edgefirst_msgs.Detect(std_msgs.Header(stamp, ""), stamp, time(0, 0), time(50, 0), [])
            message = replace(one, data=sent.to_bytes())
        found.append((schema, channel, message))
    outcome = convert(write(tmp_path / "drive.mcap", found), tmp_path / "out")
    assert looked(outcome.paths.container) == list(range(0, 20, EVERY))[3:]
    assert outcome.counts["/model/boxes2d"].dropped == {"sent before the model was loaded": 3}


def test_a_merge_keeps_it(whole, tmp_path):
    assert looked(merge([whole], tmp_path, name="merged").paths.container) == looked(whole)


def test_required_it_drops_frames_that_nobody_looked_at(recording, tmp_path):
    outcome = convert(recording(**RECIPE), tmp_path, require=["model"])
    kept = [sample.frame for sample in Dataset(outcome.paths.container).samples()]
    assert looked(outcome.paths.container) == kept == list(range(0, 20, EVERY))
    assert outcome.counts.plain()["/camera/h264"]["dropped"] == {"lacks model": 13}


@pytest.mark.parametrize(
    ("prefer", "more", "frames"),
    [
        (None, {}, [0, 4, 8, 12, 16]),
        ("model", {}, [0, 6, 9, 12, 18]),
        ("model", {"drop": {"model/output": (2, 3)}}, [0, 4, 8, 12, 18]),  # frames 6 and 9: nothing was said of them
        ("model", {"truncate": {"camera": (6,)}}, [0, 4, 10, 12, 18]),  # 6 to 9: no clean picture
        ("model", {"topics": frozenset({"camera"})}, [0, 4, 8, 12, 16]),
    ],
)
def test_of_each_bucket_one_that_the_model_looked_at_goes_first(recording, tmp_path, prefer, more, frames):
    outcome = convert(recording(**{**RECIPE, **more}), tmp_path, rate=2.5, prefer=prefer)
    assert [sample.frame for sample in Dataset(outcome.paths.container)] == frames
    count = outcome.counts.plain()["/camera/h264"]
    assert count["seen"] == count["written"] + sum(count["dropped"].values()) == 20


def test_required_at_a_rate_drops_the_first_frame_of_a_bucket_and_takes_no_other(recording, tmp_path):
    outcome = convert(recording(**RECIPE), tmp_path, rate=2.5, require=["model"])
    assert [sample.frame for sample in Dataset(outcome.paths.container)] == [0, 12]  # of 0, 4, 8, 12, 16
    assert outcome.counts.plain()["/camera/h264"]["dropped"] == {"not sampled": 15, "lacks model": 3}


def test_preferred_without_a_rate_is_refused(recording, tmp_path):
    with pytest.raises(UsageError, match=r"prefer chooses a frame of each 1/rate: set rate too"):
        convert(recording(**RECIPE), tmp_path, prefer="model")
