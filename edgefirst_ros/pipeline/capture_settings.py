# SPDX-License-Identifier: Apache-2.0
"""Settings of a capture without ROS: one file holds those of a conversion and those that only a capture has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.config_file import explain, load, read_values, setting_fields
from edgefirst_ros.dataset.names import check_name
from edgefirst_ros.errors import UsageError


def load_capture(
    path: str | os.PathLike[str] | None, texts: Mapping[str, str] | None = None
) -> tuple[Settings, LiveSettings]:
    """Return the settings of a YAML file, plain or in the form of ROS parameters, with those of `texts` on top.

    `texts`: settings by full name, as `config_file.load` takes them. Raises UsageError that names the wrong one.
    """
    own = LiveSettings.model_fields
    texts = texts or {}
    settings = load(path, texts={name: text for name, text in texts.items() if name not in own})
    given = {name: text for name, text in texts.items() if name in own}
    values = {name: value for name, value in read_values(Path(path)).items() if name in own} if path else {}
    try:
        live = LiveSettings(**{**values, **given})
        if live.sequence:
            check_name(live.sequence)
    except ValidationError as error:
        source = str(path) if path else "options"
        raise UsageError(explain(error, source, setting_fields(LiveSettings), options=given)) from None
    except UsageError as error:
        raise UsageError(f"sequence: {error}") from None
    return settings, live
