# SPDX-License-Identifier: Apache-2.0
"""Model results as annotation rows: boxes, tracks and masks of Model, Detect and Mask messages, boxes in space.

Source: EdgeFirst Dataset Format, "Box3D".
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import (
    BAD_MASK,
    BAD_SCORE,
    DROPPED_LABEL,
    LOW_SCORE,
    MASK_NO_PICTURE,
    NOT_FINITE,
    NOT_PLACED,
    SEMANTIC,
)
from edgefirst_ros.errors import MessageError, sort_nearest
from edgefirst_ros.messages import Cubes
from edgefirst_ros.sensors.calibration import read_frame_id
from edgefirst_ros.sensors.masks import VOID, encode_classes, encode_instance, is_empty
from edgefirst_ros.sensors.transforms import BASE, Floats, SensorPlace, World, make_pose, make_rotation, move_boxes

if TYPE_CHECKING:
    from edgefirst.schemas.builtin_interfaces import Duration, Time
    from edgefirst.schemas.edgefirst_msgs import Detect, DetectBox, Mask, MaskBox, Model


class Context(NamedTuple):
    """The frame a result belongs to, and what of it is needed."""

    sequence: str
    frame: int
    size: tuple[int, int] | None
    """Width and height of its picture."""
    labels: Sequence[str] = ()
    classes: Sequence[str] = ()
    """Names of the model's own classes, by the values of its masks."""
    min_score: float = 0.0
    label_map: Mapping[str, str] = MappingProxyType({})
    """Labels that are to have another name, or with an empty one no row."""
    masks: bool = True
    semantic: bool = True
    place_of: Callable[[str], SensorPlace] = lambda frame_id: SensorPlace(frame_id, np.eye(4))
    """The place of the sensor with a frame_id."""

    def index_of(self, label: str) -> int | None:
        """Return the position of a label; None without one."""
        return self.labels.index(label) if label in self.labels else None

    def values(self) -> NDArray[np.uint8]:
        """Value written into a mask for each class, uint8 (256,): the index of its label, `VOID` if dropped."""
        values = np.arange(256, dtype=np.uint8)
        for number, name in enumerate(self.classes[:VOID]):
            label = self.label_map.get(name, name)
            index = self.index_of(label) if label else VOID
            values[number] = number if index is None else min(index, VOID)
        return values


def map_labels(labels: Sequence[str] | None, label_map: Mapping[str, str]) -> list[str] | None:
    """Return the model's labels by index, as a label map names them: a label that is renamed keeps its index.

    If several get one name, or the name of another label, one index has it; the others keep their old names.
    """
    if labels is None:
        return None
    named = [label_map.get(label) or label for label in labels]
    taken = {label for label, name in zip(labels, named, strict=True) if label == name}
    found = []
    for label, name in zip(labels, named, strict=True):
        found.append(label if name in taken else name)
        taken.add(name)
    return found


def find_unknown_labels(labels: Sequence[str], label_map: Mapping[str, str]) -> str:
    """Return the names in a label map that are not labels of the model, and the labels, similar first; else ""."""
    unknown = [name for name in label_map if name not in labels]
    if not unknown:
        return ""
    return f"label_map: the model has no label {unknown[0]!r}; it has {sort_nearest(unknown[0], labels)}"


def make_model_rows(
    message: Model | Detect, context: Context, mask: Mask | None = None
) -> tuple[list[dict[str, object]], Counter[str]]:
    """(annotation rows, {reason: number}) of a result; `mask` is the one that came without a header.

    A row has box2d (center_x, center_y, width, height) as sent, normalised; box2d_score; label; label_index, the
    position in the labels or None; object_id, a UUID; timing in ns; and mask, a 1-bit PNG of the picture's size, where
    masks[i] belongs to boxes[i]. A semantic mask is a row of its own, with only timing and mask: an 8-bit PNG of class
    indices. Boxes that are not finite or have a score outside 0..1 make no row, broken masks no mask; all drops are
    counted.
    """
    rows: list[dict[str, object]] = []
    dropped: Counter[str] = Counter()
    boxes = message.boxes
    masks = getattr(message, "masks", [])
    if mask is not None:  # it does not name its box among several
        masks = [mask] if not mask.boxed or len(boxes) == 1 else []
        dropped[BAD_MASK] += not masks
    timing = _read_timing(message)
    for n, box in enumerate(boxes):
        label = context.label_map.get(box.label, box.label)
        fault = _find_fault(box, (box.center_x, box.center_y, box.width, box.height), label, context)
        if fault is not None:
            dropped[fault] += 1
            continue
        row: dict[str, object] = {
            "label": label,
            "label_index": context.index_of(label),
            "object_id": make_object_id(box.track_id, n, context),
            "box2d": (box.center_x, box.center_y, box.width, box.height),
            "box2d_score": box.score,
            "timing": timing,
        }
        if n < len(masks) and masks[n].boxed:
            _add_mask(row, masks[n], box, context, dropped)
        rows.append(row)
    dropped[BAD_MASK] += sum(mask.boxed for mask in masks[len(boxes) :])
    for semantic in masks:
        found: dict[str, object] = {"timing": timing}
        if not semantic.boxed and not is_empty(semantic):
            _add_mask(found, semantic, None, context, dropped)
        if "mask" in found:
            rows.append(found)
    return rows, +dropped


def make_box_rows(
    message: Detect | Cubes, context: Context, motion: Floats | None = None, world: World | None = None
) -> tuple[list[dict[str, object]], Counter[str]]:
    """Turn boxes in space, as fusion sends them, into annotation rows.

    The message has center_x right, center_y down and the distance ahead of the sensor in frame_id, m. The depth of a
    box is unknown: the width represents it, as in the vendor's samples. Labels are numbers of classes, and tracks
    numbers of boxes: object_id holds for this frame only, unless the track is a UUID.

    Args:
        message: boxes of one scan.
        context: the frame the boxes belong to; `place_of` shows in which axes they are stored.
        motion: (4, 4) from the vehicle's axes at the stamp of the scan to those at the frame's; None: unknown, and
            boxes stay where they were measured.
        world: the fixed frame, whose boxes are moved to the vehicle; None: unknown.

    Returns:
        Annotation rows with box3d (center x, y, z, extent x, y, z) in m, x forward, y left, z up; {reason: number} of
        the dropped boxes.
    """
    if isinstance(message, Cubes):
        return _make_cube_rows(message, context, world)
    rows: list[dict[str, object]] = []
    boxes: list[tuple[float, ...]] = []
    dropped: Counter[str] = Counter()
    for n, box in enumerate(message.boxes):
        sides = (box.distance, -box.center_x, -box.center_y, box.width, box.width, box.height)
        name = box.label
        if name not in context.classes and name.isdecimal() and len(name) <= 4 and int(name) < len(context.classes):
            name = context.classes[int(name)]  # a class that is reported by its number
        label = context.label_map.get(name, name)
        fault = _find_fault(box, sides, label, context)
        if fault is not None:
            dropped[fault] += 1
            continue
        track = _find_own_uuid(box.track_id) or _make_uuid(f"{context.sequence}/{context.frame}/3d/{n}")
        index = context.index_of(label)
        rows.append({"label": label, "label_index": index, "object_id": track, "box3d_score": box.score})
        boxes.append(sides)
    if rows:
        place = context.place_of(read_frame_id(message) or "")
        moved = move_boxes(boxes, place.way)
        if motion is not None and place.frame == BASE:
            moved = move_boxes(moved, motion)
        for row, solid in zip(rows, moved.tolist(), strict=True):
            row["box3d"] = tuple(solid)
    return rows, dropped


def _make_cube_rows(
    message: Cubes, context: Context, world: World | None
) -> tuple[list[dict[str, object]], Counter[str]]:
    """Turn boxes with poses of their own into annotation rows, as `make_box_rows`; they have no score."""
    rows: list[dict[str, object]] = []
    dropped: Counter[str] = Counter()
    for n, box in enumerate(message.boxes):
        label = context.label_map.get(box.label, box.label)
        frame, way = box.frame_id, make_pose(make_rotation(box.orientation), np.array(box.position))
        if world is not None and frame == world.fixed:
            if world.way is None:
                dropped[NOT_PLACED] += 1
                continue
            frame, way = world.vehicle, world.way @ way
        way = context.place_of(frame).own_axes @ way
        (solid,) = move_boxes([(0.0, 0.0, 0.0, *box.size)], way).tolist()
        if not all(map(math.isfinite, solid)) or (box.label and not label):
            dropped[DROPPED_LABEL if box.label and not label else NOT_FINITE] += 1
            continue
        track = _make_uuid(f"{context.sequence}/{box.track or f'{context.frame}/3d/{n}'}")
        index = context.index_of(label)
        rows.append({"label": label or None, "label_index": index, "object_id": track, "box3d": tuple(solid)})
    return rows, dropped


def make_object_id(track: str, box: int, context: Context) -> str:
    """A UUID in lower case: the device's own, else one of sequence and track, else of sequence, frame and box."""
    if track:
        return _find_own_uuid(track) or _make_uuid(f"{context.sequence}/{track}")
    return _make_uuid(f"{context.sequence}/{context.frame}/{box}")


def _find_own_uuid(track: str) -> str | None:
    try:
        return str(uuid.UUID(track))
    except ValueError:
        return None


def _make_uuid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def _find_fault(box: DetectBox, sides: Sequence[float], label: str, context: Context) -> str | None:
    """Return why a box does not become a row; None if it does."""
    if not all(map(math.isfinite, (*sides, box.score))):
        return NOT_FINITE
    if not 0 <= box.score <= 1:
        return BAD_SCORE
    if box.score < context.min_score:
        return LOW_SCORE
    return DROPPED_LABEL if box.label and not label else None


def _add_mask(
    row: dict[str, object], mask: Mask | MaskBox, box: DetectBox | None, context: Context, dropped: Counter[str]
) -> None:
    """Put a mask into its row, an instance's with its box; or count why not, where it is needed."""
    if not context.masks:
        return
    if box is None and not context.semantic:
        dropped[SEMANTIC] += 1
    elif context.size is None:  # a mask has the size of its picture
        dropped[MASK_NO_PICTURE] += 1
    else:
        try:
            size = context.size
            row["mask"] = (
                encode_classes(mask, size, context.values()) if box is None else encode_instance(mask, box, size)
            )
        except MessageError:
            dropped[BAD_MASK] += 1


def _read_timing(message: Any) -> dict[str, int | None]:
    """{load, preprocess, inference, decode} in ns; load includes preprocessing, the older Detect has no decode_time.

    Until November 2025 a Detect had stamps around its model_time: that of its header, and that of a monotonic clock.
    """
    if _has_stamps(message):
        return {"load": None, "preprocess": None, "inference": _sum_ns(message.model_time), "decode": None}
    load = message.input_time if hasattr(message, "input_time") else message.input_timestamp
    decode = [message.output_time, message.decode_time] if hasattr(message, "decode_time") else [message.output_time]
    inference = _sum_ns(message.model_time)
    return {"load": _sum_ns(load), "preprocess": None, "inference": inference, "decode": _sum_ns(*decode)}


def _has_stamps(message: Any) -> bool:
    given, stamp = getattr(message, "input_timestamp", None), message.stamp
    return given is not None and (given.sec, given.nanosec) == (stamp.sec, stamp.nanosec)


def is_idle(message: Any) -> bool:
    """True if a Detect says only that the camera sends: the vendor's model sends such ones while it is loaded."""
    return _has_stamps(message) and not _sum_ns(message.model_time) and not message.boxes


def _sum_ns(*times: Duration | Time) -> int | None:
    """Return the sum; None where one is negative: the clock was set back while it was measured."""
    found = [time.sec * 1_000_000_000 + time.nanosec for time in times]
    return sum(found) if min(found) >= 0 else None
