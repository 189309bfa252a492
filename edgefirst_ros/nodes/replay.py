# SPDX-License-Identifier: Apache-2.0
"""The conversion of recordings as a node: parameters in, a dataset out, progress on /diagnostics, then it ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import rclpy
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from edgefirst_ros.config import LiveSettings, ReplaySettings, Settings
from edgefirst_ros.errors import EdgeFirstError, escape_text, pluralize
from edgefirst_ros.nodes.parameters import Diagnostics, check, declare, read, run_node_of
from edgefirst_ros.nodes.service import catch_signals
from edgefirst_ros.pipeline.conversion import Outcome, convert
from edgefirst_ros.pipeline.health import HealthLevel, Status

MODELS = (ReplaySettings, Settings)
PERIOD = 1.0
"""s between two messages on /diagnostics."""
LOG_EVERY = 10.0
"""s between two lines about the same step."""
FAREWELL = 1.0
"""Longest time in s for the last message to be acknowledged, and for a subscriber to discover a new node."""
MOST_NOTES = 20


class _Stopped(Exception):  # noqa: N818  not an error: a request to end
    """Raised inside the conversion after a signal."""


class _Report:
    """Publishes the progress of the conversion on /diagnostics and logs it."""

    def __init__(self, node: Node, recordings: int) -> None:
        self._name = f"{node.get_fully_qualified_name()}: conversion"
        self._log = node.get_logger()
        self._recordings = recordings
        self._count = 0
        self._began = time.monotonic()
        self._what, self._done, self._of = "starting", 0, 0
        self._since = self._logged = self._began
        self._diagnostics = Diagnostics(node)
        node.create_timer(PERIOD, self.tick, clock=Clock(clock_type=ClockType.STEADY_TIME))  # ROS time may stop

    def progress(self, what: str, done: int, of: int) -> None:
        """Note the progress, as `progress.Progress`; from any thread."""
        if what != self._what:
            self._count += what.startswith("reading")
            self._since = time.monotonic()
            self._logged = 0.0
        self._what, self._done, self._of = what, done, of

    def tick(self) -> None:
        """Publish the progress of the step, and log it from time to time."""
        now = time.monotonic()
        share = self._done / max(self._of, 1)
        speed = share / max(now - self._since, 1e-3)
        left = f"{(1 - share) / speed:.0f}" if speed else ""
        text = f"{self._what}: {100 * share:.0f} %" + (f", {left} s left" if left else "")
        facts = {"step": self._what, "recording": f"{self._count} of {self._recordings}", "eta_s": left}
        facts |= {"percent": f"{100 * share:.1f}", "percent_per_s": f"{100 * speed:.2f}"}
        self._diagnostics.publish(Status(HealthLevel.OK, self._name, text, facts))
        if now - self._logged >= LOG_EVERY:
            self._logged = now
            self._log.info(escape_text(text))

    def finish(self, outcome: Outcome) -> None:
        """Publish and log the outcome."""
        log = self._log
        speed = outcome.duration / max(outcome.seconds, 1e-9)
        text = f"{pluralize(outcome.samples, 'sample')} in {outcome.paths.container}"
        log.info(escape_text(f"{text}; {outcome.seconds:.1f} s, {speed:.1f} times real time"))
        for topic, count in sorted(outcome.counts.topics.items()):
            reasons = "".join(f", {n} {reason}" for reason, n in sorted(count.dropped.items()))
            log.info(escape_text(f"{topic}: {count.seen} seen, {count.written} used{reasons}"))
        for note in outcome.notes:
            log.warning(escape_text(note))
        if outcome.loss:
            text = f"finished with loss: {text}"
            log.warning(escape_text(text))
        facts = {"step": "finished", "percent": "100.0", "samples": str(outcome.samples)}
        facts |= {"dataset": str(outcome.paths.container), "times_real_time": f"{speed:.2f}"}
        facts |= {f"note {n}": note for n, note in enumerate(outcome.notes[:MOST_NOTES], 1)}
        self.last(HealthLevel.WARN if outcome.loss or outcome.notes else HealthLevel.OK, text, facts)

    def last(self, level: HealthLevel, text: str, facts: dict[str, str]) -> None:
        """Publish a last status and wait until it is acknowledged."""
        publisher = self._diagnostics.publisher
        while not publisher.get_subscription_count() and time.monotonic() < self._began + FAREWELL:
            time.sleep(0.02)
        self._diagnostics.publish(Status(level, self._name, text, facts))
        publisher.wait_for_all_acked(Duration(seconds=FAREWELL))


def main(arguments: Sequence[str]) -> int:
    """Convert the recordings that the ROS arguments name; returns the exit code.

    0 complete, 3 finished with loss, 128 and the number of the signal when stopped: the files written so far then have
    names that end in .partial or .journal. Raises EdgeFirstError, of which `exit_code` is 1 or 2.
    """
    caught = catch_signals()
    with run_node_of(arguments, partial(rclpy.create_node, "replay")) as node:
        return _replay(node, caught)


def _replay(node: Node, caught: list[str]) -> int:
    ignored = declare(node, *MODELS, ignored=LiveSettings)
    if ignored:
        node.get_logger().info(escape_text(f"only for a capture, ignored here: {', '.join(ignored)}"))
    own, settings = read(node, ReplaySettings), read(node, Settings)
    node.add_on_set_parameters_callback(partial(check, node, models=MODELS, running=False))
    report = _Report(node, len(own.recordings))

    def progress(what: str, done: int, of: int) -> None:
        if caught:
            raise _Stopped
        report.progress(what, done, of)

    work = partial(convert, own.recordings, own.out, name=own.name, settings=settings, join=own.join)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    report.tick()
    with ThreadPoolExecutor(1, "convert") as pool:
        running = pool.submit(work, overwrite=own.overwrite, progress=progress)
        running.add_done_callback(lambda _: executor.wake())
        while not running.done():
            executor.spin_once(timeout_sec=0.2)
    executor.shutdown()
    try:
        outcome = running.result()
    except _Stopped:
        text = f"stopped; unfinished files in {own.out} have names ending in .partial or .journal"
        node.get_logger().warning(escape_text(text))
        report.last(HealthLevel.WARN, text, {"step": "stopped"})
        return 128 + signal.Signals[caught[0]]
    except EdgeFirstError as error:
        report.last(HealthLevel.ERROR, str(error), {"step": "failed"})
        raise
    report.finish(outcome)
    return outcome.exit_code
