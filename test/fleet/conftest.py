# SPDX-License-Identifier: Apache-2.0
"""Tiny drives, and a bucket to put them in."""

import pytest
from object_server import S3, line

from edgefirst_ros.synthetic import Recipe, write_recording

__all__ = ["line"]

TINY = {"seconds": 1, "size": (160, 96), "cube_shape": (1, 8, 2, 16), "lidar_points": 10}


@pytest.fixture(scope="package")
def s3():
    """An S3 server with a bucket `drives`, one for all of these tests: each has a prefix of its own."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("obstore")
    with pytest.MonkeyPatch.context() as patch, S3(patch) as server:
        yield server


@pytest.fixture(scope="session")
def drives(tmp_path_factory):
    """A folder with three recordings of one second."""
    folder = tmp_path_factory.mktemp("drives")
    for seed, name in enumerate(("day1", "day2", "night1")):
        write_recording(folder / f"{name}.mcap", Recipe(seed=seed, **TINY))
    return folder
