# SPDX-License-Identifier: Apache-2.0
"""The command in a temporary folder."""

import pytest
from warm_command import run_warm


@pytest.fixture
def run(warm, tmp_path):
    """Function that runs `edgefirst-ros` with arguments in a temporary folder; a traceback fails the test."""

    def call(*arguments):
        done = run_warm(warm, arguments, tmp_path)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return call
