# SPDX-License-Identifier: Apache-2.0
"""Topics of a running system: which part each plays, when that is settled, what was lost, without any transport."""

import pytest
from live_system import System
from test_messages import transforms

from edgefirst_ros.config import Settings
from edgefirst_ros.messages import decode, find_known_name
from edgefirst_ros.sources import live
from edgefirst_ros.sources.live import CameraWait, LiveSource, Offers, Settling, TopicState, expect_topics
from edgefirst_ros.sources.topics import choose_topics
from edgefirst_ros.streams import (
    CAMERA_INFO,
    CLOUD,
    CUBE,
    DETECT,
    FIX,
    IMAGE,
    IMU,
    MASK,
    MODEL,
    TF_MESSAGE,
    TRANSFORM,
    VIDEO,
)

CAMERA = "/camera/h264"


def lost(state, *numbers):
    """How many are counted as lost where messages of these numbers come."""
    return sum(state.count_arrival(number, 0)[1] for number in numbers)


# ---- lost on the way -----------------------------------------------------------------------
def test_what_one_publisher_sent_and_did_not_come_is_lost():
    state = TopicState("/imu", "/imu", IMU, publishers=1)
    assert lost(state, 7, 8, 11, 12, 20) == 2 + 7
    assert state.lost == 9


def test_numbers_of_another_publisher_are_no_loss_before_it_is_known_of():
    """Two nodes say where their sensors are: the numbers of the one that is there for long lie far ahead."""
    state = TopicState("/tf_static", "/tf_static", TRANSFORM, publishers=1)
    assert lost(state, 1000, 1, 1001, 2, 3, 1002) == 0


def test_a_transport_without_numbers_loses_nothing_that_is_known():
    state = TopicState("/imu", "/imu", IMU, publishers=1)
    assert [state.count_arrival(None, n) for n in range(3)] == [(1, 0), (2, 0), (3, 0)]


# ---- settling ------------------------------------------------------------------------------
def test_a_topic_that_comes_later_starts_the_wait_anew():
    settling = Settling()
    one, both = {"/rear/video": VIDEO}, {"/rear/video": VIDEO, "/front/camera/h264": VIDEO}
    looks = [(one, 5.0), (one, 5.5), (both, 5.9), (both, 6.5), (both, 6.9)]
    assert [settling.is_settled(topics, now) for topics, now in looks] == [False, False, False, False, True]


def test_topics_that_never_cease_to_come_and_go():
    settling = Settling()
    looks = [settling.is_settled({f"/{n}": VIDEO}, n / 2) for n in range(22)]
    assert looks.index(True) == 20


def test_a_part_by_the_type_alone_takes_longer():
    settling = Settling()
    topics = {"/rear/video": VIDEO}
    assert not settling.is_settled(topics, 100.0, guessed=True)
    assert not settling.is_settled(topics, 104.9, guessed=True)
    assert settling.is_settled(topics, 104.9)
    assert settling.is_settled(topics, 105.1, guessed=True)


def test_what_is_waited_for_is_told_until_there_is_a_camera(settings):
    wait = CameraWait(settings)
    assert wait.find_roles(Offers({"/gps": ("/gps", FIX)}), 1.0) is None
    assert wait.reason.startswith("waiting: no camera topic")
    offers = Offers({CAMERA: (CAMERA, VIDEO)})
    assert wait.find_roles(offers, 2.0) is None
    roles = wait.find_roles(offers, 3.0)
    assert (roles.reference, roles.gps) == (CAMERA, "/gps")


# ---- parts ---------------------------------------------------------------------------------
def test_a_part_is_not_given_to_two_topics(settings):
    system = System({CAMERA: VIDEO})
    source = system.source(settings)
    system.offers["/maivin/radar/cube"] = CUBE
    source.refresh(0.0)
    system.offers |= {"/radar/cube": CUBE, "/other/radar/cube": CUBE}
    source.refresh(1.0)
    assert source.unused == {
        "/radar/cube": "not recorded: its part is that of /maivin/radar/cube, and cannot change any more"
    }
    assert {of.delivered_as: of.schema for of in source.states.values()} == {CAMERA: VIDEO, "/radar/cube": CUBE}
    del system.offers["/maivin/radar/cube"]
    source.refresh(2.0)
    assert source.states.keys() == {CAMERA, "/maivin/radar/cube"}
    assert source.states["/maivin/radar/cube"].publishers == 0


def test_a_topic_of_another_type_has_no_part_and_is_told_once(settings):
    system = System({CAMERA: VIDEO, "/radar/cube": CLOUD})
    source = system.source(settings)
    for now in (0.0, 1.0):
        source.refresh(now)
    assert source.states.keys() == {CAMERA}
    told = f"/radar/cube: not recorded: its type is {CLOUD}, expected is {CUBE}"
    assert system.log == [("warning", told)]
    assert source.unused == dict([told.split(": ", 1)])


def test_several_publishers_of_a_sensor_are_told_once_and_those_of_transforms_are_not(settings):
    system = System({CAMERA: VIDEO, "/tf_static": TRANSFORM})
    source = system.source(settings)
    source.refresh(0.0)
    assert system.log == []
    system.publishers = 2
    for now in (1.0, 2.0):
        source.refresh(now)
    ((level, told),) = system.log
    assert (level, told.partition(";")[0]) == (
        "warning",
        f"{CAMERA}: 2 publishers send on it, so their messages are mixed",
    )
    assert source.states[CAMERA].mixed
    system.publishers = 1
    source.refresh(3.0)
    assert not source.states[CAMERA].mixed


def test_topics_without_a_part_are_noted_once_and_keys_without_a_topic_are_missing_until_it_comes():
    settings = Settings(rig={"lidar.points": "/c/points"})
    system = System({CAMERA: VIDEO, "/a/points": CLOUD, "/b/points": CLOUD})
    roles = expect_topics(choose_topics(system.offers, settings, live=True), settings)
    source = LiveSource(system, settings, roles, lambda *message: None, system)
    for now in (0.0, 1.0):
        source.refresh(now)
    told = [
        f"/{n}/points is not used; to use it: add lidar.points.{n}: {{topic: /{n}/points}} to the rig" for n in "ab"
    ]
    assert (system.log, roles.missing) == ([("warning", one) for one in told], ("lidar.points",))
    assert [(of["topic"], of["type"], of["count"]) for of in roles.unused] == [
        ("/a/points", CLOUD, None), ("/b/points", CLOUD, None)]  # fmt: skip
    system.offers["/c/points"] = CLOUD
    source.refresh(2.0)
    assert (roles.missing, len(roles.unused), len(system.log)) == ((), 2, 2)


@pytest.mark.parametrize(
    ("topics", "given"),
    [
        ({"/lidar/points": CLOUD}, {"rig": {"radar.targets": "/lidar/points"}}),
        ({"/fusion/boxes3d": DETECT}, {"model_topic": "/fusion/boxes3d"}),
        (
            {"/camera/info": CAMERA_INFO, "/b/image": IMAGE},
            {"rig": {"camera.b": {"topic": "/b/image", "info": "/camera/info"}}},
        ),
        ({"/left/camera/h264": VIDEO, "/m/model/output": MODEL}, {"rig": {"unused": ["/left/camera/h264"]}}),
        *(
            ({f"{host}{topic}": schema}, {"rig": {"unused": [f"{host}{topic}"]}})
            for host in ("", "/front")
            for topic, schema in {
                "/lidar/points": CLOUD, "/radar/cube": CUBE, "/gps": FIX, "/imu": IMU, "/model/output": MODEL,
                "/fusion/boxes3d": DETECT, "/tf_static": TF_MESSAGE, "/camera/info": CAMERA_INFO,
            }.items()
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_topic_that_the_settings_use_otherwise_or_not_at_all_gets_no_role_by_its_name(topics, given):
    """As in a recording; whether it is there at the start or comes later."""
    settings = Settings(**given)
    recorded = choose_topics({CAMERA: VIDEO} | topics, settings)
    for late in (False, True):
        system = System({CAMERA: VIDEO} if late and "camera.b" not in str(given) else {CAMERA: VIDEO} | topics)
        roles = expect_topics(choose_topics(system.offers, settings, live=True), settings)
        source = LiveSource(system, settings, roles, lambda *message: None, system)
        for now in range(20):
            source.refresh(now)
            system.offers |= topics
        assert source.states.keys() == recorded.streamed | recorded.statics
        assert {k: t for k, t in roles.companions.items() if t in topics} == recorded.companions
        assert {key: of.own for key, of in roles.infos.items() if of.own in topics} == {
            key: of.own for key, of in recorded.infos.items() if of.own is not None
        }
        for part in ("gps", "imu", "model", "boxes3d"):
            assert getattr(roles, part) not in topics or getattr(roles, part) == getattr(recorded, part)


@pytest.mark.parametrize(
    ("late", "seconds"), [({"/eye/output": MODEL}, 5), ({"/eye/boxes": DETECT, "/eye/model/mask": MASK}, 5),
                          ({"/eye/model/boxes2d": DETECT, "/eye/model/mask": MASK}, 1)], ids=str,
)  # fmt: skip
def test_late_results_are_the_models_by_their_name_or_as_the_only_ones_of_their_type(late, seconds):
    """Their masks follow them."""
    system = System({"/eye/video": VIDEO})
    settings = Settings(reference_topic="/eye/video")
    roles = expect_topics(choose_topics(system.offers, settings, live=True), settings)
    source = LiveSource(system, settings, roles, lambda *message: None, system)
    source.refresh(0.0)
    system.offers |= late
    for now in range(1, seconds + 1):
        source.refresh(now)
        assert next(iter(late)) not in source.states
    for now in (seconds + 1, seconds + 2):
        source.refresh(now)
    assert source.states.keys() == {"/eye/video", *late}
    assert roles.masks == next((topic for topic in late if late[topic] == MASK), None)


def test_a_topic_of_a_rig_that_goes_is_not_that_of_another_host_which_the_rig_uses_otherwise():
    settings = Settings(rig={"lidar.points": "/lidar/points", "lidar.points.left": "/left/lidar/points"})
    system = System({CAMERA: VIDEO, "/lidar/points": CLOUD, "/left/lidar/points": CLOUD})
    source = system.source(settings)
    source.refresh(0.0)
    del system.offers["/lidar/points"]
    source.refresh(1.0)
    assert source.states["/lidar/points"].publishers == 0
    (note,) = choose_topics(system.offers, settings).notes
    assert note == "lidar.points: the rig assigns it /lidar/points, which is not in the recording"


def test_sensors_have_one_order_however_their_topics_are_found():
    """Members of a sample have it, live as in a recording."""
    topics, settings = {CAMERA: VIDEO, "/a/radar": CLOUD, "/b/cube": CUBE, "/lidar/points": CLOUD}, Settings()
    recorded = choose_topics(topics, settings, radars=["/a/radar"])
    assert [*recorded.companions] == ["radar.cube", "radar.targets", "lidar.points"]
    live = expect_topics(choose_topics(topics, settings, live=True), settings)
    assert [*live.companions.items()] == [*recorded.companions.items()]


def test_the_hint_for_one_of_several_topics_is_the_key_that_none_has_yet():
    system = System({CAMERA: VIDEO, "/a/points": CLOUD, "/b/points": CLOUD})
    roles = expect_topics(choose_topics(system.offers, Settings(), live=True), Settings())
    source = LiveSource(system, Settings(), roles, lambda *message: None, system)
    source.refresh(0.0)
    recorded = choose_topics(system.offers, Settings())
    assert [of["use"] for of in roles.unused] == [of["use"] for of in recorded.unused]
    assert roles.unused[0]["use"] == "rig: lidar.points: {topic: /a/points}"


@pytest.mark.parametrize(
    "given",
    [
        *({"rig": {key: "/wrong"}} for key in ("camera.left", "lidar.points", "lidar.points.rear", "radar.cube")),
        *({"rig": {key: "/wrong"}} for key in ("gps", "imu", "pose", "model", "boxes3d")),
        {"rig": {"pose": {"tf": ["map", "base_link"]}}},
        {"lidar_topic": "/wrong"},
        {"gps_topic": "/wrong"},
        {"model_topic": "/wrong"},
    ],
    ids=str,
)
def test_a_topic_of_the_settings_that_does_not_come_is_warned_of_once(given):
    """Over Zenoh topics without a part are not seen, so that nothing else tells of a misspelt name."""
    system = System({CAMERA: VIDEO})
    source = system.source(Settings(**given))
    for now in (0.0, 1.0, 4.9):
        source.refresh(now)
    assert system.log == []
    for now in (5.0, 6.0, 60.0):
        source.refresh(now)
    (key,) = source._roles.missing
    topic = "/tf" if "tf" in str(given) else "/wrong"
    assert system.log == [("warning", f"{key}: {topic} is not published so far; is its name right?")]


def test_results_of_the_older_form_come_late_and_those_of_the_newer_one_too_late(settings):
    system = System({CAMERA: VIDEO})
    source = system.source(settings)
    source.refresh(0.0)
    system.offers |= {"/model/boxes2d": DETECT, "/model/mask_compressed": MASK}
    for now in (1.0, 1.5, 2.0, 2.5):
        source.refresh(now)
    assert source.states.keys() == {CAMERA, "/model/boxes2d", "/model/mask_compressed"}
    assert ("info", "/model/boxes2d came late and is recorded as model from now on") in system.log
    system.offers["/model/output"] = MODEL
    source.refresh(3.0)
    assert source.unused["/model/output"].startswith("not recorded as model: that was /model/boxes2d so far")


def test_topics_of_the_settings_are_waited_for_and_no_other_takes_their_place():
    system = System({CAMERA: VIDEO})
    source = system.source(Settings(gps_topic="second", model_topic="/results"))
    system.offers |= {"/gps": FIX, "/model/output": MODEL}
    for now in range(60):
        source.refresh(float(now))
    assert source.states.keys() == {CAMERA}
    system.offers |= {"/second": FIX, "/results": DETECT}
    source.refresh(60.0)
    heard = {of.delivered_as: of.schema for of in source.states.values()}
    assert heard == {CAMERA: VIDEO, "/second": FIX, "/results": DETECT}


# ---- messages ------------------------------------------------------------------------------
def test_messages_are_delivered_under_the_name_of_the_device_with_what_was_lost_before(settings):
    system = System({CAMERA: VIDEO}, names={CAMERA: "/front/video"})
    source = system.source(settings)
    source.refresh(0.0)
    for number in (4, 5, 9):
        system.send("/front/video", b"data", number)
    assert [(m.topic, m.sequence, m.data, lost) for m, _, lost, _ in system.came] == [
        (CAMERA, 4, b"data", 0),
        (CAMERA, 5, b"data", 0),
        (CAMERA, 9, b"data", 3),
    ]


def test_transforms_of_tf2_can_be_decoded(settings):
    sent, data = transforms()
    system = System({CAMERA: VIDEO, "/tf_static": TF_MESSAGE})
    source = system.source(settings)
    source.refresh(0.0)
    system.send("/tf_static", bytes(data), 5)
    content = decode(system.came[0][0])
    assert [part.child_frame_id for part in content.transforms] == [part.child_frame_id for part in sent]
    assert content.transforms[1].translation[0] == sent[1].transform.translation.x


# ---- hostile publishers ------------------------------------------------------------------------
def test_a_thousand_topics_of_one_name_are_looked_at_once_each(monkeypatch):
    """Each look asks for a name so many times as there are topics, not for each pair of them."""
    fixes = {f"/n{n}/gps": FIX for n in range(1000)}
    system = System({CAMERA: VIDEO} | fixes)
    source = system.source(Settings())
    asked = []

    def counted(topic, schema):
        asked.append(topic)
        return find_known_name(topic, schema)

    monkeypatch.setattr(live, "find_known_name", counted)
    source.refresh(0.0)
    assert list(source.states) == [CAMERA]
    assert len(asked) < 10_000


def test_topics_that_map_to_one_part_are_not_mixed_whichever_comes_first(settings):
    """With a host, as DDS names it, in large letters: one is recorded, and what it is stays so."""
    for first, second in (("/host/camera/h264", CAMERA), (CAMERA, "/rt/camera/h264"), (CAMERA, "/Camera/H264")):
        system = System({first: VIDEO})
        source = system.source(settings)
        source.refresh(0.0)
        system.offers[second] = VIDEO
        for now in range(1, 9):
            source.refresh(float(now))
        assert source.states.keys() == {first}
        system.send(first, b"picture", 1)
        assert second not in system.arrive
        assert [message.topic for message, *_ in system.came] == [first]


def test_a_topic_that_went_before_it_was_subscribed_is_no_part_until_it_comes_again(settings, monkeypatch):
    system = System({CAMERA: VIDEO, "/imu": IMU})
    source, there = system.source(settings), {CAMERA}
    listen = system.listen
    monkeypatch.setattr(
        system, "listen", lambda state, *given, **more: state.name in there and listen(state, *given, **more)
    )
    source.refresh(0.0)
    assert source.states.keys() == {CAMERA}
    there.add("/imu")
    source.refresh(1.0)
    system.send("/imu", b"data", 1)
    assert (source.states.keys(), source.states["/imu"].received) == ({CAMERA, "/imu"}, 1)
