# SPDX-License-Identifier: Apache-2.0
"""Plan of a run: sources compared with states, and names of the datasets."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import polars as pl

from edgefirst_ros import __version__
from edgefirst_ros.dataset.names import MAX_NAME_BYTES, safe_name
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.fleet.catalogue import BATCH
from edgefirst_ros.fleet.layout import Layout, digest
from edgefirst_ros.fleet.sources import Source
from edgefirst_ros.fleet.state import KEPT, USABLE

MARK = 8
"""Digits of the URI's hash behind a name that another recording has."""


@dataclass(frozen=True)
class Plan:
    """The given recordings: those to do and those done."""

    todo: Sequence[Source]
    names: Mapping[str, str]
    """{source URI: name}."""
    done: Mapping[str, str]
    """Verdict by URI of those that are there already, and of those that failed before and are kept so."""


def make_plan(
    sources: Sequence[Source], states: pl.LazyFrame, layout: Layout, settings: str, *, retry_failed: bool
) -> Plan:
    """Sort out which sources are done: by URI, size and ETag, settings, software, and members that are all there.

    Of those that failed none is done again unless `retry_failed`. Raises ObjectStoreError.
    """
    mine = states.filter(pl.col("settings") == settings)
    given = pl.LazyFrame(
        [(source.uri, source.size, source.etag) for source in sources],
        schema={"source": pl.String, "size": pl.Int64, "etag": pl.String},
        orient="row",
    )
    same = mine.filter(pl.col("software") == __version__).join(given, on=["source", "size", "etag"], how="semi")
    whole = _whole(same.filter(pl.col("verdict").is_in(USABLE)), layout, settings)
    kept = same.filter(pl.col("verdict").is_in(() if retry_failed else KEPT))
    done = dict(pl.concat([whole, kept.select("source", "verdict")]).collect().iter_rows())
    names = _names(
        {source.uri: source.name for source in sources}, dict(mine.select("source", "name").collect().iter_rows())
    )
    return Plan([source for source in sources if source.uri not in done], names, done)


def _whole(states: pl.LazyFrame, layout: Layout, settings: str) -> pl.LazyFrame:
    """Source and verdict of the states all of whose members are there with their ETags."""
    objects = open_store(layout.root).objects(layout.datasets(settings).key)
    listed = [pl.DataFrame(schema={"key": pl.String, "etag": pl.String})]
    while batch := [(layout.relative(found.key), found.etag) for found in islice(objects, BATCH)]:
        listed.append(pl.DataFrame(batch, schema=listed[0].schema, orient="row"))
    members = states.select("source", "members").explode("members").unnest("members")
    missing = members.join(pl.concat(listed).lazy(), on=["key", "etag"], how="anti").select("source")
    whole = states.filter(pl.col("members").list.len() > 0).select("source", "verdict")
    return whole.join(missing, on="source", how="anti")


def _names(given: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """The name of each source: the one it has by its state, else that of its file, with a hash where it is taken."""
    taken = {_folded(name) for name in known.values()}
    names = {uri: known[uri] for uri in given if uri in known}
    for uri in sorted(given.keys() - names.keys()):
        name = safe_name(given[uri])
        if _folded(name) in taken:
            mark = f"_{digest(uri)[:MARK]}"
            name = safe_name(name.encode()[: MAX_NAME_BYTES - len(mark)].decode("utf-8", "ignore") + mark)
        taken.add(_folded(name))
        names[uri] = name
    return names


def _folded(name: str) -> str:
    """Return a name folded as case-insensitive and normalising file systems compare it."""
    return unicodedata.normalize("NFC", name).casefold()
