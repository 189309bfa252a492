# SPDX-License-Identifier: Apache-2.0
"""What the official nuScenes reader finds in the folders that standard input names: a line of JSON for each.

Runs in an environment of its own, which has numpy 1, once for many folders: its libraries take 2 s to load.
"""

import json
import sys

import numpy as np
from nuscenes.nuscenes import NuScenes
from nuscenes.utils.data_classes import LidarPointCloud, RadarPointCloud
from nuscenes.utils.geometry_utils import points_in_box

LINKS = {"visibility_token": "visibility", "first_sample_token": "sample", "last_sample_token": "sample"}
LINKS |= {f"{end}_annotation_token": "sample_annotation" for end in ("first", "last")}
SWEEPS = 10


def unresolved(reader):
    """Every link of every record that leads to no record, and every neighbour that does not link back."""
    found = []
    for table in reader.table_names:
        for record in getattr(reader, table):
            for key, value in record.items():
                if key.endswith("_token"):
                    values, target = [value], LINKS.get(key, key.removesuffix("_token"))
                elif key.endswith("_tokens"):
                    values, target = value, key.removesuffix("_tokens")
                elif key in ("prev", "next"):
                    values, target = [value] if value else [], table
                    back = "next" if key == "prev" else "prev"
                    if value and reader.get(table, value)[back] != record["token"]:
                        found.append(f"{table}.{key} does not link back")
                else:
                    continue
                found += [f"{table}.{key}: {link}" for link in values if link not in reader._token2ind[target]]
    return found


def sweeps(reader, sample, kind, channel):
    cloud, ages = kind.from_file_multisweep(reader, sample, channel, "LIDAR_TOP", nsweeps=SWEEPS)
    return {"points": cloud.points.T.tolist(), "ages": ages[0].tolist()}


def projected(reader, sample):
    """Every lidar point of a keyframe in the picture: pixels, and the depth that goes with them."""
    found, depth, picture = reader.explorer.map_pointcloud_to_image(
        sample["data"]["LIDAR_TOP"], sample["data"]["CAM_FRONT"]
    )
    return {"pixels": found[:2].T.tolist(), "depth": depth.tolist(), "size": picture.size}


def counted(reader, sample):
    """Lidar points in each box of a keyframe: what the table says, and what the reader counts."""
    path, boxes, _ = reader.get_sample_data(sample["data"]["LIDAR_TOP"])
    points = LidarPointCloud.from_file(path).points[:3]
    return [
        (reader.get("sample_annotation", box.token)["num_lidar_pts"], int(points_in_box(box, points).sum()))
        for box in boxes
    ]


def main(folder):
    reader = NuScenes("v1.0-trainval", folder, verbose=False)
    found = {
        "unresolved": unresolved(reader),
        "tables": {name: len(getattr(reader, name)) for name in reader.table_names},
        "scenes": [(scene["name"], scene["nbr_samples"]) for scene in reader.scene],
        "data": [
            {key: record[key] for key in ("channel", "timestamp", "is_key_frame", "filename", "width", "height")}
            | {"calibrated": reader.get("calibrated_sensor", record["calibrated_sensor_token"])}
            | {"pose": reader.get("ego_pose", record["ego_pose_token"]), "sample": record["sample_token"]}
            for record in reader.sample_data
        ],
        "boxes": [
            {key: box[key] for key in ("translation", "size", "rotation", "num_lidar_pts", "category_name")}
            | {
                "instance": box["instance_token"],
                "timestamp": reader.get("sample", box["sample_token"])["timestamp"],
                "velocity": [v if np.isfinite(v) else None for v in reader.box_velocity(box["token"]).tolist()],
            }
            for box in reader.sample_annotation
        ],
        "samples": [(sample["token"], sample["timestamp"], sorted(sample["data"])) for sample in reader.sample],
    }
    found["counted"] = [pair for sample in reader.sample for pair in counted(reader, sample)]
    middle = next((s for s in reader.sample[2:] if {"LIDAR_TOP", "RADAR_FRONT", "CAM_FRONT"} <= set(s["data"])), None)
    found["middle"] = middle and {
        "timestamp": middle["timestamp"],
        "lidar": sweeps(reader, middle, LidarPointCloud, "LIDAR_TOP"),
        "radar": sweeps(reader, middle, RadarPointCloud, "RADAR_FRONT"),
        "projected": projected(reader, middle),
        "boxes_seen": len(reader.get_sample_data(middle["data"]["CAM_FRONT"])[1]),
    }
    print(json.dumps(found), flush=True)


for line in sys.stdin:
    main(line.rstrip("\n"))
