# SPDX-License-Identifier: Apache-2.0
"""Metadata of frames tables that other tools wrote, or nobody sane: one model, the same answer to every reader."""

import json
from pathlib import Path

import handmade_dataset as made
import pytest

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.schema import parse_frames_metadata
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError

WRONG = {
    "time_base": [{"sequences": [1]}, {"sequences": {"s": 3}}, 5, [], {"base": {}}, {"topics": "x"}],
    "sources": [7, {"file": "a"}, [7], [{"size": "x"}], "x" * 100_000],
    "software": [3, ["x"]],
    "configuration": [5, "x"],
    "camera_info": [[], {"k": [1, 2]}, {"k": "x"}, {"k": [[]] * 9}, {"width": -1}, {"frame_id": 3}],
    "static_transforms": [
        {},
        [3],
        [{"parent": "a"}],
        [{"parent": "a", "child": "b", "translation": [1], "rotation": []}],
    ],
    "counts": [[], {"t": 1}, {"t": {}}, {"t": {"seen": "1", "written": 0, "dropped": {}}}, {"t": {"seen": -1}}],
    "sequences": [[], {"s": 4}, {"s": {"sources": ["x"]}}, {"s": {"counts": 3}}],
    "merged": [4, {}],
}
CASES = [(key, value) for key, values in WRONG.items() for value in values]


def spoilt(folder, key, text):
    parts = made.good()
    parts.frames_metadata[key] = text
    return made.write(folder, parts)


@pytest.mark.parametrize(("key", "value"), CASES, ids=lambda case: str(case)[:40])
def test_what_has_another_form_is_an_error_that_names_the_key(key, value):
    with pytest.raises(DatasetError) as refused:
        parse_frames_metadata(Path("t.frames.arrow"), {key: json.dumps(value)})
    assert str(refused.value).startswith(f"t.frames.arrow: metadata {key}: ")
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(("key", "text"), [("time_base", '{"sequences":[1]}'), ("sources", "7"), ("counts", "[" * 900)])
def test_every_reader_refuses_the_same(tmp_path, key, text):
    path = spoilt(tmp_path / "a", key, text)
    other = made.write(tmp_path / "b", made.good())
    for use in (lambda: Dataset(path).metadata, lambda: merge([path, other], tmp_path / "out", rename=True)):
        with pytest.raises(DatasetError, match=f"metadata {key}"):
            use()
    assert not validate(path).ok
    assert not (tmp_path / "out/out.zip").exists()


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "1" * 10_000, '{"a":' * 500 + "1" + "}" * 500, "\x1b[31m", '"\\ud800"']
)
@pytest.mark.parametrize("key", ["counts", "sources", "time_base"])
def test_no_text_is_too_odd(key, text):
    with pytest.raises(DatasetError) as refused:
        parse_frames_metadata(Path("t"), {key: text})
    assert str(refused.value).isprintable()


def test_what_the_format_has_is_taken_as_it_is():
    """Keys of sequences too, numbers that were not finite, and keys that nobody knows."""
    transform = {"parent": "a", "child": "b", "translation": [0, 0.5, None], "rotation": [0, 0, 0, 1]}
    camera = {"frame_id": "c", "width": 32, "height": 24, "distortion_model": "", "d": [], "k": [1.0] * 9, "new": 1}
    counts = {"/c": {"seen": 3, "written": 2, "dropped": {"undecodable": 1}}}
    base = {"base": "header", "topics": {}}
    given = {
        "sources": [{"file": "a", "size": 3, "sha256": "0", "damage": [{"offset": 3, "what": "x"}]}],
        "configuration": {},
        "software": {"name": "x", "version": "1"},
        "time_base": {**base, "sequences": {"s": base}},
        "camera_info": camera,
        "static_transforms": [transform],
        "counts": counts,
        "sequences": {
            "s": {
                "sources": [0],
                "camera_info": camera,
                "static_transforms": [transform],
                "calibration": "given",
                "time_base": base,
                "topics": {"camera": "/c"},
                "counts": counts,
            }
        },
        "other": [1],
    }
    assert parse_frames_metadata(Path("t"), {key: json.dumps(value) for key, value in given.items()}) == given


def test_values_that_are_nested_without_end_are_refused():
    deep = "[" * 65 + "]" * 65
    with pytest.raises(DatasetError, match=r"t\.frames\.arrow: metadata sources: nested more than 64 times"):
        parse_frames_metadata(Path("t.frames.arrow"), {"sources": deep})
    assert parse_frames_metadata(Path("t.frames.arrow"), {"of others": deep})["of others"] == json.loads(deep)
