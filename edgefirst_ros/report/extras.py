# SPDX-License-Identifier: Apache-2.0
"""Libraries that only looking needs: an extra that is not there is one line with its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from edgefirst_ros.errors import EdgeFirstError

REPORT = ("report", ("jinja2", "plotly"))
"""The extra that pages need, and its libraries."""


def need(extra: str, libraries: Sequence[str]) -> None:
    """Raise EdgeFirstError with the line to install, where one of the libraries of an extra is missing."""
    for name in libraries:
        if find_spec(name) is None:
            raise EdgeFirstError(f"{name} is missing: pip install 'edgefirst_ros[{extra}]'")
