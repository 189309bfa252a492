# SPDX-License-Identifier: Apache-2.0
"""Libraries that only looking needs: an extra that is not there is one line with its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from edgefirst_ros.errors import EdgeFirstError


def need(extra: str, libraries: Sequence[str]) -> None:
    """Raise EdgeFirstError with the line to install, where one of the libraries of an extra is missing."""
    for name in libraries:
        try:
            import_module(name)
        except ImportError as error:
            raise EdgeFirstError(f"{name} is missing ({error}): pip install 'edgefirst_ros[{extra}]'") from error
