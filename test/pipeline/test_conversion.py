# SPDX-License-Identifier: Apache-2.0
"""Whole conversions: what comes out is judged by other programs, by the scene's truth, and by itself twice."""

import hashlib
import io
import itertools
import json
import math
import re
import shutil
import struct
import subprocess
import sys
import textwrap
from dataclasses import replace

import av
import cv2
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from bags import messages, write, write_two_of_each
from edgefirst.schemas import foxglove_msgs, sensor_msgs
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from PIL import Image
from pypcd4 import PointCloud
from shared_data import dataset
from streams import read_bar_code
from written import members

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError, RecordingError, UsageError
from edgefirst_ros.synthetic import Recipe, write_recording

EVERYTHING = {"seconds": 3, "size": (160, 96), "cube_shape": (2, 16, 4, 32), "lidar_points": 200}
LITTLE = {"fps": 10.0, "gop": 10, "size": (160, 96), "cube_shape": (1, 16, 2, 16), "lidar_points": 100}
"""Of each message, for what is about when they come."""


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rewritten(source, target, order=lambda chunks: chunks, compression=CompressionType.NONE, group=40, edit=bytes):
    """The messages of a recording in a new file, in chunks of `group` messages written in another order."""
    with source.open("rb") as file:
        found = [(s, c, m) for s, c, m in make_reader(file).iter_messages(log_time_order=False)]
    chunks = order([found[n : n + group] for n in range(0, len(found), group)])
    with target.open("wb") as file:
        writer = Writer(file, chunk_size=1, compression=compression)
        writer.start(profile="", library="test")
        known = {}
        for schema, channel, message in itertools.chain.from_iterable(chunks):
            if channel.topic not in known:
                number = writer.register_schema(schema.name, schema.encoding, schema.data)
                known[channel.topic] = writer.register_channel(channel.topic, channel.message_encoding, number)
            writer.add_message(
                known[channel.topic], message.log_time, edit(message.data), message.publish_time, message.sequence
            )
        writer.finish()
    return target


@pytest.fixture(scope="module")
def converted(recording, tmp_path_factory):
    """The dataset of everything, as it is made without options: of the tests that only look at it."""
    return convert(recording(**EVERYTHING), tmp_path_factory.mktemp("converted"))


# ---- by other programs and by the truth --------------------------------------------------------
def test_every_picture_shows_its_own_frame(converted):
    assert converted.samples == 90
    assert converted.exit_code == 0
    for name, data in members(converted).items():
        if name.endswith(".camera.jpeg"):
            frame = int(name.split("_")[-1].split(".")[0])
            assert read_bar_code(np.asarray(Image.open(io.BytesIO(data)))) == frame


@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize(
    "more", [{"b_frames": 2}, {"b_frames": 2, "open_gop": True}, {"start_in_gop": 7}, {"leading_packet": True}]
)
def test_stamps_of_pictures(tmp_path, codec, more):
    path = tmp_path / "drive.mcap"
    options = {"seconds": 1.5, "size": (160, 96), "codec": codec, "gop": 15, "topics": {"camera"}}
    truth = write_recording(path, Recipe(**options, **more))
    outcome = convert(path, tmp_path / "out")
    found = pl.read_ipc(outcome.paths.frames)
    assert outcome.exit_code == 0
    assert len(found) >= 45 - 15
    pictures = members(outcome)
    for frame, stamp in zip(found["frame"], found["timestamp"], strict=True):
        data = pictures[f"{path.stem}/{path.stem}_{frame:03d}.camera.jpeg"]
        assert read_bar_code(np.asarray(Image.open(io.BytesIO(data)))) == truth.frame(stamp)


def test_others_read_the_members(converted, tmp_path):
    outcome = converted
    for tool in (["unzip", "-tqq"], ["bsdtar", "-xOf"], ["7z", "t"]):
        if shutil.which(tool[0]):
            subprocess.run([*tool, outcome.paths.container], check=True, stdout=subprocess.DEVNULL)
    stem = outcome.paths.name
    found = members(outcome)
    cube = found[f"{stem}/{stem}_000.radar.png"]
    by_pillow = np.asarray(Image.open(io.BytesIO(cube)))
    by_opencv = cv2.imdecode(np.frombuffer(cube, np.uint8), cv2.IMREAD_UNCHANGED)
    assert by_opencv.dtype == np.uint16
    assert np.array_equal(by_pillow.astype(np.uint16), by_opencv)
    cloud = tmp_path / "cloud.pcd"
    cloud.write_bytes(found[f"{stem}/{stem}_000.lidar.pcd"])
    assert PointCloud.from_path(cloud).points > 0
    annotations = pl.read_ipc(outcome.paths.arrow)
    assert annotations["frame"].n_unique() == outcome.samples
    with pa.ipc.open_file(str(outcome.paths.frames)) as file:
        assert json.loads(file.schema.metadata[b"counts"])["/camera/h264"]["seen"] == outcome.samples


def accepted_by_the_client(container):
    tool = [f"{sys.prefix}/bin/edgefirst-client", "validate-snapshot", str(container)]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    text = (done.stdout + done.stderr).lower()
    return done.returncode == 0 and "missing" not in text and "not found" not in text


def test_the_vendors_client_accepts_several_cameras_and_lidars(tmp_path):
    pytest.importorskip("edgefirst_client")
    path, rig = write_two_of_each(tmp_path, seconds=0.5)
    outcome = convert(path, tmp_path, layout="directory", rig=rig)
    names = [one.name for one in outcome.paths.members.rglob("*")]
    for kind in ("camera-left.jpeg", "lidar-rear.pcd"):
        assert any(name.endswith(kind) for name in names)
    assert accepted_by_the_client(outcome.paths.container)


def test_the_vendors_client_accepts_it(recording, tmp_path):
    client = pytest.importorskip("edgefirst_client")
    outcome = convert(recording(**EVERYTHING), tmp_path, layout="directory")
    assert client.read_dataset_metadata(str(outcome.paths.arrow)).schema_version == "2026.04"
    boxes = pl.read_ipc(outcome.paths.arrow)["box2d"].count()
    assert boxes > 0
    assert client.arrow_to_coco(str(outcome.paths.arrow), str(tmp_path / "coco.json")) == boxes
    assert accepted_by_the_client(outcome.paths.container)


# ---- the same again ----------------------------------------------------------------------------
def test_any_number_of_threads_gives_the_same_three_files(recording, tmp_path):
    path = recording(**EVERYTHING | {"seconds": 1.5})
    found = [convert(path, tmp_path / str(jobs), jobs=jobs).paths for jobs in (1, 2, 5)]
    digests = {(digest(paths.container), digest(paths.arrow), digest(paths.frames)) for paths in found}
    assert len(digests) == 1
    assert "jobs" not in Dataset(found[0].container).metadata["configuration"]


def test_directory_layout_has_the_same_members(recording, converted, tmp_path):
    loose = convert(recording(**EVERYTHING), tmp_path / "files", layout="directory")
    root = loose.paths.members
    assert {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()} == members(converted)
    assert digest(loose.paths.arrow) == digest(converted.paths.arrow)


# ---- sampling and settings ---------------------------------------------------------------------
def test_require_drops_what_lacks_a_sensor(recording, tmp_path):
    path = recording(**EVERYTHING, rates={"radar/cube": 5.0})
    outcome = convert(path, tmp_path, require=("radar.cube",), tolerance=0.02)
    assert 0 < outcome.samples < 90
    assert outcome.counts["/camera/h264"].dropped["lacks radar.cube"] == 90 - outcome.samples
    kinds = [name.split(".", 1)[1] for name in members(outcome)]
    assert kinds.count("radar.png") == kinds.count("camera.jpeg") == outcome.samples
    assert outcome.exit_code == 0


def test_without_a_required_sensor_in_time_the_error_names_the_closest_offset(recording, tmp_path):
    path, stamps = recording(**EVERYTHING), {}
    with path.open("rb") as file:
        for _, channel, message in make_reader(file).iter_messages():
            seconds, nanoseconds = struct.unpack_from("<iI", message.data, 4)
            stamps.setdefault(channel.topic, []).append(seconds * 10**9 + nanoseconds)
    lidar = [stamp + 3_000_000 for stamp in stamps["/lidar/points"]]
    closest = min(abs(one - other) for one in stamps["/camera/h264"] for other in lidar) / 1e9
    settings = Settings(require=("lidar.points",), streams={"lidar.points": {"tolerance": 0.0001, "offset": 0.003}})
    with pytest.raises(RecordingError) as failed:
        convert(path, tmp_path, settings=settings)
    told = r"90 of 90 frames without lidar.points within 0.0001 s \(--tolerance\)\. Closest offset: (.*) s\. Raise"
    lines = str(failed.value).splitlines()
    assert float(re.match(told, lines[1])[1]) == closest
    assert "/camera/h264: 90 messages; lacks lidar.points: 90" in lines[2:], "the cause is above the counts"
    with pytest.raises(
        RecordingError,
        match=r"90 of 90 frames without lidar\.points: no recording has a topic for it\. Remove --require",
    ) as failed:
        convert(recording(**EVERYTHING, topics=["camera", "radar/clusters"]), tmp_path, require=("lidar.points",))
    assert "/radar/clusters is not used" in str(failed.value).splitlines()[-1], "no cause, so below all that may be one"


def test_a_message_serves_one_frame_without_reuse(recording, tmp_path):
    from edgefirst_ros.config import Settings, StreamSettings

    settings = Settings(streams={"lidar.points": StreamSettings(reuse=False)})
    outcome = convert(recording(**EVERYTHING), tmp_path, settings=settings)
    stamps = pl.read_ipc(outcome.paths.frames)["lidar_points_timestamp"].drop_nulls()
    assert len(stamps) == stamps.n_unique() == outcome.counts["/lidar/points"].written


def test_offset_is_added_to_the_sensors_stamps(recording, converted, tmp_path):
    from edgefirst_ros.config import Settings, StreamSettings

    moved = convert(
        recording(**EVERYTHING),
        tmp_path / "moved",
        settings=Settings(streams={"lidar.points": StreamSettings(offset=0.5)}),
    )
    before, after = (pl.read_ipc(o.paths.frames)["lidar_points_timestamp"] for o in (converted, moved))
    assert set(after.drop_nulls()) <= {stamp + 500_000_000 for stamp in before.drop_nulls()}
    assert after.null_count() > before.null_count()


def test_several_recordings_become_sequences(recording, tmp_path):
    paths = [recording(**EVERYTHING), recording(**EVERYTHING, host="second", seed=4)]
    outcome = convert(paths, tmp_path / "fleet", split={"train": 0.5, "val": 0.5})
    dataset = Dataset(outcome.paths.container)
    assert outcome.paths.name == "fleet"
    assert sorted(dataset.sequences) == sorted(path.stem for path in paths)
    assert len(dataset) == 180
    groups = pl.read_ipc(outcome.paths.arrow).group_by("name").agg(pl.col("group").unique())
    assert [len(found) for found in groups["group"]] == [1, 1]
    with pytest.raises(UsageError, match=rf"^{paths[0]} is given twice; name each recording once$"):
        convert([paths[0], paths[0]], tmp_path / "twice")
    with pytest.raises(UsageError, match="would both become the sequence"):  # on disks that do not tell them apart
        convert([paths[0], paths[0].with_name(paths[0].name.upper())], tmp_path / "twice")


def test_one_of_several_that_cannot_be_used_is_a_loss(recording, tmp_path):
    broken = tmp_path / "broken.mcap"
    broken.write_bytes(b"nothing of the kind")
    outcome = convert([broken, recording(**EVERYTHING)], tmp_path / "out", name="both")
    assert outcome.exit_code == 3
    assert outcome.samples == 90
    assert "broken.mcap" in outcome.notes[0]


@pytest.mark.parametrize("codec", ["jpeg", "png", "rgb8", "bgr8", "mono8", "yuv422", "nv12"])
def test_other_cameras(recording, tmp_path, codec):
    outcome = convert(recording(seconds=1, size=(320, 180), codec=codec, topics={"camera"}), tmp_path)
    assert outcome.samples == 30
    for name, data in members(outcome).items():
        assert name.endswith("png" if codec == "png" else "jpeg")
        picture = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert read_bar_code(picture) == int(name.split("_")[-1].split(".")[0])


@pytest.mark.parametrize("version", ["2025.10", "2026.04"])
def test_the_pose_of_a_sample_is_the_attitude_of_the_imu(recording, tmp_path, version):
    path = recording(seconds=1, topics={"camera", "imu"}, **LITTLE)
    outcome = convert(path, tmp_path, schema_version=version)
    turns = [sensor_msgs.Imu.from_cdr(m.data).orientation for _, c, m in messages(path) if c.topic == "/imu"]
    yaws = [math.degrees(math.atan2(2 * (q.w * q.z + q.x * q.y), 1 - 2 * (q.y**2 + q.z**2))) for q in turns]
    for sample in Dataset(outcome.paths.container)[1:9]:
        assert min(yaws) <= sample.pose.yaw <= max(yaws)
        assert abs(sample.pose.pitch) < 2
        assert abs(sample.pose.roll) < 2
        assert (sample.pose.position, sample.pose.orientation) == (None, None)


@pytest.mark.parametrize("topic", ["radar/cube", "/lidar/points", "gps"])
def test_other_reference_topics(recording, tmp_path, topic, judge, capsys):
    path = recording(**EVERYTHING)
    outcome = convert(path, tmp_path, reference_topic=topic)
    assert not judge(path, dataset(outcome), "--reference-topic", topic, capsys=capsys)


def test_a_reference_without_a_member_of_its_own_makes_no_empty_samples(recording, tmp_path):
    path = recording(**EVERYTHING, rates={"lidar/points": 4.0}, topics={"gps", "lidar/points", "radar/clusters"})
    outcome = convert(path, tmp_path, reference_topic="gps", tolerance=0.04)
    count = outcome.counts.plain()["/gps"]
    assert 0 < outcome.samples == count["written"] == len(members(outcome)) < count["seen"] == 30
    assert count["dropped"] == {"has no member": 30 - outcome.samples}
    assert validate(outcome.paths.container).ok
    with pytest.raises(RecordingError, match="has no member"):
        convert(path, tmp_path / "none", reference_topic="radar/clusters", tolerance=0.0001)


def test_a_reference_is_not_asked_for_itself(recording, tmp_path):
    outcome = convert(recording(**EVERYTHING), tmp_path, reference_topic="lidar/points", require=("lidar.points",))
    assert outcome.samples == outcome.counts["/lidar/points"].seen == 30


def test_the_offset_of_a_reference_moves_its_samples(recording, tmp_path):
    path = recording(**EVERYTHING)
    plain, moved = (
        convert(path, tmp_path / name, reference_topic="lidar/points", rig={"lidar.points": {"offset": offset}})
        for name, offset in (("plain", 0.0), ("moved", 0.25))
    )
    before, after = (Dataset(one.paths.container).frames["timestamp"] for one in (plain, moved))
    assert len(before) == 30
    assert (after - before).to_list() == [250_000_000] * 30


@pytest.mark.parametrize("keys", [("lidar.points", "imu", "gps"), ("camera",)])
def test_an_offset_that_corrects_another_clock_gives_the_drive_of_one_clock(recording, converted, tmp_path, keys):
    """Stamps of TAI, which an Ouster that is set by PTP has: 37 s after UTC."""
    path = recording(**EVERYTHING, clock_offset={key.replace(".", "/"): 37 * 10**9 for key in keys})
    moved = convert(path, tmp_path, rig={key: {"offset": -37} for key in keys})
    assert members(moved) == members(converted)
    one, other = (pl.read_ipc(of.paths.frames).drop("model_timestamp") for of in (moved, converted))
    assert one.equals(other)  # results of the model keep the stamps of their pictures
    assert not any("log_time" in note for note in moved.notes)


# ---- late messages, and clocks that are set ----------------------------------------------------
@pytest.mark.parametrize(
    "faults",
    [
        {"clock_steps": ((2.0, 2 * 10**9),)},
        {"clock_steps": ((2.0, 2 * 10**9),), "b_frames": 3},
        {"latency_ms": {"camera": 1500.0}},
        {"latency_ms": {"gps": 1500.0, "radar/cube": 1200.0}},
    ],
    ids=["step", "step-b-frames", "late-camera", "late-sensors"],
)
def test_late_messages_and_small_steps_cost_no_companion(recording, tmp_path, faults, judge, capsys):
    path = recording(seconds=5, **LITTLE, **faults)
    outcome = convert(path, tmp_path)
    assert not judge(path, dataset(outcome), "--only", "ALIGN", "FRAMES", "ARROW", "EXIF", capsys=capsys)


def test_what_comes_after_its_frames_is_counted_as_late(recording, tmp_path):
    """The driver of the lidar stands still from 2 to 5 s, and then hands over all it measured."""
    path = recording(**LITTLE | {"seconds": 8, "fps": 30.0})
    (tmp_path / "copy").mkdir()

    def delay(chunks):
        begin = chunks[0][0][2].log_time
        for [(_, channel, message)] in chunks:
            if channel.topic.endswith("lidar/points") and 2e9 <= message.log_time - begin < 5e9:
                message.log_time = begin + 5 * 10**9
        return sorted(chunks, key=lambda chunk: chunk[0][2].log_time)

    copy = rewritten(path, tmp_path / "copy" / path.name, delay, group=1)
    outcome = convert(copy, tmp_path / "out")
    count = outcome.counts.plain()["/lidar/points"]
    late = count["dropped"].pop("came after its frames were written")
    assert 16 <= late <= 19, "measured from 2 s to (5 - lookahead - tolerance) s"
    assert (count["seen"], count["written"], count["dropped"], outcome.exit_code) == (80, 80 - late, {}, 0)

    patient = convert(copy, tmp_path / "patient", lookahead=4.0)
    assert patient.counts.plain()["/lidar/points"]["dropped"] == {}
    assert members(patient) == members(convert(path, tmp_path / "whole"))


@pytest.mark.parametrize(
    "steps", [((3.0, -3600 * 10**9),), ((2.0, 86400 * 10**9), (4.0, -86400 * 10**9))], ids=["back", "ahead-and-back"]
)
def test_positions_do_not_end_where_a_clock_is_set_back(recording, tmp_path, steps):
    """All is aligned by stamp alone: a step costs the frames that then have no fix on one side, and no other."""
    path = recording(seconds=6, clock_steps=steps, **LITTLE)
    columns = ["frame", "latitude", "longitude", "altitude", "orientation"]
    found = Dataset(convert(path, tmp_path).paths.container).frames.select(columns).sort("frame")
    whole = recording(seconds=6, **LITTLE)
    expected = Dataset(convert(whole, tmp_path / "whole").paths.container).frames.select(columns).sort("frame")
    away = [abs(frame / 10 - at) > 0.15 for frame in found["frame"] for at, _ in steps]
    kept = [all(away[n : n + len(steps)]) for n in range(0, len(away), len(steps))]
    assert found.filter(kept).equals(expected.filter(kept))
    assert found.filter(kept)["latitude"].null_count() <= 3  # before the first fix


def test_a_fix_that_the_ones_beside_it_cannot_reach_is_counted(recording, tmp_path):
    """One of them is a degree, 111 km, to the north of where the vehicle is."""
    path = recording(seconds=3, **LITTLE)
    found = messages(path)
    astray = [n for n, (_, channel, _) in enumerate(found) if channel.topic == "/gps"][10]
    schema, channel, message = found[astray]
    latitude = sensor_msgs.NavSatFix.from_cdr(message.data).latitude
    moved = message.data.replace(struct.pack("<d", latitude), struct.pack("<d", latitude + 1))
    found[astray] = schema, channel, replace(message, data=moved)
    count = convert(write(tmp_path / "drive.mcap", found), tmp_path / "out").counts.plain()["/gps"]
    assert count["dropped"] == {"no valid fix": 1}
    assert convert(path, tmp_path / "whole").counts.plain()["/gps"]["dropped"] == {}


def test_chunks_out_of_order_where_the_clock_was_set_back(recording, tmp_path):
    path = recording(seconds=6, **LITTLE, clock_steps=((3.0, -2 * 10**9),))
    (tmp_path / "copy").mkdir()
    copy = rewritten(path, tmp_path / "copy" / path.name, lambda chunks: chunks[::-1])
    assert members(convert(path, tmp_path / "one")) == members(convert(copy, tmp_path / "other"))


def test_what_it_writes_passes_its_own_validation(recording, tmp_path):
    from edgefirst_ros.config import Settings, StreamSettings

    path = recording(**EVERYTHING)
    moved = Settings(streams={"radar.cube": StreamSettings(offset=0.05)})
    assert validate(convert(path, tmp_path, settings=moved).paths.container, strict=True).findings == []
    other = recording(**EVERYTHING, host="other", codec="h265", prefix="/other/")
    assert validate(convert([path, other], tmp_path / "two").paths.container, strict=True).findings == []


def test_a_topic_keeps_its_first_type(recording, tmp_path):
    path = recording(**EVERYTHING)
    mixed = tmp_path / path.name
    with path.open("rb") as file:
        found = [(s, c, m) for s, c, m in make_reader(file).iter_messages(log_time_order=False)]
    with mixed.open("wb") as file:
        writer = Writer(file)
        writer.start(profile="", library="test")
        known = {}
        for schema, channel, message in found:
            number = (
                writer.register_schema(schema.name, schema.encoding, schema.data) if schema.name not in known else 0
            )
            known.setdefault(schema.name, number)
            topic = "/lidar/points" if channel.topic == "/gps" else channel.topic
            key = (topic, schema.name)
            if key not in known:
                known[key] = writer.register_channel(topic, "cdr", known[schema.name])
            writer.add_message(known[key], message.log_time, message.data, message.publish_time, message.sequence)
        writer.finish()
    outcome = convert(mixed, tmp_path / "out")
    count = outcome.counts["/lidar/points"]
    assert outcome.samples == 90
    assert count.seen == count.written + sum(count.dropped.values())
    assert sum(n for reason, n in count.dropped.items() if "another type" in reason) in (30, 200)
    assert outcome.exit_code == 3


def test_boxes_need_no_picture(recording, tmp_path, judge, capsys):
    path = recording(**EVERYTHING)
    outcome = convert(path, tmp_path, reference_topic="model/output")
    assert pl.read_ipc(outcome.paths.arrow)["box2d"].count() > 0


# ---- bad input ---------------------------------------------------------------------------------
def broken_files(tmp_path):
    (tmp_path / "folder.mcap").mkdir()
    (tmp_path / "empty.mcap").write_bytes(b"")
    (tmp_path / "text.mcap").write_text("not a recording at all, but long enough to look at")
    (tmp_path / "magic.mcap").write_bytes(b"\x89MCAP0\r\n")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing.mcap", "no such file"),
        ("folder.mcap", "is a directory"),
        ("empty.mcap", "is empty"),
        ("text.mcap", "not with the MCAP magic"),
        ("magic.mcap", "no messages"),
        ("x" * 300 + ".mcap", "cannot be opened|no such file"),
        ("nul\0.mcap", "cannot be opened|no such file"),
    ],
)
def test_what_is_no_recording(tmp_path, name, says):
    broken_files(tmp_path)
    with pytest.raises(RecordingError, match=says) as caught:
        convert(tmp_path / name, tmp_path / "out")
    assert name[:20] in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_no_camera(recording, tmp_path):
    with pytest.raises(RecordingError, match=r"no camera topic.*set reference_topic"):
        convert(recording(seconds=1, topics={"gps", "imu"}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_camera_without_a_keyframe(recording, tmp_path):
    path = recording(seconds=1, size=(320, 180), gop=300, start_in_gop=5, topics={"camera"})
    with pytest.raises(RecordingError, match="before the first keyframe: 25"):
        convert(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_pictures_after_an_unreadable_keyframe_are_dropped_to_the_next_one(recording, tmp_path, codec):
    """The 18th continues the numbers of the 16th: only the loss itself shows that what it refers to is missing."""
    path = recording(
        seconds=4.0, size=(128, 64), fps=10.0, codec=codec, gop=17, topics={"camera"}, truncate={"camera": (17,)}
    )
    outcome = convert(path, tmp_path)
    assert pl.read_ipc(outcome.paths.frames)["frame"].to_list() == [*range(17), *range(34, 40)]
    assert outcome.exit_code == 3


def test_an_unknown_codec(recording, tmp_path):
    path = recording(seconds=1, size=(320, 180), topics={"camera"})
    broken = rewritten(path, tmp_path / path.name, edit=lambda data: data.replace(b"h264\0", b"vp09\0"))
    with pytest.raises(RecordingError, match=r"vp09.*expected h264 or h265"):
        convert(broken, tmp_path / "out")


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_length_prefixed_video_is_named(recording, tmp_path, codec):
    """As MP4 has it (AVCC, HVCC): each NAL unit after its length, none after a start code."""

    def edit(data):
        video = foxglove_msgs.CompressedVideo.from_cdr(data)
        units = [unit for unit in re.split(b"\0\0\0?\1", video.data.tobytes()) if unit]
        prefixed = b"".join(struct.pack(">I", len(unit)) + unit for unit in units)
        return foxglove_msgs.CompressedVideo(video.timestamp, video.frame_id, prefixed, video.format).to_bytes()

    path = recording(seconds=1, size=(128, 64), codec=codec, topics={"camera"})
    with pytest.raises(RecordingError, match=r"Annex B.*AVCC") as caught:
        convert(rewritten(path, tmp_path / path.name, edit=edit), tmp_path / "out")
    assert "no picture in the message: " in str(caught.value)


def test_output_that_exists(recording, tmp_path):
    path = recording(**EVERYTHING)
    first = convert(path, tmp_path)
    before = digest(first.paths.container)
    with pytest.raises(DatasetError, match="--overwrite"):
        convert(path, tmp_path)
    assert digest(first.paths.container) == before
    assert convert(path, tmp_path, overwrite=True).samples == first.samples


def test_output_that_cannot_be_written(recording, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="file"):
        convert(recording(**EVERYTHING), tmp_path / "file")
    with pytest.raises(DatasetError, match="proc"):
        convert(recording(**EVERYTHING), "/proc/nothing/can/be/written/here")


HOSTILE = ["..", "-rf", ".hidden", "new\nline", "tab\tbell\a", "x" * 240, "a:b*c?", "CON", "☃ snow", "..\\..\\up"]


@pytest.mark.parametrize("stem", HOSTILE)
def test_hostile_file_names(recording, tmp_path, stem):
    path = recording(seconds=1, size=(160, 96), topics={"camera"})
    (tmp_path / "in").mkdir()
    copy = tmp_path / "in" / (stem + ".mcap")
    copy.write_bytes(path.read_bytes())
    out = tmp_path / "deep" / "out"
    outcome = convert(copy, out)
    assert outcome.samples == 30
    assert {p.parent for p in (outcome.paths.container, outcome.paths.arrow, outcome.paths.frames)} == {out}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "in"]
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["out"]
    for name in members(outcome):
        assert not name.startswith(("/", ".", "-"))
        assert ".." not in name.split("/")
        assert name.isprintable()


@pytest.mark.parametrize("name", ["../../x", "", "a/b", "a\0b", "."])
def test_hostile_names(recording, tmp_path, name):
    with pytest.raises(UsageError):
        convert(recording(**EVERYTHING), tmp_path / "out", name=name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "loaded"),
    [(EVERYTHING, ["pyarrow.compute"]), ({"topics": ("camera", "gps", "imu", "radar/cube")}, [])],
    ids=["labels", "no labels"],
)
def test_a_plain_conversion_loads_no_library_for_tables_alone(recording, tmp_path, options, loaded):
    """polars costs a quarter of a second and 26 MB: only groups need it; numpy.ma 7 ms, and pyarrow.compute 20 ms.

    Labels need the last one.
    """
    code = """
        import sys
        from edgefirst_ros.cli.app import app
        app(["convert", sys.argv[1], "-o", sys.argv[2]], standalone_mode=False)
        print(sorted({"polars", "pyarrow.parquet", "pandas", "pyarrow.compute", "numpy.ma"} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), recording(**options), tmp_path / "out"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == str(loaded)


# ---- memory ------------------------------------------------------------------------------------
PEAK = """
    import sys
    from edgefirst_ros import convert
    convert(sys.argv[1], sys.argv[2])
    status = open("/proc/self/status").read()  # ru_maxrss would be that of the parent, where it is larger
    print(status.split("VmHWM:")[1].split()[0])
"""


@pytest.fixture(scope="module")
def peaks(tmp_path_factory):
    """Peak resident size in KiB of converting five and fifteen seconds of the same drive."""
    found = []
    for seconds in (5, 15):
        folder = tmp_path_factory.mktemp("long")
        topics = {"camera", "radar/cube"}
        recipe = {"size": (160, 96), "fps": 10.0, "codec": "jpeg", "cube_shape": (2, 256, 4, 128), "topics": topics}
        write_recording(folder / "drive.mcap", Recipe(seconds=seconds, **recipe))
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PEAK), folder / "drive.mcap", folder / "out"],
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(int(done.stdout))
    return found


def test_memory_does_not_grow_with_the_recording(peaks):
    # How far decoding is ahead is a matter of luck: up to 96 frames with their cubes. Kept cubes would make 100 MB.
    assert peaks[1] < peaks[0] + 48 * 1024
    assert peaks[1] < 500 * 1024


@pytest.mark.parametrize("codec", ["h264", "h265", "jpeg"])
def test_the_version_of_ffmpeg_that_decoded_stands_in_the_metadata(recording, tmp_path, codec):
    outcome = convert(recording(seconds=1, size=(160, 96), codec=codec, topics={"camera"}), tmp_path)
    software = Dataset(outcome.paths.container).metadata["software"]
    assert software.get("ffmpeg") == (None if codec == "jpeg" else av.ffmpeg_version_info)
