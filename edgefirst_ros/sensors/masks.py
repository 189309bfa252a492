# SPDX-License-Identifier: Apache-2.0
"""Masks of a model as PNG files of the picture's size: of one object, or of the class of every pixel.

Source: EdgeFirst Annotation Schema 2026.04, "Geometry: Raster Mask".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import CANNOT_BE_STORED
from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.png import encode_gray, encode_png

if TYPE_CHECKING:
    from edgefirst.schemas.edgefirst_msgs import DetectBox, Mask, MaskBox

MAX_CELLS = 1 << 26
"""Masks of more cells, or of more scores, are rejected, before anything is unpacked."""
OBJECT = 127
"""Cells above this value are object."""
VOID = 255
"""Pixels without a class have this value; the classes of a mask are below it."""


def is_empty(mask: Mask | MaskBox) -> bool:
    """True if a mask has no cells at all, as the device sends it where the model found no object."""
    return not mask.width * mask.height and not len(mask.mask)


def encode_instance(mask: Mask | MaskBox, box: DetectBox, size: tuple[int, int]) -> bytes:
    """Return an instance mask in the full picture of `size` (width, height): a 1-bit grayscale PNG, 1 is object.

    Pixel x of W shows cell floor(((x + 1/2)/W - left)/width * columns) of the box, lines also.
    Raises MessageError(CANNOT_BE_STORED) when its cells do not fit its size.
    """
    cells = _read_scores(mask, 1)[:, :, 0] > OBJECT
    width, height = size
    columns, inside_x = _place_pixels(width, box.center_x, box.width, mask.width)
    lines, inside_y = _place_pixels(height, box.center_y, box.height, mask.height)
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
    return encode_png(packed, width, 1)


def encode_classes(mask: Mask | MaskBox, size: tuple[int, int], values: NDArray[np.uint8]) -> bytes:
    """Return the class of every pixel of a picture of `size` (width, height): an 8-bit grayscale PNG.

    The mask covers the picture: with one value a cell it is the class, with several they are the scores of the classes,
    of which the highest counts, of equal ones the first. `values`, uint8 (256,): the value written for each class.
    Raises MessageError(CANNOT_BE_STORED) when the mask contradicts its description, or has more than 255 classes.
    """
    scores = _read_scores(mask, VOID)
    width, height = size
    lines = (2 * np.arange(height) + 1) * mask.height // (2 * height)
    columns = (2 * np.arange(width) + 1) * mask.width // (2 * width)
    if mask.height > height:  # only the lines that are used
        scores, lines = scores[lines], np.arange(height)
    return encode_gray(values[_find_classes(scores)][:, columns][lines])


def _find_classes(scores: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the class of each cell, uint8 (lines, columns), from (lines, columns, values)."""
    count = scores.shape[2]
    if count == 1:
        return scores[:, :, 0]
    best = scores[:, :, 0].copy()
    found = np.zeros(best.shape, np.uint8)
    for number in range(1, count):  # argmax would need eight bytes a cell
        better = scores[:, :, number] > best
        np.copyto(best, scores[:, :, number], where=better)
        found[better] = number
    return found


def _place_pixels(pixels: int, centre: float, extent: float, cells: int) -> tuple[NDArray[np.intp], slice]:
    """(cell of each pixel inside the box, the slice of these pixels) along one side of the picture."""
    if extent <= 0:
        return np.empty(0, np.intp), slice(0, 0)
    with np.errstate(over="ignore"):  # a box of next to no width has its cells infinitely far from most pixels
        place = np.floor(((np.arange(pixels) + 0.5) / pixels - (centre - extent / 2)) / extent * cells)
    # Cells never decrease along the side, so the pixels inside are one run.
    begin, end = np.searchsorted(place, (0, cells)).tolist()
    return place[begin:end].astype(np.intp), slice(begin, end)


def _read_scores(mask: Mask | MaskBox, most: int) -> NDArray[np.uint8]:
    """Return the unpacked values of a mask, uint8 (height, width, values a cell), at most `most` a cell.

    How many they are follows from the number of bytes.
    """
    cells = mask.height * mask.width
    if not 0 < cells <= MAX_CELLS:
        raise MessageError(CANNOT_BE_STORED, f"mask of {mask.width} x {mask.height} cells")
    data: Any = mask.mask
    if not isinstance(data, bytes):
        data = data.view()  # on Python 3.10 the codec's own views are no buffers
    if mask.encoding == "zstd":
        data = _unpack_frame(data, min(cells * most, MAX_CELLS))
    elif mask.encoding:
        raise MessageError(CANNOT_BE_STORED, f"mask encoding {mask.encoding!r}, expected none or 'zstd'")
    values, odd = divmod(len(data), cells)
    if odd or not 0 < values <= most:
        found = f"{len(data)} bytes for a mask of {mask.width} x {mask.height} cells"
        raise MessageError(CANNOT_BE_STORED, f"{found}, expected 1 to {most} a cell" if most > 1 else found)
    return np.frombuffer(data, np.uint8).reshape(mask.height, mask.width, values)


def _unpack_frame(data: Any, limit: int) -> bytes:
    """Return the content of a zstd frame; one that states more than `limit` bytes is not unpacked at all."""
    import zstandard

    try:
        said = zstandard.frame_content_size(data)
        if said <= limit:  # -1 where it does not say
            with zstandard.ZstdDecompressor(max_window_size=2 * MAX_CELLS).stream_reader(data) as reader:
                unpacked = reader.read(limit + 1)
            if len(unpacked) <= limit:
                return unpacked
    except zstandard.ZstdError as error:
        raise MessageError(CANNOT_BE_STORED, f"mask: {error}") from error
    raise MessageError(CANNOT_BE_STORED, f"mask that unpacks to more than the {limit} bytes its cells can have")
