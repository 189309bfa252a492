# SPDX-License-Identifier: Apache-2.0
"""`validate --fix` where it cannot do all of it: types that hold no such value, names that are taken, odd disks."""

import errno
import os

import handmade_dataset as made
import pyarrow as pa
import pytest

from edgefirst_ros.dataset.validate.fix import fix
from edgefirst_ros.errors import DatasetError, StorageError


def write(folder, *, scored=2.0, **types):
    """A dataset with one score that has to go, and columns of other types."""
    parts = made.good()
    parts.annotations[1]["box2d_score"] = scored
    for name, kind in types.items():
        index = parts.annotation_schema.get_field_index(name)
        parts.annotation_schema = parts.annotation_schema.set(index, pa.field(name, kind))
    return parts, lambda: made.write(folder, parts)


def rows(folder):
    return pa.ipc.open_file(folder / "data.arrow").read_all()


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_column_that_holds_nothing_at_all_is_left_out_as_one_that_nobody_filled(tmp_path):
    parts, written = write(tmp_path, box2d=pa.null(), scored=0.75)
    for row in parts.annotations:
        row["box2d"] = None
    done = fix(written())
    assert done.changed == {("TAB006", "empty columns removed"): 1}
    assert "box2d" not in rows(tmp_path).column_names


def test_a_table_that_arrow_cannot_write_without_some_rows_stays_as_it_is(tmp_path):
    """It takes no rows out of lists of views, as polars writes them for its own kind."""
    parts, written = write(tmp_path)
    parts.annotation_schema = parts.annotation_schema.append(pa.field("tags", pa.list_(pa.string_view())))
    parts.annotations[0]["tags"] = ["night"]
    parts.annotations.append({"name": made.SEQUENCE, "frame": 9})
    path = written()
    before = files(tmp_path)
    with pytest.raises(DatasetError, match=r"data\.arrow: cannot be rewritten: "):
        fix(path)
    assert files(tmp_path) == before


# ---- the name of the old table -------------------------------------------------------------------
def test_a_name_that_is_taken_at_the_last_moment_is_not_overwritten(tmp_path, monkeypatch):
    path, plain = write(tmp_path)[1](), os.link
    before = files(tmp_path)

    def link(source, target):
        target.write_bytes(b"of another")
        plain(source, target)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(DatasetError, match=r"data\.arrow\.before-fix exists.*move it away"):
        fix(path)
    assert files(tmp_path) == before | {"data.arrow.before-fix": b"of another"}


def refuse(monkeypatch, name, number):
    def call(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, call)


def test_on_a_disk_without_second_names_the_old_table_is_copied(tmp_path, monkeypatch):
    path = write(tmp_path)[1]()
    before = (tmp_path / "data.arrow").read_bytes()
    refuse(monkeypatch, "link", errno.EPERM)
    done = fix(path)
    assert done.kept == tmp_path / "data.arrow.before-fix"
    assert done.kept.read_bytes() == before
    assert done.kept.stat().st_ino != (tmp_path / "data.arrow").stat().st_ino
    assert rows(tmp_path)["box2d_score"].to_pylist() == [0.75, None, 0.75, None, None]


def test_a_disk_that_does_not_take_the_new_table_keeps_the_old_one(tmp_path, monkeypatch):
    path = write(tmp_path)[1]()
    before = files(tmp_path)
    refuse(monkeypatch, "fsync", errno.ENOSPC)
    with pytest.raises(StorageError, match=r"data\.arrow: cannot rewrite it: No space left"):
        fix(path)
    assert files(tmp_path) == before
