# SPDX-License-Identifier: Apache-2.0
"""Model results as annotation rows: boxes, tracks and instance masks of Model and Detect messages.

Source: device.md 6; dataset.md 5 and 9, "Annotations".
"""

from __future__ import annotations

import math
import struct
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import zstandard
from isal import isal_zlib
from numpy.typing import NDArray

from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.picture_file import PNG_SIGNATURE, png_chunk

if TYPE_CHECKING:
    from edgefirst.schemas.builtin_interfaces import Duration, Time
    from edgefirst.schemas.edgefirst_msgs import Detect, DetectBox, MaskBox, Model

MAX_CELLS = 1 << 26
"""Masks of more cells are refused, before anything is unpacked."""
OBJECT = 127
"""Cells above this value are object."""
NOT_FINITE, BAD_SCORE = "box is not finite", "score outside 0..1"
BAD_MASK, SEMANTIC = "mask cannot be read", "semantic mask"
"""Reasons under which boxes and masks are counted that give no row or no mask."""


@dataclass(frozen=True, slots=True)
class Context:
    """The frame a result belongs to: its sequence, number, picture size (width, height), and the model's labels."""

    sequence: str
    frame: int
    size: tuple[int, int] | None
    labels: Sequence[str] = ()


def rows_of_model(message: Model | Detect, context: Context) -> tuple[list[dict[str, object]], Counter[str]]:
    """(annotation rows, {reason: number}) of a result.

    A row has box2d (center_x, center_y, width, height) as sent, normalised; box2d_score; label; label_index, the
    position in the labels or None; object_id, a UUID; timing in ns; and mask, a 1-bit PNG of the picture's size,
    where masks[i] belongs to boxes[i].  Boxes that are not finite or have a score outside 0..1 give no row, broken
    and semantic masks no mask; both are counted.
    """
    rows: list[dict[str, object]] = []
    dropped: Counter[str] = Counter()
    boxes = message.boxes
    masks = getattr(message, "masks", [])
    dropped.update({SEMANTIC: sum(not mask.boxed for mask in masks)})
    timing = _timing(message)
    for n, box in enumerate(boxes):
        sides = (box.center_x, box.center_y, box.width, box.height)
        if not all(map(math.isfinite, (*sides, box.score))):
            dropped[NOT_FINITE] += 1
            continue
        if not 0 <= box.score <= 1:
            dropped[BAD_SCORE] += 1
            continue
        row: dict[str, object] = {
            "label": box.label,
            "label_index": context.labels.index(box.label) if box.label in context.labels else None,
            "object_id": object_id(box.track_id, n, context),
            "box2d": sides,
            "box2d_score": box.score,
            "timing": timing,
        }
        if n < len(masks) and masks[n].boxed and context.size is not None:  # a mask has the size of its picture
            try:
                row["mask"] = mask_png(masks[n], box, context.size)
            except MessageError:
                dropped[BAD_MASK] += 1
        rows.append(row)
    dropped[BAD_MASK] += sum(mask.boxed for mask in masks[len(boxes) :])
    return rows, +dropped


def object_id(track: str, box: int, context: Context) -> str:
    """A UUID in lower case: the device's own, else one of sequence and track, else of sequence, frame and box."""
    if track:
        try:
            return str(uuid.UUID(track))
        except ValueError:
            return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{context.sequence}/{track}"))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{context.sequence}/{context.frame}/{box}"))


def mask_png(mask: MaskBox, box: DetectBox, size: tuple[int, int]) -> bytes:
    """An instance mask in the full picture of `size` (width, height): a 1-bit grayscale PNG, 1 is object.

    Pixel x of W shows cell floor(((x + 1/2)/W - left)/width * columns) of the box, lines likewise.
    Raises MessageError("cannot be stored") when the mask is not what it says.
    """
    cells = _cells(mask) > OBJECT
    width, height = size
    columns, inside_x = _placed(width, box.center_x, box.width, mask.width)
    lines, inside_y = _placed(height, box.center_y, box.height, mask.height)
    packed = np.zeros((height, 1 + (width + 7) // 8), np.uint8)
    if inside_x.stop > inside_x.start and inside_y.stop > inside_y.start:
        if len(cells) > len(lines):
            cells, lines = cells[lines], np.arange(len(lines))
        # Only the bytes that the box touches are made, and lines that show one line of cells only once.
        first = inside_x.start // 8 * 8
        picked = np.zeros((len(cells), inside_x.stop - first), np.bool_)
        picked[:, inside_x.start - first :] = cells[:, columns]
        bits = np.packbits(picked, axis=1)
        packed[inside_y, 1 + first // 8 : 1 + first // 8 + bits.shape[1]] = bits[lines]
    return b"".join(
        (
            PNG_SIGNATURE,
            png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)),
            png_chunk(b"IDAT", isal_zlib.compress(packed, 1)),
            png_chunk(b"IEND", b""),
        )
    )


def _placed(pixels: int, centre: float, extent: float, cells: int) -> tuple[NDArray[np.intp], slice]:
    """(cell of each pixel inside the box, the slice of these pixels) along one side of the picture."""
    if extent <= 0:
        return np.empty(0, np.intp), slice(0, 0)
    with np.errstate(over="ignore"):  # a box of next to no width has its cells infinitely far from most pixels
        place = np.floor(((np.arange(pixels) + 0.5) / pixels - (centre - extent / 2)) / extent * cells)
    # Cells never go back along the side, so what is inside is one run.
    begin, end = np.searchsorted(place, (0, cells)).tolist()
    return place[begin:end].astype(np.intp), slice(begin, end)


def _cells(mask: MaskBox) -> NDArray[np.uint8]:
    """The cells of a mask, uint8 (height, width), unpacked."""
    count = mask.height * mask.width
    if not 0 < count <= MAX_CELLS:
        raise MessageError("cannot be stored", f"mask of {mask.width} x {mask.height} cells")
    data = mask.mask
    if mask.encoding == "zstd":
        data = _unpacked(data, count)
    elif mask.encoding:
        raise MessageError("cannot be stored", f"mask encoding {mask.encoding!r}")
    if len(data) < count:
        raise MessageError("cannot be stored", f"{len(data)} bytes for a mask of {mask.width} x {mask.height} cells")
    return np.frombuffer(data, np.uint8, count).reshape(mask.height, mask.width)


def _unpacked(data: bytes, size: int) -> bytes:
    """The first `size` bytes; no more is unpacked, whatever the frame says of itself."""
    try:
        with zstandard.ZstdDecompressor(max_window_size=2 * MAX_CELLS).stream_reader(data) as reader:
            return reader.read(size)
    except zstandard.ZstdError as error:
        raise MessageError("cannot be stored", f"mask: {error}") from error


def _timing(message: Any) -> dict[str, int | None]:
    """{load, preprocess, inference, decode} in ns; load includes preprocessing, the older Detect has no decode_time."""
    load = message.input_time if hasattr(message, "input_time") else message.input_timestamp
    decode = _nanoseconds(message.output_time)
    if hasattr(message, "decode_time"):
        decode += _nanoseconds(message.decode_time)
    inference = _nanoseconds(message.model_time)
    return {"load": _nanoseconds(load), "preprocess": None, "inference": inference, "decode": decode}


def _nanoseconds(time: Duration | Time) -> int:
    return time.sec * 1_000_000_000 + time.nanosec
