# SPDX-License-Identifier: Apache-2.0
"""Recordings that a user gives, by files, folders and names of sequences; and guesses that are refused."""

import pytest

from edgefirst_ros.errors import RecordingError, UsageError
from edgefirst_ros.sources.inputs import list_recordings


@pytest.fixture
def folder(tmp_path):
    """drive_2, drive_10 and a folder with one more; what begins with a dot, and links to folders, are not looked at."""
    for name in ("drive_10.mcap", "drive_2.mcap", "notes.txt", ".hidden.mcap", "later/drive_11.mcap"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    (tmp_path / "again").symlink_to(tmp_path / "later")
    return tmp_path


def names(found):
    return [one.name for one in found]


def test_a_folder_holds_its_recordings_in_natural_order(folder):
    assert names(list_recordings([folder])) == ["drive_2", "drive_10", "drive_11"]


def test_a_folder_named_as_a_recording_is_a_folder(folder):
    (folder / "run.mcap").mkdir()
    (folder / "run.mcap" / "drive_12.mcap").write_bytes(b"")
    assert names(list_recordings([folder])) == ["drive_2", "drive_10", "drive_11", "drive_12"]


def test_joined_files_are_one_recording_named_after_the_first(folder):
    (one,) = list_recordings([folder], join=True)
    assert [path.name for path in one.files] == ["drive_2.mcap", "drive_10.mcap", "drive_11.mcap"]
    assert (one.name, one.label) == ("drive_2", "drive_2.mcap")


def test_nothing_to_join_is_said():
    with pytest.raises(UsageError, match="no recording is given that could be joined"):
        list_recordings([], join=True)


def test_a_name_is_given_to_a_recording_that_is_there_or_adds_one(folder):
    first, other = folder / "drive_2.mcap", folder / "later" / "drive_11.mcap"
    assert names(list_recordings([first], sequences={"morning": first})) == ["morning"]
    assert names(list_recordings([first], sequences={"noon": other})) == ["drive_2", "noon"]
    assert names(list_recordings([first], sequences={"noon": folder / "later"})) == ["drive_2", "noon"]


def test_a_name_that_fits_no_joined_file_or_several_recordings_is_refused(folder):
    first, other = folder / "drive_2.mcap", folder / "later" / "drive_11.mcap"
    with pytest.raises(UsageError, match=rf"--sequence noon={other}: is not one of the joined files"):
        list_recordings([first], join=True, sequences={"noon": other})
    with pytest.raises(UsageError, match=rf"--sequence noon={folder}: is a folder of 3 recordings; name one of them"):
        list_recordings([first], sequences={"noon": folder})
    with pytest.raises(UsageError, match=r"--sequence noon=.*: drive_2.mcap is morning already"):
        list_recordings([first], sequences={"morning": first, "noon": first})


@pytest.mark.parametrize("join", [False, True])
def test_a_recording_under_two_names_is_one(folder, join):
    """Else it would be in two groups."""
    first, linked = folder / "drive_2.mcap", folder / "latest.mcap"
    linked.symlink_to(first.name)
    with pytest.raises(UsageError, match=rf"^{first} and {linked} are the same file; name each recording once$"):
        list_recordings([first, linked], join=join)
    with pytest.raises(UsageError, match=rf"^{first} is given twice; name each recording once$"):
        list_recordings([folder, first], join=join, sequences={"noon": first})
    assert names(list_recordings([folder])) == ["drive_2", "drive_10", "drive_11"]  # `latest` is drive_2


def test_a_folder_that_goes_while_it_is_looked_at_is_named(folder, monkeypatch):
    kind, look = type(folder), type(folder).iterdir

    def gone(path):
        if path.name == "later":
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return look(path)

    monkeypatch.setattr(kind, "iterdir", gone)
    with pytest.raises(RecordingError, match=rf"{folder / 'later'}: cannot be read: No such file or directory"):
        list_recordings([folder])
