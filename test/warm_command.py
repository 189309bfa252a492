# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros` in forks of a process that has imported nearly everything, which saves each run a second.

As a program with the path of a socket it is the command: it hands its arguments, folder, environment, standard input
and outputs to that process, and ends with the exit code of the fork. With `serve` before the path it is that process.
"""

import contextlib
import importlib
import json
import os
import socket
import sys

USER = "TEST_AS_USER"
"""Environment variable: the number of the user as whom the command is run."""
LATE = ("html", "email.parser", "importlib.metadata", "encodings.cp437", "edgefirst_ros.dataset.merge")
"""Modules that verbs import late: another user may be unable to read the interpreter's own folder."""


def call(path):
    """Have the command run; returns its exit code."""
    request = {"arguments": sys.argv[2:], "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"!"], [0, 1, 2])
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        return int(connection.makefile().read())


def serve(path):
    """Wait for calls; returns in a fork that is to run the command."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the command does: what forks has no threads
    import av  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    from edgefirst_ros import export  # noqa: F401
    from edgefirst_ros.cli.app import VERBS
    from edgefirst_ros.dataset.recovery import recover  # noqa: F401
    from edgefirst_ros.pipeline import conversion  # noqa: F401

    for verb in VERBS.values():
        importlib.import_module(f"edgefirst_ros.cli.{verb.module}")
    assert "polars" not in sys.modules, "it has threads, which may hold locks that a fork waits for without end"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            connection, _ = listener.accept()
            waiting = os.fork()  # it waits for the command, so that others can be called meanwhile
            if not waiting:
                break
            connection.close()
            with contextlib.suppress(ChildProcessError):  # on a busy machine this one may have ended already
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
    if not (command := os.fork()):
        take(connection)
        return
    _, status = os.waitpid(command, 0)
    connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def take(connection):
    """Become what was called."""
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.loads(connection.makefile().read())
    connection.close()
    for standard, given in enumerate(descriptors):
        os.dup2(given, standard)
        os.close(given)
    os.chdir(request["folder"])
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


if __name__ == "__main__":
    if sys.argv[1] != "serve":
        sys.exit(call(sys.argv[1]))
    serve(sys.argv[2])
    from edgefirst_ros.cli import main

    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)  # libraries would end threads that a fork does not have
