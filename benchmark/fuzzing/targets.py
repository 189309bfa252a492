# SPDX-License-Identifier: Apache-2.0
"""Where hostile input goes in: what a user would call. A target gives whether anything of the input was accepted."""

import contextlib
import shutil
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from edgefirst.schemas import builtin_interfaces, sensor_msgs, std_msgs

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.info import DatasetInfo, collect_recording_facts
from edgefirst_ros.config import Settings
from edgefirst_ros.config.load import load
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.migrate import migrate
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.validate.fix import fix
from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.messages import Message, decode, read_header_stamp
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sensors.cloud import encode_cloud
from edgefirst_ros.sensors.companions import check_storable, encode
from edgefirst_ros.sensors.cube import encode_cube
from edgefirst_ros.sensors.detections import Context, make_model_rows
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg, insert_png, read_exif, rename_exif
from edgefirst_ros.sensors.navigation import fix_of, read_attitude
from edgefirst_ros.sensors.picture import PictureEncoder
from edgefirst_ros.sensors.pictures import PictureOptions, PictureSource, StillMessage, VideoParser, open_parser
from edgefirst_ros.sensors.video.bitstream import AccessUnit
from fuzzing import foreign, places, recovering, seeds
from fuzzing.mutate import units

Target = Callable[[bytes], bool]
NAMES = ("rec.mcap", "host_2026_01_02_03_04_05.mcap", "...mcap", "-rf.mcap", "CON.mcap", "a\nb.mcap", "\u202egpj.mcap",
         "~.mcap", "x" * 200 + ".mcap", " .mcap", "%2e%2e%2f.mcap", "\\..\\..\\x.mcap", "d.zip.mcap")  # fmt: skip
"""Names of recordings."""
OPTIONS = ({}, {"layout": "directory"}, {"pcd": "ascii", "rate": 10.0}, {"pcd": "binary_compressed", "jobs": 2},
           {"camera_format": "png", "keyframes": True}, {"reference_topic": "radar/cube"}, {"time_base": "header"},
           {"lidar_images": True, "radar_points": "clusters", "schema_version": "2025.10"},
           {"reference_topic": "imu", "split": {"a": 0.5, "b": 0.5}, "schema_version": "2026.10"})  # fmt: skip
EXIF = encode_exif(ExifInfo("sequence", 1, 1_700_000_000_000_000_000, "host", "software", 45.0, -73.0))


def target(kind: str, folder: Path, given: Path) -> Target:
    """What is fed with the inputs of a kind; it works in `folder`, `given` are the seeds."""
    if kind in ("h264", "h265"):
        return lambda data: _video(kind, data)
    made: dict[str, Callable[[Path, Path], Target]] = {
        "mcap": lambda here, _: lambda data: _recording(here, data),
        "cdr": lambda *_: _message,
        "yaml": lambda here, _: lambda data: _settings(here, data),
        "zip": lambda here, _: lambda data: _archive(here, data),
        "arrow": _tables,
        "left": recovering.target,
        "meta": foreign.metadata_target,
        "store": foreign.store_target,
        "place": places.target,
        "jpeg": lambda here, seeds_at: _member(here, seeds_at, ("camera.jpeg", "lidar.jpeg"), {"image"}),
        "png": lambda here, seeds_at: _member(
            here, seeds_at, ("camera.png", "radar.png", "lidar.png", "depth.png"), {"image", "cube"}
        ),
        "pcd": lambda here, seeds_at: _member(here, seeds_at, ("radar.pcd", "lidar.pcd"), {"radar", "lidar"}),
    }
    return made[kind](folder, given)


def accepted(attempts: Mapping[str, Callable[[], Any]]) -> set[str]:
    """Try all; the names of those that did not refuse."""
    found = set()
    for name, attempt in attempts.items():
        with contextlib.suppress(EdgeFirstError):
            attempt()
            found.add(name)
    return found


def _recording(folder: Path, data: bytes) -> bool:
    chance = zlib.crc32(data)
    path, out = folder / NAMES[chance % len(NAMES)], folder / "out"
    path.write_bytes(data)
    options = OPTIONS[chance // 64 % len(OPTIONS)]
    try:
        accepted({"info": lambda: collect_recording_facts(path)})
        return bool(accepted({"convert": lambda: convert(path, out, **options)}))
    finally:
        path.unlink()
        shutil.rmtree(out, ignore_errors=True)


def _message(data: bytes) -> bool:
    schema, definition, cdr = seeds.unpacked(data)
    message = Message("topic", schema, 1, 1, 1, cdr, definition)
    content = decode(message)
    read_header_stamp(message)
    encoder, calibration = PictureEncoder("jpeg", 90), Calibration()
    context = Context("sequence", 1, (200, 100), ("car", "person"))
    calibration.add(schema, content)
    assert (calibration.focal_35mm() or 1) > 0
    if schema.endswith("/RadarCube"):
        check_storable("radar.cube", content)
        encode_cube(content, 1)
    elif schema.endswith("/PointCloud2"):
        check_storable("lidar.points", content)
        for form in ("binary", "binary_compressed", "ascii"):
            encode_cloud(content, form, ("noise",) if form == "ascii" else ())
    elif schema.endswith(("/Detect", "/Model")):
        make_model_rows(content, context)
    elif schema.endswith("/NavSatFix"):
        fix_of(content, 1)
    elif schema.endswith("/Imu"):
        read_attitude(content)
    elif schema.endswith(("/Image", "/CompressedImage", "/CompressedVideo")):
        pictures, unit = PictureSource(PictureOptions(encoder)), AccessUnit(0, open_parser(schema)(message))
        pictures.push(unit)
        picture = pictures.pop(unit, last=True)
        if isinstance(picture, EdgeFirstError):
            raise picture
        picture.encode()
        for sensor in ("lidar.depth", "lidar.reflect"):
            if schema.endswith("/Image"):
                with contextlib.suppress(EdgeFirstError):
                    check_storable(sensor, content)
                    encode(sensor, content, 0, Settings())
    return True


def _video(codec: str, data: bytes) -> bool:
    pictures = PictureSource(PictureOptions(PictureEncoder("jpeg", 80)))
    parser, decoded = VideoParser(), False
    found = [AccessUnit(number, parser.parse(codec, unit)) for number, unit in enumerate(units(data))]
    for unit in found:
        pictures.push(unit)
    for unit in found:
        if unit.number % 7 == 3:
            pictures.skip(unit)
            continue
        picture = pictures.pop(unit, last=True)
        if not isinstance(picture, EdgeFirstError):
            picture.encode()
            decoded = True
    return decoded


def _settings(folder: Path, data: bytes) -> bool:
    path = folder / "settings.yaml"
    path.write_bytes(data)
    assert isinstance(load(path), Settings)
    return True


def _archive(folder: Path, data: bytes) -> bool:
    path = folder / "d.zip"
    path.write_bytes(data)
    interrupted = folder / "interrupted"
    interrupted.mkdir()
    (interrupted / "d.zip.partial").write_bytes(data)
    try:
        recovered = accepted({"recover": lambda: recover(interrupted / "d")})
    finally:
        shutil.rmtree(interrupted)
    return bool(_read(path) | recovered)


def _read(path: Path) -> set[str]:
    """Ask everything that can be asked of a dataset; what was answered, of the first samples."""
    validate(path)
    accepted({"facts": lambda: DatasetInfo(path).plain()})
    dataset = Dataset(path)
    found = accepted(
        {"annotations": lambda: dataset.annotations, "frames": lambda: dataset.frames, "meta": lambda: dataset.metadata}
    )
    for sample, _ in zip(dataset.samples(), range(3), strict=False):
        found |= _read_members(sample) | accepted({"row": partial(_rows, sample)})
    return found


def _read_members(sample: Sample) -> set[str]:
    return accepted(
        {
            "image": sample.image,
            "cube": sample.cube,
            "radar": sample.radar,
            "lidar": sample.lidar,
            "bytes": partial(list, map(sample.read, sorted(sample.inputs))),
        }
    )


def _rows(sample: Sample) -> tuple[Any, ...]:
    return sample.row, sample.timestamp, sample.position, sample.skew, sample.annotations


def _unpacked_dataset(folder: Path, given: Path) -> Path:
    """A dataset of one sample as a folder; gives what its members' names begin with."""
    outcome = convert(given / "work" / "r0.mcap", folder, name="d", layout="directory", keyframes=True)
    (first,) = outcome.paths.folder.rglob("*.camera.jpeg")
    return Path(str(first).removesuffix(".camera.jpeg"))


def _member(folder: Path, given: Path, kinds: tuple[str, ...], answers: set[str]) -> Target:
    stem = _unpacked_dataset(folder, given)
    if kinds[0] == "camera.png":
        stem.with_name(stem.name + ".camera.jpeg").unlink()

    def feed(data: bytes) -> bool:
        for kind in kinds:
            stem.with_name(f"{stem.name}.{kind}").write_bytes(data)
        validate(folder / "d")
        found = set().union(*map(_read_members, Dataset(folder / "d").samples()))
        if "image" in answers:
            found |= accepted({"image": lambda: _passed_through(data)})
            accepted({"renamed": lambda: _renamed(data, kinds[0])})
        return bool(found & answers)

    return feed


def _renamed(data: bytes, kind: str) -> bytes:
    """Return a picture as `merge` renames its sequence."""
    exif = rename_exif(data, "another")
    return data if exif is None else b"".join((insert_png if kind.endswith("png") else insert_jpeg)(data, exif))


def _passed_through(data: bytes) -> None:
    pictures = PictureSource(PictureOptions(PictureEncoder("jpeg", 90)))
    head = std_msgs.Header(builtin_interfaces.Time(0, 0), "camera")
    unit = AccessUnit(0, StillMessage(sensor_msgs.CompressedImage(head, "", data), ""))
    pictures.push(unit)
    picture = pictures.pop(unit, last=True)
    if isinstance(picture, EdgeFirstError):
        raise picture
    insert = insert_png if picture.kind.endswith("png") else insert_jpeg
    whole = b"".join(insert(picture.encode(), EXIF))
    assert read_exif(whole).sequence == "sequence"


def _tables(folder: Path, given: Path) -> Target:
    place = _unpacked_dataset(folder, given).parents[2]
    whole = {path: path.read_bytes() for path in place.glob("*.arrow")}
    annotations, frames = place / "d.arrow", place / "d.frames.arrow"
    assert set(whole) == {annotations, frames}

    def feed(data: bytes) -> bool:
        for path, content in whole.items():
            path.write_bytes(content)
        parquet = place / "d.parquet"
        parquet.unlink(missing_ok=True)
        changed = (annotations, frames)[zlib.crc32(data) % 2]
        if data[:4] == b"PAR1":
            annotations.unlink()
            changed = parquet
        changed.write_bytes(data)
        found = _read(folder / "d")
        anew = folder / "anew"
        anew.mkdir()
        try:
            accepted(
                {
                    "merge": lambda: merge([place], anew / "merged"),
                    "migrate": lambda: migrate(changed, anew / ("m.json" if len(data) % 2 else "m.parquet")),
                    "fix": lambda: fix(place),
                }
            )
        finally:
            shutil.rmtree(anew)
            for path in folder.rglob("*.before-fix"):
                path.unlink()
        return ("frames" if changed == frames else "annotations") in found

    return feed
