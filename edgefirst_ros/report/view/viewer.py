# SPDX-License-Identifier: Apache-2.0
"""The viewer's own program as a child: it is started by itself, not by its launcher, and ends when we do."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from edgefirst_ros.errors import EdgeFirstError, describe_extra

HERE = "127.0.0.1"
"""The only address that is served: the viewer's own default is all of them."""
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 5.0
"""s that the viewer has to end by itself."""
PERIOD = 0.1
"""s between two checks whether a signal came: its handler must not raise while the viewer is being started."""


def show(recording: Path, *, web: bool, say: Callable[[str], None]) -> None:
    """Show a recording until the viewer is closed or a signal comes; raises EdgeFirstError where it cannot."""
    command = [str(find_program()), str(recording), "--hide-welcome-screen"]
    if web:
        with socket.socket() as data, socket.socket() as page:
            for free in (data, page):
                free.bind((HERE, 0))
            ports = [free.getsockname()[1] for free in (data, page)]
        command += ["--serve-web", "--bind", HERE, "--port", str(ports[0]), "--web-viewer-port", str(ports[1])]
    caught: list[int] = []
    before = {number: signal.signal(number, lambda number, _: caught.append(number)) for number in ENDS}
    child = told = None
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if web:
            source = f"rerun%2Bhttp://{HERE}:{ports[0]}/proxy"
            say(f"http://{HERE}:{ports[1]}/?url={source}")
            say("its page requests fonts and analytics from other hosts; Ctrl-C ends it")
        while told is None and not caught:
            with suppress(subprocess.TimeoutExpired):
                told = child.communicate(timeout=PERIOD)[1]
        if caught:
            say("ended")
        elif child.returncode:
            words = (told or b"").decode(errors="replace").strip().splitlines()
            raise EdgeFirstError(
                f"the viewer ended with {child.returncode}; without a screen use --save X.rrd or --web; "
                f"its message: {words[-1] if words else 'none'}"
            )
    except OSError as error:
        raise EdgeFirstError(f"{command[0]}: cannot be started: {error.strerror or error}") from error
    finally:
        if child is not None and child.poll() is None:
            child.terminate()
            try:
                child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def find_program() -> Path:
    """Return the viewer's binary; its launcher in Python would leave it after when it is ended."""
    import rerun_cli

    found = Path(rerun_cli.__file__).with_name("rerun")
    if not found.exists():
        raise EdgeFirstError(describe_extra("view", "view", found))
    return found
