# SPDX-License-Identifier: Apache-2.0
"""Loss report: where each column and sensor went in a foreign format."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NO_HOME = "no home"
"""Of what has no place in the other system."""


@dataclass(frozen=True, slots=True)
class Line:
    """One column or sensor: where it went (empty: nowhere), and what of it is lost (empty: nothing)."""

    what: str
    where: str
    lost: str = ""
    number: int | None = None
    """Number of its values or members, if they can be counted."""


@dataclass(slots=True)
class Report:
    """The loss report of an export or import: `lines` in the order in which they were added."""

    system: str
    lines: list[Line] = field(default_factory=list)

    def add(self, what: str, where: str, lost: str = "", number: int | None = None) -> None:
        """Add a line."""
        self.lines.append(Line(what, where, lost, number))

    def plain(self) -> dict[str, Any]:
        """Return the report, ready for JSON."""
        return {
            "system": self.system,
            "lines": [
                {"what": line.what, "where": line.where, "lost": line.lost}
                | ({"number": line.number} if line.number is not None else {})
                for line in self.lines
            ],
        }

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        text = json.dumps(self.plain(), indent=1, ensure_ascii=False) + "\n"
        path.write_bytes(text.encode("utf-8", "backslashreplace"))  # half a surrogate pair: JSON's own escape
