# SPDX-License-Identifier: Apache-2.0
"""Hearing what a player publishes, and comparing it with its recording."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from mcap.reader import NonSeekingReader
from rclpy.qos import QoSProfile, ReliabilityPolicy


def content(path: Path) -> list[tuple[str, str, int, bytes]]:
    """(topic, type, log_time, data) of the CDR messages of a recording, by the reader of the mcap library."""
    with path.open("rb") as file:
        read = NonSeekingReader(file).iter_messages(log_time_order=False)
        return [(c.topic, s.name, m.log_time, m.data) for s, c, m in read if s and c.message_encoding == "cdr"]


class Listener:
    """Subscribes to topics, and keeps what comes with the time at which it came."""

    def __init__(self) -> None:
        rclpy.init()
        self.node = rclpy.create_node("listener")
        self.got: dict[str, list[tuple[float, bytes]]] = {}

    def hear(self, topic: str, kind: Any, reliability: str = "reliable") -> None:
        got = self.got.setdefault(topic, [])
        qos = QoSProfile(depth=1000, reliability=ReliabilityPolicy[reliability.upper()])
        self.node.create_subscription(kind, topic, lambda data: got.append((time.monotonic(), data)), qos, raw=True)

    def bytes(self, topic: str) -> list[bytes]:
        return [data for _, data in self.got[topic]]


def same(arrived: list[bytes], sent: list[bytes]) -> bool:
    """Whether these are the bytes that were sent; Fast DDS fills the last of them up to a multiple of four."""
    return len(arrived) == len(sent) and all(
        got[: len(data)] == data and len(got) == (len(data) + 3) // 4 * 4
        for got, data in zip(arrived, sent, strict=True)
    )


def ordered_part(arrived: list[bytes], sent: list[bytes]) -> bool:
    """Whether these are bytes that were sent, in the same order; some may lack."""
    rest = iter(sent)
    return all(any(same([got], [data]) for data in rest) for got in arrived)


def none_early(at: Any, due: Any, began: float) -> bool:
    """Whether no message came before it was due, s after `began`; how late they come depends on the machine."""
    return bool((np.asarray(at) - began >= np.asarray(due)).all())
