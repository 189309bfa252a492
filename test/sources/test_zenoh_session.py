# SPDX-License-Identifier: Apache-2.0
"""Sessions that are opened by an address, and what is said where there is no library for them."""

import os
import queue
import sys

import pytest

from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.sources.zenoh_session import PEER, is_endpoint, load_library, open_session


def test_a_missing_library_is_said_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zenoh", None)
    with pytest.raises(
        EdgeFirstError,
        match=r"^--zenoh needs the extra 'zenoh' .*: pip install 'edgefirst-ros\[zenoh\]', or .* '\.\[zenoh\]'$",
    ):
        load_library()
    with pytest.raises(EdgeFirstError, match=r"^--zenoh needs the extra 'zenoh' .*'edgefirst-ros\[zenoh\]', or .*"):
        load_library()
    with pytest.raises(EdgeFirstError, match="pip install"), open_session(PEER):
        pass


@pytest.mark.parametrize(
    ("text", "names"),
    [("peer", True), ("tcp/127.0.0.1:7447", True), ("udp/[::1]:1", True), ("127.0.0.1:7447", False), ("", False)],
)
def test_an_address_has_a_protocol(text, names):
    assert is_endpoint(text) == names


def test_a_peer_needs_nobody_and_is_closed_whatever_happens():
    zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")
    came, key = queue.SimpleQueue(), f"test-{os.getpid()}/gps"  # other tests may be peers, too
    way = open_session(PEER)
    bus = way.__enter__()
    subscriber = bus.declare_subscriber(key, zenoh.handlers.Callback(came.put, indirect=False))
    bus.put(key, b"fix")
    assert came.get(timeout=60).payload.to_bytes() == b"fix"
    subscriber.undeclare()
    assert not bus.is_closed()
    assert not way.__exit__(ValueError, ValueError("planted"), None)  # it is raised again
    assert bus.is_closed()


def test_peers_reach_each_other_and_listen_on_the_loopback_interface_only():
    zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")
    psutil = pytest.importorskip("psutil", reason="no psutil to list sockets")
    from zenoh_network import LONG, until

    came, key = queue.SimpleQueue(), f"test-{os.getpid()}/fix"

    def listening():
        sockets = psutil.Process().net_connections()
        return {tuple(one.laddr) for one in sockets if one.status == psutil.CONN_LISTEN}

    before = listening()
    with open_session(PEER) as one, open_session(PEER) as other:
        assert {address for address, _ in listening() - before} == {"127.0.0.1"}
        one.declare_subscriber(key, zenoh.handlers.Callback(came.put, indirect=False))
        publisher = other.declare_publisher(key)
        until(lambda: publisher.matching_status.matching)
        publisher.put(b"fix")
        assert came.get(timeout=LONG).payload.to_bytes() == b"fix"
