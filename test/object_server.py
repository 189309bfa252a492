# SPDX-License-Identifier: Apache-2.0
"""An S3 server of a module's own (moto), and a TCP line to it that delays, resets, stalls or refuses."""

import contextlib
import logging
import socket
import struct
import threading
import urllib.request

import pytest

KEY, SECRET = "AKIAEXAMPLEOFTESTS", "a-secret-that-nobody-may-see"


class S3:
    """The server: `objects()` gives what is in the bucket as the official client sees it."""

    def __init__(self, patch):
        self._patch = patch

    def start(self):
        """Begin to serve; gives the port."""
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        return self._server.get_host_and_port()[1]

    def stop(self):
        self._server.stop()

    def __enter__(self):
        self.port = self.start()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        urllib.request.urlopen(f"{self.endpoint}/moto-api/reset", data=b"").close()  # all servers of a process share it
        for name, value in {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }.items():
            self._patch.setenv(name, value)
        import boto3

        self.client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket="drives")
        return self

    def __exit__(self, *_):
        self.stop()

    def keys(self, prefix=""):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="drives", Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def objects(self, prefix=""):
        """Bytes by key."""
        return {key: self.client.get_object(Bucket="drives", Key=key)["Body"].read() for key in self.keys(prefix)}

    def put(self, key, data):
        self.client.put_object(Bucket="drives", Key=key, Body=data)

    def put_file(self, key, path):
        self.client.upload_file(str(path), "drives", key)


class Line:
    """Listens, passes on what comes in either direction, and counts connections and requests.

    `faults` are taken by connections, one each, in order.
    A fault is ("reset", bytes): broken off behind so many bytes of the answer; ("stall", bytes): nothing more comes;
    ("answer", data): this instead of the server's answer. `always` is the fault of those that find none.
    """

    def __init__(self, port):
        self._to = port
        self.faults = []
        self.always = None
        self.connections = self.requests = 0

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = []
        self._over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._listener.close()
        for sock in self._open:
            sock.close()

    def cut(self):
        """Break off what is open, and pass nothing on until `always` is None again."""
        self.always = ("answer", b"")
        for sock in self._open:
            with contextlib.suppress(OSError):  # it is closed
                sock.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            fault = self.faults.pop(0) if self.faults else self.always
            threading.Thread(target=self._serve, args=(near, fault), daemon=True).start()

    def _serve(self, near, fault):
        kind, what = fault or ("", None)
        if kind == "answer":
            near.recv(1 << 16)
            near.sendall(what)
            near.close()
            return
        far = socket.create_connection(("127.0.0.1", self._to))
        self._open += [near, far]
        threading.Thread(target=self._pass, args=(near, far, None, None), daemon=True).start()
        self._pass(far, near, kind, what)

    def _pass(self, source, sink, kind, most):
        passed = 0
        while True:
            try:
                data = source.recv(1 << 16)
                if kind and passed + len(data) > most:
                    sink.sendall(data[: most - passed])
                    if kind == "stall":
                        self._over.wait()
                    sink.shutdown(socket.SHUT_RD)  # else the other thread holds it
                    sink.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sink.close()
                    return
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                self.requests += data.count(b" HTTP/1.1\r\n") if kind is None else 0
                sink.sendall(data)
                passed += len(data)
            except OSError:
                return


@pytest.fixture(scope="module")
def s3():
    """An S3 server with an empty bucket `drives`; the environment leads to it."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("obstore")
    with pytest.MonkeyPatch.context() as patch, S3(patch) as server:
        yield server


@pytest.fixture
def line(s3, monkeypatch):
    """The same server behind a network whose faults are at command."""
    with Line(s3.port) as line:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.port}")
        yield line
