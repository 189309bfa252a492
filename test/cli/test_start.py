# SPDX-License-Identifier: Apache-2.0
"""The way in and out of the command: errors nobody foresaw, Ctrl-C while libraries load, streams that are closed."""

import os
import resource
import shlex
import signal
import subprocess
import sys

import pytest
from warm_command import run_warm

SMALL = {"seconds": 1, "size": (160, 96), "cube_shape": (1, 16, 2, 16), "lidar_points": 100}
FAULTS = {
    "ValueError('two\\nlines')": "unexpected ValueError: two lines; --traceback before the verb shows where",
    "ZeroDivisionError()": "unexpected ZeroDivisionError; --traceback before the verb shows where",
    "BaseException('a panic')": "unexpected BaseException: a panic; --traceback before the verb shows where",
    "MemoryError()": "out of memory: raise its limit (ulimit -v) or free some",
    "ImportError('libx.so: failed to map segment from shared object')": (
        "out of memory: raise its limit (ulimit -v) or free some; libx.so: failed to map segment from shared object"
    ),
    "OSError(28, 'No space left on device', 'some/file')": (
        "the system refuses: [Errno 28] No space left on device: 'some/file'"
    ),
}


def program(error):
    """Code of a command whose verb `recover` raises an error."""
    return (
        "import sys, edgefirst_ros.cli as cli, edgefirst_ros.dataset.recovery.recover as recover\n"
        f"def fail(*args, **kwargs): raise {error}\n"
        "recover.recover = fail\n"
        "cli.main()\n"
    )


def call(code, *arguments, **options):
    words = [sys.executable, "-c", code, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


@pytest.mark.parametrize("error", FAULTS)
def test_an_error_that_nobody_foresaw_is_one_line(error, warm, tmp_path):
    """The first in an interpreter of its own, the others in forks."""
    if error == next(iter(FAULTS)):
        done = call(program(error), "recover", "drive", cwd=tmp_path)
    else:
        done = run_warm(warm, ["recover", "drive"], tmp_path, code=program(error))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"edgefirst-ros: {FAULTS[error]}\n")


def test_a_removed_current_folder_is_named(cold_command, tmp_path):
    (tmp_path / "gone").mkdir()
    text = f"cd gone; rmdir ../gone; exec {shlex.join(map(str, cold_command))} convert drive.mcap -o out"
    done = subprocess.run(["sh", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the current folder was removed: change to another one" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("slow", [0, 0.2], ids=["", "thread that starts slowly"])
def test_an_interrupt_in_a_callback_of_a_library_is_not_lost(tmp_path, slow):
    """Python prints and drops what a finalizer or a callback of C raises, and the command would go on."""
    code = (
        "import threading, time, edgefirst_ros.cli as cli, edgefirst_ros.dataset.recovery.recover as recover\n"
        "start = threading.Thread.start\n"
        f"threading.Thread.start = lambda thread: (start(thread), time.sleep({slow}))\n"
        "class Ends:\n"
        "    def __del__(self): raise KeyboardInterrupt\n"
        "def wait(*args, **kwargs):\n"
        "    Ends()\n"
        "    time.sleep(60)\n"
        "recover.recover = wait\n"
        "cli.main()\n"
    )
    done = call(code, "recover", "drive", cwd=tmp_path, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("way", ["option", "environment"])
def test_developers_get_the_traceback(way, tmp_path):
    arguments = ["--traceback"] if way == "option" else []
    environment = os.environ | ({"EDGEFIRST_TRACEBACK": "1"} if way == "environment" else {})
    done = call(program("ValueError('wrong')"), *arguments, "recover", "drive", cwd=tmp_path, env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert "in fail\n" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("edgefirst-ros: unexpected ValueError: wrong")


def test_the_option_for_developers_is_not_in_the_help(run):
    assert "--traceback" not in run("--help").stdout


@pytest.mark.parametrize("library", ["typer", "edgefirst_ros.cli.app", "pydantic", "numpy"])
def test_an_interrupt_while_libraries_load_is_no_traceback(library, tmp_path):
    code = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {library!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from edgefirst_ros.cli import main\n"
        "main()\n"
    )
    (tmp_path / "drive.mcap").touch()
    done = call(code, "convert", "drive.mcap", "-o", "out", cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGINT
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("megabytes", [26, 100])
def test_a_limit_on_memory_while_libraries_load_is_one_line(tmp_path, megabytes):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    arguments = [sys.executable, "-m", "edgefirst_ros", "convert", "none.mcap", "-o", "out"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=limit)
    assert done.returncode == 1
    *before, last = done.stderr.splitlines()
    assert last.startswith("edgefirst-ros: out of memory: ")
    assert "Traceback" not in done.stderr
    assert not before or megabytes > 26  # libraries warn by themselves where they are half loaded


def test_a_short_command_is_not_spent_on_looking_for_garbage(recording, tmp_path):
    """The last look, of an interpreter that ends, is of nothing."""
    code = (
        "import atexit, gc\n"
        "looks = [0]\n"
        "gc.callbacks.append(lambda phase, found: looks.append(found['generation']) if phase == 'start' else None)\n"
        "atexit.register(lambda: print(len(looks), max(looks), len(gc.get_objects()), gc.get_freeze_count()))\n"
        "from edgefirst_ros.cli import main\n"
        "main()\n"
    )
    path = recording(**SMALL | {"seconds": 0.1})
    done = call(code, "convert", str(path), "-o", tmp_path, "--quiet")
    looks, oldest, left, frozen = map(int, done.stdout.split())
    assert looks <= 5
    assert oldest == 0
    assert left < 100
    assert frozen > 10_000


def convert(program, path, out, **options):
    """Exit code of a conversion whose words nobody reads, and what it wrote."""
    arguments = [*program, "convert", path, "-o", out, "--name", "drive", "--jobs", "1"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    done = subprocess.run(arguments, check=False, **quiet, **options)
    return done.returncode, {file.name: file.read_bytes() for file in sorted(out.glob("*"))}


@pytest.fixture(scope="module")
def expected(command, recording, tmp_path_factory):
    """{recording: exit code and files of its conversion with open streams}: whole, with a loss, and not there."""
    out = tmp_path_factory.mktemp("open")
    found = {}
    for code, path in enumerate((recording(**SMALL), out / "none.mcap", recording(**SMALL, drop_video={20}))):
        found[path] = convert(command, path, out / str(code))
    assert [code for code, _ in found.values()] == [0, 1, 3]
    assert [len(files) for _, files in found.values()] == [3, 0, 3]
    return found


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)], ids=str)
def test_closed_streams_change_neither_dataset_nor_exit_code(cold_command, expected, tmp_path, closed):
    def close():
        for number in closed:
            os.close(number)

    whole, absent, loss = expected
    for number, path in enumerate((whole, absent, loss) if len(closed) > 1 else (loss,)):
        out, result = tmp_path / str(number), expected[path]
        assert convert(cold_command, path, out, preexec_fn=close, close_fds=False) == result
