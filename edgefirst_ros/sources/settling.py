# SPDX-License-Identifier: Apache-2.0
"""Waits until discovery of a running system's topics has settled, so that they can get their roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefirst_ros.config import Settings
from edgefirst_ros.errors import EdgeFirstError, RecordingError
from edgefirst_ros.sources.topics import Roles, choose_topics, expect_topics

if TYPE_CHECKING:
    from edgefirst_ros.sources.live import Offers


class Settling:
    """Decides when roles can be assigned: a node discovers topics one after the other, in any order.

    A camera that is one only by its type must not be taken just because the other one is not known yet; what the
    network loses of that comes again only after some seconds.
    """

    QUIET = 1.0
    """s without a topic that appeared or went."""
    QUIET_TO_GUESS = 5.0
    """The same in s if a role would be assigned by the type alone."""
    LONGEST = 10.0
    """Total limit in s, if topics never cease to come and go."""

    def __init__(self) -> None:
        self._topics: dict[str, str] | None = None
        self._began = self._changed = 0.0

    def look(self, topics: dict[str, str], now: float, *, guessed: bool = False) -> bool:
        """True if the topics have settled; `topics`: all at `now`, s of time.monotonic()."""
        if self._topics is None:
            self._began = now
        if topics != self._topics:
            self._topics, self._changed = topics, now
        quiet = self.QUIET_TO_GUESS if guessed else self.QUIET
        return now - self._changed >= quiet or now - self._began >= self.LONGEST


class CameraWait:
    """Waits until there is a camera, or the reference topic that is asked for, and the topics have settled."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._settling = Settling()
        self.told = ""
        """What is waited for, as a line for the log."""

    def look(self, offers: Offers, now: float) -> Roles | None:
        """Return the roles once they can be assigned, else None; `now` in s of time.monotonic()."""
        topics = offers.topics
        try:
            roles = choose_topics(topics, self._settings, live=True)
        except EdgeFirstError as error:
            self._settling = Settling()
            waits = isinstance(error, RecordingError) or self._settings.reference_topic is not None
            others = "".join(f"; {topic}: {what}" for topic, what in offers.mixed.items())
            self.told = f"waiting: {error}{others}" if waits else f"{error}{others}"
            return None
        if not self._settling.look(topics, now, guessed=roles.guessed):
            return None
        return expect_topics(roles, self._settings)
