# SPDX-License-Identifier: Apache-2.0
"""The command in a temporary folder, and one browser for a whole module."""

import os
import shutil

import pytest
from warm_command import run_warm

ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


@pytest.fixture
def run(warm, tmp_path):
    """Function that runs `edgefirst-ros` with arguments in a temporary folder; a traceback fails the test."""

    def call(*arguments):
        done = run_warm(warm, arguments, tmp_path)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return call


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium; where it or playwright is missing the test is skipped."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=os.fspath(program), args=ARGUMENTS.split())
        yield opened
        opened.close()
