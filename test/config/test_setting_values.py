# SPDX-License-Identifier: Apache-2.0
"""Values of settings as Python and the command line give them."""

from datetime import datetime, timedelta, timezone

import pytest

from edgefirst_ros.config import Settings
from edgefirst_ros.config.values import parse_globs, parse_names, parse_shares, parse_utc


@pytest.mark.parametrize("zone", [timezone.utc, timezone(timedelta(hours=5, minutes=30))], ids=["UTC", "another"])
def test_a_time_of_python_is_that_time_in_utc(zone):
    """To the microsecond, which is all that it has."""
    moment = datetime(2026, 1, 15, 12, 0, 5, 250001, timezone.utc)
    settings = Settings(start=moment.astimezone(zone), end=60.0)
    assert settings.start == "2026-01-15T12:00:05.250001Z"
    assert parse_utc(settings.start) == int(moment.timestamp()) * 10**9 + 250_001_000


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="expected seconds, or a UTC time such as 2026-01-15T12:00:05Z"):
        Settings(start=datetime(2026, 1, 15, 12, 0, 5))


def test_shares_of_text_are_numbers():
    assert parse_shares("train=0.8, val = 0.2") == {"train": 0.8, "val": 0.2}
    with pytest.raises(ValueError, match=r"expected a share such as val=0\.8, got 'many'"):
        parse_shares("train=0.8,val=many")


@pytest.mark.parametrize("read", [parse_shares, parse_names, parse_globs])
def test_what_is_no_text_is_left_to_the_model(read):
    value = [("train", 0.8)]
    assert read(value) is value


def test_patterns_of_one_group_are_collected():
    assert parse_globs("test=night*,val=a*,test=rain*") == {"test": ["night*", "rain*"], "val": ["a*"]}
    assert parse_globs({"test": "night*", "val": ["a*"]}) == {"test": ["night*"], "val": ["a*"]}
