# SPDX-License-Identifier: Apache-2.0
"""Figures as plotly's JSON, made by hand: over time, over place, by size, and of what members hold.

Text that came from outside is escaped here, because plotly reads it as HTML. Only `scatter`, `bar` and `heatmap` are
used: `scattergl` makes code from text at run time, which the page forbids.
"""

from __future__ import annotations

import html
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edgefirst_ros.dataset.verdict import DARK, GLARING, MODEL, Interval, Timeline, get_wide_gap, measure_paces
from edgefirst_ros.errors import pluralize
from edgefirst_ros.report.content import (
    COLUMNS,
    MOST_LABELS,
    ROWS,
    CubeContent,
    Exposure,
    RadarContent,
    Track,
    count_box_cells,
)
from edgefirst_ros.report.subject import Floats, ReportSubject, spread

COLOURS = ("#3b82c4", "#d9772b", "#2f9e68", "#b05cc0", "#cf4a5a", "#7f8792", "#a88a12", "#1fa0a8")
LEAST_INTERVAL_SPAN = 1.0
"""ms; an axis of intervals shows at least so much, so that a perfect rate is a line and no zigzag."""
DASHES = ("solid", "dash", "dot")
"""Lines beyond the number of colours are distinguished by these."""
VIRIDIS = [[0, "#440154"], [0.25, "#3b528b"], [0.5, "#21918c"], [0.75, "#5ec962"], [1, "#fde725"]]
RATE = [[0, "#c2313f"], [0.2, "#e08a3c"], [0.3, "#7fb6d6"], [0.5, "#3b82c4"], [0.7, "#3b82c4"], [1, "#7b4fb5"]]
"""Colours of a rate: 0, low, usual, higher."""
MOST_TOPICS = 40
MOST_TRACKS = 24
DRIVE = "time of drive, s"


@dataclass
class Figure:
    """One figure of the page."""

    key: str
    title: str
    alt: str
    """Alternative text."""
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height: int = 260
    notes: list[str] = field(default_factory=list)


def escape(value: object) -> str:
    """Escape foreign text for plotly, which takes it for HTML."""
    return html.escape(str(value), quote=False).replace("&gt;", ">")


def draw_line(x: Floats, y: Floats, name: str, number: int) -> dict[str, Any]:
    """Return a line, thinned, with a marker at values that no segment of it ends at: both neighbours are missing."""
    x, y = thin_line(x, y)
    colour = COLOURS[number % len(COLOURS)]
    known = np.isfinite(y)
    isolated = known & ~np.append(known[1:], False) & ~np.append(False, known[:-1])
    marked = {"mode": "lines+markers", "marker": {"size": np.where(isolated, 4, 0).tolist()}} if isolated.any() else {}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": round_values(x, 3),
        "y": round_values(y, 3),
        "name": escape(name),
        "line": {"width": 1.2, "color": colour, "dash": DASHES[number // len(COLOURS) % len(DASHES)]},
        **marked,
    }


def draw_bar(x: ArrayLike, y: ArrayLike, number: int, digits: int = 2, **more: Any) -> dict[str, Any]:
    """Return vertical bars."""
    marker = {"color": COLOURS[number % len(COLOURS)]}
    return {"type": "bar", "x": round_values(x, digits), "y": round_values(y, digits), "marker": marker, **more}


def draw_heatmap(
    z: Any, x: ArrayLike, y: Any, scale: Sequence[Sequence[Any]], unit: str, **more: Any
) -> dict[str, Any]:
    """Return a map; `y` may be names."""
    bar = {"title": {"text": unit}, "thickness": 10}
    return {"type": "heatmap", "z": z, "x": round_values(x, 3), "y": y, "colorscale": scale, "colorbar": bar} | more


def make_axes(x: str, y: str, span: list[float] | None = None, **more: Any) -> dict[str, Any]:
    """Return the titles of the axes, and the range `span` of the upright one."""
    upright = {"title": {"text": y}} | ({} if span is None else {"range": span})
    return {"xaxis": {"title": {"text": x}}, "yaxis": upright, **more}


def draw_bounds(*values: float) -> list[dict[str, Any]]:
    """Return dotted lines across a figure at some values."""
    edge = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"dash": "dot", "width": 1, "color": "#cf4a5a"}}
    return [{**edge, "y0": value, "y1": value} for value in values]


def describe_thinning(series: list[Floats]) -> list[str]:
    """Return a note for a line that is drawn by the least and largest values of bins."""
    long = max(map(len, series), default=0)
    note = f"Thinned: of {long} values the least and the largest of each of {POINTS // 2} bins."
    return [note] if long > POINTS else []


def draw_rates(subject: ReportSubject) -> Iterator[Figure]:
    """Messages over time by topic, in percent of the usual rate; empty where a sequence does not have the sensor."""
    timeline, rows = subject.timeline, dict[str, list[Floats]]()
    spans = {"": (-np.inf, np.inf)}
    if subject.recorded is not None:
        ordered = sorted(subject.recorded.items(), key=lambda one: -len(one[1].times))[:MOST_TOPICS]
        rows = {topic: [one.times] for topic, one in ordered if len(one.times) > 2}
    elif len(timeline):
        rows = {"samples": _by_sequence(timeline, timeline.samples())}
        rows |= {name: _by_sequence(timeline, timeline.messages(name)) for name in timeline.companions}
        edges = [*timeline.starts.values(), np.inf]
        spans = dict(zip(timeline.starts, itertools.pairwise(edges), strict=True))
    known = [one for parts in rows.values() for one in parts if len(one) > 2]
    every = np.concatenate(known) if known else np.zeros(1)
    start, end = float(every.min()), float(every.max())
    if end <= start:
        return
    width = (end - start) / CELLS
    middles = np.asarray(start + (np.arange(CELLS) + 0.5) * width, float)
    cells, names = [], []
    for name, parts in sorted(rows.items(), reverse=True):
        row = np.full(CELLS, np.nan)
        for times, (begin, stop) in zip(parts, spans.values(), strict=True):
            ordered_times = np.sort(times)
            steps = np.diff(ordered_times)
            period = float(np.median(steps)) if len(steps) > 1 else 0.0
            if period > 0:
                own = (middles >= begin) & (middles < stop)
                row[own] = measure_rates(ordered_times, period, max(start, begin), min(end, stop), middles[own], width)
        if np.isfinite(row).any():
            cells.append(round_values(row, 0))
            names.append(name)
    if not cells:
        return
    ends = {"zmin": 0, "zmax": 200, "ygap": 3, "hoverongaps": False}
    hover = "%{y}<br>%{x:.2f} s: %{z} %<extra></extra>"
    yield Figure(
        "rates",
        "Messages over time" if subject.recorded is not None else "Messages that samples use, over time",
        f"Map of how many messages of {len(names)} topics came over {end - start:.1f} s; holes are gaps",
        [draw_heatmap(cells, middles, [*map(escape, names)], RATE, "% of usual", **ends, hovertemplate=hover)],
        make_axes(DRIVE, "", margin={"l": 10}),
        height=max(160, 90 + 26 * len(names)),
        notes=["A value covers at least three usual intervals of its topic; in less, one message looks like a gap."],
    )


def _by_sequence(timeline: Timeline, blocks: list[Floats]) -> list[Floats]:
    """Join times that are given by block to one array a sequence, in the order of `timeline.starts`."""
    found: dict[str, list[Floats]] = {name: [] for name in timeline.starts}
    for block, times in zip(timeline.blocks, blocks, strict=True):
        found[block.sequence].append(times)
    return [np.concatenate(parts) for parts in found.values()]


def mark_sequences(figure: Figure, timeline: Timeline) -> None:
    """Mark where each sequence begins in a figure over the time of drive, if it has several."""
    over_time = figure.layout.get("xaxis", {}).get("title", {}).get("text") == DRIVE
    if not over_time or len(timeline.starts) < 2:
        return
    edge = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 1, "color": "#7f8792"}}
    name = {"yref": "paper", "y": 1, "xanchor": "left", "yanchor": "bottom", "showarrow": False, "font": {"size": 10}}
    starts = list(timeline.starts.items())[:MOST_TOPICS]
    figure.layout.setdefault("shapes", []).extend({**edge, "x0": round(at, 3), "x1": round(at, 3)} for _, at in starts)
    last = float(timeline.seconds.max())
    figure.layout.setdefault("annotations", []).extend(
        {**name, "x": round(at, 3), "text": escape(cut(sequence))} for sequence, at in starts
    )
    figure.layout["xaxis"] |= {"range": [-0.01 * last, 1.01 * last]}  # by it draw.js leaves out names without room


def cut(name: str) -> str:
    """Return a name that is short enough for an axis."""
    return name if len(name) <= 40 else f"{name[:40]}..."


def draw_intervals(subject: ReportSubject) -> Iterator[Figure]:
    """Intervals between samples."""
    blocks = [one for one in subject.timeline.samples() if len(one) > 1]
    if not blocks:
        return
    x, y = with_breaks([one[1:] for one in blocks], [np.diff(one) * 1e3 for one in blocks])
    yield Figure(
        "intervals",
        "Intervals between samples",
        f"Line of the intervals between samples, {np.nanmin(y):.1f} to {np.nanmax(y):.1f} ms",
        [draw_line(x, y, "samples", 0)],
        make_axes(DRIVE, "interval, ms", widen_span(y, LEAST_INTERVAL_SPAN)),
        height=200,
        notes=describe_thinning([x]),
    )


def draw_delays(subject: ReportSubject) -> Iterator[Figure]:
    """Delays from stamp to recorder, by topic."""
    data, lengths = list[dict[str, Any]](), []
    for topic, one in sorted((subject.recorded or {}).items()):
        known = np.isfinite(one.delays)
        if known.sum() > 2:
            data.append(draw_line(one.times[known], one.delays[known] * 1e3, topic, len(data)))
            lengths.append(one.times[known])
    if not data:
        return
    every = np.array([value for one in data for value in one["y"] if value is not None])
    yield Figure(
        "delays",
        "From the stamp to the recorder",
        f"Lines of the delay of {len(data)} topics over the drive",
        data,
        make_axes(DRIVE, "delay, ms", widen_span(every, LEAST_INTERVAL_SPAN)),
        height=280,
        notes=describe_thinning(lengths),
    )


def draw_skews(subject: ReportSubject, tolerances: dict[str, float]) -> Iterator[Figure]:
    """Skew by sensor over time, and as histogram; `tolerances` in ms."""
    timeline = subject.timeline
    sensors = [name for name in timeline.companions if name != MODEL]
    if not sensors:
        return
    lines, bars, lengths, worst = [], [], [], 0.0
    for number, name in enumerate(sensors):
        one, xs, ys = timeline.companions[name], [], []
        for block in timeline.blocks:
            rows = slice(block.start, block.stop)
            xs.append(timeline.seconds[rows])
            ys.append(np.where(one.has[rows], one.skew[rows] / 1e6, np.nan))
        x, y = with_breaks(xs, ys)
        lines.append(draw_line(x, y, name, number))
        lengths.append(x)
        own = one.skew[one.has] / 1e6
        worst = max(worst, float(np.abs(own).max()))
        limit = max(tolerances.get(name, 100.0), float(np.abs(own).max()), 0.5)
        counted, edges = np.histogram(own, 61, (-limit, limit))
        middles = (edges[:-1] + edges[1:]) / 2
        bars.append(draw_bar(middles, 100 * counted / len(own), number, 3, name=escape(name), opacity=0.6))
    allowed = max(tolerances.values(), default=100.0)
    span = 1.15 * max(allowed, worst)
    over = make_axes(DRIVE, "skew, ms", [-span, span], shapes=draw_bounds(-allowed, allowed))
    names = ", ".join(sensors)
    said = f"Skew of {names} against samples; the largest is {worst:.1f} ms, {allowed:.0f} ms are tolerated"
    yield Figure("skew-time", "Skew over time", said, lines, over, notes=describe_thinning(lengths))
    shares = make_axes("skew, ms", "% of samples", barmode="overlay", bargap=0.05)
    yield Figure("skew-histogram", "Skew as histogram", f"Histogram of the skew of {names}", bars, shares)


def draw_tracks(ways: Mapping[str, Track]) -> list[Figure]:
    """Return the way of each sequence, in metres from its own start."""
    found = [_track(name if len(ways) > 1 else "", number, way) for number, (name, way) in enumerate(ways.items())]
    if len(found) > MOST_TRACKS:
        found = found[:MOST_TRACKS]
        found[-1].notes.append(f"{len(ways) - MOST_TRACKS} more sequences are not drawn.")
    return found


def _track(name: str, number: int, way: Track) -> Figure:
    flat, of = way.metres, f" of {name}" if name else ""
    kept = np.unique(np.linspace(0, len(flat) - 1, min(len(flat), 2000)).astype(int))
    said = [f"Every {len(flat) / len(kept):.0f}th of {len(flat)} positions is drawn."] if len(kept) < len(flat) else []
    seconds = round_values(way.seconds[kept] - way.seconds[0], 2)
    marker = {"size": 4, "color": seconds, "colorscale": VIRIDIS, "colorbar": {"title": {"text": "s"}, "thickness": 10}}
    extent = np.ptp(flat, axis=0)
    words, across = ("m east of the start", "m north of the start"), ("west to east", "south to north")
    if way.frame:
        words, across = (
            (f"m along x of {escape(cut(way.frame))}", "m along y"),
            (f"end to end in {cut(way.frame)}",) * 2,
        )
    trace = {
        "type": "scatter",
        "mode": "markers+lines",
        "x": round_values(flat[kept, 0], 2),
        "y": round_values(flat[kept, 1], 2),
        "marker": marker,
        "line": {"width": 1, "color": "#7f8792"},
        "name": "positions",
        "customdata": seconds,
        "hovertemplate": f"%{{x:.1f}} {words[0]}, %{{y:.1f}} {words[1]}<br>%{{customdata}} s<extra></extra>",
    }
    over = make_axes(*words)
    over["yaxis"] |= {"scaleanchor": "x", "scaleratio": 1}
    return Figure(
        f"track-{number}" if name else "track",
        f"Track{of}",
        f"Map of the positions{of}, {extent[0]:.0f} m from {across[0]} and {extent[1]:.0f} m from {across[1]}",
        [trace],
        over,
        height=300 if name else 420,
        notes=said,
    )


def draw_brightness(looks: Mapping[str, Exposure]) -> Iterator[Figure]:
    """Mean luma of pictures over time, by camera."""
    looks = {camera: look for camera, look in looks.items() if len(look.luma)}
    if not looks:
        return
    every = np.concatenate([look.luma for look in looks.values()])
    data = []
    for number, (camera, look) in enumerate(looks.items()):
        data.append(draw_line(look.seconds, look.luma, camera if len(looks) > 1 else "luma", number))
        data[-1] |= {"mode": "lines+markers", "marker": {"size": 4}}
    yield Figure(
        "brightness",
        "Brightness of pictures",
        f"Line of the mean luma of {len(every)} pictures, {every.min():.0f} to {every.max():.0f} of 255",
        data,
        make_axes(DRIVE, "mean luma", [0, 255], shapes=draw_bounds(DARK, GLARING)),
        height=220,
    )


def list_gaps(subject: ReportSubject, most: int = 20) -> list[tuple[str, Interval]]:
    """Return the longest gaps with their names."""
    found = [(name, gap) for name, pace in measure_paces(subject.timeline).items() for gap in pace.gaps]
    if subject.recorded is not None:
        for topic, one in subject.recorded.items():
            steps = np.diff(one.times)
            if len(steps) > 1 and topic not in dict.fromkeys(name for name, *_ in found):
                least = max(get_wide_gap()[0] * float(np.median(steps)), get_wide_gap()[1])
                for n in np.flatnonzero(steps >= least):
                    begin = float(one.times[n])
                    found.append((topic, Interval(subject.name, begin, begin, float(steps[n]))))
    return sorted(found, key=lambda row: -row[1].length)[:most]


MOST_TARGETS = 4000
INFERNO = [[0, "#000004"], [0.2, "#420a68"], [0.4, "#932667"], [0.6, "#dd513a"], [0.8, "#fca50a"], [1, "#fcffa4"]]
RANGE_ROWS, SPEED_COLUMNS = 200, 160
"""Most rows and columns of a map of a cube."""


def draw_bars(key: str, title: str, alt: str, values: Mapping[str, Mapping[str, float]], unit: str) -> Iterator[Figure]:
    """Horizontal bars, one a name, stacked by sequence: {sequence: {name: value}}."""
    total: Counter[str] = Counter()
    for its in values.values():
        total.update(its)
    if not total:
        return
    names = sorted(total, key=lambda name: (-total[name], name))[:MOST_LABELS][::-1]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [escape(cut(name)) for name in names],
            "x": [its.get(name, 0) for name in names],
            "name": escape(cut(sequence)),
            "marker": {"color": COLOURS[number % len(COLOURS)]},
            "hovertemplate": "%{y}: %{x}<extra></extra>",
        }
        for number, (sequence, its) in enumerate(values.items())
        if its
    ]
    over, height = make_axes(unit, "", margin={"l": 10}, barmode="stack"), max(140, 80 + 24 * len(names))
    left = len(total) - len(names)
    yield Figure(key, title, alt, data, over, height, [f"{left} more are not drawn."] if left > 0 else [])


def draw_box_places(boxes: Floats) -> Iterator[Figure]:
    """Position and size of boxes."""
    if not len(boxes):
        return
    cells, across = count_box_cells(boxes).astype(int).tolist(), (np.arange(COLUMNS) + 0.5) / COLUMNS
    over = make_axes("part of the width", "part of the height", [1, 0])
    over["xaxis"]["range"] = [0, 1]
    yield Figure(
        "box-places",
        "Places of boxes in the picture",
        f"Map of the middles of {len(boxes)} boxes over the picture",
        [draw_heatmap(cells, across, round_values((np.arange(ROWS) + 0.5) / ROWS, 3), VIRIDIS, "boxes")],
        over,
    )
    heights, edges = np.histogram(100 * np.sqrt(np.clip(boxes[:, 2] * boxes[:, 3], 0, 1)), 40, (0, 100))
    sizes = [draw_bar((edges[:-1] + edges[1:]) / 2, heights, 0)]
    over = make_axes("root of the area, % of the picture's", "boxes", bargap=0.05)
    yield Figure("box-sizes", "Sizes of boxes", f"Histogram of the sizes of {len(boxes)} boxes", sizes, over)


def draw_radar(look: RadarContent) -> Iterator[Figure]:
    """Range over time, range over speed, targets."""
    for number, one in enumerate(look.cubes):
        yield from _draw_cubes(one, number, len(look.cubes) > 1)
    several = len(look.targets) > 1
    for number, (sensor, (targets, clouds)) in enumerate(look.targets.items()):
        if not len(targets):
            continue
        kept, of = targets[spread(len(targets), MOST_TARGETS)], f" of {sensor}" if several else ""
        said = np.isfinite(kept[:, 2]).any()
        colour: Any = round_values(kept[:, 2], 2) if said else COLOURS[0]
        scale = [[0, "#3b82c4"], [0.5, "#9aa2ad"], [1, "#cf4a5a"]]
        legend = {"cmid": 0, "colorbar": {"title": {"text": "m/s"}, "thickness": 10}} if said else {}
        marker = {"size": 4, "color": colour, "colorscale": scale, **legend}
        x, y = round_values(kept[:, 0], 2), round_values(kept[:, 1], 2)
        yield Figure(
            f"targets-{number}" if several else "targets",
            f"Radar targets: range over time{of}",
            f"Points of {len(kept)} radar targets{of} by range over the drive, coloured by their speed",
            [{"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker}],
            make_axes(DRIVE, "range, m"),
            height=300,
            notes=[f"{pluralize(clouds, 'message')} analysed, spread evenly."],
        )


def _draw_cubes(look: CubeContent, number: int, several: bool) -> Iterator[Figure]:
    of, key = f" of {look.name}" if several else "", f"-{number}" if several else ""
    across, rows = "range, m" if look.metres else "range bin", spread(len(look.by_range), RANGE_ROWS)
    if look.by_range.size and len(look.seconds) > 1:
        middle = f"{len(look.seconds)} consecutive cubes from the middle of the drive."
        yield Figure(
            f"range-time{key}",
            f"Radar cube: range over time{of}",
            f"Map of the largest magnitude by range over {len(look.seconds)} cubes{of}; things that move are lines",
            [_map(look.by_range[rows], look.seconds, rows * (look.metres or 1))],
            make_axes(f"{DRIVE}{of}" if several else DRIVE, across),
            height=300,
            notes=[] if look.whole else [middle],
        )
    if look.by_speed.size:
        columns, middle_column = spread(look.by_speed.shape[1], SPEED_COLUMNS), look.by_speed.shape[1] // 2
        speeds = (columns - middle_column) * (look.speed or 1)
        yield Figure(
            f"range-doppler{key}",
            f"Radar cube: range over doppler{of}",
            f"Map of the magnitude of the loudest cube{of} by range and doppler; zero speed is in the middle",
            [_map(look.by_speed[np.ix_(rows, columns)], speeds, rows * (look.metres or 1))],
            make_axes("speed, m/s" if look.speed else "doppler bin", across),
            height=300,
        )


def _map(z: Floats, x: ArrayLike, y: ArrayLike) -> dict[str, Any]:
    low, high = np.percentile(z, 20), np.max(z)  # an object may be one cell of thousands
    ends = {"zmin": round(float(low), 1), "zmax": round(float(max(high, low + 1)), 1)}
    return draw_heatmap([round_values(row, 1) for row in z], x, round_values(y, 3), INFERNO, "dB", **ends)


def draw_lidar(found: Mapping[str, tuple[Floats, int]]) -> Iterator[Figure]:
    """Lidar points by range, by sequence and lidar."""
    every = np.concatenate([np.zeros(0), *(ranges for ranges, _ in found.values())])
    if not len(every):
        return
    limit, clouds = float(max(np.percentile(every, 99.5), 1.0)), sum(number for _, number in found.values())
    data = []
    for number, (name, (ranges, own)) in enumerate(found.items()):
        heights, edges = np.histogram(ranges, 60, (0, limit))
        middles, opacity = (edges[:-1] + edges[1:]) / 2, 0.6 if len(found) > 1 else 1
        data.append(draw_bar(middles, heights / own, number + 2, name=escape(cut(name)), opacity=opacity))
    yield Figure(
        "lidar-ranges",
        "Lidar points by range",
        f"Histogram of the ranges of {len(every)} lidar points of {clouds} clouds",
        data,
        make_axes("range, m", "points a cloud", bargap=0.05, barmode="overlay"),
        notes=[f"{pluralize(clouds, 'cloud')} analysed, spread evenly."],
    )


POINTS = 1000
"""A line has at most so many points, half of them the least and half the largest of a bin."""
CELLS = 240
"""Columns of a map over time."""
PERIODS = 3
"""Least usual intervals in a bin: in shorter ones a message more or less looks like a gap."""


def thin_line(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the least and the largest value of each of `POINTS`/2 bins, in order.

    `x` rises; NaN in `y` breaks a line and stays where a bin has only NaN.
    """
    if len(x) <= POINTS:
        return x, y
    edges = np.linspace(0, len(x), POINTS // 2 + 1).astype(int)
    kept: list[int] = []
    for start, stop in itertools.pairwise(edges):
        own = y[start:stop]
        if np.isnan(own).all():
            kept.append(int(start))
        else:
            kept += sorted({start + int(np.nanargmin(own)), start + int(np.nanargmax(own))})
    return x[kept], y[kept]


def with_breaks(x: Sequence[Floats], y: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Join blocks to one line that is broken between them."""
    xs = [np.append(one, one[-1:]) for one in x]
    ys = [np.append(other, np.nan) for other in y if len(other)]
    return np.concatenate([np.zeros(0), *xs]), np.concatenate([np.zeros(0), *ys])


def measure_rates(times: Floats, period: float, start: float, end: float, middles: Floats, width: float) -> Floats:
    """Return messages in percent of the usual number around `middles`, within `start` and `end`, s.

    The counted interval is at least `PERIODS` wide, however narrow the cell.
    """
    width = max(width, PERIODS * period)
    low = np.clip(middles - width / 2, start, max(start, end - width))
    high = np.minimum(low + width, end)
    counted = np.searchsorted(times, high, "right") - np.searchsorted(times, low, "left")
    usual = np.maximum((high - low) / period, 1e-9)
    return 100 * np.minimum(counted / usual, 2.0)


def widen_span(values: ArrayLike, span: float) -> list[float] | None:
    """Range of an axis for values that differ less than `span`, so that a steady line looks steady; else None."""
    given = np.asarray(values, float)
    given = given[np.isfinite(given)]
    if not len(given) or np.ptp(given) >= span:
        return None
    middle = float(given.min() + given.max()) / 2
    return [middle - span / 2, middle + span / 2]


def round_values(values: ArrayLike, digits: int) -> list[float | None]:
    """Plain numbers for JSON, NaN becomes None: pages stay small."""
    return [round(value, digits) if math.isfinite(value) else None for value in np.asarray(values, float).tolist()]
