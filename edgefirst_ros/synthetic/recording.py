# SPDX-License-Identifier: Apache-2.0
"""Writes a synthetic recording and its ground truth: topics in the order they reach the recorder, with their faults."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from mcap.writer import CompressionType, Writer
from numpy.typing import NDArray

from edgefirst_ros.errors import RecordingError
from edgefirst_ros.synthetic import messages
from edgefirst_ros.synthetic.definitions import make_definition
from edgefirst_ros.synthetic.picture import Painter, find_pixels, make_class_picture, make_outline
from edgefirst_ros.synthetic.ranging import Lidar, Radar
from edgefirst_ros.synthetic.recipe import MODEL_TOPICS, SECOND, Recipe
from edgefirst_ros.synthetic.scene import TRANSFORMS, Scene, Thing
from edgefirst_ros.synthetic.video import make_units

COMPRESSIONS = {"": CompressionType.NONE, "lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD}
FOREIGN = "/clock_step"
DATA_END = 15

Build = Callable[[int, int, int], bytes]
"""CDR bytes of a message from its index, its true stamp and its header stamp, both in ns."""


@dataclass(frozen=True)
class Truth:
    """Facts about the recording at `path`. Times are true ns since the epoch; `recipe.clock` returns the device's."""

    path: Path
    recipe: Recipe
    scene: Scene
    painter: Painter
    radar: Radar
    lidar: Lidar
    counts: Mapping[str, int]
    """Messages written, by the recipe's name of the topic (before the file was cut)."""

    def frame(self, time: int) -> int:
        """Return the number in the bar code of the picture taken at (or next to) a time."""
        rate = self.recipe.rate("camera")
        return round((time - self.recipe.start) * rate / SECOND)

    def boxes(self, time: int) -> list[Thing]:
        """Return the objects in view, in the order of the model's boxes (nearest last)."""
        return [thing for thing in self.scene.things(time) if thing.box2d is not None]

    def mask(self, thing: Thing) -> NDArray[np.bool_]:
        """Return the pixels of an object as it is painted, nearer ones left away, (H, W)."""
        width, height = self.recipe.size
        mask = np.zeros((height, width), dtype=np.bool_)
        left, top, right, bottom = find_pixels(thing, width, height) or (0, 0, 0, 0)
        mask[top:bottom, left:right] = make_outline(thing, width, height)
        return mask

    def classes(self, time: int) -> NDArray[np.uint8]:
        """Return the class of every pixel, (H, W) uint8: 0 without an object."""
        return make_class_picture(self.scene.things(time), *self.recipe.size)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One message on its way into the file; `received` in true ns."""

    received: int
    name: str
    publish: int
    sequence: int
    data: bytes


def write_recording(path: Path, recipe: Recipe) -> Truth:
    """Write the recording of a recipe to `path`; the same recipe makes the same bytes.

    Messages are made and written one by one, so that memory does not grow with its length.
    Raises RecordingError when the file cannot be written.
    """
    scene = Scene(recipe)
    painter, radar, lidar = Painter(recipe, scene), Radar(recipe, scene), Lidar(recipe, scene)
    counts = dict.fromkeys(sorted(recipe.topics), 0)
    truth = Truth(Path(path), recipe, scene, painter, radar, lidar, counts)
    begun = False
    try:
        # Not through a link: in a folder that is open to all it may lead anywhere.
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666)) as file:
            begun = True
            _write(file, truth, counts)
        if recipe.without_end:
            os.truncate(path, _find_end_of_data(path))
        if recipe.cut is not None:
            size = Path(path).stat().st_size
            os.truncate(path, max(0, size + recipe.cut if recipe.cut < 0 else min(recipe.cut, size)))
    except OSError as error:
        if begun:  # the rest is not a recording
            with suppress(OSError):
                Path(path).unlink()
        raise RecordingError(f"{path}: cannot be written: {error}") from error
    return truth


def _write(file: BinaryIO, truth: Truth, counts: dict[str, int]) -> None:
    recipe = truth.recipe
    writer = Writer(file, chunk_size=recipe.chunk_size, compression=COMPRESSIONS[recipe.compression])
    writer.start(profile="", library="edgefirst_ros synthetic")
    schemas: dict[str, int] = {}
    channels: dict[str, int] = {}
    for name in sorted(recipe.topics):
        kind = messages.find_schema(name, recipe.codec)
        if kind not in schemas:
            schemas[kind] = writer.register_schema(kind, "ros2msg", make_definition(kind))
        channels[name] = writer.register_channel(recipe.topic(name), "cdr", schemas[kind])
    topics = [_make_camera(truth) if name == "camera" else _make_topic(truth, name) for name in sorted(recipe.topics)]
    if recipe.foreign_channel:
        schema = writer.register_schema("clock_step", "jsonschema", b'{"type": "object"}')
        channels[FOREIGN] = writer.register_channel(FOREIGN, "json", schema)
        topics.append(_make_foreign(recipe))
    for entry in heapq.merge(*topics, key=lambda entry: entry.received):
        log_time, channel = recipe.clock(entry.received), channels[entry.name]
        writer.add_message(channel, log_time, entry.data, entry.publish, entry.sequence)
        if entry.name in counts:
            counts[entry.name] += 1
    writer.finish()  # type: ignore[no-untyped-call]


def _make_topic(truth: Truth, name: str) -> Iterator[_Entry]:
    """Messages of any topic but the camera's."""
    recipe, build = truth.recipe, _find_builder(truth, name)
    source = ((index, recipe.stamp(name, index)) for index in itertools.count())
    end = recipe.start + recipe.duration
    if name == "camera/info" or name in MODEL_TOPICS:  # per picture, regardless of rounding at the end
        end = recipe.stamp("camera", recipe.frames)
    within = itertools.takewhile(lambda pair: pair[1] < end, source)
    return _apply_faults(recipe, name, ((n, stamp, recipe.receive_time(name, n, stamp), build) for n, stamp in within))


def _make_camera(truth: Truth) -> Iterator[_Entry]:
    """Messages of the camera in decode order; a coded picture leaves the encoder after those it waits for."""
    recipe = truth.recipe

    def source() -> Iterator[tuple[int, int, int, Build]]:
        number = 0
        for unit in make_units(recipe, truth.painter):
            if unit.index < 0:  # a packet without a picture, before the first
                stamp = recipe.stamp("camera", 0) - SECOND // 1000
                times = (-1, stamp, stamp)
            else:
                ready = recipe.stamp("camera", number + recipe.b_frames)
                times = (number, recipe.stamp("camera", unit.index), recipe.receive_time("camera", number, ready))
                number += 1
            if unit.index >= 0 and number <= recipe.start_in_gop:
                continue
            yield *times, partial(lambda unit, _, __, header: messages.make_camera(recipe, unit, header), unit)

    return _apply_faults(recipe, "camera", source())


def _apply_faults(recipe: Recipe, name: str, source: Iterator[tuple[int, int, int, Build]]) -> Iterator[_Entry]:
    """Apply the recorder's faults to (index, true stamp, true receive time, builder): drops, cuts, stamps, numbers."""
    dropped, truncated = recipe.list_dropped(name), recipe.truncate.get(name, ())
    sequence, latest = 0, 0
    for index, stamp, reached, build in source:
        if index in dropped:
            sequence += recipe.sequence_gaps
            continue
        data = build(index, stamp, recipe.header(name, stamp))
        if index in truncated:
            data = data[: len(data) // 2]
        latest = max(reached, latest + 1)  # a topic's messages do not overtake one another
        publish = recipe.clock(latest if recipe.publish == "log" else stamp)
        yield _Entry(latest, name, publish, sequence, data)
        sequence += 1


def _find_builder(truth: Truth, name: str) -> Build:
    recipe, scene, radar, lidar = truth.recipe, truth.scene, truth.radar, truth.lidar
    builders: dict[str, Build] = {
        "camera/info": lambda _, __, header: messages.make_camera_info(recipe, scene, header),
        "radar/cube": lambda _, stamp, header: messages.make_radar_cube(radar, stamp, header),
        "radar/targets": lambda _, stamp, header: messages.make_cloud(radar.targets(stamp), "radar", header),
        "radar/clusters": lambda _, stamp, header: messages.make_cloud(radar.clusters(stamp), "radar", header),
        "radar/info": lambda _, __, header: messages.make_radar_info(header),
        "lidar/points": lambda _, stamp, header: messages.make_cloud(lidar.points(stamp), "lidar", header),
        "gps": lambda _, stamp, header: messages.fix(scene, stamp, header),
        "imu": lambda _, stamp, header: messages.make_imu(scene, stamp, header),
        "model/info": lambda _, __, header: messages.make_model_info(recipe, header),
        "model/output": lambda _, stamp, header: messages.make_model(scene, stamp, header),
        "model/boxes2d": lambda _, stamp, header: messages.make_detect(scene, stamp, header),
        "model/mask": lambda _, stamp, __: messages.make_class_mask(scene, stamp),
        "model/mask_compressed": lambda _, stamp, __: messages.make_class_mask(scene, stamp, "zstd"),
        "fusion/boxes3d": lambda _, stamp, header: messages.make_boxes3d(scene, stamp, header),
        "tf_static": lambda i, _, header: messages.make_transform(TRANSFORMS[i % len(TRANSFORMS)], header),
    }
    return builders[name]


def _make_foreign(recipe: Recipe) -> Iterator[_Entry]:
    """Yield a JSON message at the start of every second."""
    for second in range(-(-recipe.duration // SECOND)):
        time = recipe.start + second * SECOND
        text = json.dumps({"time_ns": recipe.clock(time), "step_ns": recipe.clock(time) - time})
        yield _Entry(time, FOREIGN, recipe.clock(time), second, text.encode())


def _find_end_of_data(path: Path) -> int:
    """Place of the record that ends the data section."""
    with open(path, "rb") as file:
        position = file.seek(8)
        while True:
            opcode, length = struct.unpack("<BQ", file.read(9))
            if opcode == DATA_END:
                return position
            position = file.seek(length, 1)
