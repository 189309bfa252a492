# SPDX-License-Identifier: Apache-2.0
"""Datasets in the formats of other systems, and back. Their modules are imported when they are requested.

`help(edgefirst_ros.export.export)` describes the function that `edgefirst_ros.export(...)` calls.
"""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from edgefirst_ros import CallableModule
from edgefirst_ros.counts import Progress, ignore_progress
from edgefirst_ros.errors import DatasetError, Text, UsageError, join_names, show_path, sort_nearest
from edgefirst_ros.export.output import LossReport

if TYPE_CHECKING:
    from edgefirst_ros.dataset.reader import Dataset
    from edgefirst_ros.limits import Limits

__all__ = ["SYSTEMS", "Exported", "LossReport", "System", "export", "restore"]

T = TypeVar("T")
REPORT = "export-report.json"
OPTICAL_AXES = "right, down, forward of a sensor in tables of earlier versions: migrate --box3d-axes optical turns them"
MOST_NAMED = 10
"""Most sequences that a line of the report names."""


@dataclass(frozen=True)
class System:
    """A foreign format that can be written, and read if `restore` is not None."""

    name: str
    export: Callable[..., None]
    """Called with an opened dataset, an empty folder, the report, the progress, and options by keyword."""
    restore: Callable[..., None] | None
    """Called with the folder or file that is imported, an empty folder, the limits, the report, the progress."""
    options: Sequence[str]
    """Names of the options of `export`."""
    calibrated: bool = True
    """True if the format can hold calibrations."""
    joins: bool = False
    """True if `export` writes several datasets, opened as one, into one folder."""


def _defer(module: str, name: str) -> Callable[..., None]:
    """Return a function of a module that is imported at the first call."""

    def call(*arguments: Any, **options: Any) -> None:
        getattr(import_module(f"{__name__}.{module}"), name)(*arguments, **options)

    return call


class SystemOption(NamedTuple):
    """An option of one or several systems."""

    purpose: str
    type: type = bool
    form: str | None = None
    """Its values on the command line."""


OPTIONS = {
    "keyframe_rate": SystemOption("keyframes a second; other messages are sweeps; default: 2", float, "HZ"),
    "scene_seconds": SystemOption("length of a scene; default: a sequence is one scene", float, "S"),
    "undistort": SystemOption("take the lens distortion out of the pictures"),
    "store": SystemOption("one file per group of components, or a folder; default: itar", str, "itar|directory"),
    "pictures": SystemOption(
        "copies, links into a dataset of layout directory, or none; default: copy", str, "copy|link|none"
    ),
    "by_group": SystemOption("a file of annotations for each group"),
    "segment": SystemOption("mask outlines instead of boxes"),
    "single_group": SystemOption("export even without pictures in group train or val"),
    "unlooked": SystemOption("include samples that the model skipped, as empty ones"),
}
"""All options by name but `labels`, which maps labels to classes of a system."""
_COCO = ("pictures", "unlooked", "by_group")
_YOLO = ("pictures", "unlooked", "segment", "single_group")
_NUSCENES = ("keyframe_rate", "scene_seconds", "labels", "undistort")
SYSTEMS = {
    system.name: system
    for system in (
        System("coco", _defer("labels.coco", "export"), None, _COCO, calibrated=False),
        System("yolo", _defer("labels.yolo", "export"), None, _YOLO, calibrated=False),
        System("ncore", _defer("ncore.write", "export"), _defer("ncore.read_foreign", "restore"), ("store",)),
        System("l5kit", _defer("l5kit.write", "export"), _defer("l5kit.read_foreign", "restore"), ("labels",)),
        System("roverd", _defer("roverd.write", "export"), _defer("roverd.read_foreign", "restore"), ()),
        System("nuscenes", _defer("nuscenes", "export"), None, _NUSCENES, joins=True),
    )
}
"""The systems that are known, by name."""
WIDTH = 40
"""Width in characters of the column that names columns and sensors."""


@dataclass(frozen=True)
class Exported:
    """Outcome of an export or import: the folder `out`, and the loss report."""

    system: str
    out: Path
    report: LossReport
    exit_code: int = 0
    datasets: Sequence[Path] = ()
    """What an import made: ZIPs, or tables of annotations."""

    def plain(self) -> dict[str, Any]:
        """Return the outcome, ready for JSON."""
        return {"out": str(self.out), "exit_code": self.exit_code} | self.report.plain()

    def text(self) -> Text:
        """Return the place of every column and sensor, and the losses."""
        made = join_names(map(show_path, self.datasets or [self.out]), MOST_NAMED)
        yield f"{self.system}: {'imported' if self.datasets else 'written'} to {made}"
        yield ""
        rows = []
        for line in self.report.lines:
            lost = f"lost: {line.lost}" if line.where and line.lost else line.lost
            number = "" if line.number is None else str(line.number)
            first, *more = textwrap.wrap(line.what, WIDTH, break_long_words=False, break_on_hyphens=False) or [""]
            rows.append((first, number, "; ".join(filter(None, (line.where, lost)))))
            rows += [(part, "", "") for part in more]
        yield ("what", "number", "where it went"), rows


def export(
    dataset: Dataset | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    to: str,
    out: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Exported:
    """Write a dataset to the new folder `out` in the format of another system.

    Several datasets become one set of nuScenes; the other systems take one dataset.

    Args:
        dataset: Dataset, or its path.
        to: Name of the system, one of `SYSTEMS`: coco, yolo, ncore, l5kit, roverd, nuscenes.
        out: Folder that does not exist yet.
        progress: Is called with (step, done, total).
        **options: Options of the system, such as `segment=True` for yolo.

    Returns:
        The folder, and a report of where each column and sensor was written and the losses.

    Raises:
        UsageError: The system or option is unknown, or a library is missing.
        DatasetError: `out` exists, or the dataset does not have data that the format needs; `out` is not created.
    """
    from edgefirst_ros.dataset.names import check_path
    from edgefirst_ros.dataset.objects.location import is_remote
    from edgefirst_ros.dataset.objects.places import refuse_buckets
    from edgefirst_ros.dataset.reader import Dataset
    from edgefirst_ros.export.output import refuse_inside, stage_folder

    refuse_buckets("export", [out], "export to a folder, or use fleet export")
    system = _find_system(to, SYSTEMS)
    chosen = {name: value for name, value in options.items() if value is not None}
    if name := next((name for name in chosen if name not in system.options), None):
        owners = ", ".join(other.name for other in SYSTEMS.values() if name in other.options)
        hint = f"it is one of {owners}" if owners else f"known: {', '.join(system.options) or 'none'}"
        flag = "--label-map" if name == "labels" else f"--{name.replace('_', '-')}"
        raise UsageError(f"unknown option {name!r} ({flag}) for {to}; {hint}")
    check_path(out)
    opened = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    place, report = Path(os.path.abspath(out)), LossReport(to)
    parts = opened.parts
    if len(parts) > 1 and not system.joins:
        names = ", ".join(other.name for other in SYSTEMS.values() if other.joins)
        raise UsageError(f"{to} accepts one dataset, got {len(parts)}: merge them first; only {names} accepts several")
    for part in parts:
        refuse_inside(place, part.paths.container)
        if is_remote(part.paths.container) and part.table_files[0] is None:
            raise DatasetError(
                f"{part.paths.arrow}: missing, like NAME.parquet, so the labels are unknown; upload it beside the ZIP"
            )
    if mapped := chosen.get("labels"):
        from edgefirst_ros.export.drive import collect_labels

        there = collect_labels(parts)
        if absent := [label for label in mapped if label.casefold() not in map(str.casefold, there)]:
            known = sort_nearest(absent[0], there)
            report.add(f"label map: {', '.join(absent)}", "", f"the dataset has no such label; known: {known}")
    with stage_folder(place) as folder:
        system.export(opened if system.joins else parts[0], folder, report, progress or ignore_progress, **chosen)
        if system.calibrated:
            _report_placeholders(opened, report)
            if any(part.lacks_axes for part in parts):
                report.add("box3d (axes not stated)", "as forward, left, up", OPTICAL_AXES)
        report.write(folder / REPORT)
    return Exported(to, place, report)


def _report_placeholders(dataset: Dataset, report: LossReport) -> None:
    from edgefirst_ros.sensors.calibration import IDENTITY, MISSING

    words = {name: part.calibration(name).calibration for part in dataset.parts for name in part.sequences}
    for word, meaning in (
        (IDENTITY, "a placeholder: its transforms do not rotate"),
        (MISSING, "missing or incomplete"),
    ):
        names = [name for name, found in words.items() if found == word]
        report.count(f"calibration ({word})", f"as it is, of {join_names(names, MOST_NAMED)}", meaning, len(names))


def restore(
    source: str | os.PathLike[str],
    system: str,
    out: str | os.PathLike[str],
    *,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Make a dataset in the new folder `out` from data of another system; from l5kit only annotations.

    Args:
        source: File or folder of that system.
        system: Name of the system: ncore, l5kit or roverd.
        out: Folder that does not exist yet.
        limits: Largest size that `source` may unpack to; default: the limits of the settings.
        progress: Is called with (step, done, total).

    Returns:
        The folder, and a report of the data that a dataset has no place for.

    Raises:
        UsageError: The system is unknown, or a library is missing.
        DatasetError: `source` cannot be read, or `out` exists; `out` is not created.
    """
    from edgefirst_ros.dataset.names import check_path
    from edgefirst_ros.dataset.objects.location import Location
    from edgefirst_ros.dataset.objects.places import refuse_buckets
    from edgefirst_ros.export.output import refuse_inside, stage_folder
    from edgefirst_ros.limits import DEFAULT_LIMITS

    refuse_buckets("import", [source], "fetch the folder, and import that", does="read from")
    refuse_buckets("import", [out], "import to a folder, then upload the dataset")
    known = {name: found.restore for name, found in SYSTEMS.items() if found.restore is not None}
    if system in SYSTEMS and not SYSTEMS[system].calibrated:
        raise UsageError(
            f"{system} holds only labels: edgefirst-ros label DATASET --from {system} {source} imports them"
        )
    read = _find_system(system, known, "--from")
    check_path(out)
    given = Location.of(source).path if os.fspath(source).startswith("file:") else Path(source)
    place, report = Path(os.path.abspath(out)), LossReport(system)
    if not given.exists():
        raise DatasetError(f"{given}: no such file or directory")
    refuse_inside(place, given)
    with stage_folder(place) as folder:
        read(given, folder, limits or DEFAULT_LIMITS, report, progress or ignore_progress)
        report.write(folder / REPORT)
    return Exported(system, place, report, 0, sorted(place.glob("*.zip")) or sorted(place.glob("*.arrow")))


def _find_system(name: str, known: Mapping[str, T], flag: str = "--to") -> T:
    if name not in known:
        raise UsageError(f"{flag}: expected one of {', '.join(known)}, got {name!r}")
    return known[name]


sys.modules[__name__].__class__ = CallableModule
