# SPDX-License-Identifier: Apache-2.0
"""The command in a temporary folder."""

import signal
import subprocess

import pytest
from typer.testing import CliRunner
from warm_command import run_warm


@pytest.fixture
def run(warm, cold_command, tmp_path):
    """Function that runs `edgefirst-ros` with arguments in a temporary folder; a traceback fails the test.

    With an environment of its own it is a fresh process.
    """

    def call(*arguments, env=None, stdout=None):
        if env is None:
            done = run_warm(warm, arguments, tmp_path, stdout)
        else:
            streams = {"stdout": stdout or subprocess.PIPE, "stderr": subprocess.PIPE}
            line = [*cold_command, *map(str, arguments)]
            done = subprocess.run(line, text=True, cwd=tmp_path, check=False, env=env, **streams)
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
