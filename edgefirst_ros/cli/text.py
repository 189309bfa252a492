# SPDX-License-Identifier: Apache-2.0
"""Text for people on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from edgefirst_ros.errors import EdgeFirstError, counted, printable


def one_line(text: str) -> str:
    """Return text as it is printed, with line ends escaped: a name must not begin a line of its own."""
    return printable(text).replace("\n", "\\n")


def say(text: str) -> None:
    """Print a line.

    Raises EdgeFirstError if standard output cannot be written.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(printable(text).encode(encoding, "replace").decode(encoding), flush=True)
    except OSError as error:
        with open(os.devnull, "wb") as nowhere:  # for what is buffered
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise EdgeFirstError(f"standard output: cannot write: {error.strerror}; what was done is done") from error


def repeated(members: int, size: int) -> str:
    """Return in words how many members repeat the message of the sample before, and their bytes."""
    return f"{counted(members, 'member')} repeat the sample before: {size / 1e6:.1f} MB"


def size_of(number: float) -> str:
    """Return a number of bytes in words: `1.2 MB`, `3.45 GB`."""
    return f"{number / 1e9:.2f} GB" if number >= 1e9 else f"{number / 1e6:.1f} MB"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns, the first and the last one left-aligned, the others right-aligned."""
    cleaned = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[n]) for row in cleaned) for n in range(len(head))]
    for row in cleaned:
        cells = [
            cell.rjust(width) if n and (n < len(row) - 1 or _is_number(rows, n)) else cell.ljust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        say("  ".join(cells).rstrip())


def _is_number(rows: Sequence[Sequence[str]], column: int) -> bool:
    return all(row[column].replace(".", "").replace(",", "").isdigit() for row in rows)
