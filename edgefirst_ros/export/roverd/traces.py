# SPDX-License-Identifier: Apache-2.0
"""The sensors of a trace that come from members: a folder each, its entries one after the other, each once."""

from __future__ import annotations

import io
import lzma
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from edgefirst_ros.dataset.pictures import MAX_PIXELS
from edgefirst_ros.errors import MessageError
from edgefirst_ros.export.roverd.channels import FIELDS, STAMPS, FramesWriter, RawWriter, stored, write_json, write_meta
from edgefirst_ros.export.roverd.clouds import TEXTS, CloudWriter, channelled, has_channels, read_cloud
from edgefirst_ros.export.roverd.cubes import described, read_cube, turned
from edgefirst_ros.export.roverd.video import VideoWriter, pictures
from edgefirst_ros.sensors.picture_file import check_jpeg

VIDEO, CUBE, SEGMENT = "video.avi", "cube", "segment"
OTHER, STEP, BYTES = (
    "of another form than the first one",
    "not later than the one before",
    "could not be made again byte by byte",
)
"""Why a member is kept as a file."""


@dataclass(frozen=True)
class Ready:
    """A member as it goes into its channels, made beside the others; `form` is the same for all of a sensor."""

    form: Any
    body: Any
    note: int | None = None
    """Further data needed to restore the member exactly."""


class SensorTrace(ABC):
    """A sensor's folder while it is written. It comes into being with its first entry."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stamps: list[int] = []
        """Increasing stamps of the entries, ns since the epoch."""
        self.kept: Counter[str] = Counter()
        """{reason: number of members without an entry}."""
        self.form: Any = None
        self._last: tuple[bytes, int | None] = (b"", None)
        self._refused: tuple[int | None, bytes, str] = (None, b"", "")
        """Stamp, data and reason of the last member without an entry."""
        self._closing = ExitStack()

    @abstractmethod
    def ready(self, data: bytes) -> Ready | None:
        """Return a member as an entry; None if it could not be restored exactly. Threads may share this."""

    @abstractmethod
    def _open(self) -> Mapping[str, Any]:
        """Create the channels: those with `described`, by name."""

    @abstractmethod
    def _append(self, ready: Ready) -> None:
        """Write an entry."""

    texts: ClassVar[Mapping[str, str]] = {}
    """Descriptions of the channels."""

    def add(self, stamp: int, data: bytes, ready: Ready | None) -> tuple[int, int | None] | None:
        """Add a member; its entry and note, or None where it has to be kept as a file.

        One and the same message of several samples is one entry.
        """
        if self.stamps and stamp == self.stamps[-1] and data == self._last[0]:
            return len(self.stamps) - 1, self._last[1]
        if (stamp, data) == self._refused[:2]:
            reason = self._refused[2]
        elif stamp == self._refused[0] or (self.stamps and stamp <= self.stamps[-1]):
            reason = STEP
        else:
            reason = BYTES if ready is None else ""
        if ready is not None and not reason:
            if self.form is None:
                self._begin(ready.form)
            reason = OTHER if ready.form != self.form else ""
        if ready is None or reason:
            self._refused = stamp, data, reason
            self.kept[reason] += 1
            return None
        self._append(ready)
        self.stamps.append(stamp)
        self._last = data, ready.note
        return len(self.stamps) - 1, ready.note

    def _begin(self, form: Any) -> None:
        self.folder.mkdir(parents=True)
        self.form = form
        self._channels = self._open()
        for channel in self._channels.values():
            self._closing.callback(channel.close)

    def close(self) -> list[str]:
        """Complete the folder; returns the names of its channels, none where there is no entry."""
        self._closing.close()
        if not self.stamps:
            return []
        stamps = RawWriter(self.folder / STAMPS, "f8", ())
        for stamp in self.stamps:
            stamps.append(stamp / 1e9)
        stamps.close()
        channels = {STAMPS: stamps.described, **self._descriptions()}
        write_meta(
            self.folder, channels, {name: self.texts.get(name, f"Field {name!r} of the points.") for name in channels}
        )
        return list(channels)

    def _descriptions(self) -> dict[str, Mapping[str, Any]]:
        return {name: channel.described for name, channel in self._channels.items()}

    def abandon(self) -> None:
        """Close without completing."""
        self._closing.close()


class CameraTrace(SensorTrace):
    """JPEG pictures of one size as a video; forms are (width, height)."""

    texts: ClassVar[Mapping[str, str]] = {
        STAMPS: TEXTS[STAMPS],
        VIDEO: "Pictures, each a whole JPEG file with its EXIF.",
    }

    def __init__(self, folder: Path, rate: float) -> None:
        super().__init__(folder)
        self._rate = rate
        self._checks: list[int] = []

    def ready(self, data: bytes) -> Ready | None:
        try:
            return Ready(check_jpeg(data), data)
        except MessageError:
            return None

    def _open(self) -> Mapping[str, Any]:
        self._video = VideoWriter(self.folder / VIDEO, self.form, self._rate)
        return {VIDEO: self._video}

    def _append(self, ready: Ready) -> None:
        self._video.append(ready.body)
        self._checks.append(hash(ready.body))

    def _descriptions(self) -> dict[str, Mapping[str, Any]]:
        return {VIDEO: {"format": "mjpg", "type": "u1", "shape": [*reversed(self.form), 3]}}

    def changed(self) -> list[int]:
        """Return the pictures that do not come out of the video as they went in; to be asked when it is complete."""
        found = list(map(hash, pictures(self.folder / VIDEO))) if self.stamps else []
        return [n for n, check in enumerate(self._checks) if len(found) != len(self._checks) or found[n] != check]


class CubeTrace(SensorTrace):
    """Radar cubes; forms are what radar.json says."""

    texts: ClassVar[Mapping[str, str]] = {
        STAMPS: TEXTS[STAMPS],
        CUBE: "Range-Doppler cube [sequence, rx, range, doppler, real and imaginary]; no raw I/Q of the antennas.",
    }

    def ready(self, data: bytes) -> Ready | None:
        cube = read_cube(data)
        if cube is None:
            return None
        values = turned(cube.values)
        return Ready((described(cube), values.shape), stored(values), cube.timestamp)

    def _open(self) -> Mapping[str, Any]:
        self._cubes = FramesWriter(self.folder / CUBE, "i2", self.form[1])
        return {CUBE: self._cubes}

    def _append(self, ready: Ready) -> None:
        self._cubes.append(ready.body)

    def close(self) -> list[str]:
        channels = super().close()
        if channels:
            write_json(self.folder / "radar.json", self.form[0])
        return channels


class CloudTrace(SensorTrace):
    """Point clouds; forms are the types of their points."""

    texts: ClassVar[Mapping[str, str]] = TEXTS

    def __init__(self, folder: Path, most: int) -> None:
        super().__init__(folder)
        self._most = most

    def ready(self, data: bytes) -> Ready | None:
        cloud = read_cloud(data)
        if cloud is None or not has_channels(cloud.points.dtype) or len(cloud.points) > self._most:
            return None
        return Ready(cloud.points.dtype, channelled(cloud))

    def _open(self) -> Mapping[str, Any]:
        self._clouds = CloudWriter(self.folder, self.form, self._most)
        return self._clouds.channels

    def _append(self, ready: Ready) -> None:
        self._clouds.append(ready.body)

    def close(self) -> list[str]:
        channels = super().close()
        if channels:
            write_json(self.folder / FIELDS, list(self.form.names))
        return channels


class SegmentTrace(SensorTrace):
    """The class of every pixel; forms are (height, width). Members are the PNG files of the annotations."""

    texts: ClassVar[Mapping[str, str]] = {
        STAMPS: TEXTS[STAMPS],
        SEGMENT: "Class of each pixel, as in the annotations; 255: none.",
    }

    def ready(self, data: bytes) -> Ready | None:
        from PIL import Image

        try:
            with Image.open(io.BytesIO(data), formats=("PNG",)) as picture:
                if picture.mode != "L" or picture.width * picture.height > MAX_PIXELS:
                    return None
                pixels = np.asarray(picture)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None
        # Large areas of one value: here LZMA is quick and gains nearly all.
        return Ready(pixels.shape, [lzma.compress(pixels.tobytes(), preset=0)])

    def _open(self) -> Mapping[str, Any]:
        self._frames = FramesWriter(self.folder / SEGMENT, "u1", self.form)
        return {SEGMENT: self._frames}

    def _append(self, ready: Ready) -> None:
        self._frames.append(ready.body)
