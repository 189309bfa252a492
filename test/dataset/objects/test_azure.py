# SPDX-License-Identifier: Apache-2.0
"""Azure Blob Storage as Azurite answers for it (`npm install azurite`), and what the three say without credentials."""

import base64
import datetime
import hashlib
import hmac
import http.client
import shutil
import socket
import subprocess
import time

import pytest

import edgefirst_ros
from edgefirst_ros.dataset.objects.bucket import describe
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import open_store, upload_dataset
from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.synthetic import Recipe, write_recording

pytest.importorskip("obstore")
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of the emulator, the same everywhere."""


@pytest.fixture
def azure(tmp_path, monkeypatch):
    """A server with an empty container `drives`; the environment leads to it."""
    if (program := shutil.which("azurite-blob")) is None:
        pytest.skip("azurite is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, "--silent", "--skipApiVersionCheck", "--location", tmp_path / "azurite"]
    server = subprocess.Popen([*command, "--blobHost", "127.0.0.1", "--blobPort", str(port)], stdout=subprocess.DEVNULL)
    try:
        while not answers(port):
            assert server.poll() is None
            time.sleep(0.05)
        make_container(port)
        monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{port}")
        yield
    finally:
        server.kill()
        server.wait()


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def make_container(port):
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    signed = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    text = "PUT" + 12 * "\n" + f"{signed}/{ACCOUNT}/{ACCOUNT}/drives\nrestype:container"
    proof = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{proof}", "Content-Length": "0"}
    connection.request("PUT", f"/{ACCOUNT}/drives?restype=container", headers=headers)
    assert connection.getresponse().status == 201


def test_objects_are_put_listed_read_and_datasets_opened_in_place(azure, tmp_path):
    write_recording(tmp_path / "day1.mcap", Recipe(seconds=1, size=(160, 96), cube_shape=(1, 8, 2, 16), lidar_points=9))
    made = edgefirst_ros.convert(tmp_path / "day1.mcap", tmp_path / "out", rate=5).paths
    stored = upload_dataset(made, "az://drives/sets")
    store = open_store(Location.of("az://drives/sets"))
    assert list(store.objects("sets")) == sorted(stored, key=lambda one: one.key)
    assert [store.stat(one.key) for one in stored] == stored
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert {one.key.rpartition("/")[2]: b"".join(store.stream(one)) for one in stored} == files
    container = files["day1.zip"]
    assert store.tail("sets/day1.zip", 50) == (stored[-1], container[-50:])
    assert store.read("sets/day1.zip", 5, 9, etag=stored[-1].etag) == container[5:9]
    assert (store.stat("sets/none"), store.tail("sets/none", 5)) == (None, None)
    remote = [sample.read("camera") for sample in edgefirst_ros.Dataset("az://drives/sets/day1.zip").samples()]
    assert remote == [sample.read("camera") for sample in edgefirst_ros.Dataset(made.container).samples()]
    (large := tmp_path / "large").write_bytes(bytes(range(256)) * (48 << 10))
    assert store.holds(store.put("large", large), large)
    store.delete("large")
    assert store.stat("large") is None


def test_missing_credentials_are_said_by_the_names_of_the_provider(monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(EdgeFirstError, match="no credentials: set AZURE_STORAGE_ACCOUNT_NAME"):
        open_store(Location.of("az://drives"), patience=1.0).stat("x")
    asked = OSError("error sending request for url (http://metadata.google.internal/computeMetadata/v1/token)")
    assert describe(asked, "gs://drives/x").startswith("no credentials: set GOOGLE_APPLICATION_CREDENTIALS")
