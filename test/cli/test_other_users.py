# SPDX-License-Identifier: Apache-2.0
"""Files and folders of other users: one line that names what is refused, and everything stays as it was."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import handmade_dataset as made
import pytest
from unfinished_datasets import finish, leave, sample
from warm_command import USER, run_warm

from edgefirst_ros.synthetic import Recipe, write_recording

CLOSED = [str(path) for path in Path(sys.prefix).resolve().parents if not path.stat().st_mode & 0o001]
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the command as other users"),
    pytest.mark.skipif(
        bool(CLOSED), reason=f"other users cannot enter {', '.join(CLOSED)}, so they cannot run the command"
    ),
]

WE, OTHER = 65534, 65533
"""Numbers of two users without privileges: who calls, and whose files are met."""
SMALL = {"seconds": 0.5, "size": (160, 96), "codec": "jpeg", "fps": 10.0, "topics": {"camera", "gps"}}
READING = {
    "info of a dataset": ("info", "data.zip"),
    "merge": ("merge", "data.zip", "-o", "out/new"),
    "export": ("export", "data.zip", "--to", "coco", "-o", "out/new"),
    "report": ("report", "data.zip", "-o", "out/new.html"),
    "migrate": ("migrate", "data.arrow", "-o", "out/new.parquet"),
    "recover": ("recover", "data.zip"),
    "info of a recording": ("info", "r.mcap"),
    "convert": ("convert", "r.mcap", "-o", "out"),
}
WRITING = {
    "merge": ("merge", "data.zip", "-o", "closed"),
    "merge to a new folder": ("merge", "data.zip", "-o", "closed/new"),
    "export": ("export", "data.zip", "--to", "roverd", "-o", "closed/new"),
    "migrate": ("migrate", "data.arrow", "-o", "closed/new.parquet"),
    "convert": ("convert", "r.mcap", "-o", "closed"),
    "convert to folders": ("convert", "r.mcap", "-o", "closed", "--set", "layout=directory"),
    "demo": ("demo", "--seconds", "1", "-o", "closed"),
    "split": ("split", "closed/data.zip", "--split", "train=1"),
    "recover": ("recover", "closed/drive.zip"),
    "recover of a cut dataset": ("recover", "closed/cut.zip"),
    "report": ("report", "data.zip", "-o", "closed/new.html"),
    "validate --fix": ("validate", "closed/broken.zip", "--fix"),
}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A folder with a dataset, a recording, and both finished and unfinished ones in `closed`."""
    folder = tmp_path_factory.mktemp("given")
    made.write(folder, made.good())
    write_recording(folder / "r.mcap", Recipe(**SMALL))
    (folder / "settings.yaml").write_text("rate: 5\n")
    (folder / "out").mkdir()
    (folder / "closed").mkdir()
    for path in folder.glob("data.*"):
        shutil.copy(path, folder / "closed" / path.name)
        shutil.copy(path, folder / "closed" / path.name.replace("data", "cut"))
    os.truncate(folder / "closed" / "cut.zip", (folder / "data.zip").stat().st_size - 10)
    broken(folder / "closed")
    leave(folder / "closed", [sample(frame) for frame in range(3)], commits={1})
    return folder


def broken(folder):
    """Make a dataset whose table `validate --fix` would put right."""
    parts = made.good()
    parts.annotations[0]["box2d"] = (float("nan"),) * 4
    with tempfile.TemporaryDirectory() as there:
        made.write(Path(there), parts)
        for path in Path(there).glob("data.*"):
            shutil.copy(path, folder / path.name.replace("data", "broken"))


@pytest.fixture
def place():
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def here(given, place):
    """The same as `given`, readable for all; `out` is ours."""
    shutil.copytree(given, place, dirs_exist_ok=True)
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    os.chown(place / "out", WE, WE)
    return place


@pytest.fixture
def ours(warm):
    """Function that runs the command as a user without privileges; gives its exit code and what it said of errors."""

    def call(place, *arguments, user=WE):
        done = run_warm(warm, arguments, place, environment={**os.environ, USER: str(user)})
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stderr

    return call


def state(folder):
    """What is in a folder, with owners."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[path] = status.st_mode, status.st_uid, status.st_ino, data
    return found


def refused(answer, *said):
    code, text = answer
    assert code == 1, text
    assert len(text.splitlines()) == 1, text
    for what in said:
        assert what in text, text


# ---- what cannot be read or written --------------------------------------------------------------
@pytest.mark.parametrize("verb", READING)
def test_what_may_not_be_read(ours, here, verb):
    file = here / next(argument for argument in READING[verb] if argument.startswith(("data", "r.")))
    file.chmod(0o600)
    before = state(here)
    refused(ours(here, *READING[verb]), file.name, "Permission denied")
    assert state(here) == before


def test_what_may_not_be_read_is_an_error_of_validate(ours, here):
    (here / "data.zip").chmod(0o600)
    assert ours(here, "validate", "data.zip") == (1, "")


def test_a_capture_into_a_folder_that_may_not_be_written_ends_at_once(ours, here):
    pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")
    before = state(here)
    code, text = ours(here, "capture", "--zenoh", "tcp/127.0.0.1:9", "-o", "closed")
    assert (code, text) == (2, "edgefirst-ros: out: closed: its user or disk allows no writing; name another folder\n")
    assert state(here) == before


def test_settings_that_may_not_be_read(ours, here):
    (here / "settings.yaml").chmod(0o600)
    code, text = ours(here, "convert", "r.mcap", "-o", "out", "--config", "settings.yaml")
    assert (code, text.count("\n")) == (2, 1)
    assert "settings.yaml: cannot be read: Permission denied" in text
    assert not any((here / "out").iterdir())


@pytest.mark.parametrize("verb", ["info", "recover", "convert"])
def test_a_folder_that_may_not_be_searched(ours, here, verb):
    (here / "closed").chmod(0o700)
    before = state(here)
    given = ("closed/r.mcap", "-o", "out") if verb == "convert" else ("closed/data.zip",)
    refused(ours(here, verb, *given), "Permission denied")
    assert state(here) == before


@pytest.mark.parametrize("verb", WRITING)
def test_a_folder_that_may_not_be_written(ours, here, verb):
    before = state(here)
    refused(ours(here, *WRITING[verb]), "closed", "Permission denied")
    assert state(here) == before


# ---- a folder in which each may remove only what is his own ----------------------------------------
@pytest.fixture
def shared(here):
    """A folder as /tmp is."""
    folder = here / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def owned(folder, user, mode=0o666):
    """Make all that is in a folder another user's, open to all."""
    for path in folder.rglob("*"):
        os.chown(path, user, user, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(mode | 0o111 if path.is_dir() else mode)


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_dataset_of_another_user_is_not_replaced(ours, here, shared, layout):
    finish(shared, [sample(0)], layout=layout, name="d")
    owned(shared, OTHER)
    before = state(here)
    answer = ours(here, "convert", "r.mcap", "-o", shared, "--name", "d", "--set", f"layout={layout}", "--overwrite")
    refused(answer, f"shared/d{'.zip' if layout == 'zip' else ''}: belongs to another user (uid {OTHER})")
    assert state(here) == before


def test_folders_of_another_user_are_not_replaced_where_they_could_not_be_removed(ours, here):
    """To rename them needs no permission, which is found out only in the end."""
    finish(here / "out", [sample(0)], layout="directory", name="d")
    owned(here / "out", OTHER, 0o644)
    before = state(here)
    answer = ours(here, "convert", "r.mcap", "-o", "out", "--name", "d", "--set", "layout=directory", "--overwrite")
    refused(answer, "out/d: you may not remove its files")
    assert state(here) == before


def test_a_dataset_in_our_own_folder_is_replaced_whoever_made_it(ours, here):
    finish(here / "out", [sample(0)], name="d")
    owned(here / "out", OTHER, 0o644)
    code, text = ours(here, "convert", "r.mcap", "-o", "out", "--name", "d", "--overwrite")
    assert code == 0, text
    assert {path.lstat().st_uid for path in (here / "out").iterdir()} == {WE}


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_an_unfinished_dataset_of_another_user_is_not_continued(ours, here, shared, layout):
    """It may hold anything, and would stay his to change."""
    leave(shared, [sample(0)], commits={0}, layout=layout, name="d")
    owned(shared, OTHER)
    before = state(here)
    convert = "convert", "r.mcap", "-o", shared, "--name", "d", "--set", f"layout={layout}"
    for arguments in (convert, ("recover", shared / "d")):
        refused(ours(here, *arguments), "shared/d.", f"belongs to another user (uid {OTHER})")
        assert state(here) == before
    refused(ours(here, *convert, "--overwrite"), "shared/d.", "Operation not permitted")
    assert not [path for path in shared.rglob("*") if path.is_file() and ".partial" not in str(path.parent) + path.name
                and ".journal" not in path.name]  # fmt: skip


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "file"])
@pytest.mark.parametrize("name", ["d.arrow.journal", "d.rows.journal", "d.arrow.partial", "d.reserve.partial"])
def test_what_another_user_put_beside_a_dataset_of_ours(ours, here, shared, what, name):
    """Neither a new one nor one that was left writes to it, or waits for it."""
    precious = here / "out" / "precious"
    precious.write_text("precious")
    os.chown(precious, WE, WE)
    path = shared / name
    if what == "link":
        path.symlink_to(precious)
    elif what == "pipe":
        os.mkfifo(path, 0o666)
    elif what == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"")
    owned(shared, OTHER)
    code, text = ours(here, "convert", "r.mcap", "-o", shared, "--name", "d")
    assert (code, len(text.splitlines())) == (1, 1), text
    assert f"shared/{name}: cannot " in text
    assert precious.read_text() == "precious"
    assert not (shared / "d.zip").exists()


def test_a_second_name_of_a_file_of_ours_is_not_written_to(ours, here):
    """A link to a dataset of ours under the name of an unfinished one: it would be cut."""
    for path in sorted((here / "closed").glob("cut.*")):
        shutil.copy(path, here / "out" / path.name)
        os.chown(here / "out" / path.name, WE, WE)
    os.link(here / "out" / "cut.zip", here / "out" / "d.zip.partial")
    before = state(here)
    for arguments in (("convert", "r.mcap", "-o", "out", "--name", "d"), ("recover", "out/d"), ("recover", "out/cut")):
        refused(ours(here, *arguments), "has 2 names (hard links)")
        assert state(here) == before


def test_a_table_of_another_user_is_not_put_right_where_only_he_may_replace_it(ours, here, shared):
    broken(shared)
    owned(shared, OTHER)
    before = state(here)
    refused(ours(here, "validate", "shared/broken.zip", "--fix"), "broken.arrow", f"another user (uid {OTHER})")
    assert state(here) == before


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_page_that_another_user_put_in_place_is_not_written_to(ours, here, shared, what):
    page = shared / "page.html"
    if what == "link":
        page.symlink_to(here / "data.frames.arrow")
    else:
        page.write_text("his")
    owned(shared, OTHER)
    before = state(here)
    refused(ours(here, "report", "data.zip", "-o", page, "--overwrite"), "page.html")
    assert state(here) == before
