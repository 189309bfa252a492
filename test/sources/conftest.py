# SPDX-License-Identifier: Apache-2.0
"""What the tests of sources share."""

import pytest

from edgefirst_ros.config import Settings


@pytest.fixture
def settings():
    return Settings()
