# SPDX-License-Identifier: Apache-2.0
import threading
import time

import pytest

from edgefirst_ros.pipeline.worker import Stage


class Failure(BaseException):
    pass


def test_items_are_handled_in_order_in_one_other_thread():
    found, threads = [], set()

    def handle(item):
        time.sleep(0.0001 * (item % 3))
        found.append(item)
        threads.add(threading.current_thread().name)

    stage = Stage("worker", handle, 2)
    for item in range(200):
        stage.put(item)
    stage.close()
    assert found == list(range(200))
    assert threads == {"worker"}
    assert "worker" not in [t.name for t in threading.enumerate()]


def test_the_queue_is_bounded():
    gate, handled = threading.Event(), []
    stage = Stage("worker", lambda item: (gate.wait(5), handled.append(item)), 3)
    put = []

    def feed():
        for item in range(10):
            stage.put(item)
            put.append(item)

    feeder = threading.Thread(target=feed)
    feeder.start()
    time.sleep(0.1)
    assert len(put) <= 4  # three wait, one is being handled
    gate.set()
    feeder.join(5)
    stage.close()
    assert handled == list(range(10))


@pytest.mark.parametrize("error", [ValueError("broken"), Failure("broken"), KeyboardInterrupt()])
def test_what_the_handler_raises_crosses_to_the_thread_that_feeds_it(error):
    handled = []

    def handle(item):
        handled.append(item)
        if item == 3:
            raise error

    stage = Stage("worker", handle, 2)

    def feed():
        for item in range(1000):
            stage.put(item)
        stage.close()

    with pytest.raises(type(error)) as caught:
        feed()
    assert caught.value is error
    with pytest.raises(type(error)):
        stage.close()
    stage.stop()
    stage.stop()
    assert handled == [0, 1, 2, 3]
    assert "worker" not in [t.name for t in threading.enumerate()]


def test_a_failure_at_the_last_item_is_raised_by_close():
    stage = Stage("worker", lambda item: 1 // item, 5)
    stage.put(1)
    stage.put(0)
    with pytest.raises(ZeroDivisionError):
        stage.close()
