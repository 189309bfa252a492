# SPDX-License-Identifier: Apache-2.0
"""NCore V4: many sequences in one folder, and several cameras, lidars and radars in one sequence."""

import numpy as np
from bags import REAR, write_two_of_each
from late import late
from open_files import list_open_files
from test_ncore_odd_sequences import sequence
from test_rigs import renamed

from edgefirst_ros import Dataset, convert
from edgefirst_ros.export import restore
from edgefirst_ros.export.ncore import library
from edgefirst_ros.export.ncore.write import export
from edgefirst_ros.export.output import LossReport
from edgefirst_ros.synthetic.scene import LIDAR

v4 = late("ncore.data.v4", reason="nvidia-ncore is not installed")


def test_one_of_many_sequences_is_open_at_a_time(tmp_path):
    """Each takes a descriptor a store, of which a process has 1,024, and up to 1 MiB a store."""
    for number in range(9):
        sequence(tmp_path / "in" / f"s{number}", name=f"s{number}")
    most = 0

    def watch(*_):
        nonlocal most
        most = max(most, len(list_open_files(tmp_path)))

    restore(tmp_path / "in", "ncore", tmp_path / "out", progress=watch)
    assert most < 12  # a writer has several files open
    assert sorted(path.stem for path in (tmp_path / "out").glob("*.zip")) == [f"s{number}" for number in range(9)]
    assert list_open_files(tmp_path) == []


def test_stores_belong_to_the_sequence_that_their_names_begin_with(tmp_path):
    """Of two sequences in one folder one has two stores; a summary, or a store, names its own."""
    own = [tmp_path / f"a.ncore4{group}.zarr.itar" for group in ("", "-radar")]
    other = [tmp_path / "b.ncore4.zarr"]
    for path in (*own, tmp_path / "a.json", tmp_path / "notes.txt"):
        path.touch()
    other[0].mkdir()
    expected = {tmp_path: [sorted(own), other], tmp_path / "a.json": [sorted(own)], own[1]: [sorted(own)]}
    report = LossReport("ncore")
    assert {path: [*map(sorted, library.find_sequences(path, report))] for path in expected} == expected


def test_each_sensor_of_a_rig_is_a_sensor_of_its_own(tmp_path):
    path, rig = write_two_of_each(tmp_path, seconds=1.0)
    dataset = Dataset(convert(path, tmp_path / "set", rig=rig).paths.container)
    (tmp_path / "out").mkdir()
    report = LossReport("ncore")
    export(dataset, tmp_path / "out", report, lambda *_: None)
    (summary,) = (tmp_path / "out" / "rigged").glob("*.json")
    loader = v4.SequenceLoaderV4(v4.SequenceComponentGroupsReader([summary]))
    interval = loader.sequence_timestamp_interval_us
    assert (sorted(loader.camera_ids), sorted(loader.lidar_ids)) == (["camera", "camera-left"], ["lidar", "lidar-rear"])
    infos = {"camera": dataset[0].calibration.camera_info, **dataset[0].calibration.camera_infos}
    for key, column in (("camera", "timestamp"), ("camera.left", "camera_left_timestamp")):
        camera, info = loader.get_camera_sensor(key.replace(".", "-")), infos[key]
        samples = {one.row[column] // 1000: one for one in dataset}
        samples = {stamp: one for stamp, one in samples.items() if interval.start <= stamp < interval.stop}
        found = camera.frames_timestamps_us[:, 1].tolist()
        assert found == sorted(samples)
        assert len(found) > 20
        for n, stamp in enumerate(found):
            data = camera.get_frame_handle(n).get_data()
            assert bytes(data.get_encoded_image_data()) == samples[stamp].read(key)
        model = camera.model_parameters
        assert (model.resolution.tolist(), model.focal_length[0]) == ([info["width"], info["height"]], info["k"][0])
    for key, place in (("lidar.points", LIDAR), ("lidar.points.rear", REAR)):
        name = key.replace(".points", "").replace(".", "-")
        sensor, column = loader.get_lidar_sensor(name), f"{key.replace('.', '_')}_timestamp"
        pose = loader.pose_graph.evaluate_poses(name, "rig", np.array([interval.start]))[0]
        np.testing.assert_allclose(pose[:3, 3], place, atol=1e-9)
        clouds = {one.row[column] // 1000: one.lidar(key) for one in dataset}
        assert sensor.frames_count > 5
        for n, stamp in enumerate(sensor.frames_timestamps_us[:, 1].tolist()):
            points = sensor.get_frame_point_cloud(n, motion_compensation=False, with_start_points=False).xyz_m_end
            np.testing.assert_allclose(points, np.stack([clouds[stamp][a] for a in "xyz"], -1), atol=1e-5, rtol=0)
    restore(tmp_path / "out", "ncore", tmp_path / "back")
    back = Dataset(tmp_path / "back" / "rigged-camera.zip")
    assert back.calibration("rigged-camera").sensor_frames == {"lidar.points.rear": "lidar-rear"}
    places = {one["child"]: one["translation"] for one in back.calibration("rigged-camera").static_transforms}
    np.testing.assert_allclose([places["lidar"], places["lidar-rear"]], [LIDAR, REAR], atol=1e-9)
    both = [one for one in back if one.inputs >= {"lidar.points", "lidar.points.rear"}]
    assert len(both) > 20
    for key in ("lidar.points", "lidar.points.rear"):
        column = f"{key.replace('.', '_')}_timestamp"
        clouds = {one.row[column]: one.lidar(key)["x"] for one in dataset}
        for one in both:
            np.testing.assert_allclose(one.lidar(key)["x"], clouds[one.row[column]], atol=1e-5, rtol=0)
    homes = {line.what: line.where for line in report.lines}
    assert homes["camera-left.jpeg"] == "cameras/camera-left"
    assert homes["lidar-rear.pcd"] == "lidars/lidar-rear"
    assert homes["frames: lidar_points_rear_timestamp"].startswith("lidars/lidar-rear")


def test_each_radar_of_a_rig_has_its_targets_and_cubes(recording, tmp_path):
    twice = [("radar/cube", "/rear/cube"), ("radar/targets", "/rear/targets")]
    drive = recording(seconds=1.0, size=(128, 64), codec="jpeg", cube_shape=(1, 16, 2, 16))
    source = renamed(drive, tmp_path / "in", {}, twice)
    rig = {f"radar.{name[6:]}": f"/{name}" for name, _ in twice} | {f"radar.{n[6:]}.rear": topic for n, topic in twice}
    dataset = Dataset(convert(source, tmp_path / "set", rig=rig).paths.container)
    (tmp_path / "out").mkdir()
    export(dataset, tmp_path / "out", LossReport("ncore"), lambda *_: None)
    (summary,) = (tmp_path / "out").glob("*/*.json")
    reader = v4.SequenceComponentGroupsReader([summary])
    cubes = reader.open_component_readers(library.load_components()[1])
    assert cubes.keys() == {"radar", "radar-rear"} == {*v4.SequenceLoaderV4(reader).radar_ids}
    assert cubes["radar"].timestamps_us.tolist() == cubes["radar-rear"].timestamps_us.tolist()
    for sample in dataset:
        if (stamp := sample.row["radar_cube_rear_timestamp"] // 1000) in cubes["radar-rear"].timestamps_us:
            assert cubes["radar-rear"].get_png(stamp) == sample.read("radar.cube.rear")
    restore(tmp_path / "out", "ncore", tmp_path / "back")
    (path,) = (tmp_path / "back").glob("*.zip")
    cubes = {sample.row["radar_cube_rear_timestamp"]: sample.read("radar.cube.rear") for sample in dataset}
    found = [sample for sample in Dataset(path) if "radar.cube.rear" in sample.inputs]
    assert len(found) > 5
    assert all(cubes[sample.row["radar_cube_rear_timestamp"]] == sample.read("radar.cube.rear") for sample in found)
    assert all("radar.targets.rear" in sample.inputs for sample in found)
