# SPDX-License-Identifier: Apache-2.0
"""Offset between the clocks of two sensors that measured one motion, and drift of a clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.sensors.motion import SPEED, TURN, Floats, Motion

SEARCHED, STEP, MOST = 1.0, 0.01, 20_000
"""s to each side that are searched, the steps, and most intervals that are compared."""
SHORTEST, SMOOTH, FEWEST, GAP = 4.0, 0.2, 20, 3.0
"""s of both sensors, s of an interval, intervals, all at least; usual intervals that a gap is longer than."""
LEAST, LIKE = 0.6, (0.5, 2.0)
"""Correlation from which two sensors show one motion, and ratios of two speeds that can be of one vehicle."""
NEAR, HILL = 0.9, 0.8
"""Shares of the best fit: from which an offset is as good, and below which another is not of the same peak."""
CERTAIN, WIDEST = 0.05, 0.3
"""s of uncertainty up to which an offset is one for a rig, and up to which it is known."""
MOTIONLESS = {TURN: (0.01, "the drive does not turn"), SPEED: (0.15, "the speed does not change")}
"""Standard deviation of a rate, rad/s or m/s, below which a drive shows no offset, and that in words."""


class Offset(NamedTuple):
    """Result of a comparison."""

    seconds: float | None
    """Added to stamps of the second sensor it makes them those of the first; None: cannot be known."""
    why: str = ""
    """Reason that it cannot be known."""
    best: float | None = None
    """Best fit, s, even where it is not good enough."""
    uncertainty: float | None = None
    """Standard deviation of it, s."""
    confidence: float | None = None
    """Correlation of the two motions at the best fit, 0 to 1."""
    compared: float = 0.0
    """s that were compared."""

    @property
    def certain(self) -> bool:
        """True if it is good enough for a rig."""
        return self.seconds is not None and self.uncertainty is not None and self.uncertainty <= CERTAIN


def find_offset(first: Motion, second: Motion, what: str) -> Offset:
    """Compare two motions; `what`: `turn` or `speed`. Motion is judged in the unit of the second one."""
    if min(len(first.stamps), len(second.stamps)) < 3:
        return Offset(None, "too few messages")
    origin = first.stamps[0]
    (ta, a), (tb, b) = _make_arrays(first, origin), _make_arrays(second, origin)
    common = round(float(min(ta[-1], tb[-1]) - max(ta[0], tb[0])), 1)
    if common < SHORTEST:
        return Offset(None, f"too short: {max(common, 0):.1f} s of both; {SHORTEST:g} s are needed", compared=common)
    swap = np.median(np.diff(ta)) < np.median(np.diff(tb))
    least, still = MOTIONLESS[what]
    if float(np.linalg.norm(_measure_rates(tb, b)[2].std(axis=0))) < least:
        return Offset(None, f"no motion: {still}", compared=common)
    (ta, a), (tb, b) = ((tb, b), (ta, a)) if swap else ((ta, a), (tb, b))
    begin, end, rate = (of[:: len(ta) // MOST + 1] for of in _measure_rates(ta, a))
    usual = max(SMOOTH, float(np.median(np.diff(ta))))
    if common < FEWEST * usual:
        return Offset(None, f"too few messages: one in {usual:.1f} s, {common:.0f} s of both", compared=common)
    lags = np.arange(-round(SEARCHED / STEP), round(SEARCHED / STEP) + 1) * STEP
    fits = [_fit(begin, end, rate, tb, b, float(lag)) for lag in lags]
    share = np.array([fit.share for fit in fits])
    rank = np.array([fit.square for fit in fits]) * np.where(share > 0.5 * share.max(), share, 0.0)
    best = int(rank.argmax())
    fit, sign = fits[best], 1.0 if swap else -1.0
    near, hill = rank >= NEAR * rank[best], np.flatnonzero(rank < HILL * rank[best])
    left = int(max(hill[hill < best], default=-1)) + 1
    right = int(min(hill[hill > best], default=len(lags))) - 1
    top = left + np.flatnonzero(near[left : right + 1])
    top = np.arange(max(0, best - 2), min(len(lags), best + 3)) if len(top) < FEWEST // 4 else top
    found = float(lags[best])
    bend, slope, _ = np.polyfit(lags[top] - found, [fits[n].square for n in top], 2)
    if bend < 0:
        found += float(np.clip(-slope / (2 * bend), lags[top[0]] - found, lags[top[-1]] - found))
    # The residual's own memory makes neighbours less than independent.
    memory = max(0.0, min(0.99, fit.memory))
    independent = fit.share * len(rate) * (1 - memory) / (1 + memory)
    uncertainty = float(np.sqrt((1 - fit.square) / (-bend * independent))) if bend < 0 and independent > 0 else None
    known = Offset(
        None, "", round(sign * found, 4), None if uncertainty is None else round(uncertainty, 4),
        round(float(np.sqrt(max(0.0, fit.square))), 3), round(float((ta[-1] - ta[0]) * fit.share), 1),
    )  # fmt: skip
    gain = float(np.linalg.norm(fit.factors)) ** (-1.0 if swap else 1.0) if np.any(fit.factors) else 0.0
    if fit.square < LEAST**2:
        why = f"the two do not show one motion: correlation {known.confidence:.2f}"
    elif what == SPEED and not LIKE[0] < gain < LIKE[1]:
        why = f"the two do not show one speed: ratio {gain:.2f}"
    elif left == 0 or right == len(lags) - 1:
        why = f"no best offset within {SEARCHED:g} s"
    elif near[:left].any() or near[right + 1 :].any():
        why = "the motion repeats: several offsets fit"
    elif uncertainty is None or uncertainty > WIDEST:
        why = "too uncertain" + (f": standard deviation {uncertainty:.2f} s" if uncertainty is not None else "")
    else:
        return known._replace(seconds=known.best)
    return known._replace(why=why)


class _Fit(NamedTuple):
    """Linear fit at one lag."""

    square: float  # share of the variance that is explained
    share: float  # of the intervals that were compared
    factors: Floats
    memory: float  # correlation of neighbouring residuals


def _fit(begin: Floats, end: Floats, rate: Floats, times: Floats, totals: Floats, lag: float) -> _Fit:
    usable = _is_covered(times, begin + lag, end + lag)
    share = float(usable.mean())
    if usable.sum() < FEWEST / 2:
        return _Fit(0.0, 0.0, np.zeros(1), 0.0)
    begin, end, rate = begin[usable], end[usable], rate[usable]
    moved = [np.interp(end + lag, times, of) - np.interp(begin + lag, times, of) for of in totals.T]
    other = np.stack(moved, axis=1) / (end - begin)[:, None]
    rate, other = rate - rate.mean(axis=0), other - other.mean(axis=0)
    factors, *_ = np.linalg.lstsq(other, rate, rcond=None)
    rest = rate - other @ factors
    total = float((rate**2).sum())
    left = float((rest**2).sum())
    memory = float((rest[1:] * rest[:-1]).sum()) / left if left else 0.0
    return _Fit(1 - left / total if total else 0.0, share, factors, memory)


def _make_arrays(motion: Motion, origin: int) -> tuple[Floats, Floats]:
    """Return stamps in s, rising, of the longest stretch without a step of the clock, and totals (n, columns)."""
    times = (np.frombuffer(motion.stamps, np.int64) - origin) / 1e9
    totals = motion.totals
    step = np.diff(times)
    stretch = np.concatenate([[0], np.cumsum((step < -SEARCHED) | (step > 5 * SEARCHED))])
    kept = stretch == np.bincount(stretch).argmax()
    rising, first = np.unique(times[kept], return_index=True)
    return rising, totals[kept][first]


def _measure_rates(times: Floats, totals: Floats) -> tuple[Floats, Floats, Floats]:
    """Return begins and ends of intervals without a gap, and the mean rate in each, (n, columns)."""
    stride = max(1, round(SMOOTH / float(np.median(np.diff(times)))))
    begin, end = times[:-stride], times[stride:]
    whole = _is_covered(times, begin, end)
    rate = (totals[stride:] - totals[:-stride]) / (end - begin)[:, None]
    return begin[whole], end[whole], rate[whole]


def _is_covered(times: Floats, begin: Floats, end: Floats) -> NDArray[np.bool_]:
    """True where a span is inside the stamps and has no gap of theirs in it."""
    step = np.diff(times)
    gaps = np.concatenate([[0], np.cumsum(step > GAP * np.median(step))])
    before = np.clip(np.searchsorted(times, begin, "right") - 1, 0, None)
    after = np.clip(np.searchsorted(times, end, "left"), None, len(times) - 1)
    covered: NDArray[np.bool_] = (begin >= times[0]) & (end <= times[-1]) & (gaps[before] == gaps[after])
    return covered


class Drift(NamedTuple):
    """Drift of a clock against that of the recorder."""

    ppm: float | None
    """us/s, positive where the clock is too fast; None: cannot be known."""
    why: str = ""
    uncertainty: float | None = None
    """Standard deviation, ppm."""


LEAST_SECONDS, SET = 10, 0.5
"""s of messages that a drift needs, and a step that no drift makes."""


def find_drift(stamps: Sequence[int], log_times: Sequence[int]) -> Drift:
    """Return the drift of a clock by regression of stamp - log_time, of the fastest message of each second."""
    log = np.array(log_times, np.int64)
    if not len(log):
        return Drift(None, "no messages")
    away = np.array(stamps, np.int64) - log
    away = (away - away[0]) / 1e9
    seconds = (log - log[0]) / 1e9
    second = np.floor(seconds).astype(np.int64)
    order = np.lexsort((-away, second))
    fastest = order[np.flatnonzero(np.diff(second[order], prepend=second[order[0]] - 1))]
    if np.abs(np.diff(away[fastest])).max(initial=0) > SET:
        return Drift(None, "the clock was set")
    if len(fastest) < LEAST_SECONDS:
        return Drift(None, f"too short: {len(fastest)} s; {LEAST_SECONDS} s are needed")
    x, y = seconds[fastest], away[fastest]
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    rest = y - slope * x
    deviation = float(np.sqrt(rest @ rest / (len(x) - 2) / (x @ x)))
    return Drift(round(slope * 1e6, 1), "", round(deviation * 1e6, 1))
