# SPDX-License-Identifier: Apache-2.0
"""Limits, made by a program or among the settings."""

import dataclasses

import pytest

from edgefirst_ros.config import Settings
from edgefirst_ros.limits import Limits


@pytest.mark.parametrize("value", [0, -1, 1 << 41, 1.5, "7", True, None])
def test_a_limit_that_is_none_is_refused_wherever_it_is_made(value):
    with pytest.raises(ValueError, match="table_rows: expected a whole number from 1 to 1099511627776, got"):
        Limits(table_rows=value)
    if value != "7":  # text is read in settings, as of a command line
        with pytest.raises(ValueError, match=r"limits\.table_rows"):
            Settings(limits={"table_rows": value})


def test_limits_at_both_ends():
    for field in dataclasses.fields(Limits):
        for value in (field.metadata["ge"], field.metadata["le"]):
            made = Limits(**{field.name: value})
            assert Settings(limits={field.name: str(value)}).limits == made == Settings(limits=made).limits
