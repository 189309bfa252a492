# SPDX-License-Identifier: Apache-2.0
import threading
import time

import pytest

from edgefirst_ros.pipeline.samples import Worker


class Failure(BaseException):
    pass


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
