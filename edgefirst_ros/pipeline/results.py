# SPDX-License-Identifier: Apache-2.0
"""Results of the model, joined to frames by equal stamps, and masks without a header, joined to their boxes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from edgefirst_ros.pipeline.frame import SensorMessage
from edgefirst_ros.sync.align import Aligner, Stream

MASK = "model.mask"
REMEMBERED = 2048
"""Frames that are known to have come, and frames handed on for which a result would come too late."""

Joint = tuple[int, int]
"""Epoch of a frame and the stamp that results join it by: behind a clock set back the same stamps come again."""


@dataclass(slots=True)
class _Result:
    """A result and when it came; `complete` once the mask that belongs to it is known, or none can come."""

    arrived: int
    message: SensorMessage
    complete: bool


class ModelResults:
    """Results by the frame that they join. Owned by the thread that pushes messages."""

    def __init__(self, tolerance: int, lookahead: int) -> None:
        """`tolerance`: furthest a mask's stamp may lie from that of its boxes; both in ns."""
        self._lookahead = lookahead
        self._results: OrderedDict[Joint, _Result] = OrderedDict()
        self._masks: Aligner[_Result, SensorMessage] = Aligner({MASK: Stream(tolerance, reuse=False)}, lookahead)
        self._boxes = 0
        self._taken: OrderedDict[Joint, None] = OrderedDict()
        self._came: OrderedDict[int, int] = OrderedDict()
        """Epoch of the last frame that came, by the stamp that results join it by."""

    def expect(self, stamp: int, epoch: int) -> Joint:
        """Take note of a frame that came; returns what its result is asked for by."""
        self._came[stamp] = epoch
        self._came.move_to_end(stamp)
        if len(self._came) > REMEMBERED:
            self._came.popitem(last=False)
        return epoch, stamp

    def joint(self, stamp: int, epoch: int) -> Joint:
        """Return which frame a result of this stamp joins that comes in `epoch`.

        The last one that came with the stamp: the first results behind a clock set back are still of frames before it.
        Where that one has its result, or none came, one that is still to come.
        """
        last = self._came.get(stamp, epoch), stamp
        return (epoch, stamp) if last in self._results else last

    def add(self, join: Joint, message: SensorMessage, now: int, *, mask_stamp: int | None, epoch: int) -> None:
        """Take a result; `mask_stamp`: the stamp by which a mask without a header finds it, None: there are none."""
        result = _Result(now, message, complete=mask_stamp is None)
        self._results.setdefault(join, result)
        if mask_stamp is not None:
            self._boxes += 1
            self._masks.add_frame(mask_stamp, self._boxes, now, result, epoch=epoch)

    def add_mask(self, stamp: int, message: SensorMessage, now: int, epoch: int) -> None:
        """Take a mask without a header."""
        self._masks.add(MASK, stamp, now, message, epoch)

    def advance(self, now: int | None) -> None:
        """Give the results their masks that must all have come by `now`; all for None."""
        for boxes in self._masks.release(now):
            near = boxes.nearest[MASK]
            boxes.item.message.mask, boxes.item.complete = near.item if near is not None else None, True

    def is_late(self, join: Joint) -> bool:
        """Whether the frame of a result was handed on already."""
        return join in self._taken

    def is_complete(self, join: Joint) -> bool:
        """Whether nothing more can belong to what the model said of a frame."""
        result = self._results.get(join)
        return result is None or result.complete

    def take(self, join: Joint) -> SensorMessage | None:
        """Return what the model said of a frame that is handed on; None where it said nothing."""
        self._taken[join] = None
        if len(self._taken) > REMEMBERED:
            self._taken.popitem(last=False)
        result = self._results.get(join)
        return result.message if result is not None else None

    def forget(self, oldest: int) -> None:
        """Drop what came too long before `oldest`, when the first frame came that waits."""
        while self._results and next(iter(self._results.values())).arrived < oldest - 2 * self._lookahead:
            self._results.popitem(last=False)
