# SPDX-License-Identifier: Apache-2.0
"""The largest things that are read.

A plain dataclass: datasets are read without pydantic, which takes as long to load as everything else that they need.
Where limits are among the settings, pydantic reads the rules of each from its metadata.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar


def _limit(default: int, description: str, *, ge: int, le: int) -> Any:
    return dataclasses.field(default=default, metadata={"description": description, "ge": ge, "le": le})


@dataclass(frozen=True)
class Limits:
    """Sizes above which data are refused before memory is allocated; larger data are counted or reported as damage.

    Raises ValueError for a limit that is out of range, or no whole number.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    chunk_bytes: int = _limit(
        1 << 28, "Largest chunk of a recording, unpacked, or message outside of one, bytes", ge=1 << 20, le=1 << 31
    )
    picture_pixels: int = _limit(1 << 25, "Largest picture, pixels", ge=1, le=1 << 28)
    cube_values: int = _limit(1 << 24, "Largest radar cube, values", ge=1, le=1 << 30)
    cloud_points: int = _limit(1 << 22, "Largest point cloud, points", ge=1, le=1 << 30)
    table_rows: int = _limit(
        1 << 19,
        "Most rows of a table of a dataset; one for every two bytes of its file are read in any case",
        ge=1,
        le=1 << 40,
    )
    unpacked_bytes: int = _limit(
        1 << 28,
        "Most bytes that a table or all members of a ZIP unpack to; 16 times the file are read in any case",
        ge=1 << 20,
        le=1 << 40,
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, least, most = getattr(self, field.name), field.metadata["ge"], field.metadata["le"]
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{field.name}: expected a whole number from {least} to {most}, got {value!r}")


DEFAULT_LIMITS = Limits()
