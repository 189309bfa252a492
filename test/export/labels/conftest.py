# SPDX-License-Identifier: Apache-2.0
"""Both layouts; and the dataset that is made by hand, which lies beside the tests of datasets."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "dataset"))


@pytest.fixture(params=["zip", "directory"])
def layout(request):
    return request.param
