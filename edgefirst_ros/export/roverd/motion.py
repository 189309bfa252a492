# SPDX-License-Identifier: Apache-2.0
"""Position and attitude of the vehicle as sensors of a trace; extrinsics of its sensors."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.drive import Drive
from edgefirst_ros.export.roverd.channels import EXTRINSICS, STAMPS, RawWriter, write_json, write_meta
from edgefirst_ros.export.roverd.clouds import TEXTS
from edgefirst_ros.sensors.transforms import BASE, Floats, rotation

POSE = "_radar/pose.npz"
LLA, ROT = "lla", "rot"
PLACES = {"camera": ("camera",), "radar": ("radar", "radar_points"), "lidar": ("lidar_points",)}
"""Frame of a sensor -> its folders."""


def write_motion(drive: Drive, folder: Path, entries: Counter[str]) -> dict[str, list[str]]:
    """Write gps/lla, imu/rot and _radar/pose.npz, as far as they are known; the channels by sensor, files under `_`.

    gps/lla: latitude and longitude in degrees, altitude in m (NaN: unknown). imu/rot: base_link to ENU as Euler angles
    in rad, turned about x, then the new y, then the new z. pose.npz: place `pos` (N, 3) in m, turn `rot` (N, 3, 3) of
    base_link in ENU at the first place, `vel` and `acc` as differences, `t` in s.
    """
    written = {}
    placed, turned = (np.flatnonzero(known).tolist() for known in (drive.placed, drive.turned))
    names = ("latitude", "longitude", "altitude")
    lla = np.array([[drive.rows[n].get(name) for name in names] for n in placed], float)  # None is NaN
    written["gps"] = _sensor(
        folder / "gps", drive, placed, LLA, "f8", lla, "Latitude and longitude in degrees (WGS-84), altitude in metres."
    )
    angles = euler(rotation([drive.rows[n]["orientation"] for n in turned])) if turned else np.empty((0, 3))
    text = f"Orientation of {BASE} in ENU: Euler angles XYZ, each about the axis turned by the one before, in rad."
    written["imu"] = _sensor(folder / "imu", drive, turned, ROT, "f4", angles, text)
    entries["gps"] += len(placed)
    entries["imu"] += len(turned)
    if drive.located.sum() > 1:
        entries["pose"] += int(drive.located.sum())
        known = drive.rig_to_world[drive.located]
        seconds = (drive.stamps[drive.located] - drive.stamps[drive.located][0]) / 1e9  # differences want small numbers
        velocity = np.gradient(known[:, :3, 3], seconds, axis=0)
        path = folder / POSE
        path.parent.mkdir(exist_ok=True)
        np.savez(
            path,
            pos=known[:, :3, 3],
            rot=known[:, :3, :3],
            vel=velocity,
            acc=np.gradient(velocity, seconds, axis=0),
            t=drive.stamps[drive.located] / 1e9,
        )
        written["_"] = [POSE]
    return written


def _sensor(folder: Path, drive: Drive, which: list[int], name: str, kind: str, values: Any, text: str) -> list[str]:
    if not which:
        return []
    folder.mkdir()
    made = {STAMPS: RawWriter(folder / STAMPS, "f8", ()), name: RawWriter(folder / name, kind, (3,))}
    for n, value in zip(which, values, strict=True):
        made[STAMPS].append(drive.stamps[n] / 1e9)
        made[name].append(value)
    for channel in made.values():
        channel.close()
    described = {known: channel.described for known, channel in made.items()}
    write_meta(folder, described, {STAMPS: TEXTS[STAMPS], name: text})
    return list(made)


def euler(turns: Floats) -> Floats:
    """(N, 3) angles a, b, c in rad of rotations (N, 3, 3) = Rx(a) Ry(b) Rz(c).

    c is 0 where both of them turn about one axis.
    """
    turns = np.asarray(turns, float).reshape(-1, 3, 3)
    b = np.arcsin(np.clip(turns[:, 0, 2], -1, 1))
    plain = np.hypot(turns[:, 0, 0], turns[:, 0, 1]) > 1e-9
    a = np.where(plain, np.arctan2(-turns[:, 1, 2], turns[:, 2, 2]), np.arctan2(turns[:, 2, 1], turns[:, 1, 1]))
    c = np.where(plain, np.arctan2(-turns[:, 0, 1], turns[:, 0, 0]), 0.0)
    return np.stack([a, b, c], -1)


def from_euler(angles: Floats) -> Floats:
    """(N, 4) quaternions x, y, z, w of what `euler` gives."""
    half = np.asarray(angles, float).reshape(-1, 3) / 2
    (sa, sb, sc), (ca, cb, cc) = np.sin(half).T, np.cos(half).T
    return np.stack(
        [
            sa * cb * cc + ca * sb * sc,
            ca * sb * cc - sa * cb * sc,
            ca * cb * sc + sa * sb * cc,
            ca * cb * cc - sa * sb * sc,
        ],
        -1,
    )


def write_places(drive: Drive, folder: Path) -> None:
    """Write camera/intrinsics.json, and extrinsics.json of each sensor whose place on the vehicle is known."""
    if (folder / "camera").is_dir():
        with suppress(DatasetError):
            write_json(folder / "camera" / "intrinsics.json", drive.camera)
    for sensor, folders in PLACES.items():
        try:
            place = drive.place(sensor)
        except DatasetError:
            continue
        said = {"parent": BASE, "sensor_to_parent": place.tolist()}
        for name in folders:
            if (folder / name).is_dir():
                write_json(folder / name / EXTRINSICS, said)
