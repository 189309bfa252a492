# SPDX-License-Identifier: Apache-2.0
"""Conversions on disks that refuse, each in a process of its own, and what is to be said of their results.

As a program it reads cases as lines of JSON and answers each with the exit code; what is imported once is forked for
every case.
"""

import ctypes
import itertools
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback
import zipfile
import zlib
from pathlib import Path

LONGEST = 60.0
"""s that a run may take."""
NAME = "drive"


# ---- in the program ----------------------------------------------------------------------------
def main():
    import av  # noqa: F401
    import pyarrow  # noqa: F401

    from edgefirst_ros import cli
    from edgefirst_ros.dataset.recovery import recover  # noqa: F401
    from edgefirst_ros.dataset.writer import CommitPace
    from edgefirst_ros.pipeline import conversion  # noqa: F401

    samples = itertools.count(1)  # every third is committed, however quick the machine is
    CommitPace.is_due = lambda *_, **__: next(samples) % 3 == 0
    for line in sys.stdin:
        case = json.loads(line)
        if "size" in case:
            options = f"size={case['size']}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", case["disk"]], check=True)
        try:
            answer = run(case, cli.main)
            if "size" in case:
                subprocess.run(["cp", "-a", f"{case['disk']}/.", case["kept"]], check=True)
        finally:
            if "size" in case:
                subprocess.run(["umount", "-l", case["disk"]], check=True)
        print(json.dumps(answer), flush=True)


def run(case, command):
    """Run a case in a fork; returns its exit code, or "hangs", and what it said (less than a pipe holds)."""
    said, says = os.pipe()
    child = os.fork()
    if not child:
        enter(case, command, says)
    os.close(says)
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.005)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with open(said, encoding="utf-8") as text:
        return os.waitstatus_to_exitcode(status) if done else "hangs", text.read()


def enter(case, command, says):
    code = 98
    try:
        os.dup2(says, 1)
        os.dup2(says, 2)
        if "log" in case:
            shim = ctypes.CDLL(None)
            at, number = (ctypes.c_long(case.get(key, 0)) for key in ("at", "number"))
            shim.refuse(at, number, case.get("errno", 0), case["log"].encode())
        if "limit" in case:
            resource.setrlimit(resource.RLIMIT_FSIZE, (case["limit"], case["limit"]))
        sys.argv = ["edgefirst-ros", *case["arguments"]]
        command()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001  it is what the tests look for
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# ---- in the tests ------------------------------------------------------------------------------
class Runs:
    """Converts a recording again and again to the folder `out`; `text` is what the last run said."""

    def __init__(self, folder, recording, shim=None, mounts=False):
        self.recording, self.mounts, self.text = recording, mounts, ""
        self._folder = folder
        self._disk = folder / "disk"
        self._disk.mkdir()
        self.out = (folder / "kept" if mounts else self._disk) / "out"
        self.log = folder / "log"
        further = {"LD_PRELOAD": os.fspath(shim), "REFUSE_BELOW": os.fspath(self._disk)} if shim else {}
        command = [*(("unshare", "-rm") if mounts else ()), sys.executable, __file__]
        self._program = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **further}
        )

    def convert(self, layout="zip", **case):
        """Run one case; returns its exit code."""
        for path in (self._disk / "out", self._folder / "kept"):
            shutil.rmtree(path, ignore_errors=True)
        if self.mounts:
            (self._folder / "kept").mkdir()
        arguments = ["convert", os.fspath(self.recording), "-o", os.fspath(self._disk / "out"), "--name", NAME]
        case |= {"arguments": [*arguments, "--layout", layout, "--jobs", "2"]}
        case |= {"disk": os.fspath(self._disk), "kept": f"{self._folder}/kept"}
        self._program.stdin.write(f"{json.dumps(case)}\n")
        self._program.stdin.flush()
        code, self.text = json.loads(self._program.stdout.readline())
        return code

    def calls(self):
        """What the shim logged: (refused or done, function, path) of each call."""
        return [line.split(" ", 2) for line in self.log.read_text().splitlines()]

    def close(self):
        self._program.stdin.close()
        self._program.wait(10)
        self._program.stdout.close()


def may_mount():
    """Whether this machine lets a process mount a file system of its own."""
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(command, check=False).returncode == 0


def compiled(folder):
    """The shim, or None without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    source, library = Path(__file__).with_name("refusing_disk.c"), folder / "refusing_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"], check=True)
    return library


def members(out, layout="zip"):
    """The members of a finished dataset, in their order; a ZIP's are compared with their checksums."""
    if layout == "directory":
        root = out / NAME / NAME
        files = sorted((p for p in root.rglob("*") if p.is_file()), key=lambda p: (frame_of(p.name), p.name))
        return {p.relative_to(root).as_posix(): p.read_bytes() for p in files}
    with zipfile.ZipFile(out / f"{NAME}.zip") as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def frame_of(name):
    return int(name.rpartition("_")[2].partition(".")[0])


def whole_members(path):
    """The members that lie whole behind their local headers, up to the first that does not."""
    data, place, found = path.read_bytes() if path.is_file() else b"", 0, {}
    while data[place : place + 4] == b"PK\3\4":
        crc, size, _, name_size, extra_size = struct.unpack_from("<IIIHH", data, place + 14)
        begin = place + 30 + name_size + extra_size
        content = data[begin : begin + size]
        if len(content) < size or zlib.crc32(content) != crc:
            break
        found[data[place + 30 : place + 30 + name_size].decode()] = content
        place = begin + size
    return found


if __name__ == "__main__":
    main()
