# SPDX-License-Identifier: Apache-2.0
"""Traces of roverd: every channel by an independent checker, there and back byte by byte, defects that must be seen."""

import filecmp
import io
import itertools
import json
import lzma
import shutil
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from roverd_checker import axis, faults, points_of, turn
from shared_data import REAL

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.writer import DatasetWriter, Sample
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.report import Report
from edgefirst_ros.export.roverd import export, restore
from edgefirst_ros.export.roverd.channels import stored
from edgefirst_ros.export.roverd.motion import euler, from_euler
from edgefirst_ros.limits import DEFAULT_LIMITS
from edgefirst_ros.synthetic.recipe import DEFAULT_TOPICS

TOPICS = (DEFAULT_TOPICS - {"model/output"}) | {"model/boxes2d", "model/mask", "fusion/boxes3d"}
RECIPE = {"seconds": 3, "size": (320, 180), "cube_shape": (2, 16, 4, 32), "lidar_points": 200, "topics": TOPICS}


def quiet(*_):
    pass


def exported(path, out):
    """Export a dataset; the report by what was exported."""
    report = Report("roverd")
    out.mkdir()
    export(Dataset(path), out, report, quiet)
    return {line.what: line for line in report.lines}


def restored(source, out):
    report = Report("roverd")
    out.mkdir()
    restore(source, out, DEFAULT_LIMITS, report, quiet)
    return {line.what: line for line in report.lines}


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def assert_same_files(one, other):
    assert files(one) == files(other)
    assert not [name for name in files(one) if not filecmp.cmp(one / name, other / name, shallow=False)]


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
        "radar": {"ts", "cube"},
        "radar_points": {"ts", "xyz", "length", "height", "speed", "power", "rcs"},
        "lidar_points": {"ts", "xyz", "length", "height", "reflect"},
        "gps": {"ts", "lla"},
        "imu": {"ts", "rot"},
        "_camera": {"ts", "segment"},
    }
    schema = (trace / "edgefirst.schema.yaml").read_text()
    assert schema.splitlines() == [
        *(f'"{name}": {json.dumps(list(json.loads((trace / name / "meta.json").read_text())))}' for name in
          ("camera", "radar", "radar_points", "lidar_points", "_camera", "gps", "imu")),
        '"_": ["_radar/pose.npz"]',
    ]  # fmt: skip
    assert files(whole.traces / "_edgefirst") == sorted(
        ["dataset.json", f"{whole.name}.arrow", f"{whole.name}.frames.arrow", "samples.jsonl"]
    )


def test_a_message_of_several_samples_is_one_entry(whole):
    ts = np.fromfile(whole.traces / whole.name / "lidar_points/ts")
    assert len(ts) == 30 < len(Dataset(whole.paths.container)) == 90


def test_the_report_says_where_all_went(whole):
    told = whole.told
    assert told["camera.jpeg"].where == "camera/video.avi"
    assert told["camera.jpeg"].number == 90
    assert told["mask of classes"].number == 30
    assert told["acceleration, angular velocity"].where == ""
    assert "imu/acc" in told["acceleration, angular velocity"].lost
    columns = {name for line in told for name in line.split(", ")}
    assert {
        *Dataset(whole.paths.container).annotation_columns,
        *Dataset(whole.paths.container).frames.columns,
    } <= columns


@pytest.mark.skipif(not REAL, reason="the real recordings are not at hand")
@pytest.mark.parametrize("path", [path for path in REAL if "comma" not in path.name], ids=lambda path: path.name[:8])
def test_real_recordings(path, tmp_path):
    paths = convert(path, tmp_path / "dataset", rate=2).paths
    exported(paths.container, tmp_path / "traces")
    assert faults(tmp_path / "traces" / paths.name, paths.out, paths.name) == []
    restored(tmp_path / "traces", tmp_path / "back")
    assert_same_files(paths.out, tmp_path / "back")


@pytest.mark.parametrize("size", [0, 1, 3, 65535, 65536, 65537, 300001])
def test_what_is_not_compressed_is_an_xz_all_the_same(size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert lzma.decompress(b"".join(stored(data)), lzma.FORMAT_XZ) == data.tobytes()


def test_euler_angles_are_those_of_their_matrices():
    angles = np.random.default_rng(0).uniform(-1.5, 1.5, (50, 3))
    turns = np.array([axis(a, 0) @ axis(b, 1) @ axis(c, 2) for a, b, c in angles])
    assert np.allclose(euler(turns), angles)
    assert np.allclose([turn(q) for q in from_euler(angles)], turns)
    upright = axis(0.3, 0) @ axis(np.pi / 2, 1) @ axis(0.4, 2)
    assert np.allclose(turn(from_euler(euler(upright[None]))[0]), upright, atol=1e-7)


# ---- there and back -----------------------------------------------------------------------------
def test_there_and_back_every_file_is_the_same(whole, tmp_path):
    restored(whole.traces, tmp_path / "back")
    assert_same_files(whole.paths.out, tmp_path / "back")


def test_there_and_back_as_folders_and_with_two_sequences(recording, tmp_path):
    recordings = [recording(**{**RECIPE, "seconds": 1, "host": host}) for host in ("one", "two")]
    paths = convert(recordings, tmp_path / "dataset", layout="directory").paths
    exported(paths.container, tmp_path / "traces")
    assert sorted(p.name for p in tmp_path.glob("traces/*")) == sorted(["_edgefirst", *(p.stem for p in recordings)])
    restored(tmp_path / "traces", tmp_path / "back")
    assert_same_files(paths.out, tmp_path / "back")
    with pytest.raises(DatasetError, match="one of several parts"):
        restored(tmp_path / "traces" / recordings[0].stem, tmp_path / "part")


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


def test_what_has_no_home_comes_back_too(tmp_path):
    with DatasetWriter(tmp_path / "dataset", "odd") as writer:
        for n, members in enumerate(ODD):
            writer.write(Sample("host", n, 10**18 + n * 10**8, [(kind, [data]) for kind, data in members.items()]))
        writer.finish({})
    told = exported(tmp_path / "dataset/odd.zip", tmp_path / "traces")
    homeless = {
        "host_001.camera.jpeg", "host_002.camera.png", "host_004.camera.jpeg", "host_003.lidar.pcd",
        "host_004.lidar.pcd", "host_005.lidar.pcd", "host_005.depth.png", "host_006.radar.png", "host_006.lidar.jpeg",
        "host_007.radar.pcd",
    }  # fmt: skip
    assert {path.name for path in tmp_path.glob("traces/_edgefirst/members/host/*")} == homeless
    assert told["camera.png"].where == "_edgefirst/members/"
    restored(tmp_path / "traces", tmp_path / "back")
    assert_same_files(tmp_path / "dataset", tmp_path / "back")
    trace = tmp_path / "traces/host"
    assert json.loads((trace / "lidar_points/meta.json").read_text())["xyz"]["shape"] == [6, 3]
    assert np.fromfile(trace / "lidar_points/height", "<i4").tolist() == [2, 1, 1]
    assert not (trace / "radar").exists()
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
    "swapped I/Q": lambda t: rewrite_frames(t / "radar/cube", SHAPE, lambda cube: cube[..., ::-1]),
    "receivers for ranges": lambda t: rewrite_frames(t / "radar/cube", SHAPE, lambda cube: cube.swapaxes(1, 2)),
    "index off by one": lambda t: edited(t / "radar/cube_i", "<u8", lambda v: np.where(v == v[3], v + 1, v)),
    "index one short": lambda t: edited(t / "radar/cube_i", "<u8", lambda v: v[:-1]),
    "index begins at the first end": lambda t: edited(t / "radar/cube_i", "<u8", lambda v: np.append(v[1:], v[-1])),
    "cube cut": lambda t: (t / "radar/cube").write_bytes((t / "radar/cube").read_bytes()[:-5]),
    "transposed rotation": transposed_pose,
    "transposed extrinsics": transposed_place,
    "shifted stamps": lambda t: edited(t / "camera/ts", "<f8", lambda v: np.append(v[1:], v[-1] + 0.03)),
    "stamps in milliseconds": lambda t: edited(t / "gps/ts", "<f8", lambda v: v * 1000),
    "stamps that do not rise": lambda t: edited(t / "imu/ts", "<f8", lambda v: v[::-1]),
    "channel one short": lambda t: edited(t / "lidar_points/length", "<i4", lambda v: v[:-1]),
    "channel cut": lambda t: (t / "lidar_points/xyz").write_bytes((t / "lidar_points/xyz").read_bytes()[:-7]),
    "padding": lambda t: edited(t / "radar_points/length", "<i4", lambda v: np.maximum(v - 1, 0)),
    "x for y": lambda t: edited(t / "lidar_points/xyz", "<f4", lambda v: v.reshape(-1, 3)[:, [1, 0, 2]].ravel()),
    "longitude first": lambda t: edited(t / "gps/lla", "<f8", lambda v: v.reshape(-1, 3)[:, [1, 0, 2]].ravel()),
    "mirrored yaw": lambda t: edited(t / "imu/rot", "<f4", lambda v: (v.reshape(-1, 3) * [1, 1, -1]).ravel()),
    "changed picture": changed_picture,
    "no config.yaml": lambda t: (t / "config.yaml").unlink(),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_are_seen(whole, tmp_path, defect):
    trace = tmp_path / whole.name
    shutil.copytree(whole.traces / whole.name, trace)
    DEFECTS[defect](trace)
    assert faults(trace, whole.paths.out, whole.name)


@pytest.mark.parametrize(
    "defect", ["swapped I/Q", "index off by one", "cube cut", "channel cut", "x for y", "changed picture"]
)
def test_a_trace_that_was_changed_is_not_taken_for_what_it_was(whole, tmp_path, defect):
    shutil.copytree(whole.traces, tmp_path / "traces")
    DEFECTS[defect](tmp_path / "traces" / whole.name)
    with pytest.raises(DatasetError):
        restored(tmp_path / "traces", tmp_path / "back")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("dataset.json", "{}"),
        ("dataset.json", '{"form": "another", "name": "a", "layout": "zip", "annotations": null, "frames": null}'),
        ("dataset.json", "[1"),
        ("samples.jsonl", "[]\n"),
        ("samples.jsonl", '{"sequence": "../a", "frame": 0, "timestamp": 0, "members": {"camera.jpeg": [1, 1]}}\n'),
        ("samples.jsonl", '{"sequence": "a", "frame": 0, "timestamp": 0, "members": {"camera.jpeg": [1, 1, "gps"]}}\n'),
        ("samples.jsonl", '{"sequence": "a", "frame": "0", "timestamp": 0, "members": {"camera.jpeg": [1, 1]}}\n'),
        ("samples.jsonl", '{"sequence": "a", "frame": 0, "timestamp": 0, "members": {"camera.jpeg": 7}}\n'),
    ],
)
def test_broken_side_data_are_refused(whole, tmp_path, file, text):
    shutil.copytree(whole.traces, tmp_path / "traces")
    (tmp_path / "traces/_edgefirst" / file).write_text(text)
    with pytest.raises(DatasetError):
        restored(tmp_path / "traces", tmp_path / "back")


# ---- traces of others ---------------------------------------------------------------------------
def test_a_trace_of_others_gives_what_maps(whole, tmp_path):
    shutil.copytree(whole.traces / whole.name, tmp_path / "drive")
    told = restored(tmp_path / "drive", tmp_path / "back")
    before, after = Dataset(whole.paths.container), Dataset(tmp_path / "back/drive.zip")
    assert len(after) == len(before) == 90
    for old, new in zip(before.samples(), after.samples(), strict=True):
        assert abs(new.timestamp - old.timestamp) < 300
        assert new.read("camera") == old.read("camera")
        if "radar.pcd" in old.inputs:
            assert np.array_equal(points_of(new.read("radar.pcd"))["x"], points_of(old.read("radar.pcd"))["x"])
        if old.row["orientation"] is not None:
            assert np.allclose(turn(new.row["orientation"]), turn(old.row["orientation"]), atol=1e-5)
            assert new.position == old.position
    assert told["drive/radar/cube"].where == ""
    assert told["drive/radar_points"].where == "radar.pcd"


def made_by_hand(folder):
    """A trace with a lidar in roverd's own form and raw I/Q, written with numpy and lzma."""
    (folder / "lidar").mkdir(parents=True)
    (folder / "radar").mkdir()
    (folder / "config.yaml").write_text("a: 1\n")
    depth = np.arange(4 * 8, dtype="<u2").reshape(4, 8)
    parts = [lzma.compress((depth + n).tobytes()) for n in range(3)]
    (folder / "lidar/rng").write_bytes(b"".join(parts))
    np.array([0, *np.cumsum([len(part) for part in parts])], "<u8").tofile(folder / "lidar/rng_i")
    for sensor, channel in (("lidar", "rng"), ("radar", "iq")):
        np.array([100.0, 100.1, 100.2]).tofile(folder / sensor / "ts")
        form = {"format": "lzmaf" if channel == "rng" else "raw", "type": "u2" if channel == "rng" else "i2"}
        described = {"ts": {"format": "raw", "type": "f8", "shape": []}, channel: {**form, "shape": [4, 8]}}
        (folder / sensor / "meta.json").write_text(json.dumps(described))
    np.zeros((3, 4, 8), "<i2").tofile(folder / "radar/iq")
    return depth


def test_depth_of_a_lidar_becomes_a_picture_and_raw_iq_nothing(whole, tmp_path):
    depth = made_by_hand(tmp_path / "set/drive")
    shutil.copytree(whole.traces / whole.name / "camera", tmp_path / "set/drive/camera")
    np.array([100.04 + n * 0.01 for n in range(90)]).tofile(tmp_path / "set/drive/camera/ts")
    told = restored(tmp_path / "set", tmp_path / "back")
    assert told["drive/radar/iq"].where == ""
    with zipfile.ZipFile(tmp_path / "back/set.zip") as archive:
        pictures = {
            name[-13:-10]: np.asarray(Image.open(io.BytesIO(archive.read(name))))
            for name in archive.namelist()
            if name.endswith(".lidar.png")
        }
    assert np.array_equal(pictures["000"], depth)
    assert np.array_equal(pictures["002"], depth + 1)  # 100.06 s
    assert sorted(pictures)[-1] == "026"  # 100.30 s, the last one within 100 ms of 100.20 s


def test_traces_without_a_camera_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="no trace of roverd"):
        restored(tmp_path, tmp_path / "one")
    made_by_hand(tmp_path / "set/drive")
    with pytest.raises(DatasetError, match=r"no trace has a video\.avi"):
        restored(tmp_path / "set", tmp_path / "two")
    assert not list((tmp_path / "two").iterdir())
