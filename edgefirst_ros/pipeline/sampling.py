# SPDX-License-Identifier: Apache-2.0
"""Selection of the frames that become samples: all, keyframes, or the first clean one of each 1/rate s."""

from __future__ import annotations

from edgefirst_ros.config import MODEL, SECOND, Settings
from edgefirst_ros.pipeline.frame import Frame

Bucket = tuple[int, int]
"""Segment, and number of the interval of 1/rate s since the epoch."""


class Sampling:
    """Decides about frames in their order. Owned by the thread that chooses frames."""

    def __init__(self, settings: Settings, sensor: str | None) -> None:
        """`sensor`: the sensor of the reference topic, if it is a companion sensor."""
        self._keyframes_only = settings.keyframes
        self._rate = settings.exact_rate
        self._required = settings.require
        self._sensor = sensor
        self._prefers_model = settings.prefer == MODEL
        self._filled: Bucket | None = None

    def bucket_of(self, frame: Frame) -> Bucket | None:
        """Return the bucket of a frame; None without a rate."""
        if self._rate is None:
            return None
        return frame.segment, frame.stamp * self._rate.numerator // (self._rate.denominator * SECOND)

    def passes_over(self, bucket: Bucket | None, *, keyframe: bool) -> bool:
        """True if a frame is not asked for, by rate or keyframes."""
        return (self._keyframes_only and not keyframe) or (bucket is not None and bucket == self._filled)

    def missing(self, frame: Frame) -> str | None:
        """Return the first required sensor that a frame lacks; None if it has all."""
        present = {*frame.companions, self._sensor, *([MODEL] if frame.result is not None else [])}
        return next((sensor for sensor in self._required if sensor not in present), None)

    def is_second_choice(self, frame: Frame) -> bool:
        """True if another frame of the bucket would be preferred: one that the model processed."""
        return self._prefers_model and frame.result is None

    def fill(self, bucket: Bucket | None) -> None:
        """Note that a bucket has its frame: the first clean one, even if it lacks a sensor."""
        if bucket is not None:
            self._filled = bucket
