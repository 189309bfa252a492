# SPDX-License-Identifier: Apache-2.0
"""Ratios of all runs by commit and kind of machine, kept in history.json and drawn as one page: a regression shows.

Ratios alone: what the two programs of a comparison took depends on the hour, what one took beside the other does not.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from suite.table import Line, processor

from edgefirst_ros import __version__

HISTORY = Path(__file__).resolve().parents[1] / "history.json"
WORSE = 1.1
"""How much worse than in the run before a median is told, where the ranges of both runs do not meet."""


def machine() -> str:
    """Kind of this machine: its processor, and how many of them this process may use."""
    return f"{processor()}, {len(os.sched_getaffinity(0))} cores"


def comparisons(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with a ratio. Raises ValueError where two of them have one name."""
    kept: dict[str, Line] = {}
    for line in lines:
        if line.ratios and not line.unit:
            if line.what in kept:
                raise ValueError(f"two lines are called {line.what!r}: the first would be lost")
            kept[line.what] = line
    return [*kept.values()]


def entry(lines: Sequence[Line], number: int) -> dict[str, Any]:
    """One run: {what: [median, lowest, highest]} of its comparisons, with commit, machine and load."""
    asked = ["git", "-C", str(HISTORY.parent), "describe", "--always", "--dirty"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "version": __version__,
        "commit": commit,
        "day": datetime.now(timezone.utc).date().isoformat(),
        "machine": machine(),
        "load": round(os.getloadavg()[0], 1),
        "rounds": number,
        "ratios": {
            line.what: [round(value, 3) for value in (line.ratio, min(line.ratios), max(line.ratios))]
            for line in comparisons(lines)
        },
    }


def regressions(before: Sequence[dict[str, Any]], now: dict[str, Any], lines: Sequence[Line]) -> list[str]:
    """What is worse than in the last run on this kind of machine that measured it, in words."""
    said = []
    upward = {line.what for line in lines if line.at_least is not None}
    for what, (median, low, high) in now["ratios"].items():
        known = [one for one in before if one["machine"] == now["machine"] and what in one["ratios"]]
        if not known:
            continue
        earlier = known[-1]["ratios"][what]
        worse = median * WORSE < earlier[0] and high < earlier[1]
        if what not in upward:
            worse = median > earlier[0] * WORSE and low > earlier[2]
        if worse:
            said.append(f"{what}: {earlier[0]} at {known[-1]['commit']}, now {median}")
    return said


def read(path: Path = HISTORY) -> list[dict[str, Any]]:
    """Return all runs, the first one first."""
    return json.loads(path.read_text()) if path.exists() else []  # type: ignore[no-any-return]


def write(runs: Sequence[dict[str, Any]], path: Path = HISTORY) -> None:
    """Write all runs, one a line, so that a change of the file shows what came."""
    path.write_text("[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in runs) + "\n]\n")


def page(runs: Sequence[dict[str, Any]]) -> str:
    """Return HTML with a figure for every comparison: its ratio by run, a line for each kind of machine."""
    import plotly.graph_objects as go
    from plotly.io import to_html

    names = dict.fromkeys(what for one in runs for what in one["ratios"])
    kinds = dict.fromkeys(one["machine"] for one in runs)
    figures = []
    for what in names:
        figure = go.Figure(layout={"title": what, "height": 300, "yaxis": {"rangemode": "tozero"}})
        for kind in kinds:
            mine = [one for one in runs if one["machine"] == kind and what in one["ratios"]]
            middle = [one["ratios"][what][0] for one in mine]
            spread = {
                "array": [one["ratios"][what][2] - m for one, m in zip(mine, middle, strict=True)],
                "arrayminus": [m - one["ratios"][what][1] for one, m in zip(mine, middle, strict=True)],
            }
            at = [f"{one['day']} {one['commit']}" for one in mine]
            figure.add_scatter(x=at, y=middle, error_y=spread, name=kind, mode="lines+markers", showlegend=True)
        figures.append(to_html(figure, full_html=False, include_plotlyjs=not figures))
    head = "<!doctype html><html lang=en><meta charset=utf-8><title>edgefirst_ros: benchmark</title>"
    return f"{head}<h1>Ratios by run</h1>\n" + "\n".join(figures) + "</html>\n"
