# SPDX-License-Identifier: Apache-2.0
"""The process that is fed with hostile input: it says on a pipe which input it begins and how that ended.

python -m fuzzing.worker KIND SEED SEEDS SCRATCH PIPE NUMBER [NUMBER...]
"""

import faulthandler
import gc
import json
import os
import resource
import sys
import threading
import time
import traceback
import warnings
from functools import partial
from pathlib import Path

from edgefirst_ros.errors import EdgeFirstError
from fuzzing import mutate, seeds, targets

ADDRESSES = 4 << 30
"""Bytes of addresses an input may take beyond those of the process at its start, touched or not."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGING = {"os.mkdir": 1, "os.remove": 1, "os.rmdir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2,
            "os.truncate": 1, "os.chmod": 1}  # fmt: skip
"""Audit events of calls that change the file system, and how many paths they begin with."""
FORBIDDEN = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "socket.connect", "ctypes.dlopen")


class Guard:
    """Notes what an input does outside of the folder it may write to, and errors that only a thread saw."""

    def __init__(self, folder: Path) -> None:
        self.folder = os.path.realpath(folder)
        self.active = False
        self.faults: list[str] = []
        sys.addaudithook(self._audit)
        threading.excepthook = lambda args: self.faults.append(
            f"in a thread: {args.exc_type.__name__}: {args.exc_value}"
        )

    def _audit(self, event: str, args: tuple) -> None:
        if not self.active:
            return
        if event in FORBIDDEN and args[:1] != (None,):  # of dlopen, that is the process itself
            self.faults.append(f"{event} {args[:2]!r}"[:300])
        elif event == "open":
            if isinstance(args[2], int) and args[2] & WRITING and isinstance(args[0], str | bytes | os.PathLike):
                self._check(event, args[0])
        else:
            for path in args[: CHANGING.get(event, 0)]:
                self._check(event, path)

    def _check(self, event: str, path: object) -> None:
        if isinstance(path, int):
            return
        name = os.fsdecode(path)
        # What is relative goes to an open folder, which was looked at when it was opened.
        inside = (
            os.path.realpath(name).startswith(self.folder + os.sep) or os.path.realpath(name) == self.folder
            if os.path.isabs(name)
            else os.sep not in name and name not in ("..", "")
        )
        if not inside and name != os.devnull:
            self.faults.append(f"{event} outside of the output folder: {name!r}")


def main() -> None:
    kind, seed, given, scratch, pipe, *numbers = sys.argv[1:]
    faulthandler.enable()
    warnings.simplefilter("ignore")
    sys.dont_write_bytecode = True
    folder = Path(scratch)
    whole = seeds.load(Path(given), kind)
    feed = targets.target(kind, folder, Path(given))
    for data in whole[:3]:  # everything is loaded before memory is compared
        targets.accepted({"": partial(feed, data)})
    gc.collect()
    gc.freeze()  # only what an input leaves behind is collected after it
    guard = Guard(folder)
    limit = _status("VmSize") + ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with os.fdopen(int(pipe), "w", buffering=1) as out:
        for number in map(int, numbers):
            data = mutate.hostile(kind, number, int(seed), whole)
            gc.collect()
            Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
            before = _status("VmRSS")
            print(json.dumps({"begin": number, "rss": before}), file=out)
            outcome, began = _feed(feed, data, guard), time.monotonic()
            began, ended = outcome.pop("began"), began
            said = {"end": number, "seconds": ended - began, "rise": _status("VmHWM") - before, **outcome}
            print(json.dumps(said), file=out)


def _feed(feed: targets.Target, data: bytes, guard: Guard) -> dict:
    """Feed one input; `cpu` in s, and under `fault` what must not be."""
    guard.faults, guard.active = [], True
    fault = ""
    outcome: dict = {"began": time.monotonic()}
    cpu = time.process_time()
    try:
        outcome["accepted"] = feed(data)
    except EdgeFirstError:
        outcome["accepted"] = False
    except BaseException:  # noqa: BLE001  also the panics of libraries in Rust
        fault = traceback.format_exc()
    guard.active = False
    return {**outcome, "cpu": time.process_time() - cpu, "fault": "\n".join([*guard.faults, fault]).strip()}


def _status(key: str) -> int:
    """A size of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


if __name__ == "__main__":
    main()
