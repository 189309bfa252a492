# SPDX-License-Identifier: Apache-2.0
"""Video to JPEG with EXIF, all frames: against ffmpeg, the plain script and the codec floor, in the same rounds."""

from __future__ import annotations

import json
from collections.abc import Iterator

from suite import commands, inputs
from suite.inputs import SCRATCH, Input
from suite.measure import Run, cpu, median, rounds, rss, wall, warm
from suite.table import Line, seconds

HALF = 0.5
FFMPEG = {"h264": 0.60, "h265": 0.75}


def of_floor(run: Run) -> float:
    """Processor seconds that the codec floor told."""
    return float(json.loads(run.said)["cpu"])


def full_hd(number: int) -> Iterator[Line]:
    """1080p: everything."""
    for given in (inputs.H264, inputs.H265):
        path = inputs.recording(given)
        warm(path)
        programs = {"ours": commands.convert(path), "script": commands.script(path), "floor": commands.floor(path)}
        what = _what(given)
        quality = None
        if commands.FFMPEG:
            quality = commands.equal_quality(given)
            programs["ffmpeg"] = commands.to_jpeg(path, quality[0])
            warm(inputs.stream(path))
        found = rounds(programs, SCRATCH, number)
        ours = seconds(median(found["ours"], wall))
        if quality:
            yield _against_ffmpeg(what, found, quality, FFMPEG[given.codec or ""])
        else:
            yield Line(what, note=commands.NO_FFMPEG)
        script = f"plain script {seconds(median(found['script'], wall))}"
        yield Line(f"{what}, against a script", ours, script, _ratios(found, "script"), at_most=HALF)
        floor = f"codec floor {seconds(median(found['floor'], of_floor))} CPU"
        ratios = [mine.cpu / of_floor(bare) for mine, bare in zip(found["ours"], found["floor"], strict=True)]
        yield Line(f"{what}: processor time", f"{seconds(median(found['ours'], cpu))} CPU", floor, ratios)


def other_sizes(number: int) -> Iterator[Line]:
    """720p and 4K against ffmpeg; no bar is set for them."""
    if not commands.FFMPEG:
        yield Line("720p and 2160p to JPEG", note=commands.NO_FFMPEG)
        return
    for given in (inputs.H264_720, inputs.H265_720, inputs.H264_4K, inputs.H265_4K):
        path = inputs.recording(given)
        quality = commands.equal_quality(given)
        programs = {"ours": commands.convert(path), "ffmpeg": commands.to_jpeg(path, quality[0])}
        yield _against_ffmpeg(_what(given), rounds(programs, SCRATCH, number), quality, None)


def _what(given: Input) -> str:
    codec = {"h264": "H.264", "h265": "H.265"}[given.codec or ""]
    return f"{codec} {given.size[1]}p{given.fps:.0f}, {given.seconds:.0f} s -> JPEG + EXIF"


def _ratios(found: dict[str, list[Run]], peer: str) -> list[float]:
    return [mine.wall / theirs.wall for mine, theirs in zip(found["ours"], found[peer], strict=True)]


def _against_ffmpeg(
    what: str, found: dict[str, list[Run]], quality: tuple[int, float, float], bar: float | None
) -> Line:
    q, mine, theirs = quality
    peer = f"ffmpeg -q:v {q} {seconds(median(found['ffmpeg'], wall))}"
    note = (
        f"{mine:.1f} dB, ffmpeg {theirs:.1f} dB; CPU {seconds(median(found['ours'], cpu))}, "
        f"ffmpeg {seconds(median(found['ffmpeg'], cpu))}; "
        f"memory {median(found['ours'], rss) / 1e6:.0f} MB, ffmpeg {median(found['ffmpeg'], rss) / 1e6:.0f} MB"
    )
    return Line(what, seconds(median(found["ours"], wall)), peer, _ratios(found, "ffmpeg"), at_most=bar, note=note)
