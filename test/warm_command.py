# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros` in forks of a process that has imported nearly everything, which saves each run a second.

As a program with the path of a socket it is the command: it hands its arguments, folder, environment, standard input
and outputs to that process, and ends with the exit code of the fork. With `serve` before the path it is that process.
A `WarmProcess` is such a fork of which the number is known.
"""

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import select
import selectors
import socket
import sys
import traceback

USED = (
    *("edgefirst_ros.nodes.capture", "edgefirst_ros.nodes.replay", "edgefirst_ros.nodes.player"),
    *("edgefirst_ros.nodes.zenoh", "edgefirst_msgs.msg", "foxglove_msgs.msg"),
    *("edgefirst_ros.pipeline.conversion", "edgefirst_ros.dataset.recovery.recover", "edgefirst_ros.report.run"),
    *("edgefirst_ros.dataset.validate.report", "edgefirst_ros.dataset.frames_forms", "edgefirst_ros.export"),
    *("edgefirst_ros.dataset.tables.json_form", "edgefirst_ros.sensors.video.decoder"),
)
"""Modules that verbs import late."""
USER = "TEST_AS_USER"
"""Environment variable: the number of the user as whom the command is run."""
LATE = (
    "html",
    "secrets",
    "email.parser",
    "importlib.metadata",
    "importlib.metadata._adapters",
    "encodings.cp437",
    "edgefirst_ros.dataset.merge",
)
"""Modules that verbs import late: another user may be unable to read the interpreter's own folder."""


class WarmProcess:
    """A fork that runs the command, with what tests use of a Popen.

    `standard`: its streams; `code`: what it runs in place of the command, as `python -c` does; `folder`: where it runs.
    """

    def __init__(self, path, arguments, standard=(0, 1, 2), environment=None, code=None, folder=None):
        folder = os.fspath(folder or os.getcwd())
        request = {"arguments": arguments, "folder": folder, "environment": environment or dict(os.environ)}
        self._answers = socket.socket(socket.AF_UNIX)
        self._answers.connect(path)
        socket.send_fds(self._answers, [b"!"], standard)
        self._answers.sendall(json.dumps(request | {"code": code}).encode())
        self._answers.shutdown(socket.SHUT_WR)
        self._lines = self._answers.makefile()
        self.pid = int(self._lines.readline())
        self.returncode = None

    def poll(self, timeout=0.0):
        if self.returncode is None and select.select([self._answers], [], [], timeout)[0]:
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._answers.close()
        return self.returncode

    def wait(self, timeout=None):
        if self.poll(timeout) is None:
            raise TimeoutError
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(9)


def run_warm(path, arguments, folder, stdout=None, environment=None, code=None):
    """Run the command in such a fork until it ends; returns its exit code, output and errors as `subprocess.run`."""
    import subprocess  # which the program need not load
    import tempfile

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(os.devnull) as nothing:
        streams = nothing, out if stdout is None else stdout, err
        standard = [stream if isinstance(stream, int) else stream.fileno() for stream in streams]
        status = WarmProcess(path, [*map(str, arguments)], standard, environment, code, folder).wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), err.read())


def serve(path):
    """Wait for calls; returns in a fork that is to run the command, or the code that is returned."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the command does
    import av  # noqa: F401
    import polars  # noqa: F401  the threads of its queries start with the first one, in the fork
    import pyarrow.parquet  # noqa: F401
    from quick_disk import wait_for_no_disk

    from edgefirst_ros.cli.app import VERBS
    from edgefirst_ros.cli.options import list_settings
    from edgefirst_ros.config.values import CAPTURE, PLAY

    for name in (*(f"edgefirst_ros.cli.{verb.module}" for verb in VERBS.values()), *USED):
        with contextlib.suppress(ImportError):  # no ROS 2, no Zenoh
            importlib.import_module(name)
    for uses in ("", CAPTURE, PLAY):
        list_settings(uses)  # makes a JSON schema of the settings
    with contextlib.suppress(ImportError):
        importlib.import_module("edgefirst_ros.report.page")._make_environment().get_template("page.html.jinja")
    wait_for_no_disk()
    gc.freeze()  # a fork that looks through all of it would copy it
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as events:
        listener.bind(path)
        listener.listen()
        events.register(listener, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for event, _ in events.select():
                if event.data:
                    answer(events, event)
                    continue
                connection, _ = listener.accept()
                if not (command := os.fork()):
                    for other, (_, theirs) in [(key.fd, key.data) for key in events.get_map().values() if key.data]:
                        os.close(other)
                        theirs.close()
                    return take(connection)
                with contextlib.suppress(OSError):
                    connection.sendall(f"{command}\n".encode())
                events.register(os.pidfd_open(command), selectors.EVENT_READ, (command, connection))


def answer(events, event):
    """Tell the caller the exit code of a command that has ended."""
    command, connection = event.data
    events.unregister(event.fd)
    os.close(event.fd)
    _, status = os.waitpid(command, 0)
    with connection, contextlib.suppress(OSError):  # the caller may be gone
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def take(connection):
    """Become what was called."""
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.loads(connection.makefile().read())
    connection.close()
    for standard, given in enumerate(descriptors):
        os.dup2(given, standard)
        os.close(given)
    os.chdir(request["folder"])
    faulthandler.enable()  # of a crash its stack is in the log
    if user := int(request["environment"].pop(USER, "0")):  # only root can
        for name in LATE:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["edgefirst-ros", *request["arguments"]]
    return request["code"]


if __name__ == "__main__":
    if sys.argv[1] != "serve":
        sys.exit(WarmProcess(sys.argv[1], sys.argv[2:]).wait())
    text = serve(sys.argv[2])
    from edgefirst_ros.cli import main

    code: object = 0
    try:
        main() if text is None else exec(text, {"__name__": "__main__"})
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:  # noqa: BLE001  the end of the interpreter would wait for threads of the process before
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)  # libraries would end threads that a fork does not have
