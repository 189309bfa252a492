# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros export` and `edgefirst-ros import`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from edgefirst_ros.cli.options import DATASET, read_limits, report_progress
from edgefirst_ros.cli.output import Result, explain_paths
from edgefirst_ros.errors import UsageError
from edgefirst_ros.export import OPTIONS, SYSTEMS

MAX_MAP = 1 << 20


def export(
    context: typer.Context,
    dataset: Annotated[Path, DATASET],
    to: Annotated[str, typer.Option("--to", metavar="|".join(SYSTEMS), help="Format to write.")],
    out: Annotated[Path, typer.Option("-o", "--out", readable=False, help="New folder for the output.")],
    label_map: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A=B|FILE", help="For l5kit and nuscenes: label=class, or a JSON file of them; may be repeated."
        ),
    ] = None,
    **options: Any,
) -> Result:
    """Write a dataset in the format of another system.

    The report lists the place of every column and sensor, and all losses.

    Exit codes: 0 written (the report lists losses), 1 no file written, 2 wrong usage.
    """
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.export import export as run
    from edgefirst_ros.limits import keep_buffers

    keep_buffers()
    limits = read_limits(context)
    labels = None if label_map is None else _read_label_map(label_map)
    with explain_paths(dataset), report_progress(context) as tell:
        return run(Dataset(dataset, limits=limits), to, out, labels=labels, progress=tell, **options)


def _add_options(verb: Any) -> None:
    """Give a verb the options of all systems, as parameters that typer reads."""
    made = dict(inspect.signature(verb, eval_str=True).parameters)
    del made["options"]
    for name, (purpose, kind, form) in OPTIONS.items():
        users = " and ".join(system.name for system in SYSTEMS.values() if name in system.options)
        given = typer.Option(f"--{name.replace('_', '-')}", metavar=form, help=f"For {users}: {purpose}.")
        made[name] = inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, given]
        )
    vars(verb)["__signature__"] = inspect.Signature([*made.values()])


_add_options(export)


def _read_label_map(given: list[str]) -> dict[str, str]:
    """Return the label map of LABEL=CLASS pairs and JSON files; later ones override earlier ones."""
    found: dict[str, str] = {}
    for item in given:
        label, equals, name = item.partition("=")
        if equals and not (label and name):
            raise UsageError(f"--label-map: expected LABEL=CLASS, got {item!r}")
        found.update({label: name} if equals else _read_map_file(Path(item)))
    return found


def _read_map_file(path: Path) -> dict[str, str]:
    from edgefirst_ros.config.yaml_file import open_regular

    try:
        with open_regular(path) as file:
            content = json.loads(file.read(MAX_MAP))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--label-map {path}: neither LABEL=CLASS nor a readable JSON file: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content.values()):
        raise UsageError(f"--label-map {path}: must be a JSON object of labels and classes")
    return content


KNOWN = "|".join(system.name for system in SYSTEMS.values() if system.restore is not None)


def restore(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", readable=False, help="Folder that `export` or the other system wrote.")
    ],
    system: Annotated[str, typer.Option("--from", metavar=KNOWN, help="Format of SOURCE.")],
    out: Annotated[Path, typer.Option("-o", "--out", readable=False, help="New folder for the dataset.")],
) -> Result:
    """Make a dataset from the format of another system.

    From l5kit only annotations are imported. The report lists the place of all data.

    Exit codes: 0 written (the report lists losses), 1 no file written, 2 wrong usage.
    """
    from edgefirst_ros.export import restore as run

    limits = read_limits(context)
    with report_progress(context) as tell:
        return run(source, system, out, limits=limits, progress=tell)
