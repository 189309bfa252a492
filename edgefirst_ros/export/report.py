# SPDX-License-Identifier: Apache-2.0
"""What became of each column and sensor in another system's form."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One column or sensor: where it went (empty: it has no home), and what of it is lost (empty: nothing)."""

    what: str
    where: str
    lost: str = ""
    number: int | None = None
    """How many of them there were, where they can be counted."""


@dataclass(slots=True)
class Report:
    """The loss report of an export or import: `lines` in the order in which they were added."""

    system: str
    lines: list[Line] = field(default_factory=list)

    def add(self, what: str, where: str, lost: str = "", number: int | None = None) -> None:
        """Say what became of something."""
        self.lines.append(Line(what, where, lost, number))

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "system": self.system,
            "lines": [
                {"what": line.what, "where": line.where, "lost": line.lost}
                | ({"number": line.number} if line.number is not None else {})
                for line in self.lines
            ],
        }

    def write(self, path: Path) -> None:
        """Put it into the output."""
        text = json.dumps(self.plain(), indent=1, ensure_ascii=False) + "\n"
        path.write_bytes(text.encode("utf-8", "backslashreplace"))  # half a surrogate pair: JSON's own escape
