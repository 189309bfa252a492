# SPDX-License-Identifier: Apache-2.0
"""Real recordings and the independent judge, where they are at hand beside the project."""

from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared"
REAL = sorted((SHARED / "data").glob("*.mcap"))


def dataset(outcome):
    """OUT/NAME of a conversion's outcome."""
    return outcome.paths.out / outcome.paths.name
