# SPDX-License-Identifier: Apache-2.0
"""Texts of types come with the recording, so they can say anything."""

import struct

import pytest

from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import LONGEST_DEFINITION, Message, _make_decoder, decode
from edgefirst_ros.sources.bags import open_converter
from edgefirst_ros.streams import TF_MESSAGE

LINE = "\n" + "=" * 80 + "\nMSG: "


def message(definition, data, schema="x/msg/Own"):
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


def test_a_text_of_ros1_that_is_too_long_is_not_read():
    """Of a million bytes of fields `rosbags` would read for minutes."""
    fields = "\n".join(f"uint8 a{n}" for n in range(90_000))
    for text, turned in (("uint8 value", b"\0\1\0\0\7"), (fields, b"")):
        kind, convert = open_converter("x/msg/Own", text.encode(), None)
        assert (kind, convert(b"\7")) == ("x/msg/Own", turned)


def test_a_text_that_is_none_is_read_once():
    """Not with every message: of a long one that takes longer than any message may."""
    bad = message("? ? ?", b"", "x/msg/Bad")
    before = _make_decoder.cache_info()
    for _ in range(5):
        with pytest.raises(MessageError, match="undecodable"):
            decode(bad)
    after = _make_decoder.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 4)


@pytest.mark.parametrize("text", ["uint8 value", "uint8 transforms", f"x/T[] transforms{LINE}x/T\nuint8 value", "?"])
@pytest.mark.parametrize("data", [b"\7", struct.pack("<I", 1) + b"\7"])
def test_transforms_with_other_fields_are_undecodable(text, data):
    """What the recording says of a type in use does not count."""
    with pytest.raises(MessageError, match="undecodable"):
        decode(message(text, data, TF_MESSAGE))
