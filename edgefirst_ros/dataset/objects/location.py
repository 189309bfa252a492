# SPDX-License-Identifier: Apache-2.0
"""Locations of objects: s3://, gs://, az://, file:// and paths; what storage lists of one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgefirst_ros.errors import ObjectStoreError, UsageError, escape_text, require_path

LOCAL = "file://"
SCHEMES = ("s3", "gs", "az", "file")
_SQUEEZED = re.compile(r"^(s3|gs|az):/{1,2}")
"""The URI of a bucket, also as `Path` writes it."""
_FILE = re.compile(r"^file:/(?!/)")
_QUERY = re.compile(r"\?[^/?]*=")
"""The begin of a query, such as a signature; without a value a question mark is part of a glob or a name."""
PATIENCE = 60.0
"""Storage is given up after this time without an answer, s."""
BAG = "metadata.yaml"
"""File that a rosbag2 folder has."""
BLOCK = 1 << 20
"""Bytes of one transfer, which storage must send or receive within its patience."""


class ReplacedError(ObjectStoreError):
    """An object is not the one that was listed."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as it is listed."""

    key: str
    size: int
    """Bytes."""
    etag: str
    """Changes whenever the object is replaced; without quotes."""


@dataclass(frozen=True, slots=True)
class Location:
    """An object, or a prefix of keys: `root` is a bucket's URI or `file://`, `key` a path in it.

    Keys have no slash at their ends, and no empty, `.` or `..` part.
    """

    root: str
    key: str

    @classmethod
    def of(cls, text: str | os.PathLike[str]) -> Location:
        """Return the location that a user names.

        Raises UsageError for another scheme, credentials in it, or an invalid key.
        """
        given = _FILE.sub("file:///", _SQUEEZED.sub(r"\1://", os.fspath(text)))
        scheme, separator, rest = given.partition("://")
        if not separator:
            return cls(LOCAL, os.path.abspath(os.path.expanduser(given)).strip("/"))
        if scheme not in SCHEMES:
            known = ", ".join(f"{one}://" for one in SCHEMES)
            raise UsageError(f"{escape_text(scheme)}://: a scheme that is not known; known: {known}")
        bucket, _, key = rest.partition("/")
        if "@" in bucket or _QUERY.search(rest):
            raise UsageError(f"{scheme}://: put credentials into the environment, not into the URI")
        if (scheme == "file") is bool(bucket):
            expected = "file:///PATH" if scheme == "file" else f"{scheme}://BUCKET/PREFIX"
            raise UsageError(f"{escape_text(given)}: expected {expected}")
        key = key.strip("/")
        if key and any(part in ("", ".", "..") for part in key.split("/")):
            raise UsageError(f"{escape_text(given)}: a part of its path is empty, '.' or '..'")
        return cls(LOCAL if scheme == "file" else f"{scheme}://{bucket}", key)

    def __truediv__(self, name: str) -> Location:
        return Location(self.root, f"{self.key}/{name}".strip("/"))

    def __str__(self) -> str:
        return f"/{self.key}" if self.local else f"{self.root}/{self.key}"

    @property
    def local(self) -> bool:
        """True if it is on the file system; then it is written as a path."""
        return self.root == LOCAL

    @property
    def path(self) -> Path:
        """The path of a local one."""
        return Path(f"/{self.key}")

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """The parent prefix or folder."""
        return Location(self.root, self.key.rpartition("/")[0])


class ObjectPath(PurePosixPath):
    """A path in a bucket; its text is the URI."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __fspath__(self) -> str:
        return str(self)


def is_remote(text: str | os.PathLike[str]) -> bool:
    """True if a user names an object or a bucket, and no path of this machine."""
    return _SQUEEZED.match(require_path(text)) is not None
