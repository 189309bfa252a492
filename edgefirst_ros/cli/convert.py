# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros convert`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefirst_ros.cli.progress import progress
from edgefirst_ros.cli.text import plain, say, table

if TYPE_CHECKING:
    from edgefirst_ros.conversion import Outcome
    from edgefirst_ros.skews import Skews


def convert(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="REC.mcap...", help="Recordings; each becomes a sequence.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for the dataset.")],
    name: Annotated[str | None, typer.Option(help="Name of the dataset; the recording's if there is one.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings; options go before it.")] = None,
    rate: Annotated[float | None, typer.Option(metavar="HZ", help="Samples a second.")] = None,
    keyframes: Annotated[bool, typer.Option("--keyframes", help="Only keyframes become samples.")] = False,
    jpeg_quality: Annotated[int | None, typer.Option(metavar="Q", help="Quality of the pictures, 1..100.")] = None,
    layout: Annotated[str | None, typer.Option(metavar="zip|directory", help="One ZIP, or files.")] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="V", help="Annotation schema: 2025.10, 2026.04, 2026.10.")
    ] = None,
    require: Annotated[str | None, typer.Option(metavar="S,...", help="Sensors every sample must have.")] = None,
    tolerance: Annotated[float | None, typer.Option(metavar="S", help="Furthest a companion may lie, s.")] = None,
    time_base: Annotated[
        str | None, typer.Option(metavar="auto|publish|header|log", help="Which stamps count.")
    ] = None,
    split: Annotated[str | None, typer.Option(metavar="train=0.8,val=0.2", help="Groups and their shares.")] = None,
    reference_topic: Annotated[
        str | None, typer.Option(metavar="T", help="Topic whose messages are the samples.")
    ] = None,
    radar_fields: Annotated[
        str | None, typer.Option(metavar="message|documented", help="`documented` adds `noise` to radar.pcd.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Threads that decode, and that encode.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Skip what is done: continue an unfinished dataset, accept a finished one.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Convert MCAP recordings to an EdgeFirst dataset.

    Writes OUT/NAME.zip, OUT/NAME.arrow and OUT/NAME.frames.arrow.

    Exit codes: 0 all there, 1 nothing usable written, 2 wrong usage, 3 finished with loss (the summary says what).
    """
    from edgefirst_ros.config import load
    from edgefirst_ros.conversion import convert as run
    from edgefirst_ros.memory import keep_buffers

    keep_buffers()
    settings = load(
        config,
        rate=rate,
        keyframes=keyframes or None,
        jpeg_quality=jpeg_quality,
        layout=layout,
        schema_version=schema,
        require=None if require is None else tuple(filter(None, require.split(","))),
        tolerance=tolerance,
        time_base=time_base,
        split=split,
        reference_topic=reference_topic,
        radar_fields=radar_fields,
        jobs=jobs,
    )
    try:
        with progress(quiet=as_json) as report:
            outcome = run(
                recordings, out, name=name, settings=settings, overwrite=overwrite, resume=resume, progress=report
            )
    except KeyboardInterrupt:
        print(
            "interrupted: the same command goes on from here, edgefirst-ros recover completes what is there so far",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    if as_json:
        say(json.dumps(_as_json(outcome), indent=1))
    else:
        _print(outcome)
    raise typer.Exit(outcome.exit_code)


def _skew(skews: Skews) -> dict[str, float]:
    """Median, 95th percentile and largest |skew| in ms."""
    found = {"p50": skews.percentile(50), "p95": skews.percentile(95), "max": skews.largest}
    return {key: value / 1e6 for key, value in found.items()}


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "dataset": str(outcome.paths.container),
        "annotations": str(outcome.paths.arrow),
        "frames": str(outcome.paths.frames),
        "samples": outcome.samples,
        "exit_code": outcome.exit_code,
        "loss": outcome.loss,
        "time_bases": outcome.time_bases,
        "counts": outcome.counts.plain(),
        "skew_ms": {sensor: _skew(values) for sensor, values in outcome.skews.items()},
        "notes": outcome.notes,
        "duration_s": outcome.duration,
        "seconds": outcome.seconds,
    }


def _print(outcome: Outcome) -> None:
    rows = []
    for topic, count in sorted(outcome.counts.topics.items()):
        reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(count.dropped.items()))
        rows.append((topic, str(count.seen), str(count.written), reasons))
    say(f"{outcome.samples} samples in {outcome.paths.container}")
    say(f"tables: {outcome.paths.arrow}, {outcome.paths.frames}")
    say("")
    table(("topic", "seen", "used", "not used"), rows)
    if outcome.skews:
        say("")
        skews = [(sensor, _skew(values)) for sensor, values in sorted(outcome.skews.items())]
        table(("skew, ms", "p50", "p95", "max"), [(s, *(f"{v:.1f}" for v in k.values())) for s, k in skews])
    say("")
    bases = sorted({base["base"] for base in outcome.time_bases.values()})
    say(f"time base: {', '.join(bases)}")
    if outcome.seconds:  # it was finished already otherwise
        speed = outcome.duration / outcome.seconds
        say(f"{outcome.duration:.1f} s of recording in {outcome.seconds:.1f} s, {speed:.1f} times real time")
    for note in outcome.notes:
        say(f"note: {plain(note)}")
    if outcome.loss:
        say("finished with loss: see the notes and the column `not used` above")
