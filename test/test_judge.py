# SPDX-License-Identifier: Apache-2.0
"""The independent judge on real and synthetic recordings, whole and damaged; skipped where it is not at hand."""

import importlib.util
import json
import os
import sys

import pytest
from shared_data import REAL, SHARED, dataset

from edgefirst_ros import Dataset, convert
from edgefirst_ros.errors import EdgeFirstError

CHECKED = (
    "CAM",
    "EXIF01",
    "EXIF02",
    "EXIF03",
    "CUBE",
    "PCD",
    "ALIGN",
    "FRAMES",
    *(f"ARROW{n:02d}" for n in range(1, 16)),
)
"""All checks but those of the archive's form and the vendor's client, which no damage to a recording can touch."""
SMALL = {"seconds": 2, "fps": 10.0, "size": (128, 64), "lidar_points": 60, "cube_shape": (2, 32, 2, 32), "gop": 10}
SECONDS = "2"
"""Of a recording that variants are made of."""
VIDEO = ("b-frames-lost-reference", "chunk-bit-flip", "damaged-access-unit", "lost-messages", "truncated-mid-chunk")
"""Variants that change what is decoded."""


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_recordings(path, tmp_path, judge, capsys):
    """All samples of the one with every sensor, some of the others."""
    whole = path.stem.startswith("verdin")
    outcome = convert(path, tmp_path, rate=None if whole else 2.0)
    assert outcome.exit_code == 0
    assert not judge(path, dataset(outcome), *(() if whole else ("--rate", "2")), capsys=capsys)


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, ()),
        ({"rate": 5.0}, ("--rate", "5")),
        ({"keyframes": True}, ("--keyframes",)),
        ({"jpeg_quality": 95}, ("--quality", "95")),
        (
            {"tolerance": 0.02, "require": ("radar.cube", "lidar.points")},
            ("--tolerance", "0.02", "--require", "radar.cube", "lidar.points"),
        ),
        ({"layout": "directory"}, ()),
        ({"schema_version": "2025.10"}, ("--schema", "2025.10")),
        ({"schema_version": "2026.10"}, ("--schema", "2026.10")),
        ({"radar_fields": "documented"}, ("--radar-fields", "documented")),
        ({"pcd": "binary_compressed"}, ()),
        ({"pcd": "ascii"}, ()),
        ({"time_base": "log"}, ("--time-base", "log")),
        ({"time_base": "publish"}, ("--time-base", "publish")),
        ({"camera_format": "png"}, ()),
    ],
    ids=str,
)
def test_a_synthetic_recording_with_all_topics(recording, settings, options, tmp_path, judge, capsys):
    path = recording(**SMALL)
    outcome = convert(path, tmp_path, **settings)
    assert outcome.exit_code == 0
    assert not judge(path, dataset(outcome), *options, capsys=capsys)


@pytest.mark.parametrize(
    "faults",
    [
        {"codec": "h265", "b_frames": 3, "open_gop": True},
        {"topics": frozenset({"camera", "model/boxes2d", "model/info"})},
        {"clock_offset": {"radar/targets": -(10**18)}},
        {"matrix": "bt601", "full_range": True},
    ],
    ids=["open-gop", "boxes2d", "clock-offset", "full-range"],
)
def test_synthetic_recordings_of_other_kinds(recording, faults, tmp_path, judge, capsys):
    path = recording(**{**SMALL, **faults})
    outcome = convert(path, tmp_path)
    assert not judge(path, dataset(outcome), capsys=capsys)


@pytest.fixture(scope="module")
def variants(tmp_path_factory):
    """Function that gives a folder of damaged variants of a recording, and what must come of them."""
    script = SHARED / "judge" / "variants.py"
    if not script.is_file():
        pytest.skip("the judge is not at hand")
    spec = importlib.util.spec_from_file_location("variants", script)
    module = importlib.util.module_from_spec(spec)
    sys.modules["variants"] = module
    sys.path.insert(0, os.fspath(script.parent))
    spec.loader.exec_module(module)

    def make(source, names=()):
        folder = tmp_path_factory.mktemp("variants")
        arguments = sys.argv
        only = ["--only", *names] if names else []
        sys.argv = ["variants.py", os.fspath(source), os.fspath(folder), "--seconds", SECONDS, *only]
        try:
            module.main()
        finally:
            sys.argv = arguments
        return folder, json.loads((folder / "EXPECT.json").read_text())["variants"]

    return make


def pictures(outcome):
    """The decoded pictures of a conversion, by frame."""
    return {sample.frame: sample.image().tobytes() for sample in Dataset(outcome.paths.container).samples("camera")}


def assert_as_expected(folder, expected, tmp_path, judge, capsys, subtests):
    made = {}
    for file, wanted in expected.items():
        with subtests.test(wanted["variant"]):
            out = tmp_path / wanted["variant"]
            try:
                outcome = convert(folder / file, out)
                code, samples = outcome.exit_code, outcome.samples
            except EdgeFirstError as error:
                code, samples = error.exit_code, 0
                assert not out.exists() or not list(out.iterdir())
            if "warning" in wanted:  # ordered by log_time, its pictures are none: the judge doubts its own order there
                assert (wanted["variant"], code) == ("clock-set-back", 0)
                assert pictures(outcome) == made["unchanged"]
                continue
            if wanted["variant"] == "unchanged":
                made["unchanged"] = pictures(outcome)
            assert code in wanted["exit"]
            least, most = wanted["samples"]
            assert least <= samples <= most
            if samples:
                assert not judge(folder / file, dataset(outcome), "--only", *CHECKED, capsys=capsys)


def test_every_damaged_variant(recording, variants, tmp_path, judge, capsys, subtests):
    folder, expected = variants(recording(**SMALL))
    assert len(expected) > 55  # variants of chunks need more than one, of 256 KiB
    assert_as_expected(folder, expected, tmp_path, judge, capsys, subtests)


def test_real_video_with_damage(variants, tmp_path, judge, capsys, subtests):
    source = next((path for path in REAL if path.stem.startswith("highway")), None)
    if source is None:
        pytest.skip("no recording at hand")
    folder, expected = variants(source, VIDEO)
    assert len(expected) == len(VIDEO)
    assert_as_expected(folder, expected, tmp_path, judge, capsys, subtests)
