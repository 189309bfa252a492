# SPDX-License-Identifier: Apache-2.0
"""Text for people on standard output."""

from __future__ import annotations

from collections.abc import Sequence


def plain(text: str) -> str:
    """The text without control characters, which a recording's names may hold."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def say(text: str) -> None:
    """Print a line."""
    print(text.encode("utf-8", "replace").decode("utf-8"))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns: the first and the last one from the left, numbers from the right."""
    cleaned = [[plain(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[n]) for row in cleaned) for n in range(len(head))]
    for row in cleaned:
        cells = [
            cell.rjust(width) if n and (n < len(row) - 1 or _is_number(rows, n)) else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        say("  ".join(cells).rstrip())


def _is_number(rows: Sequence[Sequence[str]], column: int) -> bool:
    return all(row[column].replace(".", "").replace(",", "").isdigit() for row in rows)
