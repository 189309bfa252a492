# SPDX-License-Identifier: Apache-2.0
"""Model results of both generations of devices, from the recording to the rows, against the truth that made them."""

import io
import math
import time
import uuid

import numpy as np
import polars as pl
import pytest
from PIL import Image

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.dataset.tables.write import trace_outline
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.pipeline import output, samples
from edgefirst_ros.pipeline.capture import Capture
from edgefirst_ros.pipeline.encoding import add_outline
from edgefirst_ros.pipeline.frame import Frame
from edgefirst_ros.sources.live import expect_topics
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.topics import choose_topics
from edgefirst_ros.synthetic import Recipe, write_recording
from edgefirst_ros.synthetic.scene import LABELS

COMMON = {"seconds": 1.5, "size": (320, 180), "codec": "jpeg", "full_masks": True, "fps": 20.0}
NEWER = {**COMMON, "topics": {"camera", "model/output", "model/info", "fusion/boxes3d"}}
OLDER = {**COMMON, "topics": {"camera", "model/boxes2d", "model/mask", "model/info", "fusion/boxes3d"}}
PACKED = {**OLDER, "topics": {"camera", "model/boxes2d", "model/mask_compressed", "model/info"}}
LAG = {"latency_ms": {"model/mask": 70.0, "model/boxes2d": 40.0}, "publish": "log", "jitter_ms": 9.0}
SLOW = {"latency_ms": {"model/mask": 190.0}}
"""A mask comes when the next boxes are nearer than its own; publish_time tells."""
FORMER = {
    "rename": {f"model/{name}": f"/verdin/detect/{name}" for name in ("boxes2d", "mask", "mask_compressed", "info")}
}
"""Names of topics until October 2024."""
MODEL_EVERY = 3


def made(tmp_path, name="drive", **options):
    return write_recording(tmp_path / f"{name}.mcap", Recipe(**options))


def table(outcome):
    return pl.read_ipc(outcome.paths.arrow)


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)))


def rows_of(outcome, truth):
    """(stamp, rows) of every frame the model has looked at, after a check that no other frame has rows of it."""
    found = table(outcome)
    with_model = found.filter(pl.col("timing").is_not_null())
    for index in range(truth.recipe.frames):
        stamp = truth.recipe.stamp("camera", index)
        rows = with_model.filter(pl.col("timestamp") == stamp)
        assert bool(len(rows)) == (index % MODEL_EVERY == 0), index
        if len(rows):
            yield stamp, rows.to_dicts()


def iou(a, b):
    return np.logical_and(a, b).sum() / np.logical_or(a, b).sum()


def assert_boxes(rows, truth, stamp, timing):
    things = truth.boxes(stamp)
    assert len(rows) == len(things) > 1
    for n, (row, thing) in enumerate(zip(rows, things, strict=True)):
        assert row["label"] == thing.label
        assert row["label_index"] == LABELS.index(thing.label)
        assert row["box2d"] == pytest.approx(thing.box2d, abs=1e-6)
        assert row["box2d_score"] == pytest.approx(0.95 - 0.02 * thing.number)
        frame = truth.frame(stamp)
        name = f"drive/{thing.track or f'{frame}/{n}'}"
        own = thing.track if "-" in thing.track else str(uuid.uuid5(uuid.NAMESPACE_URL, name))
        assert row["object_id"] == own
        assert row["timing"] == dict(zip(("load", "preprocess", "inference", "decode"), timing, strict=True))


def test_the_newer_generation(tmp_path):
    truth = made(tmp_path, **NEWER)
    outcome = convert(truth.path, tmp_path / "out")
    for stamp, rows in rows_of(outcome, truth):
        assert_boxes(rows, truth, stamp, (2_000_000, None, 9_000_000, 4_000_000))
        for row, thing in zip(rows, truth.boxes(stamp), strict=True):
            assert iou(pixels(row["mask"]), truth.mask(thing)) == 1
    assert outcome.exit_code == 0
    assert set(validate(outcome.paths.container, strict=True).counts) <= {"CAL001"}  # no calibration was recorded


@pytest.mark.parametrize(
    "recipe",
    [OLDER, PACKED, {**OLDER, **LAG}, {**OLDER, **SLOW}, {**OLDER, **FORMER}, {**PACKED, **FORMER}],
    ids=["plain", "packed", "late", "slow", "former", "former, packed"],
)
def test_the_older_generation(tmp_path, recipe):
    truth = made(tmp_path, **recipe)
    outcome = convert(truth.path, tmp_path / "out")
    for stamp, rows in rows_of(outcome, truth):
        *boxes, semantic = rows
        assert_boxes(boxes, truth, stamp, (2_000_000, None, 9_000_000, 4_000_000))
        assert all(row["mask"] is None for row in boxes)
        assert all(semantic[name] is None for name in ("label", "label_index", "object_id", "box2d", "box2d_score"))
        assert np.array_equal(pixels(semantic["mask"]), truth.classes(stamp))
    masks = next(topic for topic in outcome.counts.topics if "mask" in topic)
    assert outcome.counts[masks].seen == outcome.counts[masks].written == 10
    metadata = Dataset(outcome.paths.container).metadata
    assert (metadata["labels"], metadata["mask_interpretation"]) == (["background", "car", "person"], "binary")
    assert set(validate(outcome.paths.container, strict=True).counts) <= {"CAL001"}  # no calibration was recorded


@pytest.mark.parametrize("recipe", [NEWER, OLDER])
def test_results_that_come_too_late_are_counted(tmp_path, recipe):
    """A model that takes longer than `lookahead`: it is to be seen why nothing of it is in the dataset."""
    model = next(topic for topic in recipe["topics"] if topic in ("model/output", "model/boxes2d"))
    truth = made(tmp_path, **recipe, latency_ms={model: 1300.0, "model/mask": 1300.0})
    count = convert(truth.path, tmp_path / "out").counts[f"/{model}"]
    late, rest = count.dropped["came after its frames were written"], count.dropped["belongs to no sample"]
    assert late > 0
    assert count.seen == count.written + late + rest == 10
    patient = convert(truth.path, tmp_path / "patient", lookahead=3.0).counts
    assert patient[f"/{model}"].written == 10
    assert all(not count.dropped for topic, count in patient.topics.items() if "model" in topic)


def test_results_of_frames_that_are_no_samples_are_counted(tmp_path):
    truth = made(tmp_path, **NEWER)
    outcome = convert(truth.path, tmp_path / "out", rate=1.0)
    count = outcome.counts["/model/output"]
    assert 0 < count.written <= outcome.samples
    assert count.dropped == {"belongs to no sample": count.seen - count.written}


def test_a_mask_whose_boxes_are_lost_belongs_to_no_others(tmp_path):
    truth = made(tmp_path, **OLDER, model_every=1, drop={"model/boxes2d": {3}, "model/mask": {6}})
    found = table(convert(truth.path, tmp_path / "out"))
    semantic = found.filter(pl.col("mask").is_not_null())
    assert semantic["timestamp"].to_list() == [
        truth.recipe.stamp("model/boxes2d", n) for n in range(30) if n not in (3, 6)
    ]
    for stamp, png in semantic.select("timestamp", "mask").iter_rows():
        assert np.array_equal(pixels(png), truth.classes(stamp))


def test_a_frame_waits_until_the_mask_of_its_boxes_has_come(tmp_path, monkeypatch):
    found = []

    class Noting(samples.SampleBuilder):
        def put(self, item):
            if isinstance(item, Frame) and item.result is not None:
                found.append(item.result.mask is not None)
            super().put(item)

    monkeypatch.setattr(output, "SampleBuilder", Noting)
    truth = made(tmp_path, **{**OLDER, **LAG, "seconds": 4.0, "size": (128, 64)})
    convert(truth.path, tmp_path / "out")
    assert found == [True] * truth.counts["model/boxes2d"]


def test_masks_without_boxes_are_said_to_be_of_no_use(tmp_path):
    truth = made(tmp_path, **{**OLDER, "topics": {"camera", "model/mask"}})
    outcome = convert(truth.path, tmp_path / "out")
    assert any("/model/mask: masks are not used" in note for note in outcome.notes)
    assert "mask" not in table(outcome).columns


def test_the_newer_form_goes_before_the_older_and_can_be_chosen_against(tmp_path):
    truth = made(tmp_path, **{**COMMON, "topics": NEWER["topics"] | OLDER["topics"]})
    newer = table(convert(truth.path, tmp_path / "newer"))
    older = table(convert(truth.path, tmp_path / "older", model_topic="model/boxes2d"))
    assert newer.filter(pl.col("mask").is_not_null() & pl.col("box2d").is_null()).is_empty()
    assert older.filter(pl.col("mask").is_not_null() & pl.col("box2d").is_not_null()).is_empty()
    assert older["mask"].count() == 10


def test_boxes_in_space_are_those_of_the_nearest_scan(tmp_path):
    """Without a transform to the vehicle they stay in the axes of the lidar: x forward, y left, z up."""
    truth = made(tmp_path, **NEWER)
    outcome = convert(truth.path, tmp_path / "out")
    found = table(outcome).filter(pl.col("box3d").is_not_null())
    scans = [truth.recipe.stamp("fusion/boxes3d", n) for n in range(15)]
    for index in range(30):
        stamp = truth.recipe.stamp("camera", index)
        scan = min(scans, key=lambda one: (abs(one - stamp), one))
        rows = found.filter(pl.col("timestamp") == stamp).to_dicts()
        for row, thing in zip(rows, truth.scene.things(scan), strict=True):
            centre = [a - b for a, b in zip(thing.centre, (1.0, 0.0, 1.8), strict=True)]
            _, width, height = thing.size
            assert row["box3d"] == pytest.approx([*centre, width, width, height], abs=1e-5)
            assert (row["label"], row["box3d_score"], row["box2d"]) == (thing.label, 1.0, None)
    assert found["object_id"].n_unique() == len(found)
    assert outcome.counts["/fusion/boxes3d"].written == 15


def test_boxes_in_space_are_carried_from_the_scan_to_the_picture(tmp_path):
    """The vehicle goes on at 10 m/s meanwhile; without a position there, boxes stay where they were measured."""
    topics = {"camera", "fusion/boxes3d", "tf_static", "gps", "imu"}
    truth = made(tmp_path, **{**COMMON, "topics": topics})
    outcome = convert(truth.path, tmp_path / "out")
    placed = pl.read_ipc(outcome.paths.frames).drop_nulls(["latitude", "orientation"])["timestamp"].to_list()
    found = table(outcome).filter(pl.col("box3d").is_not_null())
    scans = [truth.recipe.stamp("fusion/boxes3d", n) for n in range(15)]
    radius, origin = 6_378_137.0, truth.scene.position(truth.recipe.stamp("camera", 0))
    carried = set()
    for index in range(30):
        stamp = truth.recipe.stamp("camera", index)
        scan = min(scans, key=lambda one: (abs(one - stamp), one))
        (then, turned), (now, turn) = (
            (
                np.radians(np.subtract(truth.scene.position(at)[:2], origin[:2]))[::-1]
                * [radius * math.cos(math.radians(origin[0])), radius],
                truth.scene.yaw(at),
            )
            for at in (scan, stamp)
        )
        rows = found.filter(pl.col("timestamp") == stamp).to_dicts()
        for row, thing in zip(rows, truth.scene.things(scan), strict=True):
            x, y, _ = thing.centre
            east, north = (
                then
                - now
                + [
                    x * math.cos(turned) - y * math.sin(turned),
                    x * math.sin(turned) + y * math.cos(turned),
                ]
            )
            there = east * math.cos(turn) + north * math.sin(turn), north * math.cos(turn) - east * math.sin(turn)
            if stamp in placed and placed[0] <= scan <= placed[-1] and np.hypot(*np.subtract(there, (x, y))) > 0.1:
                carried.add(stamp)
                assert row["box3d"][:2] == pytest.approx(there, abs=0.06)  # roll and pitch of up to 2 degrees aside
            elif stamp not in placed:
                assert row["box3d"][:3] == pytest.approx(thing.centre, abs=1e-5)
    assert len(carried) > 5


# ---- tracks ------------------------------------------------------------------------------------
def test_tracks_outlive_a_restart_of_the_model_and_are_not_mixed_up(tmp_path):
    """Ten of twenty results are missing; another recording has the same numbers for other objects."""
    first = made(tmp_path, "first", **{**NEWER, "seconds": 3.0}, drop={"model/output": set(range(5, 15))})
    second = made(tmp_path, "second", **NEWER)
    outcome = convert([first.path, second.path], tmp_path / "out", name="both")
    found = table(outcome).filter(pl.col("box2d").is_not_null())
    ids = {}
    for name, truth in (("first", first), ("second", second)):
        rows = found.filter(pl.col("name") == name)
        stamps = sorted(set(rows["timestamp"]))
        assert max(np.diff(stamps)) == (11 if name == "first" else 1) * 150_000_000
        for stamp in stamps:
            here = rows.filter(pl.col("timestamp") == stamp).to_dicts()
            for row, thing in zip(here, truth.boxes(stamp), strict=True):
                if thing.track:
                    ids.setdefault((thing.track, name), set()).add(row["object_id"])
    assert all(len(of_one) == 1 for of_one in ids.values())
    numbered = [ids[key] for key in ids if key[0].isdigit()]
    assert len(numbered) == 2
    assert numbered[0] != numbered[1]
    shared = [key[0] for key in ids if "-" in key[0]]  # the device's own are the same in both recordings
    assert shared
    assert all(ids[track, "first"] == ids[track, "second"] for track in shared)
    untracked = found.filter(~pl.col("object_id").is_in([i for of_one in ids.values() for i in of_one]))
    assert untracked["object_id"].n_unique() == len(untracked) > 5


# ---- settings ----------------------------------------------------------------------------------
def test_what_is_left_out_is_counted(tmp_path):
    truth = made(tmp_path, **OLDER)
    outcome = convert(truth.path, tmp_path / "out", min_score=0.92, label_map={"car": "vehicle", "person": ""})
    found = table(outcome)
    dropped = outcome.counts["/model/boxes2d"].dropped
    things = [thing for n in range(10) for thing in truth.boxes(truth.recipe.stamp("model/boxes2d", n))]
    low = [thing for thing in things if 0.95 - 0.02 * thing.number < 0.92]
    people = [thing for thing in things if thing not in low and thing.label == "person"]
    assert dropped["score below min_score"] == len(low) > 0
    assert dropped["label dropped by label_map"] == len(people) > 0
    boxes = found.filter(pl.col("box2d").is_not_null())
    assert (set(boxes["label"]), set(boxes["label_index"])) == ({"vehicle"}, {1})
    metadata = Dataset(outcome.paths.container).metadata
    assert metadata["labels"] == ["background", "vehicle", "person"]
    assert metadata["category_metadata"] == {"background": {"id": 0}, "vehicle": {"id": 1}, "person": {"id": 2}}
    png = found.filter(pl.col("mask").is_not_null())["mask"][0]
    classes = truth.classes(truth.recipe.stamp("camera", 0))
    assert np.array_equal(pixels(png), np.array([0, 1, 255], np.uint8)[classes])
    assert validate(outcome.paths.container).ok
    assert outcome.exit_code == 0


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ({}, {"mask"}),
        ({"masks": False}, set()),
        ({"polygons": True}, {"mask", "polygon"}),
        ({"masks": False, "polygons": True}, {"polygon"}),
    ],
)
def test_masks_and_polygons(tmp_path, settings, columns):
    truth = made(tmp_path, **NEWER)
    outcome = convert(truth.path, tmp_path / "out", **settings)
    found = table(outcome)
    assert {"mask", "polygon"} & set(found.columns) == columns
    assert set(validate(outcome.paths.container, strict=True).counts) <= {"CAL001"}  # no calibration was recorded
    if "polygon" in columns:
        stamp = truth.recipe.stamp("camera", 3)
        rows = found.filter((pl.col("timestamp") == stamp) & pl.col("box2d").is_not_null())["polygon"].to_list()
        for rings, thing in zip(rows, truth.boxes(stamp), strict=True):
            assert area(rings) * 320 * 180 == pytest.approx(truth.mask(thing).sum(), rel=1e-4)


def area(rings):
    """By the shoelace formula; holes turn the other way."""
    total = 0.0
    for ring in rings:
        x, y = np.reshape(ring, (-1, 2)).T.astype(float)
        total += (x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2
    return abs(total)


def test_the_oldest_schema_has_no_place_for_masks_of_classes(tmp_path):
    truth = made(tmp_path, **OLDER)
    outcome = convert(truth.path, tmp_path / "out", schema_version="2025.10")
    assert "mask" not in table(outcome).columns
    assert outcome.counts["/model/mask"].dropped == {"semantic mask": 10}
    assert validate(outcome.paths.container).ok


@pytest.mark.parametrize("alone", [True, False])
def test_a_model_that_numbers_labels_otherwise_makes_a_dataset_of_its_own(tmp_path, monkeypatch, alone):
    """`label_index` is never renumbered: the drive is left out by name, and goes into the same dataset by merge."""
    from edgefirst_ros.synthetic import messages

    first = made(tmp_path, "first", **OLDER)
    monkeypatch.setattr(messages, "LABELS", ("background", "person", "car"))
    second = made(tmp_path, "second", **OLDER)
    both = [second.path] if alone else [first.path, second.path]
    outcome = convert(both, tmp_path / "out", name="both")
    found = table(outcome)
    labels = ["background", "person", "car"] if alone else ["background", "car", "person"]
    assert set(found["name"]) == ({"second"} if alone else {"first"})
    assert outcome.exit_code == (0 if alone else 3)
    conflict = "label_index 1 is 'car' and 'person'"
    assert (
        any("second.mcap" in note and conflict in note and "merge --renumber" in note for note in outcome.notes)
        != alone
    )
    for row in found.filter(pl.col("label").is_not_null()).to_dicts():
        assert labels[row["label_index"]] == row["label"]
    numbered = {label: {"id": index} for index, label in enumerate(labels)}
    assert Dataset(outcome.paths.container).metadata["category_metadata"] == numbered


def test_degradation_is_told_of_every_sample_when_asked_for(tmp_path):
    truth = made(tmp_path, **{**COMMON, "topics": {"camera"}})
    found = table(convert(truth.path, tmp_path / "out", degradation=True))
    assert found["degradation"].null_count() == 0
    assert set(found["degradation"]) <= {"none", "low", "medium", "high"}
    assert "degradation" not in table(convert(truth.path, tmp_path / "plain")).columns


# ---- live --------------------------------------------------------------------------------------
@pytest.mark.parametrize("recipe", [NEWER, OLDER, {**OLDER, **LAG}], ids=["newer", "older", "late"])
def test_live_and_offline_give_the_same_rows(tmp_path, monkeypatch, recipe):
    monkeypatch.setattr(samples, "PATIENCE", 600)  # nothing is left out, however slow this machine is
    monkeypatch.setattr(samples, "LAST_WORK", 600)
    truth = made(tmp_path, **{**recipe, "seconds": 2.5})
    offline = convert(truth.path, tmp_path / "offline")
    recording = McapRecording(truth.path, Settings().limits)
    messages = list(recording.walk())
    settings = Settings(jobs=2)
    roles = expect_topics(choose_topics({m.topic: m.schema for m in messages}, settings), settings)
    live = LiveSettings(out=str(tmp_path / "live"), sequence="drive", fsync=False, min_free_bytes=0)
    capture = Capture(settings, live, roles, "host", lambda text: None)
    capture.start()
    begin = time.monotonic_ns()
    for message in messages:
        received = message._replace(publish_time=message.log_time)
        capture.put(received, begin + message.log_time - messages[0].log_time)
    capture.close()
    assert capture.results.failure is None
    assert table(offline).equals(pl.read_ipc(tmp_path / "live" / "drive.arrow"))


@pytest.mark.parametrize("shape", [(1, 1), (5, 9), (40, 64)])
def test_outlines_are_those_of_the_whole_mask(shape):
    """Object in one corner, in none, everywhere, with holes: as the outline of the whole picture is."""
    rng = np.random.default_rng(8)
    for fill in (0.0, 0.3, 1.0):
        pixels = np.zeros((50, 80), bool)
        top, left = rng.integers(0, 10, 2)
        pixels[top : top + shape[0], left : left + shape[1]] = rng.random(shape) < fill
        png = io.BytesIO()
        Image.fromarray(pixels).save(png, "PNG")
        row = {"mask": png.getvalue(), "box2d": (0.5, 0.5, 1.0, 1.0)}
        add_outline(row, Settings(polygons=True))
        expected = [[value for x, y in ring for value in (x / 80, y / 50)] for ring in trace_outline(pixels)]
        assert row.get("polygon", []) == expected
