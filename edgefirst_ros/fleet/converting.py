# SPDX-License-Identifier: Apache-2.0
"""Converts all given recordings: compares them with states, converts new ones, writes states and a catalogue."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from edgefirst_ros import __version__
from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.grouping import GroupRule, describe_missed_shares
from edgefirst_ros.dataset.names import MAX_NAME_BYTES, fold_case, make_safe
from edgefirst_ros.dataset.objects.store import open_store, remove_partials
from edgefirst_ros.errors import ObjectStoreError
from edgefirst_ros.fleet.catalogue import BATCH, Catalogue, update_catalogue, write_catalogue
from edgefirst_ros.fleet.engine import Driver, Engine, Task
from edgefirst_ros.fleet.sources import ListedRecording, find_sources
from edgefirst_ros.fleet.state import KEPT, USABLE, Layout, hash_settings, hash_uri, select_settings
from edgefirst_ros.fleet.work import Job, work, write_state

MARK = 8
"""Digits of the URI's hash after a name that another recording has."""
BASE_MEMORY, MEMORY_SHARE = 512 << 20, 0.05
"""Memory of a conversion: bytes, plus a fraction of the recording's size."""
LISTED = 20
"""Failures that are listed; the catalogue has all."""


class Plan(NamedTuple):
    """The given recordings: those to do and those done."""

    todo: Sequence[ListedRecording]
    names: Mapping[str, str]
    """{source URI: name}."""
    done: Mapping[str, str]
    """Verdict by URI of those that exist already, and of those that failed before and stay so."""


def make_plan(
    sources: Sequence[ListedRecording], states: pl.LazyFrame, layout: Layout, settings: str, *, retry_failed: bool
) -> Plan:
    """Sort out which sources are done: by URI, size and ETag, settings, software, and a complete dataset.

    Those that failed are done again only with `retry_failed`. Raises ObjectStoreError.
    """
    mine = states.filter(pl.col("settings") == settings)
    given = pl.LazyFrame(
        [(source.uri, source.size, source.etag) for source in sources],
        schema={"source": pl.String, "size": pl.Int64, "etag": pl.String},
        orient="row",
    )
    same = mine.filter(pl.col("software") == __version__).join(given, on=["source", "size", "etag"], how="semi")
    whole = _find_whole(same.filter(pl.col("verdict").is_in(USABLE)), layout, settings)
    kept = same.filter(pl.col("verdict").is_in(() if retry_failed else KEPT))
    done = dict(pl.concat([whole, kept.select("source", "verdict")]).collect().iter_rows())
    known = dict(mine.select("source", "name").collect().iter_rows())
    names = _name_sources({source.uri: source.name for source in sources}, known)
    return Plan([source for source in sources if source.uri not in done], names, done)


def _find_whole(states: pl.LazyFrame, layout: Layout, settings: str) -> pl.LazyFrame:
    """Return source and verdict of the states whose members all exist with their ETags."""
    objects = open_store(layout.root).objects((layout.root / settings).key)
    listed = [pl.DataFrame(schema={"key": pl.String, "etag": pl.String})]
    while batch := [(layout.relative(found.key), found.etag) for found in islice(objects, BATCH)]:
        listed.append(pl.DataFrame(batch, schema=listed[0].schema, orient="row"))
    members = states.select("source", "members").explode("members", empty_as_null=False).unnest("members")
    missing = members.join(pl.concat(listed).lazy(), on=["key", "etag"], how="anti").select("source")
    whole = states.filter(pl.col("members").list.len() > 0).select("source", "verdict")
    return whole.join(missing, on="source", how="anti")


def _name_sources(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """The name of each source: the one it has by its state, else that of its file, with a hash where it is used."""
    taken = {fold_case(name) for name in known.values()}
    names = {uri: known[uri] for uri in given if uri in known}
    for uri in sorted(given.keys() - names.keys()):
        name = make_safe(given[uri])
        if fold_case(name) in taken:
            mark = f"_{hash_uri(uri)[:MARK]}"
            name = make_safe(name.encode()[: MAX_NAME_BYTES - len(mark)].decode("utf-8", "ignore") + mark)
        taken.add(fold_case(name))
        names[uri] = name
    return names


@dataclass
class FleetProgress:
    """Progress of a run, and verdicts of all given recordings."""

    total: int
    verdicts: Counter[str] = field(default_factory=Counter)
    """{verdict: number} of all given recordings, done now or before."""
    before: int = 0
    now: int = 0
    running: int = 0
    waiting: int = 0
    """Recordings that wait for a retry, because storage refused them."""
    workers: int = 0
    bytes: int = 0
    """Bytes of the recordings that this run finished."""
    seconds: float = 0.0
    """Time since the first recording was started, s."""
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    """(source, verdict, reason) of the first recordings with loss or failure."""

    @property
    def exit_code(self) -> int:
        """0 if all are ok, 1 if no dataset is usable, else 3."""
        usable = sum(self.verdicts[verdict] for verdict in USABLE)
        return 0 if self.verdicts["ok"] == self.total else 3 if usable else 1

    @property
    def failed(self) -> int:
        """Recordings without a dataset."""
        return sum(number for verdict, number in self.verdicts.items() if verdict not in USABLE)


class Conversion:
    """The work of one `fleet convert`. Owned by one thread."""

    def __init__(
        self,
        given: Sequence[str],
        to: str,
        settings: Settings,
        *,
        scratch: str | None = None,
        config: Path | None = None,
        retry_failed: bool = False,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Read sources and states; no file is written. `config`: the file of the settings.

        Raises UsageError, ObjectStoreError.
        """
        self.layout = Layout.of(to)
        self.settings = select_settings(settings)
        self.hash = hash_settings(self.settings)
        self._scratch, self._note = scratch, note
        self._config = None if config is None else str(config.resolve())
        self.sources = find_sources(given, note)
        self._states = update_catalogue(self.layout, note)
        self.plan: Plan = make_plan(self.sources, self._states.rows, self.layout, self.hash, retry_failed=retry_failed)
        if (rule := GroupRule.of(self.settings)) is not None:
            rule.check({*self.plan.names.values(), *self._states.choose(None, "name")["name"]})
        self.tally = FleetProgress(len(self.sources), Counter(self.plan.done.values()), len(self.plan.done))
        uris = [uri for uri, verdict in self.plan.done.items() if verdict != "ok"][:LISTED]
        rows = self._states.rows.filter((pl.col("settings") == self.hash) & pl.col("source").is_in(uris))
        for source, verdict, loss, error in rows.select("source", "verdict", "loss", "error").collect().iter_rows():
            self._list(source, verdict, loss or error or "")

    def plain(self) -> dict[str, Any]:
        tally = self.tally
        return {
            "out": str(self.layout.root),
            "settings": self.hash,
            "catalogue": str(self.layout.catalogue),
            "recordings": tally.total,
            "done_before": tally.before,
            "done_now": tally.now,
            "verdicts": dict(sorted(tally.verdicts.items())),
            "not_all_there": [dict(zip(("source", "verdict", "why"), row, strict=True)) for row in tally.failures],
            "source_bytes": tally.bytes,
            "seconds": tally.seconds,
            "exit_code": tally.exit_code,
        }

    def run(self, engine: Engine, report: Callable[[FleetProgress], None]) -> FleetProgress:
        """Convert the sources of the plan; `report` is called every second or more often.

        The catalogue is written first and last; the last one may be rejected, states have it all.
        Raises ObjectStoreError if DST cannot be written, EdgeFirstError if the engine is gone; finished datasets stay.
        """
        if self.layout.root.local:  # remove unfinished files that killed workers and drivers left in DST
            remove_partials(self.layout.root.path, deep=False)
            for place in (self.layout.root / self.hash, self.layout.states):
                remove_partials(place.path)
        write_catalogue(self.layout, self._states)
        began = time.monotonic()

        def tick() -> None:
            self.tally.running, self.tally.waiting = driver.running, driver.waiting
            self.tally.workers = engine.threads
            self.tally.seconds = time.monotonic() - began
            report(self.tally)

        driver = Driver(engine, tick=tick)
        try:
            for task, record in driver.run(self._tasks()):
                self._settle(task.arguments, record)
        finally:
            if missing := self.tally.total - sum(self.tally.verdicts.values()):
                self.tally.verdicts["not done"] = missing
        try:
            states = update_catalogue(self.layout, self._note)
            self._report_shares(states)
            write_catalogue(self.layout, states)
        except ObjectStoreError as refused:
            self._note(f"the catalogue is out of date: {refused}; fleet status rewrites it")
        return self.tally

    def _report_shares(self, states: Catalogue) -> None:
        """Note shares of the groups that are others than those asked for."""
        rule = GroupRule.of(self.settings)
        if rule is None:
            return
        samples: Counter[str | None] = Counter()
        for name, settings, group, number in states.choose(None, "name", "settings", "group", "samples").rows():
            if settings == self.hash and number and rule.share_of(name):
                samples[group] += number
        if (missed := describe_missed_shares(rule.shares, samples)) is not None:
            self._note(missed)

    def _tasks(self) -> Iterator[Task]:
        plain = self.settings.model_dump(mode="json")
        for source in self.plan.todo:
            job = Job(
                source.uri,
                source.size,
                source.etag,
                self.plan.names[source.uri],
                str(self.layout.root),
                plain,
                self.hash,
                parts=tuple((part.key, part.size, part.etag) for part in source.parts),
                scratch=self._scratch,
                config=self._config,
            )
            yield Task(work, asdict(job), BASE_MEMORY + int(MEMORY_SHARE * source.size))

    def _settle(self, arguments: Mapping[str, Any], record: Mapping[str, Any]) -> None:
        verdict: Any = record["verdict"]
        if verdict in ("crashed", "storage"):  # the worker could not write it
            job = Job(**arguments)
            try:
                write_state(self.layout, job.state(verdict, error=record["error"]))
            except ObjectStoreError as refused:
                self._note(f"{job.source}: its state could not be written: {refused}")
        self.tally.now += 1
        self.tally.bytes += arguments["size"]
        self.tally.verdicts[verdict] += 1
        self._list(arguments["source"], verdict, record["error"] or "")

    def _list(self, source: str, verdict: str, why: str) -> None:
        if verdict != "ok" and len(self.tally.failures) < LISTED:
            self.tally.failures.append((source, verdict, why))
