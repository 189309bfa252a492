# SPDX-License-Identifier: Apache-2.0
"""Waiting for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

LONG = 240.0
"""s that something may take on a machine that is very busy; nobody waits for as long where it happens."""


def spin_until(node: Any, happened: Callable[[], object], timeout: float = LONG) -> None:
    """Take messages until something has happened, and those that are still there then."""
    import rclpy  # this module is imported where there is none, too

    deadline = time.monotonic() + timeout
    while not happened():
        if time.monotonic() > deadline:
            pytest.fail(f"nothing happened within {timeout} s")
        rclpy.spin_once(node, timeout_sec=0.02)
    for _ in range(50):
        rclpy.spin_once(node, timeout_sec=0.0)


def wait_printed(process: Any, text: str, timeout: float = LONG) -> None:
    """Wait until a node has printed something."""
    deadline = time.monotonic() + timeout
    while text not in process.log:
        if time.monotonic() > deadline or process.process.poll() is not None:
            pytest.fail(f"{text!r} was not printed:\n{process.log}")
        time.sleep(0.01)
