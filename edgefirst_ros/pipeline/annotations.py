# SPDX-License-Identifier: Apache-2.0
"""What a model found in one frame, from all messages that say something about it, as annotation rows."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np

from edgefirst_ros.config import Settings
from edgefirst_ros.counts import MASK_REASONS
from edgefirst_ros.dataset.tables.outline import outline
from edgefirst_ros.pipeline.frame import Frame
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sensors.detections import Context, rows_of_boxes3d, rows_of_model
from edgefirst_ros.sources.topics import Roles

Rows = tuple[list[dict[str, object]], Counter[tuple[str, str]]]
"""Annotation rows, and how much of each topic was left out for which reason."""


def context_of(
    settings: Settings, roles: Roles, calibration: Calibration, sequence: str, frame: int, size: tuple[int, int] | None
) -> Context:
    """The frame of some results, and what of them the settings want."""
    labels = calibration.labels or ()
    return Context(
        sequence,
        frame,
        size,
        labels,
        labels if roles.classes is None else roles.classes,
        settings.min_score,
        settings.label_map,
        settings.masks or settings.polygons,
        settings.masks and settings.schema_version != "2025.10",  # its masks are outlines of one object
    )


def rows_of_results(frame: Frame, context: Context, settings: Settings) -> Rows:
    """All rows of a frame: boxes with their masks, masks of classes, boxes in space."""
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
        more, reasons = rows_of_boxes3d(frame.boxes3d.content, context)
        rows += more
        for reason, number in reasons.items():
            dropped[frame.boxes3d.topic, reason] += number
    return rows, dropped


def outline_into(row: dict[str, object], settings: Settings) -> None:
    """Give a row the outline of its instance mask, and take the mask from it where only the outline is wanted."""
    mask = row.get("mask")
    if settings.polygons and isinstance(mask, bytes) and "box2d" in row:
        rings = _rings(mask)
        if rings:
            row["polygon"] = rings
    if not settings.masks:
        row.pop("mask", None)


def _rings(png: bytes) -> list[list[float]]:
    """The outline of a mask made here, normalised; only the part that holds the object is looked at."""
    from PIL import Image

    with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
        width, height = image.size
        left, top, right, bottom = image.getbbox() or (0, 0, 0, 0)
        pixels = np.asarray(image.crop((left, top, right, bottom)), np.bool_)
    rings = outline(pixels) if pixels.size else []
    return [[value for x, y in ring for value in ((left + x) / width, (top + y) / height)] for ring in rings]
