# SPDX-License-Identifier: Apache-2.0
"""NCore: folders with sequences of several datasets, and the index that says which is whose."""

import os
import zipfile
import zlib

import pytest
from late import late
from test_ncore_odd_sequences import sequence

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import restore
from edgefirst_ros.export.ncore import library, opening

v4 = late("ncore.data.v4", reason="nvidia-ncore is not installed")

MEMBER = b"what a member holds"


def exported(folder, name, **index):
    """The sequence `name` as an export leaves it: one member, and what the index says of the dataset `name`."""
    lib = library.library()
    writer = v4.SequenceComponentGroupsWriter(
        lib.UPath(folder / name), name, name, lib.HalfClosedInterval(1, 2), {}, "itar"
    )
    origin = writer.register_component_writer(library.components()[2], "default", "edgefirst")
    origin.store_bytes("1", MEMBER)
    origin.store_bytes("2", b"table")
    members = [(0, f"{name}/{name}_000.camera.jpeg", zlib.crc32(MEMBER), 0, "blob", "1", 0)]
    whole = {"dataset": name, "layout": "zip", "tables": {f"{name}.arrow": "2"}, "members": members}
    origin.store_index(whole | index)
    writer.finalize()


def test_sequences_of_two_datasets_are_refused(tmp_path):
    for name in ("first", "second"):
        exported(tmp_path / "in", name)
    with pytest.raises(DatasetError, match="in: sequences of several datasets; restore each one for itself"):
        restore(tmp_path / "in", "ncore", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_few_of_many_sequences_are_open_at_a_time(tmp_path, monkeypatch):
    """Each takes a descriptor a store, of which a process has 1,024, and up to 1 MiB a store."""
    names = [f"s{number}" for number in range(9)]
    for number, name in enumerate(names):
        members = [(at, f"{name}/{name}_{at:03}.camera.jpeg", zlib.crc32(MEMBER), 0, "blob", "1", 0) for at in range(3)]
        index = {"tables": {"all.arrow": "2"}} if not number else {"tables": {}}
        exported(tmp_path / "in", name, dataset="all", members=members, **index)
    monkeypatch.setattr(opening, "OPEN", 2)
    before, most = len(os.listdir("/proc/self/fd")), 0

    def watch(*_):
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")) - before)

    restore(tmp_path / "in", "ncore", tmp_path / "out", progress=watch)
    assert most < len(names)
    with zipfile.ZipFile(tmp_path / "out" / "all.zip") as archive:
        assert archive.namelist() == [f"{name}/{name}_{at:03}.camera.jpeg" for at in range(3) for name in names]
        assert {archive.read(name) for name in archive.namelist()} == {MEMBER}
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_sequence_of_others_beside_a_dataset_is_told(tmp_path):
    exported(tmp_path / "in", "first")
    sequence(tmp_path / "in" / "other")
    done = restore(tmp_path / "in", "ncore", tmp_path / "out")
    lines = {line.what: line for line in done.report.lines}
    assert (lines["x"].number, lines["x"].lost) == (1, "not of this dataset: restore each one for itself")
    assert lines["members"].number == 1
    with zipfile.ZipFile(tmp_path / "out" / "first.zip") as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {"first/first_000.camera.jpeg": MEMBER}
    assert (tmp_path / "out" / "first.arrow").read_bytes() == b"table"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"first.zip", "first.arrow", "export-report.json"}


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ({"layout": "tape"}, "layout 'tape', tables"),
        ({"layout": None}, "layout None, tables"),
        ({"tables": {"deep/first.arrow": "2"}}, r"tables \['deep/first\.arrow'\]"),
        ({"dataset": "a/b"}, "'a/b' cannot name a dataset"),
    ],
)
def test_an_index_of_what_no_dataset_is_is_refused(tmp_path, index, why):
    exported(tmp_path / "in", "first", **index)
    with pytest.raises(DatasetError, match=f"in: the index of the dataset cannot be read: .*{why}"):
        restore(tmp_path / "in", "ncore", tmp_path / "out")
    assert not (tmp_path / "out").exists()
