# SPDX-License-Identifier: Apache-2.0
"""What lies where a file is expected: links, pipes, sockets, devices, folders; and processes without streams or memory.

An input is JSON: {"files": {file: kind}, "closed": [streams], "memory": MiB of addresses, 0 for no limit}.
"""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config.load import load
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.migrate import migrate
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.validate.fix import fix
from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.export import export

FILES = ("d.arrow", "d.frames.arrow", "d", "d/d", "member", "settings.yaml", "rec.mcap", "d.parquet", "d.json")
KINDS = ("file", "none", "link", "dangling", "loop", "pipe", "socket", "device", "folder", "empty", "unreadable")
LONGEST = 20
"""s that a process may take."""


def seeds() -> list[bytes]:
    """Whole ones, and one of each kind."""
    plain = {"files": {}, "closed": [], "memory": 0}
    return [json.dumps({**plain, "files": {FILES[n % len(FILES)]: kind}}).encode() for n, kind in enumerate(KINDS)]


def changed(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Another file of another kind; one input in twenty starts a process."""
    said = json.loads(data)
    said["files"] = {**said["files"], **json.loads(other)["files"], rng.choice(FILES): rng.choice(KINDS)}
    if rng.random() < 0.05:
        said["closed"] = rng.sample((0, 1, 2), rng.randrange(4))
        said["memory"] = rng.choice((0, 0, rng.randrange(150, 2000)))
    return json.dumps(said).encode()


def put(path: Path, kind: str, outside: Path) -> None:
    """Put something of a kind in the place of a file."""
    if kind in ("file", "unreadable"):
        if kind == "unreadable" and path.exists():
            path.chmod(0)
        return
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    made: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(outside),
        "dangling": lambda: path.symlink_to("nowhere"),
        "loop": lambda: path.symlink_to(path.name),
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: _device(path),
        "folder": path.mkdir,
        "empty": path.touch,
    }
    if kind == "socket":
        here = os.open(path.parent, os.O_PATH)
        try:
            with socket.socket(socket.AF_UNIX) as opened:
                opened.bind(f"/proc/self/fd/{here}/{path.name}")  # a path of its own may be too long
        finally:
            os.close(here)
    elif kind in made:
        made[kind]()


def _device(path: Path) -> None:
    """Endless zeros; nothing where that is not allowed."""
    with contextlib.suppress(PermissionError):
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))


def target(folder: Path, given: Path) -> Callable[[bytes], bool]:
    """A dataset in a folder, a settings file and a recording; all that reads them is called."""
    whole = folder / "whole"
    paths = convert(given / "work" / "r0.mcap", whole, name="d", layout="directory", keyframes=True).paths
    member = next(path for path in sorted(paths.folder.rglob("*.pcd"))).relative_to(whole)
    shutil.copy(given / "work" / "r0.mcap", whole / "rec.mcap")
    (whole / "settings.yaml").write_text("rate: 1.0\n")
    outside = folder / "outside"
    outside.write_bytes(b"secret")

    def feed(data: bytes) -> bool:
        said = json.loads(data)
        place = folder / "place"
        shutil.copytree(whole, place)
        try:
            for name, kind in said["files"].items():
                path = place / (member if name == "member" else "d" / Path(name) if "arrow" in name else name)
                if path.parent.is_dir():
                    put(path, kind, outside)
            return _ask(place, folder / "out") if not said["closed"] and not said["memory"] else _process(place, said)
        finally:
            shutil.rmtree(place)
            shutil.rmtree(folder / "out", ignore_errors=True)

    return feed


def _ask(place: Path, out: Path) -> bool:
    attempts: tuple[Callable[[], object], ...] = (
        lambda: validate(place / "d"),
        lambda: [sample.read(one) for sample in Dataset(place / "d") for one in sorted(sample.inputs)],
        lambda: merge([place / "d"], out / "merged"),
        lambda: migrate(place / "d/d.arrow", out / "m.json"),
        lambda: export(place / "d", "roverd", out / "roverd"),
        lambda: fix(place / "d"),
        lambda: recover(place / "d"),
        lambda: load(place / "settings.yaml"),
        lambda: convert(place / "rec.mcap", out / "converted", keyframes=True),
    )
    out.mkdir()
    whole = 0
    for attempt in attempts:
        with contextlib.suppress(EdgeFirstError):
            attempt()
            whole += 1
    assert not any(path.is_file() and b"secret" in path.read_bytes() for path in out.rglob("*"))
    return whole == len(attempts)


def _process(place: Path, said: dict) -> bool:
    """The command in a process of its own: its exit code must be one of ours."""
    child = os.fork()
    if not child:
        try:
            signal.alarm(LONGEST)
            for stream in said["closed"]:
                os.close(stream)
            if said["memory"]:
                resource.setrlimit(resource.RLIMIT_AS, (said["memory"] << 20,) * 2)
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
            os.execv(sys.executable, [sys.executable, "-m", "edgefirst_ros", "info", os.fspath(place / "rec.mcap")])
        finally:
            os._exit(70)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 1, 2, 3), f"exit code {status}"
    return status == 0
