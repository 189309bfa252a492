# SPDX-License-Identifier: Apache-2.0
"""Messages in the byte order of the other half of the machines, for the vendor's codec, which reads only one.

Source: OMG CORBA 3.3 part 2, "CDR Transfer Syntax"; DDSI-RTPS 2.3, 10.2; device.md 6.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BIG_ENDIAN = b"\0\0"
"""The first bytes of a message whose numbers begin with their highest byte."""
HEAD = 4
"""Bytes before the first field; places of numbers count from behind them."""
SIZES = {"B": 1, "H": 2, "I": 4, "Q": 8, "f": 4, "d": 8}

# A form is a run of fields: a letter of SIZES (signed like unsigned), s for text, or the form of the items of a
# sequence, in a tuple.
TIME = (*"II",)
HEADER = (*TIME, "s")
BOX = (*"ffffsfffs", "I", *TIME)
MASK = (*"IIIs", ("B",), "B")
FORMS: dict[str, tuple[Any, ...]] = {
    "foxglove_msgs/msg/CompressedVideo": (*TIME, "s", ("B",), "s"),
    "sensor_msgs/msg/CompressedImage": (*HEADER, "s", ("B",)),
    "sensor_msgs/msg/Image": (*HEADER, *"IIsBI", ("B",)),
    "sensor_msgs/msg/CameraInfo": (*HEADER, *"IIs", ("d",), *"d" * 30, *"IIIIIIB"),
    "sensor_msgs/msg/PointCloud2": (*HEADER, *"II", (*"sIBI",), *"BII", ("B",), "B"),
    "sensor_msgs/msg/NavSatFix": (*HEADER, *"BH", *"d" * 12, "B"),
    "sensor_msgs/msg/Imu": (*HEADER, *"d" * 37),
    "geometry_msgs/msg/TransformStamped": (*HEADER, "s", *"d" * 7),
    "edgefirst_msgs/msg/RadarCube": (*HEADER, "Q", ("B",), ("H",), ("f",), ("H",), "B"),
    "edgefirst_msgs/msg/RadarInfo": (*HEADER, *"ssssB"),
    "edgefirst_msgs/msg/Detect": (*HEADER, *TIME * 3, BOX),
    "edgefirst_msgs/msg/Model": (*HEADER, *TIME * 4, BOX, MASK),
    "edgefirst_msgs/msg/Mask": MASK,
    "edgefirst_msgs/msg/ModelInfo": (*HEADER, ("I",), "B", ("I",), "B", ("s",), *"sss"),
}
"""The fields of each type the codec reads, up to the last one that is not a byte."""


def little_endian(schema: str, data: bytes) -> bytes:
    """The message with the lowest byte of its numbers first.

    Raises ValueError when it ends early, has a text without an end, or its type is not known.
    """
    if schema not in FORMS:
        raise ValueError("big-endian, and its type is not known")
    turner = _Turner(data)
    turner.turn(FORMS[schema])
    return bytes(turner.data)


class _Turner:
    """Turns the bytes of one field after the other; `at` is the place of the next."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.data[1] = 1
        self.at = HEAD

    def turn(self, form: tuple[Any, ...]) -> None:
        for part in form:
            if isinstance(part, tuple):
                count = self._count()
                if len(part) == 1 and part[0] in SIZES:
                    self._numbers(SIZES[part[0]], count)
                    continue
                for _ in range(count):  # ends with the data: every item takes some
                    self.turn(part)
            elif part == "s":
                self._text()
            else:
                self._numbers(SIZES[part], 1)

    def _count(self) -> int:
        self._numbers(4, 1)
        return int.from_bytes(self.data[self.at - 4 : self.at], "little")

    def _text(self) -> None:
        size = self._count()
        if not size:
            raise ValueError(f"a text without an end at {self.at}")  # as in data of zeros alone
        self._numbers(1, size)

    def _numbers(self, size: int, count: int) -> None:
        if not count:
            return
        begin = self.at + -(self.at - HEAD) % size
        self.at = begin + size * count
        if self.at > len(self.data):
            raise ValueError(f"{self.at} bytes are announced, {len(self.data)} are there")
        if size > 1:
            np.frombuffer(self.data, f"u{size}", count, begin).byteswap(inplace=True)
