# SPDX-License-Identifier: Apache-2.0
"""The nested form: JSON with a sample an object, and its annotations within; read here, piece by piece.

A bare array of samples is 2025.10; an object with `schema_version` and `samples` is 2026.04 or later.
Source: EdgeFirst Annotation Schema 2026.04 ("JSON field", "JSON representation").
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from edgefirst_ros.dataset.storage.lock import open_file
from edgefirst_ros.dataset.tables.forms.flatten import Flattener
from edgefirst_ros.dataset.tables.forms.tally import Tally
from edgefirst_ros.errors import DatasetError

CHUNK = 1 << 21
"""Characters that are read at once."""
LARGEST = 1 << 28
"""Characters of the largest sample, and of everything beside the samples."""
LAYOUT = "ltwh"
"""Box layout of a file that does not state one."""
BLANK = " \t\n\r"


class NestedFile:
    """A file of nested JSON as a table in working types: `schema`, `metadata`, `batches`; `size` in bytes.

    `bare`: a mere array. The text is read in pieces; what is kept are the columns.
    Raises DatasetError naming the sample that is wrong.
    """

    def __init__(self, path: Path, tally: Tally) -> None:
        self.path = path
        rows = Flattener(path, tally)
        try:
            with open(open_file(path), encoding="utf-8-sig", newline="") as file, _without_collector():
                self.size = os.fstat(file.fileno()).st_size
                document = _Document(file, rows)
                document.read()
            self.bare = document.bare
            self.metadata: dict[str, str] = (
                {} if self.bare else {k: _text(value) for k, value in document.beside.items() if value is not None}
            )
            "".join(part for item in self.metadata.items() for part in item).encode()  # may be no Unicode
            self._table = rows.finish(self.metadata.get("box2d_format", LAYOUT))
        except (OSError, ValueError, RecursionError) as error:
            raise DatasetError(f"{path}: cannot be read as JSON annotations: {error}") from error
        self.schema = self._table.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        yield from self._table.to_batches(max_chunksize=1 << 16)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Values of JSON hold no cycles; the collector would walk over all of them again and again, for a quarter more."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


class _Document:
    """Walks over the text of a file: values are decoded one after the other, samples are handed on."""

    def __init__(self, file: Any, rows: Flattener) -> None:
        self.beside: dict[str, Any] = {}
        self.bare = False
        self._file = file
        self._rows = rows
        self._text = ""
        self._at = 0
        self._decode = json.JSONDecoder().raw_decode

    def read(self) -> None:
        first = self._next()
        if first == "[":
            self.bare = True
            self._at += 1
            self._samples()
        elif first == "{":
            self._at += 1
            self._object()
        else:
            raise ValueError(f"begins with {first!r}, expected an array of samples or an object with 'samples'")
        if self._next():
            raise ValueError(f"there is more after the end: {self._text[self._at : self._at + 20]!r}")

    def _object(self) -> None:
        seen: set[str] = set()
        while not self._closes("}", first=not seen):
            key = self._value()
            if not isinstance(key, str) or key in seen:
                raise ValueError(f"key {key!r} is not text or comes twice")
            seen.add(key)
            self._take(":")
            if key == "samples":
                self._take("[")
                self._samples()
            else:
                self.beside[key] = self._value()
        if "samples" not in seen:
            raise ValueError("an object without 'samples'")

    def _samples(self) -> None:
        first = True
        while not self._closes("]", first=first):
            first = False
            self._rows.add(self._value())

    def _closes(self, end: str, *, first: bool) -> bool:
        """Go to the next item; True behind the last."""
        found = self._next()
        if found == end:
            self._at += 1
            return True
        if not first:
            self._take(",")
        return False

    def _take(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise ValueError(f"found {found!r} where {wanted!r} was expected, after {self._rows.samples} samples")
        self._at += 1

    def _next(self) -> str:
        """Return the next character that is not blank; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in BLANK:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return ""

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # cut where the piece ends, or wrong: more text tells
                if self._more():
                    continue
                raise ValueError(f"{error.msg} in what follows {self._rows.samples} samples") from error
            if end == len(self._text):
                end -= self._at
                if self._more():  # a number may go on
                    continue
            self._at = end
            return value

    def _more(self) -> bool:
        left = len(self._text) - self._at
        if left > LARGEST:
            raise ValueError(f"a value of more than {LARGEST} characters after {self._rows.samples} samples")
        piece = self._file.read(max(CHUNK, left))
        self._text = self._text[self._at :] + piece
        self._at = 0
        return bool(piece)


def _text(value: Any) -> str:
    """Return a value of the metadata, which are text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
