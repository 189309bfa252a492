# SPDX-License-Identifier: Apache-2.0
"""What frames hold while messages come, by counting frames that were pushed and not handed on."""

import pytest
from edgefirst.schemas import builtin_interfaces, sensor_msgs, std_msgs

from edgefirst_ros.config import Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.messages import Message
from edgefirst_ros.pipeline.facts import SequenceFacts
from edgefirst_ros.pipeline.frame import Frame, Usage
from edgefirst_ros.pipeline.frames import FrameBuilder
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.streams import CLOUD, IMAGE
from edgefirst_ros.sync.clock import TimeBase

SECOND, START, STEP = 10**9, 1_700_000_000 * 10**9, 10**9 // 20
CAMERA, LIDAR = "/camera/image", "/lidar/points"


def header(stamp):
    return std_msgs.Header(builtin_interfaces.Time(*divmod(stamp, SECOND)), "x")


def picture(stamp, log_time, number):
    data = bytes(sensor_msgs.Image(header(stamp), 2, 2, "mono8", 0, 2, bytes(4)).to_bytes())
    return Message(CAMERA, IMAGE, log_time, stamp, number, data)


def scan(stamp, log_time, number):
    fields = [sensor_msgs.PointField("x", 0, 7, 1)]
    cloud = sensor_msgs.PointCloud2(header(stamp), 1, 1, fields, False, 4, 4, bytes(4), True)
    return Message(LIDAR, CLOUD, log_time, stamp, number, bytes(cloud.to_bytes()))


def sent(number, log_time):
    """A camera at 20 Hz and a lidar at 10 Hz; `log_time` of the message at a stamp."""
    found = []
    for n in range(number):
        stamp = START + n * STEP
        found.append(picture(stamp, log_time(stamp), n))
        if n % 2 == 0:
            at = stamp + STEP // 5
            found.append(scan(at, log_time(at), n // 2)._replace(publish_time=stamp))
    return found


def run(messages):
    """Frames by number, and the most that were held at any time."""
    settings, counts, frames, most = Settings(), Counts(), {}, 0
    roles = Roles(CAMERA, IMAGE, None, {"lidar.points": LIDAR})
    facts = SequenceFacts("a", roles, TimeBase("header"), Calibration(), counts)

    def take(item):
        if isinstance(item, Frame):
            frames[item.number] = {sensor: stamp for sensor, (stamp, _) in item.companions.items()}

    builder = FrameBuilder(settings, facts, Usage(counts, roles), take)
    pushed = 0
    for message in messages:
        builder.push(message)
        pushed += message.topic == CAMERA
        most = max(most, pushed - len(frames))
    builder.advance(None)
    return frames, most


@pytest.mark.parametrize(
    "log_time",
    [lambda stamp: 0, lambda stamp: START, lambda stamp: START if stamp < START + 20 * SECOND else START + 3 * SECOND],
    ids=["zero", "equal", "stands still twice"],
)
def test_where_log_time_stands_still_the_stamps_of_the_reference_bound_what_is_held(log_time):
    expected, usual = run(sent(1000, lambda stamp: stamp))
    frames, most = run(sent(1000, log_time))
    assert frames == expected
    assert len(frames) == 1000
    assert most <= usual + 2
    assert usual < 100


def test_a_coarse_log_time_does_not_run_faster_than_the_recording():
    """Log times of whole seconds: companions that are recorded late are not lost."""
    messages = sent(400, lambda stamp: stamp // SECOND * SECOND)
    late = [m for m in messages if m.topic == LIDAR]
    moved = sorted(messages, key=lambda m: m.publish_time + (SECOND // 2 if m in late else 0))
    expected, _ = run(sent(400, lambda stamp: stamp))
    assert run(moved)[0] == expected


@pytest.mark.parametrize(
    ("offered", "samples", "number"),
    [
        ([0], [100], 0),  # just within
        ([0], [101], 1),
        ([0], [1000], 1),  # just as far as the lookahead
        ([0], [1001], 0),
        ([1000], [0], 1),
        ([0, 900], [500], 1),  # of two equally far the earlier
        ([0, 900], [440, 460], 2),
        ([0], [50, 400], 0),  # one sample has it
        ([0], [-400, 50], 0),
        ([0, 0], [400], 1),  # of one stamp the first
        ([0, 300], [310, 700], 0),  # the nearest of the second is in the first
        ([], [5], 0),
        ([5], [], 0),
    ],
)
def test_messages_nearest_to_a_sample_and_too_far_are_outside_the_tolerance(offered, samples, number):
    ms, counts, roles = 10**6, Counts(), Roles(CAMERA, IMAGE, None, {"lidar.points": LIDAR})
    facts, usage = SequenceFacts("a", roles, TimeBase("header"), Calibration(), counts), Usage(counts, roles)
    builder = FrameBuilder(Settings(), facts, usage, lambda item: isinstance(item, Frame) and usage.observe(item))
    of = [(stamp, scan) for stamp in offered] + [(stamp, picture) for stamp in samples]
    for n, (stamp, make) in enumerate(sorted(of, key=lambda one: one[0])):
        builder.push(make(START + stamp * ms, START + stamp * ms, n))
    builder.advance(None)
    usage.settle()
    assert counts[LIDAR].dropped["outside tolerance"] == number
