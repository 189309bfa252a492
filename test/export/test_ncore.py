"""NCore V4: exports opened by the official library, judged against the scene that was recorded; and the way back."""

import io
import json
import sys

import numpy as np
import pytest
from late import late
from PIL import Image, PngImagePlugin
from shared_data import REAL

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError, EdgeFirstError, UsageError
from edgefirst_ros.export.drive import Drive, list_drives
from edgefirst_ros.export.ncore import components, library, read_foreign, write
from edgefirst_ros.export.ncore.read_foreign import restore
from edgefirst_ros.export.ncore.write import export
from edgefirst_ros.export.output import LossReport
from edgefirst_ros.limits import DEFAULT_LIMITS
from edgefirst_ros.synthetic import TOPICS, Recipe
from edgefirst_ros.synthetic.ranging import Lidar, Radar
from edgefirst_ros.synthetic.scene import CAMERA, LIDAR, RADAR, Scene

v4 = late("ncore.data.v4", reason="nvidia-ncore is not installed")

OLDER = {"model/boxes2d", "model/mask", "model/mask_compressed"}
OPTIONS = {
    "seconds": 1,
    "size": (320, 180),
    "cube_shape": (2, 16, 4, 32),
    "lidar_points": 200,
    "topics": frozenset(TOPICS - OLDER - {"radar/clusters"}),
}
RECIPE = Recipe(**OPTIONS)
SCENE = Scene(RECIPE)
NAME = "maivin-demo_2026_01_15_12_00_00"
"""The sequence: host and start of the recipe."""


def nothing(*_):
    pass


def exported(path, out, **options):
    """The report of an export into a new folder."""
    out.mkdir(parents=True)
    report = LossReport("ncore")
    export(Dataset(path), out, report, nothing, **options)
    return report


def opened(folder):
    """The official loader of a sequence, by its summary, and the reader it is made of."""
    (summary,) = folder.glob("*.json")
    reader = v4.SequenceComponentGroupsReader([summary])
    return v4.SequenceLoaderV4(reader), reader


@pytest.fixture(scope="module")
def source(recording, tmp_path_factory):
    out = tmp_path_factory.mktemp("ncore")
    convert(recording(**OPTIONS), out, name="drive")
    return out / "drive"


@pytest.fixture(scope="module", params=["itar", "directory"])
def made(request, source, tmp_path_factory):
    """(report, folder) of an export."""
    out = tmp_path_factory.mktemp("made") / request.param
    return exported(source, out, store=request.param), out


@pytest.fixture(scope="module")
def sequence(made):
    return opened(next(made[1].iterdir()))


# ---- what the scene says -------------------------------------------------------------------------
def earth(latitude, longitude, altitude):
    """(place, axes east north up) in ECEF, from the definition of the ellipsoid WGS-84."""
    a, b = 6378137.0, 6356752.314245179
    phi, lam = np.radians(latitude), np.radians(longitude)
    n = a * a / np.hypot(a * np.cos(phi), b * np.sin(phi))
    place = (
        (n + altitude) * np.cos(phi) * np.cos(lam),
        (n + altitude) * np.cos(phi) * np.sin(lam),
        (b * b / a / a * n + altitude) * np.sin(phi),
    )
    up = np.array([np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)])
    east = np.array([-np.sin(lam), np.cos(lam), 0])
    return np.array(place), np.stack([east, np.cross(up, east), up], -1)


def turned(quaternion):
    """Columns of a rotation: where it takes the axes."""
    v, w = np.array(quaternion[:3]), quaternion[3]
    return np.stack([e + 2 * w * np.cross(v, e) + 2 * np.cross(v, np.cross(v, e)) for e in np.eye(3)], -1)


def stamps(sensor):
    return sensor.frames_timestamps_us[:, 1].astype(np.int64)


def nearest_frame(dataset, stamp_us):
    found = [s for s in dataset.samples() if s.timestamp // 1000 == stamp_us]
    assert len(found) == 1, f"no sample was taken at {stamp_us} µs"
    return found[0]


def check_poses(loader, *_):
    start, stop = loader.sequence_timestamp_interval_us.start, loader.sequence_timestamp_interval_us.stop
    times = np.linspace(start, stop - 1, 25).astype(np.uint64)
    poses = loader.pose_graph.evaluate_poses("rig", "world_global", times)
    for time, pose in zip(map(int, times), poses, strict=True):
        place, axes = earth(*SCENE.position(time * 1000))
        assert np.linalg.norm(pose[:3, 3] - place) < 0.01
        there = axes @ turned(SCENE.orientation(time * 1000))
        assert np.degrees(np.linalg.norm(pose[:3, :3] - there)) < 0.1
    world = loader.pose_graph.evaluate_poses("rig", "world", times)
    assert np.linalg.norm(world[0, :3, 3]) < 1e-6
    driven = np.linalg.norm(np.diff(world[:, :3, 3], axis=0), axis=1).sum()
    assert driven == pytest.approx(10.0 * (stop - 1 - start) / 1e6, rel=0.01)


def check_fixes(loader, reader, dataset):
    poses = reader.open_component_readers(v4.PosesComponent.Reader)["default"]
    rows = dataset.frames.drop_nulls("latitude").sort("timestamp")
    np.testing.assert_array_equal(poses.get_generic_data("timestamp_ns"), rows["timestamp"])
    for name in ("latitude", "longitude", "altitude"):
        given = poses.get_generic_data(f"{name}_{'m' if name == 'altitude' else 'deg'}")
        np.testing.assert_allclose(given, rows[name], rtol=1e-12)


def check_places(loader, *_):
    for sensor, place in (("camera", CAMERA), ("radar", RADAR), ("lidar", LIDAR)):
        pose = loader.pose_graph.evaluate_poses(sensor, "rig", np.array([loader.sequence_timestamp_interval_us.start]))[
            0
        ]
        np.testing.assert_allclose(pose[:3, 3], place, atol=1e-9)
        forward = pose[:3, :3] @ ([0, 0, 1] if sensor == "camera" else [1, 0, 0])
        down = pose[:3, :3] @ ([0, 1, 0] if sensor == "camera" else [0, 0, -1])
        np.testing.assert_allclose((forward, down), ([1, 0, 0], [0, 0, -1]), atol=1e-9)


def check_images(loader, reader, dataset):
    camera = loader.get_camera_sensor("camera")
    assert camera.frames_count > 25
    for n, stamp in enumerate(stamps(camera)):
        sample = nearest_frame(dataset, stamp)
        assert bytes(camera.get_frame_handle(n).get_data().get_encoded_image_data()) == sample.read("camera")
    assert camera.get_frame_handle(0).get_data().get_decoded_image().size == RECIPE.size
    first = camera.get_frame_generic_meta_data(0)
    assert first["timestamp_ns"] // 1000 == stamps(camera)[0]


def check_points(loader, *_):
    truth = Lidar(RECIPE, SCENE)
    for sensor, measured in (
        (loader.get_lidar_sensor("lidar"), truth.points),
        (loader.get_radar_sensor("radar"), Radar(RECIPE, SCENE).targets),
    ):
        assert sensor.frames_count > 7
        for n in range(sensor.frames_count):
            exact = sensor.get_frame_generic_meta_data(n)["timestamp_ns"]
            assert exact // 1000 == stamps(sensor)[n]
            said = measured(exact)
            found = sensor.get_frame_point_cloud(n, motion_compensation=False, with_start_points=False).xyz_m_end
            np.testing.assert_allclose(found, np.stack([said[a] for a in "xyz"], -1), atol=1e-5, rtol=0)
    radar, lidar = loader.get_radar_sensor("radar"), loader.get_lidar_sensor("lidar")
    said = Radar(RECIPE, SCENE).targets(radar.get_frame_generic_meta_data(3)["timestamp_ns"])
    for name, field in (("radial_velocity_m_s", "speed"), ("rcs_dBsm", "rcs"), ("power", "power")):
        np.testing.assert_array_equal(radar.get_frame_generic_data(3, name), said[field])
    said = truth.points(lidar.get_frame_generic_meta_data(3)["timestamp_ns"])
    np.testing.assert_array_equal(lidar.get_frame_generic_data(3, "reflect"), said["reflect"])
    np.testing.assert_allclose(lidar.get_frame_ray_bundle_return_intensity(3), said["reflect"] / 255, atol=1e-6)
    moved = lidar.get_frame_point_cloud(3, motion_compensation=True, with_start_points=True)
    assert moved.xyz_m_end.shape == (len(said), 3)


def check_cubes(loader, reader, dataset):
    cubes = reader.open_component_readers(library.load_components()[1])["radar"]
    assert len(cubes.timestamps_us) > 12
    truth = Radar(RECIPE, SCENE)
    for stamp in map(int, cubes.timestamps_us):
        found = cubes.get_cube(stamp)
        assert found.timestamp // 1000 == stamp
        np.testing.assert_array_equal(found.raw(), truth.cube(found.timestamp))


def check_cuboids(loader, reader, dataset):
    seen = list(loader.get_cuboid_track_observations())
    assert len(seen) > 40
    interval = loader.sequence_timestamp_interval_us
    scans = dict(dataset.frames.select("timestamp", "lidar_points_timestamp").iter_rows())
    scans = {stamp // 1000: scan for stamp, scan in scans.items()}
    for one in seen:
        assert one.reference_frame_id == "rig"
        now, scan = one.timestamp_us, scans[one.timestamp_us]
        if not interval.start <= scan // 1000 < interval.stop:
            continue  # the pose of the vehicle at the scan is not known
        away = []  # the things stood still while the vehicle went on from the scan to the picture
        for thing in SCENE.things(scan):
            times = np.array([scan // 1000, now])
            then, later = loader.pose_graph.evaluate_poses("rig", "world", times)
            centre = np.linalg.solve(later, then @ [*thing.centre, 1])[:3]
            away.append((np.abs(centre - one.bbox3.centroid).max(), thing))
        far, thing = min(away, key=lambda pair: pair[0])
        assert far < 5e-3
        assert one.class_id == thing.label
        _, width, height = thing.size
        assert one.bbox3.dim == pytest.approx((width, width, height), abs=1e-6)  # the message has no length
        assert one.bbox3.rot == (0, 0, 0)
    assert len({(one.timestamp_us, one.track_id) for one in seen}) == len(seen)


def check_projection(loader, reader, dataset):
    """Centres of boxes in the picture, seen through the camera's own model, lie where the objects are painted."""
    camera = loader.get_camera_sensor("camera")
    model, times = camera.model_parameters, stamps(camera)
    hits = 0
    for one in loader.get_cuboid_track_observations():
        time = int(times[np.argmin(np.abs(times - one.timestamp_us))])
        moved = one.transform("camera", time, loader.pose_graph)
        x, y, z = moved.bbox3.centroid
        u, v = np.array([x, y]) / z * model.focal_length + model.principal_point
        for thing in SCENE.things(time * 1000):
            if thing.box2d is None or thing.label != one.class_id:
                continue
            cx, cy, w, h = thing.box2d
            hits += abs(u / RECIPE.size[0] - cx) < w / 2 + 0.01 and abs(v / RECIPE.size[1] - cy) < h / 2 + 0.02
    assert hits > 0.9 * sum(
        thing.box2d is not None
        for time in {one.timestamp_us for one in loader.get_cuboid_track_observations()}
        for thing in SCENE.things(time * 1000)
    )


def check_centre(loader, *_):
    """The optical axis of the painted scene is the middle of the picture, and pixel centres are at + 0.5."""
    model = loader.get_camera_sensor("camera").model_parameters
    fx, fy, cx, cy = SCENE.intrinsics
    np.testing.assert_allclose(model.principal_point, (cx + 0.5, cy + 0.5), atol=1e-4)
    np.testing.assert_allclose(model.focal_length, (fx, fy), rtol=1e-6)


CHECKS = [
    check_poses,
    check_fixes,
    check_places,
    check_images,
    check_points,
    check_cubes,
    check_cuboids,
    check_centre,
    check_projection,
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_official_loader_sees_the_scene(check, sequence, source):
    check(*sequence, Dataset(source))


def test_what_it_needs_is_there(sequence, made):
    loader, _ = sequence
    assert (loader.camera_ids, loader.lidar_ids, loader.radar_ids) == (["camera"], ["lidar"], ["radar"])
    assert loader.get_camera_sensor("camera").get_mask_images() == {}
    names = sorted(path.name for path in next(made[1].iterdir()).iterdir())
    form = ".zarr.itar" if names[-1].endswith(".itar") else ".zarr"
    stores = [f"{NAME}.ncore4{group}{form}" for group in ("", "-radar_cube")]
    assert names == sorted([f"{NAME}.json", *stores])
    main = v4.SequenceComponentGroupsReader([next(made[1].iterdir()) / stores[0]])
    assert v4.SequenceLoaderV4(main).camera_ids == ["camera"]  # the main store needs none of ours


def test_masks_are_labels(sequence, source):
    loader, _ = sequence
    dataset = Dataset(source)
    (found,) = loader.query_camera_labels("camera", library.load_library().LabelType.SEGMENTATION_INSTANCE)
    assert found.labels_count > 5
    for stamp in map(int, found.label_timestamps_us):
        label = found.get_label(stamp)
        values, told = label.get_data(), label.generic_meta_data["instances"]
        rows = {row["object_id"]: row for row in nearest_frame(dataset, stamp).annotations.to_dicts() if row["mask"]}
        assert {one["object_id"] for one in told} == set(rows)
        covered = np.zeros(values.shape, bool)
        for one in told[::-1]:  # the last is on top
            mask = np.asarray(Image.open(io.BytesIO(rows[one["object_id"]]["mask"])))
            np.testing.assert_array_equal(values == one["value"], mask & ~covered)
            assert one["label"] == rows[one["object_id"]]["label"]
            covered |= mask
        np.testing.assert_array_equal(values != 0, covered)


def test_boxes_in_the_picture_are_metadata(sequence, source):
    camera = sequence[0].get_camera_sensor("camera")
    dataset, compared = Dataset(source), 0
    for n, stamp in enumerate(stamps(camera)):
        told = camera.get_frame_generic_meta_data(n).get("annotations", [])
        rows = nearest_frame(dataset, stamp).annotations.to_dicts()
        expected = {row["object_id"]: row["box2d"] for row in rows if row["box2d"]}
        assert {row["object_id"]: row["box2d"] for row in told if "box2d" in row} == expected
        compared += len(expected)
    assert compared > 20


# ---- defects ---------------------------------------------------------------------------------------
def inverted(monkeypatch):
    place = Drive.place
    monkeypatch.setattr(Drive, "place", lambda drive, sensor: np.linalg.inv(place(drive, sensor)))


def transposed(monkeypatch):
    def way(drive):
        found = drive.rig_in(drive.world_to_ecef)
        found[:, :3, :3] = np.swapaxes(found[:, :3, :3], 1, 2)
        return found

    monkeypatch.setattr(Drive, "rig_to_world", property(way))


def mirrored_yaw(monkeypatch):
    def way(drive):
        found = drive.rig_in(drive.world_to_ecef)
        flip = np.diag([1.0, -1.0, 1.0])
        found[:, :3, :3] = flip @ found[:, :3, :3] @ flip
        return found

    monkeypatch.setattr(Drive, "rig_to_world", property(way))


def shifted(monkeypatch):
    def late(dataset):
        return [Drive(d.dataset, d.name, d.samples, d.stamps + 33_000_000, d.table) for d in list_drives(dataset)]

    monkeypatch.setattr(write, "list_drives", late)


def swapped(monkeypatch):
    """Every pair of the cube as (imaginary, real)."""
    store = library.load_components()[0].store_cube

    def crossed(writer, png, stamp, said):
        pixels = np.asarray(Image.open(io.BytesIO(png))).astype(np.uint16)
        text, file = PngImagePlugin.PngInfo(), io.BytesIO()
        for name, value in said.items():
            text.add_text(f"edgefirst:{name}", json.dumps(value))
        pairs = pixels.reshape(*pixels.shape[:1], -1, 2)[..., ::-1].reshape(pixels.shape)
        Image.fromarray(np.ascontiguousarray(pairs)).save(file, "PNG", pnginfo=text)
        store(writer, file.getvalue(), stamp, said)

    monkeypatch.setattr(library.load_components()[0], "store_cube", crossed)


def boxes_of_the_lidar(monkeypatch):
    monkeypatch.setattr(Drive, "boxes", lambda _, boxes: np.atleast_2d(boxes) - [*LIDAR, 0, 0, 0])


def integer_centre(monkeypatch):
    monkeypatch.setattr(components, "PIXEL", 0.0)


@pytest.mark.parametrize(
    ("defect", "checks"),
    [
        (inverted, [check_places, check_projection]),
        (transposed, [check_poses]),
        (mirrored_yaw, [check_poses]),
        (shifted, [check_poses, check_images]),
        (swapped, [check_cubes]),
        (boxes_of_the_lidar, [check_cuboids]),
        (integer_centre, [check_centre]),
    ],
)
def test_defects_are_seen(defect, checks, source, tmp_path, monkeypatch):
    defect(monkeypatch)
    exported(source, tmp_path / "out")
    for check in checks:
        with pytest.raises(AssertionError):
            check(*opened(tmp_path / "out" / NAME), Dataset(source))


# ---- the way back ----------------------------------------------------------------------------------
def back(nc, out):
    out.mkdir()
    report = LossReport("ncore")
    restore(nc, out, DEFAULT_LIMITS, report, nothing)
    return report


def test_folders_with_odd_names(source, tmp_path):
    for store in ("itar", "directory"):
        out = tmp_path / f"a #b %41?é {store}"
        exported(source, out, store=store)
        assert opened(out / NAME)[0].get_camera_sensor("camera").frames_count > 25
        back(out, tmp_path / f"back {store}")
        assert len(Dataset(tmp_path / f"back {store}" / NAME)) > 25


def test_several_drives(recording, tmp_path):
    small = {"seconds": 1, "size": (160, 96), "cube_shape": (1, 8, 2, 8), "lidar_points": 50}
    paths = [recording(**small, host=host) for host in ("one", "two")]
    convert(paths, tmp_path / "in", name="both")
    exported(tmp_path / "in" / "both", tmp_path / "nc")
    assert len(list((tmp_path / "nc").iterdir())) == 2
    for folder in (tmp_path / "nc").iterdir():
        loader, _ = opened(folder)
        assert loader.sequence_id == folder.name
        assert loader.get_camera_sensor("camera").frames_count > 20
    back(tmp_path / "nc", tmp_path / "back")
    assert len(list((tmp_path / "back").glob("*.zip"))) == 2


def test_a_sequence_of_others(source, tmp_path):
    """What NCore holds becomes a dataset."""
    exported(source, tmp_path / "nc")
    report = back(tmp_path / "nc", tmp_path / "back")
    old, new = Dataset(source), Dataset(tmp_path / "back" / NAME)
    there = [s for s in old.samples() if s.position and s.row["orientation"]]
    assert len(new) == sum(there[0].timestamp <= s.timestamp <= there[-1].timestamp for s in old.samples())
    assert not [f for f in validate(tmp_path / "back" / NAME).findings if f.severity == "error"]
    kept = {"k", "d", "width", "height", "distortion_model"}
    assert {k: new.metadata["camera_info"][k] for k in kept} == {k: old.metadata["camera_info"][k] for k in kept}
    assert {t["child"] for t in new.metadata["static_transforms"]} == {"camera", "lidar", "radar"}
    clouds = cubes = masks = 0
    for sample in new.samples():
        before = nearest_frame(old, sample.timestamp // 1000)
        assert sample.read("camera") == before.read("camera")
        np.testing.assert_allclose(sample.position, before.position, atol=2e-8)  # 1 mm, and altitude
        same = abs(np.dot(sample.row["orientation"], before.row["orientation"]))
        assert same == pytest.approx(1, abs=1e-9)
        if "lidar.pcd" in sample.inputs and sample.row["lidar_points_timestamp"] == (
            before.row["lidar_points_timestamp"] // 1000 * 1000
        ):
            for kind in ("lidar", "radar"):
                found, said = getattr(sample, kind)(), getattr(before, kind)()
                for field in said.dtype.names:
                    np.testing.assert_allclose(found[field], said[field], atol=1e-5)
            clouds += 1
        at, there = (one.row["radar_cube_timestamp"] for one in (sample, before))
        if at is not None and at == there:
            assert sample.read("radar.png") == before.read("radar.png")
            cubes += 1
        told = {r["object_id"]: r for r in before.annotations.to_dicts() if r["box2d"]}
        found = {r["object_id"]: r for r in sample.annotations.to_dicts() if r.get("box2d")}
        assert {k: (r["label"], r["box2d"]) for k, r in found.items()} == {
            k: (r["label"], r["box2d"]) for k, r in told.items()
        }
        for key, row in found.items():
            if row["mask"]:  # of two masks that overlap the last is on top
                mask, whole = (np.asarray(Image.open(io.BytesIO(r["mask"]))) > 0 for r in (row, told[key]))
                assert mask.any()
                assert not (mask & ~whole).any()
                masks += 1
    assert min(clouds, cubes, masks) > 20
    boxes = {tuple(np.round(row, 4)) for row in old.annotations["box3d"].drop_nulls().to_list()}
    found = [tuple(np.round(row, 4)) for row in new.annotations["box3d"].drop_nulls().to_list()]
    assert len(found) > 40
    assert set(found) <= boxes
    assert any(line.what == "cuboids" for line in report.lines)


def test_depth_and_classes_are_labels(recording, tmp_path):
    topics = RECIPE.topics - {"model/output"} | {"model/boxes2d", "model/mask"}
    path = recording(seconds=1, size=(160, 96), cube_shape=(1, 8, 2, 8), lidar_points=50, topics=topics)
    convert(path, tmp_path / "in", name="in", layout="directory")
    depths = np.random.default_rng(1).integers(0, 65536, (96, 160), np.uint16)
    folder = tmp_path / "in" / "in" / "in" / NAME
    Image.fromarray(depths).save(folder / f"{NAME}_015.depth.png")
    exported(tmp_path / "in" / "in", tmp_path / "nc")
    loader, _ = opened(tmp_path / "nc" / NAME)
    lib, dataset = library.load_library(), Dataset(tmp_path / "in" / "in")
    (found,) = loader.query_camera_labels("camera", lib.LabelType.DEPTH_Z_M)
    (stamp,) = map(int, found.label_timestamps_us)
    assert nearest_frame(dataset, stamp).frame == 15
    np.testing.assert_allclose(found.get_label(stamp).get_data(), depths / 1000, atol=1e-5)
    (found,) = loader.query_camera_labels("camera", lib.LabelType.SEGMENTATION_SEMANTIC)
    assert found.labels_count > 5
    for stamp in map(int, found.label_timestamps_us):
        (mask,) = nearest_frame(dataset, stamp).annotations["mask"].drop_nulls()
        assert found.get_label(stamp).get_encoded_data() == mask
        assert found.get_label(stamp).generic_meta_data["labels"] == ["background", "car", "person"]
    back(tmp_path / "nc", tmp_path / "other")
    again = Dataset(tmp_path / "other" / NAME)
    found = np.asarray(Image.open(io.BytesIO(again.sample(NAME, 15).read("depth"))))
    np.testing.assert_array_equal(found, depths)
    assert again.metadata["labels"] == ["background", "car", "person"]
    for row in again.annotations.drop_nulls("mask").to_dicts():
        (mask,) = dataset.sample(NAME, row["frame"]).annotations["mask"].drop_nulls()
        np.testing.assert_array_equal(*(np.asarray(Image.open(io.BytesIO(m))) for m in (row["mask"], mask)))


def test_what_the_library_itself_wrote(tmp_path):
    """Two cameras, one of a model that ROS does not have; two returns, one of them absent; turned boxes; no earth."""
    lib, us = library.load_library(), 1_700_000_000_000_000
    writer = v4.SequenceComponentGroupsWriter(
        lib.UPath(tmp_path / "in"), "x", "theirs", lib.HalfClosedInterval(us, us + 1_000_001), {}, "itar"
    )
    new = writer.register_component_writer
    poses = new(v4.PosesComponent.Writer, "best")
    way = np.repeat(np.eye(4)[None], 2, 0)
    way[1, 0, 3] = 10
    poses.store_dynamic_pose("rig", "world", way, np.array([us, us + 1_000_000], np.uint64))
    lidar = np.eye(4)
    lidar[:3, 3] = 1, 2, 3
    poses.store_static_pose("top", "rig", lidar)
    intrinsics = new(v4.IntrinsicsComponent.Writer, "best")
    zeros = {"radial_coeffs": np.zeros(6, "f4"), "tangential_coeffs": np.zeros(2, "f4")}
    size = {"resolution": np.array([8, 6], np.uint64), "shutter_type": lib.ShutterType.GLOBAL}
    centre = {"principal_point": np.array([4.5, 3.5], "f4"), "focal_length": np.array([5, 6], "f4")}
    models = {
        "left": lib.OpenCVPinholeCameraModelParameters(**size, **centre, **zeros, thin_prism_coeffs=np.zeros(4, "f4")),
        "wide": lib.FThetaCameraModelParameters(
            **size,
            principal_point=np.array([4, 3], "f4"),
            reference_poly=lib.FThetaCameraModelParameters.PolynomialType.ANGLE_TO_PIXELDIST,
            pixeldist_to_angle_poly=np.array([0, 0.1, 0, 0, 0, 0], "f4"),
            angle_to_pixeldist_poly=np.array([0, 10, 0, 0, 0, 0], "f4"),
            max_angle=1.0,
            linear_cde=np.array([1, 0, 0], "f4"),
        ),
    }
    for name, model in models.items():
        intrinsics.store_camera_intrinsics(name, model)
        poses.store_static_pose(name, "rig", np.eye(4))
        camera = new(v4.CameraSensorComponent.Writer, name)
        for at in (100_000, 900_000):
            file = io.BytesIO()
            Image.fromarray(np.full((6, 8, 3), at // 5000, np.uint8)).save(file, "PNG")
            camera.store_frame(file.getvalue(), "png", np.array([us + at - 9, us + at], np.uint64), {}, {"frame": "x"})
    sensor = new(v4.LidarSensorComponent.Writer, "top")
    at = np.array([us + 110_000] * 2, np.uint64)
    nan = np.nan
    further = {"row": np.arange(3, dtype="u1"), "of all": np.eye(2)}
    sensor.store_frame(
        np.array([[1, 0, 0], [0, 1, 0], [0, 0, -1]], "f4"),
        at[[0, 0, 0]],
        None,
        np.array([[2, nan, 3], [4, 5, 6]], "f4"),
        np.array([[0.5, nan, 1], [0, 0, 0]], "f4"),
        at,
        further,
        {},
    )
    box = lib.BBox3((5.0, 0.0, 0.0), (4.0, 2.0, 1.0), (0.0, 0.0, np.pi / 2))
    seen = [
        lib.CuboidTrackObservation("7", "truck", us + t, "top", us + t, box, lib.LabelSource.EXTERNAL)
        for t in (110_000, 500_000)
    ]
    new(v4.CuboidsComponent.Writer, "best").store_observations(seen)
    writer.finalize()
    report = back(tmp_path / "in", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").glob("*.zip")} == {"theirs-left.zip", "theirs-wide.zip"}
    dataset = Dataset(tmp_path / "out" / "theirs-left.zip")
    assert [s.timestamp for s in dataset.samples()] == [(us + 100_000) * 1000, (us + 900_000) * 1000]
    first, second = dataset.samples()
    assert (first.inputs, second.inputs) == ({"camera", "lidar.points"}, {"camera"})
    assert first.position is None
    assert first.image()[0, 0, 0] == 20
    assert first.skew == {"lidar.points": 10_000_000}
    points_ = first.lidar()
    assert [tuple(p) for p in points_[["x", "y", "z", "intensity", "row"]]] == [(2, 0, 0, 0.5, 0), (0, 0, -3, 1, 2)]
    (row,) = dataset.annotations.drop_nulls("box3d").to_dicts()
    # The lidar is at (1, 2, 3); the vehicle goes on by 0.1 m in the 10 ms to the cuboid; a quarter turn: 2 m along x.
    np.testing.assert_allclose(row["box3d"], [6.1, 2, 3, 2, 4, 1], atol=1e-6)
    assert row["label"] == "truck"
    assert dataset.metadata["camera_info"]["k"] == [5, 0, 4, 0, 6, 3, 0, 0, 1]
    assert Dataset(tmp_path / "out" / "theirs-wide.zip").metadata["camera_info"] is None
    placed = {t["child"]: t["translation"] for t in dataset.metadata["static_transforms"]}
    assert placed == {"left": [0, 0, 0], "lidar": [1, 2, 3]}
    said = {line.what: line.number for line in report.lines}
    assert (said["camera models"], said["cuboids without a picture"], said["poses"]) == (1, 2, 4)
    assert not [f for f in validate(dataset.paths.container).findings if f.severity == "error"]


# ---- refusals and notes ----------------------------------------------------------------------------
def test_every_column_and_sensor_is_in_the_report(made, source):
    said = {line.what for line in made[0].lines}
    dataset = Dataset(source)
    assert {f"annotations: {name}" for name in dataset.annotation_columns} <= said
    assert {f"frames: {name}" for name in dataset.frames.columns if name not in ("name", "frame")} <= said
    assert {"camera", "radar.png", "radar.pcd", "lidar.pcd", "instances", "boxes"} <= said
    (line,) = (line for line in made[0].lines if line.what.startswith("samples before"))
    located = [bool(s.position and s.row["orientation"]) for s in dataset.samples()]
    assert line.number == located.index(True) + located[::-1].index(True)


@pytest.mark.parametrize(
    ("without", "says"),
    [("gps", "pose_topic"), ("imu", "pose_topic"), ("camera/info", "camera_info"), ("tf_static", "static transform")],
)
def test_what_is_missing_is_said(recording, tmp_path, without, says):
    small = {"seconds": 1, "size": (160, 96), "cube_shape": (1, 8, 2, 8), "lidar_points": 50}
    convert(recording(**small, topics=RECIPE.topics - {without}), tmp_path, name="in")
    with pytest.raises(DatasetError, match=says):
        exported(tmp_path / "in", tmp_path / "nc")


def test_the_library_is_asked_for(source, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ncore.data", None)
    monkeypatch.setattr(write, "load_library", library.load_library.__wrapped__)
    with pytest.raises(EdgeFirstError, match=r"pip install --no-deps 'nvidia-ncore==19\.8\.\*'"):
        exported(source, tmp_path / "nc")
    with pytest.raises(UsageError, match="--store: expected itar or directory, got 'zip'"):
        export(Dataset(source), tmp_path, LossReport("ncore"), nothing, store="zip")


def test_no_sequence(tmp_path):
    with pytest.raises(DatasetError, match="no NCore sequence"):
        back(tmp_path, tmp_path / "back")
    (tmp_path / "x.ncore4.zarr.itar").write_bytes(b"no tar at all" * 100)
    with pytest.raises(DatasetError, match="not a readable NCore sequence"):
        back(tmp_path, tmp_path / "again")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: write.check_rigid("x", np.diag([1.0, 1, -1, 1])),
        lambda: write.check_rigid("x", np.diag([1.0, 1, 1.1, 1])),
        lambda: write.check_rigid("x", np.full((2, 4, 4), np.nan)),
        lambda: write.check_rising("x", np.array([1, 2, 2])),
        lambda: write.check_inside("x", 7, 1, 7),
    ],
)
def test_rules_of_ncore_are_exceptions(wrong):
    with pytest.raises(DatasetError, match=r"^x: "):
        wrong()


# ---- pieces ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "d"),
    [
        ("plumb_bob", [0.5, -0.25, 0.125, 0.0625, 2]),
        ("rational_polynomial", [0.5, -0.25, 0.125, 0.0625, 2, 3, 4, 5]),
        ("equidistant", [0.5, -0.25, 0.125, 0.0625]),
    ],
)
def test_intrinsics(model, d):
    k = [400.0, 0, 320.25, 0, 410.0, 180.5, 0, 0, 1]
    info = {"frame_id": "camera", "width": 640, "height": 360, "distortion_model": model, "d": d, "k": k}
    found = components.make_camera_model(info, (640, 360))
    assert tuple(found.principal_point) == (320.75, 181.0)
    if model == "equidistant":
        assert list(found.radial_coeffs) == d
    else:  # OpenCV: k1, k2, p1, p2, k3, k4, k5, k6
        assert list(found.radial_coeffs) == [0.5, -0.25, 2, *([3, 4, 5] if len(d) > 5 else [0, 0, 0])]
        assert list(found.tangential_coeffs) == [0.125, 0.0625]
    again = components.make_camera_info(found, "camera")
    assert {key: again[key] for key in info} == info
    half = components.make_camera_model(info, (320, 180))
    assert tuple(half.principal_point) == (160.375, 90.5)
    others = [{key: [number] * 9} for key in ("k", "d") for number in (1e300, float("nan"))]  # NCore has float32
    tilted = {"distortion_model": "rational_polynomial", "d": [*[0.0] * 12, 0.1, 0.0]}  # OpenCV: tau of a tilted sensor
    for wrong in (tilted, {"distortion_model": "kannala", "d": [1.0]}, {"k": [0.0] * 9}, {"k": [5e-324] * 9}, *others):
        with pytest.raises(DatasetError, match="camera_info"):
            components.make_camera_model(info | wrong, (640, 360))
    with pytest.raises(DatasetError, match="640 x 480"):
        components.make_camera_model(info, (640, 480))


def test_points_without_a_direction_are_left_away():
    cloud = np.array(
        [(3, 4, 0, 7), (0, 0, 0, 8), (np.nan, 1, 1, 9), (0, -2, 0, 65535)],
        [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<u2")],
    )
    found = components.make_rays(cloud, {})
    assert found.left == 2
    np.testing.assert_allclose(found.direction, [[0.6, 0.8, 0], [0, -1, 0]], atol=1e-7)
    np.testing.assert_array_equal(found.distance, [[5, 2]])
    np.testing.assert_array_equal(found.intensity, np.float32([[7 / 65535, 1]]))
    np.testing.assert_array_equal(found.further["intensity"], [7, 65535])
    assert components.make_rays(cloud[["x", "y"]], {}) is None


@pytest.mark.parametrize("speed", ["speed", "Doppler", "radial_speed", "Velocity"])
def test_fields_of_other_radars_have_the_names_of_ncore(speed):
    names = components.name_radar_fields(("x", "y", "z", speed, "RCS", "power"))
    assert names == {speed: "radial_velocity_m_s", "RCS": "rcs_dBsm"}


def test_turns_of_others():
    turn = turned(np.array([0.1, -0.5, 0.3, 0.8]) / np.linalg.norm([0.1, -0.5, 0.3, 0.8]))
    np.testing.assert_allclose(turned(read_foreign.make_quaternion(turn)), turn, atol=1e-12)
    np.testing.assert_allclose(read_foreign.make_quaternion(np.diag([1.0, -1, -1])), [1, 0, 0, 0], atol=1e-12)
    # a quarter about x takes y to z; a quarter about z then x to y
    found = read_foreign.make_turn([np.pi / 2, 0, np.pi / 2])
    np.testing.assert_allclose(found @ np.eye(3), [[0, 0, 1], [1, 0, 0], [0, 1, 0]], atol=1e-12)


def test_polygons_are_filled():
    square = [0.25, 0.25, 0.75, 0.25, 0.75, 0.75, 0.25, 0.75]
    hole = [0.45, 0.45, 0.55, 0.45, 0.55, 0.55, 0.45, 0.55]
    found = components.fill_rings([square, hole], (40, 20))
    assert found.mean() == 0.25 - 0.01  # 20 x 10 pixels less 4 x 2
    assert found[10, 12]
    assert not found[10, 20]
    assert not found[2, 2]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem.partition("_")[0])
def test_real_recordings(path, tmp_path):
    settings = {"rate": 2.0} if "verdin" in path.name else {"rate": 1.0}
    convert(path, tmp_path / "in", name="real", **settings)
    dataset = Dataset(tmp_path / "in" / "real")
    if dataset.frames["latitude"].is_not_null().sum() < 2:
        with pytest.raises(DatasetError, match="pose_topic"):
            exported(tmp_path / "in" / "real", tmp_path / "nc")
        return
    exported(tmp_path / "in" / "real", tmp_path / "nc")
    (folder,) = (tmp_path / "nc").iterdir()
    loader, _ = opened(folder)
    camera = loader.get_camera_sensor("camera")
    poses = loader.pose_graph.evaluate_poses("rig", "world_global", camera.frames_timestamps_us[:, 1])
    for n, stamp in enumerate(stamps(camera)):
        sample = nearest_frame(dataset, stamp)
        assert bytes(camera.get_frame_handle(n).get_data().get_encoded_image_data()) == sample.read("camera")
        if sample.position and sample.row["orientation"]:
            place, axes = earth(*sample.position)
            assert np.linalg.norm(poses[n, :3, 3] - place) < 0.01
            there = axes @ turned(np.array(sample.row["orientation"]) / np.linalg.norm(sample.row["orientation"]))
            np.testing.assert_allclose(poses[n, :3, :3], there, atol=1e-5)
    for ids, get, kind, column in (
        (loader.lidar_ids, loader.get_lidar_sensor, "lidar", "lidar_points_timestamp"),
        (loader.radar_ids, loader.get_radar_sensor, "radar", "radar_targets_timestamp"),
    ):
        by_stamp = {sample.row[column] // 1000: sample for sample in dataset.samples() if sample.row[column]}
        for sensor in map(get, ids):
            for n, stamp in enumerate(stamps(sensor)):
                said = getattr(by_stamp[int(stamp)], kind)()
                xyz = np.stack([said[axis] for axis in "xyz"], -1)
                xyz = xyz[np.linalg.norm(xyz, axis=1) > 0]
                found = sensor.get_frame_point_cloud(n, motion_compensation=False, with_start_points=False).xyz_m_end
                np.testing.assert_allclose(found, xyz, atol=1e-5, rtol=0)
    back(tmp_path / "nc", tmp_path / "back")
    for made in (tmp_path / "back").glob("*.zip"):
        assert not [f for f in validate(made).findings if f.severity == "error"]
