# SPDX-License-Identifier: Apache-2.0
"""Recordings in, a dataset out."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefirst_ros.config import SECOND, Settings
from edgefirst_ros.config.load import load
from edgefirst_ros.counts import NO_PICTURE, Counts, Progress, ignore_progress, lacks
from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.names import DatasetPaths, check_folder, check_name, make_safe, name_cameras, with_camera
from edgefirst_ros.dataset.objects.places import refuse_buckets
from edgefirst_ros.dataset.publish import refuse_existing
from edgefirst_ros.dataset.schema import SEQUENCES
from edgefirst_ros.dataset.writer import DatasetWriter
from edgefirst_ros.errors import RecordingError, StorageError, Text, UsageError, pluralize, show_path, without_attribute
from edgefirst_ros.pipeline.facts import DatasetFacts
from edgefirst_ros.pipeline.first_pass import FirstPass, walk
from edgefirst_ros.pipeline.output import SequenceOutput, open_writer
from edgefirst_ros.pipeline.resumption import Planned, check_recordings, read_finished, resume_unfinished
from edgefirst_ros.sensors.cloud import check_form
from edgefirst_ros.sensors.picture_hook import prepare_hook
from edgefirst_ros.sources.inputs import RecordingInput, list_recordings
from edgefirst_ros.sources.topics import describe_option
from edgefirst_ros.sync.align import Skews

if TYPE_CHECKING:
    from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
    from edgefirst_ros.dataset.regroup import GroupCounts
    from edgefirst_ros.dataset.summary import DatasetSummary


_GONE = (errno.ESTALE, errno.ENOENT, errno.ENOTCONN)  # errors of a disk that is not there any more


def _plan(inputs: Sequence[RecordingInput], references: Sequence[str | None]) -> list[Planned]:
    """Return the recordings with the names of their sequences, one a camera. Raises UsageError if two are equal."""
    if not inputs:
        raise UsageError("no recording is given, such as drive.mcap")
    cameras = name_cameras([topic for topic in references if topic is not None]) if len(references) > 1 else {}
    plan, known = [], dict[str, Path]()
    for recording in inputs:
        drive = make_safe(recording.name)
        plan.append(Planned(recording, [with_camera(drive, camera) for camera in cameras.values()] or [drive]))
        for sequence in plan[-1].sequences:  # some file systems ignore the case of letters
            other = known.setdefault(sequence.casefold(), recording.path)
            if other is not recording.path:
                both = f"{other} and {recording.path} would both become the sequence {sequence}"
                raise UsageError(f"{both}: name one of them with --sequence NAME={recording.path}")
    return plan


INSTEAD = {
    **dict.fromkeys(("path", "out", "output", "dataset", "zip", "container"), "paths.container"),
    **dict.fromkeys(("arrow", "annotations", "frames"), "paths, which has container, arrow and frames"),
    **dict.fromkeys(("ok", "success", "returncode"), "exit_code, 0 if complete"),
    **dict.fromkeys(("lost", "dropped"), "counts.lost"),
    **dict.fromkeys(("warnings", "errors"), "notes"),
}
"""Attributes that users expect of an outcome, and what it has instead."""


@dataclass(slots=True)
class Outcome:
    """Outcome of a conversion."""

    paths: DatasetPaths
    samples: int
    counts: Counts
    time_bases: dict[str, Any]
    """{sequence: {"base", "topics"}}: which stamps count, and for which topics others."""
    notes: list[str]
    """Notes to the user: damage, chosen topics, differing clocks."""
    loss: bool
    skews: dict[str, Skews]
    """{companion sensor: distribution of |skew| over the samples that have it}."""
    duration: float
    """Length of the recordings, s."""
    steps: Mapping[str, float]
    """Wall time of reading, converting and completing, s; empty if the dataset was finished already."""
    cores: float
    """Average number of busy cores."""
    groups: GroupCounts | None = None
    """Samples, sensors and labels of each group; None without groups."""
    refused: StorageError | None = None
    """Why the disk takes no more: the dataset is unfinished, and the same command continues it."""

    def __getattr__(self, name: str) -> Any:
        raise without_attribute(self, name, INSTEAD)

    @property
    def seconds(self) -> float:
        """Wall time of the conversion, s."""
        return sum(self.steps.values())

    @property
    def exit_code(self) -> int:
        """0 if complete, 3 after a loss."""
        return 3 if self.loss else 0

    def summarize(self) -> DatasetSummary:
        """Summarize the dataset from its tables.

        Returns:
            Sensors, topics and labels, by sequence and in sum.
        """
        from edgefirst_ros.dataset.summary import summarize_tables

        return summarize_tables(self.paths, grouped=self.groups is not None)

    def plain(self) -> dict[str, Any]:
        """Describe the outcome.

        Returns:
            The object that `convert --json` prints.
        """
        tables: dict[str, Any] = {}
        if self.refused is None:
            summary = self.summarize()
            tables = {"samples_with": dict(summary.whole.sensors), "skew_ms": summary.whole.skew}
            tables["by_sequence"] = summary.plain()
        paths, groups = self.paths, {} if self.groups is None else self.groups.plain
        return {
            "dataset": str(paths.container), "annotations": str(paths.arrow), "frames": str(paths.frames),
            "finished": self.refused is None, "samples": self.samples, "exit_code": self.exit_code, "loss": self.loss,
            "time_bases": self.time_bases, "counts": self.counts.plain(), **tables, "groups": groups,
            "notes": self.notes, "duration_s": self.duration, "seconds": self.seconds,
            "seconds_by_step": dict(self.steps), "cores": self.cores,
        }  # fmt: skip

    def text(self) -> Text:
        """Describe the outcome for people: sequences, topics, sensors, groups, notes.

        Returns:
            Lines, and tables as (head, rows).
        """
        from edgefirst_ros.dataset.query import count_repeats, describe_repeats

        if self.refused is not None:
            yield f"{pluralize(self.samples, 'sample')} in {show_path(self.paths.members_partial)}, unfinished"
            yield from (f"note: {note}" for note in self.notes)
            return
        summary = self.summarize()
        by_sensor = summary.whole.sensors
        yield f"{pluralize(self.samples, 'sample')} in {show_path(self.paths.container)}"
        yield f"tables: {show_path(self.paths.arrow)}, {show_path(self.paths.frames)}"
        yield ""
        if summary.is_several:
            yield summary.sequence_table()
            yield ""
        yield from summary.topic_table()
        yield ""
        yield from summary.sensor_table()
        modelled = [one for one in summary.sequences if one.sensors.get("model")]
        if modelled:
            done, samples = by_sensor["model"], sum(one.samples for one in modelled)
            several = len(modelled) < len(summary.sequences)
            of = f" in {len(modelled)} of {len(summary.sequences)} sequences" if several else ""
            skipped = f" and skipped {samples - done}: do not train on these as background" if samples > done else ""
            yield f"the model processed {done} of {pluralize(samples, 'sample')}{of}{skipped}"
        if max(by_sensor.values(), default=0) > 1:  # else no members can repeat
            members, size = count_repeats(self.paths)
            if members:
                yield describe_repeats(members, size)
        if self.groups is not None:
            yield ""
            yield from self.groups.text()
        yield ""
        bases = sorted({base["base"] for base in self.time_bases.values()})
        word = summary.whole.calibration
        yield f"time base: {', '.join(bases)}{word and f'; calibration: {word}'}"
        if self.seconds:  # else it was already finished
            speed = self.duration / self.seconds
            if self.duration:
                yield f"{self.duration:.1f} s of recording in {self.seconds:.1f} s, {speed:.1f} times real time"
            yield ", ".join(f"{step} {value:.1f} s" for step, value in self.steps.items())
        yield from (f"note: {note}" for note in self.notes)
        if self.loss:
            yield "finished with loss: see the notes and the column `not used` above"


def convert(
    recordings: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    name: str | None = None,
    config: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    join: bool = False,
    sequences: Mapping[str, str | os.PathLike[str]] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
    one_of_many: bool = False,
    **options: Any,
) -> Outcome:
    """Convert recordings to one EdgeFirst dataset in the folder `out`.

    Each recording becomes a sequence with the name of its file. An interrupted conversion continues after its last
    committed sample, and the result is the same as without the interruption.

    Args:
        recordings: Recordings (`.mcap`, `.db3`, `.bag`, rosbag2 folders), or folders of these; one or several.
        out: Folder of the dataset.
        name: Name of the dataset; default: that of the recording, or of the folder for several.
        config: YAML file with settings.
        settings: All settings; replaces `config` and `options`.
        join: Treat all files as parts of one recording.
        sequences: {name: recording} for sequences with other names.
        overwrite: Replace an existing dataset.
        resume: Accept a finished dataset of the same recordings and settings.
        progress: Is called with (step, done, total).
        one_of_many: Accept a group pattern that matches no sequence here, because others are converted separately.
        **options: Fields of `edgefirst_ros.Settings`, such as `rate=5` (Hz) or `tolerance=0.05` (s); they override
            `config`. `print(edgefirst_ros.Settings())` prints all.

    Returns:
        Paths, counts by topic, skews in ns, notes, and the exit code: 3 if data was lost.

    Raises:
        RecordingError: A recording cannot be read.
        DatasetError: The dataset cannot be written; no usable dataset exists.
        UsageError: The settings are invalid or do not fit the recordings.
    """
    if isinstance(recordings, (str, os.PathLike)):
        recordings = [recordings]
    if isinstance(settings, Mapping) or isinstance(config, Mapping):
        raise UsageError("expected settings as keywords, such as convert(recording, out, rate=5), got a map")
    if absent := [path for path in (*recordings, *(sequences or {}).values()) if not os.path.lexists(str(path))]:
        refuse_buckets("convert", absent, "the command edgefirst-ros convert fetches it first", does="read from")
    named = {name: Path(file) for name, file in (sequences or {}).items()}
    inputs = list_recordings([Path(recording) for recording in recordings], join=join, sequences=named)
    notes: list[str] = []
    if settings is None:
        settings = load(config, note=notes.append, **options)
    elif options or config is not None:
        raise UsageError(f"settings and single options cannot be combined: {', '.join(options) or 'config'}")
    notes += settings.doubts
    check_form(settings.pcd)
    if settings.picture_hook is not None:
        prepare_hook(settings.picture_hook, Path(config) if config is not None else None)
    references = list(dict.fromkeys(settings.references))
    plan = _plan(inputs, references)
    rule = GroupRule.of(settings)
    if rule is not None and not one_of_many:
        rule.check([sequence for planned in plan for sequence in planned.sequences])
    if name is None:
        name = make_safe(inputs[0].name if len(inputs) == 1 else Path(os.path.abspath(out)).name)
    else:
        check_name(name)
    if resume and overwrite:
        raise UsageError("--resume and --overwrite cannot be combined")
    check_folder(out)
    places = DatasetPaths(Path(os.path.abspath(out)), name, settings.layout)
    if resume and places.finished:
        return _read_outcome(places, plan, settings, notes)
    if not places.unfinished or os.path.lexists(places.container):  # of an unfinished one tables may be in place
        refuse_existing(places, overwrite=overwrite)
    run = _Run(places, settings, references, plan, notes, overwrite, progress or ignore_progress, one_of_many)
    with run.stack:
        for recording in plan:
            run.recording(recording)
        return run.finish()


@dataclass
class _Run:
    """One conversion, recording by recording, with the facts of all of them."""

    _paths: DatasetPaths
    _settings: Settings
    _references: Sequence[str | None]
    _plan: Sequence[Planned]
    _notes: list[str]
    _overwrite: bool
    _progress: Progress
    _one_of_many: bool
    stack: ExitStack = field(default_factory=ExitStack)
    _steps: dict[str, float] = field(default_factory=dict)  # s on the clock by step
    _began: float = field(default_factory=time.process_time)
    _writer: DatasetWriter | None = None
    _sources: int = 0  # files of the recordings that were converted
    _earlier: Mapping[str, Any] | None = None  # metadata of the interrupted conversion that is continued
    _skews: dict[str, Skews] = field(default_factory=dict)
    _closest: dict[str, int] = field(default_factory=dict)
    """{companion sensor: least distance of a message from a frame without one, ns}."""
    _hints: list[str] = field(default_factory=list)
    """Topics without a use: below all that may be wrong."""
    _loss: bool = False
    _duration: float = 0.0
    _refused: StorageError | None = None
    _misused: UsageError | None = None  # the first recording that the settings do not fit
    _labels: set[str] | None = None  # labels of the models of all recordings; None without a model

    def __post_init__(self) -> None:
        self._alone = len(self._plan) == 1
        self._facts = DatasetFacts(self._settings)
        if len(self._references) > 1:
            self._notes.append(
                f"topics are counted once for each of the {len(self._references)} cameras of a recording"
            )

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Add the wall time of the block to a step."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._steps[name] = self._steps.get(name, 0.0) + time.monotonic() - began

    def recording(self, planned: Planned) -> None:
        """Convert one recording, walked once for all its cameras; with several, one that cannot be used is a loss."""
        given = planned.recording
        if self._refused is not None:
            self._notes.append(f"{given.label}: not converted, the disk refuses more data")
            return
        try:
            report = partial(self._progress, f"reading {given.label}")
            first, *more = given.files
            with self._step("reading"):
                walked = walk(first, self._settings, report, hashed=True, more=more)
                found = {
                    sequence: walked.conclude(self._settings.model_copy(update={"reference_topic": topic}))
                    for sequence, topic in zip(planned.sequences, self._references, strict=True)
                }
                try:
                    self._facts.check_labels(each.calibration.labels for each in found.values())
                except UsageError as error:
                    raise UsageError(f"{given.label}: {error}") from error
                left, *others = ({of["topic"]: of["use"] for of in each.roles.unused} for each in found.values())
                unused = {topic: use for topic, use in left.items() if all(topic in other for other in others)}
                if self._settings.strict_topics and unused:
                    uses = "; ".join(f"{topic} ({use})" for topic, use in unused.items())
                    what = f"{given.label}: --strict-topics: not used: {uses}"
                    raise UsageError(f"{what}; list what stays unused under `unused` of a rig")
        except (RecordingError, UsageError) as error:
            if self._alone:
                raise
            self._misused = self._misused or (error if isinstance(error, UsageError) else None)
            self._notes.append(str(error))
            self._facts.left_out.append(planned.describe_dropped(error))
            return
        options = {topic: describe_option(use, rigged=self._settings.rig is not None) for topic, use in unused.items()}
        self._hints += [f"{given.label}: {topic} is not used; to use it: {use}" for topic, use in options.items()]
        for conclusions in found.values():
            if conclusions.unknown_labels and self._alone and not self._one_of_many:
                raise UsageError(f"{given.label}: {conclusions.unknown_labels}")
            if conclusions.calibration.labels is not None:
                self._labels = {*(self._labels or ()), *conclusions.calibration.labels}
        for file in walked.recording.files:
            self._notes += [f"{file.path.name}: {damage}" for damage in file.damage]
            self._loss = self._loss or any(damage.loss for damage in file.damage)
        for sequence, conclusions in found.items():
            self._report_first_pass(conclusions, given.label if len(found) == 1 else sequence)
        for sequence, conclusions in found.items():
            if self._refused is None:
                with self._step("converting"):
                    self._convert(conclusions, sequence)
                label = given.label if len(found) == 1 else sequence
                self._notes += [f"{label}: {note}" for note in conclusions.calibration.notes]
                self._facts.end()
        self._sources += len(given.files)
        self._duration += max(conclusions.duration for conclusions in found.values()) / SECOND

    def _report_first_pass(self, found: FirstPass, label: str) -> None:
        self._notes += [f"{label}: {note}" for note in found.roles.notes]
        self._notes += [f"{label}: {topic}: {what}" for topic, what in found.base.replaced.items()]
        self._notes += [f"{label}: {found.unknown_labels}"] if found.unknown_labels else []
        self._notes += [f"{label}: {found.cut.note}"] if found.cut is not None and found.cut.note else []
        if found.segments > 1:
            self._notes.append(f"{label}: the clock was set or stopped: {found.segments} segments")

    def _open(self, found: FirstPass) -> DatasetWriter:
        if self._writer is None:
            writer = open_writer(
                self._settings, found.roles, self._paths.out, self._paths.name, describe=self._facts.describe,
                overwrite=self._overwrite, unfinished=None if self._overwrite else self._open_unfinished(),
            )  # fmt: skip
            self._writer = self.stack.enter_context(writer)
        return self._writer

    def _open_unfinished(self) -> UnfinishedDataset | None:
        """Return the unfinished dataset of an interrupted run; raises DatasetError if it was of another conversion."""
        if not self._paths.unfinished:
            return None
        found = resume_unfinished(self._paths, self._plan, self._facts.describe())
        self._earlier = found.journals.description
        done = pluralize(found.journals.points[-1].samples, "sample")
        self._notes += [f"continues after {done} of an interrupted conversion"]
        return found

    def _convert(self, found: FirstPass, sequence: str) -> None:
        facts = found.sequence(sequence, self._sources)
        self._facts.begin(facts)
        writer, examples = self._open(found), facts.counts.examples
        if self._earlier is not None:
            check_recordings(self._paths, self._earlier, self._facts.describe())
        with SequenceOutput(self._settings, facts, writer, found) as output:
            output.read(found, partial(self._progress, f"converting {sequence}"))
        self._refused = output.refused
        self._notes += [f"{sequence}: {output.samples.note}"] if output.samples.note else []
        self._notes += [f"{sequence}: {topic}: first {example}" for (topic, _), example in examples.items()]
        for sensor, away in output.frames.closest.items():
            self._closest[sensor] = min(away, self._closest.get(sensor, away))
        for sensor, skews in output.skews.items():
            self._skews.setdefault(sensor, Skews()).merge(skews)

    def finish(self) -> Outcome:
        writer = self._writer
        if writer is None and self._misused is not None:
            raise self._misused
        if writer is None or not writer.samples:
            raise self._refused or RecordingError(self._nothing())
        facts = self._facts
        self._notes += [*facts.notes, *self._hints]
        unknown = sorted(self._settings.label_map.keys() - self._labels) if self._labels is not None else []
        if unknown and not self._alone:
            self._notes.append(f"label_map: no recording has a label {unknown[0]!r}")
            self._loss = True
        groups = None
        with self._step("completing"):
            if self._refused is None:
                try:
                    writer.finish(facts.metadata(), facts.labels, facts.categories, facts.box3d_frame)
                except StorageError as error:
                    self._refused = error
            if self._refused is None:
                groups = _count_groups(self._paths, self._settings, self._notes)
            else:
                self._leave_unfinished(writer, self._refused)
        refused, seconds = self._refused, sum(self._steps.values())
        cores = (time.process_time() - self._began) / seconds if seconds else 0.0
        loss = self._loss or bool(facts.left_out) or refused is not None or bool(facts.counts.lost)
        return Outcome(
            self._paths, writer.samples if refused is None else writer.committed, facts.counts, facts.time_bases,
            self._notes, loss, self._skews, self._duration, self._steps, cores, groups, refused,
        )  # fmt: skip

    def _leave_unfinished(self, writer: DatasetWriter, refused: StorageError) -> None:
        """Leave the dataset so that the next run can continue it; raises `refused` if that is not possible."""
        with suppress(StorageError):
            writer.flush()
        cause: BaseException | None = refused
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__
        if not writer.committed or (cause is not None and cause.errno in _GONE):
            raise refused
        committed = pluralize(writer.committed, "sample")
        self._notes.append(
            f"unfinished, {committed} committed: {refused}; then run the same command again: it continues from there"
        )

    def _nothing(self) -> str:
        lines = [f"no samples, so no dataset in {self._paths.out}"]
        roles = {role for of in self._facts.describe()[SEQUENCES].values() for role in of["topics"]}
        for sensor in self._settings.require:
            found = [count for count in self._facts.counts.topics.values() if lacks(sensor) in count.dropped]
            frames = pluralize(sum(count.seen for count in found), "frame")
            without = f"{sum(count.dropped[lacks(sensor)] for count in found)} of {frames} without {sensor}"
            if found and sensor in self._closest:
                tolerance, closest = self._settings.stream(sensor)[0] / SECOND, self._closest[sensor] / SECOND
                lines.append(
                    f"{without} within {tolerance:g} s (--tolerance). Closest offset: {closest:.9g} s. "
                    f"Raise --tolerance or remove --require {sensor}."
                )
            elif found:
                why = "" if sensor.replace(".", "_") in roles else ": no recording has a topic for it"
                lines.append(f"{without}{why}. Remove --require {sensor}.")
        lines += self._notes
        for topic, count in self._facts.counts.topics.items():
            reasons = ", ".join(f"{reason}: {n}" for reason, n in count.dropped.items())
            if reasons:
                lines.append(f"{topic}: {pluralize(count.seen, 'message')}; {reasons}")
            if 2 * count.dropped[NO_PICTURE] > count.seen:
                lines.append("Video must be Annex B, with start codes: length-prefixed video (AVCC) shows no picture.")
        return "\n".join([*lines, *self._hints])


def _read_outcome(paths: DatasetPaths, plan: Sequence[Planned], settings: Settings, notes: list[str]) -> Outcome:
    """Return the outcome of a conversion that is finished already; raises DatasetError if it was another one."""
    samples, counts, time_bases, left_out = read_finished(paths, plan, settings)
    notes = [*notes, *(f"{of['file']}: not converted: {of['why']}" for of in left_out)]
    notes.append("the dataset was already complete, and stays as it is")
    groups = _count_groups(paths, settings, notes)
    loss = bool(left_out) or bool(counts.lost)
    return Outcome(paths, samples, counts, time_bases, notes, loss, {}, 0.0, {}, 0.0, groups)


def _count_groups(paths: DatasetPaths, settings: Settings, notes: list[str]) -> GroupCounts | None:
    """Count samples, sensors and labels of each group, and note what one does not have; None without groups."""
    rule = GroupRule.of(settings)
    if rule is None:
        return None
    from edgefirst_ros.dataset.regroup import GroupCounts  # polars takes a quarter of a second to load

    counts = GroupCounts.of([paths], rule)
    notes += counts.notes
    return counts
