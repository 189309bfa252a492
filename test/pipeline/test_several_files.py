# SPDX-License-Identifier: Apache-2.0
"""Parts of one recording, folders of recordings, names of sequences, several cameras: whole conversions of them."""

import random
import shutil

import pytest
import zstandard
from bags import bag, messages, together, write
from written import members, rows

from edgefirst_ros import Dataset, convert
from edgefirst_ros.errors import DatasetError, RecordingError, UsageError

SMALL = {"seconds": 2, "size": (128, 64), "fps": 20.0, "gop": 12, "cube_shape": (1, 8, 2, 8), "lidar_points": 20}
STILL = {"seconds": 0.5, "size": (128, 64), "fps": 10.0, "codec": "jpeg", "topics": {"camera"}}


def same(one, other):
    assert members(one) == members(other)
    assert rows(one.paths.frames) == rows(other.paths.frames)
    assert rows(one.paths.arrow) == rows(other.paths.arrow)
    assert one.counts.plain() == other.counts.plain()


@pytest.fixture(scope="module")
def uncut(recording, tmp_path_factory):
    """A recording with B-frames, its messages, and what it gives."""
    path = recording(b_frames=2, open_gop=True, **SMALL)
    folder = tmp_path_factory.mktemp("uncut")
    whole = write(folder / "drive.mcap", messages(path))
    return whole, messages(path), convert(whole, folder / "out")


# ---- parts of one recording --------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(4))
def test_a_rosbag2_folder_equals_the_uncut_recording(uncut, tmp_path, seed):
    _, found, expected = uncut
    cuts = sorted(random.Random(seed).sample(range(1, len(found)), seed + 1))
    folder = bag(tmp_path / "drive", found, cuts)
    outcome = convert(folder, tmp_path / "out")
    same(outcome, expected)
    assert outcome.exit_code == 0
    sources = Dataset(outcome.paths.container).metadata["sources"]
    assert [source["file"] for source in sources] == [f"drive_{n}.mcap" for n in range(seed + 2)]
    assert Dataset(outcome.paths.container).metadata["sequences"]["drive"]["sources"] == list(range(seed + 2))


@pytest.mark.parametrize("begin", ["", "drive/"])
def test_the_order_of_the_metadata_counts(uncut, tmp_path, begin):
    """Twelve files: the eleventh does not stand behind the second; older metadata name the folder too."""
    _, found, expected = uncut
    folder = bag(tmp_path / "drive", found, [n * len(found) // 12 for n in range(1, 12)], begin=begin)
    same(convert(folder / "metadata.yaml" if begin else folder, tmp_path / "out"), expected)


def test_a_rosbag2_folder_of_compressed_files_is_read_once_they_are_unpacked(uncut, tmp_path):
    """As `ros2 bag record --compression-mode file` leaves it, and then as `zstd -d *.zstd` does."""
    _, found, expected = uncut
    folder = bag(tmp_path / "drive", found, [len(found) // 2])
    metadata = folder / "metadata.yaml"
    text = metadata.read_text().replace('compression_mode: ""', "compression_mode: FILE")
    metadata.write_text(text.replace(".mcap\n", ".mcap.zstd\n"))
    unpacked = [file.rename(tmp_path / file.name) for file in sorted(folder.glob("*.mcap"))]
    for file in unpacked:
        (folder / f"{file.name}.zstd").write_bytes(zstandard.compress(file.read_bytes()))
        with pytest.raises(RecordingError, match=r"compressed as a whole; unpack them beside it: zstd -d \*\.zstd"):
            convert(folder, tmp_path / "out")
        file.rename(folder / file.name)
    same(convert(folder, tmp_path / "out"), expected)


def test_joined_files_are_one_recording_in_any_order(uncut, tmp_path):
    _, found, expected = uncut
    folder = bag(tmp_path / "drive", found, [100, 101, 300])
    (folder / "metadata.yaml").unlink()
    first, *rest = sorted(folder.iterdir())
    first = first.rename(folder / "drive.mcap")
    same(convert([first, *rest], tmp_path / "out", join=True), expected)
    mixed = convert([first, *rest[::-1]], tmp_path / "mixed", join=True)
    assert members(mixed) == members(expected)
    apart = convert([first, *rest], tmp_path / "apart", name="apart")
    assert apart.samples < expected.samples  # what each file begins with has no keyframe before it
    assert len(Dataset(apart.paths.container).metadata["sequences"]) > 1


def test_one_damaged_part_is_named(uncut, tmp_path):
    _, found, expected = uncut
    folder = bag(tmp_path / "drive", found, [150, 300])
    second = folder / "drive_1.mcap"
    data = bytearray(second.read_bytes())
    data[len(data) // 3] ^= 0xFF
    second.write_bytes(data)
    outcome = convert(folder, tmp_path / "out")
    assert outcome.exit_code == 3
    assert 0 < outcome.samples < expected.samples
    assert any(note.startswith("drive_1.mcap: at byte ") for note in outcome.notes)
    sources = Dataset(outcome.paths.container).metadata["sources"]
    assert ["damage" in source for source in sources] == [False, True, False]


def test_an_interrupted_one_goes_on_and_is_known_when_finished(uncut, tmp_path, monkeypatch):
    _, found, expected = uncut
    folder = bag(tmp_path / "drive", found, [200])

    class Stopped(Exception):
        pass

    def stop(what, done, of):
        if what.startswith("converting") and done > 250:
            raise Stopped

    with pytest.raises(Stopped):
        convert(folder, tmp_path / "out", progress=stop)
    same(convert(folder, tmp_path / "out"), expected)
    assert convert(folder, tmp_path / "out", resume=True).samples == expected.samples
    write(folder / "drive_1.mcap", found[200:-1])
    with pytest.raises(DatasetError, match=r"drive_1.mcap is not the recording it was made from"):
        convert(folder, tmp_path / "out", resume=True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("nothing: 1", "names no files; expected rosbag2_bagfile_information with relative_file_paths"),
        ("rosbag2_bagfile_information: {relative_file_paths: []}", "names no files; expected"),
        (
            "rosbag2_bagfile_information: {relative_file_paths: [a.db3], storage_identifier: sqlite3}",
            "a.db3: no such file",
        ),
        ("rosbag2_bagfile_information: {relative_file_paths: [../../x.mcap]}", "names '../../x.mcap'; expected a file"),
        ("rosbag2_bagfile_information: {relative_file_paths: [/etc/passwd]}", "names '/etc/passwd'"),
        ("rosbag2_bagfile_information: {relative_file_paths: [a.mcap, a.mcap]}", "names a file twice"),
        ("rosbag2_bagfile_information: {relative_file_paths: [gone.mcap]}", "gone.mcap: no such file"),
        ("rosbag2_bagfile_information: {relative_file_paths: [a.mcap.zstd], compression_mode: FILE}", "as a whole"),
        ("a: [", "cannot be read as YAML"),
    ],
)
def test_a_broken_rosbag2_folder_is_an_error_that_names_it(tmp_path, text, what):
    folder = tmp_path / "drive"
    folder.mkdir()
    (folder / "metadata.yaml").write_text(text)
    with pytest.raises(RecordingError, match="drive") as caught:
        convert(folder, tmp_path / "out")
    assert what in str(caught.value)
    assert not (tmp_path / "out").exists()


# ---- folders and names -------------------------------------------------------------------------
def test_a_folder_is_all_recordings_in_it(recording, tmp_path):
    path = recording(**STILL)
    folder = tmp_path / "drives"
    (folder / "june").mkdir(parents=True)
    shutil.copy(path, folder / "one_2.mcap")
    shutil.copy(path, folder / "june" / "one_10.mcap")
    (folder / "notes.txt").write_text("not a recording")
    bag(folder / "bagged", messages(path), [2])
    outcome = convert(folder, tmp_path / "out")
    assert outcome.paths.name == "out"
    assert list(Dataset(outcome.paths.container).metadata["sequences"]) == ["bagged", "one_10", "one_2"]
    assert outcome.samples == 15


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(
        RecordingError, match=r"is a directory without recordings; expected \*.mcap, \*.db3, \*.bag or rosbag2"
    ):
        convert(tmp_path, tmp_path / "out")


def test_equal_names_are_told_apart_by_sequence(recording, tmp_path):
    path = recording(**STILL)
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        shutil.copy(path, tmp_path / name / "rec.mcap")
    left, right = tmp_path / "left" / "rec.mcap", tmp_path / "right" / "rec.mcap"
    with pytest.raises(
        UsageError, match=rf"both become the sequence rec: name one of them with --sequence NAME={right}"
    ):
        convert([left, right], tmp_path / "out")
    outcome = convert([left, right], tmp_path / "out", sequences={"other": right}, group={"val": "oth*"})
    assert list(Dataset(outcome.paths.container).metadata["sequences"]) == ["rec", "other"]
    assert outcome.groups.groups.keys() >= {"val"}
    outcome = convert([], tmp_path / "more", sequences={"a": left, "b": right})
    assert list(Dataset(outcome.paths.container).metadata["sequences"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("sequences", "options", "what"),
    [
        ({"a": "gone.mcap"}, {"join": True}, "is not one of the joined files"),
        ({"a": "rec.mcap", "b": "rec.mcap"}, {}, "is a already"),
        ({"a": "many"}, {}, "is a folder of 2 recordings"),
    ],
)
def test_names_that_fit_nothing_are_refused(recording, tmp_path, monkeypatch, sequences, options, what):
    monkeypatch.chdir(tmp_path)
    path = recording(**STILL)
    shutil.copy(path, "rec.mcap")
    (tmp_path / "many").mkdir()
    for name in ("x", "y"):
        shutil.copy(path, f"many/{name}.mcap")
    with pytest.raises(UsageError, match=what):
        convert("rec.mcap", "out", sequences=sequences, **options)
    assert not (tmp_path / "out").exists()


# ---- several cameras ---------------------------------------------------------------------------
@pytest.fixture(scope="module")
def cameras(recording, tmp_path_factory):
    """One drive of two cameras: each has a CameraInfo of its own on one topic, told apart by frame_id alone."""
    common = {"seconds": 2, "fps": 10.0, "gop": 8, "lidar_points": 20}
    front = recording(size=(128, 64), topics={"camera", "camera/info", "lidar/points", "gps", "tf_static"}, **common)
    rear = recording(
        size=(192, 96), topics={"camera", "camera/info"}, codec="h265", latency_ms={"camera": 20}, **common
    )
    streams = []
    for path, name in ((front, "front"), (rear, "rear")):
        found = []
        for schema, channel, message in messages(path):
            topic = channel.topic
            if topic.startswith("/camera/h26"):
                channel.topic = f"/{name}{topic}"
            if name == "rear":
                message.data = message.data.replace(b"camera_optical", b"camera_rear_op")
            found.append((schema, channel, message))
        streams.append(found)
    folder = tmp_path_factory.mktemp("cameras")
    return write(folder / "wagon_2026_01_15_12_00_00.mcap", together(*streams)), front, rear, folder


BOTH = ["/front/camera/h264", "/rear/camera/h265"]
NAMES = ["wagon-front-camera-h264_2026_01_15_12_00_00", "wagon-rear-camera-h265_2026_01_15_12_00_00"]


def test_each_camera_gives_a_sequence_with_its_own_calibration(cameras, tmp_path, monkeypatch):
    path = cameras[0]
    walks = []
    from edgefirst_ros.pipeline import conversion

    walk = conversion.walk
    monkeypatch.setattr(conversion, "walk", lambda *a, **k: walks.append(a) or walk(*a, **k))
    outcome = convert(path, tmp_path / "both", reference_topic=BOTH, group={"val": "wagon-rear*"})
    assert len(walks) == 1
    dataset = Dataset(outcome.paths.container)
    assert outcome.paths.name == path.stem
    assert list(dataset.metadata["sequences"]) == NAMES
    assert len(dataset.metadata["sources"]) == 1
    for name, topic, size, frame_id in zip(
        NAMES, BOTH, [(128, 64), (192, 96)], ["camera_optical", "camera_rear_op"], strict=True
    ):
        alone = convert(path, tmp_path / frame_id, name="alone", reference_topic=topic)
        known = dataset.metadata["sequences"][name]
        assert known["sources"] == [0]
        info = known["camera_info"]
        assert (info["width"], info["height"], info["frame_id"]) == (*size, frame_id)
        mine = {n.removeprefix(f"{name}/{name}"): d for n, d in members(outcome).items() if n.startswith(f"{name}/")}
        theirs = {n.removeprefix(f"{path.stem}/{path.stem}"): d for n, d in members(alone).items()}
        assert mine.keys() == theirs.keys()
        clouds = [n for n in mine if n.endswith(".lidar.pcd")]
        assert len(clouds) == 20
        assert all(mine[n] == theirs[n] for n in clouds)
        assert known["counts"] == Dataset(alone.paths.container).metadata["sequences"][path.stem]["counts"]
        assert Dataset(alone.paths.container).metadata["sequences"][path.stem]["camera_info"] == info
    assert outcome.groups.groups.keys() == {"val"}
    assert dataset.metadata["camera_info"] is None
    assert dataset.metadata["configuration"]["reference_topic"] == BOTH


def test_a_camera_without_its_own_info_has_none(cameras, tmp_path):
    path, *_, folder = cameras
    found = [item for item in messages(path) if b"camera_rear_op" not in item[2].data or "camera/h26" in item[1].topic]
    outcome = convert(write(folder / "half.mcap", found), tmp_path, reference_topic=BOTH)
    names = ["half-front-camera-h264", "half-rear-camera-h265"]
    infos = [Dataset(outcome.paths.container).metadata["sequences"][name]["camera_info"] for name in names]
    assert infos[0]["frame_id"] == "camera_optical"
    assert infos[1] is None


def test_a_pattern_that_matches_no_derived_name_lists_them(cameras, tmp_path):
    with pytest.raises(UsageError, match=rf"val=wagon_2026\* matches no sequence; known: {NAMES[1]}, {NAMES[0]}"):
        convert(cameras[0], tmp_path, reference_topic=BOTH, group={"val": "wagon_2026*"})
    with pytest.raises(UsageError, match="expected each topic once"):
        convert(cameras[0], tmp_path, reference_topic=[BOTH[0], BOTH[0]])
    with pytest.raises(UsageError, match="reference topic '/left' is not in the recording"):
        convert(cameras[0], tmp_path, reference_topic=[BOTH[0], "/left"])


def test_any_number_of_threads_and_an_interruption_give_the_same(cameras, tmp_path):
    path = cameras[0]
    made = [convert(path, tmp_path / str(jobs), reference_topic=BOTH, jobs=jobs) for jobs in (1, 3)]

    class Stopped(Exception):
        pass

    def stop(what, done, of):
        if what == f"converting {NAMES[1]}" and done > 30:
            raise Stopped

    with pytest.raises(Stopped):
        convert(path, tmp_path / "stopped", reference_topic=BOTH, progress=stop)
    made.append(convert(path, tmp_path / "stopped", reference_topic=",".join(BOTH)))
    for part in ("container", "arrow", "frames"):
        assert len({getattr(outcome.paths, part).read_bytes() for outcome in made}) == 1
