# SPDX-License-Identifier: Apache-2.0
"""The command in a temporary folder."""

import subprocess

import pytest


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
