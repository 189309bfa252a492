# SPDX-License-Identifier: Apache-2.0
"""Retries of object storage with a timeout, and its errors in words, without secrets."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable

from edgefirst_ros.errors import ObjectStoreError, printable

PATIENCE = 60.0
"""Storage is given up when it has given nothing for so long, s."""
SHARE = 3
"""Number of timeouts of a single request within that time."""
PAUSES = 0.2, 5.0
"""The first pause before it is asked again, and the longest, s."""
LONGEST = 300
"""Characters of what storage says."""
_STATUS = re.compile(r"status code: (\d{3}[^:\n<]*)")
_CODE, _MESSAGE = re.compile(r"<Code>([^<]*)</Code>"), re.compile(r"<Message>([^<]*)</Message>")
_CAUSES = (
    ("BadScheme", "it is plain http, which AWS_ALLOW_HTTP=true allows"),
    ("Connection refused", "connection refused"),
    ("dns error", "its name is not known to DNS"),
    ("certificate", "its certificate is not trusted"),
    ("TimedOut", "no answer in time"),
    ("timed out", "no answer in time"),
    ("Connection reset", "connection reset"),
    ("IncompleteMessage", "connection closed"),
    ("UnexpectedEof", "connection closed"),
)
"""Part of a library's error -> explanation."""
_SECRET = re.compile(r"SECRET|TOKEN|PASSWORD|KEY|SAS|CREDENTIAL|SIGNATURE", re.IGNORECASE)
_NO_CREDENTIALS = "169.254.169.254", "metadata.google.internal", "Account must be specified"
"""Parts of an error that mean missing credentials."""
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a file of them, or GOOGLE_SKIP_SIGNATURE=true for a public bucket",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or AZURE_SKIP_SIGNATURE=true for a public one",
}


class Patience:
    """One thing that is asked of storage, again and again until it is given up. Owned by the thread that asks."""

    def __init__(
        self,
        seconds: float = PATIENCE,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds, self._clock, self._sleep = seconds, clock, sleep
        self.progress()

    def progress(self) -> None:
        """Storage has given or taken something: its time begins anew."""
        self._began, self._pause = self._clock(), PAUSES[0]

    def wait(self, error: Exception, what: str) -> None:
        """Pause before storage is asked again.

        Raises ObjectStoreError, about `what`, where asking again is of no use or could take longer than it may.
        """
        passed = self._clock() - self._began
        pause = self._pause * random.uniform(0.5, 1)  # noqa: S311  workers must not all come back at once
        if is_final(error):
            raise ObjectStoreError(f"{what}: {describe(error, what)}") from None
        if passed + pause + self._seconds / SHARE > self._seconds:
            raise ObjectStoreError(f"{what}: given up after {passed:.0f} s: {describe(error, what)}") from None
        self._sleep(pause)
        self._pause = min(2 * self._pause, PAUSES[1])


def is_final(error: Exception) -> bool:
    """True if storage would say the same again: not there, not allowed, not understood, replaced."""
    status = _STATUS.search(str(error))
    if status is not None:
        number = int(status[1][:3])
        return 400 <= number < 500 and number not in (408, 425, 429)
    named = (
        "PermissionDenied",
        "Unauthenticated",
        "InvalidPath",
        "NotSupported",
        "UnknownConfiguration",
        "Precondition",
    )
    return (
        isinstance(error, (FileNotFoundError, ValueError))
        or type(error).__name__.startswith(named)
        or "BadScheme" in str(error)
    )


def describe(error: Exception, what: str) -> str:
    """Return one line for what storage answered about a URI, with what to do; no parameters of URLs, nothing secret."""
    text = str(error)
    said, _, details = text.partition("\n\nDebug source")
    status = _STATUS.search(said)
    if any(sign in said for sign in _NO_CREDENTIALS):
        found = f"there are no credentials: {_CREDENTIALS[what.partition('://')[0]]}"
    elif type(error).__name__ == "PreconditionError":
        found = "was replaced meanwhile"
    elif status is not None:
        parts = [part[1] for part in (_CODE.search(said), _MESSAGE.search(said)) if part is not None]
        found = ": ".join([status[1].strip(), *parts])
        if status[1].startswith(("401", "403")):
            found += "; check the credentials in the environment and the rights they have on the bucket"
    else:
        causes = [meaning for sign, meaning in _CAUSES if sign in details or sign in said]
        found = causes[0] if causes else " ".join(said.split())
    return printable(mask(found)[:LONGEST])


def mask(text: str) -> str:
    """Return text without what secret variables of the environment hold, and without parameters of URLs."""
    secrets = {value for name, value in os.environ.items() if _SECRET.search(name) and len(value) >= 8}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return re.sub(r"(https?://[^\s?]*)\?\S*", r"\1", text)
