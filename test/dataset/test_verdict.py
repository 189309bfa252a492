# SPDX-License-Identifier: Apache-2.0
"""Times of a dataset and what the thresholds say of them, by arithmetic."""

import re

import numpy as np
import polars as pl
import pytest

from edgefirst_ros.dataset.summary import check_lacking, summarize
from edgefirst_ros.dataset.verdict import GAP_PERIODS, THRESHOLDS, Level, Timeline, find_worst, judge_gap, measure_paces

START = 1_700_000_000_000_000_000
MS = 1_000_000


def frames(stamps, lidar=None, names=None, segments=None, model=None):
    """A frames table; times in ms."""
    columns = {
        "name": names or ["a"] * len(stamps),
        "frame": pl.Series(range(len(stamps)), dtype=pl.UInt32),
        "timestamp": [START + t * MS for t in stamps],
        "segment": pl.Series(segments or [0] * len(stamps), dtype=pl.UInt32),
    }
    for column, values in (("lidar_points_timestamp", lidar), ("model_timestamp", model)):
        if values is not None:
            columns[column] = pl.Series([None if t is None else START + t * MS for t in values], dtype=pl.Int64)
    return Timeline.of(pl.DataFrame(columns).to_arrow())


def levels(timeline, metadata=None, calibrations=None):
    found = summarize(timeline, metadata or {}, calibrations or {}).checks
    return {(one.key, one.where): (one.level, one.found) for one in found}


def test_a_steady_drive_is_green():
    found = frames(range(0, 3000, 100), lidar=range(10, 3010, 100))
    assert found.duration == pytest.approx(2.9)
    assert find_worst(summarize(found, {}, {"a": "given"}).checks) is Level.GREEN
    (times,) = found.messages("lidar.points")
    assert times == pytest.approx(np.arange(30) / 10 + 0.01)


@pytest.mark.parametrize(
    ("apart", "second"), [(True, {"counts": {}}), (True, {}), (False, {})], ids=["no messages", "recovered", "together"]
)
def test_losses_are_those_of_each_sequence_or_of_the_whole(apart, second):
    """Where no sequence states counts of its own, those of the dataset are of all."""
    counts = {"/camera/h264": {"seen": 10, "written": 8, "dropped": {"undecodable": 2}}}
    own = {"a": {"counts": counts} if apart else {}, "b": second}
    table = frames(range(0, 2000, 100), names=["a"] * 10 + ["b"] * 10)
    found = summarize(table, {"counts": counts, "sequences": own}, {})
    lost = "20.00% of 10 messages lost: 2 undecodable"
    of_whole, *of_each = (
        [one.found for one in checks if one.key == "loss"]
        for checks in (found.further, *(one.checks for one in found.sequences))
    )
    assert of_whole == ([] if apart else [lost])
    assert of_each == ([[lost], ["the dataset does not state its losses"]] if apart else [[], []])


@pytest.mark.parametrize("topics", [{}, {"/gps": "its stamps count from when it was switched on"}])
def test_one_clock_is_said_only_where_no_topic_has_another(topics):
    said = levels(frames(range(0, 3000, 100)), {"time_base": {"base": "header", "topics": topics}})
    of_clock = {where: of for (key, where), of in said.items() if key == "clock"}
    other = {topic: (Level.AMBER, what) for topic, what in topics.items()}
    assert of_clock == (other or {"": (Level.GREEN, "one clock (header), never set")})


@pytest.mark.parametrize(
    ("missing", "level", "longest"),
    [
        (1, Level.GREEN, 0.2),
        (2, Level.AMBER, 0.3),
        (10, Level.AMBER, 1.1),
        (18, Level.AMBER, 1.9),
        (19, Level.RED, 2.0),
    ],
)
def test_gaps_by_their_length(missing, level, longest):
    there = [t if not 1000 <= t < 1000 + 100 * missing else None for t in range(0, 5000, 100)]
    found = levels(frames(range(0, 5000, 100), lidar=there))["gaps", "lidar.points"]
    assert found[0] is level
    assert f"longest {longest:.3g} s, at 0.9 s" in found[1]


@pytest.mark.parametrize(
    ("there", "level"), [((0, 100, 1100, 2100), Level.GREEN), ((0, 100, 200, 1200, 2200), Level.AMBER)]
)
def test_the_usual_interval_is_the_lower_median(there, level):
    """Of 0.1, 1 and 1 s it is 1 s, of two each 0.1 s, of which 1 s is a gap."""
    samples = range(0, there[-1] + 100, 100)
    lidar = [t if t in there else None for t in samples]
    assert levels(frames(samples, lidar=lidar))["gaps", "lidar.points"][0] is level


def test_a_gap_just_before_the_first_sample_begins_at_zero():
    there = [-20, *[None] * 9, *range(1000, 5000, 100)]
    found = levels(frames(range(0, 5000, 100), lidar=there))["gaps", "lidar.points"]
    assert found == (Level.AMBER, "1 gap, longest 1.02 s, at 0.0 s")


def test_one_sample_is_said_of_one():
    assert levels(frames([0]))["samples", ""] == (Level.GREEN, "1 sample")
    assert levels(frames([0, 100]))["samples", ""] == (Level.GREEN, "2 samples")


def test_what_is_missing_at_the_end_is_a_gap():
    looked = [t if t < 1000 else None for t in range(0, 5000, 100)]
    assert levels(frames(range(0, 5000, 100), model=looked))["gaps", "model"] == (
        Level.RED, "1 gap, longest 4 s, at 0.9 s"
    )  # fmt: skip


def test_a_drive_without_a_model_is_no_gap_of_another_drive():
    """Two recordings in one dataset, of which only the second has a model and its clock is set once."""
    stamps = [*range(0, 5000, 100), *range(0, 5000, 100), *range(9000, 14000, 100)]
    looked = [None] * 50 + [*range(0, 5000, 100)] + [None] * 50
    found = frames(stamps, names=["a"] * 50 + ["b"] * 100, segments=[0] * 100 + [1] * 50, model=looked)
    assert levels(found)["gaps", "model in b"] == (Level.RED, "1 gap, longest 4.9 s, at 5.0 s")
    assert ("gaps", "model in a") not in levels(found)
    found = frames(stamps[:100], names=["a"] * 50 + ["b"] * 50, model=looked[:100])
    assert levels(found)["gaps", "model in b"][0] is Level.GREEN


def test_a_slow_sensor_has_no_gaps():
    assert judge_gap(3.0, 1.0) is Level.AMBER
    assert judge_gap(2.4, 1.0) is Level.GREEN
    assert judge_gap(4.9, 1.0) is Level.AMBER
    assert judge_gap(5.0, 1.0) is Level.RED
    assert GAP_PERIODS == (2.5, 5.0)


def test_sequences_and_steps_of_the_clock_are_no_gaps():
    stamps = [*range(0, 1000, 100), *range(60_000, 61_000, 100), *range(58_000, 59_000, 100)]
    found = frames(stamps, names=["a"] * 10 + ["b"] * 20, segments=[0] * 20 + [1] * 10, lidar=stamps)
    assert [(block.sequence, block.stop - block.start) for block in found.blocks] == [("a", 10), ("b", 10), ("b", 10)]
    assert found.duration == pytest.approx(2.7)
    assert found.steps == 1
    assert np.diff(found.seconds) == pytest.approx(0.1)
    said = levels(found)
    assert said["gaps", "lidar.points in a"][0] is said["gaps", "lidar.points in b"][0] is Level.GREEN
    assert said["clock", "a"][0] is Level.GREEN
    assert said["clock", "b"] == (Level.AMBER, "set, or stood still, 1 time")


def test_a_sequence_may_lack_a_sensor_that_another_has():
    """It is named, and neither a gap nor worse than green."""
    stamps = list(range(0, 20_000, 100))
    found = frames(stamps, names=["a"] * 100 + ["b"] * 100, lidar=[*stamps[:100], *[None] * 100])
    assert levels(found)["coverage", "lidar.points"] == (Level.GREEN, "in 1 of 2 sequences; not in b")
    assert levels(found)["coverage", "lidar.points in a"] == (Level.GREEN, "in 100.0% of the samples")
    assert levels(found)["gaps", "lidar.points in a"][0] is Level.GREEN
    assert not [where for _, where in levels(found) if where == "lidar.points in b"]


def test_a_sensor_that_stops_within_a_sequence_is_a_gap_there():
    """So it is where it is missing from one step of the clock to the next."""
    stamps = list(range(0, 6000, 100))
    names, lidar = ["a"] * 20 + ["b"] * 40, [*stamps[:20], *[None] * 5, *stamps[25:30], *[None] * 30]
    gap = Level.RED, "2 gaps, longest 3 s, at 0.9 s"
    assert levels(frames(stamps, names=names, lidar=lidar))["gaps", "lidar.points in b"] == gap
    found = frames(stamps, names=names, lidar=lidar, segments=[0] * 30 + [1] * 30)
    assert levels(found)["gaps", "lidar.points in b"] == (Level.RED, "2 gaps, longest 2.9 s, at 1.0 s")


def test_a_gap_of_several_sequences_is_told_by_the_time_in_its_own():
    """Messages before the first sample, and sequences of one sample, do not move it to another one."""
    stamps = [*range(0, 1000, 100), 9000, *range(20_000, 21_000, 100)]
    lidar = [*stamps[:10], None, 19_980, *[None] * 7, *stamps[19:]]
    found = frames(stamps, names=["a"] * 10 + ["b"] + ["c"] * 10, lidar=lidar)
    pace = measure_paces(found)["lidar.points"]
    assert levels(found)["gaps", "lidar.points in c"] == (Level.AMBER, "1 gap, longest 0.82 s, at 0.0 s")
    assert pace.gaps == (pace.longest,)
    assert (pace.longest.sequence, pace.longest.start) == ("c", pytest.approx(-0.02))
    assert pace.longest.drive == pytest.approx(0.98)


def test_a_slow_drive_beside_a_fast_one_has_no_gaps():
    stamps = [*range(0, 1000, 33), *range(20_000, 25_000, 280)]
    found = frames(stamps, lidar=stamps, names=["a"] * 31 + ["b"] * 18)
    assert {name: pace.gaps for name, pace in measure_paces(found).items()} == {"samples": (), "lidar.points": ()}


def test_losses_skew_and_calibration():
    timeline = frames(range(0, 3000, 100), lidar=[t + 80 for t in range(0, 3000, 100)])
    metadata = {
        "counts": {
            "/camera": {"seen": 1000, "written": 990, "dropped": {"undecodable": 10, "not sampled": 5}},
            "/lidar": {"seen": 1000, "written": 991, "dropped": {"cannot be stored": 9}},
            "/imu": {"seen": 1000, "written": 0, "dropped": {"no attitude": 500}},
        },
        "configuration": {"tolerance": 0.1, "streams": {"radar.cube": {"tolerance": 0.2}}},
        "sources": [{"file": "x.mcap", "damage": [{"offset": 1, "what": "cut"}]}],
    }
    found = levels(timeline, metadata, {"a": "identity"})
    assert found["loss", "/camera"] == (Level.RED, "1.00% of 1000 messages lost: 10 undecodable")
    assert found["loss", "/lidar"][0] is Level.AMBER
    assert found["loss", "x.mcap"] == (Level.AMBER, "at byte 1: cut")
    assert ("loss", "/imu") not in found
    assert found["skew", "lidar.points"] == (Level.AMBER, "95 % within 80.0 ms of 100 ms")
    assert found["calibration", ""][0] is Level.AMBER
    assert levels(timeline, {"configuration": {"streams": {"lidar.points": {"tolerance": 0.2}}}})[
        "skew", "lidar.points"
    ] == (Level.GREEN, "95 % within 80.0 ms of 200 ms")


@pytest.mark.parametrize(
    ("harmless", "lost", "said"),
    [
        (0, 2, {"x.mcap": (Level.AMBER, "at byte 1: cut; 1 more damaged place")}),
        (2, 1, {"x.mcap": (Level.AMBER, "at byte 1: cut")}),
        (1, 0, {"": (Level.GREEN, "nothing lost")}),
    ],
)
def test_damage_in_which_nothing_can_have_been_is_no_loss(harmless, lost, said):
    damage = [{"offset": 8, "what": "cut", "loss": False}] * harmless + [{"offset": 1, "what": "cut"}] * lost
    metadata = {"counts": {"/a": {"seen": 1, "written": 1, "dropped": {}}}}
    found = levels(frames([0]), {**metadata, "sources": [{"file": "x.mcap", "damage": damage}]})
    assert {place: one for (key, place), one in found.items() if key == "loss"} == said


def test_no_samples_are_red():
    assert levels(Timeline.empty())["samples", ""][0] is Level.RED
    assert [one.key for one in THRESHOLDS.values()] == list(THRESHOLDS)


def test_recordings_that_were_left_out_are_a_loss():
    left = [{"file": "text.mcap", "size": 9, "why": "text.mcap: begins not with the MCAP magic"}]
    found = levels(frames([0, 100]), {"counts": {}, "left_out": left})
    assert found["loss", "text.mcap"] == (Level.AMBER, "not converted: begins not with the MCAP magic")


@pytest.mark.parametrize("one", THRESHOLDS.values(), ids=list(THRESHOLDS))
def test_a_threshold_is_passed_at_its_value(one):
    for value, level in ((one.amber, Level.AMBER), (one.red, Level.RED)):
        if value is not None:
            assert one.level(value) is level
            assert one.level(value * (1 - 1e-9)) < level
    assert one.level(0.0) is Level.GREEN


@pytest.mark.parametrize("one", THRESHOLDS.values(), ids=list(THRESHOLDS))
def test_the_good_case_states_its_threshold(one):
    amber = one.amber if one.amber is not None else one.red
    if amber in (1e-12, 1.0):
        assert re.match("No |The dataset has at least one ", one.good)
    else:
        assert {f"{amber:g} s", f"{100 * amber:g} %", f"{100 * (1 - amber):g} %"} & set(
            re.findall(r"[\d.]+ \S", one.good)
        )


@pytest.mark.parametrize(("number", "named"), [(5, "a, b, c, d, e"), (6, "a, b, c, d, e and 1 more")])
def test_five_sequences_without_a_sensor_are_named(number, named):
    (check,) = check_lacking("coverage", "lidar.points", list("abcdef")[:number], 9)
    assert (check.level, check.found) == (Level.GREEN, f"in {9 - number} of 9 sequences; not in {named}")
