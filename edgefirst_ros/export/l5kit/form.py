# SPDX-License-Identifier: Apache-2.0
"""Files, records and classes of L5Kit. Source: L5Kit 1.5.0, l5kit/data/zarr_dataset.py and labels.py."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgefirst_ros.errors import UsageError

PREFIX = "PERCEPTION_LABEL_"
LABELS = (
    *(
        PREFIX + name
        for name in (
            "NOT_SET", "UNKNOWN", "DONTCARE", "CAR", "VAN", "TRAM", "BUS", "TRUCK", "EMERGENCY_VEHICLE",
            "OTHER_VEHICLE", "BICYCLE", "MOTORCYCLE", "CYCLIST", "MOTORCYCLIST", "PEDESTRIAN", "ANIMAL",
        )
    ),
    "AVRESEARCH_LABEL_DONTCARE",
)  # fmt: skip
"""In the order of `label_probabilities`."""
FORMAT_VERSION = 2
STORE, PLACE = "scenes.zarr", "meta.json"
"""The arrays, and the place of the world on the earth."""
SCENE = np.dtype([("frame_index_interval", "<i8", (2,)), ("host", "<U16"), ("start_time", "<i8"), ("end_time", "<i8")])
FRAME = np.dtype(
    [
        ("timestamp", "<i8"),
        ("agent_index_interval", "<i8", (2,)),
        ("traffic_light_faces_index_interval", "<i8", (2,)),
        ("ego_translation", "<f8", (3,)),
        ("ego_rotation", "<f8", (3, 3)),
    ]
)
AGENT = np.dtype(
    [
        ("centroid", "<f8", (2,)),
        ("extent", "<f4", (3,)),
        ("yaw", "<f4"),
        ("velocity", "<f4", (2,)),
        ("track_id", "<u8"),
        ("label_probabilities", "<f4", (len(LABELS),)),
    ]
)
LIGHT = np.dtype([("face_id", "<U16"), ("traffic_light_id", "<U16"), ("traffic_light_face_status", "<f4", (3,))])
ARRAYS = {
    "scenes": (SCENE, 10_000),
    "frames": (FRAME, 10_000),
    "agents": (AGENT, 20_000),
    "traffic_light_faces": (LIGHT, 10_000),
}
"""Type of a record, and records of a chunk, by array."""

UNKNOWN = LABELS.index(PREFIX + "UNKNOWN")
NOTHING = frozenset((*range(3), len(LABELS) - 1))
"""Those that say nothing of what it is."""

USUAL = {
    "person": "PEDESTRIAN", "people": "PEDESTRIAN", "human": "PEDESTRIAN",
    "vehicle": "OTHER_VEHICLE", "tractor": "OTHER_VEHICLE", "trailer": "OTHER_VEHICLE",
    "construction vehicle": "OTHER_VEHICLE", "train": "TRAM", "lorry": "TRUCK", "pickup": "TRUCK",
    "ambulance": "EMERGENCY_VEHICLE",
    "bike": "BICYCLE", "motorbike": "MOTORCYCLE", "rider": "CYCLIST", "biker": "MOTORCYCLIST",
    **dict.fromkeys(
        ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "deer"), "ANIMAL"
    ),
}  # fmt: skip
"""Classes by labels that are not their names."""


def official(labels: Mapping[str, str]) -> dict[str, int]:
    """Return the number of the class by label in lower case: classes' own names, usual labels, `labels` over them.

    A class is named with or without its prefix. Raises UsageError for one that L5Kit does not have.
    """
    names = {label.removeprefix(PREFIX): number for number, label in enumerate(LABELS)}
    found = {name.lower().replace("_", sign): number for name, number in names.items() for sign in "_ -"}
    found |= {label: names[name] for label, name in USUAL.items()}
    for label, name in labels.items():
        short = name.upper().removeprefix(PREFIX)
        if short not in names:
            raise UsageError(f"{name!r} for {label!r} is not a class of L5Kit; known: {', '.join(names)}")
        found[label.casefold()] = names[short]
    return found


def name_of(number: int) -> str:
    """Return the label of a class, such as emergency_vehicle."""
    return LABELS[number].removeprefix(PREFIX).lower()
