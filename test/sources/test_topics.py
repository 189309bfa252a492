# SPDX-License-Identifier: Apache-2.0
"""The roles of topics, rule by rule."""

import pytest

from edgefirst_ros import streams
from edgefirst_ros.config import Settings
from edgefirst_ros.errors import RecordingError, UsageError
from edgefirst_ros.sources.live import expect_topics, find_late_parts, list_expected_types
from edgefirst_ros.sources.topics import choose_topics
from edgefirst_ros.streams import TILED

VIDEO, JPEG, RAW = "foxglove_msgs/msg/CompressedVideo", "sensor_msgs/msg/CompressedImage", "sensor_msgs/msg/Image"
CLOUD, CUBE = "sensor_msgs/msg/PointCloud2", "edgefirst_msgs/msg/RadarCube"
FIX, IMU = "sensor_msgs/msg/NavSatFix", "sensor_msgs/msg/Imu"
DETECT, MODEL, MASK = (f"edgefirst_msgs/msg/{name}" for name in ("Detect", "Model", "Mask"))
CAMERA = {"/camera/h264": VIDEO}
LEFT = {"reference_topic": "/left/camera/h264"}


def chosen(topics, **settings):
    return choose_topics(topics, Settings(**settings))


# ---- the camera --------------------------------------------------------------------------
def test_known_cameras_go_by_rank():
    there = {"/camera/image": RAW, "/camera/jpeg": JPEG, "/camera/h264": VIDEO, "/camera/h265": VIDEO}
    for expected in ("/camera/h265", "/camera/h264", "/camera/jpeg", "/camera/image"):
        roles = chosen(there)
        assert roles.reference == expected
        assert roles.schema == there.pop(expected)
        assert roles.camera
        assert roles.notes == ()


@pytest.mark.parametrize("prefix", ["/", "", "rt/", "/rt/", "/maivin-1/", "rt/maivin-1/"])
def test_slash_rt_and_one_host_are_no_part_of_the_name(prefix):
    topics = {prefix + "camera/h264": VIDEO, prefix + "radar/cube": CUBE, prefix + "gps": FIX, "/other": VIDEO}
    roles = chosen(topics)
    assert roles.reference == prefix + "camera/h264"
    assert roles.companions == {"radar.cube": prefix + "radar/cube"}
    assert roles.gps == prefix + "gps"


def test_of_two_topics_with_the_intrinsics_of_a_camera_one_counts():
    """Both names are that of the device, without a host."""
    infos = dict.fromkeys(("/camera/info", "rt/camera/info"), "sensor_msgs/msg/CameraInfo")
    found = chosen(CAMERA | infos).infos["camera"]
    assert (found.own, found.among) == ("/camera/info", {"/camera/info"})


def test_what_goes_before_others_of_its_name_is_said_and_is_no_guess():
    hosts = {f"/h{n}/camera/h264": VIDEO for n in range(7)}
    roles = chosen({**CAMERA, **hosts, "/gps": FIX, "rt/gps": FIX})
    assert (roles.reference, roles.gps, roles.guessed) == ("/camera/h264", "/gps", False)
    assert roles.notes == (
        f"camera/h264: /camera/h264 is used, which names no host; not {', '.join([*hosts][:5])} and 2 more",
        "gps: /gps is used, which names no host; not rt/gps",
    )


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("prefix", ["/", "", "rt/", "/left/"])
@pytest.mark.parametrize("tile", ["tr", "bl", "br"])
def test_a_tile_that_is_named_is_said_to_be_one(prefix, tile, live):
    """It is published; its picture has the name of the first tile."""
    whole, name = f"{prefix}camera/h264/tl", f"{prefix}camera/h264/{tile}"
    topics = {whole: TILED, "/camera/jpeg": JPEG}
    for settings in (Settings(reference_topic=name), Settings(rig={"camera": {"topic": name}})):
        with pytest.raises(UsageError, match=f"{name}'? is a tile of the picture {whole}; "):
            choose_topics(topics, settings, live=live)
    if not live:
        roles = chosen(topics, rig={"camera.rear": {"topic": name}}, reference_topic="/camera/jpeg")
        assert roles.notes == (f"camera.rear: the rig assigns it {name}, which is a tile of the picture {whole}",)
    absent = "is not published" if live else "is not in the recording"
    with pytest.raises(UsageError, match=f"{name}' {absent}; "):
        choose_topics(CAMERA, Settings(reference_topic=name), live=live)


@pytest.mark.parametrize("other", ["/Camera/H264", "/camera/h264/", "/camera//h264", "/c\u0430mera/h264"])
def test_names_that_only_look_alike_are_other_names(other):
    """Large letters, slashes, a letter of another alphabet."""
    roles = chosen({**CAMERA, other: VIDEO})
    assert (roles.reference, roles.notes) == ("/camera/h264", ())
    assert chosen({other: VIDEO}).reference == other, "as the only topic of its type"


def test_a_known_name_with_another_type_is_no_known_topic():
    roles = chosen({"/camera/h264": "sensor_msgs/msg/Image", "/camera/jpeg": JPEG, "/radar/cube": CLOUD, "/gps": IMU})
    assert roles.reference == "/camera/jpeg"
    assert roles.companions == {}
    assert roles.gps is None


def test_two_segments_before_a_name_are_no_host():
    cubes = {"/a/b/radar/cube": CUBE, "/c/d/radar/cube": CUBE}
    assert chosen({**CAMERA, **cubes}).companions == {}


def test_a_known_name_wins_over_others_of_its_type():
    assert chosen({"/camera/jpeg": JPEG, "/a": VIDEO, "/b": VIDEO}).reference == "/camera/jpeg"


def test_the_only_topic_of_the_type_is_the_camera_and_this_is_said():
    topics = {"/front": VIDEO, "/still": JPEG, "/raw": RAW}
    for expected in ("/front", "/still", "/raw"):
        roles = chosen(topics)
        assert roles.reference == expected
        assert len(roles.notes) == 1
        assert expected in roles.notes[0]
        del topics[expected]


@pytest.mark.parametrize("kind", [VIDEO, JPEG, RAW])
def test_several_of_the_type_are_an_error_that_lists_them(kind):
    with pytest.raises(UsageError, match="set reference_topic") as caught:
        chosen({"/left": kind, "/right": kind, "/gps": FIX})
    assert "/left, /right" in str(caught.value)
    assert "gps" not in str(caught.value)
    assert "edgefirst-ros rig" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["compressedDepth", "zstd"])
def test_what_image_transport_publishes_beside_pictures_is_no_camera(name):
    """Its messages have the type of pictures, and none of its forms is one."""
    topic = f"/front/image_raw/{name}"
    roles = chosen({"/front/image_raw/compressed": JPEG, topic: JPEG})
    assert roles.reference == "/front/image_raw/compressed"
    assert roles.unused == []
    with pytest.raises(RecordingError, match="no camera topic"):
        chosen({topic: JPEG})
    assert chosen({topic: JPEG}, reference_topic=topic).reference == topic


def test_only_pictures_of_depth_are_named_where_no_camera_is():
    with pytest.raises(
        RecordingError, match="; no camera, but depth, labels, 16 bits a pixel or a radar: /thermal/image_raw; "
    ):
        choose_topics({"/thermal/image_raw": RAW, "/imu": IMU}, Settings(), depths={"/thermal/image_raw"})


def test_several_video_topics_are_not_passed_over_for_one_of_the_next_type():
    with pytest.raises(UsageError):
        chosen({"/left": VIDEO, "/right": VIDEO, "/still": JPEG})


def test_cameras_of_two_hosts_are_an_error_that_lists_them():
    with pytest.raises(UsageError, match="/a/camera/h264, /b/camera/h264"):
        chosen({"/a/camera/h264": VIDEO, "/b/camera/h264": VIDEO})


def test_known_cameras_of_two_hosts_are_not_passed_over_for_another_topic():
    with pytest.raises(UsageError, match="/a/camera/jpeg, /b/camera/jpeg"):
        chosen({"/a/camera/jpeg": JPEG, "/b/camera/jpeg": JPEG, "/front": VIDEO})


def test_the_topics_of_the_cameras_own_host_are_taken():
    topics = {f"/{host}/{name}": kind for host in "ab" for name, kind in
              {"camera/h264": VIDEO, "radar/cube": CUBE, "gps": FIX, "imu": IMU}.items()}  # fmt: skip
    roles = chosen(topics, reference_topic="/b/camera/h264")
    assert roles.companions == {"radar.cube": "/b/radar/cube"}
    assert (roles.gps, roles.imu) == ("/b/gps", "/b/imu")
    assert roles.notes == ()


def test_no_camera_is_an_error_that_says_what_there_is():
    with pytest.raises(RecordingError, match="set reference_topic") as caught:
        chosen({"/gps": FIX, "/radar/cube": CUBE})
    assert all(topic in str(caught.value) for topic in ("/gps", "/radar/cube"))
    assert caught.value.exit_code == 1
    with pytest.raises(RecordingError, match="none"):
        chosen({})


def test_without_a_sensor_the_error_says_what_else_there_is():
    with pytest.raises(RecordingError, match=r"topics: (/rosout, /topic|/topic, /rosout);"):
        choose_topics({"/rosout": "rcl_interfaces/msg/Log", "/topic": "std_msgs/msg/String"}, Settings())


@pytest.mark.parametrize("topics", [("/lidar/reflect",), ("/lidar/depth",), ("/lidar/depth", "/host/lidar/reflect")])
def test_a_known_name_is_never_taken_for_the_camera_by_its_type(topics):
    with pytest.raises(RecordingError, match="set reference_topic") as caught:
        chosen(dict.fromkeys(topics, RAW), lidar_images=True)
    assert all(topic in str(caught.value) for topic in topics)
    assert chosen({**dict.fromkeys(topics, RAW), "/front": RAW}).reference == "/front"


# ---- --reference-topic -------------------------------------------------------------------
@pytest.mark.parametrize("wanted", [False, True])
def test_the_picture_of_another_sensor_is_no_camera_as_the_reference_either(wanted):
    roles = chosen(
        {"/camera/h264": VIDEO, "/lidar/reflect": RAW}, reference_topic="/lidar/reflect", lidar_images=wanted
    )
    assert (roles.sensor, roles.camera) == ("lidar.reflect", False)


@pytest.mark.parametrize("name", ["/lidar/points", "lidar/points"])
def test_another_stream_can_be_the_reference(name):
    roles = chosen({"/lidar/points": CLOUD, "/radar/cube": CUBE, "/gps": FIX}, reference_topic=name)
    assert (roles.reference, roles.sensor, roles.camera) == ("/lidar/points", "lidar.points", False)
    assert roles.aligned == {"/radar/cube", "/gps"}
    assert roles.streamed == {"/lidar/points", "/radar/cube", "/gps"}


def test_the_reference_is_found_by_the_devices_name():
    topics = {"rt/host/camera/jpeg": JPEG, "rt/host/camera/h264": VIDEO}
    assert chosen(topics, reference_topic="camera/jpeg").reference == "rt/host/camera/jpeg"


def test_the_reference_wins_over_a_known_name():
    assert chosen({**CAMERA, "/rear": VIDEO}, reference_topic="/rear").reference == "/rear"


@pytest.mark.parametrize("name", ["/none", "", "/", "camera", "*"])
def test_a_reference_that_is_not_there_is_an_error_that_lists_what_is(name):
    with pytest.raises(UsageError, match=r"there are (/camera/h264, /gps|/gps, /camera/h264)$") as caught:
        chosen({**CAMERA, "/gps": FIX}, reference_topic=name)
    assert repr(name) in str(caught.value)


def test_a_reference_that_could_be_two_is_an_error():
    topics = {"/a/camera/h264": VIDEO, "/b/camera/h264": VIDEO}
    with pytest.raises(UsageError, match="/a/camera/h264, /b/camera/h264"):
        chosen(topics, reference_topic="camera/h264")


# ---- gps and imu -------------------------------------------------------------------------
@pytest.mark.parametrize(("part", "kind"), [("gps", FIX), ("imu", IMU)])
def test_position_and_attitude(part, kind):
    key = f"{part}_topic"
    assert getattr(chosen(CAMERA), part) is None
    roles = chosen({**CAMERA, f"/{part}": kind, "/other": kind, "/third": kind})
    assert getattr(roles, part) == f"/{part}"
    assert roles.notes == ()
    roles = chosen({**CAMERA, "/only": kind})
    assert getattr(roles, part) == "/only"
    assert "/only" in roles.notes[0]
    roles = chosen({**CAMERA, "/one": kind, "/two": kind})
    assert getattr(roles, part) is None
    assert len(roles.notes) == 1
    assert key in roles.notes[0]
    assert "/one, /two" in roles.notes[0]
    assert not roles.aligned
    for name in ("/two", "two"):
        roles = chosen({**CAMERA, "/one": kind, "/two": kind, f"/{part}": kind}, **{key: name})
        assert getattr(roles, part) == "/two"
        assert roles.notes == ()
    for wrong in ("/none", "/camera/h264"):
        with pytest.raises(UsageError, match="/one, /two") as caught:
            chosen({**CAMERA, "/one": kind, "/two": kind}, **{key: wrong})
        assert key in str(caught.value)


# ---- companions --------------------------------------------------------------------------
def test_the_only_cloud_and_cube_take_their_roles_and_this_is_said():
    topics = {**CAMERA, "/ouster/points": CLOUD, "/cube": CUBE}
    roles = chosen(topics)
    assert roles.companions == {"lidar.points": "/ouster/points", "radar.cube": "/cube"}
    assert [note.partition(" is used as ")[0] for note in roles.notes] == ["/ouster/points", "/cube"]
    radar = choose_topics(topics, Settings(), radars={"/ouster/points"})
    assert radar.companions == {"radar.targets": "/ouster/points", "radar.cube": "/cube"}


def test_of_several_clouds_none_is_used_and_the_lines_of_a_rig_are_named():
    roles = chosen({**CAMERA, "/left/points": CLOUD, "/right/points": CLOUD})
    assert roles.companions == {}
    lines = "name one in a rig: lidar.points: {topic: /left/points} or lidar.points: {topic: /right/points}"
    assert roles.notes[0].endswith(lines)


RIG = {
    "camera": {"topic": "/front/image*", "info": "/front/intrinsics"},
    "lidar.points": "/lidar/clusters",
    "gps": "/fix",
    "model": {"topic": "/results", "info": "/labels", "masks": "/masks"},
    "unused": ["/debug/*"],
}
RIGGED = {
    "/front/image_raw": RAW,
    "/camera/h264": VIDEO,
    "/front/intrinsics": "sensor_msgs/msg/CameraInfo",
    "/lidar/clusters": CLOUD,
    "/lidar/points": CLOUD,
    "/debug/points": CLOUD,
    "/fix": FIX,
    "/gps": FIX,
    "/results": DETECT,
    "/labels": "edgefirst_msgs/msg/ModelInfo",
    "/masks": "edgefirst_msgs/msg/Mask",
}


def test_a_rig_gives_topics_to_sensors():
    roles = chosen(RIGGED, rig=RIG)
    assert (roles.reference, roles.infos["camera"].own) == ("/front/image_raw", "/front/intrinsics")
    assert roles.companions == {"lidar.points": "/lidar/clusters"}
    assert (roles.gps, roles.model, roles.masks) == ("/fix", "/results", "/masks")
    assert roles.statics == {"/front/intrinsics", "/labels"}
    assert {of["topic"]: of["use"] for of in roles.unused} == {
        "/camera/h264": "rig: camera.camera_h264: {topic: /camera/h264}",
        "/gps": "rig: gps: {topic: /gps}",
        "/lidar/points": "rig: lidar.points.lidar_points: {topic: /lidar/points}",
    }


@pytest.mark.parametrize(
    ("settings", "uses"),
    [
        (
            {"rig": {"camera": "/front/image_raw", "lidar.points": "/lidar/points", "pose": {"tf": ["map", "a"]}}},
            {
                "/LIDAR_TOP": "rig: lidar.points.lidar_top: {topic: /LIDAR_TOP}",
                "/left/image_raw": "rig: camera.left: {topic: /left/image_raw}",
                "/cube": "rig: radar.cube: {topic: /cube}",
                "/odom": "rig: pose: {topic: /odom}",
                "/fix": "gps_topic: /fix",
                "/rear/points": "rig: lidar.points.rear: {topic: /rear/points}",
            },
        ),
        (
            {"rig": {"camera": "/front/image_raw", "camera.left": "/left/image_raw"}, "sensors": ["camera"]},
            {"/left/image_raw": "sensors: [camera, camera.left]"},
        ),
        ({"reference_topic": "/front/image_raw"}, {"/left/image_raw": "reference_topic: /left/image_raw"}),
    ],
)
def test_the_use_of_a_topic_can_be_added_to_the_settings(settings, uses):
    """A key of the rig that is taken gets an instance, named by the topic."""
    clouds = dict.fromkeys(("/LIDAR_TOP", "/rear/points", "/lidar/points"), CLOUD)
    cubes = dict.fromkeys(("/cube", "/cube2"), CUBE)
    fixes = dict.fromkeys(("/fix", "/fix2"), FIX)
    cameras = dict.fromkeys(("/front/image_raw", "/left/image_raw"), RAW)
    roles = chosen({**cameras, **clouds, **cubes, **fixes, "/odom": "nav_msgs/msg/Odometry"}, **settings)
    found = {of["topic"]: of["use"] for of in roles.unused}
    assert {topic: found[topic] for topic in uses} == uses


POSES = [f"geometry_msgs/msg/{name}" for name in ("PoseStamped", "PoseWithCovarianceStamped")]
PACKET = "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"
USES = {
    **dict.fromkeys((RAW, JPEG, VIDEO, PACKET), "reference_topic: /x/more"),
    **dict.fromkeys(("nav_msgs/msg/Odometry", *POSES), "pose_topic: /x/more"),
    **dict.fromkeys((DETECT, MODEL), "model_topic: /x/more"),
    CLOUD: "rig: lidar.points.x: {topic: /x/more}",
    CUBE: "rig: radar.cube.x: {topic: /x/more}",
    FIX: "gps_topic: /x/more",
    IMU: "imu_topic: /x/more",
}


def test_a_further_instance_has_its_first_free_name_or_a_number():
    taken, long = {"camera.left"}, "a_camera_with_a_name_that_is_too_long"
    made = [streams.make_free_key("camera", names, taken) for names in [["left", "left_image"]] * 2 + [["x", long]] * 3]
    assert made == [
        "camera.left_image",
        "camera.left_image_2",
        "camera.x",
        "camera.era_with_a_name_that_is_too_long",
        "camera.a_with_a_name_that_is_too_long_2",
    ]
    assert taken == {"camera.left", *made}
    assert all(map(streams.is_key, made))


@pytest.mark.parametrize("kind", USES)
def test_a_second_topic_of_each_usable_type_is_named_with_its_use(kind):
    usual = {"lidar/points": CLOUD, "radar/cube": CUBE, "gps": FIX, "imu": IMU, "model/output": MODEL, "odom": POSES[0]}
    roles = chosen({**CAMERA, **{f"/{name}": of for name, of in usual.items()}, "/x/more": kind}, pose_topic="/odom")
    assert roles.unused == [{"topic": "/x/more", "type": kind, "count": None, "use": USES[kind]}]


@pytest.mark.parametrize(
    ("setting", "topic", "says"),
    [
        ("radar_topic", "/gps", "radar_topic: radar.targets: /gps is sensor_msgs/msg/NavSatFix, expected sensor_msgs"),
        ("lidar_topic", "/no*", "lidar_topic: lidar.points: '/no\\*' matches no topic"),
    ],
)
def test_a_short_form_that_does_not_fit_is_named_itself(setting, topic, says):
    there = {**CAMERA, "/gps": FIX, "/radar/targets": CLOUD}
    with pytest.raises(UsageError, match=says):
        chosen(there, **{setting: topic})
    (note,) = (one for one in chosen(there, **{setting: "/none"}).notes if "/none" in one)
    assert f": {setting} assigns it /none, which is not in the recording" in note


@pytest.mark.parametrize(
    ("rig", "says"),
    [
        ({"camera": "/*/*"}, r"rig: camera: '/\*/\*' matches .*; expected exactly one"),
        ({"lidar.points": "/nothing*"}, "rig: lidar.points: '/nothing\\*' matches no topic"),
        (
            {"lidar.points": "/gps"},
            "rig: lidar.points: /gps is sensor_msgs/msg/NavSatFix, expected sensor_msgs/msg/Poi",
        ),
        ({"camera": "/nothing"}, "rig: camera: /nothing is not in the recording; there are "),
    ],
)
def test_a_rig_that_does_not_fit_is_refused_with_what_there_is(rig, says):
    with pytest.raises(UsageError, match=says):
        chosen(RIGGED, rig=rig)


def test_a_key_of_the_rig_without_a_topic_is_missing():
    roles = chosen({**CAMERA, "/lidar/points": CLOUD}, rig={"lidar.points": "/mine", "imu": "/imu/data"})
    assert (roles.companions, roles.imu, set(roles.missing)) == ({}, None, {"lidar.points", "imu"})
    assert any(note.startswith("lidar.points: the rig assigns it /mine") for note in roles.notes)


def test_radar_points_are_targets_unless_configured():
    topics = {**CAMERA, "/radar/targets": CLOUD, "/radar/clusters": CLOUD}
    assert chosen(topics).companions == {"radar.targets": "/radar/targets"}
    assert chosen(topics, radar_points="clusters").companions == {"radar.clusters": "/radar/clusters"}
    del topics["/radar/targets"]
    assert chosen(topics).companions == {}


def test_lidar_images_are_used_when_asked_for():
    topics = {**CAMERA, "/lidar/points": CLOUD, "/lidar/depth": RAW, "/lidar/reflect": RAW}
    assert set(chosen(topics).companions) == {"lidar.points"}
    assert set(chosen(topics, lidar_images=True).companions) == {"lidar.points", "lidar.depth", "lidar.reflect"}


def test_a_companion_of_several_hosts_is_not_guessed():
    roles = chosen({**CAMERA, "/a/radar/cube": CUBE, "/b/radar/cube": CUBE})
    assert roles.companions == {}
    assert "/a/radar/cube, /b/radar/cube" in roles.notes[0]


def test_results_and_what_is_said_once():
    detect, model = "edgefirst_msgs/msg/Detect", "edgefirst_msgs/msg/Model"
    topics = {
        **CAMERA,
        "/model/boxes2d": detect,
        "/camera/info": "sensor_msgs/msg/CameraInfo",
        "/model/info": "edgefirst_msgs/msg/ModelInfo",
        "/tf_static": "geometry_msgs/msg/TransformStamped",
    }
    roles = chosen(topics)
    assert roles.model == "/model/boxes2d"
    assert roles.statics == {"/camera/info", "/model/info", "/tf_static"}
    assert roles.streamed == {"/camera/h264", "/model/boxes2d"}
    assert chosen({**topics, "/model/output": model}).model == "/model/output"
    assert chosen({**CAMERA, "/tf_static": "tf2_msgs/msg/TFMessage"}).statics == {"/tf_static"}


# ---- model results -----------------------------------------------------------------------
OLDER = {**CAMERA, "/model/boxes2d": DETECT, "/model/mask": MASK, "/model/mask_compressed": MASK}


def test_masks_without_a_header_go_with_the_older_form_alone():
    assert chosen(OLDER).masks == "/model/mask"
    packed = {topic: kind for topic, kind in OLDER.items() if topic != "/model/mask"}
    assert chosen(packed).masks == "/model/mask_compressed"
    assert chosen({**OLDER, "/model/output": MODEL}).masks is None
    assert chosen({**OLDER, "/model/output": MODEL}, model_topic="model/boxes2d").masks == "/model/mask"
    assert chosen(OLDER, masks=False).masks is None
    assert chosen(OLDER, masks=False, polygons=True).masks == "/model/mask"
    assert chosen(OLDER).streamed == {"/camera/h264", "/model/boxes2d", "/model/mask"}
    assert not chosen(OLDER).aligned
    alone = chosen({**CAMERA, "/model/mask": MASK})
    assert alone.masks is None
    assert "/model/mask" in alone.notes[0]


@pytest.mark.parametrize("kind", [MODEL, DETECT])
def test_the_only_results_are_the_models_of_one_camera_and_of_no_several(kind):
    alone = chosen({**CAMERA, "/detector": kind})
    assert alone.model == "/detector"
    assert f"/detector is used as model: it is the only {kind} topic" in alone.notes
    assert chosen({"/left/camera/h264": VIDEO, "/right/camera/h264": VIDEO, "/detector": kind}, **LEFT).model is None
    assert chosen({**CAMERA, "/detector": kind, "/second": kind}).model is None


def test_the_models_topic_can_be_named():
    topics = {**CAMERA, "/model/output": MODEL, "/second": MODEL, "/third": DETECT}
    assert chosen(topics).model == "/model/output"
    assert chosen(topics, model_topic="/second").model == "/second"
    assert chosen(topics, model_topic="third").model == "/third"
    for wrong in ("/none", "/camera/h264"):
        with pytest.raises(UsageError) as caught:
            chosen(topics, model_topic=wrong)
        assert all(topic in str(caught.value) for topic in ("/model/output", "/second", "/third"))
        assert "model_topic" in str(caught.value)


def test_boxes_in_space_are_aligned_by_the_common_time():
    roles = chosen({**CAMERA, "/fusion/boxes3d": DETECT})
    assert roles.boxes3d == "/fusion/boxes3d"
    assert roles.aligned == {"/fusion/boxes3d"}
    assert chosen({**CAMERA, "/fusion/boxes3d": DETECT}, reference_topic="fusion/boxes3d").boxes3d is None


def test_topics_that_may_still_come_have_the_devices_names():
    roles = expect_topics(chosen({**CAMERA, "/model/boxes2d": DETECT}), Settings())
    assert (roles.model, roles.masks, roles.boxes3d) == ("/model/boxes2d", "/model/mask", "/fusion/boxes3d")
    roles = expect_topics(chosen(CAMERA), Settings())
    assert (roles.model, roles.masks, roles.boxes3d) == ("/model/output", None, "/fusion/boxes3d")


# ---- live --------------------------------------------------------------------------------
@pytest.mark.parametrize(("part", "kind"), [("gps", FIX), ("imu", IMU), ("model", MODEL)])
def test_live_a_topic_of_the_settings_may_still_come(part, kind):
    settings = Settings(**{f"{part}_topic": "mine"})
    for topics in (CAMERA, {**CAMERA, "/mine": CLOUD}, {**CAMERA, "/other": kind}):
        with pytest.raises(UsageError):
            choose_topics(topics, settings)
        roles = choose_topics(topics, settings, live=True)
        assert getattr(roles, part) is None
        assert roles.notes == ()
        assert getattr(expect_topics(roles, settings), part) == "/mine"
    assert getattr(choose_topics({**CAMERA, "/mine": kind}, settings, live=True), part) == "/mine"


@pytest.mark.parametrize(
    ("part", "kind", "usual"),
    [
        ("gps", FIX, "/gps"),
        ("imu", IMU, "/imu"),
        ("model", MODEL, "/model/output"),
        ("boxes3d", DETECT, "/fusion/boxes3d"),
    ],
)
def test_live_a_topic_of_the_rig_may_still_come_and_no_other_has_its_part(part, kind, usual):
    settings = Settings(rig={part: "mine"})
    roles = expect_topics(choose_topics({**CAMERA, usual: kind}, settings, live=True), settings)
    assert getattr(roles, part) == "/mine"
    assert kind in list_expected_types(roles, settings)["/mine"]


@pytest.mark.parametrize("late", [False, True])
def test_live_labels_of_a_rig_have_their_type(late):
    settings = Settings(rig={"model": {"topic": "/results", "info": "/labels"}})
    there = CAMERA if late else {**CAMERA, "/labels": "edgefirst_msgs/msg/ModelInfo"}
    roles = expect_topics(choose_topics(there, settings, live=True), settings)
    assert "/labels" in roles.statics
    assert list_expected_types(roles, settings)["/labels"] == ("edgefirst_msgs/msg/ModelInfo",)


def test_live_the_cloud_of_a_radar_is_known_by_its_name():
    def only(topic):
        return choose_topics({**CAMERA, topic: CLOUD}, Settings(), live=True).companions

    assert only("/radar_front/points") == {"radar.targets": "/radar_front/points"}
    assert only("/ouster/points") == {"lidar.points": "/ouster/points"}


def test_live_every_topic_in_use_has_its_types():
    settings = Settings(lidar_images=True)
    roles = expect_topics(chosen({**CAMERA, "/model/boxes2d": DETECT, "/fix": FIX}), settings)
    types = list_expected_types(roles, settings)
    assert types.keys() == roles.streamed | roles.statics
    assert types["/camera/h264"] == (VIDEO,)
    assert (types["/fix"], types["/radar/cube"], types["/lidar/depth"]) == ((FIX,), (CUBE,), (RAW,))
    assert (types["/model/boxes2d"], types["/model/mask"], types["/fusion/boxes3d"]) == ((DETECT,), (MASK,), (DETECT,))
    assert len(types["/tf_static"]) == 2
    assert list_expected_types(expect_topics(chosen(CAMERA), settings), settings)["/model/output"] == (MODEL,)
    settings = Settings(model_topic="/model/output")
    roles = choose_topics({**CAMERA, "/model/output": DETECT}, settings)
    assert list_expected_types(roles, settings)["/model/output"] == (MODEL, DETECT)


def test_live_parts_whose_topics_come_late():
    def late(topics, used=(), **settings):
        chosen = Settings(**settings)
        roles = expect_topics(choose_topics(CAMERA, chosen, live=True), chosen)
        return find_late_parts(roles, topics, chosen, used)

    assert late(CAMERA) == late({}) == {}
    assert late({**CAMERA, "/gps": FIX, "/imu": IMU, "/model/output": MODEL, "/model/mask": MASK}) == {}
    assert late({**CAMERA, "/fix": FIX}) == {"gps": "/fix"}
    assert late({**CAMERA, "/fix": FIX}, gps_topic="/mine") == {}
    assert late({**CAMERA, "/one": FIX, "/two": FIX}) == {}
    assert late({**CAMERA, "/host/gps": FIX}, ["/host/gps"]) == {}
    assert late({**CAMERA, "/model/boxes2d": DETECT}) == {"model": "/model/boxes2d", "masks": "/model/mask"}
    assert late({**CAMERA, "/model/boxes2d": DETECT}, masks=False) == {"model": "/model/boxes2d", "masks": None}
    assert late({**OLDER, "/model/output": MODEL}) == {}


def test_live_masks_that_come_after_their_boxes():
    roles = expect_topics(chosen({**CAMERA, "/model/boxes2d": DETECT}), Settings())
    topics = {topic: kind for topic, kind in OLDER.items() if topic != "/model/mask"}
    assert find_late_parts(roles, topics, Settings(), ()) == {"masks": "/model/mask_compressed"}
    assert find_late_parts(roles, OLDER, Settings(), ()) == {}


def test_only_one_camera_is_captured_at_a_time():
    both = ("/front/camera/h264", "/rear/camera/h264")
    with pytest.raises(UsageError, match=rf"one camera at a time: {', '.join(both)}; start a capture for each"):
        chosen(dict.fromkeys(both, VIDEO), reference_topic=both)


# ---- hints -------------------------------------------------------------------------------
@pytest.mark.parametrize("live", [False, True])
def test_a_hint_names_the_nearest_topic_first(live):
    """With so many topics that not all of them are listed."""
    topics = {**CAMERA, "/rear/camera/h264": VIDEO, **{f"/a/topic/{n}": CLOUD for n in range(60)}}
    with pytest.raises(UsageError, match="is not published" if live else "is not in the recording") as caught:
        choose_topics(topics, Settings(reference_topic="/camera/h256"), live=live)
    assert "there are /camera/h264, /rear/camera/h264, " in str(caught.value)
    assert "--" not in str(caught.value)
    with pytest.raises(RecordingError) as caught:
        choose_topics({"/rear/camera/264": CLOUD, **{f"/a/{n}": CLOUD for n in range(60)}}, Settings(), live=live)
    assert "topics: /rear/camera/264, " in str(caught.value)


@pytest.mark.parametrize("topic", ["", "/", "/\u6444\u50cf\u5934", "/..."])
def test_a_topic_without_a_word_is_named_with_a_key_that_a_rig_may_have(topic):
    roles = choose_topics({"/camera/jpeg": JPEG, topic: JPEG}, Settings(rig="{camera: /camera/jpeg}"))
    (hint,) = (of["use"] for of in roles.unused)
    assert hint.startswith("rig: camera.more: ")
