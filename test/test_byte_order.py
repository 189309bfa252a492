# SPDX-License-Identifier: Apache-2.0
"""Big-endian messages, as rosbags writes them in both byte orders."""

import random

import numpy as np
import pytest
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import CDR_FIELDS, KNOWN_TOPICS, Message, decode, make_little_endian, read_header_stamp
from edgefirst_ros.streams import ROLES, TF_MESSAGE
from edgefirst_ros.synthetic.definitions import make_definition

USED = sorted(
    {kind for kinds in KNOWN_TOPICS.values() for kind in kinds if not kind.startswith("edgefirst_ros/")}
    | {*ROLES["pose"]}
)
STORE = get_typestore(Stores.ROS2_HUMBLE)
STORE.register(
    {
        name: kind
        for schema in USED
        if schema not in STORE.types
        for name, kind in get_types_from_msg(make_definition(schema).decode(), schema).items()
        if name not in STORE.types
    }
)
WIDTHS = {"bool": "?", "int8": "i1", "uint8": "u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4",
          "uint64": "<u8", "float32": "<f4", "float64": "<f8"}  # fmt: skip


def drawn(schema, rng):
    """A message of a type with random content."""
    fields = {name: field(kind, rng) for name, kind in STORE.fielddefs[schema][1]}
    return STORE.types[schema](**fields)


def field(kind, rng):
    node, inner = kind
    if node == Nodetype.NAME:
        return drawn(inner, rng)
    if node == Nodetype.BASE:
        name = inner[0]
        return "ü" * rng.randrange(5) if name == "string" else numbers(name, 1, rng)[0].item()
    of, count = inner
    count = count or rng.randrange(5)
    if of[0] == Nodetype.BASE and of[1][0] != "string":
        return numbers(of[1][0], count, rng)
    return [field(of, rng) for _ in range(count)]


def numbers(name, count, rng):
    if name == "bool":
        return np.array([rng.random() < 0.5 for _ in range(count)])
    kind = np.dtype(WIDTHS[name])
    if kind.kind == "f":
        return np.array([rng.uniform(-9, 9) for _ in range(count)], kind)
    return np.frombuffer(rng.randbytes(kind.itemsize * count), kind)


@pytest.mark.parametrize("schema", sorted(CDR_FIELDS))
def test_a_message_in_both_byte_orders_is_the_same(schema):
    for seed in range(40):
        content = drawn(schema, random.Random(seed))
        big = bytes(STORE.serialize_cdr(content, schema, little_endian=False))
        little = bytes(STORE.serialize_cdr(content, schema))
        assert big[1] == 0 != little[1]
        assert make_little_endian(schema, big) == little
        decode(Message("/topic", schema, 1, 2, 3, big))


def test_every_type_in_use_can_be_turned():
    assert set(USED) == set(CDR_FIELDS)


@pytest.mark.parametrize("little", [False, True])
def test_fields_are_those_that_were_sent(little):
    schema = "edgefirst_msgs/msg/RadarCube"
    sent = drawn(schema, random.Random(1))
    sent.cube = np.array([-32768, 1, 258], np.int16)
    message = Message("/topic", schema, 1, 2, 3, bytes(STORE.serialize_cdr(sent, schema, little_endian=little)))
    found = decode(message)
    assert np.frombuffer(found.cube.view(), "<i2").tolist() == [-32768, 1, 258]
    assert np.frombuffer(found.scales.view(), "<f4").tolist() == sent.scales.tolist()
    assert read_header_stamp(message) == sent.header.stamp.sec * 10**9 + sent.header.stamp.nanosec


@pytest.mark.parametrize("schema", USED)
def test_one_that_ends_early_or_is_of_zeros_alone_is_undecodable(schema):
    big = bytes(STORE.serialize_cdr(drawn(schema, random.Random(2)), schema, little_endian=False))
    ends = {"ModelInfo": 2, "Mask": 1}  # last fields, of a byte each, that older messages do not have
    older = len(big) - ends.get(schema.rpartition("/")[2], 0)
    cut = [big[:length] for length in range(len(big)) if length != older]
    for data in [*cut, *([] if schema == TF_MESSAGE else [bytes(400)])]:
        with pytest.raises(MessageError, match="undecodable"):
            decode(Message("/topic", schema, 1, 2, 3, data))
