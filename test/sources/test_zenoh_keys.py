# SPDX-License-Identifier: Apache-2.0
"""Keys, encodings, tokens and attachments as the device, rmw_zenoh and the bridge write them."""

import pytest

zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")

from zenoh_network import ATTACHMENTS, bridge_token, rmw_key, rmw_token  # noqa: E402

from edgefirst_ros.sources.zenoh_keys import (  # noqa: E402
    TOKENS,
    Announced,
    Attached,
    list_candidates,
    name_topic,
    parse_encoding,
    read_attachment,
    read_token,
    strip_name,
)
from edgefirst_ros.streams import IMU, VIDEO  # noqa: E402

GID = bytes(range(16))


@pytest.mark.parametrize(
    ("key", "topic", "name"),
    [
        ("camera/h264", "/camera/h264", "camera/h264"),
        ("rt/camera/h264", "/camera/h264", "camera/h264"),
        ("maivin-7/camera/h264", "/maivin-7/camera/h264", "camera/h264"),
        ("maivin-7/rt/camera/h264", "/maivin-7/camera/h264", "camera/h264"),
        ("rt/tf_static", "/tf_static", "tf_static"),
        ("maivin-7/rt/gps", "/maivin-7/gps", "gps"),
        ("rt", "/rt", "rt"),
        ("front/left/video", "/front/left/video", "front/left/video"),
    ],
)
def test_a_key_is_a_topic_without_rt(key, topic, name):
    assert (name_topic(key), strip_name(name_topic(key))) == (topic, name)


@pytest.mark.parametrize("namespace", ["", "maivin-7", "fleet/car1"])
def test_each_key_a_topic_may_have_is_heard_once(namespace):
    heard = [zenoh.KeyExpr(key) for key in list_candidates("camera/h264", namespace)]
    keys = [
        "camera/h264",
        "rt/camera/h264",
        "maivin-7/camera/h264",
        "maivin-7/rt/camera/h264",
        "rt/maivin-7/camera/h264",
    ]
    if "/" in namespace:
        keys += [f"{namespace}/camera/h264", f"{namespace}/rt/camera/h264", f"rt/{namespace}/camera/h264"]
    assert [sum(one.intersects(zenoh.KeyExpr(key)) for one in heard) for key in keys] == [1] * len(keys)
    for foreign in ("camera/h265", "a/b/c/camera/h264", "0/camera/h264/x/y", "radar/cube"):
        assert not any(one.intersects(zenoh.KeyExpr(foreign)) for one in heard)


@pytest.mark.parametrize(
    ("encoding", "schema"),
    [
        (f"application/cdr;{VIDEO}", VIDEO),
        (f"application/cdr;v1;{VIDEO}", VIDEO),
        ("application/cdr", None),
        ("application/cdr;", None),
        ("application/json;a/msg/B", None),
        ("zenoh/bytes", None),
    ],
)
def test_the_type_is_the_text_behind_the_last_semicolon(encoding, schema):
    assert parse_encoding(encoding) == schema


def test_tokens_of_rmw_zenoh_and_of_both_versions_of_the_bridge():
    tokens = [rmw_token("/front/imu", IMU, 7), *(bridge_token("front/imu", IMU, newer) for newer in (True, False))]
    assert [read_token(token) for token in tokens] == [
        Announced(rmw_key("/front/imu", IMU, 7), "/front/imu", IMU),
        *[Announced("front/imu", "/front/imu", IMU)] * 2,
    ]
    for token in tokens:
        assert [zenoh.KeyExpr(all_of).includes(zenoh.KeyExpr(token)) for all_of in TOKENS].count(True) == 1


@pytest.mark.parametrize(
    "token",
    ["", "@ros2_lv", "@ros2_lv/0/a/0/0/NN/%/%/node", "@/a/@ros2_lv", "@ros2_lv/a/MS/x/y/z", "@/a/@ros2_lv/MS/x/y/z"],
)
def test_other_tokens_are_no_publishers(token):
    assert read_token(token) is None


@pytest.mark.parametrize("form", ATTACHMENTS)
@pytest.mark.parametrize("sequence", [1, 5, 9999999, 12345678, 2**40])
def test_attachments_in_all_forms(form, sequence):
    assert read_attachment(ATTACHMENTS[form](sequence, GID)) == Attached(sequence, GID)


@pytest.mark.parametrize("form", ATTACHMENTS)
def test_a_cut_attachment_says_nothing(form):
    assert read_attachment(ATTACHMENTS[form](5, GID)[:-1]) is None


@pytest.mark.parametrize(
    "data", [b"", bytes(33), b"sequence_number", b"\x0fsequence_number\x02xx\x10source_timestamp", bytes(77)]
)
def test_other_attachments_say_nothing(data):
    assert read_attachment(data) is None
