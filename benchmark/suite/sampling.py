# SPDX-License-Identifier: Apache-2.0
"""Only some of the frames: what is not wanted must cost next to nothing."""

from __future__ import annotations

from collections.abc import Iterator

from suite import commands, inputs
from suite.inputs import SCRATCH
from suite.measure import median, rounds, wall, warm
from suite.table import Line, seconds

RATE, KEYFRAMES = 0.15, 1.0


def rate(number: int) -> Iterator[Line]:
    """One sample a second of 1080p60 with a keyframe every half second, against all frames."""
    path = inputs.recording(inputs.FAST)
    warm(path)
    found = rounds({"one": commands.convert(path, "--rate", "1"), "all": commands.convert(path)}, SCRATCH, number)
    ratios = [one.wall / every.wall for one, every in zip(found["one"], found["all"], strict=True)]
    everything = f"all frames {seconds(median(found['all'], wall))}"
    yield Line("--rate 1, 66 s of 1080p60", seconds(median(found["one"], wall)), everything, ratios, at_most=RATE)


def keyframes(number: int) -> Iterator[Line]:
    """Keyframes alone, against ffmpeg's."""
    if not commands.FFMPEG:
        yield Line("--keyframes", note=commands.NO_FFMPEG)
        return
    for given in (inputs.H264, inputs.H265, inputs.FAST):
        path = inputs.recording(given)
        warm(path)
        quality = commands.equal_quality(given)
        programs = {
            "ours": commands.convert(path, "--keyframes"),
            "ffmpeg": commands.to_jpeg(path, quality[0], "-skip_frame", "nokey"),
        }
        warm(inputs.stream(path))
        found = rounds(programs, SCRATCH, number)
        ratios = [mine.wall / theirs.wall for mine, theirs in zip(found["ours"], found["ffmpeg"], strict=True)]
        ffmpeg = f"ffmpeg -q:v {quality[0]} nokey {seconds(median(found['ffmpeg'], wall))}"
        ours = seconds(median(found["ours"], wall))
        note = f"{quality[1]:.1f} dB, ffmpeg {quality[2]:.1f} dB"
        yield Line(f"--keyframes, {given.name}", ours, ffmpeg, ratios, at_most=KEYFRAMES, note=note)
