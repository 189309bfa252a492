# SPDX-License-Identifier: Apache-2.0
"""Imports of sources that hold links to other places, or what is not a file."""

import os
import shutil

import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export, restore
from edgefirst_ros.synthetic import TOPICS

RECIPE = {"seconds": 1.5, "fps": 10.0, "size": (128, 64), "codec": "jpeg", "lidar_points": 20}
RECIPE |= {"cube_shape": (1, 8, 2, 8), "topics": frozenset(TOPICS - {"radar/clusters"})}
NAME = "maivin-demo_2026_01_15_12_00_00"


@pytest.fixture(scope="module")
def exports(recording, tmp_path_factory):
    """Function that gives the export to a system."""
    path = convert(recording(**RECIPE), tmp_path_factory.mktemp("drive"), name="drive").paths.container
    made = {}

    def get(system):
        if system == "ncore":
            pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
        if system not in made:
            store = {"store": "directory"} if system == "ncore" else {}
            made[system] = export(Dataset(path), system, tmp_path_factory.mktemp(system) / "out", **store).out
        return made[system]

    return get


def linked(path):
    """What is at a path moved elsewhere, with a link in its place."""
    elsewhere = path.parents[3] / "elsewhere"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


PLACES = [
    ("ncore", None, f"{NAME}/{NAME}.ncore4.zarr/cameras"),
    ("ncore", None, f"{NAME}/{NAME}.ncore4.zarr"),
    ("ncore", None, f"{NAME}/{NAME}.ncore4.zarr/.zmetadata.cbor.xz"),
    ("roverd", None, f"{NAME}/lidar_points"),
    ("roverd", None, f"{NAME}/camera/ts"),
    ("roverd", None, f"{NAME}/config.yaml"),
    ("l5kit", None, "scenes.zarr"),
    ("l5kit", None, "scenes.zarr/agents"),
    ("l5kit", None, "scenes.zarr/frames/0"),
]


@pytest.mark.parametrize(("system", "change", "place"), PLACES)
def test_links_are_refused_by_name(exports, tmp_path, system, change, place):
    source = tmp_path / "a" / "b" / "c"
    shutil.copytree(exports(system), source)
    if change:
        change(source)
    linked(source / place)
    with pytest.raises(DatasetError, match=r"is a symbolic link") as failed:
        restore(source, system, tmp_path / "back")
    assert str(source / place) in str(failed.value)
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    ("system", "place"),
    [
        ("ncore", f"{NAME}/{NAME}.ncore4.zarr/.zmetadata.cbor.xz"),
        ("ncore", f"{NAME}/{NAME}.ncore4-more.zarr.itar"),
        ("roverd", f"{NAME}/camera/ts"),
        ("l5kit", "scenes.zarr/frames/0"),
    ],
)
def test_pipes_are_refused_by_name(exports, tmp_path, system, place):
    source = tmp_path / "a"
    shutil.copytree(exports(system), source)
    (source / place).unlink(missing_ok=True)
    os.mkfifo(source / place)
    with pytest.raises(DatasetError, match="is neither a file nor a folder") as failed:
        restore(source, system, tmp_path / "back")
    assert str(source / place) in str(failed.value)


@pytest.mark.parametrize(
    ("system", "place"), [("ncore", ""), ("ncore", f"{NAME}/{NAME}.ncore4.zarr"), ("roverd", ""), ("l5kit", "")]
)
def test_what_is_named_may_be_a_link(exports, tmp_path, system, place):
    source = exports(system) / place
    named = tmp_path / source.name
    named.symlink_to(source)
    assert restore(named, system, tmp_path / "back").exit_code == 0


@pytest.mark.parametrize(("system", "change"), [("ncore", None), ("roverd", None)])
def test_links_on_the_way_are_not_followed_and_said(exports, tmp_path, system, change):
    source = tmp_path / "all"
    shutil.copytree(exports(system), source)
    if change:
        change(source)
    (source / "more").symlink_to(exports(system))
    report = restore(source, system, tmp_path / "back").report
    assert [line.lost for line in report.lines if line.what == "more"] == [
        "a symbolic link, which an import does not follow"
    ]
