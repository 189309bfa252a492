# SPDX-License-Identifier: Apache-2.0
"""`view`: log a dataset or recording, then save it or show it by the viewer's own program, which ends with us."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefirst_ros.config import Settings
from edgefirst_ros.counts import Progress, ignore_progress
from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.names import check_path, find_instances
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.dataset.storage.lock import create_anew
from edgefirst_ros.errors import DatasetError, EdgeFirstError, MessageError, UsageError, join_names, need, sort_nearest
from edgefirst_ros.pipeline.first_pass import FirstPass
from edgefirst_ros.pipeline.frame import WHOLE, Chosen, Part
from edgefirst_ros.report.recording import open_recording
from edgefirst_ros.report.run import Wanted, list_wanted, refuse_data, refuse_settings
from edgefirst_ros.report.subject import ReportSubject
from edgefirst_ros.report.view import ENTITIES
from edgefirst_ros.report.view.viewer import show
from edgefirst_ros.sensors.pictures import VideoMessage, find_codec, open_parser
from edgefirst_ros.sensors.video.bitstream import AccessUnit, Tracker
from edgefirst_ros.streams import TILED, find_by_key, find_key, is_key

if TYPE_CHECKING:
    from edgefirst_ros.report.view.log import Packet

SENSORS = (*ENTITIES, "model")
"""Sensors that `--only` accepts, also further instances of them."""
MOST_LISTED = 5
BLOCK = 1 << 20
"""Bytes that are written at once."""
LOOKED_AT = 100
"""Messages of the camera in which it is looked whether pictures come in another order than they are shown."""


@dataclass
class Viewed:
    """Outcome: the logged samples."""

    samples: int
    entities: list[str]
    notes: list[str]
    saved: Path | None


def view(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    frame: int | None = None,
    save: str | os.PathLike[str] | None = None,
    web: bool = False,
    only: Sequence[str] = (),
    overwrite: bool = False,
    join: bool = False,
    settings: Settings | None = None,
    progress: Progress = ignore_progress,
    say: Callable[[str], None] = lambda line: None,
) -> Viewed:
    """Show a dataset or recording; returns when the viewer ends, or at once with `save`.

    `frame`: only that sample of each sequence; `web`: in a browser, served to only this machine; `only`: names of
    `SENSORS`; `join`: all are files of one recording; `settings`: how a recording becomes samples, as of a conversion,
    and the limits of a dataset. Raises DatasetError, RecordingError or UsageError; then no file was written.
    """
    if sys.version_info < (3, 11):
        raise EdgeFirstError(f"view needs rerun-sdk, which needs Python 3.11 or later, not {sys.version.split()[0]}")
    need("view", "view", "rerun")
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    settings = settings or Settings()
    only = [name if is_key(name) else find_key(name) or name for name in only]
    for name in only:
        if name not in SENSORS and not (is_key(name) and find_by_key(name).base in SENSORS):
            raise UsageError(f"--only: unknown sensor {name!r}; known: {sort_nearest(name, SENSORS)}")
    if save is not None:
        check_path(save)
        if web:
            raise UsageError("--save and --web cannot be combined")
        if os.path.lexists(save) and not overwrite:
            raise DatasetError(f"{os.fspath(save)}: exists already; --overwrite replaces it")
        refuse_data(save)
    place = Path(save) if save is not None else None
    found = list_wanted([Path(path) for path in paths], join=join)[0]
    wanted = [one for one in found if not one.why]
    if len(wanted) != 1:
        names = join_names((one.path for one in wanted), MOST_LISTED)
        raise UsageError(f"one dataset or recording is shown at a time; name one of {names}")
    refuse_settings(wanted, settings)
    with tempfile.TemporaryDirectory(prefix="edgefirst-view-") as folder:
        target = Path(folder) / "view.rrd" if place is None else place.with_name(f".{place.name}.{os.getpid()}.partial")
        try:
            with _open_subject(wanted[0], settings, progress) as (subject, packets):
                done = _log_subject(subject, packets, target, frame, only, progress)
            if place is not None:
                target.replace(place)
        except OSError as error:
            raise DatasetError(f"{place or target}: cannot be written: {error.strerror or error}") from error
        finally:
            if place is not None:
                with suppress(OSError):
                    target.unlink()
        done.saved = place
        done.notes += [f"{one.name} {one.why}" for one in found if one.why]
        if place is None:
            show(target, web=web, say=say)
    return done


def _log_subject(
    subject: ReportSubject, packets: Any, target: Path, frame: int | None, only: Sequence[str], progress: Progress
) -> Viewed:
    import rerun as rr

    from edgefirst_ros.report.view.log import Logger, make_blueprint

    dataset = subject.dataset
    dataset.samples(find_instances(name for name in only if name != "model"))  # refuses those that no sample has
    streamed = packets is not None and (not only or "camera" in only)
    samples = [Sample(dataset, key) for key in dataset.frame_rows] if streamed else list(dataset.samples())
    if frame is not None:
        numbers = [sample.frame for sample in samples if sample.frame is not None]
        samples = [sample for sample in samples if sample.frame == frame]
        if not samples:
            near = sorted({*numbers}, key=lambda number: abs(number - frame))[:MOST_LISTED]
            there = f"there are {', '.join(map(str, sorted(near)))} near it" if near else "the frames have no numbers"
            raise UsageError(f"--frame: {subject.path} has no frame {frame}; {there}")
    target.parent.mkdir(parents=True, exist_ok=True)
    recording = rr.RecordingStream("edgefirst_ros", recording_id=subject.name)
    video = None
    if packets is not None and streamed:
        numbers = [sample.frame for sample in samples if sample.frame is not None]
        video = _select_packets(packets, min(numbers, default=0), max(numbers, default=0))
    logger = Logger(recording, subject, only, video, repeats=frame is not None)
    with _write_log(recording, target, progress) as tell:
        logger.run(samples, tell)
        logger.finish()
        if not logger.entities:
            raise DatasetError(f"{subject.path}: it has none of {', '.join(only or SENSORS)}")
        recording.send_blueprint(make_blueprint(logger.entities))
    return Viewed(len(samples), sorted(logger.entities), [*subject.notes, *logger.notes.values()], None)


@contextmanager
def _write_log(recording: Any, target: Path, progress: Progress) -> Iterator[Progress]:
    """Write all data logged inside to a new file; yields the progress to call. Raises OSError where it is refused.

    The data comes through a pipe: the library's own writer prints such errors, and may wait for ever after one.
    """
    file = create_anew(target)  # its folder may be open to all: never write into a file that was put there
    refused: list[OSError] = []
    source, sink = os.pipe()

    def write() -> None:
        with open(source, "rb") as data:
            try:
                with open(file, "wb") as kept:
                    shutil.copyfileobj(data, kept, BLOCK)
            except OSError as error:
                refused.append(error)
                while data.read(BLOCK):
                    pass

    def tell(step: str, done: int, total: int) -> None:
        if refused:
            raise refused[0]
        progress(step, done, total)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        try:
            recording.save(f"/dev/fd/{sink}")
        finally:
            os.close(sink)
        yield tell
        recording.flush()
    finally:
        recording.disconnect()
        writer.join()
    if refused:
        raise refused[0]


def _select_packets(packets: Iterator[Packet], first: int, last: int) -> Iterator[Packet]:
    """Yield the packets that a decoder needs for some frames: from the keyframe before the first of them on."""
    before: list[Packet] = []
    for packet in packets:
        if packet.frame > last:
            return
        if packet.keyframe:
            before = []
        if packet.frame < first:
            before.append(packet)
        else:
            yield from before
            before = []
            yield packet


@contextmanager
def _open_subject(
    one: Wanted, settings: Settings, progress: Progress
) -> Iterator[tuple[ReportSubject, Iterator[Packet] | None]]:
    """Open the dataset or recording, with the video of a recording if it is logged without decoding."""
    if one.recording is None:
        yield ReportSubject(one.name, str(one.path), Dataset(one.path, limits=settings.limits)), None
        return
    with open_recording(one.recording, settings, _list_parts, progress) as (subject, found):
        yield subject, _iter_packets(found) if _is_streamed(found) else None


def _list_parts(found: FirstPass) -> Chosen:
    """H.264 is not decoded: its frames have everything but pictures."""
    part = Part(picture=False) if _is_streamed(found) else WHOLE
    return lambda frame, keyframe: part


def _is_streamed(found: FirstPass) -> bool:
    """True if the camera is H.264 whose pictures come in the order in which they are shown.

    H.265 is decoded here: browsers refuse it in the middle of a stream.
    """
    topic, schema = found.roles.reference, found.roles.schema
    if not found.roles.camera or schema == TILED:
        return False
    last, parse = None, open_parser(schema)
    for message in islice(found.recording.iter_messages({topic: schema}), LOOKED_AT):
        try:
            content = parse(message)
            if not content.depends or find_codec(content.form) != "h264":
                return False
        except MessageError:
            continue
        stamp = found.base.stamp(message)
        if last is not None and stamp < last:
            return False
        last = stamp
    return last is not None


def _iter_packets(found: FirstPass) -> Iterator[Packet]:
    """Yield the camera's messages from the first keyframe on."""
    from edgefirst_ros.report.view.log import Packet
    from edgefirst_ros.sensors.video.h264 import H264Tracker

    topic, begun = found.roles.reference, False
    tracker: Tracker = H264Tracker()
    parse = open_parser(found.roles.schema)
    for number, message in enumerate(found.recording.iter_messages({topic: found.roles.schema})):
        try:
            video = parse(message)
        except MessageError:
            video = None
        if not isinstance(video, VideoMessage):
            tracker.mark_gap()
            continue
        unit = AccessUnit(number)
        if video.headers is not None:
            tracker.judge(unit, video.data, video.headers)
        begun = begun or unit.keyframe
        if begun:
            yield Packet(number, found.base.stamp(message), bytes(video.data), unit.keyframe)
