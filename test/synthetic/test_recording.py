# SPDX-License-Identifier: Apache-2.0
"""Recordings read back with mcap and rosbags: counts, stamps, contents, faults."""

import errno
import hashlib
import math
import os
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest
import zstandard
from mcap.exceptions import McapError
from mcap.reader import make_reader
from mcap.writer import Writer
from read_back import Read, nanoseconds

from edgefirst_ros.errors import RecordingError
from edgefirst_ros.synthetic import EVERY, START, TOPICS, Recipe, write_recording
from edgefirst_ros.synthetic.scene import TRANSFORMS

SECOND = 10**9
SMALL = {"seconds": 2.0, "size": (320, 180), "fps": 15.0, "cube_shape": (2, 64, 4, 64), "lidar_points": 600}
CHEAP = {**SMALL, "topics": {"camera", "gps", "imu", "radar/targets", "tf_static"}}


@pytest.fixture(scope="module")
def all_topics(tmp_path_factory):
    path = tmp_path_factory.mktemp("all") / "all.mcap"
    truth = write_recording(path, Recipe(**SMALL, topics=TOPICS, codec="h265", foreign_channel=True))
    return truth, Read(path)


def write(tmp_path, **values):
    return write_recording(tmp_path / "r.mcap", Recipe(**CHEAP | values))


def test_counts_and_stamps(all_topics):
    truth, read = all_topics
    expected = {
        "camera": 30, "camera/info": 30, "gps": 20, "imu": 100, "lidar/points": 20, "model/info": 2,
        "radar/cube": 36, "radar/targets": 36, "radar/clusters": 36, "radar/info": 2, "tf_static": 6,
        "model/output": 10, "model/boxes2d": 10, "model/mask": 10, "model/mask_compressed": 10, "fusion/boxes3d": 20,
    }  # fmt: skip
    assert truth.counts == expected
    for name, count in expected.items():
        records = read.records(truth.recipe.topic(name))
        assert len(records) == count, name
        assert [r.sequence for r in records] == list(range(count))
        assert [r.publish_time for r in records] == [truth.recipe.stamp(name, i) for i in range(count)]
        assert all(0 < r.log_time - r.publish_time < SECOND // 5 for r in records)
        if not name.startswith("model/mask"):
            stamps = [getattr(m, "header", m) for m in read.messages(truth.recipe.topic(name))]
            stamps = [nanoseconds(getattr(s, "stamp", None) or s.timestamp) for s in stamps]
            assert stamps == [truth.recipe.stamp(name, i) for i in range(count)]


def test_the_file_is_as_the_recorder_writes_it(all_topics):
    truth, read = all_topics
    with open(truth.path, "rb") as file:
        reader = make_reader(file)
        assert reader.get_header().profile == ""
        summary = reader.get_summary()
    assert summary.statistics.message_count == sum(truth.counts.values()) + 2
    assert {c.message_encoding for c in summary.channels.values()} == {"cdr", "json"}
    assert {s.encoding for s in summary.schemas.values()} == {"ros2msg", "jsonschema"}
    assert {c.topic for c in summary.channels.values()} == {*map(truth.recipe.topic, TOPICS), "/clock_step"}
    times = [m.log_time for topic in read.by_topic for m in read.records(topic)]
    with open(truth.path, "rb") as file:
        in_file = [m.log_time for _, _, m in make_reader(file).iter_messages(log_time_order=False)]
    assert in_file == sorted(times)


@pytest.mark.parametrize("distribution", ["ROS2_HUMBLE", "ROS2_JAZZY", "ROS2_KILTED"])
def test_embedded_texts_are_those_of_the_distribution(all_topics, distribution):
    """The types as the texts in the file give them, against the definitions that rosbags carries."""
    from rosbags.typesys import Stores, get_typestore

    _, read = all_topics
    known = get_typestore(Stores[distribution]).fielddefs
    shared = [name for name in read.store.fielddefs if name in known]
    assert len(shared) > 12
    for name in shared:
        assert [(f, t) for f, t in read.store.fielddefs[name][1]] == [(f, t) for f, t in known[name][1]], name


def test_radar_cube_peaks_at_the_targets(all_topics):
    truth, read = all_topics
    found = 0
    for index, message in enumerate(read.messages("/radar/cube")):
        assert (list(message.layout), list(message.shape)) == ([6, 1, 5, 2], [2, 64, 4, 64])
        assert message.is_complex
        pairs = message.cube.reshape(2, 64, 4, 32, 2).astype(float)
        power = np.abs(pairs[..., 0] + 1j * pairs[..., 1])
        # Expected from the scene, by hand: 51.2 m over 64 bins, 32 m/s over 32 bins, zero speed in the middle.
        cells = set()
        for thing in truth.scene.things(truth.recipe.stamp("radar/cube", index)):
            offset = np.subtract(thing.centre, (2.2, 0, 0.6))
            distance = np.linalg.norm(offset)
            cells.add((round(distance / message.scales[1]), round(offset @ thing.velocity / distance) + 16))
        assert message.scales[1] == pytest.approx(0.8)
        assert message.scales[3] == pytest.approx(1.0)
        strong = set(zip(*np.nonzero((power[0] > 6000).all(axis=1)), strict=True))
        assert strong == cells
        assert 0.4 < power[1].max() / power[0].max() < 0.6
        found += len(strong)
    assert found > 36 * 3


def test_the_truth_tells_what_was_written(all_topics):
    truth, read = all_topics
    assert truth.recipe.rate("camera") == 15.0
    placed = {m.child_frame_id: m.transform for m in read.messages("/tf_static")}
    for known in TRANSFORMS:
        found = placed.pop(known.child)
        assert (found.translation.x, found.translation.y, found.translation.z) == known.translation
        assert (found.rotation.x, found.rotation.y, found.rotation.z, found.rotation.w) == known.rotation
    assert not placed
    for index, message in enumerate(read.messages("/radar/cube")):
        pairs = message.cube.reshape(2, 64, 4, 32, 2).astype(float)
        power = np.abs(pairs[0, ..., 0] + 1j * pairs[0, ..., 1])
        bins = truth.radar.bins(truth.recipe.stamp("radar/cube", index))
        assert {(at, doppler) for at, doppler, _ in bins} == set(
            zip(*np.nonzero((power > 6000).all(axis=1)), strict=True)
        )
        assert all(-1 <= sine <= 1 for _, _, sine in bins)


def test_radar_clouds_hold_the_objects(all_topics):
    truth, read = all_topics
    for index, (targets, clusters) in enumerate(
        zip(read.messages("/radar/targets"), read.messages("/radar/clusters"), strict=True)
    ):
        assert (targets.point_step, clusters.point_step) == (24, 28)
        assert [f.name for f in clusters.fields] == ["x", "y", "z", "speed", "power", "rcs", "cluster_id"]
        things = truth.scene.things(truth.recipe.stamp("radar/targets", index))
        rows = targets.data.view("<f4").reshape(-1, 6)
        assert np.allclose(rows[:, :3] + [2.2, 0, 0.6], [thing.centre for thing in things], atol=1e-5)
        assert list(clusters.data.view("<f4").reshape(-1, 7)[:, 6]) == [thing.number + 1 for thing in things]


def test_lidar_points_lie_on_the_boxes_or_the_ground(all_topics):
    truth, read = all_topics
    dtype = np.dtype({"names": ["x", "y", "z", "r"], "formats": ["<f4"] * 3 + ["u1"], "offsets": [0, 4, 8, 12]})
    for index, cloud in enumerate(read.messages("/lidar/points")):
        assert (cloud.point_step, cloud.width, cloud.height, len(cloud.data)) == (13, 600, 1, 7800)
        assert [(f.name, f.offset, f.datatype, f.count) for f in cloud.fields] == [
            ("x", 0, 7, 1), ("y", 4, 7, 1), ("z", 8, 7, 1), ("reflect", 12, 2, 1),
        ]  # fmt: skip
        points = cloud.data.view(dtype)
        xyz = np.stack([points["x"] + 1.0, points["y"], points["z"] + 1.8], axis=1)
        assert np.allclose(xyz[points["r"] == 10][:, 2], 0, atol=1e-6)
        on_objects = 0
        for thing in truth.scene.things(truth.recipe.stamp("lidar/points", index)):
            off = (xyz[points["r"] == 100 + thing.number] - thing.centre) / thing.size
            assert np.abs(off).max() <= 0.5 + 1e-4
            assert np.allclose(off[:, 0], -0.5, atol=1e-4)
            on_objects += len(off)
        assert on_objects == 300


def test_gps_and_imu_follow_the_track(all_topics):
    truth, read = all_topics
    for index, fix in enumerate(read.messages("/gps")):
        assert (fix.latitude, fix.longitude, fix.altitude) == truth.scene.position(truth.recipe.stamp("gps", index))
        assert fix.status.status == 0
        assert fix.position_covariance[0] == 1.5**2
    for index, imu in enumerate(read.messages("/imu")):
        q = imu.orientation
        assert (q.x, q.y, q.z, q.w) == truth.scene.orientation(truth.recipe.stamp("imu", index))
        yaw = math.atan2(2 * (q.w * q.z + q.x * q.y), 1 - 2 * (q.y**2 + q.z**2))
        assert yaw == pytest.approx(0.6 + 0.05 * (truth.recipe.stamp("imu", index) - START) / SECOND, abs=1e-9)
        assert imu.orientation_covariance[0] == -1


def test_model_results(all_topics):
    truth, read = all_topics
    labels = read.messages("/model/info")[0].labels
    kinds = set()
    for index, (model, detect, mask) in enumerate(
        zip(*(read.messages(f"/model/{name}") for name in ("output", "boxes2d", "mask")), strict=True)
    ):
        stamp = truth.recipe.stamp("camera", 3 * index)
        assert nanoseconds(model.header.stamp) == nanoseconds(detect.header.stamp) == stamp
        things = truth.boxes(stamp)
        assert len(model.boxes) == len(model.masks) == len(detect.boxes) == len(things) > 2
        picture = truth.painter.picture(3 * index)
        for box, again, part, thing in zip(model.boxes, detect.boxes, model.masks, things, strict=True):
            box2d = [box.center_x, box.center_y, box.width, box.height]
            assert box2d == pytest.approx(thing.box2d, abs=1e-6)
            assert box == again
            assert labels[thing.label_index] == box.label
            assert part.boxed
            assert part.mask.size == part.width * part.height
            track = box.track.id
            kinds.add("number" if track.isdigit() else track and uuid.UUID(track).version)
        nearest, shape = things[-1], model.masks[-1].mask.reshape(model.masks[-1].height, -1)
        x, y, w, h = nearest.box2d
        colour = picture[int((y + h / 4) * 180), int((x - w / 2 + w * 0.45) * 320)]
        assert shape[len(shape) // 4, int(0.45 * shape.shape[1])] == 255
        assert shape[len(shape) // 4, int(0.1 * shape.shape[1])] == 0
        row, column = int((y + h / 4) * mask.height), int((x - w / 2 + w * 0.45) * mask.width)
        assert mask.mask.reshape(mask.height, mask.width)[row, column] == nearest.label_index
        assert (colour[2] > colour[0]) == (nearest.label == "car")
        times = [model.input_time, model.model_time, model.output_time, model.decode_time]
        assert [nanoseconds(t) for t in times] == [2_000_000, 9_000_000, 1_000_000, 3_000_000]
    assert kinds == {"", "number", 4}


def test_full_masks_are_what_is_painted(tmp_path):
    truth = write_recording(tmp_path / "r.mcap", Recipe(**SMALL, topics=TOPICS, codec="jpeg", full_masks=True))
    read = Read(truth.path)
    colours = {1: (60, 90, 200), 2: (205, 95, 60)}
    for index, (mask, packed, model) in enumerate(
        zip(*(read.messages(f"/model/{name}") for name in ("mask", "mask_compressed", "output")), strict=True)
    ):
        picture, stamp = truth.painter.picture(3 * index), truth.recipe.stamp("camera", 3 * index)
        classes = mask.mask.reshape(mask.height, mask.width)
        assert (mask.width, mask.height, mask.boxed) == (320, 180, False)
        for number, colour in colours.items():
            painted = (picture == colour).all(axis=2)
            assert painted.any()
            assert (classes[painted] == number).all()
        assert packed.encoding == "zstd"
        assert zstandard.ZstdDecompressor().decompress(packed.mask.tobytes()) == mask.mask.tobytes()
        assert np.array_equal(truth.classes(stamp), classes)
        things = truth.boxes(stamp)
        for part, thing in zip(model.masks, things, strict=True):
            whole = truth.mask(thing)
            assert part.boxed
            assert (part.height, part.width) == (round(thing.box2d[3] * 180), round(thing.box2d[2] * 320))
            assert whole.sum() == (part.mask == 255).sum() > 0
        assert (classes[truth.mask(things[-1])] == things[-1].label_index).all()  # nothing is nearer


def test_boxes_in_space(all_topics):
    """As the vendor's fusion sends them: sensor's stamp, optical axes, numbers instead of names."""
    truth, read = all_topics
    for index, detect in enumerate(read.messages("/fusion/boxes3d")):
        stamp = truth.recipe.stamp("lidar/points", index)
        assert nanoseconds(detect.header.stamp) == nanoseconds(detect.input_timestamp) == stamp
        for number, (box, thing) in enumerate(zip(detect.boxes, truth.scene.things(stamp), strict=True)):
            ahead, left, up = (a - b for a, b in zip(thing.centre, (1.0, 0.0, 1.8), strict=True))
            assert (box.center_x, box.center_y, box.distance) == pytest.approx((-left, -up, ahead), abs=1e-5)
            assert (box.width, box.height) == pytest.approx(thing.size[1:])
            assert (box.label, box.score, box.track.id) == (str(thing.label_index), 1.0, str(number + 1))


def test_transforms_and_camera_info(all_topics):
    truth, read = all_topics
    found = {m.child_frame_id: m for m in read.messages("/tf_static")}
    assert set(found) == {"camera_optical", "radar", "lidar"}
    t = found["camera_optical"].transform
    assert (t.translation.x, t.translation.y, t.translation.z) == (1.6, 0.0, 1.4)
    assert (t.rotation.x, t.rotation.y, t.rotation.z, t.rotation.w) == (-0.5, 0.5, -0.5, 0.5)
    info = read.messages("/camera/info")[0]
    assert (info.k[0], info.k[4], info.k[2], info.k[5]) == truth.scene.intrinsics == (256, 256, 160, 90)
    assert (info.width, info.height, info.distortion_model) == (320, 180, "plumb_bob")


@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_the_same_recipe_gives_the_same_bytes(tmp_path, codec):
    recipe = Recipe(**SMALL | {"seconds": 1.0}, codec=codec, b_frames=2, noise=4.0, compression="zstd")
    digests = set()
    for number in range(2):
        write_recording(tmp_path / f"{number}.mcap", recipe)
        digests.add(hashlib.sha256((tmp_path / f"{number}.mcap").read_bytes()).hexdigest())
    assert len(digests) == 1
    other = write_recording(tmp_path / "other.mcap", Recipe(**SMALL | {"seconds": 1.0}, codec=codec, seed=1))
    assert hashlib.sha256(other.path.read_bytes()).hexdigest() not in digests


@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
def test_compressions_hold_the_same_messages(tmp_path, compression):
    plain = Read(write(tmp_path).path)
    packed = write(tmp_path, compression=compression, chunk_size=1 << 14)
    with open(packed.path, "rb") as file:
        chunks = make_reader(file).get_summary().chunk_indexes
    assert {chunk.compression for chunk in chunks} == {compression}
    assert len(chunks) > 1
    again = Read(packed.path)
    assert all([m.data for m in plain.records(t)] == [m.data for m in again.records(t)] for t in plain.by_topic)


@pytest.mark.parametrize("prefix", ["/", "rt/", "/verdin-1/"])
def test_prefix_and_new_names(tmp_path, prefix):
    truth = write(tmp_path, prefix=prefix, rename={"gps": "/../../odd"})
    topics = {prefix + name for name in ("camera/h264", "imu", "radar/targets", "tf_static")} | {"/../../odd"}
    assert set(Read(truth.path).by_topic) == topics == {truth.recipe.topic(name) for name in truth.counts}


def test_header_faults(tmp_path):
    offset = 120 * SECOND - START
    truth = write(tmp_path, header_zero={"gps"}, all_equal={"imu"}, clock_offset={"radar/targets": offset})
    read = Read(truth.path)

    def stamps(topic):
        return [nanoseconds(m.header.stamp) for m in read.messages(topic)]

    assert stamps("/gps") == [0] * 20
    assert stamps("/imu") == [START] * 100
    assert stamps("/radar/targets") == [truth.recipe.stamp("radar/targets", i) + offset for i in range(36)]
    assert [r.publish_time for r in read.records("/radar/targets")] == [
        truth.recipe.stamp("radar/targets", i) for i in range(36)
    ]
    everything = Read(write(tmp_path, header_zero=EVERY, publish="log").path)
    assert {nanoseconds(m.timestamp) for m in everything.messages("/camera/h264")} == {0}
    assert all(r.publish_time == r.log_time for t in everything.by_topic for r in everything.records(t))


@pytest.mark.parametrize("step", [3600 * SECOND, -30 * SECOND])
def test_clock_steps_move_all_three_stamps(tmp_path, step):
    before, after = Read(write(tmp_path).path), Read(write(tmp_path, clock_steps=[(1.0, step)]).path)
    for topic, stepped in (("/gps", 20), ("/camera/h264", 30)):
        pairs = list(zip(before.records(topic), after.records(topic), strict=True))
        for a, b in pairs:
            assert b.publish_time - a.publish_time == (step if a.publish_time >= START + SECOND else 0)
            assert b.log_time - a.log_time == (step if a.log_time >= START + SECOND else 0)
        assert len(pairs) == stepped
    stamps = [nanoseconds(m.header.stamp) for m in after.messages("/gps")]
    assert stamps == [r.publish_time for r in after.records("/gps")]


def test_drops_truncations_and_rates_of_any_topic(tmp_path):
    truth = write(tmp_path, drop={"gps": {0, 3}}, truncate={"imu": {2}}, rates={"radar/targets": 4.0})
    read = Read(truth.path)
    left = [truth.recipe.stamp("gps", i) for i in range(20) if i not in (0, 3)]
    assert [r.publish_time for r in read.records("/gps")] == left
    sizes = [len(r.data) for r in read.records("/imu")]
    assert sizes[2] == sizes[3] // 2
    assert sizes.count(sizes[3]) == 99
    assert len(read.records("/radar/targets")) == truth.counts["radar/targets"] == 8


def test_latency_and_jitter(tmp_path):
    truth = write(tmp_path, latency_ms={"gps": 200.0}, jitter_ms=10.0)
    delays = np.array([r.log_time - r.publish_time for r in Read(truth.path).records("/gps")]) / 1e6
    assert 200 <= delays.min() < delays.max() <= 210
    assert delays.std() > 1


def test_without_its_end_every_chunk_is_whole_and_nothing_follows(tmp_path):
    whole = write(tmp_path, chunk_size=1 << 15).path.read_bytes()
    cut = write(tmp_path, chunk_size=1 << 15, without_end=True).path.read_bytes()
    assert whole.startswith(cut)
    assert whole[len(cut)] == 15  # the record that ends the data section comes next
    with open(tmp_path / "r.mcap", "rb") as file, pytest.raises(McapError):
        make_reader(file).get_summary()


@pytest.mark.parametrize(("cut", "left"), [(5000, 5000), (0, 0), (-100, None)])
def test_cut_at_a_byte(tmp_path, cut, left):
    whole = write(tmp_path).path.read_bytes()
    short = write(tmp_path, cut=cut).path.read_bytes()
    assert short == whole[: len(whole) - 100 if left is None else left]


def test_a_file_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(RecordingError, match="cannot be written"):
        write_recording(tmp_path / "no" / "r.mcap", Recipe(**CHEAP))


def test_what_is_begun_and_cannot_be_completed_is_removed(tmp_path, monkeypatch):
    add, added = Writer.add_message, []

    def until_full(writer, *given, **more):
        if len(added) == 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        added.append(1)
        add(writer, *given, **more)

    monkeypatch.setattr(Writer, "add_message", until_full)
    with pytest.raises(RecordingError, match=r"r\.mcap: cannot be written: .*No space left on device"):
        write(tmp_path)
    assert (len(added), [*tmp_path.iterdir()]) == (20, [])


def test_a_directory_in_the_way_stays(tmp_path):
    with pytest.raises(RecordingError, match="cannot be written"):
        write_recording(tmp_path, Recipe(**CHEAP))
    assert tmp_path.is_dir()


MEASURE = """
import sys
from pathlib import Path
from edgefirst_ros.synthetic import Recipe, write_recording
recipe = Recipe(seconds=float(sys.argv[2]), size=(320, 180), fps=10, cube_shape=(2, 64, 4, 64), lidar_points=600)
write_recording(Path(sys.argv[1]), recipe)
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])  # ru_maxrss would be the parent's, if larger
"""


def test_memory_does_not_grow_with_the_recording(tmp_path):
    """Peak memory in kB of a process of its own; six times the length may add a tenth."""
    peaks = [
        int(
            subprocess.run(
                [sys.executable, "-c", MEASURE, tmp_path / "r.mcap", str(seconds)],
                capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
            ).stdout
        )
        for seconds in (4, 24)
    ]  # fmt: skip
    assert peaks[1] < 1.1 * peaks[0]


def test_a_link_is_not_written_through(tmp_path):
    """Another user may have put it where the recording goes."""
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    with pytest.raises(RecordingError, match="link: cannot be written"):
        write_recording(tmp_path / "link", Recipe(seconds=0.1, topics={"gps"}))
    assert (tmp_path / "precious").read_text() == "precious"
