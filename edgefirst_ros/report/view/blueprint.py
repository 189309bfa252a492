# SPDX-License-Identifier: Apache-2.0
"""Layout of the viewer: camera, 3D view, cube, map, skew."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from edgefirst_ros.report.drawing import PAPER


def blueprint(entities: Collection[str]) -> Any:
    """Return the layout for the entities that there are: `camera`, `lidar`, `radar`, `cube`, `map`, `skew`."""
    import rerun.blueprint as rrb

    left: list[Any] = []
    right: list[Any] = []
    below: list[Any] = []
    if "camera" in entities:
        left.append(rrb.Spatial2DView(origin="camera", contents="camera/**", name="Camera"))
    if "skew" in entities:
        left.append(rrb.TimeSeriesView(origin="skew", name="Skew, ms"))
    if {"lidar", "radar", "camera"} & set(entities):
        right.append(
            rrb.Spatial3DView(
                origin="/", contents=["/lidar/**", "/radar/**", "/camera"], background=PAPER, name="In space"
            )
        )
    if "cube" in entities:
        below.append(rrb.TensorView(origin="cube", name="Radar cube"))
    if "map" in entities:
        below.append(rrb.MapView(origin="map", name="Map"))
    if below:
        right.append(rrb.Horizontal(*below))
    columns = [rrb.Vertical(*column, row_shares=_shares(column)) for column in (left, right) if column]
    return rrb.Blueprint(rrb.Horizontal(*columns), rrb.SelectionPanel(state="collapsed"))


def _shares(column: list[Any]) -> list[int]:
    return [2, *[1] * (len(column) - 1)]
