# SPDX-License-Identifier: Apache-2.0
"""Whether a topic of a recording took longer, or less, from its stamp to the recorder than it usually does."""

from __future__ import annotations

import numpy as np

from edgefirst_ros.dataset.verdict import THRESHOLDS, Check
from edgefirst_ros.report.subject import Subject

STRETCH = 1.0
"""s of drive over which the median is taken: one late message is no late sensor."""


def delay_checks(subject: Subject) -> list[Check]:
    """Compare the delay of every second with the usual one, by topic."""
    found: list[Check] = []
    threshold = THRESHOLDS["delay"]
    worst = 0.0
    for topic, one in sorted((subject.recorded or {}).items()):
        known = np.isfinite(one.delays)
        times, delays = one.times[known], one.delays[known]
        if len(delays) < 5:
            continue
        usual = float(np.median(delays))
        stretch = ((times - times[0]) // STRETCH).astype(int)
        edges = np.flatnonzero(np.diff(stretch)) + 1
        parts = np.split(delays, edges)
        off = np.array([np.median(part) - usual for part in parts])
        far = float(np.abs(off).max())
        worst = max(worst, far)
        if level := threshold.level(far):
            late = np.flatnonzero(np.abs(off) >= (threshold.amber or 0))
            begins = times[np.concatenate([[0], edges])[late[0]]]
            text = f"{off[np.abs(off).argmax()] * 1e3:+.0f} ms from the usual for {len(late)} s, from {begins:.0f} s on"
            found.append(Check("delay", level, text, topic))
    if subject.recorded is not None and not found:
        found.append(Check("delay", threshold.level(0), f"within {worst * 1e3:.0f} ms of the usual"))
    return found
