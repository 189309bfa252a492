# SPDX-License-Identifier: Apache-2.0
"""Paths of a fleet: datasets by the hash of their settings, states, the catalogue.

DST/HASH/SEQUENCE/NAME.{arrow,frames.arrow,zip}, DST/_state/HASH/SHA-256 of the source's URI.json,
DST/catalogue.parquet.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.errors import UsageError

STATES, CATALOGUE = "_state", "catalogue.parquet"
DIGITS = 16
"""Hexadecimal digits of the hash of settings."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below DST."""

    root: Location

    @property
    def states(self) -> Location:
        """Prefix of the keys of all states."""
        return self.root / STATES

    @property
    def catalogue(self) -> Location:
        """The table of all states."""
        return self.root / CATALOGUE

    def datasets(self, settings: str) -> Location:
        """Return the key prefix of all datasets made with settings of a hash."""
        return self.root / settings

    def state(self, settings: str, source: str) -> Location:
        """Return the key of the state of a source URI."""
        return self.states / settings / f"{digest(source)}.json"

    def dataset(self, settings: str, name: str) -> Location:
        """Return the key prefix of one dataset."""
        return self.datasets(settings) / name

    def relative(self, key: str) -> str:
        """Return a key below DST as it is in states."""
        return key[len(self.root.key) :].lstrip("/")

    def absolute(self, relative: str) -> str:
        """Return the key of the recording in a state."""
        return (self.root / relative).key


def digest(uri: str) -> str:
    """Return the SHA-256 of a URI as hex digits."""
    return hashlib.sha256(uri.encode("utf-8", "surrogateescape")).hexdigest()


def fleet_settings(settings: Settings) -> Settings:
    """Return the settings with which each recording is converted by itself: groups are stable.

    `convert --set stable=true --split ...` gives the same bytes. Raises UsageError for a layout that is not a ZIP and
    for a number of threads: every worker takes one.
    """
    if settings.jobs > 1:
        raise UsageError("jobs: every worker of a fleet takes one thread; --workers says how many there are")
    if settings.layout != "zip":
        raise UsageError("layout: a fleet makes datasets that are one ZIP each, expected zip")
    changed: dict[str, Any] = {"jobs": 1} | ({"stable": True} if settings.split else {})
    return settings.model_copy(update=changed)


def settings_hash(settings: Settings) -> str:
    """Return the hash of settings, by which datasets of different settings stay apart."""
    plain = json.dumps(settings.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()[:DIGITS]
