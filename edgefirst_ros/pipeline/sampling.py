# SPDX-License-Identifier: Apache-2.0
"""Which frames become samples: all, keyframes, or the first clean one of each bucket of time; what they require."""

from __future__ import annotations

from edgefirst_ros.config import MODEL, SECOND, Settings
from edgefirst_ros.pipeline.frame import Frame

Bucket = tuple[int, int]
"""Segment, and number of the stretch of 1/rate s since the epoch."""


class Sampling:
    """Decides about frames in their order. Owned by the thread that chooses frames."""

    def __init__(self, settings: Settings, sensor: str | None) -> None:
        """`sensor`: what the reference topic is itself, where it is a companion sensor."""
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
        """Whether a frame is none that is asked for."""
        return (self._keyframes_only and not keyframe) or (bucket is not None and bucket == self._filled)

    def missing(self, frame: Frame) -> str | None:
        """Return the first required sensor that a frame lacks; None where it has all."""
        present = {*frame.companions, self._sensor, *([MODEL] if frame.result is not None else [])}
        return next((sensor for sensor in self._required if sensor not in present), None)

    def is_second_choice(self, frame: Frame) -> bool:
        """Whether another frame of the bucket goes before this one: one that the model looked at."""
        return self._prefers_model and frame.result is None

    def fill(self, bucket: Bucket | None) -> None:
        """Take note that a bucket has its frame: the first that can be had, even if it lacks a sensor."""
        if bucket is not None:
            self._filled = bucket
