# SPDX-License-Identifier: Apache-2.0
import itertools
import os
import socket
from fractions import Fraction
from pathlib import Path

import pytest

from edgefirst_ros.config import LiveSettings, Settings, to_ns
from edgefirst_ros.config.load import load
from edgefirst_ros.errors import UsageError

BAD = [
    ("reference_topic", "[1, 2]", "[1, 2]"),
    ("gps_topic", "{a: b}", "{'a': 'b'}"),
    ("imu_topic", "3", "expected text, got 3"),
    ("lidar_topic", "3", "expected text, got 3"),
    ("radar_topic", "[a]", "['a']"),
    ("cube_topic", "3", "expected text, got 3"),
    ("pose_topic", "3", "expected text, got 3"),
    ("strict_topics", "2", "2"),
    ("rig", "{lidar: /x}", "unknown sensor 'lidar'; did you mean lidar.points?"),
    (
        "rig",
        "{camera: {left: /a, right: /b}}",
        "camera: unknown setting 'left'; an instance is written `camera.left: /a`",
    ),
    ("rig", "{camera: {topc: /a}}", "camera: unknown setting 'topc'; did you mean 'topic'?"),
    ("rig", "{lidr.points: /a}", "unknown sensor 'lidr.points'; did you mean lidar.points?; known: lidar.points, "),
    ("require", "[lidr.points]", "unknown sensor 'lidr.points'; known: lidar.points, "),
    ("rig", "{camera.left: {info: /x}}", "camera.left: expected a topic"),
    ("rig", "{gps.rear: /x}", "gps.rear: a sample has one gps"),
    ("rig", "{lidar.points.Rear: /x}", "lidar.points.Rear: 'Rear' cannot name an instance"),
    ("rig", "{lidar.points.info: {topic: /x}}", "lidar.points.info: 'info' cannot name an instance"),
    ("rig", "{lidar.points.rear: {tolerance: 0.1}}", "lidar.points.rear: expected a topic"),
    ("rig", "{lidar_points_rear: /x}", "unknown sensor 'lidar_points_rear'; did you mean lidar.points.rear?"),
    ("require", "[lidar.points.rear]", "unknown sensor 'lidar.points.rear'"),
    (
        "rig",
        "{lidar.points.rear: {topic: /x, tolerence: 0.1}}",
        "'rig.lidar.points.rear.tolerence'; did you mean 'tole",
    ),
    ("rig", "{camera.left: {topics: /x}}", "camera.left: unknown setting 'topics'; did you mean 'topic'?"),
    ("rig", "{camera: {left: {topic: /x, infos: /y}}}", "camera.left: unknown setting 'infos'; did you mean 'info'?"),
    ("rig", "{lidar.rear: /x}", "unknown sensor 'lidar.rear'; did you mean lidar.points.rear?"),
    ("rig", "{radar.left: /x}", "unknown sensor 'radar.left'; did you mean radar.targets.left?"),
    ("rig", "{radar.cub: /x}", "unknown sensor 'radar.cub'; did you mean radar.cube?"),
    ("rig", "{baseframe: x}", "unknown sensor 'baseframe'; known: base_frame"),
    ("rig", "{camera: {topik: /x}}", "camera: unknown setting 'topik'; did you mean 'topic'?"),
    ("rig", "{lidar.points: {offset: 61}}", "rig.lidar.points.offset: expected less than or equal to 60, got 61"),
    ("rig", "{lidar.points: {info: /x}}", "lidar.points: info is not for this sensor"),
    ("rig", "{pose: {topic: /odom, tf: [map, base_link]}}", "pose: topic and tf cannot be combined"),
    ("rig", "{camera: 3}", "got 3"),
    ("rig", "{camera: {topic: ''}}", "rig.camera.topic: expected text that is not empty, got ''"),
    ("rig", "{base_frame: ''}", "rig.base_frame: expected text that is not empty, got ''"),
    ("rig", "{pose: {tf: [map]}}", "rig.pose.tf.1: expected one more value, got ['map']"),
    ("rig", "{pose: {tf: [a, b, c]}}", "rig.pose.tf: expected at most 2 values, got ['a', 'b', 'c']"),
    ("rig", "{pose: {tf: map}}", "rig.pose.tf: expected a list, got 'map'"),
    ("rig", "{unused: 3}", "got 3"),
    ("rig", "none.yaml", "none.yaml: cannot be read"),
    ("rig", "'{a'", "rig: cannot be read as YAML"),
    ("time_base", "clock", "clock"),
    ("start", "-1", "at least 0, got -1"),
    ("start", "soon", "a UTC time such as 2026-01-15T12:00:05Z, got 'soon'"),
    ("start", "2026-01-15T12:00:05", "got '2026-01-15T12:00:05'"),
    ("start", ".nan", "nan"),
    ("start", "yes", "got true"),
    ("end", "2026-02-30T12:00:05Z", "got '2026-02-30T12:00:05Z'"),
    ("end", "[1]", "[1]"),
    ("end", "0", "end 0.0: no sample is between them"),
    ("rate", "0", "0"),
    ("rate", "-5", "-5"),
    ("rate", ".nan", "nan"),
    ("rate", ".inf", "inf"),
    ("rate", "1.0e+7", "10000000.0"),
    ("rate", "fast", "fast"),
    ("rate", "yes", "got true"),
    ("jpeg_quality", "on", "got true"),
    ("streams.radar.cube.tolerance", "no", "got false"),
    ("keyframes", "perhaps", "perhaps"),
    ("prefer", "radar", "radar"),
    ("prefer", "model", "set rate too"),
    ("require", "[radar.cubes]", "radar.cubes"),
    ("sensors", "[lidra]", "unknown sensor 'lidra'; known: lidar.depth, lidar.points, lidar.reflect,"),
    ("sensors", "camera", "expected a list of texts such as [A, B], got 'camera'"),
    ("streams", "{model: {}}", "unknown sensor 'model'"),
    ("require", "radar.cube", "expected a list of texts such as [A, B], got 'radar.cube'"),
    ("require", "[3]", "3"),
    ("tolerance", "-0.1", "-0.1"),
    ("tolerance", "61", "61"),
    ("tolerance", ".nan", "nan"),
    ("streams", "{radar.cubes: {}}", "radar.cubes"),
    ("streams.radar.cube.tolerance", "-1", "-1"),
    ("streams.radar.cube.offset", "61", "61"),
    ("streams.radar.cube.offset", "-61", "-61"),
    ("streams.radar.cube.offset", ".nan", "nan"),
    ("streams.radar.cube.reuse", "maybe", "maybe"),
    ("no_reuse", "often", "often"),
    ("lookahead", "0", "0"),
    ("lookahead", "11", "11"),
    ("lookahead", ".nan", "nan"),
    ("lookahead", ".inf", "inf"),
    ("max_gap", "-2", "-2"),
    ("heading_from_imu", "north", "north"),
    ("radar_points", "cube", "cube"),
    ("radar_fields", "all", "all"),
    ("pcd", "text", "text"),
    ("lidar_images", "2", "2"),
    ("camera_format", "webp", "webp"),
    ("decoder", "magic", "magic"),
    ("max_width", "0", "0"),
    ("max_width", "wide", "wide"),
    ("picture_hook", "privacy", "privacy"),
    ("picture_hook", "../privacy:blur", "../privacy:blur"),
    ("jpeg_quality", "0", "0"),
    ("jpeg_quality", "101", "101"),
    ("jpeg_quality", "90.5", "90.5"),
    ("schema_version", "'2027.01'", "2027.01"),
    ("schema_version", "2026.041", "2026.041"),
    ("layout", "tar", "expected one of zip, directory, got 'tar'"),
    ("split", "{train: 0.8, val: 0.1}", "0.8, 0.1"),
    ("split", "{train: 1.5, val: -0.5}", "1.5"),
    ("split", "{train: .nan, val: 1}", "nan"),
    ("split", "{train: 0, val: 1}", "train"),
    ("split", "{train: yes}", "split.train: expected a number, got true"),
    ("split", "{'../x': 1}", "../x"),
    ("split", "{'': 1}", "''"),
    ("split", "[train, val]", "expected a map or text such as train=0.8,val=0.2, got ['train'"),
    ("split_block", "0", "0"),
    ("split_block", ".nan", "nan"),
    ("split_block", ".inf", "inf"),
    ("split_gap", "-1", "-1"),
    ("split_gap", "5", "5"),
    ("split_gap", ".nan", "nan"),
    ("stable", "true", "stable needs split"),
    ("group", "{'../x': a*}", "../x"),
    ("group", "{test: [1]}", "1"),
    ("group", "[night*]", "expected a map or text such as test=night*, got ['night*'"),
    ("group", "night*", "GROUP=GLOB such as test=night*, got 'night*'"),
    ("model_topic", "7", "7"),
    ("min_score", "1.5", "1.5"),
    ("min_score", "-0.1", "-0.1"),
    ("min_score", ".nan", "nan"),
    ("label_map", "car", "car"),
    ("label_map", "{car: 7}", "7"),
    ("label_map", "[car]", "car"),
    ("masks", "2", "2"),
    ("polygons", "some", "some"),
    ("degradation", "high", "high"),
    ("jobs", "-1", "-1"),
    ("jobs", "257", "257"),
    ("jobs", "two", "expected a whole number at least 0, at most 256, got 'two'"),
    ("limits", "{picture_pixels: 0}", "0"),
    ("limits", "{picture_pixels: 268435457}", "268435457"),
    ("limits", "{chunk_bytes: 1048575}", "1048575"),
    ("limits", "{chunk_bytes: 2147483649}", "2147483649"),
    ("limits", "{cube_values: 1.5}", "1.5"),
    ("limits", "{cloud_points: -1}", "-1"),
    ("limits", "7", "expected `key: value` lines, got 7"),
]


def written(tmp_path, text, name="settings.yaml"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(("key", "value", "found"), BAD)
def test_a_bad_value_names_the_file_the_key_and_what_was_found(tmp_path, key, value, found):
    text = f"streams: {{radar.cube: {{{key.rpartition('.')[2]}: {value}}}}}" if "." in key else f"{key}: {value}"
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load(path)
    message = str(caught.value)
    assert str(path) in message
    assert key in message
    assert found in message.replace(str(path), "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["rate: 1\nlayout: zip\nrate: 2\n", "streams: {radar.cube: {offset: 1, offset: 2}}"])
def test_a_key_that_comes_twice_is_refused(tmp_path, text):
    with pytest.raises(UsageError, match=r"'(rate|offset)' comes twice"):
        load(written(tmp_path, text))


def test_names_of_labels_may_be_text():
    named = {"car": "vehicle", "a tree": ""}
    assert load(None, label_map="car=vehicle, a tree=,").label_map == load(None, label_map=named).label_map == named


def test_every_setting_has_a_bad_value_above():
    top = {key.partition(".")[0] for key, _, _ in BAD}
    assert top == set(Settings.model_fields)


@pytest.mark.parametrize(
    ("text", "unknown", "near"),
    [
        ("tolerence: 1", "tolerence", "tolerance"),
        ("jpg_quality: 80", "jpg_quality", "jpeg_quality"),
        ("Rate: 5", "Rate", "rate"),
        ("streams: {radar.cube: {ofset: 1}}", "streams.radar.cube.ofset", "offset"),
        ("xyzzy: 1", "xyzzy", None),
        ("__class__: 1", "__class__", None),
        ("self: 1", "self", None),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(tmp_path, text, unknown, near):
    with pytest.raises(UsageError, match="unknown setting") as caught:
        load(written(tmp_path, text))
    assert repr(unknown) in str(caught.value)
    assert near is None or f"did you mean {near!r}" in str(caught.value)


def test_all_faults_are_told_at_once(tmp_path):
    with pytest.raises(UsageError) as caught:
        load(written(tmp_path, "rate: -1\njobs: -1\nfoo: 1"))
    assert len(str(caught.value).splitlines()) == 3


def test_rate_replaces_keyframes_and_a_note_says_so():
    both = load(None, rate=5, keyframes=True)
    assert (both.keyframes_only, Settings(keyframes=True).keyframes_only) == (False, True)
    assert both.doubts == ["rate is 5: it replaces keyframes"]
    assert not load(None, rate=5).doubts


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"require": ["radar.clusters"]}, "radar_points to clusters"),
        ({"rig": {"radar.clusters": "/x"}}, "radar_points to clusters"),
        ({"require": ["radar.targets"], "radar_points": "clusters"}, "radar_points to targets"),
    ],
)
def test_settings_that_exclude_each_other(options, words):
    with pytest.raises(UsageError, match=words):
        load(None, **options)


PLAIN = "tolerance: 0.25\nrequire: [radar.cube]\nstreams:\n  radar.cube: {offset: -0.01, reuse: false}\n"


def indented(text, by):
    return "".join(" " * by + line + "\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "\ufeff" + PLAIN,
        "ros__parameters:\n" + indented(PLAIN, 2),
        "/**:\n  ros__parameters:\n" + indented(PLAIN, 4),
        "edgefirst_capture:\n  ros__parameters:\n" + indented(PLAIN, 4),
        "/maivin/capture:\n  ros__parameters:\n" + indented(PLAIN, 4),
    ],
)
def test_plain_files_and_those_of_ros_parameters_are_the_same(tmp_path, text):
    settings = load(written(tmp_path, text))
    assert settings.tolerance == 0.25
    assert settings.require == ("radar.cube",)
    assert settings.stream("radar.cube") == (250_000_000, -10_000_000, False)
    assert settings.stream("lidar.points") == (250_000_000, 0, True)


@pytest.mark.parametrize("text", ["", "# nothing\n", "/**:\n  ros__parameters:\n", "{}", "---\n"])
def test_an_empty_file_leaves_the_defaults(tmp_path, text):
    assert load(written(tmp_path, text)) == Settings()


def test_the_defaults_are_those_of_the_contract():
    settings = Settings()
    assert settings.stream("radar.cube") == (100_000_000, 0, True)
    assert (settings.lookahead, settings.max_gap, settings.jpeg_quality) == (1.0, 2.0, 90)
    assert (settings.time_base, settings.radar_points, settings.schema_version) == ("auto", "targets", "2026.04")
    assert settings.exact_rate is None


def test_flags_go_before_the_file_and_none_is_no_flag(tmp_path):
    path = written(tmp_path, "tolerance: 0.5\nrate: 5\nkeyframes: false\n")
    settings = load(path, tolerance=0.2, rate=None, jpeg_quality=75, keyframes=False)
    assert (settings.tolerance, settings.rate, settings.jpeg_quality) == (0.2, 5.0, 75)


def test_a_version_without_quotes_is_no_number(tmp_path):
    for version in ("2025.10", "2026.04", "2026.10"):
        assert load(written(tmp_path, f"schema_version: {version}")).schema_version == version


def test_numbers_are_those_the_user_wrote():
    assert load(None, rate=29.97).exact_rate == Fraction(2997, 100)
    assert load(None, rate=0.1).exact_rate == Fraction(1, 10)
    assert [to_ns(s) for s in (0.1, 1e-9, 0.3, 60.0, -0.7)] == [
        100_000_000,
        1,
        300_000_000,
        6 * 10**10,
        -7 * 10**8,
    ]


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(ValueError, match="frozen"):
        Settings().rate = 3


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(n + 1)}: &{chr(n + 1)} [{', '.join(['*' + chr(n)] * 9)}]\n" for n in range(ord("a"), ord("l"))
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        BOMB + "split: *l\n",
        BOMB + "rate: *l\n",
        "rate: &a [*a]",
        "&a {/x: *a}",
        "&a {/x: {ros__parameters: *a}}",
        "&a {ros__parameters: *a}",
        "!!python/object/apply:os.system ['true']",
        "rate: !!python/name:os.system",
        "rate: !<x> 1",
        "rate: !!timestamp abc",
        "rate: !!int ''",
        "rate: !!int abc",
        "rate: !!bool x",
        "rate: !!float x",
        "rate: 2026-13-45",
        "rate: 2001-12-14t21:59:43.10+99:99",
        "rate: " + "9" * 10_000,
        "? [1, 2]\n: 3",
        "1: 2",
        "- rate",
        "rate",
        "42",
        "a: b: c",
        "rate: [",
        "[" * 100_000,
        "{a: " * 5_000,
        "rate: 1\n--- \nrate: 2",
        "\x00",
        "rate: '\x07'",
        b"\xff\xfe\x00\x01",
        b"\x80rate: 1",
        bytes(range(256)),
        "x" * (1 << 20) + ": 1",
        "k: " + "x" * (1 << 20),
        "x" * ((1 << 20) - 10) + ": 1",
        "time_base: " + "x" * ((1 << 20) - 20),
    ],
)
def test_a_hostile_file_is_refused_shortly(tmp_path, text):
    with pytest.raises(UsageError) as caught:
        load(written(tmp_path, text))
    assert len(str(caught.value)) < 3000


def test_what_is_no_file_is_refused(tmp_path):
    for wrong in (tmp_path, tmp_path / "none.yaml", tmp_path / "a\0b"):
        with pytest.raises(UsageError, match="cannot be read"):
            load(wrong)


def test_a_pipe_a_device_and_a_socket_are_no_files(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    for wrong in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/zero"), tmp_path):
        with pytest.raises(UsageError, match=rf"^{wrong}: cannot be read: "):
            load(wrong)
    with pytest.raises(UsageError, match="pipe: cannot be read: is not a regular file"):
        load(tmp_path / "pipe")


ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise("abcdefghij")
)
MERGES = "m0: &m0 {x: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}]}}\n" for n in range(1, 20))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rate: " + "9" * 5000, "a number of 5000 characters"),
        ("rate: 0x" + "f" * 100_000, "a number of 100002 characters"),
        ("rate: 1" + ":59" * 30_000, "a number of 90001 characters"),
        ("rate: 1" + ":59" * 30_000 + ".5", "too large"),
        (ALIASES + "require: *j", "over 10000 values"),
        (MERGES, "over 10000 values"),
        ("a: &a [*a]", "an alias is inside of the value that it names"),
        ("<<: &a {<<: *a}", "an alias is inside of the value that it names"),
        ("".join(f"key{n}: 1\n" for n in range(9_000)), "over 10000 values"),
        ("".join(f"key{n}: 1\n" for n in range(95_000)), "more than 131072 bytes"),
        ("".join(f"key{n}: 1\n" for n in range(500)), "and 480 more"),
        ('"\\ud800": 1', "half a surrogate pair"),
        ('require: ["\\udfff"]', "half a surrogate pair"),
    ],
)
def test_what_is_large_only_when_it_is_read_is_refused_in_few_lines(tmp_path, text, says):
    with pytest.raises(UsageError) as caught:
        load(written(tmp_path, text))
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) < 25


# ---- one file for capture and conversion -------------------------------------------------------
ROOT = Path(__file__).resolve().parents[1]
MAIVIN = ROOT / "config" / "maivin.yaml"
"""The file of the capture: everything at its default but `keyframes`."""


def test_the_file_of_a_capture_serves_a_conversion():
    notes = []
    assert load(MAIVIN, note=notes.append) == Settings(keyframes=True)
    names = ", ".join(LiveSettings.model_fields)
    assert notes == [f"{MAIVIN}: only for a capture, ignored here: {names}"]


def test_settings_of_a_capture_are_ignored_in_a_plain_file_too(tmp_path):
    notes = []
    path = written(tmp_path, "rate: 5\nflush_interval: 2.0\npretrigger: soon\n")
    assert load(path, note=notes.append) == Settings(rate=5)
    assert notes == [f"{path}: only for a capture, ignored here: flush_interval, pretrigger"]
    assert load(written(tmp_path, "rate: 5"), note=notes.append) == Settings(rate=5)
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("flush_intervall: 1.0", "unknown setting 'flush_intervall'; did you mean 'flush_interval'?"),
        ("overwrite: true", "unknown setting 'overwrite'"),
        ("streams: {radar: {cube: {ofset: 1.0}}}", "'streams.radar.cube.ofset'; did you mean 'offset'?"),
        ("streams: {sonar: {}}", "unknown sensor 'sonar'"),
        ("streams: 7", "streams: expected `key: value` lines, got 7"),
        ("streams.radar: {cube: 7}", "streams.radar.cube: expected `key: value` lines, got 7"),
        ("limits: {chunk_bytes: 1}", "limits.chunk_bytes: expected a whole number at least 1048576"),
    ],
)
def test_what_no_node_has_stays_an_error_in_a_file_of_ros(tmp_path, line, says):
    path = written(tmp_path, "/**:\n  ros__parameters:\n    depth: 100\n    " + line + "\n")
    with pytest.raises(UsageError, match=r"settings\.yaml: ") as caught:
        load(path)
    assert says in str(caught.value)


def test_values_as_ros_writes_them(tmp_path):
    text = """
streams.radar.cube.offset: -0.02
streams: {radar: {cube: {tolerance: 0.05}, targets: {tolerance: -1.0, reuse: false}}}
limits: {cloud_points: 99}
label_map: "car=vehicle,tree="
require: ["", "radar.cube"]
rate: 2.5
gps_topic: ""
model_topic: "model/boxes2d"
"""
    settings = load(written(tmp_path, "/**:\n  ros__parameters:\n" + indented(text, 4)))
    streams = {"radar.cube": {"offset": -0.02, "tolerance": 0.05}, "radar.targets": {"reuse": False}}
    expected = {"streams": streams, "limits": {"cloud_points": 99}, "rate": 2.5, "model_topic": "model/boxes2d"}
    assert settings == Settings(**expected, label_map={"car": "vehicle", "tree": ""}, require=("radar.cube",))


# ---- rigs --------------------------------------------------------------------------------------
RIG = """
camera: /front/image
lidar.points: {topic: /rear/points, tolerance: 0.06, offset: -0.012}
base_frame: base_link
unused: /debug/*
"""


@pytest.mark.parametrize("of_ros", [False, True])
def test_a_rig_may_lie_beside_the_settings_file_that_names_it(tmp_path, monkeypatch, of_ros):
    """A capture starts in another folder: as a service in /. The folder where it starts comes first."""
    (tmp_path / "rigs").mkdir()
    written(tmp_path / "rigs", RIG, "mine.yaml")
    line = 'rig: "rigs/mine.yaml"\n'
    path = written(tmp_path, "/**:\n  ros__parameters:\n    " + line if of_ros else line)
    (tmp_path / "cwd" / "rigs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "cwd")
    assert load(path).rig.sensors["camera"].topic == "/front/image"
    written(tmp_path / "cwd" / "rigs", "camera: /other\n", "mine.yaml")
    assert load(path).rig.sensors["camera"].topic == "/other"


@pytest.mark.parametrize("form", ["map", "nested", "file", "text", "ros"])
def test_a_rig_is_a_map_a_file_or_text(tmp_path, form):
    rig = written(tmp_path, RIG, "rig.yaml")
    nested = RIG.replace("lidar.points: {", "lidar: {points: {").replace("-0.012}", "-0.012}}")
    forms = {
        "map": "rig:\n" + indented(RIG, 2),
        "nested": "rig:\n" + indented(nested, 2),
        "file": f"rig: {rig}\n",
        "text": "rig: '{camera: /front/image, base_frame: base_link, unused: [/debug/*],"
        " lidar.points: {topic: /rear/points, tolerance: 0.06, offset: -0.012}}'\n",
        "ros": "/**:\n  ros__parameters:\n    rig:\n" + indented(nested, 6),
    }
    settings = load(written(tmp_path, forms[form]))
    assert settings.sensor("camera").topic == "/front/image"
    assert settings.stream("lidar.points") == (60_000_000, -12_000_000, True)
    assert [settings.is_left_alone(topic) for topic in ("/debug/a", "/front/debug")] == [True, False]
    assert load(None, rig=settings.model_dump(mode="json")["rig"]) == settings


def test_a_topic_is_given_by_the_rig_or_its_short_form():
    assert load(None, lidar_topic="/a").sensor("lidar.points").topic == "/a"
    for short, key in [("gps_topic", "gps"), ("radar_topic", "radar.targets"), ("reference_topic", "camera")]:
        with pytest.raises(UsageError, match=f"{short} and {key} of the rig cannot be combined"):
            load(None, **{short: "/a"}, rig={key: "/b"})
    with pytest.raises(UsageError, match=r"streams\.lidar\.points and lidar\.points of the rig cannot"):
        load(None, streams={"lidar.points": {}}, rig={"lidar.points": {"offset": 1}})


# ---- settings as text --------------------------------------------------------------------------
TEXTS = {
    "rate": ("2.5", 2.5),
    "masks": ("false", False),
    "jpeg_quality": ("75", 75),
    "gps_topic": ("gps/fix", "gps/fix"),
    "require": ("radar.cube, lidar.points", ("radar.cube", "lidar.points")),
    "split": ("train=0.5,val=0.5", {"train": 0.5, "val": 0.5}),
    "group": ("test=night*, test=rain*,val=sun", {"test": ("night*", "rain*"), "val": "sun"}),
    "label_map": ("car=vehicle,tree=", {"car": "vehicle", "tree": ""}),
    "schema_version": ("2026.10", "2026.10"),
}


def test_settings_given_as_text():
    texts = {name: text for name, (text, _) in TEXTS.items()}
    assert load(None, texts=texts) == Settings(**{name: value for name, (_, value) in TEXTS.items()})


def test_single_settings_of_a_sensor_go_on_top_of_those_of_a_file(tmp_path):
    path = written(
        tmp_path, "rate: 5\nstreams: {lidar.points: {offset: 0.01, tolerance: 0.2}}\nlimits: {cube_values: 9}"
    )
    texts = {"streams.lidar.points.tolerance": "0.06", "streams.radar.cube.reuse": "no", "limits.cloud_points": "7"}
    settings = load(path, texts=texts | {"rate": ""})
    assert settings.stream("lidar.points") == (60_000_000, 10_000_000, True)
    assert settings.stream("radar.cube") == (100_000_000, 0, False)
    assert (settings.limits.cube_values, settings.limits.cloud_points, settings.rate) == (9, 7, None)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"tolerence": "1"}, "--set: unknown setting 'tolerence'; did you mean 'tolerance'?"),
        ({"streams.lidar.points.tolerence": "1"}, "did you mean 'streams.lidar.points.tolerance'?"),
        ({"limits.x": "1"}, "--set: unknown setting 'limits.x'"),
        (
            {"rig.camera": "/x"},
            "--set: unknown setting 'rig.camera'; write it as a line of a rig: rig: {camera: /TOPIC}",
        ),
        ({"lidar.points": "/x"}, "unknown setting 'lidar.points'; write it as a line of a rig: rig: {lidar.points: "),
        ({"flush_interval": "1"}, "--set: unknown setting 'flush_interval'"),
        ({"tolerance": "soon"}, "--tolerance: expected a number at least 0, at most 60 s, got 'soon'"),
        ({"streams.radar.cube.offset": "61"}, "--set streams.radar.cube.offset: expected a number at least -60"),
        ({"masks": "perhaps"}, "--set masks: expected true or false, got 'perhaps'"),
    ],
)
def test_what_is_wrong_with_text_is_said_of_the_options(tmp_path, texts, says):
    with pytest.raises(UsageError) as caught:
        load(written(tmp_path, "rate: 5"), texts=texts)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2.5", 3_500_000_000),
        ("2026-01-15T12:00:05.123456789Z", 1_768_478_405_123_456_789),
        ("2026-01-15 12:00Z", 1_768_478_400_000_000_000),
        ("1:30", 91_000_000_000),  # as YAML has minutes
    ],
)
def test_times_of_a_file_are_exact(tmp_path, text, stamp):
    """`date -d 2026-01-15T12:00Z +%s` says 1768478400."""
    path = tmp_path / "settings.yaml"
    path.write_text(f"start: {text}\n")
    assert load(path).span_of(1_000_000_000)[0] == stamp


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"start": 5, "end": 5}, "start is 5.0 and end 5.0: no sample is between them"),
        ({"start": "2026-01-15T12:00:05Z", "end": "2026-01-15T12:00:04Z"}, "no sample is between"),
        ({"sensors": ["radar.clusters"]}, "set radar_points to clusters"),
        ({"end": 0}, "start is 0.0 and end 0.0"),
        ({"sensors": ["camera"], "require": ["radar.cube"]}, "radar.cube is required and not among the sensors"),
        ({"sensors": ["lidar.points"], "keyframes": True}, "keyframes needs camera among the sensors"),
    ],
)
def test_a_cut_that_leaves_nothing_is_refused(options, what):
    with pytest.raises(UsageError, match=what):
        load(None, **options)
