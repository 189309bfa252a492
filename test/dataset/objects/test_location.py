# SPDX-License-Identifier: Apache-2.0
"""What a user names: buckets, prefixes and paths."""

import os
from pathlib import Path

import pytest

from edgefirst_ros.dataset.objects.location import Location, is_remote
from edgefirst_ros.errors import UsageError


def test_a_prefix_and_what_is_below_it():
    place = Location.of("s3://drives/2026/may/")
    assert (place.root, place.key, place.name, str(place / "a.mcap")) == (
        "s3://drives",
        "2026/may",
        "may",
        "s3://drives/2026/may/a.mcap",
    )
    assert str((place / "a.mcap").parent) == str(place)
    assert not place.local


def test_a_path_is_the_same_written_either_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Location.of("drives/a.mcap") == Location.of(f"file://{tmp_path}/drives/a.mcap")
    assert Location.of("drives").path == tmp_path / "drives"
    assert str(Location.of(tmp_path / "x")) == os.fspath(tmp_path / "x")


def test_only_buckets_are_remote():
    assert is_remote("s3://b/x")
    assert is_remote("gs://b")
    assert not is_remote("file:///b")
    assert not is_remote("s3")
    assert not is_remote("./s3:/b")


def test_a_path_made_of_a_uri_is_still_that_uri():
    assert Location.of(Path("s3://b/x/y.zip")) == Location.of("s3://b/x/y.zip")
    assert is_remote(Path("s3://b"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s4://b/x", "s4://: a scheme that is not known"),
        ("ftp://b/x", "known: s3://, gs://, az://, file://"),
        ("s3://", "expected s3://BUCKET/PREFIX"),
        ("s3://b/a//b", "empty"),
        ("s3://b/../c", "'..'"),
        ("file://host/x", "expected file:///PATH"),
    ],
)
def test_what_is_no_place_is_said(text, said):
    with pytest.raises(UsageError, match=said):
        Location.of(text)


def test_credentials_in_a_uri_are_refused_and_not_repeated():
    for text in ("s3://key:hidden@b/x", "az://c/x?sig=hidden", "az://c/x?sv=1&sig=hidden", "az://c/x??sig=hidden"):
        with pytest.raises(UsageError, match="environment") as caught:
            Location.of(text)
        assert "hidden" not in str(caught.value)
