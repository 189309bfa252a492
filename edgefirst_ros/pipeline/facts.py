# SPDX-License-Identifier: Apache-2.0
"""Metadata of a dataset that is being written, sequence by sequence, and what recovery needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from edgefirst_ros import __version__, streams
from edgefirst_ros.config import Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.label_names import make_categories, unite_models
from edgefirst_ros.sensors.calibration import Calibration, PictureFacts, find_frames, judge
from edgefirst_ros.sensors.detections import map_labels
from edgefirst_ros.sensors.picture import Size, scale_info
from edgefirst_ros.sensors.picture_hook import load_hook
from edgefirst_ros.sensors.pictures import find_ffmpeg_version
from edgefirst_ros.sensors.transforms import BoxFrames, SensorPlace
from edgefirst_ros.sources.topics import CAMERA, Infos, Roles
from edgefirst_ros.sync.clock import TimeBase

SOFTWARE = "edgefirst_ros"
SILENT = ("rig", "lidar_topic", "radar_topic", "cube_topic", "pose_topic")
"""Settings that the metadata has only where they are given."""


def open_calibration(roles: Roles, frame_ids: Mapping[str, str] = MappingProxyType({})) -> Calibration:
    """Return the calibration to be collected of the cameras; `frame_ids`: those of their messages, by topic."""
    found = {}
    for key, topic in roles.cameras.items():
        infos = roles.infos.get(key, Infos(None, frozenset()))
        found[key] = PictureFacts(topic, infos.own, infos.among, frame_ids.get(topic))
    return Calibration(found, roles.base_frame)


@dataclass(frozen=True, slots=True)
class SequenceFacts:
    """One sequence: topics with their roles, time base, calibration and labels, counts.

    Owns: `calibration` and `base.replaced` are changed only by the thread that pushes messages, `counts` by any,
    `scalings` by the one that writes.
    """

    name: str
    roles: Roles
    base: TimeBase
    calibration: Calibration
    counts: Counts
    sources: Sequence[Mapping[str, Any]] = ()
    """{"file", "size", "sha256"} of the recording files; empty in a capture."""
    first_source: int = 0
    """Index of the first of them in the dataset's `sources`; two cameras of one recording share them."""
    scalings: dict[str, tuple[Size, Size]] = field(default_factory=dict)
    """{camera: size of its first picture that was scaled, before and after}."""
    pose: dict[str, Any] = field(default_factory=dict)
    """Frame, topic, type and child of the poses; empty before the first one."""
    box_frames: BoxFrames = field(default_factory=BoxFrames)
    video: set[str] = field(default_factory=set)
    """Formats of the video that is decoded."""

    def place_of(self, frame_id: str) -> SensorPlace:
        """Return the place of a fused sensor, for its boxes in space."""
        info = self.calibration.camera_info
        return self.box_frames.place(frame_id, self.calibration.static_transforms, info["frame_id"] if info else None)

    @property
    def unused(self) -> list[dict[str, Any]]:
        """Topics that could be used and are not: {"topic", "type", "count", "use"}; a capture has None as the count."""
        seen = self.counts.topics
        return [of | {"count": seen[of["topic"]].seen} if of["topic"] in seen else of for of in self.roles.unused]

    @property
    def time_base(self) -> dict[str, Any]:
        """{"base", "topics"} of the metadata; in a capture topics may be added."""
        return {"base": self.base.base, "topics": dict(self.base.replaced)}

    @property
    def topics(self) -> dict[str, str]:
        """Topics that `recover` has to know: the reference, those of companions by column, and those of the model."""
        roles = self.roles
        columns = {streams.find_by_key(sensor).column: topic for sensor, topic in roles.companions.items()}
        parts, results = (schema.MODEL, *schema.WITHOUT_STAMPS), (roles.model, roles.masks, roles.boxes3d)
        columns |= {part: t for part, t in zip(parts, results, strict=True) if t not in (None, roles.reference)}
        return {schema.REFERENCE: roles.reference} | {column: t for column, t in columns.items() if column is not None}

    def describe(self) -> dict[str, Any]:
        cameras = (CAMERA, *sorted(self.roles.cameras.keys() - {CAMERA}))
        infos = {key: self.calibration.info_of(key) for key in cameras}
        for key, sizes in self.scalings.items():
            if (info := infos.get(key)) is not None:
                infos[key] = scale_info(info, *sizes)
        camera_info, transforms = infos.pop(CAMERA), self.calibration.static_transforms
        source = {key: value for key, value in self.pose.items() if key != "frame"}
        seen = self.counts.topics  # a capture waits for sensors that never send
        sensors = {key for key, topic in self.roles.companions.items() if topic in seen and seen[topic].seen}
        sensors.update(filter(None, [self.roles.sensor]))
        frames = dict(sorted(self.calibration.sensor_frames.items()))
        return {
            "sources": list(range(self.first_source, self.first_source + len(self.sources))),
            "camera_info": camera_info,
            **({schema.CAMERA_INFOS: infos} if infos else {}),
            "static_transforms": transforms,
            "calibration": judge(camera_info, transforms, find_frames(sensors, frames)),
            **({"sensor_frames": frames} if frames else {}),
            "time_base": self.time_base,
            "topics": self.topics,
            "counts": self.counts.plain(),
            **({"pose_frame": self.pose["frame"], "pose_source": source} if source else {}),
            **({schema.UNUSED: self.unused} if self.roles.unused else {}),
            **({schema.LACKING: list(self.roles.missing)} if self.roles.missing else {}),
        }


def describe_making(settings: Settings) -> dict[str, Any]:
    """Return the metadata of how a dataset was made: the same settings and recordings make the same bytes."""
    configuration = settings.model_dump(mode="json")
    for name in SILENT:
        if configuration[name] is None:
            del configuration[name]
    if settings.picture_hook is not None:
        configuration["picture_hook_version"] = load_hook(settings.picture_hook).version
    return {"configuration": configuration, "software": {"name": SOFTWARE, "version": __version__}}


class DatasetFacts:
    """All sequences of a dataset, one after the other: `begin`, then `end` once its last sample is written.

    Owns: `begin` and `end` by one thread, at times when no sample is being written; between them any thread describes.
    """

    def __init__(self, settings: Settings, namespace: str = "") -> None:
        """`namespace`: that of the capture, for the metadata; empty without one."""
        self.counts = Counts()
        """Counts of the sequences that have ended."""
        self._settings = settings
        self._namespace = namespace
        self._current: SequenceFacts | None = None
        self._decodes = False  # whether any sequence has pictures of video
        self._sources: list[Mapping[str, Any]] = []
        self._sequences: dict[str, dict[str, Any]] = {}
        self._labels: list[str] | None = None
        self._box_frames: set[str] = set()
        self.left_out: list[Mapping[str, Any]] = []
        """Recordings that could not be converted: {"file", "size", "why"}."""

    def begin(self, facts: SequenceFacts) -> None:
        self._current = facts
        self._decodes = self._decodes or facts.roles.schema in (streams.VIDEO, streams.FFMPEG, streams.TILED)

    def check_labels(self, models: Iterable[Sequence[str] | None]) -> None:
        """Raise UsageError where the labels of models have other indices than those of the sequences before."""
        known = self._labels
        for labels in models:
            known = self._unite(known, labels)

    def _unite(self, known: list[str] | None, labels: Sequence[str] | None) -> list[str] | None:
        return known if labels is None else unite_models(known, map_labels(labels, self._settings.label_map))

    def end(self) -> None:
        facts = self._current
        if facts is None:
            return
        self._labels = self.labels
        self._decodes = self._decodes or bool(facts.video)
        self._box_frames.update(facts.box_frames.names)
        self.counts.add(facts.counts)
        self._sources, self._sequences = self._all()
        self._current = None

    @property
    def labels(self) -> list[str] | None:
        """Labels of the models by index, None if no model gave any; they may grow with every sequence."""
        return self._unite(self._labels, self._current.calibration.labels if self._current is not None else None)

    @property
    def categories(self) -> dict[str, dict[str, int]] | None:
        """Category metadata of the labels; None if no model gave any."""
        return None if (labels := self.labels) is None else make_categories(labels)

    @property
    def box3d_frame(self) -> str | None:
        """The frame of all boxes in space; None without any, and where they have several."""
        own = self._current.box_frames.names if self._current is not None else set()
        frames = self._box_frames | own
        return frames.pop() if len(frames) == 1 else None

    @property
    def time_bases(self) -> dict[str, dict[str, Any]]:
        """{sequence: {"base", "topics"}}."""
        return {name: known["time_base"] for name, known in self._all()[1].items()}

    @property
    def notes(self) -> list[str]:
        """Differences of calibration between the sequences, in words."""
        frames = ", ".join(sorted(self._box_frames))
        several = [f"boxes in space have several origins: {frames}"] if len(self._box_frames) > 1 else []
        return schema.combine_sequences(self._sequences)[1] + several

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of NAME.frames.arrow."""
        sources, sequences = self._all()
        counts = Counts()
        for known in sequences.values():
            counts.add(Counts.of(known["counts"]))
        bases = {name: known["time_base"] for name, known in sequences.items()}
        first: Mapping[str, Any] = next(iter(bases.values()), {})
        made = describe_making(self._settings)
        if self._decodes or (self._current is not None and self._current.video):
            made["software"]["ffmpeg"] = find_ffmpeg_version()
        return {
            "sources": sources,
            **made,
            **({"namespace": self._namespace} if self._namespace else {}),
            "time_base": first if len(bases) == 1 else {**first, "sequences": bases},
            **schema.combine_sequences(sequences)[0],
            "counts": counts.plain(),
            "sequences": sequences,
            **schema.unite_topics(sequences),
            **({schema.LEFT_OUT: self.left_out} if self.left_out else {}),
        }

    def describe(self) -> dict[str, Any]:
        """Return all metadata known so far, for recovery."""
        known = {"labels": self.labels, "category_metadata": self.categories, "box3d_frame": self.box3d_frame}
        return {**self.metadata(), **known}

    def _all(self) -> tuple[list[Mapping[str, Any]], dict[str, dict[str, Any]]]:
        """Return sources and sequences, with the current one."""
        current = self._current
        if current is None:
            return self._sources, self._sequences
        sources = [*self._sources[: current.first_source], *current.sources] if current.sources else self._sources
        return sources, {**self._sequences, current.name: current.describe()}
