# SPDX-License-Identifier: Apache-2.0
"""What the package of datasets shows to who looks into it."""

import pytest

from edgefirst_ros import dataset

NAMES = ["Dataset", "DatasetPaths", "DatasetWriter", "NewSample", "locate"]


def test_only_the_public_names_are_listed():
    assert dir(dataset) == NAMES


def test_each_of_them_can_be_had_and_no_other():
    assert [getattr(dataset, name).__name__ for name in NAMES] == NAMES
    with pytest.raises(AttributeError, match=r"module 'edgefirst_ros\.dataset' has no attribute 'Datasets'"):
        dataset.Datasets  # noqa: B018
