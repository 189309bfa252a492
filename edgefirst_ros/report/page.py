# SPDX-License-Identifier: Apache-2.0
"""Pages as self-contained HTML: one subject, or a table over several. No request leaves them.

Only scripts with known hashes may run, so text from outside cannot. The two doors of the page, the templates'
environment and the figures' JSON, make control characters and direction marks visible in every text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros import __version__
from edgefirst_ros.counts import LOSS
from edgefirst_ros.dataset.schema import UNUSED
from edgefirst_ros.dataset.summary import ALL, APART, describe_shares
from edgefirst_ros.dataset.verdict import Level
from edgefirst_ros.errors import escape_text
from edgefirst_ros.report.facts import Gathered
from edgefirst_ros.report.figures import Figure
from edgefirst_ros.report.sheet import make_filmstrip
from edgefirst_ros.sensors.calibration import WORDS

TEMPLATES = Path(__file__).with_name("templates")
SECTIONS = {
    "verdict": "Verdict",
    "topics": "Topics",
    "samples": "Samples",
    "time": "Time",
    "skew": "Skew",
    "track": "Track",
    "pictures": "Pictures",
    "radar": "Radar and lidar",
    "bytes": "Bytes",
}
MOST_OUTLINES = 6
"""Tracks on the first screen."""
WIDE = frozenset({"rates", "delays", "skew-time", "track"})
"""Figures that take the whole width."""
POLICY = "default-src 'none'; {scripts}style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def render_page(found: Gathered, title: str, *, assumed: bool = False, back: str | None = None) -> bytes:
    """Return the page of one subject; `back`: a relative link to the table over all."""
    from markupsafe import Markup

    facts, plotly, draw = found.facts, _load_plotly(), _load_text("draw.js")
    sequences = facts["sequences"]
    text = _make_environment().get_template("page.html.jinja").render(
        title=title,
        strip=make_filmstrip(found.sheet),
        outlines=[
            {"name": name, "points": _make_svg_points(way.metres)}
            for name, way in [*found.tracks.items()][:MOST_OUTLINES]
            if len(way.metres) > 1
        ],
        policy=POLICY.format(scripts=f"script-src {_hash(plotly)} {_hash(draw)}; "),
        style=Markup(_load_text("style.css")),  # noqa: S704  our own
        plotly=Markup(plotly),  # noqa: S704  the library's
        draw=Markup(draw),  # noqa: S704  our own
        sections=list(SECTIONS.items()),
        facts=facts,
        unused={of["topic"] for of in facts[UNUSED]},
        apart=APART.replace("see the notes", "see below"),
        figs={section: _group_figures(found.figures.get(section, ())) for section in SECTIONS},
        sheet=found.sheet,
        uri=_make_data_uri,
        gaps=found.gaps,
        many=len(sequences) > 1,
        shares=describe_shares,
        by_sequence=partial(_by_sequence, sequences),
        assumed=assumed and any(one["calibration"] == "identity" for one in sequences.values()),
        back=quote(back) if back else None,
        losses=LOSS,
        calibration=_find_worst_calibration(sequences.values(), "missing"),
        annotations=sum(facts["pictures"]["labels"].values()),
        megabytes=sum(one["bytes"] for one in facts["bytes"]["kinds"].values()) / 1e6,
        configuration=json.dumps(facts["bytes"]["configuration"], indent=1, ensure_ascii=False),
        version=__version__,
    )  # fmt: skip
    return bytes(text, "utf-8")


def render_table(rows: Sequence[dict[str, Any]], title: str) -> bytes:
    """Return the table over several; a row has the facts of `collect_quick`, `page` (a link or None) and `error`."""
    from markupsafe import Markup

    lines = []
    for row in rows:
        sequences = list(row.get("sequences", {}).values())
        level = "red" if row.get("error") else row["verdict"]["level"]
        bad = [one for one in row.get("verdict", {}).get("checks", ()) if one["level"] != "green"]
        said = [f"{one['check']}{' of ' if one['where'] else ''}{one['where']}: {one['found']}" for one in bad[:3]]
        more = f" (and {len(bad) - 3} more)" if len(bad) > 3 else ""
        lines.append(
            {
                "level": level,
                "findings": len(bad),
                "name": row["name"],
                "kind": row.get("kind", ""),
                "start": row.get("start"),
                "samples": row.get("samples"),
                "duration_s": row.get("duration_s"),
                "sensors": list(dict.fromkeys(name for one in sequences for name, n in one["sensors"].items() if n)),
                "groups": dict(sum((Counter(one["groups"]) for one in sequences), Counter())),
                "lost": row.get("lost"),
                "calibration": _find_worst_calibration(sequences, ""),
                "why": row.get("error") or "; ".join(said) + more,
                "page": quote(row["page"]) if row.get("page") else None,
            }
        )
    order = {level.word: -level for level in Level}
    numbers = Counter(str(one["level"]) for one in lines)
    seconds = sum(float(one["duration_s"] or 0) for one in lines)
    text = _make_environment().get_template("table.html.jinja").render(
        title=title,
        kinds=len({one["kind"] for one in lines if one["kind"]}) > 1,
        groups=any(one["groups"] for one in lines),
        shares=describe_shares,
        policy=POLICY.format(scripts=""),
        style=Markup(_load_text("style.css")),  # noqa: S704  our own
        rows=sorted(lines, key=lambda one: (order[str(one["level"])], -one["findings"], str(one["name"]))),
        numbers={level.word: numbers[level.word] for level in Level},
        samples=sum(int(one["samples"] or 0) for one in lines),
        length=f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min",
        version=__version__,
    )  # fmt: skip
    return bytes(text, "utf-8")


def _find_worst_calibration(sequences: Iterable[Mapping[str, Any]], default: str) -> str:
    """Return the worst word about the calibration of some sequences; `default` without any."""
    return max((one["calibration"] for one in sequences if one["calibration"]), key=WORDS.index, default=default)


def _make_svg_points(metres: NDArray[np.float64]) -> str:
    """Return a track as points of SVG within 100 by 100, north up."""
    kept = metres[np.unique(np.linspace(0, len(metres) - 1, min(len(metres), 200)).astype(int))]
    extent = float(np.ptp(kept, axis=0).max()) or 1.0
    scaled = 50 + 100 * (kept - (kept.min(axis=0) + kept.max(axis=0)) / 2) / extent
    return " ".join(f"{x:.1f},{100 - y:.1f}" for x, y in scaled.tolist())


def _by_sequence(sequences: Mapping[str, Any], what: str, total: Any) -> list[tuple[str, Any]]:
    """Return a table's values for each sequence and, of several, their sum at the end."""
    apart = [(name, one[what]) for name, one in sequences.items()] if len(sequences) > 1 else []
    return [*apart, (ALL, total)]


def _group_figures(drawn: Sequence[Figure]) -> list[dict[str, Any]]:
    """Return the figures of a section, as wide as the page if they are WIDE, name sequences, or have no neighbour."""
    from markupsafe import Markup

    narrow = [one.key for one in drawn if one.key not in WIDE and not one.layout.get("annotations")]
    narrow = narrow[: len(narrow) // 2 * 2]
    found = []
    for one in drawn:
        said = _escape_value({"data": one.data, "layout": one.layout, "height": one.height})
        escaped = json.dumps(said, separators=(",", ":"))
        for character in "&<>":
            escaped = escaped.replace(character, f"\\u{ord(character):04x}")
        safe = Markup(escaped)  # noqa: S704  no character of it can end the element
        found.append(vars(one) | {"id": f"figure-{one.key}", "json": safe, "wide": one.key not in narrow})
    return found


def _escape_value(value: Any) -> Any:
    """Return a value of a template or of JSON with the control characters of its texts escaped."""
    if type(value) is str:  # not Markup, which is ours
        return escape_text(value)
    if isinstance(value, dict):
        return {_escape_value(key): _escape_value(item) for key, item in value.items()}
    return [_escape_value(item) for item in value] if isinstance(value, list) else value


def _make_data_uri(picture: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


@cache
def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _load_plotly() -> str:
    """Return the library's JavaScript from its file: importing it for get_plotlyjs takes longer than all else here."""
    spec = find_spec("plotly")
    (folder, *_) = (spec and spec.submodule_search_locations) or [""]
    return Path(folder, "package_data", "plotly.min.js").read_text(encoding="utf-8")


@cache
def _load_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _make_environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(TEMPLATES)
    return Environment(loader=loader, autoescape=True, finalize=_escape_value, undefined=StrictUndefined)
