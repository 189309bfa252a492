# SPDX-License-Identifier: Apache-2.0
"""Files of a fleet, and the state file of one recording: written last, it marks the dataset as done."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.places import STATES
from edgefirst_ros.errors import DatasetError, UsageError

CATALOGUE = "catalogue.parquet"
DIGITS = 16
"""Hexadecimal digits of the hash of settings."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below DST."""

    root: Location

    @classmethod
    def of(cls, place: str) -> Layout:
        """Return the paths below the DST that a user names. Raises UsageError."""
        root = Location.of(place)
        if root.local and os.path.lexists(str(root)) and not os.path.isdir(str(root)):
            raise UsageError(f"{root}: is not a folder; expected the folder -o of fleet convert")
        return cls(root)

    @property
    def states(self) -> Location:
        """Prefix of the keys of all states."""
        return self.root / STATES

    @property
    def catalogue(self) -> Location:
        """The table of all states."""
        return self.root / CATALOGUE

    def state(self, settings: str, source: str) -> Location:
        """Return the key of the state of a source URI."""
        return self.states / settings / f"{hash_uri(source)}.json"

    def dataset(self, settings: str, name: str) -> Location:
        """Return the key prefix of one dataset."""
        return self.root / settings / name

    def relative(self, key: str) -> str:
        """Return a key below DST as it is in states."""
        return key[len(self.root.key) :].lstrip("/")


def hash_uri(uri: str) -> str:
    """Return the SHA-256 of a URI as hex digits."""
    return hashlib.sha256(uri.encode("utf-8", "surrogateescape")).hexdigest()


def select_settings(settings: Settings) -> Settings:
    """Return the settings with which each recording is converted by itself: groups are stable.

    `convert --set stable=true --split ...` writes the same bytes. Raises UsageError for a layout that is not a ZIP and
    for a number of threads: every worker takes one.
    """
    if settings.jobs > 1:
        raise UsageError("jobs: a fleet uses one thread for each worker; set --workers instead")
    if settings.layout != "zip":
        raise UsageError("layout: a fleet writes only ZIPs, expected zip")
    changed: dict[str, Any] = {"jobs": 1} | ({"stable": True} if settings.split else {})
    return settings.model_copy(update=changed)


def hash_settings(settings: Settings) -> str:
    """Return the hash of settings, by which datasets of different settings stay apart."""
    plain = json.dumps(settings.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()[:DIGITS]


Verdict = Literal["ok", "loss", "failed", "storage", "crashed"]
"""ok; loss: finished, but without some of the recording; failed: the recording cannot be converted; storage: it refused
for too long; crashed: workers died of it."""
USABLE = ("ok", "loss")
KEPT = ("failed", "crashed")
"""Verdicts that are retried only on request."""
LARGEST = 1 << 20
"""Largest state file, bytes."""
LONGEST_ERROR = 4000


class Strict(BaseModel):
    """Base of models read from storage: strict types."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, defer_build=True)


class MemberFile(Strict):
    """One file of a dataset."""

    key: str
    """Relative to DST."""
    bytes: int
    etag: str


class RecordingState(Strict):
    """State of a recording. Stamps are ns since the epoch, positions degrees WGS-84."""

    source: str
    """URI: the absolute path of a local file."""
    size: int
    etag: str
    sha256: str | None = None
    settings: str
    software: str
    verdict: Verdict
    name: str
    """Name of sequence and dataset; it never changes."""
    members: tuple[MemberFile, ...] = ()
    """Files of the dataset, the container last."""
    counts: dict[str, dict[str, int | dict[str, int]]] = Field(default_factory=dict)
    """As in the metadata of the frames: {topic: {"seen", "written", "dropped": {reason: n}}}."""
    samples: int = 0
    sensors: dict[str, int] = Field(default_factory=dict)
    """{companion: samples that have it}."""
    labels: dict[str, int] = Field(default_factory=dict)
    """{label: samples that have it}."""
    first: int | None = None
    last: int | None = None
    latitude: float | None = None
    """Position of the first sample that has one."""
    longitude: float | None = None
    group: str | None = None
    loss: str | None = None
    """Lost parts of the recording, in words."""
    error: str | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes of all members."""
        return sum(member.bytes for member in self.members)

    @classmethod
    def of_json(cls, data: bytes, place: str) -> RecordingState:
        """Return a stored state. Raises DatasetError naming its place if it is invalid."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise DatasetError(f"{place}: is not a valid state: {where}: {first['msg']}") from None
