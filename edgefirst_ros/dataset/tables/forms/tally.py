# SPDX-License-Identifier: Apache-2.0
"""Counts by reason what changes and what is lost when rows are converted."""

from __future__ import annotations

from collections import Counter


class Tally:
    """`changed`: values that say the same in another way; `lost`: values that could not be kept; `notes`: the rest.

    A table may be gone over several times: only what comes before `freeze` counts.
    """

    def __init__(self) -> None:
        self.changed: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.notes: dict[str, None] = {}
        self._frozen = False

    def change(self, reason: str, number: int) -> None:
        """Count values that changed."""
        if number and not self._frozen:
            self.changed[reason] += number

    def lose(self, reason: str, number: int) -> None:
        """Count values that could not be kept."""
        if number and not self._frozen:
            self.lost[reason] += number

    def note(self, text: str) -> None:
        """Add a note, once."""
        self.notes[text] = None

    def freeze(self) -> None:
        """Ignore all further counts."""
        self._frozen = True
