# SPDX-License-Identifier: Apache-2.0
"""Settings of the nodes, besides those of a conversion."""

from __future__ import annotations

from pydantic import Field

from edgefirst_ros.config.values import Model, Place, Seconds


class LiveSettings(Model):
    """Settings of a capture, besides `Settings`."""

    out: Place = Field("datasets", description="Folder for the datasets")
    host: str | None = Field(
        None, description="First part of the names of sequences; the name of this machine if unset"
    )
    sequence: str | None = Field(None, description="Name of the first dataset; host and start in UTC if unset")
    autostart: bool = Field(True, description="Start recording when the node starts, instead of on command")
    pretrigger: Seconds = Field(0.0, description="Time before the start command with which a dataset begins, s")
    pretrigger_bytes: int = Field(
        1 << 29, ge=1 << 20, description="Memory that may take, bytes; where it is not enough a dataset begins later"
    )
    max_bytes: int = Field(0, ge=0, description="Size at which a new dataset begins, bytes; 0: never")
    max_seconds: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="Length at which a new dataset begins, s; 0: never"
    )
    fsync: bool = Field(True, description="Sync every commit to the disk, so that a power cut cannot lose it")
    flush_interval: float = Field(
        1.0, gt=0, le=60.0, allow_inf_nan=False, description="Longest time between commits, s"
    )
    min_free_bytes: int = Field(
        500_000_000, ge=0, description="Free space on the disk at which the capture stops, bytes"
    )
    stale_after: float = Field(
        5.0, gt=0, le=3600, allow_inf_nan=False, description="Time without a sample after which the capture is stale, s"
    )
    depth: int = Field(100, ge=1, le=10_000, description="Queue depth: messages that may wait per topic")
    report: bool = Field(False, description="Write an HTML report beside each finished dataset")
    upload: str | None = Field(
        None, description="Where finished datasets are sent, such as s3://drives/car7; nowhere if unset"
    )
    keep: bool = Field(
        True, description="Keep a dataset once it is uploaded; if not, it is removed after its checksums were compared"
    )
    upload_rate: int = Field(0, ge=0, description="Largest upload rate, bytes per second; 0: unlimited")


class ReplaySettings(Model):
    """Settings of a conversion as a ROS node, besides `Settings`."""

    recordings: tuple[Place, ...] = Field(
        (), description="MCAP files, rosbag2 folders, or folders of these; each becomes a sequence"
    )
    join: bool = Field(False, description="All files are parts of one recording")
    out: Place = Field("datasets", description="Folder for the dataset")
    name: str | None = Field(None, description="Name of the dataset; that of the recording if unset")
    overwrite: bool = Field(False, description="Replace an existing dataset")
