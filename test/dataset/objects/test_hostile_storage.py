# SPDX-License-Identifier: Apache-2.0
"""A server of S3 that misbehaves: each request ends with an error by name, in time, and within its memory."""

import http.server
import itertools
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from email.utils import formatdate

import pytest

from edgefirst_ros.dataset.objects.location import Location, ReplacedError, StoredObject
from edgefirst_ros.dataset.objects.store import download, open_store
from edgefirst_ros.errors import ObjectStoreError

pytest.importorskip("obstore")
SECONDS = 2.0
"""Patience of these tests; that of users is 60."""
POLL = 0.02
"""Time after which a server sees that it is to end, s; half a second otherwise, for each test."""
SIZE = 100
LISTING = """<?xml version="1.0"?><ListBucketResult><Name>b</Name>{keys}{more}</ListBucketResult>"""
MORE = "<IsTruncated>true</IsTruncated><NextContinuationToken>next</NextContinuationToken>"
CONTENT = "<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>&quot;e&quot;</ETag>\
<Size>1</Size></Contents>"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the function `behave` of its server does."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.behave()

    def do_GET(self):
        self.behave()

    def behave(self):
        try:
            self.server.behave(self)
        except OSError:  # who asked is gone
            self.close_connection = True

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        given = {"Content-Length": len(body), "ETag": '"e"', "Last-Modified": formatdate(0, usegmt=True)}
        for name, value in (given | {k.replace("_", "-"): v for k, v in headers.items()}).items():
            if value is not None:
                self.send_header(name, str(value))
        self.end_headers()
        self.close_connection = int(headers.get("Content_Length") or 0) > len(body)
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def server(monkeypatch):
    """Function that begins a server whose answers are those of a function; the environment leads to it."""
    with contextmanager(serving)(monkeypatch) as begin:
        yield begin


def serving(patch):
    begun = []

    def begin(behave, patience=SECONDS):
        one = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        one.behave, one.daemon_threads, one.block_on_close = behave, True, False
        threading.Thread(target=one.serve_forever, args=(POLL,), daemon=True).start()
        begun.append(one)
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{one.server_port}")
        return open_store(Location.of("s3://b"), patience=patience)

    for name, value in {"ALLOW_HTTP": "true", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "REGION": "eu"}.items():
        patch.setenv(f"AWS_{name}", value)
    yield begin
    for one in begun:
        one.shutdown()
        one.server_close()


def listing(*keys, more=MORE):
    return LISTING.format(more=more, keys="".join(CONTENT.format(key=key) for key in keys)).encode()


def body(handler, data, size=SIZE, **headers):
    """Part of the bytes of an object of 100 bytes."""
    handler.answer(206, data, Content_Range=f"bytes 0-{size - 1}/{size}", **headers)


def endless(handler):
    """A body that is said to be large and never ends, some bytes at a time."""
    handler.answer(206, b"", Content_Range=f"bytes 0-{SIZE - 1}/{SIZE}", Content_Length=SIZE)
    while True:
        handler.wfile.write(b"x")
        threading.Event().wait(SECONDS / 10)


LISTINGS = {
    "the same page again": (lambda h: h.answer(200, listing("a", "b", "c")), "the listing repeats itself at "),
    "one key a page, the same token": (
        lambda h: h.answer(200, listing("a")),
        "the listing repeats itself at a|no answer in time",
    ),
    "pages without keys": (lambda h: h.answer(200, listing()), "given up after . s: no answer in time"),
    "a redirect to itself (301)": (lambda h: h.answer(301, Location=h.path), "it redirects to another address"),
    "a redirect to itself (307)": (lambda h: h.answer(307, Location=h.path), "it redirects to another address"),
    "200 without a body": (lambda h: h.answer(200), "the answer is not a listing"),
    "cut": (lambda h: h.answer(200, listing("a")[:50], Content_Length=900), "connection closed"),
    "a page to sign in": (lambda h: h.answer(200, b"<html><p>hi</p></html>"), "the answer is not a listing"),
    "a page without a date": (
        lambda h: h.answer(200, b"<html><p>hi</p></html>", Last_Modified=None, ETag=None),
        "the answer is not a listing|the answer .*|Header missing|[Mm]issing",
    ),
}
BODIES = {
    "short": (lambda h: body(h, b"x" * 10, Content_Length=SIZE), "connection closed|no answer in time"),
    "longer than was asked for": (lambda h: body(h, b"x" * 10**7), "the answer is longer than the requested range"),
    "endless": (endless, "given up after . s: no answer in time|connection closed"),
    "redirect (301)": (lambda h: h.answer(301, Location=h.path), "it redirects to another address"),
    "redirect (307)": (lambda h: h.answer(307, Location=h.path), "it redirects to another address"),
    "200 with all": (lambda h: h.answer(200, b"x" * SIZE), "the answer is not the requested range"),
    "200 without a body": (lambda h: h.answer(200), "the answer is not the requested range"),
    "no length": (lambda h: h.answer(200, Content_Length=None, Connection="close"), "does not say how long it is"),
    "another object": (lambda h: body(h, b"x" * SIZE, ETag='"f"'), "was replaced during the work"),
    "without an ETag": (lambda h: body(h, b"x" * SIZE, ETag=None), "has no ETag"),
}


@pytest.mark.parametrize("kind", LISTINGS)
def test_a_listing_that_is_none_is_an_error_by_name(server, kind):
    behave, says = LISTINGS[kind]
    patience = 30 * SECONDS if kind == "the same page again" else SECONDS  # it is seen at once, but on a busy machine
    with pytest.raises(ObjectStoreError, match=f"^s3://b/drives: .*({says})"):
        list(server(behave, patience).objects("drives"))


@pytest.mark.parametrize("status", [400, 403, 422, 499])
def test_an_answer_that_will_not_change_is_not_waited_for(server, status):
    asked = []
    store = server(lambda h: (asked.append(h.path), h.answer(status)))
    with pytest.raises(ObjectStoreError) as refused:
        store.read("a")
    assert "given up after" not in str(refused.value)
    assert len(asked) == 1


def test_a_listing_whose_keys_come_once_is_whole_whatever_its_order(server):
    pages = iter([["b", "a"], [], ["d"], [], ["c", "e"]])

    def behave(handler):
        page = next(pages)
        handler.answer(200, listing(*page, more="" if page[-1:] == ["e"] else MORE))

    assert [found.key for found in server(behave).objects("")] == ["b", "a", "d", "c", "e"]


def test_a_listing_without_end_has_a_limit(server, monkeypatch):
    monkeypatch.setattr("edgefirst_ros.dataset.objects.bucket.MOST_LISTED", 500)
    numbers = itertools.count()
    store = server(lambda handler: handler.answer(200, listing(*(f"{next(numbers):09}" for _ in range(50)))))
    with pytest.raises(ObjectStoreError, match=r"^s3://b/drives: lists over 500 objects; name a longer prefix$"):
        list(store.objects("drives"))
    assert next(numbers) < 1000


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("way", ["read", "stream", "download"])
def test_a_body_that_is_none_is_an_error_by_name(server, tmp_path, kind, way):
    behave, says = BODIES[kind]
    store, found = server(behave), StoredObject("k", SIZE, "e")
    ask = {
        "read": lambda: store.read("k", 0, SIZE, etag="e"),
        "stream": lambda: list(store.stream(found)),
        "download": lambda: download(store, found, tmp_path / "copy"),
    }
    with pytest.raises(ObjectStoreError, match=says):
        ask[way]()


@pytest.mark.parametrize("kind", ["redirect (301)", "redirect (307)", "no length", "without an ETag"])
@pytest.mark.parametrize("way", ["stat", "tail"])
def test_facts_of_an_object_that_are_none_are_an_error_by_name(server, kind, way):
    behave, says = BODIES[kind]
    store = server(behave)
    with pytest.raises(ObjectStoreError, match=says):
        store.stat("k") if way == "stat" else store.tail("k", SIZE)


def test_a_large_object_is_not_read_whole(server):
    store = server(lambda handler: handler.answer(200, Content_Length=1 << 50))
    with pytest.raises(ObjectStoreError, match=r"^s3://b/k: has 1125899906842624 bytes, expected at most 268435456$"):
        store.read("k")


class Changing:
    """An object that is replaced so many times: after each request for its bytes."""

    def __init__(self, times):
        self.version, self.times = 0, times

    def __call__(self, handler):
        tag = f'"{self.version}"'
        if handler.command == "HEAD":
            handler.answer(200, b"x" * SIZE, ETag=tag)
        elif handler.headers.get("If-Match") != tag:
            handler.answer(412)
        else:
            body(handler, str(self.version).encode() * SIZE, ETag=tag)
            self.version += self.version < self.times


def test_an_object_replaced_while_it_is_fetched_is_fetched_again_once(server, tmp_path):
    store = server(Changing(1))
    found, _ = download(store, store.stat("k"), tmp_path / "copy", again=True)
    assert (found.etag, (tmp_path / "copy").read_bytes()) == ("1", b"1" * SIZE)


def test_an_object_that_is_replaced_again_is_an_error(server, tmp_path):
    for again, number in ((True, 2), (False, 1)):
        store = server(Changing(number))
        with pytest.raises(ReplacedError, match="was replaced"):
            download(store, store.stat("k"), tmp_path / f"copy{number}", again=again)


SCRIPT = """
import signal, sys
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import open_store
signal.signal(signal.SIGTERM, signal.default_int_handler)
store = open_store(Location.of("s3://b"))
print("asks", flush=True)
try:
    list(store.objects("drives")) if sys.argv[1] == "listing" else store.read("k", 0, 100)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("what", ["listing", "body"])
def test_a_signal_ends_the_wait(server, what):
    came = threading.Event()

    def behave(handler):
        came.set()
        handler.answer(200, listing()) if what == "listing" else endless(handler)

    server(behave)
    asking = subprocess.Popen([sys.executable, "-c", SCRIPT, what], stdout=subprocess.PIPE, env=os.environ)
    assert came.wait(60)
    asking.send_signal(signal.SIGTERM)
    said, _ = asking.communicate(timeout=30)
    assert said.split() == [b"asks", b"interrupted"]
