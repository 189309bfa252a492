# SPDX-License-Identifier: Apache-2.0
"""Whether a picture is ever written that differs from the undamaged one: single messages damaged, pictures compared.

    python benchmark/damage.py [RECORDING ...] [--times 100] [--seed 0] [--only NAME ...]

Streams are encoded by libx264 and libx265 (presets, references, B-frames, pyramids, open GOPs, slices, refresh by
columns), and taken from the H.264 and H.265 topics of the recordings. Each is damaged `--times` times, one message at a
time, and read as a conversion reads it; every picture that comes out is compared bit by bit with that of the undamaged
stream. Prints a line a stream and, of each picture that differs although libavcodec complained, the damage that did it;
exit code 1 when there is one. What libavcodec decodes without complaint nobody can notice: it is counted.
"""

import argparse
import hashlib
import random
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from edgefirst_ros.messages import decode
from edgefirst_ros.sensors.pictures import find_codec
from edgefirst_ros.sensors.video.bitstream import AccessUnit
from edgefirst_ros.sensors.video.decoder import BEYOND, HARMFUL, HARMLESS
from edgefirst_ros.sensors.video.h264 import H264Headers, H264Tracker
from edgefirst_ros.sensors.video.h265 import H265Headers, H265Tracker
from edgefirst_ros.sensors.video.reader import VideoReader
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.streams import VIDEO

SIZE = (192, 128)
FRAMES, GOP, LONGEST = 50, 16, 90
X264 = f"keyint={GOP}:min-keyint={GOP}:scenecut=0:threads=1:"
X265 = f"keyint={GOP}:min-keyint={GOP}:scenecut=0:pools=none:frame-threads=1:wpp=0:info=0:log-level=none:"
PYRAMID = "bframes=3:b-adapt=0:b-pyramid={}:ref=4:"
B264, B265 = PYRAMID.format("normal"), PYRAMID.format("1")
STREAMS = {
    **{f"h264 {preset}": ("libx264", preset, X264) for preset in ("ultrafast", "veryfast", "medium", "slow")},
    "h264 one reference": ("libx264", "medium", X264 + "ref=1:bframes=0"),
    "h264 sixteen references": ("libx264", "medium", X264 + "ref=16:bframes=0"),
    "h264 pyramid": ("libx264", "medium", X264 + B264),
    "h264 strict pyramid": ("libx264", "medium", X264 + PYRAMID.format("strict")),
    "h264 open GOP": ("libx264", "medium", X264 + B264 + "open-gop=1"),
    "h264 slices": ("libx264", "medium", X264 + B264 + "slices=4"),
    "h264 fields": ("libx264", "medium", X264 + "bframes=2:tff=1:weightp=0"),
    "h264 refresh": ("libx264", "medium", X264 + "bframes=0:ref=1:intra-refresh=1"),
    "h264 CAVLC": ("libx264", "medium", X264 + B264 + "cabac=0"),
    "h264 no deblocking": ("libx264", "medium", X264 + "bframes=0:no-deblock=1"),
    **{f"h265 {preset}": ("libx265", preset, X265) for preset in ("ultrafast", "veryfast", "medium")},
    "h265 one reference": ("libx265", "veryfast", X265 + "ref=1:bframes=0"),
    "h265 many references": ("libx265", "veryfast", X265 + "ref=6:bframes=0"),
    "h265 pyramid": ("libx265", "veryfast", X265 + B265 + "open-gop=0"),
    "h265 open GOP": ("libx265", "veryfast", X265 + B265 + "open-gop=1"),
    "h265 leading": ("libx265", "veryfast", X265 + B265 + "open-gop=0:radl=2"),
    "h265 refresh": ("libx265", "veryfast", X265 + "bframes=0:intra-refresh=1"),
}
"""Name -> encoder, preset, settings."""


def bits(unit, rng):
    unit[rng.randrange(5, len(unit))] ^= 1 << rng.randrange(8)


def some_bytes(unit, rng):
    for _ in range(rng.randrange(1, 9)):
        unit[rng.randrange(5, len(unit))] = rng.randrange(256)


def run(unit, rng):
    begin = rng.randrange(5, max(6, len(unit) // 3))
    for at in range(begin, min(len(unit), begin + rng.randrange(8, 400))):
        unit[at] = rng.randrange(4, 256)  # no new start codes


def end(unit, rng):
    del unit[rng.randrange(5, len(unit)) :]


def zeros(unit, rng):
    begin = rng.randrange(5, len(unit))
    unit[begin:] = bytes(len(unit) - begin)


def hole(unit, rng):
    begin = rng.randrange(5, len(unit))
    del unit[begin : begin + rng.randrange(1, 200)]


def lost(unit, rng):
    unit.clear()


DAMAGES = (bits, some_bytes, run, end, zeros, hole, lost)


def encoded(name, preset, settings):
    """Access units of a texture that moves, with noise."""
    encoder = av.CodecContext.create(name, "w")
    encoder.width, encoder.height = SIZE
    encoder.pix_fmt, encoder.time_base, encoder.framerate = "yuv420p", Fraction(1, 30), Fraction(30)
    encoder.thread_count = 1
    encoder.options = {"preset": preset, name[3:] + "-params": settings.strip(":") + ":qp=26"}
    rng, packets = np.random.default_rng(5), []
    ground = np.kron(rng.integers(40, 210, (40, 40, 3)), np.ones((8, 8, 1)))
    for index in range(FRAMES):
        y, x = index * 3 % 150, index * 2 % 120
        picture = ground[y : y + SIZE[1], x : x + SIZE[0]] + rng.normal(0, 3, (SIZE[1], SIZE[0], 3))
        frame = av.VideoFrame.from_ndarray(np.clip(picture, 0, 255).astype(np.uint8), format="rgb24")
        frame = frame.reformat(format="yuv420p")
        frame.pts = index
        packets += encoder.encode(frame)
    return [bytes(packet) for packet in [*packets, *encoder.encode(None)]]


def recorded(path):
    """{name: (decoder, access units)} of a recording's video topics, from the start."""
    found = {}
    recording = McapRecording(path)
    for message in recording.walk():
        if message.schema == VIDEO:
            content = decode(message)
            units = found.setdefault(f"{path.stem[:16]} {message.topic}", (find_codec(content.format), []))[1]
            if len(units) < LONGEST:
                units.append(content.data.tobytes())
    return found


def digest(frame):
    return hashlib.sha1(frame.to_ndarray().tobytes()).digest()


def plainly(codec, units):
    """({number: digest}, the first unit that libavcodec complained about) by a decoder of one thread."""
    decoder = av.CodecContext.create(codec, "r")
    decoder.thread_count, decoder.options = 1, {"strict": "1"}
    found, complaints = {}, []
    for number, unit in [*enumerate(units), (None, None)]:
        if number is not None and not unit:
            continue
        packet = None if unit is None else av.Packet(unit + (BEYOND if codec == "hevc" else b""))
        if packet is not None:
            packet.pts = packet.dts = number
        with av.logging.Capture() as log:
            try:
                frames, failed = decoder.decode(packet), False
            except av.FFmpegError:
                frames, failed = [], True
        said = any(
            (level <= av.logging.ERROR and not any(harmless in text for harmless in HARMLESS)) or HARMFUL.match(text)
            for level, _, text in log
        )
        if number is not None and (failed or said):
            complaints.append(number)
        complaints += [frame.pts for frame in frames if frame.is_corrupt]
        found |= {frame.pts: digest(frame) for frame in frames}
    return found, min(complaints, default=None)


def written(codec, units, shown):
    """{number: digest} of the pictures that a conversion would write."""
    reader = VideoReader(codec)
    headers, tracker = (H264Headers(), H264Tracker()) if codec == "h264" else (H265Headers(), H265Tracker())
    judged = {n: tracker.judge(AccessUnit(n), data, headers.read(data)) for n, data in enumerate(units) if data}
    for unit in judged.values():
        reader.push(unit)
    pictures = {number: reader.picture(judged[number], last=True) for number in shown if number in judged}
    return {number: digest(picture) for number, picture in pictures.items() if not isinstance(picture, str)}


def search(name, codec, units, times, seed):
    """Counts of what came of `times` damages; prints those that a conversion should have seen."""
    truth, complaint = plainly(codec, units)
    if complaint is not None:
        print(f"{name}: libavcodec complains about unit {complaint} of the undamaged stream")
    shown = sorted(truth, key=list(truth).index)
    shown += [number for number in range(len(units)) if number not in truth]
    counts = Counter(damages=0, pictures=0, unnoticed=0, differ=0)
    for turn in range(times):
        rng = random.Random(f"{name} {seed} {turn}")
        number, damage = rng.randrange(1, len(units)), DAMAGES[turn % len(DAMAGES)]
        unit = bytearray(units[number])
        damage(unit, rng)
        damaged = [*units[:number], bytes(unit), *units[number + 1 :]]
        if damaged[number] == units[number]:
            continue
        found = written(codec, damaged, shown)
        counts["damages"] += 1
        counts["pictures"] += len(found)
        wrong = [n for n, picture in sorted(found.items()) if n >= number and picture != truth.get(n)]
        if wrong:
            first = plainly(codec, damaged)[1]
            counts["differ" if first is not None and first <= wrong[-1] else "unnoticed"] += 1
            if first is not None and first <= wrong[-1]:
                print(f"{name}, seed {seed}, turn {turn}: {damage.__name__} of {number}, noticed at {first}: {wrong}")
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--times", type=int, default=100, help="damages a stream")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="names of streams")
    options = parser.parse_args()
    av.logging.set_level(av.logging.INFO)
    av.logging.set_skip_repeated(False)
    wanted = options.only or STREAMS
    streams = {
        name: ("h264" if encoder == "libx264" else "hevc", encoded(encoder, preset, settings))
        for name, (encoder, preset, settings) in STREAMS.items()
        if name in wanted
    }
    for path in options.recordings:
        streams |= recorded(path)
    total = Counter()
    print(f"{'stream':34} {'damages':>8} {'pictures':>9} {'unnoticed':>10} {'differ':>7}")
    for name, (codec, units) in streams.items():
        counts = search(name, codec, units, options.times, options.seed)
        total.update(counts)
        print(f"{name:34} " + " ".join(f"{counts[key]:>{width}}" for key, width in WIDTHS.items()), flush=True)
    print(f"{'all':34} " + " ".join(f"{total[key]:>{width}}" for key, width in WIDTHS.items()))
    return int(total["differ"] > 0)


WIDTHS = {"damages": 8, "pictures": 9, "unnoticed": 10, "differ": 7}

if __name__ == "__main__":
    sys.exit(main())
