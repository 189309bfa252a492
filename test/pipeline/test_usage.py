# SPDX-License-Identifier: Apache-2.0
from edgefirst_ros import convert
from edgefirst_ros.counts import Counts
from edgefirst_ros.pipeline.frame import Frame, SensorMessage, Usage
from edgefirst_ros.sensors.video.bitstream import AccessUnit
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.streams import VIDEO

CAMERA, LIDAR, MODEL = "/camera/h264", "/lidar/points", "/model/output"
ROLES = Roles(CAMERA, VIDEO, None, {"lidar.points": LIDAR}, model=MODEL)


def test_every_message_is_written_or_dropped_for_one_reason():
    counts = Counts()
    usage = Usage(counts, ROLES)
    for topic in (LIDAR, MODEL):
        counts.see(topic, 5)
        late = [SensorMessage(topic, None, n, late=n > 2) for n in range(5)]
        for message in late:
            usage.add(message)
        for message in (
            late[0],
            late[0],
            late[3],
        ):  # one serves two samples; one that came late serves one all the same
            usage.use(message)
    usage.settle()
    usage.count_unused()
    late = {"came after its frames were written": 1}
    assert counts.plain() == {
        LIDAR: {"seen": 5, "written": 2, "dropped": late | {"nearest to no sample": 2}},
        MODEL: {"seen": 5, "written": 2, "dropped": late | {"belongs to no sample": 2}},
    }


def test_of_a_disk_that_refuses_only_what_came_after_the_last_sample_is_lost():
    """Samples at 0 and 4; of the messages between none would have been used."""
    counts = Counts()
    usage = Usage(counts, ROLES)
    counts.see(LIDAR, 12)  # the last two are never read
    messages = [SensorMessage(LIDAR, None, stamp) for stamp in range(10)]
    for message in messages:
        usage.add(message)
    for stamp in (0, 4):
        frame = Frame(AccessUnit(stamp, None, 0), stamp, 0, {"lidar.points": (stamp, messages[stamp])})
        counts.see(CAMERA)
        usage.observe(frame)
    usage.count_unused(refused=True)
    dropped = {"refused by the disk": 7, "nearest to no sample": 3}
    assert counts.plain()[LIDAR] == {"seen": 12, "written": 2, "dropped": dropped}
    assert counts.plain()[CAMERA] == {"seen": 2, "written": 2, "dropped": {}}


def test_what_is_lost_to_the_disk_after_the_clock_was_set_back():
    """From 104 to 10; the only sample after that is at 12."""
    counts = Counts()
    usage = Usage(counts, ROLES)
    for segment, stamps, samples in ((0, range(100, 105), (100, 104)), (1, range(10, 20), (12,))):
        messages = {stamp: SensorMessage(LIDAR, None, stamp) for stamp in stamps}
        counts.see(LIDAR, len(messages))
        for message in messages.values():
            usage.add(message, segment)
        for at in samples:
            usage.observe(Frame(AccessUnit(at, None, 0), at, segment, {"lidar.points": (at, messages[at])}))
    usage.count_unused(refused=True)
    dropped = {"refused by the disk": 7, "nearest to no sample": 5}
    assert counts.plain()[LIDAR] == {"seen": 15, "written": 3, "dropped": dropped}


def test_messages_of_the_reference_are_counted_as_samples():
    counts = Counts()
    Usage(counts, ROLES).use(SensorMessage(CAMERA, None, 0))
    assert counts.plain() == {}


def test_a_conversion_tells_them_apart(recording, tmp_path, judge, capsys):
    """Ten messages a second, samples at full seconds, and only what lies within 5 ms is taken."""
    path = recording(seconds=3.0, fps=10.0, size=(128, 64), codec="jpeg", lidar_points=20,
                     topics=frozenset({"camera", "lidar/points"}))  # fmt: skip
    outcome = convert(path, tmp_path, name="out", rate=1, tolerance=0.005)
    count = outcome.counts.plain()["/lidar/points"]
    assert count["dropped"] == {"outside tolerance": 3, "nearest to no sample": 27}
    assert (
        judge(path, outcome.paths.container, "--rate", "1", "--tolerance", "0.005", "--section10", capsys=capsys) == []
    )
