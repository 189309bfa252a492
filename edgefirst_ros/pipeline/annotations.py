# SPDX-License-Identifier: Apache-2.0
"""Model results of one frame, from all messages that belong to it, as annotation rows."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np

from edgefirst_ros.config import Settings
from edgefirst_ros.counts import MASK_REASONS
from edgefirst_ros.dataset.tables.outline import outline
from edgefirst_ros.pipeline.facts import SequenceFacts
from edgefirst_ros.pipeline.frame import Frame
from edgefirst_ros.sensors.detections import Context, mapped_labels, rows_of_boxes3d, rows_of_model

Rows = tuple[list[dict[str, object]], Counter[tuple[str, str]]]
"""Annotation rows, and for each topic how many results were dropped, by reason."""


def context_of(settings: Settings, facts: SequenceFacts, frame: int, size: tuple[int, int] | None) -> Context:
    """Return the context of a frame's results: sequence, frame, picture size, and what the settings want of them."""
    classes = facts.calibration.labels or ()
    return Context(
        facts.name,
        frame,
        size,
        mapped_labels(classes, settings.label_map) or (),
        classes,
        settings.min_score,
        settings.label_map,
        settings.masks or settings.polygons,
        settings.masks and settings.schema_version != "2025.10",  # its masks are outlines of one object
        facts.place_of,
    )


def rows_of_results(frame: Frame, context: Context, settings: Settings) -> Rows:
    """Return all rows of a frame: 2D boxes with their masks, semantic masks, 3D boxes."""
    rows: list[dict[str, object]] = []
    dropped: Counter[tuple[str, str]] = Counter()
    if frame.result is not None:
        mask = frame.result.mask
        rows, reasons = rows_of_model(frame.result.content, context, mask.content if mask is not None else None)
        for reason, number in reasons.items():
            source = mask if mask is not None and reason in MASK_REASONS else frame.result
            dropped[source.topic, reason] += number
    for row in rows:
        outline_into(row, settings)
    if frame.boxes3d is not None:
        more, reasons = rows_of_boxes3d(frame.boxes3d.content, context, frame.motion)
        rows += more
        for reason, number in reasons.items():
            dropped[frame.boxes3d.topic, reason] += number
    return rows, dropped


def outline_into(row: dict[str, object], settings: Settings) -> None:
    """Add the outline of the instance mask to a row as `polygon`; drop the mask if only the outline is wanted."""
    mask = row.get("mask")
    if settings.polygons and isinstance(mask, bytes) and "box2d" in row:
        rings = _rings(mask)
        if rings:
            row["polygon"] = rings
    if not settings.masks:
        row.pop("mask", None)


def _rings(png: bytes) -> list[list[float]]:
    """Return the outline of a mask, normalised x, y; only the part that holds the object is traced."""
    from PIL import Image

    with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
        width, height = image.size
        left, top, right, bottom = image.getbbox() or (0, 0, 0, 0)
        pixels = np.asarray(image.crop((left, top, right, bottom)), np.bool_)
    rings = outline(pixels) if pixels.size else []
    return [[value for x, y in ring for value in ((left + x) / width, (top + y) / height)] for ring in rings]
