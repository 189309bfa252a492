# SPDX-License-Identifier: Apache-2.0
"""Which access units of a stream have a clean picture, as far as their headers say.

Source: ITU-T H.264 7.4.3, H.265 8.1.3; dataset.md 9, "Clean".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from edgefirst_ros.counts import AFTER_LOSS, BEFORE_KEYFRAME, DAMAGED, NO_PICTURE
from edgefirst_ros.sensors.bitstream import Buffer, H264Slice, H265Slice, UnitHeaders


@dataclass(frozen=True, slots=True)
class AccessUnit:
    """The coded picture of one message, judged by its headers and those of all units before it."""

    data: Buffer
    sets: bytes
    """Its parameter sets, with start codes."""
    fault: str | None
    """Reason not to write its picture."""
    after_gap: bool = False
    """Whether something before it is lost or could not be read."""
    keyframe: bool = False
    entry: bool = False
    """Whether decoding can start here."""
    closed: bool = False
    """Whether, besides, nothing behind it refers to anything before it."""
    leading: bool = False
    """Shown before the last entry; may need what came before that one."""
    reference: bool = True
    """Other pictures may depend on it."""

    def without_bytes(self) -> AccessUnit:
        """The unit once nobody needs its bytes any more."""
        return replace(self, data=b"", sets=b"")


class Tracker:
    """Follows one stream in decode order and judges each unit by the headers of all before it."""

    def __init__(self) -> None:
        self._state: str | None = BEFORE_KEYFRAME  # why pictures that need references are not clean now
        self._leading_state: str | None = BEFORE_KEYFRAME  # the same for leading pictures of the last entry
        self._after_gap = False

    def mark_gap(self) -> None:
        """Take note that something between the last unit and the next one is lost or cannot be read."""
        self._after_gap = True
        self._break()

    def judge(self, data: Buffer, headers: UnitHeaders) -> AccessUnit:
        """Judge the next access unit."""
        after_gap, self._after_gap = self._after_gap, False
        if headers.damaged:
            self._break()
            return AccessUnit(data, headers.sets, DAMAGED if self._state == AFTER_LOSS else self._state, after_gap)
        picture = headers.picture
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
        )

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


class H264Tracker(Tracker):
    """H.264: a gap in frame_num says that a reference is missing; recovery points are entries too."""

    def __init__(self) -> None:
        super().__init__()
        self._frame_number: int | None = None  # of the last reference picture
        self._order = 0  # picture order count of the last reference picture
        self._recovery_order: int | None = None  # pictures of lower order are leading ones

    def _follow(self, picture: H264Slice) -> tuple[str | None, bool]:
        order = self._picture_order(picture)
        if picture.keyframe:
            self._recovery_order = None
            self._enter(closed=True)
        else:
            if self._reference_missing(picture):
                self._break()
            if picture.recovery:
                self._recovery_order = order
                self._enter(closed=False)
        leading = False
        if self._recovery_order is not None and order is not None and not picture.recovery:
            leading = order < self._recovery_order
            if not leading:
                self._recovery_order = None  # leading pictures come before any other
        if picture.reference:
            self._frame_number = picture.frame_number
            self._order = order or 0
        return self._leading_state if leading else self._state, leading

    def _reference_missing(self, picture: H264Slice) -> bool:
        if self._frame_number is None or picture.gaps_allowed:
            return False
        due = (self._frame_number + 1) % (1 << picture.frame_number_bits)
        return picture.frame_number != due and not (picture.field and picture.frame_number == self._frame_number)

    def _picture_order(self, picture: H264Slice) -> int | None:
        """Picture order count of type 0; None of the other types, where there are no leading pictures to tell."""
        if picture.order is None or picture.keyframe:
            return picture.order
        half = 1 << picture.order_bits - 1
        return self._order + (picture.order - self._order + half) % (2 * half) - half


class H265Tracker(Tracker):
    """H.265: NAL unit types say which pictures are entries and which are leading ones."""

    def _follow(self, picture: H265Slice) -> tuple[str | None, bool]:
        if picture.entry:
            self._enter(picture.closed)
            if picture.kind in (16, 17, 18):
                self._leading_state = BEFORE_KEYFRAME  # broken link: its leading pictures are never shown
        leading = picture.kind in (8, 9)
        fault = self._leading_state if leading else self._state
        if picture.ends_sequence:  # what comes behind it starts anew
            self._state = BEFORE_KEYFRAME
        return fault, leading
