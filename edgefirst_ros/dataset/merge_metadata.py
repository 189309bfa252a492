# SPDX-License-Identifier: Apache-2.0
"""Frames metadata of several datasets combined into one, by sequence and for the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset.merge_labels import Part
from edgefirst_ros.dataset.sequences import CALIBRATION, LEFT_OUT, SEQUENCES, combined
from edgefirst_ros.errors import DatasetError

ONCE = ("configuration", "software")
"""Keys with one value for a whole dataset."""


def merge_metadata(parts: Sequence[Part], notes: list[str]) -> dict[str, Any]:
    """Return the metadata of the frames: sources in one list, counts added up, the rest by sequence and dataset.

    Adds to `notes` what differs. Raises DatasetError where a dataset has no table of frames, or metadata that are not
    as the format says.
    """
    found = [_stored(part) for part in parts]
    counts, sources, sequences = Counts(), list[Any](), dict[str, dict[str, Any]]()
    for part, known in zip(parts, found, strict=True):
        try:
            counts.add(Counts.of(known["counts"] or {}))
        except KeyError as error:
            raise DatasetError(f"{part.dataset.paths.frames}: has no metadata counts, which are added up") from error
        sequences |= _sequences(part, known, len(sources), {*sequences, *part.sequences.values()})
        own = known.get("sources")
        sources += own if isinstance(own, list) else []
    if len(found) == 1 and all(old == new for old, new in parts[0].sequences.items()):
        return {**found[0], SEQUENCES: sequences}
    common, differing = combined(sequences)
    notes += differing
    merged: dict[str, Any] = {"sources": sources, "time_base": _time_base(parts, found), "counts": counts.plain()}
    for key in ONCE:
        values = [known.get(key) for known in found]
        given = [value for value in values if value] or values[:1]
        merged[key] = given[0]
        if any(value != given[0] for value in given):
            notes.append(f"the datasets differ in {key}: what each of them says is in the metadata, under merged")
            merged[key] = values if key == "configuration" else given[0]
    merged |= {**common, SEQUENCES: sequences}
    merged["merged"] = [
        {
            "dataset": part.dataset.paths.name,
            "sequences": part.sequences,
            **{key: known.get(key) for key in (*ONCE, *CALIBRATION)},
        }
        for part, known in zip(parts, found, strict=True)
    ]
    recovered = [known["recovered"] for known in found if "recovered" in known]
    left = [of for known in found for of in known.get(LEFT_OUT) or ()]
    return merged | ({"recovered": recovered} if recovered else {}) | ({LEFT_OUT: left} if left else {})


def _sequences(part: Part, known: Mapping[str, Any], offset: int, taken: set[str]) -> dict[str, dict[str, Any]]:
    """Return the metadata of a dataset's sequences by new name; their source indices start at `offset`.

    Of sequences without samples too, unless another one has their name.
    """
    stored = known.get(SEQUENCES)
    others = stored.keys() - part.sequences.keys() - taken if isinstance(stored, dict) else set()
    found = {}
    for old, new in {**part.sequences, **{name: name for name in sorted(others)}}.items():
        facts = part.dataset.sequence_facts(old)
        places = facts.get("sources")
        moved = [offset + place for place in places if isinstance(place, int)] if isinstance(places, list) else []
        found[new] = {**facts, "sources": moved}
    return found


def _stored(part: Part) -> dict[str, Any]:
    path = part.dataset.paths.frames
    if part.frames is None:
        raise DatasetError(
            f"{path}: not there; only datasets with a frames table can be merged, as it has the stamps of the samples"
        )
    return part.frames_metadata


def _time_base(parts: Sequence[Part], found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the time base as a conversion of several recordings has it: of the first, and by sequence."""
    bases: dict[str, Any] = {}
    for part, known in zip(parts, found, strict=True):
        base = known.get("time_base")
        of_each = base.get("sequences", {}) if isinstance(base, dict) else {}
        plain = {key: base[key] for key in base if key != "sequences"} if isinstance(base, dict) else base
        bases |= {new: of_each.get(old, plain) for old, new in part.sequences.items()}
    first = next(iter(bases.values()), None)
    return {**first, "sequences": bases} if isinstance(first, dict) else {"sequences": bases}
