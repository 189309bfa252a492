# SPDX-License-Identifier: Apache-2.0
"""Whole and valid inputs of every kind, small, from which the hostile ones are made."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
from PIL import Image, PngImagePlugin

from edgefirst_ros import convert
from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import decode
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.streams import CAMERA_TYPES, VIDEO
from edgefirst_ros.synthetic import Recipe, write_recording
from edgefirst_ros.synthetic.recipe import TOPICS
from fuzzing import foreign, leftover, places

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
"""Real recordings and messages, where they are at hand beside the project."""
SMALL = {"seconds": 0.14, "size": (128, 64), "cube_shape": (1, 8, 2, 8), "lidar_points": 20, "chunk_size": 6000}
RECORDINGS = (
    {"codec": "h264", "topics": TOPICS},
    {"codec": "h265", "topics": TOPICS, "compression": "zstd", "rates": {"gps": 30, "imu": 30}},
    {"codec": "jpeg", "compression": "lz4", "foreign_channel": True},
    {"codec": "png", "compression": "zstd", "prefix": "/rt/", "header_zero": ("*",)},
    {"codec": "yuv422", "size": (130, 66), "clock_steps": ((0.07, -2_000_000_000),)},
    {"codec": "rgb8", "without_end": True, "sequence_gaps": False, "drop": {"imu": (1,)}},
)
VIDEOS = (
    {"gop": 4, "b_frames": 0},
    {"gop": 5, "b_frames": 2, "open_gop": True},
    {"gop": 30, "size": (256, 128), "full_range": True, "matrix": "bt601"},
    {"gop": 3, "parameter_sets_once": True, "noise": 4.0, "quantiser": 10},
)
SMALLEST_REAL = 1 << 15
"""Bytes of the largest message that is taken from a real recording."""
YAML = (
    "streams: {radar.cube: {tolerance: 0.05, reuse: false}, lidar.points: {offset: -0.02}}\nsplit: {a: 0.5, b: 0.5}\n",
    "/**:\n  ros__parameters:\n    rate: 2.5\n    require: [radar.cube]\n    limits: {picture_pixels: 1000000}\n",
    "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b]\nrate: *c\n",
    "rate: !!python/object/apply:os.system ['true']\nsplit: !!set {a, b}\njobs: !!int '0b1010'\n",
    "base: &base {rate: 1.0}\n<<: *base\njpeg_quality: 190:20:30\nschema_version: 2026.10\ntolerance: .inf\n",
    "a: &a {x: 1}\nb: &b {<<: [*a, *a, *a]}\nc: {<<: [*b, *b, *b]}\nrate: 190:20:30\njpeg_quality: 0x7fffffff\n",
    "? [complex, key]\n: value\nstreams: !!omap [a: 1]\nreference_topic: !!binary aGVsbG8=\ngps_topic: 2001-12-14\n",
)


def make(folder: Path) -> None:
    """Write all seeds to FOLDER/KIND/NUMBER, the same ones every time."""
    work = folder / "work"
    work.mkdir(parents=True)
    recordings = [_recording(work / f"r{n}.mcap", recipe) for n, recipe in enumerate(RECORDINGS)]
    real = [path for path in (_cut(path, work) for path in sorted(SHARED.glob("*.mcap"))) if path]
    videos = {codec: [_recording(work / f"{codec}{n}.mcap", {**recipe, "codec": codec, "seconds": 0.5})
                      for n, recipe in enumerate(VIDEOS)] for codec in ("h264", "h265")}  # fmt: skip
    found = {
        "mcap": [path.read_bytes() for path in (*recordings, *real)],
        "cdr": list(_messages([*recordings, *real])),
        "yaml": [path.read_bytes() for path in sorted((ROOT / "config").glob("*.yaml"))] + [t.encode() for t in YAML],
    }
    for codec, paths in videos.items():
        own = [path for path in real if codec in _formats(path)]
        found[codec] = [_stream(path) for path in (*paths, *own)]
    datasets = [_dataset(path, work, n) for n, path in enumerate(recordings[:4])]
    found |= {"zip": list(_zips(datasets)), "arrow": list(_tables(datasets))}
    members = [member for path in datasets for member in _members(path)]
    found["jpeg"] = [data for name, data in members if name.endswith(".jpeg")][:2] + list(_jpegs())
    found["png"] = [data for name, data in members if name.endswith(".png")][-6:] + list(_pngs())
    found["pcd"] = [data for path in datasets[:3] for name, data in _members(path) if name.endswith(".pcd")]
    found["meta"] = [foreign.metadata_of(path) for path in datasets]
    found["place"] = places.seeds()
    found["store"] = list(foreign.stores(datasets[0], work))
    found["left"] = list(leftover.make(folder / "leftover"))
    for kind, seeds in found.items():
        (folder / kind).mkdir()
        for number, seed in enumerate(seeds):
            (folder / kind / f"{number:04d}").write_bytes(seed)


def load(folder: Path, kind: str) -> list[bytes]:
    """The seeds of a kind."""
    return [path.read_bytes() for path in sorted((folder / kind).iterdir())]


def _recording(path: Path, recipe: dict) -> Path:
    write_recording(path, Recipe(**{**SMALL, **recipe}))
    return path


def _cut(path: Path, work: Path) -> Path | None:
    """The first small messages of each topic of a real recording."""
    from mcap.reader import make_reader
    from mcap.writer import Writer

    cut, counts, channels = work / f"cut_{path.name}", {}, {}
    with path.open("rb") as source, cut.open("wb") as target:
        writer = Writer(target, chunk_size=16384)
        writer.start()
        for schema, channel, message in make_reader(source).iter_messages():
            counts[channel.topic] = counts.get(channel.topic, 0) + 1
            if counts[channel.topic] > 3 or len(message.data) > SMALLEST_REAL:
                continue
            if channel.id not in channels:
                known = writer.register_schema(schema.name, schema.encoding, schema.data)
                channels[channel.id] = writer.register_channel(channel.topic, channel.message_encoding, known)
            writer.add_message(
                channels[channel.id], message.log_time, message.data, message.publish_time, message.sequence
            )
        writer.finish()
    return cut if channels else None


def _decoded(path: Path):
    for message in McapRecording(path).walk():
        try:
            yield message, decode(message)
        except MessageError:
            continue


def _formats(path: Path) -> set[str]:
    return {content.format for message, content in _decoded(path) if message.schema == VIDEO}


def _stream(path: Path) -> bytes:
    """Access units, each behind its length."""
    units = [content.data.tobytes() for message, content in _decoded(path) if message.schema == VIDEO]
    return b"".join(struct.pack("<I", len(unit)) + unit for unit in units)


def _messages(recordings: list[Path]):
    """Message type, text of the type and CDR bytes, each text and type behind its length."""
    seen: dict[str, int] = {}
    for path in recordings:
        for message, _ in _decoded(path):
            seen[message.schema] = seen.get(message.schema, 0) + 1
            if seen[message.schema] <= (6 if message.schema in CAMERA_TYPES else 4):
                yield packed(message.schema, message.definition, message.data)
    for path in sorted(SHARED.glob("cdr/*/*.cdr")):
        schema = f"{path.parent.name}/msg/{path.stem.partition('_')[0]}"
        yield packed(schema, b"", path.read_bytes())


def packed(schema: str, definition: bytes, data: bytes) -> bytes:
    """One input of the kind `cdr`."""
    name = schema.encode()
    return struct.pack("<II", len(name), len(definition)) + name + definition + data


def unpacked(data: bytes) -> tuple[str, bytes, bytes]:
    """(type, text of the type, CDR bytes) of an input of the kind `cdr`."""
    named, defined = struct.unpack_from("<II", data)
    return (
        data[8 : 8 + named].decode("utf-8", "replace"),
        data[8 + named : 8 + named + defined],
        data[8 + named + defined :],
    )


def _dataset(recording: Path, work: Path, number: int) -> Path:
    pcd = ("binary", "binary_compressed", "ascii")[number % 3]
    outcome = convert(recording, work / f"d{number}", name="d", pcd=pcd, camera_format="png" if number == 1 else "jpeg")
    return outcome.paths.container


def _members(container: Path):
    with zipfile.ZipFile(container) as archive:
        for name in archive.namelist():
            yield name, archive.read(name)


def _zips(datasets: list[Path]):
    for container in datasets[:3]:
        yield container.read_bytes()
        packed_again = io.BytesIO()
        with zipfile.ZipFile(packed_again, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in list(_members(container))[:8]:
                archive.writestr(name, data)
            archive.comment = b"a comment"
        yield packed_again.getvalue()


def _tables(datasets: list[Path]):
    for container in datasets[:2]:
        for path in sorted(container.parent.glob("*.arrow")):
            yield path.read_bytes()
            table = pa.ipc.open_file(path).read_all()
            for compression in ("lz4", "zstd"):
                sink = io.BytesIO()
                pa.feather.write_feather(table, sink, compression=compression)
                yield sink.getvalue()
            sink = io.BytesIO()
            pa.parquet.write_table(table, sink)
            yield sink.getvalue()


def _pattern(mode: str) -> Image.Image:
    y, x = np.mgrid[:48, :64].astype(np.uint8)
    picture = Image.fromarray(np.stack([x * 3, y * 5, x ^ y], axis=-1))
    return picture.convert(mode)


def _jpegs():
    for mode, options in (("RGB", {"progressive": True}), ("L", {}), ("CMYK", {}), ("RGB", {"subsampling": 0}),
                          ("RGB", {"restart_marker_rows": 1, "optimize": True})):  # fmt: skip
        file = io.BytesIO()
        _pattern(mode).save(file, "JPEG", **options)
        yield file.getvalue()


def _pngs():
    for mode in ("1", "L", "P", "RGBA", "RGB"):
        file = io.BytesIO()
        info = PngImagePlugin.PngInfo()
        info.add_text("Comment", "x" * 500, zip=True)
        info.add_itxt("Title", "t" * 300, "en", "titel", zip=True)
        _pattern(mode).save(file, "PNG", pnginfo=info if mode == "RGBA" else None)
        yield file.getvalue()
    file = io.BytesIO()
    Image.fromarray(np.arange(64 * 48, dtype=np.uint16).reshape(48, 64)).save(file, "PNG")
    yield file.getvalue()
