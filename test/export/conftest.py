# SPDX-License-Identifier: Apache-2.0
"""One dataset of two drives, and its export to L5Kit, for all tests of it."""

import pytest
from l5kit_truth import DRIVE, HOUR, tracked

from edgefirst_ros import Dataset, convert
from edgefirst_ros.export import export
from edgefirst_ros.synthetic import START


@pytest.fixture(scope="session")
def boxed_path(recording, tmp_path_factory):
    drives = [recording(**DRIVE)]
    drives.append(recording(**DRIVE, seed=1, host="second", start=START + HOUR, heading=-2.5))
    return convert(drives, tmp_path_factory.mktemp("dataset"), name="both").paths.container


@pytest.fixture
def boxed(boxed_path):
    return tracked(Dataset(boxed_path))


@pytest.fixture(scope="session")
def exported(boxed_path, tmp_path_factory):
    """The folder of the export."""
    return export(tracked(Dataset(boxed_path)), "l5kit", tmp_path_factory.mktemp("l5kit") / "out").out
