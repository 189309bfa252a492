# SPDX-License-Identifier: Apache-2.0
"""A stretch of a recording becomes the samples that the whole recording has there, byte for byte."""

import pytest
from written import members, rows

from edgefirst_ros import Dataset, convert
from edgefirst_ros.errors import RecordingError
from edgefirst_ros.sync.clock import Cut
from edgefirst_ros.synthetic import START

SMALL = {"seconds": 3, "size": (128, 64), "fps": 20.0, "gop": 12, "cube_shape": (1, 8, 2, 8), "lidar_points": 20}


def frames_of(outcome):
    return [row["frame"] for row in rows(outcome.paths.frames)]


def within(begin, end, fps=20.0, count=60):
    """Numbers, in the order in which they are shown, of pictures with stamps from `begin` to before `end`, s."""
    return [n for n in range(count) if begin <= n / fps < end]


@pytest.mark.parametrize("codec", ["h264", "h265"])
@pytest.mark.parametrize("more", [{}, {"b_frames": 2}, {"b_frames": 2, "open_gop": True}, {"start_in_gop": 5}])
def test_a_cut_equals_the_whole(recording, tmp_path, codec, more):
    """In the middle of GOPs; the whole conversion says what the samples are."""
    path = recording(codec=codec, **SMALL, **more)
    whole = convert(path, tmp_path, name="whole")
    kept = [row for row in rows(whole.paths.frames) if START + 930_000_000 <= row["timestamp"] < START + 2_010_000_000]
    if "start_in_gop" in more:  # seconds count from the first stamp that is there
        first = START + 5 * 50_000_000
        kept = [r for r in rows(whole.paths.frames) if first + 930_000_000 <= r["timestamp"] < first + 2_010_000_000]
    assert len(kept) in (21, 22)
    names, ids = {f"_{row['frame']:03}." for row in kept}, {row["frame"] for row in kept}
    for jobs in (1, 3):
        cut = convert(path, tmp_path, name=f"cut{jobs}", start=0.93, end=2.01, jobs=jobs)
        assert rows(cut.paths.frames) == kept
        assert members(cut) == {n: data for n, data in members(whole).items() if any(part in n for part in names)}
        assert rows(cut.paths.arrow) == [row for row in rows(whole.paths.arrow) if row["frame"] in ids]
        count = cut.counts.plain()[f"/camera/{codec}"]
        assert count["seen"] == count["written"] + sum(count["dropped"].values())
        assert count["dropped"] == {"before start or after end": count["seen"] - len(kept)}
        assert cut.exit_code == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"end": 0.5}, within(0, 0.5)),
        ({"start": 2.5}, within(2.5, 3)),
        ({"start": 0.1, "end": 0.15}, [2]),  # start inclusive, end exclusive
        ({"start": "2026-01-15T12:00:01Z", "end": "2026-01-15T12:00:01.100000001Z"}, [20, 21, 22]),
        ({"start": "2026-01-15T12:00:02.9Z"}, [58, 59]),
        ({"start": 1, "end": "2026-01-15T12:00:01.2Z"}, within(1, 1.2)),
        ({"start": 0.975, "end": 2.2, "rate": 1.0}, [20, 40]),
        ({"start": 1.05, "end": 2.9, "rate": 1.0}, [21, 40]),  # the first inside, though not the first of its second
        ({"start": 0.7, "keyframes": True}, [24, 36, 48]),
        ({"start": 0.7, "end": 1.5, "require": ["lidar.points"], "tolerance": 0.02}, None),
    ],
)
def test_which_frames_are_inside(recording, tmp_path, options, expected):
    path = recording(**SMALL)
    outcome = convert(path, tmp_path, name="cut", **options)
    if expected is None:
        whole = convert(path, tmp_path, name="all", **{k: v for k, v in options.items() if k not in ("start", "end")})
        expected = [frame for frame in frames_of(whole) if frame in within(0.7, 1.5)]
        assert 0 < len(expected) < 16
    assert frames_of(outcome) == expected
    count = outcome.counts.plain()["/camera/h264"]
    assert count["seen"] == 60 == count["written"] + sum(count["dropped"].values())


def test_companions_outside_serve_samples_inside(recording, tmp_path):
    """The lidar points 13 ms behind a full tenth of a second are nearest to pictures before them too."""
    outcome = convert(recording(**SMALL), tmp_path, start=1.0, end=1.02)
    sample = Dataset(outcome.paths.container)[0]
    assert (sample.frame, sample.timestamp) == (20, START + 1_000_000_000)
    assert sample.skew["lidar_points"] == 13_000_000
    assert sample.position is not None


def test_stills_are_cut_too(recording, tmp_path):
    path = recording(seconds=1, fps=10.0, size=(128, 64), codec="jpeg", topics={"camera"})
    assert frames_of(convert(path, tmp_path, start=0.3, end=0.6)) == [3, 4, 5]


def test_a_broken_message_outside_is_counted_all_the_same(recording, tmp_path):
    """Its stamp is not known; one behind the last frame that is read is counted by the first walk."""
    path = recording(seconds=8, fps=10.0, size=(128, 64), topics={"camera"}, truncate={"camera": {3, 77}}, gop=10)
    whole = convert(path, tmp_path, name="whole").counts.plain()["/camera/h264"]
    cut = convert(path, tmp_path, name="cut", start=1.5, end=2.5).counts.plain()["/camera/h264"]
    assert cut["written"] == 10
    assert cut["dropped"]["undecodable"] == whole["dropped"]["undecodable"] == 2
    assert cut["seen"] == 80 == cut["written"] + sum(cut["dropped"].values())


def test_nothing_inside_is_said(recording, tmp_path):
    path = recording(**SMALL)
    with pytest.raises(
        RecordingError,
        match=r"stamps go from 2026-01-15T12:00:00.000Z to 2026-01-15T12:00:02.950Z, 2\.950 s\n/camera/h264: 60 ",
    ):
        convert(path, tmp_path, start=5)
    assert not list(tmp_path.iterdir())
    other = recording(host="other", **SMALL)
    outcome = convert([path, other], tmp_path, start="2026-01-15T12:00:02.5Z")
    assert outcome.exit_code == 0
    assert outcome.samples == 20


def test_an_interrupted_cut_goes_on(recording, tmp_path):
    path = recording(**SMALL)
    whole = convert(path, tmp_path / "whole", name="cut", start=0.5, end=2.5)

    class Stopped(Exception):
        pass

    def stop(what, done, of):
        if what.startswith("converting") and done > 350:
            raise Stopped

    with pytest.raises(Stopped):
        convert(path, tmp_path / "again", name="cut", start=0.5, end=2.5, progress=stop)
    again = convert(path, tmp_path / "again", name="cut", start=0.5, end=2.5)
    for part in ("container", "arrow", "frames"):
        assert getattr(again.paths, part).read_bytes() == getattr(whole.paths, part).read_bytes()


def test_a_clock_set_back_counts_from_the_first_stretch():
    """Seconds count from the earliest stamp before the step, not from what came after it."""
    cut = Cut.of((100, 200), [(0, 90), (1, 110), (3, 150), (4, 50), (5, 300)], 7)
    assert (cut.last, cut.undecodable, cut.frames) == (3, (2, 6), 7)
    assert cut.count_left(4) == (2, 1)
    assert cut.count_left(7) == (0, 0)
    assert cut.holds(100)
    assert not cut.holds(200)


# ---- sensors -----------------------------------------------------------------------------------
def kinds(outcome):
    return {name.split(".", 1)[1] for name in members(outcome)}


def test_only_the_sensors_asked_for(recording, tmp_path):
    path = recording(**SMALL)
    whole = convert(path, tmp_path, name="whole")
    some = convert(path, tmp_path, name="some", sensors=["camera", "lidar.points"])
    assert kinds(whole) == {"camera.jpeg", "radar.png", "radar.pcd", "lidar.pcd"}
    assert kinds(some) == {"camera.jpeg", "lidar.pcd"}
    kept = {name: data for name, data in members(whole).items() if not name.endswith(("radar.png", "radar.pcd"))}
    assert members(some) == kept
    assert some.counts.plain()["/radar/cube"] == {"seen": 54, "written": 0, "dropped": {}}
    assert rows(some.paths.arrow) == rows(whole.paths.arrow)


def test_without_the_camera_nothing_is_decoded(recording, tmp_path):
    path = recording(**SMALL)
    outcome = convert(path, tmp_path, sensors=["radar.cube"], require=["radar.cube"], masks=False)
    assert kinds(outcome) == {"radar.png"}
    assert outcome.samples == 60
    assert any("samples have only the times of its pictures" in note for note in outcome.notes)


def test_a_sensor_that_is_not_there_is_said(recording, tmp_path):
    path = recording(seconds=1, size=(128, 64), topics={"camera"})
    outcome = convert(path, tmp_path, sensors=["camera", "lidar.points"])
    assert [note for note in outcome.notes if "lidar.points: was requested" in note]
