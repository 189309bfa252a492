# SPDX-License-Identifier: Apache-2.0
"""Texts of types come with the recording, so they can say anything."""

import struct

import pytest

from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import LONGEST_DEFINITION, TF_MESSAGE, Message, _foreign_decoder, decode
from edgefirst_ros.sensors.calibration import Calibration

LINE = "\n" + "=" * 80 + "\nMSG: "
TEXTS = LINE.join(
    (
        "x/T[] transforms",
        "x/T\nx/H header\nstring child_frame_id\nx/B transform",
        "x/H\nstring frame_id",
        "x/B\nx/V translation\nx/V rotation",
        "x/V\nstring x\nstring y\nstring z\nstring w",
    )
)
"""A transform of texts in place of numbers."""


def message(definition, data, schema=TF_MESSAGE):
    return Message("/tf_static", schema, 1, 1, 1, b"\0\1\0\0" + data, definition.encode())


def test_messages_of_nothing_are_not_made():
    """Four bytes for any number of messages that take none; a library refuses them, and shall go on to do so."""
    for field in ("uint8[0] none", "string[00] none", "uint8[\u0660] none", "x/Other[0] none"):
        with pytest.raises(MessageError, match="undecodable"):
            decode(message(f"x/Empty[] many{LINE}x/Empty\n{field}", struct.pack("<I", 1000)))


def test_arrays_end_where_the_message_ends():
    """A list of as many as are announced is never begun where its first parts are missing."""
    some = f"x/Full[] many{LINE}x/Full\nuint8[1] one"
    assert len(decode(message(some, struct.pack("<I", 3) + bytes(3))).many) == 3
    with pytest.raises(MessageError, match="bytes are announced"):
        decode(message(some, struct.pack("<I", 100_000) + bytes(3)))
    with pytest.raises(MessageError, match="bytes are announced"):
        decode(message("uint8[] all", struct.pack("<I", 5) + bytes(4)))


def test_a_text_that_is_too_long_is_not_read():
    text = "uint8 value"
    assert decode(message(text, b"\7", "x/msg/Short")).value == 7
    with pytest.raises(MessageError, match="undecodable"):
        decode(message(text + "\n" * LONGEST_DEFINITION, b"\7", "x/msg/Short"))


def test_a_text_that_is_none_is_read_once():
    """Not with every message: of a long one that takes longer than any message may."""
    bad = message("? ? ?", b"", "x/msg/Bad")
    before = _foreign_decoder.cache_info()
    for _ in range(5):
        with pytest.raises(MessageError, match="undecodable"):
            decode(bad)
    after = _foreign_decoder.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 4)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("uint8 value", b"\7"),
        ("uint8 transforms", b"\7"),
        (f"x/Other[] transforms{LINE}x/Other\nuint8 value", struct.pack("<I", 1) + b"\7"),
        (TEXTS, struct.pack("<I", 1) + struct.pack("<I4s", 2, b"a\0") * 10),
    ],
)
def test_transforms_with_other_fields_are_undecodable(text, data):
    content = decode(message(text, data))
    with pytest.raises(MessageError, match="undecodable"):
        Calibration().take(TF_MESSAGE, content)
