# SPDX-License-Identifier: Apache-2.0
"""Buckets by obstore: Amazon S3 and what speaks like it, Google Cloud Storage, Azure Blob Storage.

Credentials and endpoints come from the environment alone (AWS_..., GOOGLE_..., AZURE_...). Creating objects only where
there is none is not used: what that does differs by provider.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from edgefirst_ros.dataset.objects.patience import PAUSES, SHARE, Patience, describe
from edgefirst_ros.dataset.objects.store import BLOCK, StoredObject
from edgefirst_ros.errors import ObjectStoreError, UsageError, missing_extra

T = TypeVar("T")

PART = 5 << 20
"""Bytes of a part of an upload: the least that is allowed, so that slow lines come through with it."""
MOST_PARTS = 10_000
AT_ONCE = 4
"""Parts of an upload on the way."""
CONNECT = timedelta(seconds=5)
LONGEST = timedelta(days=1)
"""The whole of one request; what counts is how long it gives nothing."""


class BucketStore:
    """One bucket. Threads may share it, and it can be pickled.

    Raises ObjectStoreError where obstore is missing, UsageError where it does not take the bucket's name.
    """

    def __init__(self, root: str, patience: float, rate: int = 0) -> None:
        self._root, self._seconds, self._rate = root, patience, rate
        try:
            import obstore
            from obstore.store import from_url
        except ImportError as error:
            raise ObjectStoreError(missing_extra(f"{root}: object storage", "fleet", error)) from None
        self._obstore: Any = obstore
        self._errors = (obstore.exceptions.BaseError, OSError, ValueError)
        try:
            self._store: Any = from_url(
                root,
                client_options={
                    "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes", "on"),
                    "connect_timeout": CONNECT,
                    "read_timeout": timedelta(seconds=patience / SHARE),
                    "timeout": LONGEST,
                },
                retry_config={
                    "max_retries": 3,  # parts of an upload; everything else is asked again here
                    "retry_timeout": timedelta(seconds=patience / SHARE / 2),
                    "backoff": {
                        "init_backoff": timedelta(seconds=PAUSES[0]),
                        "max_backoff": timedelta(seconds=PAUSES[1]),
                        "base": 2,
                    },
                },
            )
        except self._errors as error:
            raise UsageError(f"{root}: {describe(error, root)}") from None

    def __reduce__(self) -> tuple[type[BucketStore], tuple[str, float, int]]:
        return BucketStore, (self._root, self._seconds, self._rate)

    def stat(self, key: str) -> StoredObject | None:
        """Return what is there under a key, by one request; None where there is nothing."""
        return self._if_there(key, lambda: _object(self._obstore.head(self._store, key)))

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below a prefix in order of key; a listing that breaks off goes on behind the last key."""
        last: str | None = None
        patience = Patience(self._seconds)
        while True:
            try:
                for block in self._obstore.list(self._store, prefix or None, offset=last, chunk_size=1000):
                    patience.progress()
                    for listed in block:
                        last = listed["path"]
                        yield _object(listed)
            except self._errors as error:
                patience.wait(error, f"{self._root}/{prefix}")
            else:
                return

    def read(self, key: str, start: int = 0, end: int | None = None, *, etag: str | None = None) -> bytes:
        """Return the bytes from `start` to before `end`, by one request."""
        span = {"offset": start} if end is None else (start, end)
        options: dict[str, Any] = {"range": span} if start or end is not None else {}
        if etag is not None:
            options["if_match"] = _quoted(etag)
        return self._ask(key, lambda: bytes(self._obstore.get(self._store, key, options=options).bytes()))

    def tail(self, key: str, size: int) -> tuple[StoredObject, bytes] | None:
        """Return an object and at most `size` of its last bytes, by one request; by two on Azure."""
        if self._root.startswith("az://"):  # which has no ranges from the end
            there = self.stat(key)
            if there is None:
                return None
            return there, self.read(key, max(0, there.size - size), there.size, etag=there.etag)

        def ask() -> tuple[StoredObject, bytes]:
            found = self._obstore.get(self._store, key, options={"range": {"suffix": size}})
            return _object(found.meta), found.bytes().to_bytes()

        return self._if_there(key, ask)

    def stream(self, found: StoredObject) -> Iterator[bytes]:
        """Yield the bytes of an object in order, by one request where nothing breaks off."""
        at, patience = 0, Patience(self._seconds)
        while at < found.size:
            options = {"range": (at, found.size), "if_match": _quoted(found.etag)}
            try:
                for block in self._obstore.get(self._store, found.key, options=options).stream(BLOCK):
                    at += len(block)
                    yield bytes(block)
                    patience.progress()
                if at < found.size:
                    patience.wait(EOFError("connection closed"), self._name(found.key))
            except self._errors as error:
                patience.wait(error, self._name(found.key))

    def write(self, key: str, data: bytes) -> StoredObject:
        """Put a small object in place by one request."""
        done = self._ask(key, lambda: self._obstore.put(self._store, key, data, use_multipart=False))
        return StoredObject(key, len(data), _plain(done["e_tag"]))

    def put(self, key: str, path: Path, *, scratch: bool = False) -> StoredObject:
        """Put a file in place, in parts where it is large, and compare checksums.

        Where the ETag is the MD5 of what was sent, as S3 makes it, that is the proof; else the object is read back.
        """
        size = path.stat().st_size
        part = max(PART, -(-size // MOST_PARTS))
        lanes = iter((AT_ONCE,))  # one part after the other once something went wrong

        def upload() -> Any:
            source = _slowly(path, self._rate) if self._rate else path
            return self._obstore.put(
                self._store, key, source, use_multipart=size > part, chunk_size=part, max_concurrency=next(lanes, 1)
            )

        found = StoredObject(key, size, _plain(self._ask(key, upload)["e_tag"]))
        if not self.holds(found, path):
            raise ObjectStoreError(f"{self._name(key)}: is not what was sent: checksums differ")
        return found

    def holds(self, found: StoredObject, path: Path) -> bool:
        """True if an object is what a file holds, by the MD5 in its ETag, else by SHA-256 of what is read back."""
        size = path.stat().st_size
        if found.size != size:
            return False
        if found.etag == _md5_of_parts(path, max(PART, -(-size // MOST_PARTS)), size):
            return True
        digest = hashlib.sha256()
        for block in self.stream(found):
            digest.update(block)
        own = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                own.update(block)
        return digest.digest() == own.digest()

    def delete(self, key: str) -> None:
        """Remove an object; nothing where there is none."""
        self._if_there(key, lambda: self._obstore.delete(self._store, key))

    def _ask(self, key: str, request: Callable[[], T]) -> T:
        """Do a request, again where that may help."""
        patience = Patience(self._seconds)
        while True:
            try:
                return request()
            except self._errors as error:
                patience.wait(error, self._name(key))

    def _if_there(self, key: str, request: Callable[[], T]) -> T | None:
        """Do a request; None where there is no such object."""

        def ask() -> T | None:
            try:
                return request()
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

        return self._ask(key, ask)

    def _name(self, key: str) -> str:
        return f"{self._root}/{key}"


def _slowly(path: Path, rate: int) -> Iterator[bytes]:
    """Yield the bytes of a file, at most `rate` of them a second."""
    began, given = time.monotonic(), 0
    with path.open("rb") as file:
        while block := file.read(max(1, min(rate // 4, BLOCK))):
            given += len(block)
            yield block
            time.sleep(max(0.0, began + given / rate - time.monotonic()))


def _object(meta: Any) -> StoredObject:
    return StoredObject(meta["path"], meta["size"], _plain(meta["e_tag"]))


def _plain(etag: str | None) -> str:
    return (etag or "").strip('"')


def _quoted(etag: str) -> str:
    return f'"{etag}"'


def _md5_of_parts(path: Path, part: int, size: int) -> str:
    """Return the ETag that S3 gives: the MD5 of the bytes, or of the MD5s of the parts with their number."""
    digests = []
    with path.open("rb") as file:
        while block := file.read(part):
            digests.append(hashlib.md5(block, usedforsecurity=False))
    if size <= part:
        return (digests[0] if digests else hashlib.md5(usedforsecurity=False)).hexdigest()
    joined = hashlib.md5(b"".join(digest.digest() for digest in digests), usedforsecurity=False)
    return f"{joined.hexdigest()}-{len(digests)}"
