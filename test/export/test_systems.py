# SPDX-License-Identifier: Apache-2.0
"""The registry of systems: what is known, with which options, and what is said of the rest."""

import os
import re
import subprocess
import sys
import threading

import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.schema import WRITABLE
from edgefirst_ros.errors import UsageError
from edgefirst_ros.export import SYSTEMS, System, export, restore
from edgefirst_ros.synthetic import TOPICS

SMALL = {"seconds": 1, "fps": 5.0, "size": (128, 64), "codec": "jpeg"}


@pytest.fixture(scope="module")
def dataset(recording, tmp_path_factory):
    return convert(recording(**SMALL), tmp_path_factory.mktemp("systems"), name="drive").paths.container


@pytest.fixture
def listing(monkeypatch):
    """A system of one record: it writes the names of the sequences, and cannot be read back."""

    def write(dataset, folder, report, progress, *, sign="-"):
        names = sorted({sample.name for sample in dataset.samples()})
        (folder / "names.txt").write_text("".join(f"{sign} {name}\n" for name in names))
        report.add("sequences", "names.txt", number=len(names))

    monkeypatch.setitem(SYSTEMS, "listing", System("listing", write, None, {"sign": "what a line begins with"}))


def test_a_system_is_one_record(listing, dataset, tmp_path):
    done = export(dataset, "listing", tmp_path / "out", sign="*")
    (line,) = (done.out / "names.txt").read_text().splitlines()
    assert line.startswith("* maivin")
    assert (done.system, [line.what for line in done.report.lines]) == ("listing", ["sequences"])
    assert (done.out / "export-report.json").is_file()


@pytest.mark.parametrize("read", [False, True], ids=["from the file", "read already"])
@pytest.mark.parametrize("to", sorted(SYSTEMS))
def test_boxes_of_every_version_of_the_schema_are_exported_alike(recording, tmp_path, to, read):
    """Boxes without a score, as until 2025.10, beside those of later versions."""
    path, found = recording(**SMALL, topics=TOPICS), {}
    for version in WRITABLE:
        made = Dataset(convert(path, tmp_path / version, name="drive", schema_version=version).paths.container)
        assert not read or made.annotations["box3d"].drop_nulls().len() == 20
        options = {"single_group": True} if to == "yolo" else {}
        lines = export(made, to, tmp_path / f"{version}-out", **options).report.lines
        found[version] = [(one.what, one.number) for one in lines if "box3d" in one.what and "score" not in one.what]
    assert found["2025.10"] == found["2026.04"] == found["2026.10"] != []


@pytest.mark.parametrize("to", sorted(SYSTEMS))
def test_an_interrupted_export_leaves_neither_threads_nor_files(dataset, tmp_path, to):
    """Threads that still write would put files back while the folder is removed."""

    def interrupt(*_):
        raise KeyboardInterrupt

    before, options = set(threading.enumerate()), {"single_group": True} if to == "yolo" else {}
    with pytest.raises(KeyboardInterrupt) as held:  # with its traceback, which keeps what is not closed
        export(dataset, to, tmp_path / "out", progress=interrupt, **options)
    assert set(threading.enumerate()) <= before
    assert os.listdir(tmp_path) == []
    del held


def test_an_unknown_system_is_refused_with_the_known_ones(dataset, tmp_path):
    with pytest.raises(
        UsageError, match=r"^--to: expected one of coco, yolo, ncore, l5kit, roverd, nuscenes, got 'kitti'$"
    ):
        export(dataset, "kitti", tmp_path / "out")
    with pytest.raises(UsageError, match=r"^--from: expected one of ncore, l5kit, roverd, got 'kitti'$"):
        restore(tmp_path, "kitti", tmp_path / "out")
    with pytest.raises(UsageError, match=r"^yolo holds only labels: edgefirst-ros label"):
        restore(tmp_path, "yolo", tmp_path / "out")


def test_what_cannot_be_read_back_is_unknown_to_an_import(listing, tmp_path):
    with pytest.raises(UsageError, match=r"^--from: expected one of ncore, l5kit, roverd, got 'listing'$"):
        restore(tmp_path, "listing", tmp_path / "out")


@pytest.mark.parametrize(
    ("to", "options", "says"),
    [
        ("roverd", {"store": "itar"}, "unknown option 'store' (--store) for roverd; it is one of ncore"),
        ("ncore", {"labels": {}}, "unknown option 'labels' (--label-map) for ncore; it is one of l5kit, nuscenes"),
        ("l5kit", {"colour": 1}, "unknown option 'colour' (--colour) for l5kit; known: labels"),
        ("roverd", {"colour": 1}, "unknown option 'colour' (--colour) for roverd; known: none"),
    ],
)
def test_an_unknown_option_is_refused_with_the_known_ones(dataset, tmp_path, to, options, says):
    with pytest.raises(UsageError, match=f"^{re.escape(says)}$"):
        export(dataset, to, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("to", "name"), [("l5kit", "BUS"), ("nuscenes", "animal")])
def test_a_label_of_a_map_that_the_dataset_does_not_have_is_in_the_report(dataset, tmp_path, to, name):
    done = export(dataset, to, tmp_path / "out", labels={"perso": name, "Person": name})
    line = done.report.lines[0]
    assert (line.what, line.where) == ("label map: perso", "")
    assert line.lost.startswith("the dataset has no such label; known: person, ")


def test_the_registry_loads_no_library():
    program = (
        "import sys, edgefirst_ros.export; "
        "print({'numpy', 'polars', 'av', 'ncore', 'edgefirst_ros.export.roverd'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
