# SPDX-License-Identifier: Apache-2.0
"""The programs of benchmark/ as modules, and a ROS domain for those that need one."""

import sys
from pathlib import Path

import pytest
from domains import Domains

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmark"


@pytest.fixture(scope="session", autouse=True)
def _programs():
    """What lies in benchmark/ can be imported, as it is by the programs there."""
    sys.path.insert(0, str(BENCHMARK))
    yield
    sys.path.remove(str(BENCHMARK))


@pytest.fixture
def ros_domain(monkeypatch):
    """ROS_DOMAIN_ID that no other run on this machine has."""
    domains = Domains()
    yield domains.enter(monkeypatch)
    domains.leave()
