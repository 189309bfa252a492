# SPDX-License-Identifier: Apache-2.0
"""What a user may well write by mistake is questioned, or refused with what is meant."""

import pytest

from edgefirst_ros import convert, migrate
from edgefirst_ros.config import Settings
from edgefirst_ros.config.load import load
from edgefirst_ros.errors import UsageError

SMALL = {"seconds": 1, "size": (128, 64), "fps": 10.0, "topics": {"camera", "model/output", "model/info"}}


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"require": ["model/output"]}, ("model",)),
        ({"require": ["/radar/cube", "radar_cube"]}, ("radar.cube",)),
        ({"require": ["lidar.pcd", "radar"]}, ("lidar.points", "radar.targets")),
        ({"require": ["lidar"]}, ("lidar.points",)),
        ({"sensors": ["/camera/h264", "camera.jpeg"]}, ("camera",)),
        ({"sensors": ["radar/targets"]}, ("radar.targets",)),
        ({"streams": {"radar/cube": {}}}, ("radar.cube",)),
    ],
)
def test_settings_accept_other_names_of_a_sensor(options, keys):
    (name,) = options
    assert tuple(getattr(load(None, **options), name)) == keys


def test_settings_list_the_nearest_keys_first_when_a_sensor_is_unknown():
    with pytest.raises(UsageError, match=r"unknown sensor 'camera'; known: model, radar\.clusters, radar\.cube, "):
        load(None, require=["camera"])


def test_a_tolerance_in_milliseconds_is_questioned(recording, tmp_path):
    outcome = convert(recording(**SMALL), tmp_path, tolerance=50, streams={"radar.cube": {"tolerance": 20}})
    assert "tolerance is 50 s: companions that far from a frame join it; 50 ms would be 0.05" in outcome.notes
    assert any(note.startswith("streams.radar.cube.tolerance is 20 s") for note in outcome.notes)
    assert Settings(tolerance=1.5).doubts == []


def test_a_label_that_the_model_does_not_know_is_refused(recording, tmp_path):
    path = recording(**SMALL)
    with pytest.raises(UsageError, match="label_map: the model has no label 'cra'; it has car, ") as caught:
        convert(path, tmp_path / "out", label_map={"cra": "vehicle"})
    assert path.name in str(caught.value)
    assert not (tmp_path / "out").exists()
    other = recording(host="other", **SMALL)
    outcome = convert([path, other], tmp_path / "out", label_map={"cra": "vehicle", "car": "vehicle"})
    assert sum("the model has no label 'cra'" in note for note in outcome.notes) == 2  # another drive's may have it


@pytest.mark.parametrize(
    ("function", "options", "says"),
    [
        (convert, {"name": "a/b"}, "--name: 'a/b' cannot name a dataset; 'a_b' could"),
        (convert, {"resume": True, "overwrite": True}, "--resume and --overwrite cannot be combined"),
        (convert, {"group": {"test": "night*"}}, r"--group test=night\* matches no sequence"),
        (migrate, {"to": "2027"}, "--to: unknown version '2027'; known: 2025.10, "),
        (migrate, {"box2d": "yxyx"}, "--box2d: unknown layout 'yxyx'; known: cxcywh, "),
        (migrate, {"location_order": "lon"}, "--location-order: expected one of lat-lon, lon-lat, got 'lon'"),
        (migrate, {"pose_order": "yaw"}, "--pose-order: expected one of .*, got 'yaw'"),
    ],
)
def test_a_message_about_an_option_names_it_as_typed(recording, tmp_path, function, options, says):
    path = recording(**SMALL)
    if function is migrate:
        path = convert(path, tmp_path / "given").paths.container.with_suffix(".arrow")
    with pytest.raises(UsageError, match=f"^{says}"):
        function(path, tmp_path / "out.json", **options)
