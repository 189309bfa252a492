# SPDX-License-Identifier: Apache-2.0
"""Parses keys, encodings, liveliness tokens and attachments of a Zenoh network.

Sources: the device's services; rmw_zenoh, design.md; zenoh-plugin-ros2dds, liveliness_mgt.rs.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from edgefirst_ros.messages import KNOWN_TOPICS, find_known_name
from edgefirst_ros.sources.tiles import list_tiles
from edgefirst_ros.streams import TILED

CDR = "application/cdr"
TILE_NAMES = tuple(name for name, _ in list_tiles("camera/h264/tl", TILED))
TOKENS = ("@ros2_lv/**", "@/*/@ros2_lv/**")
"""Key expressions of the tokens by which rmw_zenoh and the bridge of ROS 2 announce publishers."""
SEQUENCE, TIME, GID = b"sequence_number", b"source_timestamp", b"source_gid"
"""Keys of the older form of rmw_zenoh's attachments."""
GID_BYTES = 16
LONGEST_NUMBER = 19
"""Digits of a sequence number."""
NEWER = struct.Struct("<qqB16s")
"""The newer form: sequence, time, 16, gid."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A publisher that a liveliness token shows of."""

    key: str
    """The key on which its messages come."""
    topic: str
    schema: str


@dataclass(frozen=True, slots=True)
class Attached:
    """Attachment of rmw_zenoh to a message."""

    sequence: int
    gid: bytes
    """Id of the publisher that numbers the messages."""


def name_topic(key: str) -> str:
    """Return the topic of a key, as recordings name it: a slash before it, `rt/` at its begin or after a host gone."""
    return "/" + re.sub("^([^/]*/)?rt/", r"\1", key)


def strip_name(topic: str) -> str:
    """Return the name of a topic without slash and `rt/`; the device's name where it has one."""
    name = topic.removeprefix("/").removeprefix("rt/").removeprefix("/")
    if (own := next((tile for tile in TILE_NAMES if name.endswith(tile)), None)) is not None:
        return own
    known = next((found for kinds in KNOWN_TOPICS.values() for k in kinds if (found := find_known_name(name, k))), None)
    return known or name


def list_candidates(name: str, namespace: str) -> tuple[str, ...]:
    """Return key expressions on which a topic of a plain name may come; no two meet, but for a host called `rt`."""
    keys = [name, f"*/{name}", f"*/rt/{name}", f"rt/*/{name}"]
    if "/" in namespace:  # those above have one host at most
        keys += [f"{namespace}/{name}", f"{namespace}/rt/{name}", f"rt/{namespace}/{name}"]
    return tuple(keys)


def parse_schema(name: str) -> str:
    """Return the type of its name in any form: `pkg::msg::dds_::Type_`, `pkg§msg§Type` or `pkg/msg/Type`."""
    parts = name.replace("::", "/").replace("§", "/").split("/")
    return f"{parts[0]}/msg/{parts[-1].removesuffix('_')}"


def parse_encoding(encoding: str) -> str | None:
    """Return the type that an encoding shows (`application/cdr;pkg/msg/Type`), None without one."""
    form, _, schema = encoding.partition(";")
    return schema.rpartition(";")[2].strip() or None if form == CDR else None


def read_token(token: str) -> Announced | None:
    """Return the publisher that a liveliness token announces; None for other tokens and other keys.

    Forms: `@ros2_lv/DOMAIN/ZID/NID/EID/MP/ENCLAVE/NAMESPACE/NODE/TOPIC/TYPE/HASH/QOS` (rmw_zenoh, `%` for `/`),
    `@/ZID/@ros2_lv/MP/KEY/TYPE/QOS` and `@ros2_lv/ZID/MP/KEY/TYPE/QOS` (the bridge, `§` for `/`).
    """
    match token.split("/"):
        case ["@ros2_lv", domain, _, _, _, "MP", _, _, _, topic, kind, type_hash, *_]:
            topic = topic.replace("%", "/")
            return Announced(f"{domain}/{topic.strip('/')}/{kind}/{type_hash}", topic, parse_schema(kind))
        case ["@", _, "@ros2_lv", "MP", key, kind, *_] | ["@ros2_lv", _, "MP", key, kind, *_]:
            key = key.replace("§", "/")
            return Announced(key, name_topic(key), parse_schema(kind))
    return None


def read_attachment(data: bytes) -> Attached | None:
    """Return what rmw_zenoh attached to a message, in either form; None where it is something else."""
    if len(data) == NEWER.size and data[16] == GID_BYTES:
        sequence, _, _, gid = NEWER.unpack(data)
        return Attached(sequence, gid)
    _, key, rest = data.partition(SEQUENCE)
    value, time, _ = rest.partition(TIME)
    _, named, gid = rest.partition(GID)
    if not (key and time and named) or len(gid) <= GID_BYTES:
        return None
    number = _parse_number(value[:-1])  # the length of the next key is before it
    return None if number is None else Attached(number, gid[1 : 1 + GID_BYTES])


def _parse_number(value: bytes) -> int | None:
    """Return a number in 8 bytes, or as a text after its length."""
    if value and value[0] == len(value) - 1:
        text = value[1:]
        if text.isdigit():
            return int(text) if len(text) <= LONGEST_NUMBER else None
        value = text if len(text) == 8 else value
    return int.from_bytes(value, "little", signed=True) if len(value) == 8 else None
