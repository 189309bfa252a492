# SPDX-License-Identifier: Apache-2.0
"""A slow sensor's message in several samples."""

import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.info import dataset_facts

RECIPE = {"seconds": 1.0, "fps": 10.0, "size": (128, 64), "codec": "jpeg", "lidar_points": 20}
RECIPE["topics"] = frozenset({"camera", "lidar/points", "radar/targets"})
RECIPE["rates"] = {"lidar/points": 5.0, "radar/targets": 10.0}


@pytest.fixture(scope="module")
def path(recording, tmp_path_factory):
    drives = [recording(**RECIPE), recording(**RECIPE, host="other")]
    return convert(drives, tmp_path_factory.mktemp("repeats"), name="two").paths.container


def test_a_sample_names_what_the_sample_before_has_too(path):
    dataset, before = Dataset(path), {}
    for sample in dataset.samples():
        own = {name: sample.read(name) for name in ("lidar.pcd",) if name in sample.inputs}
        last = before.get(sample.name, {})
        same = {name for name, data in own.items() if last.get(name) == data}
        assert sample.repeats == same
        before[sample.name] = own
    repeated = [sample for sample in dataset.samples() if sample.repeats]
    assert {sample.name.partition("_")[0] for sample in repeated} == {"maivin-demo", "other"}
    assert dataset_facts(path)["repeats"] == {
        "members": len(repeated),
        "bytes": sum(len(sample.read("lidar.pcd")) for sample in repeated),
    }


def test_samples_without_repeats(path):
    dataset = Dataset(path)
    found = list(dataset.samples({"lidar"}, repeats=False))
    stamps = [(sample.name, sample.row["lidar_points_timestamp"]) for sample in found]
    assert 0 < len(stamps) == len(set(stamps)) < len(dataset)
    assert len(list(dataset.samples({"radar"}, repeats=False))) == len(list(dataset.samples({"radar"})))
    assert len(list(dataset.samples(repeats=False))) == sum(not sample.repeats for sample in dataset.samples())
