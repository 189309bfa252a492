# SPDX-License-Identifier: Apache-2.0
"""Results of the model, joined to frames by equal stamps, and masks without a header, joined to their boxes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from edgefirst_ros.pipeline.frame import SensorMessage
from edgefirst_ros.sync.align import Aligner, Stream

MASK = "model.mask"
REMEMBERED = 2048
"""Frames that are remembered: those that came, and those handed on, for which a result would be late."""

Joint = tuple[int, int]
"""Epoch of a frame and the stamp that results join it by: behind a clock set back the same stamps come again."""


@dataclass(slots=True)
class _Result:
    """A result and when it came; `complete` once the mask that belongs to it is known, or none can come."""

    arrived: int
    message: SensorMessage
    complete: bool


class ModelResults:
    """Model results by the frame that they join. Owned by the thread that pushes messages."""

    def __init__(self, tolerance: int, lookahead: int) -> None:
        """`tolerance`: largest distance of a mask's stamp from that of its boxes; both in ns."""
        self._lookahead = lookahead
        self._results: OrderedDict[Joint, _Result] = OrderedDict()
        self._masks: Aligner[_Result, SensorMessage] = Aligner({MASK: Stream(tolerance, reuse=False)}, lookahead)
        self._boxes = 0
        self._taken: OrderedDict[Joint, None] = OrderedDict()
        self._came: OrderedDict[int, int] = OrderedDict()
        """Epoch of the last frame that came, by the stamp that results join it by."""

    def expect(self, stamp: int, epoch: int) -> Joint:
        """Note a frame that came; return the key by which its result is looked up."""
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
        """Add a mask without a header."""
        self._masks.add(MASK, stamp, now, message, epoch)

    def advance(self, now: int | None) -> None:
        """Join masks to the results whose masks must have come by `now`, ns; None: all."""
        for boxes in self._masks.release(now):
            near = boxes.nearest[MASK]
            boxes.item.message.mask, boxes.item.complete = near.item if near is not None else None, True

    def is_late(self, join: Joint) -> bool:
        """True if the frame of a result was handed on already."""
        return join in self._taken

    def is_complete(self, join: Joint) -> bool:
        """True if no further message can belong to the model result of a frame."""
        result = self._results.get(join)
        return result is None or result.complete

    def take(self, join: Joint) -> SensorMessage | None:
        """Remove and return the model result of a frame that is handed on; None without one."""
        self._taken[join] = None
        if len(self._taken) > REMEMBERED:
            self._taken.popitem(last=False)
        result = self._results.get(join)
        return result.message if result is not None else None

    def forget(self, oldest: int) -> None:
        """Drop results older than any waiting frame; `oldest`: arrival of the first one that waits."""
        while self._results and next(iter(self._results.values())).arrived < oldest - 2 * self._lookahead:
            self._results.popitem(last=False)
