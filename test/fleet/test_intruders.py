# SPDX-License-Identifier: Apache-2.0
"""Another user of the machine at the door of the fleet's own cluster: every port of it refuses."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import fleet_tasks
import pytest
from late import late

from edgefirst_ros.fleet.dask_engine import open_dask
from edgefirst_ros.fleet.engine import Driver, Task

distributed = late("distributed", reason="dask is not installed")
pytest.importorskip("cryptography", reason="cryptography is not installed")

NOBODY = 65534
PAGES = ("/", "/status", "/info/main/workers.html", "/info/logs.html", "/json/counts.json", "/metrics", "/health")
ALERT = b"\x15\x03"
"""How a record of TLS begins that refuses."""
KNOCK = r"""
import json, os, socket, ssl, sys
from distributed import Client, Security

def plain(port, page):
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
        return answer(sock)

def answer(sock):
    got = b""
    try:
        while block := sock.recv(1 << 16):
            got += block
    except (ConnectionError, ssl.SSLError):
        pass
    return got.decode("latin-1")

def encrypted(port, context):
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        try:
            with context.wrap_socket(sock) as wrapped:
                wrapped.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return answer(wrapped)
        except (ConnectionError, ssl.SSLError):
            return ""

def run(address, security, timeout=3):
    try:
        with Client(address, security=security, timeout=timeout, set_as_default=False) as client:
            return client.run_on_scheduler(os.getuid)
    except OSError as error:
        return type(error).__name__

if __name__ == "__main__":
    scheduler, ports, pages, user = json.loads(sys.argv[1])
    foreign = Security.temporary()
    strange = foreign.get_connection_args("client")["ssl_context"]
    run("tls://127.0.0.1:9", foreign, 0.1)  # loads what another user may have no right to load
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    told = {port: {page: plain(port, page) for page in pages} for port in ports}
    doors = [port for port in ports if not told[port]["/"].startswith("HTTP")]
    print(json.dumps({
        "uid": os.getuid(),
        "plain": [said for pages in told.values() for said in pages.values()],
        "without": {port: encrypted(port, ssl.create_default_context()) for port in doors},
        "foreign": {port: encrypted(port, strange) for port in doors},
        "code": [run(f"tcp://127.0.0.1:{scheduler}", None), run(f"tls://127.0.0.1:{scheduler}", foreign)],
    }))
"""


@pytest.fixture
def engine():
    with open_dask(None, 1) as engine:
        yield engine


def listeners():
    """(address, port) of all sockets on which this process and those below it listen."""
    import psutil

    me = psutil.Process()
    found = [one for process in (me, *me.children(recursive=True)) for one in process.net_connections()]
    return {tuple(one.laddr) for one in found if one.status == psutil.CONN_LISTEN}


def knock(scheduler, ports):
    """What another user finds; the same user where there is no right to be another."""
    given = json.dumps([scheduler, ports, PAGES, NOBODY if os.geteuid() == 0 else None])
    command = [sys.executable, "-c", KNOCK, given]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def test_other_users_reach_neither_scheduler_nor_nannies_nor_workers():
    before = listeners()
    with open_dask(None, 1) as engine:
        doors = listeners() - before
        assert {address for address, _ in doors} == {"127.0.0.1"}
        ports = sorted(port for _, port in doors)
        assert len(ports) == 5, "scheduler, nanny, worker, and two servers of pages"
        scheduler = int(engine._client.scheduler.address.rpartition(":")[2])
        assert scheduler in ports
        found = knock(scheduler, ports)
        (mine,) = Driver(engine).run([Task(fleet_tasks.say, {"text": "one"})])
    assert found["uid"] == (NOBODY if os.geteuid() == 0 else os.geteuid())
    answers = [said.encode("latin-1") for said in found["plain"]]
    assert [one for one in answers if one and not one.startswith((ALERT, b"HTTP/1.1 404"))] == []
    assert [*found["without"].values()] == [*found["foreign"].values()] == [""] * 3
    assert {type(one) for one in found["code"]} == {str}, "the name of an error: nothing was run"
    assert mine[1] == {"verdict": "ok", "error": "one"}


def test_files_of_workers_are_in_a_folder_that_only_the_owner_enters(engine):
    """Dask puts the folder of a worker on the path of its imports."""
    ((folder, path),) = engine._client.run(
        lambda dask_worker: (dask_worker.local_directory, sys.path), workers=None
    ).values()
    assert folder in path
    own = [parent for parent in Path(folder).parents if parent.name.startswith("edgefirst-ros-fleet-")]
    status = own[0].stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), 0o700)
    assert engine.dashboard == ""
