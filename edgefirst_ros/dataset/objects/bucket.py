# SPDX-License-Identifier: Apache-2.0
"""Buckets by obstore: Amazon S3 and compatible storage, Google Cloud Storage, Azure Blob Storage.

Credentials and endpoints come from only the environment (AWS_..., GOOGLE_..., AZURE_...). Conditional creation of
objects is not used: its behaviour differs by provider. Requests run in threads of their own, so that a signal reaches
the waiting thread; a request that does not end is abandoned.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from edgefirst_ros.dataset.objects.location import BLOCK, ReplacedError, StoredObject
from edgefirst_ros.errors import ObjectStoreError, UsageError, describe_extra, escape_text

R = TypeVar("R")
T = TypeVar("T")

PART = 5 << 20
"""Bytes of a part of an upload: the least that is allowed, so that slow lines come through with it."""
MOST_PARTS = 10_000
AT_ONCE = 4
CONNECT = timedelta(seconds=5)
LONGEST = timedelta(days=1)
"""Limit on a whole request; the effective limit is that on time without data."""
LISTED = 100
"""Objects of a listing that are waited for at once."""
MOST_LISTED = 10_000_000
LARGEST_READ = 1 << 28
"""Bytes of an object that is read whole into memory."""
REPLACED = "was replaced during the work"
SHARE = 3
"""Number of timeouts of a single request within that time."""
PAUSES = 0.2, 5.0
"""The first pause before a repeated request, and the longest, s."""
MOST_SAID = 300
_STATUS = re.compile(r"status code: (\d{3}[^:\n<]*)")
_CODE, _MESSAGE = re.compile(r"<Code>([^<]*)</Code>"), re.compile(r"<Message>([^<]*)</Message>")
_CAUSES = (
    ("following redirect", "it redirects to another address; check the endpoint and the region of the bucket"),
    ("Content-Length Header missing", "the answer does not say how long it is"),
    ("NotPartial", "the answer is not the requested range"),
    ("InvalidListResponse", "the answer is not a listing"),
    ("BadScheme", "it is plain http, which AWS_ALLOW_HTTP=true allows"),
    ("Connection refused", "connection refused"),
    ("dns error", "its name is not known to DNS"),
    ("certificate", "its certificate is not trusted"),
    ("TimedOut", "no answer in time"),
    ("timed out", "no answer in time"),
    ("Connection reset", "connection reset"),
    ("IncompleteMessage", "connection closed"),
    ("UnexpectedEof", "connection closed"),
    ("Interrupted", "connection closed"),
)
_FINAL = "following redirect", "Content-Length Header missing", "NotPartial", "BadScheme"
"""Parts of errors that no further attempt changes."""
_SECRET = re.compile(r"SECRET|TOKEN|PASSWORD|KEY|SAS|CREDENTIAL|SIGNATURE", re.IGNORECASE)
_NO_CREDENTIALS = "169.254.169.254", "metadata.google.internal", "Account must be specified"
"""Parts of an error that mean missing credentials."""
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a file of them, or GOOGLE_SKIP_SIGNATURE=true for a public bucket",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_SKIP_SIGNATURE=true for a public one",
}


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
            raise ObjectStoreError(describe_extra(root, "fleet", error)) from None
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
                    "max_retries": 3,  # parts of an upload; this class repeats all other requests
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
        return self._if_there(key, lambda: _make_object(self._obstore.head(self._store, key)))

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects below a prefix in order of key; a listing that breaks off continues after the last key.

        Raises ObjectStoreError also if it repeats itself, or does not end.
        """
        last: str | None = None
        place, number, mark = f"{self._root}/{prefix}", 0, ""
        patience = Patience(self._seconds)
        while True:
            try:
                listed = self._obstore.list(self._store, prefix or None, offset=last, chunk_size=LISTED)
                while block := patience.run(lambda listed=listed: next(listed, ())):  # type: ignore[misc]
                    patience.progress()
                    for found in map(_make_object, block):
                        if found.key == mark:
                            raise ObjectStoreError(f"{place}: the listing repeats itself at {found.key}")
                        number += 1
                        if number & (number - 1) == 0:  # a repeated key meets one of these marks, wherever it begins
                            mark = found.key
                        if number > MOST_LISTED:
                            raise ObjectStoreError(f"{place}: lists over {MOST_LISTED} objects; name a longer prefix")
                        last = found.key
                        yield found
                if last is None:
                    patience.run(lambda: self._check_store(place))
            except self._errors as error:
                patience.wait(error, place)
            else:
                return

    def _check_store(self, place: str) -> None:
        """Raise ObjectStoreError if the store has an object that cannot exist: an empty listing may be a web page."""
        with contextlib.suppress(FileNotFoundError, PermissionError):
            self._obstore.head(self._store, f".edgefirst-ros-{secrets.token_hex(16)}")
            raise ObjectStoreError(
                f"{place}: the answer is not a listing: the server has every object that is asked for, as a page to "
                "sign in has; check the endpoint"
            )

    def read(self, key: str, start: int = 0, end: int | None = None, *, etag: str | None = None) -> bytes:
        """Return the bytes from `start` to before `end`, by one request; of a whole object at most LARGEST_READ."""
        if end is None:
            return self._ask(key, lambda: self._whole(key, start, etag))
        return b"".join(self._blocks(key, start, end, etag))

    def _whole(self, key: str, start: int, etag: str | None) -> bytes:
        options: dict[str, Any] = {"range": {"offset": start}} if start else {}
        answer = self._obstore.get(self._store, key, options=options)
        found = _make_object(answer.meta)
        if etag is not None and found.etag != etag:
            raise ReplacedError(f"{self._name(key)}: {REPLACED}")
        if found.size - start > LARGEST_READ:
            raise ObjectStoreError(f"{self._name(key)}: has {found.size} bytes, expected at most {LARGEST_READ}")
        return b"".join(_limit_answer(answer, found.size - start))

    def tail(self, key: str, size: int) -> tuple[StoredObject, bytes] | None:
        """Return an object and at most `size` of its last bytes, by one request; by two on Azure."""
        if self._root.startswith("az://"):  # which has no ranges from the end
            there = self.stat(key)
            if there is None:
                return None
            return there, self.read(key, max(0, there.size - size), there.size, etag=there.etag)

        def ask() -> tuple[StoredObject, bytes]:
            answer = self._obstore.get(self._store, key, options={"range": {"suffix": size}})
            found = _make_object(answer.meta)
            return found, b"".join(_limit_answer(answer, min(size, found.size)))

        return self._if_there(key, ask)

    def stream(self, found: StoredObject) -> Iterator[bytes]:
        return self._blocks(found.key, 0, found.size, found.etag)

    def _blocks(self, key: str, at: int, end: int, etag: str | None) -> Iterator[bytes]:
        """Yield the bytes of a range, continued where an answer breaks off, all of the same object."""
        patience, last = Patience(self._seconds), at
        while at < end:
            options: dict[str, Any] = {"range": (at, end)}
            if etag is not None:
                options["if_match"] = f'"{etag}"'
            try:
                blocks = patience.run(lambda options=options: self._answer(key, options, etag))  # type: ignore[misc]
                while block := patience.run(lambda blocks=blocks: next(blocks, b"")):  # type: ignore[misc]
                    at += len(block)
                    yield block
                    if at - last >= BLOCK:
                        patience.progress()
                        last = at
                if at < end:
                    patience.wait(EOFError("connection closed"), self._name(key))
            except self._errors as error:
                patience.wait(error, self._name(key))

    def _answer(self, key: str, options: dict[str, Any], etag: str | None) -> Iterator[bytes]:
        """Return the blocks of one answer. Raises ObjectStoreError if it is of another object, or too long."""
        start, end = options["range"]
        answer = self._obstore.get(self._store, key, options=options)
        if etag is not None and _make_object(answer.meta).etag != etag:
            raise ReplacedError(f"{self._name(key)}: {REPLACED}")
        return _limit_answer(answer, end - start)

    def write(self, key: str, data: bytes) -> StoredObject:
        done = self._ask(key, lambda: self._obstore.put(self._store, key, data, use_multipart=False))
        return StoredObject(key, len(data), _strip_etag(done["e_tag"]))

    def put(self, key: str, path: Path, *, scratch: bool = False) -> StoredObject:
        """Put a file in place, in parts where it is large, and compare checksums.

        Where the ETag is the MD5 of the sent bytes, as on S3, that is the proof; else the object is read back.
        """
        size = path.stat().st_size
        part = max(PART, -(-size // MOST_PARTS))
        lanes = iter((AT_ONCE,))  # one part after the other once something went wrong

        def upload() -> Any:
            source = _read_slowly(path, self._rate) if self._rate else path
            return self._obstore.put(
                self._store, key, source, use_multipart=size > part, chunk_size=part, max_concurrency=next(lanes, 1)
            )

        found = StoredObject(key, size, _strip_etag(self._ask(key, upload, size)["e_tag"]))
        if not self.holds(found, path):
            raise ObjectStoreError(
                f"{self._name(key)}: differs from the file that was sent: its checksum is another one"
            )
        return found

    def holds(self, found: StoredObject, path: Path) -> bool:
        """True if an object equals a file, by the MD5 in its ETag, else by the bytes of the object read back."""
        size = path.stat().st_size
        if found.size != size:
            return False
        if found.etag == _hash_parts(path, max(PART, -(-size // MOST_PARTS)), size):
            return True
        with path.open("rb") as file:
            return all(block == file.read(len(block)) for block in self.stream(found))

    def delete(self, key: str) -> None:
        self._if_there(key, lambda: self._obstore.delete(self._store, key))

    def _ask(self, key: str, request: Callable[[], T], size: int = 0) -> T:
        """Do a request about `size` bytes, again where that may help."""
        patience = Patience(self._seconds)
        while True:
            try:
                return patience.run(request, size)
            except self._errors as error:
                patience.wait(error, self._name(key))

    def _if_there(self, key: str, request: Callable[[], T]) -> T | None:

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


def _read_slowly(path: Path, rate: int) -> Iterator[bytes]:
    began, given = time.monotonic(), 0
    with path.open("rb") as file:
        while block := file.read(max(1, min(rate // 4, BLOCK))):
            given += len(block)
            yield block
            time.sleep(max(0.0, began + given / rate - time.monotonic()))


def _limit_answer(answer: Any, size: int) -> Iterator[bytes]:
    """Yield the blocks of an answer. Raises ObjectStoreError if it has more than `size` bytes."""
    for block in answer.stream(BLOCK):
        size -= len(block)
        if size < 0:
            raise ObjectStoreError(f"{answer.meta['path']}: the answer is longer than the requested range")
        yield bytes(block)


def _make_object(meta: Any) -> StoredObject:
    if not meta["e_tag"]:
        raise ObjectStoreError(f"{meta['path']}: the answer has no ETag, which identifies the object")
    return StoredObject(meta["path"], meta["size"], _strip_etag(meta["e_tag"]))


def _strip_etag(etag: str | None) -> str:
    return (etag or "").strip('"')


def _hash_parts(path: Path, part: int, size: int) -> str:
    """Return the ETag of S3: the MD5 of the bytes, or of the MD5s of the parts with their number."""
    digests = []
    with path.open("rb") as file:
        while block := file.read(part):
            digests.append(hashlib.md5(block, usedforsecurity=False))
    if size <= part:
        return (digests[0] if digests else hashlib.md5(usedforsecurity=False)).hexdigest()
    joined = hashlib.md5(b"".join(digest.digest() for digest in digests), usedforsecurity=False)
    return f"{joined.hexdigest()}-{len(digests)}"


class Patience:
    """One request to storage, repeated until it succeeds or the patience ends. Owned by the thread that asks."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.progress()

    def progress(self) -> None:
        """Storage has given or taken something: its time begins again."""
        self._began, self._pause = time.monotonic(), PAUSES[0]
        self._last: Exception | None = None

    def run(self, request: Callable[[], T], size: int = 0) -> T:
        """Return the result of one request about `size` bytes. Raises TimeoutError when its time is over."""
        left = self._seconds * (1 + size / BLOCK) - (time.monotonic() - self._began)
        future = in_thread(request)
        if not wait([future], max(0.0, left)).done:
            raise TimeoutError("timed out")
        return future.result()

    def wait(self, error: Exception, what: str) -> None:
        """Pause before the next attempt.

        Raises ObjectStoreError, about `what`, if another attempt is of no use or could exceed the time limit.
        """
        if isinstance(error, TimeoutError) and self._last is not None:
            error = self._last  # it says more than a timeout
        self._last = error
        passed = time.monotonic() - self._began
        pause = self._pause * random.uniform(0.5, 1)  # noqa: S311  workers must not all come back at once
        if type(error).__name__ == "PreconditionError":
            raise ReplacedError(f"{what}: {REPLACED}") from None
        if is_final(error):
            raise ObjectStoreError(f"{what}: {describe(error, what)}") from None
        if passed + pause + self._seconds / SHARE > self._seconds:
            raise ObjectStoreError(f"{what}: given up after {passed:.0f} s: {describe(error, what)}") from None
        time.sleep(pause)
        self._pause = min(2 * self._pause, PAUSES[1])


def is_final(error: Exception) -> bool:
    """True if storage would say the same again: not there, not allowed, not understood, replaced."""
    status = _STATUS.search(str(error))
    if status is not None:
        number = int(status[1][:3])
        return 400 <= number < 500 and number not in (408, 425, 429)
    named = ("PermissionDenied", "Unauthenticated", "InvalidPath", "NotSupported", "UnknownConfiguration")
    return (
        isinstance(error, (FileNotFoundError, ValueError))
        or type(error).__name__.startswith(named)
        or any(sign in str(error) for sign in _FINAL)
    )


def describe(error: Exception, what: str) -> str:
    """Return one line with the answer of storage about a URI and what to do; without secrets and parameters of URLs."""
    text = str(error)
    said, _, details = text.partition("\n\nDebug source")
    status = _STATUS.search(said)
    if any(sign in said for sign in _NO_CREDENTIALS):
        found = f"no credentials: {_CREDENTIALS[what.partition('://')[0]]}"
    elif status is not None:
        parts = [part[1] for part in (_CODE.search(said), _MESSAGE.search(said)) if part is not None]
        found = ": ".join([status[1].strip(), *parts])
        if status[1].startswith(("401", "403")):
            found += "; check the credentials in the environment and the rights they have on the bucket"
    else:
        causes = [meaning for sign, meaning in _CAUSES if sign in details or sign in said]
        found = causes[0] if causes else " ".join(said.split())
    return escape_text(mask_secrets(found)[:MOST_SAID])


def mask_secrets(text: str) -> str:
    """Return text without what secret variables of the environment hold, and without parameters of URLs."""
    secrets = {value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= 8}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return re.sub(r"(https?://[^\s?]*)\?\S*", r"\1", text)


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Run a function in a thread that the program does not wait for at its end."""
    future = Future[T]()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001  panics of libraries are not of type Exception
            future.set_exception(error)

    threading.Thread(target=run, name="storage", daemon=True).start()
    return future


def map_in_threads(function: Callable[[T], R], items: Iterable[T], number: int) -> Iterator[R]:
    """Yield the results of a function in order; at most `number` calls are under way, which an error abandons."""
    running: deque[Future[R]] = deque()
    for item in items:
        running.append(in_thread(lambda item=item: function(item)))  # type: ignore[misc]
        if len(running) >= number:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()
