# SPDX-License-Identifier: Apache-2.0
"""Control characters and direction marks of a user's data: visible in pages, never raw."""

import json
import re
import unicodedata
from html import unescape

import handmade_dataset as made
import pyarrow as pa
import pytest
from plotly.offline import get_plotlyjs

from edgefirst_ros.report.run import report

HOSTILE = "\x1b]0;\u202e\u2066\x85\u200f"
SHOWN = "\\x1b]0;\\u202e\\u2066\\x85\\u200f"
"""The same, as a terminal shows it."""
RENDERED = (
    "title", "folder", "sequence", "label", "group", "degradation", "topic", "reason", "other reason", "left out",
    "why", "source", "sha", "damage", "other clock", "key", "value", "software", "version", "schema",
)  # fmt: skip
"""Texts of the data that a page shows."""


def hostile(what):
    return f"{what}{HOSTILE}"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Page and table of a dataset whose every text is hostile."""
    folder = tmp_path_factory.mktemp("in") / hostile("folder")
    folder.mkdir()
    parts = made.good()
    parts.annotation_metadata["schema_version"] = hostile("schema")
    parts.annotation_schema = parts.annotation_schema.append(pa.field("degradation", pa.large_string()))
    name = hostile("sequence")
    parts.members = {
        key if "_007" in key else key.replace(made.SEQUENCE, name): data for key, data in parts.members.items()
    }
    for row in (*parts.annotations, *parts.frames):
        row["name"] = made.SEQUENCE if row["frame"] == 7 else name
    for row in parts.annotations:
        row.update(group=hostile("group"), degradation=hostile("degradation"))
        if row.get("label"):
            row["label"] = hostile("label")
    dropped = {hostile("reason"): 5, "damaged": 1, hostile("other reason"): 1}
    metadata = {
        "sources": [
            {
                "file": hostile("source"),
                "size": 1,
                "sha256": hostile("sha"),
                "damage": [{"offset": 1, "what": hostile("damage"), "loss": True}],
            }
        ],
        "configuration": {hostile("key"): [hostile("value")], "tolerance": 0.1},
        "software": {"name": hostile("software"), "version": hostile("version")},
        "time_base": {"base": hostile("base"), "topics": {"/t": hostile("other clock")}},
        "camera_info": made.CAMERA_INFO | {"distortion_model": hostile("model")},
        "counts": {hostile("topic"): {"seen": 10, "written": 3, "dropped": dropped}},
        "left_out": [{"file": hostile("left out"), "size": 1, "why": hostile("why")}],
    }
    parts.frames_metadata |= {key: json.dumps(value) for key, value in metadata.items()}
    made.write(folder, parts)
    out = tmp_path_factory.mktemp("out")
    one = report([folder / "data.zip"], out / "page.html", title=hostile("title")).pages[0]
    done = report([folder], out / "table.html", title=hostile("title"))
    return {"page": one, "table": done.table, "page beside": done.pages[0]}


def texts(path):
    """The page without the library's own script, and all texts of its figures as a browser reads them."""
    html = path.read_text(encoding="utf-8").replace(get_plotlyjs(), "")
    figures = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html)
    assert figures or "table" in path.name
    return [html, *(text for one in figures for text in texts_of(json.loads(one)))]


def texts_of(value):
    if isinstance(value, dict):
        return [text for item in (*value, *value.values()) for text in texts_of(item)]
    return [text for item in value for text in texts_of(item)] if isinstance(value, list) else [str(value)]


@pytest.mark.parametrize("which", ["page", "table", "page beside"])
def test_no_control_character_of_a_users_data_is_raw(written, which):
    for text in texts(written[which]):
        steering = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c != "\n"}
        assert not steering


@pytest.mark.parametrize("what", RENDERED)
def test_every_text_of_a_users_data_is_shown_with_escapes(written, what):
    html, *figures = texts(written["page"])
    shown = f"{what}{SHOWN}"
    configured = shown.replace("\\x1b", "\\u001b")  # the configuration is shown as JSON
    assert any(shown in text or configured in text for text in (unescape(html), *figures))
