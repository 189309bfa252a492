# SPDX-License-Identifier: Apache-2.0
"""Datasets made by zipfile, pyarrow and Pillow, read back; the pixels by Pillow, the tables by hand."""

import gc
import io
import pickle
import struct
import time
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import handmade_dataset as made
import numpy as np
import polars as pl
import pytest
from handmade_dataset import FRAMES, SEQUENCE, name_of, stamp_of
from open_files import list_open_files
from PIL import Image

from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.errors import DatasetError, UsageError


@pytest.fixture(params=["zip", "directory"])
def dataset(tmp_path, request) -> Dataset:
    return Dataset(made.write(tmp_path, made.good(), request.param))


@pytest.mark.parametrize("spelling", ["data.zip", "data", "data.arrow", "data.frames.arrow"])
def test_zip_opens_by_any_of_its_names(tmp_path, spelling):
    made.write(tmp_path, made.good())
    assert len(Dataset(tmp_path / spelling)) == 3


@pytest.mark.parametrize("spelling", ["data", "data/", "data/data.arrow", "data/data.frames.arrow"])
def test_directory_opens_by_any_of_its_names(tmp_path, spelling):
    made.write(tmp_path, made.good(), "directory")
    assert len(Dataset(f"{tmp_path}/{spelling}")) == 3


def test_samples_and_their_inputs(dataset):
    assert dataset.sequences == [SEQUENCE]
    assert [(s.name, s.frame, s.timestamp) for s in dataset.samples()] == [(SEQUENCE, f, stamp_of(f)) for f in FRAMES]
    assert [s.inputs for s in dataset.samples()] == [
        {"camera", "radar.cube", "radar.targets", "lidar.points"},
        {"camera", "radar.cube", "lidar.points"},
        {"camera", "lidar.points"},
    ]


@pytest.mark.parametrize(
    ("inputs", "frames"),
    [
        (None, [3, 4, 7]),
        (set(), [3, 4, 7]),
        ({"camera"}, [3, 4, 7]),
        ({"camera", "radar.cube"}, [3, 4]),
        ({"radar"}, [3]),
        ({"radar.pcd", "lidar"}, [3]),
        ({"radar.targets", "lidar_points"}, [3]),
        ({"radar.clusters"}, []),
        ({"lidar.pcd"}, [3, 4, 7]),
        ({"depth"}, []),
    ],
)
def test_only_samples_with_all_wanted_inputs(dataset, inputs, frames):
    assert [sample.frame for sample in dataset.samples(inputs)] == frames


def test_unknown_input_is_refused_at_once(dataset):
    with pytest.raises(UsageError, match=r"'sonar'.*radar.cube"):
        dataset.samples({"sonar"})


def test_order_is_that_of_the_frames_table(tmp_path):
    parts = made.good()
    parts.frames = [parts.frames[2], parts.frames[0]]
    parts.members["a/a_1.camera.jpeg"] = made.jpeg(3)
    ds = Dataset(made.write(tmp_path, parts))
    assert [(s.name, s.frame) for s in ds.samples()] == [(SEQUENCE, 7), (SEQUENCE, 3), (SEQUENCE, 4), ("a", 1)]
    assert ds.sequences == [SEQUENCE, "a"]


def test_bytes_are_those_stored(dataset):
    sample = dataset.sample(SEQUENCE, 3)
    assert sample.read("camera") == sample.read("camera.jpeg") == made.jpeg(3)
    assert sample.read("radar.cube") == sample.read("radar.png") == made.cube_png(3)
    assert sample.read("radar") == made.cloud(3)


def test_image_is_near_what_was_drawn(dataset):
    for sample in dataset.samples():
        image = sample.image()
        assert image.shape == (24, 32, 3)
        assert image.dtype == np.uint8
        with Image.open(io.BytesIO(sample.read("camera"))) as picture:
            wanted = np.asarray(picture).astype(int)
        assert np.abs(image - wanted).max() <= 3
        assert 19 < image[..., 2].mean() / sample.frame < 21  # blue is 20 times the number


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA"])
def test_png_pictures(tmp_path, mode):
    parts, out = made.good(), io.BytesIO()
    picture = Image.fromarray(made.pixels(3)).convert(mode)
    picture.save(out, "PNG")
    parts.members.pop(name_of(3, "camera.jpeg"))
    parts.members[name_of(3, "camera.png")] = out.getvalue()
    image = Dataset(made.write(tmp_path, parts)).sample(SEQUENCE, 3).image()
    assert np.array_equal(image, np.asarray(picture.convert("RGB")))


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_jpeg_of_other_colours(tmp_path, mode):
    parts, out = made.good(), io.BytesIO()
    Image.fromarray(made.pixels(3)).convert(mode).save(out, "JPEG", quality=95)
    parts.members[name_of(3, "camera.jpeg")] = out.getvalue()
    image = Dataset(made.write(tmp_path, parts)).sample(SEQUENCE, 3).image()
    wanted = np.asarray(Image.open(io.BytesIO(out.getvalue())).convert("RGB")).astype(int)
    assert np.abs(image - wanted).max() <= 3


def test_cube_is_the_one_sent(dataset):
    cube = dataset.sample(SEQUENCE, 3).cube()
    sent = made.cube_values(3)
    assert np.array_equal(cube.raw(), sent)
    values = cube.complex()
    assert values.shape == (2, 2, 5, 3)
    assert values[1, 0, 4, 2] == complex(sent[1, 4, 0, 4], sent[1, 4, 0, 5])
    assert (cube.metres_per_range_bin, cube.speed_per_doppler_bin) == (0.5, 0.25)


def test_clouds(dataset):
    sample = dataset.sample(SEQUENCE, 3)
    radar, lidar = sample.radar(), sample.lidar()
    assert radar.shape == (3,)
    assert radar.dtype.names == ("x", "y", "z", "reflect")
    assert [tuple(point) for point in radar.tolist()] == [(3.0, n, 0.5, n) for n in range(3)]
    assert lidar.shape == (2, 3)
    assert lidar["reflect"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_deflated_cloud(tmp_path):
    path = made.write(tmp_path, made.good())
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name_of(4, "radar.pcd"), made.cloud(4, 250))
    assert Dataset(path).sample(SEQUENCE, 4).radar()["y"].tolist() == list(range(250))


def test_navigation_and_skew(dataset):
    third, fourth, seventh = dataset.samples()
    assert third.position == (45.5, -73.6, 31.5)
    assert fourth.position == (45.500001, -73.600002, None)
    assert seventh.position is None
    assert third.skew == {"radar.cube": 1000, "radar.targets": -5, "lidar.points": 0}
    assert seventh.skew == {"lidar.points": 0}


def test_annotations_of_a_sample(dataset):
    assert dataset.annotations.height == 5
    third, fourth, _ = dataset.samples()
    assert third.annotations["label"].to_list() == ["car", "person", "car"]
    assert third.annotations["box2d"].to_list()[0] == [0.5, 0.5, 0.25, 0.125]
    assert third.annotations["frame"].to_list() == [3, 3, 3]
    assert fourth.annotations.height == 0  # its one row says that there is nothing
    assert fourth.annotations.columns == dataset.annotations.columns


def test_annotations_in_any_order_of_rows(tmp_path):
    parts = made.good()
    first = [row for row in parts.annotations if row["frame"] == 3]
    others = [row | {"frame": 7, "label": label} for row, label in zip(first, "abc", strict=True)]
    parts.annotations = [others[0], first[0], others[1], first[1], others[2], first[2]]
    ds = Dataset(made.write(tmp_path, parts))
    assert ds.sample(SEQUENCE, 7).annotations["label"].to_list() == ["a", "b", "c"]
    assert ds.sample(SEQUENCE, 3).annotations["label"].to_list() == ["car", "person", "car"]


def test_metadata(dataset):
    found = dataset.metadata
    assert found["schema_version"] == "2026.04"
    assert found["labels"] == ["person", "car"]
    assert "box3d_format" not in found  # there are no such boxes
    assert found["counts"]["/camera/h264"] == {"seen": 8, "written": 3, "dropped": {"not sampled": 5}}
    assert found["camera_info"]["k"][0] == 30


def test_tables_are_those_polars_reads(dataset):
    assert dataset.frames.equals(pl.read_ipc(Path(dataset.paths.frames).read_bytes()))
    found, wanted = dataset.annotations, pl.read_ipc(Path(dataset.paths.arrow).read_bytes())
    assert {name: found.schema[name] for name in wanted.columns} == wanted.schema
    assert found.select(wanted.columns).equals(wanted)


def test_without_any_table(tmp_path):
    parts = made.good()
    parts.frames = parts.annotations = []
    ds = Dataset(made.write(tmp_path, parts))
    sample = ds[0]
    assert (ds.frames, ds.annotations.height, sample.timestamp, sample.position) == (None, 0, None, None)
    assert (sample.skew, sample.annotations.height) == ({}, 0)
    assert ds.metadata["schema_version"] == "2025.10"


FOREIGN: dict[str, dict] = {
    "enum": {
        "name": pl.Enum([SEQUENCE]),
        "frame": pl.UInt64,
        "label": pl.Enum(["car"]),
        "box2d": pl.Array(pl.Float64, 4),
    },
    "plain": {"name": pl.String, "frame": pl.Int16, "label": pl.String, "box2d": pl.List(pl.Float32)},
    "category": {"name": pl.Categorical, "frame": pl.Int64, "label": pl.Categorical, "box2d": pl.List(pl.Float64)},
}


@pytest.mark.parametrize("types", FOREIGN)
@pytest.mark.parametrize("form", ["arrow", "parquet"])
@pytest.mark.parametrize("number", ["7", "007", "000007"])
def test_datasets_of_other_tools(tmp_path, types, form, number):
    with zipfile.ZipFile(tmp_path / "data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{SEQUENCE}/{SEQUENCE}_{number}.camera.jpeg", made.jpeg(7))
    rows = {"name": [SEQUENCE], "frame": [7], "label": ["car"], "box2d": [[0.5, 0.5, 0.25, 0.125]]}
    table = pl.DataFrame(rows, schema=FOREIGN[types])
    table.write_ipc(tmp_path / "data.arrow") if form == "arrow" else table.write_parquet(tmp_path / "data.parquet")
    (sample,) = Dataset(tmp_path / ("data" if form == "arrow" else "data.parquet")).samples({"camera"})
    assert (sample.frame, sample.timestamp) == (7, None)
    assert sample.image().shape == (24, 32, 3)
    assert sample.annotations["label"].cast(pl.String).to_list() == ["car"]
    assert [list(box) for box in sample.annotations["box2d"]] == [[0.5, 0.5, 0.25, 0.125]]


def test_files_close_with_the_last_reference(dataset):
    before, until = list_open_files(dataset.paths.container.parent), time.monotonic() + 20
    for _ in range(3):
        Dataset(dataset.paths.container)[0].read("camera")
    while (now := list_open_files(dataset.paths.container.parent)) != before and time.monotonic() < until:
        time.sleep(0.05)
        gc.collect()  # collects nothing while another thread does
    assert now == before


@pytest.mark.parametrize("ask", [Dataset.calibration, Dataset.sequence_facts])
def test_a_sequence_that_is_not_there_is_an_error_that_lists_those_that_are(dataset, ask):
    with pytest.raises(UsageError, match=f"unknown sequence 'drvie'; known: {SEQUENCE}"):
        ask(dataset, "drvie")
    assert ask(dataset, SEQUENCE)


def test_single_pictures_are_samples_without_a_frame(tmp_path):
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("park.camera.jpeg", made.jpeg(3))
        archive.writestr("road.jpg", made.jpeg(4))
        archive.writestr("notes.txt", b"x")
    rows = {"name": ["road"], "frame": [None], "label": ["car"]}
    pl.DataFrame(rows, schema={"name": pl.String, "frame": pl.UInt32, "label": pl.String}).write_ipc(
        tmp_path / "data.arrow"
    )
    ds = Dataset(tmp_path / "data.zip")
    assert [(s.name, s.frame, s.annotations.height) for s in ds.samples({"camera"})] == [
        ("park", None, 0),
        ("road", None, 1),
    ]


def test_pickled_and_shared_by_threads(dataset):
    copy = pickle.loads(pickle.dumps(dataset.sample(SEQUENCE, 4)))
    assert copy.read("camera") == made.jpeg(4)
    wanted = made.good().members
    names = list(wanted) * 50
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(dataset.container.read, names)) == [wanted[name] for name in names]


# ---- errors name file and member -------------------------------------------------------------
def test_missing_things(dataset):
    with pytest.raises(DatasetError, match="has no frame 5; known: 4, 3, 7"):
        dataset.sample(SEQUENCE, 5)
    with pytest.raises(DatasetError, match=r"frame 7 .*has no radar.cube"):
        dataset.sample(SEQUENCE, 7).cube()
    with pytest.raises(UsageError, match="'sonar'"):
        dataset.sample(SEQUENCE, 7).read("sonar")


def test_nothing_there(tmp_path):
    with pytest.raises(DatasetError, match="no such file or directory"):
        Dataset(tmp_path / "data.zip")
    made.write(tmp_path, made.good()).unlink()
    with pytest.raises(DatasetError, match="without it the tables"):
        Dataset(tmp_path / "data.arrow")


@pytest.mark.parametrize("data", [b"", b"PK\x05\x06", b"x" * 1000, b"PK\x05\x06" + b"\xff" * 18])
def test_no_archive(tmp_path, data):
    (tmp_path / "data.zip").write_bytes(data)
    with pytest.raises(DatasetError, match=r"data\.zip: not a readable ZIP"):
        Dataset(tmp_path / "data.zip")


@pytest.mark.parametrize("kind", ["camera.jpeg", "radar.png", "radar.pcd"])
@pytest.mark.parametrize("spoilt", [b"", b"nonsense", None])
def test_broken_members_are_named(tmp_path, kind, spoilt):
    parts, name = made.good(), name_of(3, kind)
    parts.members[name] = parts.members[name][:60] if spoilt is None else spoilt
    sample = Dataset(made.write(tmp_path, parts)).sample(SEQUENCE, 3)
    read = {"camera.jpeg": sample.image, "radar.png": sample.cube, "radar.pcd": sample.radar}[kind]
    with pytest.raises(DatasetError, match=rf"data.zip.*{name}"):
        read()


def test_wrong_checksum(tmp_path):
    path = made.write(tmp_path, made.good())
    data = path.read_bytes()
    at = data.index(made.cloud(3)) + len(made.cloud(3)) - 1
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(DatasetError, match=r"3.radar.pcd.*CRC mismatch"):
        Dataset(path).sample(SEQUENCE, 3).radar()


def test_archive_cut_while_open(tmp_path):
    path = made.write(tmp_path, made.good())
    ds = Dataset(path)
    with path.open("r+b") as file:
        file.truncate(100)
    with pytest.raises(DatasetError, match="became shorter"):
        ds.sample(SEQUENCE, 7).read("lidar")


@pytest.mark.parametrize("table", ["data.arrow", "data.frames.arrow"])
def test_broken_table(tmp_path, table):
    path = made.write(tmp_path, made.good())
    (tmp_path / table).write_bytes(b"ARROW1\0\0 and nothing else")
    with pytest.raises(DatasetError, match=rf"{table}: cannot be read as a table"):
        Dataset(path)


def directory_sizes(path: Path, name: str, packed: int, size: int, method: int) -> None:
    """Change what the central directory says of a member."""
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02", data.rindex(name.encode()) - 60)
    struct.pack_into("<H", data, at + 10, method)
    struct.pack_into("<II", data, at + 20, packed, size)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("packed", "size", "method", "message"),
    [
        (0x7FFFFFFF, 0x7FFFFFFF, 0, "reach past its end"),
        (100, 0x7FFFFFFF, 0, "stored in 100 bytes"),
        (100, 0x7FFFFFFF, 8, "claim to unpack to 2147483647"),
        (100, 100, 12, "method 12"),
    ],
)
def test_hostile_sizes_allocate_nothing(tmp_path, packed, size, method, message):
    path = made.write(tmp_path, made.good())
    name = name_of(3, "radar.pcd")
    directory_sizes(path, name, packed, size, method)
    ds = Dataset(path)
    tracemalloc.start()
    with pytest.raises(DatasetError, match=message):
        ds.container.read(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_bomb_is_not_unpacked(tmp_path):
    """More bytes than the directory says are never made."""
    path, name = made.write(tmp_path, made.good()), name_of(4, "radar.pcd")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(50_000_000))
        packed = archive.getinfo(name).compress_size
    directory_sizes(path, name, packed, 1000, 8)
    ds = Dataset(path)
    tracemalloc.start()
    with pytest.raises(DatasetError, match="unpacks to 1001 bytes or more"):
        ds.container.read(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_huge_pictures_are_refused(tmp_path):
    parts = made.good()
    data = bytearray(parts.members[name_of(3, "camera.jpeg")])
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = b"\xff\xff\xff\xff"
    parts.members[name_of(3, "camera.jpeg")] = bytes(data)
    with pytest.raises(DatasetError, match=r"3.camera.jpeg.*pixels"):
        Dataset(made.write(tmp_path, parts)).sample(SEQUENCE, 3).image()


def test_path_that_no_file_system_takes(tmp_path):
    for name in ("x" * 300, "a\0b", f"{'y' * 300}/data.zip"):
        with pytest.raises(DatasetError):
            Dataset(tmp_path / name)


def test_facts_of_sequences_in_the_wrong_table_are_an_error(tmp_path):
    """Metadata of the annotations are told with those of the frames, whose form alone is checked when they are read."""
    parts = made.good()
    parts.annotation_metadata["sequences"] = "7"
    dataset = Dataset(made.write(tmp_path, parts))
    for ask in (dataset.calibration, dataset.sequence_facts):
        with pytest.raises(DatasetError, match=r"data\.frames\.arrow: the metadata sequences cannot be read"):
            ask(SEQUENCE)
