# SPDX-License-Identifier: Apache-2.0
from edgefirst_ros.config import Settings
from edgefirst_ros.pipeline.frame import Frame, SensorMessage
from edgefirst_ros.pipeline.samples import Sampling

S = 1_000_000_000


def lidar(frame):
    frame.companions["lidar.points"] = (frame.stamp, SensorMessage("/lidar/points", None, frame.stamp))
    return frame


def test_the_first_frame_of_each_bucket_is_taken_in_each_segment():
    sampling = Sampling(Settings(rate=2.0), None)
    taken = []
    for number, (stamp, segment) in enumerate([(0, 0), (S // 2 - 1, 0), (S // 2, 0), (S - 1, 0), (S - 1, 1), (S, 1)]):
        bucket = sampling.bucket_of(Frame(number, stamp, segment))
        if not sampling.passes_over(bucket, keyframe=False):
            sampling.fill(bucket)
            taken.append(number)
    assert taken == [0, 2, 4, 5]


def test_only_keyframes():
    sampling = Sampling(Settings(keyframes=True), None)
    assert sampling.passes_over(None, keyframe=False)
    assert not sampling.passes_over(None, keyframe=True)


def test_the_first_required_sensor_that_a_frame_lacks_is_named():
    sampling = Sampling(Settings(require=("lidar.points", "radar.cube")), None)
    assert sampling.missing(Frame(0, 0, 0)) == "lidar.points"
    assert sampling.missing(lidar(Frame(0, 0, 0))) == "radar.cube"


def test_a_reference_that_is_a_sensor_itself_is_not_missing():
    assert Sampling(Settings(require=("lidar.points",)), "lidar.points").missing(Frame(0, 0, 0)) is None
