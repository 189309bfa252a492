# SPDX-License-Identifier: Apache-2.0
"""A running system in place of a bus: topics are offered and messages sent as a test says."""

from edgefirst_ros.sources.live import LiveSource, Offers, expect_topics
from edgefirst_ros.sources.topics import choose_topics


class System:
    """A transport, and a log; what is delivered to the capture is in `came`."""

    def __init__(self, offers=None, names=None):
        """`offers`: {topic: type}; `names`: {topic: its name in the system} where these differ."""
        self.offers = dict(offers or {})
        self.names = names or {}
        self.arrive = {}
        self.came = []
        self.log = []
        self.closed = 0
        self.publishers = 1

    # ---- a transport -----------------------------------------------------------------------
    def list_topics(self, expected):
        return Offers({topic: (self.names.get(topic, topic), schema) for topic, schema in self.offers.items()})

    def listen(self, state, arrive, *, once):
        self.arrive[state.name] = arrive
        state.set_publishers(self.publishers)
        return True

    def close(self):
        self.closed += 1
        self.arrive = {}

    # ---- a log -----------------------------------------------------------------------------
    def info(self, text):
        self.log.append(("info", text))

    def warning(self, text):
        self.log.append(("warning", text))

    def error(self, text):
        self.log.append(("error", text))

    # ---- for tests -------------------------------------------------------------------------
    def source(self, settings):
        """The source of a capture that begins with what is offered now."""
        roles = expect_topics(choose_topics(self.offers, settings, live=True), settings)
        return LiveSource(self, settings, roles, lambda *message: self.came.append(message), self)

    def send(self, name, data, number=None):
        """Let a message come on a topic of the system."""
        self.arrive[name](data, number)
