# SPDX-License-Identifier: Apache-2.0
"""Which keys a transport takes for which topics, sample by sample; `Bus` stands for a session, and loses nothing."""

import struct
from types import SimpleNamespace

import pytest

zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")

from zenoh_network import bridge_token, encoding_of, rmw_key, rmw_token  # noqa: E402

from edgefirst_ros.config import LiveSettings, Settings  # noqa: E402
from edgefirst_ros.sources import zenoh as zenoh_transport  # noqa: E402
from edgefirst_ros.sources.live import TopicState  # noqa: E402
from edgefirst_ros.sources.zenoh import DOUBLES, ZenohTransport  # noqa: E402
from edgefirst_ros.streams import CLOUD, DETECT, FIX, IMU, MODEL, VIDEO  # noqa: E402

CAMERA = "/camera/h264"


class Bus:
    """Hands a sample to every subscription whose key expression meets its key, in this thread."""

    def __init__(self):
        self.subscriptions = []
        self.watching = []

    def declare_subscriber(self, key, callback):
        return self._declare(self.subscriptions, key, callback)

    def liveliness(self):
        return SimpleNamespace(
            declare_subscriber=lambda key, callback, history: self._declare(self.watching, key, callback)
        )

    def _declare(self, where, key, callback):
        one = SimpleNamespace(key=zenoh.KeyExpr(key), callback=callback)
        one.undeclare = lambda: where.remove(one)
        where.append(one)
        return one

    @property
    def keys(self):
        return {str(one.key) for one in self.subscriptions}

    def put(self, key, milliseconds=0, schema=VIDEO, kind=zenoh.SampleKind.PUT):
        data = struct.pack("<4siI", b"\0\1\0\0", milliseconds // 1000, milliseconds % 1000 * 1_000_000)
        sample = SimpleNamespace(
            kind=kind,
            key_expr=zenoh.KeyExpr(key),
            payload=zenoh.ZBytes(data),
            encoding=zenoh.Encoding(encoding_of(schema)),
            attachment=None,
        )
        self._hand_on(self.subscriptions, sample)

    def token(self, key, kind=zenoh.SampleKind.PUT):
        self._hand_on(self.watching, SimpleNamespace(kind=kind, key_expr=zenoh.KeyExpr(key)))

    @staticmethod
    def _hand_on(where, sample):
        for one in [one for one in where if one.key.intersects(sample.key_expr)]:
            one.callback(sample)


class Side:
    """A transport on a bus, with a clock of its own and what it handed on: (key, ms)."""

    def __init__(self, monkeypatch, settings=Settings()):  # noqa: B008  not changed
        self.now, self.heard, self.bus = 1000.0, [], Bus()
        monkeypatch.setattr(zenoh_transport, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.transport = ZenohTransport(self.bus, settings, LiveSettings())
        self.look()

    def look(self, expected=None):
        return self.transport.list_topics(expected or {})

    def listen(self, key, topic=CAMERA, schema=VIDEO):
        def arrive(data, number, passage):
            seconds, nanoseconds = struct.unpack_from("<iI", data, 4)
            self.heard.append((key, 1000 * seconds + nanoseconds // 1_000_000))

        self.state = TopicState(key, topic, schema)
        return self.transport.listen(self.state, arrive, once=False)

    def end(self):
        """All that was handed on until the transport is closed."""
        self.transport.close()
        return self.heard


@pytest.fixture
def side(monkeypatch):
    one = Side(monkeypatch)
    yield one
    one.transport.close()


@pytest.mark.parametrize("given", [None, "/fleet/car/imu"])
def test_a_topic_under_the_namespace_has_the_name_of_the_device_unless_the_settings_have_its_own(given):
    bus = Bus()
    transport = ZenohTransport(bus, Settings(imu_topic=given), LiveSettings(), "fleet/car")
    transport.list_topics({})
    for key in ("imu", "fleet/car/imu"):
        bus.put(key, schema=IMU)
    assert transport.list_topics({}).names == {given or "/imu": ("fleet/car/imu", IMU)}
    transport.close()


def test_a_topic_that_comes_on_two_keys_is_heard_on_one_and_the_other_is_named(side):
    for key in ("rt/camera/h264", "camera/h264"):
        side.bus.put(key)
    offers = side.look()
    assert offers.names == {CAMERA: ("camera/h264", VIDEO)}
    assert offers.mixed == {"rt/camera/h264": f"not used: {CAMERA} is heard as camera/h264"}


def test_the_key_that_is_listened_to_stays_whatever_comes_beside_it(side):
    side.bus.put("rt/camera/h264")
    side.look()
    assert side.listen("rt/camera/h264")
    side.bus.put("camera/h264")
    offers = side.look()
    assert offers.names == {CAMERA: ("rt/camera/h264", VIDEO)}
    assert offers.mixed == {"camera/h264": f"not used: {CAMERA} is heard as rt/camera/h264"}


def test_publishers_are_there_from_their_token_to_its_end(side):
    token = rmw_token("/gps", FIX)
    side.bus.token(token)
    side.bus.token(token)  # a history is told again
    side.bus.token("@ros2_lv/0/a1b2/0/10/MS/%/%/talker/%gps/x/y/z")  # a subscriber
    assert side.look().names == {"/gps": (rmw_key("/gps", FIX), FIX)}
    side.bus.token(token, zenoh.SampleKind.DELETE)
    assert side.look().names == {}


def test_no_more_publishers_are_noted_than_there_is_room_for(side, monkeypatch):
    monkeypatch.setattr(zenoh_transport, "MOST_TOKENS", 2)
    tokens = [bridge_token(f"{name}/gps", FIX, newer=True) for name in ("one", "two", "three")]
    for token in (*tokens[:2], tokens[0]):
        side.bus.token(token)
    assert side.look().mixed == {}
    side.bus.token(tokens[2])
    offers = side.look()
    assert offers.topics.keys() == {"/one/gps", "/two/gps"}
    assert offers.mixed == {"further publishers": "not used: 2 are noted, and more exist"}
    side.bus.token(tokens[0], zenoh.SampleKind.DELETE)
    side.bus.token(tokens[2])
    assert side.look().topics.keys() == {"/three/gps", "/two/gps"}


def test_results_of_either_form_may_come_until_some_are_listened_to(side):
    expected = {"/model/output": (MODEL,)}
    side.look(expected)
    side.bus.put("model/boxes2d", schema=DETECT)
    assert side.look(expected).names == {"/model/boxes2d": ("model/boxes2d", DETECT)}
    side.bus.put("model/output", schema=MODEL)
    found = side.look(expected).names
    assert found["/model/output"] == ("model/output", MODEL)


def test_what_deletes_is_no_message(side):
    side.bus.put("camera/h264", kind=zenoh.SampleKind.DELETE)
    assert side.look().names == {}


def test_a_key_of_which_nobody_told_cannot_be_listened_to(side):
    before = side.bus.keys
    assert not side.listen("camera/h264")
    assert side.bus.keys == before
    side.bus.put("camera/h264")
    assert side.listen("camera/h264")
    assert side.state.publishers == 1


def test_a_message_comes_once_while_two_subscriptions_bring_it_and_whatever_comes_after(side):
    side.bus.put("camera/h264", 0)
    side.look()
    side.listen("camera/h264")
    side.bus.put("camera/h264", 10)  # by two subscriptions
    side.look({"/gps": (FIX,)})
    assert not [key for key in side.bus.keys if key.endswith("/camera/h264")]
    assert {"camera/h264", "gps"} <= side.bus.keys
    side.bus.put("camera/h264", 20)
    (lane,) = side.transport._intake.lanes()
    for later, doubled in ((DOUBLES / 2, True), (DOUBLES, False)):
        side.now = 1000.0 + later
        side.look({"/gps": (FIX,)})
        assert (lane.doubles is not None) == doubled
    side.bus.put("camera/h264", 30)
    assert side.end() == [("camera/h264", at) for at in (0, 10, 20, 30)]


def test_a_message_comes_once_where_the_name_of_one_topic_ends_with_that_of_another(monkeypatch):
    rig = {"camera": "/video", "lidar.points": "/scan", "lidar.points.top": "/top/scan"}
    side = Side(monkeypatch, Settings(rig=rig))
    expected = {"/scan": (CLOUD,), "/top/scan": (CLOUD,)}
    side.bus.put("rt/top/scan", 0, CLOUD)
    assert side.look(expected).topics == {"/top/scan": CLOUD}
    side.listen("rt/top/scan", "/top/scan", CLOUD)
    for later in (1, DOUBLES + 1, DOUBLES + 2):
        side.bus.put("rt/top/scan", 10 * round(later), CLOUD)
        side.now = 1000.0 + later
        side.look(expected)
    assert side.end() == [("rt/top/scan", at) for at in (0, 10, 60, 70)]


def test_a_message_comes_once_while_a_topic_of_its_name_at_another_host_may_still_come(side):
    expected = dict.fromkeys(("/front/camera/h264", "/rear/camera/h264"), (VIDEO,))
    side.bus.put("front/camera/h264", 0)
    side.look(expected)
    side.listen("front/camera/h264", "/front/camera/h264")
    for later in (0, 1, DOUBLES + 1, DOUBLES + 2):
        side.now = 1000.0 + later
        side.look(expected)
        side.bus.put("front/camera/h264", 10 * round(later) + 10)
    assert side.transport._intake.lanes()[0].doubles is not None
    side.bus.put("rear/camera/h264", 5)
    assert side.look(expected).topics.keys() == expected.keys()
    assert [at for _, at in side.end()] == [0, 10, 20, 70, 80]


def test_a_transport_that_is_closed_has_no_subscription_and_can_begin_anew(side):
    side.bus.put("camera/h264", 0)
    side.look()
    side.listen("camera/h264")
    assert side.end() == [("camera/h264", 0)]
    assert side.bus.keys == set()
    assert side.look().names == {}
    side.bus.put("camera/h264", 10)
    assert side.look().names == {CAMERA: ("camera/h264", VIDEO)}
