# SPDX-License-Identifier: Apache-2.0
"""The metadata of a frames table, which any tool may have written, checked by one model for all who read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgefirst_ros.dataset.schema import FRAMES_METADATA
from edgefirst_ros.errors import DatasetError

KNOWN = (*FRAMES_METADATA, "sequences", "merged", "left_out")
"""Keys that are checked; others may have any value."""
DEEPEST = 64
MOST_SHOWN = 80
"""Characters of an invalid value that a message shows."""


def frames_metadata(path: Path, stored: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of the frames table at `path` as plain values; text that is no JSON stays text.

    Raises DatasetError naming the first of `KNOWN` that has not the form of the format.
    """
    found = {key: parsed(text) for key, text in stored.items()}
    for key, what in faults(found):
        raise DatasetError(f"{path}: metadata {key}: {what}")
    return found


def faults(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong) for metadata that have not the form of the format."""
    if not found.keys() & {*KNOWN}:
        return
    from pydantic import ValidationError

    from edgefirst_ros.dataset.frames_forms import FramesMetadata

    for key in KNOWN:
        if key not in found:
            continue
        if _is_deep(found[key]):
            yield key, f"nested more than {DEEPEST} times"
            continue
        try:
            FramesMetadata.model_validate({key: found[key]})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(ascii(str(step))[1:-1][:MOST_SHOWN] for step in first["loc"][1:])
            yield key, f"{place + ': ' if place else ''}found {_shown(first['input'])}, {first['msg'].lower()}"


def parsed(text: str) -> Any:
    """Return the JSON value of a text of metadata, or the text itself when it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for one in level
            for item in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
