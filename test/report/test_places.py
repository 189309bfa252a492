# SPDX-License-Identifier: Apache-2.0
"""Where pages are put: beside what they are of, with names that differ, and never where they would harm."""

import os
import re

import handmade_dataset as made
import pytest

from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.report.run import check_page, list_wanted, name_pages, refuse, report, write


@pytest.fixture
def another_user():
    """The rights of a user without privileges, where they are asked for."""
    if os.getuid() != 0:
        yield
        return
    os.setreuid(65534, -1)
    try:
        yield
    finally:
        os.setreuid(0, -1)


def refused(place, said, *, overwrite=True):
    with pytest.raises(DatasetError, match=f"^{re.escape(said)}") as raised:
        refuse(place, overwrite=overwrite)
    return str(raised.value)


def test_equal_names_are_told_apart_whatever_their_case(tmp_path):
    places = name_pages(tmp_path / "day.html", ["Day", "night", "NIGHT", "night-2"])
    assert [place.name for place in places] == ["Day-2.html", "night.html", "NIGHT-2.html", "night-2-2.html"]


def test_a_page_goes_over_a_regular_file_alone_and_only_when_told(tmp_path):
    (tmp_path / "page.html").write_text("old")
    (tmp_path / "link.html").symlink_to("page.html")
    (tmp_path / "folder.html").mkdir()
    assert "exists already; --overwrite" in refused(tmp_path / "page.html", f"{tmp_path}/page.html", overwrite=False)
    refuse(tmp_path / "page.html", overwrite=True)
    for name in ("link.html", "folder.html"):
        refused(tmp_path / name, f"{tmp_path}/{name}: is not a regular file; -o names another place")
    assert (tmp_path / "page.html").read_text() == "old"


@pytest.mark.parametrize("name", ["page.pdf", "page", "folder"])
def test_a_page_has_the_suffix_of_one(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=rf"^{tmp_path}/{name}: expected X\.html, the name of the page$"):
        check_page(tmp_path / name)
    with pytest.raises(UsageError, match=r": expected X\.html, the name of the page$"):
        report([tmp_path, tmp_path], tmp_path / name)


def test_a_file_in_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file" / "in" / "page.html", f"{tmp_path}/file: is not a folder; -o names another place")
    with pytest.raises(DatasetError, match=r"page\.html: cannot be written: File exists"):
        write(tmp_path / "file" / "page.html", b"new")
    assert (tmp_path / "file").read_text() == ""


def test_a_folder_that_is_not_ours_is_named(tmp_path, another_user):
    closed = tmp_path / "closed"
    os.mkdir(closed, 0o500)
    refused(closed / "new" / "page.html", f"{closed}: cannot be written to: Permission denied; -o names another place")


def test_a_page_is_written_whole_into_folders_that_are_made(tmp_path):
    write(tmp_path / "a" / "b" / "page.html", b"new")
    write(tmp_path / "a" / "b" / "page.html", b"newer")
    assert [path.read_bytes() for path in (tmp_path / "a" / "b").iterdir()] == [b"newer"]


# ---- what is reported --------------------------------------------------------------------------
@pytest.fixture
def drives(tmp_path):
    """A folder with a dataset in a ZIP and one in a folder, a link to it, two unfinished ones, and an empty folder."""
    made.write(tmp_path / "in", made.good(), "directory")
    (tmp_path / "in" / "deep").mkdir()
    made.write(tmp_path / "in" / "deep", made.good())
    (tmp_path / "in" / "link").symlink_to("data")
    (tmp_path / "in" / "new.zip.partial").write_bytes(b"PK")
    (tmp_path / "in" / "deep" / "old.partial").mkdir()
    (tmp_path / "in" / "notes.txt").write_text("none")
    (tmp_path / "in" / "empty").mkdir()
    return tmp_path / "in"


def test_datasets_below_a_folder_are_found_in_either_form_and_once(drives):
    wanted, several = list_wanted([drives])
    assert several
    assert [(one.path, one.name) for one in wanted] == [
        (drives / "data", "data"),
        (drives / "deep" / "data.zip", "data"),
        (drives / "new", str(drives / "new")),
        (drives / "deep" / "old", str(drives / "deep" / "old")),
    ]
    assert [one.page for one in wanted[:2]] == [drives / "data.html", drives / "deep" / "data.html"]  # beside it


def test_the_table_over_a_folder_lies_in_it_unless_said_otherwise(drives):
    done = report([drives], samples=0)
    assert done.table == drives / "report.html"
    assert [page.name for page in done.pages] == ["data.html", "data-2.html"]
    assert [one["samples"] for one in done.facts[:2]] == [3, 3]
    assert done.exit_code == 3  # of what is unfinished
    assert [one["error"] for one in done.facts[2:]] == [
        f"is unfinished: edgefirst-ros recover {drives}/{name} completes it" for name in ("new", "deep/old")
    ]
    assert f"edgefirst-ros recover {drives}/new completes it" in done.table.read_text()


def test_a_cause_that_begins_with_its_path_is_printed_with_one(tmp_path):
    made.write(tmp_path, made.good())
    (tmp_path / "bad.mcap").write_text("no recording")
    done = report([tmp_path], samples=0)
    assert [line for line in done.text() if "not an MCAP" in line] == [
        f"{tmp_path}/bad.mcap: {done.facts[0]['error'].removeprefix(f'{tmp_path}/bad.mcap: ')}"
    ]


def test_a_folder_that_cannot_be_listed_is_named(drives, monkeypatch):
    listed = os.listdir

    def refusing(path="."):
        if os.path.basename(path) == "empty":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(os, "listdir", refusing)
    with pytest.raises(DatasetError, match=re.escape(f"{drives}/empty: cannot be listed: Permission denied")):
        report([drives])
    assert not (drives / "report.html").exists()


def test_wrong_usage_is_refused_before_anything_is_written(drives):
    with pytest.raises(UsageError, match=r"--samples: expected a number from 0 on, got -1"):
        report([drives / "data"], samples=-1)
    with pytest.raises(UsageError, match=r"--samples: expected a number from 0 on, got -1"):
        report([drives], samples=-1)
    with pytest.raises(UsageError, match="--table-only: needs several PATHs, or a folder"):
        report([drives / "data"], table_only=True)
    assert list(drives.rglob("*.html")) == []
