# SPDX-License-Identifier: Apache-2.0
"""Pictures in a dataset that are made to hurt whoever decodes them."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from edgefirst_ros.dataset import sample as pictures
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.sensors.cube import decode_cube


def png(mode, *chunks):
    """A black PNG with chunks of our own behind its pixels, where Pillow looks at them when it decodes.

    Its second line has a filter that the others have not, so that it is Pillow that reads it.
    """
    head = struct.pack(">IIBBBBB", 4, 3, *{"RGB": (8, 2), "I;16": (16, 0)}[mode], 0, 0, 0)
    line = bytes({"RGB": 12, "I;16": 8}[mode])
    pixels = zlib.compress(b"\0" + line + b"\2" + line + b"\0" + line)
    made = [b"IHDR" + head, b"IDAT" + pixels, *chunks, b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in made
    )


def test_a_profile_without_an_end_is_a_dataset_error():
    """Pillow looks behind the name of the profile without asking whether there is anything."""
    for body in (b"iCCP", b"iCCPname"):
        with pytest.raises(DatasetError):
            pictures.decode_image(png("RGB", body))
        with pytest.raises(DatasetError):
            decode_cube(png("I;16", body))
    assert decode_cube(png("I;16")).values.shape == (1, 3, 1, 4)


def test_a_picture_of_too_many_pixels_is_refused(monkeypatch):
    assert pictures.decode_image(png("RGB")).shape == (3, 4, 3)
    monkeypatch.setattr(pictures, "MAX_PIXELS", 11)
    with pytest.raises(DatasetError, match="4 x 3 pixels"):
        pictures.decode_image(png("RGB"))


def jpeg(side, scans):
    """A JPEG that says it has `side` x `side` pixels, its only scan repeated."""
    file = io.BytesIO()
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(file, "JPEG")
    data = file.getvalue()
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    data = data[: frame + 5] + struct.pack(">HH", side, side) + data[frame + 9 :]
    return data[:scan] + data[scan:-2] * scans + b"\xff\xd9"


def test_many_scans_over_many_pixels_are_refused():
    """A few kilobytes that would keep a decoder busy for minutes; a comment may say what it likes."""
    assert pictures.decode_image(jpeg(16, 1)).shape == (16, 16, 3)
    with pytest.raises(DatasetError, match="100 scans of 8000 x 8000 pixels"):
        pictures.decode_image(jpeg(8000, 100))
    noted = jpeg(16, 1)
    comment = b"\xff\xfe" + struct.pack(">H", 2 + 20_000) + b"\xff\xda" * 10_000
    assert pictures.decode_image(noted[:2] + comment + noted[2:]).shape == (16, 16, 3)
