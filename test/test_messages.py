# SPDX-License-Identifier: Apache-2.0
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rosbags.typesys import Stores, get_typestore

from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import (
    KNOWN_TOPICS,
    Message,
    decode,
    expand_type,
    find_known_name,
    read_first_stamp,
    read_header_stamp,
)
from edgefirst_ros.streams import TF_MESSAGE

GOLDEN = Path(__file__).parents[2] / "shared" / "data" / "cdr"
USED = {schema.rpartition("/")[2] for kinds in KNOWN_TOPICS.values() for schema in kinds}
FILES = sorted(file for file in GOLDEN.rglob("*.cdr") if file.stem.partition("_")[0] in USED)
ENCODABLE = st.characters(exclude_categories=["Cs"])
"""As text without options, for which Hypothesis would try every character: seconds where it has no cache."""
ROS = get_typestore(Stores.ROS2_HUMBLE)
TF = b"""geometry_msgs/TransformStamped[] transforms
================================================================================
MSG: geometry_msgs/TransformStamped
std_msgs/Header header
string child_frame_id
geometry_msgs/Transform transform
================================================================================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================================================================================
MSG: geometry_msgs/Transform
geometry_msgs/Vector3 translation
geometry_msgs/Quaternion rotation
================================================================================
MSG: geometry_msgs/Vector3
float64 x
float64 y
float64 z
================================================================================
MSG: geometry_msgs/Quaternion
float64 x
float64 y
float64 z
float64 w
"""


def message(schema, data, definition=b""):
    return Message("/topic", schema, 1, 2, 3, bytes(data), definition)


def made(kind, **values):
    return ROS.types[kind](**values)


def stamp(sec, nanosec):
    return made("builtin_interfaces/msg/Time", sec=sec, nanosec=nanosec)


def header(sec=1_700_000_000, nanosec=123_456_789, frame="frame"):
    return made("std_msgs/msg/Header", stamp=stamp(sec, nanosec), frame_id=frame)


def transforms(number=2):
    parts = [
        made(
            "geometry_msgs/msg/TransformStamped",
            header=header(),
            child_frame_id=f"child{n}",
            transform=made(
                "geometry_msgs/msg/Transform",
                translation=made("geometry_msgs/msg/Vector3", x=1.5 * n, y=-2.0, z=3.25),
                rotation=made("geometry_msgs/msg/Quaternion", x=0.0, y=0.0, z=0.0, w=1.0),
            ),
        )
        for n in range(number)
    ]
    return parts, ROS.serialize_cdr(made("tf2_msgs/msg/TFMessage", transforms=parts), "tf2_msgs/msg/TFMessage")


def image(data, **changes):
    values = {"header": header(), "height": 2, "width": 3, "encoding": "mono8", "is_bigendian": 0, "step": 3,
              "data": np.frombuffer(data, np.uint8), **changes}  # fmt: skip
    return bytes(ROS.serialize_cdr(made("sensor_msgs/msg/Image", **values), "sensor_msgs/msg/Image"))


# ---- names -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("sensor_msgs/Image", "sensor_msgs/msg/Image"),
        ("sensor_msgs/msg/Image", "sensor_msgs/msg/Image"),
        ("Image", "Image"),
        ("", ""),
        ("a/b/c/d", "a/b/c/d"),
        ("a b/c", "a b/c"),
    ],
)
def test_short_and_long_names_of_a_type(short, long):
    assert expand_type(short) == long


@pytest.mark.parametrize("name", sorted(KNOWN_TOPICS))
def test_known_topics_are_found_under_any_prefix(name):
    for schema in KNOWN_TOPICS[name]:
        for prefix in ("", "/", "rt/", "/rt/", "/host/", "rt/host/", "host/"):
            assert find_known_name(prefix + name, schema) == name
        assert find_known_name(f"/a/b/{name}", schema) == (name if schema == TF_MESSAGE else None)
        assert find_known_name(name + "x", schema) is None
        assert find_known_name(name, "other_msgs/msg/Type") is None


@given(st.text(ENCODABLE, max_size=300), st.text(ENCODABLE, max_size=60))
def test_no_topic_is_too_strange(topic, schema):
    assert find_known_name(topic, schema) is None
    assert isinstance(expand_type(schema), str)


# ---- stamps ------------------------------------------------------------------------------
@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1), st.booleans())
def test_the_stamp_at_the_head(seconds, nanoseconds, little):
    data = struct.pack("<BBH" + "iI", 0, 1, 0, seconds, nanoseconds) if little else struct.pack(
        ">BBHiI", 0, 0, 0, seconds, nanoseconds
    )  # fmt: skip
    assert read_header_stamp(message("sensor_msgs/msg/Image", data + b"more")) == seconds * 10**9 + nanoseconds


def test_messages_without_header_have_no_stamp():
    data = image(bytes(6))
    assert read_header_stamp(message("sensor_msgs/msg/Image", data)) == 1_700_000_000_123_456_789
    assert read_header_stamp(message("edgefirst_msgs/msg/Mask", data)) is None
    assert read_header_stamp(message("tf2_msgs/msg/TFMessage", data)) is None
    for length in range(12):
        assert read_header_stamp(message("sensor_msgs/msg/Image", data[:length])) is None


@pytest.mark.parametrize("order", ["<", ">"])
def test_masks_of_before_2025_end_without_boxed(order):
    """Source: EdgeFirstAI/schemas, edgefirst_msgs/msg/Mask.msg until 1.2.6."""
    data = struct.pack(f"{order}IIII5s3xI", 2, 3, 1, 5, b"zstd\0", 6) + b"sixpix"
    for more, boxed in ((b"", False), (b"\0", False), (b"\1", True)):
        found = decode(message("edgefirst_msgs/msg/Mask", (b"\0\1\0\0" if order == "<" else bytes(4)) + data + more))
        assert (found.height, found.width, found.encoding, bytes(found.mask.view()), found.boxed) == (
            2, 3, "zstd", b"sixpix", boxed,
        )  # fmt: skip


@pytest.mark.skipif(not FILES, reason="no golden messages here")
@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_golden_messages(file):
    """Whole: decoded, and the stamp is the codec's own. Cut anywhere, or with any length wrong: undecodable or a
    message, never another error."""
    schema = f"{file.parent.name}/msg/{file.stem.partition('_')[0]}"
    data = file.read_bytes()
    content = decode(message(schema, data))
    own = content.stamp if hasattr(content, "stamp") else None
    if own is not None:
        assert read_header_stamp(message(schema, data)) == own.sec * 10**9 + own.nanosec
    else:
        assert schema in ("edgefirst_msgs/msg/Mask", "foxglove_msgs/msg/CompressedVideo")
    for length in range(len(data) - schema.endswith("/Mask")):
        with pytest.raises(MessageError, match="/topic") as caught:
            decode(message(schema, data[:length]))
        assert caught.value.reason == "undecodable"
    decided = set()
    for at in range(0, len(data) - 3, 4):
        for value in (0xFFFFFFFF, 0x7FFFFFFF, 0x10000000, len(data)):
            hurt = bytearray(data)
            struct.pack_into("<I", hurt, at, value)
            try:
                decode(message(schema, hurt))
                decided.add(True)
            except MessageError:
                decided.add(False)
    assert decided == {True, False}


# ---- decoding ----------------------------------------------------------------------------
def test_bulk_fields_are_those_that_were_written():
    pixels = random.Random(0).randbytes(6)
    content = decode(message("sensor_msgs/msg/Image", image(pixels)))
    assert (content.height, content.width, content.encoding, content.step) == (2, 3, "mono8", 3)
    assert content.data.tobytes() == pixels


@pytest.mark.parametrize("definition", [b"", b"Header header\nstring transforms"])
def test_of_transforms_the_text_in_the_recording_does_not_count(definition):
    parts, data = transforms()
    sent = message("tf2_msgs/msg/TFMessage", data, definition)
    for found, part in zip(decode(sent).transforms, parts, strict=True):
        moved = part.transform.translation
        assert (found.frame_id, found.child_frame_id) == ("frame", part.child_frame_id)
        assert found.translation == (moved.x, moved.y, moved.z)
        assert found.stamp // 10**9 == 1_700_000_000
    assert read_first_stamp(sent) == decode(sent).transforms[0].stamp


def test_a_type_the_codec_lacks_is_decoded_by_its_text():
    parts, data = transforms()
    content = decode(message("own_msgs/msg/Transforms", data, TF))
    assert len(content.transforms) == 2
    for found, part in zip(content.transforms, parts, strict=True):
        assert found.child_frame_id == part.child_frame_id
        assert found.header.frame_id == "frame"
        assert found.transform.translation.x == part.transform.translation.x
        assert found.header.stamp.sec == 1_700_000_000


@pytest.mark.parametrize(
    ("schema", "definition"),
    [
        ("own_msgs/msg/Transforms", b""),
        ("own_msgs/msg/Transforms", b"no definition at all"),
        ("own_msgs/msg/Transforms", b"\xff\xfe"),
        ("own_msgs/msg/Transforms", b"geometry_msgs/Missing[] transforms"),
        ("none_msgs/msg/None", b""),
        ("sensor_msgs/msg/__doc__", b""),
        ("sensor_msgs", b""),
        ("__name__/msg/upper", b""),
        ("os/msg/path", b""),
        ("/msg/", b""),
        ("", b""),
        ("\0/msg/\0", b""),
    ],
)
def test_a_type_nobody_knows_is_undecodable(schema, definition):
    with pytest.raises(MessageError, match="undecodable"):
        decode(message(schema, transforms()[1], definition))


def test_a_foreign_message_that_ends_early_is_undecodable():
    data = transforms()[1]
    for length in range(len(data) - 8):
        with pytest.raises(MessageError, match="undecodable"):
            decode(message("tf2_msgs/msg/TFMessage", data[:length], TF))


def test_a_false_length_does_not_end_the_process():
    """The vendor's codec reserves memory for as many points as are announced: no circle, one annotation with these."""
    data = b"\0\1\0\0" + struct.pack("<6I", 0, 1, 0, 0, 1, 0x7FFFFFFF) + bytes(256)
    with pytest.raises(MessageError, match="undecodable"):
        decode(message("foxglove_msgs/msg/ImageAnnotations", data))
