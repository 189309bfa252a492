# SPDX-License-Identifier: Apache-2.0
"""Which -q:v of ffmpeg gives pictures no better than ours.

    psnr.py RECORDING STREAM OURS FFMPEG

Both make all pictures of a short recording. Every seventh is compared with the decoded picture as RGB, computed here
in floating point with the range and matrix of the stream. JPEG says BT.601; ffmpeg writes the stream's own matrix
into it, so its pictures are read both ways and the better figure counts. Chosen is the smallest -q:v (the best, and
slowest) whose pictures are not better than ours. Prints JSON: q, and the PSNR of both in dB over all samples.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from preload import messages

from edgefirst_ros.messages import decode
from edgefirst_ros.sensors.pictures import find_codec
from edgefirst_ros.streams import VIDEO

EVERY = 7
BT601, BT709 = (0.299, 0.114), (0.2126, 0.0722)
"""Weights of red and blue."""
BEST, WORST = 2, 31
Pixels = NDArray[np.float32]


def rgb(frame: Any, weights: tuple[float, float], full: bool) -> Pixels:
    """(height, width, 3), 0 to 255, of a 4:2:0 frame; chroma repeated."""
    y, cb, cr = (
        np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: plane.height, : plane.width].astype(np.float32)
        for plane in frame.planes
    )
    cb, cr = (c.repeat(2, 0).repeat(2, 1)[: frame.height, : frame.width] - 128 for c in (cb, cr))
    if not full:
        y, cb, cr = (y - 16) * (255 / 219), cb * (255 / 224), cr * (255 / 224)
    red, blue = weights
    r, b = y + 2 * (1 - red) * cr, y + 2 * (1 - blue) * cb
    g = (y - red * r - blue * b) / (1 - red - blue)
    return np.stack((r, g, b), -1).clip(0, 255)


def decoded(recording: Path) -> dict[int, Pixels]:
    """Every seventh picture of the video by its number."""
    contents = [decode(message) for message in messages(recording, VIDEO)]
    decoder: Any = av.CodecContext.create(find_codec(contents[0].format), "r")
    frames = [frame for content in contents for frame in decoder.decode(av.Packet(content.data.tobytes()))]
    frames += decoder.decode(None)
    return {number: rgb(frame, BT709, False) for number, frame in enumerate(frames) if number % EVERY == 0}


def psnr(files: dict[int, Path], truth: dict[int, Pixels], *matrices: tuple[float, float]) -> float:
    """dB over all samples of the pictures in `truth`; the best of the matrices."""
    errors = []
    for number, expected in truth.items():
        frame: Any = av.CodecContext.create("mjpeg", "r").decode(av.Packet(files[number].read_bytes()))[0]
        errors.append([float(np.square(rgb(frame, matrix, True) - expected).mean()) for matrix in matrices])
    return float(10 * np.log10(255**2 / np.mean(errors, axis=0).min()))


def main() -> None:
    recording, stream = Path(sys.argv[1]), sys.argv[2]
    ours, ffmpeg = sys.argv[3:]
    truth = decoded(recording)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        command = [ours, "convert", str(recording), "-o", str(folder), "--layout", "directory"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        pictures = sorted(folder.rglob("*.camera.jpeg"))
        reached = psnr({int(path.name.split(".")[0].split("_")[-1]): path for path in pictures}, truth, BT601)

        def theirs(quality: int) -> float:
            for path in folder.glob("*.jpg"):
                path.unlink()
            options = ["-q:v", str(quality), "-fps_mode", "passthrough", "-start_number", "0"]
            command = [ffmpeg, "-v", "error", "-i", stream, *options, str(folder / "%06d.jpg")]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
            return psnr({int(path.stem): path for path in folder.glob("*.jpg")}, truth, BT601, BT709)

        low, high = BEST, WORST
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if theirs(middle) <= reached else (middle + 1, high)
        print(json.dumps({"q": low, "ours": reached, "ffmpeg": theirs(low)}))


if __name__ == "__main__":
    main()
