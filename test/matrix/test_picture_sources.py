# SPDX-License-Identifier: Apache-2.0
"""Every picture source with every option: each gives what arithmetic, PyAV, Pillow and OpenCV say it must.

One drive of 24 pictures, 10 a second, a keyframe each 12, is recorded by every source. Tiles are the quarters of the
same pictures. A new source is one line of `SOURCES`.
"""

from __future__ import annotations

import functools
import io
import json
import textwrap
from dataclasses import dataclass
from fractions import Fraction

import av
import cv2
import numpy as np
import polars as pl
import pytest
from edgefirst.schemas import builtin_interfaces, edgefirst_msgs, foxglove_msgs, sensor_msgs, std_msgs
from live_system import System
from mcap.writer import CompressionType, Writer
from PIL import Image
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from same_dataset import adds_up, assert_same_dataset, members

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.app import app
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.errors import UsageError
from edgefirst_ros.pipeline.capture_session import CaptureSession
from edgefirst_ros.sensors.pictures import find_codec
from edgefirst_ros.sources.live import Settling

FRAMES, GOP, FPS = 24, 12, 10
START, STEP = 1_700_000_000_000_000_000, 100_000_000
SMALL, LARGE = (64, 48), (96, 64)
"""Width and height of the pictures, and of those behind a change of size."""
LABEL, BOX = "car", (0.5, 0.5, 0.5, 0.5)
MODEL_EVERY = 3
X264 = f"keyint={GOP}:min-keyint={GOP}:scenecut=0:threads=1:qp=18:"
X265 = f"{X264}pools=none:frame-threads=1:wpp=0:info=0:log-level=none:".replace("threads=1:", "", 1)
B_FRAMES = "bframes=2:b-adapt=0:open-gop=0"
PACKET = """std_msgs/Header header
int32 width
int32 height
string encoding
uint64 pts
uint8 flags
bool is_bigendian
uint8[] data"""
types = get_typestore(Stores.ROS2_JAZZY)
types.register(get_types_from_msg(PACKET, "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"))
VIDEO, IMAGE = "foxglove_msgs/msg/CompressedVideo", "sensor_msgs/msg/Image"
COMPRESSED = "sensor_msgs/msg/CompressedImage"
FFMPEG = "ffmpeg_image_transport_msgs/msg/FFMPEGPacket"


# ---- drives ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Source:
    """A way to record pictures."""

    form: str
    """`format` or `encoding` of its messages."""
    schema: str
    topics: tuple[str, ...]
    settings: str = ""
    """Of the encoder of video."""

    @property
    def depends(self) -> bool:
        """True if a picture needs those before it, back to a keyframe."""
        return bool(self.settings)

    @property
    def codec(self) -> str:
        """h264 or hevc, as FFmpeg names it."""
        return "h264" if "264" in self.form else "hevc"

    @property
    def passes(self) -> bool:
        """True if pictures that stay as they are keep their bytes."""
        return self.schema == COMPRESSED and not self.depends


SOURCES = {
    "jpeg": Source("jpeg", COMPRESSED, ("camera/jpeg",)),
    "png": Source("png", COMPRESSED, ("camera/jpeg",)),
    "raw": Source("rgb8", IMAGE, ("camera/image",)),
    "h264": Source("h264", VIDEO, ("camera/h264",), f"{X264}bframes=0"),
    "h265": Source("h265", VIDEO, ("camera/h265",), f"{X265}bframes=0"),
    "h264-b": Source("h264", VIDEO, ("camera/h264",), f"{X264}{B_FRAMES}"),
    "h265-b": Source("h265", VIDEO, ("camera/h265",), f"{X265}{B_FRAMES}"),
    "h264-compressed": Source("h264", COMPRESSED, ("camera/h264",), f"{X264}bframes=0"),
    "h265-ffmpeg": Source("hevc_nvenc;yuv420p;bgr8;bgr8", FFMPEG, ("camera/h265",), f"{X265}{B_FRAMES}"),
    "tiles": Source("h264", VIDEO, tuple(f"camera/h264/{tile}" for tile in ("tl", "tr", "bl", "br")),
                    f"{X264}bframes=0"),
    "tiles-b": Source("h264", VIDEO, tuple(f"camera/h264/{tile}" for tile in ("tl", "tr", "bl", "br")),
                      f"{X264}{B_FRAMES}"),
}  # fmt: skip


def painted(index, size):
    """Picture `index`, (height, width, 3) uint8 RGB: a ground of its own that no other picture has."""
    rng = np.random.default_rng(index)
    width, height = size
    cells = rng.integers(60, 200, (height // 8 + 2, width // 8 + 2, 3)).astype(np.uint8)
    return cv2.resize(cells, size, interpolation=cv2.INTER_CUBIC)


@functools.cache
def pictures(resize):
    return [painted(n, LARGE if resize and n >= GOP else SMALL) for n in range(FRAMES)]


def quarters(picture):
    height, width = picture.shape[0] // 2, picture.shape[1] // 2
    return [picture[y : y + height, x : x + width] for y in (0, height) for x in (0, width)]


def coded(source, series):
    """[(index, access unit)] of pictures of one size, in decode order."""
    encoder = av.CodecContext.create("libx264" if source.codec == "h264" else "libx265", "w")
    encoder.height, encoder.width = series[0].shape[:2]
    encoder.pix_fmt, encoder.thread_count = "yuv420p", 1
    encoder.time_base, encoder.framerate = Fraction(1, FPS), Fraction(FPS)
    encoder.options = {"preset": "ultrafast", f"x{source.codec.replace('hevc', 'h265')[1:]}-params": source.settings}
    packets = []
    for index, picture in enumerate(series):
        frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")
        frame.pts = index
        packets += encoder.encode(frame)
    return [(packet.pts, bytes(packet)) for packet in [*packets, *encoder.encode(None)]]


def still(source, picture):
    if source.schema == IMAGE:
        return picture.tobytes()
    file = io.BytesIO()
    Image.fromarray(picture).save(file, source.form.upper(), **({"quality": 95} if source.form == "jpeg" else {}))
    return file.getvalue()


@functools.cache
def streams(name, resize=False):
    """For each topic of a source [(index, data)] in the order of its messages."""
    source, series = SOURCES[name], pictures(resize)
    if not source.depends:
        return [[(index, still(source, picture)) for index, picture in enumerate(series)]]
    tiled = len(source.topics) > 1
    parts = list(zip(*map(quarters, series), strict=True)) if tiled else [series]
    found = []
    for part in parts:
        begun = [(0, part)] if not resize else [(0, part[:GOP]), (GOP, part[GOP:])]
        found.append([(first + index, data) for first, run in begun for index, data in coded(source, run)])
    return found


def decoded(codec, units):
    """{index: RGB} as PyAV decodes [(index, data)]."""
    decoder, found = av.CodecContext.create(codec, "r"), {}
    decoder.thread_count = 1
    for index, data in [*units, (None, None)]:
        packet = None
        if data is not None:
            packet = av.Packet(data)
            packet.pts = index
        found |= {frame.pts: frame.to_ndarray(format="rgb24") for frame in decoder.decode(packet)}
    return found


@functools.cache
def true(name, resize=False):
    """What each picture of a source shows, by index, as PyAV or Pillow decodes it."""
    source = SOURCES[name]
    if not source.depends:
        return pictures(resize) if source.schema == IMAGE else [
            np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for _, data in streams(name, resize)[0]
        ]  # fmt: skip
    parts = []
    for units in streams(name, resize):
        runs = [[u for u in units if (u[0] < GOP) == first] for first in (True, False)] if resize else [units]
        parts.append(functools.reduce(lambda a, b: a | b, (decoded(source.codec, run) for run in runs)))
    if len(parts) == 1:
        return [parts[0][n] for n in range(FRAMES)]
    joined = ([part[n] for part in parts] for n in range(FRAMES))
    return [np.vstack([np.hstack(pair) for pair in ((a, b), (c, d))]) for a, b, c, d in joined]


def time_of(stamp):
    return builtin_interfaces.Time(*divmod(stamp, 10**9))


def message(source, data, stamp, size, frame_id):
    if source.schema == VIDEO:
        return foxglove_msgs.CompressedVideo(time_of(stamp), frame_id, data, source.form).to_bytes()
    if source.schema == FFMPEG:
        return ffmpeg_packet(stamp, frame_id, size, source.form, data)
    head, array = std_msgs.Header(time_of(stamp), frame_id), np.frombuffer(data, np.uint8)
    if source.schema == COMPRESSED:
        return sensor_msgs.CompressedImage(head, source.form, array).to_bytes()
    return sensor_msgs.Image(head, size[1], size[0], source.form, 0, 3 * size[0], array).to_bytes()


def ffmpeg_packet(stamp, frame_id, size, encoding, data):
    """CDR of FFMPEGPacket.msg, by rosbags from the package's text."""
    kind = types.types["ffmpeg_image_transport_msgs/msg/FFMPEGPacket"]
    header = types.types["std_msgs/msg/Header"](
        types.types["builtin_interfaces/msg/Time"](*divmod(stamp, 10**9)), frame_id
    )
    packet = kind(header, *size, encoding, 7, 1, False, np.frombuffer(data, np.uint8))
    return bytes(types.serialize_cdr(packet, kind.__msgtype__))


def info_of(stamp, frame_id, focal, size=SMALL):
    width, height = size
    k = [focal, 0, width / 2, 0, focal, height / 2, 0, 0, 1]
    p = [focal, 0, width / 2, 0, 0, focal, height / 2, 0, 0, 0, 1, 0]
    head = std_msgs.Header(time_of(stamp), frame_id)
    return sensor_msgs.CameraInfo(head, height, width, "plumb_bob", [0.0] * 5, k, [1.0, 0, 0, 0, 1, 0, 0, 0, 1], p
                                  ).to_bytes()  # fmt: skip


def result_of(stamp):
    """A box with a mask of 4 x 4 cells, the left half of which is object."""
    head, zero = std_msgs.Header(time_of(stamp), ""), builtin_interfaces.Duration(0, 0)
    box = edgefirst_msgs.Box(*BOX, LABEL, 0.9, 0.0, 0.0, "", 0, time_of(0))
    mask = edgefirst_msgs.MaskBox(4, 4, 1, "", bytes([255, 255, 0, 0] * 4), boxed=True)
    return edgefirst_msgs.Model(head, zero, zero, zero, zero, [box], [mask]).to_bytes()


def sent(
    name,
    prefix="/",
    *,
    frame_id="camera",
    resize=False,
    cut=(),
    missing=(),
    focal=50.0,
    results=True,
    infos=None,
    begin=START,
):
    """[(topic, type, log_time, sequence, data)] of a source, its camera/info and model/output.

    `cut`: numbers of messages that lose their second half, `missing`: those that are not recorded; of the last tile.
    `infos`: another prefix of camera/info. `begin`: stamp of the first picture.
    """
    source, found = SOURCES[name], []
    for tile, (topic, units) in enumerate(zip(source.topics, streams(name, resize), strict=True)):
        last = tile == len(source.topics) - 1
        for number, (index, unit) in enumerate(units):
            if last and number in missing:
                continue
            stamp = begin + index * STEP
            data = unit[: len(unit) // 2] if last and number in cut else unit
            size = LARGE if resize and index >= GOP else SMALL
            coming = begin + number * STEP + tile * 1000
            found.append(
                (f"{prefix}{topic}", source.schema, coming, number, message(source, data, stamp, size, frame_id))
            )
    for n in range(FRAMES):
        stamp = begin + n * STEP
        found.append((f"{infos or prefix}camera/info", "sensor_msgs/msg/CameraInfo", stamp + 5000, n,
                      info_of(stamp, frame_id, focal)))  # fmt: skip
        if results and n % MODEL_EVERY == 0:
            data = result_of(stamp)
            found.append((f"{prefix}model/output", "edgefirst_msgs/msg/Model", stamp + 6000, n // MODEL_EVERY, data))
    return sorted(found, key=lambda one: one[2])


def write(path, messages):
    with path.open("wb") as file:
        writer = Writer(file, compression=CompressionType.NONE)
        writer.start(profile="", library="test")
        schemas, channels = {}, {}
        for topic, schema, log_time, number, data in messages:
            if schema not in schemas:
                schemas[schema] = writer.register_schema(schema, "ros2msg", b"uint8 x")
            if topic not in channels:
                channels[topic] = writer.register_channel(topic, "cdr", schemas[schema])
            writer.add_message(channels[topic], log_time, bytes(data), log_time, number)
        writer.finish()
    return path


@pytest.fixture
def drive(tmp_path):
    """Function that records a source and gives the path."""
    return lambda name, **options: write(tmp_path / "drive.mcap", sent(name, **options))


# ---- what is expected --------------------------------------------------------------------------
def index_of(stamp):
    return (stamp - START) // STEP


def samples_of(outcome):
    """{index of the picture: (sample, kind, bytes of its picture)}."""
    found = {}
    for sample in Dataset(outcome.paths.container).samples():
        data = sample.read("camera")
        found[index_of(sample.timestamp)] = sample, Image.open(io.BytesIO(data)).format.lower(), data
    return found


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def luma(rgb):
    return cv2.cvtColor(np.ascontiguousarray(rgb), cv2.COLOR_RGB2GRAY).astype(np.float32)


def assert_all_show(outcome, name, indices, expected=None, most=4.0):
    """The samples are those of `indices`, each with its own picture, and every message is counted.

    A picture is its own if it differs by at most `most` of 255 on average, and from each other one by more.
    """
    found, lumas = samples_of(outcome), [luma(picture) for picture in expected or true(name)]
    assert sorted(found) == sorted(indices)
    for index, (sample, _, data) in found.items():
        shown = luma(pixels(data))
        off = [np.abs(shown - other).mean() if shown.shape == other.shape else 255 for other in lumas]
        assert int(np.argmin(off)) == index
        assert off[index] < most
        assert list(sample.row["size"]) == list(shown.shape[::-1])
    counts = {topic: count for topic, count in outcome.counts.plain().items() if "/camera/" in topic}
    assert all(adds_up(count) for topic, count in counts.items() if not topic.endswith("info"))
    return found


every_source = pytest.mark.parametrize("name", SOURCES)
each_kind = pytest.mark.parametrize("name", ["jpeg", "raw", "h265", "h264-b", "tiles-b"])
"""A still that passes, one that is coded, video without and with pictures out of order, and tiles of it."""


# ---- the matrix --------------------------------------------------------------------------------
@every_source
@pytest.mark.parametrize("jobs", [1, 4])
def test_every_picture_is_that_of_its_message(drive, tmp_path, name, jobs):
    outcome = convert(drive(name), tmp_path / "out", jobs=jobs)
    assert outcome.exit_code == 0
    found = assert_all_show(outcome, name, range(FRAMES))
    for index, (sample, kind, data) in found.items():
        assert kind == ("png" if name == "png" else "jpeg")
        assert sample.row["keyframe"] == (index % GOP == 0 or not SOURCES[name].depends)
        if SOURCES[name].passes and kind == "png":
            assert np.array_equal(pixels(data), true(name)[index])


@every_source
def test_png_keeps_every_pixel_that_the_source_has(drive, tmp_path, name):
    outcome = convert(drive(name), tmp_path / "out", camera_format="png")
    found = assert_all_show(outcome, name, range(FRAMES), most=2.0)
    assert {kind for _, kind, _ in found.values()} == {"jpeg" if name == "jpeg" else "png"}
    if name in ("png", "raw"):
        assert all(np.array_equal(pixels(data), true(name)[index]) for index, (_, _, data) in found.items())


HOOK = """
    __version__ = "1"
    def blacken(picture):
        assert picture.shape == {shape} and picture.dtype == "uint8" and picture.flags.writeable
        picture[: len(picture) // 2] = 0
        return picture
    """

FAILS = """
    seen = []
    def blacken(picture):
        seen.append(0)
        if len(seen) == 2:
            raise RuntimeError("no model")
        return picture
    """


@pytest.fixture
def hook(tmp_path, monkeypatch):
    """Function that writes a hook for pictures of some shape; it blackens their upper half."""
    monkeypatch.syspath_prepend(tmp_path)

    def write_hook(width, height, body=HOOK):
        name = f"hook_{abs(hash(tmp_path))}_{width}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(body.format(shape=(height, width, 3))))
        return f"{name}:blacken"

    return write_hook


@each_kind
@pytest.mark.parametrize(("options", "size"), [({"max_width": 32}, (32, 24)), ({"jobs": 1}, SMALL),
                                               ({"rate": 10.0, "camera_format": "png"}, SMALL)])  # fmt: skip
def test_a_hook_gets_every_picture_whole_and_scaled(drive, tmp_path, hook, name, options, size):
    outcome = convert(drive(name), tmp_path / "out", picture_hook=hook(*size), **options)
    expected = [cv2.resize(picture, size, interpolation=cv2.INTER_AREA) for picture in true(name)]
    for picture in expected:
        picture[: size[1] // 2] = 0
    found = assert_all_show(outcome, name, range(FRAMES), expected)
    for _, _, data in found.values():
        assert pixels(data)[: size[1] // 2 - 8].max() < 24
    assert Dataset(outcome.paths.container).metadata["configuration"]["picture_hook_version"] == "1"


@each_kind
def test_a_hook_that_fails_loses_its_pictures_only(drive, tmp_path, hook, name):
    outcome = convert(drive(name), tmp_path / "out", keyframes=True, picture_hook=hook(*SMALL, FAILS))
    assert outcome.exit_code == 3
    assert outcome.samples == sum(n % GOP == 0 or not SOURCES[name].depends for n in range(FRAMES)) - 1
    (count,) = (c for topic, c in outcome.counts.plain().items() if c["dropped"].get("picture_hook failed"))
    assert count["dropped"]["picture_hook failed"] == 1


@each_kind
@pytest.mark.parametrize("form", ["jpeg", "png"])
def test_max_width_scales_pictures_sizes_masks_and_intrinsics(drive, tmp_path, name, form):
    outcome = convert(drive(name), tmp_path / "out", max_width=32, camera_format=form)
    expected = [cv2.resize(picture, (32, 24), interpolation=cv2.INTER_AREA) for picture in true(name)]
    assert_all_show(outcome, name, range(FRAMES), expected)
    frames, rows = pl.read_ipc(outcome.paths.frames), pl.read_ipc(outcome.paths.arrow)
    assert {tuple(size) for size in frames["size"].to_list()} == {(32, 24)}
    assert {tuple(size) for size in rows["size"].to_list()} == {(32, 24)}
    masks = [mask for mask in rows["mask"].to_list() if mask is not None]
    assert len(masks) == FRAMES // MODEL_EVERY
    for mask in masks:
        drawn = np.zeros((24, 32), bool)
        drawn[6:18, 8:16] = True  # the left half of a box from 1/4 to 3/4
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(mask)), bool), drawn)
    info = Dataset(outcome.paths.container).metadata["camera_info"]
    assert (info["width"], info["height"], info["k"]) == (32, 24, [25, 0, 16, 0, 25, 12, 0, 0, 1])
    assert (info["p"], info["r"]) == ([25, 0, 16, 0, 0, 25, 12, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 0, 0, 0, 1])


@each_kind
@pytest.mark.parametrize(
    ("options", "indices"),
    [
        ({"start": 0.5, "end": 1.2}, range(5, 12)),
        ({"start": 1.5, "end": 2.0}, range(15, 20)),
        ({"end": 0.4}, range(4)),
        ({"rate": 2.5, "start": 0.5}, [5, 8, 12, 16, 20]),
        ({"rate": 2.5, "prefer": "model"}, [0, 6, 9, 12, 18, 21]),
        ({"require": ["model"], "rate": 2.5}, [0, 12]),
        ({"start": 0.5, "max_width": 32, "require": ["model"]}, range(6, FRAMES, MODEL_EVERY)),
    ],
    ids=str,
)
def test_the_samples_asked_for_are_those_of_their_stamps(drive, tmp_path, name, options, indices):
    outcome = convert(drive(name), tmp_path / "out", **options)
    size = (32, 24) if "max_width" in options else SMALL
    expected = [cv2.resize(picture, size, interpolation=cv2.INTER_AREA) for picture in true(name)]
    assert_all_show(outcome, name, indices, expected)
    assert outcome.exit_code == 0


@each_kind
@pytest.mark.parametrize("options", [{}, {"start": 0.5, "max_width": 32}], ids=str)
def test_keyframes_are_those_of_the_stream_and_every_still(drive, tmp_path, name, options):
    outcome = convert(drive(name), tmp_path / "out", keyframes=True, **options)
    first = 5 if options.get("start") else 0
    indices = [n for n in range(first, FRAMES) if n % GOP == 0 or not SOURCES[name].depends]
    size = (32, 24) if "max_width" in options else SMALL
    expected = [cv2.resize(picture, size, interpolation=cv2.INTER_AREA) for picture in true(name)]
    assert_all_show(outcome, name, indices, expected)


@every_source
@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize("fault", ["cut", "missing"])
def test_damage_loses_what_depends_on_it_and_nothing_else(drive, tmp_path, name, fault, jobs):
    """A keyframe that is cut; a message that is missing: of a still only that, of video all up to the next keyframe."""
    at = {"cut": 12, "missing": 7}[fault]
    outcome = convert(drive(name, **{fault: {at}}), tmp_path / "out", jobs=jobs)
    order = [index for index, _ in streams(name)[0]]
    lost = {at}
    if SOURCES[name].depends:
        lost = set(order[at : FRAMES if fault == "cut" else GOP])
    assert_all_show(outcome, name, set(range(FRAMES)) - lost)
    seen = FRAMES - (fault == "missing" and len(SOURCES[name].topics) == 1)
    (count,) = (c for topic, c in outcome.counts.plain().items() if c["seen"] == seen and c["written"])
    assert count["written"] == FRAMES - len(lost)
    assert outcome.exit_code == (0 if fault == "missing" and not SOURCES[name].depends else 3)


@each_kind
@pytest.mark.parametrize(("options", "sizes"), [({}, (SMALL, LARGE)), ({"max_width": 48}, ((48, 36), (48, 32))),
                                                ({"camera_format": "png"}, (SMALL, LARGE))], ids=str)  # fmt: skip
def test_a_change_of_size_in_mid_stream_changes_the_samples(drive, tmp_path, name, options, sizes):
    outcome = convert(drive(name, resize=True), tmp_path / "out", **options)
    expected = [
        cv2.resize(picture, sizes[n >= GOP], interpolation=cv2.INTER_AREA)
        for n, picture in enumerate(true(name, resize=True))
    ]
    found = assert_all_show(outcome, name, range(FRAMES), expected)
    assert all(Image.open(io.BytesIO(data)).size == sizes[n >= GOP] for n, (_, _, data) in found.items())
    marked = [row for row in pl.read_ipc(outcome.paths.arrow).iter_rows(named=True) if row["mask"] is not None]
    for row in marked:
        assert Image.open(io.BytesIO(row["mask"])).size == tuple(row["size"])


@every_source
def test_info_says_codec_and_size(drive, name, capsys):
    with pytest.raises(SystemExit) as done:
        app(["info", str(drive(name)), "--json"])
    assert done.value.code == 0
    (camera,) = json.loads(capsys.readouterr().out)["cameras"]
    assert camera == {"topic": f"/{SOURCES[name].topics[0]}", "codec": SOURCES[name].form, "width": 64, "height": 48}


@each_kind
@pytest.mark.parametrize("infos", [("/front/", "/rear/"), ("/one/", "/two/")], ids=["by prefix", "by frame_id"])
def test_intrinsics_are_those_of_its_own_camera(tmp_path, name, infos):
    rear = sent("jpeg", "/rear/", frame_id="rear", focal=77.0, results=False, infos=infos[1])
    front = sent(name, "/front/", frame_id="front", focal=50.0, results=False, infos=infos[0])
    path = write(tmp_path / "drive.mcap", sorted([*rear, *front], key=lambda one: one[2]))
    topics = [f"/front/{SOURCES[name].topics[0]}", "/rear/camera/jpeg"]
    outcome = convert(path, tmp_path / "out", reference_topic=topics, max_width=32)
    found = Dataset(outcome.paths.container).metadata["sequences"]
    infos = [sequence["camera_info"] for _, sequence in sorted(found.items())]
    assert [(info["frame_id"], info["k"][0], info["width"]) for info in infos] == [
        ("front", 25, 32),
        ("rear", 38.5, 32),
    ]


@each_kind
@pytest.mark.parametrize("options", [{"max_width": 32}, {"rate": 2.5, "camera_format": "png"},
                                     {"keyframes": True}], ids=str)  # fmt: skip
def test_a_capture_writes_the_bytes_of_a_conversion(drive, tmp_path, monkeypatch, name, options):
    monkeypatch.setattr(Settling, "QUIET", 0.0)
    messages = sent(name)
    system = System(names={topic: f"rt{topic}" for topic, *_ in messages})
    system.offers = {topic: schema for topic, schema, *_ in messages}
    live = LiveSettings(out=str(tmp_path / "live"), sequence="drive", min_free_bytes=0, fsync=False)
    session = CaptureSession(system, Settings(jobs=2, **options), live, "wagon", system)
    session.activate()
    session.refresh()
    for topic, _, _, number, data in messages:
        system.send(system.names[topic], data, number + 1)
    session.refresh()
    session.deactivate()
    assert session.exit_code == 0
    convert(drive(name), tmp_path / "offline", jobs=2, **options)
    assert_same_dataset(tmp_path / "live", tmp_path / "offline", "drive")
    assert members(tmp_path / "live" / "drive.zip")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prefer": "model"}, "prefer chooses a frame of each 1/rate"),
        ({"keyframes": True, "sensors": ["lidar.points"]}, "keyframes needs camera"),
        ({"max_width": 1}, "max_width"),
        ({"start": 2.0, "end": 1.0}, "no sample is between them"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_by_name(drive, tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        convert(drive("h264"), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_every_source_that_the_table_of_sensors_has_is_here():
    from edgefirst_ros.streams import CAMERA

    there = {topic.name for topic in CAMERA.topics}
    assert there == {source.topics[0] for source in SOURCES.values()}


@pytest.mark.parametrize(("encoding", "codec"), [
    ("h264", "h264"), ("libx264;yuv420p", "h264"), ("H264_VAAPI", "h264"), ("hevc_nvenc;nv12;bgr8", "hevc"),
    ("libx265", "hevc"), (" hevc ", "hevc")])  # fmt: skip
def test_names_of_encoders_count_as_their_codec(encoding, codec):
    assert find_codec(encoding) == codec
