# SPDX-License-Identifier: Apache-2.0
"""The viewer as a child: its failures are told, it ends with us, and our own signal handlers come back.

A script stands for the viewer, which needs a screen.
"""

import os
import re
import signal
import sys
from types import SimpleNamespace

import handmade_dataset as made
import pytest

from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.report.view import viewer
from edgefirst_ros.report.view.run import view


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Function that puts a script in the viewer's place and returns its path."""
    monkeypatch.setattr(viewer, "PATIENCE", 0.1)

    def put(*lines, mode=0o755):
        path = tmp_path / "rerun"
        path.write_text("\n".join(["#!/bin/sh", f"echo $$ > {tmp_path}/pid", *lines]) + "\n")
        path.chmod(mode)
        monkeypatch.setattr(viewer, "find_program", lambda: path)
        return path

    return put


def shown(tmp_path, **options):
    said = []
    before = [signal.getsignal(number) for number in viewer.ENDS]
    try:
        viewer.show(tmp_path / "x.rrd", web=options.get("web", False), say=said.append)
    finally:
        assert [signal.getsignal(number) for number in viewer.ENDS] == before
    return said


def test_a_viewer_that_is_closed_says_nothing(stand_in, tmp_path):
    stand_in(f'echo "$@" > {tmp_path}/arguments')
    assert shown(tmp_path) == []
    assert (tmp_path / "arguments").read_text() == f"{tmp_path}/x.rrd --hide-welcome-screen\n"


def test_a_browser_is_told_where_this_machine_serves_it(stand_in, tmp_path):
    stand_in(f'echo "$@" > {tmp_path}/arguments')
    address, note = shown(tmp_path, web=True)
    own, port = re.search(
        r"--serve-web --bind 127\.0\.0\.1 --port (\d+) --web-viewer-port (\d+)$", (tmp_path / "arguments").read_text()
    ).groups()
    assert own != port
    assert address == f"http://127.0.0.1:{port}/?url=rerun%2Bhttp://127.0.0.1:{own}/proxy"
    assert "Ctrl-C ends it" in note


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["echo first >&2", "echo no screen >&2", "exit 3"], ("3", "no screen")),
        (["exit 4"], ("4", "none")),
    ],
)
def test_the_last_words_of_a_viewer_that_fails_are_told_after_the_remedy(stand_in, tmp_path, lines, said):
    stand_in(*lines)
    code, words = said
    remedy = "without a screen use --save X.rrd or --web"
    with pytest.raises(EdgeFirstError, match=f"^the viewer ended with {code}; {remedy}; its message: {words}$"):
        shown(tmp_path)


def test_a_viewer_that_cannot_be_started_is_named(stand_in, tmp_path):
    path = stand_in(mode=0o644)
    with pytest.raises(EdgeFirstError, match=re.escape(f"{path}: cannot be started: Permission denied")):
        shown(tmp_path)


def test_a_viewer_that_was_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rerun_cli", SimpleNamespace(__file__=f"{tmp_path}/__init__.py"))
    with pytest.raises(EdgeFirstError, match=re.escape(f"{tmp_path}/rerun is not installed")):
        viewer.find_program()


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_ends_the_viewer_even_one_that_does_not_listen(stand_in, tmp_path, name, stubborn):
    stand_in("trap '' TERM" if stubborn else "", f"kill -{name} $PPID", "exec sleep 60")
    assert shown(tmp_path) == ["ended"]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_signal_while_the_viewer_starts_leaves_no_viewer_behind(stand_in, tmp_path, monkeypatch):
    stand_in("exec sleep 60")
    popen, children = viewer.subprocess.Popen, []

    def interrupted(*arguments, **options):
        children.append(popen(*arguments, **options))
        os.kill(os.getpid(), signal.SIGINT)
        return children[0]

    monkeypatch.setattr(viewer.subprocess, "Popen", interrupted)
    assert shown(tmp_path) == ["ended"]
    assert children[0].returncode == -signal.SIGTERM


def test_a_second_signal_while_the_viewer_ends_changes_nothing(stand_in, tmp_path):
    stand_in("trap 'kill -INT $PPID; exit 0' TERM", "kill -INT $PPID", "while :; do sleep 0.01; done")
    assert shown(tmp_path) == ["ended"]


def test_what_is_shown_goes_when_the_viewer_ends(stand_in, tmp_path):
    pytest.importorskip("rerun", reason="rerun-sdk is not installed")
    (tmp_path / "in").mkdir()
    stand_in(f'wc -c < "$1" > {tmp_path}/size', f'echo "$1" > {tmp_path}/place')
    done = view(made.write(tmp_path / "in", made.good()))
    assert (done.samples, done.saved) == (3, None)
    assert int((tmp_path / "size").read_text()) > 1000
    assert not os.path.exists((tmp_path / "place").read_text().strip())
