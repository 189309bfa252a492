# SPDX-License-Identifier: Apache-2.0
"""Figures of series that are short, still or empty, and the axes of steady ones."""

import handmade_dataset as made
import numpy as np
import pytest

from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.verdict import Check, Level
from edgefirst_ros.report.content import CubeContent, Exposure, RadarContent
from edgefirst_ros.report.facts import summarize_checks
from edgefirst_ros.report.figures import (
    POINTS,
    draw_brightness,
    draw_delays,
    draw_intervals,
    draw_radar,
    draw_rates,
    draw_skews,
    draw_tracks,
    escape,
    list_gaps,
    thin_line,
)
from edgefirst_ros.report.subject import ReportSubject, TopicMessages


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return made.write(tmp_path_factory.mktemp("figures"), made.good())


def subject(path, topics=None):
    """A dataset, or a recording of topics: {name: (times, delays)}, s."""
    recorded = None
    if topics is not None:
        recorded = {
            name: TopicMessages("type", np.array(times, float), np.array(late, float))
            for name, (times, late) in topics.items()
        }
    return ReportSubject("data", str(path), Dataset(path), recorded=recorded)


def still(times):
    return times, [np.nan] * len(times)


# ---- rates -------------------------------------------------------------------------------------
def test_messages_of_every_topic_are_counted_over_the_whole_time(path):
    (figure,) = draw_rates(subject(path, {"/b": still(np.arange(0, 10, 0.1)), "/a": still(np.arange(0, 5, 0.5))}))
    assert figure.data[0]["y"] == ["/b", "/a"]  # the first one by name is drawn at the top
    often, seldom = map(np.array, figure.data[0]["z"])
    assert ((often > 66) & (often < 134)).all()  # percent of the usual number, give or take one of three
    x = np.array(figure.data[0]["x"])
    assert ((seldom > 60) == (x < 5)).mean() > 0.85  # /a ends in the middle
    assert (seldom[x > 6] == 0).all()


@pytest.mark.parametrize(
    ("topics", "why"),
    [
        ({}, "no topic"),
        ({"/a": [0.0, 1.0]}, "two messages have no usual rate"),
        ({"/a": [2.0, 2.0, 2.0]}, "all came at once"),
        ({"/a": [0.0, 0.0, 0.0, 0.0, 5.0]}, "more than half came at once"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_there_is_no_map_of_rates_where_there_is_no_rate(path, topics, why):
    assert not [*draw_rates(subject(path, {name: still(times) for name, times in topics.items()}))], why


def test_a_topic_that_came_at_once_is_left_out_of_the_map(path):
    (figure,) = draw_rates(subject(path, {"/a": still(np.arange(0, 5, 0.5)), "/b": still([1.0, 1.0, 1.0, 1.0, 2.0])}))
    assert figure.data[0]["y"] == ["/a"]


def test_a_dataset_of_two_samples_has_no_rate(tmp_path):
    parts = made.good()
    parts.frames = parts.frames[:2]
    assert not [*draw_rates(subject(made.write(tmp_path, parts)))]


# ---- intervals and delays ----------------------------------------------------------------------
def test_intervals_are_those_between_the_stamps(path):
    (figure,) = draw_intervals(subject(path))
    step = made.STEP / 1e6  # frames 3, 4 and 7
    assert figure.data[0]["y"] == [pytest.approx(step, abs=1e-3), pytest.approx(3 * step, abs=1e-3), None]
    assert "range" not in figure.layout["yaxis"]


def test_steady_intervals_are_a_line_in_the_middle_of_a_millisecond(tmp_path):
    parts = made.good()
    for number, row in enumerate(parts.frames):
        row["timestamp"] = made.START + number * 100_000_000 + number % 2
    (figure,) = draw_intervals(subject(made.write(tmp_path, parts)))
    assert figure.layout["yaxis"]["range"] == pytest.approx([99.5, 100.5], abs=1e-3)


def test_one_sample_has_no_intervals(tmp_path):
    parts = made.good()
    parts.frames = parts.frames[:1]
    assert not [*draw_intervals(subject(made.write(tmp_path, parts)))]


def test_delays_are_drawn_in_milliseconds_on_an_axis_of_one_at_least(path):
    times = np.arange(0, 5, 0.5)
    (figure,) = draw_delays(subject(path, {"/a": (times, np.full(10, 0.02)), "/b": still(times)}))
    assert [one["name"] for one in figure.data] == ["/a"]
    assert set(figure.data[0]["y"]) == {20.0}
    assert figure.layout["yaxis"]["range"] == [19.5, 20.5]
    (wide,) = draw_delays(subject(path, {"/a": (times, np.linspace(0, 0.1, 10))}))
    assert "range" not in wide.layout["yaxis"]


def test_without_stamps_or_without_a_recording_there_are_no_delays(path):
    assert not [*draw_delays(subject(path))]
    assert not [*draw_delays(subject(path, {"/a": still([0.0, 1.0, 2.0]), "/b": ([0.0, 1.0], [0.1, 0.1])}))]


# ---- others ------------------------------------------------------------------------------------
def test_without_companions_positions_or_pictures_there_is_no_figure(tmp_path):
    parts = made.good()
    for row in parts.frames:
        row.update({name: None for name in row if name.endswith(("_timestamp", "_skew"))})
    assert not [*draw_skews(subject(made.write(tmp_path, parts)), {})]
    assert draw_tracks({}) == []
    assert not [*draw_brightness({"camera": Exposure(np.zeros(0), np.zeros(0))})]


def test_the_longest_gaps_of_a_recording_come_first(path):
    regular = np.arange(0, 10, 0.1)
    lost = np.concatenate([regular[:20], regular[60:]])  # from 1.9 s to 6.0 s
    twice = np.concatenate([regular[:10], regular[40:70], regular[90:]])  # from 0.9 s to 4.0 s, 6.9 s to 9.0 s
    found = list_gaps(subject(path, {"/a": still(twice), "/b": still(lost), "/c": still(regular)}))
    assert [(name, round(gap.drive, 3), round(gap.length, 3)) for name, gap in found] == [
        ("/b", 1.9, 4.1),
        ("/a", 0.9, 3.1),
        ("/a", 6.9, 2.1),
    ]
    assert len(list_gaps(subject(path, {"/a": still(twice), "/b": still(lost)}), most=1)) == 1


def test_foreign_text_is_no_html():
    assert escape("<b>a & b</b>") == "&lt;b>a &amp; b&lt;/b>"


def test_a_thinned_line_is_broken_where_a_bin_has_nothing():
    y = np.arange(10.0 * POINTS)
    y[2000:4000] = np.nan
    x, values = thin_line(np.arange(10.0 * POINTS), y)
    assert np.isnan(values).sum() == 2000 / (10 * POINTS) * (POINTS // 2)
    assert ((x[np.isnan(values)] >= 2000) & (x[np.isnan(values)] < 4000)).all()


# ---- values that have no neighbour -------------------------------------------------------------
def drawn(trace):
    """Indices of the values that a browser draws: points with a size, and ends of segments of a line."""
    known = [value is not None for value in trace["y"]]
    size = trace.get("marker", {}).get("size", 6)
    sizes = size if isinstance(size, list) else [size] * len(known)
    points = {n for n in range(len(known)) if known[n] and "markers" in trace["mode"] and sizes[n]}
    joined = [n for n in range(1, len(known)) if known[n - 1] and known[n]] if "lines" in trace["mode"] else []
    return points | {n for m in joined for n in (m - 1, m)}


def present(trace):
    return {n for n, value in enumerate(trace["y"]) if value is not None}


def dataset_of(tmp_path, there, step=made.STEP):
    """A dataset whose lidar has a stamp in the samples of `there` alone."""
    parts = made.good()
    row = parts.frames[0]
    parts.frames = [
        row
        | {"frame": n, "timestamp": made.START + n * step}
        | {"lidar_points_timestamp": made.START + n * step + 1000 * n, "lidar_points_skew": 1000 * n}
        | ({} if has else {"lidar_points_timestamp": None, "lidar_points_skew": None})
        for n, has in enumerate(there)
    ]
    return subject(made.write(tmp_path, parts))


@pytest.mark.parametrize(
    ("there", "values"),
    [
        ([True], 1),
        ([True, False] * 72, 72),
        ([True, False] * 3000, 1),
        ([True, True, False, True, False, True, True], 5),
    ],
    ids=["one sample", "every other missing", "every other of many", "one between others"],
)
def test_every_skew_is_drawn_when_its_neighbours_are_missing(tmp_path, there, values):
    line, *_ = [one for one in next(draw_skews(dataset_of(tmp_path, there), {})).data if one["name"] == "lidar.points"]
    assert len(present(line)) >= values
    assert drawn(line) == present(line)


def test_every_interval_and_delay_is_drawn_when_it_is_the_only_one(tmp_path, path):
    line = next(draw_intervals(dataset_of(tmp_path, [True, True]))).data[0]
    assert drawn(line) == present(line) == {0}
    for line in next(draw_delays(subject(path, {"/a": ([0.0, 1.0, 2.0], [0.1, 0.2, 0.1])}))).data:
        assert drawn(line) == present(line)


def test_values_that_a_line_joins_have_no_marker(tmp_path):
    figure = next(draw_skews(dataset_of(tmp_path, [True] * 5), {}))
    (line,) = [one for one in figure.data if one["name"] == "lidar.points"]
    assert line["mode"] == "lines"


def test_an_object_of_one_cell_is_the_end_of_the_colours_of_a_cube():
    by_speed = np.full((128, 64), 40.0)
    by_speed[30, 12] = 80.0
    look = CubeContent("drive", np.zeros(1), np.zeros((128, 1)), by_speed, 0.2, 0.5, whole=True)
    (figure,) = draw_radar(RadarContent([look], {}))
    assert (figure.data[0]["zmin"], figure.data[0]["zmax"]) == (40.0, 80.0)


def test_the_verdict_counts_the_places_of_a_fault():
    checks = [Check("calibration", Level.AMBER, "a placeholder", where) for where in ("a", "b", "c")]
    checks.append(Check("position", Level.AMBER, "84 %", "b"))
    assert summarize_checks(checks) == "Amber: calibration in 3 places, position of b; check it."
