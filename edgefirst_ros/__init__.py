# SPDX-License-Identifier: Apache-2.0
"""Turns drives of Maivin cameras and other vehicles into EdgeFirst datasets, on the device and off it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgefirst_ros import errors as errors
    from edgefirst_ros import export as export
    from edgefirst_ros import report as report
    from edgefirst_ros.config import Settings as Settings
    from edgefirst_ros.dataset.merge import merge as merge
    from edgefirst_ros.dataset.migrate import migrate as migrate
    from edgefirst_ros.dataset.query import Samples as Samples
    from edgefirst_ros.dataset.reader import Dataset as Dataset
    from edgefirst_ros.dataset.regroup import split as split
    from edgefirst_ros.dataset.sample import Sample as Sample
    from edgefirst_ros.dataset.schema import SequenceCalibration as SequenceCalibration
    from edgefirst_ros.dataset.validate import validate as validate
    from edgefirst_ros.export import restore as restore
    from edgefirst_ros.export.labels.labelling import label as label
    from edgefirst_ros.pipeline.conversion import Outcome as Outcome
    from edgefirst_ros.pipeline.conversion import convert as convert
    from edgefirst_ros.report.projection import project as project
    from edgefirst_ros.sensors.cube import Cube as Cube

__version__ = "1.0.0"
_HOMES = {
    "Cube": "sensors.cube",
    "Dataset": "dataset.reader",
    "Outcome": "pipeline.conversion",
    "Sample": "dataset.sample",
    "Samples": "dataset.query",
    "SequenceCalibration": "dataset.schema",
    "Settings": "config",
    "convert": "pipeline.conversion",
    "errors": "errors",
    "export": "export",
    "label": "export.labels.labelling",
    "merge": "dataset.merge",
    "migrate": "dataset.migrate",
    "project": "report.projection",
    "report": "report",
    "restore": "export",
    "split": "dataset.regroup",
    "validate": "dataset.validate",
}
"""Module of each public name; a module of the same name is itself the public object."""
_INSTEAD = {
    **dict.fromkeys(("load", "open", "read", "load_dataset"), "edgefirst_ros.Dataset(path)"),
    **{
        verb: f"the command edgefirst-ros {verb}"
        for verb in ("capture", "demo", "fleet", "info", "recover", "rig", "view")
    },
    **{name: f"edgefirst_ros.errors.{name}" for name in ("DatasetError", "EdgeFirstError", "UsageError")},
    "import_": "edgefirst_ros.restore(source, system, out)",
    "version": "edgefirst_ros.__version__",
    "Recording": "edgefirst_ros.convert(recording, out), or the command edgefirst-ros info",
}
"""Names that users try, and what does it."""
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604


class CallableModule(ModuleType):
    """A sub-package that is called like its function of the same name: `edgefirst_ros.export(...)`."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the function."""
        return getattr(self, self.__name__.rpartition(".")[2])(*arguments, **options)


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: `import edgefirst_ros` stays quick."""
    if name not in _HOMES:
        hint = f"; use {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    module = import_module(f"{__name__}.{_HOMES[name]}")
    return module if _HOMES[name] == name else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
