# SPDX-License-Identifier: Apache-2.0
"""Figures of what members and annotations hold: labels, boxes, radar, lidar, bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from edgefirst_ros.errors import counted
from edgefirst_ros.report.figures import COLOURS, DRIVE, VIRIDIS, Figure, axes, text
from edgefirst_ros.report.labels import COLUMNS, MOST_LABELS, ROWS, box_cells
from edgefirst_ros.report.look import RadarLook
from edgefirst_ros.report.series import Floats, rounded, spread

MOST_TARGETS = 4000
INFERNO = [[0, "#000004"], [0.2, "#420a68"], [0.4, "#932667"], [0.6, "#dd513a"], [0.8, "#fca50a"], [1, "#fcffa4"]]
RANGE_ROWS, SPEED_COLUMNS = 200, 160
"""Most rows and columns of a map of a cube."""


def bars(key: str, title: str, alt: str, values: dict[str, float], unit: str) -> Figure | None:
    """Bars that lie, one a name."""
    if not values:
        return None
    names = list(values)[:MOST_LABELS][::-1]
    left = len(values) - len(names)
    return Figure(
        key,
        title,
        alt,
        [
            {
                "type": "bar",
                "orientation": "h",
                "y": [text(_cut(name)) for name in names],
                "x": [values[name] for name in names],
                "marker": {"color": COLOURS[0]},
                "hovertemplate": "%{y}: %{x}<extra></extra>",
            }
        ],
        axes(unit, "", margin={"l": 10}),
        height=max(140, 80 + 24 * len(names)),
        notes=[f"{left} more are not drawn."] if left > 0 else [],
    )


def _cut(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:40]}..."


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
    found = []
    if look.by_range.size and len(look.seconds) > 1:
        rows = spread(len(look.by_range), RANGE_ROWS)
        found.append(
            Figure(
                "range-time",
                "Radar cube: range over time",
                f"Map of the largest magnitude by range over {len(look.seconds)} cubes; things that move are lines",
                [_map(look.by_range[rows], look.seconds, rows * (look.metres or 1), "dB")],
                axes(DRIVE, "range, m" if look.metres else "range bin"),
                height=300,
                notes=[]
                if look.whole
                else [f"{len(look.seconds)} cubes from the middle of the drive, one after the other."],
            )
        )
    if look.by_speed.size:
        rows, columns = spread(look.by_speed.shape[0], RANGE_ROWS), spread(look.by_speed.shape[1], SPEED_COLUMNS)
        middle = look.by_speed.shape[1] // 2
        found.append(
            Figure(
                "range-doppler",
                "Radar cube: range over doppler",
                "Map of the magnitude of the loudest cube by range and doppler; zero speed is in the middle",
                [
                    _map(
                        look.by_speed[np.ix_(rows, columns)],
                        (columns - middle) * (look.speed or 1),
                        rows * (look.metres or 1),
                        "dB",
                    )
                ],
                axes("speed, m/s" if look.speed else "doppler bin", "range, m" if look.metres else "range bin"),
                height=300,
            )
        )
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


def lidar(ranges: Floats, clouds: int) -> Figure | None:
    """Lidar points by range."""
    if not len(ranges):
        return None
    limit = float(max(np.percentile(ranges, 99.5), 1.0))
    heights, edges = np.histogram(ranges, 60, (0, limit))
    return Figure(
        "lidar-ranges",
        "Lidar points by range",
        f"Histogram of the ranges of {len(ranges)} lidar points of {clouds} clouds",
        [
            {
                "type": "bar",
                "x": rounded((edges[:-1] + edges[1:]) / 2, 2),
                "y": rounded(heights / clouds, 1),
                "marker": {"color": COLOURS[2]},
            }
        ],
        axes("range, m", "points a cloud", bargap=0.05),
        notes=[f"{counted(clouds, 'cloud')} looked at, spread evenly."],
    )
