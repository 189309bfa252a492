# SPDX-License-Identifier: Apache-2.0
"""Datasets in the forms of other systems, and back. Their modules are imported when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export.output import refuse_inside, staged
from edgefirst_ros.export.report import Report
from edgefirst_ros.progress import Progress, quiet

if TYPE_CHECKING:
    from edgefirst_ros.dataset.reader import Dataset

__all__ = ["Exported", "Report", "export", "restore"]

SYSTEMS = ("ncore", "l5kit", "roverd")
REPORT = "export-report.json"


@dataclass(frozen=True)
class Exported:
    """What became of an export or import: the folder `out`, and where everything went."""

    system: str
    out: Path
    report: Report
    exit_code: int = 0


def export(
    dataset: Dataset | str | os.PathLike[str],
    to: str,
    out: str | os.PathLike[str],
    *,
    labels: Mapping[str, str] | None = None,
    store: str | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write a dataset to the new folder `out` as "ncore", "l5kit" or "roverd" has it.

    `labels`, for l5kit: names of its classes by label, over the usual ones. `store`, for ncore: "itar" or "directory".
    Raises UsageError for what cannot be asked for or a library that is missing, DatasetError where `out` exists or the
    dataset lacks what the form needs; nothing is left in `out` then.
    """
    from edgefirst_ros.dataset.reader import Dataset

    _known(to)
    if labels is not None and to != "l5kit":
        raise UsageError(f"labels are for l5kit alone, not for {to}")
    if store is not None and to != "ncore":
        raise UsageError(f"a kind of store is for ncore alone, not for {to}")
    opened = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    place, report, tell = Path(os.path.abspath(out)), Report(to), progress or quiet
    refuse_inside(place, opened.paths.container)
    with staged(place) as folder:
        if to == "l5kit":
            from edgefirst_ros.export import l5kit

            l5kit.export(opened, folder, report, tell, labels)
        elif to == "ncore":
            from edgefirst_ros.export import ncore

            ncore.export(opened, folder, report, tell, store=store or "itar")  # type: ignore[arg-type]  # it names them
        else:
            from edgefirst_ros.export import roverd

            roverd.export(opened, folder, report, tell)
        report.write(folder / REPORT)
    return Exported(to, place, report)


def restore(
    source: str | os.PathLike[str],
    system: str,
    out: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> Exported:
    """Make of what is in `source`, in the form of "ncore", "l5kit" or "roverd", a dataset in the new folder `out`.

    Of l5kit it is annotations alone. Raises as `export`.
    """
    _known(system)
    given, place, report, tell = Path(source), Path(os.path.abspath(out)), Report(system), progress or quiet
    if not given.exists():
        raise DatasetError(f"{given}: not there")
    refuse_inside(place, given)
    with staged(place) as folder:
        if system == "l5kit":
            from edgefirst_ros.export import l5kit

            l5kit.restore(given, folder, report, tell)
        elif system == "ncore":
            from edgefirst_ros.export import ncore

            ncore.restore(given, folder, report, tell)
        else:
            from edgefirst_ros.export import roverd

            roverd.restore(given, folder, report, tell)
        report.write(folder / REPORT)
    return Exported(system, place, report)


def _known(system: str) -> None:
    if system not in SYSTEMS:
        raise UsageError(f"{system!r} is no form that is known here; known are {', '.join(SYSTEMS)}")
