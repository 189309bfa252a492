# SPDX-License-Identifier: Apache-2.0
"""Datasets on their way from the card to a bucket: nothing removed before it is there, nothing sent twice."""

import json
import os
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from late import late
from live_system import System
from object_server import S3

from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.errors import ObjectStoreError, UsageError
from edgefirst_ros.pipeline import upload
from edgefirst_ros.pipeline.capture_session import CaptureSession
from edgefirst_ros.pipeline.upload import Uploader

late("obstore", reason="no obstore: pip install 'edgefirst_ros[zenoh]'")
late("moto", reason="no moto: run `make test`")

ENDS = (".zip", ".arrow", ".frames.arrow")
LONG = 60.0


class Log:
    def __init__(self):
        self.lines = []

    def info(self, text, /):
        self.lines.append(text)

    warning = error = info


@pytest.fixture(scope="module")
def bucket():
    with pytest.MonkeyPatch.context() as patch, S3(patch) as server:
        yield server


@pytest.fixture
def place(bucket, request):
    """A prefix of this test's own."""
    return f"s3://drives/{request.node.name[:40]}"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(upload, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(upload, "PAUSES", (0.02, 0.05))
    monkeypatch.setattr(upload, "PATIENCE", 1.0)


@pytest.fixture
def start(tmp_path, place):
    """Function that begins to upload what is in a folder."""
    begun, log = [], Log()

    def begin(**settings):
        one = Uploader(LiveSettings(out=str(tmp_path), upload=place, **settings), log)
        begun.append(one)
        return one

    begin.lines = log.lines
    yield begin
    for one in begun:
        one.close()


def dataset(folder, name, data=b"dataset", ends=ENDS):
    for end in ends:
        (folder / f"{name}{end}").write_bytes(data + end.encode())


def until(happened):
    deadline = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def sent(bucket, place):
    return {key.partition("/")[2]: data for key, data in bucket.objects(place.partition("drives/")[2] + "/").items()}


def files(folder):
    return sorted(os.listdir(folder))


def test_all_finished_datasets_are_sent_once_and_kept(bucket, place, start, tmp_path):
    dataset(tmp_path, "earlier")
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / f"earlier{upload.UPLOADED}.partial").symlink_to(precious)  # as another user may put it there
    dataset(tmp_path, "half", ends=(".zip.partial", ".rows.journal"))
    one = start()
    until(lambda: one.status()["sent"] == 1)
    dataset(tmp_path, "later", os.urandom(100_000))
    until(lambda: one.status()["sent"] == 2)
    expected = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.name.endswith(ENDS)}
    assert sent(bucket, place) == expected
    assert len(expected) == 6
    assert precious.read_text() == "precious"
    assert one.status() == {"to": place, "waiting": 0, "sent": 2, "failure": ""}
    one.close()
    bucket.client.delete_object(Bucket="drives", Key=f"{place.partition('drives/')[2]}/earlier.zip")
    again = start()
    dataset(tmp_path, "last")
    until(lambda: again.status()["sent"])
    assert again.status()["sent"] == 1, "what was sent is not sent again, whatever became of it there"


def test_what_is_not_kept_is_removed_once_it_is_there(bucket, place, start, tmp_path):
    dataset(tmp_path, "drive")
    (tmp_path / "half.zip.partial").write_bytes(b"x")
    one = start(keep=False)
    until(lambda: files(tmp_path) == ["half.zip.partial"])
    assert sorted(sent(bucket, place)) == ["drive.arrow", "drive.frames.arrow", "drive.zip"]
    assert one.status()["failure"] == ""


def test_a_dataset_whose_report_is_to_come_is_removed_after_it(bucket, place, tmp_path):
    """Else the process that makes the report would find no dataset: an upload may take less time."""
    live = LiveSettings(out=str(tmp_path), upload=place, keep=False, report=True)
    session = CaptureSession(System(), Settings(), live, "host", Log())
    session._results.unreported.add("drive")
    dataset(tmp_path, "drive")
    until(lambda: session.status()["upload"]["sent"] == 1)
    time.sleep(0.2)
    assert set(files(tmp_path)) >= {f"drive{end}" for end in ENDS}
    session.add_report(str(tmp_path / "drive.zip"))
    until(lambda: not files(tmp_path))
    session.close()


@pytest.mark.parametrize("left", [ENDS, ENDS[1:], ENDS[2:], ()])
def test_what_a_power_cut_left_of_a_removal_is_removed_at_the_next_start(start, tmp_path, left):
    dataset(tmp_path, "drive")
    one = start()
    until(lambda: one.status()["sent"] == 1)
    one.close()
    for end in set(ENDS) - set(left):
        (tmp_path / f"drive{end}").unlink()
    start(keep=False)
    until(lambda: not files(tmp_path))


def test_an_upload_that_was_cut_goes_on_where_it_was(bucket, place, start, tmp_path):
    dataset(tmp_path, "drive")
    prefix = place.partition("drives/")[2]
    bucket.put(f"{prefix}/drive.arrow", (tmp_path / "drive.arrow").read_bytes())
    before = bucket.client.head_object(Bucket="drives", Key=f"{prefix}/drive.arrow")["LastModified"]
    one = start(keep=False)
    until(lambda: not files(tmp_path))
    assert bucket.client.head_object(Bucket="drives", Key=f"{prefix}/drive.arrow")["LastModified"] == before
    assert one.status()["sent"] == 1


def test_another_dataset_of_that_name_is_said_and_nothing_removed(bucket, place, start, tmp_path):
    prefix = place.partition("drives/")[2]
    bucket.put(f"{prefix}/drive.zip", b"another one")
    dataset(tmp_path, "drive")
    dataset(tmp_path, "other")
    one = start(keep=False)
    until(lambda: one.status()["failure"] and files(tmp_path) == ["drive.arrow", "drive.frames.arrow", "drive.zip"])
    assert "drive.zip exists and is another one" in one.status()["failure"]
    assert sent(bucket, place)["drive.zip"] == b"another one"


def test_a_line_that_is_gone_is_waited_for(bucket, place, start, tmp_path, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        dataset(tmp_path, "drive")
        one = start(keep=False)
        until(lambda: "connection refused" in one.status()["failure"])
        assert len(files(tmp_path)) == 3
        assert one.status()["waiting"] == 1
    assert [line for line in start.lines if line.endswith("; it continues")] == [
        f"upload: {one.status()['failure']}; it continues"
    ]
    one.close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.endpoint)
    start(keep=False)
    until(lambda: not files(tmp_path))


def test_a_line_that_lets_something_through_is_soon_asked_again(start, tmp_path, monkeypatch):
    """It is asked less and less often only as long as nothing arrives."""
    monkeypatch.setattr(upload, "PAUSES", (1.0, 300.0))
    ready, waits = threading.Event(), []
    answers = iter((False, False, True, False, False, True))

    def put(*_, **__):
        ready.wait(LONG)
        if not next(answers):
            raise ObjectStoreError("no answer")

    monkeypatch.setattr(upload, "upload_dataset", put)
    for name in ("one", "two"):
        dataset(tmp_path, name)
    uploader = start()
    pause = uploader._ended.wait
    monkeypatch.setattr(uploader._ended, "wait", lambda seconds: waits.append(seconds) or pause(0.001))
    ready.set()
    until(lambda: uploader.status()["sent"] == 2)
    assert [seconds for seconds in waits if seconds >= 1.0] == [1.0, 2.0, 1.0, 2.0]


def test_an_upload_takes_no_more_than_its_rate(bucket, place, start, tmp_path, monkeypatch):
    slept = []
    from edgefirst_ros.dataset.objects import bucket as storage

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=slept.append)  # of this module alone: others wait as ever
    monkeypatch.setattr(storage, "time", clock)
    dataset(tmp_path, "drive", ends=ENDS[1:])
    dataset(tmp_path, "drive", bytes(6 << 20), ends=ENDS[:1])
    one = start(upload_rate=4 << 20)
    until(lambda: one.status()["sent"] == 1)
    assert sent(bucket, place)["drive.zip"] == bytes(6 << 20) + b".zip"
    assert max(slept) > 1.0, "6 MiB of a file at 4 MiB a second"
    note = json.loads((tmp_path / "drive.uploaded").read_text())
    assert (note["to"], note["files"]["drive.zip"][0]) == (place, (6 << 20) + 4)


def test_a_folder_that_is_made_later_is_no_failure(bucket, place, tmp_path):
    out = tmp_path / "later"
    one = Uploader(LiveSettings(out=str(out), upload=place), Log())
    try:
        assert one._datasets() == []
        out.mkdir()
        dataset(out, "drive")
        until(lambda: one.status()["sent"] == 1)
        assert one.status()["failure"] == ""
    finally:
        one.close()


def test_once_it_is_closed_no_further_dataset_is_sent(start, tmp_path, monkeypatch):
    """One is under way meanwhile: it is completed, and noted."""
    begun, may, put = threading.Event(), threading.Event(), []

    def upload_dataset(paths, to, *, store):
        put.append(paths.name)
        begun.set()
        assert may.wait(LONG)

    monkeypatch.setattr(upload, "upload_dataset", upload_dataset)
    for name in ("one", "two"):
        dataset(tmp_path, name)
    monkeypatch.setattr(upload, "LAST_WAIT", 0.0)
    uploader = start()
    assert begun.wait(LONG)
    uploader.close()
    may.set()
    uploader._thread.join(LONG)
    assert (len(put), uploader.status()["sent"], uploader.status()["waiting"]) == (1, 1, 1)
    assert [name for name in files(tmp_path) if name.endswith(upload.UPLOADED)] == [f"{put[0]}{upload.UPLOADED}"]


def test_a_session_tells_what_is_sent_and_ends_its_upload(bucket, place, tmp_path):
    dataset(tmp_path, "earlier")
    live = LiveSettings(out=str(tmp_path), upload=place)
    session = CaptureSession(System(), Settings(), live, "host", Log())
    until(lambda: session.status()["upload"]["sent"] == 1)
    assert session.status()["upload"] == {"to": place, "waiting": 0, "sent": 1, "failure": ""}
    session.close()
    assert not session._uploader._thread.is_alive()


@pytest.mark.parametrize(
    ("settings", "live", "said"),
    [
        (Settings(layout="directory"), {"upload": "s3://drives/a"}, "only datasets with layout zip"),
        (Settings(), {"upload": "ftp://drives/a"}, "a scheme that is not known"),
    ],
)
def test_a_place_that_is_none_is_refused_before_anything_begins(settings, live, said):
    with pytest.raises(UsageError, match=said):
        CaptureSession(None, settings, LiveSettings(**live), "host", Log())
