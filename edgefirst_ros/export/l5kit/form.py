# SPDX-License-Identifier: Apache-2.0
"""Files and records of L5Kit. Source: L5Kit 1.5.0, l5kit/data/zarr_dataset.py."""

from __future__ import annotations

import numpy as np

from edgefirst_ros.export.l5kit.labels import LABELS

FORMAT_VERSION = 2
STORE, PLACE = "scenes.zarr", "meta.json"
"""The arrays, and the place of the world on the earth."""
SIDE, TRACKS = "edgefirst.json", "tracks.arrow"
"""Side files with what L5Kit has no fields for, read by the import."""
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
