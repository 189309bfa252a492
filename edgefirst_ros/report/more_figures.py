# SPDX-License-Identifier: Apache-2.0
"""Figures of what members and annotations hold: labels, boxes, radar, lidar, bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edgefirst_ros.errors import counted
from edgefirst_ros.report.figures import COLOURS, DRIVE, VIRIDIS, Figure, axes, cut, text
from edgefirst_ros.report.labels import COLUMNS, MOST_LABELS, ROWS, box_cells
from edgefirst_ros.report.look import CubeLook, RadarLook
from edgefirst_ros.report.series import Floats, rounded, spread

MOST_TARGETS = 4000
INFERNO = [[0, "#000004"], [0.2, "#420a68"], [0.4, "#932667"], [0.6, "#dd513a"], [0.8, "#fca50a"], [1, "#fcffa4"]]
RANGE_ROWS, SPEED_COLUMNS = 200, 160
"""Most rows and columns of a map of a cube."""


def bars(key: str, title: str, alt: str, values: Mapping[str, Mapping[str, float]], unit: str) -> Figure | None:
    """Return horizontal bars, one a name, stacked by sequence: {sequence: {name: value}}."""
    total: Counter[str] = Counter()
    for its in values.values():
        total.update(its)
    if not total:
        return None
    names = sorted(total, key=lambda name: (-total[name], name))[:MOST_LABELS][::-1]
    left = len(total) - len(names)
    return Figure(
        key,
        title,
        alt,
        [
            {
                "type": "bar",
                "orientation": "h",
                "y": [text(cut(name)) for name in names],
                "x": [its.get(name, 0) for name in names],
                "name": text(cut(sequence)),
                "marker": {"color": COLOURS[number % len(COLOURS)]},
                "hovertemplate": "%{y}: %{x}<extra></extra>",
            }
            for number, (sequence, its) in enumerate(values.items())
            if its
        ],
        axes(unit, "", margin={"l": 10}, barmode="stack"),
        height=max(140, 80 + 24 * len(names)),
        notes=[f"{left} more are not drawn."] if left > 0 else [],
    )


def box_places(boxes: Floats) -> list[Figure]:
    """Return figures of the position and size of boxes."""
    if not len(boxes):
        return []
    heights, edges = np.histogram(100 * np.sqrt(np.clip(boxes[:, 2] * boxes[:, 3], 0, 1)), 40, (0, 100))
    return [
        Figure(
            "box-places",
            "Where boxes lie in the picture",
            f"Map of the middles of {len(boxes)} boxes over the picture",
            [
                {
                    "type": "heatmap",
                    "z": box_cells(boxes).astype(int).tolist(),
                    "x": rounded((np.arange(COLUMNS) + 0.5) / COLUMNS, 4),
                    "y": rounded((np.arange(ROWS) + 0.5) / ROWS, 4),
                    "colorscale": VIRIDIS,
                    "colorbar": {"title": {"text": "boxes"}, "thickness": 10},
                }
            ],
            {
                "xaxis": {"title": {"text": "part of the width"}, "range": [0, 1]},
                "yaxis": {"title": {"text": "part of the height"}, "range": [1, 0]},
            },
        ),
        Figure(
            "box-sizes",
            "Sizes of boxes",
            f"Histogram of the sizes of {len(boxes)} boxes",
            [
                {
                    "type": "bar",
                    "x": rounded((edges[:-1] + edges[1:]) / 2, 2),
                    "y": heights.tolist(),
                    "marker": {"color": COLOURS[0]},
                }
            ],
            axes("root of the area, % of the picture's", "boxes", bargap=0.05),
        ),
    ]


def radar(look: RadarLook) -> list[Figure]:
    """Range over time, range over speed, targets."""
    found = [figure for number, one in enumerate(look.cubes) for figure in _cubes(one, number, len(look.cubes) > 1)]
    if len(look.targets):
        kept = look.targets[spread(len(look.targets), MOST_TARGETS)]
        said = np.isfinite(kept[:, 2]).any()
        colour: Any = rounded(kept[:, 2], 2) if said else COLOURS[0]
        scale = {"colorbar": {"title": {"text": "m/s"}, "thickness": 10}} if said else {}
        found.append(
            Figure(
                "targets",
                "Radar targets: range over time",
                f"Points of {len(kept)} radar targets by range over the drive, coloured by their speed",
                [
                    {
                        "type": "scatter",
                        "mode": "markers",
                        "x": rounded(kept[:, 0], 2),
                        "y": rounded(kept[:, 1], 2),
                        "marker": {
                            "size": 4,
                            "color": colour,
                            "colorscale": [[0, "#3b82c4"], [0.5, "#9aa2ad"], [1, "#cf4a5a"]],
                            **({"cmid": 0} if said else {}),
                            **scale,
                        },
                    }
                ],
                axes(DRIVE, "range, m"),
                height=300,
                notes=[f"{counted(look.clouds, 'message')} looked at, spread evenly."],
            )
        )
    return found


def _cubes(look: CubeLook, number: int, several: bool) -> list[Figure]:
    """Return the figures of the cubes of one sequence."""
    found, of, key = [], f" of {look.sequence}" if several else "", f"-{number}" if several else ""
    across, rows = "range, m" if look.metres else "range bin", spread(len(look.by_range), RANGE_ROWS)
    if look.by_range.size and len(look.seconds) > 1:
        middle = f"{len(look.seconds)} cubes from the middle of the drive, one after the other."
        found.append(
            Figure(
                f"range-time{key}",
                f"Radar cube: range over time{of}",
                f"Map of the largest magnitude by range over {len(look.seconds)} cubes{of}; things that move are lines",
                [_map(look.by_range[rows], look.seconds, rows * (look.metres or 1), "dB")],
                axes(f"{DRIVE}{of}" if several else DRIVE, across),
                height=300,
                notes=[] if look.whole else [middle],
            )
        )
    if look.by_speed.size:
        columns, middle_column = spread(look.by_speed.shape[1], SPEED_COLUMNS), look.by_speed.shape[1] // 2
        speeds = (columns - middle_column) * (look.speed or 1)
        found.append(
            Figure(
                f"range-doppler{key}",
                f"Radar cube: range over doppler{of}",
                f"Map of the magnitude of the loudest cube{of} by range and doppler; zero speed is in the middle",
                [_map(look.by_speed[np.ix_(rows, columns)], speeds, rows * (look.metres or 1), "dB")],
                axes("speed, m/s" if look.speed else "doppler bin", across),
                height=300,
            )
        )
    return found


def _map(z: Floats, x: ArrayLike, y: ArrayLike, unit: str) -> dict[str, Any]:
    low, high = np.percentile(z, (20, 99.9))
    return {
        "type": "heatmap",
        "z": [rounded(row, 1) for row in z],
        "x": rounded(x, 3),
        "y": rounded(y, 3),
        "zmin": round(float(low), 1),
        "zmax": round(float(max(high, low + 1)), 1),
        "colorscale": INFERNO,
        "colorbar": {"title": {"text": unit}, "thickness": 10},
    }


def lidar(found: Mapping[str, tuple[Floats, int]]) -> Figure | None:
    """Lidar points by range, by sequence."""
    every = np.concatenate([np.zeros(0), *(ranges for ranges, _ in found.values())])
    if not len(every):
        return None
    limit, clouds = float(max(np.percentile(every, 99.5), 1.0)), sum(number for _, number in found.values())
    data = []
    for number, (name, (ranges, own)) in enumerate(found.items()):
        heights, edges = np.histogram(ranges, 60, (0, limit))
        data.append(
            {
                "type": "bar",
                "x": rounded((edges[:-1] + edges[1:]) / 2, 2),
                "y": rounded(heights / own, 1),
                "name": text(cut(name)),
                "marker": {"color": COLOURS[(number + 2) % len(COLOURS)]},
                **({"opacity": 0.6} if len(found) > 1 else {}),
            }
        )
    return Figure(
        "lidar-ranges",
        "Lidar points by range",
        f"Histogram of the ranges of {len(every)} lidar points of {clouds} clouds",
        data,
        axes("range, m", "points a cloud", bargap=0.05, barmode="overlay"),
        notes=[f"{counted(clouds, 'cloud')} looked at, spread evenly."],
    )
