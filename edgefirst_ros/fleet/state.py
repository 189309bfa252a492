# SPDX-License-Identifier: Apache-2.0
"""State file of one recording: source and dataset. Written last, it marks the dataset as done."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefirst_ros.errors import DatasetError

Verdict = Literal["ok", "loss", "failed", "storage", "crashed"]
"""ok; loss: there, but something of the recording is not; failed: the recording is no good; storage: it refused for too
long; crashed: workers died of it."""
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
    """Hash of the settings."""
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
    """What of the recording was lost, in words."""
    error: str | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes of all members."""
        return sum(member.bytes for member in self.members)

    @property
    def container(self) -> str | None:
        """Key of the container, relative to DST."""
        return self.members[-1].key if self.members else None

    def to_json(self) -> bytes:
        """Return the state as it is stored; the same for the same state."""
        return self.model_dump_json(indent=1).encode()

    @classmethod
    def of_json(cls, data: bytes, place: str) -> RecordingState:
        """Return a stored state. Raises DatasetError naming its place where it is none."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise DatasetError(f"{place}: is not a valid state: {where}: {first['msg']}") from None
