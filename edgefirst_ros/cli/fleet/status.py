# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros fleet status`."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from edgefirst_ros.cli.fleet.options import PLACE, WHERE
from edgefirst_ros.cli.text import one_line, say, table
from edgefirst_ros.errors import DatasetError, ObjectStoreError, counted

LISTED = 20


def status(
    place: Annotated[str, PLACE],
    where: Annotated[str | None, WHERE] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON, with every recording.")] = False,
) -> None:
    """Show the status of a fleet: recordings by settings and verdict, and what failed.

    Reads the state files, and rewrites DST/catalogue.parquet where it is older than they are.

    Exit codes: 0 all recordings are there without loss, 1 none is there, or DST has no states, 2 wrong usage,
    3 some are not there, or have a loss.
    """
    import polars as pl

    from edgefirst_ros.dataset.objects.location import Location
    from edgefirst_ros.fleet.catalogue import current, write_catalogue
    from edgefirst_ros.fleet.layout import Layout
    from edgefirst_ros.fleet.state import USABLE

    layout = Layout(Location.of(place))
    states = current(layout, lambda text: print(one_line(text), file=sys.stderr))
    if not len(states):
        raise DatasetError(f"{place}: has no states of recordings; fleet convert writes them")
    try:
        write_catalogue(layout, states)
    except ObjectStoreError as error:  # to look at it no right to write is needed
        print(one_line(f"the catalogue stays as it is: {error}"), file=sys.stderr)
    shown = ("settings", "software", "verdict", "samples", "bytes", "source", "error", "loss")
    rows = states.choose(where, *([pl.exclude("members", "counts")] if as_json else shown))
    usable = int(rows["verdict"].is_in(USABLE).sum())
    code = 0 if (rows["verdict"] == "ok").all() else 3 if usable else 1
    if as_json:
        plain: list[dict[str, Any]] = rows.to_dicts()
        say(json.dumps({"out": str(layout.root), "recordings": plain, "exit_code": code}, indent=1))
        raise typer.Exit(code)
    summed = rows.group_by("settings", "software", "verdict").agg(
        pl.len().alias("n"), pl.col("samples").sum(), pl.col("bytes").sum()
    )
    found = [
        (settings, software, verdict, str(number), str(samples), f"{size / 1e6:.1f}")
        for settings, software, verdict, number, samples, size in summed.sort("settings", "software", "verdict").rows()
    ]
    table(("settings", "software", "verdict", "recordings", "samples", "MB"), found)
    bad = rows.filter(pl.col("verdict") != "ok").sort("source")
    if len(bad):
        say("")
        listed = bad.head(LISTED).select("source", "verdict", pl.coalesce("error", "loss"))
        reasons = [
            (source, verdict, (why or "").split("\n")[0].removeprefix(f"{source}: "))
            for source, verdict, why in listed.rows()
        ]
        table(("recording", "verdict", "why"), reasons)
        if len(bad) > LISTED:
            say(f"and {counted(len(bad) - LISTED, 'recording')} more: --json lists all")
    say("")
    say(f"{usable} of {counted(len(rows), 'recording')} have a dataset")
    say(f"catalogue: {layout.catalogue}")
    raise typer.Exit(code)
