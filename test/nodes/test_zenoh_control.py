# SPDX-License-Identifier: Apache-2.0
"""Commands to a capture by Zenoh: what is answered, by whom, and what is no answer; over real sessions."""

import itertools
import json

import pytest

zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")

from zenoh_network import free_port, open_bus  # noqa: E402

from edgefirst_ros.errors import EdgeFirstError  # noqa: E402
from edgefirst_ros.nodes import service  # noqa: E402
from edgefirst_ros.nodes.zenoh import make_key, open_client  # noqa: E402


@pytest.fixture
def router():
    """A router, and the address at which it is reached."""
    address = f"tcp/127.0.0.1:{free_port()}"
    bus = open_bus("router", listen=address)
    yield bus, address
    bus.close()


def answering(bus, verb, answer, namespace=""):
    """Let somebody answer a command: `answer` is called with each query."""
    key = make_key(namespace, verb)
    return bus.declare_queryable(key, zenoh.handlers.Callback(lambda query: answer(key, query), indirect=False))


def order(verb, address, namespace):
    with open_client(address, namespace) as ask:
        return service.give_order(verb, ask, f"at {address}")


def test_the_answer_of_a_capture_is_returned(router):
    bus, address = router
    told = {"success": True, "message": "recording", "samples": 7}
    held = answering(bus, "status", lambda key, query: query.reply(key, json.dumps(told)))
    assert order("status", address, "") == [told]
    held.undeclare()


def test_an_error_is_an_answer_without_success(router):
    bus, address = router
    held = answering(bus, "start", lambda _, query: query.reply_err(b"no disk"))
    assert order("start", address, "") == [{"success": False, "message": "no disk"}]
    held.undeclare()


@pytest.mark.parametrize("answer", ["{", "[1]", '{"message": "yes"}'])
def test_what_somebody_else_answers_is_said_not_to_be_a_captures(router, answer):
    bus, address = router
    held = answering(bus, "stop", lambda key, query: query.reply(key, answer))
    with pytest.raises(EdgeFirstError, match=rf"{make_key('', 'stop')}: the answer is not that of a capture"):
        order("stop", address, "")
    held.undeclare()


def test_a_capture_that_answers_late_is_asked_again(router, monkeypatch):
    """Discovery takes its time on a busy machine: the first questions find no capture."""
    bus, address = router
    held, told = [], {"success": True, "message": "recording"}

    def late(seconds):
        if not held:
            held.append(answering(bus, "status", lambda key, query: query.reply(key, json.dumps(told))))

    monkeypatch.setattr("edgefirst_ros.nodes.service.time.sleep", late)
    assert order("status", address, "") == [told]
    assert held


def test_where_nobody_answers_namespace_and_address_are_named(router, monkeypatch):
    monkeypatch.setattr(service, "ASKING", 0.0)
    _, address = router
    with pytest.raises(EdgeFirstError, match=rf"no capture answers to split at {address}"):
        order("split", address, "car")


def test_a_capture_that_hangs_is_not_waited_for(router, monkeypatch):
    """Whoever looks after it restarts it; an order may take as long as the completion of a dataset."""
    bus, address = router
    monkeypatch.setattr(service, "ASKING", 0.3)
    asked = []
    held = answering(bus, "status", lambda _, query: asked.append(query))
    with pytest.raises(EdgeFirstError, match=r"no capture answers to status"):
        order("status", address, "")
    assert asked
    asked.clear()
    held.undeclare()
    assert service.answer_time("stop") == 60


def test_watch_tells_the_status_again_and_again_and_when_nobody_answers(router):
    bus, address = router
    samples = itertools.count()

    def tell(key, query):
        query.reply(key, json.dumps({"success": True, "message": "recording", "samples": next(samples)}))

    held = answering(bus, "status", tell)
    with open_client(address, "") as ask:
        seen = service.watch(ask, every=0.0)
        while not (first := next(seen)):  # discovery takes its time
            pass
        second = next(seen)
        held.undeclare()
        while next(seen):
            pass
    assert second[0]["samples"] == first[0]["samples"] + 1
