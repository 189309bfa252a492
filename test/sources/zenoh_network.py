# SPDX-License-Identifier: Apache-2.0
"""A Zenoh network on this machine alone: sessions at a port of its own, publishers that imitate others."""

import json
import socket
import struct
import time

import zenoh

LONG = 60.0
"""s that something may take on a machine that is very busy."""


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def open_bus(mode, endpoint=None, listen=None):
    """A session that finds nobody by itself."""
    config = zenoh.Config()
    settings = {"mode": mode, "scouting/multicast/enabled": False, "timestamping/enabled": True}
    settings |= {"connect/endpoints": [endpoint]} if endpoint else {}
    settings |= {"listen/endpoints": [listen]} if listen else {}
    if mode == "router":  # it is to lose nothing where a process does not run for a while
        settings |= {"transport/link/tx/queue/congestion_control/drop/wait_before_drop": 10_000_000}
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    return zenoh.open(config)


def until(happened, timeout=LONG, step=0.01):
    """Wait for a condition, and return what it gives."""
    deadline = time.monotonic() + timeout
    while not (found := happened()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(step)
    return found


def encoding_of(schema):
    return f"application/cdr;{schema}"


def newer_attachment(sequence, gid):
    return struct.pack("<qqB16s", sequence, 7, 16, gid)


def older_attachment(sequence, gid):
    """As ze_serializer writes it: texts and the gid behind their lengths, numbers in 8 bytes."""
    named = ((b"sequence_number", struct.pack("<q", sequence)), (b"source_timestamp", struct.pack("<q", 7)))
    return b"".join(bytes([len(k)]) + k + v for k, v in (*named, (b"source_gid", bytes([16]) + gid)))


def oldest_attachment(sequence, gid):
    """The same with numbers as texts."""
    pairs = ((b"sequence_number", b"%d" % sequence), (b"source_timestamp", b"7"), (b"source_gid", gid))
    return b"".join(bytes([len(k)]) + k + bytes([len(v)]) + v for k, v in pairs)


ATTACHMENTS = {"newer": newer_attachment, "older": older_attachment, "oldest": oldest_attachment}


def rmw_key(topic, schema, domain=0):
    package, _, name = schema.partition("/msg/")
    return f"{domain}/{topic.strip('/')}/{package}::msg::dds_::{name}_/RIHS01_00ff"


def rmw_token(topic, schema, domain=0, entity=10):
    kind = rmw_key(topic, schema).split("/", 1)[1].removeprefix(topic.strip("/") + "/")
    return f"@ros2_lv/{domain}/a1b2/0/{entity}/MP/%/%/talker/{topic.replace('/', '%')}/{kind}/:,:,:,,"


def bridge_token(key, schema, newer):
    end = f"MP/{key.replace('/', '§')}/{schema.replace('/', '§')}/::,10"
    return f"@/a1b2/@ros2_lv/{end}" if newer else f"@ros2_lv/a1b2/{end}"
