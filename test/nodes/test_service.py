# SPDX-License-Identifier: Apache-2.0
"""A capture as a service, whatever its bus: orders, conditions, pages, log."""

import io
import json
import os
import sys
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

import edgefirst_ros
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.errors import RecordingError, UsageError
from edgefirst_ros.nodes.service import Service, VerbLog, describe_status
from edgefirst_ros.pipeline import health
from edgefirst_ros.pipeline.capture_session import SessionState, _Capturing, load_capture
from edgefirst_ros.sources.live import JoiningTransport, Offers


class Session:
    """A capture session whose answers are set by the test."""

    state = SessionState.WAITING
    settings, live = Settings(), LiveSettings()
    source = None

    def __init__(self, **facts):
        self.answer, self.outcomes, self.reported = Future(), [], []
        self.add_report = self.reported.append
        self.facts = {"active": True, "waiting_for": "", "finished": [], "recording": False} | facts
        self.start = self.stop = self.split = self.pause = self.resume = lambda: self.answer

    def status(self):
        return self.facts


class Deaf:
    """A transport without topics."""

    def list_topics(self, expected):
        return Offers({})

    def close(self):
        pass


@pytest.fixture
def service(tmp_path):
    made = Service(Deaf(), Settings(), LiveSettings(out=str(tmp_path / "out")), "capture", VerbLog("capture"))
    made.session = Session()
    return made


def test_an_order_is_answered_once_it_is_carried_out(service):
    told = service.order("stop")
    assert not told.done()
    service.session.answer.set_result("done")
    assert told.result() == {"success": True, "message": "done"}


def test_an_order_that_is_refused_is_answered_with_the_reason(service):
    service.session.answer.set_exception(RecordingError("nothing is being recorded"))
    assert service.order("split").result() == {"success": False, "message": "nothing is being recorded"}


RECORDING = {"state": "recording", "recording": True, "sequence": "one", "samples": 3, "bytes": 10}


@pytest.mark.parametrize(
    ("facts", "quiet", "code", "message"),
    [
        ({"waiting_for": "no camera topic"}, 0, 3, "no camera topic"),
        ({"waiting_for": ""}, 0, 3, "waiting for the camera"),
        ({"waiting_for": "no camera topic", "wanted": False}, 0, 0, "idle: no camera topic"),
        ({"active": False}, 60, 0, "idle: waiting for the camera"),
        (RECORDING, 0, 0, "recording"),
        (RECORDING | {"state": "paused", "recording": False}, 60, 0, "paused"),
        (RECORDING, 4.9, 0, "recording"),
        (RECORDING, 5.1, 5, "recording, but no sample for 5 s"),
        (RECORDING | {"state": "splitting"}, 0, 0, "splitting"),
        ({"state": "waiting for the clock", "waiting": True}, 6, 5, "waiting for the clock, but no sample for 6 s"),
        ({"state": "idle"}, 60, 0, "idle"),
        ({"state": "completing"}, 60, 0, "completing"),
        ({"state": "idle", "failure": "the disk is full"}, 0, 4, "idle after a failure: the disk is full"),
    ],
)
def test_the_status_has_the_condition_as_exit_code(service, monkeypatch, facts, quiet, code, message):
    clock = {"now": 100.0}
    monkeypatch.setattr(health.time, "monotonic", lambda: clock["now"])
    service.session = Session(**facts)
    service.order("status")
    clock["now"] += quiet
    told = service.order("status").result()
    assert (told["exit_code"], told["message"], told["success"]) == (code, message, True)
    assert told["condition"] == {0: "ok", 3: "waiting", 4: "failed", 5: "stale"}[code]  # `ok` is also idle by order
    assert told["newest_sample_age"] == (pytest.approx(quiet) if facts.get("samples") else None)


def test_the_time_before_a_camera_came_is_none_without_samples(service, monkeypatch):
    clock = {"now": 100.0}
    monkeypatch.setattr(health.time, "monotonic", lambda: clock["now"])
    service.session = Session(waiting_for="no camera topic")
    clock["now"] += 60
    assert service.order("status").result()["exit_code"] == 3
    service.session.facts |= {"state": "waiting for the clock", "waiting": True}
    clock["now"] += 1
    assert service.order("status").result()["message"] == "waiting for the clock"
    clock["now"] += 6
    assert service.order("status").result()["message"] == "waiting for the clock, but no sample for 7 s"


def test_slow_samples_are_not_stale(service, monkeypatch):
    """One sample in ten seconds is asked for: less than three of these are no fault."""
    clock = {"now": 100.0}
    monkeypatch.setattr(health.time, "monotonic", lambda: clock["now"])
    service.session = Session(**RECORDING)
    service.session.settings = Settings(rate=0.1)
    service.order("status")
    clock["now"] += 29
    assert service.order("status").result()["exit_code"] == 0
    clock["now"] += 2
    assert service.order("status").result()["exit_code"] == 5
    service.session.facts = RECORDING | {"samples": 4, "active": True, "waiting_for": "", "finished": []}
    assert service.order("status").result()["exit_code"] == 0


def test_minutes_until_the_disk_is_full(service, monkeypatch):
    clock = {"now": 100.0}
    monkeypatch.setattr(health.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(health, "count_free_bytes", lambda place: 500_000_000 + 6_000_000_000)
    service.session = Session(**RECORDING)
    service.session.live = LiveSettings(out=service.session.live.out)
    monkeypatch.setattr(health.Path, "is_dir", lambda place: True)
    service.order("status")
    clock["now"] += 10
    service.session.facts["bytes"] = 100_000_000  # 10 MB/s
    assert service.order("status").result()["free_minutes"] == 10.0


@pytest.mark.parametrize("place", ["/proc/nope", "/dev/null/nope"])
def test_an_output_that_can_never_work_ends_at_once(place):
    with pytest.raises(UsageError, match=rf"^out: {place}: cannot be made: .*; name another folder$"):
        Service(Deaf(), Settings(), LiveSettings(out=place), "capture", VerbLog("capture"))


@pytest.mark.parametrize(("autostart", "code"), [(True, 1), (False, 0)])
def test_a_capture_that_saw_nothing_ends_with_1_and_says_why(tmp_path, capsys, autostart, code):
    live = LiveSettings(out=str(tmp_path), autostart=autostart)
    service = Service(Deaf(), Settings(), live, "capture", VerbLog("capture"))
    service.begin()
    service.refresh()
    assert service.order("status").result()["exit_code"] == (3 if autostart else 0)
    service.finish()
    assert service.session.exit_code == code
    assert ("warning: no dataset was written" in capsys.readouterr().err) == bool(code)


def test_the_log_says_what_kind_of_line_it_is(capsys):
    log = VerbLog("capture")
    log.info("dataset one begins")
    log.warning("a name\x1b[31m")
    log.error("no room")
    assert capsys.readouterr().err.splitlines() == [
        "edgefirst-ros capture: dataset one begins",
        "edgefirst-ros capture: warning: a name\\x1b[31m",
        "edgefirst-ros capture: error: no room",
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_lines_are_logged_over_the_status_line(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((20, 9)))
    log = VerbLog("x")
    log.show("recording, 1 sample, 0.1 MB")
    log.info("d")
    log.show("idle")
    log.show("")
    assert terminal.getvalue() == "recording, 1 sample\redgefirst-ros x: d \nidle\r    \r"


def test_without_a_terminal_no_status_line_is_shown(capsys):
    VerbLog("x").show("recording")
    assert capsys.readouterr().err == ""


def test_a_status_in_a_line():
    status = {
        "message": "recording",
        "samples": 12,
        "bytes": 34_500_000,
        "free_minutes": 812.4,
        "newest_sample_age": 0.1,
    }
    told = "recording, 12 samples, 34.5 MB, 812 minutes of disk left, newest sample 0.1 s ago"
    assert describe_status(status) == told
    dropped = {"lost on the way": 2, "undecodable": 1, "not sampled": 50}
    status["counts"] = {"/camera/h264": {"seen": 90, "written": 12, "dropped": dropped}}
    status["worst_skew_ns"] = {"radar_cube_skew": 26_300_000, "lidar_points_skew": 4_000_000}
    status["rates"] = {"camera": 29.97, "radar.cube": 18.0, "/gps": 10.0}
    more = "skew up to 26 ms, camera 30.0 Hz, radar.cube 18.0 Hz"
    assert describe_status(status) == f"{told.replace('samples, ', 'samples, 3 messages lost, ')}, {more}"
    assert describe_status({"message": "idle", "free_minutes": None, "newest_sample_age": None}) == "idle"


def made_pages(service, *datasets):
    """Let datasets be finished; returns the warnings of the log once their pages are made."""
    said = []
    service._log.warning = said.append
    service.session.live = LiveSettings(report=True)
    for path in datasets:
        service.session.outcomes.append({"dataset": str(path)})
        service._announce()
    service._reports.shutdown()
    assert service.session.reported == [*map(str, datasets)]
    return said


def test_each_finished_dataset_gets_a_page_once(service, recording, tmp_path):
    path = recording(seconds=2, size=(320, 192), topics={"camera"})
    container = edgefirst_ros.convert(path, tmp_path, name="drive").paths.container
    (said,) = made_pages(service, container, tmp_path / "gone.zip")
    assert (tmp_path / "drive.html").stat().st_size > 1_000_000
    assert "gone.zip: no report: " in said


def test_a_page_that_cannot_be_begun_is_said_and_the_capture_goes_on(service, tmp_path, monkeypatch):
    """A machine on which no process can be begun; here there is no such program."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (told,) = made_pages(service, tmp_path / "drive.zip")
    assert told.startswith(f"{tmp_path}/drive.zip: no report: ")
    assert "No such file or directory" in told


# ---- settings
def test_one_file_has_both_kinds_and_options_go_before_it(tmp_path):
    path = tmp_path / "capture.yaml"
    path.write_text("rate: 5\nout: drives\nsequence: first\nautostart: false\n")
    settings, live = load_capture(path, {"sequence": "second", "max_width": "640"})
    assert (settings.rate, settings.max_width) == (5.0, 640)
    assert (live.out, live.sequence, live.autostart, live.depth) == ("drives", "second", False, 100)


@pytest.mark.parametrize("name", ["a/b", "..", "a\nb"])
def test_a_sequence_whose_name_is_no_name_of_a_file_is_refused(name):
    with pytest.raises(UsageError, match=r"^sequence: "):
        load_capture(None, {"sequence": name})


def test_what_is_wrong_is_named_with_where_it_was_said(tmp_path):
    with pytest.raises(UsageError, match="--set: unknown setting 'outt'; did you mean 'out'"):
        load_capture(None, {"outt": "x"})
    path = tmp_path / "capture.yaml"
    path.write_text("depth: 0\n")
    with pytest.raises(UsageError, match=rf"{path}: depth: expected a whole number at least 1"):
        load_capture(path)
    with pytest.raises(UsageError, match="--set keep: expected"):
        load_capture(None, {"keep": "perhaps"})


# ---- events, names, topics
def test_finished_datasets_and_lost_messages_are_published_once(tmp_path):
    told = []
    live = LiveSettings(out=str(tmp_path))
    service = Service(
        Deaf(),
        Settings(),
        live,
        "c",
        VerbLog("c"),
        publish=lambda topic, text: told.append((topic, json.loads(text))),
    )
    service.diagnose()
    assert told == []
    outcome = {"dataset": "one.zip", "samples": 3, "loss": {"/gps": {"lost on the way": 2}}}
    service.session._results.outcomes.append(outcome)
    state = SimpleNamespace(lost=2, guessed=1)
    service.session._current = _Capturing(
        SimpleNamespace(status=dict), SimpleNamespace(states={"/gps": state}, unused={})
    )
    for _ in range(2):
        service._announce()
    state.lost = 5
    service._announce()
    assert told == [
        ("finished", outcome),
        ("messages_lost", {"/gps": {"lost": 2, "lost_by_stamps": 1}}),
        ("messages_lost", {"/gps": {"lost": 5, "lost_by_stamps": 1}}),
    ]


def test_ages_are_those_of_the_given_clock(service, monkeypatch):
    """Simulated time: what was heard 60 s ago by that clock is as old, however fast it goes."""
    at = {"now": 1000.0}
    service._health = health.Health("capture", lambda: at["now"])
    service.session = Session(**RECORDING)
    service.order("status")
    at["now"] += 60
    told = service.order("status").result()
    assert (told["newest_sample_age"], told["exit_code"]) == (60.0, 0)


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        (["camera/h264"], {"/camera/h264"}),
        (["/camera/h264", "gps"], {"/camera/h264", "/gps"}),
        (["/radar/.*"], {"/radar/cube", "/radar/targets"}),
        (["/front/gps"], {"/gps"}),
        (["camera"], set()),
    ],
)
def test_only_chosen_topics_are_offered(chosen, kept):
    names = {name: (name, "x") for name in ("/camera/h264", "/radar/cube", "/radar/targets")}
    offers = Offers(names | {"/gps": ("/front/gps" if "/front/gps" in chosen else "/gps", "x")})
    assert (
        set(JoiningTransport(SimpleNamespace(list_topics=lambda expected: offers), chosen).list_topics({}).names)
        == kept
    )


def test_a_wrong_pattern_of_topics_is_refused():
    with pytest.raises(UsageError, match=r"topics: expected names or regular expressions, got '\('"):
        load_capture(None, {"topics": "gps,("})
    assert load_capture(None, {"topics": "gps,/radar/.*"})[1].topics == ("gps", "/radar/.*")


@pytest.mark.parametrize(
    ("facts", "quiet", "alive"),
    [
        (RECORDING, 0, True),
        (RECORDING, 6, False),
        ({"waiting_for": "no camera topic"}, 60, True),
        ({"state": "idle"}, 60, True),
        ({"state": "idle", "failure": "the disk failed"}, 0, False),
        ({"state": "disk full", "bytes_needed": 9}, 60, True),
        ({"active": False, "broken_off": ["drive"]}, 60, True),
    ],
)
def test_the_watchdog_is_told_while_a_start_again_would_not_help(service, monkeypatch, facts, quiet, alive):
    clock, told = {"now": 100.0}, []
    monkeypatch.setattr(health.time, "monotonic", lambda: clock["now"])
    service.session, service._manager = Session(**facts), SimpleNamespace(alive=lambda: told.append(1))
    service.session.refresh = lambda: None
    service.refresh()
    told.clear()
    clock["now"] += quiet
    service.refresh()
    assert bool(told) == alive
