# SPDX-License-Identifier: Apache-2.0
"""What the official L5Kit reader finds in an export, as arrays. Runs in an environment of its own: protobuf below 4.

python l5kit_judge.py OUT.npz [FOLDER]      the library's types and labels, and what is in FOLDER/scenes.zarr
python l5kit_judge.py --write STORE START   a store of one agent, written by the library
"""

import json
import math
import sys

import l5kit.data as l5kit
import numpy as np
from l5kit.geometry import rotation33_as_yaw


def read(out, folder=None):
    found = {"labels": np.array(l5kit.PERCEPTION_LABELS)}
    found |= {
        f"{name}_kind": np.zeros(0, getattr(l5kit, f"{name.upper()}_DTYPE")) for name in ("scene", "frame", "agent")
    }
    if folder:
        store = l5kit.ChunkedDataset(f"{folder}/scenes.zarr").open()
        found |= {name: getattr(store, name)[:] for name in ("scenes", "frames", "agents", "tl_faces")}
        found["attributes"] = np.array(json.dumps(dict(store.root.attrs)))
        found["yaws"] = np.array([rotation33_as_yaw(frame["ego_rotation"]) for frame in found["frames"]])
        last = store.get_scene_dataset(len(store.scenes) - 1)
        found |= {"last_frames": last.frames[:], "last_agents": last.agents[:]}
    np.savez(out, **found)


def write(path, start):
    """A bus 30 degrees to the left of the vehicle, which looks north."""
    store, start = l5kit.ChunkedDataset(path).initialize("w", 1, 1, 1, 0), int(start)
    store.scenes[0] = np.array(([0, 1], "host-a013", start, start), l5kit.SCENE_DTYPE)
    north = [[0, -1, 0], [1, 0, 0], [0, 0, 1]]
    store.frames[0] = np.array((start, [0, 1], [0, 0], [100, 200, 10], north), l5kit.FRAME_DTYPE)
    shares = np.zeros(17)
    shares[[1, 6]] = 0.25, 0.75
    yaw = math.radians(90 + 30)
    store.agents[0] = np.array(([95, 220], [10, 2, 3], yaw, [0, 5], 7, shares), l5kit.AGENT_DTYPE)


if sys.argv[1] == "--write":
    write(*sys.argv[2:])
else:
    read(*sys.argv[1:])
