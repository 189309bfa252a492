# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros fleet convert`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefirst_ros.cli.fleet.live import live
from edgefirst_ros.cli.fleet.options import CLUSTER, SCRATCH, WORKERS
from edgefirst_ros.cli.options import SET, texts_of
from edgefirst_ros.cli.text import one_line, say, size_of, table
from edgefirst_ros.errors import UsageError, counted, printable

if TYPE_CHECKING:
    from edgefirst_ros.fleet.converting import Conversion, FleetProgress


def convert(
    context: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC", help="Folders, recordings, globs, s3:// prefixes, or a text file that lists them."
        ),
    ],
    out: Annotated[str, typer.Option("-o", "--out", metavar="DST", help="Folder or s3://BUCKET/PREFIX.")],
    config: Annotated[
        Path | None, typer.Option(readable=False, help="YAML file with settings; options override it.")
    ] = None,
    assignments: Annotated[list[str] | None, SET] = None,
    cluster: Annotated[str | None, CLUSTER] = None,
    workers: Annotated[int | None, WORKERS] = None,
    scratch: Annotated[str | None, SCRATCH] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also retry recordings that failed or crashed before.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Convert many recordings, each to a dataset of its own; those that are done already are skipped.

    Writes DST/SETTINGS/SEQUENCE/NAME.zip with its tables, a state for each recording, and DST/catalogue.parquet.

    Exit codes, by all recordings given, done now or before: 0 all there, 1 none, 2 wrong usage, 3 some with loss or
    failed (the table says which, and why).
    """
    from edgefirst_ros.config_file import load
    from edgefirst_ros.fleet.converting import Conversion
    from edgefirst_ros.fleet.dask_engine import dask_engine
    from edgefirst_ros.fleet.scratch import sweep

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a container that is to end is interrupted
    if cluster is not None and workers is not None:
        raise UsageError("--cluster and --workers exclude each other: the cluster has its own workers")
    settings = load(config, texts=texts_of(context, assignments or ()), note=_note)
    conversion = Conversion(sources, out, settings, scratch=scratch, retry_failed=retry_failed, note=_note)
    if dry_run:
        _print_plan(conversion, as_json=as_json)
        raise typer.Exit(0)
    _note(
        f"{counted(len(conversion.sources), 'recording')}: {len(conversion.plan.todo)} to do, "
        f"{conversion.tally.before} done before; settings {conversion.hash}"
    )
    if conversion.plan.todo:
        try:
            with dask_engine(cluster, workers) as engine, live(quiet=as_json) as report:
                dashboard = engine.dashboard and f"; dashboard: {engine.dashboard}"
                _note(f"{counted(engine.threads, 'thread')} on workers{dashboard}")
                conversion.run(engine, report)
        except KeyboardInterrupt:
            _note("interrupted: what is done is kept; the same command continues from here")
            raise typer.Exit(130) from None
        finally:
            sweep(scratch)
    if as_json:
        say(json.dumps(_as_json(conversion), indent=1))
    else:
        _print(conversion)
    raise typer.Exit(conversion.tally.exit_code)


def _note(text: str) -> None:
    print(printable(one_line(text)), file=sys.stderr, flush=True)


def _as_json(conversion: Conversion) -> dict[str, Any]:
    tally: FleetProgress = conversion.tally
    return {
        "out": str(conversion.layout.root),
        "settings": conversion.hash,
        "catalogue": str(conversion.layout.catalogue),
        "recordings": tally.total,
        "done_before": tally.before,
        "done_now": tally.now,
        "verdicts": dict(sorted(tally.verdicts.items())),
        "not_all_there": [dict(zip(("source", "verdict", "why"), row, strict=True)) for row in tally.failures],
        "source_bytes": tally.bytes,
        "seconds": tally.seconds,
        "exit_code": tally.exit_code,
    }


def _print(conversion: Conversion) -> None:
    from edgefirst_ros.fleet.state import KEPT

    tally = conversion.tally
    if tally.failures:
        table(
            ("recording", "verdict", "why"),
            [(s, v, w.splitlines()[0] if w else "") for s, v, w in sorted(tally.failures)],
        )
        more = tally.total - tally.verdicts["ok"] - tally.verdicts["not done"] - len(tally.failures)
        if more > 0:
            say(f"and {more} more: edgefirst-ros fleet status {conversion.layout.root}")
        say("")
    if kept := sum(verdict in KEPT for verdict in conversion.plan.done.values()):
        say(f"failed before, and not tried again: {counted(kept, 'recording')}; --retry-failed does")
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(tally.verdicts.items()) if number)
    say(f"{counted(tally.total, 'recording')}: {verdicts} ({tally.before} of them done before)")
    say(f"datasets: {conversion.layout.datasets(conversion.hash)}")
    say(f"catalogue: {conversion.layout.catalogue}")
    if tally.now and tally.seconds:
        say(f"{tally.now} in {tally.seconds:.1f} s, {size_of(tally.bytes / tally.seconds)} of recordings a second")


def _print_plan(conversion: Conversion, *, as_json: bool) -> None:
    plan, root = conversion.plan, conversion.layout
    if as_json:
        todo = [
            {"source": s.uri, "size": s.size, "container": f"{root.dataset(conversion.hash, n)}/{n}.zip"}
            for s in plan.todo
            for n in [plan.names[s.uri]]
        ]
        say(json.dumps({"settings": conversion.hash, "todo": todo, "done": dict(plan.done)}, indent=1))
        return
    if plan.todo:
        rows = [
            (s.uri, f"{s.size / 1e6:.1f}", str(root.dataset(conversion.hash, plan.names[s.uri]))) for s in plan.todo
        ]
        table(("to do", "MB", "becomes"), rows)
    size = sum(source.size for source in plan.todo)
    say(f"{len(plan.todo)} to do ({size_of(size)}), {conversion.tally.before} done before; nothing was written")
