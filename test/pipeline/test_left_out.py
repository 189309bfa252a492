# SPDX-License-Identifier: Apache-2.0
"""Several recordings of which some cannot be used, or are not what the settings name: said, recorded, gone on with."""

import pytest
from bags import messages, together, write

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.summary import summarize_dataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.writer import DatasetWriter
from edgefirst_ros.errors import DatasetError, RecordingError, UsageError

SMALL = {
    "seconds": 1,
    "size": (128, 64),
    "fps": 10.0,
    "codec": "jpeg",
    "topics": {"camera", "model/info", "model/output"},
}


@pytest.fixture(scope="module")
def drives(recording):
    """Two recordings of one camera each."""
    return [recording(**SMALL, host="one"), recording(**SMALL, host="two", seed=5)]


@pytest.fixture
def unclear(drives, tmp_path):
    """A recording of two cameras, of which neither has a name that is known."""
    streams = []
    for path, name in zip(drives, ("left", "right"), strict=True):
        found = [(schema, channel, message) for schema, channel, message in messages(path) if "Image" in schema.name]
        for _, channel, _ in found:
            channel.topic = f"/{name}/eye"
        streams.append(found)
    return write(tmp_path / "unclear.mcap", together(*streams))


def files(out):
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("kind", ["text", "missing", "unclear"])
def test_one_that_cannot_be_used_is_recorded_and_does_not_end_the_others(drives, unclear, tmp_path, kind, place):
    text = tmp_path / "text.mcap"
    text.write_text("no recording")
    bad = {"text": text, "missing": tmp_path / "missing.mcap", "unclear": unclear}[kind]
    given = [*drives[:place], bad, *drives[place:]]
    first = convert(given, tmp_path / "out", name="d")
    assert first.exit_code == 3
    dataset = Dataset(first.paths.container)
    assert dataset.sequences == [path.stem for path in drives]
    (left,) = dataset.metadata["left_out"]
    assert (left["file"], left["size"]) == (bad.name, None if kind == "missing" else bad.stat().st_size)
    assert left["why"].startswith(bad.name)
    assert str(tmp_path) not in left["why"]
    assert any(note.endswith(left["why"]) for note in first.notes)
    (found,) = [one for one in summarize_dataset(dataset).checks if one.key == "loss" and one.level]
    assert (found.place, found.found) == (bad.name, f"not converted: {left['why'].removeprefix(f'{bad.name}: ')}")
    assert validate(first.paths.container).ok
    before = files(tmp_path / "out")
    again = convert(given, tmp_path / "out", name="d", resume=True)
    assert "the dataset was already complete, and stays as it is" in again.notes
    assert f"{bad.name}: not converted: {left['why']}" in again.notes
    assert (again.exit_code, again.samples) == (3, first.samples)
    assert files(tmp_path / "out") == before


def test_it_stays_recorded_where_datasets_are_completed_and_merged(drives, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    bad = tmp_path / "text.mcap"
    bad.write_text("no recording")
    convert([bad, drives[0]], tmp_path / "whole", name="d")
    left = Dataset(tmp_path / "whole/d.zip").metadata["left_out"]
    with monkeypatch.context() as patch:
        patch.setattr(DatasetWriter, "flush_age", property(lambda _: 1e9))
        patch.setattr(DatasetWriter, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert([bad, drives[0]], tmp_path / "out", name="d")
    recover(tmp_path / "out/d")
    assert Dataset(tmp_path / "out/d.zip").metadata["left_out"] == left
    convert(drives[1], tmp_path / "other", name="o")
    merge([tmp_path / "out/d.zip", tmp_path / "other/o.zip"], tmp_path / "merged", name="m")
    assert Dataset(tmp_path / "merged/m.zip").metadata["left_out"] == left


def test_one_that_can_be_used_by_now_makes_another_dataset(drives, tmp_path):
    mended = tmp_path / "mended.mcap"
    mended.write_text("no recording")
    convert([drives[0], mended], tmp_path / "out", name="d")
    mended.write_bytes(drives[1].read_bytes())
    with pytest.raises(DatasetError, match="it was made from 1 files, now 2; use --overwrite"):
        convert([drives[0], mended], tmp_path / "out", name="d", resume=True)


def test_settings_that_fit_no_recording_are_wrong_usage(drives, tmp_path):
    with pytest.raises(UsageError, match="reference topic '/left' is not in the recording"):
        convert(drives, tmp_path / "out", reference_topic="/left")
    assert not (tmp_path / "out").exists()


def test_recordings_that_cannot_be_read_are_all_named_when_none_is_left(tmp_path):
    given = [tmp_path / "empty.mcap", tmp_path / "missing.mcap"]
    given[0].touch()
    with pytest.raises(RecordingError) as failed:
        convert(given, tmp_path / "out", name="d")
    assert [line.split(": ")[1][:17] for line in str(failed.value).splitlines()[1:]] == [
        "the file is empty",
        "no such file or d",
    ]


def test_a_label_that_some_model_has_is_renamed_there(drives, tmp_path):
    """As with one recording of a fleet, of which nobody knows what the others have."""
    for options in ({"one_of_many": True}, {}):
        given = drives[:1] if options else drives
        outcome = convert(given, tmp_path / str(len(given)), label_map={"caar": "vehicle"}, **options)
        assert any("label_map: the model has no label 'caar'; it has " in note for note in outcome.notes)
        none = "label_map: no recording has a label 'caar'" in outcome.notes
        assert (none, outcome.exit_code) == ((False, 0) if options else (True, 3))
    with pytest.raises(UsageError, match="has no label 'caar'"):
        convert(drives[0], tmp_path / "alone", label_map={"caar": "vehicle"})


# ---- what is there already, of other sequences --------------------------------------------------
def test_a_finished_dataset_of_other_sequences_is_another_one(drives, tmp_path):
    convert([], tmp_path / "out", name="d", sequences={"one": drives[0]})
    for sequences in ({"two": drives[0]}, {}):
        given = [] if sequences else drives[:1]
        with pytest.raises(DatasetError, match=r"it has the sequence 'one' where this one has '.*'; use --overwrite"):
            convert(given, tmp_path / "out", name="d", sequences=sequences, resume=True)
    convert([], tmp_path / "joined", name="d", sequences={"one": drives[0]}, join=False)


def test_joined_parts_are_not_the_parts_by_themselves(drives, tmp_path):
    convert(drives, tmp_path / "out", name="d", join=True)
    with pytest.raises(DatasetError, match="it has 1 sequence, this one has 2; use --overwrite"):
        convert(drives, tmp_path / "out", name="d", resume=True)


def test_an_unfinished_dataset_of_other_sequences_is_refused_and_stays(drives, tmp_path):
    class Stopped(Exception):
        pass

    def stop(what, done, of):
        if what == "converting b" and done > 5:
            raise Stopped

    given = {"one": drives[0], "b": drives[1]}
    with pytest.raises(Stopped):
        convert([], tmp_path / "out", name="d", sequences=given, progress=stop, jobs=1)
    assert DatasetPaths(tmp_path / "out", "d").unfinished
    before = files(tmp_path / "out")
    with pytest.raises(DatasetError, match=r"unfinished dataset of another .* the sequence 'one'"):
        convert([], tmp_path / "out", name="d", sequences={"two": drives[0], "b": drives[1]})
    assert files(tmp_path / "out") == before
    with pytest.raises(DatasetError, match="is not the recording it was made from"):
        convert([], tmp_path / "out", name="d", sequences={"one": drives[1], "b": drives[0]})
    assert files(tmp_path / "out") == before
    assert convert([], tmp_path / "out", name="d", sequences=given).samples == 20


# ---- times and labels ---------------------------------------------------------------------------
def test_a_recording_of_two_cameras_takes_its_time_once(drives, unclear, tmp_path):
    outcome = convert(unclear, tmp_path / "out", reference_topic=["/left/eye", "/right/eye"])
    assert outcome.duration == pytest.approx(0.9, abs=0.01)
    assert "topics are counted once for each of the 2 cameras of a recording" in outcome.notes
    assert validate(outcome.paths.container).ok


def test_what_an_interrupted_replacement_left_is_named(drives, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    convert(drives[0], tmp_path / "out", name="d")
    with monkeypatch.context() as patch:
        patch.setattr(DatasetWriter, "flush_age", property(lambda _: 1e9))  # every sample is committed at once
        patch.setattr(DatasetWriter, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert(drives[1], tmp_path / "out", name="d", overwrite=True)
    assert DatasetPaths(tmp_path / "out", "d").unfinished
    for resume in (True, False):
        with pytest.raises(DatasetError, match=r"d\.zip exists, and .*/d\.zip\.partial beside it is unfinished; use"):
            convert(drives[0], tmp_path / "out", name="d", resume=resume)
    assert convert(drives[1], tmp_path / "out", name="d", overwrite=True).samples == 10
