# SPDX-License-Identifier: Apache-2.0
"""The command in a temporary folder."""

import signal
import subprocess

import pytest
from typer.testing import CliRunner


@pytest.fixture
def run(command, cold_command, tmp_path):
    """Function that runs `edgefirst-ros` with arguments in a temporary folder; a traceback fails the test."""

    def call(*arguments, **options):
        line = [*(cold_command if "env" in options else command), *map(str, arguments)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        done = subprocess.run(line, text=True, cwd=tmp_path, check=False, **options)
        assert "Traceback" not in (done.stderr or ""), done.stderr
        return done

    return call


@pytest.fixture
def call(monkeypatch, tmp_path):
    """Function that runs `edgefirst-ros` with arguments in this process, in a temporary folder.

    What a verb sets for its whole process is put back, or not done. Returns exit code, output, and what was raised.
    """
    from edgefirst_ros.cli.app import app

    monkeypatch.setattr("edgefirst_ros.limits.keep_buffers", lambda: None)
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)))
    signal.signal(signal.SIGTERM, before)
