# SPDX-License-Identifier: Apache-2.0
"""The largest things that are read."""

from __future__ import annotations

from edgefirst_ros.config.values import Model, setting


class Limits(Model):
    """Sizes above which data are refused before memory is allocated; larger data are counted or reported as damage."""

    chunk_bytes: int = setting(
        1 << 28, "Largest chunk of a recording, unpacked, or message outside of one, bytes", ge=1 << 20, le=1 << 31
    )
    picture_pixels: int = setting(1 << 25, "Largest picture, pixels", ge=1, le=1 << 28)
    cube_values: int = setting(1 << 24, "Largest radar cube, values", ge=1, le=1 << 30)
    cloud_points: int = setting(1 << 22, "Largest point cloud, points", ge=1, le=1 << 30)
    table_rows: int = setting(
        1 << 19,
        "Most rows of a table of a dataset; one for every two bytes of its file are read in any case",
        ge=1,
        le=1 << 40,
    )
    unpacked_bytes: int = setting(
        1 << 28,
        "Most bytes that a table or all members of a ZIP unpack to; 16 times the file are read in any case",
        ge=1 << 20,
        le=1 << 40,
    )


DEFAULT_LIMITS = Limits()
