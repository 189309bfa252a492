# SPDX-License-Identifier: Apache-2.0
"""Short video streams of all kinds made by libx264 and libx265, and what a plain decoder makes of them."""

from __future__ import annotations

import functools
import heapq
import re
import zlib
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.picture import Picture
from edgefirst_ros.sensors.pictures import PictureOptions, PictureSource, StillMessage, TiledMessage, VideoMessage
from edgefirst_ros.sensors.video.bitstream import AccessUnit
from edgefirst_ros.sensors.video.h264 import H264Headers, H264Tracker
from edgefirst_ros.sensors.video.h265 import H265Headers, H265Tracker
from edgefirst_ros.streams import IMAGE
from edgefirst_ros.synthetic.picture import draw_bar_code
from edgefirst_ros.synthetic.video import split_parameter_sets

SIZE = (128, 96)
MADE_UP = re.compile(r"Skipping invalid undecodable NALU: ([12]?\d|3[01])\s|concealing ")
"""What is no error, but one of a picture all the same; other warnings are of what stands beside it."""
X264 = "keyint=12:min-keyint=12:scenecut=0:threads=1:"
X265 = "keyint=12:min-keyint=12:scenecut=0:pools=none:frame-threads=1:wpp=0:info=0:log-level=none:"
SLICED = "keyint=12:min-keyint=12:scenecut=0:frame-threads=1:info=0:log-level=none:"  # slices need a pool
QUIET = "pools=none:frame-threads=1:wpp=0:info=0:log-level=none:"
B264, B265 = "bframes=3:b-adapt=0:b-pyramid=normal:ref=4:", "bframes=3:b-adapt=0:b-pyramid=1:ref=4:"
KINDS: dict[str, tuple[str, str, dict]] = {
    "h264": ("h264", X264 + "bframes=0", {}),
    "h264-b": ("h264", X264 + B264, {}),
    "h264-refs": ("h264", X264 + "bframes=2:b-adapt=0:ref=5:weightp=2:weightb=1:direct=temporal:aud=1", {}),
    "h264-open": ("h264", X264 + B264 + "open-gop=1", {}),
    "h264-refresh": ("h264", X264 + "bframes=0:intra-refresh=1", {}),
    "h264-tff": ("h264", X264 + "bframes=2:b-adapt=0:tff=1", {}),
    "h264-slices": ("h264", X264 + B264 + "slices=4", {}),
    "h264-once": ("h264", X264 + B264, {"once": True}),
    "h264-endless": ("h264", "keyint=infinite:scenecut=0:threads=1:" + B264, {}),
    "h264-zerolatency": ("h264", X264 + "bframes=0", {"tune": "zerolatency"}),
    "h264-baseline": ("h264", X264 + "bframes=0:cabac=0:8x8dct=0", {"profile": "baseline"}),
    "h264-cavlc-b": ("h264", X264 + B264 + "cabac=0", {}),
    "h264-422-10": ("h264", X264 + B264, {"form": "yuv422p10le"}),
    "h264-odd": ("h264", X264 + B264, {"form": "yuv444p", "size": (131, 99)}),
    "h265": ("hevc", X265 + "bframes=0", {}),
    "h265-b": ("hevc", X265 + B265 + "open-gop=0", {}),
    "h265-open": ("hevc", X265 + B265 + "open-gop=1", {}),
    "h265-cra": ("hevc", X265 + "bframes=0:open-gop=1", {}),
    "h265-radl": ("hevc", X265 + B265 + "open-gop=0:radl=2", {}),
    "h265-refresh": ("hevc", X265 + "bframes=0:intra-refresh=1", {}),
    "h265-slices": ("hevc", SLICED + B265 + "slices=2:open-gop=0:ctu=16", {"size": (128, 192)}),
    "h265-once": ("hevc", X265 + B265 + "open-gop=1", {"once": True}),
    "h265-endless": ("hevc", "keyint=-1:scenecut=0:" + QUIET + B265, {}),
    "h265-layers": ("hevc", X265 + "bframes=3:b-adapt=0:b-pyramid=1:temporal-layers=2:open-gop=0", {}),
    "h265-zerolatency": ("hevc", X265, {"tune": "zerolatency"}),
    "h265-422-10": ("hevc", X265 + B265 + "aud=1", {"form": "yuv422p10le"}),
}
"""Name -> decoder, settings of the encoder, and further values of `encode`."""


@dataclass(frozen=True)
class Stream:
    """Units in decode order; the picture of unit n is the `index[n]`-th shown; its true planes are `pictures[n]`."""

    codec: str
    units: tuple[bytes, ...]
    index: tuple[int, ...]
    pictures: tuple[bytes, ...]

    @property
    def shown(self) -> list[int]:
        """Numbers of the units in the order in which their pictures are shown."""
        return sorted(range(len(self.units)), key=self.index.__getitem__)


@functools.cache
def ground(size: tuple[int, int]) -> np.ndarray:
    """Squares of 8 x 8 pixels, 64 more than `size` each way."""
    width, height = size
    rng = np.random.default_rng(5)
    return np.kron(rng.integers(60, 200, (height // 8 + 9, width // 8 + 9, 3)), np.ones((8, 8, 1))).astype(np.uint8)


def painted(index: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """A picture (H, W, 3) whose ground moves, with its bar code."""
    width, height = size
    y, x = index * 3 % 64, index * 5 % 64
    rgb = ground(size)[y : y + height, x : x + width].copy()
    draw_bar_code(rgb, index)
    return rgb


def encode(codec, settings, frames, *, size=SIZE, form="yuv420p", once=False, tune="", profile="", paint=painted):
    """[(index, access unit)] in decode order."""
    encoder = av.CodecContext.create("libx264" if codec == "h264" else "libx265", "w")
    encoder.width, encoder.height = size
    encoder.pix_fmt = form
    encoder.time_base, encoder.framerate = Fraction(1, 30), Fraction(30)
    encoder.thread_count = 1
    preset = "superfast" if codec == "h264" else "ultrafast"
    options = {"preset": preset, "tune": tune, "profile": profile}
    encoder.options = {key: value for key, value in options.items() if value} | {
        "x264-params" if codec == "h264" else "x265-params": settings.strip(":") + ":qp=24"
    }
    packets, scaler = [], VideoReformatter()
    for index in range(frames):
        frame = scaler.reformat(av.VideoFrame.from_ndarray(paint(index, size), format="rgb24"), format=form)
        frame.pts = index
        packets += [(packet.pts, bytes(packet)) for packet in encoder.encode(frame)]
    packets += [(packet.pts, bytes(packet)) for packet in encoder.encode(None)]
    if once:
        short = {"h264": "h264", "hevc": "h265"}[codec]
        packets[1:] = [(index, split_parameter_sets(data, short)[1]) for index, data in packets[1:]]
    return packets


def planes(frame) -> bytes:
    """All samples of a frame, or of the picture that `as_picture` made of it."""
    return frame.data if isinstance(frame, Picture) else frame.to_ndarray().tobytes()


def as_picture(frame) -> Picture:
    """A picture whose bytes are all samples of a frame."""
    size = frame.width, frame.height
    return Picture("camera.png", size, size, data=planes(frame))


def plainly(codec, units) -> tuple[dict[int, bytes], dict[int, set[str]], dict[int, int | None]]:
    """What a decoder of one thread makes of {number: unit}: planes, complaints by unit, bar codes."""
    decoder = av.CodecContext.create(codec, "r")
    decoder.thread_count = 1
    found, complaints, codes, scaler = {}, {}, {}, VideoReformatter()
    for number, data in [*units.items(), (None, None)]:
        packet = None
        if data is not None:
            packet = av.Packet(data)
            packet.pts = packet.dts = number
        with av.logging.Capture() as log:
            try:
                frames = decoder.decode(packet)
            except av.FFmpegError as error:
                frames = []
                complaints[number] = {str(error)}
        for level, _, text in log:
            if level <= av.logging.ERROR or MADE_UP.match(text):
                complaints.setdefault(number, set()).add(text)
        for frame in frames:
            found[frame.pts] = planes(frame)
            codes[frame.pts] = read_bar_code(scaler.reformat(frame, format="rgb24").to_ndarray())
    return found, complaints, codes


@functools.cache
def stream(kind: str, frames: int = 40) -> Stream:
    """A stream of one of `KINDS`. Every bar code is what it should be, as a plain decoder sees it."""
    codec, settings, values = KINDS[kind]
    packets = encode(codec, settings, frames, **values)
    found, _, codes = plainly(codec, {n: data for n, (_, data) in enumerate(packets)})
    index = tuple(index for index, _ in packets)
    if codes != dict(enumerate(index)):
        raise ValueError(f"{kind}: the encoder's pictures do not come back")
    return Stream(codec, tuple(data for _, data in packets), index, tuple(found[n] for n in range(frames)))


class Judge:
    """Reads and judges the units of one stream as they come."""

    def __init__(self, codec: str) -> None:
        self.headers = H264Headers() if codec == "h264" else H265Headers()
        self.tracker = H264Tracker() if codec == "h264" else H265Tracker()
        self.mark_gap = self.tracker.mark_gap

    def unit(self, data: bytes) -> AccessUnit:
        return self.tracker.judge(AccessUnit(-1), data, self.headers.read(data))


class Numbered:
    """A reader whose units are named by their numbers."""

    def __init__(self, kind, *args, **options):
        self.reader = kind(*args, **options)
        self.units: dict[int, AccessUnit] = {}

    def __getattr__(self, name):
        return getattr(self.reader, name)

    def push(self, number, unit):
        unit.number = number
        self.units[number] = unit
        self.reader.push(unit)

    def picture(self, number, *, last=False):
        return self.reader.picture(self.units[number], last=last)

    def skip(self, number):
        self.reader.skip(self.units[number])


class Pictures:
    """A picture source whose messages are named by their numbers; a decoded still picture may be pushed as it is."""

    def __init__(self, schema, encoder, **options):
        self.source, self.raw = PictureSource(PictureOptions(encoder, **options)), schema == IMAGE
        self.units: dict[int, AccessUnit] = {}
        self.mark_gap, self.close = self.source.mark_gap, self.source.close

    @property
    def note(self):
        return self.source.note

    def push(self, number, message):
        parsed = isinstance(message, StillMessage | VideoMessage | TiledMessage | MessageError)
        self.units[number] = AccessUnit(number, message if parsed else StillMessage(message, "", raw=self.raw))
        self.source.push(self.units[number])

    def keyframe(self, number):
        return self.units[number].keyframe

    def take(self, number, *, last):
        return self.source.pop(self.units[number], last=last)

    def skip(self, number):
        return self.source.skip(self.units[number])


def sets_of(data: bytes, codec: str) -> bytes:
    """The parameter sets of an access unit."""
    return Judge(codec).unit(data).sets


def read(reader, messages, shown, *, wanted=None, lag=0):
    """{number: planes or reason} of the wanted pictures of `messages` (number -> unit; None: cannot be read).

    Pictures are asked for in the order of `shown`, each once `lag` more messages are in; the others are skipped.
    """
    order = [n for n in shown if messages.get(n) is not None]
    ahead = order[::-1]
    results, pushed, previous = {}, set(), None
    judge = Judge(reader.codec)
    waiting: list[int] = []
    for number, data in [*messages.items(), (None, None)]:
        if number is not None:
            if data is None or (previous is not None and number != previous + 1):
                judge.mark_gap()
            previous = number
            if data is not None:
                reader.push(number, judge.unit(data))
                pushed.add(number)
                heapq.heappush(waiting, number)
        while ahead and ahead[-1] in pushed and (number is None or number >= ahead[-1] + lag):
            asked = ahead[-1]
            if wanted is not None and asked not in wanted:
                reader.skip(asked)
            else:
                found = reader.picture(asked, last=number is None)
                if found is None:
                    break
                results[asked] = found if isinstance(found, str) else planes(found)
            ahead.pop()
    if ahead:
        raise ValueError(f"{ahead} were never settled")
    return results


def read_bar_code(rgb):
    """Index drawn into an (H, W, 3) uint8 picture, or None where no whole bar code is to be read.

    The inner half of each cell is averaged; a cell that is neither clearly light nor clearly dark, or a
    checksum that does not fit (a picture put together from two), returns None.
    """
    height, width, _ = rgb.shape
    bar = height // 12
    if width < 32 or bar < 4:
        return None
    rows = rgb[height - bar + bar // 4 : height - bar // 4]
    line = rows.mean(axis=0, dtype=np.float32) @ np.array([0.299, 0.587, 0.114], np.float32)
    edges = np.arange(33) * width / 32
    inner = (edges[:-1] * 0.75 + edges[1:] * 0.25, edges[:-1] * 0.25 + edges[1:] * 0.75)
    cells = np.array([line[int(a) : max(int(b), int(a) + 1)].mean() for a, b in zip(*inner, strict=True)])
    contrast = cells[0] - cells[-1]
    above = cells - (cells[0] + cells[-1]) / 2
    if contrast < 60 or np.abs(above).min() < contrast / 4:
        return None
    bits = "".join("01"[int(value > 0)] for value in above)
    index = int(bits[1:25], 2)
    return index if int(bits[25:31], 2) == zlib.crc32(index.to_bytes(3, "big")) & 63 else None
