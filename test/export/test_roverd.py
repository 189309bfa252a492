# SPDX-License-Identifier: Apache-2.0
"""Traces of roverd: every channel by an independent checker, there and back byte by byte, defects that must be seen."""

import io
import itertools
import json
import lzma
import shutil
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from bags import REAR, write_two_of_each
from PIL import Image
from roverd_checker import avi_chunks, axis, cube_of, faults, points_of, turn
from same_dataset import assert_same_dataset
from shared_data import REAL

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.writer import DatasetWriter, NewSample
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.output import LossReport
from edgefirst_ros.export.roverd.channels import pack_stored
from edgefirst_ros.export.roverd.read_foreign import from_euler, restore
from edgefirst_ros.export.roverd.write import export, find_euler
from edgefirst_ros.limits import DEFAULT_LIMITS
from edgefirst_ros.synthetic.recipe import DEFAULT_TOPICS
from edgefirst_ros.synthetic.scene import LIDAR

TOPICS = (DEFAULT_TOPICS - {"model/output"}) | {"model/boxes2d", "model/mask", "fusion/boxes3d"}
RECIPE = {"seconds": 3, "size": (320, 180), "cube_shape": (2, 16, 4, 32), "lidar_points": 200, "topics": TOPICS}


def quiet(*_):
    pass


def exported(path, out):
    """Export a dataset; the report by what was exported."""
    report = LossReport("roverd")
    out.mkdir()
    export(Dataset(path), out, report, quiet)
    return {line.what: line for line in report.lines}


def restored(source, out):
    report = LossReport("roverd")
    out.mkdir()
    restore(source, out, DEFAULT_LIMITS, report, quiet)
    return {line.what: line for line in report.lines}


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def whole(recording, tmp_path_factory):
    """A dataset with all that a recording can give, and its export."""
    folder = tmp_path_factory.mktemp("roverd")
    paths = convert(recording(**RECIPE), folder / "dataset").paths
    told = exported(paths.container, folder / "traces")
    return SimpleNamespace(paths=paths, folder=folder, traces=folder / "traces", name=paths.name, told=told)


# ---- what is written ----------------------------------------------------------------------------
def test_every_channel_holds_what_the_dataset_holds(whole):
    trace = whole.traces / whole.name
    assert faults(trace, whole.paths.out, whole.name) == []
    sensors = {path.parent.name: set(json.loads(path.read_text())) for path in trace.glob("*/meta.json")}
    assert sensors == {
        "camera": {"ts", "video.avi"},
        "radar_cube": {"ts", "cube"},
        "radar_points": {"ts", "xyz", "length", "height", "speed", "power", "rcs"},
        "lidar_points": {"ts", "xyz", "length", "height", "reflect"},
        "_gps": {"ts", "lla"},
        "_imu": {"ts", "rot"},
        "_camera": {"ts", "segment"},
    }
    schema = (trace / "edgefirst.schema.yaml").read_text()
    assert schema.splitlines() == [
        *(f'"{name}": {json.dumps(list(json.loads((trace / name / "meta.json").read_text())))}' for name in
          ("camera", "radar_cube", "radar_points", "lidar_points", "_camera", "_gps", "_imu")),
        '"_": ["_radar/pose.npz"]',
    ]  # fmt: skip
    said = (trace / "config.yaml").read_text()
    assert (
        'sensors: ["camera", "radar_cube", "radar_points", "lidar_points"]' in said
    )  # roverd has classes of the others
    assert [path.name for path in whole.traces.iterdir()] == [whole.name]


def test_a_message_of_several_samples_is_one_entry(whole):
    ts = np.fromfile(whole.traces / whole.name / "lidar_points/ts")
    assert len(ts) == 30 < len(Dataset(whole.paths.container)) == 90


def test_the_report_says_where_all_went(whole):
    told = whole.told
    assert told["camera.jpeg"].where == "camera/video.avi"
    assert told["camera.jpeg"].number == 90
    assert told["mask of classes"].number == 30
    assert told["acceleration, angular velocity"].where == ""
    columns = {name.removeprefix("annotations: ") for line in told for name in line.split(", ")}
    assert {
        *Dataset(whole.paths.container).annotation_columns,
        *Dataset(whole.paths.container).frames.columns,
    } <= columns
    assert told["annotations: mask"].lost == "but those of classes"
    assert told["annotations: box2d"].lost == "has no place there"


@pytest.mark.skipif(not REAL, reason="the real recordings are not at hand")
@pytest.mark.parametrize("path", [path for path in REAL if "comma" not in path.name], ids=lambda path: path.name[:8])
def test_real_recordings(path, tmp_path):
    paths = convert(path, tmp_path / "dataset", rate=2).paths
    exported(paths.container, tmp_path / "traces")
    assert faults(tmp_path / "traces" / paths.name, paths.out, paths.name) == []
    restored(tmp_path / "traces", tmp_path / "back")
    assert validate(next((tmp_path / "back").glob("*.zip"))).ok


@pytest.mark.parametrize("size", [0, 1, 3, 65535, 65536, 65537, 300001])
def test_what_is_not_compressed_is_an_xz_all_the_same(size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert lzma.decompress(b"".join(pack_stored(data)), lzma.FORMAT_XZ) == data.tobytes()


def test_euler_angles_are_those_of_their_matrices():
    angles = np.random.default_rng(0).uniform(-1.5, 1.5, (50, 3))
    turns = np.array([axis(a, 0) @ axis(b, 1) @ axis(c, 2) for a, b, c in angles])
    assert np.allclose(find_euler(turns), angles)
    assert np.allclose([turn(q) for q in from_euler(angles)], turns)
    upright = axis(0.3, 0) @ axis(np.pi / 2, 1) @ axis(0.4, 2)
    assert np.allclose(turn(from_euler(find_euler(upright[None]))[0]), upright, atol=1e-7)


# ---- there and back -----------------------------------------------------------------------------
def test_two_sequences_are_two_traces_and_back(recording, tmp_path):
    recordings = [recording(**{**RECIPE, "seconds": 1, "host": host}) for host in ("one", "two")]
    paths = convert(recordings, tmp_path / "dataset", layout="directory").paths
    exported(paths.container, tmp_path / "traces")
    assert sorted(p.name for p in tmp_path.glob("traces/*")) == sorted(p.stem for p in recordings)
    restored(tmp_path / "traces", tmp_path / "back")
    back = Dataset(tmp_path / "back/traces.zip")
    assert list(back.sequences) == sorted(p.stem for p in recordings)
    assert len(back) == len(Dataset(paths.container))
    assert validate(tmp_path / "back/traces.zip").ok


def jpeg(size, colour):
    out = io.BytesIO()
    Image.new("RGB", size, (colour, 90, 10)).save(out, "JPEG")
    return out.getvalue()


def png(values):
    out = io.BytesIO()
    Image.fromarray(values).save(out, "PNG")
    return out.getvalue()


def pcd(fields, kinds, rows, *, height=1, form="binary", width=None):
    """Written line by line, as the format has them."""
    record = np.dtype(list(zip(fields, kinds, strict=True)))
    width = len(rows) // height if width is None else width
    head = (
        f"VERSION 0.7\nFIELDS {' '.join(fields)}\nSIZE {' '.join(kind[1] for kind in kinds)}\n"
        f"TYPE {' '.join(kind[0].upper() for kind in kinds)}\nCOUNT {' '.join('1' for _ in kinds)}\nWIDTH {width}\n"
        f"HEIGHT {height}\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(rows)}\nDATA {form}\n"
    )
    if form == "ascii":
        return head.encode() + "".join(" ".join(map(str, row)) + "\n" for row in rows).encode()
    return head.encode() + np.array([tuple(row) for row in rows], record).tobytes()


XYZ = (("x", "y", "z"), ("f4", "f4", "f4"))
MIXED = (("ring", "z", "x", "t", "y"), ("u2", "f4", "f4", "f8", "f4"))
ODD = [
    {"camera.jpeg": jpeg((64, 48), 1), "lidar.pcd": pcd(*MIXED, [(n, 1, 2, 3.5, 4) for n in range(6)], height=2)},
    {"camera.jpeg": jpeg((32, 24), 2), "lidar.pcd": pcd(*MIXED, [])},
    {"camera.png": png(np.full((48, 64, 3), 7, np.uint8)), "lidar.pcd": pcd(*MIXED, [(9, np.nan, -0.0, 1, np.inf)])},
    {"camera.jpeg": jpeg((64, 48), 3) + b"behind the end", "lidar.pcd": pcd(*XYZ, [(1, 2, 3)], form="ascii")},
    {"camera.jpeg": jpeg((64, 48), 3)[:-2], "lidar.pcd": pcd(*XYZ, [(1, 2, 3)])},
    {"camera.jpeg": jpeg((64, 48), 5), "depth.png": png(np.full((4, 4), 999, np.uint16)), "lidar.pcd": b"no cloud"},
    {"camera.jpeg": jpeg((64, 48), 6), "radar.png": png(np.full((4, 4), 9, np.uint16)), "lidar.jpeg": jpeg((8, 8), 1)},
    {"camera.jpeg": jpeg((64, 48), 7), "radar.pcd": pcd(("x", "y", "z", "ts"), ("f4",) * 4, [(1, 2, 3, 4)])},
]  # fmt: skip


def test_what_has_no_home_is_counted(tmp_path):
    with DatasetWriter(tmp_path / "dataset", "odd") as writer:
        for n, members in enumerate(ODD):
            writer.write(NewSample("host", n, 10**18 + n * 10**8, [(kind, [data]) for kind, data in members.items()]))
        writer.finish({})
    report = LossReport("roverd")
    (tmp_path / "traces").mkdir()
    export(Dataset(tmp_path / "dataset/odd.zip"), tmp_path / "traces", report, quiet)
    other, unfit = "of another form than the first one", "roverd cannot hold its form"
    assert {(line.what, line.lost): line.number for line in report.lines if line.number and not line.where} == {
        ("camera.jpeg", other): 1, ("camera.jpeg", unfit): 1, ("camera.png", "has no place there"): 1,
        ("lidar.pcd", unfit): 1, ("lidar.pcd", other): 2, ("depth.png", "has no place there"): 1,
        ("lidar.jpeg", "has no place there"): 1, ("radar.pcd", unfit): 1,
        ("annotations: name", "has no place there"): 8, ("annotations: frame", "has no place there"): 8,
        ("annotations: timestamp", "has no place there"): 8,
    }  # fmt: skip
    trace = tmp_path / "traces/host"
    assert json.loads((trace / "lidar_points/meta.json").read_text())["xyz"]["shape"] == [6, 3]
    assert np.fromfile(trace / "lidar_points/height", "<i4").tolist() == [2, 1, 1]
    assert not (trace / "radar_points").exists()


# ---- what is refused ----------------------------------------------------------------------------
def test_a_dataset_without_stamps_is_refused(whole, tmp_path):
    shutil.copytree(whole.paths.out, tmp_path / "dataset")
    (tmp_path / "dataset" / f"{whole.name}.frames.arrow").unlink()
    with pytest.raises(DatasetError, match="the stamps of the samples are unknown"):
        exported(tmp_path / "dataset" / f"{whole.name}.zip", tmp_path / "traces")


def rewrite_frames(path, shape, change):
    """Write an lzmaf channel anew."""
    index = np.fromfile(f"{path}_i", "<u8").astype(int)
    data = path.read_bytes()
    parts = [
        lzma.compress(change(np.frombuffer(lzma.decompress(data[a:b]), "<i2").reshape(shape)).tobytes(), preset=0)
        for a, b in itertools.pairwise(index)
    ]
    path.write_bytes(b"".join(parts))
    np.array([0, *np.cumsum([len(part) for part in parts])], "<u8").tofile(f"{path}_i")


def edited(path, dtype, change):
    values = np.fromfile(path, dtype)
    change(values).astype(dtype).tofile(path)


def transposed_pose(trace):
    pose = dict(np.load(trace / "_radar/pose.npz"))
    np.savez(trace / "_radar/pose.npz", **{**pose, "rot": pose["rot"].transpose(0, 2, 1)})


def transposed_place(trace):
    said = json.loads((trace / "camera/extrinsics.json").read_text())
    matrix = np.array(said["sensor_to_parent"])
    matrix[:3, :3] = matrix[:3, :3].T
    (trace / "camera/extrinsics.json").write_text(json.dumps({**said, "sensor_to_parent": matrix.tolist()}))


def changed_picture(trace):
    data = bytearray((trace / "camera/video.avi").read_bytes())
    place = data.index(b"\xff\xda", len(data) // 2)
    data[place + 20] ^= 1
    (trace / "camera/video.avi").write_bytes(data)


SHAPE = (2, 4, 16, 16, 2)
DEFECTS = {
    "swapped I/Q": lambda t: rewrite_frames(t / "radar_cube/cube", SHAPE, lambda cube: cube[..., ::-1]),
    "receivers for ranges": lambda t: rewrite_frames(t / "radar_cube/cube", SHAPE, lambda cube: cube.swapaxes(1, 2)),
    "index off by one": lambda t: edited(t / "radar_cube/cube_i", "<u8", lambda v: np.where(v == v[3], v + 1, v)),
    "index one short": lambda t: edited(t / "radar_cube/cube_i", "<u8", lambda v: v[:-1]),
    "index begins at the first end": lambda t: edited(
        t / "radar_cube/cube_i", "<u8", lambda v: np.append(v[1:], v[-1])
    ),
    "cube cut": lambda t: (t / "radar_cube/cube").write_bytes((t / "radar_cube/cube").read_bytes()[:-5]),
    "transposed rotation": transposed_pose,
    "transposed extrinsics": transposed_place,
    "shifted stamps": lambda t: edited(t / "camera/ts", "<f8", lambda v: np.append(v[1:], v[-1] + 0.03)),
    "stamps in milliseconds": lambda t: edited(t / "_gps/ts", "<f8", lambda v: v * 1000),
    "stamps that do not rise": lambda t: edited(t / "_imu/ts", "<f8", lambda v: v[::-1]),
    "channel one short": lambda t: edited(t / "lidar_points/length", "<i4", lambda v: v[:-1]),
    "channel cut": lambda t: (t / "lidar_points/xyz").write_bytes((t / "lidar_points/xyz").read_bytes()[:-7]),
    "padding": lambda t: edited(t / "radar_points/length", "<i4", lambda v: np.maximum(v - 1, 0)),
    "x for y": lambda t: edited(t / "lidar_points/xyz", "<f4", lambda v: v.reshape(-1, 3)[:, [1, 0, 2]].ravel()),
    "longitude first": lambda t: edited(t / "_gps/lla", "<f8", lambda v: v.reshape(-1, 3)[:, [1, 0, 2]].ravel()),
    "mirrored yaw": lambda t: edited(t / "_imu/rot", "<f4", lambda v: (v.reshape(-1, 3) * [1, 1, -1]).ravel()),
    "changed picture": changed_picture,
    "no config.yaml": lambda t: (t / "config.yaml").unlink(),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_are_seen(whole, tmp_path, defect):
    trace = tmp_path / whole.name
    shutil.copytree(whole.traces / whole.name, trace)
    DEFECTS[defect](trace)
    assert faults(trace, whole.paths.out, whole.name)


# ---- traces of others ---------------------------------------------------------------------------
def scan_of(jpeg):
    """A JPEG from its first quantisation table on."""
    return jpeg[jpeg.index(b"\xff\xdb") :]


def test_a_trace_of_others_gives_what_maps(whole, tmp_path):
    shutil.copytree(whole.traces / whole.name, tmp_path / "drive")
    told = restored(tmp_path / "drive", tmp_path / "back")
    before, after = Dataset(whole.paths.container), Dataset(tmp_path / "back/drive.zip")
    assert len(after) == len(before) == 90
    for old, new in zip(before.samples(), after.samples(), strict=True):
        assert abs(new.timestamp - old.timestamp) < 300
        assert scan_of(new.read("camera")) == scan_of(old.read("camera"))  # EXIF names another frame
        if "radar.pcd" in old.inputs:
            assert np.array_equal(points_of(new.read("radar.pcd"))["x"], points_of(old.read("radar.pcd"))["x"])
        if old.row["orientation"] is not None:
            assert np.allclose(turn(new.row["orientation"]), turn(old.row["orientation"]), atol=1e-5)
            assert new.position == old.position
        if "radar.png" in before.members(old.key):
            assert np.array_equal(cube_of(new.read("radar.png"))[0], cube_of(old.read("radar.png"))[0])
    assert told["drive/radar_cube/cube"].where == "radar.png"
    assert told["drive/radar_points"].where == "radar.pcd"
    for channel in ("_gps/lla", "_imu/rot"):
        assert told[f"drive/{channel}"].lost == "interpolated to the pictures"
    assert told["drive/radar_points"].lost.startswith("only the nearest to each picture")
    assert told["drive/_radar/pose.npz"].lost == "poses of a map are not read"


@pytest.mark.parametrize("listed", [True, False])
def test_pictures_with_blurred_faces_are_those_of_the_camera(recording, tmp_path, listed):
    """I/Q-1M is published so: camera/ holds the stamps, _camera/ the video and the masks."""
    paths = convert(recording(**{**RECIPE, "seconds": 1}), tmp_path / "set").paths
    exported(paths.container, tmp_path / "traces")
    (trace,) = (tmp_path / "traces").iterdir()
    plain = restored(trace, tmp_path / "plain")
    (trace / "camera/video.avi").rename(trace / "_camera/video.avi")
    metas = [json.loads((trace / name / "meta.json").read_text()) for name in ("camera", "_camera")]
    metas[1]["video.avi"] = metas[0]["video.avi"]
    if not listed:
        del metas[0]["video.avi"]
    for name, meta in zip(("camera", "_camera"), metas, strict=True):
        (trace / name / "meta.json").write_text(json.dumps(meta))
    told = restored(trace, tmp_path / "blurred")
    assert {what.replace("/_camera/v", "/camera/v"): told[what].number for what in told} == {
        what: line.number for what, line in plain.items()
    }
    assert_same_dataset(tmp_path / "blurred", tmp_path / "plain", trace.name)


def made_by_hand(folder, config=True):
    """A trace with a lidar in roverd's own form and raw I/Q, written with numpy and lzma."""
    (folder / "lidar").mkdir(parents=True)
    (folder / "radar").mkdir()
    if config:
        (folder / "config.yaml").write_text("a: 1\n")
    stamps = {"ts": {"format": "raw", "type": "f8", "shape": []}}
    depth = np.arange(4 * 8, dtype="<u2").reshape(4, 8)
    described = dict(stamps)
    for name, values in (("rng", depth), ("rfl", depth.astype("u1"))):
        parts = [lzma.compress((values + n).astype(values.dtype).tobytes()) for n in range(3)]
        (folder / "lidar" / name).write_bytes(b"".join(parts))
        np.array([0, *np.cumsum([len(part) for part in parts])], "<u8").tofile(folder / "lidar" / f"{name}_i")
        described[name] = {"format": "lzmaf", "type": values.dtype.str[1:], "shape": [4, 8]}
    (folder / "lidar/meta.json").write_text(json.dumps(described))
    (folder / "radar/meta.json").write_text(
        json.dumps(stamps | {"iq": {"format": "raw", "type": "i2", "shape": [4, 8]}})
    )
    for sensor in ("lidar", "radar"):
        np.array([100.0, 100.1, 100.2]).tofile(folder / sensor / "ts")
    np.zeros((3, 4, 8), "<i2").tofile(folder / "radar/iq")
    return depth


@pytest.mark.parametrize("config", [True, False])
def test_pictures_of_a_lidar_are_kept_and_raw_iq_is_not(whole, tmp_path, config):
    """Depth as lidar.png, reflectivity as lidar.jpeg; with or without a config.yaml."""
    depth = made_by_hand(tmp_path / "set/drive", config)
    shutil.copytree(whole.traces / whole.name / "camera", tmp_path / "set/drive/camera")
    np.array([100.04 + n * 0.01 for n in range(90)]).tofile(tmp_path / "set/drive/camera/ts")
    told = restored(tmp_path / "set", tmp_path / "back")
    assert told["drive/radar/iq"].where == ""
    assert told["drive/lidar/rfl"].where == "lidar.jpeg"
    with zipfile.ZipFile(tmp_path / "back/set.zip") as archive:
        pictures, jpegs = (
            {
                name.partition("_")[2][:3]: np.asarray(Image.open(io.BytesIO(archive.read(name))))
                for name in archive.namelist()
                if name.endswith(suffix)
            }
            for suffix in (".lidar.png", ".lidar.jpeg")
        )
    assert np.array_equal(pictures["000"], depth)
    assert np.array_equal(pictures["002"], depth + 1)  # 100.06 s
    assert sorted(pictures)[-1] == "026"  # 100.30 s, the last one within 100 ms of 100.20 s
    assert jpegs.keys() == pictures.keys()
    assert np.abs(jpegs["000"].astype(int) - depth).max() <= 3
    assert validate(tmp_path / "back/set.zip").ok


OTHER_FORMS = {
    "type": {"format": "lzmaf", "type": "i2", "shape": [4, 8]},
    "shape": {"format": "lzmaf", "type": "u2", "shape": [4, 4, 2]},
    "compression": {"format": "raw", "type": "u2", "shape": [4, 8]},
    "missing": None,
}


@pytest.mark.parametrize("other", OTHER_FORMS)
def test_depth_of_a_lidar_in_another_form_is_told_and_its_reflectivity_kept(whole, tmp_path, other):
    made_by_hand(tmp_path / "drive")
    shutil.copytree(whole.traces / whole.name / "camera", tmp_path / "drive/camera")
    np.array([100.0 + n * 0.01 for n in range(90)]).tofile(tmp_path / "drive/camera/ts")
    described = json.loads((tmp_path / "drive/lidar/meta.json").read_text())
    described["rng"] = OTHER_FORMS[other]
    kept = {name: form for name, form in described.items() if form is not None}
    (tmp_path / "drive/lidar/meta.json").write_text(json.dumps(kept))
    if other == "compression":
        np.zeros((3, 4, 8), "<u2").tofile(tmp_path / "drive/lidar/rng")
    told = restored(tmp_path / "drive", tmp_path / "back")
    assert told["drive/lidar/rfl"].where == "lidar.jpeg"
    assert ("drive/lidar/rng" in told) == (other != "missing")
    if other != "missing":
        assert (told["drive/lidar/rng"].where, told["drive/lidar/rng"].lost) == ("", "a dataset has no place for it")
    members = [name for sample in Dataset(tmp_path / "back/drive.zip") for name in sample.inputs]
    assert "lidar.reflect" in members
    assert "lidar.depth" not in members


@pytest.mark.parametrize("axes", [True, False])
def test_a_cube_beside_points_is_a_cube_and_without_its_axes_is_told(whole, tmp_path, axes):
    """Points in the folder of the cube make no cloud of it."""
    shutil.copytree(whole.traces / whole.name, tmp_path / "drive")
    cube, points = tmp_path / "drive/radar_cube", tmp_path / "drive/radar_points"
    described = json.loads((cube / "meta.json").read_text())
    for name in ("xyz", "length"):
        shutil.copy(points / name, cube / name)
        described[name] = json.loads((points / "meta.json").read_text())[name]
    (cube / "meta.json").write_text(json.dumps(described))
    if not axes:
        (cube / "radar.json").unlink()
    told = restored(tmp_path / "drive", tmp_path / "back")
    assert told["drive/radar_cube/cube"].where == ("radar.png" if axes else "")
    assert told["drive/radar_cube/xyz"].where == told["drive/radar_cube/length"].where == ""


def test_points_need_their_number_and_no_height(whole, tmp_path):
    """A cube in the folder of points without `length` is no cloud; of a cloud, `height` may be missing."""
    shutil.copytree(whole.traces / whole.name, tmp_path / "drive")
    for sensor, channel in (("radar_points", "length"), ("lidar_points", "height")):
        described = json.loads((tmp_path / "drive" / sensor / "meta.json").read_text())
        kept = {name: form for name, form in described.items() if name in ("ts", "xyz", "length") and name != channel}
        if sensor == "radar_points":
            kept |= json.loads((tmp_path / "drive/radar_cube/meta.json").read_text())
            for name in ("cube", "cube_i", "radar.json"):
                shutil.copy(tmp_path / "drive/radar_cube" / name, tmp_path / "drive/radar_points" / name)
        (tmp_path / "drive" / sensor / "meta.json").write_text(json.dumps(kept))
    shutil.rmtree(tmp_path / "drive/radar_cube")
    told = restored(tmp_path / "drive", tmp_path / "back")
    assert {what: line.where for what, line in told.items() if "_points" in what} == {
        "drive/lidar_points": "lidar.pcd",
        "drive/radar_points/cube": "",
        "drive/radar_points/xyz": "",
    }


def test_traces_without_a_camera_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="contains no roverd trace"):
        restored(tmp_path, tmp_path / "one")
    made_by_hand(tmp_path / "set/drive")
    with pytest.raises(DatasetError, match=r"no trace has a video\.avi"):
        restored(tmp_path / "set", tmp_path / "two")
    assert not list((tmp_path / "two").iterdir())


def test_a_trace_without_a_camera_beside_one_with_it_is_named(recording, tmp_path):
    paths = convert(recording(**{**RECIPE, "seconds": 1}), tmp_path / "set").paths
    exported(paths.container, tmp_path / "traces")
    made_by_hand(tmp_path / "traces/other")
    told = restored(tmp_path / "traces", tmp_path / "back")
    assert {line.lost for what, line in told.items() if what.startswith("other/")} == {
        "no samples: no camera/video.avi of the format mjpg"
    }


def test_each_sensor_of_a_rig_has_a_folder_of_its_own(tmp_path):
    path, rig = write_two_of_each(tmp_path, seconds=1.0)
    paths = convert(path, tmp_path / "set", rig=rig).paths
    told = exported(paths.container, tmp_path / "traces")
    trace, samples = tmp_path / "traces" / "rigged", [*Dataset(paths.container)]
    for folder, key, column in (
        ("camera", "camera", "timestamp"),
        ("camera_left", "camera.left", "camera_left_timestamp"),
        ("lidar_points", "lidar.points", "lidar_points_timestamp"),
        ("lidar_points_rear", "lidar.points.rear", "lidar_points_rear_timestamp"),
    ):
        sent = {one.row[column]: one for one in samples}
        stamps = np.fromfile(trace / folder / "ts", "<f8")
        np.testing.assert_allclose(stamps, np.array(sorted(sent)) / 1e9, rtol=0, atol=1e-6)
        place = json.loads((trace / folder / "extrinsics.json").read_text())["sensor_to_parent"]
        if key.startswith("camera"):
            assert avi_chunks(trace / folder / "video.avi") == [one.read(key) for one in sent.values()]
            info = json.loads((trace / folder / "intrinsics.json").read_text())
            assert info == samples[0].calibration.info_of(key)
            continue
        assert [row[3] for row in place[:3]] == list({"lidar.points": LIDAR, "lidar.points.rear": REAR}[key])
        clouds = np.fromfile(trace / folder / "xyz", "<f4").reshape(len(sent), -1, 3)
        lengths = np.fromfile(trace / folder / "length", "<i4")
        for cloud, length, one in zip(clouds, lengths, sent.values(), strict=True):
            np.testing.assert_array_equal(cloud[:length], np.stack([one.lidar(key)[axis] for axis in "xyz"], -1))
    assert told["camera-left.jpeg"].where == "camera_left/video.avi"
    assert told["lidar-rear.pcd"].where == "lidar_points_rear/"
    lines = restored(tmp_path / "traces", tmp_path / "back")
    assert lines["rigged/camera_left/video.avi"].where == "camera-left.jpeg"
    back = Dataset(tmp_path / "back" / "traces.zip")
    assert validate(back.paths.container).errors == 0
    both = [one for one in back if "lidar.points.rear" in one.inputs and "camera.left" in one.inputs]
    assert len(both) > 20
    for one, sent in zip(back, samples, strict=True):
        for key in one.inputs - {"camera"}:
            column = key.replace(".", "_")
            assert abs(one.row[f"{column}_timestamp"] - sent.row[f"{column}_timestamp"]) < 1000
            assert one.read(key)[-1000:] == sent.read(key)[-1000:]
    assert back[5].image("camera.left").shape == (64, 128, 3)
