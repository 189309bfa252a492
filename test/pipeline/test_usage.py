# SPDX-License-Identifier: Apache-2.0
from edgefirst_ros.config import Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.pipeline.frame import SensorMessage
from edgefirst_ros.pipeline.usage import OutsideTolerance, Usage
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.streams import VIDEO

CAMERA, LIDAR, MODEL = "/camera/h264", "/lidar/points", "/model/output"
ROLES = Roles(CAMERA, VIDEO, None, {"lidar.points": LIDAR}, model=MODEL)


def test_every_message_is_written_or_dropped_for_one_reason():
    counts = Counts()
    usage = Usage(counts, ROLES, OutsideTolerance(Settings()))
    for topic in (LIDAR, MODEL):
        counts.see(topic, 5)
        late = [SensorMessage(topic, None, n, late=n > 2) for n in range(5)]
        for message in late:
            if message.late:
                usage.mark_late(topic)
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


def test_messages_of_the_reference_are_counted_as_samples():
    counts = Counts()
    Usage(counts, ROLES, OutsideTolerance(Settings())).use(SensorMessage(CAMERA, None, 0))
    assert counts.plain() == {}
