# SPDX-License-Identifier: Apache-2.0
"""Reading a recording back with readers of other houses: mcap for the file, rosbags for CDR, PyAV for video."""

import io
from contextlib import nullcontext, suppress

import av
import numpy as np
from mcap.reader import NonSeekingReader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore


class Read:
    """All messages of a recording by topic: (schema, channel, message), and the types from the texts it carries."""

    def __init__(self, path):
        self.by_topic, self.store = {}, get_typestore(Stores.EMPTY)
        known = set()
        with open(path, "rb") as file:
            for schema, channel, message in NonSeekingReader(file).iter_messages(log_time_order=False):
                self.by_topic.setdefault(channel.topic, []).append((schema, channel, message))
                if schema.encoding == "ros2msg" and schema.name not in known:
                    known.add(schema.name)
                    types = get_types_from_msg(schema.data.decode(), schema.name)
                    self.store.register({k: v for k, v in types.items() if k not in self.store.fielddefs})

    def records(self, topic):
        return [message for _, _, message in self.by_topic.get(topic, [])]

    def messages(self, topic):
        return [self.store.deserialize_cdr(message.data, schema.name) for schema, _, message in self.by_topic[topic]]


def nanoseconds(stamp):
    return stamp.sec * 10**9 + stamp.nanosec


def pictures(units, codec, refused=()):
    """{stamp: (H, W, 3) uint8} decoded from CompressedVideo messages: the stamp goes in as pts and comes back.

    The decoder may refuse the messages whose places are in `refused` (H.264 without a picture)."""
    decoder = av.CodecContext.create({"h264": "h264", "h265": "hevc"}[codec], "r")
    found = {}

    def keep(frames):
        for frame in frames:
            found[frame.pts] = frame.to_ndarray(format="rgb24")

    for place, unit in enumerate(units):
        packet = av.Packet(bytes(unit.data))
        packet.pts = nanoseconds(unit.timestamp)
        with suppress(av.error.InvalidDataError) if place in refused else nullcontext():
            keep(decoder.decode(packet))
    keep(decoder.decode(None))
    return found


def still(data):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(bytes(data))).convert("RGB"))
