# SPDX-License-Identifier: Apache-2.0
import threading
import time

import pytest

from edgefirst_ros.pipeline.samples import Worker


class Failure(BaseException):
    pass


def test_items_are_handled_in_order_in_one_other_thread():
    found, threads = [], set()

    def handle(item):
        time.sleep(0.0001 * (item % 3))
        found.append(item)
        threads.add(threading.current_thread().name)

    worker = Worker("worker", handle, 2)
    for item in range(200):
        worker.put(item)
    worker.close()
    assert found == list(range(200))
    assert threads == {"worker"}
    assert "worker" not in [t.name for t in threading.enumerate()]


def test_the_queue_is_bounded():
    gate, handled = threading.Event(), []
    worker = Worker("worker", lambda item: (gate.wait(5), handled.append(item)), 3)
    put = []

    def feed():
        for item in range(10):
            worker.put(item)
            put.append(item)

    feeder = threading.Thread(target=feed)
    feeder.start()
    time.sleep(0.1)
    assert len(put) <= 4  # three wait, one is being handled
    gate.set()
    feeder.join(5)
    worker.close()
    assert handled == list(range(10))


@pytest.mark.parametrize("error", [ValueError("broken"), Failure("broken"), KeyboardInterrupt()])
def test_what_the_handler_raises_crosses_to_the_thread_that_feeds_it(error):
    handled = []

    def handle(item):
        handled.append(item)
        if item == 3:
            raise error

    worker = Worker("worker", handle, 2)

    def feed():
        for item in range(1000):
            worker.put(item)
        worker.close()

    with pytest.raises(type(error)) as caught:
        feed()
    assert caught.value is error
    with pytest.raises(type(error)):
        worker.close()
    worker.stop()
    worker.stop()
    assert handled == [0, 1, 2, 3]
    assert "worker" not in [t.name for t in threading.enumerate()]


def test_a_failure_at_the_last_item_is_raised_by_close():
    worker = Worker("worker", lambda item: 1 // item, 5)
    worker.put(1)
    worker.put(0)
    with pytest.raises(ZeroDivisionError):
        worker.close()
