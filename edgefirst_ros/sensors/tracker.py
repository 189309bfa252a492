# SPDX-License-Identifier: Apache-2.0
"""Decides by headers which access units of a stream have an undamaged picture.

Source: ITU-T H.264 7.4.3, H.265 8.1.3.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from edgefirst_ros.counts import AFTER_LOSS, BEFORE_KEYFRAME, DAMAGED, NO_PICTURE
from edgefirst_ros.sensors.bitstream import Buffer, SliceHeader, UnitHeaders


class AccessUnit(NamedTuple):
    """The coded picture of one message, judged by its headers and those of all units before it."""

    data: Buffer
    sets: bytes
    """Its parameter sets, with start codes."""
    fault: str | None
    """Reason not to write its picture."""
    after_gap: bool = False
    """True if something before it is lost or could not be read."""
    keyframe: bool = False
    entry: bool = False
    """True if decoding can start here."""
    closed: bool = False
    """Whether, besides, nothing behind it refers to anything before it."""
    leading: bool = False
    """Shown before the last entry; may need what came before that one."""
    reference: bool = True
    """Other pictures may depend on it."""
    leaves_traces: bool = False
    """Damage to it may show in the next picture, whether that depends on it or not."""

    def without_bytes(self) -> AccessUnit:
        """Return the unit once nobody needs its bytes any more."""
        return self._replace(data=b"", sets=b"")


class Tracker:
    """Follows one stream in decode order and judges each unit by the headers of all before it."""

    def __init__(self) -> None:
        self._state: str | None = BEFORE_KEYFRAME  # why pictures that need references are not clean now
        self._leading_state: str | None = BEFORE_KEYFRAME  # the same for leading pictures of the last entry
        self._after_gap = False
        self._sequence_set: bytes | None = None  # of the last picture

    def mark_gap(self) -> None:
        """Take note that something between the last unit and the next one is lost or cannot be read."""
        self._after_gap = True
        self._break()

    def judge(self, data: Buffer, headers: UnitHeaders) -> AccessUnit:
        """Judge the next access unit."""
        after_gap, self._after_gap = self._after_gap, False
        picture = headers.picture
        if headers.damaged or (picture is not None and self._contradicts(picture)):
            self._break()
            return AccessUnit(data, headers.sets, DAMAGED if self._state == AFTER_LOSS else self._state, after_gap)
        if picture is None:
            return AccessUnit(data, headers.sets, NO_PICTURE, after_gap)
        fault, leading = self._follow(picture)
        return AccessUnit(
            data,
            headers.sets,
            fault,
            after_gap,
            picture.keyframe,
            picture.entry,
            picture.closed,
            leading,
            picture.reference,
            picture.leaves_traces,
        )

    def _contradicts(self, picture: SliceHeader) -> bool:
        """True if its sequence parameter set is not that of the picture before it, although no new sequence begins.

        The standards forbid that (H.264 7.4.1.2.1, H.265 7.4.2.4.2): one of the two was damaged on the way, and a
        decoder would show what it gives without a word. Behind a loss nobody can tell.
        """
        before, self._sequence_set = self._sequence_set, picture.sequence_set
        if picture.closed or self._state is not None or before is None or picture.sequence_set is None:
            return False
        return before != picture.sequence_set

    def _follow(self, picture: Any) -> tuple[str | None, bool]:
        """Go on to a picture; why it is not clean, and whether it is a leading one."""
        raise NotImplementedError

    def _enter(self, closed: bool) -> None:
        self._leading_state = None if closed else self._state
        self._state = None

    def _break(self) -> None:
        """Pictures that need references are not clean before the next entry."""
        self._state = self._state or AFTER_LOSS
        self._leading_state = self._leading_state or self._state
