# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros fleet`: all its verbs."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefirst_ros.cli.options import (
    CONFIG,
    Group,
    command_of,
    get_options,
    load_settings,
    read_group_rule,
    report_progress,
    wants_json,
)
from edgefirst_ros.cli.output import EVERY, LINE_EVERY, OtherResult, Result, describe_time
from edgefirst_ros.errors import (
    DatasetError,
    ObjectStoreError,
    Text,
    UsageError,
    escape_line,
    format_size,
    need,
    pluralize,
    show_path,
)
from edgefirst_ros.export import SYSTEMS

if TYPE_CHECKING:
    from edgefirst_ros.fleet.converting import Conversion, FleetProgress
    from edgefirst_ros.fleet.datasets import FleetDataset
    from edgefirst_ros.fleet.state import Layout

CLUSTER = typer.Option(
    metavar="ADDRESS|FILE", help="Scheduler of a Dask cluster: tcp://HOST:8786, tls://HOST:8786 or its scheduler file."
)
WORKERS = typer.Option(metavar="N", min=1, max=1024, help="Workers on this machine; one per processor if not given.")
SCRATCH = typer.Option(
    metavar="DIR", help="Folder for recordings in progress; default: the temporary folder of the system."
)
PLACE = typer.Argument(metavar="DST", help="Folder or s3://BUCKET/PREFIX that fleet convert wrote to.")
WHERE = typer.Option(
    metavar="SQL", help='Only recordings whose row in the catalogue meets a condition, such as "samples > 100".'
)
LISTED = 20


def convert(
    context: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC", help="Folders, recordings, globs, s3:// prefixes, or a text file that lists them."
        ),
    ],
    out: Annotated[str, typer.Option("-o", "--out", metavar="DST", help="Folder or s3://BUCKET/PREFIX.")],
    config: Annotated[Path | None, CONFIG] = None,
    cluster: Annotated[str | None, CLUSTER] = None,
    workers: Annotated[int | None, WORKERS] = None,
    scratch: Annotated[str | None, SCRATCH] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also retry recordings that failed or crashed before.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
) -> Result:
    """Convert many recordings, each to a dataset of its own.

    Writes DST/SETTINGS/SEQUENCE/NAME.zip with its tables, a state for each recording, and DST/catalogue.parquet.
    Recordings that are done already are skipped.

    Exit codes, over all given recordings: 0 all have a dataset, 1 no recording has one, 2 wrong usage, 3 some have a
    loss or failed (the table lists the reasons).
    """
    from edgefirst_ros.fleet.converting import Conversion
    from edgefirst_ros.fleet.dask_engine import open_dask
    from edgefirst_ros.fleet.work import sweep

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the end of a container interrupts the command
    _refuse_both(cluster, workers)
    settings = load_settings(context, config, _print_note)
    conversion = Conversion(
        sources, out, settings, scratch=scratch, config=config, retry_failed=retry_failed, note=_print_note
    )
    if dry_run:
        return OtherResult(partial(_plan, conversion), partial(_plan_text, conversion))
    if conversion.plan.todo:
        need("fleet convert", "fleet", "distributed")
    _print_note(
        f"{pluralize(len(conversion.sources), 'recording')}: {len(conversion.plan.todo)} to do, "
        f"{conversion.tally.before} done before; settings {conversion.hash}"
    )
    if conversion.plan.todo:
        try:
            with open_dask(cluster, workers) as engine, show_progress(quiet=wants_json(context)) as report:
                dashboard = engine.dashboard and f"; dashboard: {engine.dashboard}"
                _print_note(f"workers have {pluralize(engine.threads, 'thread')}{dashboard}")
                conversion.run(engine, report)
        except KeyboardInterrupt:
            _print_note("interrupted: finished datasets stay; the same command continues from here")
            raise typer.Exit(130) from None
        finally:
            sweep(scratch)
    return OtherResult(conversion.plain, partial(_describe_converted, conversion), conversion.tally.exit_code)


def _print_note(text: str) -> None:
    print(escape_line(text), file=sys.stderr, flush=True)


def _describe_converted(conversion: Conversion) -> Text:
    from edgefirst_ros.fleet.state import KEPT

    tally, layout = conversion.tally, conversion.layout
    if tally.failures:
        yield _list_reasons("recording", sorted(tally.failures))
        more = tally.total - tally.verdicts["ok"] - tally.verdicts["not done"] - len(tally.failures)
        if more > 0:
            yield f"and {more} more: edgefirst-ros fleet status {layout.root}"
        yield ""
    if kept := sum(verdict in KEPT for verdict in conversion.plan.done.values()):
        yield f"failed before, and not tried again: {pluralize(kept, 'recording')}; --retry-failed does"
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(tally.verdicts.items()) if number)
    yield f"{pluralize(tally.total, 'recording')}: {verdicts} ({tally.before} of them done before)"
    yield f"datasets: {layout.root / conversion.hash}"
    yield f"catalogue: {layout.catalogue}"
    if tally.now and tally.seconds:
        yield f"{tally.now} in {tally.seconds:.1f} s, {format_size(tally.bytes / tally.seconds)} of recordings a second"


def _list_reasons(
    what: str, rows: Sequence[tuple[str, str, str | None]]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return a table of verdicts; a reason does not repeat the name that its line begins with."""
    plain = [(name, verdict, (why or "").split("\n")[0].removeprefix(f"{name}: ")) for name, verdict, why in rows]
    return (what, "verdict", "why"), plain


def _plan(conversion: Conversion) -> dict[str, Any]:
    plan, root = conversion.plan, conversion.layout
    todo = [
        {"source": s.uri, "size": s.size, "container": f"{root.dataset(conversion.hash, n)}/{n}.zip"}
        for s in plan.todo
        for n in [plan.names[s.uri]]
    ]
    return {"settings": conversion.hash, "todo": todo, "done": dict(plan.done)}


def _plan_text(conversion: Conversion) -> Text:
    plan, root = conversion.plan, conversion.layout
    if plan.todo:
        yield (
            ("to do", "MB", "becomes"),
            [(s.uri, f"{s.size / 1e6:.1f}", f"{root.dataset(conversion.hash, plan.names[s.uri])}") for s in plan.todo],
        )
    size = format_size(sum(source.size for source in plan.todo))
    yield f"{len(plan.todo)} to do ({size}), {conversion.tally.before} done before; dry run: no file changes"


def status(place: Annotated[str, PLACE], where: Annotated[str | None, WHERE] = None) -> Result:
    """Show the recordings of a fleet by settings and verdict, and the failed ones.

    Reads the state files, and rewrites DST/catalogue.parquet where it is older than they are.

    Exit codes: 0 all recordings have a dataset, 1 no recording has one, or DST has no states, 2 wrong usage,
    3 some have no dataset, or a loss.
    """
    import polars as pl

    from edgefirst_ros.fleet.catalogue import update_catalogue, write_catalogue
    from edgefirst_ros.fleet.state import USABLE, Layout

    layout = Layout.of(place)
    states = update_catalogue(layout, _print_note)
    if not len(states):
        raise DatasetError(f"{place}: not the folder of a fleet; edgefirst-ros fleet convert makes one")
    try:
        write_catalogue(layout, states)
    except ObjectStoreError as error:  # reading it needs no right to write
        _print_note(f"the catalogue stays as it is: {error}")
    rows = states.choose(where, pl.exclude("members", "counts"))
    usable = int(rows["verdict"].is_in(USABLE).sum())
    code = 0 if (rows["verdict"] == "ok").all() else 3 if usable else 1

    def text() -> Text:
        keys = ("settings", "software", "verdict")
        summed = rows.group_by(keys).agg(pl.len().alias("n"), pl.sum("samples"), pl.sum("bytes")).sort(keys)
        found = [(*map(str, row), f"{size / 1e6:.1f}") for *row, size in summed.rows()]
        yield (*keys, "recordings", "samples", "MB"), found
        bad = rows.filter(pl.col("verdict") != "ok").sort("source")
        if len(bad):
            yield ""
            shown = bad.head(LISTED).select("source", "verdict", pl.coalesce("error", "loss"))
            yield _list_reasons("recording", shown.rows())
            if len(bad) > LISTED:
                yield f"and {pluralize(len(bad) - LISTED, 'recording')} more: --json lists all"
        yield ""
        yield f"{usable} of {len(rows)} recordings have a dataset"
        yield f"catalogue: {layout.catalogue}"

    return OtherResult(lambda: {"out": str(layout.root), "recordings": rows.to_dicts(), "exit_code": code}, text, code)


def validate(
    context: typer.Context,
    place: Annotated[str, PLACE],
    where: Annotated[str | None, WHERE] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    cluster: Annotated[str | None, CLUSTER] = None,
    workers: Annotated[int | None, WORKERS] = None,
    scratch: Annotated[str | None, SCRATCH] = None,
) -> Result:
    """Check every dataset of a fleet against the format and against its state file.

    Exit codes: 0 without errors (with --strict also without warnings), 1 otherwise, 2 wrong usage.
    """
    from edgefirst_ros.fleet.datasets import list_datasets, validate_one
    from edgefirst_ros.fleet.state import Layout

    layout = Layout.of(place)
    datasets = list_datasets(layout, where)
    return _run_each(context, validate_one, layout, datasets, cluster, workers, strict=strict, scratch=scratch)


def merge(
    context: typer.Context,
    place: Annotated[str, PLACE],
    out: Annotated[str, typer.Option("-o", "--out", metavar="OUT", help="Folder or s3://BUCKET/PREFIX.")],
    name: Annotated[str | None, typer.Option(help="Name of the merged dataset; default: the folder's.")] = None,
    where: Annotated[str | None, WHERE] = None,
    shard_bytes: Annotated[
        int | None,
        typer.Option(metavar="B", min=1, help="Write shards NAME-000.zip, NAME-001.zip, ..., each of at most B bytes."),
    ] = None,
    scratch: Annotated[str | None, SCRATCH] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing datasets.")] = False,
) -> Result:
    """Merge the datasets of a fleet to one, or to shards.

    Runs on this machine. Samples keep their groups, unless --split or --group assigns new ones.

    Exit codes: 0 complete, 1 no dataset written, 2 wrong usage, 3 finished with loss (the notes list it).
    """
    from edgefirst_ros.fleet.datasets import check_one_kind, list_datasets, merge_fleet
    from edgefirst_ros.fleet.state import Layout

    rule = read_group_rule(context)
    layout = Layout.of(place)
    datasets = check_one_kind(list_datasets(layout, where))
    with report_progress(context) as report:
        options = get_options(context, "place", "out", "where")
        made = merge_fleet(layout, datasets, out, **options, group_rule=rule, progress=report)
    code = max(merged.exit_code for _, merged in made)
    plain = [
        {"container": str(container), "samples": merged.samples, "sequences": len(merged.sequences)}
        for container, merged in made
    ]

    def text() -> Text:
        for container, merged in made:
            of = pluralize(len(merged.sequences), "dataset")
            yield f"{pluralize(merged.samples, 'sample')} of {of} in {container}"
            if merged.groups is not None:
                yield ""
                yield from merged.groups.text()
            yield from (f"note: {note}" for note in merged.notes)
        if code:
            yield "finished with loss: see the notes above"

    return OtherResult(lambda: {"datasets": plain, "exit_code": code}, text, code)


def export(
    context: typer.Context,
    place: Annotated[str, PLACE],
    to: Annotated[str, typer.Option("--to", metavar="|".join(SYSTEMS), help="Format to write.")],
    out: Annotated[str, typer.Option("-o", "--out", metavar="OUT", help="Output folder or s3://BUCKET/PREFIX.")],
    where: Annotated[str | None, WHERE] = None,
    cluster: Annotated[str | None, CLUSTER] = None,
    workers: Annotated[int | None, WORKERS] = None,
    scratch: Annotated[str | None, SCRATCH] = None,
    single_group: Annotated[
        bool | None, typer.Option("--single-group", help="For yolo: include drives without pictures in train or val.")
    ] = None,
) -> Result:
    """Write every dataset of a fleet in the format of another system.

    Each becomes OUT/NAME/..., those of nuscenes one set in OUT. OUT/NAME.export.json is written last and lists the
    place of all data. Datasets that have it already are skipped.

    Exit codes: 0 all exported, 1 no dataset exported, 2 wrong usage, 3 some were not exported.
    """
    from edgefirst_ros.dataset.objects.location import Location
    from edgefirst_ros.fleet.datasets import check_one_kind, export_one, export_together, list_datasets
    from edgefirst_ros.fleet.state import Layout

    if to not in SYSTEMS:
        raise UsageError(f"--to: expected one of {', '.join(SYSTEMS)}, got {to!r}")
    if to == "yolo" and not single_group:
        remedy = "first edgefirst-ros fleet merge, then export; or use --single-group"
        raise UsageError(f"--to yolo: each drive of a fleet is in one group, and YOLO needs two: {remedy}")
    layout = Layout.of(place)
    datasets = check_one_kind(list_datasets(layout, where))
    target = str(Location.of(out))
    if SYSTEMS[to].joins:
        if cluster is not None or workers is not None:
            raise UsageError(f"--cluster, --workers: {to} is written as one set, by this process")
        with report_progress(context) as show:
            code = export_together(layout, datasets, to, target, scratch, show)
        plain = {"out": target, "datasets": len(datasets)}
        return OtherResult(lambda: plain, lambda: [f"{pluralize(len(datasets), 'dataset')} in {show_path(out)}"], code)
    options = {} if single_group is None else {"single_group": single_group}
    common = {"format": to, "out": target, "options": options, "scratch": scratch}
    return _run_each(context, export_one, layout, datasets, cluster, workers, partly=3, **common)


def report(
    context: typer.Context,
    place: Annotated[str, PLACE],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="X.html", readable=False, help="The table, with the pages beside it.")
    ],
    where: Annotated[str | None, WHERE] = None,
    scratch: Annotated[str | None, SCRATCH] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace pages that exist.")] = False,
    table_only: Annotated[bool, typer.Option("--table-only", help="Only the table, no pages.")] = False,
) -> Result:
    """Write a table of the recordings of a fleet, and a page for each dataset.

    A recording without a dataset is a red row, by its URI and with the cause.

    Exit codes: 0 written, 1 no page written, 2 wrong usage, 3 some datasets are missing or cannot be read.
    """
    from typing import cast

    from edgefirst_ros.dataset.objects.location import ObjectPath
    from edgefirst_ros.fleet.datasets import fetch_copy, list_datasets, list_failed
    from edgefirst_ros.fleet.state import Layout
    from edgefirst_ros.report.run import Pages, Wanted, make_missing_row

    layout = Layout.of(place)
    failed = list_failed(layout, where)
    try:
        datasets = list_datasets(layout, where)
    except DatasetError:
        if not failed:
            raise
        datasets = []
    wanted = [
        Wanted(
            cast("Path", ObjectPath(str(layout.root / dataset.container))),
            dataset.name,
            fetch=partial(fetch_copy, layout, dataset, scratch, only_tables=table_only),
        )
        for dataset in datasets
    ]
    wanted += [make_missing_row(*one) for one in failed]
    with report_progress(context) as tell:
        done = Pages(overwrite=overwrite).write_all(wanted, out, table_only=table_only, progress=tell)
    done.note = f"{len(datasets)} of {len(wanted)} recordings have a dataset"
    return done


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[Callable[[FleetProgress], None]]:
    """Return a function that prints the progress of a run; it may be called at any rate."""
    terminal, at, width = sys.stderr.isatty(), time.monotonic(), 0

    def report(tally: FleetProgress) -> None:
        nonlocal at, width
        now = time.monotonic()
        if quiet or now - at < (EVERY if terminal else LINE_EVERY):
            return
        at, line = now, describe(tally)
        with suppress(OSError):  # the reader may be gone; the work continues
            if terminal:
                line = line[: shutil.get_terminal_size().columns - 1]
                print(f"\r{line.ljust(width)}", end="", file=sys.stderr, flush=True)
                width = len(line)
            else:
                print(line, file=sys.stderr, flush=True)

    try:
        yield report
    finally:
        if width:
            with suppress(OSError):
                print(f"\r{' ' * width}\r", end="", file=sys.stderr, flush=True)


def describe(tally: FleetProgress) -> str:
    """Return the progress of a run as one line: done, running, failed, rate, bytes, time left."""
    done = tally.before + tally.now
    parts = [f"{done} of {tally.total} done", f"{tally.running} running", f"{tally.failed} failed"]
    if tally.waiting:
        parts.append(f"{tally.waiting} waiting for storage")
    if not tally.workers:
        parts.append("no worker is connected")
    if tally.now and tally.seconds:
        rate = tally.now / tally.seconds
        parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min")
        parts.append(format_size(tally.bytes))
        parts.append(f"{describe_time((tally.total - done) / rate)} left")
    return ", ".join(parts)


def _run_each(
    context: typer.Context,
    function: Callable[[dict[str, Any]], dict[str, Any]],
    layout: Layout,
    datasets: Sequence[FleetDataset],
    cluster: str | None,
    workers: int | None,
    *,
    partly: int = 1,
    **options: Any,
) -> Result:
    """Run `function` on each dataset; the exit code is `partly` if some are ok."""
    from edgefirst_ros.fleet.dask_engine import open_dask
    from edgefirst_ros.fleet.datasets import run_each

    _refuse_both(cluster, workers)
    with open_dask(cluster, workers) as engine, report_progress(context) as report:
        found = run_each(engine, function, layout, datasets, lambda done, of: report("datasets", done, of), **options)
        records = sorted(found, key=lambda record: str(record["name"]))
    bad = [(one["name"], one["verdict"], str(one["why"])) for one in records if one["verdict"] != "ok"]
    code = 0 if not bad else partly if len(bad) < len(records) else 1

    def text() -> Text:
        if bad:
            yield _list_reasons("dataset", bad)
            yield ""
        yield f"{pluralize(len(records), 'dataset')}: {len(records) - len(bad)} ok, {len(bad)} not"

    return OtherResult(lambda: {"datasets": records, "exit_code": code}, text, code)


def _refuse_both(cluster: str | None, workers: int | None) -> None:
    if cluster is not None and workers is not None:
        raise UsageError("--cluster and --workers cannot be combined: the cluster has its own workers")


app = typer.Typer(
    name="fleet",
    cls=Group,
    help="Convert many recordings, to folders or buckets.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for verb, uses in ((convert, "fleet"), (status, ""), (validate, ""), (merge, "group"), (export, ""), (report, "")):
    app.command(verb.__name__, cls=command_of(uses, verb))(verb)
