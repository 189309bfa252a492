# SPDX-License-Identifier: Apache-2.0
"""An unfinished dataset without a writer: to be completed as it is, or continued by a new writer."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.journals import Journals
from edgefirst_ros.dataset.recovery.members import Found, reopen
from edgefirst_ros.dataset.storage.lock import give_back, refuse_planted, reporting
from edgefirst_ros.dataset.storage.zip_write import Lost, MemberWriter
from edgefirst_ros.dataset.tables.rowlog import Checkpoint
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import Limits


class State(enum.Enum):
    """State of an unfinished dataset."""

    OPEN = "open"
    """Locked and read; nothing of it has changed."""
    COMPLETED = "completed"
    """Its container is complete; the lock is still held."""
    HANDED_OVER = "handed over"
    """A writer owns container and lock."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Handover:
    """Container and lock for a writer that continues an unfinished dataset and owns them from then on."""

    members: MemberWriter
    lock: int
    """Descriptor that holds the lock until it is closed."""
    point: Checkpoint
    """The last commit of which nothing is missing."""


class UnfinishedDataset:
    """Opens and locks an unfinished dataset, and reads its `journals`.

    Owns: container and lock, until `hand_over` or `close`; used by one thread. Raises DatasetError where a living
    writer has it, or it cannot be read.
    """

    def __init__(self, paths: DatasetPaths, archive: Path | None = None) -> None:
        """`archive`: where the ZIP is, if not under its partial name."""
        self.paths = paths
        self.state = State.OPEN
        self._members, self._lock = reopen(paths, archive or paths.members_partial)
        try:
            self._refuse_planted()
            self.journals = Journals(paths)
        except DatasetError:
            self.close()
            raise

    def is_complete(self, limits: Limits) -> bool:
        """Return True if the container has its end, and every member in it is whole. Raises TooLargeError."""
        self._check_open()
        return self._members.is_complete(self.journals, limits)

    def members(self, *, verify: bool) -> Iterator[Found | Lost]:
        """Yield the whole members in their order, which `complete` will keep, and what lies between them.

        What the disk had for certain is taken as it is, unless `verify`. To be called once.
        """
        self._check_open()
        return self._members.whole(self.journals, verify=verify)

    def kinds(self, sequence: str, frame: int) -> frozenset[str]:
        """Return the kinds of members that a sample has, of those that `members` gave so far."""
        return self._members.writer.seen.kinds(sequence, frame)

    def complete(self, lost: list[str]) -> None:
        """Complete the container with what `members` gave, and remove `lost` from a folder. Raises StorageError."""
        self._check_open()
        self._members.remove(lost)
        self._members.writer.close()
        self.state = State.COMPLETED

    def hand_over(self) -> Handover:
        """Go back to the last complete commit, and hand container and lock over to a writer.

        Raises DatasetError where rows could not be taken along, and StorageError; the dataset is closed then.
        """
        self._check_open()
        try:
            for path, why in self.journals.not_understood.items():
                raise DatasetError(
                    f"{path}: is not understood ({why}); complete the dataset with edgefirst-ros recover, which keeps "
                    "this file, or use --overwrite to start over"
                )
            if self.journals.is_older:
                raise DatasetError(
                    f"{self.paths.members_partial}: was begun by version 0.1 of the software; complete the dataset "
                    "with edgefirst-ros recover, or use --overwrite to start over"
                )
            point = self._members.rewind(self.journals)
        except DatasetError:
            self.close()
            raise
        self.state = State.HANDED_OVER
        return Handover(self._members.writer, self._lock, point)

    def close(self) -> None:
        """Release what it still owns; closing twice does nothing."""
        if self.state in (State.OPEN, State.COMPLETED):
            self.state = State.CLOSED
            self._members.writer.abandon()
            give_back(self._lock)

    def _refuse_planted(self) -> None:
        """Raise DatasetError for files that others put beside a ZIP; a folder was made by its writer."""
        paths = self.paths
        if paths.layout == "zip":
            journals = paths.arrow_journal, paths.frames_journal, paths.row_log
            for path in (*journals, paths.arrow_partial, paths.frames_partial):
                with reporting(path, "look it up"), suppress(FileNotFoundError):
                    refuse_planted(path, os.lstat(path))

    def _check_open(self) -> None:
        if self.state is not State.OPEN:
            raise DatasetError(f"{self.paths.members_partial}: is {self.state.value}; expected it to be open")
