# SPDX-License-Identifier: Apache-2.0
"""What tests with ROS 2 share: a domain of their own, and nodes in other processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from domains import Domains, remove_leftovers
from waiting import LONG

OTHERS = {"start", "bench", "listener", "system", "refused"}
"""Fixtures of tests after which there may be somebody left in their domain."""


@pytest.fixture(scope="session")
def domains() -> Iterator[Domains]:
    ours = Domains()
    yield ours
    ours.leave()
    remove_leftovers()


@pytest.fixture(autouse=True)
def ros_domain(domains: Domains, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """ROS_DOMAIN_ID of this test, which no other run on this machine has; nodes see this machine only.

    Whoever was killed, or left unheard, is part of a domain for 20 s more. Messages would be sent to its subscriptions
    only, and its publishers be waited for: hence no two tests with other processes are in the same domain.
    """
    yield domains.enter(monkeypatch)
    if OTHERS & {*request.fixturenames}:
        domains.leave()


class NodeProcess:
    """A node in a process of its own, with what it printed."""

    def __init__(self, process: Any, log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait(self, timeout: float = LONG) -> int:
        """Exit code, of a node that ends by itself within `timeout` seconds."""
        try:
            return self.process.wait(timeout)
        except (subprocess.TimeoutExpired, TimeoutError):
            pytest.fail(f"it did not end within {timeout} s; it printed:\n{self.log}")

    def stop(self, how: signal.Signals = signal.SIGINT, timeout: float = LONG) -> int:
        """Exit code, after the signal."""
        self.process.send_signal(how)
        return self.wait(timeout)


@pytest.fixture
def start(tmp_path: Path, start_command: Callable[..., Any]) -> Iterator[Callable[..., NodeProcess]]:
    """Starts the command, `-c code` or a Python file as a node: `start("talker.py", "--rate", "20", NAME="value")`.

    Keyword arguments are environment variables. What still runs when the test is over is ended.
    """
    started: list[NodeProcess] = []

    def begin(first: str | Path, *arguments: str | Path, **variables: str) -> NodeProcess:
        log = tmp_path / f"node-{len(started)}.log"
        environment = clean_environment() | variables
        if first in ("-m", "-c"):
            code = str(arguments[0]) if first == "-c" else None
            process = start_command(arguments[1:], log, environment, code)
        else:
            with log.open("wb") as output:
                command = [sys.executable, first, *map(str, arguments)]
                process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        started.append(NodeProcess(process, log))
        return started[-1]

    yield begin
    for node in started:
        if node.process.poll() is None:
            node.process.kill()
            node.process.wait()
        print(f"it ended with {node.process.returncode}:\n{node.log}")  # seen where a test fails


def clean_environment() -> dict[str, str]:
    """This process's environment without what the start-up hook of the ROS 2 wheels put in.

    The hook runs Python a second time with its own LD_LIBRARY_PATH; a stock ROS 2 has its own, which stays.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None):
        environment.pop("LD_LIBRARY_PATH", None)
    return environment


@pytest.fixture
def newer_types() -> dict[str, str]:
    """Variables for `start` that give a node the edgefirst_msgs of test/interfaces/newer."""
    prefix = Path(sys.prefix) / "newer"
    if not prefix.is_dir():
        pytest.skip("no newer edgefirst_msgs beside ours: see test/ros_environment.py")
    packages = next(prefix.glob("lib/python3*/site-packages"))
    libraries = [str(prefix / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        "PYTHONPATH": str(packages),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "_ROS_WHEELS_BOOTSTRAP_COMPLETE": "1",  # the hook puts library paths in no particular order
    }


@pytest.fixture
def refused(ros_domain: int) -> Iterator[None]:
    """For a node that is refused in this process: it is part of its domain until it is collected, even if destroyed."""
    import rclpy

    yield
    rclpy.try_shutdown()


@pytest.fixture
def bench(ros_domain: int) -> Iterator[Any]:
    """This process's side of a ROS 2 system, see capturing.py."""
    import rclpy
    from capturing import Bench

    rclpy.init()
    it = Bench()
    yield it
    it.close()
    rclpy.shutdown()


@pytest.fixture
def capture(bench: Any, start: Callable[..., NodeProcess], tmp_path: Path) -> Callable[..., Any]:
    """Starts a capture node with parameters: `capture(rate=2.0, ros=("-r", "__ns:=/front"))`.

    It may hold more messages than usual: a process that does not run for seconds is to lose none.
    """
    from capturing import NODE, Capture

    def begin(
        *,
        name: str = "/capture",
        ros: tuple[str, ...] = (),
        out: Path = tmp_path / "live",
        program: tuple[str, ...] = NODE,
        **values: Any,
    ) -> Any:
        parameters = {"out": str(out), "fsync": False, "depth": 1000, **values}
        arguments = [part for key, value in parameters.items() for part in ("-p", f"{key}:={json.dumps(value)}")]
        return Capture(bench, start(*program, *ros, *arguments), out, name)

    return begin
