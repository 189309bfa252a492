# SPDX-License-Identifier: Apache-2.0
"""Orders to a capture on the bus, in this process: how each is answered, and what the log of a capture looks like."""

import contextlib
import importlib.util
import json
import queue
import threading
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace

import pytest

zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")

from zenoh_network import LONG, open_bus  # noqa: E402

from edgefirst_ros.config import LiveSettings, Settings  # noqa: E402
from edgefirst_ros.errors import EdgeFirstError, UsageError  # noqa: E402
from edgefirst_ros.nodes.zenoh import Orders, capture, make_key  # noqa: E402


class Answering:
    """A service whose answers are set by the test."""

    def __init__(self):
        self.answer = Future()

    def order(self, verb):
        return self.answer


class Asked:
    """A session of Zenoh on which somebody asks, and orders that are carried out one by one."""

    def __init__(self, namespace=""):
        self.namespace, self.inbox, self.service = namespace, queue.SimpleQueue(), Answering()
        self.bus = open_bus("peer")
        self.orders = Orders(self.bus, namespace, self.inbox)
        self.replies = queue.SimpleQueue()

    def ask(self, verb):
        key = make_key(self.namespace, verb)
        done = lambda reply: self.replies.put(json.loads(reply.ok.payload.to_bytes()))  # noqa: E731
        self.bus.get(key, zenoh.handlers.Callback(done, indirect=False), timeout=LONG)
        return self.inbox.get(timeout=LONG)

    def carry_out(self, verb, query):
        self.service.order(verb).add_done_callback(partial(self.orders.reply, verb, query))

    def told(self):
        return self.replies.get(timeout=LONG)


@pytest.fixture
def asked():
    made = []

    def make(**given):
        made.append(Asked(**given))
        return made[-1]

    yield make
    for one in made:
        one.bus.close()


@pytest.mark.parametrize("namespace", ["", "car/7"])
@pytest.mark.parametrize("verb", ["start", "stop", "split", "pause"])
def test_an_order_is_answered_once_it_is_carried_out(asked, verb, namespace):
    one = asked(namespace=namespace)
    got, query = one.ask(verb)
    assert got == verb
    one.carry_out(got, query)
    assert one.replies.empty()
    one.service.answer.set_result({"success": True, "message": "done"})
    assert one.told() == {"success": True, "message": "done"}


@pytest.mark.parametrize(
    ("wild", "obeyed"),
    [
        ("**", ["status"]),
        ("car/7/capture/*", ["status"]),
        ("*/7/capture/stop", []),
        ("**/st$*", ["status"]),
        ("car/7/capture/s$*t", []),
        ("car/7/capture/stop", ["stop"]),
        ("car/7/capture/stop?now=1", ["stop"]),
    ],
)
def test_a_wildcard_query_reads_the_status_and_orders_nothing(asked, wild, obeyed):
    one = asked(namespace="car/7")
    one.service.answer.set_result({"success": True, "message": "done"})
    ended, verbs = threading.Event(), []
    one.bus.get(wild, zenoh.handlers.Callback(lambda _: None, ended.set, indirect=False), timeout=LONG)
    while not ended.is_set() or not one.inbox.empty():
        with contextlib.suppress(queue.Empty):
            verb, query = one.inbox.get(timeout=0.01)
            verbs.append(verb)
            one.carry_out(verb, query)
            del query
    assert verbs == obeyed


def test_a_fault_of_the_program_is_no_answer(asked, caplog):
    """It is a line in the log with where it came from, of who waits for the future."""
    one = asked()
    one.carry_out(*one.ask("start"))
    one.service.answer.set_exception(KeyError("planted"))
    assert [record.exc_info[0] for record in caplog.records] == [KeyError]
    assert one.replies.empty()


def test_who_asked_and_is_gone_gets_no_answer_and_the_next_one_does(asked):
    one = asked()
    lost = []

    def reply(*_, **__):
        lost.append(1)
        raise zenoh.ZError("Session closed")

    one.service.answer.set_result({"success": True, "message": "recording"})
    one.carry_out("status", SimpleNamespace(reply=reply))
    one.carry_out(*one.ask("status"))
    assert (lost, one.told()["success"]) == ([1], True)


def test_a_capture_that_could_not_make_its_pages_does_not_begin(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "plotly" else found(name))
    with pytest.raises(EdgeFirstError, match=r"plotly is not installed.*pip install 'edgefirst-ros\[report\]'"):
        capture("tcp/127.0.0.1:9", Settings(), LiveSettings(report=True), "")
    with pytest.raises(UsageError, match="--namespace: expected names"):
        capture("tcp/127.0.0.1:9", Settings(), LiveSettings(report=True), "a b")
