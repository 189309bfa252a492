# SPDX-License-Identifier: Apache-2.0
"""The command in a temporary folder."""

import subprocess

import pytest


@pytest.fixture
def run(command, tmp_path):
    """Function that runs `edgefirst-ros` with arguments in a temporary folder; a traceback fails the test."""

    def call(*arguments, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        done = subprocess.run(
            [*command, *map(str, arguments)], text=True, cwd=tmp_path, timeout=120, check=False, **options
        )
        assert "Traceback" not in (done.stderr or ""), done.stderr
        return done

    return call
