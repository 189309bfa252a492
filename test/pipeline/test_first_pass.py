# SPDX-License-Identifier: Apache-2.0
"""The first walk over recordings whose messages are made with the ROS types of rosbags."""

import mcap_files as files
import numpy as np
import pytest
from rosbags.typesys import Stores, get_typestore

from edgefirst_ros.config import Settings
from edgefirst_ros.errors import RecordingError, UsageError
from edgefirst_ros.pipeline.first_pass import walk

SECOND = 10**9
ROS = get_typestore(Stores.ROS2_HUMBLE)
RAW = "sensor_msgs/msg/Image"


def image(stamp):
    header = ROS.types["std_msgs/msg/Header"](
        stamp=ROS.types["builtin_interfaces/msg/Time"](sec=stamp // SECOND, nanosec=stamp % SECOND), frame_id="camera"
    )
    content = ROS.types[RAW](
        header=header, height=1, width=2, encoding="mono8", is_bigendian=0, step=2, data=np.zeros(2, np.uint8)
    )
    return bytes(ROS.serialize_cdr(content, RAW))


def camera(number=10, *, stamps=None, topic="/camera/image", damaged=(), numbers=None):
    sent = []
    for n in range(number):
        log = files.START + n * SECOND // 10
        data = image(log - 1000 if stamps is None else stamps[n])
        sequence = n if numbers is None else numbers[n]
        sent.append(files.Sent(topic, log, sequence, data[:30] if n in damaged else data, log - 500))
    return sent


def surveyed(tmp_path, messages, **settings):
    path = tmp_path / "host_2026_01_15_12_00_00.mcap"
    files.write(path, messages, schema="sensor_msgs/Image")
    options = Settings(**settings)
    return walk(path, options).conclude(options)


def test_what_is_found(tmp_path):
    found = surveyed(tmp_path, camera())
    assert found.roles.reference == "/camera/image"
    assert (found.base.base, found.base.offset, found.base.replaced) == ("header", -1000, {})
    assert (found.segments, found.overlapping, bool(found.numbered), found.base.by_header) == (1, set(), True, True)
    assert found.span == (files.START, files.START + 9 * SECOND // 10)
    assert found.wanted == 10
    assert found.unreadable == {}


@pytest.mark.parametrize(
    ("numbers", "numbered"),
    [
        (range(10), True),
        ([0, 1, 2, 5, 6, 7, 8, 9, 10, 11], True),
        (range(0, 20, 2), False),
        ([0] * 10, False),
        ([9, 8, 7, 6, 5, 4, 3, 2, 1, 0], True),  # in recorded order they rise
    ],
)
def test_gaps_in_numbers_mean_a_loss_where_the_usual_step_is_one(tmp_path, numbers, numbered):
    assert surveyed(tmp_path, camera(numbers=list(numbers))).numbered == ({"/camera/image"} if numbered else set())


def test_undecodable_messages_take_no_part_in_medians_and_segments(tmp_path):
    """Their stamps are 100 s off; as many as would move the median and make segments."""
    stamps = [files.START + n * SECOND // 10 - (100 * SECOND if n % 2 else 0) for n in range(10)]
    whole = surveyed(tmp_path, camera(stamps=stamps))
    assert whole.segments > 1
    assert whole.base.offset == -100 * SECOND
    found = surveyed(tmp_path, camera(stamps=stamps, damaged=(1, 3, 5, 7, 9)))
    assert (found.segments, found.base.offset) == (1, 0)
    assert found.unreadable == {"/camera/image": 5}


def test_a_clock_set_back_makes_segments_that_overlap(tmp_path):
    stamps = [files.START + n * SECOND - (4 * SECOND if n >= 6 else 0) for n in range(10)]
    found = surveyed(tmp_path, camera(stamps=stamps))
    assert (found.segments, found.overlapping) == (2, {0, 1})


def test_the_clock_the_user_chooses_makes_the_segments(tmp_path):
    stamps = [files.START + n * 20 * SECOND for n in range(10)]
    assert surveyed(tmp_path, camera(stamps=stamps)).segments == 10
    assert surveyed(tmp_path, camera(stamps=stamps), time_base="publish").segments == 1
    assert surveyed(tmp_path, camera(stamps=stamps), time_base="log").segments == 1


def test_stamps_of_a_simulation_are_named_and_used_on_demand(tmp_path):
    """They begin at 0; the recorder's are those of this year. Stamps that are zero are named nowhere."""
    stamps = [n * SECOND // 10 for n in range(10)]
    found = surveyed(tmp_path, camera(stamps=stamps))
    assert found.base.base == "publish"
    (note,) = (one for one in found.roles.notes if "time-base" in one)
    assert note.startswith("/camera/image: its header stamps are before the year 2000")
    chosen = surveyed(tmp_path, camera(stamps=stamps), time_base="header")
    for one in (chosen, surveyed(tmp_path, camera(stamps=[0] * 10)), surveyed(tmp_path, camera())):
        assert not [note for note in one.roles.notes if "time-base" in note]


def test_a_single_message_and_only_undecodable_ones(tmp_path):
    assert surveyed(tmp_path, camera(1)).numbered == set()
    found = surveyed(tmp_path, camera(3, damaged=(0, 1, 2)))
    assert (found.segments, found.unreadable) == (0, {"/camera/image": 3})


@pytest.mark.parametrize("name", ["/camera/info", "/tf_static", "/model/info", "/some/topic"])
def test_any_topic_can_be_the_reference(tmp_path, name):
    """Here all topics are pictures; what is said once keeps its type in the next test."""
    assert surveyed(tmp_path, camera(topic=name), reference_topic=name).roles.reference == name


def test_what_is_said_once_can_be_the_reference(tmp_path):
    from edgefirst_ros.synthetic import Recipe, write_recording

    path = tmp_path / "a.mcap"
    recipe = Recipe(
        seconds=1, topics={"camera", "camera/info", "tf_static", "model/info"}, codec="jpeg", size=(128, 64)
    )
    write_recording(path, recipe)
    for name in ("camera/info", "/tf_static", "model/info"):
        options = Settings(reference_topic=name)
        found = walk(path, options).conclude(options)
        assert found.roles.reference == "/" + name.removeprefix("/")
        assert found.calibration.camera_info is not None
        assert len(found.calibration.static_transforms) == 3


def test_every_topic_is_counted(tmp_path):
    other = [m._replace(topic="/other", encoding="json") for m in camera(4)]
    none = [m._replace(topic="/none", encoding="") for m in camera(3)]
    unused = [m._replace(topic="/camera/h264") for m in camera(2)]
    found = surveyed(tmp_path, camera() + other + none + unused).sequence("drive")
    assert found.counts.plain() == {
        "/camera/image": {"seen": 10, "written": 0, "dropped": {}},
        "/camera/h264": {"seen": 2, "written": 0, "dropped": {}},
        "/other": {"seen": 4, "written": 0, "dropped": {"unknown encoding (json)": 4}},
        "/none": {"seen": 3, "written": 0, "dropped": {"unknown encoding (none)": 3}},
    }


def test_errors_name_the_recording(tmp_path):
    with pytest.raises(RecordingError, match=r"12_00_00\.mcap.*no messages"):
        surveyed(tmp_path, [])
    with pytest.raises(RecordingError, match=r"no messages in CDR in it, only /camera/image \(json\)"):
        surveyed(tmp_path, [m._replace(encoding="json") for m in camera()])
    with pytest.raises(UsageError, match=r"12_00_00\.mcap.*/none"):
        surveyed(tmp_path, camera(), reference_topic="/none")
    with pytest.raises(UsageError, match=r"/a, /b"):
        surveyed(tmp_path, camera(topic="/a") + camera(topic="/b"))
    with pytest.raises(UsageError, match="header"):
        surveyed(tmp_path, camera(stamps=[0] * 10), time_base="header")


def test_progress_and_messages_can_be_watched(tmp_path):
    path = tmp_path / "a.mcap"
    size = len(files.write(path, camera(), schema="sensor_msgs/Image"))
    done, seen = [], []
    walk(path, Settings(), lambda at, of: done.append((at, of)), seen.append)
    assert [m.sequence for m in seen] == list(range(10))
    assert all(0 < at <= of == size for at, of in done)


@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
@pytest.mark.parametrize("settings", [{}, {"reference_topic": "/camera/image"}])
def test_of_a_cut_recording_the_cause_comes_before_the_symptom(tmp_path, compression, settings):
    path = tmp_path / "host_2026_01_15_12_00_00.mcap"
    others = [m._replace(topic="/other") for m in camera(40)]
    data = files.write(path, others + camera(), schema="sensor_msgs/Image", compression=compression, chunk_size=1000)
    last = files.chunks(data)[2]
    path.write_bytes(data[: (last.body + last.end) // 2])
    options = Settings(**{"reference_topic": "/camera/jpeg", **settings})
    with pytest.raises((RecordingError, UsageError)) as caught:
        walk(path, options).conclude(options)
    said = str(caught.value)
    assert said.index(f"{path.name}: the recording is cut: at byte {last.start}: ") < said.index("reference topic")
    (tmp_path / "empty.mcap").write_bytes(files.MAGIC + files.record(0x0B, bytes(5)))
    with pytest.raises(RecordingError, match=r"the recording is cut: .*; there are no messages in it$"):
        walk(tmp_path / "empty.mcap", Settings()).conclude(Settings())
