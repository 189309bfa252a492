# SPDX-License-Identifier: Apache-2.0
"""Topics and messages over real Zenoh sessions on the loopback interface."""

import struct
import threading
import time
from collections import Counter

import pytest

zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")

from live_system import System  # noqa: E402
from zenoh_network import (  # noqa: E402
    ATTACHMENTS,
    LONG,
    bridge_token,
    encoding_of,
    free_port,
    open_bus,
    rmw_key,
    rmw_token,
    until,
)

from edgefirst_ros.config import LiveSettings, Settings  # noqa: E402
from edgefirst_ros.errors import EdgeFirstError, UsageError  # noqa: E402
from edgefirst_ros.sources.live import (  # noqa: E402
    JoiningTransport,
    LiveSource,
    expect_topics,
)
from edgefirst_ros.sources.topics import choose_topics  # noqa: E402
from edgefirst_ros.sources.zenoh import ZenohTransport  # noqa: E402
from edgefirst_ros.sources.zenoh_session import open_session  # noqa: E402
from edgefirst_ros.streams import CLOUD, COMPRESSED_IMAGE, CUBE, FIX, IMU, TILED, TILES, TRANSFORM, VIDEO  # noqa: E402

GID = bytes(range(16))


def stamped(milliseconds, size=0):
    """A message with a header of that time."""
    return struct.pack("<4siI", b"\0\1\0\0", milliseconds // 1000, milliseconds % 1000 * 1_000_000) + bytes(size)


def stamp_of(data):
    seconds, nanoseconds = struct.unpack_from("<iI", data, 4)
    return seconds * 1000 + nanoseconds // 1_000_000


class Car:
    """The other side: publishers that somebody may hear."""

    def __init__(self, bus):
        self.bus = bus
        self.publishers = {}
        self.tokens = []

    def has(self, key, schema=None, token=None):
        """Let there be a publisher, which tells its type by its encoding or by a token."""
        encoding = encoding_of(schema) if token is None and schema else None
        block = zenoh.CongestionControl.BLOCK  # what is lost here is lost on purpose
        self.publishers[key] = self.bus.declare_publisher(key, encoding=encoding, congestion_control=block)
        if token is not None:
            self.tokens.append(self.bus.liveliness().declare_token(token))
        return self.publishers[key]

    def is_heard(self, key):
        return self.publishers[key].matching_status.matching

    def is_heard_on(self, key, schema=None, token=None):
        """Let there be a publisher, and wait until somebody hears it."""
        self.has(key, schema, token)
        until(lambda: self.is_heard(key))

    def send(self, key, *milliseconds, size=0):
        for at in milliseconds:
            self.publishers[key].put(stamped(at, size))


class Ear(System):
    """Our side: a transport and, once there is a camera, a source."""

    def __init__(self, bus, settings=None, namespace="", **live):
        super().__init__()
        self.settings = settings or Settings()
        self.transport = ZenohTransport(bus, self.settings, LiveSettings(**live), namespace)
        self.live = None
        self.transport.list_topics({})

    def offered(self, *topics):
        """Wait until these topics are offered."""
        until(lambda: {*topics} <= self.transport.list_topics({}).topics.keys())

    def listen(self, deliver=None):
        roles = expect_topics(
            choose_topics(self.transport.list_topics({}).topics, self.settings, live=True), self.settings
        )
        deliver = deliver or (lambda *message: self.came.append(message))
        self.live = LiveSource(self.transport, self.settings, roles, deliver, self)
        self.look()

    def look(self, times=1):
        for _ in range(times):
            self.live.refresh(time.monotonic())

    def stamps(self, topic):
        """Stamps of the messages that came on a topic, ms."""
        return [stamp_of(m.data) for m, *_ in list(self.came) if m.topic == topic]

    def has(self, topic, stamps):
        """Wait until exactly these came; topics come and go meanwhile."""
        until(lambda: self.look() or len(self.stamps(topic)) >= len(stamps))
        assert self.stamps(topic) == list(stamps)

    def lost(self):
        """{topic: (known, guessed)} of what is missing."""
        known, guessed = Counter(), Counter()
        for message, _, lost, guess in list(self.came):
            known[message.topic] += lost
            guessed[message.topic] += guess
        return {topic: (known[topic], guessed[topic]) for topic in known}


@pytest.fixture
def car():
    port = f"tcp/127.0.0.1:{free_port()}"
    bus = open_bus("peer", listen=port)
    made = Car(bus)
    made.endpoint = port
    yield made
    bus.close()


@pytest.fixture
def ear(car):
    """Function that gives our side, connected to the car."""
    opened = []

    def make(**options):
        way = open_session(car.endpoint)
        one = Ear(way.__enter__(), **options)
        opened.append((way, one))
        return one

    yield make
    for way, one in opened:
        one.transport.close()
        way.__exit__(None, None, None)


# ---- the device's services ---------------------------------------------------------------------
@pytest.mark.parametrize("prefix", ["", "rt/", "maivin-7/", "maivin-7/rt/"])
def test_what_came_before_the_parts_are_given_comes_first_and_once(car, ear, prefix):
    one = ear()
    keys = {f"{prefix}camera/h264": VIDEO, f"{prefix}radar/targets": CLOUD}
    for key, schema in keys.items():
        car.is_heard_on(key, schema)
    for at in range(0, 1000, 50):
        for key in keys:
            car.send(key, at)
    host = "/maivin-7" if "maivin" in prefix else ""
    topics = [f"{host}/camera/h264", f"{host}/radar/targets"]
    one.offered(*topics)
    one.listen()
    for at in range(1000, 2000, 50):  # while the subscription of the key takes the place of the others
        for key in keys:
            car.send(key, at)
        one.look()
    for topic in topics:
        one.has(topic, range(0, 2000, 50))
    order = [stamp_of(m.data) for m, *_ in one.came]
    assert order == sorted(order), "not in the order in which they came"
    assert one.lost() == dict.fromkeys(topics, (0, 0))


def test_only_chosen_keys_stay_subscribed(car, ear):
    one = ear()
    for key in ("rt/camera/h265", "other/rt/camera/h264"):
        car.has(key, VIDEO)
    for key in ("rt/radar/clusters", "rt/lidar/clusters"):
        car.has(key, CLOUD)
    car.is_heard_on("rt/camera/h264", VIDEO)
    car.is_heard_on("rt/radar/cube", CUBE)
    car.send("rt/radar/cube", 0)
    car.send("rt/camera/h264", 0)
    one.offered("/camera/h264", "/radar/cube")
    assert not car.is_heard("rt/radar/clusters")
    one.listen()
    one.look(3)
    until(lambda: not car.is_heard("rt/camera/h265") and not car.is_heard("other/rt/camera/h264"))
    heard = {key for key in car.publishers if car.is_heard(key)}
    assert heard == {"rt/camera/h264", "rt/radar/cube"}


@pytest.mark.parametrize("other", ["camera/jpeg", "rear/camera/h264/tl", "rear/rt/camera/h265"])
def test_a_camera_that_announces_nothing_is_named_where_another_one_is_asked_for(car, ear, other):
    """Its messages are not kept; once the camera is there it is not subscribed any more, but still known."""
    one = ear(settings=Settings(reference_topic="/front/camera/h264"))
    named = f"/{other.replace('rt/', '')}"
    car.is_heard_on(other, COMPRESSED_IMAGE if "jpeg" in other else VIDEO)
    car.send(other, 0, 10, size=1000)
    one.offered(named)
    with pytest.raises(UsageError, match=f"/front/camera/h264' is not published; there are .*{named}"):
        choose_topics(one.transport.list_topics({}).topics, one.settings, live=True)
    car.is_heard_on("front/camera/h264", VIDEO)
    car.send("front/camera/h264", 0)
    one.offered("/front/camera/h264")
    one.listen()
    one.has("/front/camera/h264", [0])
    until(lambda: one.look() or not car.is_heard(other))
    assert named in one.transport.list_topics({"/front/camera/h264": (VIDEO,)}).topics
    assert {m.topic for m, *_ in one.came} == {"/front/camera/h264"}


def test_topics_that_come_late_are_recorded_from_their_first_message_on(car, ear):
    one = ear()
    car.is_heard_on("rt/camera/h264", VIDEO)
    car.send("rt/camera/h264", 0)
    one.offered("/camera/h264")
    one.listen()
    one.look(3)
    car.is_heard_on("rt/imu", IMU)
    car.send("rt/imu", 10, 20, 30)
    one.has("/imu", [10, 20, 30])


@pytest.mark.parametrize("prefix", ["", "rt/", "maivin-7/rt/"])
def test_four_tiles_are_one_topic(car, ear, prefix):
    one = ear()
    within, one.transport = one.transport, JoiningTransport(one.transport)
    keys = [f"{prefix}camera/h264/{tile}" for tile in TILES]
    for key in keys:
        car.is_heard_on(key, VIDEO)
    topic = f"{'/maivin-7' if 'maivin' in prefix else ''}/camera/h264/tl"
    for at in range(0, 500, 50):
        for key in keys:
            car.send(key, at)
    one.offered(topic)
    assert one.transport.list_topics({}).topics == {topic: TILED}
    until(lambda: {lane.key for lane in within._intake.lanes()} == {*keys})
    one.listen()
    for at in range(500, 1000, 50):
        for key in keys:
            car.send(key, at)
        one.look()
    one.has(topic, range(0, 1000, 50))
    assert one.lost() == {topic: (0, 0)}
    assert not one.live.unused


def test_topics_under_the_namespace_go_before_others(car, ear):
    one = ear(namespace="fleet/car1")
    for key in ("rt/camera/h264", "fleet/car1/rt/camera/h264", "other/camera/h264"):
        car.is_heard_on(key, VIDEO)
        car.send(key, len(key))
    until(lambda: len(one.transport._intake.lanes()) == 3)
    offers = one.transport.list_topics({})
    assert offers.names == {"/camera/h264": ("fleet/car1/rt/camera/h264", VIDEO)}


def test_a_topic_of_another_type_is_named_and_not_used(car, ear):
    one = ear()
    for key, schema in (("rt/camera/h264", VIDEO), ("rt/gps", IMU), ("rt/imu", IMU)):
        car.is_heard_on(key, schema)
        car.send(key, 1)
    one.offered("/camera/h264", "/imu")
    until(lambda: "rt/gps" in one.transport.list_topics({}).mixed)
    one.listen()
    assert one.live.unused == {"rt/gps": f"not used: its type is {IMU}, expected is {FIX}"}
    car.publishers["rt/imu"].put(stamped(2), encoding=encoding_of(FIX))
    car.publishers["rt/imu"].put(b"{}", encoding="application/json")
    car.send("rt/imu", 3)
    one.has("/imu", [1, 3])
    one.look()
    note = one.live.states["rt/imu"].mixed
    assert f"1 message of {encoding_of(FIX)}" in note
    assert "1 message of application/json" in note


def test_messages_of_which_nothing_tells_the_type_are_named(car, ear):
    one = ear()
    car.is_heard_on("camera/h264")
    car.send("camera/h264", 1)
    mixed = until(lambda: one.transport.list_topics({}).mixed)
    assert mixed == {"camera/h264": "not used: its type is unknown, its encoding is zenoh/bytes"}


# ---- ROS 2 on Zenoh ----------------------------------------------------------------------------
@pytest.mark.parametrize("form", ATTACHMENTS)
def test_rmw_zenoh_tells_type_and_losses(car, ear, form):
    one, topic = ear(), "/front/camera/h264"
    key = rmw_key(topic, VIDEO)
    publisher = car.has(key, token=rmw_token(topic, VIDEO))
    one.offered(topic)
    one.listen()
    until(lambda: publisher.matching_status.matching)
    for sequence in (7, 8, 11, 12):
        publisher.put(stamped(sequence), attachment=ATTACHMENTS[form](sequence, GID))
    publisher.put(stamped(13), attachment=ATTACHMENTS[form](1, GID[::-1]))  # it begins anew
    publisher.put(stamped(14), attachment=ATTACHMENTS[form](2, GID[::-1]))
    one.has(topic, [7, 8, 11, 12, 13, 14])
    assert [(m.sequence, lost) for m, _, lost, _ in one.came] == [(1, 0), (2, 0), (5, 2), (6, 0), (1, 0), (2, 0)]
    car.tokens[0].undeclare()
    until(lambda: topic not in one.transport.list_topics({}).topics or None)


def test_what_rmw_zenoh_keeps_for_those_who_come_late_is_heard(car, ear):
    import zenoh.ext

    camera, transform = rmw_key("/camera/h264", VIDEO), rmw_key("/tf_static", TRANSFORM)
    kept = zenoh.ext.declare_advanced_publisher(
        car.bus, transform, cache=zenoh.ext.CacheConfig(1), publisher_detection=True
    )
    kept.put(stamped(5), attachment=ATTACHMENTS["newer"](1, GID))
    car.has(camera, token=rmw_token("/camera/h264", VIDEO))
    car.tokens.append(car.bus.liveliness().declare_token(rmw_token("/tf_static", TRANSFORM)))
    one = ear()
    one.offered("/camera/h264", "/tf_static")
    one.listen()
    one.has("/tf_static", [5])


@pytest.mark.parametrize("newer", [True, False])
def test_the_bridge_tells_types_by_its_tokens(car, ear, newer):
    one = ear()
    car.is_heard_on("camera/h264", token=bridge_token("camera/h264", VIDEO, newer))
    car.send("camera/h264", 1, 2)
    one.offered("/camera/h264")
    one.listen()
    car.send("camera/h264", 3)
    one.has("/camera/h264", [1, 2, 3])


# ---- under load --------------------------------------------------------------------------------
def test_what_a_starved_listener_leaves_out_is_counted(car, ear):
    one, begun, going = ear(depth=5), threading.Event(), threading.Event()
    car.is_heard_on("rt/camera/h264", VIDEO)
    car.send("rt/camera/h264", *range(0, 100, 10))
    one.offered("/camera/h264")

    def deliver(*message):
        begun.set()
        going.wait(LONG)
        one.came.append(message)

    one.listen(deliver)
    one.look(3)
    assert begun.wait(LONG)  # else what is left out may be told with the first, and is not to be seen at the lane
    car.send("rt/camera/h264", *range(100, 500, 10))
    lane = one.transport._intake.lanes()[0]
    until(lambda: lane.dropped and lane.waiting[-1].data == stamped(490))
    going.set()
    until(lambda: one.stamps("/camera/h264")[-1:] == [490])
    received = len(one.stamps("/camera/h264"))
    assert received <= 17
    assert one.lost() == {"/camera/h264": (50 - received, 0)}
    assert one.live.states["rt/camera/h264"].lost == 50 - received


# ---- sessions ----------------------------------------------------------------------------------
def test_a_router_stands_between_and_may_come_back():
    port = f"tcp/127.0.0.1:{free_port()}"
    router = open_bus("router", listen=port)
    other = Car(open_bus("client", port))
    with open_session(port) as bus:
        one = Ear(bus)
        other.is_heard_on("rt/camera/h264", VIDEO)
        other.send("rt/camera/h264", 1)
        one.offered("/camera/h264")
        one.listen()
        one.has("/camera/h264", [1])
        router.close()
        until(lambda: not other.is_heard("rt/camera/h264"))
        router = open_bus("router", listen=port)
        until(lambda: other.is_heard("rt/camera/h264"))
        other.send("rt/camera/h264", 2)
        one.has("/camera/h264", [1, 2])
        one.transport.close()
    other.bus.close()
    router.close()


def test_where_nobody_answers_it_is_an_error(monkeypatch):
    from edgefirst_ros.sources import zenoh_session

    monkeypatch.setattr(zenoh_session, "PATIENCE", 200)
    with (
        pytest.raises(EdgeFirstError, match="cannot connect within 0 s; is zenohd running"),
        open_session(f"tcp/127.0.0.1:{free_port()}"),
    ):
        pass
    with pytest.raises(UsageError, match="expected peer or an address"), open_session("localhost:7447"):
        pass
