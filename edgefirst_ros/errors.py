# SPDX-License-Identifier: Apache-2.0
"""Errors raised on purpose; each message names the file or topic, the values found and expected, and the remedy."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

TRACEBACK = "EDGEFIRST_TRACEBACK"
"""Environment variable: if set, the command prints errors with their traceback."""


LONGEST = 200
"""Most characters of a library's message about memory, and of a listed name."""
LISTED = 20
"""Most names that are listed; of further ones the number is given."""
MOST_BESIDE = 5
"""Most names that a message lists of those beside a missing path."""
_NO_ROOM = ("failed to map segment", "cannot allocate", "cannot map", "out of memory")
"""Messages of the dynamic loader, in lower case."""
_ADDRESS = re.compile(r" ?<[\w.]+ object at 0x[0-9a-f]+>")


class EdgeFirstError(Exception):
    """Base of all errors raised on purpose; `exit_code` is that of the command line."""

    exit_code = 1


def describe_any(error: BaseException) -> str:
    """Return the message of an error raised on purpose; one line for an OSError of the system, or a bug."""
    if isinstance(error, EdgeFirstError):
        return str(error)
    text = quote_error(error)
    if is_out_of_memory(error):
        return f"out of memory: raise its limit (ulimit -v) or free some{'; ' if text else ''}{text[:LONGEST]}"
    if isinstance(error, OSError):  # the fault of a disk or a folder, not of the program
        gone = "; the current folder was removed: change to another one"
        with suppress(OSError):
            gone = "" if os.stat(".").st_nlink else gone
        return f"the system refuses: {text}{gone}"
    return f"unexpected {type(error).__name__}{': ' if text else ''}{text}; --traceback before the verb shows where"


def quote_error(error: BaseException) -> str:
    """Return the message of a library as one line, without the addresses of its objects: they differ with every run."""
    return _ADDRESS.sub("", " ".join(str(error).split()))


def is_out_of_memory(error: BaseException) -> bool:
    """True if memory ran out, also while a library was being loaded."""
    if isinstance(error, OSError):  # as of a folder of modules that is listed
        return error.errno == errno.ENOMEM
    if isinstance(error, ImportError):
        return any(sign in str(error).lower() for sign in _NO_ROOM)
    return isinstance(error, MemoryError)


def escape_text(text: str) -> str:
    """Return text with control characters and direction marks escaped: foreign names may contain anything."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def escape_line(text: str) -> str:
    """Return text as it is printed, with line ends escaped: a name must not begin a line of its own."""
    return escape_text(text).replace("\n", "\\n")


def show_path(path: str | os.PathLike[str]) -> str:
    """Return a path relative to the current folder if it is in it, else as it is."""
    text, here = os.fspath(path), os.getcwd()
    return os.path.relpath(text, here) if text.startswith(os.path.join(here, "")) else text


Text: TypeAlias = "Iterable[str | tuple[Sequence[str], Sequence[Sequence[str]]]]"
"""Outcome for people: lines, and tables as (head, rows)."""


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: `1 sample`, `2 samples`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_size(number: float) -> str:
    """Return a number of bytes in words: `12.3 kB`, `1.2 MB`, `3.45 GB`."""
    unit, power, digits = ("GB", 9, 2) if number >= 1e9 else ("MB", 6, 1) if number >= 1e5 else ("kB", 3, 1)
    return f"{number / 10**power:.{digits}f} {unit}"


def join_names(names: Iterable[object], most: int) -> str:
    """Return names as one text, `a, b`; of those after the first `most` only the number."""
    every = list(map(str, names))
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


def sort_nearest(name: str, known: Iterable[str]) -> str:
    """Return known names as one text, those most like `name` first, of numbers the nearest; `none` without any."""
    from difflib import SequenceMatcher

    def distance(one: str) -> tuple[float, str]:
        if name.isdecimal() and one.isdecimal():
            return abs(float(one) - float(name)), one
        return -SequenceMatcher(None, name.casefold(), one.casefold()).ratio(), one

    near = sorted(known, key=distance)
    return join_names([one[:LONGEST] for one in near], LISTED) or "none"


def without_attribute(owner: object, name: str, instead: Mapping[str, str]) -> AttributeError:
    """Return the error for an absent attribute, with what to use instead."""
    hint = f"; use {instead[name]}" if name in instead else ""
    text = f"{type(owner).__name__!r} object has no attribute {name!r}{hint}"
    return AttributeError(text, name=name, obj=owner)


def list_beside(missing: Path) -> str:
    """Return `; beside it: ...`: names that begin like that of a missing path, else like it; or an empty text."""
    from difflib import get_close_matches

    with suppress(OSError):
        stem, names = missing.stem.casefold(), os.listdir(missing.parent)
        begun = get_close_matches(
            missing.name, [one for one in names if one.casefold().startswith(stem)], MOST_BESIDE, 0.4
        )
        if near := begun or get_close_matches(missing.name, names, MOST_BESIDE, 0.8):
            return f"; beside it: {', '.join(near)}"
    return ""


class UsageError(EdgeFirstError):
    """Wrong options or configuration."""

    exit_code = 2


def require_path(path: str | os.PathLike[str]) -> str:
    """Return a path as text. Raises UsageError for any other object, such as samples, and an empty text."""
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"expected a Dataset, a recording or a path, got {type(path).__name__}")
    if not os.fspath(path):  # as a path it would be this folder
        raise UsageError("expected a Dataset, a recording or a path, got ''")
    return os.fspath(path)


class RecordingError(EdgeFirstError):
    """A recording that cannot be used at all."""


class DatasetError(EdgeFirstError):
    """A dataset that cannot be read or written."""


@contextmanager
def explain_errors(text: str, *kinds: type[BaseException]) -> Iterator[None]:
    """Turn an error of these kinds inside into a DatasetError of `text` and its message."""
    try:
        yield
    except kinds as error:
        raise DatasetError(f"{text}: {error}") from error


class TooLargeError(DatasetError):
    """A file with more rows or bytes than the limits allow; it need not be broken."""


class StorageError(DatasetError):
    """The disk is full, broken, read-only or gone. The files written before can still be completed."""


class ObjectStoreError(StorageError):
    """Object storage refuses a request, or does not answer in time."""


class InUseError(DatasetError):
    """Another writer is at work on a dataset."""


class MessageError(EdgeFirstError):
    """One message that cannot be decoded or stored; it is counted under `reason`, never fatal."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


def describe_extra(purpose: str, extra: str, found: object) -> str:
    """Return in words that `purpose` needs a library of an extra, and the commands that install it.

    `purpose`: a command or file, such as `report`; `found`: the ImportError, or the name of the library.
    """
    why = str(found) if isinstance(found, ImportError) else f"{found} is not installed"
    return (
        f"{purpose} needs the extra {extra!r} ({why}): pip install 'edgefirst-ros[{extra}]', "
        f"or from a checkout: pip install '.[{extra}]'"
    )


def need(purpose: str, extra: str, *libraries: str) -> None:
    """Raise EdgeFirstError with the commands that install an extra, if one of its libraries is not installed."""
    from importlib.util import find_spec

    for name in libraries:
        if find_spec(name) is None:
            raise EdgeFirstError(describe_extra(purpose, extra, name))


def describe_error(error: Exception) -> str:
    """Return the message of an error, with its class if it was not raised on purpose."""
    return str(error) if isinstance(error, EdgeFirstError) else f"{type(error).__name__}: {error}"
