# SPDX-License-Identifier: Apache-2.0
"""A small dataset of two sequences with labels of every kind, written by pyarrow and zipfile alone."""

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa

from edgefirst_ros import Dataset

OTHER = "second_2026_01_02_04_00_00"
HOSTILE = [
    "a/b\\c",
    "two\nlines",
    'say "it\'s"',
    "{yaml}: [x] # & *",
    "",
    "x" * 3000,
    "\u202eright\u2066 left",
    "Car",
    "car",
]
HOSTILE += ["no", "7", "null", "é", "🚗", "\x00\x1b[31m", "- dash", "<script>"]


def write(folder, rows, layout="zip", groups=None, looked=()):
    """A dataset of two sequences with pictures of 32 x 24; `looked`: frames of the first that the model looked at."""
    parts = made.good()
    for frame in made.FRAMES:
        parts.members[f"{OTHER}/{OTHER}_{frame:03d}.camera.jpeg"] = made.jpeg(frame)
        parts.frames.append({**parts.frames[0], "name": OTHER, "frame": frame})
    path = made.write(folder, parts, layout)
    dataset = Dataset(path)
    frames = dataset.frames.with_columns(
        model_timestamp=pl.when((pl.col("name") == made.SEQUENCE) & pl.col("frame").is_in(list(looked)))
        .then(pl.col("timestamp"))
        .otherwise(pl.lit(None, pl.Int64))
    )
    table = frames.to_arrow(compat_level=pl.CompatLevel.oldest())
    known = pa.ipc.open_file(dataset.paths.frames).schema.metadata
    with pa.ipc.new_file(dataset.paths.frames, table.schema.with_metadata(known)) as file:
        file.write_table(table)
    dataset.paths.arrow.unlink()
    dataset = Dataset(path)
    if groups:
        every = pl.DataFrame({"name": list(groups), "group": list(groups.values())})
        blank = pl.DataFrame({"name": [s.name for s in dataset], "frame": [s.frame for s in dataset]})
        rows = pl.concat([rows, blank], how="diagonal_relaxed").join(every, on="name", how="left")
    dataset.write_annotations(rows)
    return Dataset(path)


def boxes(number, seed=0, names=("car", "person")):
    """Rows with boxes at random places of all samples, float32."""
    random = np.random.default_rng(seed)
    size = random.uniform(1e-4, 0.5, (number, 2)).astype(np.float32)
    centre = (size / 2 + random.uniform(0, 1, (number, 2)) * (1 - size)).astype(np.float32)
    return pl.DataFrame(
        {
            "name": [(made.SEQUENCE, OTHER)[n % 2] for n in range(number)],
            "frame": [made.FRAMES[n // 2 % 3] for n in range(number)],
            "label": [names[n % len(names)] for n in range(number)],
            "box2d": pl.Series(np.concatenate([centre, size], 1), dtype=pl.Array(pl.Float32, 4)),
            "object_id": [f"00000000-0000-4000-8000-{n:012d}" for n in range(number)],
            "box2d_score": pl.Series(random.uniform(0, 1, number), dtype=pl.Float32),
        }
    )
