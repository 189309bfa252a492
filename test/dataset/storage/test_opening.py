# SPDX-License-Identifier: Apache-2.0
"""What stands where a file of a dataset should, and is none: links, pipes, sockets, devices, files that are cut."""

import itertools
import os
import socket

import handmade_dataset as made
import pytest

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.migrate import migrate
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.validate.fix import fix
from edgefirst_ros.errors import EdgeFirstError

MEMBER = made.name_of(3, "camera.jpeg")
TABLES = ("data.arrow", "data.frames.arrow")


def refusals(dataset, out):
    """What each way into a dataset says."""
    for use in (lambda: Dataset(dataset), lambda: merge([dataset], out)):
        try:
            use()
        except EdgeFirstError as error:
            yield str(error)
        else:
            yield "taken"
    yield validate(dataset).to_text()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_fix_leaves_alone_what_is_no_table(tmp_path, kind):
    dataset = made.write(tmp_path, made.good())
    replace(tmp_path / "data.arrow", kind, tmp_path / "outside")
    before = (tmp_path / "outside").read_bytes()
    assert fix(dataset).kept is None
    assert (tmp_path / "outside").read_bytes() == before


def replace(file, kind, outside):
    """Put something else in place of a file."""
    file.rename(outside)
    if kind == "link":
        file.symlink_to(outside)
    elif kind == "link to nothing":
        file.symlink_to(outside.parent / "nothing")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        here = os.getcwd()
        os.chdir(file.parent)  # the name of a socket must be short
        try:
            with socket.socket(socket.AF_UNIX) as held:
                held.bind(file.name)
        finally:
            os.chdir(here)


@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe", "socket"])
@pytest.mark.parametrize("place", [f"data/data/{MEMBER}", *(f"data/{name}" for name in TABLES)])
def test_what_is_no_file_is_refused_by_name(tmp_path, place, kind):
    dataset = made.write(tmp_path, made.good(), "directory")
    file = tmp_path / place
    replace(file, kind, tmp_path / "outside")
    for said in refusals(dataset, tmp_path / "out"):
        assert file.name in said
        assert ("is a link" if "link" in kind else "is not a regular file") in said
    assert not (tmp_path / "out/out.zip").exists()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_container_that_is_no_file_is_refused(tmp_path, kind):
    dataset = made.write(tmp_path, made.good())
    replace(dataset, kind, tmp_path / "outside")
    for said in refusals(dataset, tmp_path / "out"):
        assert "data.zip" in said
        assert ("is a link" if kind == "link" else "is not a regular file") in said


def test_a_folder_of_members_that_is_a_link_is_refused(tmp_path):
    dataset = made.write(tmp_path, made.good(), "directory")
    folder = dataset / "data" / made.SEQUENCE
    folder.rename(tmp_path / "outside")
    folder.symlink_to(tmp_path / "outside")
    for said in refusals(dataset, tmp_path / "out"):
        assert made.SEQUENCE in said
        assert "is a link" in said


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_folders_on_the_way_may_be_links(tmp_path, layout):
    (tmp_path / "disk").mkdir()
    dataset = made.write(tmp_path / "disk", made.good(), layout)
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    assert len(Dataset(tmp_path / "data" / dataset.name)) == len(made.FRAMES)


def test_a_member_that_becomes_a_link_is_not_followed(tmp_path):
    dataset = Dataset(made.write(tmp_path, made.good(), "directory"))
    file = tmp_path / "data/data" / MEMBER
    replace(file, "link", tmp_path / "outside")
    with pytest.raises(EdgeFirstError, match="is a link"):
        dataset.sample(made.SEQUENCE, 3).image()


@pytest.mark.parametrize(("table", "left"), [*itertools.product(TABLES, (0, 8, 0.5)), ("data.arrow", 0.99)])
def test_a_table_that_is_cut_while_it_is_open_is_an_error(tmp_path, table, left):
    """Without a map of the file: with one, the system kills the process."""
    parts = made.good()
    parts.annotations = [{**row, "object_id": f"{n:0200}"} for n, row in enumerate(parts.annotations * 100)]
    dataset = Dataset(made.write(tmp_path, parts))
    file = tmp_path / table
    os.truncate(file, left if left in (0, 8) else int(left * file.stat().st_size))
    with pytest.raises(EdgeFirstError, match=table.replace(".", r"\.")):
        len(dataset.annotations if table == "data.arrow" else dataset.frames)


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_members_that_are_cut_while_they_are_open_are_an_error(tmp_path, layout):
    dataset = Dataset(made.write(tmp_path, made.good(), layout))
    os.truncate(tmp_path / ("data.zip" if layout == "zip" else f"data/data/{MEMBER}"), 100)
    with pytest.raises(EdgeFirstError):
        dataset.sample(made.SEQUENCE, 3).image()


def test_migrate_does_not_wait_for_a_pipe(tmp_path):
    for name in ("pipe.arrow", "pipe.json"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(EdgeFirstError, match="is not a regular file"):
            migrate(tmp_path / name, tmp_path / "out.arrow")
