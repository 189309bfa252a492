# SPDX-License-Identifier: Apache-2.0
"""Every encoding and container: a recording that is wrapped anew gives the same members and rows, byte for byte.

Foxglove's own protobuf classes and rosbags' writers make the recordings.
"""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import zstandard
from bags import messages, write
from edgefirst.schemas import sensor_msgs, std_msgs
from foxglove_schemas_protobuf import (
    CameraCalibration_pb2,
    CompressedImage_pb2,
    CompressedVideo_pb2,
    FrameTransform_pb2,
    FrameTransforms_pb2,
    LocationFix_pb2,
    Odometry_pb2,
    PointCloud_pb2,
    PoseInFrame_pb2,
    RawImage_pb2,
    SceneUpdate_pb2,
)
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pose_recordings import ODOMETRY, POSE, add_messages, poses
from rosbags import rosbag1, rosbag2
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from same_dataset import assert_same_dataset, frames
from shared_data import REAL

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.info import collect_recording_facts
from edgefirst_ros.counts import UNDECODABLE
from edgefirst_ros.errors import EdgeFirstError, RecordingError, UsageError
from edgefirst_ros.fleet.sources import find_sources
from edgefirst_ros.messages import Message as OwnMessage
from edgefirst_ros.messages import decode
from edgefirst_ros.nodes.dataset_messages import open_playable
from edgefirst_ros.sensors.cloud import read_points
from edgefirst_ros.sources.inputs import list_recordings, open_files
from edgefirst_ros.sources.protobuf import open_converter
from edgefirst_ros.synthetic import START

SECOND = 1_000_000_000
VIDEO, TF = "foxglove_msgs/msg/CompressedVideo", "tf2_msgs/msg/TFMessage"
COMPRESSED = "sensor_msgs/msg/CompressedImage"
CLOUD, OLDER_CLOUD = "sensor_msgs/msg/PointCloud2", "sensor_msgs/msg/PointCloud"
CHANNEL = "sensor_msgs/msg/ChannelFloat32"
PACKET = "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"
PACKET_TEXT = """std_msgs/Header header
int32 width
int32 height
string encoding
uint64 pts
uint8 flags
bool is_bigendian
uint8[] data"""
OLD_PACKET_TEXT = """std_msgs/Header header
uint8[] data
int32 img_width
int32 img_height
string encoding
uint64 pts
uint8 flags"""
NUMERIC = {1: 2, 2: 1, 3: 4, 4: 3, 5: 6, 6: 5, 7: 7, 8: 8}
"""PointField.datatype -> PackedElementField.NumericType."""


def store_of(found):
    """The types of a recording, as rosbags reads them from its texts."""
    store = get_typestore(Stores.ROS2_JAZZY)
    for schema, _, _ in found:
        if schema.encoding == "ros2msg" and schema.name not in store.types:
            new = get_types_from_msg(schema.data.decode(), schema.name)
            store.register({name: kind for name, kind in new.items() if name not in store.types})
    store.register(get_types_from_msg(PACKET_TEXT, PACKET))
    return store


def content(message, schema):
    return decode(OwnMessage("/t", schema.name, 0, 0, 0, message.data, schema.data))


# ---- encodings -----------------------------------------------------------------------------------
def as_compressed_image(schema, message, store):
    if schema.name != VIDEO:
        return None
    video = content(message, schema)
    data = np.frombuffer(video.data.view(), np.uint8)
    head = std_msgs.Header(video.timestamp, video.frame_id)
    return COMPRESSED, "ros2msg", b"", "cdr", sensor_msgs.CompressedImage(head, video.format, data).to_bytes()


def as_ffmpeg_packet(schema, message, store):
    if schema.name != VIDEO:
        return None
    video = content(message, schema)
    kinds = store.types
    stamp = kinds["builtin_interfaces/msg/Time"](video.timestamp.sec, video.timestamp.nanosec)
    name = {"h264": "libx264", "h265": "hevc_nvenc;nv12;bgr8;bgr8"}[video.format]
    packet = kinds[PACKET](kinds["std_msgs/msg/Header"](stamp, video.frame_id), 640, 360, name, 1, 0, False,
                           np.frombuffer(video.data.view(), np.uint8))  # fmt: skip
    return PACKET, "ros2msg", PACKET_TEXT.encode(), "cdr", bytes(store.serialize_cdr(packet, PACKET))


def packed_messages(schema, message, store):
    """Each message compressed, as `ros2 bag record --compression-mode message` stores it."""
    return schema.name, schema.encoding, schema.data, "cdr", zstandard.compress(message.data)


def as_ros1(schema, message, store):
    """As `mcap convert` makes a MCAP file of a bag."""
    text, _ = store.generate_msgdef(schema.name)
    data = bytes(store.cdr_to_ros1(message.data, schema.name))
    return schema.name.replace("/msg/", "/"), "ros1msg", text.encode(), "ros1", data


def descriptors(kind):
    """The FileDescriptorSet of a protobuf class with all that it imports."""
    files = {}

    def add(file):
        for dependency in file.dependencies:
            add(dependency)
        file.CopyToProto(files.setdefault(file.name, FileDescriptorSet().file.add()))

    add(kind.DESCRIPTOR.file)
    return FileDescriptorSet(file=files.values()).SerializeToString()


def stamped(kind, stamp, frame_id):
    made = kind(frame_id=frame_id)
    made.timestamp.seconds, made.timestamp.nanos = stamp.sec, stamp.nanosec
    return made


def protobuf_video(sent):
    made = stamped(CompressedVideo_pb2.CompressedVideo, sent.timestamp, sent.frame_id)
    made.data, made.format = bytes(sent.data.view()), sent.format
    return made


def protobuf_compressed(sent):
    made = stamped(CompressedImage_pb2.CompressedImage, sent.stamp, sent.frame_id)
    made.data, made.format = bytes(sent.data.view()), sent.format
    return made


def protobuf_raw(sent):
    made = stamped(RawImage_pb2.RawImage, sent.stamp, sent.frame_id)
    made.width, made.height, made.encoding, made.step = sent.width, sent.height, sent.encoding, sent.step
    made.data = bytes(sent.data.view())
    return made


def protobuf_pose(sent):
    return posed(stamped(PoseInFrame_pb2.PoseInFrame, sent.stamp, sent.frame_id), sent.pose)


def protobuf_odometry(sent):
    made = stamped(Odometry_pb2.Odometry, sent.stamp, sent.frame_id)
    made.body_frame_id = sent.child_frame_id
    return posed(made, sent.pose.pose)


def posed(made, pose):
    for axis in "xyz":
        setattr(made.pose.position, axis, getattr(pose.position, axis))
    for axis in "xyzw":
        setattr(made.pose.orientation, axis, getattr(pose.orientation, axis))
    return made


def protobuf_cloud(sent):
    made = stamped(PointCloud_pb2.PointCloud, sent.stamp, sent.frame_id)
    made.point_stride, made.data = sent.point_step, bytes(sent.data.view())
    made.pose.orientation.w = 1
    for field in sent.fields:
        assert field.count == 1
        made.fields.add(name=field.name, offset=field.offset, type=NUMERIC[field.datatype])
    return made


def protobuf_fix(sent):
    made = stamped(LocationFix_pb2.LocationFix, sent.stamp, sent.frame_id)
    made.latitude, made.longitude, made.altitude = sent.latitude, sent.longitude, sent.altitude
    made.position_covariance.extend(sent.position_covariance)
    made.position_covariance_type = sent.position_covariance_type
    return made


def protobuf_calibration(sent):
    made = stamped(CameraCalibration_pb2.CameraCalibration, sent.stamp, sent.frame_id)
    made.width, made.height, made.distortion_model = sent.width, sent.height, sent.distortion_model
    for name in "DKRP":
        getattr(made, name).extend(getattr(sent, name.lower()))
    return made


def protobuf_transform(sent):
    made = FrameTransforms_pb2.FrameTransforms()
    for one in getattr(sent, "transforms", [sent]):
        head = getattr(one, "header", one)
        added = made.transforms.add(parent_frame_id=head.frame_id, child_frame_id=one.child_frame_id)
        added.timestamp.seconds, added.timestamp.nanos = head.stamp.sec, head.stamp.nanosec
        for axis in "xyz":
            setattr(added.translation, axis, getattr(one.transform.translation, axis))
        for axis in "xyzw":
            setattr(added.rotation, axis, getattr(one.transform.rotation, axis))
    return made


PROTOBUF = {
    VIDEO: protobuf_video,
    COMPRESSED: protobuf_compressed,
    "sensor_msgs/msg/Image": protobuf_raw,
    POSE: protobuf_pose,
    ODOMETRY: protobuf_odometry,
    "sensor_msgs/msg/PointCloud2": protobuf_cloud,
    "sensor_msgs/msg/NavSatFix": protobuf_fix,
    "sensor_msgs/msg/CameraInfo": protobuf_calibration,
    "geometry_msgs/msg/TransformStamped": protobuf_transform,
    TF: protobuf_transform,
}


def as_protobuf(schema, message, store):
    if schema.name not in PROTOBUF:
        return None
    made = PROTOBUF[schema.name](content(message, schema))
    kind = type(made)
    return kind.DESCRIPTOR.full_name, "protobuf", descriptors(kind), "protobuf", made.SerializeToString()


def wrapped(path, source, wrap):
    """A recording whose messages `wrap` encodes in another way; others stay."""
    found, store, changed = messages(source), store_of(messages(source)), []
    for schema, channel, message in found:
        new = wrap(schema, message, store)
        if new is None:
            changed.append((schema, channel, message))
            continue
        name, encoding, text, message_encoding, data = new
        changed.append((
            replace(schema, name=name, encoding=encoding, data=text),
            replace(channel, message_encoding=message_encoding),
            replace(message, data=data),
        ))  # fmt: skip
    return write(path, changed)


# ---- containers ----------------------------------------------------------------------------------
def rosbag2_folder(folder, source):
    """A rosbag2 folder with a database, by rosbags' writer; returns the folder."""
    found = messages(source)
    store, connections = store_of(found), {}
    with rosbag2.Writer(folder, version=9, storage_plugin=rosbag2.StoragePlugin.SQLITE3) as writer:
        for schema, channel, message in found:
            if channel.topic not in connections:
                connections[channel.topic] = writer.add_connection(channel.topic, schema.name, typestore=store)
            writer.write(connections[channel.topic], message.log_time, message.data)
    return folder


def database(path, source):
    folder = rosbag2_folder(path.with_suffix(""), source)
    (folder / f"{folder.name}.db3").rename(path)
    return path


def packed_database(path, source):
    """A database with compressed messages; rosbags' reader does not unpack them without the folder's metadata."""
    with sqlite3.connect(database(path, source)) as opened:
        rows = [(zstandard.compress(data), n) for n, data in opened.execute("SELECT id, data FROM messages")]
        opened.executemany("UPDATE messages SET data = ? WHERE id = ?", rows)
    opened.close()
    return path


def ros1_bag(path, source, packed=None):
    """A bag of ROS 1, by rosbags' writer; `packed`: how its chunks are."""
    found = messages(source)
    store, connections = store_of(found), {}
    writer = rosbag1.Writer(path)
    if packed is not None:
        writer.set_compression(packed)
    with writer:
        for schema, channel, message in found:
            if channel.topic not in connections:
                text, digest = store.generate_msgdef(schema.name)
                connections[channel.topic] = writer.add_connection(
                    channel.topic, schema.name, msgdef=text, md5sum=digest
                )
            writer.write(connections[channel.topic], message.log_time, store.cdr_to_ros1(message.data, schema.name))
    return path


def database_without_texts(path, source):
    """A database with the types of a recording in which rosbag2 finds no text, as of actions, or of `std_srvs`."""
    with closing(sqlite3.connect(database(path, source))) as opened, opened:
        opened.execute("UPDATE message_definitions SET encoding = 'unknown', encoded_message_definition = ''")
    return path


def as_older_cloud(schema, message, types):
    """A cloud of floats in the message that was before PointCloud2, as radars send it; None for others."""
    sent = content(message, schema) if schema.name == CLOUD else None
    if sent is None or any(field.datatype != 7 for field in sent.fields):
        return None
    points, kinds = read_points(sent), types.types
    places = zip(*(points[axis].ravel().tolist() for axis in "xyz"), strict=True)
    channels = [
        kinds[CHANNEL](name, points[name].ravel()) for name in points.dtype.names if name not in ("x", "y", "z")
    ]
    stamp = kinds["builtin_interfaces/msg/Time"](sent.stamp.sec, sent.stamp.nanosec)
    head = kinds["std_msgs/msg/Header"](7, stamp, sent.frame_id)
    made = kinds[OLDER_CLOUD](head, [kinds["geometry_msgs/msg/Point32"](*place) for place in places], channels)
    return types.serialize_ros1(made, OLDER_CLOUD)


def older_bag_of_ros1(path, source):
    """A bag with messages that only ROS 1 has: video, whose fields have another order, and clouds of channels."""
    found, store, ros1 = messages(source), store_of(messages(source)), get_typestore(Stores.ROS1_NOETIC)
    ros1.register(get_types_from_msg(OLD_PACKET_TEXT, PACKET))
    with rosbag1.Writer(path) as writer:
        connections = {}
        for schema, channel, message in found:
            name, types, data = schema.name, store, None
            if (packet := as_ffmpeg_packet(schema, message, store)) is not None:
                name, types, sent = PACKET, ros1, store.deserialize_cdr(packet[-1], PACKET)
                head = ros1.types["std_msgs/msg/Header"](7, sent.header.stamp, sent.header.frame_id)
                old = sent.data, sent.width, sent.height, sent.encoding, sent.pts, sent.flags
                data = ros1.serialize_ros1(ros1.types[PACKET](head, *old), PACKET)
            if (cloud := as_older_cloud(schema, message, ros1)) is not None:
                name, types, data = OLDER_CLOUD, ros1, cloud
            if channel.topic not in connections:
                text, digest = types.generate_msgdef(name)
                connections[channel.topic] = writer.add_connection(channel.topic, name, msgdef=text, md5sum=digest)
            data = store.cdr_to_ros1(message.data, name) if data is None else data
            writer.write(connections[channel.topic], message.log_time, data)
    return path


WRAPPED = {
    "bag, older messages": lambda folder, source: older_bag_of_ros1(folder / "drive.bag", source),
    "CompressedImage": lambda folder, source: wrapped(folder / "drive.mcap", source, as_compressed_image),
    "FFMPEGPacket": lambda folder, source: wrapped(folder / "drive.mcap", source, as_ffmpeg_packet),
    "protobuf": lambda folder, source: wrapped(folder / "drive.mcap", source, as_protobuf),
    "rosbag2 folder": lambda folder, source: rosbag2_folder(folder / "drive", source),
    "db3": lambda folder, source: database(folder / "drive.db3", source),
    "mcap, messages": lambda folder, source: wrapped(folder / "drive.mcap", source, packed_messages),
    "mcap, ros1": lambda folder, source: wrapped(folder / "drive.mcap", source, as_ros1),
    "db3, messages": lambda folder, source: packed_database(folder / "drive.db3", source),
    "db3, no texts": lambda folder, source: database_without_texts(folder / "drive.db3", source),
    "bag": lambda folder, source: ros1_bag(folder / "drive.bag", source),
    "bag, bz2": lambda folder, source: ros1_bag(folder / "drive.bag", source, rosbag1.Writer.CompressionFormat.BZ2),
    "bag, lz4": lambda folder, source: ros1_bag(folder / "drive.bag", source, rosbag1.Writer.CompressionFormat.LZ4),
}
CONTAINERS = ("rosbag2 folder", "db3", "bag")


def cut(path, source, seconds):
    """The first seconds of a recording."""
    found = messages(source)
    return write(path, [one for one in found if one[2].log_time - found[0][2].log_time < seconds * SECOND])


@pytest.fixture(scope="session")
def drives(recording, tmp_path_factory):
    """Recordings to be wrapped, and the dataset of each: a made-up one, and a shared one where it is at hand."""
    folder = tmp_path_factory.mktemp("plain")
    given = {"synthetic": recording(seconds=0.4, size=(160, 96), lidar_points=50, cube_shape=(2, 8, 4, 8))}
    for codec, schema in (("jpeg", ODOMETRY), ("rgb8", POSE)):
        source = recording(seconds=0.4, size=(128, 64), codec=codec, topics=("camera", "camera/info", "tf_static"))
        way = lambda at: (((at - START) / SECOND, 2.0, 0.5), (0.0, 0.0, 0.6, 0.8))  # noqa: E731
        given[codec] = add_messages(source, folder / f"{codec}.mcap", poses(schema, way, START, 0.4))
    given.update(("verdin", path) for path in REAL if path.name.startswith("verdin"))
    found = {}
    for name, path in given.items():
        (folder / name).mkdir()
        found[name] = cut(folder / name / "drive.mcap", path, 0.3), folder / name
        convert(found[name][0], folder / name, name="drive")
    return found


@pytest.fixture(scope="session")
def made(drives, tmp_path_factory):
    """Function that wraps a drive, once."""
    known = {}

    def make(name, drive="synthetic"):
        if drive not in drives:
            pytest.skip("the shared recordings are not at hand")
        if (name, drive) not in known:
            known[name, drive] = WRAPPED[name](tmp_path_factory.mktemp("wrapped"), drives[drive][0])
        return known[name, drive]

    return make


@pytest.mark.parametrize("drive", ["synthetic", "verdin"])
@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_recording_gives_the_same_members_and_rows(made, drives, tmp_path, name, drive):
    outcome = convert(made(name, drive), tmp_path, name="drive")
    assert outcome.samples > 5
    assert_same_dataset(tmp_path, drives[drive][1], "drive")
    assert frames(outcome.paths.frames).width > 10


def test_numbers_that_all_topics_share_do_not_show_a_loss(recording, tmp_path):
    """`mcap convert` numbers all messages of a bag through."""
    plain = recording(seconds=3.0, size=(128, 64), topics={"camera", "gps"})
    (tmp_path / "through").mkdir()
    through = tmp_path / "through" / plain.name
    write(through, [(*of, replace(message, sequence=n)) for n, (*of, message) in enumerate(messages(plain))])
    for folder, path in (("plain", plain), ("through", through)):
        assert convert(path, tmp_path / folder, name="drive").counts["/camera/h264"].dropped == {}
    assert_same_dataset(tmp_path / "through", tmp_path / "plain", "drive")


def test_a_camera_whose_numbers_follow_those_of_a_static_topic_counts_its_losses(recording, tmp_path):
    """One message of /tf_static before the video, which counts for itself: that is no proof of common numbers."""
    plain = recording(seconds=2.0, size=(128, 64), gop=15, codec="h265", topics={"camera", "tf_static"})
    found = messages(plain)
    static = next(of for of in found if of[1].topic == "/tf_static")
    video = [of for of in found if of[1].topic == "/camera/h265"]
    path = tmp_path / plain.name
    kept = [(*of, replace(message, sequence=n)) for n, (*of, message) in enumerate([static, *video]) if n != 20]
    write(path, kept)
    dropped = convert(path, tmp_path / "out").counts["/camera/h265"].dropped
    assert dropped == {"after a loss, before the next keyframe": 10}  # 21 to 30: one keyframe in 15


def test_a_protobuf_fix_without_covariance_is_a_position(drives, tmp_path):
    """Foxglove's `repeated` fields may be empty, those of ROS have nine numbers."""

    def bare(schema, message, store):
        if schema.name != "sensor_msgs/msg/NavSatFix":
            return None
        made = protobuf_fix(content(message, schema))
        made.ClearField("position_covariance")
        kind = type(made)
        return kind.DESCRIPTOR.full_name, "protobuf", descriptors(kind), "protobuf", made.SerializeToString()

    source, offline = drives["synthetic"]
    outcome = convert(wrapped(tmp_path / "drive.mcap", source, bare), tmp_path, name="drive")
    places = ["frame", "latitude", "longitude", "altitude"]
    assert frames(outcome.paths.frames).select(places).equals(frames(offline / "drive.frames.arrow").select(places))
    assert frames(outcome.paths.frames)["latitude"].drop_nulls().len() > 4


def test_a_distortion_model_of_foxglove_has_the_name_of_ros():
    kind = CameraCalibration_pb2.CameraCalibration
    schema, convert_one = open_converter("foxglove.CameraCalibration", descriptors(kind), pytest.fail)
    sent = kind(distortion_model="kannala_brandt", D=[0.1, 0.2, 0.3, 0.4])
    found = decode(OwnMessage("/t", schema, 0, 0, 0, convert_one(sent.SerializeToString())))
    assert (found.distortion_model, list(found.d)) == ("equidistant", list(sent.D))


def test_single_transforms_in_protobuf_are_the_same(drives, tmp_path):
    def as_single(schema, message, store):
        if schema.name != "geometry_msgs/msg/TransformStamped":
            return None
        kind = FrameTransform_pb2.FrameTransform
        data = protobuf_transform(content(message, schema)).transforms[0].SerializeToString()
        return kind.DESCRIPTOR.full_name, "protobuf", descriptors(kind), "protobuf", data

    source, offline = drives["synthetic"]
    path = wrapped(tmp_path / "drive.mcap", source, as_single)
    assert "foxglove.FrameTransform" in {schema.name for schema, _, _ in messages(path)}
    convert(path, tmp_path, name="drive")
    assert_same_dataset(tmp_path, offline, "drive")


@pytest.mark.parametrize("codec", ["jpeg", "rgb8"])
def test_pictures_and_poses_in_protobuf_are_the_same(made, drives, tmp_path, codec):
    path = made("protobuf", codec)
    encodings = {schema.name: schema.encoding for schema, _, _ in messages(path)}
    kinds = {
        "jpeg": {"foxglove.CompressedImage", "foxglove.Odometry"},
        "rgb8": {"foxglove.RawImage", "foxglove.PoseInFrame"},
    }
    assert {name for name, encoding in encodings.items() if encoding == "protobuf"} >= kinds[codec]
    outcome = convert(path, tmp_path, name="drive")
    assert_same_dataset(tmp_path, drives[codec][1], "drive")
    assert outcome.samples == frames(outcome.paths.frames)["pose_position"].count() > 5


@pytest.mark.parametrize("name", [*CONTAINERS, "protobuf"])
def test_info_and_play_read_what_a_conversion_reads(made, drives, name):
    plain, found = (collect_recording_facts(path) for path in (drives["synthetic"][0], made(name)))
    counts = [{one["topic"]: one["messages"] for one in facts["topics"]} for facts in (plain, found)]
    assert counts[0] == counts[1]
    assert found["cameras"] == plain["cameras"]
    path = made(name)
    if path.is_file():  # a player opens files
        recording = open_playable(path)
        assert sum(1 for _ in recording.walk()) == sum(counts[0].values())
        plain_messages = {(m.topic, m.log_time) for m in open_playable(drives["synthetic"][0]).iter_messages()}
        assert {(m.topic, m.log_time) for m in recording.iter_messages()} == plain_messages


def test_containers_are_recordings_of_a_folder_and_of_a_fleet(made, tmp_path):
    for name in ("db3", "bag"):
        (tmp_path / f"{name}{made(name).suffix}").symlink_to(made(name))
    assert [one.name for one in list_recordings([tmp_path])] == ["bag", "db3"]
    assert [one.name for one in find_sources([str(tmp_path)], print)] == ["bag", "db3"]


# ---- damage --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "part", "words"), [
    ("db3", 0.5, "malformed"), ("db3", 0.0, "database"), ("bag", 0.5, "index"), ("bag", 0.0, "empty")])  # fmt: skip
def test_a_cut_container_is_refused_in_the_words_of_rosbags(made, tmp_path, name, part, words):
    whole = made(name).read_bytes()
    path = tmp_path / made(name).name
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(RecordingError, match=rf"{path.name}.*{words}"):
        convert(path, tmp_path / "out")


def test_messages_before_a_damaged_one_are_converted(made, tmp_path):
    path, message = tmp_path / "drive.bag", b"op=\x02"
    data = bytearray(made("bag").read_bytes())
    at = -1
    for _ in range(data.count(message) // 2):
        at = data.index(message, at + 1)
    data[at + 3] = 99
    path.write_bytes(data)
    outcome, whole = convert(path, tmp_path / "out"), convert(made("bag"), tmp_path / "whole")
    assert outcome.exit_code == 3
    assert 0 < outcome.samples < whole.samples
    assert any("drive.bag" in note and "Expected to find message data" in note for note in outcome.notes)
    (damage,) = Dataset(outcome.paths.container).metadata["sources"][0]["damage"]
    assert damage["offset"] == pytest.approx(len(data) / 2, rel=0.1)  # by the share of the messages that were read


@pytest.mark.parametrize("name", ["mcap, messages", "db3, messages"])
def test_of_compressed_messages_the_damaged_and_the_huge_ones_are_undecodable(made, tmp_path, name):
    """The others are converted; one that says that it unpacks to 64 GB takes no memory."""
    huge = b"\x28\xb5\x2f\xfd\xe0" + (1 << 36).to_bytes(8, "little")  # RFC 8878, 3.1.1: magic, descriptor, size
    path = tmp_path / made(name).name
    path.write_bytes(made(name).read_bytes())
    if path.suffix == ".mcap":
        found = messages(path)
        first, second, *others = (n for n, (_, channel, _) in enumerate(found) if channel.topic == "/radar/targets")
        for n, data in ((first, found[first][2].data[:-9]), (second, huge)):
            found[n] = *found[n][:2], replace(found[n][2], data=data)
        write(path, found)
    else:
        with sqlite3.connect(path) as opened:
            query = "SELECT messages.id, data FROM messages JOIN topics ON topics.id = topic_id WHERE name = ?"
            (first, data), (second, _), *others = opened.execute(query, ["/radar/targets"]).fetchall()
            new = [(data[:-9], first), (huge, second)]
            opened.executemany("UPDATE messages SET data = ? WHERE id = ?", new)
        opened.close()
    outcome, whole = convert(path, tmp_path / "out"), convert(made(name), tmp_path / "whole")
    assert outcome.counts["/radar/targets"].dropped[UNDECODABLE] == 2
    assert others
    assert outcome.samples == whole.samples
    assert outcome.loss
    assert not any("is lost" in note for note in outcome.notes)


def test_what_is_no_container_is_refused_by_name(tmp_path):
    for name in ("x.db3", "x.bag"):
        (tmp_path / name).write_bytes(b"no such file" * 99)
        with pytest.raises(RecordingError, match=name):
            convert(tmp_path / name, tmp_path / "out")


def test_messages_that_a_database_holds_back_are_reported(made, tmp_path):
    path = tmp_path / "drive.db3"
    path.write_bytes(made("db3").read_bytes())
    path.with_name("drive.db3-wal").write_bytes(b"held back")
    outcome = convert(path, tmp_path / "out")
    assert outcome.exit_code == 3
    assert any("drive.db3-wal" in note for note in outcome.notes)


def test_a_database_that_another_process_has_locked_is_read(made, drives, tmp_path):
    with closing(sqlite3.connect(made("db3"), isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        convert(made("db3"), tmp_path, name="drive")
    assert_same_dataset(tmp_path, drives["synthetic"][1], "drive")


@pytest.mark.parametrize(("name", "module", "extra"), [("db3", "rosbags", "bags"), ("bag", "rosbags", "bags"),
                                                       ("protobuf", "mcap_protobuf", "protobuf")])  # fmt: skip
def test_a_missing_extra_is_named_with_both_ways_to_install_it(made, tmp_path, monkeypatch, name, module, extra):
    path = made(name)
    monkeypatch.setattr("importlib.util.find_spec", lambda asked: None if asked == module else object())
    with pytest.raises(EdgeFirstError) as error:
        convert(path, tmp_path / "out")
    assert type(error.value) is EdgeFirstError  # exit code 1
    assert f"pip install 'edgefirst-ros[{extra}]'" in str(error.value)
    assert f"pip install '.[{extra}]'" in str(error.value)


# ---- messages that do not parse, other encodings -------------------------------------------------
def recoded(path, source, topic, change):
    """A recording with what `change` makes of each channel and message of a topic."""
    return write(path, [
        (schema, *(change(channel, message) if channel.topic.endswith(topic) else (channel, message)))
        for schema, channel, message in messages(source)
    ])  # fmt: skip


def test_a_protobuf_message_that_does_not_parse_is_undecodable(made, tmp_path):
    seen = []

    def change(channel, message):
        seen.append(0)
        return channel, replace(message, data=b"\xff" * 20) if len(seen) == 2 else message

    outcome = convert(recoded(tmp_path / "x.mcap", made("protobuf"), "gps", change), tmp_path / "out")
    (count,) = (count for topic, count in outcome.counts.plain().items() if topic.endswith("gps"))
    assert count["dropped"][UNDECODABLE] == 1
    assert outcome.exit_code == 3


@pytest.mark.parametrize("encoding", ["json", "cbor", "flatbuffer", "xcdr2"])
def test_other_encodings_are_counted_by_name(drives, tmp_path, encoding):
    def change(channel, message):
        return replace(channel, message_encoding=encoding), message

    path = recoded(tmp_path / "x.mcap", drives["synthetic"][0], "gps", change)
    outcome = convert(path, tmp_path / "out")
    (count,) = (count for topic, count in outcome.counts.plain().items() if topic.endswith("gps"))
    assert count["dropped"] == {f"unknown encoding ({encoding})": count["seen"]}


def test_a_cloud_with_a_pose_is_turned_by_it(made, tmp_path):
    """A third of a turn about x = y = z and 1, 2, 3 m: (x, y, z) becomes (1 + z, 2 + x, 3 + y); floats and doubles."""
    seen = []

    def change(channel, message):
        cloud = PointCloud_pb2.PointCloud.FromString(message.data)
        seen.append(0)
        if len(seen) % 2:
            fields = {field.name: field.offset for field in cloud.fields if field.name in "xyz"}
            form = {
                "names": [*fields],
                "formats": ["<f4"] * 3,
                "offsets": [*fields.values()],
                "itemsize": cloud.point_stride,
            }
            points = np.frombuffer(cloud.data, np.dtype(form))
            cloud.data, cloud.point_stride = points.astype([(name, "<f8") for name in fields]).tobytes(), 24
            del cloud.fields[:]
            for number, name in enumerate(fields):
                cloud.fields.add(name=name, offset=8 * number, type=8)
        turn = cloud.pose.orientation
        turn.x = turn.y = turn.z = turn.w = 0.5
        cloud.pose.position.x, cloud.pose.position.y, cloud.pose.position.z = 1, 2, 3
        return channel, replace(message, data=cloud.SerializeToString())

    plain = convert(made("protobuf"), tmp_path / "plain")
    turned = convert(recoded(tmp_path / "x.mcap", made("protobuf"), "lidar/points", change), tmp_path / "turned")
    assert len(seen) > 2
    for was, now in zip(*(Dataset(out.paths.container) for out in (plain, turned)), strict=True):
        before, after = was.decode("lidar.pcd"), now.decode("lidar.pcd")
        np.testing.assert_allclose(after["x"], 1 + before["z"], atol=1e-4)
        np.testing.assert_allclose(after["y"], 2 + before["x"], atol=1e-4)
        np.testing.assert_allclose(after["z"], 3 + before["y"], atol=1e-4)
    assert any("lidar/points" in note and "pose" in note for note in turned.notes)


def test_cubes_of_a_scene_become_boxes_at_the_equal_stamp(drives, tmp_path):
    """A box of 4 x 2 x 1.5 m, a quarter turn about z, 10 m ahead of the vehicle: its length is across."""
    source, folder = drives["synthetic"]
    stamps = frames(folder / "drive.frames.arrow")["timestamp"].to_list()
    found = messages(source)
    for number, stamp in enumerate((stamps[2], stamps[4] + 1_000_000)):
        update = SceneUpdate_pb2.SceneUpdate()
        entity = update.entities.add(frame_id="base_link", id="car 7")
        entity.timestamp.seconds, entity.timestamp.nanos = divmod(stamp, SECOND)
        entity.metadata.add(key="label", value="car")
        for label_less in range(2):
            cube = entity.cubes.add()
            cube.pose.position.x, cube.pose.position.y, cube.pose.position.z = 10, 1, 0.5 + label_less
            cube.pose.orientation.z = cube.pose.orientation.w = 0.5**0.5
            cube.size.x, cube.size.y, cube.size.z = 4, 2, 1.5
        schema = replace(found[0][0], id=99, name="foxglove.SceneUpdate", encoding="protobuf",
                         data=descriptors(SceneUpdate_pb2.SceneUpdate))  # fmt: skip
        channel = replace(found[0][1], id=99, topic="/scene", message_encoding="protobuf", schema_id=99)
        message = replace(found[0][2], channel_id=99, log_time=stamp, publish_time=stamp, sequence=number,
                          data=update.SerializeToString())  # fmt: skip
        found.append((schema, channel, message))
    path = write(tmp_path / "drive.mcap", sorted(found, key=lambda one: one[2].log_time))
    outcome = convert(path, tmp_path / "out")
    rows = pl.read_ipc(outcome.paths.arrow).filter(pl.col("box3d").is_not_null())
    assert rows["frame"].to_list() == [2, 2]
    assert rows["label"].to_list() == ["car", "car"]
    np.testing.assert_allclose(rows["box3d"].to_numpy(), [[10, 1, 0.5, 2, 4, 1.5], [10, 1, 1.5, 2, 4, 1.5]], atol=1e-5)
    assert rows["object_id"].n_unique() == 2


@pytest.mark.parametrize("folder", ["run #3", "half 50%25", "what?"])
def test_a_database_is_found_by_any_name(made, drives, tmp_path, folder):
    (tmp_path / folder).mkdir()
    path = shutil.copy(made("db3"), tmp_path / folder)
    convert(path, tmp_path / "out", name="drive")
    assert_same_dataset(tmp_path / "out", drives["synthetic"][1], "drive")


@pytest.mark.parametrize("container", ["db3", "bag"])
def test_a_container_that_was_not_walked_is_walked_first(made, container):
    walked = open_files(made(container))
    expected = sorted((m.log_time, m.topic, m.data) for m in walked.walk())
    for recording in (walked, open_files(made(container))):
        assert sorted((m.log_time, m.topic, m.data) for m in recording.iter_messages()) == expected


def test_joined_containers_count_a_message_that_both_have_once(made, drives, tmp_path):
    """Twice through the same messages, read twice: each topic has its messages once, and as many repeated."""
    again = tmp_path / "again.db3"
    again.symlink_to(made("db3"))
    recording = open_files(made("db3"), more=[again])
    single = len(list(open_files(made("db3")).walk()))
    for _ in range(2):
        assert len(list(recording.walk())) == single
        assert recording.repeated.total() == single
    assert len(list(recording.iter_messages())) == single
    with pytest.raises(UsageError, match="several containers"):
        open_files(made("db3"), more=[made("bag")])


def test_progress_of_joined_containers_only_rises(made):
    recording = open_files(made("db3"), more=[made("db3", "jpeg")])
    places = [recording.position for _ in recording.walk()]
    assert places == sorted(places)
    assert 0 < places[0] < places[-1] == recording.size
