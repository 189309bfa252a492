# SPDX-License-Identifier: Apache-2.0
"""Recordings for the tests: synthetic ones, made once for each recipe, and real ones where they are at hand."""

import fcntl
import gc
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from quick_disk import wait_for_no_disk
from same_dataset import assert_counted
from shared_data import SHARED
from warm_command import WarmProcess

os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")  # l5kit has files of an older protobuf

from edgefirst_ros.synthetic import START, Recipe, make_recording_name, write_recording

wait_for_no_disk()

# The same examples in every run, however busy the machine is. `benchmark/fuzz.py --properties` takes the other profile,
# which looks for new ones.
COMMON = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fixed", derandomize=True, **COMMON)
settings.register_profile("search", print_blob=True, **COMMON)
settings.load_profile("fixed")


ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
"""Of Chromium."""
SHORT = ("sync/", "test_config.py", "test_messages.py", "nodes/test_service.py", "ros/test_parameters.py")
"""Tests with the marker `short`: what `colcon test` runs, unless its --pytest-args have -m."""
WAITING = (
    *("nodes/", "ros/", "dataset/objects/test_hostile_storage.py", "dataset/objects/test_stores.py"),
    *("matrix/test_front_ends.py", "pipeline/test_capture"),
)
"""Tests that wait for others most of the time."""


def pytest_collection_modifyitems(config, items):
    """The longest tests first: at the end the other processes would wait for the one that has them.

    So are those with a browser: another process that takes some of them at the end would start one more. Files of tests
    that wait are spread over the others: while one waits, another process has work for its core.
    """
    files = {}
    for item in items:
        place = item.path.relative_to(Path(__file__).parent).as_posix()
        files.setdefault(place, []).append(item)
        if place.startswith(SHORT):
            item.add_marker("short")
    groups = [[files[place] for place in files if place.startswith(WAITING) == waits] for waits in (False, True)]
    spread = [(n / len(group), tests) for group in groups for n, tests in enumerate(group)]
    items[:] = itertools.chain.from_iterable(tests for _, tests in sorted(spread, key=itemgetter(0)))
    if os.environ.get("COLCON") and not config.option.markexpr:  # colcon sets it in all that it starts
        items[:] = [item for item in items if item.get_closest_marker("short")]
    first = ("test_every_damaged_variant", "test_real_video_with_damage", "test_browser.py")
    items.sort(key=lambda item: not {item.name, item.path.name} & {*first})


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected stays: neither now nor later the garbage collector looks for what of it could go."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Each file is compiled with its assertions by the process that is first there; the others wait, and load that."""
    if not isinstance(collector, pytest.Module) or sys.dont_write_bytecode:
        return (yield)
    with collector.path.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)


@pytest.fixture(scope="session")
def recording(tmp_path_factory):
    """Function that gives the path of a synthetic recording made after a recipe; all processes of the run share it."""
    folder = tmp_path_factory.getbasetemp()
    shared = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "recordings"
    shared.mkdir(exist_ok=True)

    def make(**options):
        recipe = Recipe(**options)
        described = json.dumps(asdict(recipe), sort_keys=True, default=sorted)
        made = shared / hashlib.sha256(described.encode()).hexdigest()[:16]
        path = made / make_recording_name(recipe.host, START)
        with made.with_suffix(".lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                made.mkdir(exist_ok=True)
                write_recording(path.with_suffix(".new"), recipe)
                path.with_suffix(".new").rename(path)
                lock.write(str(path.stat().st_mtime_ns))
            lock.seek(0)
            assert lock.read() == str(path.stat().st_mtime_ns), f"a test has changed {path}, which others use"
        return path

    return make


NUMBERS = itertools.count()


@pytest.fixture
def tmp_path(request, tmp_path_factory):
    """A new folder. For each of pytest's own, the folders of all tests before are listed."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.getbasetemp() / f"{name}{next(NUMBERS)}"
    path.mkdir(mode=0o700)
    return path


WRITING = ("pipeline", "nodes", "ros", "matrix", "dataset/recovery")
"""Folders of tests that convert, capture and recover."""


@pytest.fixture(autouse=True)
def every_message_counts(request):
    """seen == written + what is dropped, in every dataset that a test of conversion, capture or recovery leaves."""
    folder = request.path.parent.relative_to(request.config.rootpath / "test").as_posix()
    watched = folder.startswith(WRITING) and "tmp_path" in request.fixturenames
    path = request.getfixturevalue("tmp_path") if watched else None
    yield
    if path is not None:
        assert_counted(path)


WARM = os.fspath(Path(__file__).with_name("warm_command.py"))


@pytest.fixture(scope="session")
def warm():
    """The socket of a process whose forks run `edgefirst-ros`: see warm_command.py."""
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket has to be short
        path = os.path.join(folder, "socket")
        line = [sys.executable, WARM, "serve", path]
        with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True) as serving:
            assert serving.stdout.readline() == b"ready\n"
            yield path
            os.killpg(serving.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def command(warm):
    """The command line of `edgefirst-ros` that runs in such a fork."""
    return [sys.executable, "-I", "-S", WARM, warm]


@pytest.fixture
def start_command(warm):
    """Function that starts `edgefirst-ros` in such a fork, which signals reach; it is gone when the test is over."""
    started = []

    def start(arguments, log, environment=None, code=None):
        with log.open("wb") as file, open(os.devnull) as nothing:
            standard = (nothing.fileno(), file.fileno(), file.fileno())
            started.append(WarmProcess(warm, [*map(str, arguments)], standard, environment, code))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def cold_command():
    """The same in a process of its own, for what begins with the interpreter or ends by a signal."""
    return [sys.executable, "-m", "edgefirst_ros"]


@pytest.fixture(scope="session")
def judge():
    """Function that judges a dataset against its recording and gives the lines of what failed."""
    if not (SHARED / "judge" / "judge.py").is_file():
        pytest.skip("the judge is not at hand")
    if sys.version_info < (3, 11):
        pytest.skip("the judge needs a PyAV that has no wheels for this Python")
    sys.path.insert(0, os.fspath(SHARED / "judge"))
    sys.dont_write_bytecode = True
    import judge as script

    def run(path, dataset, *options, capsys):
        arguments = sys.argv
        sys.argv = ["judge.py", os.fspath(path), os.fspath(dataset), *options]
        capsys.readouterr()
        try:
            code = script.main()
        finally:
            sys.argv = arguments
        lines = capsys.readouterr().out.splitlines()
        failed = [line for line in lines if line.startswith("FAIL")]
        assert bool(failed) == bool(code)
        assert sum(line.startswith("PASS") for line in lines) >= 20 or failed
        return failed

    return run


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium; where it or playwright is missing the test is skipped."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=os.fspath(program), args=ARGUMENTS.split())
        yield opened
        opened.close()
