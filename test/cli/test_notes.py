# SPDX-License-Identifier: Apache-2.0
"""Verbs that finish with notes, losses or both say them, and their exit code does too."""

import json
import os

import handmade_dataset as made
import polars as pl
import pytest
from bags import messages, write

from edgefirst_ros import Dataset


@pytest.fixture
def dataset(tmp_path):
    return made.write(tmp_path, made.good())


def left_over(folder):
    """A dataset of three samples, one of them not in the table of frames, and annotations of a fourth."""
    parts = made.good()
    parts.frames = parts.frames[:2]
    parts.annotations.append({**parts.annotations[-1], "frame": 99})
    folder.mkdir()
    return made.write(folder, parts)


# ---- label -------------------------------------------------------------------------------------
def coco(path, others):
    """Labels of frame 3, one of a category that is not listed, and of pictures that no sample is of."""
    images = [
        {"id": number, "file_name": f"other_{number}.jpeg", "width": 32, "height": 24} for number in range(others)
    ]
    images.append({"id": 99, "file_name": f"{made.SEQUENCE}_003.jpeg", "width": 32, "height": 24})
    boxes = [{"id": one, "image_id": 99, "category_id": one, "bbox": [8, 6, 16, 12]} for one in (1, 2)]
    path.write_text(json.dumps({"images": images, "categories": [{"id": 1, "name": "car"}], "annotations": boxes}))
    return path


def test_labels_that_are_lost_and_pictures_without_a_sample_are_told(call, dataset, tmp_path):
    labels = coco(tmp_path / "coco.json", 7)
    done = call("label", dataset, labels, "--from", "coco", "--replace")
    assert done.exit_code == 3
    names = ", ".join(f"'other_{number}.jpeg'" for number in range(5))
    assert f"pictures of the labels that are not samples: 7: {names} and 2 more\n" in done.stdout
    assert "lost: annotations of categories that are not listed: 1\n" in done.stdout
    assert "imported 1 annotation for 1 sample\n3 annotations replaced, 0 of them matched, 0 kept\n" in done.stdout
    assert "lost: object_id of replaced annotations that no label matches: 3\n" in done.stdout
    assert f"the table before: {tmp_path}/data.arrow.before-label\n" in done.stdout
    table = pl.read_ipc(tmp_path / "data.arrow").drop_nulls("box2d")
    assert table["box2d"].to_list() == [[0.5, 0.5, 0.5, 0.5]]


def test_few_pictures_without_a_sample_are_all_named(call, dataset, tmp_path):
    labels = coco(tmp_path / "coco.json", 1)
    done = call("label", dataset, labels, "--from", "coco", "--join")
    assert "pictures of the labels that are not samples: 1: 'other_0.jpeg'\n" in done.stdout
    told = json.loads(call("label", dataset, labels, "--from", "coco", "--replace", "--json").stdout)
    assert (told["unmatched"], told["exit_code"]) == (["other_0.jpeg"], 3)
    assert told["lost"]["annotations of categories that are not listed"] == 1


# ---- merge, split, migrate, view ---------------------------------------------------------------
def test_a_merge_that_leaves_samples_out_ends_with_loss(call, dataset, tmp_path):
    other = left_over(tmp_path / "other")
    done = call("merge", dataset, other, "--rename", "-o", tmp_path / "all")
    assert done.exit_code == 3
    assert done.stdout.startswith("5 samples in all/all.zip\n")
    assert f"{other}: {made.SEQUENCE} is now {made.SEQUENCE}-2\n" in done.stdout
    assert f"note: {other}: dropped, without a stamp in the frames table: 1 sample\n" in done.stdout
    assert done.stdout.endswith("finished with loss: see the notes above\n")
    assert len(Dataset(tmp_path / "all" / "all.zip")) == 5


def test_a_group_that_stays_empty_is_noted(call, dataset):
    done = call("split", dataset, "--split", "train=0.5,val=0.5")  # 0.1 s are one block
    assert done.exit_code == 0
    assert "note: group val is empty" in done.stdout
    assert "group                 train  val\nsamples                   3    0\n" in done.stdout


def test_what_a_migration_takes_for_granted_is_noted(call, tmp_path):
    parts = made.good()
    parts.annotation_metadata["schema_version"] = "2026.05"
    made.write(tmp_path, parts)
    done = call("migrate", tmp_path / "data.arrow", "-o", tmp_path / "new.arrow", "--to", "2025.10")
    assert done.exit_code == 3
    assert "lost: 1 x metadata labels: 2025.10 has none\n" in done.stdout
    assert done.stdout.endswith(
        "note: schema_version 2026.05 is not known: read by the rules of 2026.04, as far as they go\n"
    )


def test_what_cannot_be_shown_is_noted_on_standard_error(call, tmp_path):
    pytest.importorskip("rerun", reason="rerun-sdk is not installed")
    parts = made.good()
    parts.members[made.name_of(3, "radar.pcd")] = b"garbage\nof two lines"
    done = call("view", made.write(tmp_path, parts), "--save", tmp_path / "x.rrd")
    assert (done.exit_code, done.stderr.count("\n")) == (0, 1)
    assert done.stderr.startswith("note: radar.targets of frame 3: ")
    assert done.stdout.startswith(f"{tmp_path}/x.rrd: 3 samples, camera, ")


# ---- info --------------------------------------------------------------------------------------
def test_info_tells_damage_and_messages_that_cannot_be_decoded(call, recording, tmp_path):
    found = messages(recording(seconds=1, size=(160, 96), fps=10.0, gop=5, topics={"camera", "gps"}))
    broken = [message for _, channel, message in found if channel.topic == "/gps"][:2]
    for message in broken:
        message.data = message.data[:6]
    path = write(tmp_path / "r.mcap", found, chunk_size=1)
    data = bytearray(path.read_bytes())
    assert "damage at" not in call("info", path).stdout
    data[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
    path.write_bytes(data)
    done = call("info", path)
    assert done.exit_code == 0
    assert "r.mcap: damage at byte " in done.stdout
    assert "/gps: cannot be decoded: 2 messages\n" in done.stdout


def test_info_tells_clocks_that_are_not_that_of_the_camera(call, recording):
    hour = 3600 * 10**9
    path = recording(
        seconds=1, size=(160, 96), codec="jpeg", fps=10.0, topics={"camera", "gps"}, clock_offset={"gps": hour}
    )
    done = call("info", path)
    assert done.exit_code == 0
    (note,) = [line for line in done.stdout.splitlines() if line.startswith("note: ")]
    assert note.startswith("note: /gps: log_time ")
    assert 3599.9 < float(note.partition("stamps lie +")[2].partition(" s ")[0]) < 3600.1


def test_a_folder_that_cannot_be_listed_has_no_datasets_to_name(call, tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    made.write(tmp_path / "in", made.good())
    assert f"name one of them: {tmp_path}/in/data.zip" in str(call("recover", tmp_path / "in").exception)
    listed = type(tmp_path).iterdir

    def refusing(path):
        if path == tmp_path / "in":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(type(tmp_path), "iterdir", refusing)
    error = call("recover", tmp_path / "in").exception
    assert "not a dataset" in str(error)
    assert "name one of them" not in str(error)
    assert os.listdir(tmp_path / "in")
