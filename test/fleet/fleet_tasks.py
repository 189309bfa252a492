# SPDX-License-Identifier: Apache-2.0
"""What the workers of the tests do: the real work, with deaths at command."""

import os
import signal
from pathlib import Path

from edgefirst_ros.fleet import work as real


class Here:
    """An engine that does each task at once, in this process."""

    threads = workers = 2

    def __init__(self):
        self._done = []

    def submit(self, task):
        self._done.append((task, task.function(task.arguments)))

    def collect_completed(self, timeout):
        done, self._done = self._done, []
        return done


def kill_once(plain):
    """The real work, whose process is killed in the middle the first time that recordings named in a file come up."""
    marks = Path(plain["scratch"]).parent / "marks"
    mark = marks / plain["name"]
    if not mark.exists():
        return real.work(plain)
    mark.unlink()
    convert = real.convert

    def dying(*args, **kwargs):
        return convert(*args, progress=lambda *step: os.kill(os.getpid(), signal.SIGKILL), **kwargs)

    real.convert = dying
    return real.work(plain)


def poison(plain):
    """The real work, but of recordings that kill their process whenever they come up, or take all its memory."""
    if plain["name"] == "day1":
        os.kill(os.getpid(), signal.SIGKILL)
    if plain["name"] == "day2":
        filled = [bytearray(os.urandom(1 << 20)) * 64 for _ in range(64)]
        return {"verdict": f"took {len(filled)}"}
    return real.work(plain)


def say(plain):
    """A record with a text."""
    return {"verdict": "ok", "error": plain["text"]}
